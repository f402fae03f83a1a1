//! The two rings of a network: room for frames, and frames to be sent.

use super::{Nonsense, give_up, outcome};
use crate::host::Errno;
use crate::hvt;
use crate::ledger::{Ledger, Sent};
use abi::ring::{Client, ENTRIES, Operation, Request, Sleepers, asleep};
use alloc::collections::VecDeque;
use core::cell::RefCell;
use device::{Frame, Pool, virtio};

/// What room for frames is made of.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    pub(crate) pool: Pool,
    /// Most of them that wait for frames.
    pub(crate) most: usize,
    /// Room for one frame, in bytes, virtio-net header left out.
    pub(crate) bytes: usize,
    /// Whether there is such a header.
    pub(crate) virtio: bool,
}

impl Buffers {
    /// Room for a frame and its header.
    #[inline]
    pub(crate) fn room(&self) -> Option<Frame> {
        let mut frame = self.pool.alloc(self.bytes)?;
        if self.virtio {
            frame.push_front(virtio::HEADER_SIZE)?;
        }
        Some(frame)
    }
}

/// A buffer that the host has given back: the length of the frame in it, or why there is none.
type Returned = (Frame, Result<usize, Errno>);

/// The rings of a network.
pub(crate) struct Net {
    index: u8,
    ledger: Ledger,
    buffers: Buffers,
    sleepers: Sleepers<'static>,
    room: RefCell<Queue>,
    frames: RefCell<Queue>,
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

impl Net {
    pub(super) fn new(
        index: u8,
        ledger: Ledger,
        buffers: Buffers,
        sleepers: Sleepers<'static>,
        room: Client<'static>,
        frames: Client<'static>,
    ) -> Self {
        Self {
            index,
            ledger,
            buffers,
            sleepers,
            room: RefCell::new(Queue::new(room)),
            frames: RefCell::new(Queue::new(frames)),
        }
    }

    pub(super) fn index(&self) -> u8 {
        self.index
    }

    /// A buffer that the host has given back.
    #[inline]
    pub(crate) fn receive(&self) -> Option<Returned> {
        let taken = self.room.borrow_mut().take_back();
        taken.unwrap_or_else(|nonsense| self.give_up(nonsense))
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn has_received(&self) -> bool {
        let has = self.room.borrow_mut().client.has_result();
        has.unwrap_or_else(|jump| self.give_up(jump.into()))
    }

    /// Offers the host room for frames; whether it has any.
    #[inline]
    pub(crate) fn offer(&self) -> bool {
        let mut room = self.room.borrow_mut();
        while (room.client.outstanding() as usize) < self.buffers.most {
            let Some(frame) = self.buffers.room() else {
                break;
            };
            if room.lend(frame, Operation::Read).is_err() {
                break;
            }
        }
        if room.client.post() {
            self.kick(asleep::NO_BUFFER);
        }
        room.client.outstanding() != 0
    }

    /// Has a frame sent, once [`Self::post_sent`] is called. What became of it is counted later.
    #[inline]
    pub(crate) fn send(&self, frame: Frame) -> Sent {
        let lent = self.frames.borrow_mut().lend(frame, Operation::Write);
        let Err(frame) = lent else {
            return Sent::default();
        };
        self.finish_sent();
        match self.frames.borrow_mut().lend(frame, Operation::Write) {
            Ok(()) => Sent::default(),
            Err(_) => self.ledger.refused(Errno::NO_BUFFERS),
        }
    }

    /// Tells the host of frames to be sent.
    #[inline]
    pub(crate) fn post_sent(&self) {
        if self.frames.borrow_mut().client.post() {
            self.kick(asleep::IDLE);
        }
    }

    /// Whether the host has frames that are to be sent. None, if we end while we look at them.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        let frames = self.frames.try_borrow();
        frames.is_ok_and(|frames| frames.client.outstanding() != 0)
    }

    /// Counts frames that were sent, or not, and gives their buffers back.
    #[inline]
    pub(crate) fn finish_sent(&self) {
        let mut sum = Sent::default();
        // What is found here may end us, and at the end we come here again.
        let Ok(mut frames) = self.frames.try_borrow_mut() else {
            return;
        };
        loop {
            match frames.take_back() {
                Ok(None) => break,
                Ok(Some((frame, Ok(_)))) => sum.add(Sent::one(self.length(&frame))),
                Ok(Some((_, Err(errno)))) => sum.add(self.ledger.refused(errno)),
                Err(nonsense) => self.give_up(nonsense),
            }
        }
        self.ledger.sent(&sum);
    }

    /// Length of a frame that has its virtio-net header in front.
    fn length(&self, frame: &Frame) -> u64 {
        let header = if self.buffers.virtio {
            virtio::HEADER_SIZE
        } else {
            0
        };
        (frame.len() - header) as u64
    }

    /// Wakes the host up if it sleeps for this reason, or one of these.
    #[inline]
    fn kick(&self, reasons: u64) {
        if self.sleepers.host_waits() & reasons != 0 {
            hvt::kick();
        }
    }

    #[cold]
    fn give_up(&self, nonsense: Nonsense) -> ! {
        give_up(self.ledger.name, nonsense)
    }
}
