//! Accesses of registers as messages on a socket: ioregionfd (`docs/ioregionfd.md`).
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | the messages, as data |
//!
//! KVM knows the regions of a device by the [place](crate::ranges::Place) where each begins. Who
//! asks about a whole BAR, as about a region that begins with it, is the monitor itself, with an
//! access that left KVM.

pub mod wire;

use crate::ranges::{Place, Ranges};
use crate::sys;
use kvm_ioctls::VmFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use wire::{Command, Direction, Fault};

/// What Linux doubles, and charges with almost a KiB for each message.
const SEND_BYTES: usize = 32 << 10;
/// `KVM_IOREGION_PIO`, `KVM_IOREGION_POSTED_WRITES` and `KVM_IOREGION_DEASSIGN`.
const PORTS: u32 = 1;
const POSTED_WRITES: u32 = 2;
const DEASSIGN: u32 = 4;
/// How long a message may take before whoever waits looks up: KVM, which lets the processor go
/// then as if a signal had come, and the monitor.
const LOOK: Duration = Duration::from_secs(1);
/// How often in a row they wait again: a device that has not answered by then never will.
pub const LOOKS_MAX: u32 = 5;

/// A part of a BAR, for KVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it begins in the BAR.
    pub place: Place,
    /// Guest-physical addresses, or ports.
    pub addresses: Range<u64>,
    /// Whether it is ports.
    pub is_ports: bool,
}

/// `struct kvm_ioregion` for a region.
fn argument(region: &Region, socket: RawFd, flags: u32) -> [u8; 64] {
    let bytes = region.addresses.end - region.addresses.start;
    let socket = socket.to_le_bytes();
    let flags = flags | if region.is_ports { PORTS } else { 0 };
    let mut argument = [0; 64];
    argument[..8].copy_from_slice(&region.addresses.start.to_le_bytes());
    argument[8..16].copy_from_slice(&bytes.to_le_bytes());
    argument[16..24].copy_from_slice(&region.place.number().to_le_bytes());
    argument[24..28].copy_from_slice(&socket);
    argument[28..32].copy_from_slice(&socket);
    argument[32..36].copy_from_slice(&flags.to_le_bytes());
    argument
}

/// The register of a command.
///
/// # Errors
/// If it is in no BAR.
pub fn place(command: &Command, ranges: &Ranges) -> Result<Place, Fault> {
    let region = Fault::Region(command.user_data);
    let begin = Place::from_number(command.user_data).ok_or(region)?;
    if !ranges.has(begin, 1) {
        return Err(region);
    }
    let offset = begin.offset.checked_add(command.offset);
    let place = offset.map(|offset| Place { offset, ..begin });
    let place = place.filter(|place| ranges.has(*place, command.bytes));
    place.ok_or(Fault::Offset(command.offset))
}

/// The two ends of a connection between KVM, or the monitor, and a device. It holds some dozen
/// commands: a guest whose writes are posted waits, once there are more.
///
/// # Errors
/// What the kernel says.
pub fn connect() -> io::Result<(Commands, OwnedFd)> {
    let (asks, answers) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_send_buffer_size(&asks, SEND_BYTES)?;
    for way in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&asks, way, Some(LOOK))?;
    }
    Ok((Commands(asks), answers))
}

/// The end that commands go into.
#[derive(Debug)]
pub struct Commands(OwnedFd);

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// The connection is broken.
    Connection(io::Error),
    /// The device has gone.
    Gone,
    /// It takes too long.
    Late,
    /// It answers nonsense.
    Nonsense(Fault),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "it cannot be asked: {error}"),
            Self::Gone => write!(f, "it has gone"),
            Self::Late => write!(
                f,
                "it has not answered for {} s",
                LOOK.as_secs() * u64::from(LOOKS_MAX)
            ),
            Self::Nonsense(fault) => write!(f, "its answer is {fault}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

impl Commands {
    /// Has KVM send the accesses of a region here; of writes, it waits for none if they are
    /// `posted`.
    ///
    /// # Errors
    /// What KVM says: `ENOTTY` or `EINVAL` if it has no such call.
    pub fn register(&self, vm: &VmFd, region: &Region, posted: bool) -> io::Result<()> {
        let flags = if posted { POSTED_WRITES } else { 0 };
        sys::set_ioregion(vm, &argument(region, self.0.as_raw_fd(), flags))
    }

    /// Takes a region away from here.
    ///
    /// # Errors
    /// What KVM says.
    pub fn unregister(&self, vm: &VmFd, region: &Region) -> io::Result<()> {
        sys::set_ioregion(vm, &argument(region, self.0.as_raw_fd(), DEASSIGN))
    }

    /// The monitor asks, while KVM asks nothing: about one access. What is read is put into
    /// `data`, what is written is there.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask(&self, direction: Direction, place: Place, data: &mut [u8]) -> Result<(), NoAnswer> {
        let mut word = [0; 8];
        let bytes = data.len().min(word.len());
        if direction == Direction::Write {
            word[..bytes].copy_from_slice(&data[..bytes]);
        }
        let command = Command {
            direction,
            bytes,
            wants_answer: true,
            user_data: Place { offset: 0, ..place }.number(),
            offset: place.offset,
            data: u64::from_le_bytes(word),
        };
        let message = command.encode();
        patiently(|| send(&self.0, &message, SendFlags::NOSIGNAL))?;
        let mut answer = [0; wire::BYTES + 1];
        let (_, received) = patiently(|| recv(&self.0, &mut answer[..], RecvFlags::empty()))?;
        if received == 0 {
            return Err(NoAnswer::Gone);
        }
        let received = received.min(answer.len());
        let value = wire::parse_answer(&answer[..received], bytes).map_err(NoAnswer::Nonsense)?;
        if direction == Direction::Read {
            data[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        Ok(())
    }
}

/// Tries again until the device has taken too long. A signal says nothing about the device.
fn patiently<T>(mut try_once: impl FnMut() -> rustix::io::Result<T>) -> Result<T, NoAnswer> {
    let mut looks = 0;
    loop {
        match try_once() {
            Ok(done) => return Ok(done),
            Err(Errno::AGAIN) if looks + 1 < LOOKS_MAX => looks += 1,
            Err(Errno::AGAIN) => return Err(NoAnswer::Late),
            Err(Errno::INTR) => {}
            Err(error) => return Err(NoAnswer::Connection(error.into())),
        }
    }
}

impl AsFd for Commands {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Commands {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Why no command could be taken.
#[derive(Debug)]
pub enum Broken {
    /// Nobody asks any more.
    Gone,
    /// What came is no command.
    Nonsense(Fault),
    /// What the kernel says.
    Connection(io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => write!(f, "nobody asks any more"),
            Self::Nonsense(fault) => write!(f, "no command: {fault}"),
            Self::Connection(error) => write!(f, "the connection is broken: {error}"),
        }
    }
}

impl std::error::Error for Broken {}

/// Takes the next command and which register it is about, if one waits.
///
/// # Errors
/// Why none will come any more.
pub fn take(socket: BorrowedFd<'_>, ranges: &Ranges) -> Result<Option<(Command, Place)>, Broken> {
    let mut message = [0; wire::BYTES + 1];
    let received = match recv(socket, &mut message, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => return Err(Broken::Gone),
        Ok((_, received)) => received.min(message.len()),
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(Broken::Connection(error.into())),
    };
    let command = wire::parse(&message[..received]).map_err(Broken::Nonsense)?;
    let place = place(&command, ranges).map_err(Broken::Nonsense)?;
    Ok(Some((command, place)))
}

/// Answers a command.
///
/// # Errors
/// Why there is nobody to answer.
pub fn reply(socket: BorrowedFd<'_>, data: u64) -> Result<(), Broken> {
    match send(socket, &wire::answer(data), SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE) => Err(Broken::Gone),
        Err(error) => Err(Broken::Connection(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(user_data: u64, offset: u64, bytes: usize) -> Command {
        Command {
            direction: Direction::Read,
            bytes,
            wants_answer: true,
            user_data,
            offset,
            data: 0,
        }
    }

    #[test]
    fn a_command_is_about_a_register_and_nothing_leaves_its_bar() {
        let place = |user_data, offset, bytes| {
            let place = place(&command(user_data, offset, bytes), &Ranges::window(1))?;
            Ok((place.bar, place.offset))
        };
        assert_eq!(place(0, 0x4c, 4), Ok((0, 0x4c)));
        assert_eq!(place(0x54, 0, 4), Ok((0, 0x54)));
        assert_eq!(place(0x54, 0x1ab, 1), Ok((0, 0x1ff)));
        assert_eq!(place(0x54, 0x1ac, 1), Err(Fault::Offset(0x1ac)));
        assert_eq!(place(0x54, u64::MAX, 8), Err(Fault::Offset(u64::MAX)));
        assert_eq!(place(7 << 32, 4, 2), Ok((7, 4)));
        for region in [0x200, 1 << 32, 6 << 32, 8 << 32, u64::MAX] {
            assert_eq!(place(region, 0, 1), Err(Fault::Region(region)));
        }
    }

    /// As in the table of docs/ioregionfd.md.
    #[test]
    fn kvm_is_told_where_a_region_is() {
        let mut region = Region {
            place: Place {
                bar: 2,
                offset: 0x54,
            },
            addresses: 0xc000_1054..0xc000_1200,
            is_ports: false,
        };
        let bytes = argument(&region, 7, POSTED_WRITES);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), 0xc000_1054);
        assert_eq!((word(8), word(16)), (0x1ac, 2 << 32 | 0x54));
        assert_eq!(word(24), 7 | 7 << 32);
        assert_eq!(word(32), 2);
        assert_eq!(bytes[40..], [0; 24]);
        region.is_ports = true;
        assert_eq!(argument(&region, 7, DEASSIGN)[32], 5);
        assert_eq!(argument(&region, 7, 0)[32], 1);
    }

    #[test]
    fn a_device_that_does_not_answer_is_not_waited_for_without_end() {
        let (commands, socket) = connect().unwrap();
        for way in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&commands, way, Some(Duration::from_millis(1))).unwrap();
        }
        let place = Place { bar: 0, offset: 0 };
        let late = commands.ask(Direction::Read, place, &mut [0; 4]);
        assert!(matches!(late, Err(NoAnswer::Late)), "{late:?}");
        assert!(take(socket.as_fd(), &Ranges::window(1)).unwrap().is_some());
        // Until there is no room for a command.
        while send(&commands.0, &[0; wire::BYTES], SendFlags::DONTWAIT).is_ok() {}
        let late = commands.ask(Direction::Read, place, &mut [0; 4]);
        assert!(matches!(late, Err(NoAnswer::Late)), "{late:?}");
    }

    #[test]
    fn what_is_asked_is_answered() {
        let (commands, socket) = connect().unwrap();
        let ranges = Ranges::window(1);
        assert!(take(socket.as_fd(), &ranges).unwrap().is_none());
        let device = std::thread::spawn(move || {
            let mut taken = Vec::new();
            while taken.len() < 2 {
                if let Some((command, place)) = take(socket.as_fd(), &ranges).unwrap() {
                    taken.push((command.direction, place.offset, command.data));
                    reply(socket.as_fd(), 0x1234_5678).unwrap();
                }
            }
            taken
        });
        let mut data = [0; 2];
        let place = |offset| Place { bar: 0, offset };
        let read = place(0x100);
        commands.ask(Direction::Read, read, &mut data).unwrap();
        assert_eq!(data, [0x78, 0x56]);
        let mut written = [1, 2, 3, 4];
        let write = place(0x70);
        commands.ask(Direction::Write, write, &mut written).unwrap();
        let taken = device.join().unwrap();
        let wanted = [
            (Direction::Read, 0x100, 0),
            (Direction::Write, 0x70, 0x0403_0201),
        ];
        assert_eq!(taken, wanted);
        let gone = commands.ask(Direction::Read, read, &mut data);
        assert!(matches!(
            gone,
            Err(NoAnswer::Gone | NoAnswer::Connection(_))
        ));
    }

    #[test]
    fn nonsense_is_named_and_who_goes_is_missed() {
        let (commands, socket) = connect().unwrap();
        for (message, fault) in [
            (&[1; 31][..], Fault::Length(31)),
            (&[0; 64], Fault::Length(33)),
            (&[7; 32], Fault::Kind(7)),
        ] {
            send(&commands.0, message, SendFlags::NOSIGNAL).unwrap();
            let taken = take(socket.as_fd(), &Ranges::window(1));
            assert!(
                matches!(taken, Err(Broken::Nonsense(found)) if found == fault),
                "{taken:?}"
            );
        }
        drop(commands);
        let taken = take(socket.as_fd(), &Ranges::window(1));
        assert!(matches!(taken, Err(Broken::Gone)));
        assert!(matches!(reply(socket.as_fd(), 0), Err(Broken::Gone)));
    }
}
