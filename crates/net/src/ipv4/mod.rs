//! IPv4 (RFC 791; RFC 1122, 3).

mod header;
mod icmp;
mod igmp;
#[cfg(test)]
mod tests;

use crate::address::Prefix;
use crate::arp::{Arp, Detect, Resolve};
use crate::bucket::Bucket;
use crate::counts::{Counts, reasons};
use crate::ethernet::{Arrival, Link, Mac, Unaddressed};
use crate::groups::Groups;
use crate::icmp::{ERRORS_BURST, ERRORS_PER_SECOND, Messages, Refusal, Report};
use crate::ident::Idents;
use crate::layer::{Filled, Unsent, uncovered, whole};
use crate::notes::Shelf;
use crate::path_mtu::PathMtu;
use crate::reassembly::{self, Fragment, Key, Reassembly};
use crate::routes::{Route, Routes};
use crate::version::{Addresses, Arrived, Packet, Received, Standing, Version};
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use core::time::Duration;
use device::ethernet::TYPE_IPV4;
use device::{Frame, Offload, Pool};
use header::Header;
use icmp::Message;
use ports::Instant;

/// Addresses of one port.
pub const ADDRESSES_MAX: usize = crate::arp::CLAIMS_MAX;

/// Bytes of the header that we send.
pub const HEADER: usize = header::SIZE;
/// Bytes of the largest packet.
pub const PACKET_MAX: usize = 65_535;

/// How long a packet may take to become whole: Linux's time. RFC 1122, 3.3.2 asks for a minute or
/// more, in which its number comes up again.
const REASSEMBLY_TIME: Duration = Duration::from_secs(30);
/// Every host listens to this group (RFC 1112, 4).
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

reasons! {
    /// Why a received packet was dropped.
    pub enum Dropped {
        /// It is longer than its frame.
        Short = "ipv4_short",
        /// It is of another version.
        Version = "ipv4_version",
        /// Its lengths contradict each other.
        Length = "ipv4_length",
        /// Its header's checksum is wrong.
        Checksum = "ipv4_checksum",
        /// Its options are malformed.
        Options = "ipv4_options",
        /// It tells us the way of our answer.
        SourceRoute = "ipv4_source_route",
        /// Its source is not one station's address, or our own.
        Source = "ipv4_source",
        /// It is for another host.
        NotOurs = "ipv4_not_ours",
        /// It came to everybody and is for us alone (RFC 1122, 3.3.6).
        Broadcast = "ipv4_broadcast",
        /// What was left to do to it lies outside of its payload.
        Offload = "ipv4_offload",
        /// It is an ICMP message that is malformed.
        Icmp = "ipv4_icmp",
        /// It is an IGMP message that is malformed.
        Igmp = "ipv4_igmp",
    }
}

/// IPv4 of one port, over ARP or what takes its place.
pub struct Ipv4<R = Arp> {
    resolver: R,
    addresses: ArrayVec<Prefix<Ipv4Addr>, ADDRESSES_MAX>,
    groups: Groups<Ipv4Addr>,
    routes: Routes<Ipv4Addr>,
    /// Largest packet on this link, as a server of DHCP says.
    mtu: usize,
    paths: PathMtu<Ipv4Addr>,
    reassembly: Reassembly<Ipv4Addr>,
    /// Buffers of whole packets, for those that are cut.
    large: Pool,
    idents: Idents,
    errors: Bucket,
    dropped: Counts<Dropped>,
    messages: Counts<Messages>,
}

/// Where a packet goes on the link.
enum Hop {
    Neighbour(Ipv4Addr),
    Group(Mac),
}

/// The link address of a group (RFC 1112, 6.4).
fn group_mac(group: Ipv4Addr) -> Mac {
    let [_, b, c, d] = group.octets();
    Mac([1, 0, 0x5e, b & 0x7f, c, d])
}

impl Ipv4<Arp> {
    /// Without an address. `large` are buffers for packets that come in fragments or are cut, of
    /// [`PACKET_MAX`] bytes and [`device::HEADROOM`]; `seed` varies numbers of packets and times.
    pub fn new(large: Pool, seed: u64) -> Self {
        Self::over(Arp::new(seed), large, seed)
    }

    /// Goes on with the neighbours of an earlier host, and notes down its own from now on.
    pub fn keep(&mut self, shelf: Shelf<Ipv4Addr>, now: Instant) {
        self.resolver.keep(shelf, now);
    }
}

impl<R: Resolve> Ipv4<R> {
    /// The same, over another way to find link addresses.
    pub fn over(resolver: R, large: Pool, seed: u64) -> Self {
        Self {
            resolver,
            addresses: ArrayVec::new(),
            groups: Groups::new(seed),
            routes: Routes::default(),
            mtu: usize::MAX,
            paths: PathMtu::default(),
            reassembly: Reassembly::new(large, PACKET_MAX - HEADER, REASSEMBLY_TIME),
            large,
            idents: Idents::new(seed),
            errors: Bucket::new(ERRORS_PER_SECOND, ERRORS_BURST),
            dropped: Counts::default(),
            messages: Counts::default(),
        }
    }

    /// Our addresses, in use or not yet.
    pub fn addresses(&self) -> &[Prefix<Ipv4Addr>] {
        &self.addresses
    }

    /// What finds link addresses.
    pub fn resolver(&self) -> &R {
        &self.resolver
    }

    /// What was dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// Fragments that were dropped.
    pub fn fragments(&self) -> &Counts<reassembly::Dropped> {
        self.reassembly.dropped()
    }

    #[inline]
    fn is_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|own| own.address() == address)
    }

    #[inline]
    fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let mut own = self.addresses.iter();
        address.is_broadcast() || own.any(|own| own.broadcast() == Some(address))
    }

    #[inline]
    fn hop(&self, destination: Ipv4Addr) -> Result<Hop, Unsent> {
        if destination.is_multicast() {
            return Ok(Hop::Group(group_mac(destination)));
        }
        if self.is_broadcast(destination) {
            return Ok(Hop::Group(Mac::BROADCAST));
        }
        let next = self.routes.next_hop(destination).ok_or(Unsent::NoRoute)?;
        Ok(Hop::Neighbour(next))
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
            Hop::Neighbour(next) => match self.resolver.lookup(next, now) {
                Some(mac) => mac,
                // Nobody else answers for an address of ours.
                None if self.is_own(next) => return Err(Unsent::NoRoute),
                None => return self.resolver.hold(link, next, packet, now),
            },
        };
        link.address(mac, packet);
        Ok(())
    }

    /// Sends a packet in as many fragments as its path asks for (RFC 791, 2.3).
    fn write_fragments<L: Link>(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv4Addr>,
        (size, mtu): (usize, usize),
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        if HEADER + size > PACKET_MAX {
            return Err(Unsent::TooBig);
        }
        let hop = self.hop(packet.destination)?;
        let whole = whole(&self.large, size, fill)?;

        let id = self
            .idents
            .next(packet.source, packet.destination, packet.protocol);
        // A multiple of eight bytes in each but the last.
        let most = (mtu - HEADER) & !7;
        let pieces = whole.bytes().chunks(most).count();
        for (n, piece) in whole.bytes().chunks(most).enumerate() {
            let mut header = header_of(&packet, piece.len());
            header.id = id as u16;
            header.offset = (n * most) as u16;
            header.more = n + 1 < pieces;
            let frame = link.prepare(TYPE_IPV4, HEADER + piece.len(), |place| {
                emit(&header, place, |payload| {
                    payload.copy_from_slice(piece);
                    Filled::new(piece.len())
                })
            })?;
            self.send(link, &hop, frame, now)?;
        }
        Ok(())
    }

    /// Checks whom a packet is for; whether that is us alone.
    #[inline]
    fn check_addresses(&self, header: &Header, group: bool) -> Result<bool, Dropped> {
        if self.is_broadcast(header.source) || self.is_own(header.source) {
            return Err(Dropped::Source);
        }
        let destination = header.destination;
        if self.resolver.is_usable(destination) {
            return if group {
                Err(Dropped::Broadcast)
            } else if header.source.is_unspecified() {
                // Nobody can answer (RFC 1122, 3.2.1.3 a).
                Err(Dropped::Source)
            } else {
                Ok(true)
            };
        }
        let listens = self.is_broadcast(destination)
            || destination == ALL_HOSTS
            || self.groups.contains(destination);
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
        arrival: Arrival,
        now: Instant,
    ) -> Result<Option<Received<Ipv4Addr>>, Dropped> {
        let mut frame = arrival.frame;
        let (header, len) = header::parse(frame.bytes())?;
        let unicast = self.check_addresses(&header, arrival.group)?;
        frame.truncate(header.total.into());
        if header.is_fragment() {
            return Ok(self.reassemble(&frame, &header, len, now));
        }
        uncovered(&mut frame, len).ok_or(Dropped::Offload)?;
        Ok(Some(Received {
            source: header.source,
            destination: header.destination,
            unicast,
            protocol: header.protocol,
            class: header.class,
            header: len,
            frame,
        }))
    }

    fn reassemble(
        &mut self,
        frame: &Frame,
        header: &Header,
        len: usize,
        now: Instant,
    ) -> Option<Received<Ipv4Addr>> {
        let packet = frame.bytes();
        let fragment = Fragment {
            key: Key {
                source: header.source,
                destination: header.destination,
                protocol: header.protocol,
                id: header.id.into(),
            },
            // Options are not needed any more.
            header: &packet[..HEADER],
            protocol: header.protocol,
            offset: header.offset.into(),
            more: header.more,
            payload: &packet[len..],
        };
        let whole = self.reassembly.insert(fragment, now)?;
        Some(self.received(whole))
    }

    /// A packet that was put together.
    fn received(&self, packet: reassembly::Packet<Ipv4Addr>) -> Received<Ipv4Addr> {
        let mut frame = packet.frame;
        let total = packet.header + frame.len();
        let class = match frame.push_front(packet.header) {
            Some(header) => {
                header[0] = 0x45;
                header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
                // Not a fragment any more.
                header[6..8].fill(0);
                header[1]
            }
            None => 0,
        };
        let _ = frame.pop_front(packet.header);
        Received {
            source: packet.key.source,
            destination: packet.key.destination,
            unicast: self.is_own(packet.key.destination),
            protocol: packet.protocol,
            class,
            header: packet.header,
            frame,
        }
    }

    /// Sends an error.
    fn tell<L: Link>(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv4Addr>,
        quoted: &[u8],
        why: Refusal,
        now: Instant,
    ) {
        self.messages.add(Messages::Errors);
        let len = icmp::error_len(quoted.len());
        let fill = |place: &mut [u8]| {
            icmp::write_error(place, why, quoted);
            Filled::new(len)
        };
        // Without a buffer or a way it is lost, as it may be on the link.
        let _ = self.write(link, packet, len, fill, now);
    }

    fn take_icmp<L: Link>(
        &mut self,
        link: &mut L,
        received: &Received<Ipv4Addr>,
        now: Instant,
    ) -> Option<Arrived<Ipv4Addr>> {
        let message = received.frame.bytes();
        self.messages.add(Messages::Received);
        match icmp::parse(message) {
            // Who asks everybody gets no answer (RFC 1122, 3.2.2.6 allows that).
            Some(Message::Echo) if received.unicast => {
                self.messages.add(Messages::Echoes);
                let answer = Packet {
                    class: received.class,
                    fragment: true,
                    ..Packet::new(received.destination, received.source, icmp::PROTOCOL)
                };
                // Without a buffer or a way it is lost, as it may be on the link.
                let _ = self.write(
                    link,
                    answer,
                    message.len(),
                    |place| {
                        icmp::write_reply(place, message);
                        Filled::new(message.len())
                    },
                    now,
                );
                None
            }
            Some(Message::Report(report)) if self.is_own(report.source) => {
                self.messages.add(Messages::Reports);
                Some(Arrived::Report(report))
            }
            Some(_) => None,
            None => {
                self.dropped.add(Dropped::Icmp);
                None
            }
        }
    }
}

/// The header of a packet with so many bytes of payload.
#[inline]
fn header_of(packet: &Packet<Ipv4Addr>, payload: usize) -> Header {
    Header {
        class: packet.class,
        total: (HEADER + payload) as u16,
        // A packet that is never cut needs no number (RFC 6864, 4.1).
        id: 0,
        dont_fragment: !packet.fragment,
        more: false,
        offset: 0,
        hops: packet.hops,
        protocol: packet.protocol,
        source: packet.source,
        destination: packet.destination,
    }
}

/// Has the payload filled in, and writes the header in front of it.
#[inline]
fn emit(header: &Header, place: &mut [u8], fill: impl FnOnce(&mut [u8]) -> Filled) -> Filled {
    let Some((front, payload)) = place.split_first_chunk_mut::<HEADER>() else {
        return Filled::new(0);
    };
    let filled = fill(payload);
    let header = Header {
        total: (HEADER + filled.len) as u16,
        ..*header
    };
    header.emit(front);
    filled.behind(HEADER as u16)
}

/// Bytes of the largest packet that `filled`, header included, makes on the wire.
#[inline]
pub(crate) fn on_wire(filled: Filled) -> usize {
    match filled.offload {
        Offload { gso: Some(gso), .. } => gso.segment_bytes(),
        Offload { gso: None, .. } => filled.len,
    }
}

impl<R: Resolve> Addresses for Ipv4<R> {
    type Address = Ipv4Addr;

    fn add_address(&mut self, address: Prefix<Ipv4Addr>, detect: Detect, now: Instant) -> bool {
        self.remove_address(address.address());
        let route = Route {
            network: address,
            gateway: None,
        };
        self.addresses.try_push(address).is_ok()
            && self.resolver.claim(address.address(), detect, now)
            && self.routes.add(route)
    }

    fn remove_address(&mut self, address: Ipv4Addr) {
        let place = self
            .addresses
            .iter()
            .position(|own| own.address() == address);
        if let Some(place) = place {
            let removed = self.addresses.remove(place);
            self.resolver.release(address);
            let mut others = self.addresses.iter();
            if !others.any(|other| other.is_same_network(&removed)) {
                self.routes.remove(removed);
            }
        }
    }

    fn standing(&self, address: Ipv4Addr) -> Standing {
        if self.resolver.is_usable(address) {
            Standing::Usable
        } else if self.is_own(address) && !self.resolver.is_lost(address) {
            Standing::Tentative
        } else {
            Standing::Lost
        }
    }

    fn routes(&mut self) -> &mut Routes<Ipv4Addr> {
        &mut self.routes
    }

    fn limit_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    fn join(&mut self, group: Ipv4Addr, now: Instant) -> bool {
        // All listen to that one, and nobody is told (RFC 3376, 5).
        group == ALL_HOSTS || group.is_multicast() && self.groups.join(group, now)
    }

    fn leave(&mut self, group: Ipv4Addr, now: Instant) {
        self.groups.leave(group, now);
    }
}

impl<L: Link, R: Resolve> Version<L> for Ipv4<R> {
    fn source(&self, destination: Ipv4Addr, _: Instant) -> Option<Ipv4Addr> {
        let usable = || {
            let own = self.addresses.iter();
            own.filter(|own| self.resolver.is_usable(own.address()))
        };
        let first = || usable().next();
        let chosen = match self.hop(destination).ok()? {
            Hop::Group(_) => {
                let network = usable().find(|own| own.broadcast() == Some(destination));
                network.or_else(first)
            }
            Hop::Neighbour(next) => usable().find(|own| own.contains(next)).or_else(first),
        };
        chosen.map(Prefix::address)
    }

    fn reach(&self, destination: Ipv4Addr, _: Instant) -> Option<u8> {
        self.hop(destination).ok()?;
        let route = self.routes.find(destination);
        Some(route.map_or(0, |route| route.network.bits()))
    }

    #[inline]
    fn mtu(&self, link: &L, destination: Ipv4Addr, now: Instant) -> usize {
        let link = link.mtu().min(self.mtu).min(PACKET_MAX);
        self.paths.get(destination, link, now)
    }

    #[inline]
    fn largest(&self, link: &L, destination: Ipv4Addr, now: Instant) -> usize {
        let packet = if link.offloads().tso {
            link.largest().min(PACKET_MAX)
        } else {
            self.mtu(link, destination, now)
        };
        packet.saturating_sub(HEADER)
    }

    #[inline]
    fn write(
        &mut self,
        link: &mut L,
        packet: Packet<Ipv4Addr>,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        let mtu = self.mtu(link, packet.destination, now);
        // Fragments carry at least eight bytes.
        if mtu < HEADER + 8 {
            return Err(Unsent::TooBig);
        }
        if packet.fragment && packet.pieces == 1 && HEADER + size > mtu {
            return self.write_fragments(link, packet, (size, mtu), fill, now);
        }
        if HEADER + size > PACKET_MAX {
            return Err(Unsent::TooBig);
        }
        let hop = self.hop(packet.destination)?;
        let mut header = header_of(&packet, 0);
        if packet.fragment {
            // Routers may cut it.
            let Packet {
                source,
                destination,
                protocol,
                pieces,
                ..
            } = packet;
            header.id = self.idents.first(source, destination, protocol, pieces) as u16;
        }
        let mut fits = false;
        let frame = link.prepare(TYPE_IPV4, HEADER + size, |place| {
            let filled = emit(&header, place, fill);
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
    ) -> Option<Arrived<Ipv4Addr>> {
        match self.open(arrival, now) {
            Ok(Some(received)) if received.protocol == icmp::PROTOCOL => {
                self.take_icmp(link, &received, now)
            }
            Ok(Some(received)) if received.protocol == igmp::PROTOCOL => {
                match igmp::parse(received.frame.bytes()) {
                    Some(query) => query.inspect(|query| self.groups.asked(*query, now)),
                    None => {
                        self.dropped.add(Dropped::Igmp);
                        None
                    }
                };
                None
            }
            Ok(received) => received.map(Arrived::Packet),
            Err(reason) => {
                self.dropped.add(reason);
                None
            }
        }
    }

    fn refuse(
        &mut self,
        link: &mut L,
        mut refused: Received<Ipv4Addr>,
        why: Refusal,
        now: Instant,
    ) {
        // RFC 1122, 3.2.2: no error about an error, nor about what came to several.
        let answerable = refused.unicast
            && refused.protocol != icmp::PROTOCOL
            && !refused.source.is_unspecified();
        if !answerable || !self.errors.take(now) {
            return;
        }
        if refused.frame.push_front(refused.header).is_none() {
            return;
        }
        let packet = Packet {
            fragment: true,
            ..Packet::new(refused.destination, refused.source, icmp::PROTOCOL)
        };
        self.tell(link, packet, refused.frame.bytes(), why, now);
    }

    fn forward(
        &mut self,
        link: &mut L,
        packet: Unaddressed,
        destination: Ipv4Addr,
        now: Instant,
    ) -> Result<(), Unsent> {
        let hop = self.hop(destination)?;
        self.send(link, &hop, packet, now)
    }

    fn complain(&mut self, link: &mut L, quoted: &[u8], why: Refusal, now: Instant) {
        let Ok((header, len)) = header::parse(quoted) else {
            return;
        };
        // RFC 1812, 4.3.2.7.
        let is_error = header.protocol == icmp::PROTOCOL
            && quoted.get(len).is_none_or(|kind| !icmp::is_question(*kind));
        let source = header.source;
        let is_station = !(source.is_unspecified()
            || source.is_multicast()
            || source.is_loopback()
            || self.is_broadcast(source));
        if is_error || header.offset != 0 || !is_station || !self.errors.take(now) {
            return;
        }
        let Some(own) = Version::<L>::source(self, source, now) else {
            return;
        };
        let packet = Packet {
            fragment: true,
            ..Packet::new(own, source, icmp::PROTOCOL)
        };
        self.tell(link, packet, quoted, why, now);
    }

    fn too_big(
        &mut self,
        link: &L,
        report: &Report<Ipv4Addr>,
        live: bool,
        now: Instant,
    ) -> Option<usize> {
        let current = Version::<L>::mtu(self, link, report.destination, now);
        self.paths.heed(current, report, live, now)
    }

    #[inline]
    fn confirm(&mut self, destination: Ipv4Addr, now: Instant) {
        if let Ok(Hop::Neighbour(next)) = self.hop(destination) {
            self.resolver.confirm(next, now);
        }
    }

    fn resolve(&mut self, link: &mut L, arrival: Arrival, now: Instant) {
        self.resolver
            .receive(link, arrival.source, arrival.frame.bytes(), now);
    }

    fn poll(&mut self, link: &mut L, now: Instant) {
        self.resolver.poll(link, now);
        while let Some(told) = self.groups.next(now) {
            let source = Version::<L>::source(self, told.group, now);
            igmp::send(link, source.unwrap_or(Ipv4Addr::UNSPECIFIED), &told);
        }
        while let Some(late) = self.reassembly.expire(now) {
            let late = self.received(late);
            self.refuse(link, late, Refusal::Late, now);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let resolver = self.resolver.deadline().into_iter();
        let groups = self.groups.deadline();
        resolver
            .chain(self.reassembly.deadline())
            .chain(groups)
            .min()
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.dropped.show(show);
        self.messages.show(show);
        self.reassembly.dropped().show(show);
        self.resolver.counts(show);
    }
}
