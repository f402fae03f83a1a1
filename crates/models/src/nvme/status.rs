//! Status of completions (Base 2.0, 3.3.3.2.1; NVM Command Set 1.0, 3.1.2), and why commands fail.

use crate::dma::DmaFault;
use std::io;

/// Code in the low eight bits, type in the three above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(super) u16);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    // Generic (figure 94).
    pub(crate) const INVALID_OPCODE: Self = Self(0x01);
    pub(crate) const INVALID_FIELD: Self = Self(0x02);
    pub(crate) const DATA_TRANSFER: Self = Self(0x04);
    pub(crate) const ABORT_REQUESTED: Self = Self(0x07);
    pub(crate) const INVALID_NAMESPACE: Self = Self(0x0b);
    pub(crate) const PRP_OFFSET: Self = Self(0x13);
    pub(crate) const WRITE_PROTECTED: Self = Self(0x20);
    pub(crate) const LBA_OUT_OF_RANGE: Self = Self(0x80);
    // Of a command (figure 95).
    pub(crate) const INVALID_COMPLETION_QUEUE: Self = Self(0x100);
    pub(crate) const INVALID_QUEUE: Self = Self(0x101);
    pub(crate) const INVALID_QUEUE_SIZE: Self = Self(0x102);
    pub(crate) const TOO_MANY_EVENTS: Self = Self(0x105);
    pub(crate) const INVALID_VECTOR: Self = Self(0x108);
    pub(crate) const INVALID_LOG: Self = Self(0x109);
    pub(crate) const INVALID_DELETION: Self = Self(0x10c);
    // Of the media (figure 96).
    pub(crate) const WRITE_FAULT: Self = Self(0x280);
    pub(crate) const READ_ERROR: Self = Self(0x281);
}

/// Why a command fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver may find out like that that it is not there.
    Said(Status),
    /// The driver broke a rule, which has its section.
    Rule(Status, &'static str),
    /// Its memory is not there.
    Dma(DmaFault),
    /// The kernel cannot do it to the file: the driver is told as of a disk that is broken.
    Disk(Status),
}

impl Failure {
    /// What the driver is told.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Said(status) | Self::Rule(status, _) | Self::Disk(status) => *status,
            Self::Dma(_) => Status::DATA_TRANSFER,
        }
    }

    pub(crate) fn of_read(_: io::Error) -> Self {
        Self::Disk(Status::READ_ERROR)
    }

    pub(crate) fn of_write(_: io::Error) -> Self {
        Self::Disk(Status::WRITE_FAULT)
    }
}

impl From<DmaFault> for Failure {
    fn from(fault: DmaFault) -> Self {
        Self::Dma(fault)
    }
}
