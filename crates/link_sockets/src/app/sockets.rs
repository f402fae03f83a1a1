//! What appliances see: the traits of [`net::socket`] over a [`Table`].

use super::Table;
use crate::message::What;
use alloc::rc::Rc;
use bytes::Bytes;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use net::slices::Slices;
use net::socket::{Connected, Datagrams, Ends, Error, Sockets};
use net::socket::{Listener as IsListener, Stream as IsStream};
use net::tcp::queues::Payload;

/// Sockets of a stack in another image.
#[derive(Clone)]
pub struct Net(Rc<RefCell<Table>>);

impl Net {
    /// Sockets of this table.
    pub fn new(table: Rc<RefCell<Table>>) -> Self {
        Self(table)
    }

    fn one(&self, number: u32) -> One {
        let net = self.clone();
        One { number, net }
    }
}

/// A socket of which nothing remains when it is dropped.
struct One {
    number: u32,
    net: Net,
}

impl One {
    fn with<T>(&self, work: impl FnOnce(&mut Table, u32) -> T) -> T {
        work(&mut self.net.0.borrow_mut(), self.number)
    }

    /// Waits until the stack has opened it.
    async fn opened(&self) -> Result<(), Error> {
        poll_fn(|context| self.with(|table, number| table.poll_open(number, context))).await
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.with(|table, number| table.leave(number, What::Close));
    }
}

impl Sockets for Net {
    type Listener = Listener;
    type Stream = Stream;
    type Datagrams = UdpSocket;

    /// That it cannot be had, the first call says that takes or sends a datagram.
    fn bind(&self, local: SocketAddr) -> Result<UdpSocket, Error> {
        let number = self.0.borrow_mut().bind(local, None)?;
        Ok(UdpSocket(self.one(number)))
    }

    /// As for [`Self::bind`].
    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<UdpSocket>, Error> {
        let number = self.0.borrow_mut().bind(local, Some(peer))?;
        Ok(Connected::new(UdpSocket(self.one(number)), peer))
    }

    /// That it cannot be had, [`IsListener::accept`] says.
    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<Listener, Error> {
        let number = self.0.borrow_mut().listen(local, backlog)?;
        Ok(Listener(self.one(number)))
    }

    async fn connect(&self, remote: SocketAddr) -> Result<Stream, Error> {
        let number = self.0.borrow_mut().connect(remote)?;
        // From here on it is let go of if nobody waits any more.
        let stream = Stream(Rc::new(self.one(number)));
        poll_fn(|context| self.0.borrow_mut().poll_open(number, context)).await?;
        Ok(stream)
    }
}

/// Waits for connections, with one stack and with the next one.
pub struct Listener(One);

impl IsListener for Listener {
    type Stream = Stream;

    async fn accept(&mut self) -> Result<Stream, Error> {
        let one = &self.0;
        let accepted =
            poll_fn(|context| one.with(|table, number| table.poll_accept(number, context)));
        Ok(Stream(Rc::new(one.net.one(accepted.await?))))
    }

    async fn ready(&mut self) -> Result<(), Error> {
        self.0.opened().await
    }
}

/// A connection. It ends with the stack's image.
pub struct Stream(Rc<One>);

impl Stream {
    /// Waits until [`Self::fill`] has a place.
    ///
    /// # Errors
    /// Nothing can be written any more.
    pub async fn room(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            self.0
                .with(|table, number| table.poll_room(number, context))
        })
        .await
    }

    /// Has `read` put bytes where they leave from, and say how many: no copy of them is made.
    /// `None` if there is no place at the moment.
    pub fn fill<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        self.0.with(|table, number| table.fill(number, read))
    }
}

impl IsStream for Stream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| {
            self.0
                .with(|table, number| table.poll_read(number, place, context))
        })
        .await
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        let taken = poll_fn(|context| {
            self.0
                .with(|table, number| table.poll_take(number, context))
        });
        Ok(taken.await?.map(Payload::from))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_vectored(&[bytes]).await
    }

    async fn give(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.write(&bytes).await
    }

    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        let mut slices = Slices::new(slices);
        while !slices.is_empty() {
            let written = poll_fn(|context| {
                self.0
                    .with(|table, number| table.poll_write(number, &slices, context))
            });
            slices.advance(written.await?);
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        self.0.with(Table::shutdown);
    }

    async fn acknowledged(&mut self) -> Result<(), Error> {
        let answer = self.0.with(Table::ask);
        poll_fn(|context| {
            self.0
                .with(|table, number| table.poll_answered(number, answer, context))
        })
        .await
    }

    fn abort(self) {
        self.0.with(Table::abort);
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        let wish = What::NoDelay(no_delay);
        self.0.with(|table, number| table.wish(number, wish));
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        let wish = What::KeepAlive(idle);
        self.0.with(|table, number| table.wish(number, wish));
    }

    fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        let peer = self.0.with(|table, number| table.place(number).peer);
        peer.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    fn local(&self) -> SocketAddr {
        self.0.with(|table, number| table.place(number).local)
    }
}

/// Takes and sends datagrams, with one stack and with the next one.
pub struct UdpSocket(One);

impl Datagrams for UdpSocket {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let (count, ends) = self.receive_at(place).await?;
        Ok((count, ends.from))
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.send_from(bytes, Ipv4Addr::UNSPECIFIED.into(), to)
    }

    async fn receive_at(&mut self, place: &mut [u8]) -> Result<(usize, Ends), Error> {
        poll_fn(|context| {
            self.0
                .with(|table, number| table.poll_datagram(number, place, context))
        })
        .await
    }

    fn send_from(&mut self, bytes: &[u8], from: IpAddr, to: SocketAddr) -> Result<(), Error> {
        self.0
            .with(|table, number| table.send(number, bytes, from, to))
    }

    fn join(&mut self, group: IpAddr) -> Result<(), Error> {
        self.0.with(|table, number| table.join(number, group))
    }

    fn leave(&mut self, group: IpAddr) {
        self.0
            .with(|table, number| table.leave_group(number, group));
    }

    fn local(&self) -> SocketAddr {
        self.0.with(|table, number| table.place(number).local)
    }

    async fn ready(&mut self) -> Result<(), Error> {
        self.0.opened().await
    }
}
