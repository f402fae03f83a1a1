//! Connections that others fill: whatever comes, and whenever, an open connection stays what it is,
//! and the table holds as many flows as it says. Input: frames, each behind a byte of its length, a
//! byte of the time since the one before, and a byte of what rules say.
//!
//! Or a table that an image has left, if the input begins like one, and such frames behind it: what
//! is taken up of it is whole, or nothing.

use nf::conntrack::{Class, Conntrack, Sought, State};
use nf::{Key, Verdict};

const FLOWS: usize = 16;
/// A unit of time in the input, in nanoseconds.
const TIME_UNIT: u64 = 10_000_000;

/// A segment of a connection that the input cannot name: its addresses are not IPv4's.
fn segment(reply: bool, seq: u32, ack: u32, flags: u8, data: usize) -> Vec<u8> {
    let (a, b) = ([0xfd; 16], [0xfe; 16]);
    let (from, to, ports) = match reply {
        false => (a, b, [0x1234u16, 80]),
        true => (b, a, [80, 0x1234]),
    };
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0,
    ];
    frame.extend((20 + data as u16).to_be_bytes());
    frame.extend([6, 64]);
    frame.extend([from, to].concat());
    frame.extend(ports.map(u16::to_be_bytes).concat());
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(frame.len() + data, 0);
    frame
}

struct Table {
    connections: Conntrack,
    now: u64,
}

impl Table {
    fn judge(&mut self, frame: &[u8], verdict: Verdict) -> Option<State> {
        let key = Key::parse(frame).ok()?;
        let mut seen = None;
        // As most frames are looked at, or not.
        let sought = match verdict {
            Verdict::Accept => match self.connections.goes_on(frame, self.now) {
                Ok(()) => return Some(State::Established),
                Err(sought) => sought,
            },
            Verdict::Drop => Sought::NOTHING,
        };
        let _ = self
            .connections
            .judge(&key, frame, sought, self.now, |connection| {
                seen = Some(connection.state());
                (verdict, 0)
            });
        seen
    }
}

/// Flows of each family in a table that was left, and its bytes.
pub const LEFT_FLOWS: usize = 4;
pub const LEFT_BYTES: usize = 2368;

/// Goes on with a table that was left, and once more with what that leaves.
fn left(input: &[u8]) {
    let (memory, rest) = input.split_at(LEFT_BYTES.min(input.len()));
    let Some((connections, taken_up)) = Conntrack::take_up_copy(memory, &[5; 16], 0) else {
        return;
    };
    let capacity = connections.capacity();
    let count = |connections: &Conntrack| {
        let counts = Class::ALL.iter().map(|class| connections.count(*class));
        counts.sum::<u32>()
    };
    assert_eq!(count(&connections), taken_up.flows);
    assert!(taken_up.refused.is_none() || taken_up.flows == 0);
    let mut table = Table {
        connections,
        now: 0,
    };
    let mut rest = rest;
    while let [length, time, tail @ ..] = rest {
        let (frame, behind) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = behind;
        table.now += u64::from(*time) * TIME_UNIT;
        table.connections.expire(table.now);
        table.judge(frame, Verdict::Accept);
        assert!(count(&table.connections) as usize <= 2 * capacity);
    }
    // Each ends some time.
    for _ in 0..2 {
        table.now += 500_000 * 1_000_000_000;
        table.connections.expire(table.now);
    }
    assert_eq!(count(&table.connections), 0);
}

pub fn feed(input: &[u8]) {
    if input.starts_with(b"OBflows") {
        left(input);
        return;
    }
    let mut table = Table {
        connections: Conntrack::new(FLOWS, &[5; 16]),
        now: 0,
    };
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    table.judge(&segment(false, 1000, 0, SYN, 0), Verdict::Accept);
    table.judge(&segment(true, 2000, 1001, SYN | ACK, 0), Verdict::Accept);
    table.judge(&segment(false, 1001, 2001, ACK, 0), Verdict::Accept);
    let (mut rest, mut sent) = (input, 0u32);
    while let [length, time, accepted, tail @ ..] = rest {
        let (frame, behind) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = behind;
        table.now += u64::from(*time) * TIME_UNIT;
        table.connections.expire(table.now);
        // What names the connection itself may change it.
        let names_it = frame
            .windows(16)
            .any(|part| part == [0xfd; 16] || part == [0xfe; 16]);
        if !names_it {
            let verdict = if accepted & 1 == 0 {
                Verdict::Accept
            } else {
                Verdict::Drop
            };
            table.judge(frame, verdict);
        }
        sent += 1;
        let data = segment(false, 1000 + sent, 2001, ACK, 1);
        assert_eq!(
            table.judge(&data, Verdict::Accept),
            Some(State::Established)
        );
        let answer = segment(true, 2001, 1001 + sent, ACK, 0);
        assert_eq!(
            table.judge(&answer, Verdict::Accept),
            Some(State::Established)
        );
        let open: u32 = Class::ALL
            .iter()
            .map(|class| table.connections.count(*class))
            .sum();
        assert!(open as usize <= 2 * FLOWS);
    }
}
