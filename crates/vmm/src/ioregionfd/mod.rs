//! Accesses of registers as messages on a socket: ioregionfd (`docs/ioregionfd.md`).
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | the messages, as data |
//!
//! A window has two regions, around the register that notifies queues, which an event has: KVM
//! allows no address to both. Who asks about the whole window, which is [`WHOLE`], is the monitor
//! itself, with an access that left KVM.

pub mod wire;

use crate::sys;
use kvm_ioctls::VmFd;
use models::virtio::mmio::{BYTES as WINDOW_BYTES, NOTIFY};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use wire::{Command, Direction, Fault};

/// Bytes of the register that notifies queues.
const NOTIFY_BYTES: u64 = 4;
/// What Linux doubles, and charges with almost a KiB for each message.
const SEND_BYTES: usize = 32 << 10;
/// `KVM_IOREGION_POSTED_WRITES`.
const POSTED_WRITES: u32 = 2;
/// The number of a region that is the whole window.
pub const WHOLE: u64 = 2;

/// A part of a window, whose place in [`REGIONS`] is the `user_data` of its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    /// Where it begins in the window.
    begin: u64,
    bytes: u64,
}

/// The two that KVM knows, and [`WHOLE`].
const REGIONS: [Region; 3] = [
    Region {
        begin: 0,
        bytes: NOTIFY,
    },
    Region {
        begin: NOTIFY + NOTIFY_BYTES,
        bytes: WINDOW_BYTES - NOTIFY - NOTIFY_BYTES,
    },
    Region {
        begin: 0,
        bytes: WINDOW_BYTES,
    },
];

/// `struct kvm_ioregion` for a region of the window at `window`, by the region's number.
fn argument(number: u64, window: u64, socket: RawFd, posted: bool) -> [u8; 64] {
    let region = REGIONS[number as usize];
    let address = (window + region.begin).to_le_bytes();
    let socket = socket.to_le_bytes();
    let flags: u32 = if posted { POSTED_WRITES } else { 0 };
    let mut argument = [0; 64];
    argument[..8].copy_from_slice(&address);
    argument[8..16].copy_from_slice(&region.bytes.to_le_bytes());
    argument[16..24].copy_from_slice(&number.to_le_bytes());
    argument[24..28].copy_from_slice(&socket);
    argument[28..32].copy_from_slice(&socket);
    argument[32..36].copy_from_slice(&flags.to_le_bytes());
    argument
}

/// Where in the window the access of a command lies.
///
/// # Errors
/// If it is in none of the regions.
pub fn place(command: &Command) -> Result<u64, Fault> {
    let number = usize::try_from(command.user_data).ok();
    let region = number
        .and_then(|number| REGIONS.get(number))
        .ok_or(Fault::Region(command.user_data))?;
    let end = command.offset.checked_add(command.bytes as u64);
    match end {
        Some(end) if end <= region.bytes => Ok(region.begin + command.offset),
        _ => Err(Fault::Offset(command.offset)),
    }
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
    /// It answers nonsense.
    Nonsense(Fault),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(f, "it cannot be asked: {error}"),
            Self::Gone => write!(f, "it has gone"),
            Self::Nonsense(fault) => write!(f, "its answer is {fault}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

impl Commands {
    /// Has KVM send the accesses of the window at `window` here; of writes, it waits for none if
    /// they are `posted`.
    ///
    /// # Errors
    /// What KVM says: `ENOTTY` or `EINVAL` if it has no such call.
    pub fn register(&self, vm: &VmFd, window: u64, posted: bool) -> io::Result<()> {
        for number in 0..WHOLE {
            let argument = argument(number, window, self.0.as_raw_fd(), posted);
            sys::set_ioregion(vm, &argument)?;
        }
        Ok(())
    }

    /// The monitor asks, while KVM asks nothing: about one access, by its offset in the window.
    /// What is read is put into `data`, what is written is there.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask(&self, direction: Direction, offset: u64, data: &mut [u8]) -> Result<(), NoAnswer> {
        let mut word = [0; 8];
        let bytes = data.len().min(word.len());
        if direction == Direction::Write {
            word[..bytes].copy_from_slice(&data[..bytes]);
        }
        let command = Command {
            direction,
            bytes,
            wants_answer: true,
            user_data: WHOLE,
            offset,
            data: u64::from_le_bytes(word),
        };
        let connection = |error: Errno| NoAnswer::Connection(error.into());
        send(&self.0, &command.encode(), SendFlags::NOSIGNAL).map_err(connection)?;
        let mut answer = [0; wire::BYTES + 1];
        let received = loop {
            match recv(&self.0, &mut answer, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(NoAnswer::Gone),
                Ok((_, received)) => break received,
                Err(Errno::INTR) => {}
                Err(error) => return Err(connection(error)),
            }
        };
        let received = received.min(answer.len());
        let value = wire::parse_answer(&answer[..received], bytes).map_err(NoAnswer::Nonsense)?;
        if direction == Direction::Read {
            data[..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        Ok(())
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

/// Takes the next command and where in the window it is, if one waits.
///
/// # Errors
/// Why none will come any more.
pub fn take(socket: BorrowedFd<'_>) -> Result<Option<(Command, u64)>, Broken> {
    let mut message = [0; wire::BYTES + 1];
    let received = match recv(socket, &mut message, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => return Err(Broken::Gone),
        Ok((_, received)) => received.min(message.len()),
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(Broken::Connection(error.into())),
    };
    let command = wire::parse(&message[..received]).map_err(Broken::Nonsense)?;
    let offset = place(&command).map_err(Broken::Nonsense)?;
    Ok(Some((command, offset)))
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
    fn regions_lie_around_the_doorbell_and_nothing_leaves_them() {
        assert_eq!(place(&command(0, 0x4c, 4)), Ok(0x4c));
        assert_eq!(place(&command(0, 0x4c, 8)), Err(Fault::Offset(0x4c)));
        assert_eq!(place(&command(1, 0, 4)), Ok(0x54));
        assert_eq!(place(&command(1, 0x1ab, 1)), Ok(0x1ff));
        assert_eq!(place(&command(1, 0x1ac, 1)), Err(Fault::Offset(0x1ac)));
        assert_eq!(place(&command(WHOLE, NOTIFY, 4)), Ok(NOTIFY));
        assert_eq!(place(&command(3, 0, 4)), Err(Fault::Region(3)));
        let far = place(&command(1, u64::MAX, 8));
        assert_eq!(far, Err(Fault::Offset(u64::MAX)));
    }

    /// As in the table of docs/ioregionfd.md.
    #[test]
    fn kvm_is_told_where_a_region_is() {
        let bytes = argument(1, 0xc000_1000, 7, true);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), 0xc000_1054);
        assert_eq!((word(8), word(16)), (0x1ac, 1));
        assert_eq!(word(24), 7 | 7 << 32);
        assert_eq!(word(32), 2);
        assert_eq!(bytes[40..], [0; 24]);
        assert_eq!(argument(0, 0, 7, false)[32], 0);
    }

    #[test]
    fn what_is_asked_is_answered() {
        let (commands, socket) = connect().unwrap();
        assert!(take(socket.as_fd()).unwrap().is_none());
        let device = std::thread::spawn(move || {
            let mut taken = Vec::new();
            while taken.len() < 2 {
                if let Some((command, offset)) = take(socket.as_fd()).unwrap() {
                    taken.push((command.direction, offset, command.data));
                    reply(socket.as_fd(), 0x1234_5678).unwrap();
                }
            }
            taken
        });
        let mut data = [0; 2];
        commands.ask(Direction::Read, 0x100, &mut data).unwrap();
        assert_eq!(data, [0x78, 0x56]);
        let mut written = [1, 2, 3, 4];
        commands.ask(Direction::Write, 0x70, &mut written).unwrap();
        let taken = device.join().unwrap();
        let wanted = [
            (Direction::Read, 0x100, 0),
            (Direction::Write, 0x70, 0x0403_0201),
        ];
        assert_eq!(taken, wanted);
        let gone = commands.ask(Direction::Read, 0, &mut data);
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
            let taken = take(socket.as_fd());
            assert!(
                matches!(taken, Err(Broken::Nonsense(found)) if found == fault),
                "{taken:?}"
            );
        }
        drop(commands);
        assert!(matches!(take(socket.as_fd()), Err(Broken::Gone)));
        assert!(matches!(reply(socket.as_fd(), 0), Err(Broken::Gone)));
    }
}
