//! A wire between two processes: a socket that both name.

use super::{Offload, Wire};
use crate::client::socket_file;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Longest frame, as for a tap.
const FRAME_BYTES_MAX: usize = 0xffff + 22;
/// Bytes in front of a frame: what is left to do to it.
const HEADER: usize = 8;
const CHECKSUM: u16 = 1;
const SEGMENT: u16 = 2;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// One end of a wire. Each frame is a packet of a socket; the first end to come listens. It is up
/// while both ends are there.
#[derive(Debug)]
pub struct SocketWire {
    /// What listens, and the file that is removed in the end.
    listener: Option<(OwnedFd, PathBuf)>,
    peer: Option<OwnedFd>,
    /// Readable when one of them is, or was: all that comes is read, so edges are enough.
    events: OwnedFd,
    incoming: Vec<u8>,
    /// Bytes of the packet that came in; zero for none.
    len: usize,
    /// A packet that found no room.
    outgoing: Vec<u8>,
}

impl SocketWire {
    /// Connects to the end that listens at `path`, or listens there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket = || socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None);
        let mut wire = Self {
            listener: None,
            peer: None,
            events: epoll::create(CreateFlags::CLOEXEC)?,
            incoming: vec![0; HEADER + FRAME_BYTES_MAX],
            len: 0,
            outgoing: Vec::with_capacity(HEADER + FRAME_BYTES_MAX),
        };
        let peer = socket()?;
        match connect(&peer, &address) {
            Ok(()) => wire.set_peer(peer)?,
            Err(Errno::NOENT | Errno::CONNREFUSED) => {
                socket_file::remove_abandoned(path)?;
                let listener = socket()?;
                bind(&listener, &address)?;
                listen(&listener, 1)?;
                wire.watch(&listener)?;
                wire.listener = Some((listener, path.into()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(wire)
    }

    /// Somebody may have come.
    fn welcome(&mut self) {
        if self.peer.is_none()
            && let Some((listener, _)) = &self.listener
        {
            // Nobody, or nobody any more.
            let Ok(peer) = accept_with(listener, FLAGS) else {
                return;
            };
            if self.set_peer(peer).is_err() {
                self.peer = None;
            }
        }
    }

    fn set_peer(&mut self, peer: OwnedFd) -> io::Result<()> {
        self.watch(&peer)?;
        self.peer = Some(peer);
        Ok(())
    }

    fn watch(&self, socket: &OwnedFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(
            &self.events,
            socket,
            EventData::new_u64(0),
            flags,
        )?)
    }

    /// Sends the packet that waits; `false` if there is still no room.
    fn try_send(&mut self) -> bool {
        let Some(peer) = &self.peer else {
            self.outgoing.clear();
            return true;
        };
        match send(peer, &self.outgoing, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => return false,
            Ok(_) => {}
            Err(_) => self.peer = None,
        }
        self.outgoing.clear();
        true
    }
}

impl Drop for SocketWire {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.listener {
            // Somebody may have removed it before.
            let _gone = std::fs::remove_file(path);
        }
    }
}

impl Wire for SocketWire {
    fn is_up(&mut self) -> bool {
        self.welcome();
        self.peer.is_some()
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        if self.len == 0 {
            let peer = self.peer.as_ref()?;
            match recv(peer, &mut self.incoming[..], RecvFlags::empty()) {
                Ok((_, len)) if len > HEADER && len <= self.incoming.len() => {
                    self.len = len;
                }
                Err(Errno::AGAIN) => return None,
                // A packet that is no frame comes from no model: the wire is cut.
                Ok(_) | Err(_) => {
                    self.peer = None;
                    return None;
                }
            }
        }
        let (header, frame) = self.incoming[..self.len].split_first_chunk::<HEADER>()?;
        Some((frame, parse(header)))
    }

    fn take(&mut self) {
        self.len = 0;
    }

    fn can_send(&mut self) -> bool {
        self.outgoing.is_empty() || self.try_send()
    }

    fn takes_large_frames(&self) -> bool {
        true
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        if !self.can_send() {
            return;
        }
        self.outgoing.extend_from_slice(&header(offload));
        self.outgoing.extend_from_slice(frame);
        self.try_send();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.as_fd())
    }
}

fn header(offload: Offload) -> [u8; HEADER] {
    let (start, offset) = offload.checksum.unwrap_or_default();
    let size = offload.segment.unwrap_or_default();
    let flags = if offload.checksum.is_some() {
        CHECKSUM
    } else {
        0
    } | if offload.segment.is_some() {
        SEGMENT
    } else {
        0
    };
    let mut header = [0; HEADER];
    for (place, word) in header
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip([flags, start, offset, size])
    {
        *place = word.to_le_bytes();
    }
    header
}

fn parse(header: &[u8; HEADER]) -> Offload {
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    Offload {
        checksum: (word(0) & CHECKSUM != 0).then(|| (word(2), word(4))),
        segment: (word(0) & SEGMENT != 0).then(|| word(6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ends_meet_whoever_comes_first() {
        let path = std::env::temp_dir().join(format!("models-wire-{}", std::process::id()));
        let mut first = SocketWire::open(&path).unwrap();
        assert!(!first.is_up());
        let mut second = SocketWire::open(&path).unwrap();
        assert!(second.is_up() && first.is_up());
        let offload = Offload {
            checksum: Some((34, 16)),
            segment: Some(1448),
        };
        let frame = vec![7; 64_000];
        second.send(&frame, offload);
        assert_eq!(first.peek(), Some((&frame[..], offload)));
        first.take();
        assert_eq!(first.peek(), None);
        // What finds no room waits, and nothing is lost meanwhile.
        let mut sent = 0u8;
        while first.can_send() {
            sent += 1;
            first.send(&[sent; 60_000], Offload::default());
        }
        for number in 1..=sent {
            assert_eq!(second.peek().map(|(frame, _)| frame[0]), Some(number));
            second.take();
            assert!(first.can_send());
        }
        drop(second);
        assert!(first.peek().is_none() && !first.is_up());
        let mut third = SocketWire::open(&path).unwrap();
        assert!(third.is_up() && first.is_up());
        drop(first);
        assert!(!path.exists());
    }
}
