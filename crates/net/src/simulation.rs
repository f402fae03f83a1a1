//! Two hosts and a bad network between them, all from one seed: every datagram that arrives is one
//! that was sent, whatever the network does.

use crate::address::Prefix;
use crate::arp::Detect;
use crate::ethernet::{Ethernet, Mac};
use crate::ip::Ip;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::layers::faults::{Faults, Settings};
use crate::random::Random;
use crate::testing::{self, Wire, at};
use crate::udp::{self, Socket, Udp};
use crate::version::{Addresses, Arrived, Packet};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use device::Batch;
use device::memory::MemoryPort;
use ports::Instant;
use std::vec::Vec;

const PORT: u16 = 7;

struct Host {
    ip: Ip,
    udp: Udp,
    socket: Socket,
    wire: Wire,
}

impl Host {
    /// A host whose port loses and changes what it sends.
    fn new(n: u8, settings: Settings, seed: u64, clock: &Rc<Cell<Instant>>) -> Self {
        let (port, wire) = MemoryPort::new("net").with_index(n).split();
        let clock = clock.clone();
        let faults = Faults::new(Box::new(port), seed, move || clock.get()).sending(settings);
        let large = testing::large(6);
        let (mut v4, mut v6) = (Ipv4::new(large, seed), Ipv6::new(large, seed));
        let own = Prefix::new(Ipv4Addr::new(10, 0, 0, n), 24).unwrap();
        v4.add_address(own, Detect::Later, at(0));
        v6.autoconfigure(Mac([2, 0, 0, 0, 0, n]), Detect::Later, at(0));
        let mut udp = Udp::new();
        let socket = udp.bind(None, PORT, 0).unwrap();
        Self {
            ip: Ip::new(Ethernet::new(Box::new(faults)), v4, v6),
            udp,
            socket,
            wire,
        }
    }

    fn send(&mut self, to: IpAddr, payload: &[u8], now: Instant) {
        let Some(source) = self.ip.source(to, now) else {
            return;
        };
        let packet = Packet {
            fragment: true,
            ..Packet::new(source, to, udp::PROTOCOL)
        };
        let (from, to) = (SocketAddr::new(source, PORT), SocketAddr::new(to, PORT));
        let fill = |place: &mut [u8]| {
            udp::emit(from, to, place, |place| {
                place.copy_from_slice(payload);
                payload.len()
            })
        };
        // What is not sent is lost: that is the network's right.
        let _ = self
            .ip
            .write(packet, udp::HEADER + payload.len(), fill, now);
    }

    /// One turn; the payloads that arrived.
    fn turn(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.ip.receive(&mut batch);
        for frame in batch.drain() {
            if let Some(Arrived::Packet(packet)) = self.ip.accept(frame, now)
                && packet.protocol == udp::PROTOCOL
                && let Err(refused) = self.udp.accept(packet, Some(0))
            {
                self.ip.refuse(refused, crate::icmp::Refusal::Port, now);
            }
        }
        self.ip.poll(now);
        self.ip.flush();
        core::iter::from_fn(|| self.udp.receive(self.socket))
            .map(|datagram| datagram.frame.bytes().to_vec())
            .collect()
    }
}

/// A datagram of so many bytes, which its first four bytes tell all about.
fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut random = Random::new(number.into());
    let mut payload = number.to_be_bytes().to_vec();
    payload.extend((4..len).map(|_| random.number() as u8));
    payload
}

/// Sends `count` datagrams, and returns the numbers of those that arrived.
fn run(seed: u64, settings: Settings, count: u32) -> Vec<u32> {
    let clock = Rc::new(Cell::new(at(0)));
    let mut random = Random::new(seed);
    let mut a = Host::new(1, settings, random.number(), &clock);
    let mut b = Host::new(2, settings, random.number(), &clock);
    let peers: [IpAddr; 2] = [
        Ipv4Addr::new(10, 0, 0, 2).into(),
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2).into(),
    ];
    let lens: Vec<_> = (0..count)
        .map(|_| {
            let most = [60, 3000, 20_000][random.below(3) as usize];
            4 + random.below(most) as usize
        })
        .collect();
    let mut arrived = Vec::new();
    // Ten milliseconds for each, in steps of one, and some for the last ones.
    for ms in 0..10 * u64::from(count) + 2000 {
        let now = at(ms);
        clock.set(now);
        let number = (ms / 10) as u32;
        if ms % 10 == 0
            && let Some(len) = lens.get(number as usize)
        {
            let peer = peers[random.below(2) as usize];
            a.send(peer, &payload(number, *len), now);
        }
        a.turn(now);
        for bytes in b.turn(now) {
            let number = u32::from_be_bytes(*bytes.first_chunk().unwrap());
            let len = lens.get(number as usize).copied().unwrap_or(0);
            assert!(
                bytes == payload(number, len),
                "seed {seed}: not what was sent"
            );
            arrived.push(number);
        }
        a.wire.sent().iter().for_each(|frame| b.wire.arrives(frame));
        b.wire.sent().iter().for_each(|frame| a.wire.arrives(frame));
    }
    arrived
}

#[test]
fn a_good_network_loses_nothing() {
    let settings = Settings {
        delay: Duration::from_millis(20),
        ..Settings::default()
    };
    // The first ones may wait for a neighbour, of whom each keeps only so many fragments.
    let arrived = run(1, settings, 100);
    assert!(
        (20..100).all(|number| arrived.contains(&number)),
        "{arrived:?}"
    );
}

#[test]
fn what_arrives_was_sent_whatever_the_network_does() {
    for seed in 0..40 {
        let settings = Settings {
            drop: 20_000,
            duplicate: 20_000,
            corrupt: 20_000,
            reorder: 50_000,
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(5),
            late: Duration::from_millis(5),
        };
        let arrived = run(seed, settings, 60);
        assert!(arrived.len() > 20, "seed {seed}: {}", arrived.len());
    }
}
