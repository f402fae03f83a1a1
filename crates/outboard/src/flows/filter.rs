//! Which connections are meant, in the words of nft: the conditions of a rule.
//!
//! They are asked of the packet that began a connection, as far as its name says what that was, and
//! of the connection itself. So `ip saddr` is who began it, and `ct reply ip daddr` what that one
//! is called behind a router.

use nf::conntrack::Entry;
use nf::fields::{Field, Header};
use nf::nft::ast::{ChainItem, File, Item, Rule, Statement, TableItem};
use nf::nft::{self, Limits};
use nf::{Key, RuleSet, Verdict, Way, ether_type, protocol};
use std::fmt;
use std::net::IpAddr;

/// What stands in front of the conditions, and behind them.
const AROUND: [&str; 2] = [
    "table bridge t { chain c { type filter hook forward priority 0; policy drop;\n",
    " accept\n}\n}\n",
];
/// Fields of a frame that the name of a connection does not say.
const UNKNOWN: [&str; 5] = [
    "iifname",
    "oifname",
    "ether saddr",
    "ether daddr",
    "tcp flags",
];

/// Conditions on connections.
#[derive(Debug)]
pub struct Filter {
    /// None if all are meant.
    rules: Option<RuleSet>,
    /// Whether they ask for the VLAN. If not, a connection in any VLAN is meant, where a rule of a
    /// bridge would mean none but those outside of all.
    asks_vlan: bool,
}

/// Why words are no conditions.
#[derive(Debug)]
pub enum Error {
    /// What [`nf`] says of them.
    Rules(String),
    /// There is something else than conditions.
    NoCondition,
    /// A field that no connection has.
    Unknown(&'static str),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(rendered) => f.write_str(rendered),
            Self::NoCondition => f.write_str(
                "these words do more than ask: write conditions alone, as in: ip saddr 10.0.0.2 \
                 tcp dport 443",
            ),
            Self::Unknown(field) => write!(
                f,
                "{field} is a frame's, and a connection does not say it; ask for addresses, \
                 ports, protocols and ct"
            ),
        }
    }
}

impl Filter {
    /// The conditions that these words are; without any, all connections are meant.
    ///
    /// # Errors
    /// They are no conditions.
    pub fn new(words: &[String]) -> Result<Self, Error> {
        if words.is_empty() {
            return Ok(Self {
                rules: None,
                asks_vlan: false,
            });
        }
        let [before, behind] = AROUND;
        let text = format!("{before}{}{behind}", words.join(" "));
        let wrong = |error: nft::Error| Error::Rules(error.render("words", &text).to_string());
        let file = nft::parse(&text, &Limits::DEFAULT).map_err(wrong)?;
        let rule = only_rule(&file).ok_or(Error::NoCondition)?;
        let (_, conditions) = rule.statements.split_last().ok_or(Error::NoCondition)?;
        let mut asks_vlan = false;
        for condition in conditions {
            let field = field_of(&condition.node).ok_or(Error::NoCondition)?;
            asks_vlan |= field.header() == Some(Header::Vlan);
            if let Some(unknown) = UNKNOWN.iter().find(|name| **name == field.name()) {
                return Err(Error::Unknown(unknown));
            }
        }
        let rules = nf::load(&text, &[], &Limits::DEFAULT).map_err(wrong)?;
        Ok(Self {
            rules: Some(rules),
            asks_vlan,
        })
    }

    /// Whether a connection is meant.
    pub fn means(&self, entry: &Entry) -> bool {
        let Some(rules) = &self.rules else {
            return true;
        };
        // What could not be a packet's is no connection that anybody could mean.
        let Ok(key) = Key::parse(&first_packet(entry, self.asks_vlan)) else {
            return false;
        };
        let way = Way {
            from: u8::MAX,
            to: u8::MAX,
        };
        let judged = entry.connection(|connection| {
            let (verdict, _) = rules.verdict_within(&key, way, connection, &mut ());
            verdict == Verdict::Accept
        });
        judged.unwrap_or(false)
    }
}

/// The only rule of a file, if it has one and nothing else.
fn only_rule<'a, 'b>(file: &'b File<'a>) -> Option<&'b Rule<'a>> {
    let [Item::Table(table)] = &file.items[..] else {
        return None;
    };
    let [TableItem::Chain(chain)] = &table.items[..] else {
        return None;
    };
    match &chain.items[..] {
        [ChainItem::Rule(rule)] => Some(&rule.node),
        _ => None,
    }
}

fn field_of(statement: &Statement<'_>) -> Option<Field> {
    match statement {
        Statement::Match(condition) => Some(condition.field.node),
        Statement::Flags(flags) => Some(flags.field),
        _ => None,
    }
}

/// The frame that may have begun a connection: what its name says, and otherwise zeros.
fn first_packet(entry: &Entry, tagged: bool) -> Vec<u8> {
    let name = &entry.name;
    let mut frame = vec![0; 12];
    if tagged && name.vlan != 0 {
        frame.extend(ether_type::VLAN.to_be_bytes());
        frame.extend(name.vlan.to_be_bytes());
    }
    let mut header = transport(name.protocol, name.ports);
    let size = header.len() as u16;
    match (name.source, name.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            frame.extend(ether_type::IPV4.to_be_bytes());
            let number = name.protocol.into();
            let ip = etherparse::Ipv4Header::new(
                size,
                64,
                number,
                source.octets(),
                destination.octets(),
            );
            // It is short enough.
            if let Ok(mut ip) = ip {
                ip.header_checksum = ip.calc_header_checksum();
                frame.extend(ip.to_bytes());
            }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend(ether_type::IPV6.to_be_bytes());
            frame.extend([0x60, 0, 0, 0]);
            frame.extend(size.to_be_bytes());
            frame.extend([name.protocol, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        // Of no use, and no packet.
        _ => {}
    }
    frame.append(&mut header);
    frame
}

/// A transport header with these ports, which are not in each protocol's.
fn transport(number: u8, [first, second]: [u16; 2]) -> Vec<u8> {
    let ports = [first.to_be_bytes(), second.to_be_bytes()].concat();
    match number {
        protocol::TCP => [&ports[..], &[0; 8], &[0x50, 0, 0, 0, 0, 0, 0, 0]].concat(),
        protocol::UDP => [&ports[..], &[0, 8, 0, 0]].concat(),
        protocol::ICMP | protocol::ICMPV6 => {
            let [kind, code] = second.to_be_bytes();
            let [high, low] = first.to_be_bytes();
            // Timestamps have twelve bytes more (RFC 792).
            let mut header = vec![kind, code, 0, 0, high, low];
            header.resize(20, 0);
            header
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{echo6, translated};
    use super::*;
    use nf::conntrack::Name;

    fn filter(words: &str) -> Result<Filter, Error> {
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        Filter::new(&words)
    }

    #[test]
    fn words_of_nft_mean_what_they_mean_in_rules() {
        let (tcp, echo) = (translated(2, 4000), echo6());
        let udp = Entry {
            name: Name {
                protocol: protocol::UDP,
                vlan: 0,
                zone: 0,
                ..tcp.name
            },
            reply: Name {
                protocol: protocol::UDP,
                ..tcp.reply
            },
            status: 8,
            ..tcp
        };
        for (words, expected) in [
            ("", [true, true, true]),
            ("tcp dport 443", [true, false, false]),
            (
                "ip saddr 10.0.0.2 tcp dport { 80, 443 }",
                [true, false, false],
            ),
            ("ip saddr 10.0.0.0/24", [true, true, false]),
            ("ip saddr != 10.0.0.2", [false, false, false]),
            ("udp dport 400-500", [false, true, false]),
            ("tcp sport 1024-65535", [true, false, false]),
            ("ct state established", [true, false, false]),
            ("ct state new", [false, true, true]),
            ("ct mark 1", [true, true, false]),
            ("ct mark != 1", [false, false, true]),
            ("ct status assured", [true, false, false]),
            ("ct status snat", [true, false, false]),
            ("ct bytes > 5000", [true, true, false]),
            ("ct original packets 10", [true, true, false]),
            ("ct reply ip daddr 192.0.2.9", [true, true, false]),
            (
                "tcp dport 443 ct reply proto-dst 4001",
                [true, false, false],
            ),
            ("ct expiration < 1m", [false, false, true]),
            ("meta l4proto icmpv6", [false, false, true]),
            ("icmpv6 type echo-request", [false, false, true]),
            ("vlan id 5", [false, false, true]),
            ("ip6 daddr fe00::/7", [false, false, true]),
            ("ether type ip", [true, true, false]),
        ] {
            let filter = filter(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            let found = [&tcp, &udp, &echo].map(|entry| filter.means(entry));
            assert_eq!(found, expected, "{words}");
        }
    }

    #[test]
    fn words_that_do_more_than_ask_are_refused() {
        let refused = |words| filter(words).expect_err(words).to_string();
        for words in [
            "ct mark set 5",
            "counter",
            "log",
            "tcp dport 80 drop",
            "} }",
        ] {
            refused(words);
        }
        assert!(refused("tcp dport 80 counter").contains("conditions alone"));
        assert!(refused("iifname private").contains("iifname"));
        assert!(refused("tcp flags syn").contains("tcp flags"));
        let rendered = refused("tcp dport htpp");
        assert!(
            rendered.contains("htpp") && rendered.contains("words:2:"),
            "{rendered}"
        );
        let two = Filter::new(&["tcp dport 80 accept\nip saddr 10.0.0.1".into()]);
        assert!(matches!(two, Err(Error::NoCondition)), "{two:?}");
    }

    #[test]
    fn each_protocol_of_a_connection_has_a_packet() {
        for number in [1, 6, 17, 41, 47, 50, 58, 89, 132, 255] {
            let mut entry = translated(2, 4000);
            entry.name.protocol = number;
            entry.reply.protocol = number;
            let filter = filter(&format!("meta l4proto {number}")).unwrap();
            assert!(filter.means(&entry), "{number}");
        }
    }
}
