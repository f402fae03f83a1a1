//! A port over the two rings of a network: empty buffers to be filled, and frames to be sent.

use super::{Nonsense, give_up, outcome};
use crate::host::{Errno, Host};
use crate::ledger::{Ledger, Outcome};
use crate::network::{Buffers, Network};
use abi::ring::{Client, ENTRIES, Operation, Request, Sleepers, asleep};
use abi::share::PortCounter;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::RefCell;
use device::{BATCH_FRAMES_MAX, Batch, Frame, Netif, Offloads, WaitHandle};

/// A port over rings.
pub(crate) struct RingPort {
    network: Network,
    queues: Rc<Queues>,
}

impl RingPort {
    pub(super) fn new(network: Network, queues: Rc<Queues>) -> Self {
        Self { network, queues }
    }
}

impl Netif for RingPort {
    fn name(&self) -> &str {
        self.network.port.ledger.name
    }

    fn mac(&self) -> [u8; 6] {
        self.network.port.mac
    }

    fn mtu(&self) -> usize {
        self.network.port.mtu.get()
    }

    fn offloads(&self) -> Offloads {
        self.network.port.offloads
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.network.port.alloc(len, self.max_frame())
    }

    fn receive(&mut self, batch: &mut Batch) {
        let Self { network, queues } = self;
        network.port.receive(batch, BATCH_FRAMES_MAX, || {
            let (buffer, read) = queues.receive()?;
            network.received(buffer, read)
        });
        if !queues.offer() {
            network.port.ledger.count(PortCounter::NoBuffer, 1);
        }
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let Self { network, queues } = self;
        queues.finish_sent();
        let outcome =
            network
                .port
                .transmit(batch, &mut |mut frame| match network.encode(&mut frame) {
                    true => queues.send(frame),
                    false => network.port.ledger.refused(Errno::NO_BUFFERS),
                });
        network.port.ledger.sent(&outcome);
        queues.post_sent();
    }

    fn wait_handle(&self) -> WaitHandle {
        self.network.port.wait_handle()
    }
}

/// A buffer that the host has given back: the length of the frame in it, or why there is none.
type Returned = (Frame, Result<usize, Errno>);

/// The two queues of a network. The port and whoever waits for it share them.
pub(crate) struct Queues {
    host: &'static dyn Host,
    sleepers: Sleepers<'static>,
    ledger: Ledger,
    buffers: Buffers,
    /// Most buffers that wait for frames.
    buffers_max: usize,
    rx: RefCell<Queue>,
    tx: RefCell<Queue>,
}

/// A ring, and the frames that the host has, in their order.
struct Queue {
    client: Client<'static>,
    lent: VecDeque<Frame>,
}

impl Queue {
    fn new(client: Client<'static>) -> Self {
        Self {
            client,
            lent: VecDeque::with_capacity(ENTRIES as usize),
        }
    }

    /// Lends a frame to the host, which learns of it later.
    ///
    /// # Errors
    /// The frame, if the ring is full.
    #[inline]
    fn lend(&mut self, mut frame: Frame, operation: Operation) -> Result<(), Frame> {
        let bytes = frame.bytes_mut();
        let request = Request {
            address: bytes.as_mut_ptr().expose_provenance() as u64,
            length: bytes.len() as u32,
            operation,
            offset: 0,
        };
        if !self.client.write(request) {
            return Err(frame);
        }
        // There is an entry for it, and so a place here.
        self.lent.push_back(frame);
        Ok(())
    }

    /// The oldest frame that the host has given back, and what became of it.
    #[inline]
    fn take_back(&mut self) -> Result<Option<Returned>, Nonsense> {
        let Some(result) = self.client.take()? else {
            return Ok(None);
        };
        let Some(frame) = self.lent.pop_front() else {
            return Err(Nonsense::Result(result));
        };
        let length = outcome(result, frame.len())?;
        Ok(Some((frame, length)))
    }
}

impl Queues {
    pub(super) fn new(
        host: &'static dyn Host,
        sleepers: Sleepers<'static>,
        network: &Network,
        buffers_max: usize,
        rx: Client<'static>,
        tx: Client<'static>,
    ) -> Self {
        Self {
            host,
            sleepers,
            ledger: network.port.ledger,
            buffers: network.buffers,
            buffers_max,
            rx: RefCell::new(Queue::new(rx)),
            tx: RefCell::new(Queue::new(tx)),
        }
    }

    pub(super) fn index(&self) -> u8 {
        self.ledger.index
    }

    /// A buffer that the host has given back.
    #[inline]
    fn receive(&self) -> Option<Returned> {
        let taken = self.rx.borrow_mut().take_back();
        taken.unwrap_or_else(|nonsense| self.give_up(nonsense))
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn has_received(&self) -> bool {
        let has = self.rx.borrow_mut().client.has_result();
        has.unwrap_or_else(|jump| self.give_up(jump.into()))
    }

    /// Offers the host empty buffers; whether it has any.
    #[inline]
    pub(super) fn offer(&self) -> bool {
        let mut rx = self.rx.borrow_mut();
        while (rx.client.outstanding() as usize) < self.buffers_max {
            let Some(buffer) = self.buffers.take() else {
                break;
            };
            if rx.lend(buffer, Operation::Read).is_err() {
                break;
            }
        }
        if rx.client.post() {
            self.kick(asleep::NO_BUFFER);
        }
        rx.client.outstanding() != 0
    }

    /// Has a frame sent, once [`Self::post_sent`] is called. What became of it is counted later.
    #[inline]
    fn send(&self, frame: Frame) -> Outcome {
        let lent = self.tx.borrow_mut().lend(frame, Operation::Write);
        let Err(frame) = lent else {
            return Outcome::default();
        };
        self.finish_sent();
        match self.tx.borrow_mut().lend(frame, Operation::Write) {
            Ok(()) => Outcome::default(),
            Err(_) => self.ledger.refused(Errno::NO_BUFFERS),
        }
    }

    /// Tells the host of frames to be sent.
    #[inline]
    fn post_sent(&self) {
        if self.tx.borrow_mut().client.post() {
            self.kick(asleep::IDLE);
        }
    }

    /// Whether the host has frames that are to be sent. None, if we end while we look at them.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        let tx = self.tx.try_borrow();
        tx.is_ok_and(|tx| tx.client.outstanding() != 0)
    }

    /// Counts frames that were sent, or not, and gives their buffers back.
    #[inline]
    pub(super) fn finish_sent(&self) {
        let mut sum = Outcome::default();
        // What is found here may end us, and at the end we come here again.
        let Ok(mut tx) = self.tx.try_borrow_mut() else {
            return;
        };
        loop {
            match tx.take_back() {
                Ok(None) => break,
                Ok(Some((frame, Ok(_)))) => {
                    let length = frame.len() - self.buffers.header_bytes();
                    sum.add(Outcome::sent(length as u64));
                }
                Ok(Some((_, Err(errno)))) => sum.add(self.ledger.refused(errno)),
                Err(nonsense) => self.give_up(nonsense),
            }
        }
        self.ledger.sent(&sum);
    }

    /// Wakes the host if it sleeps for one of these reasons.
    #[inline]
    fn kick(&self, reasons: u64) {
        if self.sleepers.host_waits() & reasons != 0 {
            self.host.kick();
        }
    }

    #[cold]
    fn give_up(&self, nonsense: Nonsense) -> ! {
        give_up(self.ledger.runtime, self.ledger.name, nonsense)
    }
}
