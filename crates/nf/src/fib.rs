//! `fib`: what a router's routes say of an address of a packet (the kernel's `nft_fib`).
//!
//! Rules ask against forged sources: `fib saddr . iif oif missing` holds for a packet that came in
//! by another port than the one that leads to whom it says it is from.
//!
//! | here | in the kernel |
//! |---|---|
//! | a question of ICMPv6 from `::` comes from where it came in, at each hook | at `prerouting` |

use crate::ir::Intervals;
use crate::key::{Addresses, Key, protocol};
use crate::rule::Way;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a router knows of addresses. Ports have the numbers that rules have for them.
pub trait Routes {
    /// The port by which packets to this address leave.
    fn way(&self, to: IpAddr) -> Option<u8>;

    /// Whether it is an address of the router, at this port or at any.
    fn is_own(&self, address: IpAddr, port: Option<u8>) -> bool;

    /// Whether it is the address of all in a network of this port, or of any.
    fn is_broadcast(&self, address: Ipv4Addr, port: Option<u8>) -> bool;
}

/// What an address is to a router (RTN_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Unicast = 1,
    Local = 2,
    Broadcast = 3,
    Multicast = 5,
    Unreachable = 7,
}

/// Words for what an address is.
pub(crate) const KINDS: &crate::fields::Symbols = &[
    ("unspec", 0),
    ("unicast", Kind::Unicast as u16),
    ("local", Kind::Local as u16),
    ("broadcast", Kind::Broadcast as u16),
    ("anycast", 4),
    ("multicast", Kind::Multicast as u16),
    ("blackhole", 6),
    ("unreachable", Kind::Unreachable as u16),
    ("prohibit", 8),
];

/// The port that is asked for, if one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibPort {
    /// Any.
    Any,
    /// `iif`: the one that the packet came in by.
    Input,
    /// `oif`: the one that it leaves by.
    Output,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The port that leads to the address: one of the set, or none if that has [`NO_PORT`].
    Port,
    /// What the address is to the router.
    Kind,
}

/// In the place of the number of a port that nothing leads to.
pub(crate) const NO_PORT: u8 = u8::MAX;

/// A question, and the answers for which it holds.
#[derive(Debug)]
pub(crate) struct Fib {
    /// Whether it is about the source, or about the destination.
    pub(crate) of_source: bool,
    pub(crate) port: FibPort,
    pub(crate) asked: Asked,
    pub(crate) held: Intervals,
}

impl Fib {
    /// Whether it holds for a packet. Without routes, nothing leads anywhere.
    pub(crate) fn holds(&self, key: &Key, way: Way, routes: Option<&dyn Routes>) -> bool {
        let Some(ends) = key.fields().addresses else {
            return false;
        };
        let port = match self.port {
            FibPort::Any => None,
            FibPort::Input => Some(way.from),
            FibPort::Output => Some(way.to),
        };
        let address = match (ends, self.of_source) {
            (Addresses::V4 { source, .. }, true) => IpAddr::V4(source),
            (Addresses::V4 { destination, .. }, false) => IpAddr::V4(destination),
            (Addresses::V6 { source, .. }, true) => IpAddr::V6(source),
            (Addresses::V6 { destination, .. }, false) => IpAddr::V6(destination),
        };
        let answer = match self.asked {
            Asked::Port if asks_everybody(key, &ends) => way.from,
            Asked::Port => leads_to(address, port, routes),
            Asked::Kind => kind(address, port, routes) as u8,
        };
        let answer = u128::from(answer);
        self.held
            .iter()
            .any(|(low, high)| (low..=high).contains(&&answer))
    }
}

/// Whether a packet comes from a station without an address, and goes to its link.
fn asks_everybody(key: &Key, ends: &Addresses) -> bool {
    match ends {
        Addresses::V4 {
            source,
            destination,
        } => {
            let [a, b, c, _] = destination.octets();
            source.octets()[0] == 0 && (destination.is_broadcast() || [a, b, c] == [224, 0, 0])
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let is_icmp = key.fields().protocol == Some(protocol::ICMPV6);
            is_icmp && source.is_unspecified() && is_of_link(destination)
        }
    }
}

fn is_of_link(address: &Ipv6Addr) -> bool {
    address.is_unicast_link_local() || address.is_multicast()
}

/// The port that leads to an address, if it is this one. None leads to the router itself.
fn leads_to(address: IpAddr, port: Option<u8>, routes: Option<&dyn Routes>) -> u8 {
    let Some(routes) = routes.filter(|routes| !routes.is_own(address, None)) else {
        return NO_PORT;
    };
    let way = match (address, port) {
        // Each link has addresses of that kind.
        (IpAddr::V6(address), Some(port)) if address.is_unicast_link_local() => Some(port),
        _ => routes.way(address),
    };
    let way = way.filter(|way| port.is_none_or(|port| port == *way));
    way.unwrap_or(NO_PORT)
}

/// What an address is to the router (`inet_dev_addr_type`, `nft_fib6_eval_type`).
fn kind(address: IpAddr, port: Option<u8>, routes: Option<&dyn Routes>) -> Kind {
    let is_own = routes.is_some_and(|routes| routes.is_own(address, port));
    match address {
        IpAddr::V4(ip) if ip.octets()[0] == 0 || ip.is_broadcast() => Kind::Broadcast,
        IpAddr::V4(ip) if ip.is_multicast() => Kind::Multicast,
        _ if is_own || address.is_loopback() && port.is_none() => Kind::Local,
        IpAddr::V4(ip) if routes.is_some_and(|routes| routes.is_broadcast(ip, port)) => {
            Kind::Broadcast
        }
        IpAddr::V4(_) => Kind::Unicast,
        IpAddr::V6(ip) if ip.is_multicast() => Kind::Multicast,
        IpAddr::V6(_) => match routes.and_then(|routes| routes.way(address)) {
            Some(_) => Kind::Unicast,
            None => Kind::Unreachable,
        },
    }
}
