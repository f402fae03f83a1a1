//! Messages of vfio-user over a socket, for programs that drive a software device or are one.
//!
//! Why not rust-vmm's crate of the same name: it reads a Rust enum straight off the socket, so that
//! a hostile peer causes undefined behaviour; it waits for ever for a peer that sends nothing; its
//! errors do not tell which command failed; it has no test; and it brings `vm-memory` and
//! `vfio-bindings` into a program that is to stay small. Outboard needs a header, ten structures
//! and one way to pass descriptors.

use crate::{Deadline, HEADER_BYTES, Header, HeaderError};
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};
use std::vec::Vec;
use std::{fmt, mem};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Most descriptors in one message, either way.
pub const DESCRIPTORS_MAX: usize = 8;
/// Most bytes of a message, either way: registers move by four, and nothing here is longer than the
/// capabilities in JSON that the other side introduces itself with.
pub const MESSAGE_BYTES_MAX: usize = 8192;
/// Most parts that a message is sent in, header included.
const PARTS_MAX: usize = 4;

/// Why there is no message.
#[derive(Debug)]
pub enum Error {
    /// The other side has closed the connection, between two messages.
    Closed,
    /// It has closed it within one.
    Cut,
    /// It has said nothing, or taken nothing, for too long.
    Silent,
    /// The header is wrong.
    Header(HeaderError),
    /// More descriptors than [`DESCRIPTORS_MAX`] came with it.
    Descriptors,
    /// What the kernel says.
    System(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the other side has closed the connection"),
            Self::Cut => write!(
                f,
                "the other side has closed the connection within a message"
            ),
            Self::Silent => write!(f, "the other side does not answer"),
            Self::Header(error) => error.fmt(f),
            Self::Descriptors => write!(f, "more than {DESCRIPTORS_MAX} descriptors came at once"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Silent,
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            _ => Self::System(errno.into()),
        }
    }
}

/// The number in a path of the form `@N`: the parent has passed the connection as descriptor N.
pub fn passed(path: &Path) -> Option<RawFd> {
    path.to_str()?.strip_prefix('@')?.parse().ok()
}

/// What messages of a protocol begin with. That of vhost-user is carried over the same socket.
pub trait Head: FromBytes + IntoBytes + Immutable {
    /// Bytes behind the header, if there is room for them.
    ///
    /// # Errors
    /// If the size is none.
    fn behind(&self, room: usize) -> Result<usize, HeaderError>;
}

impl Head for Header {
    fn behind(&self, room: usize) -> Result<usize, HeaderError> {
        self.payload(HEADER_BYTES + room)
    }
}

/// A message that came.
#[derive(Debug)]
pub struct Received<H = Header> {
    /// Its header, of which the size alone is checked.
    pub header: H,
    /// Bytes behind the header, in the buffer.
    pub payload: usize,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// A connection. Waits for a message are bounded, whole message by whole message.
#[derive(Debug)]
pub struct Socket {
    stream: OwnedFd,
    patience: Duration,
    /// When the time of its deadlines began.
    began: Instant,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.stream
    }
}

impl Socket {
    /// Connects to the process that listens at `path`.
    ///
    /// # Errors
    /// What the kernel says: `EAGAIN` if nobody accepts for so long.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Before it connects: that waits where others wait already.
        let socket = Self::new(stream, patience)?;
        connect(&socket.stream, &address)?;
        Ok(socket)
    }

    /// A connection that gives a peer `patience` for a whole message, either way. Code that uses
    /// its descriptor by other means waits as long for each part of one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(stream: OwnedFd, patience: Duration) -> io::Result<Self> {
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&stream, side, Some(patience))?;
        }
        Ok(Self {
            stream,
            patience,
            began: Instant::now(),
        })
    }

    /// When a message that begins now must be complete.
    fn deadline(&self) -> Deadline {
        Deadline::new(self.began.elapsed(), self.patience)
    }

    /// How much time is left for a message.
    fn left(&self, deadline: Deadline) -> Result<Duration, Error> {
        deadline.left(self.began.elapsed()).ok_or(Error::Silent)
    }

    /// Waits until the other side has done its part, or is late.
    fn wait(&self, part: PollFlags, deadline: Deadline) -> Result<(), Error> {
        let left = self.left(deadline)?;
        let timeout = Timespec::try_from(left).map_err(|_| Error::Silent)?;
        match poll(&mut [PollFd::new(&self.stream, part)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a message: its header, what is behind it in up to three parts, and descriptors.
    ///
    /// # Errors
    /// Why it was not sent; the connection is of no use then.
    pub fn send<H: Head>(
        &self,
        header: &H,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Error> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Error::Descriptors);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        slices[0] = IoSlice::new(header.as_bytes());
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let mut left = &mut slices[..];
        let deadline = self.deadline();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // Each turn sends a byte at least, or ends with the deadline.
        while left.iter().any(|slice| !slice.is_empty()) {
            match sendmsg(&self.stream, left, &mut control, flags) {
                Ok(sent) => IoSlice::advance_slices(&mut left, sent),
                Err(Errno::INTR) => {
                    self.left(deadline)?;
                    continue;
                }
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::OUT, deadline)?;
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            }
            // Descriptors go with the first byte.
            control = SendAncillaryBuffer::default();
        }
        Ok(())
    }

    /// Waits for a message; what is behind its header comes into `buffer`.
    ///
    /// # Errors
    /// Why there is none; the connection is of no use then.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, Error> {
        self.receive_as(buffer)
    }

    /// The same of a protocol whose messages begin with `H`.
    ///
    /// # Errors
    /// As for [`receive`](Self::receive).
    pub fn receive_as<H: Head>(&self, buffer: &mut [u8]) -> Result<Received<H>, Error> {
        let deadline = self.deadline();
        let mut descriptors = Vec::new();
        let mut header = H::new_zeroed();
        let bytes = header.as_mut_bytes();
        self.fill(bytes, &mut descriptors, deadline, Error::Closed)?;
        let payload = header.behind(buffer.len()).map_err(Error::Header)?;
        self.fill(
            &mut buffer[..payload],
            &mut descriptors,
            deadline,
            Error::Cut,
        )?;
        Ok(Received {
            header,
            payload,
            descriptors,
        })
    }

    /// Fills `bytes`. If the connection is closed before the first one, the error is `none`.
    fn fill(
        &self,
        mut bytes: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
        deadline: Deadline,
        mut none: Error,
    ) -> Result<(), Error> {
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(bytes)];
            let result = recvmsg(
                &self.stream,
                &mut slices,
                &mut control,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            );
            let message = match result {
                Ok(message) if message.bytes == 0 => return Err(none),
                Ok(message) => message,
                Err(Errno::INTR) => {
                    self.left(deadline)?;
                    continue;
                }
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, deadline)?;
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            };
            none = Error::Cut;
            for came in control.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = came {
                    descriptors.extend(came);
                }
            }
            if message.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX {
                return Err(Error::Descriptors);
            }
            bytes = &mut mem::take(&mut bytes)[message.bytes..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
