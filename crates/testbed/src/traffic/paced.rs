//! UDP at a steady rate to somebody who sends it back: what is lost, and how long the rest took.
//!
//! Each datagram holds its number and when it was sent, so that one that comes twice is not counted
//! twice, and the way there and back is timed by one clock.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes of a frame beside the payload: Ethernet 14, IPv4 20, UDP 8 and the wire's checksum 4.
pub const OVERHEAD_BYTES: usize = 46;
/// A number and a time.
const STAMP_BYTES: usize = 16;
/// Most bytes of a datagram.
const PAYLOAD_BYTES_MAX: usize = 65_507;
/// What is still on its way when the last datagram is sent gets this long to arrive.
const DRAIN: Duration = Duration::from_millis(30);

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Datagrams a second.
    pub rate: u64,
    /// How many of them.
    pub count: u64,
    /// Payload of each.
    pub bytes: usize,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Those that it did not take.
    pub refused: u64,
    /// How long the sender sent.
    pub sending: Duration,
    /// From sending to the last arrival.
    pub elapsed: Duration,
    /// How long each that came back was on its way, in nanoseconds, in the order of arrival.
    pub latencies: Vec<u64>,
}

/// Offers a load to the other end of a connected socket.
///
/// # Errors
/// The socket failed.
pub fn offer(socket: &UdpSocket, load: &Load) -> io::Result<Answered> {
    socket.set_nonblocking(true)?;
    let mut datagram = vec![0x55; load.bytes.clamp(STAMP_BYTES, PAYLOAD_BYTES_MAX)];
    let mut answered = Answered::default();
    let mut seen = vec![false; load.count as usize];
    let begin = Instant::now();
    let mut number = 0;
    loop {
        let now = begin.elapsed();
        let due = due(number, load.rate);
        if number < load.count && now >= due {
            stamp(&mut datagram, number, now);
            match socket.send(&datagram) {
                Ok(_) => answered.sent += 1,
                Err(error) if is_refusal(&error) => answered.refused += 1,
                Err(error) => return Err(error),
            }
            number += 1;
            answered.sending = now;
        }
        drain(socket, begin, &mut seen, &mut answered)?;
        let over = number == load.count;
        let all = answered.latencies.len() as u64 == answered.sent;
        let until = match over {
            true if all || begin.elapsed() > answered.sending + DRAIN => return Ok(answered),
            true => answered.sending + DRAIN,
            false => self::due(number, load.rate),
        };
        wait(socket, until.saturating_sub(begin.elapsed()))?;
    }
}

/// When a datagram is to be sent, from the first on.
fn due(number: u64, rate: u64) -> Duration {
    Duration::from_secs_f64(number as f64 / rate.max(1) as f64)
}

fn stamp(datagram: &mut [u8], number: u64, now: Duration) {
    datagram[..8].copy_from_slice(&number.to_be_bytes());
    datagram[8..STAMP_BYTES].copy_from_slice(&(now.as_nanos() as u64).to_be_bytes());
}

/// The number and the time of a datagram that came back.
fn read_stamp(datagram: &[u8]) -> Option<(u64, u64)> {
    let word = |at: usize| {
        Some(u64::from_be_bytes(
            datagram.get(at..at + 8)?.try_into().ok()?,
        ))
    };
    Some((word(0)?, word(8)?))
}

/// There is no room just now, or nobody listens yet.
fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::NOBUFS | Errno::AGAIN | Errno::CONNREFUSED)
    )
}

/// Takes what has come back.
fn drain(
    socket: &UdpSocket,
    begin: Instant,
    seen: &mut [bool],
    answered: &mut Answered,
) -> io::Result<()> {
    let mut bytes = [0; 2048];
    // No more than were sent can be new.
    for _ in 0..seen.len() {
        let count = match socket.recv(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if is_refusal(&error) => break,
            Err(error) => return Err(error),
        };
        let now = begin.elapsed();
        let Some((number, sent)) = read_stamp(&bytes[..count]) else {
            continue;
        };
        let place = usize::try_from(number).ok().and_then(|n| seen.get_mut(n));
        if let Some(place) = place.filter(|seen| !**seen) {
            *place = true;
            let latency = (now.as_nanos() as u64).saturating_sub(sent);
            answered.latencies.push(latency);
            answered.elapsed = now;
        }
    }
    Ok(())
}

/// Sleeps until something comes back, at most this long.
fn wait(socket: &UdpSocket, most: Duration) -> io::Result<()> {
    let most = Timespec::try_from(most).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&most)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends back what comes to a port, for ever.
///
/// # Errors
/// The socket failed.
pub fn reflect(address: Ipv4Addr, port: u16) -> io::Result<()> {
    let socket = UdpSocket::bind((address, port))?;
    let mut bytes = vec![0; PAYLOAD_BYTES_MAX];
    loop {
        let (count, from) = socket.recv_from(&mut bytes)?;
        match socket.send_to(&bytes[..count], from) {
            Ok(_) => {}
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn socket() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    /// A reflector that swallows every third datagram, and sends the others back twice.
    fn lossy() -> UdpSocket {
        let (near, far) = (socket(), socket());
        near.connect(far.local_addr().unwrap()).unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((count, from)) = far.recv_from(&mut bytes) {
                let (number, _) = read_stamp(&bytes[..count]).unwrap();
                if number % 3 != 2 {
                    far.send_to(&bytes[..count], from).unwrap();
                    far.send_to(&bytes[..count], from).unwrap();
                }
            }
        });
        near
    }

    #[test]
    fn what_is_lost_is_missed_and_doubles_are_not_counted() {
        let load = Load {
            rate: 100_000,
            count: 90,
            bytes: 18,
        };
        let answered = offer(&lossy(), &load).unwrap();
        assert_eq!((answered.sent, answered.refused), (90, 0));
        assert_eq!(answered.latencies.len(), 60);
        assert!(answered.sending >= due(89, load.rate));
    }

    #[test]
    fn a_rate_is_kept_by_the_clock() {
        assert_eq!(due(0, 10), Duration::ZERO);
        assert_eq!(due(5, 10), Duration::from_millis(500));
        assert_eq!(due(1, 0), Duration::from_secs(1));
    }

    #[test]
    fn nonsense_is_no_stamp() {
        assert_eq!(read_stamp(&[0; 15]), None);
        let mut datagram = [0; 18];
        stamp(&mut datagram, 7, Duration::from_nanos(9));
        assert_eq!(read_stamp(&datagram), Some((7, 9)));
    }
}
