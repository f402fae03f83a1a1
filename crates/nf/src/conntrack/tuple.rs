//! What names one direction of a flow: addresses, ports, protocol, and where that happens.

use super::connection::View;
use super::hash::Hash;
use super::packet;
use super::record::{Flow4, Flow6, Record, ZONE_SHIFT};
use super::rewrite::{self, End, Manip};
use crate::key::{self, protocol};
use core::net::IpAddr;

/// An address of one family, as it stands in the packet.
pub(super) trait Address: Copy + Eq + core::fmt::Debug + 'static {
    /// A flow of this family.
    type Record: Record<Address = Self>;

    /// The protocol that asks and answers questions of this family.
    const ICMP: u8;

    /// Bytes of the address.
    fn bytes(&self) -> &[u8];

    /// The part of it that one source owns: of IPv6, whoever has one address has 2^64 of them.
    fn network(&self) -> u64;

    /// The address as a number, and the address that a number is.
    fn number(self) -> u128;
    fn of_number(number: u128) -> Self;

    /// The address as one of either family.
    fn ip(self) -> IpAddr;

    /// The other way round, if it is one of this family.
    fn of_ip(ip: IpAddr) -> Option<Self>;

    /// A flow of this family, as rules see it.
    fn view(flow: &Self::Record) -> View<'_>;

    /// The hash of a direction of a flow, whose other parts are `rest`: seven bytes.
    fn hash(source: Self, destination: Self, rest: u64, hash: &Hash) -> u32;

    /// Calls one end of a packet this from now on; or, of an error, the end of what it quotes.
    fn translate(
        self,
        frame: &mut [u8],
        packet: &key::Packet,
        manip: Manip,
        port: Option<u16>,
        is_error: bool,
        partial: bool,
    );

    /// The direction of the packet that an error of this family quotes, in this place.
    fn quoted(bytes: &[u8], place: u16) -> Option<Tuple<Self>>
    where
        Self: Sized;
}

impl Address for [u8; 4] {
    type Record = Flow4;
    const ICMP: u8 = protocol::ICMP;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    fn network(&self) -> u64 {
        u32::from_be_bytes(*self).into()
    }

    fn number(self) -> u128 {
        u32::from_be_bytes(self).into()
    }

    fn of_number(number: u128) -> Self {
        (number as u32).to_be_bytes()
    }

    fn ip(self) -> IpAddr {
        self.into()
    }

    fn of_ip(ip: IpAddr) -> Option<Self> {
        match ip {
            IpAddr::V4(ip) => Some(ip.octets()),
            IpAddr::V6(_) => None,
        }
    }

    fn view(flow: &Flow4) -> View<'_> {
        View::V4(flow)
    }

    #[inline(always)]
    fn hash(source: Self, destination: Self, rest: u64, hash: &Hash) -> u32 {
        let ends = [source, destination].map(|end| u64::from(u32::from_le_bytes(end)));
        hash.of([[ends[0] | ends[1] << 32, rest]])
    }

    #[inline(always)]
    fn translate(
        self,
        frame: &mut [u8],
        packet: &key::Packet,
        manip: Manip,
        port: Option<u16>,
        is_error: bool,
        partial: bool,
    ) {
        let address = self;
        let end = End { address, port };
        match is_error {
            true => rewrite::translate_error(frame, packet, manip, end, partial),
            false => rewrite::translate(frame, packet, manip, end, partial),
        }
    }

    fn quoted(bytes: &[u8], place: u16) -> Option<Tuple<Self>> {
        packet::quoted4(bytes, place)
    }
}

impl Address for [u8; 16] {
    type Record = Flow6;
    const ICMP: u8 = protocol::ICMPV6;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    fn network(&self) -> u64 {
        (u128::from_be_bytes(*self) >> 64) as u64
    }

    fn number(self) -> u128 {
        u128::from_be_bytes(self)
    }

    fn of_number(number: u128) -> Self {
        number.to_be_bytes()
    }

    fn ip(self) -> IpAddr {
        self.into()
    }

    fn of_ip(ip: IpAddr) -> Option<Self> {
        match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip.octets()),
        }
    }

    fn view(flow: &Flow6) -> View<'_> {
        View::V6(flow)
    }

    #[inline(always)]
    fn hash(source: Self, destination: Self, rest: u64, hash: &Hash) -> u32 {
        let [a, b] = [source, destination].map(|end| {
            let end = u128::from_le_bytes(end);
            [end as u64, (end >> 64) as u64]
        });
        hash.of([a, b, [rest, 0]])
    }

    #[inline(always)]
    fn translate(
        self,
        frame: &mut [u8],
        packet: &key::Packet,
        manip: Manip,
        port: Option<u16>,
        is_error: bool,
        partial: bool,
    ) {
        let address = self;
        let end = End { address, port };
        match is_error {
            true => rewrite::translate_error(frame, packet, manip, end, partial),
            false => rewrite::translate(frame, packet, manip, end, partial),
        }
    }

    fn quoted(bytes: &[u8], place: u16) -> Option<Tuple<Self>> {
        packet::quoted6(bytes, place)
    }
}

/// One direction of a flow. Ports are those of TCP and UDP. Of ICMP, the first one is the
/// identifier, and the second one has type and code, which is how Linux keeps them; of any other
/// protocol, they are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuple<A> {
    pub(super) source: A,
    pub(super) destination: A,
    pub(super) ports: [u16; 2],
    /// Of a bridge the identifier of the VLAN, of a router the number of the [`Zone`]; or 0. What
    /// happens in one place is apart from the others.
    pub(super) place: u16,
    pub(super) protocol: u8,
}

impl<A: Address> Tuple<A> {
    /// The other direction; none if nothing can come back, as to an ICMP message that is no
    /// question and no answer.
    pub(super) fn reversed(&self) -> Option<Self> {
        let [first, second] = self.ports;
        let ports = match self.protocol == A::ICMP {
            true => [first, counterpart(A::ICMP, second)?],
            false => [second, first],
        };
        Some(Self {
            source: self.destination,
            destination: self.source,
            ports,
            ..*self
        })
    }

    /// Where it is to be found under a secret key.
    #[inline(always)]
    pub(super) fn hash(&self, hash: &Hash) -> u32 {
        let [first, second] = self.ports.map(u64::from);
        let (place, protocol) = (u64::from(self.place), u64::from(self.protocol));
        let rest = first | second << 16 | place << 32 | protocol << 48;
        A::hash(self.source, self.destination, rest, hash)
    }
}

/// A zone that rules have put a packet into (`ct zone set`), before its connection was looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Zone {
    number: u16,
    /// Of which directions of a connection it is: none in zone 0.
    of: [bool; 2],
}

impl Zone {
    /// The zone of this number, of one direction or of both.
    pub(crate) fn new(number: u16, direction: Option<usize>) -> Self {
        let of = [0, 1].map(|way| number != 0 && direction.is_none_or(|only| only == way));
        Self { number, of }
    }

    /// That of a connection whose directions are in these zones. None if there is no such one.
    pub(super) fn between(zones: [u16; 2]) -> Option<Self> {
        let number = zones[0].max(zones[1]);
        let of = zones.map(|zone| zone != 0);
        let zone = Self { number, of };
        (zones == zone.of_directions()).then_some(zone)
    }

    /// Its number.
    pub(crate) fn number(self) -> u16 {
        self.number
    }

    /// The numbers of the zones of both directions.
    pub(crate) fn of_directions(self) -> [u16; 2] {
        self.of.map(|is| if is { self.number } else { 0 })
    }

    /// Whether it is zone 0.
    pub(super) fn is_none(self) -> bool {
        self.number == 0
    }

    /// Bits of a flow's status that say it.
    pub(super) fn bits(self) -> u8 {
        u8::from(self.of[0]) << ZONE_SHIFT | u8::from(self.of[1]) << (ZONE_SHIFT + 1)
    }
}

/// Where what is known of a source is to be found.
pub(super) fn source_hash(source: impl Address, hash: &Hash) -> u32 {
    hash.of([[source.network(), 0]])
}

/// The type, and the code below it, that answers this one or is answered by it (RFC 792; RFC 950;
/// RFC 4443, 4; RFC 4620, 4).
fn counterpart(protocol: u8, message: u16) -> Option<u16> {
    let [kind, code] = message.to_be_bytes();
    let kind = match (protocol, kind) {
        (protocol::ICMP, 0) => 8,
        (protocol::ICMP, 8) => 0,
        (protocol::ICMP, 13 | 15 | 17) => kind + 1,
        (protocol::ICMP, 14 | 16 | 18) => kind - 1,
        (protocol::ICMPV6, 128 | 139) => kind + 1,
        (protocol::ICMPV6, 129 | 140) => kind - 1,
        _ => return None,
    };
    Some(u16::from_be_bytes([kind, code]))
}

/// Whether a message of this type asks something, so that it begins a flow.
pub(super) fn is_question(protocol: u8, message: u16) -> bool {
    let [kind, _] = message.to_be_bytes();
    match protocol {
        protocol::ICMP => matches!(kind, 8 | 13 | 15 | 17),
        _ => matches!(kind, 128 | 139),
    }
}
