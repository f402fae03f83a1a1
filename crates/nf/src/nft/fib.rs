//! What a file says of `fib`, and how that is printed.

use super::ast::{Operand, Spanned};
use crate::fib::FibPort;
use crate::nft::ast::Operator;
use core::fmt::{self, Display, Formatter};

/// `fib ADDRESS [. PORT] RESULT ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fib<'a> {
    /// Whether it is about `saddr`, or about `daddr`.
    pub of_source: bool,
    /// `iif` or `oif` beside the address.
    pub port: FibPort,
    /// What is asked for, and how it is compared.
    pub test: FibTest<'a>,
}

/// What is asked for, and how it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FibTest<'a> {
    /// `oif exists`, or `oif missing`.
    Exists(bool),
    /// A comparison.
    Compared {
        /// `oif`, `oifname` or `type`.
        result: FibResult,
        /// How.
        operator: Spanned<Operator>,
        /// With what.
        operand: Operand<'a>,
    },
}

/// What routes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibResult {
    /// `oif`: the port that leads to the address.
    Oif,
    /// `oifname`: the same.
    Oifname,
    /// `type`: what the address is to the router.
    Type,
}

impl FibResult {
    /// Every result.
    pub const ALL: [Self; 3] = [Self::Oif, Self::Oifname, Self::Type];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Oif => "oif",
            Self::Oifname => "oifname",
            Self::Type => "type",
        }
    }
}

impl Display for Fib<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.of_source {
            "fib saddr"
        } else {
            "fib daddr"
        })?;
        match self.port {
            FibPort::Any => {}
            FibPort::Input => f.write_str(" . iif")?,
            FibPort::Output => f.write_str(" . oif")?,
        }
        match &self.test {
            FibTest::Exists(true) => f.write_str(" oif exists"),
            FibTest::Exists(false) => f.write_str(" oif missing"),
            FibTest::Compared {
                result,
                operator,
                operand,
            } => write!(f, " {}{operator} {operand}", result.name()),
        }
    }
}
