//! A connection as bytes that outlive the image.
//!
//! It is what a [vault](super::vault) holds of a connection, besides its bytes. What lies behind
//! holes is not saved; none of it was acknowledged, so the peer still has it (RFC 2018, 8). Nor is
//! what is known of the path: the next image learns it anew.

use super::congestion::Congestion;
use super::connection::{
    Config, Connection, Failure, LEAST_MSS, Opening, Stamps, State, TIME_WAIT, Timers,
};
use super::half_open::milliseconds;
use super::segment::{SCALE_MAX, Segment};
use super::sent::Sent;
use super::seq::Seq;
use ports::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of [`Saved`]. It goes up with each change of what it holds.
pub const VERSION: u16 = 3;

/// Largest distance between numbers of one direction: the largest window (RFC 7323, 2.3).
const WINDOW_MAX: u32 = 1 << 30;

mod flag {
    pub const FINISHING: u16 = 1 << 0;
    pub const HAS_FIN: u16 = 1 << 1;
    pub const DEAF: u16 = 1 << 2;
    pub const SACK: u16 = 1 << 3;
    pub const STAMPS: u16 = 1 << 4;
    pub const ALL: u16 = FINISHING | HAS_FIN | DEAF | SACK | STAMPS;
}

/// A connection, in numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Saved {
    /// [`VERSION`].
    version: u16,
    flags: u16,
    /// A state with data, by its place in [`STATES`].
    state: u8,
    peer_scale: u8,
    scale: u8,
    /// Zero, or one more than a failure's place in [`FAILURES`].
    failure: u8,
    our_mss: u16,
    peer_mss: u16,
    iss: u32,
    una: u32,
    next: u32,
    queued: u32,
    window: u32,
    window_max: u32,
    window_seq: u32,
    window_ack: u32,
    expected: u32,
    unread: u32,
    offered: u32,
    fin_at: u32,
    receive: u32,
    stamp_offset: u32,
    stamp_recent: u32,
    last_ack: u32,
    /// The last timestamp that left, or one that is later.
    stamp_sent: u32,
}

/// The states that are saved, in the order of their numbers.
const STATES: [State; 8] = [
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
    State::Closed,
];

/// Why a connection ended before its time, in the order of their numbers.
const FAILURES: [Failure; 4] = [
    Failure::Refused,
    Failure::Reset,
    Failure::TimedOut,
    Failure::Aborted,
];

/// A piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of its first byte.
    pub first: Seq,
    /// Bytes.
    pub len: u32,
}

/// Why bytes are no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// They are of another version.
    Version,
    /// A state, a flag or a size is none.
    Value,
    /// Numbers contradict each other.
    Order,
}

impl Connection {
    /// The connection in numbers; `None` while it is being opened: the next image has it opened
    /// anew.
    pub fn save(&self) -> Option<Saved> {
        let state = STATES.iter().position(|state| *state == self.state)?;
        let mut flags = 0;
        let mut set = |flag, is| flags |= if is { flag } else { 0 };
        set(flag::FINISHING, self.finishing);
        set(flag::HAS_FIN, self.fin_at.is_some());
        set(flag::DEAF, self.deaf);
        set(flag::SACK, self.sack);
        set(flag::STAMPS, self.stamps.is_some());
        let stamps = self.stamps.unwrap_or(Stamps {
            offset: 0,
            recent: 0,
            recent_at: 0,
            last_ack: Seq(0),
            sent: 0,
        });
        let failure = FAILURES.iter().position(|why| Some(*why) == self.failure);
        Some(Saved {
            version: VERSION,
            flags,
            // Below 8.
            state: state as u8,
            peer_scale: self.peer_scale,
            scale: self.scale,
            // At most 4.
            failure: failure.map_or(0, |place| place as u8 + 1),
            our_mss: self.our_mss,
            peer_mss: self.peer_mss,
            iss: self.iss.0,
            una: self.una.0,
            next: self.next.0,
            queued: self.queued.0,
            window: self.window,
            window_max: self.window_max,
            window_seq: self.window_seq.0,
            window_ack: self.window_ack.0,
            expected: self.expected.0,
            unread: self.unread.0,
            offered: self.offered.0,
            fin_at: self.fin_at.map_or(0, |fin| fin.0),
            receive: self.config.receive,
            stamp_offset: stamps.offset,
            stamp_recent: stamps.recent,
            last_ack: stamps.last_ack.0,
            stamp_sent: stamps.sent,
        })
    }

    /// The same once `segment`, which [`Self::next`] has given, will have left.
    pub fn save_leaving(&self, segment: &Segment) -> Option<Saved> {
        let mut saved = self.save()?;
        if segment.flags.rst {
            return Some(saved);
        }
        saved.offered = self.offered.max(self.offer()).0;
        saved.last_ack = match self.stamps {
            Some(_) => self.expected.0,
            None => 0,
        };
        if let Some((value, _)) = segment.options.timestamps {
            saved.stamp_sent = value;
        }
        saved.next = self.next.max(segment.end()).0;
        let state = match self.state {
            State::Established if segment.flags.fin => State::FinWait1,
            State::CloseWait if segment.flags.fin => State::LastAck,
            state => state,
        };
        let place = STATES.iter().position(|saved| *saved == state)?;
        saved.state = place as u8;
        Some(saved)
    }

    /// Takes a connection up again at `now`. By a clock that has begun anew, its timestamps go on
    /// all the same: the peer drops those that go back (RFC 7323, 5.3). All that was on its way
    /// may have arrived or not: it waits for the peer to say so, as after a silence.
    ///
    /// # Errors
    /// [`Unfit`], if the numbers are not those of a connection.
    pub fn resume(saved: &Saved, config: Config, now: Instant) -> Result<Self, Unfit> {
        let state = saved.check()?;
        let mut connection = Self::connect(
            Config {
                receive: saved.receive,
                ..config
            },
            Opening {
                iss: Seq(saved.iss),
                stamp_offset: saved.stamp_offset,
                mss: saved.our_mss,
            },
        );
        let has = |flag| saved.flags & flag != 0;
        connection.state = state;
        connection.failure = saved.failure();
        connection.finishing = has(flag::FINISHING);
        connection.deaf = has(flag::DEAF);
        connection.sack = has(flag::SACK);
        connection.una = Seq(saved.una);
        connection.next = Seq(saved.next);
        connection.queued = Seq(saved.queued);
        connection.small_end = Seq(saved.una);
        connection.window = saved.window;
        connection.window_max = saved.window_max;
        connection.window_seq = Seq(saved.window_seq);
        connection.window_ack = Seq(saved.window_ack);
        connection.peer_mss = saved.peer_mss;
        connection.peer_scale = saved.peer_scale;
        connection.scale = saved.scale;
        connection.expected = Seq(saved.expected);
        connection.unread = Seq(saved.unread);
        connection.offered = Seq(saved.offered);
        // One that has not come yet comes again, behind what is expected.
        connection.fin_at = has(flag::HAS_FIN)
            .then_some(Seq(saved.fin_at))
            .filter(|fin| fin.is_before(connection.expected));
        connection.stamps = has(flag::STAMPS).then_some(Stamps {
            offset: saved.stamp_offset_at(now),
            recent: saved.stamp_recent,
            recent_at: now.0,
            last_ack: Seq(saved.last_ack),
            sent: saved.stamp_sent,
        });
        let segment = connection.full_segment();
        connection.congestion = Congestion::new(config.algorithm, segment);
        connection.sent = Sent::default();
        connection.timers = Timers::IDLE;
        if connection.una != connection.next && state != State::Closed {
            let (una, next) = (connection.una, connection.next);
            connection.sent.push(una, next, now.0);
            connection.rearm(now);
        }
        match state {
            State::TimeWait => connection.timers.end = now + TIME_WAIT,
            State::FinWait2 if connection.deaf => connection.timers.end = now + TIME_WAIT,
            _ => {}
        }
        // The peer learns where we are, and tells where it is.
        connection.due.ack = state != State::Closed;
        connection.rest(now);
        Ok(connection)
    }
}

impl Saved {
    fn failure(&self) -> Option<Failure> {
        let place = usize::from(self.failure).checked_sub(1)?;
        FAILURES.get(place).copied()
    }

    /// What is added to the clock, so that no timestamp is older than the last one.
    fn stamp_offset_at(&self, now: Instant) -> u32 {
        let clock = milliseconds(now);
        let value = Seq(clock.wrapping_add(self.stamp_offset));
        match value.is_before(Seq(self.stamp_sent)) {
            true => self.stamp_sent.wrapping_sub(clock),
            false => self.stamp_offset,
        }
    }

    /// The bytes that lie beside it: those that are to be sent or acknowledged, and those that have
    /// arrived in order and were not read.
    ///
    /// # Errors
    /// As [`Connection::resume`].
    pub fn spans(&self) -> Result<[Span; 2], Unfit> {
        self.check()?;
        let first = Seq(self.una).min(Seq(self.queued));
        let send = Span {
            first,
            len: Seq(self.queued) - first,
        };
        // As `Connection::readable`.
        let (expected, unread) = (Seq(self.expected), Seq(self.unread));
        let has_fin = self.flags & flag::HAS_FIN != 0;
        let fin = has_fin && Seq(self.fin_at).is_before(expected);
        let receive = Span {
            first: unread,
            len: (expected - unread).saturating_sub(fin.into()),
        };
        Ok([send, receive])
    }

    /// Checks all of it once.
    fn check(&self) -> Result<State, Unfit> {
        if self.version != VERSION {
            return Err(Unfit::Version);
        }
        let state = STATES.get(usize::from(self.state)).ok_or(Unfit::Value)?;
        let scales = self.scale.max(self.peer_scale) <= SCALE_MAX;
        let windows = self.window.max(self.window_max).max(self.receive) <= WINDOW_MAX;
        let mss = self.peer_mss.min(self.our_mss) >= LEAST_MSS;
        let failure = usize::from(self.failure) <= FAILURES.len();
        if self.flags & !flag::ALL != 0 || !scales || !windows || !mss || !failure {
            return Err(Unfit::Value);
        }
        let fin = u32::from(self.flags & flag::FINISHING != 0);
        let ordered = |first: u32, then: u32| then.wrapping_sub(first) <= WINDOW_MAX;
        // The end of what may have left is FIN's.
        let sending = ordered(self.una, self.next)
            && ordered(self.una, self.queued.wrapping_add(1))
            && ordered(self.next, self.queued.wrapping_add(fin));
        let receiving = ordered(self.unread, self.expected) && ordered(self.expected, self.offered);
        match sending && receiving {
            true => Ok(*state),
            false => Err(Unfit::Order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::connection::{Agreed, Greeted, NEVER};
    use proptest::prelude::*;

    fn saved() -> Saved {
        let opening = Opening {
            iss: Seq(u32::MAX - 5),
            stamp_offset: 7,
            mss: 1460,
        };
        let mut connection = Connection::connect(Config::default(), opening);
        connection.state = State::Established;
        connection.una = connection.iss + 1;
        connection.next = connection.una;
        connection.queue(1000);
        connection.save().unwrap()
    }

    #[test]
    fn what_is_saved_is_taken_up() {
        let saved = saved();
        let resumed = Connection::resume(&saved, Config::default(), Instant(5)).unwrap();
        assert_eq!(resumed.save(), Some(saved));
        let opening = Opening {
            iss: Seq(1),
            stamp_offset: 7,
            mss: 1460,
        };
        assert_eq!(Connection::connect(Config::default(), opening).save(), None);
    }

    #[test]
    fn timestamps_never_go_back() {
        let mut saved = saved();
        saved.flags |= flag::STAMPS;
        (saved.stamp_offset, saved.stamp_sent) = (u32::MAX - 50, 40);
        for (clock, expected) in [(10, 40), (91, 40), (92, 41), (1000, 949)] {
            let now = Instant(clock * 1_000_000);
            let resumed = Connection::resume(&saved, Config::default(), now).unwrap();
            assert_eq!(resumed.stamp(now), Some((expected, 0)), "{clock}");
        }
    }

    #[test]
    fn who_has_sent_no_more_than_a_syn_goes_on_behind_its_timestamp() {
        let agreed = Agreed {
            opening: Opening {
                iss: Seq(1),
                stamp_offset: 7,
                mss: 1460,
            },
            irs: Seq(5),
            peer_mss: 1460,
            peer_scale: None,
            sack: false,
            peer_stamp: Some(9),
        };
        let before = Instant(3_000_000_000);
        let connection = Connection::accept(Config::default(), &agreed, Greeted::Unknown, before);
        let saved = connection.save().unwrap();
        let resumed = Connection::resume(&saved, Config::default(), Instant(0)).unwrap();
        assert_eq!(resumed.stamp(Instant(0)), Some((3007, 9)));
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        let with = |change: fn(&mut Saved)| {
            let mut saved = saved();
            change(&mut saved);
            Connection::resume(&saved, Config::default(), Instant(5)).unwrap_err()
        };
        assert_eq!(with(|saved| saved.version = VERSION - 1), Unfit::Version);
        assert_eq!(with(|saved| saved.state = 8), Unfit::Value);
        assert_eq!(with(|saved| saved.flags = 1 << 9), Unfit::Value);
        assert_eq!(with(|saved| saved.failure = 5), Unfit::Value);
        assert_eq!(with(|saved| saved.scale = 15), Unfit::Value);
        assert_eq!(with(|saved| saved.peer_mss = 1), Unfit::Value);
        assert_eq!(with(|saved| saved.window = u32::MAX), Unfit::Value);
        assert_eq!(
            with(|saved| saved.next = saved.una.wrapping_sub(1)),
            Unfit::Order
        );
        assert_eq!(
            with(|saved| saved.next = saved.queued.wrapping_add(1)),
            Unfit::Order
        );
        assert_eq!(
            with(|saved| saved.offered = saved.expected.wrapping_sub(1)),
            Unfit::Order
        );
    }

    proptest! {
        /// Whatever the bytes are, the connection is refused or works.
        #[test]
        fn no_bytes_make_it_panic(
            bytes in any::<[u8; size_of::<Saved>() / 2]>(),
            good in any::<u128>(),
        ) {
            let mut raw = [0; size_of::<Saved>()];
            raw.copy_from_slice(saved().as_bytes());
            // Some bytes of a good one are replaced.
            for (place, byte) in bytes.iter().enumerate() {
                if good >> place & 1 == 0 {
                    raw[place * 2 + usize::from(byte & 1)] = *byte;
                }
            }
            let saved = Saved::read_from_bytes(&raw).unwrap();
            if let Ok(mut connection) = Connection::resume(&saved, Config::default(), Instant(5)) {
                let [send, receive] = saved.spans().unwrap();
                assert_eq!(send.first, connection.unacknowledged());
                assert_eq!(send.len, connection.unsent_or_unacknowledged());
                assert_eq!(receive.first, connection.unread);
                assert_eq!(receive.len, connection.readable());
                assert!(connection.state != State::Closed || connection.deadline() == NEVER);
                let limits = crate::tcp::Limits { segment: 1480, largest: 65_000 };
                for _ in 0..100 {
                    let Some(segment) = connection.next(limits, Instant(6)) else { break };
                    connection.sent(&segment, limits, Instant(6));
                }
                connection.expire(Instant(u64::MAX / 2));
            }
        }
    }
}
