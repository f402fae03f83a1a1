//! Where clients come from: a socket that they connect to, or one connection.

use super::socket_file::remove_abandoned;
use super::{Around, End, PATIENCE, wait};
use ::vfio_user::socket::{Socket, passed};
use linux::descriptor;
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The longest sleep of whoever waits for a client, or for what one says: its caller is asked in
/// between whether to go on.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(64);

/// Clients, one after the other.
#[derive(Debug)]
pub(crate) enum Listener {
    /// They connect to a socket, whose file goes with this value.
    Socket(UnixListener, PathBuf),
    /// There is one, and no other after it.
    Connection(RefCell<Option<Socket>>),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Socket(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

impl Listener {
    /// Listens at `path`, where nothing may be but the socket of one that has ended; `@` and a
    /// number is the connection to the only client, which the parent has passed as this descriptor.
    ///
    /// # Errors
    /// What the kernel says: `EADDRINUSE` if there is a file, or somebody listens already.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        if let Some(number) = passed(path) {
            let socket = Socket::new(descriptor::adopt(number)?, PATIENCE)?;
            return Ok(Self::Connection(RefCell::new(Some(socket))));
        }
        let bound = UnixListener::bind(path);
        let in_use = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        let listener = if in_use && is_abandoned(path) {
            remove_abandoned(path)?;
            UnixListener::bind(path)
        } else {
            bound
        }?;
        listener.set_nonblocking(true)?;
        Ok(Self::Socket(listener, path.to_path_buf()))
    }

    /// Waits for the next client.
    ///
    /// # Errors
    /// If there is none any more.
    pub(crate) fn accept<D>(
        &self,
        device: &mut D,
        around: &mut impl Around<D>,
    ) -> Result<Socket, End> {
        let listener = match self {
            Self::Socket(listener, _) => listener,
            Self::Connection(socket) => return socket.take().ok_or(End::Stopped),
        };
        loop {
            if around.turn(device).is_break() {
                return Err(End::Stopped);
            }
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&[listener.as_fd()], SLEEP_MAX);
                    continue;
                }
                Err(error) => return Err(End::System(error)),
            };
            let blocking = stream.set_nonblocking(false);
            let socket = blocking.and_then(|()| Socket::new(stream.into(), PATIENCE));
            return socket.map_err(End::System);
        }
    }
}

/// Whether the file at `path` is a socket that nobody listens at.
fn is_abandoned(path: &Path) -> bool {
    let refused = UnixStream::connect(path);
    matches!(refused, Err(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}
