//! Sockets of the host's behind the traits of [`crate::socket`], for an image that is a plain
//! process.

mod table;

use crate::report::Report;
use crate::slices::Slices;
use crate::socket::{Connected, Datagrams, Error, Listener, Sockets, Stream};
use crate::tcp::queues::Payload;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use ports::Errno;
use ports::sockets::{SocketCalls, Transport};
pub use table::Table;
use table::{failed, unbound, unsent};

/// Sockets of the host's.
#[derive(Clone)]
pub struct HostNet(Rc<RefCell<Table>>);

impl HostNet {
    /// Sockets of this table.
    pub fn new(table: Rc<RefCell<Table>>) -> Self {
        Self(table)
    }

    /// One that is closed when it is dropped.
    fn one(&self, number: u32) -> One {
        One {
            number,
            net: self.clone(),
        }
    }
}

/// A socket of which nothing remains when it is dropped.
struct One {
    number: u32,
    net: HostNet,
}

impl Drop for One {
    fn drop(&mut self) {
        self.net.0.borrow_mut().close(self.number);
    }
}

impl Sockets for HostNet {
    type Listener = HostListener;
    type Stream = HostStream;
    type Datagrams = HostDatagrams;

    fn bind(&self, local: SocketAddr) -> Result<HostDatagrams, Error> {
        let mut table = self.0.borrow_mut();
        let open = |local| {
            table.open(Transport::Datagrams, local, |calls, socket| {
                calls.bind(socket, local)?;
                // From now on, for those that have a peer.
                calls.share_port(socket)
            })
        };
        let (number, v6) = open_at(local, open).map_err(unbound)?;
        Ok(HostDatagrams {
            one: self.one(number),
            v6,
        })
    }

    fn connect_datagrams(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Result<Connected<HostDatagrams>, Error> {
        let local = match (local.ip().is_unspecified(), peer) {
            (false, _) => local,
            (true, SocketAddr::V4(_)) => (Ipv4Addr::UNSPECIFIED, local.port()).into(),
            (true, SocketAddr::V6(_)) => (Ipv6Addr::UNSPECIFIED, local.port()).into(),
        };
        let connect = |calls: &dyn SocketCalls, socket| {
            // A port that the kernel chooses is to be nobody's.
            if local.port() != 0 {
                calls.share_port(socket)?;
            }
            calls.bind(socket, local)?;
            // What others have sent since is thrown away.
            calls.connect(socket, peer)
        };
        let number = self
            .0
            .borrow_mut()
            .open(Transport::Datagrams, local, connect);
        let datagrams = HostDatagrams {
            one: self.one(number.map_err(unbound)?),
            v6: false,
        };
        Ok(Connected::new(datagrams, peer))
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<HostListener, Error> {
        let mut table = self.0.borrow_mut();
        let listen = |local| {
            table.open(Transport::Stream, local, |calls, socket| {
                calls.listen(socket, local, backlog.max(1))
            })
        };
        let (number, _) = open_at(local, listen).map_err(failed)?;
        Ok(HostListener(self.one(number)))
    }

    async fn connect(&self, remote: SocketAddr) -> Result<HostStream, Error> {
        let connect = |calls: &dyn SocketCalls, socket| match calls.connect(socket, remote) {
            Err(Errno::IN_PROGRESS) => Ok(()),
            other => other,
        };
        let opened = self.0.borrow_mut().open(Transport::Stream, remote, connect);
        // From here on it is let go of if nobody waits any more.
        let stream = HostStream(Rc::new(Open {
            number: opened.map_err(failed)?,
            net: self.clone(),
            peer: remote,
        }));
        let number = stream.0.number;
        poll_fn(|context| self.0.borrow_mut().poll_connected(number, context)).await?;
        Ok(stream)
    }
}

/// Waits for connections.
pub struct HostListener(One);

impl Listener for HostListener {
    type Stream = HostStream;

    async fn accept(&mut self) -> Result<HostStream, Error> {
        let One { number, net } = &self.0;
        let accepted = poll_fn(|context| net.0.borrow_mut().poll_accept(*number, context));
        let (number, peer) = accepted.await?;
        Ok(HostStream(Rc::new(Open {
            number,
            net: net.clone(),
            peer,
        })))
    }
}

/// A connection.
pub struct HostStream(Rc<Open>);

/// What is let go of when nobody holds it any more.
struct Open {
    number: u32,
    net: HostNet,
    peer: SocketAddr,
}

impl Stream for HostStream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| {
            let mut table = self.0.net.0.borrow_mut();
            table.poll_read(self.0.number, place, context)
        })
        .await
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        poll_fn(|context| self.0.net.0.borrow_mut().poll_take(self.0.number, context)).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_vectored(&[bytes]).await
    }

    async fn write_vectored(&mut self, slices: &[&[u8]]) -> Result<(), Error> {
        let mut slices = Slices::new(slices);
        while !slices.is_empty() {
            let written = poll_fn(|context| {
                let mut table = self.0.net.0.borrow_mut();
                table.poll_write(self.0.number, &slices, context)
            });
            slices.advance(written.await?);
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        self.0.net.0.borrow_mut().shutdown(self.0.number);
    }

    /// The kernel tells of no acknowledgement: this looks each millisecond.
    async fn acknowledged(&mut self) -> Result<(), Error> {
        poll_fn(|context| {
            let mut table = self.0.net.0.borrow_mut();
            table.poll_acknowledged(self.0.number, context)
        })
        .await
    }

    fn abort(self) {
        self.0.net.0.borrow_mut().abort(self.0.number);
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        let table = self.0.net.0.borrow();
        table.with_socket(self.0.number, |calls, socket| {
            calls.set_no_delay(socket, no_delay);
        });
    }

    fn set_keep_alive(&mut self, idle: Option<Duration>) {
        let seconds = idle.map(|idle| idle.as_secs().max(1).try_into().unwrap_or(u32::MAX));
        let table = self.0.net.0.borrow();
        table.with_socket(self.0.number, |calls, socket| {
            calls.set_keep_alive(socket, seconds);
        });
    }

    fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    fn local(&self) -> SocketAddr {
        self.0.net.0.borrow().local(self.0.number)
    }

    fn report(&self) -> Option<Report> {
        self.0.net.0.borrow().report(self.0.number)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.net.0.borrow_mut().leave(self.number);
    }
}

/// Opens a socket at `local`, where no address stands for those of both versions, as everywhere;
/// and whether it is one of IPv6.
fn open_at(
    local: SocketAddr,
    mut open: impl FnMut(SocketAddr) -> Result<u32, Errno>,
) -> Result<(u32, bool), Errno> {
    let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), local.port());
    match local.ip().is_unspecified().then(|| open(both)) {
        Some(Ok(number)) => Ok((number, true)),
        Some(Err(Errno::IN_USE)) => Err(Errno::IN_USE),
        // A host may have no IPv6.
        _ => Ok((open(local)?, local.is_ipv6())),
    }
}

/// Takes and sends datagrams.
pub struct HostDatagrams {
    one: One,
    /// Its addresses are of IPv6, and IPv4 is mapped into those.
    v6: bool,
}

impl Datagrams for HostDatagrams {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let One { number, net } = &self.one;
        poll_fn(|context| {
            let mut table = net.0.borrow_mut();
            table.poll_receive(*number, place, context)
        })
        .await
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        let to = match to.ip() {
            IpAddr::V4(ip) if self.v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        };
        let mut sent = Err(Errno::INVALID);
        let table = self.one.net.0.borrow();
        table.with_socket(self.one.number, |calls, socket| {
            sent = calls.send_to(socket, bytes, to);
        });
        sent.map_err(unsent)
    }

    fn local(&self) -> SocketAddr {
        self.one.net.0.borrow().local(self.one.number)
    }
}
