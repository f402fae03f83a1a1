//! A frame in words: `tcp 10.0.0.1:999 > 10.0.0.2:7070 in private`.
//!
//! ```text
//! tcp A:P > B:P [flags F,F]            udp A:P > B:P
//! icmp A > B [type T] [code N]         icmpv6 A > B [type T] [code N]
//! ip A > B proto N                     ether type N
//! arp who-has A tell B                 arp reply A is-at MAC tell B
//! ```
//!
//! Behind each, in any order: `in PORT`, `vlan N`, `len N`, `from MAC`, `to MAC`, and behind IP
//! `fragment first|later`.

pub mod error;

pub use error::{Error, Reason};

use super::names;
use super::words::{Word, Words};
use super::{LENGTH_MAX, MacAddress};
use nf::{Addresses, Fragment, L4, ether_type, protocol};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Smallest EtherType; numbers below are lengths (IEEE 802.3, 3.2.6).
const ETHER_TYPE_MIN: u16 = 0x600;
/// Largest VLAN identifier; 4095 is reserved (IEEE 802.1Q, 9.6).
const VLAN_MAX: u16 = 4094;
/// IPv6 headers that need more behind them than a number (RFC 8200, 4; RFC 4302).
const EXTENSIONS: [u8; 5] = [0, 43, 44, 51, 60];

/// What a description says, with its defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub content: Content,
    /// The port into which the frame goes.
    pub port: Option<String>,
    pub vlan: Option<u16>,
    /// Bytes of the frame.
    pub length: Option<usize>,
    pub source: Option<MacAddress>,
    pub destination: Option<MacAddress>,
}

/// What is behind the Ethernet header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Arp {
        sender: Ipv4Addr,
        target: Ipv4Addr,
        /// The sender's MAC address, in a reply; this is a request without it.
        is_at: Option<MacAddress>,
    },
    Ip {
        addresses: Addresses,
        fragment: Fragment,
        protocol: u8,
        l4: Option<L4>,
    },
    Other {
        ether_type: u16,
    },
}

impl Error {
    /// That `text` does not begin as a description does.
    pub(super) fn kind(text: &str) -> Self {
        let at = Words::new(text).next().map_or(0..0, |word| word.at);
        Self {
            at,
            reason: Reason::Kind,
        }
    }
}

/// Reads a description.
pub(super) fn parse(text: &str) -> Result<Description, Error> {
    let words = &mut Words::new(text);
    let kind = words.expect("what kind of frame it is")?;
    let content = match kind.text {
        "tcp" | "udp" => transport(kind.text == "tcp", words)?,
        "icmp" => icmp(words)?,
        "icmpv6" => icmpv6(words)?,
        "ip" => ip(words)?,
        "arp" => arp(words)?,
        "ether" => ether(words)?,
        _ => return Err(kind.error(Reason::Kind)),
    };
    let mut description = Description {
        content,
        port: None,
        vlan: None,
        length: None,
        source: None,
        destination: None,
    };
    clauses(&mut description, words)?;
    Ok(description)
}

/// Whether `text` is meant as a description: it begins like one.
pub(super) fn is_description(text: &str) -> bool {
    let kinds = ["tcp", "udp", "icmp", "icmpv6", "ip", "arp", "ether"];
    let mut words = text.split_whitespace();
    words.next().is_some_and(|kind| kinds.contains(&kind)) && words.next().is_some()
}

fn transport(is_tcp: bool, words: &mut Words) -> Result<Content, Error> {
    let (from, _) = address_and_port(words)?;
    words.expect_literal(">")?;
    let (to, word) = address_and_port(words)?;
    let addresses = addresses(from.ip(), to.ip(), &word)?;
    let (source, destination) = (from.port(), to.port());
    let (protocol, l4) = if is_tcp {
        let flags = names::tcp_flag("syn").unwrap_or(0);
        let tcp = L4::Tcp {
            source,
            destination,
            flags,
        };
        (protocol::TCP, tcp)
    } else {
        let udp = L4::Udp {
            source,
            destination,
        };
        (protocol::UDP, udp)
    };
    Ok(packet(addresses, protocol, Some(l4)))
}

fn packet(addresses: Addresses, protocol: u8, l4: Option<L4>) -> Content {
    Content::Ip {
        addresses,
        fragment: Fragment::Whole,
        protocol,
        l4,
    }
}

fn icmp(words: &mut Words) -> Result<Content, Error> {
    let (addresses, word) = address_pair(words)?;
    if matches!(addresses, Addresses::V6 { .. }) {
        return Err(word.error(Reason::VersionOf("icmp", 4)));
    }
    let kind = names::icmp_type("echo-request", false).unwrap_or(0);
    let l4 = L4::Icmp { kind, code: 0 };
    Ok(packet(addresses, protocol::ICMP, Some(l4)))
}

fn icmpv6(words: &mut Words) -> Result<Content, Error> {
    let (addresses, word) = address_pair(words)?;
    if matches!(addresses, Addresses::V4 { .. }) {
        return Err(word.error(Reason::VersionOf("icmpv6", 6)));
    }
    let kind = names::icmp_type("echo-request", true).unwrap_or(0);
    let l4 = L4::Icmpv6 { kind, code: 0 };
    Ok(packet(addresses, protocol::ICMPV6, Some(l4)))
}

fn ip(words: &mut Words) -> Result<Content, Error> {
    let (addresses, _) = address_pair(words)?;
    words.expect_literal("proto")?;
    let word = words.expect("a protocol number")?;
    let protocol = number(&word, 0, u64::from(u8::MAX))? as u8;
    let is_v6 = matches!(addresses, Addresses::V6 { .. });
    let described = match protocol {
        protocol::TCP => Some("tcp A:P > B:P"),
        protocol::UDP => Some("udp A:P > B:P"),
        protocol::ICMP if !is_v6 => Some("icmp A > B"),
        protocol::ICMPV6 if is_v6 => Some("icmpv6 A > B"),
        _ => None,
    };
    if let Some(words) = described {
        return Err(word.error(Reason::Described(words)));
    }
    if is_v6 && EXTENSIONS.contains(&protocol) {
        return Err(word.error(Reason::Extension));
    }
    Ok(packet(addresses, protocol, None))
}

fn arp(words: &mut Words) -> Result<Content, Error> {
    let word = words.expect("who-has or reply")?;
    let is_reply = match word.text {
        "who-has" => false,
        "reply" => true,
        _ => return Err(word.error(Reason::NotLiteral("who-has"))),
    };
    let address = ipv4_address(words)?;
    let mut is_at = None;
    if is_reply {
        words.expect_literal("is-at")?;
        is_at = Some(mac(&words.expect("a MAC address")?)?);
    }
    words.expect_literal("tell")?;
    let other = ipv4_address(words)?;
    let (sender, target) = if is_reply {
        (address, other)
    } else {
        (other, address)
    };
    Ok(Content::Arp {
        sender,
        target,
        is_at,
    })
}

fn ether(words: &mut Words) -> Result<Content, Error> {
    words.expect_literal("type")?;
    let word = words.expect("an EtherType")?;
    let ether_type = number(&word, 0, u64::from(u16::MAX))? as u16;
    let described = match ether_type {
        ether_type::IPV4 | ether_type::IPV6 => Some("ip A > B proto N"),
        ether_type::ARP => Some("arp who-has A tell B"),
        ether_type::VLAN => Some("the frame, and behind it vlan N"),
        _ => None,
    };
    match described {
        Some(words) => Err(word.error(Reason::Described(words))),
        None if ether_type < ETHER_TYPE_MIN => Err(word.error(Reason::Length)),
        None => Ok(Content::Other { ether_type }),
    }
}

/// What may stand behind any kind of frame, each at most once.
fn clauses(description: &mut Description, words: &mut Words) -> Result<(), Error> {
    let mut seen: Vec<&str> = Vec::new();
    let mut length = None;
    while let Some(word) = words.next() {
        if seen.contains(&word.text) {
            return Err(word.error(Reason::Twice));
        }
        seen.push(word.text);
        match word.text {
            "len" => length = Some(words.expect("the bytes of the frame")?),
            _ => clause(description, &word, words)?,
        }
    }
    // Last, for how long the headers are depends on the other clauses.
    if let Some(word) = length {
        let length = number(&word, 0, LENGTH_MAX as u64)? as usize;
        let least = description.headers_size();
        if length < least {
            return Err(word.error(Reason::TooShort(least)));
        }
        description.length = Some(length);
    }
    Ok(())
}

fn clause(description: &mut Description, word: &Word, words: &mut Words) -> Result<(), Error> {
    match word.text {
        "in" => description.port = Some(words.expect("the name of a port")?.text.to_owned()),
        "vlan" => {
            let id = words.expect("a VLAN identifier")?;
            description.vlan = Some(number(&id, 0, u64::from(VLAN_MAX))? as u16);
        }
        "from" => description.source = Some(mac(&words.expect("a MAC address")?)?),
        "to" => description.destination = Some(mac(&words.expect("a MAC address")?)?),
        "fragment" => match &mut description.content {
            Content::Ip { fragment, .. } => *fragment = part(&words.expect("first or later")?)?,
            _ => return Err(word.error(Reason::NotFor("a frame that is not IP"))),
        },
        "flags" | "type" | "code" => header_field(description, word, words)?,
        _ => return Err(word.error(Reason::Clause)),
    }
    Ok(())
}

/// A field of a transport header.
fn header_field(
    description: &mut Description,
    word: &Word,
    words: &mut Words,
) -> Result<(), Error> {
    let Content::Ip { l4: Some(l4), .. } = &mut description.content else {
        return Err(word.error(Reason::NotFor("a frame without such a header")));
    };
    let is_v6 = matches!(l4, L4::Icmpv6 { .. });
    match (l4, word.text) {
        (L4::Tcp { flags, .. }, "flags") => {
            *flags = tcp_flags(&words.expect("flags of TCP")?)?;
        }
        (L4::Icmp { kind, .. } | L4::Icmpv6 { kind, .. }, "type") => {
            *kind = icmp_type(&words.expect("a type")?, is_v6)?;
        }
        (L4::Icmp { code, .. } | L4::Icmpv6 { code, .. }, "code") => {
            *code = number(&words.expect("a code")?, 0, u64::from(u8::MAX))? as u8;
        }
        (L4::Tcp { .. }, _) => return Err(word.error(Reason::NotFor("TCP"))),
        (L4::Udp { .. }, _) => return Err(word.error(Reason::NotFor("UDP"))),
        _ => return Err(word.error(Reason::NotFor("ICMP"))),
    }
    Ok(())
}

fn tcp_flags(word: &Word) -> Result<u8, Error> {
    if word.text == "none" {
        return Ok(0);
    }
    let mut flags = 0;
    for name in word.text.split(',') {
        flags |= names::tcp_flag(name).ok_or_else(|| word.error(Reason::Flag))?;
    }
    Ok(flags)
}

fn icmp_type(word: &Word, is_v6: bool) -> Result<u8, Error> {
    match names::icmp_type(word.text, is_v6) {
        Some(kind) => Ok(kind),
        None if word.text.starts_with(|c: char| c.is_ascii_digit()) => {
            Ok(number(word, 0, u64::from(u8::MAX))? as u8)
        }
        None => Err(word.error(Reason::IcmpType)),
    }
}

fn part(word: &Word) -> Result<Fragment, Error> {
    match word.text {
        "first" => Ok(Fragment::First),
        "later" => Ok(Fragment::Later),
        _ => Err(word.error(Reason::Part)),
    }
}

fn address_and_port<'a>(words: &mut Words<'a>) -> Result<(SocketAddr, Word<'a>), Error> {
    let word = words.expect("an address with a port")?;
    // A zone, as in fe80::1%2, says which interface of a host is meant: no part of a frame.
    let address = word.text.parse().ok().filter(|_| !word.text.contains('%'));
    match address {
        Some(address) => Ok((address, word)),
        None if is_address_with_digits(word.text) => Err(word.error(Reason::Port)),
        None => Err(word.error(Reason::AddressAndPort)),
    }
}

/// Whether only the number behind the colon is wrong.
fn is_address_with_digits(text: &str) -> bool {
    let Some((address, port)) = text.rsplit_once(':') else {
        return false;
    };
    let with_port = format!("{address}:0").parse::<SocketAddr>();
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    with_port.is_ok() && is_number && port.parse::<u16>().is_err()
}

fn address_pair<'a>(words: &mut Words<'a>) -> Result<(Addresses, Word<'a>), Error> {
    let (from, _) = address(words)?;
    words.expect_literal(">")?;
    let (to, word) = address(words)?;
    Ok((addresses(from, to, &word)?, word))
}

fn address<'a>(words: &mut Words<'a>) -> Result<(IpAddr, Word<'a>), Error> {
    let word = words.expect("an address")?;
    match word.text.parse() {
        Ok(address) => Ok((address, word)),
        Err(_) => Err(word.error(Reason::Address)),
    }
}

fn ipv4_address(words: &mut Words) -> Result<Ipv4Addr, Error> {
    match address(words)? {
        (IpAddr::V4(address), _) => Ok(address),
        (IpAddr::V6(_), word) => Err(word.error(Reason::VersionOf("arp", 4))),
    }
}

fn addresses(from: IpAddr, to: IpAddr, word: &Word) -> Result<Addresses, Error> {
    match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(Addresses::V4 {
            source,
            destination,
        }),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(Addresses::V6 {
            source,
            destination,
        }),
        _ => Err(word.error(Reason::Version)),
    }
}

fn mac(word: &Word) -> Result<MacAddress, Error> {
    let mut mac = [0; 6];
    let mut bytes = word.text.split(':');
    for byte in &mut mac {
        let text = bytes.next().filter(|text| (1..=2).contains(&text.len()));
        let text = text.filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let value = text.and_then(|text| u8::from_str_radix(text, 16).ok());
        *byte = value.ok_or_else(|| word.error(Reason::Mac))?;
    }
    match bytes.next() {
        None => Ok(mac),
        Some(_) => Err(word.error(Reason::Mac)),
    }
}

fn number(word: &Word, low: u64, high: u64) -> Result<u64, Error> {
    let (digits, radix) = match word.text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (word.text, 10),
    };
    let value = u64::from_str_radix(digits, radix).ok();
    value
        .filter(|value| !digits.starts_with('+') && (low..=high).contains(value))
        .ok_or_else(|| word.error(Reason::Number(low, high)))
}

#[cfg(test)]
mod tests;
