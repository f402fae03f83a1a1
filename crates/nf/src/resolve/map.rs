//! What maps say: how a rule ends by what a field has.

use super::context::Context;
use super::joint::{check_kinds, kinds_of};
use super::{Resolver, duplicate};
use crate::fields::{Field, Type};
use crate::ir::{Keys, Map, NatAddress, Outcome, Statement};
use crate::nft::ast::{self, Spanned, VerdictMap};
use crate::nft::{Error, ErrorKind, Refusal};
use alloc::vec::Vec;

/// What a key stands for, and how a rule ends then.
type Entry = (u128, u128, Outcome);

const LATE_KEY: Refusal = Refusal {
    what: "a map by `ct mark`",
    why: "is not supported",
    instead: Some("write a rule for each mark"),
};
const PREFIX_OF_MANY: Refusal = Refusal {
    what: "`prefix` with something else than a prefix behind it",
    why: "is not supported",
    instead: Some("write `prefix to 192.0.2.0/24`"),
};

impl<'f, 'a> Resolver<'f, 'a> {
    /// Takes down a named map.
    pub(super) fn named_map(&mut self, map: &'f ast::Map<'a>) -> Result<(), Error> {
        let name = map.name;
        self.check_keys(map)?;
        match self.maps.insert(name.node, map) {
            Some(first) => Err(duplicate("map of this name", name.span, first.name.span)),
            None => Ok(()),
        }
    }

    /// Refuses keys that the map's flags do not allow.
    fn check_keys(&mut self, map: &'f ast::Map<'a>) -> Result<(), Error> {
        let kinds: Vec<Type> = map.keys.iter().map(|key| key.node).collect();
        for (key, _) in &map.elements {
            let is_interval = match *kinds {
                [kind] => self.scope.key(kind, key)?.1,
                _ => {
                    let tuples = self.scope.tuples(&kinds, [key].into_iter(), key.span)?;
                    tuples.interval
                }
            };
            if is_interval && !map.interval {
                return Err(Error::new(key.span, ErrorKind::NeedsInterval));
            }
        }
        Ok(())
    }

    /// How a rule with `vmap` ends.
    pub(super) fn vmap(
        &mut self,
        vmap: &'f ast::Vmap<'a>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<Outcome, Error> {
        let elements = match &vmap.map {
            VerdictMap::Elements(elements) => &elements.node,
            VerdictMap::Named(name) => {
                let map = self.maps.get(name.node).copied();
                let map = map.ok_or(Error::new(name.span, ErrorKind::Unknown("map")))?;
                let keys: Vec<Type> = map.keys.iter().map(|key| key.node).collect();
                check_kinds(&kinds_of(&vmap.fields), &keys, name.span)?;
                &map.elements
            }
        };
        let [field] = *vmap.fields else {
            let slots = self.joined(&vmap.fields, context, out)?;
            return self.joint_map(&vmap.fields, slots, elements);
        };
        self.asks_of(field, context, out)?;
        let mut entries = Vec::with_capacity(elements.len());
        for (key, verdict) in elements {
            let outcome = self.outcome(verdict.node)?;
            self.add_entries(field, (key, outcome), &mut entries)?;
        }
        self.push_map(field, entries)
    }

    /// How a rule ends whose translation is looked up; `end` is what it says besides.
    pub(super) fn nat_map(
        &mut self,
        map: &'f ast::NatMap<'a>,
        (kind, nat): (Type, &'f ast::Nat<'a>),
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<Outcome, Error> {
        self.asks_of(map.field, context, out)?;
        let mut entries = Vec::with_capacity(map.elements.len());
        for element in &map.elements {
            let span = element.key.span;
            let address = self.nat_address(kind, &element.address, nat.prefix, span)?;
            if element.port.is_some() {
                super::nat::check_ports(context, span)?;
            }
            let ports = match &element.port {
                Some(port) => Some(self.nat_ports(port, span)?),
                None => None,
            };
            let outcome = self.push_nat(nat, address, ports);
            self.add_entries(map.field, (&element.key, outcome), &mut entries)?;
        }
        self.push_map(map.field, entries)
    }

    /// The address that an end gets.
    pub(super) fn nat_address(
        &mut self,
        kind: Type,
        address: &'f ast::Operand<'a>,
        prefix: bool,
        span: ast::Span,
    ) -> Result<NatAddress, Error> {
        let (low, high) = self.interval(kind, address, span)?;
        if !prefix {
            return Ok(NatAddress::Given(low, high));
        }
        // A network has as many addresses as a power of two, and begins at a multiple of that.
        let hosts = high - low;
        let is_network = hosts & hosts.wrapping_add(1) == 0 && low & hosts == 0;
        match is_network {
            true => Ok(NatAddress::Network(low, high)),
            false => Err(Error::new(span, ErrorKind::Refused(&PREFIX_OF_MANY))),
        }
    }

    /// Adds what the field that is looked up implies.
    fn asks_of(
        &mut self,
        field: Spanned<Field>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        self.check_link(field)?;
        if field.node.value_type() == Type::Mark {
            return Err(Error::new(field.span, ErrorKind::Refused(&LATE_KEY)));
        }
        self.ask_header(field, context, out)
    }

    fn add_entries(
        &mut self,
        field: Spanned<Field>,
        (key, outcome): (&'f Spanned<ast::Value<'a>>, Outcome),
        entries: &mut Vec<(Entry, ast::Span)>,
    ) -> Result<(), Error> {
        let (values, _) = self.scope.key(field.node.value_type(), key)?;
        let values = values.iter();
        entries.extend(values.map(|(low, high)| ((*low, *high, outcome), key.span)));
        Ok(())
    }

    fn push_map(
        &mut self,
        field: Spanned<Field>,
        mut entries: Vec<(Entry, ast::Span)>,
    ) -> Result<Outcome, Error> {
        entries.sort_unstable_by_key(|((low, ..), _)| *low);
        for pair in entries.windows(2) {
            let ((_, high, _), other) = pair[0];
            let ((low, ..), span) = pair[1];
            if low <= high {
                return Err(Error::new(span, ErrorKind::Overlap { other }));
            }
        }
        let entries = entries.into_iter().map(|(entry, _)| entry).collect();
        Ok(self.push_keys(Keys::One(field.node.slot(), entries)))
    }

    pub(super) fn push_keys(&mut self, keys: Keys) -> Outcome {
        let counts = false;
        self.program.maps.push(Map { keys, counts });
        Outcome::Map((self.program.maps.len() - 1) as u32)
    }
}
