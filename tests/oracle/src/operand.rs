//! What stands behind a field: operator, value, range, prefix, set or variable.

use crate::joint::{Changing, Named};
use crate::values::Values;
use fastrand::Rng;
use nf::fields::{Field, Type};

/// Most elements of a set.
const ELEMENTS_MAX: usize = 6;
/// Most variables and named sets.
const NAMES_MAX: usize = 3;

/// Variables and sets that rules may name.
#[derive(Clone, Debug, Default)]
pub struct Names {
    defines: Vec<(String, Type)>,
    sets: Vec<(String, Type)>,
    /// Sets of tuples.
    pub joints: Vec<Named>,
    /// Sets that rules change.
    pub changing: Vec<Changing>,
}

/// A type that sets may have.
fn named_type(rng: &mut Rng) -> Type {
    let of_frames = Field::all().filter(|field| !field.is_of_connection());
    let types = of_frames.map(Field::value_type);
    let named = types.filter(|kind| kind.set_name().is_some() && *kind != Type::InterfaceName);
    rng.choice(named.collect::<Vec<_>>()).unwrap_or(Type::Ipv4)
}

impl Names {
    /// Makes up variables and sets; their definitions go into `defines` and `sets`.
    pub fn generate(rng: &mut Rng, defines: &mut Vec<String>, sets: &mut Vec<String>) -> Self {
        let mut names = Self::default();
        for index in 0..rng.usize(0..=NAMES_MAX) {
            let kind = named_type(rng);
            let name = format!("V{index}");
            let value = match rng.u8(0..3) {
                0 => kind.text(kind.value(rng), rng),
                1 => range(kind, rng),
                _ => anonymous(kind, rng),
            };
            defines.push(format!("define {name} = {value}"));
            names.defines.push((name, kind));
        }
        for index in 0..rng.usize(0..=NAMES_MAX) {
            let kind = named_type(rng);
            let name = format!("s{index}");
            sets.extend(set(&name, kind, rng));
            names.sets.push((name, kind));
        }
        for index in 0..rng.usize(0..NAMES_MAX) {
            let joint = Named::generate(format!("j{index}"), rng, sets);
            names.joints.push(joint);
        }
        for index in 0..rng.usize(0..NAMES_MAX) {
            let set = Changing::generate(format!("d{index}"), rng, sets);
            names.changing.push(set);
        }
        names
    }

    /// Operator and operand for a field of that kind.
    pub fn operand(&self, kind: Type, rng: &mut Rng) -> String {
        if rng.u8(0..4) == 0
            && let Some(named) = self.named(kind, rng)
        {
            if named.starts_with('$') && rng.bool() {
                let other = kind.text(kind.value(rng), rng);
                return negated(format!("{{ {named}, {other} }}"), rng);
            }
            return negated(named, rng);
        }
        match rng.u8(0..20) {
            0..=8 => negated(kind.text(kind.value(rng), rng), rng),
            9..=12 => negated(anonymous(kind, rng), rng),
            13..=14 => negated(range(kind, rng), rng),
            15..=17 if kind.prefix_bits().is_some() => negated(prefix(kind, rng), rng),
            _ => compared(kind, rng),
        }
    }

    /// An operand that few frames meet.
    pub fn near(&self, kind: Type, rng: &mut Rng) -> String {
        match rng.u8(0..10) {
            0 => self.operand(kind, rng),
            1 => {
                let (a, b) = (kind.near(rng), kind.near(rng));
                let (from, to) = (kind.number(a.min(b), rng), kind.number(a.max(b), rng));
                format!("{from}-{to}")
            }
            _ => kind.text(kind.near(rng), rng),
        }
    }

    /// A condition that is no equality: nft concludes nothing from it about headers.
    pub fn inequality(&self, kind: Type, rng: &mut Rng) -> String {
        match rng.u8(0..3) {
            0 => format!("!= {}", kind.text(kind.value(rng), rng)),
            1 => range(kind, rng),
            _ => compared(kind, rng),
        }
    }

    fn named(&self, kind: Type, rng: &mut Rng) -> Option<String> {
        let of_kind = |names: &[(String, Type)], mark: &str| -> Vec<String> {
            let same = names.iter().filter(|(_, other)| *other == kind);
            same.map(|(name, _)| format!("{mark}{name}")).collect()
        };
        let mut all = of_kind(&self.defines, "$");
        all.extend(of_kind(&self.sets, "@"));
        rng.choice(all)
    }
}

fn negated(operand: String, rng: &mut Rng) -> String {
    match rng.u8(0..10) {
        0..=1 => format!("!= {operand}"),
        2 => format!("== {operand}"),
        _ => operand,
    }
}

fn compared(kind: Type, rng: &mut Rng) -> String {
    let operator = ["<", "<=", ">", ">="][rng.usize(0..4)];
    format!("{operator} {}", kind.text(kind.value(rng), rng))
}

fn range(kind: Type, rng: &mut Rng) -> String {
    let (from, to) = bounds(kind, rng);
    format!("{}-{}", kind.number(from, rng), kind.number(to, rng))
}

fn bounds(kind: Type, rng: &mut Rng) -> (u128, u128) {
    let (a, b) = (kind.value(rng), kind.value(rng));
    (a.min(b), a.max(b))
}

fn prefix(kind: Type, rng: &mut Rng) -> String {
    let bits = kind.prefix_bits().unwrap_or(0);
    let length = match rng.u8(0..4) {
        0 => rng.u32(0..=bits),
        1 => bits,
        _ => [0, 8, 24, 31, bits / 2, bits - 1][rng.usize(0..6)],
    };
    format!("{}/{length}", kind.number(kind.value(rng), rng))
}

/// `{ ... }`, whose elements may overlap: nft joins them.
fn anonymous(kind: Type, rng: &mut Rng) -> String {
    let elements = if rng.bool() {
        values(kind, rng)
    } else {
        overlapping(kind, rng)
    };
    let comma = if rng.u8(0..8) == 0 { "," } else { ", " };
    match rng.u8(0..8) {
        0 => format!("{{{}}}", elements.join(comma)),
        1 => format!("{{ {}, }}", elements.join(comma)),
        _ => format!("{{ {} }}", elements.join(comma)),
    }
}

/// `set NAME { ... }`; no line if the kind has no type for it.
fn set(name: &str, kind: Type, rng: &mut Rng) -> Option<String> {
    let key = kind.set_name()?;
    let (flags, elements) = match rng.u8(0..4) {
        0 => ("flags interval; ", disjoint(kind, rng)),
        1 => ("flags interval; auto-merge; ", overlapping(kind, rng)),
        2 => ("flags constant; ", values(kind, rng)),
        _ => ("", values(kind, rng)),
    };
    let elements = elements.join(", ");
    Some(format!(
        "set {name} {{ type {key}; {flags}elements = {{ {elements} }}; }}"
    ))
}

fn values(kind: Type, rng: &mut Rng) -> Vec<String> {
    let mut values: Vec<u128> = (0..rng.usize(1..=ELEMENTS_MAX))
        .map(|_| kind.value(rng))
        .collect();
    values.sort_unstable();
    values.dedup();
    rng.shuffle(&mut values);
    values
        .into_iter()
        .map(|value| kind.text(value, rng))
        .collect()
}

fn overlapping(kind: Type, rng: &mut Rng) -> Vec<String> {
    (0..rng.usize(1..=ELEMENTS_MAX))
        .map(|_| match rng.u8(0..3) {
            0 => range(kind, rng),
            1 if kind.prefix_bits().is_some() => prefix(kind, rng),
            _ => kind.text(kind.value(rng), rng),
        })
        .collect()
}

/// Ranges and values that do not overlap; some touch.
fn disjoint(kind: Type, rng: &mut Rng) -> Vec<String> {
    let mut cuts: Vec<u128> = (0..rng.usize(2..=2 * ELEMENTS_MAX))
        .map(|_| kind.value(rng))
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut elements = Vec::new();
    let mut free = 0;
    for pair in cuts.windows(2) {
        let from = if rng.bool() { free } else { pair[0].max(free) };
        if from >= pair[1] {
            continue;
        }
        if rng.bool() {
            let (from, to) = (kind.number(from, rng), kind.number(pair[1], rng));
            elements.push(format!("{from}-{to}"));
            free = match pair[1].checked_add(1) {
                Some(next) => next,
                None => break,
            };
        } else {
            elements.push(kind.text(from, rng));
            free = from + 1;
        }
    }
    if elements.is_empty() {
        elements.push(kind.text(cuts[0], rng));
    }
    rng.shuffle(&mut elements);
    elements
}
