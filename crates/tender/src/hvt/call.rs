//! What a guest may ask of its host: Solo5's hypercalls.
//!
//! Everything that a guest says is a number until the one door, [`GuestMemory`], has turned it
//! into memory. Arguments are copied out, looked at, and copied back.

use crate::attach::Attached;
use crate::jail::Grants;
use crate::sys::guest::{GuestMemory, Outside};
use abi::extension::EPOLL_GONE;
use abi::hvt::{self, CALL_PORT, COOKIE_BYTES, MESSAGE_BYTES_MAX, TRAP_MAGIC, Trap, call, result};
use abi::manifest::{Device, ENTRIES_MAX};
use abi::ring::Jump;
use abi::spt::EPOLL_TIMER;
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::time::{ClockId, Itimerspec, TimerfdTimerFlags, Timespec};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of arguments, in bytes: that of their largest field.
const ARGUMENT_ALIGN: u64 = 8;
/// Attempts at a piece of text; a console that takes nothing must not hold the guest up.
const CONSOLE_ATTEMPTS_MAX: usize = 100;
const NANOSECONDS: u64 = 1_000_000_000;

/// What comes after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest goes on.
    Continue,
    /// The guest has ended itself: its status, and what it says of an exception.
    Halt(i32, Option<Trap>),
}

/// What ends a guest: it asked for something that it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A port that is no call.
    Port(u16),
    /// A call whose argument, or what that points to, is no guest memory: the call's number, the
    /// address, the length.
    Pointer(u16, u64, u64),
    /// An argument at an odd address: the call's number, the address.
    Unaligned(u16, u64),
    /// A device that is gone: its index.
    DeviceGone(usize),
    /// The host cannot wait for devices.
    Wait(Errno),
    /// An index of a ring that makes no sense: the device's index in the manifest.
    Ring(usize, Jump),
    /// A buffer in a ring that is no guest memory.
    Buffer(usize, Outside),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "it wrote to port {port:#x}, which is no hypercall"),
            Self::Pointer(number, address, length) => write!(
                f,
                "it passed {length} bytes at {address:#x}, outside of its memory, to the \
                 hypercall {}",
                name(*number)
            ),
            Self::Unaligned(number, address) => write!(
                f,
                "it passed an argument at {address:#x}, no multiple of {ARGUMENT_ALIGN}, to the \
                 hypercall {}",
                name(*number)
            ),
            Self::DeviceGone(index) => {
                write!(f, "device {index} of its manifest went away while in use")
            }
            Self::Wait(errno) => write!(f, "its devices cannot be waited for: {errno}"),
            Self::Ring(index, Jump { from, to }) => write!(
                f,
                "it set the index of the ring of device {index} of its manifest from {from} to {to}"
            ),
            Self::Buffer(index, Outside { address, length }) => write!(
                f,
                "it passed a buffer of {length} bytes at {address:#x}, outside of its memory, to \
                 the ring of device {index} of its manifest"
            ),
        }
    }
}

impl std::error::Error for Violation {}

fn name(number: u16) -> &'static str {
    match number {
        call::WALL_TIME => "walltime",
        call::PUTS => "puts",
        call::POLL => "poll",
        call::BLOCK_WRITE => "block_write",
        call::BLOCK_READ => "block_read",
        call::NET_WRITE => "net_write",
        call::NET_READ => "net_read",
        call::HALT => "halt",
        call::MESSAGE_SEND => "message_send",
        call::MESSAGE_RECEIVE => "message_receive",
        _ => "unknown",
    }
}

/// What the calls of one guest reach.
#[derive(Debug)]
pub struct Calls {
    /// Its devices.
    pub devices: Vec<Attached>,
    /// Connections to PCIe devices that are processes, by their index.
    pub sockets: Vec<(usize, OwnedFd)>,
    /// What it waits on: networks by their index in the manifest, and the timer.
    pub epoll: OwnedFd,
    /// The timer in it.
    pub timer: OwnedFd,
    /// Whether it has PCIe devices, with which it shares memory.
    pub pci: bool,
}

impl Calls {
    /// Does what a guest asks for that wrote `argument` to `port`.
    ///
    /// # Errors
    /// What it must not ask for; it is to be ended then.
    pub fn handle(
        &self,
        memory: &GuestMemory,
        port: u16,
        argument: u32,
    ) -> Result<Outcome, Violation> {
        let number = port.wrapping_sub(CALL_PORT);
        let asked = Asked {
            guest: Guest { memory, number },
            address: u64::from(argument),
        };
        match number {
            call::WALL_TIME => asked.answer(|_, argument: &mut hvt::WallTime| {
                argument.nanoseconds = wall_time();
                Ok(())
            })?,
            call::PUTS => asked.answer(|memory, argument: &mut hvt::Puts| {
                memory.puts(argument.data, argument.len)
            })?,
            call::POLL => asked.answer(|_, argument| self.poll(argument))?,
            call::BLOCK_WRITE | call::BLOCK_READ => {
                asked.answer(|memory, argument| self.block(memory, argument))?;
            }
            call::NET_WRITE => asked.answer(|memory, argument| self.net_write(memory, argument))?,
            call::NET_READ => asked.answer(|memory, argument| self.net_read(memory, argument))?,
            call::HALT => return asked.halt(),
            call::MESSAGE_SEND => {
                asked.answer(|memory, argument| self.message_send(memory, argument))?;
            }
            call::MESSAGE_RECEIVE => {
                asked.answer(|memory, argument| self.message_receive(memory, argument))?;
            }
            _ => return Err(Violation::Port(port)),
        }
        Ok(Outcome::Continue)
    }

    /// What they reach, the event that may wake the guest up, and what else is held, by number.
    pub fn grants(&self, event: Option<&OwnedFd>, held: impl Iterator<Item = RawFd>) -> Grants {
        let devices = self.devices.iter();
        Grants {
            epoll_fd: self.epoll.as_raw_fd(),
            timer_fd: self.timer.as_raw_fd(),
            event_fd: event.map(AsRawFd::as_raw_fd),
            held: held.collect(),
            sockets: self.sockets.iter().map(|(_, fd)| fd.as_raw_fd()).collect(),
            devices: devices.map(|d| (d.fd.as_raw_fd(), d.device)).collect(),
        }
    }

    fn poll(&self, argument: &mut hvt::Poll) -> Result<(), Violation> {
        // At least a nanosecond: zero would switch the timer off, and the wait would not end.
        let value = Timespec {
            tv_sec: (argument.timeout / NANOSECONDS).cast_signed(),
            tv_nsec: ((argument.timeout % NANOSECONDS) | 1).cast_signed(),
        };
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: value,
        };
        let flags = TimerfdTimerFlags::empty();
        rustix::time::timerfd_settime(&self.timer, flags, &once).map_err(Violation::Wait)?;
        let mut events = [MaybeUninit::uninit(); ENTRIES_MAX + 1];
        let (events, _) = loop {
            match epoll::wait(&self.epoll, &mut events, None) {
                Err(Errno::INTR) => {}
                other => break other.map_err(Violation::Wait)?,
            }
        };
        let numbers = events.iter().map(|event| event.data.u64());
        let gone = EPOLL_GONE..EPOLL_GONE + ENTRIES_MAX as u64;
        if let Some(number) = numbers.clone().find(|number| gone.contains(number)) {
            return Err(Violation::DeviceGone((number - EPOLL_GONE) as usize));
        }
        argument.ready = numbers
            .filter(|number| *number != EPOLL_TIMER && *number < ENTRIES_MAX as u64)
            .fold(0, |set, number| set | 1 << number);
        argument.ret = argument.ready.count_ones().cast_signed();
        Ok(())
    }

    /// The network device with this index in the manifest.
    fn net(&self, handle: u64) -> Option<&Attached> {
        self.device(handle)
            .filter(|device| matches!(device.device, Device::Net { .. }))
    }

    fn device(&self, handle: u64) -> Option<&Attached> {
        let mut devices = self.devices.iter();
        devices.find(|device| device.index as u64 == handle)
    }

    fn net_write(&self, memory: &Guest<'_>, argument: &mut hvt::Net) -> Answer {
        let Some(net) = self.net(argument.handle) else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let written = memory.write(&net.fd, argument.data, argument.len);
        argument.ret = match written.map_err(memory.pointer())? {
            Ok(written) if written as u64 == argument.len => result::OK,
            Err(Errno::BADFD) => return Err(Violation::DeviceGone(net.index)),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => result::AGAIN,
            Ok(_) | Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn net_read(&self, memory: &Guest<'_>, argument: &mut hvt::Net) -> Answer {
        let Some(net) = self.net(argument.handle) else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let read = memory.read(&net.fd, argument.data, argument.len);
        argument.ret = match read.map_err(memory.pointer())? {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => result::AGAIN,
            Ok(length) => {
                argument.len = length as u64;
                result::OK
            }
            Err(Errno::BADFD) => return Err(Violation::DeviceGone(net.index)),
            Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn socket(&self, handle: u64) -> Option<&(usize, OwnedFd)> {
        let mut sockets = self.sockets.iter();
        sockets.find(|(index, _)| *index as u64 == handle)
    }

    /// Passes a message on. Who is at the other end keeps nobody waiting beyond the socket's
    /// timeout.
    fn message_send(&self, memory: &Guest<'_>, argument: &mut hvt::Net) -> Answer {
        let (Some((index, socket)), 1..=MESSAGE_BYTES_MAX) =
            (self.socket(argument.handle), argument.len as usize)
        else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let mut message = [0; MESSAGE_BYTES_MAX];
        let message = &mut message[..argument.len as usize];
        memory
            .copy_out(argument.data, message)
            .map_err(memory.pointer())?;
        // A socket with a timeout is interrupted even by what lets a stopped process go on.
        let sent = loop {
            match rustix::net::send(socket, &*message, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        argument.ret = match sent {
            Ok(sent) if sent == message.len() => result::OK,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Violation::DeviceGone(*index)),
            Ok(_) | Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn message_receive(&self, memory: &Guest<'_>, argument: &mut hvt::Net) -> Answer {
        let (Some((index, socket)), 1..=MESSAGE_BYTES_MAX) =
            (self.socket(argument.handle), argument.len as usize)
        else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let read = loop {
            let read = memory.read(socket, argument.data, argument.len);
            match read.map_err(memory.pointer())? {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        argument.ret = match read {
            Ok(0) | Err(Errno::CONNRESET) => return Err(Violation::DeviceGone(*index)),
            Ok(length) => {
                argument.len = length as u64;
                result::OK
            }
            Err(Errno::AGAIN) => result::AGAIN,
            Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn block(&self, memory: &Guest<'_>, argument: &mut hvt::Block) -> Answer {
        let Some((fd, capacity)) = self.disk(argument.handle) else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let (offset, length) = (argument.offset, argument.len);
        if !is_inside(offset, length, capacity) {
            argument.ret = result::INVALID;
            return Ok(());
        }
        let done = match memory.number {
            call::BLOCK_WRITE => memory.write_at(fd, offset, argument.data, length),
            _ => memory.read_at(fd, offset, argument.data, length),
        };
        argument.ret = match done.map_err(memory.pointer())? {
            Ok(count) if count as u64 == length => result::OK,
            Ok(_) | Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn disk(&self, handle: u64) -> Option<(BorrowedFd<'_>, u64)> {
        let device = self.device(handle)?;
        match device.device {
            Device::Block { capacity, .. } => Some((device.fd.as_fd(), capacity)),
            Device::Net { .. } => None,
        }
    }
}

/// Whether these bytes are those of a disk of this capacity.
pub(super) fn is_inside(offset: u64, length: u64, capacity: u64) -> bool {
    let end = offset.checked_add(length);
    offset < capacity && end.is_some_and(|end| end <= capacity)
}

type Answer = Result<(), Violation>;

/// Guest memory, and the call on whose behalf it is used.
#[derive(Clone, Copy)]
struct Guest<'a> {
    memory: &'a GuestMemory,
    number: u16,
}

impl Deref for Guest<'_> {
    type Target = GuestMemory;

    fn deref(&self) -> &GuestMemory {
        self.memory
    }
}

impl Guest<'_> {
    /// What it means that the guest named what is no memory.
    fn pointer(self) -> impl Fn(Outside) -> Violation {
        move |Outside { address, length }| Violation::Pointer(self.number, address, length)
    }

    /// Writes to the console. What it does not take is lost.
    fn puts(self, mut address: u64, mut length: u64) -> Answer {
        self.check(address, length).map_err(self.pointer())?;
        let console = std::io::stdout();
        for _ in 0..CONSOLE_ATTEMPTS_MAX {
            if length == 0 {
                break;
            }
            match self
                .write(&console, address, length)
                .map_err(self.pointer())?
            {
                Ok(written) => {
                    address += written as u64;
                    length -= written as u64;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// A call with its argument.
struct Asked<'a> {
    guest: Guest<'a>,
    address: u64,
}

impl Asked<'_> {
    /// Copies the argument out, has it looked at, and copies it back.
    fn answer<T>(&self, work: impl FnOnce(&Guest<'_>, &mut T) -> Answer) -> Answer
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let Self { guest, address } = *self;
        if !address.is_multiple_of(ARGUMENT_ALIGN) {
            return Err(Violation::Unaligned(guest.number, address));
        }
        let mut argument = T::new_zeroed();
        let bytes = argument.as_mut_bytes();
        guest.copy_out(address, bytes).map_err(guest.pointer())?;
        work(&guest, &mut argument)?;
        let bytes = argument.as_bytes();
        guest.copy_in(address, bytes).map_err(guest.pointer())
    }

    fn halt(&self) -> Result<Outcome, Violation> {
        let mut outcome = Outcome::Continue;
        self.answer(|memory, argument: &mut hvt::Halt| {
            let trap = match argument.cookie {
                0 => None,
                address => {
                    let mut cookie = [0; COOKIE_BYTES as usize];
                    memory
                        .copy_out(address, &mut cookie)
                        .map_err(memory.pointer())?;
                    Trap::read_from_prefix(&cookie).ok().map(|(trap, _)| trap)
                }
            };
            let trap = trap.filter(|trap| trap.magic == TRAP_MAGIC);
            outcome = Outcome::Halt(argument.status, trap);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// Nanoseconds since 1970.
pub fn wall_time() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(NANOSECONDS)
        .saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests;
