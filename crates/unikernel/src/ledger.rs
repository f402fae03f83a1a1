//! What a network port counts, by the name that it has.

use crate::counters::{Counter, counter};
use crate::host::Errno;
use abi::share::{COUNTERS_PER_PORT, PORT_COUNTERS, PortCounter};

/// Name and counters of a port.
#[derive(Clone, Copy)]
pub(crate) struct Ledger {
    pub(crate) name: &'static str,
    counters: [Counter; PORT_COUNTERS.len()],
}

impl Ledger {
    /// Of the port with this index in the manifest.
    pub(crate) fn new(index: u8, name: &'static str) -> Self {
        let first = usize::from(index) * COUNTERS_PER_PORT;
        Self {
            name,
            counters: core::array::from_fn(|number| counter(first + number)),
        }
    }

    #[inline]
    pub(crate) fn count(&self, what: PortCounter, amount: u64) {
        self.counters[what as usize].add(amount);
    }

    /// Counts a frame that was not sent.
    pub(crate) fn lost(&self, reason: PortCounter) -> Sent {
        self.count(reason, 1);
        Sent {
            lost: Some(reason),
            ..Sent::default()
        }
    }

    /// Counts a frame that the host did not take.
    #[cold]
    pub(crate) fn refused(&self, errno: Errno) -> Sent {
        self.lost(match errno {
            Errno::BAD_STATE => self.gone(errno),
            Errno::IO => PortCounter::TxLinkDown,
            Errno::AGAIN | Errno::NO_BUFFERS | Errno::NO_MEMORY => PortCounter::TxNoRoom,
            _ => PortCounter::TxRefused,
        })
    }

    /// Counts what was sent.
    #[inline]
    pub(crate) fn sent(&self, sent: &Sent) {
        self.count(PortCounter::TxFrames, sent.frames);
        self.count(PortCounter::TxBytes, sent.bytes);
    }

    /// Ends the guest: the host reports this port as ready for ever, and the jail has no call by
    /// which the guest could stop listening to it.
    #[cold]
    pub(crate) fn gone(&self, errno: Errno) -> ! {
        crate::println!(
            "outboard: port {}: the host's network device is gone (errno {})",
            self.name,
            errno.0
        );
        crate::exit(abi::exit::DEVICE_GONE)
    }
}

/// What sending frames came to: what went out, and the counter of what did not.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: Option<PortCounter>,
}

impl Sent {
    /// One frame of this length went out.
    #[inline]
    pub(crate) fn one(length: u64) -> Self {
        Self {
            frames: 1,
            bytes: length,
            lost: None,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.lost = self.lost.or(other.lost);
    }
}
