//! One end of a connection against a peer that follows a script.
//!
//! A line is a segment: `F 1+1000 ack 1 win 500 sack 2001-3001 ts 7/8` has FIN (`S` is SYN, `R`
//! RST, `U` URG, `.` none), the number 1, 1000 bytes, and so on. Numbers count from the initial
//! ones. Both wrap, or pass the middle of the space, while a script runs.

use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::NEVER;
use crate::tcp::input::{Outcome, reset_for};
use crate::tcp::segment::Flags;
use crate::tcp::seq::Seq;
use crate::tcp::{Config, Connection, Limits, Opening, Segment};
use core::time::Duration;
use ports::Instant;
use std::format;
use std::string::String;
use std::vec::Vec;

mod closing;
mod loss;
mod opening;
mod options;
mod timers;
mod windows;

const OURS: Seq = Seq(u32::MAX - 2500);
const THEIRS: Seq = Seq(i32::MAX as u32 - 2500);
/// What all segments carry at most.
const MSS: u16 = 1000;

struct Script {
    connection: Connection,
    now: Instant,
    limits: Limits,
    /// Windows are part of what [`Self::out`] says.
    windows: bool,
    /// So are timestamps.
    stamps: bool,
    /// What the last segment led to.
    outcome: Outcome,
}

fn config() -> Config {
    Config {
        algorithm: Algorithm::Reno,
        receive: 60_000,
        receive_max: 60_000,
        ..Config::default()
    }
}

impl Script {
    /// Nothing has been sent.
    fn new(config: Config) -> Self {
        let opening = Opening {
            iss: OURS,
            stamp_offset: 0,
            mss: MSS,
        };
        Self {
            connection: Connection::connect(config, opening),
            now: Instant(1_000_000_000),
            limits: Limits {
                segment: 1020,
                largest: 1020,
            },
            windows: false,
            stamps: false,
            outcome: Outcome::default(),
        }
    }

    /// The peer's SYN is `syn`, and its window 20,000 bytes; the round trip takes 100 ms.
    fn open(config: Config, syn: &str) -> Self {
        let mut script = Self::new(config);
        script.out();
        script.wait(100);
        script.take(&format!("S 0 ack 1 win 20000 mss 1000 {syn}"));
        script.out();
        // All that comes is acknowledged as it is in the middle of a connection.
        script.connection.quick = 0;
        script
    }

    /// Established, with a peer that has SACK.
    fn sack() -> Self {
        Self::open(config(), "sackok")
    }

    /// Established, with a peer that has no options.
    fn plain() -> Self {
        Self::open(config(), "")
    }

    fn take(&mut self, line: &str) -> &mut Self {
        let segment = parse(line);
        self.outcome = self.connection.receive(&segment, self.now);
        self
    }

    /// What a segment is answered with when there is no connection for it.
    fn reset(&mut self, line: &str) -> Option<String> {
        self.take(line);
        let reset = self
            .outcome
            .reset
            .then(|| reset_for(&parse(line)))
            .flatten();
        reset.map(|reset| self.line(&reset))
    }

    /// All that leaves now.
    fn out(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(segment) = self.connection.next(self.limits, self.now) {
            let size = segment.header_size() as u32 + segment.len;
            assert!(size <= self.limits.largest, "{size} bytes: {segment:?}");
            self.connection.sent(&segment, self.limits, self.now);
            lines.push(self.line(&segment));
            assert!(lines.len() < 1000, "it never stops");
        }
        lines
    }

    /// What leaves in so many milliseconds.
    fn wait(&mut self, ms: u64) -> Vec<String> {
        let end = self.now + Duration::from_millis(ms);
        let mut lines = self.out();
        while self.connection.deadline() <= end {
            self.now = self.now.max(self.connection.deadline());
            self.connection.expire(self.now);
            assert!(self.connection.deadline() > self.now, "a timer spins");
            lines.extend(self.out());
        }
        self.now = end;
        lines
    }

    /// Milliseconds until something leaves, and what; nothing, if it never does.
    fn next(&mut self) -> (u64, Vec<String>) {
        let start = self.now;
        loop {
            let deadline = self.connection.deadline();
            if deadline == NEVER {
                return (0, Vec::new());
            }
            self.now = self.now.max(deadline);
            self.connection.expire(self.now);
            let lines = self.out();
            if !lines.is_empty() {
                return ((self.now - start).as_millis() as u64, lines);
            }
        }
    }

    fn write(&mut self, bytes: u32) -> Vec<String> {
        self.connection.queue(bytes);
        self.out()
    }

    fn close(&mut self) -> Vec<String> {
        self.connection.shutdown();
        self.out()
    }

    fn line(&self, segment: &Segment) -> String {
        let flags = segment.flags;
        let mut line = String::new();
        let letters = [(flags.syn, 'S'), (flags.fin, 'F'), (flags.rst, 'R')];
        line.extend(
            letters
                .iter()
                .filter(|letter| letter.0)
                .map(|letter| letter.1),
        );
        if line.is_empty() {
            line.push('.');
        }
        // Wrapping, since one may lie before the initial number.
        line += &format!(" {}", segment.seq.after(OURS));
        if segment.len > 0 {
            line += &format!("+{}", segment.len);
        }
        if flags.ack {
            line += &format!(" ack {}", segment.ack.after(THEIRS));
        }
        if self.windows {
            line += &format!(" win {}", segment.window);
        }
        for (index, (start, end)) in segment.options.sack.iter().enumerate() {
            let word = if index == 0 { " sack" } else { "" };
            line += &format!("{word} {}-{}", start.after(THEIRS), end.after(THEIRS));
        }
        if let (true, Some((value, echo))) = (self.stamps, segment.options.timestamps) {
            line += &format!(" ts {value}/{echo}");
        }
        line
    }
}

/// A segment of the peer's.
fn parse(line: &str) -> Segment {
    let number = |word: &str| word.parse::<i64>().expect("a number") as u32;
    let mut words = line.split_whitespace().peekable();
    let letters = words.next().expect("flags");
    let mut segment = Segment {
        flags: Flags {
            syn: letters.contains('S'),
            fin: letters.contains('F'),
            rst: letters.contains('R'),
            urg: letters.contains('U'),
            ..Flags::default()
        },
        window: 20_000,
        ..Segment::default()
    };
    let place = words.next().expect("a number");
    let (seq, len) = place.split_once('+').unwrap_or((place, "0"));
    segment.seq = THEIRS + number(seq);
    segment.len = number(len);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("a value");
        match word {
            "ack" => {
                segment.flags.ack = true;
                segment.ack = OURS + number(value());
            }
            "win" => segment.window = number(value()) as u16,
            "mss" => segment.options.mss = Some(number(value()) as u16),
            "scale" => segment.options.scale = Some(number(value()) as u8),
            "sackok" => segment.options.sack_permitted = true,
            "ts" => {
                let (stamp, echo) = value().split_once('/').expect("two stamps");
                segment.options.timestamps = Some((number(stamp), number(echo)));
            }
            "sack" => {
                while let Some(block) = words.next_if(|word| word.contains('-')) {
                    let (start, end) = block.split_once('-').expect("a block");
                    let block = (OURS + number(start), OURS + number(end));
                    segment.options.sack.push(block);
                }
            }
            _ => panic!("{word}"),
        }
    }
    segment
}

/// The harness says what it is told.
#[test]
fn a_line_is_a_segment() {
    let segment = parse("F 1+1000 ack 2 win 500 sack 5-6 7-9 ts 7/8");
    assert_eq!((segment.seq, segment.ack), (THEIRS + 1, OURS + 2));
    assert_eq!(
        (segment.len, segment.window, segment.flags.fin),
        (1000, 500, true)
    );
    assert_eq!(
        segment.options.sack[..],
        [(OURS + 5, OURS + 6), (OURS + 7, OURS + 9)]
    );
    assert_eq!(segment.options.timestamps, Some((7, 8)));
}
