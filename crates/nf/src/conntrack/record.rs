//! A flow as it lies in memory: plain data, little endian, for it may outlive the image.
//!
//! Of a record, what names both directions is written before it is [`status::CONFIRMED`] and never
//! again, and packets change its [`Flow`]. Its [`Links`] are an index, which each image makes anew.

use super::FLOWS_MAX;
use super::flows::{NONE, OPEN};
use super::tcp::Tcp;
use super::timeout::{Class, Ticks};
use super::tuple::{self, Address, Tuple, Zone};
use crate::key::protocol;
use core::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bits of `status`, which are those of nft's `ct status`.
pub(super) mod status {
    pub const SEEN_REPLY: u8 = 2;
    pub const ASSURED: u8 = 4;
    /// It can be found. It is the last thing that is written of a flow.
    pub const CONFIRMED: u8 = 8;
    /// Who began it is called something else behind the router.
    pub const SNAT: u8 = 16;
    /// Whom it goes to is called something else before the router.
    pub const DNAT: u8 = 32;
    /// Its place is a zone, of the original direction, of the other one, or of both; rules do not
    /// see these bits.
    pub const ZONES: u8 = 0xc0;
}

/// Where [`status::ZONES`] are: first the bit of the original direction.
pub(super) const ZONE_SHIFT: u32 = 6;
/// Identifiers of VLANs have twelve bits.
const VLAN_MAX: u16 = 0xfff;

/// What packets change of a flow, and what rules see of it beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Flow {
    pub(super) deadline: Ticks,
    pub(super) mark: u32,
    pub(super) traffic: Traffic,
    pub(super) tracker: Tracker,
}

/// What has become of a flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Standing {
    /// Bits of [`status`].
    pub(super) status: u8,
    /// Its class, whether it is assured, and which timeouts it has: see [`queue_of`].
    pub(super) queue: u8,
}

/// Where a flow stands in the index.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Links {
    /// The next direction in the bucket of each direction.
    pub(super) chain: [Link; 2],
    pub(super) older: Link,
    pub(super) newer: Link,
}

/// A flow or a direction of one, by its number; or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(super) struct Link([u8; 3]);

impl Link {
    const NONE: Self = Self([0xff; 3]);

    /// Of a number of at most 24 bits.
    #[inline]
    pub(super) fn to(number: u32) -> Self {
        let [a, b, c, _] = number.to_le_bytes();
        Self([a, b, c])
    }

    #[inline]
    pub(super) fn get(self) -> u32 {
        let [a, b, c] = self.0;
        u32::from_le_bytes([a, b, c, 0])
    }
}

const _: () = assert!(NONE == 0xff_ffff && FLOWS_MAX < 1 << 23);

/// A flow with its name, of either family.
pub(super) trait Record:
    Copy
    + core::fmt::Debug
    + FromBytes
    + IntoBytes
    + Immutable
    + KnownLayout
    + Deref<Target = Flow>
    + DerefMut
    + 'static
{
    type Address: Address<Record = Self>;

    /// One that nobody finds yet.
    fn new(tuple: &Tuple<Self::Address>, reply: &Tuple<Self::Address>, tracker: Tracker) -> Self;

    /// What names its original direction.
    fn name(&self) -> Tuple<Self::Address>;

    /// What names the other one.
    fn reply(&self) -> Tuple<Self::Address>;

    /// The VLAN or the zone that it is in.
    fn place(&self) -> u16;

    /// The same of a direction of it, which may be outside of the zone.
    #[inline]
    fn place_of(&self, direction: usize) -> u16 {
        match self.zone_bits() >> (ZONE_SHIFT as usize + direction) & 1 {
            0 if self.zone_bits() != 0 => 0,
            _ => self.place(),
        }
    }

    /// Which of its directions are in the zone; none if its place is none.
    #[inline]
    fn zone_bits(&self) -> u8 {
        self.tracker.standing.status & status::ZONES
    }

    /// Its zone.
    fn zone(&self) -> Zone {
        let zones = [0, 1].map(|direction| self.place_of(direction));
        match self.zone_bits() {
            0 => Zone::default(),
            // The place of a zone is not 0.
            _ => Zone::between(zones).unwrap_or_default(),
        }
    }

    /// The other direction is this one, before the flow is confirmed.
    fn set_reply(&mut self, reply: &Tuple<Self::Address>);

    /// The generation of the rules that it is known to be permitted by.
    fn generation(&self) -> u8;

    fn set_generation(&mut self, generation: u8);

    fn links(&self) -> &Links;

    fn links_mut(&mut self) -> &mut Links;

    /// One direction of it; 0 is the original one.
    fn tuple(&self, direction: usize) -> Tuple<Self::Address>;

    /// Whether a direction of it is this one.
    fn is(&self, tuple: &Tuple<Self::Address>, direction: usize) -> bool;

    /// Whether an image can have left this of a flow that is confirmed.
    fn is_sound(&self) -> bool {
        let name = self.name();
        let Some((class, assured)) = class_of(self.tracker.standing.queue) else {
            return false;
        };
        let icmp = Self::Address::ICMP;
        let fits = match name.protocol {
            protocol::TCP => class <= Class::Unacknowledged && self.tracker.tcp().is_sound(),
            protocol::UDP => matches!(class, Class::Udp | Class::UdpStream),
            protocol if protocol == icmp => {
                class == Class::Icmp && !assured && tuple::is_question(icmp, name.ports[1])
            }
            protocol::ICMP | protocol::ICMPV6 => false,
            _ => class == Class::Generic && !assured && name.ports == [0; 2],
        };
        let nat = status::SNAT | status::DNAT;
        let known = status::SEEN_REPLY | status::ASSURED | status::CONFIRMED;
        let bits = known | nat | status::ZONES;
        let place = self.place();
        let is_placed = match self.zone_bits() {
            0 => place <= VLAN_MAX,
            _ => place != 0,
        };
        fits && self.has(status::CONFIRMED)
            && self.tracker.standing.status & !bits == 0
            && self.is_translated_soundly()
            && self.has(status::ASSURED) == assured
            && is_placed
    }

    /// Whether the other direction is the reverse of the original one, but for what is translated.
    fn is_translated_soundly(&self) -> bool {
        let Some(plain) = self.name().reversed() else {
            return false;
        };
        let reply = self.reply();
        let plain = Tuple {
            place: reply.place,
            ..plain
        };
        let ports = matches!(self.name().protocol, protocol::TCP | protocol::UDP);
        let mut expected = reply;
        if !self.has(status::DNAT) {
            expected.source = plain.source;
        }
        if !self.has(status::SNAT) {
            expected.destination = plain.destination;
        }
        match ports {
            true if !self.has(status::DNAT) => expected.ports[0] = plain.ports[0],
            true => {}
            // The identifier of a question may be another one; the type answers it.
            false
                if self.has(status::SNAT | status::DNAT)
                    && self.name().protocol == Self::Address::ICMP =>
            {
                expected.ports[1] = plain.ports[1];
            }
            false => expected.ports = plain.ports,
        }
        if ports && !self.has(status::SNAT) {
            expected.ports[1] = plain.ports[1];
        }
        expected == reply
    }
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $direction:ident, $address:ty) => {
        /// What a direction is called.
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        struct $direction {
            source: $address,
            destination: $address,
            ports: [u16; 2],
        }

        impl $direction {
            #[inline(always)]
            fn of(tuple: &Tuple<$address>) -> Self {
                Self {
                    source: tuple.source,
                    destination: tuple.destination,
                    ports: tuple.ports,
                }
            }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name {
            /// What the original direction is called, and the other one.
            names: [$direction; 2],
            /// Of both directions, or of those that [`status::ZONES`] says.
            place: u16,
            protocol: u8,
            /// Of the rules that it began under, or was judged by since: see [`super::doubt`].
            generation: u8,
            links: Links,
            flow: Flow,
        }

        impl Record for $name {
            type Address = $address;

            fn new(tuple: &Tuple<$address>, reply: &Tuple<$address>, tracker: Tracker) -> Self {
                let unlinked = Links {
                    chain: [Link::NONE; 2],
                    older: Link::NONE,
                    newer: Link::NONE,
                };
                Self {
                    names: [tuple, reply].map($direction::of),
                    place: tuple.place | reply.place,
                    protocol: tuple.protocol,
                    generation: 0,
                    links: unlinked,
                    flow: Flow {
                        tracker,
                        ..Flow::new_zeroed()
                    },
                }
            }

            #[inline]
            fn name(&self) -> Tuple<$address> {
                self.tuple(0)
            }

            #[inline]
            fn reply(&self) -> Tuple<$address> {
                self.tuple(1)
            }

            #[inline]
            fn tuple(&self, direction: usize) -> Tuple<$address> {
                let $direction {
                    source,
                    destination,
                    ports,
                } = self.names[direction & 1];
                Tuple {
                    source,
                    destination,
                    ports,
                    place: self.place_of(direction),
                    protocol: self.protocol,
                }
            }

            #[inline(always)]
            fn is(&self, tuple: &Tuple<$address>, direction: usize) -> bool {
                // All bytes at once.
                self.names[direction & 1].as_bytes() == $direction::of(tuple).as_bytes()
                    && (self.place_of(direction), self.protocol) == (tuple.place, tuple.protocol)
            }

            #[inline(always)]
            fn place(&self) -> u16 {
                self.place
            }

            fn set_reply(&mut self, reply: &Tuple<$address>) {
                self.names[1] = $direction::of(reply);
            }

            #[inline(always)]
            fn generation(&self) -> u8 {
                self.generation
            }

            fn set_generation(&mut self, generation: u8) {
                self.generation = generation;
            }

            #[inline]
            fn links(&self) -> &Links {
                &self.links
            }

            #[inline]
            fn links_mut(&mut self) -> &mut Links {
                &mut self.links
            }
        }

        impl Deref for $name {
            type Target = Flow;

            #[inline]
            fn deref(&self) -> &Flow {
                &self.flow
            }
        }

        impl DerefMut for $name {
            #[inline]
            fn deref_mut(&mut self) -> &mut Flow {
                &mut self.flow
            }
        }
    };
}

record!(
    /// A flow of IPv4.
    Flow4, Direction4, [u8; 4]
);
record!(
    /// A flow of IPv6.
    Flow6, Direction6, [u8; 16]
);

/// What else finds a flow of TCP in place 0 that was judged by rules of this generation, in the
/// order of a record.
pub(super) fn kind_of(generation: u8) -> u32 {
    u32::from_le_bytes([0, 0, protocol::TCP, generation])
}

impl Flow4 {
    /// Whether a direction of it is this one: source and destination, and ports, as [`Direction4`]
    /// has them, and its [`kind_of`].
    #[inline(always)]
    pub(super) fn is_of(&self, addresses: u64, ports: u32, kind: u32, direction: usize) -> bool {
        const KIND: usize = core::mem::offset_of!(Flow4, place);
        let name: &[u8; 12] = zerocopy::transmute_ref!(&self.names[direction & 1]);
        let own: &[u8; size_of::<Self>()] = zerocopy::transmute_ref!(self);
        let [a, b, c, d, e, f, g, h, rest @ ..] = *name;
        let [.., v, w, p, o] = *own.first_chunk::<{ KIND + 4 }>().unwrap_or(&[0; KIND + 4]);
        u64::from_le_bytes([a, b, c, d, e, f, g, h]) == addresses
            && u32::from_le_bytes(rest) == ports
            && u32::from_le_bytes([v, w, p, o]) == kind
    }
}

impl Flow {
    pub(super) fn has(&self, bit: u8) -> bool {
        self.tracker.standing.status & bit != 0
    }

    /// Whether it is [`OPEN`], and has the timeouts of Linux.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        const BITS: u16 = u16::from_le_bytes([OPEN, under(0, POLICIES - 1)]);
        let Standing { status, queue } = self.tracker.standing;
        u16::from_le_bytes([status, queue]) & BITS == OPEN as u16
    }
}

/// Bits of a queue: its class, whether its flows are assured, and their [`policy`].
const CLASS_BITS: u8 = 0xf;
const ASSURED_BIT: u8 = 0x10;
const POLICY_SHIFT: u32 = 5;
/// Timeouts that flows may have at once, those of Linux among them, which have the number 0.
pub(super) const POLICIES: usize = 1 << (u8::BITS - POLICY_SHIFT);
/// Queues of one policy.
pub(super) const QUEUES_OF_POLICY: u8 = 1 << POLICY_SHIFT;

const _: () = assert!(Class::ALL.len() <= CLASS_BITS as usize + 1);

/// The queue of a class, of flows that have the timeouts of Linux.
pub(super) const fn queue_of(class: Class, assured: bool) -> u8 {
    class as u8 | if assured { ASSURED_BIT } else { 0 }
}

/// The class of a queue, and whether its flows are assured.
pub(super) fn class_of(queue: u8) -> Option<(Class, bool)> {
    let class = Class::ALL.get(usize::from(queue & CLASS_BITS))?;
    Some((*class, queue & ASSURED_BIT != 0))
}

/// Which timeouts the flows of a queue have.
#[inline(always)]
pub(super) const fn policy(queue: u8) -> usize {
    (queue >> POLICY_SHIFT) as usize
}

/// The queue of the same class that has these timeouts.
#[inline(always)]
pub(super) const fn under(queue: u8, policy: usize) -> u8 {
    (queue % QUEUES_OF_POLICY) | ((policy as u8) << POLICY_SHIFT)
}

/// What a protocol knows of its flow, and how that stands: that of TCP is a [`Tcp`], that of UDP
/// one number, and any other knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Tracker {
    numbers: [u32; 12],
    rest: [u8; 2],
    pub(super) standing: Standing,
}

impl Tracker {
    /// Of a protocol that knows nothing.
    pub(super) fn empty() -> Self {
        Self::new_zeroed()
    }

    pub(super) fn of_tcp(tcp: Tcp) -> Self {
        zerocopy::transmute!(tcp)
    }

    /// Of UDP: when it is a stream, if packets still come.
    pub(super) fn of_udp(stream: Ticks) -> Self {
        let mut tracker = Self::empty();
        tracker.set_stream(stream);
        tracker
    }

    #[inline]
    pub(super) fn tcp(&self) -> &Tcp {
        zerocopy::transmute_ref!(self)
    }

    #[inline]
    pub(super) fn tcp_mut(&mut self) -> &mut Tcp {
        zerocopy::transmute_mut!(self)
    }

    pub(super) fn set_stream(&mut self, stream: Ticks) {
        self.numbers[0] = stream.0;
    }

    #[inline]
    pub(super) fn stream(&self) -> Ticks {
        Ticks(self.numbers[0])
    }
}

/// Packets and bytes of each direction: 36 and 44 bits. They stay at their largest value.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Traffic {
    packets: [u32; 2],
    bytes: [u32; 2],
    /// The upper bits: 4 and 12.
    upper: [u16; 2],
}

impl Traffic {
    const PACKETS_MAX: u64 = (1 << 36) - 1;
    const BYTES_MAX: u64 = (1 << 44) - 1;

    /// So many of both directions.
    pub(super) fn of(packets: [u64; 2], bytes: [u64; 2]) -> Self {
        let mut traffic = Self::default();
        for direction in 0..2 {
            traffic.set(direction, packets[direction], bytes[direction]);
        }
        traffic
    }

    pub(super) fn packets(&self, direction: usize) -> u64 {
        u64::from(self.upper[direction] & 0xf) << 32 | u64::from(self.packets[direction])
    }

    pub(super) fn bytes(&self, direction: usize) -> u64 {
        u64::from(self.upper[direction] >> 4) << 32 | u64::from(self.bytes[direction])
    }

    #[inline(always)]
    pub(super) fn add(&mut self, direction: usize, bytes: u32) {
        let packets = self.packets[direction].checked_add(1);
        let more = self.bytes[direction].checked_add(bytes);
        match (packets, more) {
            (Some(packets), Some(bytes)) => {
                self.packets[direction] = packets;
                self.bytes[direction] = bytes;
            }
            _ => self.carry(direction, bytes),
        }
    }

    #[cold]
    fn carry(&mut self, direction: usize, bytes: u32) {
        let packets = self.packets(direction) + 1;
        let bytes = self.bytes(direction) + u64::from(bytes);
        self.set(direction, packets, bytes);
    }

    #[inline]
    fn set(&mut self, direction: usize, packets: u64, bytes: u64) {
        let packets = packets.min(Self::PACKETS_MAX);
        let bytes = bytes.min(Self::BYTES_MAX);
        self.packets[direction] = packets as u32;
        self.bytes[direction] = bytes as u32;
        self.upper[direction] = (packets >> 32) as u16 | ((bytes >> 32) as u16) << 4;
    }
}
