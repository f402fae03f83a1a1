//! Sockets over whatever the manifest makes of `service`: each call goes on to those of that kind.

use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use link_sockets as link;
use net::host::{HostDatagrams, HostListener, HostNet, HostStream};
use net::report::Report;
use net::socket::{self, Connected, Ends, Error, Kept};
use net::tcp::queues::Payload;
use net::udp::Outgoing;
#[cfg(feature = "smoltcp")]
use smoltcp_sockets::{Net as StackNet, TcpListener, TcpStream, UdpSocket};
#[cfg(not(feature = "smoltcp"))]
use socket::{Net as StackNet, TcpListener, TcpStream, UdpSocket};

/// Does the same with whatever it is.
macro_rules! each {
    ($value:expr, $inner:ident => $work:expr) => {
        match $value {
            Self::Stack($inner) => $work,
            Self::Host($inner) => $work,
            Self::Link($inner) => $work,
        }
    };
}

/// Where sockets come from.
#[derive(Clone)]
pub enum Net {
    /// A stack of the image's own.
    Stack(StackNet),
    /// The host.
    Host(HostNet),
    /// A stack in another image.
    Link(link::Net),
}

/// Waits for connections.
pub enum Listener {
    /// Of a stack of the image's own.
    Stack(TcpListener),
    /// Of the host's.
    Host(HostListener),
    /// Of a stack's in another image.
    Link(link::Listener),
}

/// A connection.
pub enum Stream {
    /// Of a stack of the image's own.
    Stack(TcpStream),
    /// Of the host's.
    Host(HostStream),
    /// Of a stack's in another image.
    Link(link::Stream),
}

/// Takes and sends datagrams.
pub enum Datagrams {
    /// Of a stack of the image's own.
    Stack(UdpSocket),
    /// Of the host's.
    Host(HostDatagrams),
    /// Of a stack's in another image.
    Link(link::UdpSocket),
}

impl socket::Sockets for Net {
    type Listener = Listener;
    type Stream = Stream;
    type Datagrams = Datagrams;

    fn bind(&self, local: SocketAddr) -> Result<Datagrams, Error> {
        Ok(match self {
            Self::Stack(net) => Datagrams::Stack(net.bind(local)?),
            Self::Host(net) => Datagrams::Host(net.bind(local)?),
            Self::Link(net) => Datagrams::Link(net.bind(local)?),
        })
    }

    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<Datagrams>, Error> {
        Ok(match self {
            Self::Stack(net) => net.connect_datagrams(local, peer)?.map(Datagrams::Stack),
            Self::Host(net) => net.connect_datagrams(local, peer)?.map(Datagrams::Host),
            Self::Link(net) => net.connect_datagrams(local, peer)?.map(Datagrams::Link),
        })
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<Listener, Error> {
        Ok(match self {
            Self::Stack(net) => Listener::Stack(net.listen(local, backlog)?),
            Self::Host(net) => Listener::Host(net.listen(local, backlog)?),
            Self::Link(net) => Listener::Link(net.listen(local, backlog)?),
        })
    }

    async fn connect(&self, remote: SocketAddr) -> Result<Stream, Error> {
        Ok(match self {
            Self::Stack(net) => Stream::Stack(net.connect(remote).await?),
            Self::Host(net) => Stream::Host(net.connect(remote).await?),
            Self::Link(net) => Stream::Link(net.connect(remote).await?),
        })
    }

    /// Those that the appliance has not asked for when it waits for the first time are reset.
    fn taken_up(&self) -> Option<Stream> {
        match self {
            Self::Stack(net) => net.taken_up().map(Stream::Stack),
            Self::Host(_) | Self::Link(_) => None,
        }
    }

    fn listened_within(&self, time: Duration) {
        if let Self::Stack(net) = self {
            net.listened_within(time);
        }
    }
}

impl socket::Listener for Listener {
    type Stream = Stream;

    async fn accept(&mut self) -> Result<Stream, Error> {
        Ok(match self {
            Self::Stack(listener) => Stream::Stack(listener.accept().await?),
            Self::Host(listener) => Stream::Host(listener.accept().await?),
            Self::Link(listener) => Stream::Link(listener.accept().await?),
        })
    }
}

impl socket::Stream for Stream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        each!(self, stream => stream.read(place).await)
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        each!(self, stream => stream.take().await)
    }

    async fn give_back(&mut self) -> Result<usize, Error> {
        each!(self, stream => stream.give_back().await)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        each!(self, stream => stream.write(bytes).await)
    }

    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        each!(self, stream => stream.write_vectored(slices).await)
    }

    async fn give(&mut self, bytes: Bytes) -> Result<(), Error> {
        each!(self, stream => stream.give(bytes).await)
    }

    fn shutdown(&mut self) {
        each!(self, stream => stream.shutdown());
    }

    async fn acknowledged(&mut self) -> Result<(), Error> {
        each!(self, stream => stream.acknowledged().await)
    }

    fn abort(self) {
        each!(self, stream => stream.abort());
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        each!(self, stream => stream.set_no_delay(no_delay));
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        each!(self, stream => stream.set_keep_alive(idle));
    }

    fn split(self) -> (Self, Self) {
        match self {
            Self::Stack(stream) => {
                let (one, other) = stream.split();
                (Self::Stack(one), Self::Stack(other))
            }
            Self::Host(stream) => {
                let (one, other) = stream.split();
                (Self::Host(one), Self::Host(other))
            }
            Self::Link(stream) => {
                let (one, other) = stream.split();
                (Self::Link(one), Self::Link(other))
            }
        }
    }

    fn peer(&self) -> SocketAddr {
        each!(self, stream => stream.peer())
    }

    fn local(&self) -> SocketAddr {
        each!(self, stream => stream.local())
    }

    fn report(&self) -> Option<Report> {
        each!(self, stream => stream.report())
    }

    fn kept(&mut self) -> Option<&mut dyn Kept> {
        each!(self, stream => stream.kept())
    }
}

impl socket::Datagrams for Datagrams {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        each!(self, datagrams => datagrams.receive(place).await)
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        each!(self, datagrams => datagrams.send(bytes, to))
    }

    fn send_batch(&mut self, batch: &[Outgoing<'_>]) -> Result<usize, Error> {
        each!(self, datagrams => datagrams.send_batch(batch))
    }

    async fn receive_at(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        each!(self, datagrams => datagrams.receive_at(place).await)
    }

    fn send_from(&mut self, bytes: &[u8], from: IpAddr, to: SocketAddr) -> Result<(), Error> {
        each!(self, datagrams => datagrams.send_from(bytes, from, to))
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        each!(self, datagrams => datagrams.join(group))
    }

    fn leave(&mut self, group: IpAddr) {
        each!(self, datagrams => datagrams.leave(group))
    }

    fn local(&self) -> SocketAddr {
        each!(self, datagrams => datagrams.local())
    }
}
