//! Two ways for bytes between a program and who moves them to a stack: a socket of unix(7), as the
//! proxy has it, and a ring in shared memory with an eventfd for who sleeps, as a library in front
//! of the C library could have it. Both copy bytes in and out once.
//!
//! Two threads are the ends, as two processes would be: what the kernel does for them is the same.

use crate::samples::Measure;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const SOCKET: &str = "a socket";
const RING: &str = "a ring";

/// A message that is sent to and fro, and a piece of what is sent one way, in bytes.
const MESSAGE: usize = 1 << 10;
const PIECE: usize = 64 << 10;
/// Pieces that a ring holds: about as much as a socket's buffer.
const SLOTS: usize = 4;
/// Messages or pieces between two looks at the clock.
const BATCH: usize = 64;

const TO_AND_FRO: Measure = Measure::new("a KiB to and fro", "us");
const TO_AND_FRO_CPU: Measure = Measure::new("a KiB to and fro: CPU", "us");
const PIECES: Measure = Measure::new("pieces of 64 KiB", "MB/s");
const PIECES_CPU: Measure = Measure::new("pieces of 64 KiB: CPU", "s/GB");
/// What is measured, in the order of the report.
pub const ALL: [Measure; 4] = [TO_AND_FRO, TO_AND_FRO_CPU, PIECES, PIECES_CPU];

/// An end of a way.
trait End: Send {
    /// Sends bytes, as many as a piece has at most.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Takes as many bytes as `place` has, as they were sent.
    fn take(&mut self, place: &mut [u8]) -> io::Result<()>;
}

impl End for UnixStream {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn take(&mut self, place: &mut [u8]) -> io::Result<()> {
        self.read_exact(place)
    }
}

/// One direction of a ring.
struct Ring {
    slots: [Mutex<Vec<u8>>; SLOTS],
    sent: AtomicUsize,
    taken: AtomicUsize,
    taker: Sleeper,
    sender: Sleeper,
}

/// Who sleeps until somebody rings.
struct Sleeper {
    sleeps: AtomicBool,
    bell: OwnedFd,
}

impl Sleeper {
    fn new() -> io::Result<Self> {
        Ok(Self {
            sleeps: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    /// Sleeps until `is` holds.
    fn until(&self, is: impl Fn() -> bool) -> io::Result<()> {
        while !is() {
            self.sleeps.store(true, SeqCst);
            // It may hold since, and nobody has seen that we sleep.
            if !is() {
                read(&self.bell, &mut [0; 8])?;
            }
            self.sleeps.store(false, SeqCst);
        }
        Ok(())
    }

    fn ring(&self) -> io::Result<()> {
        if self.sleeps.swap(false, SeqCst) {
            write(&self.bell, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }
}

impl Ring {
    fn new() -> io::Result<Self> {
        Ok(Self {
            slots: std::array::from_fn(|_| Mutex::new(vec![0; PIECE])),
            sent: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            taker: Sleeper::new()?,
            sender: Sleeper::new()?,
        })
    }

    /// Does something with a slot, which nobody else has at the time.
    fn with(&self, number: usize, work: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let slot = self.slots[number % SLOTS].lock();
        work(&mut slot.map_err(|_| io::ErrorKind::Other)?);
        Ok(())
    }
}

/// An end of two rings.
struct RingEnd<'a> {
    out: &'a Ring,
    into: &'a Ring,
}

impl End for RingEnd<'_> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let ring = self.out;
        let next = ring.sent.load(SeqCst);
        ring.sender
            .until(|| next - ring.taken.load(SeqCst) < SLOTS)?;
        ring.with(next, |slot| slot[..bytes.len()].copy_from_slice(bytes))?;
        ring.sent.store(next + 1, SeqCst);
        ring.taker.ring()
    }

    fn take(&mut self, place: &mut [u8]) -> io::Result<()> {
        let ring = self.into;
        let next = ring.taken.load(SeqCst);
        ring.taker.until(|| ring.sent.load(SeqCst) != next)?;
        ring.with(next, |slot| place.copy_from_slice(&slot[..place.len()]))?;
        ring.taken.store(next + 1, SeqCst);
        ring.sender.ring()
    }
}

/// Takes all measurements, each for so long.
///
/// # Errors
/// What the kernel says.
pub fn measure(time: Duration, add: &mut dyn FnMut(Measure, &'static str, f64)) -> io::Result<()> {
    let (near, far) = UnixStream::pair()?;
    both(SOCKET, near, far, time, add)?;
    let (there, back) = (&Ring::new()?, &Ring::new()?);
    let near = RingEnd {
        out: there,
        into: back,
    };
    let far = RingEnd {
        out: back,
        into: there,
    };
    both(RING, near, far, time, add)
}

fn both(
    name: &'static str,
    mut near: impl End,
    mut far: impl End,
    time: Duration,
    add: &mut dyn FnMut(Measure, &'static str, f64),
) -> io::Result<()> {
    let (count, took, cpu) = run(time, (&mut near, &mut far), MESSAGE, true)?;
    let each = |took: Duration| took.as_secs_f64() * 1e6 / count as f64;
    add(TO_AND_FRO, name, each(took));
    add(TO_AND_FRO_CPU, name, each(cpu));
    let (count, took, cpu) = run(time, (&mut near, &mut far), PIECE, false)?;
    let megabytes = (count * PIECE) as f64 / 1e6;
    add(PIECES, name, megabytes / took.as_secs_f64());
    add(PIECES_CPU, name, cpu.as_secs_f64() * 1e3 / megabytes);
    Ok(())
}

/// Sends bytes for so long, which come back if `answered`: how often, how long that took, and how
/// much CPU time.
fn run(
    time: Duration,
    (near, far): (&mut impl End, &mut impl End),
    len: usize,
    answered: bool,
) -> io::Result<(usize, Duration, Duration)> {
    let (begin, before) = (Instant::now(), used());
    let count = thread::scope(|threads| {
        let other = threads.spawn(move || {
            let mut place = vec![0; len];
            loop {
                far.take(&mut place)?;
                if answered {
                    far.send(&place)?;
                }
                // What is other than zero is the last one.
                if place[0] != 0 {
                    return Ok::<_, io::Error>(());
                }
            }
        });
        let (mut bytes, mut count) = (vec![0; len], 0);
        while bytes[0] == 0 {
            for left in (0..BATCH).rev() {
                if left == 0 && begin.elapsed() >= time {
                    bytes[0] = 1;
                }
                near.send(&bytes)?;
                if answered {
                    near.take(&mut bytes)?;
                }
                count += 1;
            }
        }
        other.join().map_err(|_| io::ErrorKind::Other)??;
        Ok::<_, io::Error>(count)
    })?;
    Ok((count, begin.elapsed(), used() - before))
}

/// CPU time of this process.
fn used() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_goes_both_ways() {
        let mut measured = Vec::new();
        measure(Duration::from_millis(20), &mut |measure, name, value| {
            assert!(value > 0.0, "{name}: {}", measure.name);
            measured.push((measure, name));
        })
        .unwrap();
        let expected = [SOCKET, RING].map(|name| ALL.map(|measure| (measure, name)));
        assert_eq!(measured, expected.as_flattened());
    }
}
