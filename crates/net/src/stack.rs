//! A whole stack over one port or several: IP below, TCP and UDP above, turn by turn.
//!
//! Whoever runs it calls [`Stack::receive`], lets tasks run, calls [`Stack::send`], and sleeps
//! until [`Stack::deadline`] or until a port has something. Each call does a bounded amount of
//! work.

use crate::counts::Counts;
use crate::dhcp::{self, Dhcp, LeaseNote};
use crate::ethernet::{Ethernet, Link};
use crate::forwarding;
use crate::icmp::{Kind, Refusal, Report};
use crate::interfaces::Interfaces;
use crate::ip::Ip;
use crate::layer::{Filled, Unsent};
use crate::socket::{Error, Hub, hint};
use crate::tcp::below::{Below, PROTOCOL as TCP};
use crate::tcp::host::{SocketId, Tcp, Unusable};
use crate::tcp::identity::Ends;
use crate::tcp::seq::Seq;
use crate::tcp::{Limits, Segment};
use crate::udp::{self, BindError, Outgoing, PROTOCOL as UDP, Udp};
use crate::version::{Arrived, HOPS, Packet, Received, Version};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use device::{Batch, Frame};
use ports::Instant;

/// A whole stack over one port or several.
pub struct Stack<V4, V6> {
    /// The layers below.
    pub ip: Interfaces<V4, V6>,
    /// TCP.
    pub tcp: Tcp,
    /// UDP.
    pub udp: Udp,
    dhcp: Vec<Client>,
    batch: Batch,
    now: Instant,
}

/// What asks servers for an address of a port.
struct Client {
    port: usize,
    dhcp: Dhcp,
}

/// IP as TCP sees it, at one moment.
struct Lower<'a, V4, V6> {
    ip: &'a mut Interfaces<V4, V6>,
    now: Instant,
}

impl<V4, V6> Below for Lower<'_, V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        self.ip.source(remote, self.now)
    }

    fn limits(&self, local: IpAddr, remote: IpAddr) -> Limits {
        let header = match remote {
            IpAddr::V4(_) => crate::ipv4::HEADER,
            IpAddr::V6(_) => crate::ipv6::HEADER,
        };
        // Neither exceeds what an IP packet can hold, 64 KiB.
        Limits {
            segment: self.ip.mtu(local, remote, self.now).saturating_sub(header) as u32,
            largest: self.ip.largest(local, remote, self.now) as u32,
        }
    }

    fn send(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent> {
        self.ip
            .write(Packet::new(from, to, TCP), size, fill, self.now)
    }
}

impl<V4, V6> Stack<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    /// TCP and UDP over IP.
    pub fn new(ip: Ip<V4, V6>, tcp: Tcp, now: Instant) -> Self {
        Self {
            ip: Interfaces::new(ip),
            tcp,
            udp: Udp::new(),
            dhcp: Vec::new(),
            batch: Batch::new(),
            now,
        }
    }

    /// Asks servers for an IPv4 address of the port of this number, from now on. The seed varies
    /// times and numbers; what an earlier host has noted down stays ours.
    ///
    /// # Errors
    /// If somebody has a socket at the port of DHCP's clients.
    pub fn use_dhcp(
        &mut self,
        port: usize,
        seed: u64,
        note: Option<LeaseNote>,
    ) -> Result<(), BindError> {
        let socket = match self.dhcp.first() {
            Some(client) => client.dhcp.socket(),
            None => Dhcp::bind(&mut self.udp)?,
        };
        let mac = self.ip.port(port).link.mac();
        let dhcp = Dhcp::new(mac, seed, socket, note, self.now);
        self.dhcp.push(Client { port, dhcp });
        Ok(())
    }

    /// What asks servers for addresses, each with the number of its port.
    pub fn dhcp(&mut self) -> impl Iterator<Item = (usize, &mut Dhcp)> {
        let clients = self.dhcp.iter_mut();
        clients.map(|client| (client.port, &mut client.dhcp))
    }

    /// Takes in what the ports have, at most a batch each, and what time brings; whether there was
    /// a frame.
    pub fn receive(&mut self, now: Instant) -> bool {
        self.receive_through(now, |_, _, frame| Some(frame))
    }

    /// The same; each frame goes through `gate` with the number of its port, and comes to this
    /// stack if that gives it back.
    pub fn receive_through(
        &mut self,
        now: Instant,
        mut gate: impl FnMut(&mut Interfaces<V4, V6>, usize, Frame) -> Option<Frame>,
    ) -> bool {
        self.now = now;
        let Self {
            ip,
            tcp,
            udp,
            dhcp,
            batch,
            ..
        } = self;
        // What packets to ourselves have us send to ourselves waits for the next turn.
        let looped = ip.looped_count();
        let mut any = looped > 0;
        for _ in 0..looped {
            if let Some(packet) = ip.looped() {
                deliver(ip, tcp, udp, (packet, None), now);
            }
        }
        for port in 0..ip.count() {
            ip.receive(port, batch);
            any |= !batch.is_empty();
            for frame in batch.drain() {
                let Some(frame) = gate(ip, port, frame) else {
                    continue;
                };
                match ip.accept(port, frame, now) {
                    Some(Arrived::Packet(packet)) => {
                        // A manifest has no more than 64 devices.
                        let packet = (packet, Some(port as u16));
                        deliver(ip, tcp, udp, packet, now);
                    }
                    Some(Arrived::Report(report)) if report.protocol == UDP => {
                        heed_of_datagram(udp, &report);
                    }
                    Some(Arrived::Report(report)) => heed(ip, tcp, &report, now),
                    None => {}
                }
            }
        }
        tcp.expire(&mut Lower { ip, now }, now);
        ip.poll(now);
        lease(ip, udp, dhcp, now);
        any
    }

    /// Sends what is to be sent; `false` if the port has no buffer and more is to leave.
    pub fn send(&mut self) -> bool {
        let Self { ip, tcp, now, .. } = self;
        let all = tcp.send(&mut Lower { ip, now: *now }, *now);
        ip.flush();
        all
    }

    /// Shows what all layers have counted, by the names of [`crate::metrics`]; names that come
    /// twice add up.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.ip.counts(show);
        self.tcp.counts(show);
        self.udp.counts(show);
        // The names are there without a router as well.
        Counts::<forwarding::Dropped>::default().show(show);
        Counts::<forwarding::Untagged>::default().show(show);
        // The names are there without a client as well.
        Counts::<dhcp::Dropped>::default().show(show);
        let clients = self.dhcp.iter();
        clients.for_each(|client| client.dhcp.dropped().show(show));
    }

    /// When [`Self::receive`] has something to do although no frame has come.
    pub fn deadline(&self) -> Instant {
        let clients = self.dhcp.iter();
        let dhcp = clients.filter_map(|client| client.dhcp.deadline());
        let looped = (self.ip.looped_count() > 0).then_some(self.now);
        let others = self.ip.deadline().into_iter().chain(dhcp).chain(looped);
        others.fold(self.tcp.deadline(self.now), Instant::min)
    }
}

impl<V4, V6> Stack<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    /// Sends the datagrams at the beginning of `batch` that can leave together; how many those are.
    fn send_run(
        &mut self,
        socket: udp::Socket,
        from: Option<IpAddr>,
        batch: &[Outgoing<'_>],
    ) -> Result<usize, Unsent> {
        let (now, to) = (self.now, batch[0].1);
        let local = self.udp.local(socket);
        let named = from.filter(|from| self.ip.is_own(*from));
        let chosen = || self.ip.source(to.ip(), now);
        let source = local.or(named).or_else(chosen);
        let (Some(source), Some(port)) = (source, self.udp.port(socket)) else {
            return Err(Unsent::NoRoute);
        };
        let together = batch.len() > 1 && self.ip.cuts_datagrams(source, to.ip());
        let count = if together {
            let Limits { segment, largest } = self.lower().limits(source, to.ip());
            let each = (segment as usize).saturating_sub(udp::HEADER);
            udp::run(batch, largest as usize, each)
        } else {
            1
        };
        let run = &batch[..count];
        let packet = Packet {
            fragment: true,
            // At most RUN_MAX.
            pieces: count as u16,
            // What goes to a group stays on the link (RFC 1112, 6.1).
            hops: if to.ip().is_multicast() { 1 } else { HOPS },
            ..Packet::new(source, to.ip(), UDP)
        };
        let size = udp::HEADER + run.iter().map(|(bytes, _)| bytes.len()).sum::<usize>();
        let fill = |place: &mut [u8]| udp::emit_run(SocketAddr::new(source, port), run, place);
        self.ip.write(packet, size, fill, now)?;
        self.udp.sent(count);
        Ok(count)
    }

    fn lower(&mut self) -> Lower<'_, V4, V6> {
        Lower {
            ip: &mut self.ip,
            now: self.now,
        }
    }
}

/// Gives servers' messages to the clients that they are for, and lets all do what is due.
fn lease<V4, V6>(ip: &mut Interfaces<V4, V6>, udp: &mut Udp, clients: &mut [Client], now: Instant)
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    let Some(first) = clients.first() else {
        return;
    };
    // All clients have one socket.
    let socket = first.dhcp.socket();
    while let Some(datagram) = udp.receive(socket) {
        let meant = clients.iter().position(|one| one.dhcp.is_meant(&datagram));
        // Nobody's message is counted by the first one.
        let Client { port, dhcp } = &mut clients[meant.unwrap_or(0)];
        dhcp.receive(&datagram, ip.port(*port), now);
    }
    for Client { port, dhcp } in clients {
        dhcp.turn(ip.port(*port), now);
    }
}

/// Gives a packet, which came by this port, to the protocol that it is for.
#[inline]
fn deliver<V4, V6>(
    ip: &mut Interfaces<V4, V6>,
    tcp: &mut Tcp,
    udp: &mut Udp,
    (packet, port): (Received, Option<u16>),
    now: Instant,
) where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    match packet.protocol {
        UDP => {
            if let Err(packet) = udp.accept(packet, port) {
                ip.refuse(packet, Refusal::Port, now);
            }
        }
        // RFC 9293, 3.9.2.3: TCP is between two stations.
        TCP if packet.unicast => {
            let (source, destination) = (packet.source, packet.destination);
            let mut lower = Lower { ip, now };
            if tcp.receive(&mut lower, source, destination, packet.frame, now) {
                ip.confirm(destination, source, now);
            }
        }
        TCP => {}
        _ => ip.refuse(packet, Refusal::Protocol, now),
    }
}

/// Somebody reports an error about a segment that claims to be ours (RFC 5927: only what quotes a
/// segment that is on its way is believed).
fn heed<V4, V6>(ip: &mut Interfaces<V4, V6>, tcp: &mut Tcp, report: &Report, now: Instant)
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    let [a, b, c, d, seq @ ..] = report.transport;
    let quoted = Segment {
        source: u16::from_be_bytes([c, d]),
        destination: u16::from_be_bytes([a, b]),
        ..Segment::default()
    };
    if report.protocol != TCP {
        return;
    }
    let ends = Ends::of(report.destination, report.source, &quoted);
    let live = tcp.is_under_way(&ends, Seq(u32::from_be_bytes(seq)));
    match report.kind {
        Kind::TooBig { .. } => {
            let narrower = ip.too_big(report, live, now);
            narrower.inspect(|_| tcp.narrowed(&ends));
        }
        Kind::Port | Kind::Protocol | Kind::Unreachable if live => tcp.unreachable(&ends),
        _ => {}
    }
}

/// Somebody reports an error about a datagram that claims to be ours.
fn heed_of_datagram(udp: &mut Udp, report: &Report) {
    if let Kind::Port = report.kind {
        udp.refuse(report.source, report.destination, &report.transport);
    }
}

impl<V4, V6> Hub for Stack<V4, V6>
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    fn tcp(&mut self) -> &mut Tcp {
        &mut self.tcp
    }

    fn connect(&mut self, remote: SocketAddr) -> Result<SocketId, Unusable> {
        let Self { ip, tcp, now, .. } = self;
        tcp.connect(&Lower { ip, now: *now }, remote, *now)
    }

    fn udp(&mut self) -> &mut Udp {
        &mut self.udp
    }

    fn connect_datagrams(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        peer: SocketAddr,
    ) -> Result<udp::Socket, Error> {
        let chosen = || self.ip.source(peer.ip(), self.now);
        let local = local
            .or_else(chosen)
            .ok_or(Error::Unsent(Unsent::NoRoute))?;
        let socket = self.udp.connect(local, port, hint(self.now), peer);
        socket.map_err(Error::Bind)
    }

    fn send_datagrams(
        &mut self,
        socket: udp::Socket,
        from: Option<IpAddr>,
        batch: &[Outgoing<'_>],
    ) -> Result<usize, Unsent> {
        let mut sent = 0;
        while sent < batch.len() {
            match self.send_run(socket, from, &batch[sent..]) {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                Err(why) => return Err(why),
            }
        }
        Ok(sent)
    }

    fn join(&mut self, socket: udp::Socket, group: IpAddr) -> bool {
        let joined = self.udp.join(socket, group) && self.ip.join(group, self.now);
        if !joined {
            self.leave(socket, group);
        }
        joined
    }

    fn leave(&mut self, socket: udp::Socket, group: IpAddr) {
        if self.udp.leave(socket, group) {
            self.ip.leave(group, self.now);
        }
    }

    fn now(&self) -> Instant {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Prefix;
    use crate::arp::Detect;
    use crate::ipv4::Ipv4;
    use crate::ipv6::Ipv6;
    use crate::tcp::Config;
    use crate::tcp::identity::Secret;
    use crate::testing::{self, Wire, at};
    use crate::version::Addresses;
    use alloc::boxed::Box;
    use core::task::{Context, Poll, Waker};
    use device::memory::MemoryPort;
    use std::vec::Vec;

    /// Bytes of headers of Ethernet and IPv4, and where the latter has its addresses.
    const HEADERS: usize = 34;
    const ADDRESSES: core::ops::Range<usize> = 26..34;

    struct Host {
        stack: Stack<Ipv4, Ipv6>,
        wire: Wire,
    }

    impl Host {
        fn new(n: u8) -> Self {
            Self::over(n, MemoryPort::new("net"))
        }

        fn over(n: u8, port: MemoryPort) -> Self {
            let (port, wire) = port.with_index(n).split();
            let large = testing::large(1);
            let mut v4 = Ipv4::new(large, 1);
            let own = Prefix::new(Ipv4Addr::new(10, 0, 0, n), 24).unwrap();
            v4.add_address(own, Detect::Later, at(0));
            let v6 = Ipv6::new(testing::large(1), 1);
            let ip = Ip::new(Ethernet::new(Box::new(port)), v4, v6);
            let tcp = Tcp::new(Config::default(), Secret::new([n; 16]), [n; 16], 1 << 20);
            Self {
                stack: Stack::new(ip, tcp, at(0)),
                wire,
            }
        }
    }

    /// Two hosts, of which the first has opened a connection to the second one.
    struct Hosts {
        hosts: [Host; 2],
        socket: SocketId,
    }

    impl Hosts {
        fn new() -> Self {
            Self::of([Host::new(1), Host::new(2)])
        }

        fn of(mut hosts: [Host; 2]) -> Self {
            let server = SocketAddr::from(([10, 0, 0, 2], 80));
            hosts[1].stack.tcp.listen(server, 4).unwrap();
            let socket = hosts[0].stack.connect(server).unwrap();
            let mut hosts = Self { hosts, socket };
            hosts.pass(0);
            hosts
        }

        /// What the first host sends, and the second one does not get yet.
        fn sent(&mut self, milliseconds: u64) -> Vec<Vec<u8>> {
            let Host { stack, wire } = &mut self.hosts[0];
            stack.receive(at(milliseconds));
            assert!(stack.send());
            wire.sent()
        }

        /// Both have their turns until nothing is sent; the frames.
        fn pass(&mut self, milliseconds: u64) -> Vec<Vec<u8>> {
            let mut all = Vec::new();
            loop {
                let before = all.len();
                for from in 0..2 {
                    let Host { stack, wire } = &mut self.hosts[from];
                    while stack.receive(at(milliseconds)) {}
                    assert!(stack.send());
                    for frame in wire.sent() {
                        self.hosts[1 - from].wire.arrives(&frame);
                        all.push(frame);
                    }
                }
                if all.len() == before {
                    return all;
                }
            }
        }

        fn write(&mut self, bytes: &[u8]) {
            let mut context = Context::from_waker(Waker::noop());
            let tcp = &mut self.hosts[0].stack.tcp;
            let written = tcp.poll_write(self.socket, bytes, &mut context);
            assert_eq!(written, Poll::Ready(Ok(bytes.len())));
        }
    }

    /// RFC 4861, 7.3.1: a neighbour that acknowledges is there, and is not asked.
    #[test]
    fn what_tcp_knows_to_arrive_confirms_the_neighbour() {
        let mut hosts = Hosts::new();
        let is_arp = |frame: &&Vec<u8>| frame[12..14] == [8, 6];
        let mut asked = 0;
        for second in 1..200 {
            hosts.write(b"x");
            let frames = hosts.pass(second * 1000);
            // Addresses are announced within the first seconds.
            asked += if second > 5 {
                frames.iter().filter(is_arp).count()
            } else {
                0
            };
        }
        assert_eq!(asked, 0);
    }

    /// RFC 1122, 4.1.3.5: the route would choose the first address of the network.
    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        let mut hosts = Hosts::new();
        let second = Ipv4Addr::new(10, 0, 0, 9);
        let own = Prefix::new(second, 24).unwrap();
        hosts.hosts[1]
            .stack
            .ip
            .port(0)
            .v4
            .add_address(own, Detect::Later, at(0));
        hosts.pass(5000);
        let bind = |host: &mut Host| host.stack.udp.bind(None, 53, 0).unwrap();
        let [client, server] = [0, 1].map(|n| bind(&mut hosts.hosts[n]));
        let to = SocketAddr::from((second, 53));
        let stack = &mut hosts.hosts[0].stack;
        stack.send_datagram(client, None, to, b"?").unwrap();
        hosts.pass(5000);
        let stack = &mut hosts.hosts[1].stack;
        let asked = stack.udp.receive(server).unwrap();
        assert_eq!(asked.to, second);
        let group = Ipv4Addr::new(224, 0, 0, 251);
        for from in [Some(asked.to), None, Some(group.into())] {
            stack.send_datagram(server, from, asked.from, b"!").unwrap();
        }
        hosts.pass(5000);
        let udp = &mut hosts.hosts[0].stack.udp;
        let from = core::iter::from_fn(|| udp.receive(client)).map(|answer| answer.from.ip());
        let first = Ipv4Addr::new(10, 0, 0, 2);
        let expected = [second, first, first].map(IpAddr::V4);
        assert_eq!(from.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_a_stack_sends_to_itself_does_not_leave() {
        let mut host = Host::new(1);
        while host.stack.deadline() < at(20_000) {
            let due = host.stack.deadline();
            host.stack.receive(due);
            host.stack.send();
            host.wire.sent();
        }
        let own = Prefix::new("fe80::7".parse().unwrap(), 64).unwrap();
        host.stack
            .ip
            .port(0)
            .v6
            .add_address(own, Detect::Later, at(20_000));
        for second in 20..30 {
            host.stack.receive(at(second * 1000));
            host.stack.send();
            host.wire.sent();
        }
        let server = host.stack.udp.bind(None, 53, 0).unwrap();
        for address in ["10.0.0.1", "127.0.0.1", "127.9.9.9", "::1", "fe80::7"] {
            let address: IpAddr = address.parse().unwrap();
            let Host { stack, wire } = &mut host;
            let web = SocketAddr::new(address, 80);
            let listener = stack.tcp.listen(web, 4).unwrap();
            let client = stack.connect(web).unwrap();
            let to = SocketAddr::new(address, 53);
            for _ in 0..2 * crate::loopback::PACKETS_MAX {
                let _ = stack.send_datagram(server, None, to, b"me");
            }
            assert!(stack.ip.looped_count() == crate::loopback::PACKETS_MAX);
            let mut turns = 0;
            let mut sent = 0;
            let mut context = Context::from_waker(Waker::noop());
            let accepted = loop {
                assert!(stack.deadline() <= at(31_000), "{address}");
                stack.receive(at(31_000));
                stack.send();
                sent += wire.sent().len();
                if let Poll::Ready(accepted) = stack.tcp.poll_accept(listener, &mut context) {
                    break accepted;
                }
                turns += 1;
                assert!(turns < 10);
            };
            let written = stack.tcp.poll_write(client, b"hello", &mut context);
            assert_eq!(written, Poll::Ready(Ok(5)));
            for _ in 0..4 {
                stack.send();
                stack.receive(at(31_000));
            }
            let mut place = [0; 9];
            let read = stack.tcp.poll_read(accepted, &mut place, &mut context);
            assert_eq!(read, Poll::Ready(Ok(5)), "{address}");
            let datagram = stack.udp.receive(server).unwrap();
            assert_eq!((datagram.from, datagram.to), (to, address));
            while stack.udp.receive(server).is_some() {}
            // Nobody is there, and nobody is told.
            let nobody = SocketAddr::new(address, 9);
            stack.send_datagram(server, None, nobody, b"?").unwrap();
            stack.receive(at(31_000));
            stack.send();
            assert_eq!((sent, wire.sent().len()), (0, 0), "{address}");
        }
        let bound = host.stack.udp.bind(Some(Ipv4Addr::LOCALHOST.into()), 77, 0);
        let other = SocketAddr::from(([10, 0, 0, 2], 9));
        let left = host.stack.send_datagram(bound.unwrap(), None, other, b"?");
        assert_eq!(left, Err(Unsent::NoRoute));
    }

    /// A batch arrives as its datagrams, in order, whether the port cuts what leaves as one or not,
    /// in both versions; those that are too long for a packet are fragments beside it.
    #[test]
    fn a_batch_arrives_as_its_datagrams() {
        for (uso, v6) in [(false, false), (true, false), (false, true), (true, true)] {
            let port = MemoryPort::new("net");
            let port = if uso { port.with_uso() } else { port };
            let mut hosts = Hosts::of([Host::over(1, port), Host::new(2)]);
            let own = ["fe80::1", "fe80::2"].map(|own| Prefix::new(own.parse().unwrap(), 64));
            for (host, own) in hosts.hosts.iter_mut().zip(own) {
                let port = host.stack.ip.port(0);
                port.v6.add_address(own.unwrap(), Detect::Later, at(0));
            }
            for second in 1..=5 {
                hosts.pass(1000 * second);
            }
            let server = hosts.hosts[1].stack.udp.bind(None, 53, 0).unwrap();
            let to = match v6 {
                true => "[fe80::2]:53".parse().unwrap(),
                false => SocketAddr::from(([10, 0, 0, 2], 53)),
            };
            let stack = &mut hosts.hosts[0].stack;
            let client = stack.udp.bind(None, 99, 0).unwrap();
            assert_eq!(stack.send_datagrams(client, None, &[]), Ok(0));
            // Now the neighbour is known.
            stack.send_datagram(client, None, to, b"?").unwrap();
            hosts.pass(5000);
            let sizes = [700, 700, 700, 700, 300, 40, 40, 0, 3000, 9];
            let payloads: Vec<Vec<u8>> = (b'a'..)
                .zip(sizes)
                .map(|(n, len)| std::vec![n; len])
                .collect();
            let batch: Vec<Outgoing<'_>> = payloads.iter().map(|bytes| (&bytes[..], to)).collect();
            let stack = &mut hosts.hosts[0].stack;
            assert_eq!(stack.send_datagrams(client, None, &batch), Ok(batch.len()));
            hosts.pass(5000);
            let udp = &mut hosts.hosts[1].stack.udp;
            let came = core::iter::from_fn(|| udp.receive(server));
            let came: Vec<Vec<u8>> = came.map(|one| one.frame.bytes().to_vec()).collect();
            assert_eq!(came[0], b"?");
            assert!(came[1..] == payloads, "{uso} {v6}");
        }
    }

    /// A datagram goes to the socket that has its sender for a peer, and to another one if there is
    /// none, at the same port.
    #[test]
    fn a_connected_socket_has_its_peers_datagrams_and_no_others() {
        let mut hosts = Hosts::new();
        hosts.pass(5000);
        let peer = SocketAddr::from(([10, 0, 0, 2], 53));
        let Host { stack, .. } = &mut hosts.hosts[0];
        let any = stack.udp.bind(None, 99, 0).unwrap();
        let one = stack.connect_datagrams(None, 99, peer).unwrap();
        let again = stack.connect_datagrams(None, 99, peer);
        assert_eq!(again, Err(Error::Bind(BindError::InUse)));
        let nowhere = "[2001:db8::1]:53".parse().unwrap();
        let unrouted = stack.connect_datagrams(None, 99, nowhere);
        assert_eq!(unrouted, Err(Error::Unsent(Unsent::NoRoute)));
        for port in [53, 54] {
            let Host { stack, .. } = &mut hosts.hosts[1];
            let sender = stack.udp.bind(None, port, 0).unwrap();
            let to = SocketAddr::from(([10, 0, 0, 1], 99));
            stack.send_datagram(sender, None, to, b"!").unwrap();
        }
        hosts.pass(5000);
        let udp = &mut hosts.hosts[0].stack.udp;
        let mut from = |socket| {
            let all = core::iter::from_fn(|| udp.receive(socket));
            all.map(|datagram| datagram.from.port()).collect::<Vec<_>>()
        };
        assert_eq!((from(one), from(any)), (std::vec![53], std::vec![54]));
    }

    /// RFC 1122, 4.1.3.3, as Linux has it: once, to the socket that has the peer.
    #[test]
    fn a_peer_that_does_not_listen_is_told_once() {
        let mut hosts = Hosts::new();
        hosts.pass(5000);
        let peer = SocketAddr::from(([10, 0, 0, 2], 53));
        let Host { stack, .. } = &mut hosts.hosts[0];
        let any = stack.udp.bind(None, 98, 0).unwrap();
        let one = stack.connect_datagrams(None, 99, peer).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for (n, socket, refused) in [(1, any, false), (2, one, true), (3, one, true)] {
            let Host { stack, .. } = &mut hosts.hosts[0];
            stack.send_datagram(socket, None, peer, b"?").unwrap();
            hosts.pass(5000 + n * 1500);
            let udp = &mut hosts.hosts[0].stack.udp;
            let mut told = || match udp.poll_receive(socket, &mut context) {
                Poll::Ready(Err(udp::Refused)) => true,
                Poll::Ready(Ok(datagram)) => panic!("{datagram:?}"),
                Poll::Pending => false,
            };
            assert_eq!([told(), told()], [refused, false], "{n}");
        }
        let udp = &mut hosts.hosts[0].stack.udp;
        assert!(!udp.take_refusal(any) && !udp.take_refusal(one));
    }

    /// The question of a switch, and what it and others are told of a group.
    #[test]
    fn a_group_is_told_and_its_datagrams_reach_who_has_joined() {
        let mut hosts = Hosts::new();
        hosts.pass(5000);
        let groups: [IpAddr; 2] = ["239.1.2.3", "ff12::123"].map(|group| group.parse().unwrap());
        let stack = &mut hosts.hosts[1].stack;
        let v6 = Prefix::new("fe80::2".parse().unwrap(), 64).unwrap();
        stack.ip.port(0).v6.add_address(v6, Detect::Later, at(5000));
        hosts.pass(9000);
        let stack = &mut hosts.hosts[1].stack;
        let socket = stack.udp.bind(None, 53, 0).unwrap();
        assert!(groups.iter().all(|group| stack.join(socket, *group)));
        let told = hosts.pass(9000);
        assert_eq!(told.len(), 2);
        // Version 4 with an option, one hop; a report of version 3 with one record: all sources.
        assert_eq!(told[0][..6], [1, 0, 0x5e, 0, 0, 22]);
        assert_eq!((told[0][14], told[0][22], told[0][23]), (0x46, 1, 2));
        assert_eq!(told[0][34..39], [148, 4, 0, 0, 0x22]);
        assert_eq!(told[0][44..54], [0, 1, 4, 0, 0, 0, 239, 1, 2, 3]);
        // Hop-by-hop options, and a report of version 2.
        assert_eq!(told[1][..6], [0x33, 0x33, 0, 0, 0, 0x16]);
        assert_eq!((told[1][20], told[1][21], told[1][22]), (0, 1, 0xfe));
        assert_eq!(told[1][54..63], [58, 0, 5, 2, 0, 0, 1, 0, 143]);
        assert_eq!(told[1][69..74], [1, 4, 0, 0, 0]);

        // Version 2's, with a second for the answer.
        let mut frame = std::vec![1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
        frame.extend([
            0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 224, 0, 0, 1,
        ]);
        frame.extend([0x11, 10, 0, 0, 0, 0, 0, 0]);
        device::checksum::complete(&mut frame[14..34], 0, 10);
        device::checksum::complete(&mut frame[34..], 0, 2);
        hosts.pass(11_000);
        hosts.hosts[1].wire.arrives(&frame);
        assert!(hosts.pass(12_000).is_empty(), "the answer has time");
        let told = hosts.pass(13_000);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0][..6], [1, 0, 0x5e, 1, 2, 3]);
        assert_eq!((told[0][38], &told[0][42..46]), (0x16, &[239, 1, 2, 3][..]));

        let other = hosts.hosts[1].stack.udp.bind(None, 54, 0).unwrap();
        let stack = &mut hosts.hosts[0].stack;
        let client = stack.udp.bind(None, 99, 0).unwrap();
        for port in [53, 54] {
            let to = SocketAddr::new(groups[0], port);
            stack.send_datagram(client, None, to, b"all").unwrap();
        }
        hosts.pass(14_000);
        let stack = &mut hosts.hosts[1].stack;
        assert_eq!(stack.udp.receive(socket).unwrap().to, groups[0]);
        assert!(stack.udp.receive(other).is_none());
        stack.leave(socket, groups[0]);
        let told = hosts.pass(14_000);
        assert_eq!(told[0][..6], [1, 0, 0x5e, 0, 0, 2]);
        assert_eq!((told[0][38], &told[0][42..46]), (0x17, &[239, 1, 2, 3][..]));
        let stack = &mut hosts.hosts[1].stack;
        assert!(!stack.join(socket, Ipv4Addr::new(10, 0, 0, 7).into()));
        assert_eq!(stack.udp.group(socket), Some(groups[1]));
    }

    /// The host narrows the port and loses what was too long, and widens it again.
    #[test]
    fn segments_follow_the_mtu_of_the_port() {
        let mut hosts = Hosts::new();
        hosts.write(&[7; 2000]);
        let longest = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() - 14).max();
        assert_eq!(longest(&hosts.sent(10)), Some(1500));
        hosts.hosts[0].wire.set_mtu(576);
        hosts.write(&[8; 2000]);
        let again = hosts.sent(300);
        assert_eq!(longest(&again), Some(576));
        let payload: usize = again.iter().map(|frame| frame.len() - HEADERS - 32).sum();
        assert!(payload >= 2000, "{payload} bytes");
        for frame in again {
            hosts.hosts[1].wire.arrives(&frame);
        }
        assert!(longest(&hosts.pass(300)) <= Some(576));
        hosts.hosts[0].wire.set_mtu(1500);
        hosts.write(&[9; 9000]);
        assert_eq!(longest(&hosts.pass(400)), Some(1500));
        let tcp = &hosts.hosts[0].stack.tcp;
        let report = tcp.socket(hosts.socket).unwrap().connection().report();
        assert_eq!(report.unacknowledged, 0, "all has arrived");
    }

    /// RFC 1191, 6.4: a router that has no room for a segment has it sent again at once.
    #[test]
    fn what_is_too_big_for_the_path_is_sent_again_at_once() {
        let mut hosts = Hosts::new();
        hosts.write(&[7; 2000]);
        let sent = hosts.sent(10);
        assert_eq!(sent[0].len(), HEADERS + 20 + 1460);
        let quoted = &sent[0][14..HEADERS + 8];
        // Fragmentation is needed, says somebody with an MTU of 1000 (RFC 1191, 4).
        let mut report = std::vec![3, 4, 0, 0, 0, 0, 3, 232];
        report.extend_from_slice(quoted);
        device::checksum::complete(&mut report, 0, 2);
        let mut frame = sent[0][..HEADERS].to_vec();
        let (to, from) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        frame[16..18].copy_from_slice(&(20 + report.len() as u16).to_be_bytes());
        (frame[23], frame[24], frame[25]) = (1, 0, 0);
        frame[ADDRESSES].rotate_left(4);
        device::checksum::complete(&mut frame[14..HEADERS], 0, 10);
        frame.extend(report);
        hosts.hosts[0].wire.arrives(&frame);
        let again = hosts.sent(20);
        let lens: Vec<_> = again.iter().map(|frame| frame.len() - 14).collect();
        assert_eq!(lens[0], 1000, "{lens:?}");
        assert!(lens.iter().all(|len| *len <= 1000));
    }
}
