//! Linux's side: a socket of the kernel's behind a tap, in a network of its own.
//!
//! A tap's write returns when the kernel has taken the frame in, and what answers it lies in the
//! tap's queue: nothing is waited for.

use crate::script::Call;
use crate::side::{LISTENS, PEER, Said, Side, TESTED, Then, byte};
use linux::tap::Tap;
use rustix::io::Errno;
use rustix::net::{self as sockets, AddressFamily, SocketFlags, SocketType, sockopt};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;
use testbed::segment::{Address, Segment};

/// Settings of the network. Our side has them so, or has nothing of the kind.
const SETTINGS: [(&str, &str); 7] = [
    // No probe of a tail, and no answer to old segments but the first, however slow the machine is.
    ("/proc/sys/net/ipv4/tcp_early_retrans", "0"),
    ("/proc/sys/net/ipv4/tcp_invalid_ratelimit", "3600000"),
    // RST does not end TIME-WAIT (RFC 1337).
    ("/proc/sys/net/ipv4/tcp_rfc1337", "1"),
    ("/proc/sys/net/ipv4/tcp_ecn", "0"),
    ("/proc/sys/net/ipv4/tcp_fastopen", "0"),
    ("/proc/sys/net/ipv4/tcp_max_syn_backlog", "4096"),
    ("/proc/sys/net/ipv4/igmp_max_memberships", "0"),
];
/// Over the longest frame, in bytes.
const BUFFER: usize = 2048;
const BACKLOG: i32 = 4096;
/// A tap of this name.
const TAP: &str = "tap0";
/// The network of both addresses.
const NETWORK: &str = "10.0.0.0/24";

/// The kernel, a listener of it, and the socket of this script.
pub struct Kernel {
    segment: Segment,
    tap: Tap,
    listener: OwnedFd,
    peer: u16,
    socket: Option<OwnedFd>,
    read: usize,
    written: usize,
    /// Why the connection failed: the kernel says it once.
    failed: Option<Then>,
}

impl Kernel {
    /// A network with the kernel in it.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn new() -> io::Result<Self> {
        let segment = Segment::new().map_err(io::Error::other)?;
        for (setting, value) in SETTINGS {
            // Absent where the kernel does not know them.
            let _ = segment.run(|| fs::write(setting, value));
        }
        let address = Address {
            ip: TESTED,
            prefix: 24,
            mtu: 1500,
        };
        let tap = segment.tap(TAP, false, address).map_err(io::Error::other)?;
        acknowledge_at_once(&segment)?;
        let listener = segment.run(socket)?;
        // What a machine prefers may pace, which takes time.
        let _ = sockopt::set_tcp_congestion(&listener, "reno");
        sockets::bind(&listener, &SocketAddr::new(TESTED.into(), LISTENS))?;
        sockets::listen(&listener, BACKLOG)?;
        Ok(Self {
            segment,
            tap,
            listener,
            peer: 0,
            socket: None,
            read: 0,
            written: 0,
            failed: None,
        })
    }

    fn connect(&mut self) -> io::Result<Said> {
        let socket = self.segment.run(socket)?;
        let _ = sockopt::set_tcp_congestion(&socket, "reno");
        sockopt::set_tcp_nodelay(&socket, true)?;
        match sockets::connect(&socket, &SocketAddr::new(PEER.into(), self.peer)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.socket = Some(socket);
        Ok(Said::Done)
    }

    /// Takes the connection that the peer has opened, if it has.
    fn accept(&mut self) -> io::Result<()> {
        if self.socket.is_none() {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match sockets::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    sockopt::set_tcp_nodelay(&socket, true)?;
                    self.socket = Some(socket);
                }
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn reading(&mut self) -> Said {
        let Some(socket) = &self.socket else {
            return Said::NoConnection;
        };
        let mut place = [0; 4096];
        let mut count = 0;
        loop {
            let then = match rustix::io::read(socket, &mut place) {
                Ok(0) => Then::End,
                Ok(more) => {
                    let right = (self.read..).map(byte).zip(&place[..more]);
                    if !right.into_iter().all(|(right, found)| right == *found) {
                        return Said::Bytes(count, Then::Wrong);
                    }
                    self.read += more;
                    count += more;
                    continue;
                }
                Err(error) => failed(error),
            };
            return Said::Bytes(count, then);
        }
    }

    fn write(&mut self, count: usize) -> Said {
        let Some(socket) = &self.socket else {
            return Said::NoConnection;
        };
        let bytes: Vec<u8> = (self.written..self.written + count).map(byte).collect();
        match sockets::send(socket, &bytes, sockets::SendFlags::NOSIGNAL) {
            Ok(done) => {
                self.written += done;
                Said::Bytes(done, Then::More)
            }
            Err(error) => Said::Bytes(0, failed(error)),
        }
    }

    /// With the reason that was said before.
    fn remembered(&mut self, said: Said) -> Said {
        let Said::Bytes(count, then) = said else {
            return said;
        };
        if matches!(then, Then::Reset | Then::Refused | Then::Failed) {
            self.failed = Some(then);
        }
        match (then, self.failed) {
            (Then::End | Then::Shut, Some(failed)) => Said::Bytes(count, failed),
            _ => said,
        }
    }

    /// Without a socket of an earlier script.
    fn forget(&mut self) -> io::Result<()> {
        if let Some(socket) = self.socket.take() {
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        while let Ok(socket) = sockets::accept(&self.listener) {
            sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        Ok(())
    }
}

/// Has the kernel put no acknowledgement off: a setting of the route.
fn acknowledge_at_once(segment: &Segment) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(["route", "change", NETWORK, "dev", TAP, "quickack", "1"]);
    match segment.run(|| command.status())?.success() {
        true => Ok(()),
        false => Err(io::Error::other("ip route change ... quickack 1 fails")),
    }
}

/// A TCP socket that does not block.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(sockets::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn failed(error: Errno) -> Then {
    match error {
        Errno::AGAIN => Then::More,
        Errno::CONNRESET => Then::Reset,
        Errno::CONNREFUSED => Then::Refused,
        Errno::PIPE | Errno::NOTCONN => Then::Shut,
        _ => Then::Failed,
    }
}

impl Side for Kernel {
    fn begin(&mut self, peer: u16) -> io::Result<()> {
        self.forget()?;
        self.left()?;
        (self.peer, self.read, self.written, self.failed) = (peer, 0, 0, None);
        Ok(())
    }

    fn call(&mut self, call: Call) -> io::Result<Said> {
        if call == Call::Connect {
            return self.connect();
        }
        let Some(socket) = &self.socket else {
            return Ok(Said::NoConnection);
        };
        match call {
            Call::Read => {
                let said = self.reading();
                return Ok(self.remembered(said));
            }
            Call::Write(count) => {
                let said = self.write(count);
                return Ok(self.remembered(said));
            }
            Call::Shutdown => {
                // One that the peer has reset is shut already.
                let _ = sockets::shutdown(socket, sockets::Shutdown::Write);
            }
            Call::Abort => {
                sockopt::set_socket_linger(socket, Some(Duration::ZERO))?;
                self.socket = None;
            }
            Call::Connect | Call::Close => self.socket = None,
        }
        Ok(Said::Done)
    }

    fn arrives(&mut self, frame: &[u8]) -> io::Result<()> {
        rustix::io::write(self.tap.as_fd(), frame)?;
        self.accept()
    }

    fn left(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut buffer = [0; BUFFER];
        loop {
            match rustix::io::read(self.tap.as_fd(), &mut buffer) {
                Ok(length) => frames.push(buffer[..length].to_vec()),
                Err(Errno::AGAIN) => return Ok(frames),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
