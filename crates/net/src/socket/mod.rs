//! Sockets for tasks: listen, accept, connect, read, write.
//!
//! An appliance is written over the traits [`Sockets`] and [`Stream`], so that the same code runs
//! over this stack and over another one.

mod kept;

pub use crate::connected::Connected;
pub use crate::tcp::socket::Marks;
pub use kept::Kept;

use crate::layer::Unsent;
use crate::report::Report;
use crate::slices::Slices;
use crate::task::Clock;
use crate::tcp::connection::Failure;
use crate::tcp::host::{ListenerId, SocketId, Tcp, Unusable};
use crate::tcp::queues::Payload;
use crate::tcp::socket::{Error as Failed, Socket};
use crate::udp::{self, BindError, Datagram, Outgoing, Udp};
use alloc::rc::Rc;
use bytes::Bytes;
use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use ports::{Errno, Instant};

/// What sockets need of the stack below them.
pub trait Hub {
    /// TCP.
    fn tcp(&mut self) -> &mut Tcp;

    /// Begins to open a connection.
    ///
    /// # Errors
    /// If no route leads there, or no port is free.
    fn connect(&mut self, remote: SocketAddr) -> Result<SocketId, Unusable>;

    /// UDP.
    fn udp(&mut self) -> &mut Udp;

    /// A socket for datagrams of one peer, from this port, and from this address or the one that
    /// the route says.
    ///
    /// # Errors
    /// If somebody has these ends, or no route leads there.
    fn connect_datagrams(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        peer: SocketAddr,
    ) -> Result<udp::Socket, Error>;

    /// Sends datagrams in order, until one is not sent; how many were. They leave from this
    /// address, if it is one of ours, and else from the one that the route says; always from that
    /// to which the socket is bound, if it is bound to one.
    ///
    /// # Errors
    /// Why the first one was not sent.
    fn send_datagrams(
        &mut self,
        socket: udp::Socket,
        from: Option<IpAddr>,
        batch: &[Outgoing<'_>],
    ) -> Result<usize, Unsent>;

    /// The same with one.
    ///
    /// # Errors
    /// Why it was not sent.
    fn send_datagram(
        &mut self,
        socket: udp::Socket,
        from: Option<IpAddr>,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Result<(), Unsent> {
        self.send_datagrams(socket, from, &[(bytes, to)]).map(drop)
    }

    /// Has a socket get what goes to a group; `false` if that is none, or there are too many.
    fn join(&mut self, socket: udp::Socket, group: IpAddr) -> bool;

    /// Ends that.
    fn leave(&mut self, socket: udp::Socket, group: IpAddr);

    /// The time, as it was when the turn began.
    fn now(&self) -> Instant;
}

/// Why a socket does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It cannot be had.
    Unusable(Unusable),
    /// The connection has failed, or was closed.
    Failed(Failed),
    /// It is not there for datagrams.
    Bind(BindError),
    /// A datagram was not sent.
    Unsent(Unsent),
    /// It is no group, or there are too many.
    Group,
    /// The host says so, of a socket of its own.
    Host(Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(why) => why.fmt(f),
            Self::Failed(why) => why.fmt(f),
            Self::Bind(why) => why.fmt(f),
            Self::Unsent(why) => why.fmt(f),
            Self::Group => f.write_str("no such group, or too many groups"),
            Self::Host(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// The peer does not want it.
const REFUSED: Error = Error::Failed(Failed::Failed(Failure::Refused));

impl From<Unusable> for Error {
    fn from(why: Unusable) -> Self {
        Self::Unusable(why)
    }
}

impl From<Failed> for Error {
    fn from(why: Failed) -> Self {
        Self::Failed(why)
    }
}

/// Where sockets come from.
#[allow(async_fn_in_trait, reason = "an image has one thread")]
pub trait Sockets: Clone {
    /// What waits for connections.
    type Listener: Listener<Stream = Self::Stream>;
    /// A connection.
    type Stream: Stream;
    /// What takes and sends datagrams.
    type Datagrams: Datagrams;

    /// Takes datagrams that come to `local`; at any address of ours, if that is unspecified. Port 0
    /// chooses a free one.
    ///
    /// # Errors
    /// If somebody does already.
    fn bind(&self, local: SocketAddr) -> Result<Self::Datagrams, Error>;

    /// Exchanges datagrams with one peer, from `local`, as [`Self::bind`] has it: what others send
    /// there does not come, and goes to a socket that is bound there, if there is one.
    ///
    /// # Errors
    /// If somebody has these ends, or no route leads there.
    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<Self::Datagrams>, Error> {
        Ok(Connected::new(self.bind(local)?, peer))
    }

    /// Waits for connections to `local`, at most `backlog` at a time; to any address of ours, of
    /// IPv4 and IPv6, if that is unspecified.
    ///
    /// # Errors
    /// If somebody does already.
    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<Self::Listener, Error>;

    /// Opens a connection.
    ///
    /// # Errors
    /// If the peer cannot be reached, or does not want it.
    async fn connect(&self, remote: SocketAddr) -> Result<Self::Stream, Error>;

    /// The next connection of the image before this one, which goes on; `None` when there are no
    /// more, or where none can. An image asks for all of them when it starts: it knows by
    /// [`Stream::local`] and [`Stream::peer`] what each is for, and drops those that it does not
    /// want.
    fn taken_up(&self) -> Option<Self::Stream> {
        None
    }

    /// Whoever will listen does so within this time. Where the image before this one listened, its
    /// peers are not refused meanwhile: what they send is dropped, and they send it again.
    fn listened_within(&self, time: Duration) {
        let _ = time;
    }
}

/// Waits for connections; dropped, it does no more.
#[allow(async_fn_in_trait, reason = "an image has one thread")]
pub trait Listener {
    /// A connection.
    type Stream: Stream;

    /// The next connection.
    ///
    /// # Errors
    /// If there will be none.
    async fn accept(&mut self) -> Result<Self::Stream, Error>;

    /// Waits until it is known that it can be had, where [`Sockets::listen`] could not say so.
    ///
    /// # Errors
    /// If it cannot be had.
    async fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// A connection. Dropped, it is closed: what was written still leaves, and nothing is read.
#[allow(async_fn_in_trait, reason = "an image has one thread")]
pub trait Stream {
    /// Reads what is there into `place`, which is not empty; how many bytes, 0 at the end.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error>;

    /// Reads as many bytes as `place` has; `None` if the connection ends before.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn read_exact(&mut self, place: &mut [u8]) -> Result<Option<()>, Error> {
        let mut filled = 0;
        while filled < place.len() {
            match self.read(&mut place[filled..]).await? {
                0 => return Ok(None),
                count => filled += count,
            }
        }
        Ok(Some(()))
    }

    /// The next bytes that have come, uncopied where that can be; `None` at the end.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn take(&mut self) -> Result<Option<Payload>, Error>;

    /// Writes back what has come; how many bytes, 0 at the end. Over a stack with a
    /// [vault](crate::tcp::vault) it is one step, which an image that ends in between has done or
    /// has not.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn give_back(&mut self) -> Result<usize, Error> {
        let Some(bytes) = self.take().await? else {
            return Ok(0);
        };
        self.write(&bytes).await?;
        Ok(bytes.len())
    }

    /// Writes all of `bytes`: waits until each has a place in the queue.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error>;

    /// The same with bytes that are handed over: they are copied once less.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn give(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.write(&bytes).await
    }

    /// Writes all of several slices, one behind the other, as one write: none leaves before all are
    /// queued, while there is room. Each byte is copied once, into the queue.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        for slice in slices {
            self.write(slice).await?;
        }
        Ok(())
    }

    /// Sends no more; the peer may.
    fn shutdown(&mut self);

    /// Waits until the peer has acknowledged all that was written, and behind [`Self::shutdown`]
    /// the end as well. Its TCP has it then; its program may not have read it.
    ///
    /// # Errors
    /// If the connection has failed.
    async fn acknowledged(&mut self) -> Result<(), Error>;

    /// Ends it at once, for both halves of a [split](Self::split) one: what was not sent is lost,
    /// and the peer is told with RST (RFC 9293, 3.10.5).
    fn abort(self)
    where
        Self: Sized;

    /// Closes it, and waits until the peer has acknowledged all and the end, at most so long;
    /// `None` if that was too short. Then, what was written still leaves, as for one that is
    /// dropped. With no time at all it is [aborted](Self::abort). So does `SO_LINGER` of socket(7).
    ///
    /// # Errors
    /// If the connection has failed.
    async fn close(mut self, clock: &Clock, longest: Duration) -> Result<Option<()>, Error>
    where
        Self: Sized,
    {
        if longest.is_zero() {
            self.abort();
            return Ok(Some(()));
        }
        self.shutdown();
        clock
            .timeout(longest, self.acknowledged())
            .await
            .transpose()
    }

    /// Small writes leave at once.
    fn set_no_delay(&mut self, no_delay: bool);

    /// While nothing comes, the peer is asked after so long, and then again, whether it is still
    /// there (RFC 9293, 3.8.4): a connection whose peer has vanished fails, and else stays.
    /// Never with `None`, which is the default. The host's sockets count whole seconds.
    fn set_keep_alive(&mut self, idle: Option<Duration>);

    /// The same connection twice: while a task reads from the one, another task writes to the
    /// other. It is closed when both are dropped.
    fn split(self) -> (Self, Self)
    where
        Self: Sized;

    /// The peer.
    fn peer(&self) -> SocketAddr;

    /// Our end.
    fn local(&self) -> SocketAddr;

    /// What is known of it; `None` if nothing is, or if it has failed.
    fn report(&self) -> Option<Report> {
        None
    }

    /// The same connection as one that outlives the image; `None` if it does not.
    fn kept(&mut self) -> Option<&mut dyn Kept> {
        None
    }
}

/// Who sent a datagram, and where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Who sent it.
    pub from: SocketAddr,
    /// Which of our addresses, or which group, it went to.
    pub to: IpAddr,
}

/// Takes and sends datagrams; dropped, it does no more.
#[allow(async_fn_in_trait, reason = "an image has one thread")]
pub trait Datagrams {
    /// The next datagram: as much of it as fits into `place`, and who has sent it.
    ///
    /// # Errors
    /// If there will be none.
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error>;

    /// Sends a datagram. It may be lost on its way, as every one may.
    ///
    /// # Errors
    /// Why it was not sent.
    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error>;

    /// Sends datagrams in order, until one is not sent; how many were, at least one of any. Several
    /// to one peer that are equally long, one behind the other, cost little more than one where
    /// the port cuts them (`sendmmsg`, and `UDP_SEGMENT` of udp(7)).
    ///
    /// # Errors
    /// Why the first one was not sent.
    fn send_batch(&mut self, batch: &[Outgoing<'_>]) -> Result<usize, Error> {
        let mut sent = 0;
        for (bytes, to) in batch {
            match self.send(bytes, *to) {
                Ok(()) => sent += 1,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// The same as [`Self::receive`], and the address to which the datagram went: an answer is
    /// to come from there ([`Self::send_from`]). It is unspecified where only the host knows it.
    ///
    /// # Errors
    /// If there will be none.
    async fn receive_at(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        let (count, from) = self.receive(place).await?;
        let to = self.local().ip();
        Ok((count, Ends { from, to }))
    }

    /// Sends a datagram from one of our addresses. Where `from` is none, such as a group, the route
    /// chooses one, as for [`Self::send`]; where the socket is the host's, the host does.
    ///
    /// # Errors
    /// Why it was not sent.
    fn send_from(&mut self, bytes: &[u8], from: IpAddr, to: SocketAddr) -> Result<(), Error> {
        let _ = from;
        self.send(bytes, to)
    }

    /// Takes from now on what goes to a group, too. Switches and routers are told. A socket that is
    /// bound to one of our addresses gets nothing that goes to a group.
    ///
    /// # Errors
    /// [`Error::Group`]; always, where the socket is the host's.
    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        let _ = group;
        Err(Error::Group)
    }

    /// Takes no longer what goes to a group.
    fn leave(&mut self, group: IpAddr) {
        let _ = group;
    }

    /// Where datagrams arrive; the address is unspecified if they do at any of ours.
    fn local(&self) -> SocketAddr;

    /// Waits until it is known that it can be had, where [`Sockets::bind`] could not say so.
    ///
    /// # Errors
    /// If it cannot be had.
    async fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// Sockets of a stack.
#[derive(Clone)]
pub struct Net(Rc<RefCell<dyn Hub>>);

impl Net {
    /// Sockets of this stack.
    pub fn new(stack: Rc<RefCell<dyn Hub>>) -> Self {
        Self(stack)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Tcp) -> T) -> T {
        work(self.0.borrow_mut().tcp())
    }

    /// The connection of this socket.
    fn stream(&self, id: SocketId) -> TcpStream {
        let peer = self.with(|tcp| {
            let socket = tcp.socket(id);
            socket.map(|socket| socket.ends().remote())
        });
        TcpStream(Rc::new(Open {
            id,
            net: self.clone(),
            peer: peer.unwrap_or(SocketAddr::from(([0; 4], 0))),
        }))
    }
}

impl Sockets for Net {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Datagrams = UdpSocket;

    fn bind(&self, local: SocketAddr) -> Result<UdpSocket, Error> {
        let mut hub = self.0.borrow_mut();
        let hint = hint(hub.now());
        let socket = hub.udp().bind(specified(local), local.port(), hint);
        Ok(UdpSocket {
            socket: socket.map_err(Error::Bind)?,
            net: self.clone(),
            has_peer: false,
        })
    }

    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<UdpSocket>, Error> {
        let mut hub = self.0.borrow_mut();
        let socket = hub.connect_datagrams(specified(local), local.port(), peer)?;
        let socket = UdpSocket {
            socket,
            net: self.clone(),
            has_peer: true,
        };
        Ok(Connected::new(socket, peer))
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<TcpListener, Error> {
        Ok(TcpListener {
            id: self.with(|tcp| tcp.listen(local, backlog))?,
            net: self.clone(),
        })
    }

    async fn connect(&self, remote: SocketAddr) -> Result<TcpStream, Error> {
        let id = self.0.borrow_mut().connect(remote)?;
        // From here on it is let go of if nobody waits any more.
        let stream = TcpStream(Rc::new(Open {
            id,
            net: self.clone(),
            peer: remote,
        }));
        poll_fn(|context| self.with(|tcp| tcp.poll_open(id, context))).await?;
        Ok(stream)
    }

    /// With a vault ([`Tcp::with_vault`](crate::tcp::host::Tcp::with_vault)).
    fn taken_up(&self) -> Option<TcpStream> {
        let id = self.with(Tcp::taken_up)?;
        Some(self.stream(id))
    }

    fn listened_within(&self, time: Duration) {
        let mut hub = self.0.borrow_mut();
        let from = hub.now() + time;
        hub.tcp().listened_from(from);
    }
}

/// Waits for connections.
pub struct TcpListener {
    id: ListenerId,
    net: Net,
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> Result<TcpStream, Error> {
        let id = poll_fn(|context| self.net.with(|tcp| tcp.poll_accept(self.id, context))).await;
        Ok(self.net.stream(id))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.net.with(|tcp| tcp.unlisten(self.id));
    }
}

/// The address, if it is one of ours and does not stand for all.
fn specified(local: SocketAddr) -> Option<IpAddr> {
    (!local.ip().is_unspecified()).then_some(local.ip())
}

/// Where to look for a free port of UDP. What nobody needs to guess: by the time (RFC 6056, 3.3.1
/// asks for more of TCP).
pub(crate) fn hint(now: Instant) -> u16 {
    (now.0 / 1000) as u16
}

/// Takes and sends datagrams.
pub struct UdpSocket {
    socket: udp::Socket,
    net: Net,
    /// It may be refused.
    has_peer: bool,
}

impl UdpSocket {
    /// The next datagram, in the frame in which it came.
    ///
    /// # Errors
    /// If it has a peer that does not listen.
    pub async fn take(&mut self) -> Result<Datagram, Error> {
        let received = poll_fn(|context| {
            let mut hub = self.net.0.borrow_mut();
            hub.udp().poll_receive(self.socket, context)
        });
        received.await.map_err(|udp::Refused| REFUSED)
    }

    fn give(&self, batch: &[Outgoing<'_>], from: Option<IpAddr>) -> Result<usize, Error> {
        let mut hub = self.net.0.borrow_mut();
        if self.has_peer && hub.udp().take_refusal(self.socket) {
            return Err(REFUSED);
        }
        let sent = hub.send_datagrams(self.socket, from, batch);
        sent.map_err(Error::Unsent)
    }
}

impl Datagrams for UdpSocket {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let (count, ends) = self.receive_at(place).await?;
        Ok((count, ends.from))
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.give(&[(bytes, to)], None).map(drop)
    }

    fn send_batch(&mut self, batch: &[Outgoing<'_>]) -> Result<usize, Error> {
        self.give(batch, None)
    }

    async fn receive_at(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        let Datagram {
            from, to, frame, ..
        } = self.take().await?;
        let count = frame.len().min(place.len());
        place[..count].copy_from_slice(&frame.bytes()[..count]);
        Ok((count, Ends { from, to }))
    }

    fn send_from(&mut self, bytes: &[u8], from: IpAddr, to: SocketAddr) -> Result<(), Error> {
        self.give(&[(bytes, to)], Some(from)).map(drop)
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        let joined = self.net.0.borrow_mut().join(self.socket, group);
        joined.then_some(()).ok_or(Error::Group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.net.0.borrow_mut().leave(self.socket, group);
    }

    fn local(&self) -> SocketAddr {
        let mut hub = self.net.0.borrow_mut();
        let udp = hub.udp();
        let address = udp
            .local(self.socket)
            .unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        SocketAddr::new(address, udp.port(self.socket).unwrap_or(0))
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut hub = self.net.0.borrow_mut();
        while let Some(group) = hub.udp().group(self.socket) {
            hub.leave(self.socket, group);
        }
        hub.udp().close(self.socket);
    }
}

/// A connection.
pub struct TcpStream(Rc<Open>);

/// What is closed when nobody holds it any more.
struct Open {
    id: SocketId,
    net: Net,
    peer: SocketAddr,
}

impl Open {
    fn with<T>(&self, work: impl FnOnce(&mut Tcp, SocketId) -> T) -> T {
        self.net.with(|tcp| work(tcp, self.id))
    }
}

impl Stream for TcpStream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        let read = poll_fn(|context| self.0.with(|tcp, id| tcp.poll_read(id, place, context)));
        Ok(read.await?)
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        let take = poll_fn(|context| self.0.with(|tcp, id| tcp.poll_take(id, context)));
        Ok(take.await?)
    }

    async fn give_back(&mut self) -> Result<usize, Error> {
        let given = poll_fn(|context| self.0.with(|tcp, id| tcp.poll_give_back(id, context)));
        Ok(given.await?)
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let written =
                poll_fn(|context| self.0.with(|tcp, id| tcp.poll_write(id, bytes, context)));
            bytes = &bytes[written.await?..];
        }
        Ok(())
    }

    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        let mut slices = Slices::new(slices);
        while !slices.is_empty() {
            let written = poll_fn(|context| {
                self.0
                    .with(|tcp, id| tcp.poll_write_vectored(id, &slices, context))
            });
            slices.advance(written.await?);
        }
        Ok(())
    }

    async fn give(&mut self, mut bytes: Bytes) -> Result<(), Error> {
        while !bytes.is_empty() {
            poll_fn(|context| {
                self.0
                    .with(|tcp, id| tcp.poll_give(id, &mut bytes, context))
            })
            .await?;
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        self.0.with(|tcp, id| tcp.shutdown(id));
    }

    async fn acknowledged(&mut self) -> Result<(), Error> {
        let acknowledged =
            poll_fn(|context| self.0.with(|tcp, id| tcp.poll_acknowledged(id, context)));
        Ok(acknowledged.await?)
    }

    fn abort(self) {
        self.0.with(|tcp, id| tcp.abort(id));
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        self.0.with(|tcp, id| tcp.set_no_delay(id, no_delay));
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        let now = self.0.net.0.borrow().now();
        self.0.with(|tcp, id| tcp.set_keep_alive(id, idle, now));
    }

    fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    fn local(&self) -> SocketAddr {
        let of = |socket: &Socket| socket.ends().local();
        let local = self.0.with(|tcp, id| tcp.socket(id).map(of));
        local.unwrap_or(SocketAddr::from(([0; 4], 0)))
    }

    fn report(&self) -> Option<Report> {
        self.0.with(|tcp, id| Report::of(tcp.socket(id)?))
    }

    fn kept(&mut self) -> Option<&mut dyn Kept> {
        let is_kept = self.0.with(|tcp, id| tcp.is_kept(id));
        is_kept.then_some(self)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = self.net.0.borrow().now();
        self.with(|tcp, id| tcp.leave(id, now));
    }
}
