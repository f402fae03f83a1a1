//! The FIFO by which a guest learns that the host has said something in the shared file.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long another command that changes the shared file is waited for.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Reads that empty the FIFO; it holds one byte for each command that was killed.
const DRAINS_MAX: usize = 16;
/// Writes into the FIFO that a signal may interrupt, one after the other.
const WRITES_MAX: usize = 16;

/// Locks the FIFO among commands that change the shared file, until it is closed; false if that
/// takes longer than [`LOCK_TIMEOUT`].
///
/// # Errors
/// What the kernel says.
pub fn lock(event: &OwnedFd) -> Result<bool, Errno> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match rustix::fs::flock(event, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => sleep(PAUSE),
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
}

/// Wakes the guest up: an edge, since the guest cannot read what woke it.
///
/// # Errors
/// What the kernel says.
pub fn wake(event: impl AsFd) -> Result<(), Errno> {
    for _ in 0..DRAINS_MAX {
        match rustix::io::read(&event, &mut [0; 4096]) {
            Ok(1..) | Err(Errno::INTR) => {}
            Ok(0) | Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno),
        }
    }
    for _ in 0..WRITES_MAX {
        match rustix::io::write(&event, &[1]) {
            Err(Errno::INTR) => {}
            written => return written.map(drop),
        }
    }
    Err(Errno::INTR)
}
