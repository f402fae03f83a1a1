//! `--metrics`: counters over HTTP, for Prometheus.
//!
//! A few threads of the monitor accept connections, each serving one at a time, within a deadline:
//! the slowest client keeps a thread for `CONNECTION_TIME_MAX`, and the others are served by the
//! other threads meanwhile. No more than that: who wants TLS or names puts a proxy in front.

mod http;

use http::{REQUEST_BYTES_MAX, Request, Status, refusal, request, response};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Connections that are served at the same time; the kernel keeps more waiting.
const CONNECTIONS_MAX: usize = 4;
/// How long one may last, from its first byte to its last.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a client may take to close a connection after the reply.
const CLOSE_TIME_MAX: Duration = Duration::from_millis(100);
/// How long to wait when the kernel has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The prefix of a Unix socket's path.
const UNIX: &str = "unix:";

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a TCP port.
    Tcp(SocketAddr),
    /// At a Unix socket.
    Unix(PathBuf),
}

/// Why no metrics can be served.
#[derive(Debug)]
pub enum Error {
    /// No address.
    Address(String),
    /// The address cannot be had.
    Bind(Address, io::Error),
    /// No threads, or no descriptor.
    Start(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(text) => write!(
                f,
                "--metrics={text}: expected a numeric address and a port, as in \
                 --metrics=127.0.0.1:9100, or --metrics=unix:PATH"
            ),
            Self::Bind(address, e) => {
                write!(
                    f,
                    "--metrics={address}: {e}; choose another address or path"
                )
            }
            Self::Start(e) => write!(f, "metrics cannot be served: {e}"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Address(text.escape_debug().to_string());
        match text.strip_prefix(UNIX) {
            Some("") => Err(wrong()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| wrong()),
        }
    }
}

/// A socket that waits for connections. Dropping it removes a Unix socket's file.
#[derive(Debug)]
pub struct Endpoint {
    listener: Option<OwnedFd>,
    address: Address,
}

impl Endpoint {
    /// Takes the address. Connections wait until [`Self::serve`]. A Unix socket that its former
    /// owner left behind is replaced.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn bind(address: Address) -> Result<Self, Error> {
        let listener = match &address {
            Address::Tcp(address) => TcpListener::bind(address).map(OwnedFd::from),
            Address::Unix(path) => {
                if is_leftover(path) {
                    // Should that fail, binding says why.
                    let _ = std::fs::remove_file(path);
                }
                UnixListener::bind(path).map(OwnedFd::from)
            }
        };
        match listener {
            Ok(listener) => Ok(Self {
                listener: Some(listener),
                address,
            }),
            Err(e) => Err(Error::Bind(address, e)),
        }
    }

    /// Closes the socket and leaves its file alone: for a child process, which has a copy of it.
    pub fn disown(self) {
        let mut this = std::mem::ManuallyDrop::new(self);
        drop(this.listener.take());
    }

    /// Serves what `metrics` says for as long as this process lives, in threads that hold back
    /// the signals that are held back here.
    ///
    /// # Errors
    /// There are no threads.
    pub fn serve<F>(&mut self, metrics: F) -> Result<(), Error>
    where
        F: Fn() -> Option<String> + Send + Sync + 'static,
    {
        let Some(listener) = self.listener.take() else {
            return Ok(());
        };
        let shared = Arc::new((listener, metrics));
        for _ in 0..CONNECTIONS_MAX {
            let shared = Arc::clone(&shared);
            let body = move || accept(&shared.0, &shared.1);
            let thread = thread::Builder::new().name("metrics".into()).spawn(body);
            thread.map_err(Error::Start)?;
        }
        Ok(())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // Whoever removed it first had a reason.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether there is a socket without an owner.
fn is_leftover(path: &std::path::Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

fn accept(listener: &OwnedFd, metrics: &impl Fn() -> Option<String>) {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(connection) => {
                // A client that gives up is no concern of ours.
                let _ = attend(&connection, metrics);
            }
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Serves one connection, within its time.
fn attend(connection: &OwnedFd, metrics: &impl Fn() -> Option<String>) -> Result<(), Errno> {
    let deadline = Instant::now() + CONNECTION_TIME_MAX;
    let mut buffer = [0; REQUEST_BYTES_MAX];
    let mut received = 0;
    let reply = loop {
        match request(&buffer[..received]) {
            Request::Incomplete => {}
            Request::Refused(status) => break refusal(status),
            Request::Metrics { head } => {
                break match metrics() {
                    Some(body) => response(Status::Ok, &body, head),
                    None => refusal(Status::InternalError),
                };
            }
        }
        match receive(connection, &mut buffer[received..], deadline)? {
            0 => return Ok(()),
            count => received += count,
        }
    };
    send(connection, reply.as_bytes(), deadline)?;
    // A close with bytes unread would be a reset, which may overtake the reply.
    rustix::net::shutdown(connection, Shutdown::Write)?;
    let deadline = deadline.min(Instant::now() + CLOSE_TIME_MAX);
    while receive(connection, &mut buffer, deadline)? > 0 {}
    Ok(())
}

fn receive(socket: impl AsFd, buffer: &mut [u8], deadline: Instant) -> Result<usize, Errno> {
    set_timeout(&socket, Timeout::Recv, deadline)?;
    Ok(rustix::net::recv(socket, buffer, RecvFlags::empty())?.0)
}

fn send(socket: impl AsFd, mut bytes: &[u8], deadline: Instant) -> Result<(), Errno> {
    while !bytes.is_empty() {
        set_timeout(&socket, Timeout::Send, deadline)?;
        // A client that has gone must not end the monitor by SIGPIPE.
        let sent = rustix::net::send(&socket, bytes, SendFlags::NOSIGNAL)?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// From now on until the deadline, an operation may wait; after it, it may not begin.
fn set_timeout(socket: impl AsFd, which: Timeout, deadline: Instant) -> Result<(), Errno> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Errno::TIMEDOUT);
    }
    set_socket_timeout(socket, which, Some(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn path(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("outboard-metrics-{}-{test}", std::process::id()))
    }

    #[test]
    fn addresses_are_numbers_or_paths() {
        for text in ["127.0.0.1:9100", "[::1]:9100", "unix:/run/fw.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "9100", ":9100", "localhost:9100", "1.2.3.4"] {
            assert!(
                matches!(text.parse::<Address>(), Err(Error::Address(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_leftover_is_replaced_and_a_living_one_is_not() {
        let path = path("leftover");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let first = Endpoint::bind(address.clone()).unwrap();
        assert!(matches!(
            Endpoint::bind(address.clone()),
            Err(Error::Bind(..))
        ));
        drop(first);
        assert!(!path.exists());
        std::fs::write(&path, "precious").unwrap();
        assert!(Endpoint::bind(address).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_disowned_socket_keeps_its_file() {
        let path = path("disowned");
        let endpoint = Endpoint::bind(Address::Unix(path.clone())).unwrap();
        endpoint.disown();
        assert!(is_leftover(&path));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_scraper_gets_the_metrics_while_others_dawdle() {
        let path = path("served");
        let mut endpoint = Endpoint::bind(Address::Unix(path.clone())).unwrap();
        endpoint.serve(|| Some("a_total 1\n".into())).unwrap();
        let connect = || UnixStream::connect(&path).unwrap();
        let mut dawdlers: Vec<_> = (1..CONNECTIONS_MAX).map(|_| connect()).collect();
        for dawdler in &mut dawdlers {
            dawdler.write_all(b"GET").unwrap();
        }
        let mut scraper = connect();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut reply = String::new();
        scraper.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\na_total 1\n"), "{reply}");
        let mut stranger = connect();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        reply.clear();
        stranger.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 404"), "{reply}");
    }
}
