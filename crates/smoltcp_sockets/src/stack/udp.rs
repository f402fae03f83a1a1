//! What sockets for datagrams ask for.

use super::{PORTS_TRIED, Stack, collide, endpoint};
use alloc::vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Context, Poll};
use device::BATCH_FRAMES_MAX;
use net::layer::Unsent;
use net::socket;
use net::tcp::identity::Ends;
use net::udp::BindError;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::Socket;
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, SendError, Socket as Udp, UdpMetadata};
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpListenEndpoint};

/// Sockets that may be there at a time.
const SOCKETS_MAX: usize = 32;
/// Bytes of each of a socket's two queues: two of the longest datagrams.
const QUEUE_BYTES: usize = 128 << 10;
/// Datagrams in such a queue.
const DATAGRAMS_MAX: usize = 2 * BATCH_FRAMES_MAX;
/// Bytes of the headers of IP and UDP.
const HEADERS_V4: usize = 28;
const HEADERS_V6: usize = 48;
/// Bytes of the longest packet.
const PACKET_MAX: usize = 65_535;
/// Fragments of the longest packet over the narrowest network (RFC 791: 576 bytes).
const FRAGMENTS_MAX: usize = PACKET_MAX.div_ceil(552);

impl Stack {
    /// A socket, and where datagrams arrive.
    pub(crate) fn bind(
        &mut self,
        local: SocketAddr,
    ) -> Result<(SocketHandle, SocketAddr), BindError> {
        if self.datagrams == SOCKETS_MAX {
            return Err(BindError::TooMany);
        }
        let taken = |wanted: SocketAddr| {
            self.sockets.iter().any(|(_, socket)| match socket {
                Socket::Udp(socket) => collide(address(socket.endpoint()), wanted),
                _ => false,
            })
        };
        let ends = Ends::new(local, local);
        let free = |tried: u32| {
            let port = match local.port() {
                0 => self.secret.port(&ends, self.count as u32 + tried),
                port => port,
            };
            let local = SocketAddr::new(local.ip(), port);
            (!taken(local)).then_some(local)
        };
        let local = (0..PORTS_TRIED).find_map(free).ok_or(BindError::InUse)?;
        self.count += u64::from(PORTS_TRIED);
        self.datagrams += 1;
        let queue = || {
            let places = vec![PacketMetadata::EMPTY; DATAGRAMS_MAX];
            PacketBuffer::new(places, vec![0; QUEUE_BYTES])
        };
        let mut socket = Udp::new(queue(), queue());
        // It is new, and its port is one.
        let _ = socket.bind(endpoint(local));
        Ok((self.sockets.add(socket), local))
    }

    /// Closes it.
    pub(crate) fn unbind(&mut self, handle: SocketHandle) {
        // What was sent leaves, as far as it can at once.
        self.transmit();
        self.sockets.remove(handle);
        self.datagrams -= 1;
    }

    /// The next datagram: as much of it as fits, who sent it, and where it went.
    pub(crate) fn poll_receive(
        &mut self,
        handle: SocketHandle,
        place: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<(usize, socket::Ends)> {
        let socket = self.sockets.get_mut::<Udp>(handle);
        let Ok((bytes, from)) = socket.recv() else {
            socket.register_recv_waker(context.waker());
            return Poll::Pending;
        };
        let count = bytes.len().min(place.len());
        place[..count].copy_from_slice(&bytes[..count]);
        let to = from.local_address.map(IpAddr::from);
        let ends = socket::Ends {
            from: from.endpoint.into(),
            to: to.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
        };
        Poll::Ready((count, ends))
    }

    /// Queues a datagram, from this address if it is one of ours.
    pub(crate) fn send_datagram(
        &mut self,
        handle: SocketHandle,
        bytes: &[u8],
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> Result<(), Unsent> {
        let route = self.source(to.ip()).ok_or(Unsent::NoRoute)?;
        let (headers, longest) = match to.ip() {
            IpAddr::V4(_) => (HEADERS_V4, PACKET_MAX),
            // smoltcp does not fragment those.
            IpAddr::V6(_) => (HEADERS_V6, self.phy.mtu()),
        };
        if headers + bytes.len() > longest {
            return Err(Unsent::TooBig);
        }
        let is_own = |from: &IpAddr| self.interface.has_ip_addr(IpAddress::from(*from));
        let bound = self.sockets.get::<Udp>(handle).endpoint().addr;
        let from = from.filter(is_own).map(IpAddress::from);
        let mut data = UdpMetadata::from(to);
        data.local_address = bound.or(from).or(Some(route.into()));
        // smoltcp cuts one packet at a time: one that is to be cut finds the place free.
        let cut = headers + bytes.len() > self.phy.mtu();
        if cut || !self.sockets.get::<Udp>(handle).can_send() {
            self.transmit();
        }
        let socket = self.sockets.get_mut::<Udp>(handle);
        let mut sent = socket.send_slice(bytes, data);
        if sent == Err(SendError::BufferFull) {
            self.transmit();
            sent = self.sockets.get_mut::<Udp>(handle).send_slice(bytes, data);
        }
        if cut {
            self.send_fragments();
        }
        sent.map_err(|error| match error {
            SendError::Unaddressable => Unsent::NoRoute,
            SendError::BufferFull => Unsent::NoBuffer,
        })
    }

    /// Has all fragments of a packet leave.
    fn send_fragments(&mut self) {
        let now = super::time(self.now);
        for _ in 0..FRAGMENTS_MAX {
            self.transmit();
            if self.interface.poll_at(now, &self.sockets) != Some(Instant::ZERO) {
                break;
            }
        }
    }
}

fn address(local: IpListenEndpoint) -> SocketAddr {
    let address = local.addr.map(IpAddr::from);
    SocketAddr::new(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), local.port)
}
