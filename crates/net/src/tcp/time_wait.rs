//! Connections that are done, while their old segments may still be under way (RFC 9293, 3.6.1).

use super::connection::{Connection, State, TIME_WAIT};
use super::half_open::milliseconds;
use super::identity::{Ends, Secret};
use super::segment::{Flags, Options, Segment};
use super::seq::Seq;
use alloc::collections::VecDeque;
use core::hash::BuildHasher;
use hashbrown::HashTable;
use ports::Instant;

/// So many are remembered; with more, the oldest is forgotten, as under pressure in Linux
/// (`tcp_max_tw_buckets`).
pub const TIME_WAITS_MAX: usize = 16_384;
/// What lies between the numbers of an old connection and those of the one that takes its place:
/// the window of a peer that does not scale it, so that no old segment lies in the new one's.
const WINDOW_MAX: u32 = 1 << 16;

/// What is kept of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Old {
    ends: Ends,
    /// "SND.NXT".
    next: Seq,
    /// "RCV.NXT".
    expected: Seq,
    /// "TS.Recent", where timestamps are in use.
    recent: u32,
    stamps: bool,
    /// Its place was given to a new connection.
    gone: bool,
    /// When it ends, in milliseconds of the clock.
    until: u32,
}

/// It takes at most 64 bytes, its place in the index included, which is a number of 4 bytes and a
/// byte of the table's for 7 of 8 places.
const _: () = assert!(size_of::<Old>() + 8 <= 64);

/// All of them, the oldest first: each stays for the same time.
#[derive(Debug, Default)]
pub struct TimeWaits {
    olds: VecDeque<Old>,
    /// Count of those that came before the first of `olds`.
    before: u32,
    index: HashTable<u32>,
}

/// What a segment does to an old connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is answered with this.
    Segment(Segment),
    /// A new connection may begin (RFC 9293, 3.10.7.4, and RFC 6191), at this number or behind it,
    /// which lies behind all that the old one has sent (RFC 1122, 4.2.2.13).
    Reopens(Seq),
    /// Nothing.
    Nothing,
}

impl TimeWaits {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Keeps what is needed of a connection in [`State::TimeWait`].
    pub fn insert(
        &mut self,
        ends: Ends,
        connection: &Connection,
        hasher: &impl BuildHasher,
        now: Instant,
    ) {
        debug_assert_eq!(connection.state(), State::TimeWait);
        if self.olds.len() >= TIME_WAITS_MAX {
            self.forget_first(hasher);
        }
        let (next, expected, recent) = connection.numbers();
        self.olds.push_back(Old {
            ends,
            next,
            expected,
            recent: recent.unwrap_or(0),
            stamps: recent.is_some(),
            gone: false,
            until: milliseconds(now + TIME_WAIT),
        });
        let number = self.before.wrapping_add(self.olds.len() as u32 - 1);
        let (olds, before) = (&self.olds, self.before);
        let hash = |number: &u32| hasher.hash_one(olds[number.wrapping_sub(before) as usize].ends);
        self.index
            .insert_unique(hasher.hash_one(ends), number, hash);
    }

    fn forget_first(&mut self, hasher: &impl BuildHasher) {
        if let Some(old) = self.olds.pop_front() {
            if !old.gone {
                let number = self.before;
                let entry = self
                    .index
                    .find_entry(hasher.hash_one(old.ends), |found| *found == number);
                entry.map(|entry| entry.remove()).ok();
            }
            self.before = self.before.wrapping_add(1);
        }
    }

    /// Forgets those whose time is over, at most `most`.
    pub fn expire(&mut self, hasher: &impl BuildHasher, now: Instant, most: usize) {
        for _ in 0..most {
            match self.olds.front() {
                Some(old)
                    if old.gone || (old.until.wrapping_sub(milliseconds(now)) as i32) <= 0 =>
                {
                    self.forget_first(hasher);
                }
                _ => return,
            }
        }
    }

    /// When the first one's time is over.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let first = self.olds.front()?;
        let left = first.until.wrapping_sub(milliseconds(now)) as i32;
        Some(now + core::time::Duration::from_millis(left.max(0) as u64))
    }

    /// A segment between these ends, if there is an old connection between them. `heard`: whether
    /// somebody listens, without whom no new one may begin.
    pub fn receive(
        &mut self,
        ends: &Ends,
        segment: &Segment,
        heard: bool,
        secret: &Secret,
        hasher: &impl BuildHasher,
        now: Instant,
    ) -> Option<Answer> {
        let (olds, before) = (&mut self.olds, self.before);
        let at = |number: u32| number.wrapping_sub(before) as usize;
        let same = |number: &u32| olds[at(*number)].ends == *ends;
        let entry = self.index.find_entry(hasher.hash_one(ends), same).ok()?;
        let old = &mut olds[at(*entry.get())];
        let answer = old.answer(segment, heard, secret, now);
        if let Answer::Reopens(_) = answer {
            old.gone = true;
            entry.remove();
        }
        Some(answer)
    }
}

impl Old {
    fn answer(&self, segment: &Segment, heard: bool, secret: &Secret, now: Instant) -> Answer {
        let flags = segment.flags;
        // A RST does not end it early (RFC 1337, 2).
        if flags.rst {
            return Answer::Nothing;
        }
        let newer = match segment.options.timestamps {
            // RFC 6191, 2.
            Some((value, _)) if self.stamps => (value.wrapping_sub(self.recent) as i32) > 0,
            _ => self.expected.is_before(segment.seq),
        };
        if flags.syn && !flags.ack && newer && heard {
            return Answer::Reopens(self.next + WINDOW_MAX);
        }
        if segment.sequence_len() == 0 && segment.seq == self.expected {
            return Answer::Nothing;
        }
        let value = milliseconds(now).wrapping_add(secret.stamp_offset(&self.ends));
        Answer::Segment(Segment {
            source: segment.destination,
            destination: segment.source,
            seq: self.next,
            ack: self.expected,
            flags: Flags {
                ack: true,
                ..Flags::default()
            },
            options: Options {
                timestamps: self.stamps.then_some((value, self.recent)),
                ..Options::default()
            },
            ..Segment::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Config, Opening};
    use core::hash::BuildHasherDefault;
    use core::net::SocketAddr;
    use core::time::Duration;
    use std::hash::DefaultHasher;

    const NOW: Instant = Instant(5_000_000_000);

    fn ends(port: u16) -> Ends {
        let address = |last, port| SocketAddr::new([10, 0, 0, last].into(), port);
        Ends::new(address(2, 80), address(1, port))
    }

    fn connection() -> Connection {
        let opening = Opening {
            iss: Seq(1000),
            stamp_offset: 0,
            mss: 1460,
        };
        let mut connection = Connection::connect(Config::default(), opening);
        connection.in_time_wait();
        connection
    }

    struct Test {
        all: TimeWaits,
        hasher: BuildHasherDefault<DefaultHasher>,
        secret: Secret,
    }

    impl Test {
        fn new(count: u16) -> Self {
            let mut test = Self {
                all: TimeWaits::default(),
                hasher: BuildHasherDefault::default(),
                secret: Secret::new([1; 16]),
            };
            for port in 0..count {
                test.all
                    .insert(ends(port), &connection(), &test.hasher, NOW);
            }
            test
        }

        fn receive(&mut self, port: u16, segment: &Segment) -> Option<Answer> {
            self.receive_heard(port, segment, true)
        }

        fn receive_heard(&mut self, port: u16, segment: &Segment, heard: bool) -> Option<Answer> {
            self.all
                .receive(&ends(port), segment, heard, &self.secret, &self.hasher, NOW)
        }
    }

    #[test]
    fn an_old_fin_is_acknowledged_and_a_new_syn_takes_the_place() {
        let mut test = Test::new(3);
        let mut segment = Segment {
            seq: connection().expected() - 1,
            ..Segment::default()
        };
        segment.flags.fin = true;
        let Some(Answer::Segment(answer)) = test.receive(1, &segment) else {
            panic!("no answer");
        };
        assert_eq!(answer.ack, connection().expected());
        assert_eq!(test.receive(9, &segment), None);
        segment.flags.rst = true;
        assert_eq!(test.receive(1, &segment), Some(Answer::Nothing));
        let mut syn = Segment {
            seq: connection().expected() + 1,
            ..Segment::default()
        };
        syn.flags.syn = true;
        let unheard = test.receive_heard(1, &syn, false);
        assert!(
            matches!(unheard, Some(Answer::Segment(_))),
            "nobody listens"
        );
        assert_eq!(
            test.receive(1, &syn),
            Some(Answer::Reopens(connection().numbers().0 + WINDOW_MAX))
        );
        assert_eq!(test.receive(1, &syn), None);
        assert_eq!(test.all.len(), 2);
    }

    #[test]
    fn they_end_in_order_and_are_bounded() {
        let mut test = Test::new(3);
        let soon = NOW + (TIME_WAIT - Duration::from_millis(2));
        test.all.expire(&test.hasher, soon, 9);
        assert_eq!(test.all.len(), 3);
        assert_eq!(
            test.all.deadline(soon),
            Some(soon + Duration::from_millis(2))
        );
        test.all.expire(&test.hasher, NOW + TIME_WAIT, 2);
        assert_eq!(test.all.len(), 1);
        test.all.expire(&test.hasher, NOW + TIME_WAIT, 2);
        assert!(test.all.is_empty());
        assert_eq!(test.all.deadline(NOW), None);
        let mut test = Test::new(20_000);
        assert_eq!(test.all.len(), TIME_WAITS_MAX);
        let mut segment = Segment::default();
        segment.flags.fin = true;
        assert_eq!(test.receive(0, &segment), None, "the oldest is forgotten");
        assert!(test.receive(19_999, &segment).is_some());
    }
}
