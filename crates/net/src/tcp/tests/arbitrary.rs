//! Arbitrary segments, wishes and times: whatever happens, a connection's numbers hold.

use super::transfers::seeds;
use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::{Agreed, Greeted, NEVER};
use crate::tcp::segment::{Flags, Options};
use crate::tcp::seq::Seq;
use crate::tcp::{Config, Connection, Limits, Opening, Segment, State};
use core::time::Duration;
use fastrand::Rng;
use ports::Instant;

/// Runs in a plain `cargo test`.
const RUNS: u64 = 10_000;
/// What happens in one run.
const STEPS: u32 = 150;
/// Segments that a connection sends in one go, at most, for what is queued here.
const SENDS: u32 = 5000;
/// Bytes that are queued at most, and not acknowledged.
const QUEUED: u32 = 300_000;

struct Run {
    rng: Rng,
    connection: Connection,
    limits: Limits,
    now: Instant,
    /// The largest window that there was.
    receive: u32,
}

fn any_limits(rng: &mut Rng) -> Limits {
    let segment = *rng.choice(&[100, 576, 1220, 1480, 9000]).unwrap();
    Limits {
        segment,
        largest: *rng.choice(&[segment, segment + 7, 65_000]).unwrap(),
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let receive = *rng.choice(&[0, 1, 100, 5000, 65_535, 300_000]).unwrap();
        let config = Config {
            receive,
            receive_max: *rng.choice(&[0, 1 << 20, 1 << 30]).unwrap(),
            algorithm: *rng.choice(&[Algorithm::Reno, Algorithm::Cubic]).unwrap(),
            no_delay: rng.bool(),
            keep_alive: rng.bool().then(|| Duration::from_secs(rng.u64(1..1000))),
            patience: Duration::from_secs(rng.u64(1..1000)),
        };
        let opening = Opening {
            iss: Seq(rng.u32(..)),
            stamp_offset: rng.u32(..),
            mss: *rng.choice(&[88, 536, 1460, 8960, 65_535]).unwrap(),
        };
        let now = Instant(rng.u64(1..1 << 60));
        let agreed = Agreed {
            opening,
            irs: Seq(rng.u32(..)),
            peer_mss: rng.u16(88..),
            peer_scale: rng.bool().then(|| rng.u8(0..=14)),
            sack: rng.bool(),
            peer_stamp: rng.bool().then(|| rng.u32(..)),
        };
        let connection = match rng.u32(..4) {
            0 => Connection::connect(config, opening),
            _ => Connection::accept(config, &agreed, Greeted::Unknown, now),
        };
        Self {
            limits: any_limits(&mut rng),
            rng,
            connection,
            now,
            receive,
        }
    }

    /// A number near one of those that count.
    fn near(&mut self, numbers: &[Seq]) -> Seq {
        let number = *self.rng.choice(numbers).unwrap();
        match self.rng.u32(..16) {
            0 => number + self.rng.u32(..),
            1 => number + (1 << 31) - self.rng.u32(..3),
            2..=4 => number + self.rng.u32(..5000),
            5 => number - self.rng.u32(..5000),
            6 => number + self.rng.u32(1..3),
            7 => number - self.rng.u32(1..3),
            _ => number,
        }
    }

    fn any_segment(&mut self) -> Segment {
        let c = &self.connection;
        let ours = [c.una, c.una, c.next, c.next, c.queued, c.iss];
        let theirs = [c.expected, c.expected, c.offered, c.unread];
        let recent = c.stamps.map(|stamps| stamps.recent);
        let opens = c.is_opening() || c.state() == State::SynSent;
        let (seq, ack) = (self.near(&theirs), self.near(&ours));
        let rng = &mut self.rng;
        let flags = Flags {
            fin: rng.u32(..10) == 0,
            syn: rng.u32(..if opens { 2 } else { 30 }) == 0,
            rst: rng.u32(..60) == 0,
            psh: rng.bool(),
            ack: rng.u32(..20) != 0,
            urg: rng.u32(..20) == 0,
        };
        let len = *rng.choice(&[0, 0, 0, 1, 100, 1448, 60_000]).unwrap();
        let window = *rng.choice(&[0, 1, 500, 20_000, 65_535]).unwrap();
        let step = rng.u32(..1000);
        let stamp = match rng.u32(..20) {
            0 => None,
            1 => Some(rng.u32(..)),
            2 => recent.map(|recent| recent.wrapping_sub(step)),
            _ => recent.map(|recent| recent.wrapping_add(step)),
        };
        let mut options = Options {
            mss: rng.bool().then(|| rng.u16(..)),
            scale: rng.bool().then(|| rng.u8(0..=14)),
            sack_permitted: rng.bool(),
            timestamps: stamp.map(|stamp| (stamp, rng.u32(..))),
            ..Options::default()
        };
        for _ in 0..rng.u32(..4) {
            let start = self.near(&ours);
            let end = match self.rng.bool() {
                true => start + self.rng.u32(..4000),
                false => self.near(&ours),
            };
            options.sack.push((start, end));
        }
        Segment {
            seq,
            ack,
            flags,
            len,
            window,
            options,
            ..Segment::default()
        }
    }

    fn step(&mut self) {
        match self.rng.u32(..16) {
            0..=6 => self.receive(),
            7..=9 => self.pass(),
            10..=12 => self.wish(),
            _ => self.send(),
        }
    }

    fn receive(&mut self) {
        let segment = self.any_segment();
        let (expected, offered) = (self.connection.expected, self.connection.offered);
        let outcome = self.connection.receive(&segment, self.now);
        if let Some(keep) = outcome.keep {
            assert!(keep.len > 0 && keep.skip + keep.len <= segment.len);
            assert_eq!(keep.at, segment.seq + keep.skip);
            assert!(!keep.at.is_before(expected) && !offered.is_before(keep.at + keep.len));
        }
    }

    /// Time passes, to the next deadline or beyond.
    fn pass(&mut self) {
        let deadline = self.connection.deadline();
        self.now = match self.rng.u32(..3) {
            0 if deadline != NEVER => self.now.max(deadline),
            1 => self.now + Duration::from_micros(self.rng.u64(..300_000)),
            _ => self.now + Duration::from_millis(1 << self.rng.u32(..20)),
        };
        if deadline <= self.now {
            self.connection.expire(self.now);
            let next = self.connection.deadline();
            assert!(next > self.now, "a deadline stays in the past");
        }
    }

    fn wish(&mut self) {
        let connection = &mut self.connection;
        match self.rng.u32(..32) {
            0 => connection.shutdown(),
            1 => connection.deafen(self.now),
            2 => connection.abort(),
            3 => connection.set_no_delay(self.rng.bool()),
            4 => connection.set_receive(self.rng.u32(..1 << 21)),
            5 => self.limits = any_limits(&mut self.rng),
            6..=14 => {
                let readable = connection.readable();
                connection.read(self.rng.u32(..=readable));
            }
            _ if connection.may_queue() => {
                let room = QUEUED.saturating_sub(connection.unsent_or_unacknowledged());
                let most = *self.rng.choice(&[1, 100, 3000, QUEUED]).unwrap();
                connection.queue(1 + self.rng.u32(..=room.min(most)));
            }
            _ => {}
        }
        self.receive = self.receive.max(self.connection.receive_window());
    }

    fn send(&mut self) {
        // Sometimes the layer below has no buffer.
        let most = *self.rng.choice(&[1, SENDS, SENDS, SENDS]).unwrap();
        for count in 0..=most {
            let Some(segment) = self.connection.next(self.limits, self.now) else {
                return;
            };
            assert!(count < SENDS, "it never stops: {segment:?}");
            if count == most {
                return;
            }
            let full = self.connection.payload_max(self.limits);
            let (c, header) = (&self.connection, segment.header_size() as u32);
            if segment.len > 0 {
                assert!(!segment.seq.is_before(c.una));
                assert!(!c.queued.is_before(segment.seq + segment.len));
                assert!(header + segment.len.min(full) <= self.limits.segment);
                assert!(header + segment.len <= self.limits.largest);
            }
            self.connection.sent(&segment, self.limits, self.now);
            self.check();
        }
    }

    /// What holds at all times.
    fn check(&self) {
        let c = &self.connection;
        assert!(!c.next.is_before(c.una));
        assert!(!(c.queued + 1).is_before(c.next));
        assert!(c.sent.in_flight() <= c.next - c.una);
        assert!(c.in_flight() <= c.next - c.una);
        assert!(c.readable() <= self.receive + 1, "{}", c.readable());
        assert!(!c.offered.is_before(c.expected));
        let closed = c.state() == State::Closed;
        assert!(!closed || c.deadline() == NEVER);
    }
}

#[test]
fn numbers_hold_whatever_comes() {
    for seed in seeds(RUNS) {
        // A panic shows the last one.
        std::println!("OUTBOARD_SEEDS={seed}..{}", seed + 1);
        let mut run = Run::new(seed);
        let mut before = run.connection.clone();
        for step in 0..STEPS {
            run.step();
            run.check();
            let after = &run.connection;
            assert!(!after.una.is_before(before.una), "{seed}, {step}");
            assert!(!after.next.is_before(before.next), "{seed}, {step}");
            if before.state() != State::SynSent {
                assert!(!after.expected.is_before(before.expected), "{seed}, {step}");
                assert!(!after.offered.is_before(before.offered), "{seed}, {step}");
            }
            before.clone_from(after);
        }
    }
}
