//! What a port counts, under the name and the number that it has.

use crate::counters::Counter;
use crate::host::Errno;
use crate::runtime::Runtime;
use abi::share::{COUNTERS_PER_PORT, PORT_COUNTERS, PortCounter};
use device::NicCounts;

/// Reads in a row that may fail before the port counts as gone: a device that the host reports as
/// ready for ever, and that never has a frame, would keep the guest spinning.
pub(crate) const READ_ERRORS_MAX: u32 = 1000;

/// Name, number and counters of a port, and the runtime that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Ledger {
    pub(crate) runtime: &'static Runtime,
    pub(crate) name: &'static str,
    /// Index among the image's devices.
    pub(crate) index: u8,
    counters: [Counter; PORT_COUNTERS.len()],
}

impl Ledger {
    pub(crate) fn new(runtime: &'static Runtime, index: u8, name: &'static str) -> Self {
        let first = usize::from(index) * COUNTERS_PER_PORT;
        Self {
            runtime,
            name,
            index,
            counters: core::array::from_fn(|number| runtime.counter(first + number)),
        }
    }

    #[inline]
    pub(crate) fn count(&self, what: PortCounter, amount: u64) {
        self.counters[what as usize].add(amount);
    }

    /// Counts a frame that was not sent.
    pub(crate) fn lost(&self, reason: PortCounter) -> Outcome {
        self.count(reason, 1);
        Outcome {
            lost: Some(reason),
            ..Outcome::default()
        }
    }

    /// Counts a frame that the host did not take.
    #[cold]
    pub(crate) fn refused(&self, errno: Errno) -> Outcome {
        self.lost(match errno {
            Errno::BAD_STATE => self.gone(errno),
            Errno::IO => PortCounter::TxLinkDown,
            Errno::AGAIN | Errno::NO_BUFFERS | Errno::NO_MEMORY => PortCounter::TxNoRoom,
            _ => PortCounter::TxRefused,
        })
    }

    /// Counts a read that failed, the last of so many in a row. The guest ends if the device is
    /// gone, or if there were too many.
    #[cold]
    pub(crate) fn read_failed(&self, errno: Errno, in_a_row: u32) {
        self.count(PortCounter::RxError, 1);
        if errno == Errno::BAD_STATE || in_a_row > READ_ERRORS_MAX {
            self.gone(errno);
        }
    }

    /// Counts what was received.
    #[inline]
    pub(crate) fn received(&self, frames: u64, bytes: u64) {
        self.count(PortCounter::RxFrames, frames);
        self.count(PortCounter::RxBytes, bytes);
    }

    /// Counts what was sent.
    #[inline]
    pub(crate) fn sent(&self, outcome: &Outcome) {
        self.count(PortCounter::TxFrames, outcome.frames);
        self.count(PortCounter::TxBytes, outcome.bytes);
    }

    /// Counts what a driver has counted since the last time.
    pub(crate) fn counted(&self, counts: &NicCounts) {
        for (what, amount) in [
            (PortCounter::RxError, counts.rx_error),
            (PortCounter::RxLie, counts.rx_lie),
            (PortCounter::RxMissed, counts.rx_missed),
            (PortCounter::NoBuffer, counts.no_buffer),
            (PortCounter::TxNoRoom, counts.tx_no_room),
            (PortCounter::TxLinkDown, counts.tx_link_down),
            (PortCounter::TxRefused, counts.tx_refused),
            (PortCounter::PollsBusy, counts.polls_busy),
            (PortCounter::PollsIdle, counts.polls_idle),
            (PortCounter::NicResets, counts.resets),
            (PortCounter::NicGivenUp, counts.given_up.into()),
        ] {
            self.count(what, amount);
        }
    }

    /// Ends the guest: the host reports this port as ready for ever, and the jail has no call by
    /// which the guest could stop listening to it.
    #[cold]
    pub(crate) fn gone(&self, errno: Errno) -> ! {
        self.runtime.print(format_args!(
            "outboard: port {}: the host's network device is gone (errno {})\n",
            self.name, errno.0
        ));
        self.runtime.exit(abi::exit::DEVICE_GONE)
    }
}

/// What sending frames came to: how many went out, and the counter of one that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) frames: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: Option<PortCounter>,
}

impl Outcome {
    /// One frame of this length in bytes went out.
    #[inline]
    pub(crate) fn sent(length: u64) -> Self {
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
