//! A segment arrives (RFC 9293, 3.10.7).

use super::congestion::Delivery;
use super::connection::{Agreed, Connection, Failure, NEVER, Opening, Stamps, State, TIME_WAIT};
use super::segment::{Flags, SackBlock, Segment};
use super::sent::{Arrived, Path};
use super::seq::Seq;
use crate::counts::reasons;
use core::time::Duration;
use ports::Instant;

/// Between two answers to segments that cannot be right, in time (RFC 5961, 7; Linux takes the
/// same).
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);
/// An acknowledgement waits at most so long for data to travel with (RFC 9293, 3.8.6.3: below 500
/// ms).
const ACK_DELAY: Duration = Duration::from_millis(40);
/// After so long, TS.Recent says nothing (RFC 7323, 5.5): 24 days, in nanoseconds.
const STAMP_AGE: u64 = 24 * 24 * 3600 * 1_000_000_000;
/// Duplicates that make a loss, from a peer without SACK (RFC 5681, 3.2).
const DUPLICATES: u32 = 3;

/// Payload that its owner is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Bytes of the payload in front of it that are not needed.
    pub skip: u32,
    /// Bytes that are.
    pub len: u32,
    /// Number of the first of them.
    pub at: Seq,
}

reasons! {
    /// Why a segment, or its payload, was not taken.
    pub enum Dropped {
        /// Its timestamp is older than that of another one (RFC 7323, 5.3), or missing.
        Stamp = "tcp_stamp",
        /// It lies outside of the window.
        OutsideWindow = "tcp_outside_window",
        /// It acknowledges what was never sent, or long ago (RFC 5961, 5).
        BadAck = "tcp_bad_ack",
        /// A RST or SYN that may be forged (RFC 5961, 3 and 4).
        Forged = "tcp_forged",
        /// It has no ACK.
        NoAck = "tcp_no_ack",
        /// All of its data had arrived before.
        Duplicate = "tcp_duplicate",
        /// There are too many holes.
        Holes = "tcp_holes",
        /// Data behind the end, or for a user that reads no more.
        Unwanted = "tcp_unwanted",
        /// It is malformed.
        Malformed = "tcp_malformed",
        /// Its checksum is wrong.
        Checksum = "tcp_checksum",
        /// There is no connection for it.
        NoConnection = "tcp_no_connection",
        /// It opens a connection, and too many wait for their listener already.
        Backlog = "tcp_backlog",
        /// The image's memory for payload is used up.
        Memory = "tcp_memory",
    }
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its payload, or a part of it, is to be kept.
    pub keep: Option<Keep>,
    /// It was dropped, or its payload.
    pub dropped: Option<Dropped>,
    /// Its sender has another connection in mind, and is to be told ([`reset_for`]).
    pub reset: bool,
}

impl Outcome {
    fn dropped(why: Dropped) -> Self {
        Self {
            dropped: Some(why),
            ..Self::default()
        }
    }
}

/// The RST that answers a segment for which there is no connection (RFC 9293, 3.10.7.1); `None` if
/// it is one itself.
pub fn reset_for(segment: &Segment) -> Option<Segment> {
    if segment.flags.rst {
        return None;
    }
    let (seq, ack) = match segment.flags.ack {
        true => (segment.ack, Seq(0)),
        false => (Seq(0), segment.end()),
    };
    Some(Segment {
        source: segment.destination,
        destination: segment.source,
        seq,
        ack,
        flags: Flags {
            rst: true,
            ack: !segment.flags.ack,
            ..Flags::default()
        },
        ..Segment::default()
    })
}

impl Connection {
    /// Takes in a segment for this connection, whose checksum is right.
    pub fn receive(&mut self, segment: &Segment, now: Instant) -> Outcome {
        let outcome = match self.state {
            // A SYN waits until the owner has let go of it.
            State::Closed => Outcome {
                reset: segment.flags.ack || !segment.flags.syn,
                ..Outcome::dropped(Dropped::Unwanted)
            },
            State::SynSent => self.answered(segment, now),
            _ => self.synchronised(segment, now),
        };
        if self.state != State::Closed {
            self.rest(now);
        }
        outcome
    }

    /// In SYN-SENT (RFC 9293, 3.10.7.3).
    fn answered(&mut self, segment: &Segment, now: Instant) -> Outcome {
        let flags = segment.flags;
        let acceptable = segment.ack == self.iss + 1 && self.next == segment.ack;
        if flags.ack && !acceptable || !flags.ack && flags.rst {
            return Outcome {
                reset: flags.ack && !flags.rst,
                ..Outcome::dropped(Dropped::BadAck)
            };
        }
        if flags.rst {
            self.close(Some(Failure::Refused));
            return Outcome::default();
        }
        if !flags.syn {
            return Outcome::dropped(Dropped::Unwanted);
        }
        let opening = Opening {
            iss: self.iss,
            stamp_offset: self.stamps.map_or(0, |stamps| stamps.offset),
            mss: self.peer_mss,
        };
        self.agree(&Agreed::of(segment, opening), now);
        // The window of a SYN is never shifted (RFC 7323, 2.2).
        self.window = segment.window.into();
        self.window_max = self.window;
        self.window_seq = segment.seq;
        self.window_ack = segment.ack;
        self.offered = self.expected + self.config.receive.min(u16::MAX.into());
        self.due.ack = true;
        if flags.ack {
            self.established(segment.ack, now);
        } else {
            // Both have opened at once: our SYN goes out again, and acknowledges.
            self.state = State::SynReceived;
            self.sent.all_is_lost();
        }
        Outcome::default()
    }

    /// Our SYN is acknowledged.
    fn established(&mut self, ack: Seq, now: Instant) {
        self.state = State::Established;
        let arrived = self.sent.acknowledge(ack, now.0, None);
        self.una = ack;
        if let Some(sample) = arrived.round_trip {
            self.round_trip.measured(sample, now.0);
        }
        if self.round_trip.has_backed_off() {
            self.round_trip.begin_slowly();
            self.congestion.begin_slowly(self.full_segment());
        }
        self.round_trip.heard();
        self.small_end = ack;
        self.timers.retransmit = NEVER;
        self.timers.silent = NEVER;
    }

    /// In all other states (RFC 9293, 3.10.7.4).
    fn synchronised(&mut self, segment: &Segment, now: Instant) -> Outcome {
        if let Some(dropped) = self.check_stamp(segment, now) {
            return dropped;
        }
        if !self.is_acceptable(segment) {
            if !segment.flags.rst {
                self.repeated(segment);
                self.challenge(segment, now);
            }
            if segment.flags.fin && self.state == State::TimeWait {
                self.wait_out(now);
            }
            return Outcome::dropped(Dropped::OutsideWindow);
        }
        if segment.flags.rst {
            // RFC 5961, 3.2.
            if segment.seq == self.expected {
                self.reset();
                return Outcome::default();
            }
            self.challenge(segment, now);
            return Outcome::dropped(Dropped::Forged);
        }
        if segment.flags.syn {
            // RFC 5961, 4.2. The answer to a SYN that was repeated in SYN-RECEIVED is the same.
            self.challenge(segment, now);
            return Outcome::dropped(Dropped::Forged);
        }
        if !segment.flags.ack {
            return Outcome::dropped(Dropped::NoAck);
        }
        if !self.take_ack(segment, now) {
            return Outcome {
                reset: self.state == State::SynReceived,
                ..Outcome::dropped(Dropped::BadAck)
            };
        }
        self.renew_stamp(segment, now);
        if self.state == State::Closed {
            return Outcome::default();
        }
        let outcome = self.take_payload(segment, now);
        self.take_fin(segment, now);
        outcome
    }

    /// PAWS (RFC 7323, 5.3, R1). RST is never dropped for its timestamp (5.2).
    fn check_stamp(&mut self, segment: &Segment, now: Instant) -> Option<Outcome> {
        let stamps = self.stamps?;
        if segment.flags.rst {
            return None;
        }
        let Some((value, _)) = segment.options.timestamps else {
            return Some(Outcome::dropped(Dropped::Stamp));
        };
        let old = (value.wrapping_sub(stamps.recent) as i32) < 0;
        let fresh = now.0.saturating_sub(stamps.recent_at) < STAMP_AGE;
        if old && fresh {
            self.repeated(segment);
            self.challenge(segment, now);
            return Some(Outcome::dropped(Dropped::Stamp));
        }
        None
    }

    /// RFC 7323, 4.3, (2) and (3).
    #[inline]
    fn renew_stamp(&mut self, segment: &Segment, now: Instant) {
        if let (Some(stamps), Some((value, _))) = (&mut self.stamps, segment.options.timestamps) {
            let newer = (value.wrapping_sub(stamps.recent) as i32) >= 0;
            let aged = now.0.saturating_sub(stamps.recent_at) >= STAMP_AGE;
            if (newer || aged) && !stamps.last_ack.is_before(segment.seq) {
                *stamps = Stamps {
                    recent: value,
                    recent_at: now.0,
                    ..*stamps
                };
            }
        }
    }

    /// RFC 9293, 3.10.7.4, table 6: whether some of it lies in the window that was offered.
    #[inline]
    fn is_acceptable(&self, segment: &Segment) -> bool {
        let (start, end) = (segment.seq, segment.end());
        let from = self.expected;
        if start == end {
            // A window of 0 has room for an empty segment at its edge.
            return !start.is_before(from) && (start.is_before(self.offered) || start == from);
        }
        // A closed one takes what comes with a probe at its edge, but for the payload.
        let closed = self.offered == from && start == from;
        (start.is_before(self.offered) || closed) && from.is_before(end)
    }

    /// Says where we are, but not too often: whoever guesses numbers learns nothing by it.
    fn challenge(&mut self, segment: &Segment, now: Instant) {
        // Data that came once more is no guess: the acknowledgement was lost.
        let data = segment.sequence_len() > 0 && !segment.flags.syn;
        let repeats = data && !self.expected.is_before(segment.end());
        if repeats || now >= self.timers.challenge {
            self.timers.challenge = now + CHALLENGE_INTERVAL;
            self.due.ack = true;
        }
    }

    /// Tells the peer of data that came twice (RFC 2883).
    fn repeated(&mut self, segment: &Segment) {
        let before = segment.seq.is_before(self.expected);
        let counts = segment.sequence_len() > 0 && !segment.flags.syn;
        // Nothing that the peer could learn matters in TIME-WAIT.
        if before && counts && self.sack && self.state != State::TimeWait {
            let end = segment.end().min(self.expected);
            self.received.repeated(segment.seq, end);
        }
    }

    fn reset(&mut self) {
        let failure = match self.state {
            State::SynReceived => Some(Failure::Refused),
            // All was exchanged.
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Failure::Reset),
        };
        self.close(failure);
    }

    /// The acknowledgement (RFC 9293, 3.10.7.4, fifth); `false` if it cannot be meant.
    fn take_ack(&mut self, segment: &Segment, now: Instant) -> bool {
        let ack = segment.ack;
        if self.state == State::SynReceived {
            if !self.una.is_before(ack) || self.next.is_before(ack) {
                return false;
            }
            self.established(self.iss + 1, now);
        }
        // RFC 5961, 5.2.
        let oldest = self.una - self.window_max;
        if self.next.is_before(ack) || ack.is_before(oldest) {
            self.challenge(segment, now);
            return false;
        }
        let newly = ack - self.una;
        let mut arrived = Arrived::default();
        if newly > 0 {
            let shortest = self.round_trip.shortest();
            arrived = self.sent.acknowledge(ack, now.0, shortest);
            self.una = ack;
            // It keeps up, so that it is never half of the number space away.
            self.small_end = self.small_end.max(ack);
        }
        let mut repeats = 0;
        let lost_before = self.sent.lost();
        if self.sack {
            let told = self.take_sack(segment, now);
            arrived.bytes += told.bytes;
            arrived.round_trip = arrived.round_trip.or(told.round_trip);
            self.judge_repeated(segment);
        } else {
            repeats = self.count_duplicates(segment, newly, &mut arrived);
        }
        let window_moved = self.take_window(segment);
        let lost = self.find_losses(now) || !self.sack && self.sent.lost() > lost_before;
        if repeats > 0 {
            arrived.bytes = repeats;
        }
        if arrived.bytes > 0 || newly > 0 {
            self.progress(arrived, newly > 0, lost, now);
        }
        self.begin_repair();
        if self.sent.is_empty() || self.window == 0 {
            // It answers probes (RFC 9293, 3.8.6.1).
            self.timers.silent = NEVER;
        }
        let opens = window_moved && self.sent.is_empty();
        if opens {
            self.round_trip.heard();
        }
        if newly > 0 || opens || arrived.bytes > 0 {
            self.timers.silent = NEVER;
            self.rearm(now);
        }
        self.acknowledged_fin(now);
        true
    }

    /// Whether our FIN is acknowledged, and what follows.
    fn acknowledged_fin(&mut self, now: Instant) {
        if !self.finishing || self.una != self.queued + 1 {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.deaf {
                    self.timers.end = now + TIME_WAIT;
                }
            }
            State::Closing => self.wait_out(now),
            State::LastAck => self.close(None),
            _ => {}
        }
    }

    /// TIME-WAIT begins, or begins again.
    fn wait_out(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.end = now + TIME_WAIT;
        self.timers.retransmit = NEVER;
        self.timers.tail = NEVER;
        self.timers.silent = NEVER;
    }

    /// Blocks that lie within what was sent (RFC 2018, 5), and a duplicate in front of them
    /// (RFC 2883, 4).
    fn take_sack(&mut self, segment: &Segment, now: Instant) -> Arrived {
        let mut all = Arrived::default();
        let blocks = &segment.options.sack;
        for (index, &(start, end)) in blocks.iter().enumerate() {
            if !start.is_before(end) || self.next.is_before(end) {
                continue;
            }
            let covers = |outer: &SackBlock| !start.is_before(outer.0) && !outer.1.is_before(end);
            let repeats = index == 0 && blocks.get(1).is_some_and(covers);
            if !self.una.is_before(end) || repeats {
                // Only what was sent lately can have come twice.
                if index == 0 && !start.is_before(self.una - self.window_max) {
                    self.sent.was_spurious();
                }
                continue;
            }
            let shortest = self.round_trip.shortest();
            let arrived = self.sent.sack((start.max(self.una), end), now.0, shortest);
            all.bytes += arrived.bytes;
            all.round_trip = arrived.round_trip.or(all.round_trip);
        }
        all
    }

    /// Whether a probe of the tail has repaired a loss, which is one for the window, or was a
    /// duplicate, which the receiver says (RFC 8985, 7.4.2).
    fn judge_repeated(&mut self, segment: &Segment) {
        let Some(end) = self.repeated_to.filter(|end| !segment.ack.is_before(*end)) else {
            return;
        };
        let first = segment.options.sack.first();
        if first.is_some_and(|block| !segment.ack.is_before(block.1)) {
            self.repeated_to = None;
        } else if end.is_before(segment.ack) {
            self.repeated_to = None;
            if !self.congestion.is_recovering() {
                self.congestion.lose_one(self.full_segment());
            }
        }
    }

    /// Without SACK, an acknowledgement that repeats itself says that something has arrived
    /// (RFC 5681, 2): while a loss is repaired, a full segment, which counts then and not once more
    /// when it is acknowledged (RFC 9937, 3).
    fn count_duplicates(&mut self, segment: &Segment, newly: u32, arrived: &mut Arrived) -> u32 {
        let repeats = segment.ack == self.una
            && segment.sequence_len() == 0
            && !self.sent.is_empty()
            && self.shifted(segment) == self.window;
        let full = self.full_segment();
        let mut told = 0;
        if newly > 0 {
            // All but the first of the segments had made duplicates.
            let before = self.duplicates;
            let left = before.saturating_sub(newly.div_ceil(full) - 1);
            arrived.bytes = newly.saturating_sub((before - left) * full);
            if self.congestion.is_repairing(self.una) {
                // A partial acknowledgement: the next hole (RFC 6582, 3.2, step 3).
                self.duplicates = left;
                self.sent.first_is_lost(full);
            } else {
                self.duplicates = 0;
            }
        } else if repeats && self.congestion.may_tell(self.una) {
            self.duplicates = self.duplicates.saturating_add(1);
            if self.duplicates == DUPLICATES {
                self.sent.first_is_lost(full);
            } else if self.congestion.is_recovering() {
                told = full;
            }
        }
        told
    }

    /// Payload of a full segment, by what the peer takes.
    pub(super) fn full_segment(&self) -> u32 {
        let mss = u32::from(self.peer_mss.min(self.our_mss));
        mss.saturating_sub(self.options_size() as u32).max(1)
    }

    /// Bytes that are on their way. A peer without SACK tells of those that have arrived by
    /// repeating itself.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let told = self.duplicates.saturating_mul(self.full_segment());
        self.sent.in_flight().saturating_sub(told)
    }

    #[inline]
    fn shifted(&self, segment: &Segment) -> u32 {
        u32::from(segment.window) << self.peer_scale
    }

    /// The peer's window (RFC 9293, 3.10.7.4); whether it has changed.
    #[inline]
    fn take_window(&mut self, segment: &Segment) -> bool {
        let newer = self.window_seq.is_before(segment.seq)
            || self.window_seq == segment.seq && !segment.ack.is_before(self.window_ack);
        let window = self.shifted(segment);
        if !newer || segment.ack.is_before(self.una) {
            return false;
        }
        let changed = window != self.window;
        self.window = window;
        self.window_max = self.window_max.max(window);
        self.window_seq = segment.seq;
        self.window_ack = segment.ack;
        changed
    }

    /// Data has arrived at the peer.
    fn progress(&mut self, arrived: Arrived, advanced: bool, lost: bool, now: Instant) {
        if let Some(sample) = arrived.round_trip {
            self.round_trip.measured(sample, now.0);
        }
        if advanced {
            self.round_trip.heard();
        }
        let segment = self.full_segment();
        let window = self.congestion.window();
        let slow_start = window < self.congestion.threshold();
        // RFC 7661, 4.1: slow start goes on where more than half is in use.
        let limited = match slow_start {
            true => self.used > window / 2,
            false => self.used + segment >= window,
        };
        let delivery = Delivery {
            bytes: arrived.bytes,
            advanced,
            lost,
            limited,
            segment,
            smoothed: self.round_trip.smoothed().unwrap_or_default(),
            now: now.0,
        };
        let in_flight = self.in_flight();
        if self.congestion.delivered(delivery, self.una, in_flight) {
            self.sent.recovered();
            self.duplicates = 0;
        }
        if self.sent.is_empty() {
            self.sent.shrink();
        }
    }

    /// Finds what is lost, and begins to repair it.
    pub(super) fn repair(&mut self, now: Instant) {
        self.find_losses(now);
        self.begin_repair();
    }

    /// Finds what later segments have overtaken; whether there was any.
    fn find_losses(&mut self, now: Instant) -> bool {
        self.timers.reorder = NEVER;
        let mut lost = false;
        if self.sack && (self.sent.sacked() > 0 || self.congestion.is_recovering()) {
            let path = Path {
                segment: self.full_segment(),
                shortest: self.round_trip.shortest().unwrap_or_default(),
                smoothed: self.round_trip.smoothed().unwrap_or_default(),
                recovering: self.congestion.is_recovering(),
            };
            let losses = self.sent.look_for_losses(path, now.0);
            self.timers.reorder = losses.again_at.map_or(NEVER, Instant);
            lost = losses.bytes > 0;
        }
        lost
    }

    fn begin_repair(&mut self) {
        if self.sent.lost() > 0 {
            let (flight, in_flight) = (self.next - self.una, self.in_flight());
            let segment = self.full_segment();
            self.repeated_to = None;
            self.congestion.lose(flight, in_flight, self.next, segment);
        }
    }

    /// The payload (RFC 9293, 3.10.7.4, seventh).
    fn take_payload(&mut self, segment: &Segment, now: Instant) -> Outcome {
        if segment.len == 0 {
            return Outcome::default();
        }
        if !self.can_receive() {
            return Outcome::dropped(Dropped::Unwanted);
        }
        if self
            .fin_at
            .is_some_and(|fin| fin.is_before(segment.seq + 1))
        {
            self.due.ack = true;
            return Outcome::dropped(Dropped::Unwanted);
        }
        if self.deaf {
            // RFC 9293, 3.6.1: nobody will ever read it.
            self.abort();
            return Outcome::dropped(Dropped::Unwanted);
        }
        let (start, end) = (segment.seq, segment.seq + segment.len);
        let (first, last) = (start.max(self.expected), end.min(self.offered));
        // Nothing lies behind FIN.
        let last = self.fin_at.map_or(last, |fin| last.min(fin));
        if !first.is_before(last) {
            self.due.ack = true;
            return Outcome::dropped(Dropped::Duplicate);
        }
        let keep = Keep {
            skip: first - start,
            len: last - first,
            at: first,
        };
        self.full = self.full.max(segment.len.min(self.full_segment()));
        if first != self.expected {
            // RFC 5681, 4.2: at once, because a hole may be a loss.
            self.due.ack = true;
            let before = self.received.bytes();
            if !self.received.insert(first, last) {
                return Outcome::dropped(Dropped::Holes);
            }
            if self.received.bytes() == before {
                return Outcome::dropped(Dropped::Duplicate);
            }
        } else {
            let filled = !self.received.is_empty();
            self.repeated(segment);
            self.expected = self.received.advance(last);
            if let Some(fin) = self.fin_at
                && fin.is_before(self.expected)
            {
                // It came behind what lies behind it.
                self.expected = fin;
                self.received.forget();
            }
            self.put_off_ack(keep.len, filled || start != first, now);
        }
        Outcome {
            keep: Some(keep),
            ..Outcome::default()
        }
    }

    /// In-order data came: it is acknowledged with data of our own, with every second full segment,
    /// or after a while (RFC 9293, 3.8.6.3).
    #[inline]
    fn put_off_ack(&mut self, bytes: u32, at_once: bool, now: Instant) {
        self.unanswered = self.unanswered.saturating_add(bytes);
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        if at_once || quick || self.unanswered >= 2 * self.full {
            self.due.ack = true;
        } else if self.timers.ack == NEVER {
            self.timers.ack = now + ACK_DELAY;
        }
    }

    /// FIN (RFC 9293, 3.10.7.4, eighth).
    fn take_fin(&mut self, segment: &Segment, now: Instant) {
        if segment.flags.fin && self.fin_at.is_none() {
            let at = segment.seq + segment.len;
            // Behind the window it will come again.
            if !self.offered.is_before(at) {
                self.fin_at = Some(at);
            }
        }
        let Some(fin) = self.fin_at else {
            return;
        };
        if segment.flags.fin {
            self.due.ack = true;
        }
        if self.expected != fin {
            return;
        }
        self.expected = fin + 1;
        self.offered = self.offered.max(self.expected);
        self.due.ack = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait_out(now),
            _ => {}
        }
    }
}
