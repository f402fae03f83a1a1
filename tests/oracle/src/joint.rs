//! Concatenations: conditions on several fields at once, and maps of verdicts by them.

use crate::values::Values;
use fastrand::Rng;
use nf::fields::{Field, Type};

/// Most elements of a set or map.
const ELEMENTS_MAX: usize = 8;
/// Most fields, of which none is twice.
const FIELDS_MAX: usize = 3;

/// The types of named sets of tuples. Fields of each are in many rules.
const NAMED: [&[Type]; 4] = [
    &[Type::Ipv4, Type::Service],
    &[Type::Ipv4, Type::Ipv4],
    &[Type::Ipv6, Type::Service],
    &[Type::EtherAddress, Type::Ipv4],
];

/// A named set, and what its elements are.
#[derive(Clone, Debug)]
pub struct Named {
    name: String,
    kinds: &'static [Type],
}

impl Named {
    /// Makes up a set; its definition goes into `sets`.
    pub fn generate(name: String, rng: &mut Rng, sets: &mut Vec<String>) -> Self {
        let kinds = NAMED[rng.usize(0..NAMED.len())];
        let interval = rng.bool();
        let elements = elements(kinds, interval, rng).join(", ");
        let types: Vec<_> = kinds.iter().filter_map(|kind| kind.set_name()).collect();
        let types = types.join(" . ");
        let flags = if interval { "flags interval; " } else { "" };
        sets.push(format!(
            "set {name} {{ type {types}; {flags}elements = {{ {elements} }}; }}"
        ));
        Self { name, kinds }
    }

    /// Fields that have its types, in order, if there are such.
    fn fields(&self, fields: &[Field], rng: &mut Rng) -> Option<Vec<Field>> {
        let of_kind = |kind: &Type| {
            let fitting = fields.iter().filter(|field| field.value_type() == *kind);
            rng.choice(fitting.copied().collect::<Vec<_>>())
        };
        self.kinds.iter().map(of_kind).collect()
    }
}

/// A set that rules change, and what its elements are.
#[derive(Clone, Debug)]
pub struct Changing {
    name: String,
    kinds: &'static [Type],
    timeouts: bool,
    /// Whether it is never full: the kernel collects what is deleted later.
    is_large: bool,
    /// What each element has of its own.
    parts: String,
}

/// The types of sets that rules change.
const CHANGING: [&[Type]; 5] = [
    &[Type::Ipv4],
    &[Type::EtherAddress],
    &[Type::Ipv6],
    &[Type::Ipv4, Type::Service],
    &[Type::EtherAddress, Type::Ipv4],
];

impl Changing {
    /// Makes up a set; its definition goes into `sets`. No run outlives a timeout.
    pub fn generate(name: String, rng: &mut Rng, sets: &mut Vec<String>) -> Self {
        let kinds = CHANGING[rng.usize(0..CHANGING.len())];
        let types: Vec<_> = kinds.iter().filter_map(|kind| kind.set_name()).collect();
        let types = types.join(" . ");
        let timeouts = rng.bool();
        let flags = match timeouts {
            true => "flags dynamic, timeout; timeout 1h; ",
            false => "flags dynamic; ",
        };
        // Some are full soon.
        let size = ["", "size 3; ", "size 1; ", "size 100; "][rng.usize(0..4)];
        let elements = elements(kinds, false, rng);
        let elements = match (rng.u8(0..4), size) {
            (0, "" | "size 100; ") => format!("elements = {{ {} }}; ", elements.join(", ")),
            _ => String::new(),
        };
        sets.push(format!(
            "set {name} {{ type {types}; {size}{flags}{elements}}}"
        ));
        let limit = crate::rules::limit(rng);
        let parts = match rng.u8(0..4) {
            0 => format!(" {limit}"),
            1 => " counter".to_owned(),
            2 => format!(" {limit} counter"),
            _ => String::new(),
        };
        // nft prints those of elements of the file in a way of its own; they have none.
        let parts = if elements.is_empty() {
            parts
        } else {
            String::new()
        };
        Self {
            name,
            kinds,
            timeouts,
            is_large: size.is_empty(),
            parts,
        }
    }

    /// A look-up in it, or a change of it, by some of these fields.
    pub fn statement(&self, fields: &[Field], rng: &mut Rng) -> Option<String> {
        let of_kind = |kind: &Type| {
            let fitting = fields.iter().filter(|field| field.value_type() == *kind);
            rng.choice(fitting.copied().collect::<Vec<_>>())
        };
        let fields: Option<Vec<Field>> = self.kinds.iter().map(of_kind).collect();
        let (fields, name) = (joined(&fields?), &self.name);
        let timeout = if self.timeouts && rng.bool() {
            " timeout 30m"
        } else {
            ""
        };
        Some(match rng.u8(0..7) {
            0 | 1 => format!("{fields} @{name}"),
            2 => format!("{fields} != @{name}"),
            3 if self.is_large => format!("delete @{name} {{ {fields} }}"),
            4 => format!("update @{name} {{ {fields}{timeout}{} }}", self.parts),
            _ => format!("add @{name} {{ {fields}{timeout}{} }}", self.parts),
        })
    }
}

/// A condition on several of these fields.
pub fn condition(named: &[Named], fields: &[Field], rng: &mut Rng) -> Option<String> {
    let operator = ["", "", "== ", "!= "][rng.usize(0..4)];
    if let Some(set) = rng.choice(named)
        && rng.bool()
        && let Some(fields) = set.fields(fields, rng)
    {
        return Some(format!("{} {operator}@{}", joined(&fields), set.name));
    }
    let fields = some(fields, rng)?;
    let elements = elements(&kinds(&fields), rng.bool(), rng).join(", ");
    Some(format!("{} {operator}{{ {elements} }}", joined(&fields)))
}

/// A verdict by several of these fields.
pub fn map(
    fields: &[Field],
    verdict: impl Fn(&mut Rng) -> String,
    rng: &mut Rng,
) -> Option<String> {
    let fields = some(fields, rng)?;
    let mut elements = elements(&kinds(&fields), rng.bool(), rng);
    for element in &mut elements {
        *element = format!("{element} : {}", verdict(rng));
    }
    Some(format!(
        "{} vmap {{ {} }}",
        joined(&fields),
        elements.join(", ")
    ))
}

/// Two fields or more, in their order.
fn some(fields: &[Field], rng: &mut Rng) -> Option<Vec<Field>> {
    let mut left: Vec<usize> = (0..fields.len()).collect();
    rng.shuffle(&mut left);
    left.truncate(rng.usize(2..=FIELDS_MAX));
    left.sort_unstable();
    let some: Vec<Field> = left.into_iter().map(|at| fields[at]).collect();
    (some.len() > 1).then_some(some)
}

fn kinds(fields: &[Field]) -> Vec<Type> {
    fields.iter().map(|field| field.value_type()).collect()
}

fn joined(fields: &[Field]) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    names.join(" . ")
}

/// One interval for each field, and how a rule spells it.
type Tuple = Vec<(u128, u128, String)>;

/// Elements that the kernel takes: it refuses one whose first or last values are in another one
/// before it, and no other that overlaps.
fn elements(kinds: &[Type], interval: bool, rng: &mut Rng) -> Vec<String> {
    let mut tuples: Vec<Tuple> = Vec::new();
    for _ in 0..rng.usize(1..=ELEMENTS_MAX) {
        let tuple: Tuple = kinds
            .iter()
            .map(|kind| part(*kind, interval, rng))
            .collect();
        let is_in = |end: fn(&(u128, u128, String)) -> u128, other: &Tuple| {
            let mut pairs = tuple.iter().zip(other);
            pairs.all(|(part, (low, high, _))| (low..=high).contains(&&end(part)))
        };
        let overlaps = tuples
            .iter()
            .any(|other| is_in(|(low, ..)| *low, other) || is_in(|(_, high, _)| *high, other));
        if !overlaps {
            tuples.push(tuple);
        }
    }
    let text = |tuple: Tuple| {
        let parts: Vec<String> = tuple.into_iter().map(|(.., text)| text).collect();
        parts.join(" . ")
    };
    tuples.into_iter().map(text).collect()
}

fn part(kind: Type, interval: bool, rng: &mut Rng) -> (u128, u128, String) {
    if kind == Type::InterfaceName {
        let names = ["\"private\"", "\"public\"", "\"nosuch\""];
        let at = rng.usize(0..names.len());
        return (at as u128, at as u128, names[at].to_owned());
    }
    let value = kind.value(rng);
    match rng.u8(0..4) {
        0 if interval => {
            let other = kind.value(rng);
            let (low, high) = (value.min(other), value.max(other));
            let text = format!("{}-{}", kind.number(low, rng), kind.number(high, rng));
            (low, high, text)
        }
        1 if interval && let Some(bits) = kind.prefix_bits() => {
            let length = rng.u32(0..=bits);
            let mask = kind.max().checked_shr(length).unwrap_or(0);
            let text = format!("{}/{length}", kind.number(value, rng));
            (value & !mask, value | mask, text)
        }
        _ => (value, value, kind.text(value, rng)),
    }
}
