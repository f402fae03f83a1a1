//! Scripts from a seed.

use crate::script::{
    ACK, Call, FIN, Heard, Place, Report, SYN, Sent, Step, ack, data, fin, rst, syn,
};
use fastrand::Rng;
use std::ops::Range;

/// Steps behind the opening, at most: with more data, our side would put acknowledgements off.
const STEPS_MAX: usize = 12;
/// Payload of a segment, at most.
const LEN_MAX: u16 = 1400;
/// Where pieces of data begin and end, in a part of the scripts: so they meet more often.
const GRAIN: i32 = 100;

/// The seeds that were asked for, as FIRST..LAST in `OUTBOARD_SEEDS`; or the first so many.
///
/// # Panics
/// If it has another form.
pub fn seeds(count: u64) -> Range<u64> {
    let Ok(asked) = std::env::var("OUTBOARD_SEEDS") else {
        return 0..count;
    };
    let seeds = asked
        .split_once("..")
        .and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?));
    seeds.expect("OUTBOARD_SEEDS=FIRST..LAST")
}

/// The script of a seed.
pub fn script(seed: u64) -> Vec<Step> {
    let mut story = Story {
        rng: Rng::with_seed(seed),
        next: 1,
        steps: Vec::new(),
    };
    story.open();
    for _ in 0..story.rng.usize(1..=STEPS_MAX) {
        let step = story.step();
        story.steps.push(step);
    }
    story.steps
}

struct Story {
    rng: Rng,
    /// Behind the data that the peer has sent in order.
    next: i32,
    steps: Vec<Step>,
}

impl Story {
    fn one_of(&mut self, count: u32) -> bool {
        self.rng.u32(..count) == 0
    }

    /// A SYN with some of all options.
    fn syn(&mut self) -> Sent {
        let full = !self.one_of(3);
        let mut keeps = || full || self.rng.bool();
        Sent {
            mss: keeps().then_some(1460),
            scale: keeps().then_some(0),
            sack_permitted: keeps(),
            stamp: keeps().then_some(0),
            ..syn()
        }
    }

    fn open(&mut self) {
        let first = self.syn();
        match self.rng.u32(..12) {
            // It stays half open.
            0 => self.steps.push(first.into()),
            1..=2 => {
                let flags = SYN | ACK;
                let ack = Some(Heard::All(0));
                let answer = Sent {
                    flags,
                    ack,
                    ..first
                };
                self.steps.extend([Call::Connect.into(), answer.into()]);
            }
            _ => self.steps.extend([first.into(), ack(1).into()]),
        }
    }

    fn len(&mut self) -> u16 {
        match self.rng.bool() {
            true => self.rng.u16(1..=4) * GRAIN as u16,
            false => self.rng.u16(1..=LEN_MAX),
        }
    }

    /// A place not far from what is expected.
    fn near(&mut self) -> i32 {
        match self.rng.bool() {
            true => self.next + self.rng.i32(-5..=8) * GRAIN,
            false => self.next + self.rng.i32(-600..=1500),
        }
    }

    fn step(&mut self) -> Step {
        match self.rng.u32(..100) {
            0..30 => self.in_order().into(),
            30..50 => {
                let (at, len) = (self.near(), self.len());
                let mut sent = data(at, len);
                if self.one_of(8) {
                    sent.flags |= FIN;
                }
                self.vary(sent).into()
            }
            50..62 => {
                let sent = ack(self.next);
                self.vary(sent).into()
            }
            62..68 => {
                let place = match self.one_of(4) {
                    true => self.near(),
                    false => self.next,
                };
                fin(place).into()
            }
            68..73 => self.reset().into(),
            73..77 => self.syn_again().into(),
            77..80 => self.report().into(),
            _ => self.call().into(),
        }
    }

    fn in_order(&mut self) -> Sent {
        let len = self.len();
        let sent = data(self.next, len);
        self.next += i32::from(len);
        self.vary(sent)
    }

    /// The same, with something odd in few of them.
    fn vary(&mut self, sent: Sent) -> Sent {
        match self.rng.u32(..16) {
            0 => Sent {
                ack: Some(Heard::All(self.rng.i32(-50..=5))),
                ..sent
            },
            1 => Sent {
                ack: Some(Heard::Stream(self.rng.i32(-5..=500))),
                ..sent
            },
            2 => Sent {
                ack: None,
                flags: sent.flags & !ACK,
                ..sent
            },
            3 => Sent {
                stamp: Some(self.rng.i32(-20..=5)),
                ..sent
            },
            4 => Sent {
                seq: Place::Edge(self.rng.i32(1..=50)),
                ..sent
            },
            5 => Sent {
                window: self.rng.u16(20_000..),
                ..sent
            },
            _ => sent,
        }
    }

    fn reset(&mut self) -> Sent {
        let place = match self.rng.u32(..4) {
            0 => Place::Acked(0),
            1 => Place::Acked(self.rng.i32(-3..=50)),
            2 => Place::Edge(self.rng.i32(1..=3)),
            _ => Place::Stream(self.near()),
        };
        let with_ack = self.rng.bool();
        Sent {
            ack: with_ack.then_some(Heard::All(0)),
            flags: rst(place).flags | if with_ack { ACK } else { 0 },
            ..rst(place)
        }
    }

    fn syn_again(&mut self) -> Sent {
        let seq = match self.rng.bool() {
            true => Place::Stream(0),
            false => Place::Acked(self.rng.i32(-20..=200)),
        };
        let with_ack = self.one_of(3);
        Sent {
            seq,
            ack: with_ack.then_some(Heard::All(0)),
            flags: SYN | if with_ack { ACK } else { 0 },
            ..syn()
        }
    }

    fn report(&mut self) -> Report {
        Report {
            // Of a host, a protocol and a port that nobody reaches, and what a filter forbids.
            code: *self.rng.choice(&[1, 2, 3, 13]).unwrap_or(&3),
            mtu: 0,
            ahead: *self.rng.choice(&[0, 0, 1, 5000]).unwrap_or(&0),
        }
    }

    fn call(&mut self) -> Call {
        match self.rng.u32(..16) {
            0..6 => Call::Write(self.rng.usize(1..=3000)),
            6..11 => Call::Read,
            11..13 => Call::Shutdown,
            13..15 => Call::Close,
            _ => Call::Abort,
        }
    }
}
