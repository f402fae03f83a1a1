//! Links and states: memory in files that whoever starts the guest has made; and queues of disks:
//! memory that the tender makes, and shares with the process that serves them.

use super::{Attached, Reason as Outer};
use crate::disk_process::{self, Served};
use crate::options::{Link, State};
use crate::sys::rings;
use crate::sys::window::Window;
use abi::link::{is_file, word};
use abi::region::{Info, REGIONS_MAX, Request, own_address, peer_address};
use abi::ring::Rings;
use linux::{descriptor, memory};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Where a link's MAC address lies in its file.
const MAC_OFFSET: u64 = (word::MAC * size_of::<u64>()) as u64;

/// What is wrong with a descriptor of a link or state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is no memory whose size is sealed.
    Memory(RawFd),
    /// Its memory has so many bytes, and the image asks for so many.
    Bytes(RawFd, u64, u64),
    /// Its memory is not that of an end of a link.
    Peer(RawFd, u64),
    /// Both ends of the link are the same memory.
    Same,
    /// It is no event.
    Event(RawFd),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(fd) => write!(
                f,
                "descriptor {fd} is no memory of fixed size; pass an open memfd with the seals \
                 F_SEAL_SHRINK and F_SEAL_GROW"
            ),
            Self::Bytes(fd, found, asked) => write!(
                f,
                "the memory behind descriptor {fd} has {found} bytes, and the image asks for \
                 {asked}; make it anew"
            ),
            Self::Peer(fd, found) => write!(
                f,
                "the memory behind descriptor {fd} has {found} bytes, which no end of a link has; \
                 make it anew"
            ),
            Self::Same => f.write_str("both ends are the same memory; pass those of two"),
            Self::Event(fd) => write!(f, "descriptor {fd} is no event; pass an open eventfd"),
        }
    }
}

/// A region, mapped.
#[derive(Debug)]
pub struct Region {
    /// The memory that the guest writes.
    pub own: Window,
    /// What it has if it is a link.
    pub link: Option<LinkEnd>,
    /// What it has if it is the queue of a disk.
    pub queue: Option<QueueEnd>,
}

impl Region {
    /// What wakes the guest up, if there is anything.
    pub fn bell(&self) -> Option<&OwnedFd> {
        let link = self.link.as_ref().map(|link| &link.bell);
        link.or_else(|| self.queue.as_ref().map(|queue| &queue.bell))
    }

    /// What the guest wakes the other side up by, if there is anything.
    pub fn other_bell(&self) -> Option<&OwnedFd> {
        let link = self.link.as_ref().map(|link| &link.peer_bell);
        link.or_else(|| self.queue.as_ref().map(|queue| &queue.server_bell))
    }
}

/// What the queue of a disk has beside its memory.
#[derive(Debug)]
pub struct QueueEnd {
    /// What wakes the guest up.
    pub bell: OwnedFd,
    /// What wakes the process that serves the disk up.
    pub server_bell: OwnedFd,
    /// A pipe whose end tells that process that the guest has ended. Nobody writes there.
    pub alive: OwnedFd,
    /// That process: ready for reading once it has ended.
    pub server: OwnedFd,
    /// The rings, for who says to the guest that it has ended.
    pub rings: Rings<'static>,
}

/// What an end of a link has beside its memory.
#[derive(Debug)]
pub struct LinkEnd {
    /// The other end's memory, which the guest can only read.
    pub peer: Window,
    /// What wakes the guest up.
    pub bell: OwnedFd,
    /// What wakes the other end up.
    pub peer_bell: OwnedFd,
    /// The MAC address of this end.
    pub mac: [u8; 6],
    /// The MTU in bytes; what the image takes if `None`.
    pub mtu: Option<u16>,
    /// Whether the other end may see what comes in here and is not for it.
    pub open: bool,
}

/// Attaches region `number` of an image as a link.
pub(super) fn link(number: usize, request: &Request, link: &Link) -> Result<Region, Outer> {
    let [own_fd, peer_fd, bell, peer_bell] = link.descriptors;
    let (own, own_bytes) = file(own_fd)?;
    let (peer, peer_bytes) = file(peer_fd)?;
    check_bytes(own_fd, own_bytes, request)?;
    if !is_file(peer_bytes) {
        return Err(Outer::Region(Reason::Peer(peer_fd, peer_bytes)));
    }
    let system = |step| move |error: Errno| Outer::System(step, error.into());
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
    let [ours, theirs] = [inode(&own), inode(&peer)].map(|inode| inode.map_err(system("status")));
    if ours? == theirs? {
        return Err(Outer::Region(Reason::Same));
    }
    let (bell, peer_bell) = (event(bell)?, event(peer_bell)?);
    // Who was here before may have filled the counters, so that nobody could ring any more. The
    // other end may not have heard what was rung.
    drain(&bell);
    drain(&peer_bell);
    ring(&peer_bell).map_err(system("the other end cannot be rung"))?;
    let mac = mac(&own, link.mac)?;
    let map = |result: std::io::Result<Window>| {
        result.map_err(|error| Outer::System("its memory cannot be mapped", error))
    };
    let peer = map(Window::map_read_only(
        &peer,
        peer_address(number),
        peer_bytes,
    ))?;
    let own = map(Window::map(&own, 0, own_address(number), own_bytes))?;
    let link = Some(LinkEnd {
        peer,
        bell,
        peer_bell,
        mac,
        mtu: link.mtu,
        open: link.open,
    });
    Ok(Region {
        own,
        link,
        queue: None,
    })
}

/// Attaches region `number` of an image as a state.
pub(super) fn state(number: usize, request: &Request, state: &State) -> Result<Region, Outer> {
    let (file, bytes) = file(state.descriptor)?;
    check_bytes(state.descriptor, bytes, request)?;
    let own = Window::map(&file, 0, own_address(number), bytes);
    let own = own.map_err(|error| Outer::System("its memory cannot be mapped", error))?;
    Ok(Region {
        own,
        link: None,
        queue: None,
    })
}

/// Makes region `number` of an image, the queue of `disk`, and starts the process that serves it.
pub(super) fn queue(number: usize, request: &Request, disk: &Attached) -> Result<Region, Outer> {
    let system = |step| move |error| Outer::System(step, error);
    let no_event = |errno: Errno| Outer::System("no event for its queue", errno.into());
    let bytes = u64::from(request.bytes);
    let file = memory::sealed("queue", bytes).map_err(system("no memory for its queue"))?;
    let own = Window::map(&file, 0, own_address(number), bytes);
    let own = own.map_err(system("the memory of its queue cannot be mapped"))?;
    let unsound = || system("its queue")(std::io::ErrorKind::InvalidInput.into());
    let (rings, buffers) = rings::lanes(&own).ok_or_else(unsound)?;
    let bell = linux::event::new().map_err(system("no event for its queue"))?;
    // Each ring wakes one of the threads that read it.
    let server_bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE);
    let server_bell = server_bell.map_err(no_event)?;
    let (guest, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(no_event)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(system("no copy of a descriptor"));
    let child = disk_process::start(Served {
        disk: Attached {
            fd: copy(&disk.fd)?,
            ..*disk
        },
        rings,
        memory: buffers,
        bell: copy(&server_bell)?,
        guest_bell: copy(&bell)?,
        guest,
    });
    let child = child.map_err(system("no process to serve it"))?;
    let server = child
        .pidfd()
        .map_err(system("the process that serves it"))?;
    Ok(Region {
        own,
        link: None,
        queue: Some(QueueEnd {
            bell,
            server_bell,
            alive,
            server,
            rings,
        }),
    })
}

fn check_bytes(fd: RawFd, found: u64, request: &Request) -> Result<(), Outer> {
    let asked = u64::from(request.bytes);
    let wrong = Outer::Region(Reason::Bytes(fd, found, asked));
    (found == asked).then_some(()).ok_or(wrong)
}

/// The memory behind a descriptor, and its size in bytes, which nobody can change.
fn file(number: RawFd) -> Result<(OwnedFd, u64), Outer> {
    let wrong = || Outer::Region(Reason::Memory(number));
    let file = descriptor::adopt(number).map_err(|_| wrong())?;
    let bytes = memory::sealed_bytes(file.as_fd()).ok_or_else(wrong)?;
    Ok((file, bytes))
}

/// The event behind a descriptor; neither reading nor writing it waits.
fn event(number: RawFd) -> Result<OwnedFd, Outer> {
    let wrong = || Outer::Region(Reason::Event(number));
    let event = descriptor::adopt(number).map_err(|_| wrong())?;
    if !linux::event::is_event(event.as_fd()) {
        return Err(wrong());
    }
    fcntl_setfl(&event, OFlags::NONBLOCK).map_err(|_| wrong())?;
    Ok(event)
}

fn drain(event: &OwnedFd) {
    // It may be empty.
    let _ = rustix::io::read(event, &mut [0; 8]);
}

fn ring(event: &OwnedFd) -> Result<(), Errno> {
    rustix::io::write(event, &1u64.to_ne_bytes()).map(drop)
}

/// The MAC address of an end: `wanted`, or the one that it had before, or a random one. It is left
/// in the file for whoever comes next.
fn mac(own: &OwnedFd, wanted: Option<[u8; 6]>) -> Result<[u8; 6], Outer> {
    let system = |step| move |error| Outer::System(step, error);
    let mut word = [0; 8];
    rustix::io::pread(own, &mut word, MAC_OFFSET)
        .map_err(|error| Outer::System("its memory cannot be read", error.into()))?;
    let [a, b, c, d, e, f, ..] = word;
    let had = Some([a, b, c, d, e, f]).filter(|mac| mac[0] & 3 == 2);
    let mac = match wanted.or(had) {
        Some(mac) => mac,
        None => super::random_mac().map_err(system("no random MAC address"))?,
    };
    word[..6].copy_from_slice(&mac);
    rustix::io::pwrite(own, &word, MAC_OFFSET)
        .map_err(|error| Outer::System("its memory cannot be written", error.into()))?;
    Ok(mac)
}

/// What is kept open for the guest to be woken up by, and to be seen to be there.
pub fn held(regions: &[Region]) -> impl Iterator<Item = RawFd> {
    let bells = regions.iter().filter_map(Region::bell);
    let servers = regions.iter().filter_map(|region| region.queue.as_ref());
    let servers = servers.flat_map(|queue| [&queue.server, &queue.alive]);
    bells.chain(servers).map(AsRawFd::as_raw_fd)
}

/// What the guest is told of its regions.
pub fn infos(regions: &[Region]) -> [Info; REGIONS_MAX] {
    let mut infos = [Info::ZERO; REGIONS_MAX];
    for (info, region) in infos.iter_mut().zip(regions) {
        info.own_bytes = region.own.bytes();
        if let Some(link) = &region.link {
            info.peer_bytes = link.peer.bytes();
            info.bell = link.peer_bell.as_raw_fd();
            info.mac = link.mac;
            info.mtu = link.mtu.unwrap_or(0);
        }
        if let Some(queue) = &region.queue {
            info.bell = queue.server_bell.as_raw_fd();
        }
    }
    infos
}
