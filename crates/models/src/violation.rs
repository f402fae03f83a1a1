//! What a driver did that the specification of its device forbids.
//!
//! A model reports every violation and goes on as the device might. All models share this list; a
//! model whose device has a kind of rule that is not in it adds a variant.

use crate::dma::DmaFault;
use std::collections::BTreeMap;
use std::fmt;

/// Violations that are kept with their details; later ones are only counted.
const KEPT_MAX: usize = 64;

/// A violation of a device's specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Registers of this device are accessed in one size alone, aligned to it.
    Access {
        /// Offset in bytes.
        offset: u64,
        /// Bytes of the access.
        bytes: usize,
        /// Bits that it must have.
        bits: usize,
    },
    /// There is no register, or none that this model knows.
    NoRegister {
        /// Offset in bytes.
        offset: usize,
        /// What was written; `None` if it was read.
        written: Option<u32>,
    },
    /// A register was written that can only be read.
    ReadOnly {
        /// Its name.
        register: &'static str,
        /// Section of the specification.
        section: &'static str,
        /// What was written.
        value: u32,
    },
    /// Reserved bits were changed.
    Reserved {
        /// Its name.
        register: &'static str,
        /// Section of the specification.
        section: &'static str,
        /// The bits.
        bits: u32,
    },
    /// A register was set to a value that it cannot have.
    Value {
        /// Its name.
        register: &'static str,
        /// What was written.
        value: u32,
        /// What it must be.
        rule: &'static str,
    },
    /// A register was written before a step that must come first.
    Order {
        /// The register that was written.
        register: &'static str,
        /// What must come before.
        rule: &'static str,
    },
    /// A tail was set that is not in its ring.
    TailOutside {
        /// Which queue.
        queue: Queue,
        /// What was written.
        tail: u32,
        /// Descriptors of the ring.
        descriptors: u32,
    },
    /// A tail that moved beyond the head: more descriptors were given away than the ring has.
    TailPastHead {
        /// Which queue.
        queue: Queue,
        /// What was written.
        tail: u32,
        /// Where the head was.
        head: u32,
    },
    /// A descriptor that the specification forbids.
    Descriptor {
        /// Which queue.
        queue: Queue,
        /// Its index.
        index: u32,
        /// What it must be.
        rule: &'static str,
    },
    /// A buffer given to the device that has it already.
    BufferReused {
        /// Which queue it was given to.
        queue: Queue,
        /// Index of the descriptor.
        index: u32,
        /// Where the buffer begins.
        iova: u64,
    },
    /// A packet that cannot be sent.
    Packet {
        /// Which queue.
        queue: Queue,
        /// Bytes of it.
        bytes: usize,
        /// What it must be.
        rule: &'static str,
    },
    /// A descriptor, buffer or ring outside of DMA memory.
    Dma {
        /// Which queue.
        queue: Queue,
        /// Where.
        fault: DmaFault,
    },
}

/// A queue of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// A receive queue.
    Rx(u8),
    /// A transmit queue.
    Tx(u8),
}

impl Violation {
    /// What kind of violation it is, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Access { .. } => "access",
            Self::NoRegister { .. } => "no-register",
            Self::ReadOnly { .. } => "read-only",
            Self::Reserved { .. } => "reserved-bits",
            Self::Value { .. } => "value",
            Self::Order { .. } => "order",
            Self::TailOutside { .. } => "tail-outside",
            Self::TailPastHead { .. } => "tail-past-head",
            Self::Descriptor { .. } => "descriptor",
            Self::BufferReused { .. } => "buffer-reused",
            Self::Packet { .. } => "packet",
            Self::Dma { .. } => "dma",
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rx(queue) => write!(f, "receive queue {queue}"),
            Self::Tx(queue) => write!(f, "transmit queue {queue}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Access {
                offset,
                bytes,
                bits,
            } => {
                write!(
                    f,
                    "{bytes} bytes at {offset:#x} were accessed: registers are {bits}-bit words"
                )
            }
            Self::NoRegister { offset, written } => match written {
                Some(value) => write!(f, "{value:#x} was written to {offset:#x}, no register"),
                None => write!(f, "{offset:#x} was read, no register"),
            },
            Self::ReadOnly {
                register,
                section,
                value,
            } => {
                write!(
                    f,
                    "{value:#x} was written to {register}, which is read-only ({section})"
                )
            }
            Self::Reserved {
                register,
                section,
                bits,
            } => {
                write!(
                    f,
                    "reserved bits {bits:#x} of {register} were set ({section})"
                )
            }
            Self::Value {
                register,
                value,
                rule,
            } => {
                write!(f, "{register} was set to {value:#x}: {rule}")
            }
            Self::Order { register, rule } => write!(f, "{register} was written: {rule}"),
            Self::TailOutside {
                queue,
                tail,
                descriptors,
            } => {
                write!(
                    f,
                    "tail {tail} of {queue} in a ring of {descriptors} descriptors"
                )
            }
            Self::TailPastHead { queue, tail, head } => {
                write!(f, "tail {tail} of {queue} moved beyond head {head}")
            }
            Self::Descriptor { queue, index, rule } => {
                write!(f, "descriptor {index} of {queue}: {rule}")
            }
            Self::BufferReused { queue, index, iova } => write!(
                f,
                "descriptor {index} of {queue}: the device has the buffer at {iova:#x} already"
            ),
            Self::Packet { queue, bytes, rule } => {
                write!(f, "packet of {bytes} bytes in {queue}: {rule}")
            }
            Self::Dma { queue, fault } => write!(f, "{queue}: {fault}"),
        }
    }
}

/// All violations of a driver: how many of each kind, and the first ones in detail.
#[derive(Clone, Debug, Default)]
pub struct Violations {
    counts: BTreeMap<&'static str, u64>,
    total: u64,
    first: Vec<Violation>,
}

impl Violations {
    pub(crate) fn add(&mut self, violation: Violation) {
        *self.counts.entry(violation.kind()).or_default() += 1;
        self.total += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push(violation);
        }
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many there were of each [kind](Violation::kind).
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// The first ones, in order.
    pub fn first(&self) -> &[Violation] {
        &self.first
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.first {
            writeln!(f, "{violation}")?;
        }
        match self.total() - self.first.len() as u64 {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}
