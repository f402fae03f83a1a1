//! IP over one port or several. Each port is a host of its own on its link, with addresses, routes
//! and neighbours of its own; together they have the sockets above.
//!
//! A packet leaves by the port that has its source address, and is taken by no port but the one
//! that has its destination: this is the strong model of RFC 1122, 3.3.4.2. So an answer leaves
//! where the question came in, and nobody on one link reaches what listens at an address of
//! another. Nothing is forwarded. The route decides only for what has no source yet.

use crate::counts::{Counts, reasons};
use crate::ethernet::{Ethernet, Link};
use crate::icmp::{Refusal, Report};
use crate::ip::Ip;
use crate::layer::{Filled, Unsent};
use crate::loopback::Loopback;
use crate::version::{Arrived, Packet, Received, Standing, Version};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter::once;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::{Batch, Frame};
use ports::Instant;

reasons! {
    /// Why a packet was dropped that a port has accepted.
    pub enum Dropped {
        /// Its source is our own address at another port.
        Own = "port_own_source",
    }
}

/// IP over one port or several, which are numbered in the order in which they were added.
pub struct Interfaces<V4, V6> {
    first: Ip<V4, V6>,
    others: Vec<Ip<V4, V6>>,
    loopback: Loopback,
    dropped: Counts<Dropped>,
}

impl<V4, V6> Interfaces<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    /// One port.
    pub fn new(first: Ip<V4, V6>) -> Self {
        Self {
            first,
            others: Vec::new(),
            loopback: Loopback::default(),
            dropped: Counts::default(),
        }
    }

    /// Adds a port.
    pub fn add(&mut self, port: Ip<V4, V6>) {
        self.others.push(port);
    }

    /// How many ports there are.
    pub fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The port of this number; the first if there is none.
    #[inline]
    pub fn port(&mut self, number: usize) -> &mut Ip<V4, V6> {
        match number.checked_sub(1) {
            Some(other) => self.others.get_mut(other).unwrap_or(&mut self.first),
            None => &mut self.first,
        }
    }

    /// The ports, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = &Ip<V4, V6>> {
        once(&self.first).chain(&self.others)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Ip<V4, V6>> {
        once(&mut self.first).chain(&mut self.others)
    }

    /// The port that has this address, in use or not yet; the only one in any case.
    #[inline]
    fn owner(&self, address: IpAddr) -> Option<&Ip<V4, V6>> {
        if self.others.is_empty() {
            return Some(&self.first);
        }
        self.all().find(|port| has(port, address))
    }

    /// The same, to be changed.
    #[inline]
    fn owner_mut(&mut self, address: IpAddr) -> Option<&mut Ip<V4, V6>> {
        if self.others.is_empty() {
            return Some(&mut self.first);
        }
        self.all_mut().find(|port| has(port, address))
    }

    /// Adds frames that a port has received to `batch`, each for [`Self::accept`].
    #[inline]
    pub fn receive(&mut self, number: usize, batch: &mut Batch) {
        self.port(number).receive(batch);
    }

    /// Takes a frame that a port has received; what it brings to the layers above.
    #[inline]
    pub fn accept(&mut self, number: usize, frame: Frame, now: Instant) -> Option<Arrived> {
        let arrived = self.port(number).accept(frame, now)?;
        if let Arrived::Packet(packet) = &arrived
            && !self.others.is_empty()
            && self.is_own(packet.source)
        {
            self.dropped.add(Dropped::Own);
            return None;
        }
        Some(arrived)
    }

    /// What we have sent to ourselves: at most so many packets wait as [`Self::looped_count`] says.
    pub fn looped(&mut self) -> Option<Received> {
        self.loopback.next()
    }

    /// How many packets to ourselves wait for [`Self::looped`].
    #[inline]
    pub fn looped_count(&self) -> usize {
        self.loopback.len()
    }

    /// Whether packets to this address stay inside: it is ours, or any host's own (RFC 1122,
    /// 3.2.1.3 g; RFC 4291, 2.5.3).
    #[inline]
    fn is_inside(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.is_own(address)
    }

    /// Whether this is an address of ours, ready for use.
    #[inline]
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.all()
            .any(|port| port.standing(address) == Standing::Usable)
    }

    /// Sends a packet; see [`Ip::write`].
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
        if self.is_inside(packet.destination) {
            let Self {
                first, loopback, ..
            } = self;
            return loopback.write(packet, || first.link.buffer(size), fill);
        }
        if packet.source.is_loopback() {
            return Err(Unsent::NoRoute);
        }
        let port = self.owner_mut(packet.source).ok_or(Unsent::NoRoute)?;
        port.write(packet, size, fill, now)
    }

    /// Whether a port that datagrams between these addresses leave by cuts them.
    pub fn cuts_datagrams(&self, from: IpAddr, to: IpAddr) -> bool {
        let port = self.owner(from).filter(|_| !self.is_inside(to));
        port.is_some_and(|port| port.link.offloads().uso)
    }

    /// Listens to a group at all ports, and tells routers; `false` if it is none, or if there are
    /// too many.
    pub fn join(&mut self, group: IpAddr, now: Instant) -> bool {
        self.all_mut().all(|port| port.join(group, now))
    }

    /// Listens to a group no more.
    pub fn leave(&mut self, group: IpAddr, now: Instant) {
        self.all_mut().for_each(|port| port.leave(group, now));
    }

    /// Which of our addresses packets to `destination` come from, and with it the port by which
    /// they leave: that with the longest prefix, and of several the first. `None` if no route leads
    /// there.
    pub fn source(&self, destination: IpAddr, now: Instant) -> Option<IpAddr> {
        if self.is_inside(destination) {
            return Some(destination);
        }
        if self.others.is_empty() {
            return self.first.source(destination, now);
        }
        let ways = self.all().filter_map(|port| {
            let source = port.source(destination, now)?;
            Some((Reverse(port.reach(destination, now)?), source))
        });
        let best = ways.min_by_key(|(bits, _)| *bits)?;
        Some(best.1)
    }

    /// The port by which packets of others leave to `destination`: that with the longest prefix,
    /// and of several the first. `None` if no route leads there.
    pub fn way(&self, destination: IpAddr, now: Instant) -> Option<usize> {
        let ways = self.all().enumerate().filter_map(|(number, port)| {
            let bits = port.reach(destination, now)?;
            Some((Reverse(bits), number))
        });
        ways.min().map(|(_, number)| number)
    }

    /// Largest packet that the whole path from an address of ours is known to carry, in bytes.
    #[inline]
    pub fn mtu(&self, from: IpAddr, to: IpAddr, now: Instant) -> usize {
        self.owner(from).unwrap_or(&self.first).mtu(to, now)
    }

    /// Most bytes of transport header and payload that one [`Self::write`] takes.
    #[inline]
    pub fn largest(&self, from: IpAddr, to: IpAddr, now: Instant) -> usize {
        self.owner(from).unwrap_or(&self.first).largest(to, now)
    }

    /// Tells the sender of a packet that nobody takes it, unless that is we.
    pub fn refuse(&mut self, refused: Received, why: Refusal, now: Instant) {
        if !self.is_inside(refused.source)
            && let Some(port) = self.owner_mut(refused.destination)
        {
            port.refuse(refused, why, now);
        }
    }

    /// A report says that a packet of ours was too big; see [`Ip::too_big`].
    pub fn too_big(&mut self, report: &Report, live: bool, now: Instant) -> Option<usize> {
        let port = self.owner_mut(report.source)?;
        port.too_big(report, live, now)
    }

    /// What we send from an address of ours to `to` is known to arrive: that acknowledged new data.
    #[inline]
    pub fn confirm(&mut self, from: IpAddr, to: IpAddr, now: Instant) {
        if let Some(port) = self.owner_mut(from) {
            port.confirm(to, now);
        }
    }

    /// Does what is due: requests for neighbours, announcements, packets that did not become whole.
    pub fn poll(&mut self, now: Instant) {
        self.all_mut().for_each(|port| port.poll(now));
    }

    /// When [`Self::poll`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.all().filter_map(Ip::deadline).min()
    }

    /// Shows what was counted, by name: what all ports count under it adds up.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.dropped.show(show);
        self.all().for_each(|port| port.counts(show));
    }

    /// Sends what is queued.
    #[inline]
    pub fn flush(&mut self) {
        self.all_mut().for_each(Ip::flush);
    }
}

/// Whether a port has this address, in use or not yet.
#[inline]
fn has<V4, V6>(port: &Ip<V4, V6>, address: IpAddr) -> bool
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    port.standing(address) != Standing::Lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Prefix;
    use crate::arp::Detect;
    use crate::ipv4::Ipv4;
    use crate::ipv6::Ipv6;
    use crate::routes::Route;
    use crate::socket::Hub;
    use crate::stack::Stack;
    use crate::tcp::Config;
    use crate::tcp::host::Tcp;
    use crate::tcp::identity::Secret;
    use crate::testing::{self, Wire, at};
    use crate::version::Addresses;
    use alloc::boxed::Box;
    use core::net::SocketAddr;
    use core::task::{Context, Poll, Waker};
    use device::memory::MemoryPort;

    const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

    /// IP over a port with this index and address.
    fn ip(index: u8, own: Ipv4Addr, mtu: usize) -> (Ip, Wire) {
        let port = MemoryPort::new("net").with_mtu(mtu).with_index(index);
        let (port, wire) = port.split();
        let (mut v4, v6) = (
            Ipv4::new(testing::large(1), 1),
            Ipv6::new(testing::large(1), 1),
        );
        v4.add_address(Prefix::new(own, 24).unwrap(), Detect::Later, at(0));
        (Ip::new(Ethernet::new(Box::new(port)), v4, v6), wire)
    }

    fn stack(ip: Ip) -> Stack<Ipv4, Ipv6> {
        let tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [1; 16], 1 << 20);
        Stack::new(ip, tcp, at(0))
    }

    /// A stack over two ports, and one host at the other end of each.
    struct Scene {
        stacks: [Stack<Ipv4, Ipv6>; 3],
        /// The two cables.
        wires: [[Wire; 2]; 2],
    }

    impl Scene {
        fn new() -> Self {
            let (near, near_wire) = ip(1, NEAR, 1500);
            let (inside, inside_wire) = ip(2, INSIDE, 9000);
            let (first, first_wire) = ip(3, Ipv4Addr::new(10, 0, 0, 2), 1500);
            let (second, second_wire) = ip(4, Ipv4Addr::new(10, 1, 0, 2), 9000);
            let mut both = stack(near);
            both.ip.add(inside);
            Self {
                stacks: [both, stack(first), stack(second)],
                wires: [[near_wire, first_wire], [inside_wire, second_wire]],
            }
        }

        /// All have their turns until nothing is sent; the frames of each cable.
        fn pass(&mut self, milliseconds: u64) -> [Vec<Vec<u8>>; 2] {
            let mut all = [Vec::new(), Vec::new()];
            loop {
                for stack in &mut self.stacks {
                    while stack.receive(at(milliseconds)) {}
                    assert!(stack.send());
                }
                let mut any = false;
                for ([a, b], all) in self.wires.iter().zip(&mut all) {
                    for (from, to) in [(a, b), (b, a)] {
                        for frame in from.sent() {
                            to.arrives(&frame);
                            all.push(frame);
                            any = true;
                        }
                    }
                }
                if !any {
                    return all;
                }
            }
        }

        fn counted(&self, wanted: &str) -> u64 {
            let mut sum = 0;
            self.stacks[0].counts(&mut |name, count| sum += if name == wanted { count } else { 0 });
            sum
        }
    }

    /// Whether a frame is an IPv4 packet from this address.
    fn is_from(frame: &[u8], source: Ipv4Addr) -> bool {
        frame[12..14] == [8, 0] && frame[26..30] == source.octets()
    }

    #[test]
    fn the_longest_prefix_chooses_port_and_address() {
        let mut scene = Scene::new();
        scene.pass(5000);
        let ip = &mut scene.stacks[0].ip;
        let source = |ip: &Interfaces<Ipv4, Ipv6>, to: [u8; 4]| ip.source(to.into(), at(5000));
        assert_eq!(source(ip, [10, 0, 0, 2]), Some(NEAR.into()));
        assert_eq!(source(ip, [10, 1, 0, 2]), Some(INSIDE.into()));
        assert_eq!(source(ip, [192, 0, 2, 1]), None);
        assert_eq!(source(ip, [224, 0, 0, 251]), Some(NEAR.into()));
        let route = |network: [u8; 4], bits, gateway: [u8; 4]| Route {
            network: Prefix::new(network.into(), bits).unwrap(),
            gateway: Some(gateway.into()),
        };
        ip.port(0).v4.routes().add(route([0; 4], 0, [10, 0, 0, 2]));
        ip.port(1).v4.routes().add(route([0; 4], 0, [10, 1, 0, 2]));
        let far = route([192, 0, 2, 0], 24, [10, 1, 0, 2]);
        ip.port(1).v4.routes().add(far);
        assert_eq!(
            source(ip, [198, 51, 100, 1]),
            Some(NEAR.into()),
            "the first"
        );
        assert_eq!(source(ip, [192, 0, 2, 1]), Some(INSIDE.into()));
        // What is ours stays inside, from whatever port's network.
        assert_eq!(source(ip, INSIDE.octets()), Some(INSIDE.into()));
        let peer = Ipv4Addr::new(192, 0, 2, 1).into();
        assert_eq!(ip.mtu(NEAR.into(), peer, at(5000)), 1500);
        assert_eq!(ip.mtu(INSIDE.into(), peer, at(5000)), 9000);
    }

    #[test]
    fn answers_leave_by_the_port_that_was_asked() {
        let mut scene = Scene::new();
        scene.pass(5000);
        let server = scene.stacks[0].udp.bind(None, 7, 0).unwrap();
        for (client, own) in [(1, NEAR), (2, INSIDE)] {
            let to = SocketAddr::from((own, 7));
            let socket = scene.stacks[client].udp.bind(None, 99, 0).unwrap();
            let stack = &mut scene.stacks[client];
            stack.send_datagram(socket, None, to, b"?").unwrap();
            scene.pass(5000);
            let asked = scene.stacks[0].udp.receive(server).unwrap();
            assert_eq!(asked.to, IpAddr::from(own));
            let stack = &mut scene.stacks[0];
            let answered = stack.send_datagram(server, Some(asked.to), asked.from, b"!");
            answered.unwrap();
            let sent = scene.pass(5000);
            let ours = |cable: usize| {
                sent[cable]
                    .iter()
                    .filter(|frame| is_from(frame, own))
                    .count()
            };
            assert_eq!([ours(client - 1), ours(2 - client)], [1, 0]);
            let answer = scene.stacks[client].udp.receive(socket).unwrap();
            assert_eq!(answer.from, to);
        }
    }

    #[test]
    fn connections_come_in_at_both_ports_with_the_mtu_of_each() {
        let mut scene = Scene::new();
        scene.pass(5000);
        let everywhere = SocketAddr::from(([0; 4], 80));
        let listener = scene.stacks[0].tcp.listen(everywhere, 4).unwrap();
        for (client, own, longest) in [(1, NEAR, 1500), (2, INSIDE, 9000)] {
            let to = SocketAddr::from((own, 80));
            let socket = scene.stacks[client].connect(to).unwrap();
            scene.pass(5000);
            let mut context = Context::from_waker(Waker::noop());
            let tcp = &mut scene.stacks[0].tcp;
            let Poll::Ready(accepted) = tcp.poll_accept(listener, &mut context) else {
                panic!("no connection by port {client}");
            };
            let written = tcp.poll_write(accepted, &[7; 20_000], &mut context);
            assert_eq!(written, Poll::Ready(Ok(20_000)));
            let sent = scene.pass(5000);
            let lens = sent[client - 1].iter().map(|frame| frame.len() - 14);
            assert_eq!(lens.max(), Some(longest));
            assert!(!sent[2 - client].iter().any(|frame| is_from(frame, own)));
            let mut place = [0; 30_000];
            let tcp = &mut scene.stacks[client].tcp;
            let read = tcp.poll_read(socket, &mut place, &mut context);
            assert_eq!(read, Poll::Ready(Ok(20_000)));
        }
    }

    /// RFC 1122, 3.3.4.2: the strong model.
    #[test]
    fn an_address_is_reached_through_its_own_port_alone() {
        let mut scene = Scene::new();
        scene.pass(5000);
        let server = scene.stacks[0].udp.bind(None, 7, 0).unwrap();
        let stack = &mut scene.stacks[1];
        let client = stack.udp.bind(None, 99, 0).unwrap();
        let to = SocketAddr::from((NEAR, 7));
        stack.send_datagram(client, None, to, b"?").unwrap();
        let sent = scene.pass(5000);
        assert!(scene.stacks[0].udp.receive(server).is_some());
        let good = sent[0]
            .iter()
            .find(|frame| frame[12..14] == [8, 0])
            .unwrap();
        // The same to the address of the other port, and from it.
        for (place, reason) in [(30, "ipv4_not_ours"), (26, "port_own_source")] {
            let mut frame = good.clone();
            frame[place..place + 4].copy_from_slice(&INSIDE.octets());
            frame[24..26].fill(0);
            device::checksum::complete(&mut frame[14..34], 0, 10);
            let before = scene.counted(reason);
            scene.wires[0][0].arrives(&frame);
            assert!(scene.pass(5000).iter().all(Vec::is_empty), "{reason}");
            assert_eq!(scene.counted(reason), before + 1);
            assert!(scene.stacks[0].udp.receive(server).is_none());
        }
        // ARP: nobody answers for it either.
        let mut ask = good.clone();
        ask.truncate(14);
        ask[..6].fill(0xff);
        ask[12..14].copy_from_slice(&[8, 6]);
        ask.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 3, 10, 0, 0, 2]);
        ask.extend([0; 6]);
        ask.extend(INSIDE.octets());
        scene.wires[0][0].arrives(&ask);
        assert!(scene.pass(5000).iter().all(Vec::is_empty));
    }
}
