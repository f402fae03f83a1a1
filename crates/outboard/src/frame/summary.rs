//! What a firewall read out of a frame, in the words of a description.

use super::{MacAddress, names};
use nf::{Addresses, Fields, Fragment, Key, L4, ether_type};
use std::fmt::{self, Write};
use std::net::{IpAddr, SocketAddr};

/// `key` in words, as in `tcp 10.0.0.1:999 > 10.0.0.2:7070 flags syn vlan 7`.
pub fn summary(key: &Key) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, &key.fields());
    text
}

fn write(f: &mut String, fields: &Fields) -> fmt::Result {
    match (fields.addresses, fields.l4) {
        (Some(addresses), Some(l4)) => write_l4(f, addresses, l4)?,
        (Some(addresses), None) => {
            let (source, destination) = pair(addresses);
            write!(f, "ip {source} > {destination}")?;
            if let Some(protocol) = fields.protocol {
                write!(f, " proto {protocol}")?;
            }
        }
        (None, _) if fields.ether_type == ether_type::ARP => f.push_str("arp"),
        (None, _) => write!(f, "ether type {:#06x}", fields.ether_type)?,
    }
    match fields.fragment {
        Fragment::Whole => {}
        Fragment::First => f.push_str(" fragment first"),
        Fragment::Later => f.push_str(" fragment later"),
    }
    if let Some(id) = fields.vlan {
        write!(f, " vlan {id}")?;
    }
    write!(
        f,
        " from {} to {}",
        Mac(fields.source),
        Mac(fields.destination)
    )
}

fn write_l4(f: &mut String, addresses: Addresses, l4: L4) -> fmt::Result {
    let (from, to) = pair(addresses);
    match l4 {
        L4::Tcp {
            source,
            destination,
            flags,
        } => {
            let (from, to) = (
                SocketAddr::new(from, source),
                SocketAddr::new(to, destination),
            );
            write!(f, "tcp {from} > {to} flags {}", names::tcp_flags(flags))
        }
        L4::Udp {
            source,
            destination,
        } => {
            let (from, to) = (
                SocketAddr::new(from, source),
                SocketAddr::new(to, destination),
            );
            write!(f, "udp {from} > {to}")
        }
        L4::Icmp { kind, code } => write!(f, "icmp {from} > {to} type {kind} code {code}"),
        L4::Icmpv6 { kind, code } => write!(f, "icmpv6 {from} > {to} type {kind} code {code}"),
    }
}

fn pair(addresses: Addresses) -> (IpAddr, IpAddr) {
    match addresses {
        Addresses::V4 {
            source,
            destination,
        } => (source.into(), destination.into()),
        Addresses::V6 {
            source,
            destination,
        } => (source.into(), destination.into()),
    }
}

struct Mac(MacAddress);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_a_description_of_the_same_frame() {
        for text in super::super::tests::DESCRIPTIONS {
            let frame = super::super::read(text).unwrap().bytes;
            let key = Key::parse(&frame).unwrap();
            let words = summary(&key);
            if words.starts_with("arp") {
                continue; // Rules see no more of ARP than its type.
            }
            let again = super::super::read(&format!("{words} len {}", frame.len()));
            let again = match again {
                Ok(crafted) => crafted.bytes,
                // A later fragment's protocol has no header that could be described.
                Err(_) if words.contains("fragment later") => continue,
                Err(error) => panic!("{words}: {error}"),
            };
            let again = Key::parse(&again).unwrap().fields();
            assert_eq!(again, key.fields(), "{text}: {words}");
        }
    }
}
