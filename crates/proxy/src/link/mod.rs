//! This process's end of a link that carries sockets.
//!
//! The port is that of an image ([`ports`]), over a host that is this process: one link, no other
//! device, and a wait that is the caller's epoll set. So an end sleeps as images do
//! (`docs/links.md`, "Notifications"): it says for what in its memory, looks once more, and is rung
//! once for each sleep.
//!
//! | module | what |
//! |---|---|
//! | `host` | what a host does for the port: it waits, rings, and says |
//! | `reason` | what is wrong with descriptors |

mod host;
mod reason;
#[cfg(test)]
mod tests;

pub use crate::reactor::EVENTS_MAX;
pub use reason::Reason;

use abi::extension::HostInfo;
use abi::link::is_file;
use abi::manifest::{Entry, name_field};
use abi::region::{Info, Request, kind};
use device::{Netif, Pool};
use host::Machine;
use link_sockets::Table;
use linux::link::Side;
use linux::{event, memory, shared};
use ports::buffers::{BUFFER_BYTES, BUFFERS};
use ports::share::SharedFile;
use ports::{DeviceError, Devices, Instant, LinkMemory, Parts, Regions, Runtime};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the port is called.
const NAME: &str = "sockets";
/// The MAC address of a port whose frames carry sockets: nobody ever looks at it.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

/// An end of a link. What it holds stays until this process ends.
pub struct End {
    runtime: &'static Runtime,
    machine: &'static Machine,
}

/// Now, by the monotonic clock.
pub fn now() -> Instant {
    Instant(nanoseconds(ClockId::Monotonic))
}

/// Nanoseconds of a clock; neither is ever before its beginning.
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let seconds = now.tv_sec.cast_unsigned();
    let seconds = seconds.saturating_mul(1_000_000_000);
    seconds.saturating_add(now.tv_nsec.cast_unsigned())
}

/// A number of a session that no process at this end has had before: it is no secret.
fn session() -> u64 {
    nanoseconds(ClockId::Realtime) ^ now().0.rotate_left(32)
}

impl End {
    /// The end of these descriptors, whose frames carry so many bytes (65,535 if `mtu` does not
    /// say). What rings this end is in the set `epoll` from now on, with `bell` as its data. What
    /// there is to be said of the link goes to `say`, a line each.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn open(
        side: Side,
        mtu: Option<u16>,
        (epoll, bell): (BorrowedFd<'_>, u64),
        say: fn(&str),
    ) -> Result<Self, Reason> {
        check(&side)?;
        let system = |step| move |error: io::Error| Reason::System(step, error);
        let links = [&side.bell, &side.peer_bell].map(|bell| unblocked(bell.as_fd()));
        links
            .into_iter()
            .collect::<io::Result<()>>()
            .map_err(system("its events cannot be used"))?;
        let own = shared::own(side.own.as_fd());
        let own = own.map_err(system("its memory cannot be mapped"))?;
        let peer = shared::peer(side.peer.as_fd());
        let peer = peer.map_err(system("its memory cannot be mapped"))?;
        let epoll = epoll.try_clone_to_owned();
        let epoll = epoll.map_err(system("no descriptor is left"))?;
        let flags = EventFlags::IN | EventFlags::ET;
        // What was rung before ends the first wait: it only looks.
        epoll::add(&epoll, &side.bell, EventData::new_u64(bell), flags)
            .map_err(|errno| system("its event cannot be waited for")(errno.into()))?;
        let machine = Machine::new((epoll, bell), [side.bell, side.peer_bell], say);
        let machine: &'static Machine = Box::leak(Box::new(machine));
        let memory = LinkMemory {
            own: own.head,
            slots: own.slots,
            peer,
        };
        let runtime = Runtime::new(parts(machine, memory, mtu));
        let runtime: &'static Runtime = Box::leak(Box::new(runtime));
        machine.ring();
        Ok(Self { runtime, machine })
    }

    /// The sockets of the stack at the other end. What has arrived may take so many bytes.
    ///
    /// # Errors
    /// They, or the port, were handed out already.
    pub fn table(&self, memory: usize) -> Result<Table, DeviceError> {
        Ok(Table::new(self.port()?, memory, session(), now()))
    }

    /// The port, in place of [`Self::table`].
    ///
    /// # Errors
    /// It was handed out already.
    pub fn port(&self) -> Result<Box<dyn Netif>, DeviceError> {
        let port = self.runtime.socket_link(NAME)?;
        port.ok_or(DeviceError::NotAttached)
    }

    /// Sleeps until the link has something, something else of the set has, or the deadline has
    /// passed: for ever without one, and not at all with [`Instant::PAST`]. `events` are those of
    /// the set then, without this end's own, [`EVENTS_MAX`] at most. Whether the link has
    /// something.
    ///
    /// # Errors
    /// What the kernel says of the set.
    pub fn wait(
        &self,
        deadline: Option<Instant>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<bool> {
        self.machine.lend(std::mem::take(events));
        let ready = self.runtime.wait(deadline);
        // A link that always has something must not keep anybody from looking at the set.
        let (found, failed) = self.machine.take_back();
        *events = found;
        failed.map_or(Ok(!ready.is_empty()), |errno| Err(errno.into()))
    }

    /// Tells the other end that this one ends, and ends this process.
    pub fn exit(&self, status: i32) -> ! {
        self.runtime.exit(status)
    }
}

/// A runtime with this link, and nothing else.
fn parts(machine: &'static Machine, memory: LinkMemory, mtu: Option<u16>) -> Parts {
    let bytes = |words: usize| (words * size_of::<u64>()) as u64;
    let own_bytes = bytes(memory.own.len()) + memory.slots.len() as u64;
    let mut info = HostInfo::ZERO;
    info.regions[0] = Info {
        own_bytes,
        peer_bytes: bytes(memory.peer.len()),
        mac: MAC,
        mtu: mtu.unwrap_or(0),
        ..Info::ZERO
    };
    let request = Request {
        name: name_field(NAME).expect("a short name"),
        kind: kind::SOCKETS,
        bytes: u32::try_from(own_bytes).unwrap_or(u32::MAX),
    };
    let buffers = vec![0; BUFFERS * BUFFER_BYTES].leak();
    Parts {
        host: machine,
        share: SharedFile::default(),
        rings: None,
        regions: Regions {
            links: vec![Some(memory)],
            ..Regions::default()
        },
        devices: Devices::new(
            vec![Entry::RESERVED].leak(),
            &[],
            vec![request].leak(),
            &info,
        ),
        pool: Pool::new(buffers, BUFFER_BYTES),
        command_line: "",
        has_room: |_| true,
        quiet: None,
        sleepless: false,
    }
}

/// Whether these descriptors are those of an end of a link.
fn check(side: &Side) -> Result<(), Reason> {
    for memory in [&side.own, &side.peer] {
        let bytes = memory::sealed_bytes(memory.as_fd()).ok_or(Reason::Memory)?;
        if !is_file(bytes) {
            return Err(Reason::Bytes(bytes));
        }
    }
    let inode = |file: &OwnedFd| fstat(file).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    if inode(&side.own) == inode(&side.peer) {
        return Err(Reason::Same);
    }
    let mut bells = [&side.bell, &side.peer_bell].into_iter();
    match bells.all(|bell| event::is_event(bell.as_fd())) {
        true => Ok(()),
        false => Err(Reason::Event),
    }
}

/// Has neither reading nor writing it wait. Who was here before may have filled the counter, so
/// that nobody could ring any more.
fn unblocked(bell: BorrowedFd<'_>) -> io::Result<()> {
    fcntl_setfl(bell, fcntl_getfl(bell)? | OFlags::NONBLOCK)?;
    // It may be empty.
    let _ = rustix::io::read(bell, &mut [0; 8]);
    Ok(())
}
