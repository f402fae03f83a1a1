//! Generated files of a router: what they translate, and what they let through.

use fastrand::Rng;
use std::fmt::Write;

/// Most rules of a chain that decides.
const RULES_MAX: usize = 5;

/// Rules that translate destinations.
const DESTINATIONS: [&str; 19] = [
    "tcp dport 8080 dnat ip to 10.192.0.5:80",
    "iifname public tcp dport 8080-8090 dnat ip to 10.128.0.5:80",
    "udp dport 53 dnat ip to 10.128.0.7",
    "ip daddr 10.3.0.1 dnat ip to 10.128.0.9",
    "ip daddr 10.3.0.0/30 dnat ip to 10.192.0.9",
    "tcp dport 8080-8090 dnat ip to 10.192.0.5:2000-2010",
    "meta l4proto udp dnat ip to 10.192.0.6:53",
    "ip6 daddr fd0c:3::1 dnat ip6 to fd0a::9",
    "tcp dport 8080 dnat ip6 to [fd0b::9]:80",
    "icmp type echo-request ip daddr 10.3.0.2 dnat ip to 10.128.0.2",
    "dnat ip to tcp dport map { 80 : 10.192.0.5, 8080 : 10.128.0.5 }",
    "dnat ip to udp dport map { 53 : 10.128.0.7 . 5353, 7070 : 10.192.0.7 . 53 }",
    "dnat ip prefix to ip daddr map { 10.3.0.0/24 : 10.192.1.0/24 }",
    "ip6 daddr fd0c:3::/112 dnat ip6 prefix to fd0b::/112",
    "tcp dport 8080 redirect to :80",
    "iifname private tcp dport 2000 redirect",
    "udp dport 2000 redirect to :5353",
    "tcp dport 8080-8090 redirect to :9000-9003",
    "icmp type echo-request ip daddr 10.3.0.1 redirect",
];

/// Rules that translate sources.
const SOURCES: [&str; 12] = [
    "oifname public masquerade",
    "oifname private masquerade",
    "iifname private oifname public masquerade",
    "ip saddr 10.128.0.0/10 snat ip to 10.3.0.2",
    "meta l4proto tcp snat ip to 10.3.0.3:1024-65535",
    "meta l4proto { tcp, udp } masquerade to :1024-65535",
    "ip6 saddr fd0a::/16 snat ip6 to fd0c:3::2",
    "snat ip to ip saddr map { 10.128.0.0/16 : 10.3.0.2, 10.129.0.0/16 : 10.3.0.3 }",
    "ip saddr 10.128.0.0/16 snat ip prefix to 10.3.0.0/16",
    "snat ip6 prefix to ip6 saddr map { fd0a::/96 : fd0c:3::/96 }",
    "ip daddr 10.192.0.5 snat ip to 10.3.0.4",
    "ip saddr 10.192.0.0/10 snat ip to 10.3.0.5",
];

/// Conditions.
const CONDITIONS: [&str; 47] = [
    "ct state new",
    "ct state established",
    "ct state related",
    "ct state invalid",
    "ct state established,related",
    "ct status dnat",
    "ct status snat",
    "ct status ! dnat",
    "ct direction reply",
    "ct original ip daddr 10.3.0.0/24",
    "ct reply ip saddr 10.128.0.0/10",
    "ct reply ip daddr 10.2.0.1",
    "meta l4proto tcp ct reply proto-dst > 1000",
    "ct mark 1",
    "ct zone 0",
    "ct zone 5",
    "ct zone != 5",
    "ct original zone { 5, 6 }",
    "ct reply zone 6",
    "ct reply zone < 6",
    "ct mark & 3 == 1",
    "meta mark 1",
    "quota over 200 bytes",
    "quota until 300 bytes",
    "quota name some",
    "limit name few",
    "counter name web",
    "meta mark != 0",
    "meta mark & 6 == { 2, 4 }",
    "meta mark { 1, 3-5 }",
    "iifname private",
    "iifname != private",
    "oifname public",
    "oifname != public",
    "ip saddr 10.128.0.0/10",
    "ip daddr 10.3.0.0/16",
    "tcp dport { 80, 8080, 2000 }",
    "udp sport 53",
    "ip saddr . ip daddr { 10.128.0.0/10 . 10.3.0.0/16, 10.192.0.0/10 . 10.2.0.0/16 }",
    "ip daddr . tcp dport { 10.3.0.0/16 . 80, 10.192.0.5 . 2000-8090 }",
    "iifname . ip saddr != { private . 10.128.0.5, public . 10.192.0.5 }",
    "update @seen { ip saddr . ip daddr }",
    "ip daddr . ip saddr @seen",
    "ip saddr . ip daddr != @seen",
    "add @few { ip saddr limit rate over 1/week burst 3 packets }",
    "ip daddr != @few",
    "delete @seen { ip daddr . ip saddr }",
];

/// How many connections there are. Until its clock ticks, the kernel counts what did not begin
/// after all, what has ended, and twice what two rules count that begins: so these are asked last
/// of all, of UDP, of which nothing ends here, and one rule a chain changes the set.
const COUNTS: [&str; 6] = [
    "ct state new meta l4proto udp ct count over 2 counter",
    "ct state new meta l4proto udp ct count 3 counter",
    "ct state new,established meta l4proto udp ct count over 1 counter",
    "ct state established meta l4proto udp ct count 0 counter",
    "ct state new udp dport 53 add @many { ip saddr ct count over 1 } counter",
    "ct state new,established meta l4proto udp add @many { ip daddr ct count over 1 } counter",
];

/// Sets that rules change.
const SETS: &str = "\
\tset seen { type ipv4_addr . ipv4_addr; flags dynamic, timeout; timeout 1h; }
\tset few { type ipv4_addr; flags dynamic; size 2; }
\tset many { type ipv4_addr; flags dynamic; size 100; }
";
/// Timeouts that rules give.
const TIMEOUTS: &str = "\
\tct timeout web { protocol tcp; policy = { syn_sent : 50, syn_recv : 40, established : 900 }; }
\tct timeout names { protocol udp; policy = { unreplied : 70 }; }
";
/// Zones that rules put packets into before their connections are looked up.
const ZONES: [&str; 8] = [
    "ct zone set 5",
    "udp dport 53 ct zone set 5",
    "iifname private ct original zone set 5",
    "iifname private ct zone set 5",
    "iifname public ct reply zone set 6",
    "udp dport 7070 notrack ct zone set 6",
    "ct zone set 0",
    "tcp dport 8080 ct original zone set 6",
];
/// Conditions on routes, at the hooks where those are known.
const ROUTES: [&str; 12] = [
    "fib saddr . iif oif missing",
    "fib saddr . iif oif exists",
    "fib saddr oif missing",
    "fib daddr oif exists",
    "fib saddr oifname private",
    "fib daddr oifname != public",
    "fib daddr . iif oif exists",
    "fib daddr type local",
    "fib daddr . iif type local",
    "fib saddr type unicast",
    "fib daddr type { local, broadcast, multicast }",
    "fib daddr type != unicast",
];

/// What the senders of packets are told that rules reject.
const REJECTS: [&str; 7] = [
    "reject",
    "counter reject",
    "reject with tcp reset",
    "counter reject with tcp reset",
    "reject with icmpx admin-prohibited",
    "counter reject with icmp host-unreachable",
    "reject with icmpv6 no-route",
];

/// Ends of rules.
const ENDS: [&str; 21] = [
    "accept",
    "accept",
    "counter",
    "counter accept",
    "return",
    "drop",
    "ct mark set 1",
    "ct timeout set \"web\"",
    "ct timeout set \"names\"",
    "meta mark set 1",
    "counter name web",
    "meta mark set ct mark",
    "counter meta mark set ct mark or 2",
    "meta mark set mark and 3 xor 6",
    "ct mark set meta mark and 0xfe or 1",
    "meta mark set 4 ct mark set mark",
    "jump other",
    "ct state vmap { established : accept, related : jump other, invalid : drop }",
    "ct state vmap { new : jump other, established : return }",
    "ct status dnat iifname vmap { private : jump other, public : accept }",
    "meta l4proto vmap { tcp : jump other, udp : return, 1 : accept }",
];

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    all[rng.usize(0..all.len())]
}

/// A file.
pub fn generate(rng: &mut Rng) -> String {
    let mut text = String::new();
    for number in 0..rng.usize(1..3) {
        let family = pick(rng, &["inet", "inet", "ip"]);
        let _ = writeln!(text, "table {family} t{number} {{");
        text += SETS;
        text += TIMEOUTS;
        text += "\tcounter web { }\n\tquota some { over 500 bytes; }\n";
        text += "\tlimit few { rate 1/week burst 3 packets; }\n";
        text += "\tchain other {\n";
        for _ in 0..rng.usize(0..3) {
            let _ = writeln!(text, "\t\t{}", decides(rng, "counter"));
        }
        text += "\t}\n";
        for (hook, name, rules) in [
            ("prerouting", "dstnat", &DESTINATIONS[..]),
            ("postrouting", "srcnat", &SOURCES),
            ("output", "-100", &DESTINATIONS),
            ("input", "100", &SOURCES),
        ] {
            let is_own = matches!(hook, "output" | "input");
            if !is_own && number == 0 || rng.u8(0..2 + 2 * u8::from(is_own)) == 0 {
                let priority = priority(rng, name);
                translates(rng, &mut text, family, (hook, &priority), rules);
            }
        }
        for hook in ["prerouting", "forward", "postrouting", "input", "output"] {
            if rng.bool() {
                filters(rng, &mut text, family, hook);
            }
        }
        if rng.u8(0..4) == 0 {
            for hook in ["postrouting", "input"] {
                counts(rng, &mut text, hook);
            }
        }
        text += "}\n";
    }
    text
}

/// A chain behind all others.
fn counts(rng: &mut Rng, text: &mut String, hook: &str) {
    let _ = writeln!(text, "\tchain l{hook} {{");
    let _ = writeln!(text, "\t\ttype filter hook {hook} priority 300;");
    let mut is_changed = false;
    for _ in 0..rng.usize(1..3) {
        let rule = pick(rng, &COUNTS);
        let changes = rule.contains("@many");
        if !(changes && is_changed) {
            let _ = writeln!(text, "\t\t{rule}");
        }
        is_changed |= changes;
    }
    text.push_str("\t}\n");
}

/// The priority of this name, or one near it.
fn priority(rng: &mut Rng, name: &str) -> String {
    match rng.u8(0..4) {
        // A number has no other near it.
        _ if !name.starts_with(char::is_alphabetic) => name.to_owned(),
        0 => format!("{name} + {}", rng.u8(1..150)),
        1 => format!("{name} - {}", rng.u8(1..90)),
        _ => name.to_owned(),
    }
}

fn translates(
    rng: &mut Rng,
    text: &mut String,
    family: &str,
    (hook, priority): (&str, &str),
    rules: &[&str],
) {
    let _ = writeln!(text, "\tchain n{hook} {{");
    let _ = writeln!(text, "\t\ttype nat hook {hook} priority {priority};");
    for _ in 0..rng.usize(1..5) {
        let rule = match rng.u8(0..6) {
            0 => decides(rng, "accept"),
            _ => pick(rng, rules).to_owned(),
        };
        if family == "ip" && rule.contains("ip6") || is_elsewhere(hook, &rule) {
            continue;
        }
        let at = ["snat", "dnat", "masquerade", "redirect"]
            .iter()
            .find_map(|word| rule.find(word));
        match at.filter(|_| rng.bool() && !rule.contains("ct status")) {
            Some(at) => {
                let (before, behind) = rule.split_at(at);
                let _ = writeln!(text, "\t\t{before}counter {behind}");
            }
            None => {
                let _ = writeln!(text, "\t\t{rule}");
            }
        }
    }
    text.push_str("\t}\n");
}

/// Whether a translation is not known at this hook, or not to us.
fn is_elsewhere(hook: &str, rule: &str) -> bool {
    match hook {
        "input" => rule.contains("masquerade") || rule.contains("oifname"),
        "output" => rule.contains("redirect") || rule.contains("iifname"),
        _ => false,
    }
}

fn filters(rng: &mut Rng, text: &mut String, family: &str, hook: &str) {
    let name = pick(rng, &["raw", "mangle", "filter", "filter", "security"]);
    let priority = match rng.u8(0..3) {
        0 => rng.i32(-199..200).to_string(),
        _ => priority(rng, name),
    };
    // At that priority, the kernel's order depends on what it did before. And to the kernel, an
    // error of its own has a connection before that is looked up.
    if matches!(&*priority, "raw + 100" | "mangle - 50") || hook == "output" && name == "raw" {
        return;
    }
    let policy = if rng.u8(0..6) == 0 { "drop" } else { "accept" };
    let _ = writeln!(text, "\tchain f{hook} {{");
    let _ = writeln!(
        text,
        "\t\ttype filter hook {hook} priority {priority}; policy {policy};"
    );
    let mut is_zoned = false;
    if hook == "prerouting" && priority == "raw" {
        text.push_str("\t\tudp dport 7070 counter notrack\n");
        for _ in 0..rng.usize(0..3) {
            is_zoned = true;
            let _ = writeln!(text, "\t\t{}", pick(rng, &ZONES));
        }
    }
    if policy == "drop" {
        text.push_str("\t\tct state established,related accept\n");
    }
    for _ in 0..rng.usize(1..RULES_MAX) {
        let end = pick(rng, &ENDS);
        let end = if rng.u8(0..3) > 0 && end == "drop" {
            "counter"
        } else {
            end
        };
        // A packet of its own that the router rejects, the kernel brings itself an error about.
        let rejects = !matches!(hook, "output" | "postrouting") && rng.u8(0..5) == 0;
        let end = if rejects { pick(rng, &REJECTS) } else { end };
        let mut rule = decides(rng, end);
        if !matches!(hook, "output" | "postrouting") && rng.u8(0..4) == 0 {
            rule = format!("{} {rule}", pick(rng, &ROUTES));
        }
        if rejects && contradicts(family, &rule) || is_zoned && changes(&rule) {
            continue;
        }
        let _ = writeln!(text, "\t\t{rule}");
    }
    text.push_str("\t}\n");
}

/// Whether a rule changes a connection: a packet in a zone has none yet, and the kernel something
/// in its place, which is not that packet's alone.
fn changes(rule: &str) -> bool {
    ["ct mark set", "reject", "jump"]
        .iter()
        .any(|word| rule.contains(word))
}

/// Whether a rule rejects what it cannot be about.
fn contradicts(family: &str, rule: &str) -> bool {
    let is_ip = family == "ip" || rule.contains("ip saddr") || rule.contains("ip daddr");
    rule.contains("udp") && rule.contains("tcp reset")
        || family == "ip" && rule.contains("icmpx")
        || is_ip && rule.contains("icmpv6")
}

/// A rule with conditions.
fn decides(rng: &mut Rng, end: &str) -> String {
    let mut conditions: Vec<&str> = (0..rng.usize(1..3))
        .map(|_| pick(rng, &CONDITIONS))
        .collect();
    // Two ports of different protocols never match.
    let ports = |condition: &&str| condition.contains("dp") || condition.contains("sport");
    if end.contains("vmap") {
        conditions.truncate(1);
    }
    if conditions
        .iter()
        .filter(|it| ports(it) || it.contains("l4proto"))
        .count()
        > 1
    {
        conditions.truncate(1);
    }
    let counter = if rng.bool() && !end.starts_with("counter") {
        "counter "
    } else {
        ""
    };
    format!("{} {counter}{end}", conditions.join(" "))
}

/// What the kernel gets besides: it says nothing to neighbours and groups that rules could count;
/// and it tracks both families, which it does once a rule asks for connections of both.
pub const KERNEL_ALONE: &str = "table inet aside {
\tchain aside {
\t\ttype filter hook output priority -400; policy accept;
\t\ticmpv6 type { 130-137, 143 } drop
\t\tip daddr 224.0.0.0/4 drop
\t\tct state invalid accept
\t}
}
";
