//! UDP (RFC 768): its header, and sockets whose queues hold the frames in which datagrams came.

use crate::address::pseudo_sum;
use crate::counts::{Counts, reasons};
use crate::layer::Filled;
use crate::version::Received;
use alloc::collections::{BTreeMap, VecDeque};
use arrayvec::ArrayVec;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll, Waker};
use device::{BATCH_FRAMES_MAX, Checksum, Frame, Gso, GsoKind, Offload, checksum};

/// Its number as a protocol of IP.
pub const PROTOCOL: u8 = 17;
/// Bytes of a header.
pub const HEADER: usize = 8;
/// Sockets at once.
pub const SOCKETS_MAX: usize = 1024;
/// Datagrams that wait in one socket: a whole batch, as tasks have their turn before the next one
/// comes.
pub const QUEUE_MAX: usize = BATCH_FRAMES_MAX;
/// Groups that sockets listen to, all together: a group counts for each socket.
pub const MEMBERSHIPS_MAX: usize = 64;
/// The part of a pool's buffers that stays free for frames that come and leave, once sockets hold
/// [`HELD_PART`] of them.
const FREE_PART: usize = 4;
/// The part of a pool's buffers that datagrams may hold even while no other is free, as when a
/// batch has them all.
const HELD_PART: usize = 2;

/// Most datagrams of a [run]: fewer than Linux takes (`UDP_MAX_SEGMENTS`).
pub const RUN_MAX: usize = 64;

/// Where the checksum lies in the header.
const CHECKSUM: u16 = 6;
/// Ports that sockets are given which ask for none (RFC 6335, 6).
const EPHEMERAL: core::ops::RangeInclusive<u16> = 49_152..=65_535;

/// Has a datagram filled in behind its header, in the place that IP gave. The checksum is left to
/// the port. [`HEADER`] more bytes than the payload are to be asked for.
#[inline]
pub fn emit(
    source: SocketAddr,
    destination: SocketAddr,
    place: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> usize,
) -> Filled {
    let Some((header, payload)) = place.split_first_chunk_mut::<HEADER>() else {
        return Filled::new(0);
    };
    let room = payload.len();
    let len = HEADER + fill(payload).min(room);
    let pseudo = pseudo_sum(source.ip(), destination.ip(), PROTOCOL, len);
    header[..2].copy_from_slice(&source.port().to_be_bytes());
    header[2..4].copy_from_slice(&destination.port().to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    header[6..].copy_from_slice(&checksum::fold(pseudo).to_ne_bytes());
    Filled {
        len,
        offload: Offload {
            checksum: Some(Checksum {
                start: 0,
                offset: CHECKSUM,
            }),
            gso: None,
        },
    }
}

/// A datagram that is to be sent: its payload, and where it goes.
pub type Outgoing<'a> = (&'a [u8], SocketAddr);

/// How many datagrams at the beginning of `batch` can leave as one, which the port cuts: they go to
/// one peer, and are as long as the first; only the last may be shorter, and none is empty. `most`
/// is how many bytes that one may have, and `each` how many the payload of each. 0 if there is
/// none.
pub fn run(batch: &[Outgoing<'_>], most: usize, each: usize) -> usize {
    let Some(((first, to), others)) = batch.split_first() else {
        return 0;
    };
    let (mut count, mut len) = (1, HEADER + first.len());
    if first.is_empty() || first.len() > each {
        return count;
    }
    for (bytes, peer) in others.iter().take(RUN_MAX - 1) {
        len += bytes.len();
        if peer != to || bytes.is_empty() || bytes.len() > first.len() || len > most {
            break;
        }
        count += 1;
        if bytes.len() < first.len() {
            break;
        }
    }
    count
}

/// Fills in the payloads of a [run] as one datagram, which is to be cut if they are several.
#[inline]
pub fn emit_run(source: SocketAddr, run: &[Outgoing<'_>], place: &mut [u8]) -> Filled {
    let Some(&(first, destination)) = run.first() else {
        return Filled::new(0);
    };
    let mut filled = emit(source, destination, place, |payload| {
        let mut end = 0;
        for (bytes, _) in run {
            payload[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
        end
    });
    if run.len() > 1 {
        filled.offload.gso = Some(Gso {
            kind: match destination {
                SocketAddr::V4(_) => GsoKind::UdpV4,
                SocketAddr::V6(_) => GsoKind::UdpV6,
            },
            // Less than a packet.
            size: first.len() as u16,
            header: HEADER as u16,
            ecn: false,
        });
    }
    filled
}

reasons! {
    /// Why a received datagram was dropped.
    pub enum Dropped {
        /// It is longer than its packet, or shorter than its header.
        Length = "udp_length",
        /// Its checksum is wrong, or is missing over IPv6.
        Checksum = "udp_checksum",
        /// It comes from no port, to which nobody can answer, or goes to none.
        Port = "udp_port",
        /// Nobody listens.
        NoSocket = "udp_no_socket",
        /// Too many wait already.
        Full = "udp_full",
    }
}

/// The ports of a datagram, checked, and its length.
fn parse(packet: &Received) -> Result<(u16, u16, usize), Dropped> {
    let bytes = packet.frame.bytes();
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or(Dropped::Length)?;
    let [s0, s1, d0, d1, l0, l1, c0, c1] = *header;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let datagram = bytes
        .get(..len)
        .filter(|_| len >= HEADER)
        .ok_or(Dropped::Length)?;
    // Over IPv4 it may be missing (RFC 768); over IPv6 not (RFC 8200, 8.1).
    let missing = [c0, c1] == [0, 0] && packet.source.is_ipv4();
    let left_open = packet.frame.offload().checksum.is_some();
    if !missing && !left_open {
        let pseudo = pseudo_sum(packet.source, packet.destination, PROTOCOL, len);
        let none = [c0, c1] == [0, 0];
        if none || checksum::fold(checksum::sum(datagram) + pseudo) != 0xffff {
            return Err(Dropped::Checksum);
        }
    }
    let (source, destination) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    if source == 0 || destination == 0 {
        return Err(Dropped::Port);
    }
    Ok((source, destination, len))
}

/// A datagram that waits in a socket.
#[derive(Debug)]
pub struct Datagram {
    /// Who sent it.
    pub from: SocketAddr,
    /// Which of our addresses, or which group, it went to.
    pub to: IpAddr,
    /// The number of the port by which it came; `None` if we have sent it to ourselves.
    pub port: Option<u16>,
    /// Its payload.
    pub frame: Frame,
}

reasons! {
    /// Datagrams that came and left.
    pub enum Datagrams {
        /// Datagrams that came for a socket.
        Received = "udp_datagrams_received",
        /// Datagrams that left.
        Sent = "udp_datagrams_sent",
    }
}

/// Names a socket until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Socket(u32);

/// What can be seen of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Our address, if it is bound to one.
    pub local: Option<IpAddr>,
    /// Our port.
    pub port: u16,
    /// The peer, if it has one.
    pub peer: Option<SocketAddr>,
    /// Datagrams that wait.
    pub waiting: usize,
}

/// Why a socket was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindError {
    /// Another one has that address and port.
    InUse,
    /// There are too many sockets.
    TooMany,
}

impl core::fmt::Display for BindError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::InUse => "the port is in use",
            Self::TooMany => "too many sockets are open",
        })
    }
}

impl core::error::Error for BindError {}

/// The peer's host says that nobody listens at its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What datagrams a socket takes. Of several that would take one, that with the most parts does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    port: u16,
    /// `None` takes what goes to any address.
    local: Option<IpAddr>,
    /// `None` takes what comes from anybody.
    peer: Option<SocketAddr>,
}

#[derive(Debug)]
struct Open {
    key: Key,
    queue: VecDeque<Datagram>,
    /// Waits for a datagram.
    reader: Option<Waker>,
    /// The peer's host has said that nobody listens there, and nobody was told.
    refused: bool,
}

/// The sockets.
#[derive(Debug, Default)]
pub struct Udp {
    by_key: BTreeMap<Key, Socket>,
    sockets: BTreeMap<Socket, Open>,
    /// Which groups each listens to.
    memberships: ArrayVec<(Socket, IpAddr), MEMBERSHIPS_MAX>,
    last: u32,
    queued: usize,
    dropped: Counts<Dropped>,
    datagrams: Counts<Datagrams>,
}

impl Udp {
    /// No socket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a socket for what goes to `port`, at one of our addresses or at all. Port 0 chooses a
    /// free one: the first from `hint` on, which should be random (RFC 6056, 3.3.1).
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        hint: u16,
    ) -> Result<Socket, BindError> {
        let port = self.chosen(port, hint)?;
        self.open(Key {
            port,
            local,
            peer: None,
        })
    }

    /// Opens a socket for one peer's datagrams to one of our addresses. It goes before those that
    /// take anybody's, also at the same port.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn connect(
        &mut self,
        local: IpAddr,
        port: u16,
        hint: u16,
        peer: SocketAddr,
    ) -> Result<Socket, BindError> {
        let port = self.chosen(port, hint)?;
        self.open(Key {
            port,
            local: Some(local),
            peer: Some(peer),
        })
    }

    /// A socket gets from now on what goes to a group; `false` if there are too many memberships.
    /// The layers below are to listen to it, too.
    pub fn join(&mut self, socket: Socket, group: IpAddr) -> bool {
        self.is_member(socket, group) || self.memberships.try_push((socket, group)).is_ok()
    }

    /// A socket no longer gets what goes to a group; whether no other one does.
    pub fn leave(&mut self, socket: Socket, group: IpAddr) -> bool {
        self.memberships
            .retain(|membership| *membership != (socket, group));
        let mut others = self.memberships.iter();
        others.all(|(_, other)| *other != group)
    }

    /// A group that a socket listens to, if there is one.
    pub fn group(&self, socket: Socket) -> Option<IpAddr> {
        let mut all = self.memberships.iter();
        let membership = all.find(|(member, _)| *member == socket)?;
        Some(membership.1)
    }

    #[inline]
    fn is_member(&self, socket: Socket, group: IpAddr) -> bool {
        self.memberships.contains(&(socket, group))
    }

    /// Closes a socket, which listens to no group any more; what waits in it is dropped.
    pub fn close(&mut self, socket: Socket) {
        self.memberships.retain(|(member, _)| *member != socket);
        if let Some(open) = self.sockets.remove(&socket) {
            self.by_key.remove(&open.key);
            self.queued -= open.queue.len();
        }
    }

    /// The next datagram of a socket; waits until there is one. Never, if the socket is closed.
    ///
    /// # Errors
    /// [`Refused`], once for each time that it becomes known.
    pub fn poll_receive(
        &mut self,
        socket: Socket,
        context: &mut Context<'_>,
    ) -> Poll<Result<Datagram, Refused>> {
        if self.take_refusal(socket) {
            return Poll::Ready(Err(Refused));
        }
        if let Some(datagram) = self.receive(socket) {
            return Poll::Ready(Ok(datagram));
        }
        if let Some(open) = self.sockets.get_mut(&socket) {
            open.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// An ICMP error quotes a datagram, which found nobody at its port: the socket that has this
    /// peer, if there is one, is to be told (RFC 1122, 4.1.3.3). As with Linux's, a socket without
    /// a peer is not: it could not say of whom.
    pub fn refuse(&mut self, source: IpAddr, destination: IpAddr, transport: &[u8; HEADER]) {
        let quoted = self.quoted(source, destination, transport);
        if let Some(socket) = quoted
            && let Some(open) = self.sockets.get_mut(&socket)
            && open.key.peer.is_some()
        {
            open.refused = true;
            if let Some(waker) = open.reader.take() {
                waker.wake();
            }
        }
    }

    /// Whether the peer has been found not to listen since somebody was last told.
    pub fn take_refusal(&mut self, socket: Socket) -> bool {
        let open = self.sockets.get_mut(&socket);
        open.is_some_and(|open| core::mem::take(&mut open.refused))
    }

    /// The sockets from this number on, each with its number.
    pub fn sockets_from(&self, first: u32) -> impl Iterator<Item = (u32, Shown)> {
        let sockets = self.sockets.range(Socket(first)..);
        sockets.map(|(socket, open)| {
            let Key { port, local, peer } = open.key;
            let waiting = open.queue.len();
            let shown = Shown {
                local,
                port,
                peer,
                waiting,
            };
            (socket.0, shown)
        })
    }

    /// The address that a socket is bound to, if it is bound to one.
    pub fn local(&self, socket: Socket) -> Option<IpAddr> {
        self.sockets.get(&socket)?.key.local
    }

    /// The port of a socket.
    pub fn port(&self, socket: Socket) -> Option<u16> {
        Some(self.sockets.get(&socket)?.key.port)
    }

    /// The next datagram of a socket.
    pub fn receive(&mut self, socket: Socket) -> Option<Datagram> {
        let datagram = self.sockets.get_mut(&socket)?.queue.pop_front()?;
        self.queued -= 1;
        Some(datagram)
    }

    /// Takes a packet of [`PROTOCOL`], which came by this port; whose it is now.
    ///
    /// # Errors
    /// The packet, if nobody listens at its port: its sender is to be told.
    pub fn accept(
        &mut self,
        packet: Received,
        port: Option<u16>,
    ) -> Result<Option<Socket>, Received> {
        let (source, destination, len) = match parse(&packet) {
            Ok(ports) => ports,
            Err(reason) => {
                self.dropped.add(reason);
                return Ok(None);
            }
        };
        let from = SocketAddr::new(packet.source, source);
        let to = packet.destination;
        let found = self.find(to, destination, from);
        let takes = |socket: &Socket| !to.is_multicast() || self.is_member(*socket, to);
        let Some(socket) = found.filter(takes) else {
            self.dropped.add(Dropped::NoSocket);
            return Err(packet);
        };
        let Some(open) = self.sockets.get_mut(&socket) else {
            return Ok(None);
        };
        let pool = packet.frame.pool();
        let few_free = pool.free() < pool.count() / FREE_PART;
        let is_starved = few_free && self.queued >= pool.count() / HELD_PART;
        if open.queue.len() >= QUEUE_MAX || is_starved {
            self.dropped.add(Dropped::Full);
            return Ok(None);
        }
        let mut frame = packet.frame;
        frame.truncate(len);
        frame.set_offload(Offload::NONE);
        if frame.pop_front(HEADER) {
            open.queue.push_back(Datagram {
                from,
                to,
                port,
                frame,
            });
            self.queued += 1;
            self.datagrams.add(Datagrams::Received);
            if let Some(waker) = open.reader.take() {
                waker.wake();
            }
        }
        Ok(Some(socket))
    }

    /// The socket that sent a datagram which an ICMP error quotes: `transport` is the beginning of
    /// its header, `source` our address.
    pub fn quoted(
        &self,
        source: IpAddr,
        destination: IpAddr,
        transport: &[u8; HEADER],
    ) -> Option<Socket> {
        let [s0, s1, d0, d1, ..] = *transport;
        let peer = SocketAddr::new(destination, u16::from_be_bytes([d0, d1]));
        self.find(source, u16::from_be_bytes([s0, s1]), peer)
    }

    /// What was dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// Counts datagrams that have left.
    pub fn sent(&mut self, count: usize) {
        self.datagrams.add_several(Datagrams::Sent, count as u64);
    }

    /// Shows what was counted, by name.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.datagrams.show(show);
        self.dropped.show(show);
    }

    fn open(&mut self, key: Key) -> Result<Socket, BindError> {
        if self.by_key.contains_key(&key) {
            return Err(BindError::InUse);
        }
        if self.sockets.len() >= SOCKETS_MAX {
            return Err(BindError::TooMany);
        }
        // Numbers come again after four billion sockets; those that are open are passed over.
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.sockets.contains_key(&Socket(self.last)) {
                break;
            }
        }
        let socket = Socket(self.last);
        self.by_key.insert(key, socket);
        let open = Open {
            key,
            queue: VecDeque::with_capacity(QUEUE_MAX),
            reader: None,
            refused: false,
        };
        self.sockets.insert(socket, open);
        Ok(socket)
    }

    /// This port, or one that no socket has if it is 0: there are more ports than sockets.
    fn chosen(&self, port: u16, hint: u16) -> Result<u16, BindError> {
        if port != 0 {
            return Ok(port);
        }
        let (first, last) = (*EPHEMERAL.start(), *EPHEMERAL.end());
        let count = last - first + 1;
        let is_free = |port: &u16| {
            let (port, local, peer) = (*port, None, None);
            let mut from = self.by_key.range(Key { port, local, peer }..);
            from.next().is_none_or(|(key, _)| key.port != port)
        };
        (0..count)
            .map(|n| first + (hint % count + n) % count)
            .find(is_free)
            .ok_or(BindError::TooMany)
    }

    #[inline]
    fn find(&self, local: IpAddr, port: u16, peer: SocketAddr) -> Option<Socket> {
        let local = Some(local);
        let keys = [(local, Some(peer)), (local, None), (None, None)];
        keys.into_iter().find_map(|(local, peer)| {
            let key = Key { port, local, peer };
            self.by_key.get(&key).copied()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use device::Pool;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const OURS: &str = "10.0.0.1:53";
    const PEER: &str = "10.0.0.2:4000";

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// The bytes of a datagram with its checksum complete.
    fn datagram(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER + payload.len()];
        let filled = emit(address(from), address(to), &mut bytes, |place| {
            place.copy_from_slice(payload);
            payload.len()
        });
        assert_eq!(filled.len, bytes.len());
        filled.offload.complete_checksum(&mut bytes);
        bytes
    }

    fn packet(from: &str, to: &str, bytes: &[u8]) -> Received {
        Received {
            source: address(from).ip(),
            destination: address(to).ip(),
            unicast: true,
            protocol: PROTOCOL,
            class: 0,
            header: 0,
            frame: testing::frame(bytes),
        }
    }

    fn accept(udp: &mut Udp, from: &str, to: &str) -> Option<Socket> {
        let packet = packet(from, to, &datagram(from, to, b"hello"));
        udp.accept(packet, Some(0)).unwrap_or(None)
    }

    #[test]
    fn a_datagram_waits_in_the_frame_in_which_it_came() {
        let mut udp = Udp::new();
        let socket = udp.bind(None, 53, 0).unwrap();
        let mut bytes = datagram(PEER, OURS, b"hello");
        bytes.push(0);
        let packet = packet(PEER, OURS, &bytes);
        let place = packet.frame.bytes()[HEADER..].as_ptr();
        assert_eq!(udp.accept(packet, Some(0)).unwrap(), Some(socket));
        let datagram = udp.receive(socket).unwrap();
        assert_eq!(datagram.frame.bytes(), b"hello");
        assert_eq!(datagram.frame.bytes().as_ptr(), place);
        assert_eq!(
            (datagram.from, datagram.to),
            (address(PEER), address(OURS).ip())
        );
        assert!(udp.receive(socket).is_none());
    }

    #[test]
    fn the_socket_with_the_most_parts_takes_it() {
        let mut udp = Udp::new();
        let (ours, peer) = (address(OURS).ip(), address(PEER));
        let any = udp.bind(None, 53, 0).unwrap();
        let local = udp.bind(Some(ours), 53, 0).unwrap();
        let one = udp.connect(ours, 53, 0, peer).unwrap();
        assert_eq!(accept(&mut udp, PEER, OURS), Some(one));
        assert_eq!(accept(&mut udp, "10.0.0.2:4001", OURS), Some(local));
        assert_eq!(accept(&mut udp, PEER, "10.0.0.9:53"), Some(any));
        assert_eq!(accept(&mut udp, "[fe80::2]:9", "[fe80::1]:53"), Some(any));
        assert_eq!(udp.bind(None, 53, 0), Err(BindError::InUse));
        udp.close(one);
        assert_eq!(accept(&mut udp, PEER, OURS), Some(local));
        let quoted: [u8; 8] = datagram(OURS, PEER, b"")[..8].try_into().unwrap();
        assert_eq!(udp.quoted(ours, peer.ip(), &quoted), Some(local));
    }

    #[test]
    fn who_asks_for_no_port_gets_a_free_one() {
        let mut udp = Udp::new();
        let ports = [5, 5, 65_535].map(|hint| {
            let socket = udp.bind(None, 0, hint).unwrap();
            udp.port(socket).unwrap()
        });
        assert_eq!(ports, [49_157, 49_158, 65_535]);
    }

    #[test]
    fn each_bad_datagram_has_its_reason() {
        let mut udp = Udp::new();
        udp.bind(None, 53, 0).unwrap();
        let mut dropped = |from: &str, edit: fn(&mut Vec<u8>)| {
            let to = if from.starts_with('[') {
                "[fe80::1]:53"
            } else {
                OURS
            };
            let mut bytes = datagram(from, to, b"hello");
            edit(&mut bytes);
            let before = udp.dropped().clone();
            assert!(matches!(
                udp.accept(packet(from, to, &bytes), Some(0)),
                Ok(None)
            ));
            let now = udp.dropped().iter().zip(before.iter());
            let name = now
                .filter(|(now, before)| now.1 > before.1)
                .map(|(now, _)| now.0);
            name.last()
        };
        assert_eq!(dropped(PEER, |bytes| bytes.truncate(7)), Some("udp_length"));
        assert_eq!(
            dropped(PEER, |bytes| bytes.truncate(12)),
            Some("udp_length")
        );
        assert_eq!(dropped(PEER, |bytes| bytes[5] = 7), Some("udp_length"));
        assert_eq!(dropped(PEER, |bytes| bytes[9] ^= 1), Some("udp_checksum"));
        let without = |bytes: &mut Vec<u8>| bytes[6..8].fill(0);
        assert_eq!(dropped("[fe80::2]:9", without), Some("udp_checksum"));
        assert_eq!(dropped("10.0.0.2:0", |_| {}), Some("udp_port"));
        let mut ipv4 = datagram(PEER, OURS, b"hello");
        without(&mut ipv4);
        assert!(matches!(
            udp.accept(packet(PEER, OURS, &ipv4), Some(0)),
            Ok(Some(_))
        ));
    }

    #[test]
    fn a_checksum_that_is_left_open_is_not_looked_at() {
        let mut udp = Udp::new();
        udp.bind(None, 53, 0).unwrap();
        let mut bytes = vec![0; 13];
        let filled = emit(address(PEER), address(OURS), &mut bytes, |place| {
            place.len()
        });
        let mut packet = packet(PEER, OURS, &bytes);
        packet.frame.set_offload(filled.offload);
        assert!(matches!(udp.accept(packet, Some(0)), Ok(Some(_))));
    }

    #[test]
    fn nobody_listening_gives_the_packet_back() {
        let mut udp = Udp::new();
        let bytes = datagram(PEER, OURS, b"hello");
        let refused = udp.accept(packet(PEER, OURS, &bytes), Some(0)).unwrap_err();
        assert_eq!(refused.frame.bytes(), bytes);
        assert_eq!(udp.dropped().get(Dropped::NoSocket), 1);
    }

    #[test]
    fn floods_and_sockets_are_bounded() {
        let mut udp = Udp::new();
        let sockets: Vec<_> = (0..2000)
            .filter_map(|_| udp.bind(None, 0, 0).ok())
            .collect();
        assert_eq!(sockets.len(), SOCKETS_MAX);
        assert_eq!(udp.bind(None, 0, 0), Err(BindError::TooMany));
        let pool = Pool::new(vec![0; 2 * QUEUE_MAX * 128].leak(), 128);
        let flood = |udp: &mut Udp, n: usize| {
            let to = std::format!("10.0.0.1:{}", udp.port(sockets[n]).unwrap());
            let bytes = datagram(PEER, &to, b"hello");
            for _ in 0..100 {
                let mut packet = packet(PEER, &to, &bytes);
                packet.frame = pool.alloc(bytes.len()).unwrap();
                packet.frame.bytes_mut().copy_from_slice(&bytes);
                assert!(udp.accept(packet, Some(0)).is_ok());
            }
            udp.sockets[&sockets[n]].queue.len()
        };
        let waiting = [0, 1, 2].map(|n| flood(&mut udp, n));
        // What is being received holds a buffer, too.
        assert_eq!(waiting, [QUEUE_MAX, QUEUE_MAX / 2, 0]);
        assert_eq!(pool.free(), pool.count() / FREE_PART);
        assert_eq!(udp.dropped().get(Dropped::Full), 300 - udp.queued as u64);
        udp.close(sockets[0]);
        assert_eq!(udp.queued, QUEUE_MAX / 2);
    }

    #[test]
    fn a_batch_that_has_all_buffers_may_wait_by_half() {
        let mut udp = Udp::new();
        udp.bind(None, 53, 0).unwrap();
        let bytes = datagram(PEER, OURS, b"hello");
        let pool = Pool::new(vec![0; 16 * 128].leak(), 128);
        let batch: Vec<_> = core::iter::from_fn(|| pool.alloc(bytes.len())).collect();
        for mut frame in batch {
            frame.bytes_mut().copy_from_slice(&bytes);
            let mut packet = packet(PEER, OURS, &bytes);
            packet.frame = frame;
            assert!(udp.accept(packet, Some(0)).is_ok());
        }
        assert!(udp.queued >= pool.count() / HELD_PART);
        assert_eq!(pool.free(), pool.count() / FREE_PART);
    }

    #[test]
    fn a_run_goes_to_one_peer_and_only_its_last_is_shorter() {
        let (a, b): (SocketAddr, _) = (PEER.parse().unwrap(), OURS.parse().unwrap());
        let of = |batch: &[(usize, SocketAddr)], most, each| {
            let batch: Vec<Outgoing<'_>> = batch
                .iter()
                .map(|(len, to)| (&[7; 2000][..*len], *to))
                .collect();
            run(&batch, most, each)
        };
        let most = 65_000;
        assert_eq!(of(&[], most, 1472), 0);
        assert_eq!(of(&[(100, a)], most, 1472), 1);
        assert_eq!(of(&[(100, a), (100, a), (99, a), (99, a)], most, 1472), 3);
        assert_eq!(of(&[(100, a), (101, a)], most, 1472), 1);
        assert_eq!(of(&[(100, a), (100, b), (100, a)], most, 1472), 1);
        assert_eq!(of(&[(100, a), (0, a)], most, 1472), 1);
        assert_eq!(of(&[(0, a), (0, a)], most, 1472), 1);
        // What is fragmented is not cut.
        assert_eq!(of(&[(1473, a), (1473, a)], most, 1472), 1);
        assert_eq!(of(&[(1000, a); 9], HEADER + 5999, 1472), 5);
        assert_eq!(of(&[(1, a); 100], most, 1472), RUN_MAX);
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            ports in (1u16.., 1u16..),
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            v6: bool,
        ) {
            let hosts = if v6 { ["[fe80::2]", "[fe80::1]"] } else { ["10.0.0.2", "10.0.0.1"] };
            let from = std::format!("{}:{}", hosts[0], ports.0);
            let to = std::format!("{}:{}", hosts[1], ports.1);
            let bytes = datagram(&from, &to, &payload);
            let read = parse(&packet(&from, &to, &bytes));
            prop_assert_eq!(read, Ok((ports.0, ports.1, bytes.len())));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut udp = Udp::new();
            udp.bind(None, 53, 0).unwrap();
            let _ = udp.accept(packet(PEER, OURS, &bytes), Some(0));
        }
    }
}
