//! A whole stack over one port: IP below, TCP and UDP above, turn by turn.
//!
//! Whoever runs it calls [`Stack::receive`], lets tasks run, calls [`Stack::send`], and sleeps
//! until [`Stack::deadline`] or until the port has something. Each call does a bounded amount of
//! work.

use crate::ethernet::Ethernet;
use crate::icmp::{Kind, Refusal, Report};
use crate::ip::Ip;
use crate::layer::{Filled, Unsent};
use crate::socket::Hub;
use crate::tcp::below::{Below, PROTOCOL as TCP};
use crate::tcp::host::{SocketId, Tcp, Unusable};
use crate::tcp::identity::Ends;
use crate::tcp::seq::Seq;
use crate::tcp::{Limits, Segment};
use crate::udp::{self, PROTOCOL as UDP, Udp};
use crate::version::{Arrived, Packet, Version};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use device::Batch;
use ports::Instant;

/// A whole stack over one port.
pub struct Stack<V4, V6> {
    /// The layers below.
    pub ip: Ip<V4, V6>,
    /// TCP.
    pub tcp: Tcp,
    /// UDP.
    pub udp: Udp,
    batch: Batch,
    now: Instant,
}

/// IP as TCP sees it, at one moment.
struct Lower<'a, V4, V6> {
    ip: &'a mut Ip<V4, V6>,
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

    fn limits(&self, remote: IpAddr) -> Limits {
        let header = match remote {
            IpAddr::V4(_) => crate::ipv4::HEADER,
            IpAddr::V6(_) => crate::ipv6::HEADER,
        };
        // Neither exceeds what an IP packet can hold, 64 KiB.
        Limits {
            segment: self.ip.mtu(remote, self.now).saturating_sub(header) as u32,
            largest: self.ip.largest(remote, self.now) as u32,
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
            ip,
            tcp,
            udp: Udp::new(),
            batch: Batch::new(),
            now,
        }
    }

    /// Takes in what the port has, at most one batch, and what time brings; whether there was a
    /// frame.
    pub fn receive(&mut self, now: Instant) -> bool {
        self.now = now;
        let Self {
            ip,
            tcp,
            udp,
            batch,
            ..
        } = self;
        ip.receive(batch);
        let any = !batch.is_empty();
        for frame in batch.drain() {
            match ip.accept(frame, now) {
                Some(Arrived::Packet(packet)) if packet.protocol == UDP => {
                    if let Err(packet) = udp.accept(packet) {
                        ip.refuse(packet, Refusal::Port, now);
                    }
                }
                Some(Arrived::Packet(packet)) if packet.protocol != TCP => {
                    ip.refuse(packet, Refusal::Protocol, now);
                }
                // RFC 9293, 3.9.2.3: TCP is between two stations.
                Some(Arrived::Packet(packet)) if packet.unicast => {
                    let (source, destination) = (packet.source, packet.destination);
                    let mut lower = Lower { ip, now };
                    tcp.receive(&mut lower, source, destination, packet.frame, now);
                }
                Some(Arrived::Report(report)) => heed(ip, tcp, &report, now),
                Some(Arrived::Packet(_)) | None => {}
            }
        }
        tcp.expire(&mut Lower { ip, now }, now);
        ip.poll(now);
        any
    }

    /// Sends what is to be sent; `false` if the port has no buffer and more is to leave.
    pub fn send(&mut self) -> bool {
        let Self { ip, tcp, now, .. } = self;
        let all = tcp.send(&mut Lower { ip, now: *now }, *now);
        ip.flush();
        all
    }

    /// When [`Self::receive`] has something to do although no frame has come.
    pub fn deadline(&self) -> Instant {
        let tcp = self.tcp.deadline(self.now);
        self.ip.deadline().map_or(tcp, |ip| ip.min(tcp))
    }
}

/// Somebody reports an error about a segment that claims to be ours (RFC 5927: only what quotes a
/// segment that is on its way is believed).
fn heed<V4, V6>(ip: &mut Ip<V4, V6>, tcp: &mut Tcp, report: &Report, now: Instant)
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
            ip.too_big(report, live, now);
        }
        Kind::Port | Kind::Protocol | Kind::Unreachable if live => tcp.unreachable(&ends),
        _ => {}
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

    fn send_datagram(
        &mut self,
        socket: udp::Socket,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Unsent> {
        let now = self.now;
        let local = self.udp.local(socket);
        let source = local.or_else(|| self.ip.source(to.ip(), now));
        let (Some(source), Some(port)) = (source, self.udp.port(socket)) else {
            return Err(Unsent::NoRoute);
        };
        let packet = Packet {
            fragment: true,
            ..Packet::new(source, to.ip(), UDP)
        };
        let fill = |place: &mut [u8]| {
            udp::emit(SocketAddr::new(source, port), to, place, |payload| {
                payload[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            })
        };
        self.ip.write(packet, udp::HEADER + bytes.len(), fill, now)
    }

    fn now(&self) -> Instant {
        self.now
    }
}
