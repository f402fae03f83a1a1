//! Frames into a whole stack with open sockets: no panic, and no buffer is lost. Input: for each
//! frame its length, whether milliseconds or minutes pass before it comes, and its bytes behind
//! both addresses of Ethernet.

#![no_main]

use core::cell::RefCell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use device::memory::MemoryPort;
use device::{Batch, HEADROOM, Netif, Pool};
use libfuzzer_sys::fuzz_target;
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::{Ethernet, Mac};
use net::icmp::Refusal;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::udp::{self, Udp};
use net::version::Arrived;
use ports::Instant;

/// Large buffers, for packets in fragments.
const LARGE: usize = 6;
const LARGE_BYTES: usize = HEADROOM + 40 + 65_535;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

thread_local! {
    /// Their memory is never given back, so that all inputs share them.
    static LARGE_POOL: Pool = Pool::new(vec![0; LARGE * LARGE_BYTES].leak(), LARGE_BYTES);
    static PORT: RefCell<MemoryPort> = MemoryPort::new("net").into();
}

fuzz_target!(|input: &[u8]| {
    let large = LARGE_POOL.with(|pool| *pool);
    let now = Instant::PAST + Duration::from_secs(1000);
    let (mut v4, mut v6) = (Ipv4::new(large, 1), Ipv6::new(large, 1));
    v4.add_address(
        Prefix::new(Ipv4Addr::new(10, 0, 0, 1), 24).unwrap(),
        Detect::Later,
        now,
    );
    v6.add_address(
        Prefix::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 64).unwrap(),
        Detect::Later,
        now,
    );
    v6.autoconfigure(Mac(OURS), Detect::Later, now);
    let mut udp = Udp::new();
    let socket = udp.bind(None, 53, 0).unwrap();
    let mut ip = Ip::new(Ethernet::new(Box::new(Shared)), v4, v6);
    feed(input, &mut ip, &mut udp, now);
    while udp.receive(socket).is_some() {}
    drop((ip, udp));
    assert_eq!(large.free(), LARGE);
});

fn feed(mut input: &[u8], ip: &mut Ip, udp: &mut Udp, mut now: Instant) {
    while let [len, time, rest @ ..] = input {
        let len = usize::from(*len).min(rest.len());
        let to = if time & 1 == 0 { OURS } else { [0xff; 6] };
        let frame = [&to, &PEER, &rest[..len]].concat();
        now = now
            + if *time < 250 {
                Duration::from_millis((*time).into())
            } else {
                Duration::from_secs(90)
            };
        input = &rest[len..];
        port(|port| port.arrives(&frame));
        let mut batch = Batch::new();
        ip.receive(&mut batch);
        for frame in batch.drain() {
            match ip.accept(frame, now) {
                Some(Arrived::Packet(packet)) if packet.protocol == udp::PROTOCOL => {
                    if let Err(refused) = udp.accept(packet) {
                        ip.refuse(refused, Refusal::Port, now);
                    }
                }
                Some(Arrived::Packet(packet)) => ip.refuse(packet, Refusal::Protocol, now),
                Some(Arrived::Report(report)) => {
                    ip.too_big(&report, true, now);
                }
                None => {}
            }
        }
        ip.poll(now);
        ip.flush();
        port(|port| port.sent());
    }
}

/// The port of all inputs.
struct Shared;

fn port<T>(use_it: impl FnOnce(&mut MemoryPort) -> T) -> T {
    PORT.with_borrow_mut(|port| use_it(port))
}

impl Netif for Shared {
    fn name(&self) -> &str {
        "net"
    }

    fn mac(&self) -> [u8; 6] {
        OURS
    }

    fn mtu(&self) -> usize {
        port(|port| port.mtu())
    }

    fn offloads(&self) -> device::Offloads {
        port(|port| port.offloads())
    }

    fn alloc(&mut self, len: usize) -> Option<device::Frame> {
        port(|port| port.alloc(len))
    }

    fn receive(&mut self, batch: &mut Batch) {
        port(|port| port.receive(batch));
    }

    fn transmit(&mut self, batch: &mut Batch) {
        port(|port| port.transmit(batch));
    }

    fn wait_handle(&self) -> device::WaitHandle {
        device::WaitHandle(0)
    }
}
