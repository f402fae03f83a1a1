//! What a table has by name that several rules share, and how that is printed.

use super::ast::{Name, TimeoutPolicy};
use crate::limit::Rate;
use crate::quota::Allowance;
use core::fmt::{self, Display, Formatter};

/// `counter NAME { ... }`, `quota NAME { ... }`, `limit NAME { ... }` or `ct timeout NAME { ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// What it is.
    pub what: What,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// What an object is, and what it begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `packets N bytes M`, which are 0 without that line.
    Counter {
        /// Frames.
        packets: u64,
        /// Bytes.
        bytes: u64,
    },
    /// `[over] N UNIT [used N UNIT]`.
    Quota {
        /// What is allowed.
        allowance: Allowance,
        /// What of that is used.
        used: u64,
    },
    /// `rate ...`.
    Limit(Rate),
    /// How long connections stay.
    Timeout(TimeoutPolicy),
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// `counter`.
    Counter,
    /// `quota`.
    Quota,
    /// `limit`.
    Limit,
    /// `ct timeout`.
    Timeout,
}

impl ObjectKind {
    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Quota => "quota",
            Self::Limit => "limit",
            Self::Timeout => "ct timeout",
        }
    }
}

impl What {
    /// The kind of it.
    pub const fn kind(&self) -> ObjectKind {
        match self {
            Self::Counter { .. } => ObjectKind::Counter,
            Self::Quota { .. } => ObjectKind::Quota,
            Self::Limit(_) => ObjectKind::Limit,
            Self::Timeout(_) => ObjectKind::Timeout,
        }
    }
}

impl Display for Object<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\t{} {} {{", self.what.kind().name(), self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        writeln!(f, "\t\t{}", self.what)?;
        f.write_str("\t}")
    }
}

impl Display for What {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter { packets, bytes } => write!(f, "packets {packets} bytes {bytes}"),
            Self::Quota { allowance, used } => {
                allowance.fmt(f)?;
                used_of(*used, f)
            }
            Self::Limit(rate) => rate.write(f),
            Self::Timeout(policy) => policy.fmt(f),
        }
    }
}

/// ` used N UNIT`, if something is.
pub(super) fn used_of(used: u64, f: &mut Formatter<'_>) -> fmt::Result {
    match used {
        0 => Ok(()),
        used => {
            let (unit, count) = crate::limit::in_units(used);
            write!(f, " used {count} {unit}")
        }
    }
}
