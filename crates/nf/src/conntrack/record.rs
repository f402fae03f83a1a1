//! A flow as it lies in memory: plain data, little endian, for it may outlive the image.
//!
//! Of a record, what names the flow is written before it is [`status::CONFIRMED`] and never again,
//! and packets change its [`Flow`]. Its [`Links`] are an index, which each image makes anew.

use super::flows::NONE;
use super::tcp::Tcp;
use super::timeout::{Class, Ticks};
use super::tuple::{self, Address, Tuple};
use crate::key::protocol;
use core::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bits of `status`, which are those of nft's `ct status`.
pub(super) mod status {
    pub const SEEN_REPLY: u8 = 2;
    pub const ASSURED: u8 = 4;
    /// It can be found. It is the last thing that is written of a flow.
    pub const CONFIRMED: u8 = 8;
}

/// Identifiers of VLANs have twelve bits.
const VLAN_MAX: u16 = 0xfff;

/// What packets change of a flow, and what rules see of it beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Flow {
    /// Bits of [`status`].
    pub(super) status: u8,
    /// Its class, and whether it is assured: see [`queue_of`].
    pub(super) queue: u8,
    reserved: [u8; 2],
    pub(super) deadline: Ticks,
    pub(super) mark: u32,
    pub(super) traffic: [Traffic; 2],
    pub(super) tracker: Tracker,
}

/// Where a flow stands in the index.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Links {
    /// The next direction in the bucket of each direction.
    pub(super) chain: [u32; 2],
    pub(super) older: u32,
    pub(super) newer: u32,
}

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
    fn new(tuple: &Tuple<Self::Address>, tracker: Tracker) -> Self;

    /// What names its original direction.
    fn name(&self) -> Tuple<Self::Address>;

    fn links(&self) -> &Links;

    fn links_mut(&mut self) -> &mut Links;

    /// One direction of it; 0 is the original one.
    #[inline]
    fn tuple(&self, direction: usize) -> Tuple<Self::Address> {
        let original = self.name();
        match direction {
            0 => original,
            // What has no other direction never became a flow.
            _ => original.reversed().unwrap_or(original),
        }
    }

    /// Whether a direction of it is this one.
    #[inline]
    fn is(&self, tuple: &Tuple<Self::Address>, direction: usize) -> bool {
        self.name().protocol == tuple.protocol && self.tuple(direction) == *tuple
    }

    /// Whether an image can have left this of a flow that is confirmed.
    fn is_sound(&self) -> bool {
        let name = self.name();
        let Some((class, assured)) = class_of(self.queue) else {
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
        let bits = status::SEEN_REPLY | status::ASSURED | status::CONFIRMED;
        fits && self.has(status::CONFIRMED)
            && self.status & !bits == 0
            && self.has(status::ASSURED) == assured
            && name.vlan <= VLAN_MAX
    }
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $address:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(super) struct $name {
            source: $address,
            destination: $address,
            ports: [u16; 2],
            vlan: u16,
            protocol: u8,
            reserved: u8,
            links: Links,
            flow: Flow,
        }

        impl Record for $name {
            type Address = $address;

            fn new(tuple: &Tuple<$address>, tracker: Tracker) -> Self {
                let unlinked = Links {
                    chain: [NONE; 2],
                    older: NONE,
                    newer: NONE,
                };
                Self {
                    source: tuple.source,
                    destination: tuple.destination,
                    ports: tuple.ports,
                    vlan: tuple.vlan,
                    protocol: tuple.protocol,
                    reserved: 0,
                    links: unlinked,
                    flow: Flow {
                        tracker,
                        ..Flow::new_zeroed()
                    },
                }
            }

            #[inline]
            fn name(&self) -> Tuple<$address> {
                Tuple {
                    source: self.source,
                    destination: self.destination,
                    ports: self.ports,
                    vlan: self.vlan,
                    protocol: self.protocol,
                }
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
    Flow4, [u8; 4]
);
record!(
    /// A flow of IPv6.
    Flow6, [u8; 16]
);

impl Flow {
    pub(super) fn has(&self, bit: u8) -> bool {
        self.status & bit != 0
    }
}

/// The queue of a class.
pub(super) fn queue_of(class: Class, assured: bool) -> u8 {
    class as u8 + if assured { Class::ALL.len() as u8 } else { 0 }
}

/// The class of a queue, and whether its flows are assured.
pub(super) fn class_of(queue: u8) -> Option<(Class, bool)> {
    let (queue, classes) = (usize::from(queue), Class::ALL.len());
    let class = Class::ALL.get(queue % classes)?;
    (queue < 2 * classes).then_some((*class, queue >= classes))
}

/// What a protocol knows of its flow: that of TCP is a [`Tcp`], that of UDP one number, and any
/// other knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(super) struct Tracker([u32; size_of::<Tcp>() / 4]);

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
        tracker.0[0] = stream.0;
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

    #[inline]
    pub(super) fn stream(&self) -> Ticks {
        Ticks(self.0[0])
    }
}

/// Packets and bytes of one direction: 44 and 52 bits. Both stay at their largest value.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(super) struct Traffic {
    packets: u32,
    bytes: u32,
    /// The upper bits: 12 and 20.
    upper: u32,
}

impl Traffic {
    const PACKETS_MAX: u64 = (1 << 44) - 1;
    const BYTES_MAX: u64 = (1 << 52) - 1;

    pub(super) fn packets(self) -> u64 {
        u64::from(self.upper & 0xfff) << 32 | u64::from(self.packets)
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.upper >> 12) << 32 | u64::from(self.bytes)
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: u32) {
        let packets = (self.packets() + 1).min(Self::PACKETS_MAX);
        let bytes = (self.bytes() + u64::from(bytes)).min(Self::BYTES_MAX);
        (self.packets, self.bytes) = (packets as u32, bytes as u32);
        self.upper = (packets >> 32) as u32 | ((bytes >> 32) as u32) << 12;
    }
}
