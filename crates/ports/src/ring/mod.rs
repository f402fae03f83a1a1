//! Frames and sectors through rings, on `hvt` under Outboard's tender; see [`abi::ring`].
//!
//! The host fills and empties buffers of ours while we run, and says so in memory. We make a call
//! only to wake the host and to sleep. Whoever sleeps is woken by what it waits for. Nobody is
//! woken because a frame was sent: that is noticed after [`LINGER`] at the latest.
//!
//! A ring holds addresses of memory that the host reads and writes. So an address that is written
//! here is always that of a frame that is kept in [`net::Queue`] until the host has answered, or of
//! a slice that is borrowed until then.

mod disk;
mod net;
#[cfg(test)]
mod tests;

pub(crate) use disk::RingDisk;
pub(crate) use net::{Queues, RingPort};

use crate::clock::Instant;
use crate::host::{Errno, Host};
use crate::network::Network;
use crate::runtime::Runtime;
use abi::ring::{Jump, Sleepers, receive, transmit, waiting};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::AtomicU64;

/// How long results of sent frames may wait to be taken while nothing else happens, in
/// nanoseconds.
const LINGER: u64 = 10_000_000;
/// How often they may be missing after that time, before nobody waits for them any more.
const LINGERS_MAX: usize = 100;
/// Error numbers of Linux end here.
const ERRNO_MAX: i64 = 4095;

/// The rings of this guest.
pub struct Rings {
    words: abi::ring::Rings<'static>,
    host: &'static dyn Host,
    /// The networks that were handed out.
    networks: RefCell<Vec<Rc<Queues>>>,
    sleep: Sleep,
    /// What may have happened while we waited for a disk: devices without rings that had
    /// something, by their index; perhaps none.
    pending: Cell<Option<u64>>,
    /// Whether there are such devices.
    others: bool,
}

impl Rings {
    /// The rings in these words; `None` if there are too few of them. `others` says whether there
    /// are devices without rings.
    pub fn new(words: &'static [AtomicU64], host: &'static dyn Host, others: bool) -> Option<Self> {
        let words = abi::ring::Rings::new(words)?;
        Some(Self {
            words,
            host,
            networks: RefCell::new(Vec::new()),
            sleep: Sleep {
                host,
                sleepers: words.sleepers(),
                number: Cell::new(0),
            },
            pending: Cell::new(None),
            others,
        })
    }

    /// The port of a network that has rings; as many of its buffers wait for frames as `buffers`
    /// says. The network itself if the rings have no place for it.
    ///
    /// # Errors
    /// That network.
    pub(crate) fn port(&self, network: Network, buffers: usize) -> Result<RingPort, Box<Network>> {
        let device = usize::from(network.port.ledger.index);
        let rx = self.words.client(receive(device));
        let tx = self.words.client(transmit(device));
        let Some((rx, tx)) = rx.zip(tx) else {
            return Err(Box::new(network));
        };
        let sleepers = self.words.sleepers();
        let queues = Queues::new(self.host, sleepers, &network, buffers, rx, tx);
        let queues = Rc::new(queues);
        queues.offer();
        self.networks.borrow_mut().push(Rc::clone(&queues));
        Ok(RingPort::new(network, queues))
    }

    /// The disk with this index, if the rings have a place for it.
    pub(crate) fn disk(
        &'static self,
        runtime: &'static Runtime,
        index: u8,
        name: &'static str,
    ) -> Option<RingDisk> {
        let client = self.words.client(receive(usize::from(index)))?;
        Some(RingDisk::new(runtime, self, name, client))
    }

    /// Takes results of sent frames; the networks that have received something, by their index.
    fn ready(&self) -> u64 {
        let mut ready = 0;
        for queues in self.networks.borrow().iter() {
            queues.finish_sent();
            ready |= u64::from(queues.has_received()) << queues.index();
        }
        ready
    }

    /// Waits until all frames were sent, for a while at most: nobody sends them once we have ended.
    pub(crate) fn flush(&self) {
        let is_over = || {
            let networks = self.networks.borrow();
            networks.iter().for_each(|queues| queues.finish_sent());
            !networks.iter().any(|queues| queues.is_sending())
        };
        for _ in 0..LINGERS_MAX {
            if is_over() {
                break;
            }
            let until = Instant(self.host.monotonic() + LINGER);
            self.sleep.until(Some(until), waiting::SENT, is_over);
        }
    }

    /// As [`Host::wait`].
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> u64 {
        let ready = self.ready();
        let is_over = || deadline.is_some_and(|Instant(at)| self.host.monotonic() >= at);
        let pending = self.pending.take();
        if ready != 0 || pending.is_some() || is_over() {
            // Rings that always have something must not keep us from looking at the others.
            let others = match self.others {
                true => self.host.wait(Some(Instant::PAST), None),
                false => 0,
            };
            return ready | pending.unwrap_or(0) | others;
        }
        for _ in 0..LINGERS_MAX {
            let (mut reasons, mut lingers) = (waiting::RECEIVE, false);
            for queues in self.networks.borrow().iter() {
                lingers |= queues.is_sending();
                if !queues.offer() {
                    reasons |= waiting::SENT;
                }
            }
            let linger = lingers.then(|| self.host.monotonic() + LINGER);
            let until = match (linger, deadline) {
                (Some(linger), Some(Instant(at))) => Some(Instant(linger.min(at))),
                (Some(linger), None) => Some(Instant(linger)),
                (None, deadline) => deadline,
            };
            let others = self.sleep.until(until, reasons, || self.ready() != 0);
            let ready = self.ready() | others;
            // Before that time, somebody had something to say.
            let early = linger.is_none_or(|linger| self.host.monotonic() < linger);
            if ready != 0 || early || is_over() {
                return ready;
            }
        }
        self.sleep
            .until(deadline, waiting::RECEIVE, || self.ready() != 0)
            | self.ready()
    }
}

/// How we sleep, so that the host wakes us.
struct Sleep {
    host: &'static dyn Host,
    sleepers: Sleepers<'static>,
    /// The number of the last sleep.
    number: Cell<u64>,
}

impl Sleep {
    /// Sleeps until somebody has something to say or the deadline has passed, unless it `is_over`
    /// by the time that the host knows of it. Returns the devices without rings that have
    /// something, by their index.
    fn until(
        &self,
        deadline: Option<Instant>,
        reasons: u64,
        is_over: impl FnOnce() -> bool,
    ) -> u64 {
        self.number.set(self.number.get() + waiting::SLEEP);
        self.sleepers.guest_sleeps(self.number.get() | reasons);
        let others = if is_over() {
            0
        } else {
            self.host.wait(deadline, None)
        };
        self.sleepers.guest_sleeps(0);
        others
    }
}

/// What a result says of a transfer of at most `most` bytes.
pub(crate) fn outcome(result: i64, most: usize) -> Result<Result<usize, Errno>, Nonsense> {
    match usize::try_from(result) {
        Ok(length) if length <= most => Ok(Ok(length)),
        Err(_) if result >= -ERRNO_MAX => Ok(Err(Errno(-result as i32))),
        _ => Err(Nonsense::Result(result)),
    }
}

/// Something in a ring that a host cannot mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nonsense {
    Index(Jump),
    Result(i64),
}

impl From<Jump> for Nonsense {
    fn from(jump: Jump) -> Self {
        Self::Index(jump)
    }
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(Jump { from, to }) => write!(f, "its index went from {from} to {to}"),
            Self::Result(result) => write!(f, "it says that a transfer came to {result}"),
        }
    }
}

/// Ends the guest: nothing that this host says can be relied on.
#[cold]
fn give_up(runtime: &Runtime, device: &str, nonsense: Nonsense) -> ! {
    runtime.print(format_args!(
        "outboard: device {device}: the host's ring makes no sense: {nonsense}\n"
    ));
    runtime.exit(abi::exit::FAILURE)
}
