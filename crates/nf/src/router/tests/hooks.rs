//! Which chains are asked, and what is refused.

use super::frame::{frame, packet, udp};
use super::*;
use crate::key::protocol::UDP;
use crate::nft::ErrorKind;
use std::string::{String, ToString};

/// The names of the chains that decided, in order: each has a rule that counts.
fn asked(text: &str, source: &str, destination: &str) -> Vec<String> {
    let mut bench = Bench::new(text);
    let bytes = frame(&packet(ip(source), ip(destination), UDP, udp([1, 2], b"")));
    let _ = bench.forward(0, bytes, false);
    let listing = crate::Listing::new(text, &Limits::DEFAULT).unwrap();
    assert_eq!(listing.iter().count(), bench.rules.counters());
    let counts = bench.counts.0.iter().zip(listing.iter());
    let counted = counts.filter(|(count, _)| **count > 0);
    counted
        .map(|(_, listed)| std::format!("{}: {}", listed.chain, listed.text))
        .collect()
}

#[test]
fn chains_see_their_family_and_policies_count() {
    let text = "table ip a { chain f { type filter hook forward priority 0; counter; }; }
        table ip6 b { chain f { type filter hook forward priority 0; counter; }; }
        table inet c { chain f { type filter hook forward priority 0; counter; }; }
        ";
    let v4 = asked(text, CLIENT, SERVER);
    assert_eq!(
        v4,
        [
            "a f: counter",
            "c f: counter",
            "a f: policy accept",
            "c f: policy accept"
        ]
    );
    let v6 = asked(text, "fd00::2", "fd01::2");
    assert_eq!(
        v6,
        [
            "b f: counter",
            "c f: counter",
            "b f: policy accept",
            "c f: policy accept"
        ]
    );
}

#[test]
fn the_lowest_priority_is_first_and_of_two_the_last() {
    let chain = |name: &str, priority: &str| {
        std::format!("chain {name} {{ type filter hook prerouting priority {priority}; drop; }}\n")
    };
    for (first, second, asked_first) in [
        ("0", "-1", "b"),
        ("raw", "mangle", "a"),
        ("dstnat", "filter", "a"),
        ("security - 60", "filter", "a"),
        ("filter", "filter", "b"),
    ] {
        let text = std::format!(
            "table ip t {{\n{}{}}}\n",
            chain("a", first),
            chain("b", second)
        );
        let by = asked(&text, CLIENT, SERVER);
        assert_eq!(
            by,
            [std::format!("{asked_first}: drop")],
            "{first}, {second}"
        );
    }
}

#[test]
fn connections_are_known_behind_raw() {
    let text = "table ip t {
        chain early { type filter hook prerouting priority raw; ct state invalid counter; }
        chain late { type filter hook prerouting priority mangle; ct state new counter; }
        chain out { type filter hook postrouting priority 0; iifname private oifname public drop; }
        }\n";
    let by = asked(text, CLIENT, SERVER);
    assert_eq!(
        by[..3],
        [
            "early: ct state invalid counter",
            "late: ct state new counter",
            "out: iifname private oifname public drop",
        ]
    );
}

#[test]
fn rules_see_what_is_translated_by_then() {
    let text = "table ip t {
        chain d { type nat hook prerouting priority dstnat; udp dport 2 dnat to 10.9.9.9:7; }
        chain f { type filter hook forward priority 0; policy drop
            ip saddr 10.0.0.2 ip daddr 10.9.9.9 udp dport 7 ct status dnat counter accept
        }
        chain s { type nat hook postrouting priority srcnat; snat to 192.0.2.7; }
        chain l { type filter hook postrouting priority 101; ip saddr 192.0.2.7 counter; }
        chain m { type filter hook postrouting priority 99; ip saddr 10.0.0.2 counter; }
        }\n";
    assert_eq!(asked(text, CLIENT, SERVER).len(), 5 + 2);
}

#[test]
fn what_is_not_tracked_has_no_connection() {
    let text = "table ip t {
        chain raw { type filter hook prerouting priority raw; udp dport 2 notrack; }
        chain f { type filter hook forward priority 0; ct state untracked counter drop; }
        chain n { type nat hook prerouting priority dstnat; counter dnat to 10.9.9.9; }
        }\n";
    let by = asked(text, CLIENT, SERVER);
    assert_eq!(
        by[..2],
        [
            "raw: udp dport 2 notrack",
            "f: ct state untracked counter drop"
        ]
    );
    assert_eq!(by.len(), 3, "and a policy: {by:?}");
    let late = text.replace("priority raw", "priority mangle");
    assert!(refused(&late).starts_with("`notrack` in this chain does nothing"));
}

/// Why a file is refused.
fn refused(text: &str) -> String {
    let error = load(text).expect_err(text);
    if let ErrorKind::Refused(refusal) | ErrorKind::Unsupported(refusal) = error.kind {
        assert!(!refusal.why.is_empty());
    }
    error.to_string()
}

/// Types and hooks of a chain, a rule in it, and why it is refused.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "filter hook forward priority 0",
        "masquerade",
        "a translation in a chain of the type",
    ),
    (
        "nat hook prerouting priority dstnat",
        "masquerade",
        "`masquerade` at this hook",
    ),
    (
        "nat hook prerouting priority dstnat",
        "snat ip to 1.2.3.4",
        "`snat` at this hook",
    ),
    (
        "nat hook postrouting priority srcnat",
        "dnat ip to 1.2.3.4",
        "`dnat` or `redirect` at",
    ),
    (
        "nat hook output priority -100",
        "redirect",
        "`redirect` at the hook `output`",
    ),
    (
        "nat hook prerouting priority dstnat",
        "dnat to 1.2.3.4",
        "an address of a translation",
    ),
    (
        "nat hook prerouting priority dstnat",
        "dnat ip to 1.2.3.4:5",
        "a translation of ports",
    ),
    (
        "nat hook forward priority 0",
        "accept",
        "a chain of the type `nat` at the hook",
    ),
    (
        "nat hook prerouting priority -200",
        "accept",
        "a chain of the type `nat` with a",
    ),
    (
        "filter hook output priority -200",
        "accept",
        "a priority of -200",
    ),
    (
        "route hook output priority 0",
        "accept",
        "the chain type `route`",
    ),
    (
        "filter hook ingress priority 0",
        "accept",
        "the hook `ingress`",
    ),
    (
        "filter hook forward priority srcnat",
        "accept",
        "the priority `srcnat`",
    ),
    (
        "filter hook forward priority 0",
        "ether saddr 2:0:0:0:0:1 accept",
        "a field of the link",
    ),
    (
        "nat hook prerouting priority 0",
        "dnat ip to ip saddr map { 10.0.0.1 : 1.2.3.4 . 80 }",
        "a translation of ports",
    ),
    (
        "nat hook prerouting priority 0",
        "dnat ip to @m",
        "expected an address",
    ),
    (
        "filter hook forward priority 0",
        "tcp dport vmap { 1-5 : accept, 3 : drop }",
        "this element overlaps",
    ),
    (
        "filter hook forward priority 0",
        "tcp dport vmap { 1 : accept } drop",
        "a statement behind a verdict",
    ),
    (
        "filter hook forward priority 0",
        "ct mark vmap { 1 : accept }",
        "a map by `ct mark`",
    ),
    (
        "filter hook forward priority 0",
        "tcp dport vmap @m",
        "there is no such map",
    ),
    (
        "filter hook forward priority 0",
        "tcp dport vmap { 1 : snat }",
        "`snat`",
    ),
    (
        "filter hook forward priority 0",
        "tcp dport vmap { 1 : jump c }",
        "",
    ),
    (
        "filter hook postrouting priority 0",
        "reject",
        "`reject` at the hook `postrouting`",
    ),
    (
        "filter hook forward priority 0",
        "udp dport 53 reject with tcp reset",
        "`tcp reset` in a rule about",
    ),
    (
        "filter hook forward priority 0",
        "meta l4proto { tcp, udp } reject with tcp reset",
        "`tcp reset` in a rule about",
    ),
    (
        "filter hook forward priority 0",
        "reject with icmpx frag-needed",
        "expected a code",
    ),
    (
        "filter hook forward priority 0",
        "reject with icmpx 4",
        "expected no-route",
    ),
    (
        "filter hook forward priority 0",
        "reject with icmp 256",
        "a code is at most 255",
    ),
    (
        "filter hook forward priority 0",
        "reject with rst",
        "expected `icmp`",
    ),
    (
        "filter hook forward priority 0",
        "ip6 saddr ::1 reject with icmp 3",
        "no frame is both ip6 and ip",
    ),
    (
        "filter hook forward priority 0",
        "reject accept",
        "a statement behind a verdict",
    ),
    (
        "nat hook postrouting priority 0",
        "snat ip prefix to 1.2.3.1-1.2.3.5",
        "`prefix` with something else",
    ),
];

#[test]
fn what_nft_refuses_is_refused() {
    let chain = |head: &str, rule: &str| {
        std::format!("table inet t {{\nchain c {{\ntype {head};\n{rule}\n}}\n}}\n")
    };
    for (head, rule, why) in REFUSED {
        let said = refused(&chain(head, rule));
        assert!(said.starts_with(why), "{head} {rule}: {said}");
    }
    let jumped = "table inet t {
        chain n { masquerade; }
        chain c { type nat hook prerouting priority 0; jump n; }
        }\n";
    assert!(refused(jumped).starts_with("`masquerade` at this hook"));
    assert!(
        refused("table bridge t { chain c { type filter hook forward priority 0; }; }")
            .starts_with("a table of the family `bridge`")
    );
    let bridge = crate::load(
        &chain("filter hook forward priority 0", "accept"),
        &PORTS,
        &Limits::DEFAULT,
    );
    assert!(
        bridge
            .unwrap_err()
            .to_string()
            .starts_with("a table of a router's family")
    );
    assert!(refused("table ip t { }; table ip t { }").starts_with("a second table of this name"));
}

#[test]
fn translations_are_printed_as_they_are_read() {
    for rule in [
        "masquerade",
        "masquerade random",
        "ip saddr 10.0.0.0/8 snat ip to 192.0.2.1",
        "meta l4proto udp snat ip to 192.0.2.1-192.0.2.9:1000-2000 random,persistent",
        "snat ip6 to fd00::1",
        "tcp dport 80 dnat ip6 to [fd00::1]:8080",
        "tcp dport 80 dnat ip6 to [fd00::1]-[fd00::9]:8080",
        "tcp dport 80 redirect to :8080",
        "tcp dport 80 dnat ip to 10.0.0.1:http",
        "meta l4proto tcp snat to :1000-2000 fully-random",
        "snat ip prefix to 192.0.2.0/24",
        "snat ip to ip saddr map { 10.0.0.0/24 : 192.0.2.1, 10.0.1.0-10.0.1.9 : 192.0.2.2 }",
        "snat ip prefix to ip saddr map { 10.0.0.0/24 : 192.0.2.0/24 }",
        "dnat ip to tcp dport map { 80 : 10.0.0.2 . 8080, 443 : 10.0.0.3 . 8443 }",
        "dnat ip6 to udp dport map { 53 : fd00::1 } persistent",
    ] {
        let hook = match rule.contains("dnat") || rule.contains("redirect") {
            true => "prerouting",
            false => "postrouting",
        };
        let text = nat(hook, rule);
        load(&text).unwrap_or_else(|error| panic!("{}", error.render("test", &text)));
        let listing = crate::Listing::new(&text, &Limits::DEFAULT).unwrap();
        assert_eq!(listing.get(0).unwrap().text, rule);
    }
}
