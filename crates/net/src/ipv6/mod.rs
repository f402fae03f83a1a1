//! IPv6 (RFC 8200) with Neighbour Discovery (RFC 4861) and addresses of one's own choice
//! (RFC 4862).

mod addresses;
mod advertiser;
mod discovery;
mod header;
mod icmp;
mod mld;
mod nd;
mod routers;
#[cfg(test)]
mod tests;

use crate::address::Prefix;
use crate::arp::Detect;
use crate::bucket::Bucket;
use crate::counts::{Counts, reasons};
use crate::ethernet::{Arrival, Link, Mac, Unaddressed};
use crate::groups::Groups;
use crate::icmp::{ERRORS_BURST, ERRORS_PER_SECOND, Messages, Refusal, Report};
use crate::ident::Idents;
use crate::ipv4::on_wire;
use crate::layer::{Filled, Unsent, uncovered, whole};
use crate::notes::Shelf;
use crate::path_mtu::PathMtu;
use crate::reassembly::{self, Fragment, Key, Reassembly};
use crate::routes::{Route, Routes};
use crate::version::{Addresses, Arrived, Packet, Received, Standing, Version};
pub use addresses::{ADDRESSES_MAX, Lifetimes};
pub use advertiser::{Advertised, SERVERS_MAX};
use core::net::Ipv6Addr;
use core::time::Duration;
use device::ethernet::TYPE_IPV6;
use device::{Frame, Pool};
use discovery::Discovery;
pub use discovery::Messages as Discovered;
use header::{Chain, FRAGMENT_SIZE, Header, Piece};
use icmp::Message;
use ports::Instant;

/// Bytes of the header that we send.
pub const HEADER: usize = header::SIZE;
/// Bytes of the largest payload.
pub const PAYLOAD_MAX: usize = 65_535;
/// What every link carries, in bytes (RFC 8200, 5).
pub const MTU_MIN: usize = 1280;

/// How long a packet may take to become whole (RFC 8200, 4.5).
const REASSEMBLY_TIME: Duration = Duration::from_secs(60);

reasons! {
    /// Why a received packet was dropped.
    pub enum Dropped {
        /// It is longer than its frame.
        Short = "ipv6_short",
        /// It is of another version.
        Version = "ipv6_version",
        /// Its source is not one station's address, or our own.
        Source = "ipv6_source",
        /// It is for another host.
        NotOurs = "ipv6_not_ours",
        /// It came to several stations and is for us alone.
        Broadcast = "ipv6_broadcast",
        /// An extension header is malformed, or there are too many.
        Extension = "ipv6_extension",
        /// It has an option that forbids to pass over it.
        Option = "ipv6_option",
        /// It is to be sent on to others.
        SourceRoute = "ipv6_source_route",
        /// Nothing follows its headers.
        Nothing = "ipv6_nothing",
        /// What was left to do to it lies outside of its payload.
        Offload = "ipv6_offload",
        /// It is an ICMPv6 message that is malformed.
        Icmp = "ipv6_icmp",
        /// It is a message of Neighbour Discovery that is malformed, or that we do not need.
        Discovery = "ipv6_discovery",
    }
}

/// IPv6 of one port.
pub struct Ipv6 {
    discovery: Discovery,
    groups: Groups<Ipv6Addr>,
    routes: Routes<Ipv6Addr>,
    paths: PathMtu<Ipv6Addr>,
    reassembly: Reassembly<Ipv6Addr>,
    /// Buffers of whole packets, for those that are cut.
    large: Pool,
    idents: Idents,
    errors: Bucket,
    dropped: Counts<Dropped>,
    messages: Counts<Messages>,
}

/// Where a packet goes on the link.
enum Hop {
    Neighbour(Ipv6Addr),
    Group(Mac),
}

/// The link address of a group (RFC 2464, 7).
fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

impl Ipv6 {
    /// Without an address. `large` are buffers for packets that come in fragments or are cut, of
    /// [`PAYLOAD_MAX`] bytes, a header of 40 and [`device::HEADROOM`]; `seed` varies numbers of
    /// packets and times.
    pub fn new(large: Pool, seed: u64) -> Self {
        Self {
            discovery: Discovery::new(seed),
            groups: Groups::new(seed),
            routes: Routes::default(),
            paths: PathMtu::default(),
            reassembly: Reassembly::new(large, PAYLOAD_MAX, REASSEMBLY_TIME),
            large,
            idents: Idents::new(seed),
            errors: Bucket::new(ERRORS_PER_SECOND, ERRORS_BURST),
            dropped: Counts::default(),
            messages: Counts::default(),
        }
    }

    /// The port is this VLAN of one that has others, at the same MAC address: addresses that are
    /// chosen are no other VLAN's. To be said before [`Self::autoconfigure`].
    pub fn on_vlan(&mut self, vlan: u16) {
        self.discovery.on_vlan(vlan);
    }

    /// Chooses a link-local address from `mac` (RFC 4862, 5.3), and asks routers for more.
    pub fn autoconfigure(&mut self, mac: Mac, detect: Detect, now: Instant) {
        self.discovery.start(mac, detect, now);
    }

    /// Is a router of this link from now on (RFC 4861, 6.2): hosts learn from it of the networks
    /// of our addresses, and who resolves names. What other routers tell is not heeded. `false` if
    /// there are too many groups.
    pub fn advertise(&mut self, advertised: Advertised, now: Instant) -> bool {
        self.discovery.advertise(advertised, now);
        self.groups.join(nd::ALL_ROUTERS, now)
    }

    /// Our addresses, in use or not yet.
    pub fn addresses(&self) -> impl Iterator<Item = Prefix<Ipv6Addr>> + '_ {
        self.discovery.addresses.iter()
    }

    /// Whether an address is ours to use.
    pub fn is_usable(&self, address: Ipv6Addr) -> bool {
        self.discovery.addresses.is_usable(address)
    }

    /// Whether somebody else turned out to have an address that we chose.
    pub fn is_lost(&self, address: Ipv6Addr) -> bool {
        self.discovery.addresses.is_duplicate(address)
    }

    /// What was dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// Fragments that were dropped.
    pub fn fragments(&self) -> &Counts<reassembly::Dropped> {
        self.reassembly.dropped()
    }

    /// Goes on with the neighbours of an earlier host, and notes down its own from now on.
    pub fn keep(&mut self, shelf: Shelf<Ipv6Addr>, now: Instant) {
        self.discovery.neighbours.keep(shelf, now);
    }

    /// Sends an error.
    fn tell<L: Link>(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv6Addr>,
        quoted: &[u8],
        why: Refusal,
        now: Instant,
    ) {
        self.messages.add(Messages::Errors);
        let len = icmp::error_len(quoted.len());
        let fill = |place: &mut [u8]| {
            icmp::write_error(place, why, quoted);
            icmp::complete(packet.source, packet.destination, place);
            Filled::new(len)
        };
        // Without a buffer or a way it is lost, as it may be on the link.
        let _ = self.write(link, packet, len, fill, now);
    }

    /// What went wrong with neighbours.
    pub fn trouble(&self) -> &Counts<crate::neighbour::Trouble> {
        self.discovery.neighbours.trouble()
    }

    #[inline]
    fn hop(&self, destination: Ipv6Addr, now: Instant) -> Result<Hop, Unsent> {
        if destination.is_multicast() {
            return Ok(Hop::Group(group_mac(destination)));
        }
        let told = || self.discovery.next_hop(destination, now);
        let next = self.routes.next_hop(destination).or_else(told);
        next.map(Hop::Neighbour).ok_or(Unsent::NoRoute)
    }

    /// Sends a packet that was prepared to its next hop.
    #[inline]
    fn send<L: Link>(
        &mut self,
        link: &mut L,
        hop: &Hop,
        packet: Unaddressed,
        now: Instant,
    ) -> Result<(), Unsent> {
        let mac = match *hop {
            Hop::Group(mac) => mac,
            Hop::Neighbour(next) => match self.discovery.neighbours.lookup(next, now) {
                Some(mac) => mac,
                // Nobody else answers for an address of ours.
                None if self.discovery.addresses.is_own(next) => return Err(Unsent::NoRoute),
                None => return self.discovery.hold(link, next, packet, now),
            },
        };
        link.address(mac, packet);
        Ok(())
    }

    /// Sends a packet in as many fragments as its path asks for (RFC 8200, 4.5).
    fn write_fragments<L: Link>(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv6Addr>,
        (size, mtu): (usize, usize),
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        if size > PAYLOAD_MAX {
            return Err(Unsent::TooBig);
        }
        let hop = self.hop(packet.destination, now)?;
        let whole = whole(&self.large, size, fill)?;

        let Packet {
            source,
            destination,
            protocol,
            ..
        } = packet;
        let id = self.idents.next(source, destination, protocol);
        // A multiple of eight bytes in each but the last.
        let most = (mtu - HEADER - FRAGMENT_SIZE) & !7;
        let pieces = whole.bytes().chunks(most).count();
        let header = header_of(&packet, header::FRAGMENT);
        for (n, bytes) in whole.bytes().chunks(most).enumerate() {
            let piece = Piece {
                id,
                offset: (n * most) as u16,
                more: n + 1 < pieces,
            };
            let len = FRAGMENT_SIZE + bytes.len();
            let frame = link.prepare(TYPE_IPV6, HEADER + len, |place| {
                emit(header, place, |place| {
                    if let Some((front, rest)) = place.split_first_chunk_mut() {
                        piece.emit(protocol, front);
                        rest.copy_from_slice(bytes);
                    }
                    Filled::new(len)
                })
            })?;
            self.send(link, &hop, frame, now)?;
        }
        Ok(())
    }

    /// Checks whom a packet is for; whether that is us alone.
    #[inline]
    fn check_addresses(&self, header: &Header, group: bool) -> Result<bool, Dropped> {
        let addresses = &self.discovery.addresses;
        // Nobody's address, and our own, come in Neighbour Discovery only.
        let odd = header.source.is_unspecified() || addresses.is_own(header.source);
        if odd && header.next != icmp::PROTOCOL {
            return Err(Dropped::Source);
        }
        let destination = header.destination;
        if addresses.is_usable(destination) {
            return if group {
                Err(Dropped::Broadcast)
            } else {
                Ok(true)
            };
        }
        let listens = destination.is_multicast()
            && (destination == nd::ALL_NODES
                || addresses.is_solicited(destination)
                || self.groups.contains(destination));
        if listens {
            Ok(false)
        } else {
            Err(Dropped::NotOurs)
        }
    }

    /// Takes a packet up to its transport header; `None` if it is not whole yet.
    #[inline]
    fn open(
        &mut self,
        frame: Frame,
        header: &Header,
        group: bool,
        now: Instant,
    ) -> Result<Option<Received<Ipv6Addr>>, Dropped> {
        let mut frame = frame;
        let unicast = self.check_addresses(header, group)?;
        frame.truncate(HEADER + usize::from(header.payload));
        let mut chain = header::walk(header.next, &frame.bytes()[HEADER..])?;
        let mut front = HEADER;
        if let Some(piece) = chain.piece {
            let Some(whole) = self.reassemble(&frame, header, chain, piece, now) else {
                return Ok(None);
            };
            frame = whole.frame;
            front = whole.header;
            chain = header::walk(whole.protocol, frame.bytes())?;
            if chain.piece.is_some() {
                return Err(Dropped::Extension);
            }
            frame
                .pop_front(chain.len)
                .then_some(())
                .ok_or(Dropped::Short)?;
        } else {
            uncovered(&mut frame, HEADER + chain.len).ok_or(Dropped::Offload)?;
        }
        Ok(Some(Received {
            source: header.source,
            destination: header.destination,
            unicast,
            protocol: chain.protocol,
            class: header.class,
            header: front + chain.len,
            frame,
        }))
    }

    fn reassemble(
        &mut self,
        frame: &Frame,
        header: &Header,
        chain: Chain,
        piece: Piece,
        now: Instant,
    ) -> Option<reassembly::Packet<Ipv6Addr>> {
        let packet = frame.bytes();
        let fragment = Fragment {
            key: Key {
                source: header.source,
                destination: header.destination,
                protocol: 0,
                id: piece.id,
            },
            header: &packet[..HEADER],
            protocol: chain.protocol,
            offset: piece.offset.into(),
            more: piece.more,
            payload: &packet[HEADER + chain.len..],
        };
        let mut whole = self.reassembly.insert(fragment, now)?;
        restore(&mut whole);
        Some(whole)
    }

    fn take_icmp<L: Link>(
        &mut self,
        link: &mut L,
        received: &Received<Ipv6Addr>,
        (from, hops): (Mac, u8),
        now: Instant,
    ) -> Option<Arrived<Ipv6Addr>> {
        let message = received.frame.bytes();
        let (source, destination) = (received.source, received.destination);
        self.messages.add(Messages::Received);
        match icmp::parse(source, destination, message) {
            Some(Message::Echo) if received.unicast && !source.is_unspecified() => {
                self.messages.add(Messages::Echoes);
                self.answer_echo(link, received, now);
            }
            Some(Message::Report(report)) if self.discovery.addresses.is_own(report.source) => {
                self.messages.add(Messages::Reports);
                return Some(Arrived::Report(report));
            }
            Some(Message::Discovery) => {
                let message = nd::parse(source, destination, hops, message, now);
                match message {
                    Some(message) => self.discovery.receive(link, source, from, message, now),
                    None => self.dropped.add(Dropped::Discovery),
                }
            }
            // RFC 3810, 6.2: a router on this link asks.
            Some(Message::Query) if source.is_unicast_link_local() => match mld::parse(message) {
                Some(query) => self.groups.asked(query, now),
                None => self.dropped.add(Dropped::Icmp),
            },
            Some(_) => {}
            None => self.dropped.add(Dropped::Icmp),
        }
        None
    }

    fn answer_echo<L: Link>(&mut self, link: &mut L, asked: &Received<Ipv6Addr>, now: Instant) {
        let message = asked.frame.bytes();
        let (own, peer) = (asked.destination, asked.source);
        let answer = Packet {
            class: asked.class,
            fragment: true,
            ..Packet::new(own, peer, icmp::PROTOCOL)
        };
        let fill = |place: &mut [u8]| {
            icmp::write_reply(place, message);
            icmp::complete(own, peer, place);
            Filled::new(message.len())
        };
        // Without a buffer or a way it is lost, as it may be on the link.
        let _ = self.write(link, answer, message.len(), fill, now);
    }
}

/// The header of a packet, without its length.
#[inline]
fn header_of(packet: &Packet<Ipv6Addr>, next: u8) -> Header {
    Header {
        class: packet.class,
        payload: 0,
        next,
        hops: packet.hops,
        source: packet.source,
        destination: packet.destination,
    }
}

/// Has the payload filled in, and writes the header in front of it.
#[inline]
fn emit(header: Header, place: &mut [u8], fill: impl FnOnce(&mut [u8]) -> Filled) -> Filled {
    let Some((front, payload)) = place.split_first_chunk_mut::<HEADER>() else {
        return Filled::new(0);
    };
    let filled = fill(payload);
    let header = Header {
        payload: filled.len as u16,
        ..header
    };
    header.emit(front);
    filled.behind(HEADER as u16)
}

/// Makes the first fragment's header that of the whole packet (RFC 8200, 4.5).
fn restore(whole: &mut reassembly::Packet<Ipv6Addr>) {
    let len = whole.frame.len() as u16;
    let Some(front) = whole.frame.push_front(whole.header) else {
        return;
    };
    front[4..6].copy_from_slice(&len.to_be_bytes());
    front[6] = whole.protocol;
    let _ = whole.frame.pop_front(whole.header);
}

impl Addresses for Ipv6 {
    type Address = Ipv6Addr;

    fn add_address(&mut self, address: Prefix<Ipv6Addr>, detect: Detect, now: Instant) -> bool {
        let route = Route {
            network: address,
            gateway: None,
        };
        let addresses = &mut self.discovery.addresses;
        addresses.add(address, detect, Lifetimes::INFINITE, now) && self.routes.add(route)
    }

    fn remove_address(&mut self, address: Ipv6Addr) {
        let own = self.addresses().find(|own| own.address() == address);
        if let Some(own) = own {
            self.discovery.addresses.remove(address);
            let shared = self.addresses().any(|other| other.is_same_network(&own));
            if !shared {
                self.routes.remove(own);
            }
        }
    }

    fn standing(&self, address: Ipv6Addr) -> Standing {
        let addresses = &self.discovery.addresses;
        if addresses.is_usable(address) {
            Standing::Usable
        } else if addresses.is_own(address) && !addresses.is_duplicate(address) {
            Standing::Tentative
        } else {
            Standing::Lost
        }
    }

    fn routes(&mut self) -> &mut Routes<Ipv6Addr> {
        &mut self.routes
    }

    fn limit_mtu(&mut self, mtu: usize) {
        self.discovery.mtu = mtu;
    }

    fn join(&mut self, group: Ipv6Addr, now: Instant) -> bool {
        // All listen to that one, and nobody is told (RFC 3810, 6).
        group == nd::ALL_NODES || group.is_multicast() && self.groups.join(group, now)
    }

    fn leave(&mut self, group: Ipv6Addr, now: Instant) {
        self.groups.leave(group, now);
    }
}

impl<L: Link> Version<L> for Ipv6 {
    fn source(&self, destination: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        self.hop(destination, now).ok()?;
        self.discovery.addresses.source(destination, now)
    }

    fn reach(&self, destination: Ipv6Addr, now: Instant) -> Option<u8> {
        self.hop(destination, now).ok()?;
        let route = self.routes.find(destination);
        let told = || self.discovery.on_link(destination, now);
        route
            .map(|route| route.network.bits())
            .or_else(told)
            .or(Some(0))
    }

    #[inline]
    fn mtu(&self, link: &L, destination: Ipv6Addr, now: Instant) -> usize {
        let link = link.mtu().min(self.discovery.mtu).min(HEADER + PAYLOAD_MAX);
        self.paths.get(destination, link, now)
    }

    #[inline]
    fn largest(&self, link: &L, destination: Ipv6Addr, now: Instant) -> usize {
        let packet = if link.offloads().tso {
            link.largest()
        } else {
            self.mtu(link, destination, now)
        };
        packet.saturating_sub(HEADER).min(PAYLOAD_MAX)
    }

    #[inline]
    fn write(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv6Addr>,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        let mtu = self.mtu(link, packet.destination, now);
        // The link is none for IPv6 (RFC 8200, 5).
        if mtu < MTU_MIN || size > PAYLOAD_MAX {
            return Err(Unsent::TooBig);
        }
        if packet.fragment && packet.pieces == 1 && HEADER + size > mtu {
            return self.write_fragments(link, packet, (size, mtu), fill, now);
        }
        let hop = self.hop(packet.destination, now)?;
        let header = header_of(&packet, packet.protocol);
        let mut fits = false;
        let frame = link.prepare(TYPE_IPV6, HEADER + size, |place| {
            let filled = emit(header, place, fill);
            fits = on_wire(filled) <= mtu;
            filled
        })?;
        if !fits {
            return Err(Unsent::TooBig);
        }
        self.send(link, &hop, frame, now)
    }

    #[inline]
    fn accept(
        &mut self,
        link: &mut L,
        arrival: Arrival,
        now: Instant,
    ) -> Option<Arrived<Ipv6Addr>> {
        let from = arrival.source;
        let opened = header::parse(arrival.frame.bytes()).and_then(|header| {
            let received = self.open(arrival.frame, &header, arrival.group, now)?;
            Ok((received, header.hops))
        });
        match opened {
            Ok((Some(received), hops)) if received.protocol == icmp::PROTOCOL => {
                self.take_icmp(link, &received, (from, hops), now)
            }
            Ok((received, _)) => received.map(Arrived::Packet),
            Err(reason) => {
                self.dropped.add(reason);
                None
            }
        }
    }

    fn refuse(
        &mut self,
        link: &mut L,
        mut refused: Received<Ipv6Addr>,
        why: Refusal,
        now: Instant,
    ) {
        // RFC 4443, 2.4 e: no error about an error, nor about what came to several.
        let answerable = refused.unicast
            && refused.protocol != icmp::PROTOCOL
            && !refused.source.is_unspecified();
        if !answerable || !self.errors.take(now) {
            return;
        }
        if refused.frame.push_front(refused.header).is_none() {
            return;
        }
        let packet = Packet::new(refused.destination, refused.source, icmp::PROTOCOL);
        self.tell(link, packet, refused.frame.bytes(), why, now);
    }

    fn forward(
        &mut self,
        link: &mut L,
        packet: Unaddressed,
        destination: Ipv6Addr,
        now: Instant,
    ) -> Result<(), Unsent> {
        let hop = self.hop(destination, now)?;
        self.send(link, &hop, packet, now)
    }

    fn complain(&mut self, link: &mut L, quoted: &[u8], why: Refusal, now: Instant) {
        let Ok(header) = header::parse(quoted) else {
            return;
        };
        let Some(Ok(chain)) = quoted
            .get(HEADER..)
            .map(|rest| header::walk(header.next, rest))
        else {
            return;
        };
        // RFC 4443, 2.4 e: no error about an error, nor about who cannot be answered.
        let kind = quoted.get(HEADER + chain.len);
        let is_error =
            chain.protocol == icmp::PROTOCOL && kind.is_none_or(|kind| icmp::is_error(*kind));
        let is_later = chain.piece.is_some_and(|piece| piece.offset != 0);
        let source = header.source;
        let is_station =
            !(source.is_unspecified() || source.is_multicast() || source.is_loopback());
        if is_error || is_later || !is_station || !self.errors.take(now) {
            return;
        }
        if let Some(own) = Version::<L>::source(self, source, now) {
            let packet = Packet::new(own, source, icmp::PROTOCOL);
            self.tell(link, packet, quoted, why, now);
        }
    }

    fn too_big(
        &mut self,
        link: &L,
        report: &Report<Ipv6Addr>,
        live: bool,
        now: Instant,
    ) -> Option<usize> {
        let current = Version::<L>::mtu(self, link, report.destination, now);
        self.paths.heed(current, report, live, now)
    }

    #[inline]
    fn confirm(&mut self, destination: Ipv6Addr, now: Instant) {
        if let Ok(Hop::Neighbour(next)) = self.hop(destination, now) {
            self.discovery.neighbours.confirm(next, now);
        }
    }

    fn resolve(&mut self, _: &mut L, _: Arrival, _: Instant) {}

    fn poll(&mut self, link: &mut L, now: Instant) {
        self.discovery.poll(link, now);
        while let Some(told) = self.groups.next(now) {
            let local = self.addresses().map(|own| own.address());
            let mut local = local.filter(Ipv6Addr::is_unicast_link_local);
            let source = local.find(|own| self.is_usable(*own));
            mld::send(link, source.unwrap_or(Ipv6Addr::UNSPECIFIED), &told);
        }
        while let Some(mut late) = self.reassembly.expire(now) {
            restore(&mut late);
            let late = Received {
                source: late.key.source,
                destination: late.key.destination,
                unicast: self.discovery.addresses.is_usable(late.key.destination),
                protocol: late.protocol,
                class: 0,
                header: late.header,
                frame: late.frame,
            };
            self.refuse(link, late, Refusal::Late, now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let discovery = self.discovery.deadline().into_iter();
        let groups = self.groups.deadline();
        discovery
            .chain(self.reassembly.deadline())
            .chain(groups)
            .min()
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.dropped.show(show);
        self.messages.show(show);
        self.reassembly.dropped().show(show);
        self.discovery.counts(show);
    }
}
