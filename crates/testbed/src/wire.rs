//! A long wire that loses frames: a thread that moves them between two taps, or sequenced sockets.
//!
//! Taps without virtio-net headers get what a wire carries: the kernel has cut what TCP left to be
//! cut, and completed checksums. Each frame meets its own chance, whoever has sent it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::relay::{FRAME_BYTES_MAX, Read, read, write};

/// What a chance is counted in.
pub const MILLION: u32 = 1_000_000;
/// Frames that are under way in one direction; more are lost.
const UNDER_WAY_MAX: usize = 20_000;
/// Frames that are read from one end before the other one's turn.
const BATCH_FRAMES_MAX: usize = 64;
/// How long an idle wire takes to learn that it is over.
const IDLE: Duration = Duration::from_millis(50);

/// What a wire is like, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Quality {
    /// How long a frame takes from one end to the other.
    pub delay: Duration,
    /// Chance that a frame is lost, in parts of a [`MILLION`].
    pub loss: u32,
    /// The same frames are lost for the same seed, counted from the first in each direction.
    pub seed: u64,
}

/// A wire, until it is dropped.
#[derive(Debug)]
pub struct Wire {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Wire {
    /// Lays it between two ends, each of which carries one frame a `read` or `write`.
    ///
    /// # Errors
    /// There is no thread, or an end cannot be made non-blocking.
    pub fn lay(ends: [OwnedFd; 2], quality: Quality) -> io::Result<Self> {
        for end in &ends {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = thread::Builder::new().spawn(move || run(&ends, quality, &until))?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        // Whose end went away has noticed it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What is under way in one direction.
struct Direction {
    frames: VecDeque<(Instant, Vec<u8>)>,
    chance: Rng,
}

impl Direction {
    /// Reads what has come to `end`; false at its end of file.
    fn take(&mut self, end: &OwnedFd, quality: Quality, buffer: &mut [u8]) -> io::Result<bool> {
        for _ in 0..BATCH_FRAMES_MAX {
            match read(end.as_fd(), buffer)? {
                Read::Frame(bytes) => self.send(&buffer[..bytes], quality),
                Read::Empty => return Ok(true),
                Read::End => return Ok(false),
            }
        }
        Ok(true)
    }

    fn send(&mut self, frame: &[u8], quality: Quality) {
        let is_lost = self.chance.u32(..MILLION) < quality.loss;
        if !is_lost && self.frames.len() < UNDER_WAY_MAX {
            let due = Instant::now() + quality.delay;
            self.frames.push_back((due, frame.to_vec()));
        }
    }

    /// Delivers what is due; when the next frame is.
    fn deliver(&mut self, end: &OwnedFd) -> io::Result<Option<Instant>> {
        let now = Instant::now();
        while let Some((due, frame)) = self.frames.front() {
            if *due > now {
                return Ok(Some(*due));
            }
            write(end.as_fd(), frame)?;
            self.frames.pop_front();
        }
        Ok(None)
    }
}

fn run(ends: &[OwnedFd; 2], quality: Quality, over: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let mut directions = [0, 1].map(|from| Direction {
        frames: VecDeque::new(),
        chance: Rng::with_seed(quality.seed.wrapping_mul(2).wrapping_add(from)),
    });
    while !over.load(Relaxed) {
        let mut next = None;
        for (from, direction) in directions.iter_mut().enumerate() {
            let due = direction.deliver(&ends[1 - from])?;
            next = due.into_iter().chain(next).min();
        }
        let ready = wait(ends, next)?;
        for from in (0..2).filter(|&from| ready[from]) {
            if !directions[from].take(&ends[from], quality, &mut buffer)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Sleeps until a frame comes or is due; which ends have one.
fn wait(ends: &[OwnedFd; 2], due: Option<Instant>) -> io::Result<[bool; 2]> {
    let left = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()));
    let left = Timespec::try_from(left.min(IDLE)).map_err(io::Error::other)?;
    let mut set = [0, 1].map(|end| PollFd::new(&ends[end], PollFlags::IN));
    match poll(&mut set, Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok([0, 1].map(|end| !set[end].revents().is_empty())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn cable() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
    }

    /// Sends a hundred numbered frames and one that marks the end of each try; which have come.
    fn arrived(loss: u32, seed: u64) -> Vec<u8> {
        let (a, near) = cable();
        let (b, far) = cable();
        let quality = Quality {
            delay: Duration::from_millis(1),
            loss,
            seed,
        };
        let wire = Wire::lay([near, far], quality).unwrap();
        for number in 0..100 {
            rustix::io::write(&a, &[number; 60]).unwrap();
        }
        let mut numbers = Vec::new();
        let mut frame = [0; 100];
        let patience = Timespec::try_from(Duration::from_millis(200)).unwrap();
        loop {
            let mut set = [PollFd::new(&b, PollFlags::IN)];
            // The marks: they come until one is not lost.
            if poll(&mut set, Some(&patience)).unwrap() == 0 {
                rustix::io::write(&a, &[100; 60]).unwrap();
                continue;
            }
            let bytes = rustix::io::read(&b, &mut frame).unwrap();
            assert_eq!(bytes, 60);
            if frame[0] == 100 {
                break;
            }
            numbers.push(frame[0]);
        }
        drop(wire);
        numbers
    }

    #[test]
    fn frames_come_in_order() {
        assert_eq!(arrived(0, 1), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_frames_are_lost_for_the_same_seed() {
        let half = arrived(MILLION / 2, 1);
        assert!((10..90).contains(&half.len()));
        assert_eq!(half, arrived(MILLION / 2, 1));
        assert_ne!(half, arrived(MILLION / 2, 2));
    }
}
