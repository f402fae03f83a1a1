//! What a file says, as it says it: names are not resolved, and values have no type yet.
//!
//! Names and strings borrow from the text. Equality ignores where things stand: of two
//! [`Spanned`], only the nodes are compared.

pub use super::fib::{Fib, FibResult, FibTest};
pub use super::flowtable::Flowtable;
pub use super::marks::{MarkSource, Masked, SetMark};
pub use super::objects::{Object, ObjectKind, What};
pub use super::timeouts::{TimeoutPolicy, TimeoutsOf};
pub use crate::census::Count;
pub use crate::fib::FibPort;
use crate::fields::{Field, Type};
use crate::limit::Rate;
pub use crate::mark::{BitOperator, MarkOf};
pub use crate::quota::Allowance;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of the text, from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

/// A node and where it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spanned<T> {
    /// Where it stands.
    pub span: Span,
    /// What stands there.
    pub node: T,
}

impl<T> Spanned<T> {
    /// A node that stands at `span`.
    pub fn new(span: Span, node: T) -> Self {
        Self { span, node }
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T: Eq> Eq for Spanned<T> {}

/// A name as the text spells it, without quotes.
pub type Name<'a> = Spanned<&'a str>;

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File<'a> {
    /// In the order of the file; a variable is known from its definition on.
    pub items: Vec<Item<'a>>,
}

/// What stands outside of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// `flush ruleset`: what each load does anyway, for it replaces everything.
    FlushRuleset(Spanned<()>),
    /// `define NAME = ...` or `redefine NAME = ...`.
    Define(Define<'a>),
    /// `undefine NAME`.
    Undefine(Name<'a>),
    /// `table FAMILY NAME { ... }`.
    Table(Table<'a>),
}

/// `define NAME = VALUE`. It holds from here to the end of the block it stands in, or until it is
/// defined again or undefined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Define<'a> {
    /// The name, without `$`.
    pub name: Name<'a>,
    /// `redefine`: it may have a meaning already.
    pub again: bool,
    /// What it stands for.
    pub value: Operand<'a>,
}

/// `table FAMILY NAME { ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<'a> {
    /// Which packets its chains see.
    pub family: Spanned<Family>,
    /// Its name.
    pub name: Name<'a>,
    /// In the order of the file. Chains and sets may be used before they are defined, variables
    /// may not.
    pub items: Vec<TableItem<'a>>,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// Which packets the chains of a table see: those that a bridge passes on, or those that a router
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `bridge`: frames of all kinds.
    Bridge,
    /// `inet`: packets of IPv4 and of IPv6.
    Inet,
    /// `ip`: packets of IPv4.
    Ip,
    /// `ip6`: packets of IPv6.
    Ip6,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 4] = [Self::Bridge, Self::Inet, Self::Ip, Self::Ip6];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Inet => "inet",
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
        }
    }
}

/// What stands in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableItem<'a> {
    /// `map NAME { ... }` of verdicts.
    Map(Map<'a>),
    /// `define NAME = ...` or `redefine NAME = ...`.
    Define(Define<'a>),
    /// `undefine NAME`.
    Undefine(Name<'a>),
    /// `flowtable NAME { ... }`: what a router does anyway.
    Flowtable(Flowtable<'a>),
    /// `set NAME { ... }`.
    Set(Set<'a>),
    /// `counter NAME { ... }`, `quota NAME { ... }`, `limit NAME { ... }` or
    /// `ct timeout NAME { ... }`.
    Object(Object<'a>),
    /// `chain NAME { ... }`.
    Chain(Chain<'a>),
}

/// `set NAME { type TYPE; ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// Its name, without `@`.
    pub name: Name<'a>,
    /// What its elements are: one type, or those of a concatenation, in order.
    pub keys: Box<[Spanned<Type>]>,
    /// `flags interval`: prefixes and ranges may be elements.
    pub interval: bool,
    /// `flags constant`: no rule changes it.
    pub constant: bool,
    /// `flags dynamic`: rules change it.
    pub dynamic: bool,
    /// `flags timeout`: its elements may have a timeout.
    pub timeouts: bool,
    /// `timeout TIME`, in milliseconds: what its elements have if nothing else is said.
    pub timeout: Option<u32>,
    /// `size COUNT`: elements that it holds at most.
    pub size: Option<u32>,
    /// `auto-merge`: intervals may overlap, and are joined.
    pub auto_merge: bool,
    /// `elements = { ... }`; none if the set has no such line, which nft has as an empty set.
    pub elements: Elements<'a>,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// `map NAME { type TYPE : verdict; ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<'a> {
    /// Its name, without `@`.
    pub name: Name<'a>,
    /// What its keys are: one type, or those of a concatenation, in order.
    pub keys: Box<[Spanned<Type>]>,
    /// `flags interval`: prefixes and ranges may be keys.
    pub interval: bool,
    /// `flags constant`.
    pub constant: bool,
    /// `elements = { ... }`.
    pub elements: Verdicts<'a>,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// Keys and verdicts in the order of the file.
pub type Verdicts<'a> = Box<[(Spanned<Value<'a>>, Spanned<Verdict<'a>>)]>;

/// `FIELD vmap { KEY : VERDICT, ... }` or `FIELD vmap @NAME`, where several fields may be joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vmap<'a> {
    /// What is looked up: one field, or those of a concatenation, in order.
    pub fields: Box<[Spanned<Field>]>,
    /// What it is looked up in.
    pub map: VerdictMap<'a>,
}

/// Where a field is looked up for a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictMap<'a> {
    /// `{ ... }`.
    Elements(Spanned<Verdicts<'a>>),
    /// `@NAME`.
    Named(Name<'a>),
}

/// Elements of a set in the order of the file. A [`Value::Variable`] among them may stand for a
/// set, whose elements then belong to this one.
pub type Elements<'a> = Box<[Spanned<Value<'a>>]>;

/// `chain NAME { ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// The hook, of a base chain.
    pub base: Option<Spanned<Base>>,
    /// In the order of the file.
    pub items: Vec<ChainItem<'a>>,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// `type KIND hook HOOK priority PRIORITY; policy POLICY;`. In a table of the family `bridge`, the
/// kind is `filter` and the hook is `forward`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// What its rules may do.
    pub kind: ChainKind,
    /// When they are asked.
    pub hook: Hook,
    /// Chains of a hook are asked in the order of their priorities, the lowest first.
    pub priority: i32,
    /// What becomes of frames that no rule decides on; without a `policy`, they are accepted.
    pub policy: Option<Spanned<Policy>>,
}

/// What the rules of a base chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// `filter`: decide on each packet.
    Filter,
    /// `nat`: translate a connection, whose first packet they see.
    Nat,
}

impl ChainKind {
    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// Where a packet is on its way through a router when rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// It has come in.
    Prerouting,
    /// It is for the router itself.
    Input,
    /// It is to be sent on.
    Forward,
    /// The router itself sends it.
    Output,
    /// It is about to go out.
    Postrouting,
}

impl Hook {
    /// Every hook, each at its number.
    pub const ALL: [Self; 5] = [
        Self::Prerouting,
        Self::Input,
        Self::Forward,
        Self::Output,
        Self::Postrouting,
    ];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }
}

/// The policy of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `accept`.
    Accept,
    /// `drop`.
    Drop,
}

/// What stands in a chain, the hook aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainItem<'a> {
    /// `define NAME = ...` or `redefine NAME = ...`.
    Define(Define<'a>),
    /// `undefine NAME`.
    Undefine(Name<'a>),
    /// A rule.
    Rule(Spanned<Rule<'a>>),
}

/// Statements that run from left to right until one does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    /// At least one. A verdict, translation or rejection, if there is one, is the last; there is at
    /// most one counter.
    pub statements: Box<[Spanned<Statement<'a>>]>,
    /// `comment "..."`.
    pub comment: Option<Name<'a>>,
}

/// One statement of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// A condition.
    Match(Match<'a>),
    /// A condition on several fields at once.
    Joint(Box<Joint<'a>>),
    /// A change of a set.
    Change(Box<Change<'a>>),
    /// A condition on flags: `tcp flags`, `ct state` or `ct status`.
    Flags(Flags),
    /// `quota`: a condition on how many bytes there were before.
    Quota {
        /// What is allowed.
        allowance: Allowance,
        /// What of that is used.
        used: u64,
    },
    /// `counter name "..."`, and the same of a quota and of a limit; `ct timeout set "..."`.
    Named(ObjectKind, Name<'a>),
    /// A condition on what a router's routes say.
    Fib(Box<Fib<'a>>),
    /// A condition on some bits of a mark.
    Masked(Box<Masked<'a>>),
    /// `meta mark set` or `ct mark set`.
    Mark(Box<SetMark<'a>>),
    /// `counter`, with what it starts from: `packets N bytes M`.
    Counter {
        /// Frames.
        packets: u64,
        /// Bytes.
        bytes: u64,
    },
    /// `log`, with the text behind `prefix`.
    Log {
        /// What stands in front of the line.
        prefix: Option<Name<'a>>,
    },
    /// `limit rate`: a condition on how many there were before.
    Limit(Rate),
    /// `ct count`: a condition on how many connections there are.
    Count(Count),
    /// `accept`, `drop`, `return`, `jump` or `goto`.
    Verdict(Verdict<'a>),
    /// A look-up for a verdict, which ends a rule as one does.
    Vmap(Box<Vmap<'a>>),
    /// `flow add @NAME`: what a router does with each connection anyway.
    Flow(Name<'a>),
    /// `notrack`: the packet has no connection.
    Notrack,
    /// `ct zone set`: where the packet's connection is looked up.
    Zone(SetZone<'a>),
    /// `reject`, with what stands behind `with`; it ends a rule as a verdict does.
    Reject(Option<RejectWith>),
    /// `snat`, `dnat`, `masquerade` or `redirect`, which ends a rule as a verdict does.
    Nat(Box<Nat<'a>>),
}

/// `ct zone set NUMBER`, or the same of a direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetZone<'a> {
    /// `ct zone`, `ct original zone` or `ct reply zone`.
    pub field: Field,
    /// The number, or a variable.
    pub number: Spanned<Value<'a>>,
}

/// What the sender of a packet is told, behind `reject with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectWith {
    /// `icmp`, and the code of its type `destination-unreachable`.
    Icmp(u8),
    /// `icmpv6`, and the same.
    Icmpv6(u8),
    /// `icmpx`: either of both, by the number that nft gives to what they have in common.
    Icmpx(u8),
    /// `tcp reset`.
    TcpReset,
}

/// What one end of a connection is called on the other side of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat<'a> {
    /// Which end, and whose address it gets.
    pub kind: NatKind,
    /// `ip` or `ip6` in front of `to`.
    pub family: Option<Family>,
    /// `prefix` in front of `to`: the address keeps what is behind the prefix.
    pub prefix: bool,
    /// One address or a range of them; none behind `masquerade` and `redirect`.
    pub address: Option<Operand<'a>>,
    /// In the place of address and ports: what a field is looked up in.
    pub map: Option<NatMap<'a>>,
    /// One port or a range of them, behind `:`.
    pub ports: Option<Operand<'a>>,
    /// `random`: the port is chosen at random.
    pub random: bool,
    /// `fully-random`: the same to this router.
    pub fully_random: bool,
    /// `persistent`: who sends has one address for all that it sends to.
    pub persistent: bool,
}

/// `FIELD map { KEY : ADDRESS, ... }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatMap<'a> {
    /// What is looked up.
    pub field: Spanned<Field>,
    /// In the order of the file.
    pub elements: Box<[NatElement<'a>]>,
}

/// `KEY : ADDRESS` or `KEY : ADDRESS . PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatElement<'a> {
    /// What the field has.
    pub key: Spanned<Value<'a>>,
    /// What an end is called then.
    pub address: Operand<'a>,
    /// Its port.
    pub port: Option<Operand<'a>>,
}

/// Which end of a connection is translated, and to whose address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatKind {
    /// `snat`: the source, to the address that is said.
    Snat,
    /// `dnat`: the destination, to the address that is said.
    Dnat,
    /// `masquerade`: the source, to the address of the port that it leaves by.
    Masquerade,
    /// `redirect`: the destination, to the address of the port that it came in by.
    Redirect,
}

impl NatKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Snat, Self::Dnat, Self::Masquerade, Self::Redirect];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snat => "snat",
            Self::Dnat => "dnat",
            Self::Masquerade => "masquerade",
            Self::Redirect => "redirect",
        }
    }

    /// Whether rules say the address.
    pub const fn names_address(self) -> bool {
        matches!(self, Self::Snat | Self::Dnat)
    }
}

/// How a rule ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// `accept`.
    Accept,
    /// `drop`.
    Drop,
    /// `return`: on with the rule behind the jump; from a base chain, the policy.
    Return,
    /// `jump CHAIN`.
    Jump(Name<'a>),
    /// `goto CHAIN`: a jump whose end is the end of the chain that it is in.
    Goto(Name<'a>),
}

/// `FIELD OPERATOR OPERAND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'a> {
    /// What is compared.
    pub field: Spanned<Field>,
    /// How.
    pub operator: Spanned<Operator>,
    /// With what.
    pub operand: Operand<'a>,
}

/// `FIELD . FIELD OPERATOR OPERAND`: what the fields have together is one of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint<'a> {
    /// What is compared, at least two.
    pub fields: Box<[Spanned<Field>]>,
    /// How.
    pub operator: Spanned<Operator>,
    /// With what.
    pub operand: Operand<'a>,
}

/// `add @NAME { FIELD ... }`: what a packet has becomes an element of a set, or is none any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What is done.
    pub kind: ChangeKind,
    /// To which set.
    pub set: Name<'a>,
    /// What is an element: one field, or those of a concatenation.
    pub fields: Box<[Spanned<Field>]>,
    /// `timeout TIME`, in milliseconds.
    pub timeout: Option<u32>,
    /// What each element has of its own, in order; no two alike.
    pub parts: Box<[ElementPart]>,
}

/// What is done to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// `add`: an element that is there already stays as it is.
    Add,
    /// `update`: its timeout begins anew.
    Update,
    /// `delete`.
    Delete,
}

impl ChangeKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Add, Self::Update, Self::Delete];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// What an element of a set has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementPart {
    /// A limit that the packet must pass.
    Limit(Rate),
    /// A counter.
    Counter,
    /// How many connections there are of it.
    Count(Count),
}

/// How a field is compared. With a set, range or prefix, [`Self::Equal`] means that the field is
/// in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `==`, or nothing.
    Equal,
    /// `!=`.
    NotEqual,
    /// `<`.
    Less,
    /// `<=`.
    LessOrEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterOrEqual,
}

/// A condition on flags in all its forms: those under `mask` are one of `values`, or none of them
/// if `negated`. `tcp flags syn,ack` has the mask `syn|ack` and is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// A field that is made of flags.
    pub field: Field,
    /// The flags that are looked at.
    pub mask: u16,
    /// Ascending, no two alike, at least one.
    pub values: Box<[u16]>,
    /// Whether the flags must be none of `values`.
    pub negated: bool,
}

/// What a field is compared with, or a variable stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// One value, range, prefix or variable.
    Value(Spanned<Value<'a>>),
    /// `{ ... }`.
    Set(Spanned<Elements<'a>>),
    /// `@NAME`; not in a `define`.
    Named(Name<'a>),
}

/// A value whose type depends on what it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// `80` or `0x50`.
    Number(u32),
    /// `1d2h3m4s5ms`, in milliseconds.
    Time(u32),
    /// `10.0.0.1`.
    Ipv4(Ipv4Addr),
    /// `10.0.0.0/8`; bits behind the prefix may be set, and mean nothing.
    Ipv4Prefix(Ipv4Addr, u8),
    /// `fe80::1`.
    Ipv6(Ipv6Addr),
    /// `fe80::/10`; bits behind the prefix may be set, and mean nothing.
    Ipv6Prefix(Ipv6Addr, u8),
    /// `02:00:00:00:00:01`.
    Mac([u8; 6]),
    /// A bare word: a symbol such as `tcp`, or the name of an interface, perhaps with `*`.
    Word(&'a str),
    /// A string in quotes.
    Text(&'a str),
    /// `$NAME`.
    Variable(&'a str),
    /// `FROM-TO`.
    Range(Box<Range<'a>>),
    /// `10.0.0.1 . 80`: at least two, of which none is one of these.
    Joined(Box<[Spanned<Value<'a>>]>),
}

/// `FROM-TO`, both included. Neither is a range or a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range<'a> {
    /// The lowest value.
    pub from: Spanned<Value<'a>>,
    /// The highest value.
    pub to: Spanned<Value<'a>>,
}

const _: () = assert!(
    size_of::<Spanned<Value<'_>>>() == 32,
    "sets are made of these"
);
