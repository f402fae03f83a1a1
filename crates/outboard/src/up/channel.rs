//! Messages over a local socket, each whole or not at all (`SOCK_SEQPACKET`, unix(7)), with the
//! descriptors that belong to it. What comes in is checked here, once.

use crate::instance;
use linux::call::again;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Most descriptors in a message: those of a component.
pub const DESCRIPTORS_MAX: usize = 64;
/// Connections that wait to be taken.
const BACKLOG: i32 = 8;

/// One end of a connection. Only [`Channel::wait`] waits.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What came out of a channel.
#[derive(Debug)]
pub enum Received<T> {
    /// A message with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// None so far.
    Nothing,
    /// The other end is closed.
    End,
}

impl Channel {
    /// A connection to whoever listens at `path`.
    ///
    /// # Errors
    /// Nobody does.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket()?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self(socket))
    }

    /// A connection between two processes of which one starts the other.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// The next connection of a [`listener`], if one waits.
    pub fn accept(listener: BorrowedFd<'_>) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        accept_with(listener, flags).ok().map(Self)
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// It is too long, or the other end does not take it.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let slices = [IoSlice::new(&bytes)];
        again(|| sendmsg(&self.0, &slices, &mut control, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// It is none, or was cut.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Received<T>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = again(|| {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.0, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
        });
        let received = match received {
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            received => received?,
        };
        let descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Vec::from_iter(descriptors),
            _ => Vec::new(),
        });
        let descriptors: Vec<OwnedFd> = descriptors.collect();
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if received.flags.intersects(cut) {
            return Err(Errno::MSGSIZE.into());
        }
        match bytes.get(..received.bytes) {
            None | Some([]) => Ok(Received::End),
            Some(json) => Ok(Received::Message(
                serde_json::from_slice(json)?,
                descriptors,
            )),
        }
    }

    /// Takes the next message as soon as there is one; nothing, if there is none until then.
    ///
    /// # Errors
    /// Those of [`Self::receive`]; it cannot be waited for.
    pub fn wait<T: DeserializeOwned>(&self, until: Option<Instant>) -> io::Result<Received<T>> {
        loop {
            let received = self.receive()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !matches!(received, Received::Nothing) || left.is_some_and(|left| left.is_zero()) {
                return Ok(received);
            }
            let most = left.map(Timespec::try_from).transpose();
            let most = most.map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(self, PollFlags::IN)], most.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that takes connections at `path`. What a dead process has left there goes.
///
/// # Errors
/// What the kernel says, among it that the path is too long for a socket's.
pub fn listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    instance::unlink(path)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn messages_come_whole_with_their_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        assert!(matches!(b.receive::<u32>().unwrap(), Received::Nothing));
        let null = std::fs::File::open("/dev/null").unwrap();
        a.send(&7_u32, &[null.as_fd(), null.as_fd()]).unwrap();
        a.send(&8_u32, &[]).unwrap();
        let Received::Message(7_u32, descriptors) = b.receive().unwrap() else {
            panic!("another message");
        };
        assert_eq!(descriptors.len(), 2);
        assert!(matches!(b.receive().unwrap(), Received::Message(8_u32, none) if none.is_empty()));
        drop(a);
        assert!(matches!(b.receive::<u32>().unwrap(), Received::End));
    }

    #[test]
    fn what_comes_too_late_is_not_waited_for() {
        let (a, b) = Channel::pair().unwrap();
        let wait = |until| b.wait::<u32>(until).unwrap();
        assert!(matches!(wait(Some(Instant::now())), Received::Nothing));
        a.send(&7_u32, &[]).unwrap();
        assert!(matches!(
            wait(Some(Instant::now())),
            Received::Message(7, _)
        ));
        a.send(&8_u32, &[]).unwrap();
        assert!(matches!(wait(None), Received::Message(8, _)));
        drop(a);
        assert!(matches!(wait(None), Received::End));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&"text", &[]).unwrap();
        b.receive::<u32>().unwrap_err();
        let long = vec![0_u8; MESSAGE_BYTES_MAX + 1];
        rustix::net::send(&a, &long, SendFlags::empty()).unwrap();
        let error = b.receive::<u32>().unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::MSGSIZE));
        a.send(&"x".repeat(MESSAGE_BYTES_MAX), &[]).unwrap_err();
    }
}
