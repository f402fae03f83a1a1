//! Sends segments of 1448 bytes from one stack to another, to be counted by callgrind:
//!
//!     cargo xtask instructions
//!
//! which starts it as `segments STACK SEGMENTS` and counts what is in `count_send`, `count_receive`
//! or `count_acknowledge`. STACK is `ours`, or `smoltcp` for its sockets in the same place. Ports
//! only move frames, and take checksums; what is sent was copied once, from a slice.

mod mover;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use device::{Frame, Pool};
use mover::{MTU, Mover, Queues};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::socket::Hub;
use net::stack::Stack;
use net::tcp::Config;
use net::tcp::host::{SocketId, Tcp};
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of a segment with timestamps.
const SEGMENT: usize = 1448;
/// Segments of a round.
const ROUND: usize = 32;
/// Rounds that nobody counts: windows grow.
const WARM_UP: usize = 200;
const PORT: u16 = 80;
/// Between two rounds.
const STEP: Duration = Duration::from_micros(100);

/// One end of the connection.
trait End {
    /// Frames that this end has sent since the last time that somebody asked.
    fn sent(&mut self) -> Vec<Frame>;
    /// Frames that have arrived at its port.
    fn arrive(&mut self, frames: Vec<Frame>);
    /// Writes so many bytes, and sends them.
    fn send(&mut self, bytes: &[u8], now: Instant);
    /// Takes what has arrived, reads it, and acknowledges; how many bytes.
    fn receive(&mut self, now: Instant) -> usize;
    /// Takes acknowledgements.
    fn acknowledge(&mut self, now: Instant);
}

#[inline(never)]
fn count_send(end: &mut impl End, bytes: &[u8], now: Instant) {
    end.send(bytes, now);
}

#[inline(never)]
fn count_receive(end: &mut impl End, now: Instant) -> usize {
    end.receive(now)
}

#[inline(never)]
fn count_acknowledge(end: &mut impl End, now: Instant) {
    end.acknowledge(now);
}

/// Our stack.
struct Ours {
    stack: Stack<Ipv4, Ipv6>,
    socket: Option<SocketId>,
    queues: Rc<RefCell<Queues>>,
}

/// Buffers for frames that fit the MTU.
fn pool() -> Pool {
    mover::pool(MTU + 18)
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

impl Ours {
    fn new(last: u8, now: Instant) -> Self {
        let queues = Rc::<RefCell<Queues>>::default();
        let port = Mover {
            queues: queues.clone(),
            pool: pool(),
            last,
            tso: false,
        };
        let (mut v4, v6) = (Ipv4::new(pool(), 1), Ipv6::new(pool(), 1));
        v4.add_address(Prefix::new(address(last), 24).unwrap(), Detect::Later, now);
        let ip = Ip::new(Ethernet::new(Box::new(port)), v4, v6);
        let tcp = Tcp::new(Config::default(), Secret::new([last; 16]), [9; 16], 1 << 24);
        Self {
            stack: Stack::new(ip, tcp, now),
            socket: None,
            queues,
        }
    }
}

impl End for Ours {
    fn sent(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.queues.borrow_mut().sent)
    }

    fn arrive(&mut self, mut frames: Vec<Frame>) {
        frames.reverse();
        self.queues.borrow_mut().arrived = frames;
    }

    fn send(&mut self, bytes: &[u8], now: Instant) {
        let mut context = Context::from_waker(Waker::noop());
        self.stack.receive(now);
        let socket = self.socket.expect("open");
        let mut rest = bytes;
        while let Poll::Ready(Ok(count)) = self.stack.tcp.poll_write(socket, rest, &mut context)
            && count > 0
        {
            rest = &rest[count..];
        }
        self.stack.send();
    }

    fn receive(&mut self, now: Instant) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let socket = self.socket.expect("open");
        let mut count = 0;
        while self.stack.receive(now) {
            while let Poll::Ready(Ok(Some(bytes))) = self.stack.tcp.poll_take(socket, &mut context)
            {
                count += bytes.len();
            }
            self.stack.send();
        }
        count
    }

    fn acknowledge(&mut self, now: Instant) {
        while self.stack.receive(now) {}
    }
}

/// smoltcp's.
struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    device: Tokens,
}

/// A port that moves frames, as smoltcp sees it.
struct Tokens {
    queues: Queues,
    pool: Pool,
}

struct Arrived(Frame);
struct Room<'a>(&'a mut Queues, Pool);

impl smoltcp::phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0.bytes())
    }
}

impl smoltcp::phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = self.1.alloc(len).expect("there are enough");
        let result = fill(frame.bytes_mut());
        self.0.sent.push(frame);
        result
    }
}

impl Device for Tokens {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Arrived, Room<'_>)> {
        let frame = self.queues.arrived.pop()?;
        Some((Arrived(frame), Room(&mut self.queues, self.pool)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Room<'_>> {
        Some(Room(&mut self.queues, self.pool))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MTU + 14;
        capabilities.checksum.ipv4 = Checksum::None;
        capabilities.checksum.tcp = Checksum::None;
        capabilities
    }
}

fn time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.0 / 1000) as i64)
}

impl Theirs {
    fn new(last: u8, now: Instant) -> Self {
        let mut device = Tokens {
            queues: Queues::default(),
            pool: pool(),
        };
        let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, last]));
        let settled = smoltcp::iface::Config::new(mac);
        let mut interface = Interface::new(settled, &mut device, time(now));
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddr::from(address(last)).into(), 24);
            addresses.push(own).unwrap();
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; 256 << 10]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_tsval_generator(Some(|| 1));
        match last {
            1 => socket
                .connect(interface.context(), (address(2), PORT), 49152)
                .unwrap(),
            _ => socket.listen(PORT).unwrap(),
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self {
            interface,
            sockets,
            handle,
            device,
        }
    }

    fn poll(&mut self, now: Instant) {
        self.interface
            .poll(time(now), &mut self.device, &mut self.sockets);
    }
}

impl End for Theirs {
    fn sent(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.device.queues.sent)
    }

    fn arrive(&mut self, mut frames: Vec<Frame>) {
        frames.reverse();
        self.device.queues.arrived = frames;
    }

    fn send(&mut self, bytes: &[u8], now: Instant) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let _ = socket.send_slice(bytes);
        self.poll(now);
    }

    fn receive(&mut self, now: Instant) -> usize {
        self.poll(now);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let mut count = 0;
        while socket.can_recv() {
            count += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap();
        }
        self.poll(now);
        count
    }

    fn acknowledge(&mut self, now: Instant) {
        self.poll(now);
    }
}

/// Frames go to and fro until there are none.
fn settle(ends: &mut [impl End; 2], now: Instant) {
    for _ in 0..100 {
        for end in 0..2 {
            ends[end].acknowledge(now);
            let sent = ends[end].sent();
            ends[1 - end].arrive(sent);
        }
    }
}

fn run(mut ends: [impl End; 2], segments: usize, mut now: Instant) {
    let bytes = vec![7; ROUND * SEGMENT];
    for round in 0..WARM_UP + segments / ROUND {
        now = now + STEP;
        let [sender, receiver] = &mut ends;
        let count = match round < WARM_UP {
            true => {
                sender.send(&bytes, now);
                receiver.arrive(sender.sent());
                let count = receiver.receive(now);
                sender.arrive(receiver.sent());
                sender.acknowledge(now);
                count
            }
            false => {
                count_send(sender, &bytes, now);
                receiver.arrive(sender.sent());
                let count = count_receive(receiver, now);
                sender.arrive(receiver.sent());
                count_acknowledge(sender, now);
                count
            }
        };
        assert!(
            round < WARM_UP || count == bytes.len(),
            "round {round}: {count} bytes have come"
        );
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (stack, segments) = (arguments.next(), arguments.next());
    let segments = segments.and_then(|count| count.parse().ok());
    let now = Instant::PAST + Duration::from_secs(1000);
    match (stack.as_deref(), segments) {
        (Some("ours"), Some(segments)) => run(ours(now), segments, now),
        (Some("smoltcp"), Some(segments)) => {
            let mut ends = [Theirs::new(1, now), Theirs::new(2, now)];
            settle(&mut ends, now);
            run(ends, segments, now);
        }
        _ => println!("Usage: segments ours|smoltcp SEGMENTS"),
    }
}

/// Two ends of ours with a connection.
fn ours(now: Instant) -> [Ours; 2] {
    let mut ends = [Ours::new(1, now), Ours::new(2, now)];
    let mut context = Context::from_waker(Waker::noop());
    let any = SocketAddr::from((address(2), PORT));
    let listener = ends[1].stack.tcp.listen(any, 1).unwrap();
    ends[0].socket = Some(ends[0].stack.connect(any).unwrap());
    for _ in 0..10 {
        for end in 0..2 {
            ends[end].stack.receive(now);
            ends[end].stack.send();
            let sent = ends[end].sent();
            ends[1 - end].arrive(sent);
        }
    }
    match ends[1].stack.tcp.poll_accept(listener, &mut context) {
        Poll::Ready(socket) => ends[1].socket = Some(socket),
        Poll::Pending => panic!("there is no connection"),
    }
    ends
}
