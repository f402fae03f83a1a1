//! The host's own sockets in the place of a stack's: what is left then is what the proxy itself
//! costs, and does.

use crate::fill::Fill;
use crate::link::now;
use crate::reactor::{self, Reactor, Watched};
use crate::run::Below;
use bytes::Bytes;
use net::socket::{Connected, Datagrams, Error, Listener, Sockets, Stream};
use net::tcp::queues::Payload;
use ports::Instant;
use rustix::event::epoll::Event;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_linger, set_socket_reuseaddr,
    set_tcp_keepidle, set_tcp_nodelay, socket_error,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
    connect, getpeername, getsockname, listen, recv, recvfrom, send, sendto, shutdown, socket_with,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Bytes that are taken at once.
const PIECE_BYTES: usize = 64 << 10;

/// Sockets of the host's.
#[derive(Clone)]
pub struct Direct(Rc<Reactor>);

impl Direct {
    /// Those that this set watches.
    pub fn new(reactor: Rc<Reactor>) -> Self {
        Self(reactor)
    }

    fn open(&self, kind: SocketType, like: SocketAddr) -> Result<OwnedFd, Errno> {
        let family = match like {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        socket_with(
            family,
            kind,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )
    }

    /// One that takes both versions of IP, if it takes any address and the host has both.
    fn open_at(&self, kind: SocketType, local: SocketAddr) -> Result<(OwnedFd, bool), Errno> {
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), local.port());
        if local.ip().is_unspecified()
            && let Ok(socket) = self.open(kind, both)
        {
            set_ipv6_v6only(&socket, false)?;
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &both)?;
            return Ok((socket, true));
        }
        let socket = self.open(kind, local)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &local)?;
        Ok((socket, local.is_ipv6()))
    }

    fn stream(&self, socket: OwnedFd) -> Result<HostStream, Errno> {
        let socket = Rc::new(self.0.watch(socket)?);
        Ok(HostStream::new(socket))
    }
}

fn wrong(errno: Errno) -> Error {
    Error::Host(ports::Errno(errno.raw_os_error()))
}

/// An address as people write it.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn own(socket: &Watched) -> SocketAddr {
    let found = getsockname(socket).ok();
    let found = found.and_then(|found| SocketAddr::try_from(found).ok());
    found.map_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), plain)
}

impl Sockets for Direct {
    type Listener = HostListener;
    type Stream = HostStream;
    type Datagrams = HostDatagrams;

    fn bind(&self, local: SocketAddr) -> Result<HostDatagrams, Error> {
        let (socket, v6) = self.open_at(SocketType::DGRAM, local).map_err(wrong)?;
        let socket = self.0.watch(socket).map_err(wrong)?;
        Ok(HostDatagrams { socket, v6 })
    }

    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<HostDatagrams>, Error> {
        let datagrams = self.bind(local)?;
        let to = datagrams.as_sent(peer);
        connect(&datagrams.socket, &to).map_err(wrong)?;
        Ok(Connected::new(datagrams, peer))
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<HostListener, Error> {
        let (socket, _) = self.open_at(SocketType::STREAM, local).map_err(wrong)?;
        listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX)).map_err(wrong)?;
        Ok(HostListener(
            self.0.watch(socket).map_err(wrong)?,
            self.clone(),
        ))
    }

    async fn connect(&self, remote: SocketAddr) -> Result<HostStream, Error> {
        let socket = self.open(SocketType::STREAM, remote).map_err(wrong)?;
        match connect(&socket, &remote) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(wrong(errno)),
        }
        let stream = self.stream(socket).map_err(wrong)?;
        let connected = stream.socket.writes(|socket| {
            socket_error(socket)??;
            match getpeername(socket) {
                Err(Errno::NOTCONN) => Err(Errno::AGAIN),
                other => other.map(drop),
            }
        });
        connected.await.map_err(wrong)?;
        Ok(stream)
    }
}

/// Waits for connections.
pub struct HostListener(Watched, Direct);

impl Listener for HostListener {
    type Stream = HostStream;

    async fn accept(&mut self) -> Result<HostStream, Error> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let accepted = self.0.reads(|socket| accept_with(socket, flags)).await;
        accepted
            .and_then(|socket| self.1.stream(socket))
            .map_err(wrong)
    }
}

/// A connection.
pub struct HostStream {
    socket: Rc<Watched>,
    /// What is to leave, if there is a place for that.
    piece: Vec<u8>,
    /// How much of it.
    filled: usize,
}

impl HostStream {
    fn new(socket: Rc<Watched>) -> Self {
        Self {
            socket,
            piece: Vec::new(),
            filled: 0,
        }
    }
}

impl Fill for HostStream {
    async fn room(&mut self) -> Result<(), Error> {
        let filled = std::mem::take(&mut self.filled);
        let piece = std::mem::take(&mut self.piece);
        let written = self.write(&piece[..filled]).await;
        self.piece = piece;
        written
    }

    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Option<usize>, Errno> {
        self.piece.resize(PIECE_BYTES, 0);
        let count = read(&mut self.piece)?;
        self.filled = count.min(PIECE_BYTES);
        Ok(Some(count))
    }
}

impl Stream for HostStream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        let read = self
            .socket
            .reads(|socket| recv(socket, &mut *place, RecvFlags::DONTWAIT));
        read.await.map(|(count, _)| count).map_err(wrong)
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        let mut piece = vec![0; PIECE_BYTES];
        let count = self.read(&mut piece).await?;
        piece.truncate(count);
        Ok((count > 0).then(|| Payload::from(Bytes::from(piece))))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = self.socket.writes(|socket| send(socket, rest, flags)).await;
            rest = &rest[sent.map_err(wrong)?..];
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        let _ = shutdown(&*self.socket, Shutdown::Write);
    }

    async fn acknowledged(&mut self) -> Result<(), Error> {
        // The kernel goes on with what it has.
        Ok(())
    }

    fn abort(self) {
        // The last one that closes it resets it.
        let _ = set_socket_linger(&*self.socket, Some(Duration::ZERO));
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        let _ = set_tcp_nodelay(&*self.socket, no_delay);
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        let _ = set_socket_keepalive(&*self.socket, idle.is_some());
        if let Some(idle) = idle {
            let _ = set_tcp_keepidle(&*self.socket, idle);
        }
    }

    fn split(self) -> (Self, Self) {
        (Self::new(self.socket.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        let found = getpeername(&*self.socket).ok().flatten();
        let found = found.and_then(|found| SocketAddr::try_from(found).ok());
        found.map_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0), plain)
    }

    fn local(&self) -> SocketAddr {
        own(&self.socket)
    }
}

/// Takes and sends datagrams.
pub struct HostDatagrams {
    socket: Watched,
    v6: bool,
}

impl HostDatagrams {
    /// An address as the socket's version of IP has it.
    fn as_sent(&self, to: SocketAddr) -> SocketAddr {
        match (self.v6, to.ip()) {
            (true, IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        }
    }
}

impl Datagrams for HostDatagrams {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let received = self.socket.reads(|socket| {
            let (count, _, from) = recvfrom(socket, &mut *place, RecvFlags::DONTWAIT)?;
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            Ok((count, plain(from.ok_or(Errno::IO)?)))
        });
        received.await.map_err(wrong)
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        let to = self.as_sent(to);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendto(&self.socket, bytes, flags, &to)
            .map(drop)
            .map_err(wrong)
    }

    fn local(&self) -> SocketAddr {
        let local = own(&self.socket);
        match local.ip().is_unspecified() {
            true => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port()),
            false => local,
        }
    }
}

/// The host, which needs no turns.
pub struct Host;

impl Below for Host {
    fn receive(&mut self, _: Instant) -> bool {
        false
    }

    fn flush(&mut self) {}

    fn deadline(&self) -> Instant {
        net::tcp::connection::NEVER
    }

    /// Its sockets are what a jail takes away.
    fn jailed(&self) -> bool {
        false
    }

    fn wait(
        &mut self,
        epoll: BorrowedFd<'_>,
        deadline: Option<Instant>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        events.clear();
        Ok(reactor::wait(epoll, deadline, now(), events)?)
    }
}
