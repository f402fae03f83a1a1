//! IP over one port: Ethernet, IPv4 and IPv6 put together, each of which can be replaced by another
//! type.
//!
//! [`Ip::receive`] fetches frames, and [`Ip::accept`] takes one of them up to its transport header.
//! [`Ip::write`] sends what a transport layer fills in. [`Ip::poll`] does what is due, not later
//! than at [`Ip::deadline`], and [`Ip::flush`] sends what is queued: all at the end of each turn.

use crate::ethernet::{Ethernet, Link};
use crate::icmp::{Refusal, Report};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::layer::{Filled, Unsent};
use crate::version::{Arrived, Packet, Received, Standing, Version};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::ethernet::{TYPE_ARP, TYPE_IPV4, TYPE_IPV6};
use device::{Batch, Frame};
use ports::Instant;

/// IP over one port.
pub struct Ip<V4 = Ipv4, V6 = Ipv6> {
    /// The link.
    pub link: Ethernet,
    /// IPv4.
    pub v4: V4,
    /// IPv6.
    pub v6: V6,
}

impl<V4, V6> Ip<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    /// Both versions over a link.
    pub fn new(link: Ethernet, v4: V4, v6: V6) -> Self {
        Self { link, v4, v6 }
    }

    /// Adds received frames to `batch`, each for [`Self::accept`].
    pub fn receive(&mut self, batch: &mut Batch) {
        self.link.receive(batch);
    }

    /// Takes a received frame; what it brings to the layers above.
    #[inline]
    pub fn accept(&mut self, frame: Frame, now: Instant) -> Option<Arrived> {
        let Self { link, v4, v6 } = self;
        let arrival = link.accept(frame)?;
        match arrival.ethertype {
            TYPE_IPV4 => v4.accept(link, arrival, now).map(Arrived::any),
            TYPE_IPV6 => v6.accept(link, arrival, now).map(Arrived::any),
            TYPE_ARP => {
                v4.resolve(link, arrival, now);
                None
            }
            _ => {
                link.refuse(arrival);
                None
            }
        }
    }

    /// Sends a packet of at most `size` bytes behind IP's header, which `fill` writes: transport
    /// header and payload. Checksums may be left to the port, large TCP segments as well if
    /// [`Self::largest`] says so.
    ///
    /// # Errors
    /// Why it was not sent. `fill` may have been called nevertheless.
    #[inline]
    pub fn write(
        &mut self,
        packet: Packet,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
        now: Instant,
    ) -> Result<(), Unsent> {
        let Self { link, v4, v6 } = self;
        match (packet.source, packet.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                v4.write(link, packet.between(source, destination), size, fill, now)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                v6.write(link, packet.between(source, destination), size, fill, now)
            }
            _ => Err(Unsent::NoRoute),
        }
    }

    /// What has become of an address.
    #[inline]
    pub fn standing(&self, address: IpAddr) -> Standing {
        match address {
            IpAddr::V4(address) => self.v4.standing(address),
            IpAddr::V6(address) => self.v6.standing(address),
        }
    }

    /// Listens to a group, and tells routers; `false` if it is none, or if there are too many.
    pub fn join(&mut self, group: IpAddr, now: Instant) -> bool {
        match group {
            IpAddr::V4(group) => self.v4.join(group, now),
            IpAddr::V6(group) => self.v6.join(group, now),
        }
    }

    /// Listens to a group no more.
    pub fn leave(&mut self, group: IpAddr, now: Instant) {
        match group {
            IpAddr::V4(group) => self.v4.leave(group, now),
            IpAddr::V6(group) => self.v6.leave(group, now),
        }
    }

    /// Which of our addresses packets to `destination` come from; `None` if no route leads there.
    pub fn source(&self, destination: IpAddr, now: Instant) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(destination) => self.v4.source(destination, now).map(IpAddr::V4),
            IpAddr::V6(destination) => self.v6.source(destination, now).map(IpAddr::V6),
        }
    }

    /// Bits of the network to which the route to `destination` leads; see [`Version::reach`].
    pub fn reach(&self, destination: IpAddr, now: Instant) -> Option<u8> {
        match destination {
            IpAddr::V4(destination) => self.v4.reach(destination, now),
            IpAddr::V6(destination) => self.v6.reach(destination, now),
        }
    }

    /// Largest packet that the whole path to `destination` is known to carry, in bytes.
    pub fn mtu(&self, destination: IpAddr, now: Instant) -> usize {
        match destination {
            IpAddr::V4(destination) => self.v4.mtu(&self.link, destination, now),
            IpAddr::V6(destination) => self.v6.mtu(&self.link, destination, now),
        }
    }

    /// Most bytes of transport header and payload that one [`Self::write`] takes.
    pub fn largest(&self, destination: IpAddr, now: Instant) -> usize {
        match destination {
            IpAddr::V4(destination) => self.v4.largest(&self.link, destination, now),
            IpAddr::V6(destination) => self.v6.largest(&self.link, destination, now),
        }
    }

    /// Tells the sender of a packet that nobody takes it.
    pub fn refuse(&mut self, refused: Received, why: Refusal, now: Instant) {
        let Received {
            unicast,
            protocol,
            class,
            header,
            frame,
            ..
        } = refused;
        macro_rules! refuse {
            ($version:expr, $source:expr, $destination:expr) => {{
                let refused = Received {
                    source: $source,
                    destination: $destination,
                    unicast,
                    protocol,
                    class,
                    header,
                    frame,
                };
                $version.refuse(&mut self.link, refused, why, now);
            }};
        }
        match (refused.source, refused.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => refuse!(self.v4, from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => refuse!(self.v6, from, to),
            _ => {}
        }
    }

    /// Sends a packet of somebody else's on, to whom the routes to `destination` name. The frame
    /// begins with Ethernet's header. It leaves by [`Ethernet::passing`], at once or when the
    /// next hop's address is known.
    ///
    /// # Errors
    /// Why it was not sent.
    #[inline]
    pub fn forward(
        &mut self,
        frame: Frame,
        destination: IpAddr,
        now: Instant,
    ) -> Result<(), Unsent> {
        let Self { link, v4, v6 } = self;
        let packet = link.pass(frame).ok_or(Unsent::TooBig)?;
        match destination {
            IpAddr::V4(destination) => v4.forward(link, packet, destination, now),
            IpAddr::V6(destination) => v6.forward(link, packet, destination, now),
        }
    }

    /// Tells the sender of a packet why it is not sent on. `quoted` is the packet from its network
    /// header on.
    pub fn complain(&mut self, quoted: &[u8], why: Refusal, now: Instant) {
        let Self { link, v4, v6 } = self;
        match quoted.first().map(|first| first >> 4) {
            Some(4) => v4.complain(link, quoted, why, now),
            Some(6) => v6.complain(link, quoted, why, now),
            _ => {}
        }
    }

    /// A report says that a packet of ours was too big. `live` is whether the owner of the quoted
    /// transport header knows it to be in flight. Returns the path's MTU if that became less.
    pub fn too_big(&mut self, report: &Report, live: bool, now: Instant) -> Option<usize> {
        match (report.source, report.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let report = report.between(source, destination);
                self.v4.too_big(&self.link, &report, live, now)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let report = report.between(source, destination);
                self.v6.too_big(&self.link, &report, live, now)
            }
            _ => None,
        }
    }

    /// What we send to `destination` is known to arrive: it acknowledged new data.
    #[inline]
    pub fn confirm(&mut self, destination: IpAddr, now: Instant) {
        match destination {
            IpAddr::V4(destination) => self.v4.confirm(destination, now),
            IpAddr::V6(destination) => self.v6.confirm(destination, now),
        }
    }

    /// Does what is due: requests for neighbours, announcements, packets that did not become whole.
    pub fn poll(&mut self, now: Instant) {
        self.v4.poll(&mut self.link, now);
        self.v6.poll(&mut self.link, now);
    }

    /// When [`Self::poll`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.v4
            .deadline()
            .into_iter()
            .chain(self.v6.deadline())
            .min()
    }

    /// Shows what was counted, by name. A name that both versions have comes twice, and what it
    /// counts adds up.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.link.dropped().show(show);
        self.v4.counts(show);
        self.v6.counts(show);
    }

    /// Sends what is queued.
    pub fn flush(&mut self) {
        self.link.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Prefix;
    use crate::arp::Detect;
    use crate::ethernet::Mac;
    use crate::testing::{self, Wire, at};
    use crate::version::Addresses;
    use alloc::boxed::Box;
    use device::memory::MemoryPort;
    use device::{Netif, checksum};
    use proptest::prelude::*;
    use std::vec::Vec;

    struct Host {
        ip: Ip,
        wire: Wire,
        /// Payloads that arrived: protocol and bytes.
        up: Vec<(u8, Vec<u8>)>,
    }

    impl Host {
        fn new(n: u8) -> Self {
            let (port, wire) = MemoryPort::new("net").with_index(n).split();
            let large = testing::large(6);
            let (mut v4, mut v6) = (Ipv4::new(large, 1), Ipv6::new(large, 1));
            let own = Prefix::new(Ipv4Addr::new(10, 0, 0, n), 24).unwrap();
            v4.add_address(own, Detect::Later, at(0));
            v6.autoconfigure(Mac([2, 0, 0, 0, 0, n]), Detect::Later, at(0));
            let ip = Ip::new(Ethernet::new(Box::new(port)), v4, v6);
            Self {
                ip,
                wire,
                up: Vec::new(),
            }
        }

        fn turn(&mut self, ms: u64) -> Vec<Vec<u8>> {
            let mut batch = Batch::new();
            self.ip.receive(&mut batch);
            for frame in batch.drain() {
                if let Some(Arrived::Packet(packet)) = self.ip.accept(frame, at(ms)) {
                    self.up
                        .push((packet.protocol, packet.frame.bytes().to_vec()));
                    if packet.protocol == 99 {
                        self.ip.refuse(packet, Refusal::Protocol, at(ms));
                    }
                }
            }
            self.ip.poll(at(ms));
            self.ip.flush();
            self.wire.sent()
        }
    }

    /// Both take turns until nothing is left on the wire.
    fn talk(a: &mut Host, b: &mut Host, ms: u64) {
        for _ in 0..1000 {
            let (from_a, from_b) = (a.turn(ms), b.turn(ms));
            if from_a.is_empty() && from_b.is_empty() {
                return;
            }
            from_a.iter().for_each(|frame| b.wire.arrives(frame));
            from_b.iter().for_each(|frame| a.wire.arrives(frame));
        }
        panic!("they never stop");
    }

    fn local(n: u16) -> IpAddr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, n).into()
    }

    fn peers() -> [IpAddr; 2] {
        [Ipv4Addr::new(10, 0, 0, 2).into(), local(2)]
    }

    #[test]
    fn two_hosts_find_each_other_and_exchange_packets_of_any_size() {
        for (peer, size) in peers()
            .into_iter()
            .flat_map(|peer| [(peer, 3), (peer, 65_000)])
        {
            let (mut a, mut b) = (Host::new(1), Host::new(2));
            // Announcements are over, and both know each other.
            talk(&mut a, &mut b, 0);
            talk(&mut a, &mut b, 5000);
            let source = a.ip.source(peer, at(5000)).unwrap();
            let mut packet = Packet::new(source, peer, 17);
            for size in [1, size] {
                packet.fragment = true;
                let fill = |place: &mut [u8]| {
                    place.fill(7);
                    Filled::new(place.len())
                };
                assert_eq!(a.ip.write(packet, size, fill, at(5000)), Ok(()));
                talk(&mut a, &mut b, 5000);
            }
            let lengths: Vec<_> = b.up.iter().map(|(_, bytes)| bytes.len()).collect();
            assert_eq!(lengths, [1, size], "{peer}");
            assert!(
                b.up.iter()
                    .all(|(_, bytes)| bytes.iter().all(|byte| *byte == 7))
            );
        }
    }

    #[test]
    fn what_nobody_takes_comes_back_as_a_report() {
        for peer in peers() {
            let (mut a, mut b) = (Host::new(1), Host::new(2));
            talk(&mut a, &mut b, 0);
            let source = a.ip.source(peer, at(0)).unwrap();
            let packet = Packet::new(source, peer, 99);
            let fill = |place: &mut [u8]| {
                place.fill(7);
                Filled::new(place.len())
            };
            a.ip.write(packet, 8, fill, at(0)).unwrap();
            let mut reports = Vec::new();
            for _ in 0..10 {
                let from_a = a.turn(0);
                from_a.iter().for_each(|frame| b.wire.arrives(frame));
                b.turn(0).iter().for_each(|frame| a.wire.arrives(frame));
                let mut batch = Batch::new();
                a.ip.receive(&mut batch);
                for frame in batch.drain() {
                    if let Some(Arrived::Report(report)) = a.ip.accept(frame, at(0)) {
                        reports.push(report);
                    }
                }
            }
            let report = Report {
                kind: crate::icmp::Kind::Protocol,
                source,
                destination: peer,
                protocol: 99,
                len: if peer.is_ipv4() { 28 } else { 48 },
                transport: [7; 8],
            };
            assert_eq!(reports, [report]);
        }
    }

    #[test]
    fn sizes_and_routes_are_those_of_the_version() {
        let mut host = Host::new(1);
        let [v4, v6] = peers();
        assert_eq!(
            (host.ip.mtu(v4, at(0)), host.ip.largest(v4, at(0))),
            (1500, 1480)
        );
        assert_eq!(
            (host.ip.mtu(v6, at(0)), host.ip.largest(v6, at(0))),
            (1500, 1460)
        );
        let both = Packet::new(v4, v6, 6);
        let written = host.ip.write(both, 0, |_| Filled::new(0), at(0));
        assert_eq!(written, Err(Unsent::NoRoute));
        let mut report = Report {
            kind: crate::icmp::Kind::TooBig { mtu: 1300 },
            source: local(1),
            destination: v6,
            protocol: 6,
            len: 1500,
            transport: [0; 8],
        };
        assert_eq!(host.ip.too_big(&report, true, at(0)), Some(1300));
        report.destination = v4;
        assert_eq!(host.ip.too_big(&report, true, at(0)), None);
        assert_eq!(host.ip.mtu(v6, at(0)), 1300);
        host.ip.confirm(v4, at(0));
        assert!(host.ip.deadline().is_some());
    }

    #[test]
    fn frames_of_unknown_types_are_counted() {
        let mut host = Host::new(1);
        let mut frame = [2; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[..6].fill(0xff);
        host.wire.arrives(&frame);
        host.turn(0);
        let unknown = crate::ethernet::Dropped::Type;
        assert_eq!(host.ip.link.dropped().get(unknown), 1);
        let mut all = Vec::new();
        host.ip.counts(&mut |name, count| all.push((name, count)));
        assert!(all.contains(&("ethernet_type", 1)) && all.contains(&("arp_conflict", 0)));
        assert!(all.contains(&("ipv6_source", 0)) && all.contains(&("fragment_late", 0)));
    }

    /// Bytes of a page, across whose end this port's device cannot read.
    const PAGE: usize = 4096;

    /// A port that refuses frames across a page's end: whoever allocates elsewhere is found out.
    struct Paged(testing::Port);

    fn lies_in_a_page(frame: &Frame) -> bool {
        let start = frame.bytes().as_ptr() as usize;
        start / PAGE == (start + frame.len().max(1) - 1) / PAGE
    }

    impl Netif for Paged {
        fn name(&self) -> &str {
            self.0.name()
        }

        fn mac(&self) -> [u8; 6] {
            self.0.mac()
        }

        fn mtu(&self) -> usize {
            self.0.mtu()
        }

        fn offloads(&self) -> device::Offloads {
            self.0.offloads()
        }

        fn alloc(&mut self, len: usize) -> Option<Frame> {
            let mut across = Vec::new();
            loop {
                let frame = self.0.alloc(len)?;
                if lies_in_a_page(&frame) {
                    return Some(frame);
                }
                across.push(frame);
            }
        }

        fn receive(&mut self, batch: &mut Batch) {
            self.0.receive(batch);
        }

        fn transmit(&mut self, batch: &mut Batch) {
            assert!(batch.iter().all(lies_in_a_page));
            self.0.transmit(batch);
        }

        fn wait_handle(&self) -> device::WaitHandle {
            self.0.wait_handle()
        }
    }

    #[test]
    fn the_port_alone_allocates() {
        let (port, wire) = testing::port();
        let mut host = Host::new(1);
        host.ip.link = Ethernet::new(Box::new(Paged(port)));
        host.wire = wire;
        let everybody = Ipv4Addr::BROADCAST.into();
        let packet = Packet {
            fragment: true,
            ..Packet::new(Ipv4Addr::new(10, 0, 0, 1).into(), everybody, 17)
        };
        for size in [1, 1480, 65_000] {
            let fill = |place: &mut [u8]| Filled::new(place.len());
            assert_eq!(host.ip.write(packet, size, fill, at(0)), Ok(()));
        }
        // And what is answered, asked and announced on the way.
        assert!(host.turn(0).len() > 45);
    }

    /// Frames that two hosts exchange: discovery, echoes, fragments, of both versions.
    fn exchanged() -> Vec<Vec<u8>> {
        let (mut a, mut b) = (Host::new(1), Host::new(2));
        let mut frames = Vec::new();
        for (peer, protocol) in peers()
            .into_iter()
            .flat_map(|peer| [(peer, 99), (peer, 17)])
        {
            let source = a.ip.source(peer, at(0)).unwrap();
            let packet = Packet {
                fragment: true,
                ..Packet::new(source, peer, protocol)
            };
            let fill = |place: &mut [u8]| Filled::new(place.len());
            a.ip.write(packet, 2000, fill, at(0)).unwrap();
            for _ in 0..9 {
                let (from_a, from_b) = (a.turn(0), b.turn(0));
                from_a.iter().for_each(|frame| b.wire.arrives(frame));
                from_b.iter().for_each(|frame| a.wire.arrives(frame));
                frames.extend(from_a);
            }
        }
        frames
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Frames that almost are: never a panic, no buffer is lost, and service goes on.
        #[test]
        fn mutated_frames_do_no_harm(
            edits in proptest::collection::vec(
                (any::<prop::sample::Index>(), 14usize..120, any::<u8>(), 0usize..4),
                1..200,
            ),
        ) {
            let frames = exchanged();
            let mut b = Host::new(2);
            for (which, place, value, cut) in edits {
                let mut frame = frames[which.index(frames.len())].clone();
                if let Some(byte) = frame.get_mut(place) {
                    *byte = value;
                }
                if frame.len() > 15 && frame[12..14] == [8, 0] {
                    // Past the header's checksum.
                    let len = (4 * usize::from(frame[14] & 0xf)).min(frame.len() - 14);
                    if len >= 20 {
                        frame[24..26].fill(0);
                        let sum = !checksum::fold(checksum::sum(&frame[14..14 + len]));
                        frame[24..26].copy_from_slice(&sum.to_ne_bytes());
                    }
                }
                frame.truncate(frame.len() - cut);
                b.wire.arrives(&frame);
                b.turn(0);
            }
            b.ip.poll(at(100_000));
            b.up.clear();
            let mut a = Host::new(1);
            for ms in [100_000, 101_000, 102_000] {
                talk(&mut a, &mut b, ms);
            }
            let peer = Ipv4Addr::new(10, 0, 0, 2).into();
            let packet = Packet::new(Ipv4Addr::new(10, 0, 0, 1).into(), peer, 17);
            let fill = |place: &mut [u8]| Filled::new(place.len());
            prop_assert_eq!(a.ip.write(packet, 8, fill, at(102_000)), Ok(()));
            talk(&mut a, &mut b, 102_000);
            prop_assert_eq!(b.up.len(), 1);
        }
    }
}
