//! Any file prints to a text that parses to the same file.

use super::read;
use crate::fields::{Field, Type};
use crate::limit::{Period, Rate, Unit};
use crate::mark::{BitOperator, MarkOf};
use crate::nft::ast::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::string::ToString;
use std::vec::Vec;

fn at<T>(node: T) -> Spanned<T> {
    Spanned::new(Span::default(), node)
}

fn name() -> impl Strategy<Value = Name<'static>> {
    let names = [
        "a",
        "forward",
        "x-1.2/y_z",
        "_",
        "vif1",
        "abcdef",
        "E.2",
        "filter",
    ];
    proptest::sample::select(names.to_vec()).prop_map(at)
}

fn text() -> impl Strategy<Value = &'static str> {
    proptest::sample::select([" ", "vif*", "a b; c { } #", "\u{fc}\u{20ac}", "it's \\"].to_vec())
}

fn literal() -> impl Strategy<Value = Value<'static>> {
    let words = [
        "tcp",
        "ip6",
        "8021q",
        "http",
        "vif*",
        "echo-request",
        "eth0.1",
    ];
    prop_oneof![
        any::<u32>().prop_map(Value::Number),
        any::<u32>().prop_map(|bits| Value::Ipv4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| Value::Ipv6(Ipv6Addr::from_bits(bits))),
        any::<[u8; 6]>().prop_map(Value::Mac),
        proptest::sample::select(words.to_vec()).prop_map(Value::Word),
        text().prop_map(Value::Text),
        name().prop_map(|name| Value::Variable(name.node)),
    ]
}

fn value() -> impl Strategy<Value = Spanned<Value<'static>>> {
    let v4 = (any::<u32>(), 0..=32_u8);
    let v6 = (any::<u128>(), 0..=128_u8);
    let range = (literal(), literal());
    prop_oneof![
        4 => literal(),
        1 => v4.prop_map(|(bits, length)| Value::Ipv4Prefix(Ipv4Addr::from_bits(bits), length)),
        1 => v6.prop_map(|(bits, length)| Value::Ipv6Prefix(Ipv6Addr::from_bits(bits), length)),
        1 => range.prop_map(|(from, to)| {
            let (from, to) = (at(from), at(to));
            Value::Range(Range { from, to }.into())
        }),
    ]
    .prop_map(at)
}

fn element() -> impl Strategy<Value = Spanned<Value<'static>>> {
    let joined = vec(value(), 2..4).prop_map(|parts| at(Value::Joined(parts.into())));
    prop_oneof![4 => value(), 1 => joined]
}

fn elements() -> impl Strategy<Value = Elements<'static>> {
    vec(element(), 1..12).prop_map(|elements| elements.into())
}

fn operand() -> impl Strategy<Value = Operand<'static>> {
    prop_oneof![
        element().prop_map(Operand::Value),
        elements().prop_map(|elements| Operand::Set(at(elements))),
        name().prop_map(Operand::Named),
    ]
}

fn define() -> impl Strategy<Value = Define<'static>> {
    let value = operand().prop_filter("a name of a set", |it| !matches!(it, Operand::Named(_)));
    (name(), any::<bool>(), value).prop_map(|(name, again, value)| Define { name, again, value })
}

fn field() -> impl Strategy<Value = Field> {
    let fields = Field::all().filter(|field| !field.value_type().is_flags());
    proptest::sample::select(fields.collect::<Vec<_>>())
}

fn operator() -> impl Strategy<Value = Operator> {
    use Operator::*;
    let operators = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
    proptest::sample::select(operators.to_vec())
}

fn flags() -> impl Strategy<Value = Flags> {
    let fields = [
        ("tcp", "flags", 0xffu16),
        ("ct", "state", 0xff),
        ("ct", "status", 0x3ff),
    ];
    let fields = proptest::sample::select(fields.to_vec());
    fields.prop_flat_map(|(header, word, max)| {
        let field = Field::find(header, word).unwrap();
        let mask = prop_oneof![0..=max, Just(0), Just(max)];
        let one = prop_oneof![0..=max, Just(0)].prop_map(|value| [value].into());
        // One state in braces is printed without them.
        let several = proptest::collection::btree_set(0..=max, 2..9);
        let values = prop_oneof![one, several];
        (mask, values, any::<bool>()).prop_map(move |(mask, values, negated)| {
            let values: std::collections::BTreeSet<u16> = values;
            Flags {
                field,
                mask,
                values: values.into_iter().collect(),
                negated,
            }
        })
    })
}

fn rate() -> impl Strategy<Value = Rate> {
    let period = proptest::sample::select(Period::ALL.to_vec());
    let parts = (
        1..=u64::MAX,
        any::<bool>(),
        period,
        1..=u32::MAX,
        any::<bool>(),
    );
    parts.prop_map(|(amount, bytes, period, burst, over)| Rate {
        amount,
        unit: if bytes { Unit::Bytes } else { Unit::Packets },
        period,
        burst,
        over,
    })
}

fn change() -> BoxedStrategy<Statement<'static>> {
    let part = prop_oneof![
        rate().prop_map(ElementPart::Limit),
        Just(ElementPart::Counter)
    ];
    let parts = (
        proptest::sample::select(ChangeKind::ALL.to_vec()),
        name(),
        vec(field().prop_map(at), 1..4),
        option::of(1..=u32::MAX),
        option::of(part),
    );
    parts
        .prop_map(|(kind, set, fields, timeout, part)| {
            Statement::Change(
                Change {
                    kind,
                    set,
                    fields: fields.into(),
                    timeout,
                    parts: part.into_iter().collect(),
                }
                .into(),
            )
        })
        .boxed()
}

/// Boxed: what it is made of is large, and rules move it about.
fn condition() -> BoxedStrategy<Statement<'static>> {
    let condition = (field(), operator(), operand());
    prop_oneof![
        4 => condition.prop_map(|(field, operator, operand)| Statement::Match(Match {
            field: at(field),
            operator: at(operator),
            operand,
        })),
        1 => (vec(field().prop_map(at), 2..5), operator(), operand()).prop_map(
            |(fields, operator, operand)| Statement::Joint(
                Joint { fields: fields.into(), operator: at(operator), operand }.into()
            )
        ),
        1 => flags().prop_map(Statement::Flags),
        1 => change(),
        1 => set_mark().prop_map(|set| Statement::Mark(set.into())),
        1 => masked().prop_map(|masked| Statement::Masked(masked.into())),
        1 => rate().prop_map(Statement::Limit),
        1 => allowance().prop_map(|(allowance, used)| Statement::Quota { allowance, used }),
        1 => (kind(), name()).prop_map(|(kind, name)| Statement::Named(kind, name)),
        1 => option::of(text()).prop_map(|prefix| Statement::Log {
            prefix: prefix.map(at),
        }),
    ]
    .boxed()
}

fn allowance() -> impl Strategy<Value = (Allowance, u64)> {
    let parts = (
        any::<u64>(),
        any::<bool>(),
        prop_oneof![any::<u64>(), Just(0)],
    );
    parts.prop_map(|(bytes, over, used)| (Allowance { bytes, over }, used))
}

fn kind() -> impl Strategy<Value = ObjectKind> {
    proptest::sample::select(std::vec![
        ObjectKind::Counter,
        ObjectKind::Quota,
        ObjectKind::Limit,
        ObjectKind::Timeout,
    ])
}

fn object() -> BoxedStrategy<Object<'static>> {
    let counter = any::<(u64, u64)>();
    let what = prop_oneof![
        counter.prop_map(|(packets, bytes)| What::Counter { packets, bytes }),
        allowance().prop_map(|(allowance, used)| What::Quota { allowance, used }),
        rate().prop_map(What::Limit),
        timeouts().prop_map(What::Timeout),
    ];
    let parts = (name(), what, option::of(text()));
    parts
        .prop_map(|(name, what, comment)| Object {
            name,
            what,
            // Timeouts have none.
            comment: comment
                .filter(|_| what.kind() != ObjectKind::Timeout)
                .map(at),
        })
        .boxed()
}

fn timeouts() -> impl Strategy<Value = TimeoutPolicy> {
    let family = proptest::sample::select(Family::ALL.to_vec());
    let seconds = any::<Option<u16>>();
    let protocol = proptest::sample::select(TimeoutsOf::ALL.to_vec());
    (protocol, family, seconds).prop_map(|(protocol, family, seconds)| {
        let mut policy = TimeoutPolicy::new(protocol, family);
        let names = ["established", "close", "unreplied", "replied"];
        for (name, seconds) in names.into_iter().zip(seconds.into_iter().cycle()) {
            // Of the other protocol it is none.
            let _ = policy.set(name, seconds.into());
        }
        policy
    })
}

fn zone() -> impl Strategy<Value = SetZone<'static>> {
    let fields = ["zone", "original zone", "reply zone"];
    let field = proptest::sample::select(fields.to_vec());
    let number = prop_oneof![
        any::<u32>().prop_map(Value::Number),
        name().prop_map(|name| Value::Variable(name.node)),
    ];
    (field, number).prop_map(|(field, number)| SetZone {
        field: Field::find("ct", field).unwrap(),
        number: at(number),
    })
}

fn mark_number() -> impl Strategy<Value = Spanned<Value<'static>>> {
    let variable = name().prop_map(|name| Value::Variable(name.node));
    prop_oneof![any::<u32>().prop_map(Value::Number), variable].prop_map(at)
}

fn set_mark() -> impl Strategy<Value = SetMark<'static>> {
    let of = proptest::sample::select(std::vec![MarkOf::Packet, MarkOf::Connection]);
    let source = prop_oneof![
        mark_number().prop_map(MarkSource::Value),
        of.clone().prop_map(MarkSource::Mark),
    ];
    let operations = [BitOperator::And, BitOperator::Xor, BitOperator::Or];
    let operations = operations.map(|operator| {
        let number = option::of(mark_number());
        number.prop_map(move |number| number.map(|number| (operator, number)))
    });
    (of, source, operations).prop_map(|(of, source, operations)| SetMark {
        of,
        source,
        operations: operations.into_iter().flatten().collect(),
    })
}

fn masked() -> impl Strategy<Value = Masked<'static>> {
    let field = proptest::sample::select(std::vec![("meta", "mark"), ("ct", "mark")]);
    let parts = (field, operator(), operand(), mark_number());
    parts.prop_map(|((header, word), operator, operand, mask)| Masked {
        condition: Match {
            field: at(Field::find(header, word).unwrap()),
            operator: at(operator),
            operand,
        },
        mask,
    })
}

fn verdict() -> impl Strategy<Value = Verdict<'static>> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Return),
        name().prop_map(Verdict::Jump),
        name().prop_map(Verdict::Goto),
    ]
}

fn rule() -> BoxedStrategy<Rule<'static>> {
    let counter = option::of(any::<(u64, u64)>());
    let verdict = option::of(verdict());
    let parts = (vec(condition(), 0..4), counter, verdict, option::of(text()));
    parts
        .prop_map(|(mut statements, counter, verdict, comment)| {
            let counter = counter.map(|(packets, bytes)| Statement::Counter { packets, bytes });
            statements.extend(counter);
            statements.extend(verdict.map(Statement::Verdict));
            Rule {
                statements: statements.into_iter().map(at).collect(),
                comment: comment.map(at),
            }
        })
        .prop_filter("no statement", |rule| !rule.statements.is_empty())
        .boxed()
}

fn chain() -> BoxedStrategy<Chain<'static>> {
    let policy = prop_oneof![Just(Policy::Accept), Just(Policy::Drop)];
    let base = (any::<i32>(), option::of(policy.prop_map(at)));
    let base = base.prop_map(|(priority, policy)| {
        at(Base {
            kind: ChainKind::Filter,
            hook: Hook::Forward,
            priority,
            policy,
        })
    });
    let item = prop_oneof![
        8 => rule().prop_map(|rule| ChainItem::Rule(at(rule))),
        1 => define().prop_map(ChainItem::Define),
        1 => name().prop_map(ChainItem::Undefine),
    ];
    let parts = (
        name(),
        option::of(base),
        vec(item, 0..6),
        option::of(text()),
    );
    let chain = parts.prop_map(|(name, base, items, comment)| Chain {
        name,
        base,
        items,
        comment: comment.map(at),
    });
    chain.boxed()
}

fn set() -> impl Strategy<Value = Set<'static>> {
    let key = proptest::sample::select(Type::of_sets().collect::<Vec<_>>());
    let keys = vec(key.prop_map(at), 1..4);
    let flags = any::<[bool; 5]>();
    let numbers = (option::of(1..=u32::MAX), option::of(1u32..=1000));
    let parts = (
        name(),
        keys,
        flags,
        numbers,
        option::of(elements()),
        option::of(text()),
    );
    parts.prop_map(|(name, keys, flags, numbers, elements, comment)| Set {
        name,
        keys: keys.into(),
        interval: flags[0],
        constant: flags[1],
        auto_merge: flags[2],
        dynamic: flags[3],
        timeouts: flags[4],
        timeout: numbers.0,
        size: numbers.1,
        elements: elements.unwrap_or_default(),
        comment: comment.map(at),
    })
}

fn file() -> impl Strategy<Value = File<'static>> {
    let item = prop_oneof![
        define().prop_map(TableItem::Define),
        set().prop_map(TableItem::Set),
        object().prop_map(TableItem::Object),
        chain().prop_map(TableItem::Chain),
    ];
    let table = (name(), vec(item, 0..6), option::of(text()));
    let parts = (any::<bool>(), vec(define(), 0..3), option::of(table));
    parts.prop_map(|(flush, defines, table)| {
        let table = table.map(|(name, items, comment)| Table {
            family: at(Family::Bridge),
            name,
            items,
            comment: comment.map(at),
        });
        let flush = flush.then_some(Item::FlushRuleset(at(())));
        let defines = defines.into_iter().map(Item::Define);
        let items = flush.into_iter().chain(defines);
        File {
            items: items.chain(table.map(Item::Table)).collect(),
        }
    })
}

/// One value or a range of two, of what `one` makes.
fn one_or_range(
    one: impl Strategy<Value = Value<'static>> + Clone,
) -> impl Strategy<Value = Operand<'static>> {
    let range = (one.clone(), one.clone()).prop_map(|(from, to)| {
        let (from, to) = (at(from), at(to));
        Value::Range(Range { from, to }.into())
    });
    prop_oneof![one, range].prop_map(|value| Operand::Value(at(value)))
}

fn nat() -> impl Strategy<Value = Nat<'static>> {
    let ip4 = one_or_range(any::<u32>().prop_map(|bits| Value::Ipv4(Ipv4Addr::from_bits(bits))));
    let ip6 = one_or_range(any::<u128>().prop_map(|bits| Value::Ipv6(Ipv6Addr::from_bits(bits))));
    let ports = one_or_range(any::<u32>().prop_map(Value::Number));
    let family = proptest::sample::select([None, Some(Family::Ip), Some(Family::Ip6)].to_vec());
    let parts = (
        proptest::sample::select(NatKind::ALL.to_vec()),
        family,
        option::of(prop_oneof![ip4, ip6]),
        option::of(ports),
        any::<[bool; 3]>(),
    );
    parts
        .prop_map(|(kind, family, address, ports, flags)| Nat {
            prefix: false,
            map: None,
            kind,
            family: family.filter(|_| kind.names_address()),
            address: address.filter(|_| kind.names_address()),
            ports,
            random: flags[0],
            fully_random: flags[1],
            persistent: flags[2],
        })
        .prop_filter("nothing to translate to", |nat| {
            !nat.kind.names_address() || nat.address.is_some() || nat.ports.is_some()
        })
}

/// A file of a router, with one chain at a hook.
fn router_file() -> impl Strategy<Value = File<'static>> {
    let family = proptest::sample::select([Family::Inet, Family::Ip, Family::Ip6].to_vec());
    let hook = proptest::sample::select(Hook::ALL.to_vec());
    let base = (any::<bool>(), hook, -199..i32::MAX).prop_map(|(nat, hook, priority)| Base {
        kind: match nat && hook != Hook::Forward {
            true => ChainKind::Nat,
            false => ChainKind::Filter,
        },
        hook,
        priority,
        policy: None,
    });
    let statement = prop_oneof![
        4 => nat().prop_map(|nat| Statement::Nat(nat.into())),
        1 => Just(Statement::Notrack),
        1 => zone().prop_map(Statement::Zone),
        1 => Just(Statement::Verdict(Verdict::Accept)),
    ];
    let rule = (option::of(condition()), statement).prop_map(|(condition, statement)| Rule {
        statements: condition.into_iter().chain([statement]).map(at).collect(),
        comment: None,
    });
    let table = (family, name(), base, vec(rule, 0..5));
    let table = table.prop_map(|(family, name, base, rules)| {
        let chain = Chain {
            name,
            base: Some(at(base)),
            items: rules
                .into_iter()
                .map(|rule| ChainItem::Rule(at(rule)))
                .collect(),
            comment: None,
        };
        Item::Table(Table {
            family: at(family),
            name,
            items: [TableItem::Chain(chain)].into(),
            comment: None,
        })
    });
    vec(table, 0..3).prop_map(|items| File { items })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(file in prop_oneof![file(), router_file()]) {
        let text = file.to_string();
        match read(&text) {
            Ok(again) => prop_assert_eq!(again, file, "{}", text),
            Err(error) => prop_assert!(false, "{}", error.render("printed", &text)),
        }
    }

    #[test]
    fn no_text_is_a_panic(text in "[ -~\n\t\u{fc}]{0,200}") {
        if let Err(error) = read(&text) {
            prop_assert!(error.span.end as usize <= text.len());
            error.render("text", &text).to_string();
        }
    }

    #[test]
    fn no_mixture_of_tokens_is_a_panic(
        tokens in vec(proptest::sample::select(TOKENS.to_vec()), 0..60),
    ) {
        let text = tokens.join(" ");
        match read(&text) {
            Ok(file) => {
                let printed = file.to_string();
                prop_assert_eq!(read(&printed), Ok(file));
            }
            Err(error) => {
                error.render("text", &text).to_string();
            }
        }
    }
}

const TOKENS: [&str; 50] = [
    "table", "inet", "nat", "dnat", "to", ":", "[", "]", "::1", "random", "bridge", "t", "{", "}",
    "{", "}", "chain", "set", "\n", ";", "\n", "type", "filter", "hook", "forward", "priority",
    "0", "policy", "drop", "accept", "define", "=", "$t", "@t", "tcp", "dport", "flags", "syn",
    "|", "&", "(", ")", ",", "/", "-", "10.0.0.0", "ip", "saddr", "\"x\"", "counter",
];
