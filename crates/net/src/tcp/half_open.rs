//! Connections that a peer has begun to open, and what is kept of them.

use super::connection::{Agreed, Config, Greeted, Opening};
use super::cookie;
use super::identity::{Ends, Secret};
use super::segment::{Flags, Options, Segment};
use super::seq::Seq;
use core::time::Duration;
use ports::Instant;

/// The answer to a SYN is repeated after so long, then after twice as long, and so on.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// It is repeated so often, and then the peer is forgotten: 63 s, as in Linux.
const REPETITIONS: u8 = 5;

/// Both have agreed on selective acknowledgements.
const SACK: u8 = 1;
/// Both have agreed on timestamps.
const STAMPS: u8 = 2;
/// Our initial number and timestamp are a [cookie](super::cookie)'s: another image, which has
/// nothing of this, can go on from the peer's acknowledgement.
const COOKIE: u8 = 4;

/// What is kept of a peer that has sent a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    irs: Seq,
    iss: Seq,
    peer_stamp: u32,
    peer_mss: u16,
    mss: u16,
    /// The peer's shift; 255 without scaling.
    scale: u8,
    /// [`SACK`], [`STAMPS`], [`COOKIE`].
    bits: u8,
    repetitions: u8,
    /// When the answer is repeated, or the peer forgotten, in milliseconds.
    due: u32,
    /// When the first answer was sent, in microseconds.
    answered: u32,
}

impl HalfOpen {
    /// A SYN has come, and is to be answered, with a cookie's number or one of our own.
    pub fn new(syn: &Segment, opening: Opening, is_cookie: bool, now: Instant) -> Self {
        let agreed = Agreed::of(syn, opening);
        let bit = |bit, is_set| if is_set { bit } else { 0 };
        Self {
            irs: syn.seq,
            iss: opening.iss,
            peer_stamp: agreed.peer_stamp.unwrap_or(0),
            peer_mss: agreed.peer_mss,
            mss: opening.mss,
            scale: agreed.peer_scale.unwrap_or(u8::MAX),
            bits: bit(SACK, agreed.sack)
                | bit(STAMPS, agreed.peer_stamp.is_some())
                | bit(COOKIE, is_cookie),
            repetitions: 0,
            due: milliseconds(now + FIRST_WAIT),
            answered: microseconds(now),
        }
    }

    /// What both ends have agreed on, once the peer acknowledges.
    pub fn agreed(&self, secret: &Secret, ends: &Ends) -> Agreed {
        Agreed {
            opening: Opening {
                iss: self.iss,
                stamp_offset: secret.stamp_offset(ends),
                mss: self.mss,
            },
            irs: self.irs,
            peer_mss: self.peer_mss,
            peer_scale: (self.scale != u8::MAX).then_some(self.scale),
            sack: self.has(SACK),
            peer_stamp: self.has(STAMPS).then_some(self.peer_stamp),
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    /// The answer to the SYN (RFC 9293, 3.10.7.2).
    pub fn answer(&self, secret: &Secret, config: &Config, ends: &Ends, now: Instant) -> Segment {
        let agreed = self.agreed(secret, ends);
        let stamp = milliseconds(now).wrapping_add(agreed.opening.stamp_offset);
        answer(
            config,
            ends,
            &agreed,
            match self.has(COOKIE) {
                true => cookie::stamp(&agreed, stamp),
                false => stamp,
            },
        )
    }

    /// Where we are: what answers a segment that lies outside of the window (RFC 9293, 3.10.7.4).
    pub fn place(&self, secret: &Secret, config: &Config, ends: &Ends, now: Instant) -> Segment {
        let answer = self.answer(secret, config, ends, now);
        let shift = answer.options.scale.unwrap_or(0);
        Segment {
            seq: answer.end(),
            flags: Flags {
                ack: true,
                ..Flags::default()
            },
            window: answer.window >> shift,
            options: Options {
                timestamps: answer.options.timestamps,
                ..Options::default()
            },
            ..answer
        }
    }

    /// How it came to be acknowledged at `now`.
    pub fn greeted(&self, now: Instant) -> Greeted {
        match self.repetitions {
            0 => {
                let micros = microseconds(now).wrapping_sub(self.answered);
                Greeted::Once(Duration::from_micros(micros.into()))
            }
            _ => Greeted::Again,
        }
    }

    /// When something is to be done about it, in milliseconds of the clock.
    pub fn due(&self) -> u32 {
        self.due
    }

    /// That moment has come: `true` if the answer is to be repeated, `false` if it is to be
    /// forgotten.
    pub fn expire(&mut self, now: Instant) -> bool {
        self.repetitions += 1;
        self.due = milliseconds(now + (FIRST_WAIT * (1 << self.repetitions.min(REPETITIONS))));
        self.repetitions <= REPETITIONS
    }

    /// A segment of this connection, which is no SYN, has come: whether it opens it (RFC 9293,
    /// 3.10.7.4). `window`: the bytes that our answer has offered.
    pub fn takes(&self, segment: &Segment, window: u32) -> Taken {
        let flags = segment.flags;
        let from = self.irs + 1;
        if flags.rst {
            // RFC 5961, 3.2.
            return match segment.seq {
                seq if seq == from => Taken::Refused,
                seq if from.is_before(seq) && seq.is_before(from + window) => Taken::Outside,
                _ => Taken::Ignored,
            };
        }
        let (start, end) = (segment.seq, segment.end());
        let begins = start.is_before(from + window);
        let inside = match start == end {
            true => begins && !start.is_before(from),
            false => begins && from.is_before(end),
        };
        // PAWS (RFC 7323, 5.3, R1).
        let stamp = segment.options.timestamps.filter(|_| self.has(STAMPS));
        let old = |(value, _): (u32, u32)| (value.wrapping_sub(self.peer_stamp) as i32) < 0;
        if !flags.syn && (!inside || stamp.is_some_and(old)) {
            return Taken::Outside;
        }
        if !flags.ack {
            return Taken::Ignored;
        }
        if segment.ack != self.iss + 1 {
            return Taken::Wrong;
        }
        if flags.syn {
            Taken::Ignored
        } else {
            Taken::Opens
        }
    }
}

/// What a segment does to a connection that is half open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The connection is open, and the segment goes to it.
    Opens,
    /// The peer wants it no more.
    Refused,
    /// The peer means another connection, and gets a RST.
    Wrong,
    /// It lies outside of the window, or may be forged, and the peer is told where we are
    /// ([`HalfOpen::place`]).
    Outside,
    /// Nothing.
    Ignored,
}

/// The clock of [`HalfOpen::due`].
pub fn milliseconds(at: Instant) -> u32 {
    (at.0 / 1_000_000) as u32
}

/// It goes round in an hour, and nothing is half open for so long.
fn microseconds(at: Instant) -> u32 {
    (at.0 / 1000) as u32
}

/// The answer to a SYN, with this timestamp.
pub fn answer(config: &Config, ends: &Ends, agreed: &Agreed, stamp: u32) -> Segment {
    Segment {
        source: ends.local().port(),
        destination: ends.remote().port(),
        seq: agreed.opening.iss,
        ack: agreed.irs + 1,
        flags: Flags {
            syn: true,
            ack: true,
            ..Flags::default()
        },
        window: config.receive.min(u16::MAX.into()) as u16,
        options: Options {
            mss: Some(agreed.opening.mss),
            scale: agreed.peer_scale.map(|_| config.scale()),
            sack_permitted: agreed.sack,
            timestamps: agreed.peer_stamp.map(|peer| (stamp, peer)),
            ..Options::default()
        },
        len: 0,
    }
}

/// A half-open connection takes at most 64 bytes.
const _: () = assert!(size_of::<(Ends, HalfOpen)>() <= 64);

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use core::net::SocketAddr;

    pub const NOW: Instant = Instant(1_000_000_000_000);

    pub fn ends() -> Ends {
        let address = |last, port| SocketAddr::new([10, 0, 0, last].into(), port);
        Ends::new(address(2, 80), address(1, 50_000))
    }

    pub fn syn() -> Segment {
        Segment {
            source: 50_000,
            destination: 80,
            seq: Seq(1000),
            flags: Flags {
                syn: true,
                ..Flags::default()
            },
            options: Options {
                mss: Some(1460),
                scale: Some(7),
                sack_permitted: true,
                timestamps: Some((77, 0)),
                ..Options::default()
            },
            ..Segment::default()
        }
    }

    /// The peer's acknowledgement of `answer`.
    pub fn ack(answer: &Segment) -> Segment {
        Segment {
            source: 50_000,
            destination: 80,
            seq: Seq(1001),
            ack: answer.seq + 1,
            flags: Flags {
                ack: true,
                ..Flags::default()
            },
            options: Options {
                timestamps: answer.options.timestamps.map(|(value, _)| (78, value)),
                ..Options::default()
            },
            ..Segment::default()
        }
    }

    #[test]
    fn a_syn_is_answered_until_it_is_forgotten() {
        let secret = Secret::new([9; 16]);
        let opening = secret.opening(&ends(), 1460, NOW);
        let mut half = HalfOpen::new(&syn(), opening, false, NOW);
        let agreed = half.agreed(&secret, &ends());
        assert_eq!(agreed, Agreed::of(&syn(), opening));
        let answer = half.answer(&secret, &Config::default(), &ends(), NOW);
        assert_eq!((answer.source, answer.destination), (80, 50_000));
        assert_eq!((answer.ack, answer.options.mss), (Seq(1001), Some(1460)));
        assert_eq!(half.takes(&ack(&answer), 1000), Taken::Opens);
        let mut now = NOW;
        let mut waits = std::vec::Vec::new();
        loop {
            waits.push(half.due().wrapping_sub(milliseconds(now)));
            now = now + Duration::from_millis((*waits.last().unwrap()).into());
            if !half.expire(now) {
                break;
            }
        }
        assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000, 32_000]);
    }

    #[test]
    fn only_the_right_numbers_open_or_refuse_it() {
        let opening = Secret::new([9; 16]).opening(&ends(), 1460, NOW);
        let half = HalfOpen::new(&syn(), opening, false, NOW);
        let good = ack(&Segment {
            seq: opening.iss,
            ..Segment::default()
        });
        let with = |change: fn(&mut Segment)| {
            let mut segment = good.clone();
            change(&mut segment);
            half.takes(&segment, 1000)
        };
        assert_eq!(with(|_| {}), Taken::Opens);
        assert_eq!(with(|segment| segment.ack = segment.ack + 1), Taken::Wrong);
        assert_eq!(with(|segment| segment.flags.ack = false), Taken::Ignored);
        assert_eq!(with(|segment| segment.flags.rst = true), Taken::Refused);
        assert_eq!(with(|segment| segment.seq = Seq(2000)), Taken::Opens);
        for outside in [Seq(1000), Seq(2001), Seq(77_000)] {
            let mut segment = good.clone();
            segment.seq = outside;
            assert_eq!(half.takes(&segment, 1000), Taken::Outside, "{outside:?}");
        }
        let mut old = good.clone();
        old.options.timestamps = Some((76, 0));
        assert_eq!(half.takes(&old, 1000), Taken::Outside, "its stamp is older");
        assert_eq!(
            with(|segment| (segment.flags.rst, segment.seq) = (true, Seq(5))),
            Taken::Ignored
        );
        assert_eq!(
            with(|segment| (segment.flags.rst, segment.seq) = (true, Seq(1500))),
            Taken::Outside,
            "a forged RST is answered"
        );
    }
}
