//! Why a driver cannot use its controller or a device behind it, and what they said that cannot be.

use crate::said;
use core::fmt;
use hw::OutOfDma;

/// Why the driver cannot use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 0 has fewer bytes than registers need.
    Bar {
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Registers read all ones: the controller is gone.
    Gone,
    /// It did not do in time what the specification says that it does.
    Timeout(&'static str),
    /// The controller says that it cannot go on, by these bits of USBSTS.
    Failed(u32),
    /// It cannot do something that the driver needs.
    Lacks(&'static str),
    /// The controller refused a command, with this completion code.
    Refused {
        /// What was refused.
        command: &'static str,
        /// The completion code (xHCI 1.2, 6.4.5).
        code: u8,
    },
    /// A device refused a request, by a stall.
    Stalled,
    /// A transfer failed, with this completion code.
    Transfer(u8),
    /// No port has a disk.
    NoDisk,
    /// The device was taken out.
    Unplugged,
    /// Another device is where the one was that the driver had.
    Another,
    /// A disk refused something, with this sense key and additional code.
    Sense {
        /// What was refused.
        command: &'static str,
        /// The key in the high byte, the code in the low one (SPC-4, 4.5).
        sense: u16,
    },
    /// What it says of itself cannot be.
    Config(&'static str),
    /// It said something that cannot be.
    Lie(Lie),
    /// DMA memory is used up.
    Dma(OutOfDma),
}

impl Error {
    /// Whether it is about one device, and those beside it can be used.
    pub fn is_local(&self) -> bool {
        matches!(
            self,
            Self::Lacks(_)
                | Self::Refused { .. }
                | Self::Stalled
                | Self::Transfer(_)
                | Self::Timeout(TRANSFER)
                | Self::Unplugged
                | Self::Sense { .. }
                | Self::Config(_)
        )
    }
}

/// What is late where a device is: [`Error::Timeout`].
pub const TRANSFER: &str = "a transfer, it is done";

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
            Self::Failed(bits) => write!(
                f,
                "it says that it cannot go on (USBSTS {bits:#010x}); start the image again"
            ),
            Self::Lacks(what) => write!(f, "it has {what}; use another one"),
            Self::Refused { command, code } => write!(
                f,
                "it refused {command} (completion code {code}); plug the device in elsewhere"
            ),
            Self::Stalled => f.write_str("a device refused a request; use another one"),
            Self::Transfer(code) => write!(
                f,
                "a transfer failed (completion code {code}); look at the device's cable"
            ),
            Self::NoDisk => f.write_str("none of its ports has a disk; plug one in"),
            Self::Unplugged => f.write_str("the disk was taken out; plug it in, and start again"),
            Self::Another => f.write_str(
                "another disk is where the first one was, and gets nothing; start the image again",
            ),
            Self::Sense { command, sense } => write!(
                f,
                "the disk refused {command} (sense {sense:#06x}); use another one"
            ),
            Self::Config(what) => write!(f, "what it says of itself cannot be: {what}"),
            Self::Lie(lie) => write!(f, "{lie}"),
            Self::Dma(out) => out.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// What cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An event is about something that was not asked for; this is its kind.
    Event(u8),
    /// A new slot has a number that is in use, or none that there is.
    Slot(u8),
    /// A transfer moved more bytes than it has.
    Length,
    /// A status of a command has another signature, length or tag than it must, or a status that
    /// there is not.
    Status,
    /// More bytes were not moved than were asked for.
    Residue,
    /// The disk lost track of a command.
    Phase,
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(kind) => write!(f, "it reported what nobody asked for (event {kind})"),
            Self::Slot(slot) => write!(f, "it gave out slot {slot}, which is not free"),
            Self::Length => f.write_str("it moved more bytes than a transfer has"),
            Self::Status => f.write_str("the disk answered a command by something else"),
            Self::Residue => f.write_str("the disk left out more bytes than there are"),
            Self::Phase => f.write_str("the disk lost track of a command"),
        }
    }
}
