//! UDP flood: frames of 64 bytes, the smallest that Ethernet has.

use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::CpuClock;

/// UDP payload of a 64-byte frame: Ethernet 14, IPv4 20, UDP 8 and the wire's checksum 4 are the
/// rest.
pub const PAYLOAD_BYTES: usize = 18;
/// Datagrams handed to the kernel in one call.
const BATCH: usize = 32;
/// What is still on its way when the sender stops gets this long to arrive.
const DRAIN: Duration = Duration::from_millis(100);

/// What a flood did, from its first frame to its last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flood {
    /// Frames that were sent.
    pub offered: u64,
    /// Frames that reached the far segment.
    pub forwarded: u64,
    /// How long the sender sent.
    pub elapsed: Duration,
    /// CPU time that the contender used.
    pub cpu: Duration,
}

impl Flood {
    /// Frames sent in a second.
    pub fn offered_per_second(&self) -> f64 {
        self.offered as f64 / self.elapsed.as_secs_f64()
    }

    /// Frames that reached the far segment in a second.
    pub fn forwarded_per_second(&self) -> f64 {
        self.forwarded as f64 / self.elapsed.as_secs_f64()
    }

    /// Percent of the time that the contender was running. Below about 95 it did not get a core of
    /// its own, or had nothing to do, and frames a second say nothing about what it can.
    pub fn busy_percent(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// CPU nanoseconds of the contender for a frame that reached the far segment.
    pub fn cpu_nanoseconds_per_frame(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.forwarded as f64
    }
}

/// Sends from `sender`, a connected socket, for as long as `length` says: `rate` frames a second,
/// or as many as it can. `arrived` counts the datagrams that have reached the far segment so far.
///
/// # Errors
/// The socket failed, or a count could not be read.
pub fn flood(
    sender: &UdpSocket,
    rate: Option<u64>,
    length: Duration,
    arrived: &dyn Fn() -> io::Result<u64>,
    cpu: CpuClock,
) -> io::Result<Flood> {
    let (arrived_begin, cpu_begin) = (arrived()?, cpu()?);
    let begin = Instant::now();
    let mut offered = 0;
    while begin.elapsed() < length {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(offered as f64 / rate as f64);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        offered += send_batch(sender)?;
    }
    let elapsed = begin.elapsed();
    thread::sleep(DRAIN);
    Ok(Flood {
        offered,
        forwarded: arrived()? - arrived_begin,
        elapsed,
        cpu: cpu()?.saturating_sub(cpu_begin),
    })
}

/// Sends a batch; how many of it the kernel took.
fn send_batch(sender: &UdpSocket) -> io::Result<u64> {
    let payload = [IoSlice::new(&[0x55; PAYLOAD_BYTES])];
    let mut control: [SendAncillaryBuffer; BATCH] =
        std::array::from_fn(|_| SendAncillaryBuffer::new(&mut []));
    let mut messages = control.each_mut().map(|none| MMsgHdr::new(&payload, none));
    match sendmmsg(sender, &mut messages, SendFlags::empty()) {
        Ok(count) => Ok(count as u64),
        // The far side's answer to an earlier frame (port closed), or no room just now.
        Err(Errno::CONNREFUSED | Errno::NOBUFS | Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn a_batch_is_datagrams_of_the_smallest_frame() {
        let (sender, receiver) = pair();
        assert_eq!(send_batch(&sender).unwrap(), BATCH as u64);
        for _ in 0..BATCH {
            assert_eq!(receiver.recv(&mut [0; 100]).unwrap(), PAYLOAD_BYTES);
        }
    }

    #[test]
    fn a_rate_is_not_exceeded() {
        let (sender, _receiver) = pair();
        let length = Duration::from_millis(50);
        let zero = || Ok(Duration::ZERO);
        let flood = flood(&sender, Some(10_000), length, &|| Ok(0), &zero).unwrap();
        let allowed = flood.elapsed.as_secs_f64() * 10_000.0;
        assert!(flood.offered as f64 <= allowed + BATCH as f64, "{flood:?}");
    }

    #[test]
    fn figures_are_differences() {
        let (sender, _receiver) = pair();
        let reads = Cell::new(0);
        let arrived = || {
            reads.set(reads.get() + 7);
            Ok(reads.get())
        };
        let cpu = || Ok(Duration::from_nanos(reads.get() * 10));
        let flood = flood(&sender, None, Duration::from_millis(1), &arrived, &cpu).unwrap();
        assert_eq!(flood.forwarded, 7);
        assert_eq!(flood.cpu_nanoseconds_per_frame(), 10.0);
    }
}
