//! Whoever drives a software device from another process, whatever the protocol: a hostile client
//! that connects, lends memory and events, and goes.
//!
//! | module | what |
//! |---|---|
//! | `listener` | where clients come from |
//! | `memory` | memory that they lend |
//! | `event` | events that they are told by, and tell by |
//! | `refused` | why a command of theirs is refused |
//! | `log_limit` | how much they can make a log say |
//! | `socket_file` | what a listener leaves that was killed |

pub(crate) mod event;
pub(crate) mod listener;
mod log_limit;
pub(crate) mod memory;
mod refused;
pub(crate) mod socket_file;

pub use log_limit::LogLimit;
pub use refused::Refused;

use ::vfio_user::socket::Error as MessageError;
use arrayvec::ArrayVec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::{fmt, io};

/// How long a client may keep a message of its in the air.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Descriptors that end a sleep, at most: a connection, wires, and an event for each queue.
const WATCHED_MAX: usize = 80;

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// The client closed the connection.
    Closed,
    /// It broke the protocol, or said nothing within a message.
    Broken(MessageError),
    /// It was refused something that it did not want to be told of: which command, and why.
    Refused(&'static str, Refused),
    /// It took memory away that it had lent.
    Lost,
    /// There was something wrong here.
    System(io::Error),
    /// The caller wanted it to end.
    Stopped,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the client has gone"),
            Self::Broken(error) => write!(f, "the client was dropped: {error}"),
            Self::Refused(command, why) => {
                write!(f, "the client was dropped: {command} was refused: {why}")
            }
            Self::Lost => write!(
                f,
                "the client was dropped: it took memory away that it had lent"
            ),
            Self::System(error) => write!(f, "the client was dropped: {error}"),
            Self::Stopped => write!(f, "stopped"),
        }
    }
}

/// What happens around a session, for whoever runs the device.
pub trait Around<D> {
    /// Called between two turns, and when a sleep is over: whether to go on.
    fn turn(&mut self, device: &mut D) -> ControlFlow<()>;

    /// A command was refused.
    fn refused(&mut self, command: &'static str, why: &Refused);
}

/// Sleeps until one of `watched` can be read, at most so long; whether one can.
pub(crate) fn wait(watched: &[BorrowedFd<'_>], most: Duration) -> bool {
    let mut ready: ArrayVec<PollFd<'_>, WATCHED_MAX> = watched
        .iter()
        .take(WATCHED_MAX)
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let most = Timespec {
        tv_sec: most.as_secs().cast_signed(),
        tv_nsec: most.subsec_nanos().into(),
    };
    // A signal ends the sleep, and is what the caller looks for next.
    matches!(poll(&mut ready, Some(&most)), Ok(count) if count > 0)
}

/// How a session ends whose messages end like this.
pub(crate) fn ended(error: MessageError) -> End {
    match error {
        MessageError::Closed => End::Closed,
        error => End::Broken(error),
    }
}
