//! Marks: what rules set them to, and which bits conditions are about.

use super::Resolver;
use super::context::Context;
use crate::fields::{Header, Slot, Type};
use crate::ir::{Condition, Statement};
use crate::mark::{BitOperator, MarkOf, SetMark};
use crate::nft::ast::{self, MarkSource, Masked, ObjectKind, Spanned, Value};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::values;
use alloc::vec::Vec;
use core::slice;

const BEHIND_CHANGE: Refusal = Refusal {
    what: "a condition behind a change of what the rule has asked for",
    why: "is not supported: `notrack`, zones, and a mark that the rule has compared, are set once \
          all of it matches",
    instead: Some("a rule with the condition alone behind this one"),
};

/// What a rule has asked of marks so far, and whether it has changed that.
#[derive(Default)]
pub(super) struct Marks {
    packet: bool,
    connection: bool,
    changed: bool,
}

impl Marks {
    /// Takes note of a statement.
    ///
    /// # Errors
    /// It is a condition, and one before it may not hold any more.
    pub(super) fn note(&mut self, statement: &Spanned<ast::Statement<'_>>) -> Result<(), Error> {
        use ast::Statement::{
            Change, Count, Fib, Flags, Joint, Limit, Mark, Masked, Match, Named, Notrack, Quota,
            Vmap, Zone,
        };
        let fields = match &statement.node {
            Match(condition) => slice::from_ref(&condition.field),
            Masked(masked) => slice::from_ref(&masked.condition.field),
            Vmap(vmap) => &vmap.fields,
            Joint(joint) => &joint.fields,
            // Whether there is a connection is a condition, too.
            Mark(set) if set.source == MarkSource::Mark(MarkOf::Connection) => &[],
            Change(_) | Count(_) | Flags(_) | Limit(_) | Fib(_) | Quota { .. } => &[],
            Named(ObjectKind::Limit | ObjectKind::Quota, _) => &[],
            Mark(set) => {
                self.change(set.of);
                return Ok(());
            }
            Notrack | Zone(_) => {
                self.changed = true;
                return Ok(());
            }
            _ => return Ok(()),
        };
        if self.changed {
            let kind = ErrorKind::Refused(&BEHIND_CHANGE);
            return Err(Error::new(statement.span, kind));
        }
        let asks = |slot| fields.iter().any(|field| field.node.slot() == slot);
        self.packet |= asks(Slot::Mark);
        self.connection |= asks(Slot::CtMark);
        if let Mark(set) = &statement.node {
            self.change(set.of);
        }
        Ok(())
    }

    fn change(&mut self, of: MarkOf) {
        self.changed |= match of {
            MarkOf::Packet => self.packet,
            MarkOf::Connection => self.connection,
        };
    }
}

impl<'f, 'a> Resolver<'f, 'a> {
    /// What sets a mark. That of a connection that is not there is none to copy: the rule ends, as
    /// in nft.
    pub(super) fn set_mark(
        &mut self,
        set: &'f ast::SetMark<'a>,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let from = match set.source {
            MarkSource::Mark(of) => Some(of),
            MarkSource::Value(_) => None,
        };
        if from == Some(MarkOf::Connection) {
            self.ask_connection(Header::Connection, out);
        }
        let mut mark = SetMark::new(set.of, from);
        if let MarkSource::Value(value) = &set.source {
            mark.then(BitOperator::Or, self.mark_number(value)?);
        }
        for (operator, number) in &set.operations {
            mark.then(*operator, self.mark_number(number)?);
        }
        out.push(Statement::Mark(mark));
        Ok(())
    }

    /// A condition on some bits of a mark.
    pub(super) fn masked(
        &mut self,
        masked: &'f Masked<'a>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let condition = &masked.condition;
        let set = self.values(condition)?;
        self.ask_header(condition.field, context, out)?;
        let slot = condition.field.node.slot();
        let mask = self.mark_number(&masked.mask)?;
        out.push(Statement::Match(Condition { slot, set, mask }));
        Ok(())
    }

    fn mark_number(&mut self, value: &'f Spanned<Value<'a>>) -> Result<u32, Error> {
        let (held, _) = self.scope.key(Type::Mark, value)?;
        match *held {
            [(low, high)] if low == high => Ok(low as u32),
            _ => Err(values::mismatch(Type::Mark, value.span)),
        }
    }
}
