//! Connections that a program's bytes are read into, right where they leave from.

use crate::direct::Direct;
use link_sockets::Net;
use net::socket::{Error, Sockets, Stream};
use rustix::io::Errno;

/// Sockets with such connections.
pub trait Fillable: Sockets<Stream: Fill> + 'static {}

impl Fillable for Net {}
impl Fillable for Direct {}

/// Such a connection.
#[allow(async_fn_in_trait, reason = "the proxy has one thread")]
pub trait Fill: Stream {
    /// Waits until [`Self::fill`] has a place, and all that is in there is on its way.
    ///
    /// # Errors
    /// Nothing can be written any more.
    async fn room(&mut self) -> Result<(), Error>;

    /// Has `read` put bytes there: how many it has put, or `None` if there is no place.
    ///
    /// # Errors
    /// Those of `read`, and nothing is there then.
    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Option<usize>, Errno>;
}

impl Fill for link_sockets::Stream {
    async fn room(&mut self) -> Result<(), Error> {
        Self::room(self).await
    }

    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Option<usize>, Errno> {
        Self::fill(self, read).transpose()
    }
}
