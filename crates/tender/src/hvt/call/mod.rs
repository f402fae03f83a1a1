//! What a guest may ask of its host: Solo5's hypercalls.
//!
//! Everything that a guest says is a number until the one door, [`GuestMemory`], has turned it
//! into memory. Arguments are copied out, looked at, and copied back.

use super::cause::{ARGUMENT_ALIGN, Cause, HostStep, Violation};
use crate::attach::Attached;
use crate::jail::{Granted, Grants};
use crate::memory::Gpa;
use crate::sys::guest::{GuestMemory, Outside};
use crate::transfer::{discard, flush, is_inside};
use abi::extension::{EPOLL_GONE, device_flag};
use abi::hvt::{self, CALL_PORT, COOKIE_BYTES, MESSAGE_BYTES_MAX, TRAP_MAGIC, Trap, call, result};
use abi::manifest::{Device, ENTRIES_MAX};
use abi::ring::Rings;
use abi::spt::EPOLL_TIMER;
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::time::{ClockId, Itimerspec, TimerfdTimerFlags, Timespec};
use std::mem::MaybeUninit;
use std::ops::Deref;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How often one wait or transfer of a guest may be interrupted by signals. They come from outside
/// (to stop this process and to let it go on), never from the guest.
///
/// A message to a device that is interrupted more often is not passed on, nor is an answer: the
/// guest then takes the device for lost, and asks it no more until it is started again. It must not
/// be tried for ever: each attempt to receive waits for the socket's timeout anew, and the guest,
/// its other devices included, stands still meanwhile. 64 are more than who stops a process and
/// lets it go on by hand needs, and bound one call to 64 times that timeout.
const INTERRUPTIONS_MAX: u32 = 64;
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

/// What the calls of one guest reach.
#[derive(Debug)]
pub struct Calls {
    /// Its devices.
    pub devices: Vec<Attached>,
    /// Connections to PCIe devices that are processes, by their index.
    pub sockets: Vec<(usize, OwnedFd)>,
    /// Rings of disks that processes serve, by the indices of their regions.
    pub queues: Vec<(usize, Rings<'static>)>,
    /// What it waits on: networks by their index in the manifest, and the timer.
    pub epoll: OwnedFd,
    /// The timer in it.
    pub timer: OwnedFd,
}

impl Calls {
    /// Does what a guest asks for that wrote `argument` to `port`.
    ///
    /// # Errors
    /// Why it is to be ended.
    pub fn handle(&self, memory: &GuestMemory, port: u16, argument: u32) -> Result<Outcome, Cause> {
        let number = port.wrapping_sub(CALL_PORT);
        let asked = Asked {
            guest: Guest { memory, number },
            address: Gpa::new(argument.into()),
        };
        match number {
            call::WALL_TIME => asked.answer(|_, argument: &mut hvt::WallTime| {
                argument.nanoseconds = wall_time();
                Ok(())
            })?,
            call::PUTS => asked.answer(|memory, argument: &mut hvt::Puts| {
                memory.puts(Gpa::new(argument.data), argument.len)
            })?,
            call::POLL => asked.answer(|_, argument| self.poll(argument))?,
            call::BLOCK_WRITE | call::BLOCK_READ => {
                asked.answer(|memory, argument| self.block(memory, argument))?;
            }
            call::BLOCK_FLUSH | call::BLOCK_DISCARD => {
                asked.answer(|memory, argument| {
                    self.block_ask(memory.number, argument);
                    Ok(())
                })?;
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
            _ => return Err(Violation::Port(port).into()),
        }
        Ok(Outcome::Continue)
    }

    /// What they reach, the event that may wake the guest up, and what else is held, by number.
    pub fn grants(&self, event: Option<&OwnedFd>, held: impl Iterator<Item = RawFd>) -> Grants {
        let devices = self.devices.iter();
        Grants {
            epoll_fd: self.epoll.as_raw_fd(),
            quiet_fd: None,
            timer_fd: self.timer.as_raw_fd(),
            event_fd: event.map(AsRawFd::as_raw_fd),
            held: held.collect(),
            sockets: self.sockets.iter().map(|(_, fd)| fd.as_raw_fd()).collect(),
            // The kernel rings for the guest.
            bells: Vec::new(),
            devices: devices.map(Granted::of).collect(),
            // The tender writes it, which is not the guest here.
            core_file: None,
        }
    }

    fn poll(&self, argument: &mut hvt::Poll) -> Answer {
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
        let set = rustix::time::timerfd_settime(&self.timer, flags, &once);
        set.map_err(|errno| Cause::Host(HostStep::Timer, errno))?;
        let mut events = [MaybeUninit::uninit(); ENTRIES_MAX + 1];
        let mut waited = Err(Errno::INTR);
        for _ in 0..INTERRUPTIONS_MAX {
            waited = epoll::wait(&self.epoll, &mut events, None).map(|(events, _)| &*events);
            if !matches!(waited, Err(Errno::INTR)) {
                break;
            }
        }
        let events = match waited {
            // The guest looks at the clock, and waits again if it is too early.
            Err(Errno::INTR) => &[],
            waited => waited.map_err(|errno| Cause::Host(HostStep::Wait, errno))?,
        };
        let numbers = events.iter().map(|event| event.data.u64());
        let gone = EPOLL_GONE..EPOLL_GONE + ENTRIES_MAX as u64;
        let mut ended = numbers.clone().filter(|number| gone.contains(number));
        let other = ended.find(|number| !self.say_gone((number - EPOLL_GONE) as usize));
        if let Some(number) = other {
            return Err(Cause::DeviceGone((number - EPOLL_GONE) as usize));
        }
        // Whose disk nobody serves any more has something to say, too.
        let numbers = numbers.map(|number| match gone.contains(&number) {
            true => number - EPOLL_GONE,
            false => number,
        });
        argument.ready = numbers
            .filter(|number| *number != EPOLL_TIMER && *number < ENTRIES_MAX as u64)
            .fold(0, |set, number| set | 1 << number);
        argument.ret = argument.ready.count_ones().cast_signed();
        Ok(())
    }

    /// Says to the guest that the process that serves the disk whose queue has this index has
    /// ended; whether there is such a queue.
    fn say_gone(&self, index: usize) -> bool {
        let found = self.queues.iter().find(|(found, _)| *found == index);
        let found = found.inspect(|(_, rings)| rings.sleepers().say_gone());
        found.is_some()
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
        let written = memory.write(&net.fd, Gpa::new(argument.data), argument.len);
        argument.ret = match written.map_err(memory.pointer())? {
            Ok(written) if written as u64 == argument.len => result::OK,
            Err(Errno::BADFD) => return Err(Cause::DeviceGone(net.index)),
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
        let read = memory.read(&net.fd, Gpa::new(argument.data), argument.len);
        argument.ret = match read.map_err(memory.pointer())? {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => result::AGAIN,
            Ok(length) => {
                argument.len = length as u64;
                result::OK
            }
            Err(Errno::BADFD) => return Err(Cause::DeviceGone(net.index)),
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
            .copy_out(Gpa::new(argument.data), message)
            .map_err(memory.pointer())?;
        // A socket with a timeout is interrupted even by what lets a stopped process go on.
        let sent = until_not(
            |sent| *sent == Err(Errno::INTR),
            || rustix::net::send(socket, &*message, SendFlags::NOSIGNAL),
        );
        argument.ret = match sent {
            Ok(sent) if sent == message.len() => result::OK,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(Cause::DeviceGone(*index)),
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
        let read = until_not(
            |read| *read == Ok(Err(Errno::INTR)),
            || memory.read(socket, Gpa::new(argument.data), argument.len),
        );
        let read = read.map_err(memory.pointer())?;
        argument.ret = match read {
            Ok(0) | Err(Errno::CONNRESET) => return Err(Cause::DeviceGone(*index)),
            Ok(length) => {
                argument.len = length as u64;
                result::OK
            }
            Err(Errno::AGAIN | Errno::INTR) => result::AGAIN,
            Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    fn block(&self, memory: &Guest<'_>, argument: &mut hvt::Block) -> Answer {
        let Some((disk, capacity)) = self.disk(argument.handle) else {
            argument.ret = result::INVALID;
            return Ok(());
        };
        let (offset, length, fd) = (argument.offset, argument.len, disk.fd.as_fd());
        let may = memory.number == call::BLOCK_READ || !disk.is_read_only();
        if !(may && is_inside(offset, length, capacity)) {
            argument.ret = result::INVALID;
            return Ok(());
        }
        let done = match memory.number {
            call::BLOCK_WRITE => memory.write_at(fd, offset, Gpa::new(argument.data), length),
            _ => memory.read_at(fd, offset, Gpa::new(argument.data), length),
        };
        argument.ret = match done.map_err(memory.pointer())? {
            Ok(count) if count as u64 == length => result::OK,
            Ok(_) | Err(_) => result::UNSPECIFIED,
        };
        Ok(())
    }

    /// What takes no bytes: call `number` of a disk.
    fn block_ask(&self, number: u16, argument: &mut hvt::Block) {
        let disk = self.disk(argument.handle);
        let disk = disk.filter(|(disk, _)| disk.flags & device_flag::DISK != 0);
        let done = match (disk, number) {
            (Some((disk, _)), call::BLOCK_FLUSH) => flush(disk),
            (Some((disk, capacity)), _) => discard(disk, argument.offset, argument.len, capacity),
            (None, _) => Err(Errno::INVAL),
        };
        argument.ret = match done {
            Ok(()) => result::OK,
            Err(Errno::INVAL) => result::INVALID,
            Err(Errno::OPNOTSUPP) => result::UNSUPPORTED,
            Err(_) => result::UNSPECIFIED,
        };
    }

    fn disk(&self, handle: u64) -> Option<(&Attached, u64)> {
        let device = self.device(handle)?;
        match device.device {
            Device::Block { capacity, .. } => Some((device, capacity)),
            Device::Net { .. } | Device::Sockets => None,
        }
    }
}

type Answer = Result<(), Cause>;

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
    fn pointer(self) -> impl Fn(Outside) -> Cause {
        move |Outside { address, length }| Violation::Pointer(self.number, address, length).into()
    }

    /// Writes to the console. What it does not take is lost.
    fn puts(self, mut address: Gpa, mut length: u64) -> Answer {
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
                    length = length.saturating_sub(written as u64);
                    match address.checked_add(written as u64) {
                        Some(next) => address = next,
                        None => break,
                    }
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
    address: Gpa,
}

impl Asked<'_> {
    /// Copies the argument out, has it looked at, and copies it back.
    fn answer<T>(&self, work: impl FnOnce(&Guest<'_>, &mut T) -> Answer) -> Answer
    where
        T: FromBytes + IntoBytes + Immutable + KnownLayout,
    {
        let Self { guest, address } = *self;
        if !address.is_multiple_of(ARGUMENT_ALIGN) {
            return Err(Violation::Unaligned(guest.number, address).into());
        }
        let mut argument = T::new_zeroed();
        let bytes = argument.as_mut_bytes();
        guest.copy_out(address, bytes).map_err(guest.pointer())?;
        work(&guest, &mut argument)?;
        let bytes = argument.as_bytes();
        guest.copy_in(address, bytes).map_err(guest.pointer())
    }

    fn halt(&self) -> Result<Outcome, Cause> {
        let mut outcome = Outcome::Continue;
        self.answer(|memory, argument: &mut hvt::Halt| {
            let trap = match argument.cookie {
                0 => None,
                address => {
                    let mut cookie = [0; COOKIE_BYTES as usize];
                    memory
                        .copy_out(Gpa::new(address), &mut cookie)
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

/// Calls again as long as what comes back was `interrupted`, at most [`INTERRUPTIONS_MAX`] times.
fn until_not<T>(interrupted: impl Fn(&T) -> bool, mut call: impl FnMut() -> T) -> T {
    let mut result = call();
    for _ in 1..INTERRUPTIONS_MAX {
        if !interrupted(&result) {
            break;
        }
        result = call();
    }
    result
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
