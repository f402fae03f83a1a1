//! What the sender of a packet is told that rules reject.

use super::frame::{frame, icmp, is_right, packet, part, tcp, udp};
use super::*;
use crate::key::protocol::{ICMP, ICMPV6, TCP, UDP};
use std::format;
use std::string::String;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const CLIENT6: &str = "2001:db8:2::2";
const SERVER6: &str = "2001:db8:1::80";
const INSIDE6: &str = "2001:db8:2::1";

/// A table with one rule at the hook `forward`.
fn forward(rule: &str) -> String {
    format!("table inet t {{\nchain c {{\ntype filter hook forward priority 0;\n{rule}\n}}\n}}\n")
}

impl Bench {
    /// What leaves by the port that a frame came in by, which is to be rejected.
    fn told(&mut self, from: u8, mut frame: Vec<u8>) -> Result<Option<Vec<u8>>, Stop> {
        let local = Local::of(&[ip(INSIDE), ip(INSIDE6)]);
        let mut passage = Passage::new();
        let mut hooks = self.hooks();
        let arrival = Arrival {
            port: from,
            local,
            partial: false,
        };
        let mut stopped = hooks.prerouting(&mut passage, &mut frame, arrival);
        if stopped.is_ok() {
            stopped = hooks.forward(&mut passage, 1 - from);
        }
        let Err(Stop::Rejected(_, rejection)) = stopped else {
            return stopped.map(|()| None);
        };
        let own = match frame[14] >> 4 {
            4 => ip(INSIDE),
            _ => ip(INSIDE6),
        };
        let mut place = [0xee; ANSWER_MAX];
        let Some(length) = passage.answer(rejection, &frame, own, &mut place) else {
            return Ok(None);
        };
        let mut answer = Passage::new();
        let bytes = &mut place[..length];
        hooks.answers(&passage, &mut answer, bytes, from, local)?;
        assert!(is_right(bytes), "{bytes:02x?}");
        Ok(Some(bytes.to_vec()))
    }
}

/// A packet of these ends, and what is said of it.
fn told(rule: &str, ends: (&str, &str), number: u8, payload: Vec<u8>) -> Option<Vec<u8>> {
    let mut bench = Bench::new(&forward(rule));
    let frame = frame(&packet(ip(ends.0), ip(ends.1), number, payload));
    bench.told(0, frame).unwrap()
}

/// The type and the code of an error.
fn code(told: &[u8]) -> (u8, u8) {
    let at = if told[14] >> 4 == 4 { 34 } else { 54 };
    (told[at], told[at + 1])
}

#[test]
fn an_error_says_why_and_quotes_the_packet() {
    let (v4, v6) = ((CLIENT, SERVER), (CLIENT6, SERVER6));
    for (rule, expected4, expected6) in [
        ("reject", Some(3), Some(4)),
        ("reject with icmpx no-route", Some(0), Some(0)),
        ("reject with icmpx host-unreachable", Some(1), Some(3)),
        ("reject with icmpx admin-prohibited", Some(13), Some(1)),
        ("reject with icmp host-prohibited", Some(10), None),
        ("reject with icmpv6 policy-fail", None, Some(5)),
        ("udp dport 53 counter reject", Some(3), Some(4)),
    ] {
        let said = told(rule, v4, UDP, udp([9, 53], b"abc"));
        assert_eq!(said.map(|said| code(&said)), expected4.map(|it| (3, it)));
        let said = told(rule, v6, UDP, udp([9, 53], b"abc"));
        assert_eq!(said.map(|said| code(&said)), expected6.map(|it| (1, it)));
    }
    let long = packet(ip(CLIENT), ip(SERVER), UDP, udp([9, 53], &[7; 1200]));
    let said = told("reject", v4, UDP, udp([9, 53], &[7; 1200])).unwrap();
    assert_eq!(said.len(), 14 + 576);
    assert_eq!(said[15], 0xc0);
    assert_eq!(said[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(said[42..], long[..548]);
    let said = told("reject", v6, UDP, udp([9, 53], &[7; 1400])).unwrap();
    assert_eq!(said.len(), 14 + 1280);
}

#[test]
fn a_reset_is_one_of_the_connection() {
    let reject = "reject with tcp reset";
    let question = tcp([1000, 80], 77, 0, SYN);
    let said = told(reject, (CLIENT, SERVER), TCP, question.clone()).unwrap();
    // It comes from whom the segment was for, and acknowledges it.
    assert_eq!(
        said[14..26],
        [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, said[24], said[25]]
    );
    assert_eq!(ends(&said), (ip(SERVER), ip(CLIENT), [80, 1000]));
    assert_eq!(said[38..46], [0, 0, 0, 0, 0, 0, 0, 78]);
    assert_eq!(said[46..50], [0x50, RST | ACK, 0, 0]);
    let answered = tcp([1000, 80], 5, 99, ACK);
    let said = told(reject, (CLIENT, SERVER), TCP, answered).unwrap();
    assert_eq!(said[38..46], [0, 0, 0, 99, 0, 0, 0, 0]);
    assert_eq!(said[47], RST);
    let said = told(reject, (CLIENT6, SERVER6), TCP, question).unwrap();
    assert_eq!((said.len(), said[20], said[21]), (74, TCP, 64));
    // Another protocol has none: the rule does not match it.
    assert_eq!(told(reject, (CLIENT, SERVER), UDP, udp([1, 2], b"")), None);
}

#[test]
fn nobody_is_told_of_errors_resets_and_groups() {
    let quoted = packet(ip(SERVER), ip(CLIENT), UDP, udp([53, 9], b""));
    let error = icmp(3, 3, [0; 4], &quoted);
    assert_eq!(told("reject", (CLIENT, SERVER), ICMP, error), None);
    let error = icmp(1, 4, [0; 4], &[0; 48]);
    assert_eq!(told("reject", (CLIENT6, SERVER6), ICMPV6, error), None);
    let reset = tcp([1, 2], 5, 0, RST);
    let reject = "reject with tcp reset";
    assert_eq!(told(reject, (CLIENT, SERVER), TCP, reset), None);
    let question = || udp([9, 53], b"");
    assert_eq!(told("reject", (CLIENT, "224.0.0.9"), UDP, question()), None);
    assert_eq!(told("reject", ("0.0.0.0", SERVER), UDP, question()), None);
    assert_eq!(told("reject", (CLIENT6, "ff02::5"), UDP, question()), None);
    // A segment that was damaged on its way, or forged.
    let mut bench = Bench::new(&forward(reject));
    let mut damaged = frame(&packet(ip(CLIENT), ip(SERVER), TCP, tcp([1, 2], 5, 0, SYN)));
    damaged[50] ^= 1;
    assert_eq!(bench.told(0, damaged), Ok(None));
    // Only the first part of a packet is answered, and all of it is dropped.
    let mut bench = Bench::new(&forward("reject"));
    let bytes = udp([9, 53], &[1; 32]);
    let first = part(ip(CLIENT), ip(SERVER), UDP, 0x2000, &bytes[..24]);
    let later = part(ip(CLIENT), ip(SERVER), UDP, 3, &bytes[24..]);
    assert!(matches!(bench.told(0, frame(&first)), Ok(Some(_))));
    assert_eq!(bench.told(0, frame(&later)), Err(Stop::Rule(0)));
}

#[test]
fn the_sender_is_told_by_whom_it_asked() {
    let rules = |reject: &str| {
        let text = nat("prerouting", "tcp dport 8080 dnat ip to 10.0.0.3:80");
        let filter = "chain o { type filter hook output priority 0; ct state related counter; \
                      ct status dnat ct direction reply counter; }";
        let reject = forward(&format!("ct state new {reject}"));
        text + &reject.replacen("chain c", &format!("{filter}\nchain c"), 1)
    };
    let question = tcp([1000, 8080], 77, 0, SYN);
    let question = frame(&packet(ip(SERVER), ip(OUTSIDE), TCP, question));
    let mut bench = Bench::new(&rules("reject with tcp reset"));
    let said = bench.told(1, question.clone()).unwrap().unwrap();
    assert_eq!(ends(&said), (ip(OUTSIDE), ip(SERVER), [8080, 1000]));
    assert_eq!(bench.counts.0[1..3], [1, 1]);
    // The connection has not begun.
    assert_eq!(bench.connections.table.counts().begun, 0);
    let mut bench = Bench::new(&rules("reject"));
    let said = bench.told(1, question).unwrap().unwrap();
    let quoted = [&said[..14], &said[42..82]].concat();
    assert_eq!(ends(&quoted), (ip(SERVER), ip(OUTSIDE), [1000, 8080]));
}

#[test]
fn a_reset_ends_the_connection() {
    use crate::conntrack::Class;
    let text = forward("tcp dport 80 ct mark 1 reject with tcp reset; ct mark set 1");
    let mut bench = Bench::new(&text);
    let ends = (CLIENT, SERVER);
    bench
        .pass(0, ends, TCP, tcp([1000, 80], 1, 0, SYN))
        .unwrap();
    let back = (SERVER, CLIENT);
    bench
        .pass(1, back, TCP, tcp([80, 1000], 9, 2, SYN | ACK))
        .unwrap();
    assert_eq!(bench.connections.table.count(Class::Close), 0);
    let segment = packet(ip(CLIENT), ip(SERVER), TCP, tcp([1000, 80], 2, 10, ACK));
    let said = bench.told(0, frame(&segment)).unwrap().unwrap();
    assert_eq!((said[47], &said[38..42]), (RST, &[0, 0, 0, 10][..]));
    assert_eq!(bench.connections.table.count(Class::Close), 1);
    // The kernel closes it even if the reset does not leave.
    let output = "chain o { type filter hook output priority 0; policy drop; }";
    let mut bench = Bench::new(&text.replacen("chain c", &format!("{output}\nchain c"), 1));
    bench
        .pass(0, ends, TCP, tcp([1000, 80], 1, 0, SYN))
        .unwrap();
    bench
        .pass(1, back, TCP, tcp([80, 1000], 9, 2, SYN | ACK))
        .unwrap();
    let segment = packet(ip(CLIENT), ip(SERVER), TCP, tcp([1000, 80], 2, 10, ACK));
    assert!(bench.told(0, frame(&segment)).is_err());
    assert_eq!(bench.connections.table.count(Class::Close), 1);
}
