//! What appliances see: the traits of [`net::socket`] over a [`Stack`].

use crate::stack::Stack;
use alloc::rc::Rc;
use bytes::Bytes;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use core::time::Duration;
use net::slices::Slices;
use net::socket::{Datagrams, Ends, Error, Listener, Sockets, Stream};
use net::tcp::queues::Payload;
use net::tcp::socket::Error as Failed;
use smoltcp::iface::SocketHandle;

/// Sockets of smoltcp's.
#[derive(Clone)]
pub struct Net(Rc<RefCell<Stack>>);

impl Net {
    /// Sockets of this stack.
    pub fn new(stack: Rc<RefCell<Stack>>) -> Self {
        Self(stack)
    }

    fn stream(&self, handle: SocketHandle, local: SocketAddr, peer: SocketAddr) -> TcpStream {
        TcpStream(Rc::new(Open {
            handle,
            net: self.clone(),
            local,
            peer,
        }))
    }
}

impl Sockets for Net {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Datagrams = UdpSocket;

    fn bind(&self, local: SocketAddr) -> Result<UdpSocket, Error> {
        let bound = self.0.borrow_mut().bind(local);
        let (handle, local) = bound.map_err(Error::Bind)?;
        Ok(UdpSocket {
            handle,
            net: self.clone(),
            local,
        })
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<TcpListener, Error> {
        Ok(TcpListener {
            number: self.0.borrow_mut().listen(local, backlog)?,
            net: self.clone(),
        })
    }

    async fn connect(&self, remote: SocketAddr) -> Result<TcpStream, Error> {
        let (handle, local) = self.0.borrow_mut().connect(remote)?;
        // From here on it is let go of if nobody waits any more.
        let stream = self.stream(handle, local, remote);
        let since = self.0.borrow().now();
        poll_fn(|context| self.0.borrow_mut().poll_open(handle, since, context)).await?;
        Ok(stream)
    }
}

/// Waits for connections.
pub struct TcpListener {
    number: u64,
    net: Net,
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> Result<TcpStream, Error> {
        let stack = &self.net.0;
        let accept = |context: &mut Context<'_>| {
            let mut stack = stack.borrow_mut();
            stack.poll_accept(self.number, context)
        };
        let (handle, local, peer) = poll_fn(accept).await;
        Ok(self.net.stream(handle, local, peer))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.net.0.borrow_mut().unlisten(self.number);
    }
}

/// A connection.
pub struct TcpStream(Rc<Open>);

/// What is let go of when nobody holds it any more.
struct Open {
    handle: SocketHandle,
    net: Net,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Open {
    fn poll_read<T>(
        &self,
        context: &Context<'_>,
        take: impl FnOnce(&[u8]) -> (usize, T),
    ) -> Poll<Result<Option<T>, Failed>> {
        let mut stack = self.net.0.borrow_mut();
        stack.poll_read(self.handle, context, take)
    }
}

impl Stream for TcpStream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        let read = poll_fn(|context| {
            self.0.poll_read(context, |bytes| {
                let count = bytes.len().min(place.len());
                place[..count].copy_from_slice(&bytes[..count]);
                (count, count)
            })
        });
        Ok(read.await?.unwrap_or(0))
    }

    /// smoltcp keeps no frames: this is one more copy.
    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        let copy = |bytes: &[u8]| (bytes.len(), Bytes::copy_from_slice(bytes));
        let taken = poll_fn(|context| self.0.poll_read(context, copy));
        Ok(taken.await?.map(Payload::from))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_vectored(&[bytes]).await
    }

    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        let mut slices = Slices::new(slices);
        while !slices.is_empty() {
            let written = poll_fn(|context| {
                let mut stack = self.0.net.0.borrow_mut();
                stack.poll_write(self.0.handle, &slices, context)
            });
            slices.advance(written.await?);
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        self.0.net.0.borrow_mut().tcp(self.0.handle).close();
    }

    /// smoltcp does not say why a connection has ended: one that is reset once all was acknowledged
    /// counts as acknowledged, and so does its end.
    async fn acknowledged(&mut self) -> Result<(), Error> {
        let acknowledged = poll_fn(|context| {
            let mut stack = self.0.net.0.borrow_mut();
            stack.poll_acknowledged(self.0.handle, context)
        });
        Ok(acknowledged.await?)
    }

    fn abort(self) {
        self.0.net.0.borrow_mut().tcp(self.0.handle).abort();
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        let mut stack = self.0.net.0.borrow_mut();
        stack.tcp(self.0.handle).set_nagle_enabled(!no_delay);
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        let mut stack = self.0.net.0.borrow_mut();
        stack
            .tcp(self.0.handle)
            .set_keep_alive(idle.map(Into::into));
    }

    fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    fn local(&self) -> SocketAddr {
        self.0.local
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.net.0.borrow_mut().leave(self.handle);
    }
}

/// Takes and sends datagrams. It joins no groups.
pub struct UdpSocket {
    handle: SocketHandle,
    net: Net,
    local: SocketAddr,
}

impl UdpSocket {
    fn give(&self, bytes: &[u8], from: Option<IpAddr>, to: SocketAddr) -> Result<(), Error> {
        let mut stack = self.net.0.borrow_mut();
        let sent = stack.send_datagram(self.handle, bytes, from, to);
        sent.map_err(Error::Unsent)
    }
}

impl Datagrams for UdpSocket {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let (count, ends) = self.receive_at(place).await?;
        Ok((count, ends.from))
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.give(bytes, None, to)
    }

    async fn receive_at(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        let received = poll_fn(|context| {
            let mut stack = self.net.0.borrow_mut();
            stack.poll_receive(self.handle, place, context)
        });
        Ok(received.await)
    }

    fn send_from(&mut self, bytes: &[u8], from: IpAddr, to: SocketAddr) -> Result<(), Error> {
        self.give(bytes, Some(from), to)
    }

    fn local(&self) -> SocketAddr {
        self.local
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        self.net.0.borrow_mut().unbind(self.handle);
    }
}
