//! What a file says of marks, and how that is printed.

use super::ast::{Match, Spanned, Value};
use crate::mark::{BitOperator, MarkOf};
use alloc::boxed::Box;
use core::fmt::{self, Display, Formatter};

/// `meta mark set EXPRESSION` or `ct mark set EXPRESSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMark<'a> {
    /// Whose mark is set.
    pub of: MarkOf,
    /// What it is made of.
    pub source: MarkSource<'a>,
    /// What is done with that, one after the other.
    pub operations: Operations<'a>,
}

/// Operations on the bits of a mark, and the number of each.
pub type Operations<'a> = Box<[(BitOperator, Spanned<Value<'a>>)]>;

/// What a mark is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkSource<'a> {
    /// A number.
    Value(Spanned<Value<'a>>),
    /// The mark of somebody.
    Mark(MarkOf),
}

/// `MARK & MASK OPERATOR OPERAND`: a condition on some bits of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Masked<'a> {
    /// The condition, as if there were no mask.
    pub condition: Match<'a>,
    /// The bits that it is about.
    pub mask: Spanned<Value<'a>>,
}

impl Display for SetMark<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} set ", self.of.name())?;
        match &self.source {
            MarkSource::Value(value) => value.fmt(f)?,
            MarkSource::Mark(of) => f.write_str(of.name())?,
        }
        let mut operations = self.operations.iter();
        operations.try_for_each(|(operator, number)| write!(f, " {} {number}", operator.name()))
    }
}

impl Display for Masked<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Match {
            field,
            operator,
            operand,
        } = &self.condition;
        // Equality has no sign of its own.
        let operator = operator.node.symbol().unwrap_or("==");
        write!(f, "{field} & {} {operator} {operand}", self.mask)
    }
}
