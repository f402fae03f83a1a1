//! What each version of IP gives to the layers above and to [`Ip`](crate::ip::Ip).

use crate::address::{Address, Prefix};
use crate::arp::Detect;
use crate::ethernet::{Arrival, Link, Unaddressed};
use crate::icmp::{Refusal, Report};
use crate::layer::{Filled, Unsent};
use crate::routes::Routes;
use core::net::IpAddr;
use device::Frame;
use ports::Instant;

/// Hops that a packet may make, unless who sends it says something else (RFC 1700, page 64).
pub const HOPS: u8 = 64;

/// A packet that is to be sent, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<A = IpAddr> {
    /// Our own address.
    pub source: A,
    /// Where it goes.
    pub destination: A,
    /// Protocol of the payload.
    pub protocol: u8,
    /// DSCP and ECN (RFC 2474, RFC 3168).
    pub class: u8,
    /// Hops that it may make.
    pub hops: u8,
    /// Whether it is cut into fragments if it exceeds what the path carries. If not, it is not sent
    /// then, and routers on the way must not cut it either.
    pub fragment: bool,
    /// Into how many packets the port cuts it ([`Offload::gso`](device::Offload)), if more than
    /// one. Each fits the path, and has a number of its own.
    pub pieces: u16,
}

impl<A> Packet<A> {
    /// With no class, [`HOPS`], and not to be cut.
    pub fn new(source: A, destination: A, protocol: u8) -> Self {
        Self {
            source,
            destination,
            protocol,
            class: 0,
            hops: HOPS,
            fragment: false,
            pieces: 1,
        }
    }

    /// The same, with addresses of another type.
    pub(crate) fn between<B>(&self, source: B, destination: B) -> Packet<B> {
        Packet {
            source,
            destination,
            protocol: self.protocol,
            class: self.class,
            hops: self.hops,
            fragment: self.fragment,
            pieces: self.pieces,
        }
    }
}

/// A packet that was received whole, for a protocol above.
#[derive(Debug)]
pub struct Received<A = IpAddr> {
    /// Who sent it: one station.
    pub source: A,
    /// Whom it is for.
    pub destination: A,
    /// Whether that is an address of our own, not a group and not everybody.
    pub unicast: bool,
    /// Protocol of the payload.
    pub protocol: u8,
    /// DSCP and ECN.
    pub class: u8,
    /// Bytes of network header in front of the payload, popped off the frame.
    pub header: usize,
    /// Transport header and payload, and what was left to do about them.
    pub frame: Frame,
}

impl<A: Address> Received<A> {
    pub(crate) fn any(self) -> Received {
        Received {
            source: self.source.into(),
            destination: self.destination.into(),
            unicast: self.unicast,
            protocol: self.protocol,
            class: self.class,
            header: self.header,
            frame: self.frame,
        }
    }
}

/// What a frame brought to the layers above.
#[derive(Debug)]
pub enum Arrived<A = IpAddr> {
    /// A packet.
    Packet(Received<A>),
    /// An error about a packet that claims to be ours: whoever owns its transport header decides
    /// whether to believe it.
    Report(Report<A>),
}

impl<A: Address> Arrived<A> {
    pub(crate) fn any(self) -> Arrived {
        match self {
            Self::Packet(received) => Arrived::Packet(received.any()),
            Self::Report(report) => {
                let (source, destination) = (report.source.into(), report.destination.into());
                Arrived::Report(report.between(source, destination))
            }
        }
    }
}

/// What has become of an address that we want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Whether somebody else has it is not known yet.
    Tentative,
    /// It is ours to use.
    Usable,
    /// Somebody else has it, or nobody has claimed it here.
    Lost,
}

/// Addresses and routes of a version, which come and go.
pub trait Addresses {
    /// Its addresses.
    type Address: Address;

    /// Adds an address, and the route to its network; `false` if there are too many.
    fn add_address(&mut self, address: Prefix<Self::Address>, detect: Detect, now: Instant)
    -> bool;

    /// Removes an address, and the route to its network if that was the last one in it.
    fn remove_address(&mut self, address: Self::Address);

    /// What has become of an address.
    fn standing(&self, address: Self::Address) -> Standing;

    /// Routes beside those that routers tell.
    fn routes(&mut self) -> &mut Routes<Self::Address>;

    /// No packet is larger than this from now on, whatever the port could carry.
    fn limit_mtu(&mut self, mtu: usize);

    /// Listens to a group, and tells routers; `false` if it is none, or if there are too many.
    fn join(&mut self, group: Self::Address, now: Instant) -> bool;

    /// Listens to a group no more.
    fn leave(&mut self, group: Self::Address, now: Instant);
}

/// A version of IP over a link.
pub trait Version<L: Link>: Addresses {
    /// Which of our addresses packets to `destination` come from; `None` if no route leads there.
    fn source(&self, destination: Self::Address, now: Instant) -> Option<Self::Address>;

    /// Bits of the network to which the route to `destination` leads, the longest of several: 0 if
    /// that is any network, or `destination` are several hosts. `None` if no route leads there.
    fn reach(&self, destination: Self::Address, now: Instant) -> Option<u8>;

    /// Largest packet that the whole path to `destination` is known to carry, in bytes.
    fn mtu(&self, link: &L, destination: Self::Address, now: Instant) -> usize;

    /// Most bytes of transport header and payload that one [`Self::write`] takes: more than the MTU
    /// leaves if segmentation is left to the port.
    fn largest(&self, link: &L, destination: Self::Address, now: Instant) -> usize;

    /// Sends a packet of at most `size` bytes behind IP's header, which `fill` writes.
    ///
    /// # Errors
    /// Why it was not sent.
    fn write(
        &mut self,
        link: &mut L,
        packet: Packet<Self::Address>,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent>;

    /// Takes a packet that arrived.
    fn accept(
        &mut self,
        link: &mut L,
        arrival: Arrival,
        now: Instant,
    ) -> Option<Arrived<Self::Address>>;

    /// Tells the sender of a packet that nobody takes it, unless it sent too many of those.
    fn refuse(
        &mut self,
        link: &mut L,
        refused: Received<Self::Address>,
        why: Refusal,
        now: Instant,
    );

    /// Sends a packet on that is not ours, to whom the routes to `destination` name.
    ///
    /// # Errors
    /// Why it was not sent.
    fn forward(
        &mut self,
        link: &mut L,
        packet: Unaddressed,
        destination: Self::Address,
        now: Instant,
    ) -> Result<(), Unsent>;

    /// Tells the sender of a packet, which `quoted` is from its network header on, why it is not
    /// sent on; unless nobody may be told of it, or too many were.
    fn complain(&mut self, link: &mut L, quoted: &[u8], why: Refusal, now: Instant);

    /// A packet of ours was too big on its way. `live` is whether the quoted one is in flight.
    /// Returns the path's MTU if that became less.
    fn too_big(
        &mut self,
        link: &L,
        report: &Report<Self::Address>,
        live: bool,
        now: Instant,
    ) -> Option<usize>;

    /// What we send to `destination` is known to arrive (RFC 4861, 7.3.1).
    fn confirm(&mut self, destination: Self::Address, now: Instant);

    /// Takes a message that belongs to this version beside its packets: ARP.
    fn resolve(&mut self, link: &mut L, arrival: Arrival, now: Instant);

    /// Does what is due.
    fn poll(&mut self, link: &mut L, now: Instant);

    /// When [`Self::poll`] has something to do.
    fn deadline(&self) -> Option<Instant>;

    /// Shows what was counted, by name.
    fn counts(&self, show: &mut dyn FnMut(&'static str, u64));
}
