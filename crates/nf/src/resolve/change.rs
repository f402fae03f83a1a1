//! Sets that rules change, and what rules do with them.

use super::context::Context;
use super::joint::{TOO_LONG, check_kinds, kinds_of};
use super::{Resolver, duplicate};
use crate::changing::{Changing, Shape, Use, What, words_of};
use crate::fields::{Field, Type};
use crate::ir::Statement;
use crate::nft::ast::{self, ChangeKind, Span, Spanned};
use crate::nft::{Error, ErrorKind, Refusal};
use crate::tuples::{Layout, WORDS_MAX, Words};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

/// Elements of a set that rules change, if the set does not say how many: as many as nft says.
const SIZE: u32 = 65_535;
/// Nanoseconds of a millisecond.
const NANOSECONDS: u64 = 1_000_000;

const INTERVALS: Refusal = Refusal {
    what: "a set of intervals that rules change",
    why: "is not supported by nft either",
    instead: Some("leave `flags interval` out, or the other flags"),
};
const CONSTANT: Refusal = Refusal {
    what: "a constant set that rules change",
    why: "is not accepted by nft either",
    instead: Some("leave `flags constant` out"),
};
const NOT_DYNAMIC: Refusal = Refusal {
    what: "a change of a set without `flags dynamic`",
    why: "is not supported",
    instead: Some("add `flags dynamic` to the set"),
};
const NO_TIMEOUTS: Refusal = Refusal {
    what: "a timeout in a set without `flags timeout`",
    why: "is not accepted by nft either",
    instead: Some("write `flags dynamic, timeout` into the set"),
};
const OTHER_PARTS: Refusal = Refusal {
    what: "another limit or counter than an earlier rule has for this set",
    why: "is not supported: all elements of a set are alike",
    instead: Some("another set"),
};

/// A set that rules change.
pub(super) struct Changed {
    number: u32,
    kinds: Box<[Type]>,
    timeouts: bool,
    /// Whether a rule has said what elements have of their own.
    said: bool,
}

impl<'f, 'a> Resolver<'f, 'a> {
    /// Whether rules may change a set.
    pub(super) fn changes(set: &ast::Set<'_>) -> bool {
        set.dynamic || set.timeouts || set.timeout.is_some()
    }

    /// Takes down a set that rules change.
    pub(super) fn changed_set(&mut self, set: &'f ast::Set<'a>) -> Result<(), Error> {
        let name = set.name;
        let refuse = |refusal| Err(Error::new(name.span, ErrorKind::Refused(refusal)));
        if set.interval || set.auto_merge {
            return refuse(&INTERVALS);
        }
        if set.constant {
            return refuse(&CONSTANT);
        }
        let kinds: Box<[Type]> = set.keys.iter().map(|key| key.node).collect();
        if kinds.iter().map(|kind| words_of(*kind)).sum::<usize>() > WORDS_MAX {
            return refuse(&TOO_LONG);
        }
        let elements = self.changed_elements(set, &kinds)?;
        let shape = Shape {
            name: format!("{} {} {}", self.family.name(), self.table, name.node).into(),
            kinds: kinds.clone(),
            timeout: u64::from(set.timeout.unwrap_or(0)) * NANOSECONDS,
            size: set.size.unwrap_or(SIZE),
            parts: Box::new([]),
            elements,
        };
        let changed = Changed {
            number: self.shapes.len() as u32,
            kinds,
            timeouts: set.timeouts || set.timeout.is_some(),
            said: false,
        };
        self.shapes.push((shape, name.span));
        self.changed.insert(name.node, changed);
        Ok(())
    }

    /// The elements that a set has from the beginning.
    fn changed_elements(
        &mut self,
        set: &'f ast::Set<'a>,
        kinds: &[Type],
    ) -> Result<Box<[Words]>, Error> {
        let mut elements = Vec::with_capacity(set.elements.len());
        for element in &set.elements {
            let interval = match kinds {
                [kind] => {
                    let (values, interval) = self.scope.key(*kind, element)?;
                    let values = values.iter().flat_map(|(low, high)| *low..=*high);
                    if !interval {
                        elements.extend(values.map(|value| words(kinds, &[(value, value)])));
                    }
                    interval
                }
                _ => {
                    let one = [element].into_iter();
                    let tuples = self.scope.tuples(kinds, one, element.span)?;
                    let bounds = tuples.bounds.chunks_exact(kinds.len());
                    elements.extend(bounds.map(|tuple| words(kinds, tuple)));
                    tuples.interval
                }
            };
            if interval {
                return Err(Error::new(element.span, ErrorKind::NeedsInterval));
            }
        }
        let max = set.size.unwrap_or(SIZE) as usize;
        if elements.len() > max {
            let what = "elements of this set";
            return Err(Error::new(set.name.span, ErrorKind::Limit { what, max }));
        }
        Ok(elements.into())
    }

    /// Adds what a rule does to a set.
    pub(super) fn change(
        &mut self,
        change: &'f ast::Change<'a>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let (name, kind) = (change.set, change.kind);
        let refuse = |refusal| Err(Error::new(name.span, ErrorKind::Refused(refusal)));
        let Some(changed) = self.changed.get_mut(name.node) else {
            return match self.sets.contains_key(name.node) {
                true => refuse(&NOT_DYNAMIC),
                false => Err(Error::new(name.span, ErrorKind::Unknown("set"))),
            };
        };
        let timeout = u64::from(change.timeout.unwrap_or(0)) * NANOSECONDS;
        if timeout != 0 && !changed.timeouts {
            return refuse(&NO_TIMEOUTS);
        }
        if kind != ChangeKind::Delete {
            let (shape, _) = &mut self.shapes[changed.number as usize];
            if changed.said && shape.parts != change.parts {
                return refuse(&OTHER_PARTS);
            }
            shape.parts = change.parts.clone();
            changed.said = true;
        }
        let what = What::Changes { kind, timeout };
        self.uses(name, &change.fields, what, context, out)
    }

    /// Whether a name is that of a set which rules change.
    pub(super) fn is_changed(&self, name: &str) -> bool {
        self.changed.contains_key(name)
    }

    /// Adds what a rule does with a set that rules change.
    pub(super) fn uses(
        &mut self,
        name: ast::Name<'a>,
        fields: &[Spanned<Field>],
        what: What,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let Some(changed) = self.changed.get(name.node) else {
            return Err(Error::new(name.span, ErrorKind::Unknown("set")));
        };
        check_kinds(&kinds_of(fields), &changed.kinds, name.span)?;
        let set = changed.number;
        let layout = Layout::new(self.joined(fields, context, out)?);
        out.push(Statement::Use(self.program.uses.len() as u32));
        self.program.uses.push(Use { set, layout, what });
        Ok(())
    }

    /// Takes the memory of sets that rules change, if that is not too much.
    pub(super) fn begin_sets(&mut self) -> Result<(), Error> {
        let mut bytes = self.counted_bytes;
        for (shape, span) in &self.shapes {
            bytes = bytes.saturating_add(shape.memory());
            self.check_bytes(bytes, *span)?;
        }
        let shapes = core::mem::take(&mut self.shapes).into_iter();
        self.program.changing = shapes.map(|(shape, _)| Changing::new(shape)).collect();
        Ok(())
    }

    /// Refuses so many bytes for what rules change, if they are too many.
    pub(super) fn check_bytes(&self, bytes: usize, span: Span) -> Result<(), Error> {
        let max = self.scope.limits.changing;
        let what = "bytes for sets that rules change, and for connections that they count";
        match bytes > max {
            true => Err(Error::new(span, ErrorKind::Limit { what, max })),
            false => Ok(()),
        }
    }

    /// Refuses a second set of one name.
    pub(super) fn check_name(&self, name: ast::Name<'a>) -> Result<(), Error> {
        match self.sets.get(name.node) {
            Some((first, _)) => Err(duplicate("set of this name", name.span, first.name.span)),
            None => Ok(()),
        }
    }
}

/// The words of an element of single values.
fn words(kinds: &[Type], tuple: &[(u128, u128)]) -> Words {
    let mut words = [0; WORDS_MAX];
    let mut free = words.iter_mut();
    for (kind, (value, _)) in kinds.iter().zip(tuple) {
        for (part, word) in (0..words_of(*kind)).zip(&mut free) {
            *word = (value >> (32 * part)) as u32;
        }
    }
    words
}
