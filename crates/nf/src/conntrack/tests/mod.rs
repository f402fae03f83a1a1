//! Conversations, packet by packet. What the kernel does with them is what `xtask oracle` compares;
//! the table of TCP here is what was seen there.

mod doubt;
mod entry;
pub(super) mod kept;
mod open;

use super::flows::FLOW_BYTES;
use super::*;
use crate::key::ether_type;
use crate::key::tests::{ethernet, seal};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const KEY: [u8; 16] = [7; 16];
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// An IPv4 packet in an Ethernet frame; `part` is the field of flags and offset.
fn ip(from: [u8; 4], to: [u8; 4], protocol: u8, part: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 9]);
    packet.extend(part.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend([from, to].concat());
    packet.extend(payload);
    seal(&mut packet);
    ethernet(&[ether_type::IPV4], &packet)
}

fn ip6(from: [u8; 16], to: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend([from, to].concat());
    packet.extend(payload);
    ethernet(&[ether_type::IPV6], &packet)
}

fn udp_header(source: u16, destination: u16, data: usize) -> Vec<u8> {
    let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    header.extend((8 + data as u16).to_be_bytes());
    header.extend([0, 0]);
    header.resize(8 + data, 0);
    header
}

fn udp(source: u16, destination: u16, reply: bool) -> Vec<u8> {
    match reply {
        false => ip(A, B, 17, 0, &udp_header(source, destination, 4)),
        true => ip(B, A, 17, 0, &udp_header(destination, source, 4)),
    }
}

/// A segment of the connection from A's port to B's port 80.
#[derive(Clone, Copy)]
struct Seg {
    port: u16,
    reply: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    data: usize,
}

impl Seg {
    fn frame(self) -> Vec<u8> {
        let ports = if self.reply {
            [80, self.port]
        } else {
            [self.port, 80]
        };
        let mut segment = ports.map(u16::to_be_bytes).concat();
        segment.extend(self.seq.to_be_bytes());
        segment.extend(self.ack.to_be_bytes());
        segment.extend([0x50, self.flags, 3, 232, 0, 0, 0, 0]);
        segment.resize(20 + self.data, 0);
        match self.reply {
            false => ip(A, B, 6, 0, &segment),
            true => ip(B, A, 6, 0, &segment),
        }
    }
}

fn seg(port: u16, reply: bool, flags: u8, seq: u32, ack: u32, data: usize) -> Vec<u8> {
    Seg {
        port,
        reply,
        seq,
        ack,
        flags,
        data,
    }
    .frame()
}

struct Bench {
    table: Conntrack,
    now: u64,
}

impl Bench {
    fn new(flows: usize) -> Self {
        Self {
            table: Conntrack::new(flows, &KEY),
            now: 1000 * SECOND,
        }
    }

    fn look<T>(
        &mut self,
        frame: &[u8],
        verdict: Verdict,
        look: impl Fn(&Connection<'_>) -> T,
    ) -> Result<T, Refused> {
        let key = Key::parse(frame).expect("a frame of this test");
        let mut seen = None;
        let sought = Sought::NOTHING;
        self.table
            .judge(&key, frame, sought, self.now, |connection| {
                seen = Some(look(connection));
                (verdict, 0)
            })?;
        Ok(seen.expect("rules were asked"))
    }

    /// The same, first as most frames are looked at, before their keys are read. What is found so
    /// is established, and no rule sees its connection.
    fn look_first<T>(
        &mut self,
        frame: &[u8],
        established: T,
        look: impl Fn(&Connection<'_>) -> T,
    ) -> Result<T, Refused> {
        let sought = match self.table.goes_on(frame, self.now) {
            Ok(()) => return Ok(established),
            Err(sought) => sought,
        };
        let key = Key::parse(frame).expect("a frame of this test");
        let mut seen = None;
        self.table
            .judge(&key, frame, sought, self.now, |connection| {
                seen = Some(look(connection));
                (Verdict::Accept, 0)
            })?;
        Ok(seen.expect("rules were asked"))
    }

    fn state(&mut self, frame: &[u8]) -> State {
        self.look(frame, Verdict::Accept, |it| it.state())
            .expect("there is room")
    }

    /// An open connection, with what both sides send next.
    fn open(&mut self, port: u16) {
        assert_eq!(self.state(&seg(port, false, SYN, 1000, 0, 0)), State::New);
        assert_eq!(
            self.state(&seg(port, true, SYN | ACK, 5000, 1001, 0)),
            State::Established
        );
        assert_eq!(
            self.state(&seg(port, false, ACK, 1001, 5001, 0)),
            State::Established
        );
    }

    fn flows(&self) -> u32 {
        Class::ALL
            .iter()
            .map(|class| self.table.count(*class))
            .sum()
    }
}

#[test]
fn segments_are_what_they_are_to_the_kernel() {
    use State::{Established, Invalid, New};
    let mut bench = Bench::new(64);
    bench.open(1);
    let cases: [(&str, Vec<u8>, State); 14] = [
        (
            "data in the window",
            seg(1, false, ACK, 1001, 5001, 500),
            Established,
        ),
        (
            "its acknowledgement",
            seg(1, true, ACK, 5001, 1501, 0),
            Established,
        ),
        (
            "long acknowledged",
            seg(1, false, ACK, 1001u32.wrapping_sub(3000), 5001, 10),
            Established,
        ),
        (
            "slightly too far",
            seg(1, false, ACK, 2502, 5001, 10),
            Established,
        ),
        ("too far", seg(1, false, ACK, 51_501, 5001, 10), Invalid),
        (
            "it acknowledges what was not sent",
            seg(1, true, ACK, 5001, 21_501, 0),
            Invalid,
        ),
        ("a RST near by", seg(1, false, RST, 1601, 0, 0), Established),
        ("a RST far below", seg(1, false, RST, 1301, 0, 0), Invalid),
        ("a SYN", seg(1, false, SYN, 9999, 0, 0), Established),
        (
            "a SYN of the other side",
            seg(1, true, SYN, 9999, 0, 0),
            Invalid,
        ),
        (
            "a FIN without ACK",
            seg(1, false, FIN, 1501, 5001, 0),
            Invalid,
        ),
        (
            "SYN and FIN",
            seg(1, false, SYN | FIN, 1501, 5001, 0),
            Invalid,
        ),
        ("it began before", seg(2, false, ACK, 1, 1, 1), New),
        (
            "an answer to nothing",
            seg(3, false, SYN | ACK, 1, 1, 0),
            Invalid,
        ),
    ];
    for (what, frame, expected) in cases {
        assert_eq!(bench.state(&frame), expected, "{what}");
    }
}

#[test]
fn a_connection_closes_and_its_ports_are_used_again() {
    let mut bench = Bench::new(64);
    bench.open(1);
    let closing = [
        (seg(1, false, FIN | ACK, 1001, 5001, 0), Class::FinWait),
        (seg(1, true, ACK, 5001, 1002, 0), Class::CloseWait),
        (seg(1, true, FIN | ACK, 5001, 1002, 0), Class::LastAck),
        (seg(1, false, ACK, 1002, 5002, 0), Class::TimeWait),
    ];
    for (frame, class) in closing {
        assert_eq!(bench.state(&frame), State::Established, "{class}");
        assert_eq!(bench.table.count(class), 1, "{class}");
    }
    assert_eq!(bench.state(&seg(1, false, SYN, 77_777, 0, 0)), State::New);
    assert_eq!(bench.table.count(Class::SynSent), 1);
    assert_eq!(bench.flows(), 1);
}

#[test]
fn a_reset_that_answers_a_syn_ends_the_connection() {
    let mut bench = Bench::new(64);
    bench.open(1);
    assert_eq!(
        bench.state(&seg(1, false, RST, 1001, 0, 0)),
        State::Established
    );
    assert_eq!(bench.table.count(Class::Close), 1);
    bench.state(&seg(2, false, SYN, 1, 0, 0));
    assert_eq!(bench.state(&seg(2, false, RST, 2, 0, 0)), State::New);
    assert_eq!(bench.flows(), 1, "the second one is gone");
}

#[test]
fn what_rules_drop_begins_nothing() {
    let mut bench = Bench::new(1);
    for port in 0..10 {
        let frame = udp(port, 53, false);
        let seen = bench.look(&frame, Verdict::Drop, |it| it.state());
        assert_eq!(seen, Ok(State::New));
    }
    assert_eq!(bench.flows(), 0);
    assert_eq!(
        bench.state(&udp(9, 53, true)),
        State::New,
        "it is the first one"
    );
}

#[test]
fn udp_is_a_stream_once_it_lasts() {
    let mut bench = Bench::new(64);
    assert_eq!(bench.state(&udp(1, 53, false)), State::New);
    assert_eq!(bench.state(&udp(1, 53, false)), State::New);
    assert_eq!(bench.state(&udp(1, 53, true)), State::Established);
    assert_eq!(bench.state(&udp(1, 53, false)), State::Established);
    assert_eq!(bench.table.count(Class::Udp), 1);
    bench.now += 3 * SECOND;
    assert_eq!(bench.state(&udp(1, 53, true)), State::Established);
    assert_eq!(bench.table.count(Class::UdpStream), 1);
    bench.now += 31 * SECOND;
    assert_eq!(bench.state(&udp(1, 53, true)), State::Established);
    bench.now += 121 * SECOND;
    assert_eq!(
        bench.state(&udp(1, 53, true)),
        State::New,
        "its time was up"
    );
}

fn icmp(from: [u8; 4], to: [u8; 4], kind: u8, id: u16, quote: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(id.to_be_bytes());
    message.extend([0, 0]);
    message.extend(quote);
    ip(from, to, 1, 0, &message)
}

#[test]
fn errors_are_related_to_what_they_quote() {
    use State::{Established, Invalid, New, Related};
    const ROUTER: [u8; 4] = [10, 0, 0, 9];
    let mut bench = Bench::new(64);
    let question = icmp(A, B, 8, 1, &[]);
    assert_eq!(bench.state(&question), New);
    assert_eq!(bench.state(&icmp(B, A, 0, 1, &[])), Established);
    assert_eq!(bench.state(&icmp(B, A, 0, 9, &[])), Invalid, "nobody asked");
    assert_eq!(bench.state(&icmp(A, B, 42, 1, &[])), Invalid);
    let sent = udp(6000, 7, false);
    assert_eq!(bench.state(&sent), New);
    let quote = &sent[14..];
    for kind in [3, 4, 5, 11, 12] {
        assert_eq!(bench.state(&icmp(B, A, kind, 0, quote)), Related, "{kind}");
    }
    assert_eq!(bench.state(&icmp(ROUTER, A, 11, 0, quote)), Related);
    assert_eq!(
        bench.state(&icmp(ROUTER, B, 11, 0, quote)),
        Invalid,
        "B did not send it"
    );
    assert_eq!(bench.state(&icmp(ROUTER, A, 3, 0, &quote[..20])), Invalid);
    assert_eq!(bench.state(&icmp(ROUTER, A, 3, 0, &quote[..24])), Related);
    assert_eq!(
        bench.state(&icmp(B, A, 3, 0, &udp(6001, 7, false)[14..])),
        Invalid
    );
    assert_eq!(
        bench.state(&icmp(ROUTER, A, 3, 0, &question[14..])),
        Related
    );
}

#[test]
fn neighbours_and_listeners_are_not_tracked() {
    let (from, to) = ([1; 16], [2; 16]);
    let mut bench = Bench::new(64);
    for (kind, expected) in [
        (128, State::New),
        (129, State::Invalid),
        (130, State::Untracked),
        (135, State::Untracked),
        (136, State::Untracked),
        (137, State::Invalid),
        (143, State::Untracked),
        (1, State::Invalid),
    ] {
        let frame = ip6(from, to, 58, &[kind, 0, 0, 0, 0, kind, 0, 0]);
        assert_eq!(bench.state(&frame), expected, "{kind}");
    }
    let answer = ip6(to, from, 58, &[129, 0, 0, 0, 0, 128, 0, 0]);
    assert_eq!(bench.state(&answer), State::Established);
    let sent = ip6(from, to, 17, &udp_header(1, 2, 0));
    bench.state(&sent);
    let error = [&[1, 0, 0, 0, 0, 0, 0, 0], &sent[14..]].concat();
    assert_eq!(bench.state(&ip6([3; 16], from, 58, &error)), State::Related);
    let arp = [0u8; 42];
    let mut arp = arp.to_vec();
    arp[12..20].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4]);
    assert_eq!(bench.state(&arp), State::Untracked);
}

#[test]
fn other_protocols_are_flows_of_addresses() {
    let mut bench = Bench::new(64);
    assert_eq!(bench.state(&ip(A, B, 47, 0, &[0; 8])), State::New);
    assert_eq!(bench.state(&ip(B, A, 50, 0, &[0; 8])), State::New);
    assert_eq!(bench.state(&ip(B, A, 47, 0, &[1; 8])), State::Established);
}

#[test]
fn a_vlan_is_apart() {
    let mut bench = Bench::new(64);
    let tagged = |vlan, frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat();
    assert_eq!(bench.state(&tagged(5, udp(1, 2, false))), State::New);
    assert_eq!(bench.state(&tagged(6, udp(1, 2, true))), State::New);
    assert_eq!(bench.state(&tagged(5, udp(1, 2, true))), State::Established);
}

#[test]
fn fragments_share_the_fate_of_the_first() {
    const MORE: u16 = 0x2000;
    let mut bench = Bench::new(64);
    let first = ip(A, B, 17, MORE, &udp_header(7, 8, 1472)[..1480]);
    let later = ip(A, B, 17, 185, &[0; 100]);
    let seen = |bench: &mut Bench, frame: &[u8], verdict| bench.look(frame, verdict, |_| ());
    let key = Key::parse(&later).unwrap();
    let judge = |bench: &mut Bench, frame: &[u8]| {
        let now = bench.now;
        bench.table.judge(&key, frame, Sought::NOTHING, now, |_| {
            panic!("no rule is asked")
        })
    };
    assert_eq!(judge(&mut bench, &later), Err(Refused::Fragment));
    seen(&mut bench, &first, Verdict::Drop).unwrap();
    assert_eq!(judge(&mut bench, &later), Ok((Verdict::Drop, 0)));
    seen(&mut bench, &first, Verdict::Accept).unwrap();
    assert_eq!(judge(&mut bench, &later), Ok((Verdict::Accept, 0)));
    bench.now += 31 * SECOND;
    assert_eq!(judge(&mut bench, &later), Err(Refused::Fragment));
    seen(&mut bench, &first, Verdict::Accept).unwrap();
    bench.table.rules_changed();
    assert_eq!(judge(&mut bench, &later), Err(Refused::Fragment));
}

/// A UDP packet from one of many sources.
fn from_source(source: u32, port: u16) -> Vec<u8> {
    ip(source.to_be_bytes(), B, 17, 0, &udp_header(port, 53, 0))
}

#[test]
fn a_full_table_keeps_what_both_sides_confirmed() {
    let mut bench = Bench::new(64);
    for port in 0..40 {
        bench.open(port);
    }
    for source in 0..1000 {
        assert_eq!(bench.state(&from_source(source, 1)), State::New);
    }
    assert_eq!((bench.flows(), bench.table.counts().given_up), (64, 976));
    for port in 0..40 {
        let frame = seg(port, false, ACK, 1001, 5001, 1);
        assert_eq!(bench.state(&frame), State::Established);
    }
    // The oldest ones have gone.
    assert_eq!(bench.state(&from_source(999, 1)), State::New);
    assert_eq!(bench.flows(), 64);
}

#[test]
fn a_table_of_confirmed_connections_takes_no_others() {
    let mut bench = Bench::new(4);
    for port in 0..4 {
        bench.open(port);
    }
    let refused = bench.look(&udp(1, 2, false), Verdict::Accept, |it| it.state());
    assert_eq!(refused, Err(Refused::Full));
    let closed = seg(3, false, RST, 1001, 0, 0);
    assert_eq!(bench.state(&closed), State::Established);
    assert_eq!(
        bench.state(&udp(1, 2, false)),
        State::New,
        "a closed one makes room"
    );
}

#[test]
fn a_source_cannot_take_the_whole_table() {
    let mut bench = Bench::new(64);
    let mut taken = 0;
    for port in 0..64 {
        taken += usize::from(
            bench
                .look(&from_source(1, port), Verdict::Accept, |_| ())
                .is_ok(),
        );
    }
    assert_eq!(taken, 16);
    let refused = bench.look(&from_source(1, 99), Verdict::Accept, |_| ());
    assert_eq!(refused, Err(Refused::Source));
    assert_eq!(bench.state(&from_source(2, 1)), State::New);
    bench.now += 31 * SECOND;
    bench.table.expire(bench.now);
    assert_eq!(bench.state(&from_source(1, 99)), State::New);
}

#[test]
fn expiry_is_bounded() {
    let mut bench = Bench::new(1024);
    for source in 0..200 {
        bench.state(&from_source(source, 1));
    }
    bench.now += 31 * SECOND;
    for left in [136, 72, 8, 0, 0] {
        bench.table.expire(bench.now);
        assert_eq!(bench.flows(), left);
    }
    assert_eq!(bench.table.counts().expired, 200);
}

#[test]
fn a_mark_stays_with_the_connection() {
    let mut bench = Bench::new(64);
    let mark = |connection: &Connection<'_>| {
        let before = connection.narrow(crate::fields::Slot::CtMark);
        connection.set_mark(before + 1);
        before
    };
    for (reply, expected) in [(false, 0), (true, 1), (false, 2)] {
        let seen = bench.look(&udp(1, 2, reply), Verdict::Accept, mark);
        assert_eq!(seen, Ok(expected));
    }
}

#[test]
fn flows_take_as_much_as_is_said() {
    assert_eq!(FLOW_BYTES, [128, 176]);
    assert_eq!(Conntrack::memory(1024), 1024 * (128 + 176));
}

/// A frame of one of a few flows.
fn some_frame() -> impl Strategy<Value = Vec<u8>> {
    let flags = proptest::sample::select(vec![SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK, 0]);
    let number = prop_oneof![
        Just(1000u32),
        Just(1001),
        Just(5000),
        Just(5001),
        any::<u32>()
    ];
    let number = number.boxed();
    let tcp = (
        0..4u16,
        any::<bool>(),
        flags,
        number.clone(),
        number,
        0..3usize,
    );
    prop_oneof![
        4 => tcp.prop_map(|(port, reply, flags, s, a, data)| seg(port, reply, flags, s, a, data)),
        1 => (0..4u16, any::<bool>()).prop_map(|(port, reply)| udp(port, 53, reply)),
        1 => (0..40u32, 0..3u16).prop_map(|(source, port)| from_source(source, port)),
        1 => (0..20u8, 0..2u16).prop_map(|(kind, id)| {
            icmp(A, B, kind, id, &udp(1, 53, false)[14..])
        }),
    ]
}

proptest! {
    #[test]
    fn the_table_is_sound_whatever_comes(
        frames in proptest::collection::vec((some_frame(), any::<bool>(), 0..50u64), 1..300)
    ) {
        let mut bench = Bench::new(16);
        for (frame, accepted, seconds) in frames {
            bench.now += seconds * SECOND / 10;
            bench.table.expire(bench.now);
            let verdict = if accepted { Verdict::Accept } else { Verdict::Drop };
            let _ = bench.look(&frame, verdict, |_| ());
            bench.table.table4.check();
        }
    }

    #[test]
    fn others_do_not_change_a_connection(
        frames in proptest::collection::vec(some_frame(), 1..300)
    ) {
        let mut bench = Bench::new(16);
        bench.open(77);
        let mut sent = 0u32;
        for frame in frames {
            let _ = bench.look(&frame, Verdict::Accept, |_| ());
            sent += 1;
            let data = seg(77, false, ACK, 1000 + sent, 5001, 1);
            prop_assert_eq!(bench.state(&data), State::Established);
            let answer = seg(77, true, ACK, 5001, 1001 + sent, 0);
            prop_assert_eq!(bench.state(&answer), State::Established);
        }
    }

    #[test]
    fn any_bytes_are_judged(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        protocol in proptest::sample::select(vec![6u8, 17, 1, 50]),
    ) {
        let frame: Box<[u8]> = ip(A, B, protocol, 0, &bytes).into();
        if let Ok(key) = Key::parse(&frame) {
            let mut bench = Bench::new(4);
            let sought = Sought::NOTHING;
            let accept = |_: &Connection<'_>| (Verdict::Accept, 0);
            let judged = bench.table.judge(&key, &frame, sought, 0, accept);
            prop_assert!(judged.is_ok());
            bench.table.table4.check();
        }
    }
}
