//! Connections that outlive the image, for users that do as well.

use super::{Error, TcpStream};
use crate::tcp::host::Tcp;
use crate::tcp::socket::Marks;
use core::task::{Context, Poll};

/// A connection that outlives the image ([`super::Sockets::taken_up`]), for whoever has a user for
/// it that outlives the image as well. What has come stays until that user has it.
pub trait Kept {
    /// A name that nobody guesses and that it has with the next image as well, and where its user
    /// is in both streams; `None` if it is gone.
    fn marks(&mut self) -> Option<(u64, Marks)>;

    /// Shows bytes behind the first `skip` ones that have come; how many were looked at, as `look`
    /// says. None are shown at the end.
    ///
    /// # Errors
    /// If the connection has failed.
    fn poll_look(
        &mut self,
        skip: usize,
        context: &Context<'_>,
        look: &mut dyn FnMut(&[u8]) -> Poll<usize>,
    ) -> Poll<Result<usize, Error>>;

    /// The user has the first `count` bytes that have come.
    fn pass(&mut self, count: usize);
}

impl Kept for TcpStream {
    fn marks(&mut self) -> Option<(u64, Marks)> {
        self.0.with(Tcp::marks)
    }

    fn poll_look(
        &mut self,
        skip: usize,
        context: &Context<'_>,
        look: &mut dyn FnMut(&[u8]) -> Poll<usize>,
    ) -> Poll<Result<usize, Error>> {
        let looked = self
            .0
            .with(|tcp, id| tcp.poll_look(id, skip, context, look));
        looked.map_err(Error::from)
    }

    fn pass(&mut self, count: usize) {
        self.0.with(|tcp, id| tcp.pass(id, count));
    }
}
