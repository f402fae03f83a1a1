//! What the values of a rule are, once it is known which type they have.

mod joint;

use crate::fields::Type;
use crate::ir::{Intervals, complement, normal};
use crate::nft::ast::{Flags, Operand, Operator, Set, Span, Spanned, Value};
use crate::nft::{Error, ErrorKind, Limits, Refusal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Longest name of an interface: IFNAMSIZ without its end.
const INTERFACE_NAME_MAX: usize = 15;

pub(crate) const ORDER_OF_MANY: Refusal = Refusal {
    what: "an order relation",
    why: "holds between single values, not for sets, ranges and prefixes",
    instead: Some("`==` or `!=`, or a range"),
};
const ORDER_OF_NAMES: Refusal = Refusal {
    what: "an order",
    why: "is not defined for names of interfaces",
    instead: Some("`==` or `!=`"),
};
const SET_FOR_VALUE: Refusal = Refusal {
    what: "a variable that is a set",
    why: "cannot be a part of a range",
    instead: None,
};
const ALL_NAMES: Refusal = Refusal {
    what: "the name `*`",
    why: "is not supported by nft: every interface has it",
    instead: Some("no condition at all"),
};
const NAMED_IN_DEFINE: Refusal = Refusal {
    what: "a named set",
    why: "is no value of a variable",
    instead: None,
};

const WILDCARD: Refusal = Refusal {
    what: "a name with `*`",
    why: "is not supported in a concatenation",
    instead: Some("an element for each name"),
};
const NOT_A_NAME: Refusal = Refusal {
    what: "this word",
    why: "means something else to nft than the name of an interface",
    instead: Some("put it in quotes"),
};
const AUTO_MERGE: Refusal = Refusal {
    what: "`auto-merge`",
    why: "is only for sets of intervals",
    instead: Some("add `flags interval` to the set, or leave it out"),
};

/// Words that nft reads as a protocol or as a type of ICMP, whatever they are compared with.
const NO_NAMES: [&str; 12] = [
    "ah", "comp", "dccp", "esp", "icmp", "icmpv6", "igmp", "redirect", "sctp", "tcp", "udp",
    "udplite",
];

/// What the values of a rule may refer to.
pub(crate) struct Scope<'f, 'a> {
    /// Names of the network devices.
    pub(crate) ports: &'f [&'f str],
    pub(crate) limits: &'f Limits,
    /// Variables that are defined here, and where.
    pub(crate) variables: BTreeMap<&'a str, (Span, &'f Operand<'a>)>,
    /// Elements of all sets so far.
    pub(crate) elements: usize,
}

/// An interval, both ends included, and where it stands.
type Placed = (u128, u128, Span);

/// What has been gathered for one condition or set.
#[derive(Default)]
struct Gathered {
    placed: Vec<Placed>,
    /// Values and variables that were looked at: what is bounded, for names of interfaces may stand
    /// for no value.
    taken: usize,
    /// Whether there was a range, a prefix or a wildcard among them.
    interval: bool,
    /// If they are wanted: names of interfaces as nft orders them, a name with `*` being an
    /// interval.
    names: Option<Vec<Placed>>,
}

impl<'f, 'a> Scope<'f, 'a> {
    /// The values of a named set of single fields.
    pub(crate) fn set(&mut self, set: &'f Set<'a>) -> Result<Intervals, Error> {
        let [key] = &*set.keys else {
            return Ok(Intervals::default());
        };
        let kind = key.node;
        if set.auto_merge && !set.interval {
            let kind = ErrorKind::Refused(&AUTO_MERGE);
            return Err(Error::new(set.name.span, kind));
        }
        let exact = set.interval && !set.auto_merge;
        let mut gathered = Gathered {
            names: (exact && kind == Type::InterfaceName).then(Vec::new),
            ..Gathered::default()
        };
        for element in &set.elements {
            self.add(element, kind, &mut gathered, self.limits.nesting)?;
            if gathered.interval && !set.interval {
                return Err(Error::new(element.span, ErrorKind::NeedsInterval));
            }
        }
        self.account(&gathered, set.name.span)?;
        if exact {
            check_overlap(gathered.names.as_mut().unwrap_or(&mut gathered.placed))?;
        }
        Ok(intervals(gathered.placed))
    }

    /// The values for which a comparison holds; not of a named set.
    pub(crate) fn compared(
        &mut self,
        kind: Type,
        operator: Spanned<Operator>,
        operand: &'f Operand<'a>,
    ) -> Result<Intervals, Error> {
        let refuse = |refusal| Err(Error::new(operator.span, ErrorKind::Refused(refusal)));
        let equal = matches!(operator.node, Operator::Equal | Operator::NotEqual);
        if !equal && kind == Type::InterfaceName {
            return refuse(&ORDER_OF_NAMES);
        }
        let single = self.is_single(operand)?;
        let held = self.operand(operand, kind)?;
        if equal {
            return Ok(match operator.node {
                Operator::NotEqual => complement(&held, kind.max()),
                _ => held,
            });
        }
        let (true, [(value, _)]) = (single, &*held) else {
            return refuse(&ORDER_OF_MANY);
        };
        let value = *value;
        let held = match operator.node {
            Operator::Less => value.checked_sub(1).map(|high| (0, high)),
            Operator::LessOrEqual => Some((0, value)),
            Operator::Greater => Some(value)
                .filter(|v| *v < kind.max())
                .map(|v| (v + 1, kind.max())),
            _ => Some((value, kind.max())),
        };
        Ok(held.into_iter().collect())
    }

    /// The values that a key of a map stands for, and whether it is a range or a prefix.
    pub(crate) fn key(
        &mut self,
        kind: Type,
        key: &'f Spanned<Value<'a>>,
    ) -> Result<(Intervals, bool), Error> {
        let mut gathered = Gathered::default();
        self.add(key, kind, &mut gathered, self.limits.nesting)?;
        self.account(&gathered, key.span)?;
        Ok((intervals(gathered.placed), gathered.interval))
    }

    /// Whether an operand is one value, perhaps by way of variables, and no set, range or prefix.
    fn is_single(&self, mut operand: &'f Operand<'a>) -> Result<bool, Error> {
        for _ in 0..=self.limits.nesting {
            let Operand::Value(value) = operand else {
                return Ok(false);
            };
            match value.node {
                Value::Variable(name) => operand = self.variable(name, value.span)?,
                Value::Range(_) | Value::Ipv4Prefix(..) | Value::Ipv6Prefix(..) => {
                    return Ok(false);
                }
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    fn operand(&mut self, operand: &'f Operand<'a>, kind: Type) -> Result<Intervals, Error> {
        let mut gathered = Gathered::default();
        let span = match operand {
            Operand::Value(value) => {
                self.add(value, kind, &mut gathered, self.limits.nesting)?;
                value.span
            }
            Operand::Set(elements) => {
                for element in &elements.node {
                    self.add(element, kind, &mut gathered, self.limits.nesting)?;
                }
                elements.span
            }
            Operand::Named(name) => {
                let kind = ErrorKind::Refused(&NAMED_IN_DEFINE);
                return Err(Error::new(name.span, kind));
            }
        };
        self.account(&gathered, span)?;
        Ok(intervals(gathered.placed))
    }

    /// The values of an operand that stand there alone, in its order and without ranges; none of a
    /// named set. The operand has been read before.
    pub(crate) fn single_values(
        &self,
        kind: Type,
        operand: &Operand<'a>,
    ) -> Result<Vec<u128>, Error> {
        let mut values = Vec::new();
        self.add_single(kind, operand, &mut values, self.limits.nesting)?;
        Ok(values)
    }

    fn add_single(
        &self,
        kind: Type,
        operand: &Operand<'a>,
        values: &mut Vec<u128>,
        nesting: usize,
    ) -> Result<(), Error> {
        let elements = match operand {
            Operand::Value(value) => core::slice::from_ref(value),
            Operand::Set(elements) => &elements.node,
            Operand::Named(_) => &[],
        };
        for element in elements {
            match element.node {
                Value::Range(_) => {}
                Value::Variable(name) => {
                    let too_nested = || self.too_nested(element.span);
                    let nesting = nesting.checked_sub(1).ok_or_else(too_nested)?;
                    let meant = self.variable(name, element.span)?;
                    self.add_single(kind, meant, values, nesting)?;
                }
                _ => values.push(single(element, kind)?),
            }
        }
        Ok(())
    }

    /// Counts the elements of a set.
    fn account(&mut self, gathered: &Gathered, span: Span) -> Result<(), Error> {
        self.elements += gathered.taken.saturating_sub(1);
        if self.elements > self.limits.elements {
            let (what, max) = ("elements in all sets", self.limits.elements);
            return Err(Error::new(span, ErrorKind::Limit { what, max }));
        }
        Ok(())
    }

    /// Adds what a value stands for; `nesting` is how many variables may stand for one another.
    fn add(
        &self,
        value: &Spanned<Value<'a>>,
        kind: Type,
        gathered: &mut Gathered,
        nesting: usize,
    ) -> Result<(), Error> {
        let span = value.span;
        gathered.taken += 1;
        if gathered.taken > self.limits.set_elements {
            let (what, max) = ("elements in a set", self.limits.set_elements);
            return Err(Error::new(span, ErrorKind::Limit { what, max }));
        }
        let (low, high) = match &value.node {
            Value::Variable(name) => {
                let nesting = nesting.checked_sub(1).ok_or(self.too_nested(span))?;
                return match self.variable(name, span)? {
                    Operand::Value(value) => self.add(value, kind, gathered, nesting),
                    Operand::Set(elements) => {
                        let mut elements = elements.node.iter();
                        elements.try_for_each(|element| self.add(element, kind, gathered, nesting))
                    }
                    Operand::Named(name) => {
                        Err(Error::new(name.span, ErrorKind::Refused(&NAMED_IN_DEFINE)))
                    }
                };
            }
            Value::Word(name) if kind == Type::InterfaceName && NO_NAMES.contains(name) => {
                return Err(Error::new(span, ErrorKind::Refused(&NOT_A_NAME)));
            }
            Value::Word(name) | Value::Text(name) if kind == Type::InterfaceName => {
                return self.add_ports(name, span, gathered);
            }
            Value::Ipv4Prefix(address, bits) if kind == Type::Ipv4 => {
                gathered.interval = true;
                prefix(address.to_bits().into(), 32, *bits)
            }
            Value::Ipv6Prefix(address, bits) if kind == Type::Ipv6 => {
                gathered.interval = true;
                prefix(address.to_bits(), 128, *bits)
            }
            Value::Range(range) => {
                gathered.interval = true;
                let (from, to) = (self.end(&range.from, kind)?, self.end(&range.to, kind)?);
                if from > to {
                    return Err(Error::new(span, ErrorKind::EmptyRange));
                }
                (from, to)
            }
            _ => {
                let value = single(value, kind)?;
                (value, value)
            }
        };
        gathered.placed.push((low, high, span));
        Ok(())
    }

    fn too_nested(&self, span: Span) -> Error {
        let (what, max) = ("variables that stand for variables", self.limits.nesting);
        Error::new(span, ErrorKind::Limit { what, max })
    }

    /// An end of a range.
    fn end(&self, value: &Spanned<Value<'a>>, kind: Type) -> Result<u128, Error> {
        let mut value = value;
        for _ in 0..=self.limits.nesting {
            let Value::Variable(name) = value.node else {
                return single(value, kind);
            };
            match self.variable(name, value.span)? {
                Operand::Value(inner) => value = inner,
                _ => return Err(Error::new(value.span, ErrorKind::Refused(&SET_FOR_VALUE))),
            }
        }
        Err(self.too_nested(value.span))
    }

    /// Refuses a meaning of a variable that itself names variables which are not defined.
    pub(crate) fn check_variables(&self, operand: &Operand<'a>) -> Result<(), Error> {
        let check = |value: &Spanned<Value<'a>>| match value.node {
            Value::Variable(name) => self.variable(name, value.span).map(|_| ()),
            _ => Ok(()),
        };
        let elements = match operand {
            Operand::Value(value) => core::slice::from_ref(value),
            Operand::Set(elements) => &elements.node,
            Operand::Named(_) => &[],
        };
        elements.iter().try_for_each(|element| match &element.node {
            Value::Range(range) => check(&range.from).and(check(&range.to)),
            _ => check(element),
        })
    }

    fn variable(&self, name: &str, span: Span) -> Result<&'f Operand<'a>, Error> {
        let found = self.variables.get(name).map(|(_, operand)| *operand);
        found.ok_or(Error::new(span, ErrorKind::Unknown("variable")))
    }

    /// The ports that have a name. Other names are legal, and no port's.
    fn add_ports(&self, name: &str, span: Span, gathered: &mut Gathered) -> Result<(), Error> {
        let prefix = name.strip_suffix('*');
        if prefix == Some("") {
            return Err(Error::new(span, ErrorKind::Refused(&ALL_NAMES)));
        }
        if name.is_empty() || prefix.unwrap_or(name).len() > INTERFACE_NAME_MAX {
            return Err(mismatch(Type::InterfaceName, span));
        }
        gathered.interval |= prefix.is_some();
        if let Some(names) = &mut gathered.names {
            let (low, high) = bounds_of_name(name);
            names.push((low, high, span));
        }
        for (index, port) in (0u128..).zip(self.ports) {
            if prefix.map_or(*port == name, |prefix| port.starts_with(prefix)) {
                gathered.placed.push((index, index, span));
            }
        }
        Ok(())
    }
}

/// A value that is neither a variable, a range, a prefix nor the name of an interface.
fn single(value: &Spanned<Value<'_>>, kind: Type) -> Result<u128, Error> {
    // Of interfaces, there is no single value.
    let mismatch = || mismatch(kind, value.span);
    match (&value.node, kind) {
        (_, Type::InterfaceName) => Err(mismatch()),
        (Value::Ipv4(address), Type::Ipv4) => Ok(address.to_bits().into()),
        (Value::Ipv6(address), Type::Ipv6) => Ok(address.to_bits()),
        (Value::Mac(address), Type::EtherAddress) => Ok(address
            .iter()
            .fold(0, |sum, byte| sum << 8 | u128::from(*byte))),
        (_, Type::Ipv4 | Type::Ipv6 | Type::EtherAddress) => Err(mismatch()),
        (Value::Time(milliseconds), Type::Time) => Ok((*milliseconds).into()),
        (Value::Time(_), _) => Err(mismatch()),
        (Value::Number(seconds), Type::Time) => {
            let milliseconds = seconds.checked_mul(1000);
            milliseconds.map(u128::from).ok_or_else(mismatch)
        }
        (Value::Number(number), _) if u128::from(*number) <= kind.max() => Ok((*number).into()),
        (Value::Number(_), _) => {
            // What it is stands in front of how it may be written.
            let expected = kind.expected();
            let what = expected.split_once(':').map_or(expected, |(what, _)| what);
            let max = kind.max() as u32;
            Err(Error::new(value.span, ErrorKind::TooLarge { what, max }))
        }
        (Value::Word(name) | Value::Text(name), _) => {
            let value = kind.number_of(name);
            value.map(u128::from).ok_or_else(mismatch)
        }
        _ => Err(mismatch()),
    }
}

pub(crate) fn mismatch(kind: Type, span: Span) -> Error {
    let expected = kind.expected();
    Error::new(span, ErrorKind::Mismatch { expected })
}

/// The lowest and the highest of the names that a name with or without `*` stands for, as numbers
/// whose first byte is the first letter. It is not too long.
fn bounds_of_name(name: &str) -> (u128, u128) {
    let (letters, behind) = match name.strip_suffix('*') {
        Some(prefix) => (prefix, u8::MAX),
        None => (name, 0),
    };
    let bytes = |behind: u8| {
        let mut bytes = [behind; INTERFACE_NAME_MAX + 1];
        for (byte, letter) in bytes.iter_mut().zip(letters.bytes()) {
            *byte = letter;
        }
        u128::from_be_bytes(bytes)
    };
    (bytes(0), bytes(behind))
}

/// Refuses elements that overlap without being equal. Sorts them.
fn check_overlap(placed: &mut [Placed]) -> Result<(), Error> {
    placed.sort_unstable_by_key(|(low, high, _)| (*low, *high));
    for pair in placed.windows(2) {
        let ((low, high, other), (next, last, span)) = (pair[0], pair[1]);
        if next <= high && (low, high) != (next, last) {
            return Err(Error::new(span, ErrorKind::Overlap { other }));
        }
    }
    Ok(())
}

/// The lowest and the highest of the addresses of `width` bits with a prefix of `bits`.
fn prefix(address: u128, width: u32, bits: u8) -> (u128, u128) {
    let free = width.saturating_sub(bits.into());
    let mask = 1u128.checked_shl(free).map_or(u128::MAX, |bit| bit - 1);
    (address & !mask, address | mask)
}

fn intervals(placed: Vec<Placed>) -> Intervals {
    normal(
        placed
            .into_iter()
            .map(|(low, high, _)| (low, high))
            .collect(),
    )
}

/// The flags for which a condition on them holds.
pub(crate) fn flags(condition: &Flags) -> Intervals {
    let Flags {
        field,
        mask,
        ref values,
        negated,
    } = *condition;
    let held = (0..=field.all_flags()).filter(|flags| {
        // A frame has one state.
        let possible = field.value_type() != Type::CtState || flags.is_power_of_two();
        possible && values.contains(&(flags & mask)) != negated
    });
    let pairs: Vec<(u128, u128)> = held.map(|flags| (flags.into(), flags.into())).collect();
    normal(pairs)
}
