//! Generated files of rules: the whole language, in rules that nft accepts.
//!
//! nft refuses a rule in which it sees two protocols of one layer, by rules of its own: a `vlan id`
//! behind a network protocol, a set of protocols in front of one of their fields. What is
//! generated keeps to an order that it never refuses. One kind of rule is left out that it accepts
//! and then does not do what it says: with `ip6 nexthdr { 0, 17 } udp dport 53`, nft 1.0.6 does
//! not look whether a packet is UDP.

use crate::joint;
use crate::operand::Names;
use crate::source::{Chain, Rule, Source};
use fastrand::Rng;
use nf::fields::Header::{self, Icmp, Icmpv6, Ip, Ip6, Tcp, Udp, Vlan};
use nf::fields::{Field, Type};

/// Most chains besides the base chain.
const CHAINS_MAX: usize = 4;
/// Most rules of a chain, mostly.
const RULES_MAX: usize = 8;
/// Most rules of a long chain; one chain in [`LONG_EACH`] is one.
const RULES_LONG_MAX: usize = 300;
const LONG_EACH: u8 = 16;

/// The network protocol whose fields a rule looks at.
type Net = Option<Header>;
/// The transport protocol whose fields a rule looks at.
type L4 = Option<Header>;

/// What rules call a transport protocol.
fn symbol(header: Header) -> &'static str {
    match header {
        Tcp => "tcp",
        Udp => "udp",
        Icmp => "icmp",
        Icmpv6 => "icmpv6",
        _ => "",
    }
}

/// The fields of a header.
fn fields_of(header: Option<Header>) -> impl Iterator<Item = Field> {
    let of_frames = Field::all().filter(|field| !field.is_of_connection());
    of_frames.filter(move |field| field.header() == header)
}

/// A field of a header and its operand.
fn condition(names: &Names, fields: Vec<Field>, rng: &mut Rng) -> Option<String> {
    let field = rng.choice(fields)?;
    Some(match field.value_type() {
        Type::TcpFlags => format!("{field} {}", flags(rng)),
        Type::InterfaceName => format!(
            "{}{field} {}",
            ["", "meta "][rng.usize(0..2)],
            interface(rng)
        ),
        kind => format!("{field} {}", names.operand(kind, rng)),
    })
}

/// A file of rules.
pub fn generate(rng: &mut Rng) -> Source {
    let mut source = Source {
        reads_l4: rng.u8(0..4) > 0,
        ..Source::default()
    };
    let names = Names::generate(rng, &mut source.defines, &mut source.sets);
    let count = rng.usize(0..=CHAINS_MAX);
    let regular: Vec<String> = (0..count).map(|index| format!("c{index}")).collect();
    for (index, name) in regular.iter().enumerate() {
        // Only to later ones: nft refuses loops.
        let rules = rules(&names, &regular[index + 1..], source.reads_l4, rng);
        source.chains.push(Chain {
            name: name.clone(),
            head: String::new(),
            rules,
        });
    }
    let base = Chain {
        name: "forward".to_owned(),
        head: head(rng),
        rules: rules(&names, &regular, source.reads_l4, rng),
    };
    let at = rng.usize(0..=source.chains.len());
    source.chains.insert(at, base);
    source
}

fn head(rng: &mut Rng) -> String {
    let priority = ["0", "-200", "10", "filter", "-1"][rng.usize(0..5)];
    let policy = ["policy accept;", "policy drop;", ""][rng.usize(0..3)];
    format!("type filter hook forward priority {priority}; {policy}")
}

fn rules(names: &Names, targets: &[String], l4: bool, rng: &mut Rng) -> Vec<Rule> {
    if rng.u8(0..LONG_EACH) == 0 {
        return long(names, targets, l4, rng);
    }
    (0..rng.usize(0..=RULES_MAX))
        .map(|_| {
            let conditions = conditions(names, targets, l4, rng);
            rule(conditions, targets, rng)
        })
        .collect()
}

/// A chain whose rules look at the same fields, for values that lie together: what is compiled
/// into look-ups.
fn long(names: &Names, targets: &[String], l4: bool, rng: &mut Rng) -> Vec<Rule> {
    const PAIRS: [[&str; 2]; 4] = [
        ["ip saddr", "ip daddr"],
        ["ether daddr", "ip daddr"],
        ["ip saddr", "udp dport"],
        ["tcp sport", "tcp dport"],
    ];
    /// Those of them in front that look at no transport header.
    const PAIRS_WITHOUT_L4: usize = 2;
    let any: Vec<Field> = Field::all()
        .filter(|field| !field.is_of_connection())
        .filter(|field| !matches!(field.value_type(), Type::TcpFlags | Type::InterfaceName))
        .filter(|field| l4 || !matches!(field.header(), Some(Tcp | Udp | Icmp | Icmpv6)))
        .collect();
    let pairs = if l4 { PAIRS.len() } else { PAIRS_WITHOUT_L4 };
    let fields: Vec<Field> = if rng.bool() {
        rng.choice(any).into_iter().collect()
    } else {
        let pair = PAIRS[rng.usize(0..pairs)];
        any.into_iter()
            .filter(|field| pair.contains(&field.name()))
            .collect()
    };
    (0..rng.usize(RULES_MAX..=RULES_LONG_MAX))
        .map(|_| {
            let conditions = if rng.u8(0..16) == 0 {
                conditions(names, targets, l4, rng)
            } else {
                let named = fields.iter();
                named
                    .map(|field| format!("{field} {}", names.near(field.value_type(), rng)))
                    .collect()
            };
            rule(conditions, targets, rng)
        })
        .collect()
}

/// Leaves out changes of sets between conditions that nft 1.0.6 joins over them: the set would
/// change after all of those.
fn leave_out_changes(statements: &mut Vec<String>) {
    for fields in NEIGHBOURS {
        let is_one = |text: &String| is_of(text, fields);
        let Some(first) = statements.iter().position(is_one) else {
            continue;
        };
        let last = statements.iter().rposition(is_one).unwrap_or(first);
        for at in (first..last).rev() {
            if is_of(&statements[at], &CHANGES) {
                statements.remove(at);
            }
        }
    }
}

fn rule(mut statements: Vec<String>, targets: &[String], rng: &mut Rng) -> Rule {
    separate(&mut statements);
    leave_out_changes(&mut statements);
    // It ends the rule.
    let map = statements.pop_if(|last| last.contains(" vmap "));
    if rng.u8(0..4) > 0 {
        let at = if are_joined(&statements) {
            [0, statements.len()][rng.usize(0..2)]
        } else {
            rng.usize(0..=statements.len())
        };
        // nf takes no other start: its counters begin with the rules.
        let start = if rng.u8(0..16) == 0 {
            " packets 0 bytes 0"
        } else {
            ""
        };
        statements.insert(at, format!("counter{start}"));
    }
    if rng.u8(0..12) == 0 {
        let at = rng.usize(0..=statements.len());
        let log = ["log", "log prefix \"a rule: \""][rng.usize(0..2)];
        statements.insert(at, log.to_owned());
    }
    if rng.u8(0..12) == 0 {
        let at = if are_joined(&statements) {
            [0, statements.len()][rng.usize(0..2)]
        } else {
            rng.usize(0..=statements.len())
        };
        statements.insert(at, limit(rng));
    }
    statements.extend(match map {
        Some(map) => Some(map),
        None => verdict(targets, rng),
    });
    if statements.is_empty() {
        statements.push("counter".to_owned());
    }
    if rng.u8(0..12) == 0 {
        statements.push("comment \"why; { not }\"".to_owned());
    }
    let joint = ["  ", "\t", " \\\n\t\t  ", " ", " ", " ", " "][rng.usize(0..7)];
    let tail = [";\n", " # note: drop\n", "\n\n", " ;\n", "\n", "\n", "\n"][rng.usize(0..7)];
    Rule {
        statements,
        joint,
        tail: tail.to_owned(),
    }
}

/// A limit that time does not fill while frames are sent.
pub(crate) fn limit(rng: &mut Rng) -> String {
    let over = ["", "over "][rng.usize(0..2)];
    let period = ["day", "week"][rng.usize(0..2)];
    let count = rng.usize(1..20);
    match rng.u8(0..3) {
        0 => format!("limit rate {over}1/{period}"),
        1 => format!("limit rate {over}1/{period} burst {count} packets"),
        _ => format!(
            "limit rate {over}{count} bytes/{period} burst {} bytes",
            50 * count
        ),
    }
}

/// Fields of which nft joins two conditions to one on neighbouring bytes. The ICMPs and VLANs imply
/// an EtherType.
const NEIGHBOURS: [&[&str]; 2] = [&["ether ", "vlan ", "icmp"], &["tcp ", "udp "]];

/// What changes a set.
const CHANGES: [&str; 3] = ["add ", "update ", "delete "];

fn is_of(statement: &str, fields: &[&str]) -> bool {
    fields.iter().any(|field| statement.starts_with(field))
}

/// Leaves one `!=` to neighbouring fields: of two, nft 1.0.6 makes one that holds if either does.
fn separate(statements: &mut [String]) {
    for fields in NEIGHBOURS {
        let of_fields = statements.iter_mut().filter(|text| is_of(text, fields));
        let negated = of_fields.filter(|text| text.contains("!= "));
        for statement in negated.skip(1) {
            *statement = statement.replace("!= ", "");
        }
    }
}

/// Whether nft may join two conditions, in the place of the first. A counter between them would
/// count after both, which nft 1.0.6 does not mind.
fn are_joined(statements: &[String]) -> bool {
    NEIGHBOURS.iter().any(|fields| {
        let of_fields = statements.iter().filter(|text| is_of(text, fields));
        of_fields.count() > 1
    })
}

fn verdict(targets: &[String], rng: &mut Rng) -> Option<String> {
    match rng.u8(0..20) {
        0..=4 => Some("accept".to_owned()),
        5..=8 => Some("drop".to_owned()),
        9 => Some("return".to_owned()),
        10..=13 => Some(format!("jump {}", rng.choice(targets)?)),
        14..=15 => Some(format!("goto {}", rng.choice(targets)?)),
        _ => None,
    }
}

/// What a rule matches on.
fn conditions(names: &Names, targets: &[String], reads_l4: bool, rng: &mut Rng) -> Vec<String> {
    let vlan = rng.u8(0..8) == 0;
    let net = [None, None, Some(Ip), Some(Ip), Some(Ip6)][rng.usize(0..5)];
    let l4s = [
        None,
        Some(Tcp),
        Some(Tcp),
        Some(Udp),
        Some(Icmp),
        Some(Icmpv6),
    ];
    let l4 = l4s[rng.usize(0..6)].filter(|_| reads_l4);
    let mut parts = Vec::new();
    let mut context = link_context(vlan, net, l4, rng, &mut parts);
    if vlan {
        parts.extend(condition(names, fields_of(Some(Vlan)).collect(), rng));
    }
    // Together, the two may be a conflict.
    if !vlan && !context && rng.u8(0..8) == 0 {
        meta_context(net, l4, rng, &mut parts);
        context = true;
    }
    // Together with a condition on the fields alone, it may be a conflict of how nft joins those.
    let fields = joinable(net, l4);
    if rng.u8(0..6) == 0
        && let Some(joint) = joint::condition(&names.joints, &fields, rng)
    {
        parts.push(joint);
    }
    if let Some(set) = rng.choice(&names.changing)
        && rng.u8(0..4) == 0
    {
        parts.extend(set.statement(&fields, rng));
    }
    let mut network = network(names, net, rng);
    let mut transport = transport(names, l4, rng);
    let transport_first = matches!(l4, Some(Tcp | Udp)) || network.is_empty();
    if transport_first && rng.u8(0..4) == 0 {
        parts.append(&mut transport);
        parts.append(&mut network);
    } else {
        parts.append(&mut network);
        if let Some(l4) = l4
            && rng.u8(0..6) == 0
        {
            protocol_context(net, l4, rng, &mut parts);
        }
        parts.append(&mut transport);
    }
    if rng.u8(0..6) == 0 {
        parts.push(last(names, context, net, l4, rng));
    }
    for _ in 0..[0, 0, 0, 1, 1, 2][rng.usize(0..6)] {
        let at = rng.usize(0..=parts.len());
        parts.insert(at, anywhere(names, rng));
    }
    // Each jump counts as if it were taken: many would be refused.
    let says = |rng: &mut Rng| {
        let targets = if rng.u8(0..8) == 0 { targets } else { &[] };
        verdict(targets, rng).unwrap_or_else(|| "accept".to_owned())
    };
    if rng.u8(0..10) == 0 {
        parts.extend(joint::map(&fields, says, rng));
    }
    parts
}

/// Fields that may stand in a concatenation, and from which nft concludes nothing.
fn joinable(net: Net, l4: L4) -> Vec<Field> {
    let concluding = [Type::EtherType, Type::Protocol, Type::TcpFlags];
    let of = |header: Option<Header>| {
        fields_of(header).filter(|field| !concluding.contains(&field.value_type()))
    };
    let network = net.into_iter().flat_map(|net| of(Some(net)));
    let transport = l4.into_iter().flat_map(|l4| of(Some(l4)));
    of(None).chain(network).chain(transport).collect()
}

/// `ether type` as an equality, in front, sometimes; says whether.
fn link_context(vlan: bool, net: Net, l4: L4, rng: &mut Rng, parts: &mut Vec<String>) -> bool {
    if rng.u8(0..5) > 0 {
        return false;
    }
    let mut fitting = vec!["vlan", "8021ad", "0x8100"];
    if !vlan {
        match (net, l4) {
            (None, None) => fitting.extend(["ip", "ip6", "arp", "0x88cc", "4", "1535"]),
            (None, Some(Tcp | Udp)) => fitting.extend(["ip", "ip6"]),
            (Some(Ip), _) | (None, Some(Icmp)) => fitting.extend(["ip", "0x0800"]),
            (Some(Ip6), _) | (None, Some(Icmpv6)) => fitting.push("ip6"),
            _ => {}
        }
    }
    let equal = ["", "== "][rng.usize(0..2)];
    let value = fitting[rng.usize(0..fitting.len())];
    parts.push(format!("ether type {equal}{value}"));
    true
}

/// `meta protocol` as an equality, in front.
fn meta_context(net: Net, l4: L4, rng: &mut Rng, parts: &mut Vec<String>) {
    let fitting: &[&str] = match (net, l4) {
        (None, None) => &["ip", "ip6", "arp", "vlan", "8021ad", "0x88cc", "4", "1"],
        (None, Some(Tcp | Udp)) => &["ip", "ip6"],
        (Some(Ip), _) | (None, Some(Icmp)) => &["ip"],
        (Some(Ip6), _) | (None, Some(Icmpv6)) => &["ip6"],
        _ => return,
    };
    parts.push(format!(
        "meta protocol {}",
        fitting[rng.usize(0..fitting.len())]
    ));
}

/// The transport protocol as an equality, in front of its fields.
fn protocol_context(net: Net, l4: Header, rng: &mut Rng, parts: &mut Vec<String>) {
    let field = match net {
        Some(Ip) if rng.bool() => "ip protocol",
        Some(Ip6) if rng.bool() => "ip6 nexthdr",
        // It makes nft forget which of the two IPs the rule is about.
        _ if matches!(l4, Icmp | Icmpv6) && net.is_none() => return,
        _ => "meta l4proto",
    };
    parts.push(format!("{field} {}", symbol(l4)));
}

fn network(names: &Names, net: Net, rng: &mut Rng) -> Vec<String> {
    if net.is_none() {
        return Vec::new();
    }
    // From a protocol, nft concludes what follows.
    let silent = fields_of(net).filter(|field| field.value_type() != Type::Protocol);
    let fields: Vec<Field> = silent.collect();
    (0..rng.usize(1..=2))
        .filter_map(|_| condition(names, fields.clone(), rng))
        .collect()
}

fn transport(names: &Names, l4: L4, rng: &mut Rng) -> Vec<String> {
    let count = if l4.is_none() { 0 } else { rng.usize(1..=2) };
    (0..count)
        .filter_map(|_| condition(names, fields_of(l4).collect(), rng))
        .collect()
}

/// What nft could draw wrong conclusions from if something came behind it.
fn last(names: &Names, context: bool, net: Net, l4: L4, rng: &mut Rng) -> String {
    let free = !context && net.is_none() && !matches!(l4, Some(Icmp | Icmpv6));
    let ip = net == Some(Ip) || free;
    let ip6 = net == Some(Ip6) || free;
    let (field, kind) = match rng.u8(0..5) {
        0 if ip => ("ip protocol", Type::Protocol),
        1 if ip6 => ("ip6 nexthdr", Type::Protocol),
        2 => ("ether type", Type::EtherType),
        3 => ("meta protocol", Type::EtherType),
        _ => ("meta l4proto", Type::Protocol),
    };
    format!("{field} {}", names.operand(kind, rng))
}

/// What nft concludes nothing from.
fn anywhere(names: &Names, rng: &mut Rng) -> String {
    let (field, kind) = match rng.u8(0..7) {
        0 => ("ether type", Type::EtherType),
        1 => ("meta l4proto", Type::Protocol),
        _ => {
            let concluding = [Type::EtherType, Type::Protocol];
            let silent = fields_of(None).filter(|field| !concluding.contains(&field.value_type()));
            return condition(names, silent.collect(), rng).unwrap_or_default();
        }
    };
    format!("{field} {}", names.inequality(kind, rng))
}

fn interface(rng: &mut Rng) -> &'static str {
    const NAMES: [&str; 16] = [
        "private",
        "\"private\"",
        "public",
        "\"public\"",
        "\"p*\"",
        "\"priv*\"",
        "pub*",
        "\"nosuch\"",
        "\"q*\"",
        "!= \"private\"",
        "!= \"p*\"",
        "{ \"private\", \"eth0\" }",
        "{ \"private\", \"public\" }",
        "!= { \"public\", \"lo\" }",
        "{ \"priv*\", \"eth*\" }",
        "{ \"q*\", \"public\" }",
    ];
    NAMES[rng.usize(0..NAMES.len())]
}

/// Operator and operand of `tcp flags`.
fn flags(rng: &mut Rng) -> String {
    let names = |least: usize, rng: &mut Rng, between: &str| -> String {
        let names = shuffled_flags(rng);
        names[..rng.usize(least..=4)].join(between)
    };
    let list = |rng: &mut Rng, between: &str| names(1, rng, between);
    match rng.u8(0..10) {
        0..=1 => list(rng, ","),
        2 => format!("== {}", list(rng, ",")),
        3 => format!("!= {}", list(rng, ",")),
        4 => format!("& ({}) == {}", list(rng, " | "), list(rng, " | ")),
        5 => format!("& ({}) != 0", list(rng, "|")),
        // nft takes no mask of one flag here.
        6 => format!("{} / {}", list(rng, ","), names(2, rng, ",")),
        7 => format!("!= {} / {}", list(rng, ","), names(2, rng, ",")),
        8 => format!("! {}", list(rng, ",")),
        _ => {
            // Two elements that differ: of one, nft makes something else.
            let names = shuffled_flags(rng);
            let (first, end) = (rng.usize(1..4), rng.usize(4..=8));
            let (first, second) = (&names[..first], &names[first..end]);
            format!("{{ {}, {} }}", first.join(" | "), second.join("|"))
        }
    }
}

fn shuffled_flags(rng: &mut Rng) -> [&'static str; 8] {
    let mut names = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    rng.shuffle(&mut names);
    names
}
