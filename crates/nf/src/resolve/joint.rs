//! Concatenations: conditions on several fields at once, sets and maps of tuples.

use super::context::Context;
use super::{Resolver, ir, values};
use crate::changing::What;
use crate::fields::{Field, Slot, Type};
use crate::ir::{Joint, Outcome, Statement};
use crate::nft::ast::{self, Operand, Operator, Spanned};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::tuples::{Layout, WORDS_MAX};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Words of the name of an interface, to nft.
const WORDS_OF_NAME: usize = 4;

const OF_CONNECTION: Refusal = Refusal {
    what: "a field of a connection in a concatenation",
    why: "is not supported",
    instead: Some("a condition of its own in front"),
};
const FLAGS: Refusal = Refusal {
    what: "flags in a concatenation",
    why: "are not supported",
    instead: Some("a condition of its own in front"),
};
const SINGLE: Refusal = Refusal {
    what: "one value for a concatenation",
    why: "is not accepted by nft either",
    instead: Some("a set: `{ 10.0.0.1 . 80 }`"),
};
pub(super) const TOO_LONG: Refusal = Refusal {
    what: "a concatenation of more than 64 bytes",
    why: "is not supported by nft",
    instead: Some("fewer fields, of which a name of an interface has 16 bytes"),
};
const MERGED: Refusal = Refusal {
    what: "`auto-merge`",
    why: "means nothing for a concatenation",
    instead: Some("leave it out"),
};

/// A named set of tuples.
pub(super) struct NamedTuples {
    kinds: Box<[Type]>,
    bounds: Box<[(u128, u128)]>,
    /// Numbers of the sets that it has become, for each order of fields.
    numbers: Vec<u32>,
}

impl<'f, 'a> Resolver<'f, 'a> {
    /// Takes down a named set of tuples.
    pub(super) fn named_tuples(&mut self, set: &'f ast::Set<'a>) -> Result<(), Error> {
        let span = set.name.span;
        if set.auto_merge {
            return Err(Error::new(span, ErrorKind::Refused(&MERGED)));
        }
        let kinds: Box<[Type]> = set.keys.iter().map(|key| key.node).collect();
        let mut bounds = Vec::new();
        for element in set.elements.chunks(1) {
            let tuples = self.scope.tuples(&kinds, element.iter(), span)?;
            if tuples.interval && !set.interval {
                let span = element.first().map_or(span, |element| element.span);
                return Err(Error::new(span, ErrorKind::NeedsInterval));
            }
            bounds.extend(tuples.bounds);
        }
        let named = NamedTuples {
            kinds,
            bounds: bounds.into(),
            numbers: Vec::new(),
        };
        self.tuples.insert(set.name.node, named);
        Ok(())
    }

    /// A condition on several fields.
    pub(super) fn joint(
        &mut self,
        joint: &'f ast::Joint<'a>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let negated = match joint.operator.node {
            Operator::Equal => false,
            Operator::NotEqual => true,
            _ => {
                let kind = ErrorKind::Refused(&values::ORDER_OF_MANY);
                return Err(Error::new(joint.operator.span, kind));
            }
        };
        if let Operand::Named(name) = &joint.operand
            && self.is_changed(name.node)
        {
            let what = What::Asks { negated };
            return self.uses(*name, &joint.fields, what, context, out);
        }
        let slots = self.joined(&joint.fields, context, out)?;
        let kinds = kinds_of(&joint.fields);
        let joint = match &joint.operand {
            Operand::Named(name) => self.tuples_of(*name, &kinds, slots)?,
            operand => {
                let elements = self.scope.elements_of(operand)?;
                let span = joint.operator.span;
                let elements = elements.ok_or(Error::new(span, ErrorKind::Refused(&SINGLE)))?;
                let tuples = self.scope.tuples(&kinds, elements.iter(), span)?;
                self.push_joint(slots, tuples.bounds.into())
            }
        };
        out.push(Statement::Joint { joint, negated });
        Ok(())
    }

    /// The places of joined fields. Adds what they imply.
    pub(super) fn joined(
        &mut self,
        fields: &[Spanned<Field>],
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<Box<[Slot]>, Error> {
        let mut words = 0;
        for field in fields {
            let refuse = |refusal| Err(Error::new(field.span, ErrorKind::Refused(refusal)));
            if field.node.is_of_connection() {
                return refuse(&OF_CONNECTION);
            }
            if field.node.value_type().is_flags() {
                return refuse(&FLAGS);
            }
            self.check_link(*field)?;
            self.ask_header(*field, context, out)?;
            words += match field.node.value_type() {
                Type::InterfaceName => WORDS_OF_NAME,
                _ => Layout::new([field.node.slot()].into()).words(),
            };
            if words > WORDS_MAX {
                return refuse(&TOO_LONG);
            }
        }
        Ok(fields.iter().map(|field| field.node.slot()).collect())
    }

    /// The number of a named set for these fields.
    fn tuples_of(
        &mut self,
        name: ast::Name<'a>,
        kinds: &[Type],
        slots: Box<[Slot]>,
    ) -> Result<u32, Error> {
        let Some(named) = self.tuples.get(name.node) else {
            let kind = match self.sets.contains_key(name.node) {
                true => ErrorKind::Parts(kinds.len()),
                false => ErrorKind::Unknown("set"),
            };
            return Err(Error::new(name.span, kind));
        };
        check_kinds(kinds, &named.kinds, name.span)?;
        let joints = &self.program.joints;
        let mut numbers = named.numbers.iter();
        if let Some(number) = numbers.find(|number| joints[**number as usize].slots == slots) {
            return Ok(*number);
        }
        let number = self.push_joint(slots, named.bounds.clone());
        if let Some(named) = self.tuples.get_mut(name.node) {
            named.numbers.push(number);
        }
        Ok(number)
    }

    fn push_joint(&mut self, slots: Box<[Slot]>, bounds: Box<[(u128, u128)]>) -> u32 {
        self.program.joints.push(Joint { slots, bounds });
        self.program.joints.len() as u32 - 1
    }

    /// How a rule ends that looks several fields up.
    pub(super) fn joint_map(
        &mut self,
        fields: &[Spanned<Field>],
        slots: Box<[Slot]>,
        elements: &'f ast::Verdicts<'a>,
    ) -> Result<Outcome, Error> {
        let kinds = kinds_of(fields);
        let width = kinds.len();
        let mut bounds = Vec::with_capacity(elements.len() * width);
        let mut outcomes = Vec::with_capacity(elements.len());
        let mut placed = Vec::with_capacity(elements.len());
        for (key, verdict) in elements {
            let outcome = self.outcome(verdict.node)?;
            let tuples = self.scope.tuples(&kinds, [key].into_iter(), key.span)?;
            for (tuple, span) in tuples.bounds.chunks_exact(width).zip(tuples.spans) {
                bounds.extend_from_slice(tuple);
                outcomes.push(outcome);
                placed.push(span);
            }
        }
        let tuple = |at: usize| &bounds[at * width..][..width];
        let mut order: Vec<usize> = (0..outcomes.len()).collect();
        order.sort_by_key(|at| tuple(*at));
        for pair in order.windows(2) {
            if tuple(pair[0]) == tuple(pair[1]) {
                let other = placed[pair[0]];
                return Err(Error::new(placed[pair[1]], ErrorKind::Overlap { other }));
            }
        }
        let joint = self.push_joint(slots, bounds.into());
        Ok(self.push_keys(ir::Keys::Joint(joint, outcomes.into())))
    }
}

pub(super) fn kinds_of(fields: &[Spanned<Field>]) -> Box<[Type]> {
    fields.iter().map(|field| field.node.value_type()).collect()
}

/// Refuses a set or map of other types.
pub(super) fn check_kinds(kinds: &[Type], keys: &[Type], span: ast::Span) -> Result<(), Error> {
    if kinds.len() != keys.len() {
        return Err(Error::new(span, ErrorKind::Parts(kinds.len())));
    }
    let mut pairs = kinds.iter().zip(keys);
    match pairs.find(|(kind, key)| kind != key) {
        Some((kind, _)) => Err(values::mismatch(*kind, span)),
        None => Ok(()),
    }
}
