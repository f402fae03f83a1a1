//! What nft makes of rules, as `nft --debug=netlink` and a kernel's bridge showed it.

use super::*;
use crate::{Key, RuleIndex, Tally, Way};
use std::format;
use std::string::{String, ToString};

const PORTS: [&str; 3] = ["private", "public", "lan0"];

fn load(text: &str) -> Result<Program, Error> {
    Program::load(text, &PORTS, &Limits::DEFAULT)
}

/// A file whose base chain holds `rules`, behind `others`.
fn file(others: &str, rules: &str) -> String {
    format!(
        "table bridge t {{\n{others}\nchain c {{\n\
         type filter hook forward priority 0; policy drop;\n{rules}\n}}\n}}\n"
    )
}

fn rules(rules: &str) -> Program {
    let text = file("", rules);
    load(&text).unwrap_or_else(|error| panic!("{}", error.render("test", &text)))
}

/// Why a file is refused, and the text that it is about.
fn refused(text: &str) -> (ErrorKind, String) {
    let error = load(text).expect_err(text);
    let span = error.span.start as usize..error.span.end as usize;
    (error.kind, text[span].to_string())
}

/// A condition: slot, lowest and highest value.
type Asked = (Slot, u128, u128);

/// The conditions of the only rule.
fn conditions(rule: &str) -> Vec<Asked> {
    let program = rules(rule);
    let statements = program.rules[0].statements.iter();
    let condition = |statement: &Statement| match statement {
        Statement::Match(Condition { slot, set, .. }) => {
            let held = &program.sets[*set as usize];
            let low = held.first().map_or(1, |(low, _)| *low);
            Some((*slot, low, held.last().map_or(0, |(_, high)| *high)))
        }
        _ => None,
    };
    statements.filter_map(condition).collect()
}

#[test]
fn protocols_are_implied_as_nft_implies_them() {
    use Slot::*;
    let ip4 = (Protocol, 0x800, 0x800);
    let link4 = (LinkType, 0x800, 0x800);
    let link6 = (LinkType, 0x86dd, 0x86dd);
    let vlan = (LinkType, 0x8100, 0x8100);
    let id = (VlanId, 5, 5);
    let tcp = (L4Protocol, 6, 6);
    let icmp = (L4Protocol, 1, 1);
    let ssh = (DestinationPort, 22, 22);
    let echo = (IcmpType, 8, 8);
    let address = (Ip4Source, 0x0102_0304, 0x0102_0304);
    let cases: &[(&str, &[Asked])] = &[
        ("ip saddr 1.2.3.4", &[ip4, address]),
        ("tcp dport 22", &[tcp, ssh]),
        ("tcp dport 22 ip saddr 1.2.3.4", &[tcp, ssh, ip4, address]),
        ("ether type ip ip saddr 1.2.3.4", &[link4, address]),
        ("meta protocol ip ip saddr 1.2.3.4", &[ip4, address]),
        ("ip saddr 1.2.3.4 tcp dport 22", &[ip4, address, tcp, ssh]),
        (
            "ip protocol tcp tcp dport 22",
            &[ip4, (NextHeader, 6, 6), ssh],
        ),
        ("meta l4proto tcp tcp dport 22", &[tcp, ssh]),
        ("icmp type echo-request", &[link4, icmp, echo]),
        ("meta l4proto icmp icmp type echo-request", &[icmp, echo]),
        (
            "ip saddr 1.2.3.4 icmp type echo-request",
            &[ip4, address, icmp, echo],
        ),
        (
            "ether type ip6 icmp type echo-request",
            &[link6, icmp, echo],
        ),
        (
            "icmpv6 type echo-request",
            &[link6, (L4Protocol, 58, 58), (IcmpType, 128, 128)],
        ),
        ("vlan id 5", &[vlan, id]),
        ("ether type vlan vlan id 5", &[vlan, id]),
        ("vlan id 5 ip saddr 1.2.3.4", &[vlan, id, ip4, address]),
        (
            "vlan id 5 icmp type echo-request",
            &[vlan, id, ip4, icmp, echo],
        ),
        ("tcp dport 22 vlan id 5", &[tcp, ssh, vlan, id]),
        (
            "meta protocol { ip, ip6 } tcp dport 22",
            &[(Protocol, 0x800, 0x86dd), tcp, ssh],
        ),
        (
            "meta l4proto != udp tcp dport 22",
            &[(L4Protocol, 0, 255), tcp, ssh],
        ),
        (
            "ip protocol 99 tcp dport 22",
            &[ip4, (NextHeader, 99, 99), tcp, ssh],
        ),
        ("tcp flags syn", &[tcp, (TcpFlags, 2, 255)]),
        (
            "ether type 8021ad vlan id 5 icmp type echo-request",
            &[(LinkType, 0x88a8, 0x88a8), id, ip4, icmp, echo],
        ),
        // A range says nothing about headers.
        (
            "meta l4proto 17-17 tcp dport 22",
            &[(L4Protocol, 17, 17), tcp, ssh],
        ),
    ];
    for (rule, expected) in cases {
        assert_eq!(conditions(rule), *expected, "{rule}");
    }
}

#[test]
fn values_are_those_of_their_type() {
    let cases: &[(&str, &[(u128, u128)])] = &[
        ("ip saddr 10.1.2.3/8", &[(0x0a00_0000, 0x0aff_ffff)]),
        ("ip saddr 0.0.0.0/0", &[(0, 0xffff_ffff)]),
        ("ip saddr != 0.0.0.1", &[(0, 0), (2, 0xffff_ffff)]),
        (
            "ip6 saddr fe80::/10",
            &[(0xfe80 << 112, (0xfec0 << 112) - 1)],
        ),
        ("ip6 saddr ::/0", &[(0, u128::MAX)]),
        ("tcp dport { 80, 443, 81-90, 85 }", &[(80, 90), (443, 443)]),
        ("tcp dport != { 0-99, 101-65535 }", &[(100, 100)]),
        ("tcp dport > 65535", &[]),
        ("tcp dport < 5", &[(0, 4)]),
        ("tcp dport >= 5", &[(5, 65535)]),
        ("tcp dport http", &[(80, 80)]),
        (
            "ether saddr 01:02:03:04:05:06",
            &[(0x0102_0304_0506, 0x0102_0304_0506)],
        ),
        ("iifname \"private\"", &[(0, 0)]),
        ("iifname \"p*\"", &[(0, 1)]),
        ("iifname != \"public\"", &[(0, 0), (2, 255)]),
        ("iifname { \"lan0\", \"eth0\" }", &[(2, 2)]),
        ("iifname \"eth0\"", &[]),
        (
            "ether type { arp, 0x1234 }",
            &[(0x806, 0x806), (0x1234, 0x1234)],
        ),
    ];
    for (rule, expected) in cases {
        let program = rules(rule);
        let held = program.rules[0].statements.iter().rev();
        let set = held.filter_map(|statement| match statement {
            Statement::Match(condition) => Some(condition.set as usize),
            _ => None,
        });
        let set = set.take(1).next().expect("there is a condition");
        assert_eq!(*program.sets[set], **expected, "{rule}");
    }
}

#[test]
fn several_protocols_and_ranges_in_braces_imply_nothing() {
    use Slot::*;
    let link4 = (LinkType, 0x800, 0x800);
    let icmp = (L4Protocol, 1, 1);
    let echo = (IcmpType, 8, 8);
    let cases: &[(&str, &[Asked])] = &[
        (
            "meta protocol { ip, ip6 } icmp type 8",
            &[(Protocol, 0x800, 0x86dd), icmp, echo],
        ),
        (
            "ether type { vlan, vlan } tcp dport 22",
            &[
                (LinkType, 0x8100, 0x8100),
                (L4Protocol, 6, 6),
                (DestinationPort, 22, 22),
            ],
        ),
        (
            "meta protocol { ip - 0x9000 } icmp type 8",
            &[(Protocol, 0x800, 0x9000), link4, icmp, echo],
        ),
        (
            "ether type { 0x800-0x800 } ip saddr 0.0.0.9",
            &[link4, (Protocol, 0x800, 0x800), (Ip4Source, 9, 9)],
        ),
        (
            "vlan id 5 ether type ip ip saddr 0.0.0.9",
            &[
                (LinkType, 0x8100, 0x8100),
                (VlanId, 5, 5),
                link4,
                (Ip4Source, 9, 9),
            ],
        ),
    ];
    for (rule, expected) in cases {
        assert_eq!(conditions(rule), *expected, "{rule}");
    }
}

#[test]
fn a_variable_says_what_it_stands_for() {
    let asked = |defines: &str, rule: &str| {
        let text = format!("{defines}\n{}", file("", rule));
        match load(&text) {
            Ok(program) => Ok(program.rules[0].statements.len()),
            Err(error) => Err(error.kind),
        }
    };
    let several = ErrorKind::Misleading(&context::BEHIND_SEVERAL);
    // The conditions, and a counter.
    let cases = [
        ("define E = ip", "ether type $E ip saddr 1.2.3.4", Ok(3)),
        ("define E = { ip }", "ether type $E ip saddr 1.2.3.4", Ok(3)),
        (
            "define E = ip - ip",
            "ether type $E ip saddr 1.2.3.4",
            Ok(4),
        ),
        ("define E = { ip, ip6 }", "ether type $E icmp type 9", Ok(4)),
        (
            "define E = { ip, ip6 }",
            "ether type $E ip6 daddr != ::1",
            Err(several),
        ),
        (
            "define A = ip6\ndefine E = { arp, $A }",
            "ether type { $E } ip6 daddr ::1",
            Err(several),
        ),
        (
            "define P = { tcp, udp }",
            "meta l4proto $P tcp dport 53",
            Err(several),
        ),
    ];
    for (defines, rule, expected) in cases {
        assert_eq!(asked(defines, rule), expected, "{defines}: {rule}");
    }
}

#[test]
fn a_value_that_is_too_large_is_told_its_limit() {
    let (kind, place) = refused(&file("", "tcp dport 99999 accept"));
    assert_eq!(
        (&*kind.to_string(), &*place),
        ("a port is at most 65535", "99999")
    );
}

#[test]
fn what_contradicts_itself_is_refused_where_it_does() {
    let conflict = |before, here| ErrorKind::Conflict { before, here };
    let several = ErrorKind::Misleading(&context::BEHIND_SEVERAL);
    let cases = [
        (
            "ether type ip6 ip saddr 1.2.3.4",
            conflict("ip6", "ip"),
            "ip saddr",
        ),
        (
            "tcp dport 22 udp dport 53",
            conflict("tcp", "udp"),
            "udp dport",
        ),
        (
            "ip saddr 1.2.3.4 ip6 saddr ::1",
            conflict("ip", "ip6"),
            "ip6 saddr",
        ),
        (
            "ip protocol udp tcp dport 22",
            conflict("udp", "tcp"),
            "tcp dport",
        ),
        (
            "meta l4proto icmpv6 icmp type 1",
            conflict("icmpv6", "icmp"),
            "icmp type",
        ),
        (
            "ether type arp tcp dport 4",
            conflict("arp", "tcp"),
            "tcp dport",
        ),
        (
            "ip saddr 1.2.3.4 vlan id 5",
            conflict("ip", "vlan"),
            "vlan id",
        ),
        ("ip protocol { tcp, udp } tcp dport 4", several, "tcp dport"),
        ("ip saddr @nosuch", ErrorKind::Unknown("set"), "nosuch"),
        (
            "tcp dport $nosuch",
            ErrorKind::Unknown("variable"),
            "nosuch",
        ),
        ("jump nosuch", ErrorKind::Unknown("chain"), "nosuch"),
        ("jump c", ErrorKind::JumpToBase, "c"),
        (
            "ip saddr 10.0.0.9-10.0.0.3",
            ErrorKind::EmptyRange,
            "10.0.0.9-10.0.0.3",
        ),
        (
            "tcp dport > { 1, 2 }",
            ErrorKind::Refused(&values::ORDER_OF_MANY),
            ">",
        ),
        (
            "ip saddr > 10.0.0.0/8",
            ErrorKind::Refused(&values::ORDER_OF_MANY),
            ">",
        ),
        (
            "counter packets 1 bytes 60",
            ErrorKind::Refused(&COUNTER_START),
            "counter packets 1 bytes 60",
        ),
    ];
    for (rule, kind, place) in cases {
        let (found, text) = refused(&file("", rule));
        assert_eq!(found, kind, "{rule}");
        assert!(
            text.contains(place) || place.contains(&text),
            "{rule}: at {text}"
        );
    }
}

#[test]
fn a_header_that_nft_would_misread_is_refused() {
    let conflict = |before, here| ErrorKind::Conflict { before, here };
    let several = ErrorKind::Misleading(&context::BEHIND_SEVERAL);
    let inner = ErrorKind::Misleading(&context::INNER_TAG);
    let cases = [
        (
            "meta protocol { ip, ip6 } ip6 saddr ::1",
            several,
            "ip6 saddr",
        ),
        (
            "ether type { vlan, 0x9000-0x9001 } vlan id 5",
            several,
            "vlan id",
        ),
        (
            "ether type { vlan, arp } ip saddr 1.2.3.4",
            several,
            "ip saddr",
        ),
        (
            "ether type { 0x88cc, arp } tcp dport 5",
            several,
            "tcp dport",
        ),
        ("ip protocol { tcp, 99 } tcp dport 5", several, "tcp dport"),
        (
            "tcp dport 5 meta l4proto udp udp dport 6",
            conflict("tcp", "udp"),
            "udp dport",
        ),
        (
            "tcp dport 5 meta l4proto udp tcp sport 6",
            conflict("udp", "tcp"),
            "tcp sport",
        ),
        (
            "meta protocol 0x1234 ip saddr 1.2.3.4",
            conflict("another protocol", "ip"),
            "ip saddr",
        ),
        (
            "meta protocol vlan tcp dport 5",
            conflict("vlan", "tcp"),
            "tcp dport",
        ),
        (
            "meta l4proto 99 udp dport 5",
            conflict("another protocol", "udp"),
            "udp dport",
        ),
        ("vlan id 5 ether type vlan vlan id 6", inner, "vlan id"),
        (
            "vlan id 5 ether type vlan ip saddr 10.0.0.1",
            inner,
            "ip saddr",
        ),
        (
            "ether type { 0x8100, 8021q } icmp type 8",
            inner,
            "icmp type",
        ),
    ];
    for (rule, kind, place) in cases {
        assert_eq!(refused(&file("", rule)), (kind, place.into()), "{rule}");
    }
}

#[test]
fn sets_and_variables_are_found() {
    let named = "set s { type inet_service; flags interval; elements = { 1-5, 9 }\n}";
    let program = load(&file(named, "tcp dport @s accept\nudp sport != @s drop")).unwrap();
    assert_eq!(*program.sets[0], [(1, 5), (9, 9)]);
    let variables = "define a = { 1, 2 }\ndefine b = { $a, 5 }\n";
    let program = load(&(variables.to_string() + &file("", "tcp dport { $b, 9 } accept")));
    let held = |set: &Intervals| **set == [(1, 2), (5, 5), (9, 9)];
    assert!(program.unwrap().sets.iter().any(held));
    let cases = [
        (
            "set s { type inet_service; flags interval; elements = { 1-5, 3 }\n}",
            "Overlap",
        ),
        (
            "set s { type inet_service; elements = { 1-5 }\n}",
            "NeedsInterval",
        ),
        ("set s { type ipv4_addr; elements = { 80 }\n}", "Mismatch"),
        ("define a = 1\ndefine a = 2", "Duplicate"),
        ("chain c { accept\n}", "Duplicate"),
        (
            "set s { type ipv4_addr\n}\nset s { type ipv4_addr\n}",
            "Duplicate",
        ),
    ];
    for (others, kind) in cases {
        let (found, _) = refused(&file(others, "accept"));
        assert!(
            format!("{found:?}").starts_with(kind),
            "{others}: {found:?}"
        );
    }
    let other_type = "set s { type ipv4_addr; elements = { 1.2.3.4 }\n}";
    let (found, _) = refused(&file(other_type, "tcp dport @s accept"));
    assert!(matches!(found, ErrorKind::Mismatch { .. }));
}

/// Chains that jump one to the next.
fn nested(count: usize) -> String {
    let chain = |index: usize| match index {
        last if last == count => format!("chain a{last} {{ accept\n}}\n"),
        index => format!("chain a{index} {{ jump a{}\n}}\n", index + 1),
    };
    (1..=count).map(chain).collect()
}

#[test]
fn jumps_nest_as_deep_as_in_the_kernel_and_never_loop() {
    assert!(load(&file(&nested(15), "jump a1")).is_ok());
    let (kind, _) = refused(&file(&nested(16), "jump a1"));
    assert_eq!(kind, ErrorKind::JumpDepth { max: 15 });
    let loops = "chain a { jump b\n}\nchain b { goto a\n}";
    assert_eq!(refused(&file(loops, "jump a")).0, ErrorKind::Loop);
    assert_eq!(
        refused(&file("chain a { jump a\n}", "accept")).0,
        ErrorKind::Loop
    );
}

#[test]
fn a_walk_without_end_is_refused() {
    let chain = |index: usize| {
        let jumps = format!("jump a{}\n", index + 1).repeat(4);
        format!("chain a{index} {{ {jumps} }}\n")
    };
    let chains: String = (1..15)
        .map(chain)
        .chain(["chain a15 { accept\n}\n".into()])
        .collect();
    let (kind, _) = refused(&file(&chains, "jump a1"));
    assert!(matches!(kind, ErrorKind::Limit { max: WALK_MAX, .. }));
}

#[test]
fn variables_that_double_are_bounded() {
    let mut text = String::from("define v0 = { \"x\", \"y\" }\n");
    for level in 1..16 {
        let before = level - 1;
        let many = format!("$v{before}, ").repeat(50);
        text += &format!("define v{level} = {{ {many} \"z\" }}\n");
    }
    text += &file("", "iifname $v15 accept");
    assert!(matches!(refused(&text).0, ErrorKind::Limit { .. }));
}

struct Notes(Vec<RuleIndex>);

impl Tally for Notes {
    fn count(&mut self, rule: RuleIndex) {
        self.0.push(rule);
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

#[test]
fn rules_are_numbered_over_all_chains_and_count_where_nft_counts() {
    let text = file(
        "chain before { counter ether type arp return\n}",
        "counter tcp dport 9\njump before\nether type arp accept\nether type ip",
    );
    let program = load(&text).unwrap();
    let mut frame = [0; 42];
    frame[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
    let key = Key::parse(&frame).unwrap();
    let way = Way { from: 0, to: 1 };
    let mut notes = Notes(Vec::new());
    let (verdict, rule) = program.verdict(&key, way, &mut notes);
    assert_eq!((verdict, rule), (Verdict::Accept, 3));
    // Rule 1 counts in front of its condition, the jump when it is taken.
    assert_eq!(notes.0, [1, 2, 0, 3]);
    let mut notes = Notes(Vec::new());
    let result = program.compile().verdict(&key, way, &mut notes);
    assert_eq!(
        (result, notes.0),
        ((Verdict::Accept, 3), Vec::from([1, 2, 0, 3]))
    );
}

#[test]
fn sets_hold_what_their_flags_allow() {
    let set = |lines: &str| file(&format!("set s {{ {lines}\n}}"), "accept");
    let cases: &[(&str, Option<&str>)] = &[
        ("type inet_service; elements = { 53 - 53 }", Some("53 - 53")),
        (
            "type ipv4_addr; elements = { 10.0.0.1/32 }",
            Some("10.0.0.1/32"),
        ),
        ("type ifname; elements = { \"x*\" }", Some("\"x*\"")),
        ("type ipv4_addr; auto-merge", Some("s")),
        (
            "type ifname; flags interval; elements = { \"p*\", \"private\" }",
            Some("\"private\""),
        ),
        (
            "type ifname; flags interval; elements = { \"eth00\", \"eth0*\" }",
            Some("\"eth00\""),
        ),
        (
            "type ifname; flags interval; elements = { \"x*\", \"xy*\" }",
            Some("\"xy*\""),
        ),
        (
            "type ifname; flags interval; elements = { \"p*\", \"p*\", \"b\", \"q\", \"q\" }",
            None,
        ),
        (
            "type ifname; flags interval; auto-merge; elements = { \"p*\", \"pub*\" }",
            None,
        ),
        ("type ifname; elements = { tcp }", Some("tcp")),
        ("type ifname; elements = { \"tcp\", ip }", None),
    ];
    for (lines, place) in cases {
        let text = set(lines);
        match place {
            None => assert!(load(&text).is_ok(), "{lines}"),
            Some(place) => assert_eq!(refused(&text).1, *place, "{lines}"),
        }
    }
    let by_variable = |meaning: &str| {
        let text = set("type inet_service; elements = { $R }");
        load(&format!("define R = {meaning}\n{text}")).map(|_| ())
    };
    assert_eq!(by_variable("{ 53 }"), Ok(()));
    for meaning in ["53-53", "{ 53-53 }"] {
        let error = by_variable(meaning).expect_err(meaning);
        assert_eq!(error.kind, ErrorKind::NeedsInterval);
    }
}

#[test]
fn variables_are_known_where_they_are_named() {
    for meaning in ["$NOSUCH", "{ $NOSUCH }", "1 - $NOSUCH", "$A"] {
        let text = format!("define A = {meaning}\n{}", file("", "accept"));
        assert_eq!(
            refused(&text).0,
            ErrorKind::Unknown("variable"),
            "{meaning}"
        );
    }
}

#[test]
fn an_order_is_between_single_values() {
    let many = ErrorKind::Refused(&values::ORDER_OF_MANY);
    for rule in [
        "tcp dport > 80-80",
        "ip saddr > 10.0.0.1/32",
        "ip6 saddr <= ::1/128",
        "tcp dport > $R",
    ] {
        let text = format!("define R = 80-80\n{}", file("", rule));
        assert_eq!(refused(&text).0, many, "{rule}");
    }
    let text = format!("define R = 80\n{}", file("", "tcp dport > $R"));
    assert!(load(&text).is_ok());
}

#[test]
fn concatenations_are_refused_where_they_are_wrong() {
    let cases = [
        (
            "ip saddr . tcp dport 1.2.3.4 . 22",
            "one value for a concatenation",
        ),
        (
            "ip saddr . tcp dport < { 1.2.3.4 . 22 }",
            "an order relation",
        ),
        (
            "ip saddr . tcp dport { 1.2.3.4 }",
            "expected a concatenation of 2 parts",
        ),
        (
            "ip saddr . tcp dport { 1.2.3.4 . 22 . 3 }",
            "expected a concatenation of 2 parts",
        ),
        (
            "ip saddr . tcp dport { 22 . 1.2.3.4 }",
            "expected an IPv4 address",
        ),
        ("tcp dport { 1.2.3.4 . 22 }", "expected a port"),
        (
            "tcp dport . udp dport { 1 . 2 }",
            "no frame is both tcp and udp",
        ),
        (
            "tcp flags . tcp dport { 2 . 22 }",
            "flags in a concatenation",
        ),
        (
            "ip saddr . ct mark { 1.2.3.4 . 5 }",
            "a field of a connection in a concatenation",
        ),
        ("iifname . ip saddr { \"p*\" . 1.2.3.4 }", "a name with `*`"),
        (
            "ip saddr . tcp dport @single",
            "expected a concatenation of 2 parts",
        ),
        (
            "ip saddr @joined",
            "expected one value, and no concatenation",
        ),
        ("tcp dport . ip saddr @joined", "expected a port"),
        ("ip saddr . tcp dport @nosuch", "there is no such set"),
        (
            "ip saddr . tcp dport vmap { 1.2.3.4 . 22 : accept, 1.2.3.4 . 22 : drop }",
            "this element overlaps another one",
        ),
        (
            "ip6 saddr . ip6 daddr . ip6 saddr . ip6 daddr . tcp dport \
             { ::1 . ::1 . ::1 . ::1 . 1 }",
            "a concatenation of more than 64 bytes",
        ),
    ];
    let sets = "set single { type ipv4_addr; elements = { 1.2.3.4 }\n}\n\
                set joined { type ipv4_addr . inet_service; elements = { 1.2.3.4 . 5 }\n}";
    for (rule, expected) in cases {
        let said = load(&file(sets, rule)).expect_err(rule).to_string();
        assert!(said.starts_with(expected), "{rule}: {said}");
    }
    let prefix = "set s { type ipv4_addr . inet_service; elements = { 10.0.0.0/8 . 5 }\n}";
    assert_eq!(refused(&file(prefix, "")).0, ErrorKind::NeedsInterval);
}

#[test]
fn sets_that_change_are_refused_where_they_are_wrong() {
    let cases = [
        (
            "flags dynamic, interval;",
            "",
            "a set of intervals that rules change",
        ),
        (
            "flags dynamic, constant;",
            "",
            "a constant set that rules change",
        ),
        (
            "size 5;",
            "add @s { ip saddr }",
            "a change of a set without `flags dynamic`",
        ),
        (
            "flags dynamic;",
            "add @s { ip saddr timeout 5s }",
            "a timeout in a set without",
        ),
        ("flags dynamic;", "add @s { tcp dport }", "expected a port"),
        (
            "flags dynamic;",
            "add @s { ip saddr . tcp dport }",
            "expected a concatenation of 2",
        ),
        (
            "flags dynamic;",
            "add @t { ip saddr }",
            "there is no such set",
        ),
        ("flags dynamic;", "ip saddr < @s drop", "an order relation"),
        (
            "flags dynamic;",
            "ct mark 1 ct mark set 2 add @s { ip saddr }",
            "a condition behind a change of what the rule has asked for",
        ),
        (
            "flags dynamic;",
            "add @s { ip saddr }\nupdate @s { ip saddr limit rate 1/second }",
            "another limit or counter",
        ),
        (
            "flags dynamic; size 1; elements = { 1.2.3.4, 1.2.3.5 }\n",
            "",
            "too many elements of this set: at most 1",
        ),
    ];
    for (lines, rule, expected) in cases {
        let set = format!("set s {{ type ipv4_addr; {lines} }}");
        let said = load(&file(&set, rule)).expect_err(rule).to_string();
        assert!(said.starts_with(expected), "{lines} {rule}: {said}");
    }
    let large = "set s { type ipv4_addr; flags dynamic; size 200000; }";
    let limits = Limits {
        changing: 1 << 20,
        ..Limits::DEFAULT
    };
    let said = Program::load(&file(large, ""), &PORTS, &limits).expect_err("too large");
    assert!(
        said.to_string()
            .contains("bytes for sets that rules change"),
        "{said}"
    );
}
