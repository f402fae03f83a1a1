//! Ping-pong: one small packet there and back, again and again.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send,
    socket_with, sockopt,
};

use super::udp::PAYLOAD_BYTES;

/// Replies that take longer are lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the echo looks whether it should end.
const ECHO_PATIENCE: Duration = Duration::from_millis(50);
/// Packets looked at for one reply at most; others can only be late replies.
const STRANGERS_MAX: usize = 64;
/// Round trips that are not counted: address resolution, cold caches.
const WARM_UP: u16 = 20;

/// Round-trip times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of the round trips took at most this, in microseconds.
    pub median_us: f64,
    /// 99 of 100 took at most this, in microseconds.
    pub p99_us: f64,
    /// Round trips that came to an end.
    pub count: u64,
    /// Round trips that did not, within a second.
    pub lost: u64,
}

/// `count` round trips of a small datagram from `client`, a socket connected to an [`echo`].
///
/// # Errors
/// The socket failed.
pub fn udp(client: &UdpSocket, count: u16) -> io::Result<Latency> {
    client.set_read_timeout(Some(PATIENCE))?;
    ping_pong(count, |sequence| {
        let mut packet = [0; PAYLOAD_BYTES];
        packet[..2].copy_from_slice(&sequence.to_be_bytes());
        client.send(&packet)?;
        await_reply(|| {
            let mut reply = [0; PAYLOAD_BYTES];
            client.recv(&mut reply)?;
            Ok(reply == packet)
        })
    })
}

/// Sends every datagram back to where it came from, until `over`.
///
/// # Errors
/// The socket failed.
pub fn echo(socket: &UdpSocket, over: &AtomicBool) -> io::Result<()> {
    socket.set_read_timeout(Some(ECHO_PATIENCE))?;
    let mut packet = [0; 2048];
    while !over.load(Relaxed) {
        match socket.recv_from(&mut packet) {
            Ok((bytes, from)) => {
                socket.send_to(&packet[..bytes], from)?;
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Echo request and reply (RFC 792) over a raw socket, made in the caller's network namespace.
pub struct Icmp {
    socket: OwnedFd,
    identifier: u16,
}

/// Bytes of the echo messages: header 8, payload 56, as `ping` sends them.
const ICMP_BYTES: usize = 64;
/// What pings are filled with: that of Solo5's test of damaged frames.
const PATTERN: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];
const ICMP_ECHO_REPLY: u8 = 0;
const ICMP_ECHO: u8 = 8;

impl Icmp {
    /// A socket for pings to `target`, whose port does not matter.
    ///
    /// # Errors
    /// The caller may not open raw sockets, or there is no route.
    pub fn new(target: SocketAddr) -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(ipproto::ICMP),
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        connect(&socket, &target)?;
        // Only tells our replies from those to others in the same namespace.
        let identifier = std::process::id() as u16;
        Ok(Self { socket, identifier })
    }

    /// `count` pings, one after the other.
    ///
    /// # Errors
    /// The socket failed.
    pub fn ping(&self, count: u16) -> io::Result<Latency> {
        ping_pong(count, |sequence| self.exchange(sequence))
    }

    /// One ping; whether the reply came within `patience`.
    ///
    /// # Errors
    /// The socket failed.
    pub fn reaches(&self, patience: Duration) -> io::Result<bool> {
        sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(patience))?;
        self.exchange(0)
    }

    fn exchange(&self, sequence: u16) -> io::Result<bool> {
        let request = echo_request(self.identifier, sequence);
        send(&self.socket, &request, SendFlags::empty())?;
        await_reply(|| {
            let mut packet = [MaybeUninit::uninit(); 256];
            let ((reply, _), _) = recv(&self.socket, &mut packet[..], RecvFlags::empty())?;
            Ok(answers(reply, &request))
        })
    }
}

fn echo_request(identifier: u16, sequence: u16) -> [u8; ICMP_BYTES] {
    let mut message = [0; ICMP_BYTES];
    for word in message[8..].as_chunks_mut().0 {
        *word = PATTERN;
    }
    message[0] = ICMP_ECHO;
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    let checksum = checksum(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// The Internet checksum (RFC 1071) of a message of an even number of bytes.
fn checksum(message: &[u8; ICMP_BYTES]) -> u16 {
    let (words, _) = message.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|&word| u32::from(u16::from_be_bytes(word)))
        .sum();
    // A second fold takes the carry of the first.
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Whether an IPv4 packet is the reply to `request`: same identifier and sequence number.
fn answers(packet: &[u8], request: &[u8; ICMP_BYTES]) -> bool {
    let header_bytes = packet
        .first()
        .map_or(0, |first| usize::from(first & 0xf) * 4);
    packet
        .get(header_bytes..)
        .and_then(|message| message.first_chunk::<8>())
        .is_some_and(|head| head[0] == ICMP_ECHO_REPLY && head[4..8] == request[4..8])
}

/// Looks at packets until one is the reply (true), or none comes (false).
fn await_reply(mut is_reply: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    for _ in 0..STRANGERS_MAX {
        match is_reply() {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(error) if is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Times `count` exchanges; `exchange` says whether the reply came.
fn ping_pong(count: u16, mut exchange: impl FnMut(u16) -> io::Result<bool>) -> io::Result<Latency> {
    let mut times: Histogram<u64> = Histogram::new(3).expect("three digits are allowed");
    let mut lost = 0;
    for sequence in 0..count.saturating_add(WARM_UP) {
        let begin = Instant::now();
        let came = exchange(sequence)?;
        let nanoseconds = begin.elapsed().as_nanos() as u64;
        if sequence < WARM_UP {
            continue;
        }
        match came {
            // Not saturating_record, which cuts off at the two nanoseconds that a fresh one holds.
            true => times += nanoseconds,
            false => lost += 1,
        }
    }
    Ok(Latency {
        median_us: times.value_at_quantile(0.5) as f64 / 1000.0,
        p99_us: times.value_at_quantile(0.99) as f64 / 1000.0,
        count: times.len(),
        lost,
    })
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn udp_round_trips_are_timed() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| echo(&server, &over));
            let latency = udp(&client, 10).unwrap();
            over.store(true, Relaxed);
            echo.join().unwrap().unwrap();
            assert_eq!((latency.count, latency.lost), (10, 0));
            assert!(latency.median_us > 0.0 && latency.p99_us >= latency.median_us);
        });
    }

    #[test]
    fn lost_replies_are_counted_apart() {
        let latency = ping_pong(10, |sequence| Ok(sequence % 2 == 0)).unwrap();
        assert_eq!((latency.count, latency.lost), (5, 5));
    }

    #[test]
    fn a_message_with_its_checksum_sums_to_zero() {
        assert_eq!(checksum(&echo_request(0xffff, 0xfff7)), 0);
        assert_eq!(checksum(&echo_request(0, 0)), 0);
    }

    #[test]
    fn a_reply_is_told_from_other_packets() {
        let request = echo_request(7, 9);
        let mut packet = [[0u8; 20].as_slice(), &request].concat();
        packet[0] = 0x45;
        assert!(!answers(&packet, &request), "a request is no reply");
        packet[20] = ICMP_ECHO_REPLY;
        assert!(answers(&packet, &request));
        packet[27] ^= 1;
        assert!(!answers(&packet, &request), "another sequence number");
        assert!(!answers(&packet[..24], &request) && !answers(&[], &request));
    }
}
