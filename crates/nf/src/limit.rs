//! `limit`: how many packets or bytes a rule takes in a time, as the kernel counts them
//! (`net/netfilter/nft_limit.c`). A bucket holds time: what passes takes as much of it as it costs,
//! and time fills it.

use core::fmt::{self, Display, Formatter};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a rule says: `limit rate [over] AMOUNT/PERIOD [burst BURST]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many in a period; not 0.
    pub amount: u64,
    /// Of what.
    pub unit: Unit,
    /// In which time.
    pub period: Period,
    /// How many at once: of bytes, beyond those of a period. Not 0 of packets.
    pub burst: u32,
    /// `over`: what exceeds it passes, and nothing else.
    pub over: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes, as counters of rules count them.
    Bytes,
}

/// In which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3600 s.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
}

impl Period {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Second,
        Self::Minute,
        Self::Hour,
        Self::Day,
        Self::Week,
    ];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    const fn nanoseconds(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Self::Second => SECOND,
            Self::Minute => 60 * SECOND,
            Self::Hour => 3600 * SECOND,
            Self::Day => 24 * 3600 * SECOND,
            Self::Week => 7 * 24 * 3600 * SECOND,
        }
    }
}

/// Units of bytes, the largest first.
pub(crate) const BYTE_UNITS: [(&str, u64); 3] =
    [("mbytes", 1 << 20), ("kbytes", 1 << 10), ("bytes", 1)];

impl Rate {
    /// Packets at once where a rule does not say how many.
    pub const BURST: u32 = 5;

    /// Nanoseconds of the bucket that so many of the unit cost.
    fn cost(&self, count: u64) -> u64 {
        let time = u128::from(self.period.nanoseconds());
        let cost = match self.unit {
            // Each packet costs whole nanoseconds.
            Unit::Packets => time / u128::from(self.amount) * u128::from(count),
            Unit::Bytes => time * u128::from(count) / u128::from(self.amount),
        };
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// As nft prints it in a rule.
impl Display for Rate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("limit ")?;
        self.write(f)
    }
}

impl Rate {
    /// From `rate` on.
    pub(crate) fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { amount, burst, .. } = *self;
        let (over, period) = (if self.over { "over " } else { "" }, self.period.name());
        if self.unit == Unit::Packets {
            write!(f, "rate {over}{amount}/{period}")?;
            return match burst {
                Self::BURST => Ok(()),
                burst => write!(f, " burst {burst} packets"),
            };
        }
        let (unit, count) = in_units(amount);
        write!(f, "rate {over}{count} {unit}/{period}")?;
        match in_units(burst.into()) {
            (_, 0) => Ok(()),
            (unit, count) => write!(f, " burst {count} {unit}"),
        }
    }
}

/// So many bytes in the largest unit of which they are a multiple.
pub(crate) fn in_units(bytes: u64) -> (&'static str, u64) {
    let mut units = BYTE_UNITS.into_iter();
    let unit = units.find(|(_, length)| bytes.is_multiple_of(*length));
    let (name, length) = unit.unwrap_or(("bytes", 1));
    (name, bytes / length)
}

/// A limit at work. It begins full. One thread asks it: its words are atomic so that rules can be
/// shared, and each is a plain load or store.
#[derive(Debug)]
pub struct Limit {
    rate: Rate,
    /// Nanoseconds that the bucket holds at most.
    most: u64,
    /// Nanoseconds that a packet costs.
    packet: u64,
    held: AtomicU64,
    /// When it was filled last.
    filled: AtomicU64,
}

impl Limit {
    pub(crate) fn new(rate: Rate) -> Self {
        let burst = u64::from(rate.burst);
        let most = match rate.unit {
            Unit::Packets => rate.cost(burst),
            Unit::Bytes => rate.cost(rate.amount.saturating_add(burst)),
        };
        Self {
            rate,
            most,
            packet: rate.cost(1),
            held: AtomicU64::new(most),
            filled: AtomicU64::new(0),
        }
    }

    /// The same, full.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.rate)
    }

    /// Whether a packet of so many bytes passes at `now`, in nanoseconds of a clock that does not
    /// run backwards.
    pub fn passes(&self, now: u64, bytes: u64) -> bool {
        self.passes_from(&self.held, &self.filled, now, bytes)
    }

    /// The same of another bucket with this rate, by what it holds and when it was filled last.
    pub(crate) fn passes_from(
        &self,
        held_in: &AtomicU64,
        filled_at: &AtomicU64,
        now: u64,
        bytes: u64,
    ) -> bool {
        let filled = filled_at.load(Relaxed);
        filled_at.store(filled.max(now), Relaxed);
        let came = now.saturating_sub(filled);
        let held = held_in.load(Relaxed).saturating_add(came).min(self.most);
        let cost = match self.rate.unit {
            Unit::Packets => self.packet,
            Unit::Bytes => self.rate.cost(bytes),
        };
        let rest = held.checked_sub(cost);
        held_in.store(rest.unwrap_or(held), Relaxed);
        rest.is_some() != self.rate.over
    }

    /// Whether a packet passes that exceeds nothing.
    pub(crate) fn would_pass(&self) -> bool {
        !self.rate.over
    }

    /// Nanoseconds that a full bucket holds.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const SECOND: u64 = 1_000_000_000;

    fn packets(amount: u64, burst: u32) -> Rate {
        Rate {
            amount,
            unit: Unit::Packets,
            period: Period::Second,
            burst,
            over: false,
        }
    }

    #[test]
    fn a_burst_passes_and_then_what_time_allows() {
        let limit = Limit::new(packets(10, 3));
        let at = |now| limit.passes(now, 60);
        assert_eq!([7; 5].map(at), [true, true, true, false, false]);
        assert!(!at(7 + SECOND / 10 - 1));
        assert!(at(7 + SECOND / 10));
        // A long silence fills it, and no more.
        assert_eq!([u64::MAX; 4].map(at), [true, true, true, false]);
        assert!(!at(0), "time that goes back fills nothing");
    }

    #[test]
    fn over_is_the_other_way_round() {
        let over = Rate {
            over: true,
            ..packets(1, 2)
        };
        let limit = Limit::new(over);
        let passed = [0, 0, 0, SECOND, SECOND].map(|now| limit.passes(now, 60));
        assert_eq!(passed, [false, false, true, false, true]);
    }

    #[test]
    fn bytes_may_come_at_once_for_a_period_and_the_burst() {
        let rate = Rate {
            amount: 1000,
            unit: Unit::Bytes,
            burst: 500,
            ..packets(1, 1)
        };
        let limit = Limit::new(rate);
        assert!(limit.passes(0, 1500));
        assert!(!limit.passes(0, 1));
        assert!(limit.passes(SECOND / 1000, 1));
        // What does not pass takes nothing.
        assert!(!limit.passes(SECOND / 2, 500));
        assert!(limit.passes(SECOND / 2, 499));
    }

    #[test]
    fn nothing_overflows() {
        for unit in [Unit::Packets, Unit::Bytes] {
            for (amount, burst) in [(1, u32::MAX), (u64::MAX, u32::MAX), (u64::MAX, 1)] {
                let rate = Rate {
                    amount,
                    unit,
                    period: Period::Week,
                    burst,
                    over: false,
                };
                let limit = Limit::new(rate);
                assert!(limit.passes(0, 1500));
                limit.passes(u64::MAX, u64::MAX);
            }
        }
    }

    #[test]
    fn it_is_printed_as_nft_prints_it() {
        let rate = packets(10, Rate::BURST);
        assert_eq!(rate.to_string(), "limit rate 10/second");
        let rate = Rate {
            period: Period::Minute,
            over: true,
            ..packets(10, 7)
        };
        let says = "limit rate over 10/minute burst 7 packets";
        assert_eq!(rate.to_string(), says);
        let rate = Rate {
            unit: Unit::Bytes,
            burst: 3 << 10,
            ..packets(5 << 20, 0)
        };
        let says = "limit rate 5 mbytes/second burst 3 kbytes";
        assert_eq!(rate.to_string(), says);
    }
}
