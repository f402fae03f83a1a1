//! Frames and sectors through rings, on `hvt` under Outboard's tender; see [`abi::ring`].
//!
//! The host fills and empties buffers of ours while we run, and says so in memory: no call is made
//! but to wake it up and to sleep. Whoever sleeps is woken up by what it waits for. That a frame
//! was sent is nothing to be woken up for: it is looked at after [`LINGER`] at the latest.

mod disk;
mod net;

pub(crate) use disk::{Disk, TRANSFER_BYTES_MAX};
pub(crate) use net::{Buffers, Net};

use crate::clock::Instant;
use crate::host::Errno;
use crate::ledger::Ledger;
use crate::{exit, hvt, println};
use abi::extension::HostInfo;
use abi::pci::Info;
use abi::ring::{Jump, Sleepers, WORDS, receive, transmit, waiting};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::AtomicU64;

/// How long results of sent frames may lie around while nothing else happens, in nanoseconds.
const LINGER: u64 = 10_000_000;
/// How often they may not be there yet after that time, before they are waited for no more.
const LINGERS_MAX: usize = 100;
/// Error numbers of Linux end here.
const ERRNO_MAX: i64 = 4095;

/// The rings of this guest.
pub(crate) struct Rings {
    rings: abi::ring::Rings<'static>,
    /// The networks that were handed out.
    nets: RefCell<Vec<Rc<Net>>>,
    sleep: Sleep,
    /// What may have happened while we waited for a disk: devices without rings that had
    /// something, by their index in the manifest; perhaps none.
    pending: Cell<Option<u64>>,
    /// Whether there are such devices.
    others: bool,
}

impl Rings {
    /// # Safety
    /// If `host_info` names rings, as many bytes as it says are mapped writable at that address for
    /// ever, aligned to a page.
    pub(crate) unsafe fn new(host_info: &HostInfo) -> Option<Self> {
        if host_info.rings == 0 || (host_info.rings_bytes as usize) < WORDS * size_of::<u64>() {
            return None;
        }
        let words = host_info.rings as usize as *const AtomicU64;
        // SAFETY: mapped and aligned (caller); words of any value; only touched as atomics.
        let words = unsafe { core::slice::from_raw_parts(words, WORDS) };
        let rings = abi::ring::Rings::new(words)?;
        Some(Self {
            rings,
            nets: RefCell::new(Vec::new()),
            sleep: Sleep {
                sleepers: rings.sleepers(),
                number: Cell::new(0),
            },
            pending: Cell::new(None),
            others: host_info.pci[0] != Info::ZERO,
        })
    }

    /// The rings of the network with this index in the manifest.
    pub(crate) fn net(&self, index: u8, ledger: Ledger, buffers: Buffers) -> Option<Rc<Net>> {
        let device = usize::from(index);
        let room = self.rings.client(receive(device))?;
        let frames = self.rings.client(transmit(device))?;
        let sleepers = self.rings.sleepers();
        let net = Rc::new(Net::new(index, ledger, buffers, sleepers, room, frames));
        net.offer();
        self.nets.borrow_mut().push(Rc::clone(&net));
        Some(net)
    }

    /// The ring of the disk with this index in the manifest.
    pub(crate) fn disk(&self, index: u8, name: &'static str) -> Option<Disk> {
        let client = self.rings.client(receive(usize::from(index)))?;
        Some(Disk::new(name, client))
    }

    /// Takes results of sent frames; the networks that have received something, by their index in
    /// the manifest.
    fn ready(&self) -> u64 {
        let mut ready = 0;
        for net in self.nets.borrow().iter() {
            net.finish_sent();
            ready |= u64::from(net.has_received()) << net.index();
        }
        ready
    }

    /// Waits until all frames were sent, for a while at most: nobody sends them once we have ended.
    pub(crate) fn flush(&self) {
        let is_over = || {
            let nets = self.nets.borrow();
            nets.iter().for_each(|net| net.finish_sent());
            !nets.iter().any(|net| net.is_sending())
        };
        for _ in 0..LINGERS_MAX {
            if is_over() {
                break;
            }
            let until = Instant(hvt::monotonic() + LINGER);
            self.sleep.until(Some(until), waiting::SENT, is_over);
        }
    }

    /// As [`crate::host::wait`].
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> u64 {
        let ready = self.ready();
        let is_over = || deadline.is_some_and(|Instant(at)| hvt::monotonic() >= at);
        let pending = self.pending.take();
        if ready != 0 || pending.is_some() || is_over() {
            // Rings that always have something must not keep us from looking at the others.
            let others = if self.others { hvt::poll(0) } else { 0 };
            return ready | pending.unwrap_or(0) | others;
        }
        for _ in 0..LINGERS_MAX {
            let (mut reasons, mut lingers) = (waiting::RECEIVE, false);
            for net in self.nets.borrow().iter() {
                lingers |= net.is_sending();
                if !net.offer() {
                    reasons |= waiting::SENT;
                }
            }
            let linger = lingers.then(|| hvt::monotonic() + LINGER);
            let until = match (linger, deadline) {
                (Some(linger), Some(Instant(at))) => Some(Instant(linger.min(at))),
                (Some(linger), None) => Some(Instant(linger)),
                (None, deadline) => deadline,
            };
            let others = self.sleep.until(until, reasons, || self.ready() != 0);
            let ready = self.ready() | others;
            // Before that time, somebody had something to say.
            let early = linger.is_none_or(|linger| hvt::monotonic() < linger);
            if ready != 0 || early || is_over() {
                return ready;
            }
        }
        self.sleep
            .until(deadline, waiting::RECEIVE, || self.ready() != 0)
            | self.ready()
    }
}

/// How we sleep, so that the host wakes us up.
struct Sleep {
    sleepers: Sleepers<'static>,
    /// The number of the last one.
    number: Cell<u64>,
}

impl Sleep {
    /// Sleeps until somebody has something to say or the deadline has passed, unless it `is_over`
    /// by the time that the host knows of it. Returns the devices without rings that have
    /// something, by their index in the manifest.
    fn until(
        &self,
        deadline: Option<Instant>,
        reasons: u64,
        is_over: impl FnOnce() -> bool,
    ) -> u64 {
        self.number.set(self.number.get() + waiting::SLEEP);
        self.sleepers.guest_sleeps(self.number.get() | reasons);
        let others = if is_over() { 0 } else { hvt::wait(deadline) };
        self.sleepers.guest_sleeps(0);
        others
    }
}

/// What a result says of a transfer of at most `most` bytes.
fn outcome(result: i64, most: usize) -> Result<Result<usize, Errno>, Nonsense> {
    match usize::try_from(result) {
        Ok(length) if length <= most => Ok(Ok(length)),
        Err(_) if result >= -ERRNO_MAX => Ok(Err(Errno(-result as i32))),
        _ => Err(Nonsense::Result(result)),
    }
}

/// Something in a ring that a host cannot mean.
#[derive(Clone, Copy, Debug)]
enum Nonsense {
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
fn give_up(device: &str, nonsense: Nonsense) -> ! {
    println!("outboard: device {device}: the host's ring makes no sense: {nonsense}");
    exit(abi::exit::FAILURE)
}
