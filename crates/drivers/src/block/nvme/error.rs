//! Why a driver cannot use its device, and what a device wrote that cannot be.

use super::command::Status;
use crate::said;
use core::fmt;
use hw::OutOfDma;

/// Why the driver cannot use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 0 has fewer bytes than registers and doorbells need.
    Bar {
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Registers read all ones: it is gone.
    Gone,
    /// It did not do in time what the specification says that it does.
    Timeout(&'static str),
    /// It says that it cannot go on (CSTS.CFS).
    Fatal,
    /// Something else has reset or stopped it (CSTS.RDY, CC).
    Stopped,
    /// It cannot do something that the driver needs.
    Lacks(&'static str),
    /// It refused a command that it must carry out.
    Refused {
        /// Which.
        command: &'static str,
        /// Its answer.
        status: Status,
    },
    /// What it says of itself or of a namespace cannot be.
    Config(&'static str),
    /// There is no such namespace, or none at all.
    Namespace(Option<u32>),
    /// It wrote a completion that cannot be.
    Lie(Lie),
    /// DMA memory is used up.
    Dma(OutOfDma),
}

impl From<OutOfDma> for Error {
    fn from(out: OutOfDma) -> Self {
        Self::Dma(out)
    }
}

impl From<Lie> for Error {
    fn from(lie: Lie) -> Self {
        Self::Lie(lie)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar { wanted, found } => {
                said::short(f, format_args!("BAR 0"), 0, [*found, *wanted])
            }
            Self::Gone => said::gone(f),
            Self::Timeout(what) => said::late(f, what),
            Self::Fatal => f.write_str(
                "it says that it cannot go on (CSTS.CFS); start the image again, and if that does \
                 not help, use another disk",
            ),
            Self::Stopped => f.write_str(
                "something else has reset it or shut it down; see that nothing else drives it",
            ),
            Self::Lacks(what) => write!(f, "it has {what}; use another disk"),
            Self::Refused { command, status } => {
                write!(f, "it refused {command}: {status}; use another disk")
            }
            Self::Config(what) => write!(f, "what it says of itself cannot be: {what}"),
            Self::Namespace(None) => f.write_str(
                "it has no namespace; make one, as with nvme create-ns and nvme attach-ns",
            ),
            Self::Namespace(Some(number)) => write!(
                f,
                "it has no namespace {number}; name one that nvme list-ns shows"
            ),
            Self::Lie(lie) => write!(f, "{lie}"),
            Self::Dma(out) => out.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// A completion that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Of a command that was not given to it.
    UnknownId(u16),
    /// Of a command that it has answered before.
    AnsweredTwice(u16),
    /// Of another submission queue.
    OtherQueue(u16),
    /// With a head that the submission queue cannot have.
    Head(u16),
    /// An entry was left out: it is not new, and one behind it is.
    Phase,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownId(id) => write!(f, "it answered command {id:#x}, which it did not have"),
            Self::AnsweredTwice(id) => write!(f, "it answered command {id:#x} twice"),
            Self::OtherQueue(queue) => write!(f, "it answered for submission queue {queue}"),
            Self::Head(head) => write!(f, "it said that its submission queue is at {head}"),
            Self::Phase => f.write_str("it left an entry of its completion queue out"),
        }
    }
}
