//! What a driver did that the specification of its device forbids.
//!
//! A model counts every violation and goes on as the device might. It reports each once for its
//! kind and register, so that what happens with every frame hides nothing. All models share this
//! list; a model whose device has a kind of rule that is not in it adds a variant.

use crate::dma::DmaFault;
use std::collections::BTreeMap;
use std::fmt;

/// Reports that are kept with their details; violations of others are only counted.
const REPORTS_MAX: usize = 256;

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
    /// A register was read that can only be written.
    WriteOnly {
        /// Its name.
        register: &'static str,
        /// Section of the specification.
        section: &'static str,
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
    /// A register was written while the specification would rather have it left alone; cards are
    /// known to do what was asked for.
    Advice {
        /// The register that was written.
        register: &'static str,
        /// What should come before.
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

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// A receive queue of a NIC.
    Rx(u8),
    /// A transmit queue of a NIC.
    Tx(u8),
    /// A queue of requests.
    Request(u8),
    /// A queue of commands, the only one.
    Control,
}

/// What becomes of a card whose driver does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The card would fail: it stops, goes astray, or does what nobody asked for.
    Fails,
    /// The card ignores it, and does all else as it was asked.
    Ignored,
    /// Reserved bits: this card ignores them, and another one of its kind may not.
    Reserved,
}

impl Severity {
    /// For counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Ignored => "ignored",
            Self::Reserved => "reserved",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fails => "the card would fail",
            Self::Ignored => "the card ignores it",
            Self::Reserved => "reserved bits",
        })
    }
}

impl Violation {
    /// What becomes of the card.
    pub fn severity(&self) -> Severity {
        match self {
            Self::NoRegister { .. }
            | Self::ReadOnly { .. }
            | Self::WriteOnly { .. }
            | Self::Advice { .. } => Severity::Ignored,
            Self::Reserved { .. } => Severity::Reserved,
            _ => Severity::Fails,
        }
    }

    /// Whether it is of the same kind, and about the same register, queue or rule: both are one
    /// report.
    fn is_like(&self, other: &Self) -> bool {
        use Violation::*;
        match (self, other) {
            (Access { offset: a, .. }, Access { offset: b, .. }) => a == b,
            (NoRegister { offset: a, .. }, NoRegister { offset: b, .. }) => a == b,
            (ReadOnly { register: a, .. }, ReadOnly { register: b, .. })
            | (WriteOnly { register: a, .. }, WriteOnly { register: b, .. })
            | (Reserved { register: a, .. }, Reserved { register: b, .. }) => a == b,
            (
                Value {
                    register: a,
                    rule: c,
                    ..
                },
                Value {
                    register: b,
                    rule: d,
                    ..
                },
            )
            | (
                Order {
                    register: a,
                    rule: c,
                },
                Order {
                    register: b,
                    rule: d,
                },
            )
            | (
                Advice {
                    register: a,
                    rule: c,
                },
                Advice {
                    register: b,
                    rule: d,
                },
            ) => a == b && c == d,
            (TailOutside { queue: a, .. }, TailOutside { queue: b, .. })
            | (TailPastHead { queue: a, .. }, TailPastHead { queue: b, .. })
            | (BufferReused { queue: a, .. }, BufferReused { queue: b, .. })
            | (Dma { queue: a, .. }, Dma { queue: b, .. }) => a == b,
            (
                Descriptor {
                    queue: a, rule: c, ..
                },
                Descriptor {
                    queue: b, rule: d, ..
                },
            )
            | (
                Packet {
                    queue: a, rule: c, ..
                },
                Packet {
                    queue: b, rule: d, ..
                },
            ) => a == b && c == d,
            _ => false,
        }
    }

    /// What kind of violation it is, for counts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Access { .. } => "access",
            Self::NoRegister { .. } => "no-register",
            Self::ReadOnly { .. } => "read-only",
            Self::WriteOnly { .. } => "write-only",
            Self::Reserved { .. } => "reserved-bits",
            Self::Value { .. } => "value",
            Self::Order { .. } => "order",
            Self::Advice { .. } => "advice",
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
            Self::Request(queue) => write!(f, "request queue {queue}"),
            Self::Control => write!(f, "the control queue"),
        }
    }
}

impl Violation {
    /// In words, if it is about a queue.
    fn fmt_of_queue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
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
            _ => Ok(()),
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
            } => write!(
                f,
                "{bytes} bytes at {offset:#x} were accessed: registers are {bits}-bit words"
            ),
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
            Self::WriteOnly { register, section } => {
                write!(f, "{register} was read, which is write-only ({section})")
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
            Self::Order { register, rule } | Self::Advice { register, rule } => {
                write!(f, "{register} was written: {rule}")
            }
            _ => self.fmt_of_queue(f),
        }
    }
}

/// Violations of one kind that are about the same register, queue or rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The first of them; of reserved bits, all that were set.
    pub violation: Violation,
    /// How many there were.
    pub count: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { violation, count } = self;
        write!(f, "{violation} [{}]", violation.severity())?;
        match count {
            ..=1 => Ok(()),
            times => write!(f, ", {times} times"),
        }
    }
}

/// All violations of a driver: how many of each kind, and one report for each kind and register.
#[derive(Clone, Debug, Default)]
pub struct Violations {
    total: u64,
    reports: Vec<Report>,
    /// Where the report of the last one is: a driver that does something wrong often does it with
    /// each frame.
    last: usize,
    /// How many there were that are in none of the reports.
    unreported: BTreeMap<(&'static str, Severity), u64>,
}

impl Violations {
    pub(crate) fn add(&mut self, violation: Violation) {
        self.add_often(violation, 1);
    }

    /// The same one so many times: what a driver does wrong with each frame is counted by the
    /// batch.
    pub(crate) fn add_often(&mut self, violation: Violation, times: u64) {
        self.total += times;
        let like = |report: &Report| report.violation.is_like(&violation);
        if !self.reports.get(self.last).is_some_and(like) {
            match self.reports.iter().position(like) {
                Some(place) => self.last = place,
                None => return self.add_first(violation, times),
            }
        }
        let report = &mut self.reports[self.last];
        report.count += times;
        if let (Violation::Reserved { bits, .. }, Violation::Reserved { bits: more, .. }) =
            (&mut report.violation, violation)
        {
            *bits |= more;
        }
    }

    fn add_first(&mut self, violation: Violation, count: u64) {
        if self.reports.len() < REPORTS_MAX {
            self.last = self.reports.len();
            self.reports.push(Report { violation, count });
        } else {
            let key = (violation.kind(), violation.severity());
            *self.unreported.entry(key).or_default() += count;
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
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.sums(|kind, _| kind)
    }

    /// How many there were of each severity.
    pub fn severities(&self) -> BTreeMap<Severity, u64> {
        self.sums(|_, severity| severity)
    }

    fn sums<K: Ord>(&self, key: impl Fn(&'static str, Severity) -> K) -> BTreeMap<K, u64> {
        let reports = self.reports.iter().map(|Report { violation, count }| {
            let key = (violation.kind(), violation.severity());
            (key, *count)
        });
        let unreported = self.unreported.iter().map(|(key, count)| (*key, *count));
        let mut sums = BTreeMap::new();
        for ((kind, severity), count) in reports.chain(unreported) {
            *sums.entry(key(kind, severity)).or_default() += count;
        }
        sums
    }

    /// One for each kind and register, as they came first. Their number is bounded.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// How many violations are in none of the reports.
    pub fn unreported(&self) -> u64 {
        self.unreported.values().sum()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.reports {
            writeln!(f, "{report}")?;
        }
        match self.unreported() {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_register(offset: usize) -> Violation {
        let written = None;
        Violation::NoRegister { offset, written }
    }

    #[test]
    fn a_kind_and_register_is_one_report_with_its_count() {
        let mut violations = Violations::default();
        let reserved = |register, bits| Violation::Reserved {
            register,
            section: "1.2",
            bits,
        };
        for bits in [1, 4, 1] {
            violations.add(reserved("A", bits));
        }
        violations.add(reserved("B", 2));
        (0..1000).for_each(|_| violations.add(no_register(8)));
        violations.add(no_register(12));
        let report = |violation, count| Report { violation, count };
        let expected = [
            report(reserved("A", 5), 3),
            report(reserved("B", 2), 1),
            report(no_register(8), 1000),
            report(no_register(12), 1),
        ];
        assert_eq!(violations.reports(), expected);
        assert_eq!((violations.total(), violations.unreported()), (1005, 0));
        let severities = violations.severities();
        assert_eq!(severities.get(&Severity::Reserved), Some(&4));
        assert_eq!(severities.get(&Severity::Ignored), Some(&1001));
        assert_eq!(
            violations.reports()[2].to_string(),
            "0x8 was read, no register [the card ignores it], 1000 times"
        );
    }

    #[test]
    fn reports_are_bounded_and_all_violations_counted() {
        let mut violations = Violations::default();
        (0..1000).for_each(|number| violations.add(no_register(4 * number)));
        assert_eq!(violations.reports().len(), REPORTS_MAX);
        assert_eq!(violations.total(), 1000);
        assert_eq!(violations.unreported(), 1000 - REPORTS_MAX as u64);
        assert!(violations.to_string().ends_with("and 744 more\n"));
        let counts: Vec<_> = violations.counts().into_iter().collect();
        assert_eq!(counts, [("no-register", 1000)]);
        // One that has a report is counted there.
        violations.add(no_register(8));
        assert_eq!(violations.reports()[2].count, 2);
    }
}
