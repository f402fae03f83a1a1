//! What is accepted, as it is printed. The end-to-end tests show these files to nft.

use super::{file, read};
use crate::fields::{Field, Type};
use crate::nft::ast::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::string::ToString;

/// Rules, and how they are printed, and a family of tables that they may stand in: first those of
/// which a kernel's bridge knows all.
const RULES: [(&str, &str); 3] = [
    (include_str!("accepted.txt"), "bridge"),
    (include_str!("connections.txt"), "bridge"),
    (include_str!("routed.txt"), "inet"),
];

#[test]
fn each_rule_is_printed_in_its_one_form() {
    let of_family = |(rules, family): &(&'static str, &'static str)| {
        let family = *family;
        rules.lines().map(move |line| (line, family))
    };
    let lines = RULES.iter().flat_map(of_family);
    for (line, family) in lines.filter(|(line, _)| !line.is_empty()) {
        let (rule, expected) = line.split_once(" => ").unwrap_or((line, line));
        let file = |rule| file(rule).replacen("table bridge", &std::format!("table {family}"), 1);
        let text = file(rule);
        let parsed = match read(&text) {
            Ok(parsed) => parsed,
            Err(error) => panic!("{}", error.render("rule", &text)),
        };
        let printed = parsed.to_string();
        assert_eq!(printed, file(expected), "{rule}");
        assert_eq!(read(&printed), Ok(parsed), "{rule}");
    }
}

#[test]
fn the_rules_of_the_firewall_are_read() {
    for text in [
        include_str!("../../../../../unikernels/firewall/rules/default.nft"),
        include_str!("../../../../../unikernels/firewall/rules/ipv6.nft"),
    ] {
        let parsed = read(text).expect("a file of the repository is valid");
        assert_eq!(read(&parsed.to_string()), Ok(parsed.clone()));
    }
}

fn rule(text: &str) -> Rule<'_> {
    let Item::Table(table) = &read(text).unwrap().items[0] else {
        panic!("no table")
    };
    let TableItem::Chain(chain) = &table.items[0] else {
        panic!("no chain")
    };
    let ChainItem::Rule(rule) = &chain.items[0] else {
        panic!("no rule")
    };
    rule.node.clone()
}

fn at<T>(node: T) -> Spanned<T> {
    Spanned::new(Span::default(), node)
}

#[test]
fn a_rule_is_its_statements() {
    let text =
        file("iifname \"vif*\" ip6 saddr != { fe80::/10, ::1 } counter jump d comment \"x\"");
    let source = Match {
        field: at(Field::find("ip6", "saddr").unwrap()),
        operator: at(Operator::NotEqual),
        operand: Operand::Set(at([
            at(Value::Ipv6Prefix("fe80::".parse().unwrap(), 10)),
            at(Value::Ipv6(Ipv6Addr::LOCALHOST)),
        ]
        .into())),
    };
    let port = Match {
        field: at(Field::find_single("iifname").unwrap()),
        operator: at(Operator::Equal),
        operand: Operand::Value(at(Value::Text("vif*"))),
    };
    let statements = [
        at(Statement::Match(port)),
        at(Statement::Match(source)),
        at(Statement::Counter {
            packets: 0,
            bytes: 0,
        }),
        at(Statement::Verdict(Verdict::Jump(at("d")))),
    ];
    let expected = Rule {
        statements: statements.into(),
        comment: Some(at("x")),
    };
    assert_eq!(rule(&text), expected);
}

#[test]
fn forms_of_tcp_flags_are_a_mask_and_values() {
    const SYN: u8 = 0x02;
    const ACK: u8 = 0x10;
    let cases: [(&str, u8, &[u8], bool); 8] = [
        ("syn", SYN, &[0], true),
        ("syn,ack", SYN | ACK, &[0], true),
        ("! syn", SYN, &[0], false),
        ("== syn", 0xff, &[SYN], false),
        ("!= syn,ack", 0xff, &[SYN | ACK], true),
        ("& (syn|ack) == syn", SYN | ACK, &[SYN], false),
        ("!= syn / syn,ack", SYN | ACK, &[SYN], true),
        ("{ syn|ack, syn }", 0xff, &[SYN, SYN | ACK], false),
    ];
    for (form, mask, values, negated) in cases {
        let text = file(&std::format!("tcp flags {form}"));
        let expected = Flags {
            field: Field::find("tcp", "flags").unwrap(),
            mask: u16::from(mask),
            values: values.iter().map(|value| u16::from(*value)).collect(),
            negated,
        };
        let statement = &rule(&text).statements[0].node;
        assert_eq!(statement, &Statement::Flags(expected), "{form}");
    }
}

#[test]
fn a_file_is_its_parts() {
    let text = "\
#!/usr/sbin/nft -f
flush ruleset; define NET = 10.0.0.0/8
table bridge t { # a comment
\tset s {
\t\ttype ipv4_addr; flags interval
\t\telements = {
\t\t\t$NET,
\t\t\t# a comment
\t\t\t192.0.2.1-192.0.2.9, }
\t}
\tchain c {
\t\ttype filter hook forward priority filter - 1
\t\tpolicy drop
\t\tip saddr \\
\t\t  @s accept
\t}
}";
    let file = read(text).unwrap();
    let [
        Item::FlushRuleset(_),
        Item::Define(define),
        Item::Table(table),
    ] = &*file.items
    else {
        panic!("{file:?}")
    };
    let net = Value::Ipv4Prefix(Ipv4Addr::new(10, 0, 0, 0), 8);
    assert_eq!(define.name.node, "NET");
    assert_eq!(define.value, Operand::Value(at(net)));
    let [TableItem::Set(set), TableItem::Chain(chain)] = &*table.items else {
        panic!("{table:?}")
    };
    assert_eq!((set.keys[0].node, set.interval), (Type::Ipv4, true));
    assert_eq!(set.elements[0].node, Value::Variable("NET"));
    assert_eq!(set.elements.len(), 2);
    let base = chain.base.unwrap().node;
    assert_eq!((base.priority, base.policy), (-201, Some(at(Policy::Drop))));
    let span = set.elements[1].span;
    assert_eq!(
        &text[span.start as usize..span.end as usize],
        "192.0.2.1-192.0.2.9"
    );
}
