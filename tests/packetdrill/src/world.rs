//! A stack on a port in memory, and a clock that goes when packetdrill says so.

use crate::commands::Settings;
use crate::neighbours::{self, Left};
use crate::sockets::Sockets;
use device::memory::{MemoryPort, Wire};
use device::{HEADROOM, Netif, Pool};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::routes::Route;
use net::stack::Stack;
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Our addresses: `cargo xtask packetdrill` tells packetdrill the same.
const IPV4: (Ipv4Addr, u8) = (Ipv4Addr::new(192, 168, 0, 1), 16);
const IPV6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1), 64);
/// The MSS over IPv6 is then what scripts expect of IPv4: 1460.
const IPV6_MTU: usize = 1520;
/// When the world begins.
const BEGINNING: Instant = Instant(1_000_000_000_000);
/// Bytes that all queues may hold.
const MEMORY: usize = 64 << 20;
/// Packets in fragments at a time.
const LARGE_PACKETS: usize = 4;
/// Turns in which one moment's work is done: more of them would be a loop without end.
const TURNS_MAX: usize = 10_000;
/// The stack is given so long to send what a script waits for.
const PATIENCE: Duration = Duration::from_secs(900);

/// The stack.
pub type Net = Stack<Ipv4, Ipv6>;

/// A stack, what has left it, and the time.
pub struct World {
    stack: Net,
    wire: Wire,
    /// The link address of our port.
    mac: [u8; 6],
    now: Instant,
    /// Packets that nobody has looked at, and when they left, in microseconds.
    left: VecDeque<(u64, Vec<u8>)>,
    settings: Settings,
    /// Descriptors.
    pub sockets: Sockets,
}

impl World {
    /// Without a socket. `ipv6`: whether scripts run over IPv6.
    pub fn new(ipv6: bool) -> Self {
        let port = MemoryPort::new("net");
        let port = match ipv6 {
            true => port.with_mtu(IPV6_MTU),
            false => port,
        };
        // Scripts send packets of more than the MTU.
        let port = port.with_tso();
        let mac = port.mac();
        let (port, wire) = port.split();
        let settings = Settings::default();
        Self {
            stack: stack(Box::new(port), settings.config),
            wire,
            mac,
            now: BEGINNING,
            left: VecDeque::new(),
            settings,
            sockets: Sockets::default(),
        }
    }

    /// A script's command: what it sets is so for all connections, if there is none yet.
    pub fn set(&mut self, command: &str) {
        self.settings.read(command);
        if self.sockets.is_empty() {
            self.stack.tcp = tcp(self.settings.config);
        }
    }

    /// The stack and its sockets, and the time.
    pub fn parts(&mut self) -> (&mut Net, &mut Sockets, Instant) {
        (&mut self.stack, &mut self.sockets, self.now)
    }

    /// Microseconds since some beginning.
    pub fn micros(&self) -> u64 {
        self.now.0 / 1000
    }

    /// When something happens next of itself; `None` if nothing ever does.
    pub fn next(&self) -> Option<Instant> {
        let next = self.stack.deadline();
        (next < self.now + PATIENCE).then(|| next.max(self.now + Duration::from_micros(1)))
    }

    /// The clock goes on to `to`, unless it is there.
    pub fn pass(&mut self, to: Instant) {
        self.now = self.now.max(to);
        self.turn();
    }

    /// The clock goes on by so much.
    pub fn after(&self, duration: Duration) -> Instant {
        self.now + duration
    }

    /// A packet comes from the peer.
    pub fn arrives(&mut self, packet: &[u8]) {
        self.wire.arrives(&neighbours::frame(packet, self.mac));
        self.turn();
    }

    /// The packet that left first of all that nobody has looked at, and when.
    pub fn take_left(&mut self) -> Option<(u64, Vec<u8>)> {
        self.left.pop_front()
    }

    /// Does what is to be done now.
    pub fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            let (stack, sockets, now) = self.parts();
            let any = stack.receive(now);
            let fed = sockets.feed(stack);
            let all = stack.send();
            let sent = self.wire.sent();
            if !any && !fed && all && sent.is_empty() {
                return;
            }
            for frame in sent {
                match neighbours::left(&frame) {
                    Left::Packet(packet) => self.left.push_back((self.micros(), packet)),
                    Left::Answered(answer) => self.wire.arrives(&answer),
                    Left::Else => {}
                }
            }
        }
    }
}

fn stack(port: Box<dyn Netif>, config: Config) -> Net {
    let now = BEGINNING;
    let buffer = usize::from(u16::MAX) + 40 + HEADROOM;
    let large = || Pool::new(vec![0; LARGE_PACKETS * buffer].leak(), buffer);
    let mut ipv4 = Ipv4::new(large(), 1);
    if let Some(prefix) = Prefix::new(IPV4.0, IPV4.1) {
        ipv4.add_address(prefix, Detect::Later, now);
    }
    // All peers are neighbours.
    ipv4.routes().add(Route {
        network: Prefix::ALL_IPV4,
        gateway: None,
    });
    let mut ipv6 = Ipv6::new(large(), 1);
    if let Some(prefix) = Prefix::new(IPV6.0, IPV6.1) {
        ipv6.add_address(prefix, Detect::Later, now);
    }
    ipv6.routes().add(Route {
        network: Prefix::ALL_IPV6,
        gateway: None,
    });
    let ip = Ip::new(Ethernet::new(port), ipv4, ipv6);
    Stack::new(ip, tcp(config), now)
}

fn tcp(config: Config) -> Tcp {
    Tcp::new(config, Secret::new([1; 16]), [2; 16], MEMORY)
}
