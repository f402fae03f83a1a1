//! The monitor of a guest that stands by: the tender has loaded the image, and waits for a byte.

use linux::descriptor;
use linux::process::Child;
use linux::signal::Held;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitStatus;

/// What a monitor and its tender wait for.
#[derive(Debug)]
pub(super) struct Standby {
    /// Out of it comes a byte when the guest shall begin.
    wanted: OwnedFd,
    /// The tender's end of a pipe, and the monitor's. The tender begins last, when others find the
    /// guest by its name.
    begins: OwnedFd,
    begin: OwnedFd,
}

impl Standby {
    /// For a byte out of the descriptor of this number.
    pub fn new(wanted: i32) -> io::Result<Self> {
        let wanted = descriptor::adopt(wanted)?;
        let (begins, begin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self {
            wanted,
            begins,
            begin,
        })
    }

    /// The option by which a tender that inherits the descriptor learns of it.
    pub fn option(&self) -> String {
        format!("--standby=@{}", self.begins.as_raw_fd())
    }

    /// Waits until the guest shall begin, or `tender` has ended before that, with this status.
    pub fn wait(&self, tender: &Child, signals: &Held) -> io::Result<Option<ExitStatus>> {
        let ended = tender.attend_until(signals, self.wanted.as_fd())?;
        // Without a byte, whoever could have written one has ended.
        if ended.is_none() && rustix::io::read(&self.wanted, &mut [0])? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(ended)
    }

    /// Has the tender go on.
    pub fn begin(self) -> io::Result<()> {
        rustix::io::write(&self.begin, &[1])?;
        Ok(())
    }
}
