//! The console of a guest with a name: passed on as it comes, with its end kept for
//! `outboard logs`.

use crate::instance::{Claim, Log};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

/// How long the last bytes of a console may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is read at a time, in bytes.
const CHUNK_BYTES: usize = 4096;

/// Where a guest's console goes.
#[derive(Debug)]
pub(super) struct Console {
    /// For a guest with a name: its end of a pipe, and the monitor's.
    pipe: Option<Pipe>,
    /// Whether it goes to standard error, since standard output is a capture.
    redirected: bool,
}

#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    log: Log,
}

impl Console {
    /// For the guest of `claim`, if it has a name.
    pub fn new(claim: Option<&Claim>, redirected: bool) -> io::Result<Self> {
        let pipe = match claim {
            None => None,
            Some(claim) => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
                let log = claim.log()?;
                Some(Pipe { read, write, log })
            }
        };
        Ok(Self { pipe, redirected })
    }

    /// Makes it the standard output of this process, which will be the guest's.
    pub fn enter(&self) -> io::Result<()> {
        match &self.pipe {
            Some(pipe) => rustix::stdio::dup2_stdout(&pipe.write)?,
            None if self.redirected => rustix::stdio::dup2_stdout(rustix::stdio::stderr())?,
            None => {}
        }
        Ok(())
    }

    /// Passes on what a guest with a name writes until it has ended, in a thread. Who does not read
    /// the console any more ends it for the guest too, which then gets SIGPIPE.
    pub fn start(self) -> io::Result<Passing> {
        let Some(Pipe { read, write, log }) = self.pipe else {
            return Ok(Passing(None));
        };
        // Only the guest's own is left, so that its end is the pipe's.
        drop(write);
        let redirected = self.redirected;
        let (under_way, done) = channel();
        let pass = move || {
            pass(&read, log, redirected);
            drop(under_way);
        };
        Builder::new().name("console".into()).spawn(pass)?;
        Ok(Passing(Some(done)))
    }
}

/// The console of a guest that runs: nothing ever comes out of the channel, whose other end is the
/// thread's as long as that passes bytes on.
#[derive(Debug)]
pub(super) struct Passing(Option<Receiver<()>>);

impl Passing {
    /// Waits until the last bytes of a guest that has ended are passed on, unless who should read
    /// them does not.
    pub fn finish(self) {
        if let Some(done) = self.0 {
            let _ = done.recv_timeout(PATIENCE);
        }
    }
}

/// Passes on and keeps what comes out of the pipe, until the guest has ended or nobody reads.
fn pass(read: &OwnedFd, mut log: Log, redirected: bool) {
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        let bytes = match rustix::io::read(read, &mut chunk) {
            Ok(count @ 1..) => &chunk[..count],
            Err(Errno::INTR) => continue,
            Ok(0) | Err(_) => return,
        };
        log.append(bytes);
        let passed = match redirected {
            true => io::stderr().write_all(bytes),
            false => pass_on(bytes),
        };
        if passed.is_err() {
            return;
        }
    }
}

/// Writes to standard output, and does not wait for the end of a line.
fn pass_on(bytes: &[u8]) -> io::Result<()> {
    let mut console = io::stdout().lock();
    console.write_all(bytes)?;
    console.flush()
}
