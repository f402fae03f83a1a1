//! What rules ask of routes.

use super::frame::{tcp, udp};
use super::*;
use crate::fib::Routes;
use crate::key::protocol::{ICMPV6, TCP, UDP};
use std::format;
use std::net::Ipv4Addr;
use std::string::{String, ToString};

/// Routes of the router between the two networks: 10.0.0.0/24, and all else.
struct Known;

impl Routes for Known {
    fn way(&self, to: IpAddr) -> Option<u8> {
        match to {
            IpAddr::V4(to) => Some(u8::from(to.octets()[..3] != [10, 0, 0])),
            IpAddr::V6(to) => (to.segments()[0] == 0xfd00).then_some(0),
        }
    }
    fn is_own(&self, address: IpAddr, port: Option<u8>) -> bool {
        let own = [INSIDE, OUTSIDE].map(ip).into_iter().zip(0..);
        let mut own = own.filter(|(_, at)| port.is_none_or(|port| port == *at));
        own.any(|(own, _)| own == address)
    }
    fn is_broadcast(&self, address: Ipv4Addr, port: Option<u8>) -> bool {
        address == Ipv4Addr::new(10, 0, 0, 255) && port != Some(1)
    }
}

/// Counts, and knows routes.
#[derive(Default)]
struct Routed(Counts);

impl Tally for Routed {
    fn count(&mut self, rule: crate::RuleIndex) {
        self.0.count(rule);
    }
    fn log(&mut self, _: crate::RuleIndex, _: &str, _: &crate::Key, _: crate::Way) {}
    fn routes(&self) -> Option<&dyn Routes> {
        Some(&Known)
    }
}

/// A table with a chain at a hook.
fn at(hook: &str, rules: &str) -> String {
    format!("table inet t {{\nchain c {{\ntype filter hook {hook} priority 0\n{rules}\n}}\n}}\n")
}

/// Whether a rule holds for a packet that comes in by a port.
fn holds(rule: &str, from: u8, (source, destination): (&str, &str)) -> bool {
    let rules = load(&at("prerouting", &format!("{rule} drop"))).unwrap();
    let (number, payload) = match ip(source) {
        IpAddr::V6(source) if source.is_unspecified() => (ICMPV6, vec![135, 0, 0, 0, 0, 0, 0, 0]),
        _ => (UDP, udp([9, 53], b"")),
    };
    let mut frame = frame::frame(&packet(ip(source), ip(destination), number, payload));
    let mut tally = Routed(Counts(vec![0; rules.counters()]));
    let mut hooks = Hooks {
        rules: &rules,
        connections: None,
        now: 0,
        tally: &mut tally,
    };
    let arrival = Arrival {
        port: from,
        local: Local::default(),
        partial: false,
    };
    hooks
        .prerouting(&mut Passage::new(), &mut frame, arrival)
        .is_err()
}

#[test]
fn forged_sources_are_seen() {
    for (from, source, forged) in [
        (0, CLIENT, false),
        (0, SERVER, true),
        (1, SERVER, false),
        (1, CLIENT, true),
        // Nobody else is the router.
        (0, INSIDE, true),
        (1, OUTSIDE, true),
    ] {
        let missing = holds("fib saddr . iif oif missing", from, (source, SERVER));
        assert_eq!(missing, forged, "{source}");
        let exists = holds("fib saddr . iif oif exists", from, (source, SERVER));
        assert_eq!(exists, !forged, "{source}");
    }
    assert!(!holds("fib saddr oif missing", 1, (CLIENT, SERVER)));
    assert!(holds("fib saddr oif missing", 0, ("fd99::1", "fd00::1")));
    // Who has no address yet, and each link's own.
    let ask = ("0.0.0.0", "255.255.255.255");
    assert!(!holds("fib saddr . iif oif missing", 0, ask));
    let ask = ("::", "ff02::1:ff00:1");
    assert!(!holds("fib saddr . iif oif missing", 1, ask));
    let near = ("fe80::7", "ff02::1");
    assert!(!holds("fib saddr . iif oif missing", 1, near));
}

#[test]
fn routes_name_ports() {
    let ends = (CLIENT, SERVER);
    for (rule, expected) in [
        ("fib saddr oif private", true),
        ("fib daddr oifname \"private\"", false),
        ("fib daddr oifname { public, private }", true),
        ("fib daddr oif != public", false),
        ("fib daddr . iif oif exists", false),
    ] {
        assert_eq!(holds(rule, 0, ends), expected, "{rule}");
    }
}

#[test]
fn addresses_are_of_kinds() {
    for (address, kind) in [
        (INSIDE, "local"),
        (OUTSIDE, "local"),
        (SERVER, "unicast"),
        ("10.0.0.255", "broadcast"),
        ("255.255.255.255", "broadcast"),
        ("224.0.0.251", "multicast"),
        ("127.0.0.1", "local"),
    ] {
        let is = |words: &str| holds(&format!("fib daddr {words}"), 0, (CLIENT, address));
        assert!(is(&format!("type {kind}")), "{address}");
        assert!(is(&format!("type {{ anycast, {kind} }}")), "{address}");
        assert!(!is(&format!("type != {kind}")), "{address}");
    }
    let of_port = |port, address| holds("fib daddr . iif type local", port, (CLIENT, address));
    assert_eq!([0, 1].map(|port| of_port(port, INSIDE)), [true, false]);
    for (address, kind) in [
        ("fd00::5", "unicast"),
        ("fd99::5", "unreachable"),
        ("ff02::5", "multicast"),
    ] {
        let rule = format!("fib daddr type {kind}");
        assert!(holds(&rule, 0, ("fd00::9", address)), "{address}");
    }
}

#[test]
fn what_stands_before_it_is_done_and_what_follows_is_not() {
    let text = at(
        "prerouting",
        "tcp dport 22 counter fib saddr . iif oif missing drop
        tcp dport 22 fib saddr . iif oif missing counter drop",
    );
    // Without routes, nothing leads anywhere.
    let mut bench = Bench::new(&text);
    for port in [22, 23] {
        let question = tcp([1000, port], 1, 0, 2);
        let passes = bench.pass(0, (CLIENT, SERVER), TCP, question).is_ok();
        assert_eq!(passes, port == 23);
    }
    assert_eq!(bench.counts.0, [1, 0, 1]);
}

#[test]
fn it_is_refused_where_no_routes_are_known() {
    let rule = "fib saddr . iif oif missing drop";
    for (text, why) in [
        (at("output", rule), "`fib` at the hooks"),
        (
            at("postrouting", "fib daddr type local drop"),
            "`fib` at the",
        ),
        (
            at("input", "fib daddr . oif type local drop"),
            "`oif` beside",
        ),
    ] {
        let said = load(&text).unwrap_err().to_string();
        assert!(said.starts_with(why), "{said}");
    }
    load(&at("forward", "fib daddr . oif type local drop")).unwrap();
    let bridge = at("forward", rule).replace("inet", "bridge");
    let error = crate::load(&bridge, &PORTS, &Limits::DEFAULT).unwrap_err();
    assert_eq!(&bridge[error.span.start as usize..][..3], "fib");
    assert!(error.to_string().starts_with("`fib` has no meaning here"));
}

#[test]
fn a_question_is_whole() {
    for (rule, place, why) in [
        ("fib iif oif missing", "iif", "expected `saddr` or `daddr`"),
        ("fib saddr . daddr oif missing", "daddr", "a second address"),
        ("fib saddr . mark oif missing", "mark", "`mark` beside"),
        ("fib saddr oif 0", "0", "an index of an interface"),
        ("fib saddr check", "check", "expected oif, oifname or type"),
        ("fib daddr type foo", "foo", "expected what an address is"),
        (
            "fib daddr type vmap { local : drop }",
            "vmap",
            "a map by what",
        ),
        ("fib daddr type < 3", "<", "an order of"),
    ] {
        let text = at("forward", rule);
        let error = load(&text).unwrap_err();
        let at = error.span.start as usize..error.span.end as usize;
        assert_eq!(&text[at], place, "{rule}");
        assert!(error.to_string().starts_with(why), "{rule}: {error}");
    }
}
