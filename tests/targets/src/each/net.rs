//! Frames into a whole stack with open sockets: no panic, no buffer is lost, and it always rests.
//! Input: for each frame its length, whether milliseconds or minutes pass before it comes, how it
//! is put right, and its bytes behind both addresses of Ethernet.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use device::memory::{MemoryPort, Wire};
use device::{HEADROOM, Pool};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::socket::Hub;
use net::stack::Stack;
use net::tcp::Config;
use net::tcp::host::{ListenerId, SocketId, Tcp};
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;

/// Large buffers, for packets in fragments.
const LARGE: usize = 6;
const LARGE_BYTES: usize = HEADROOM + 40 + 65_535;
/// Buffers of the port.
const SMALL: usize = 256;
const SMALL_BYTES: usize = HEADROOM + 1518;
/// Bytes that queues may hold.
const MEMORY: usize = 1 << 18;
/// Turns until a stack rests to which no frame comes.
const TURNS_MAX: usize = 1000;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

thread_local! {
    /// Their memory is never given back, so that all inputs share them.
    pub static LARGE_POOL: Pool = Pool::new(vec![0; LARGE * LARGE_BYTES].leak(), LARGE_BYTES);
    static SMALL_POOL: Pool = Pool::new(vec![0; SMALL * SMALL_BYTES].leak(), SMALL_BYTES);
}

/// The stack, and what is open on it.
struct Host {
    stack: Stack<Ipv4, Ipv6>,
    wire: Wire,
    listener: ListenerId,
    sockets: Vec<SocketId>,
    /// Sequence and acknowledgement number of the last segment that was sent.
    numbers: [u32; 2],
    now: Instant,
}

pub fn feed(input: &[u8]) {
    let (large, small) = (LARGE_POOL.with(|pool| *pool), SMALL_POOL.with(|pool| *pool));
    let mut host = Host::new(large, small);
    host.feed(input);
    drop(host);
    assert_eq!((large.free(), small.free()), (LARGE, SMALL));
}

impl Host {
    fn new(large: Pool, small: Pool) -> Self {
        let now = Instant::PAST + Duration::from_secs(1000);
        let (mut v4, mut v6) = (Ipv4::new(large, 1), Ipv6::new(large, 1));
        let own = Prefix::new(Ipv4Addr::new(10, 0, 0, 1), 24).unwrap();
        v4.add_address(own, Detect::Later, now);
        let own = Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 64).unwrap();
        v6.add_address(own, Detect::Later, now);
        let (port, wire) = MemoryPort::over("net", small).split();
        v6.autoconfigure(net::ethernet::Mac(OURS), Detect::Later, now);
        let ip = Ip::new(Ethernet::new(Box::new(port)), v4, v6);
        let tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [2; 16], MEMORY);
        let mut stack = Stack::new(ip, tcp, now);
        let any = SocketAddr::from(([0; 4], 7));
        let listener = stack.tcp.listen(any, 4).unwrap();
        stack.udp.bind(None, 53, 0).unwrap();
        let peer = SocketAddr::from(([10, 0, 0, 9], 80));
        let sockets = vec![stack.connect(peer).unwrap()];
        Self {
            stack,
            wire,
            listener,
            sockets,
            numbers: [0; 2],
            now,
        }
    }

    fn feed(&mut self, mut input: &[u8]) {
        while let [len, time, right, rest @ ..] = input {
            let len = usize::from(*len).min(rest.len());
            let to = if right & 1 == 0 { OURS } else { [0xff; 6] };
            let mut frame = [&to, &PEER, &rest[..len]].concat();
            if right & 2 != 0 {
                self.answer(&mut frame);
            }
            if right & 4 != 0 {
                complete(&mut frame);
            }
            self.now = self.now
                + if *time < 250 {
                    Duration::from_millis((*time).into())
                } else {
                    Duration::from_secs(90)
                };
            input = &rest[len..];
            self.wire.arrives(&frame);
            self.turns();
        }
    }

    /// Makes the numbers of a segment those that are expected, but for their lowest bits.
    fn answer(&self, frame: &mut [u8]) {
        let Some(tcp) = frame.get_mut(34..).filter(|tcp| tcp.len() >= 20) else {
            return;
        };
        let [seq, ack] = self.numbers;
        for (at, number) in [(4, ack), (8, seq)] {
            let low = u32::from(tcp[at + 3]);
            let number = number.wrapping_add(low & 0x7f).wrapping_sub(low & 0x80);
            tcp[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
    }

    fn turns(&mut self) {
        for _ in 0..TURNS_MAX {
            let any = self.stack.receive(self.now);
            self.work();
            self.stack.send();
            for frame in self.wire.sent() {
                if frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&6) {
                    let number = |at: usize| {
                        let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
                        u32::from_be_bytes(*bytes.expect("a header"))
                    };
                    self.numbers = [number(38).wrapping_add(1), number(42)];
                }
            }
            if !any && self.stack.deadline() > self.now {
                return;
            }
        }
        panic!("it never rests");
    }

    /// As an application does: accepts, reads, and sends it back.
    fn work(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let tcp = &mut self.stack.tcp;
        while let Poll::Ready(socket) = tcp.poll_accept(self.listener, &mut context) {
            self.sockets.push(socket);
        }
        let now = self.now;
        self.sockets.retain(|socket| {
            let mut place = [0; 100];
            match tcp.poll_read(*socket, &mut place, &mut context) {
                Poll::Pending => true,
                Poll::Ready(Ok(count)) if count > 0 => {
                    let _ = tcp.poll_write(*socket, &place[..count], &mut context);
                    true
                }
                Poll::Ready(_) => {
                    tcp.leave(*socket, now);
                    false
                }
            }
        });
    }
}

/// Makes the checksums of IPv4 and of what it carries right: mutations seldom do.
fn complete(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(14..).filter(|packet| packet.len() >= 20) else {
        return;
    };
    let header = usize::from(packet[0] & 0xf) * 4;
    if packet[0] >> 4 != 4 || header < 20 || packet.len() < header {
        return;
    }
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    put(packet, 10, 0, header, 0);
    let offset = match packet[9] {
        1 | 2 => 2,
        6 => 16,
        17 => 6,
        _ => return,
    };
    let len = packet.len() - header;
    let pseudo = match packet[9] {
        1 | 2 => 0,
        protocol => sum(&packet[12..20]) + u32::from(protocol) + len as u32,
    };
    put(packet, header + offset, header, header + len, pseudo);
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
        .sum()
}

/// Puts the checksum (RFC 1071) of a range to `at`, if there is room.
fn put(packet: &mut [u8], at: usize, from: usize, to: usize, begin: u32) {
    if packet.len() < at + 2 {
        return;
    }
    packet[at..at + 2].fill(0);
    let mut sum = begin + sum(&packet[from..to]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
