//! Tuples of values: elements of concatenations.

use super::{Gathered, NAMED_IN_DEFINE, Scope, WILDCARD, mismatch};
use crate::fields::Type;
use crate::nft::ast::{Operand, Span, Spanned, Value};
use crate::nft::{Error, ErrorKind};
use alloc::vec::Vec;

/// Tuples of intervals, one behind the other, and where each of them stands.
#[derive(Default)]
pub(crate) struct Tuples {
    pub(crate) bounds: Vec<(u128, u128)>,
    pub(crate) spans: Vec<Span>,
    /// Elements and variables that were looked at: what is bounded.
    taken: usize,
    /// Whether there was a range or a prefix among them.
    pub(crate) interval: bool,
}

impl<'f, 'a> Scope<'f, 'a> {
    /// The tuples that these elements are.
    pub(crate) fn tuples(
        &mut self,
        kinds: &[Type],
        elements: impl Iterator<Item = &'f Spanned<Value<'a>>>,
        span: Span,
    ) -> Result<Tuples, Error> {
        let mut tuples = Tuples::default();
        for element in elements {
            self.add_tuple(kinds, element, &mut tuples, self.limits.nesting)?;
        }
        let gathered = Gathered {
            taken: tuples.taken,
            ..Gathered::default()
        };
        self.account(&gathered, span)?;
        Ok(tuples)
    }

    /// The elements of an operand that is a set, perhaps by way of variables.
    pub(crate) fn elements_of(
        &self,
        mut operand: &'f Operand<'a>,
    ) -> Result<Option<&'f [Spanned<Value<'a>>]>, Error> {
        for _ in 0..=self.limits.nesting {
            match operand {
                Operand::Set(elements) => return Ok(Some(&elements.node)),
                Operand::Named(_) => return Ok(None),
                Operand::Value(value) => match value.node {
                    Value::Variable(name) => operand = self.variable(name, value.span)?,
                    _ => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// Adds the tuple that an element is, or those that its variable stands for.
    fn add_tuple(
        &self,
        kinds: &[Type],
        element: &'f Spanned<Value<'a>>,
        tuples: &mut Tuples,
        nesting: usize,
    ) -> Result<(), Error> {
        let span = element.span;
        tuples.taken += 1;
        if tuples.taken > self.limits.set_elements {
            let (what, max) = ("elements in a set", self.limits.set_elements);
            return Err(Error::new(span, ErrorKind::Limit { what, max }));
        }
        let parts = match &element.node {
            Value::Joined(parts) => parts,
            Value::Variable(name) => {
                let nesting = nesting.checked_sub(1).ok_or(self.too_nested(span))?;
                return match self.variable(name, span)? {
                    Operand::Value(value) => self.add_tuple(kinds, value, tuples, nesting),
                    Operand::Set(elements) => {
                        let mut elements = elements.node.iter();
                        elements.try_for_each(|it| self.add_tuple(kinds, it, tuples, nesting))
                    }
                    Operand::Named(name) => {
                        Err(Error::new(name.span, ErrorKind::Refused(&NAMED_IN_DEFINE)))
                    }
                };
            }
            _ => return Err(Error::new(span, ErrorKind::Parts(kinds.len()))),
        };
        if parts.len() != kinds.len() {
            return Err(Error::new(span, ErrorKind::Parts(kinds.len())));
        }
        let before = tuples.bounds.len();
        for (part, kind) in parts.iter().zip(kinds) {
            match self.part(part, *kind, tuples)? {
                Some(bounds) => tuples.bounds.push(bounds),
                // No port has this name, so that no frame has this tuple.
                None => {
                    tuples.bounds.truncate(before);
                    return Ok(());
                }
            }
        }
        tuples.spans.push(span);
        Ok(())
    }

    /// The interval that a part of an element is; none if it is the name of no port.
    fn part(
        &self,
        part: &Spanned<Value<'a>>,
        kind: Type,
        tuples: &mut Tuples,
    ) -> Result<Option<(u128, u128)>, Error> {
        let mut gathered = Gathered::default();
        self.add(part, kind, &mut gathered, self.limits.nesting)?;
        if kind == Type::InterfaceName && gathered.interval {
            return Err(Error::new(part.span, ErrorKind::Refused(&WILDCARD)));
        }
        tuples.interval |= gathered.interval;
        match *gathered.placed {
            [(low, high, _)] => Ok(Some((low, high))),
            [] => Ok(None),
            _ => Err(mismatch(kind, part.span)),
        }
    }
}
