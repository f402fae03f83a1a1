//! A file as text: the one form that it is always printed in, which parses to the same file.

use super::ast::{
    Base, Chain, ChainItem, Change, Define, ElementPart, File, Flags, Item, Joint, Map, Match, Nat,
    NatElement, NatMap, Operand, Operator, Policy, Range, RejectWith, Rule, Set, Spanned,
    Statement, Table, TableItem, Value, Verdict, VerdictMap, Verdicts, Vmap,
};
use super::lex::TIME_UNITS;
use super::objects::{ObjectKind, used_of};
use crate::fields::{Field, ICMPX_CODES, Type};
use core::fmt::{self, Display, Formatter};

/// Elements on one line of a named set.
const ELEMENTS_PER_LINE: usize = 4;

impl<T: Display> Display for Spanned<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl Display for File<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for item in &self.items {
            match item {
                Item::FlushRuleset(_) => f.write_str("flush ruleset\n")?,
                Item::Define(define) => writeln!(f, "{define}")?,
                Item::Undefine(name) => writeln!(f, "undefine {name}")?,
                Item::Table(table) => writeln!(f, "{table}")?,
            }
        }
        Ok(())
    }
}

impl Display for Define<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let again = if self.again { "re" } else { "" };
        write!(f, "{again}define {} = {}", self.name, self.value)
    }
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{", self.family.node.name(), self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\tcomment \"{comment}\"")?;
        }
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match item {
                TableItem::Define(define) => writeln!(f, "\t{define}")?,
                TableItem::Undefine(name) => writeln!(f, "\tundefine {name}")?,
                TableItem::Flowtable(flowtable) => writeln!(f, "{flowtable}")?,
                TableItem::Object(object) => writeln!(f, "{object}")?,
                TableItem::Set(set) => writeln!(f, "{set}")?,
                TableItem::Map(map) => writeln!(f, "{map}")?,
                TableItem::Chain(chain) => writeln!(f, "{chain}")?,
            }
        }
        f.write_str("}")
    }
}

impl Display for Set<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tset {} {{\n\t\ttype {}", self.name, Keys(&self.keys))?;
        if let Some(size) = self.size {
            writeln!(f, "\t\tsize {size}")?;
        }
        self.flags(f)?;
        if let Some(timeout) = self.timeout {
            f.write_str("\t\ttimeout ")?;
            time(f, timeout)?;
            f.write_str("\n")?;
        }
        if self.auto_merge {
            f.write_str("\t\tauto-merge\n")?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        if !self.elements.is_empty() {
            f.write_str("\t\telements = {")?;
            for (index, element) in self.elements.iter().enumerate() {
                if index > 0 {
                    f.write_str(",")?;
                }
                let line_start = index % ELEMENTS_PER_LINE == 0;
                f.write_str(if line_start { "\n\t\t\t" } else { " " })?;
                element.fmt(f)?;
            }
            f.write_str("\n\t\t}\n")?;
        }
        f.write_str("\t}")
    }
}

impl Set<'_> {
    /// The line of flags, in nft's order.
    fn flags(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.constant, "constant"),
            (self.dynamic, "dynamic"),
            (self.interval, "interval"),
            (self.timeouts, "timeout"),
        ];
        let mut before = "\t\tflags ";
        for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
            write!(f, "{before}{name}")?;
            before = ", ";
        }
        match before {
            ", " => f.write_str("\n"),
            _ => Ok(()),
        }
    }
}

/// Types, with what joins them.
struct Keys<'a>(&'a [Spanned<Type>]);

impl Display for Keys<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|key| key.node.set_name());
        joined(f, names.map(Option::unwrap_or_default))
    }
}

/// `a . b`.
fn joined(f: &mut Formatter<'_>, parts: impl IntoIterator<Item: Display>) -> fmt::Result {
    for (index, part) in parts.into_iter().enumerate() {
        let before = if index == 0 { "" } else { " . " };
        write!(f, "{before}{part}")?;
    }
    Ok(())
}

impl Display for Map<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keys = Keys(&self.keys);
        writeln!(f, "\tmap {} {{\n\t\ttype {keys} : verdict", self.name)?;
        match (self.constant, self.interval) {
            (true, true) => f.write_str("\t\tflags constant, interval\n")?,
            (true, false) => f.write_str("\t\tflags constant\n")?,
            (false, true) => f.write_str("\t\tflags interval\n")?,
            (false, false) => {}
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        if !self.elements.is_empty() {
            f.write_str("\t\telements = ")?;
            pairs(f, &self.elements)?;
            f.write_str("\n")?;
        }
        f.write_str("\t}")
    }
}

impl Display for Vmap<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        joined(f, &self.fields)?;
        f.write_str(" vmap ")?;
        match &self.map {
            VerdictMap::Elements(elements) => pairs(f, &elements.node),
            VerdictMap::Named(name) => write!(f, "@{name}"),
        }
    }
}

/// `{ a : accept, b : drop }`.
fn pairs(f: &mut Formatter<'_>, elements: &Verdicts<'_>) -> fmt::Result {
    let pairs = elements.iter();
    list(f, pairs.map(|(key, verdict)| Pair(key, verdict)))
}

/// `a : b`.
struct Pair<'a, K, V>(&'a K, &'a V);

impl<K: Display, V: Display> Display for Pair<'_, K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", self.0, self.1)
    }
}

impl Display for NatMap<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} map ", self.field)?;
        list(f, self.elements.iter())
    }
}

impl Display for NatElement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", self.key, self.address)?;
        match &self.port {
            Some(port) => write!(f, " . {port}"),
            None => Ok(()),
        }
    }
}

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        if let Some(base) = &self.base {
            writeln!(f, "\t\t{base}")?;
        }
        for item in &self.items {
            match item {
                ChainItem::Define(define) => writeln!(f, "\t\t{define}")?,
                ChainItem::Undefine(name) => writeln!(f, "\t\tundefine {name}")?,
                ChainItem::Rule(rule) => writeln!(f, "\t\t{rule}")?,
            }
        }
        f.write_str("\t}")
    }
}

impl Display for Base {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kind, hook) = (self.kind.name(), self.hook.name());
        write!(f, "type {kind} hook {hook} priority {};", self.priority)?;
        match self.policy {
            Some(policy) => write!(f, " policy {policy};"),
            None => Ok(()),
        }
    }
}

impl Display for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        })
    }
}

impl Display for Rule<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, statement) in self.statements.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            statement.fmt(f)?;
        }
        match &self.comment {
            Some(comment) => write!(f, " comment \"{comment}\""),
            None => Ok(()),
        }
    }
}

impl Display for Statement<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Match(condition) => condition.fmt(f),
            Self::Joint(joint) => joint.fmt(f),
            Self::Change(change) => change.fmt(f),
            Self::Flags(flags) => flags.fmt(f),
            Self::Quota { allowance, used } => {
                write!(f, "quota {allowance}")?;
                used_of(*used, f)
            }
            Self::Named(kind @ ObjectKind::Timeout, name) => {
                write!(f, "{} set \"{name}\"", kind.name())
            }
            Self::Named(kind, name) => write!(f, "{} name \"{name}\"", kind.name()),
            Self::Fib(fib) => fib.fmt(f),
            Self::Masked(masked) => masked.fmt(f),
            Self::Mark(set) => set.fmt(f),
            Self::Counter {
                packets: 0,
                bytes: 0,
            } => f.write_str("counter"),
            Self::Counter { packets, bytes } => {
                write!(f, "counter packets {packets} bytes {bytes}")
            }
            Self::Log { prefix: None } => f.write_str("log"),
            Self::Log {
                prefix: Some(prefix),
            } => write!(f, "log prefix \"{prefix}\""),
            Self::Limit(rate) => rate.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Flow(name) => write!(f, "flow add @{name}"),
            Self::Notrack => f.write_str("notrack"),
            Self::Zone(set) => write!(f, "{} set {}", set.field, set.number),
            Self::Vmap(vmap) => vmap.fmt(f),
            Self::Reject(None) => f.write_str("reject"),
            Self::Reject(Some(with)) => write!(f, "reject with {with}"),
            Self::Nat(nat) => nat.fmt(f),
        }
    }
}

impl Display for RejectWith {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, code, symbols) = match *self {
            Self::Icmp(code) => ("icmp", code, Type::IcmpCode.symbols()),
            Self::Icmpv6(code) => ("icmpv6", code, Type::Icmpv6Code.symbols()),
            Self::Icmpx(code) => ("icmpx", code, ICMPX_CODES),
            Self::TcpReset => return f.write_str("tcp reset"),
        };
        match symbols.iter().find(|(_, number)| *number == code.into()) {
            Some((symbol, _)) => write!(f, "{name} {symbol}"),
            None => write!(f, "{name} {code}"),
        }
    }
}

impl Display for Nat<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(family) = self.family {
            write!(f, " {}", family.name())?;
        }
        if self.prefix {
            f.write_str(" prefix")?;
        }
        if self.address.is_some() || self.ports.is_some() || self.map.is_some() {
            f.write_str(" to ")?;
        }
        if let Some(map) = &self.map {
            map.fmt(f)?;
        }
        match (&self.address, &self.ports) {
            (Some(Operand::Value(address)), Some(_)) => in_brackets(f, &address.node)?,
            (Some(address), _) => address.fmt(f)?,
            (None, _) => {}
        }
        if let Some(ports) = &self.ports {
            write!(f, ":{ports}")?;
        }
        let flags = [
            (self.random, "random"),
            (self.fully_random, "fully-random"),
            (self.persistent, "persistent"),
        ];
        let mut joint = " ";
        for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
            write!(f, "{joint}{name}")?;
            joint = ",";
        }
        Ok(())
    }
}

/// An address in front of a port.
fn in_brackets(f: &mut Formatter<'_>, address: &Value<'_>) -> fmt::Result {
    match address {
        Value::Ipv6(address) => write!(f, "[{address}]"),
        Value::Range(range) => {
            in_brackets(f, &range.from.node)?;
            f.write_str("-")?;
            in_brackets(f, &range.to.node)
        }
        _ => address.fmt(f),
    }
}

impl Display for Verdict<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

impl Display for Match<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} {}", self.field, self.operator, self.operand)
    }
}

impl Display for Change<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} @{} {{ ", self.kind.name(), self.set)?;
        joined(f, &self.fields)?;
        if let Some(timeout) = self.timeout {
            f.write_str(" timeout ")?;
            time(f, timeout)?;
        }
        for part in &self.parts {
            match part {
                ElementPart::Limit(rate) => write!(f, " {rate}")?,
                ElementPart::Counter => f.write_str(" counter")?,
                ElementPart::Count(count) => write!(f, " {count}")?,
            }
        }
        f.write_str(" }")
    }
}

impl Display for Joint<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        joined(f, &self.fields)?;
        write!(f, "{} {}", self.operator, self.operand)
    }
}

/// With a blank in front, or nothing for equality.
impl Display for Operator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.symbol() {
            Some(symbol) => write!(f, " {symbol}"),
            None => Ok(()),
        }
    }
}

impl Operator {
    /// How it is written; equality need not be.
    pub(super) const fn symbol(self) -> Option<&'static str> {
        match self {
            Self::Equal => None,
            Self::NotEqual => Some("!="),
            Self::Less => Some("<"),
            Self::LessOrEqual => Some("<="),
            Self::Greater => Some(">"),
            Self::GreaterOrEqual => Some(">="),
        }
    }
}

impl Display for Operand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Set(elements) => list(f, elements.node.iter()),
            Self::Named(name) => write!(f, "@{name}"),
        }
    }
}

/// `{ a, b }`.
fn list(f: &mut Formatter<'_>, elements: impl Iterator<Item: Display>) -> fmt::Result {
    for (index, element) in elements.enumerate() {
        let before = if index == 0 { "{ " } else { ", " };
        write!(f, "{before}{element}")?;
    }
    f.write_str(" }")
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Time(milliseconds) => time(f, *milliseconds),
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv4Prefix(address, length) => write!(f, "{address}/{length}"),
            Self::Ipv6(address) => address.fmt(f),
            Self::Ipv6Prefix(address, length) => write!(f, "{address}/{length}"),
            Self::Mac(mac) => {
                let [first, rest @ ..] = mac;
                write!(f, "{first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
            }
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Range(range) => range.fmt(f),
            Self::Joined(parts) => joined(f, parts),
        }
    }
}

/// With blanks around the hyphen where it would belong to a word.
impl Display for Range<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        match from.node {
            Value::Word(_) | Value::Variable(_) => write!(f, "{from} - {to}"),
            _ => write!(f, "{from}-{to}"),
        }
    }
}

/// `1d2h3m4s5ms`, without what is 0.
fn time(f: &mut Formatter<'_>, milliseconds: u32) -> fmt::Result {
    let mut rest = milliseconds;
    if rest == 0 {
        return f.write_str("0s");
    }
    for (unit, length) in TIME_UNITS {
        if rest >= length {
            write!(f, "{}{unit}", rest / length)?;
            rest %= length;
        }
    }
    Ok(())
}

impl Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let operator = if self.negated { "!=" } else { "==" };
        let names = |flags, between| Names(self.field, flags, between);
        write!(f, "{} ", self.field)?;
        match (self.mask, &*self.values) {
            (mask, [value]) if mask == self.field.all_flags() => {
                write!(f, "{operator} {}", names(*value, " | "))
            }
            (mask, [0]) if self.negated => names(mask, ",").fmt(f),
            (mask, [0]) => write!(f, "! {}", names(mask, ",")),
            (mask, values) => {
                if mask != self.field.all_flags() {
                    write!(f, "& {} ", Mask(self.field, mask))?;
                }
                write!(f, "{operator} ")?;
                match values {
                    [value] => names(*value, " | ").fmt(f),
                    values => list(f, values.iter().map(|value| names(*value, " | "))),
                }
            }
        }
    }
}

/// Flags by their names, with something between them.
struct Names(Field, u16, &'static str);

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(field, flags, between) = *self;
        let mut first = true;
        let mut rest = flags;
        for (name, bit) in field.value_type().symbols() {
            if flags & bit != 0 {
                write!(f, "{}{name}", if first { "" } else { between })?;
                first = false;
                rest &= !bit;
            }
        }
        // Bits without a name; no bits have none.
        if first || rest != 0 {
            write!(f, "{}{rest:#x}", if first { "" } else { between })?;
        }
        Ok(())
    }
}

/// Flags behind `&`.
struct Mask(Field, u16);

impl Display for Mask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let flags = Names(self.0, self.1, " | ");
        if self.1.count_ones() > 1 {
            write!(f, "({flags})")
        } else {
            flags.fmt(f)
        }
    }
}
