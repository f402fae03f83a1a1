//! Datagrams to one peer.

use crate::socket::{Datagrams, Error};
use crate::udp::RUN_MAX;
use arrayvec::ArrayVec;
use core::net::SocketAddr;

/// Datagrams to one peer and from it alone.
///
/// Once its host has said that nobody listens there (ICMP, "port unreachable"), the next call says
/// so, once, with [`Failure::Refused`](crate::tcp::connection::Failure::Refused): as
/// `ECONNREFUSED` of Linux's sockets, and where the
/// sockets' kind learns it.
pub struct Connected<D> {
    datagrams: D,
    peer: SocketAddr,
}

impl<D: Datagrams> Connected<D> {
    /// Of a socket of its own. What others send to it is thrown away, if it takes that.
    pub fn new(datagrams: D, peer: SocketAddr) -> Self {
        Self { datagrams, peer }
    }

    /// The same with another kind of socket around it.
    pub fn map<E>(self, change: impl FnOnce(D) -> E) -> Connected<E> {
        Connected {
            datagrams: change(self.datagrams),
            peer: self.peer,
        }
    }

    /// The socket, for whoever looks himself at who has sent what.
    pub fn into_inner(self) -> D {
        self.datagrams
    }

    /// The peer's next datagram: as much of it as fits into `place`; how many bytes.
    ///
    /// # Errors
    /// If the peer does not listen, or there will be none.
    pub async fn receive(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        loop {
            let (count, from) = self.datagrams.receive(place).await?;
            if (from.ip(), from.port()) == (self.peer.ip(), self.peer.port()) {
                return Ok(count);
            }
        }
    }

    /// Sends a datagram to the peer. It may be lost on its way, as every one may.
    ///
    /// # Errors
    /// If the peer did not listen before, or why it was not sent.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.datagrams.send(bytes, self.peer)
    }

    /// Sends datagrams in order, as [`Datagrams::send_batch`] does, at most [`RUN_MAX`] of them;
    /// how many were sent.
    ///
    /// # Errors
    /// If the peer did not listen before, or why the first one was not sent.
    pub fn send_batch(&mut self, batch: &[&[u8]]) -> Result<usize, Error> {
        let first = batch.iter().take(RUN_MAX);
        let batch: ArrayVec<_, RUN_MAX> = first.map(|bytes| (*bytes, self.peer)).collect();
        self.datagrams.send_batch(&batch)
    }

    /// The peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        self.datagrams.local()
    }
}
