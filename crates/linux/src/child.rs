//! What a child of this process is to its parent.

use crate::signal::Held;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A child of this process, by [`fork`](crate::process::fork).
#[derive(Debug)]
pub struct Child(pub(crate) Pid);

/// From now on this process has a session of its own, and inherits the children of its own that
/// outlive their parents.
pub(crate) fn stand_apart() -> io::Result<()> {
    let own = rustix::process::setsid()?;
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

/// From now on this process is killed when its parent ends.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(
        Signal::KILL,
    ))?)
}

/// From now on this process is killed when its parent, process `parent`, ends.
///
/// # Errors
/// `ESRCH` if its parent is another process, or has ended already; what the kernel says.
pub fn die_with(parent: i32) -> io::Result<()> {
    end_with_parent()?;
    // It may have ended before the signal was asked for.
    if Pid::as_raw(rustix::process::getppid()) != parent {
        return Err(Errno::SRCH.into());
    }
    Ok(())
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.as_raw_pid().cast_unsigned()
    }

    /// A descriptor that is ready for reading once it has ended: of this process and no later one
    /// with the same id, since nobody has waited for it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        Ok(rustix::process::pidfd_open(self.0, PidfdFlags::empty())?)
    }

    /// Passes the signals that are `held` back here on to it until it has ended.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attend(self, held: &Held) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.pass(held.wait()?)? {
                return Ok(status);
            }
        }
    }

    /// The same, but not for longer than until `event` is ready for reading: `None` then.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attend_until(
        &self,
        held: &Held,
        event: BorrowedFd<'_>,
    ) -> io::Result<Option<ExitStatus>> {
        let signals = held.descriptor()?;
        loop {
            let mut ends = [
                PollFd::new(&signals, PollFlags::IN),
                PollFd::from_borrowed_fd(event, PollFlags::IN),
            ];
            match poll(&mut ends, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let is_ready = !ends[1].revents().is_empty();
            while let Some(signal) = held.take() {
                if let Some(status) = self.pass(signal)? {
                    return Ok(Some(status));
                }
            }
            if is_ready {
                return Ok(None);
            }
        }
    }

    /// Passes a signal on to it; how it has ended, if the signal says that it has.
    fn pass(&self, signal: Signal) -> io::Result<Option<ExitStatus>> {
        if signal != Signal::CHILD {
            // The id is the child's until it is waited for, so this reaches no one else; one
            // that has just ended no longer minds.
            let _ = rustix::process::kill_process(self.0, signal);
            return Ok(None);
        }
        let ended = rustix::process::waitpid(Some(self.0), WaitOptions::NOHANG)?;
        Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parent_is_one() {
        let own = rustix::process::getpid().as_raw_pid();
        let error = die_with(own).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::SRCH));
        rustix::process::set_parent_process_death_signal(None).unwrap();
    }
}
