//! Frames that two files of rules judge differently: `outboard rules diff --frames`.
//!
//! Tried are frames between all addresses and ports that either file names, and one beside those,
//! by TCP, UDP and pings, from each of the ports. Each is the first of its connection, and the only
//! one there is: no limit is exceeded, and sets that rules change are as the file has them.

use crate::frame;
use nf::conntrack::{Conntrack, Sought};
use nf::nft::Limits;
use nf::router::{Arrival, Connections, Hooks, Local, Passage, Rules, Stop};
use nf::{Key, Listing, Loaded, RuleIndex, RuleSet, Tally, Verdict, Way};
use rule_files::Gathered;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses of each family, and ports, that are tried: the first ones that the files name.
const ADDRESSES_MAX: usize = 12;
const NUMBERS_MAX: usize = 24;
/// Differences that are shown.
const SHOWN_MAX: usize = 32;
/// What no file is likely to name.
const OTHER4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0x77);
const OTHER_PORT: u16 = 40_077;
/// Ports that files have by name.
const USUAL: [u16; 4] = [22, 53, 80, 443];
/// The router's addresses, for what it translates.
const OWN: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 78)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0x78)),
];
/// Connections that a table has room for: one frame begins one.
const FLOWS: usize = 8;
/// Nothing is secret here.
const KEY: [u8; 16] = [0; 16];

/// Rules at work, and what they are called.
struct Judge {
    rules: Loaded,
    listing: Listing,
}

/// What is asked of rules alone.
struct Trial;

impl Tally for Trial {
    fn count(&mut self, _: RuleIndex) {}
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
    fn is_trial(&self) -> bool {
        true
    }
}

/// What becomes of a frame, and who says so if that is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Fate {
    passes: bool,
    by: Option<RuleIndex>,
}

impl Judge {
    fn new(gathered: &Gathered, ports: &[&str]) -> Result<Self, String> {
        let text = gathered.whole.text();
        let said = |error| gathered.whole.render(&error);
        Ok(Self {
            rules: Loaded::load(text, ports, &Limits::DEFAULT).map_err(said)?,
            listing: Listing::new(text, &Limits::DEFAULT).map_err(said)?,
        })
    }

    fn judge(&self, frame: &[u8], way: Way) -> Fate {
        match &self.rules {
            Loaded::Bridge(rules) => on_a_bridge(rules, frame, way),
            Loaded::Router(rules) => through_a_router(rules, frame, way),
        }
    }

    /// A fate in words.
    fn say(&self, fate: Fate) -> String {
        let verdict = if fate.passes { "accept" } else { "drop" };
        match fate.by.and_then(|by| self.listing.get(by)) {
            Some(rule) => format!("{verdict} by line {}: {}", rule.line, rule.text),
            None => verdict.to_owned(),
        }
    }
}

fn on_a_bridge(rules: &RuleSet, frame: &[u8], way: Way) -> Fate {
    let Ok(key) = Key::parse(frame) else {
        return Fate {
            passes: false,
            by: None,
        };
    };
    let judged = match rules.tracks() {
        false => Ok(rules.verdict(&key, way, &mut Trial)),
        true => Conntrack::new(FLOWS, &KEY).judge(&key, frame, Sought::NOTHING, 0, |connection| {
            rules.verdict_within(&key, way, connection, &mut Trial)
        }),
    };
    Fate {
        passes: matches!(judged, Ok((Verdict::Accept, _))),
        by: judged.ok().map(|(_, by)| by),
    }
}

fn through_a_router(rules: &Rules, frame: &[u8], way: Way) -> Fate {
    let mut connections = Connections::new(FLOWS, &KEY);
    let mut hooks = Hooks {
        rules,
        connections: rules.tracks().then_some(&mut connections),
        now: 0,
        tally: &mut Trial,
    };
    let local = Local::of(&OWN);
    let arrival = Arrival {
        port: way.from,
        local,
        partial: false,
    };
    let (mut frame, mut passage) = (frame.to_vec(), Passage::new());
    let stopped = hooks
        .prerouting(&mut passage, &mut frame, arrival)
        .and_then(|()| hooks.forward(&mut passage, way.to))
        .and_then(|()| hooks.postrouting(&mut passage, &mut frame, way.to, local));
    Fate {
        passes: stopped.is_ok(),
        by: match stopped {
            Err(Stop::Rule(by) | Stop::Rejected(by, _)) => Some(by),
            _ => None,
        },
    }
}

/// Frames that the rules in two files judge differently: one for each pair of rules that say so.
/// `lines` are those of both files, as they are printed.
///
/// # Errors
/// One of the files is no rules for these ports: what is to be said.
pub fn find<'a>(
    files: [&Gathered; 2],
    lines: impl Iterator<Item = &'a str>,
    ports: &[&str],
) -> Result<String, String> {
    let [old, new] = files.map(|file| Judge::new(file, ports));
    let (old, new) = (old?, new?);
    let mut found: BTreeMap<[Fate; 2], String> = BTreeMap::new();
    for words in Constants::of(lines).frames(ports) {
        let Ok(crafted) = frame::read(&words) else {
            continue;
        };
        let from = ports
            .iter()
            .position(|port| Some(*port) == crafted.port.as_deref());
        for (to, _) in ports.iter().enumerate() {
            // There are fewer than 256.
            let way = Way {
                from: from.unwrap_or(0) as u8,
                to: to as u8,
            };
            if way.from == way.to {
                continue;
            }
            let fates = [&old, &new].map(|judge| judge.judge(&crafted.bytes, way));
            if fates[0].passes != fates[1].passes {
                let out = match ports.len() {
                    ..=2 => String::new(),
                    _ => format!(", out by {}", ports[to]),
                };
                found
                    .entry(fates)
                    .or_insert_with(|| format!("{words}{out}"));
            }
        }
    }
    let mut text = String::new();
    for ([before, behind], words) in found.iter().take(SHOWN_MAX) {
        let (before, behind) = (old.say(*before), new.say(*behind));
        let _ = writeln!(text, "{words}\n  - {before}\n  + {behind}");
    }
    if found.len() > SHOWN_MAX {
        let _ = writeln!(text, "and {} more", found.len() - SHOWN_MAX);
    }
    Ok(text)
}

/// What files name.
#[derive(Debug, Default)]
struct Constants {
    ip4: BTreeSet<Ipv4Addr>,
    ip6: BTreeSet<Ipv6Addr>,
    numbers: BTreeSet<u16>,
}

impl Constants {
    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut constants = Self {
            numbers: USUAL.into(),
            ..Self::default()
        };
        let is_letter = |letter: char| letter.is_ascii_hexdigit() || ".:".contains(letter);
        for word in lines.flat_map(|line| line.split(|letter| !is_letter(letter))) {
            if let Ok(address) = word.parse() {
                constants.ip4.insert(address);
            } else if let Ok(address) = word.parse() {
                constants.ip6.insert(address);
            } else if let Ok(number) = word.parse() {
                constants.numbers.insert(number);
            }
        }
        constants
    }

    /// Frames in words.
    fn frames(&self, ports: &[&str]) -> Vec<String> {
        let ip4 = self.ip4.iter().take(ADDRESSES_MAX).copied();
        let ip4: Vec<IpAddr> = ip4.chain([OTHER4]).map(IpAddr::from).collect();
        let ip6 = self.ip6.iter().take(ADDRESSES_MAX).copied();
        let ip6: Vec<IpAddr> = ip6.chain([OTHER6]).map(IpAddr::from).collect();
        let numbers = self.numbers.iter().take(NUMBERS_MAX).copied();
        let numbers: Vec<u16> = numbers.chain([OTHER_PORT]).collect();
        let mut frames = Vec::new();
        for port in ports {
            for addresses in [&ip4, &ip6] {
                for (source, destination) in pairs(addresses) {
                    frames.extend(between(source, destination, &numbers, port));
                }
            }
        }
        frames
    }
}

fn pairs(addresses: &[IpAddr]) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let pairs = move |source| {
        addresses
            .iter()
            .map(move |destination| (source, *destination))
    };
    addresses.iter().copied().flat_map(pairs)
}

fn between<'a>(
    source: IpAddr,
    destination: IpAddr,
    numbers: &'a [u16],
    port: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let at = |address: IpAddr, number: u16| std::net::SocketAddr::new(address, number);
    let ping = match source {
        IpAddr::V4(_) => format!("icmp {source} > {destination} in {port}"),
        IpAddr::V6(_) => format!("icmpv6 {source} > {destination} in {port}"),
    };
    let transports = ["tcp", "udp"].into_iter().flat_map(move |protocol| {
        numbers.iter().map(move |number| {
            let (from, to) = (at(source, OTHER_PORT), at(destination, *number));
            format!("{protocol} {from} > {to} in {port}")
        })
    });
    transports.chain([ping])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rule_files::Source;

    const PORTS: [&str; 2] = ["private", "public"];

    fn samples(old: &str, new: &str) -> String {
        let [old, new] = [old, new].map(|text| {
            let name = "x".to_owned();
            let text = text.to_owned();
            Gathered::from(Source { name, text })
        });
        let lines = [&old, &new].map(|file| file.whole.text().lines());
        find([&old, &new], lines.into_iter().flatten(), &PORTS).unwrap()
    }

    const BRIDGE: &str = "table bridge t {
    chain c {
        type filter hook forward priority 0; policy drop;
        ct state established accept
        iifname private ip saddr 10.0.0.0/8 tcp dport ssh accept
        limit rate over 1/hour drop
        udp dport 53 accept
    }
}
";

    #[test]
    fn what_is_judged_alike_is_not_shown() {
        let other = BRIDGE.replace("established accept", "established counter accept");
        assert_eq!(samples(BRIDGE, &other), "");
    }

    #[test]
    fn a_frame_is_shown_for_each_pair_of_rules() {
        let new = BRIDGE
            .replace("10.0.0.0/8", "10.1.0.0/16")
            .replace("udp dport 53", "udp dport 54");
        let found = samples(BRIDGE, &new);
        let expected = "udp 10.0.0.0:40077 > 10.0.0.0:54 in private
  - drop by line 3: policy drop
  + accept by line 7: udp dport 54 accept
tcp 10.0.0.0:40077 > 10.0.0.0:22 in private
  - accept by line 5: iifname private ip saddr 10.0.0.0/8 tcp dport ssh accept
  + drop by line 3: policy drop
udp 10.0.0.0:40077 > 10.0.0.0:53 in private
  - accept by line 7: udp dport 53 accept
  + drop by line 3: policy drop
";
        assert_eq!(found, expected, "{found}");
    }

    #[test]
    fn routers_are_compared_as_well() {
        let old = "table inet t {
    chain c {
        type filter hook forward priority 0; policy accept;
        iifname public ip6 daddr fd00::1 tcp dport 80 drop
    }
}
table ip n {
    chain c {
        type nat hook prerouting priority dstnat;
        iifname public tcp dport 8080 dnat to 10.0.0.2:81
    }
}
";
        let more = "tcp dport 80 reject\nip daddr 10.0.0.2 tcp dport 81 drop";
        let new = old.replace("tcp dport 80 drop", more);
        let found = samples(old, &new);
        let frame = "tcp 10.0.0.2:40077 > 10.0.0.2:81 in private\n";
        assert!(found.starts_with(frame), "{found}");
        assert!(
            found
                .ends_with("  - accept\n  + drop by line 5: ip daddr 10.0.0.2 tcp dport 81 drop\n")
        );
        assert_eq!(found.matches("in p").count(), 1, "{found}");
    }
}
