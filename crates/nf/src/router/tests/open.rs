//! Packets of open connections, which take fewer steps: what leaves is the same, byte for byte, as
//! if each were looked at in full, and so are connections and counters.

use super::frame::tcp;
use super::*;
use crate::conntrack::{FULL, TAKEN};
use crate::key::protocol::TCP;
use proptest::prelude::*;

const SYN: u8 = 2;
const ACK: u8 = 16;
const RULES: &str = "
table inet filter {
	chain before {
		type filter hook prerouting priority filter; policy accept;
		ct state established counter accept
	}
	chain c {
		type filter hook forward priority filter; policy drop;
		ct state established,related counter accept
		tcp dport { 80, 8080 } counter accept
	}
}
table ip nat {
	chain dstnat {
		type nat hook prerouting priority dstnat;
		tcp dport 8080 dnat to 192.0.2.80:80
	}
	chain srcnat {
		type nat hook postrouting priority srcnat;
		oifname public masquerade
	}
}
table ip6 filter {
	chain c {
		type filter hook forward priority filter; policy accept;
		tcp dport 81 drop
	}
}
";

/// A segment of one of two connections: its bytes of data, what it adds to its numbers, its
/// checksums, and whether that of TCP is left to others.
#[derive(Clone, Copy, Debug)]
struct Segment {
    translated: bool,
    reply: bool,
    flags: u8,
    seq: i32,
    data: usize,
    sum: u16,
    hops: u8,
    partial: bool,
}

fn segment() -> impl Strategy<Value = Segment> {
    let flags = prop_oneof![8 => Just(ACK), 1 => Just(ACK | 8), 1 => Just(ACK | 1), 1 => Just(4)];
    let sum = prop_oneof![1 => Just(0u16), 1 => Just(0xffff), 4 => any::<u16>()];
    (
        any::<(bool, bool, bool)>(),
        flags,
        prop_oneof![6 => Just(0), 1 => -2000..2000i32],
        0..3usize,
        sum,
        1..5u8,
    )
        .prop_map(
            |((translated, reply, partial), flags, seq, data, sum, hops)| Segment {
                translated,
                reply,
                flags,
                seq,
                data: 700 * data,
                sum,
                hops,
                partial,
            },
        )
}

impl Segment {
    /// The frame, with any checksum of TCP that it may have; only IPv4's is looked at.
    fn frame(self, port: u16) -> Vec<u8> {
        let ends = match (self.reply, self.translated) {
            (false, false) => (CLIENT, SERVER, [4000, 80]),
            (false, true) => (CLIENT, "198.51.100.1", [5000, 8080]),
            (true, _) => (SERVER, OUTSIDE, [80, port]),
        };
        let seq = u32::wrapping_add_signed(1, self.seq);
        let mut payload = tcp(ends.2, seq, 1, self.flags);
        payload.resize(payload.len() + self.data, 7);
        let mut frame = frame::frame(&packet(ip(ends.0), ip(ends.1), TCP, payload));
        frame[50..52].copy_from_slice(&self.sum.to_be_bytes());
        // Hops are no word that changes.
        let sum = u16::from_be_bytes([frame[24], frame[25]]);
        let more = u16::from(frame[22]).wrapping_sub(self.hops.into());
        let (sum, carry) = sum.overflowing_add(more << 8);
        frame[22] = self.hops;
        frame[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        frame
    }
}

/// A router with both connections open, and what the second one's port is called outside.
fn open() -> (Bench, [u16; 2]) {
    open_by(RULES)
}

fn open_by(rules: &str) -> (Bench, [u16; 2]) {
    let mut bench = Bench::new(rules);
    let mut ports = [0; 2];
    let begun = [(SERVER, [4000, 80]), ("198.51.100.1", [5000, 8080])];
    for ((to, ends_of), port) in begun.into_iter().zip(&mut ports) {
        let out = bench
            .pass(0, (CLIENT, to), TCP, tcp(ends_of, 0, 0, SYN))
            .unwrap();
        *port = ends(&out).2[0];
        let back = tcp([80, *port], 0, 1, SYN | ACK);
        bench.pass(1, (SERVER, OUTSIDE), TCP, back).unwrap();
        bench
            .pass(0, (CLIENT, to), TCP, tcp(ends_of, 1, 1, ACK))
            .unwrap();
    }
    (bench, ports)
}

proptest! {
    #[test]
    fn fewer_steps_lead_to_the_same(
        segments in proptest::collection::vec(segment(), 1..40)
    ) {
        let (mut few, ports) = open();
        let (mut many, others) = open();
        prop_assert_eq!(ports, others);
        for segment in segments {
            let frame = segment.frame(ports[usize::from(segment.translated)]);
            let from = u8::from(segment.reply);
            let ours = few.forward(from, frame.clone(), segment.partial);
            FULL.set(true);
            let theirs = many.forward(from, frame, segment.partial);
            FULL.set(false);
            prop_assert_eq!(ours, theirs, "{:?}", segment);
            prop_assert_eq!(&few.counts.0, &many.counts.0);
        }
        prop_assert_eq!(few.connections.table.numbers(), many.connections.table.numbers());
    }
}

#[test]
fn most_packets_take_fewer_steps() {
    let (mut bench, ports) = open();
    let begun = TAKEN.get();
    for turn in 0..10 {
        let data = Segment {
            translated: turn % 2 == 0,
            reply: turn % 4 < 2,
            flags: ACK,
            seq: 0,
            data: 100,
            sum: 5,
            hops: 9,
            partial: false,
        };
        let frame = data.frame(ports[usize::from(data.translated)]);
        bench.forward(u8::from(data.reply), frame, false).unwrap();
    }
    assert_eq!(TAKEN.get() - begun, 10);
}

/// A packet for the router itself is looked at in full behind its first hook.
#[test]
fn what_is_for_the_router_has_a_key() {
    let (mut bench, ports) = open();
    let reply = Segment {
        translated: true,
        reply: true,
        flags: ACK,
        seq: 0,
        data: 100,
        sum: 5,
        hops: 9,
        partial: false,
    };
    let mut frame = reply.frame(ports[1]);
    let mut passage = Passage::new();
    let arrival = Arrival {
        port: 1,
        local: Local::default(),
        partial: false,
    };
    bench
        .hooks()
        .prerouting(&mut passage, &mut frame, arrival)
        .unwrap();
    bench.hooks().input(&mut passage, &mut frame).unwrap();
    let key = crate::Key::parse(&frame).unwrap();
    assert_eq!(passage.key(&frame).fields(), key.fields());
}

/// What another packet was marked with is not its mark.
#[test]
fn a_packet_begins_without_a_mark() {
    let marks = "table ip m {
        chain p {
            type filter hook prerouting priority mangle
            ct state established accept
            meta mark set 5
        }
        chain i {
            type filter hook input priority 0
            meta mark 5 drop
        }
    }";
    let (mut bench, ports) = open_by(&std::format!("{RULES}\n{marks}"));
    let mut passage = Passage::new();
    let mut arrives = |bench: &mut Bench, from, mut frame: std::vec::Vec<u8>| {
        let arrival = Arrival {
            port: from,
            local: Local::default(),
            partial: false,
        };
        let mut hooks = bench.hooks();
        hooks.prerouting(&mut passage, &mut frame, arrival).unwrap();
        hooks.input(&mut passage, &mut frame)
    };
    let new = packet(ip(CLIENT), ip(SERVER), TCP, tcp([4001, 80], 0, 0, SYN));
    assert!(arrives(&mut bench, 0, frame::frame(&new)).is_err());
    let reply = Segment {
        translated: true,
        reply: true,
        flags: ACK,
        seq: 0,
        data: 100,
        sum: 5,
        hops: 9,
        partial: false,
    };
    assert!(arrives(&mut bench, 1, reply.frame(ports[1])).is_ok());
}
