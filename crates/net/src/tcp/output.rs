//! What leaves next (RFC 9293, 3.8 and 3.10), and what time brings.

use super::connection::{Connection, Due, Failure, Limits, NEVER, State};
use super::segment::{Flags, HEADER_SIZE, Options, SACK_BLOCKS_MAX, Segment};
use super::seq::Seq;
use core::time::Duration;
use ports::Instant;

/// How long a receiver may put an acknowledgement off: what a probe of a single segment waits
/// longer (RFC 8985, 7.2, "WCDelAckT").
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);
/// What a probe of the tail waits at least, so that it does not come before a timer's tick
/// (Linux's is 2 ms).
const TAIL_MIN: Duration = Duration::from_millis(2);
/// An idle connection that does not answer is probed so often (RFC 9293, 3.8.4; as in Linux).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(75);
/// A SYN is repeated no longer than that, at least 3 minutes (RFC 9293, 3.8.3).
const OPENING_PATIENCE: Duration = Duration::from_secs(180);

impl Connection {
    /// The segment that is to leave now, if one is, without ports and checksum: `len` bytes of
    /// payload, the first of which has its `seq`, and to be cut into segments of
    /// [`Self::payload_max`] bytes if they are more. If it has left, say so ([`Self::sent`]), and
    /// ask again.
    pub fn next(&mut self, limits: Limits, now: Instant) -> Option<Segment> {
        if self.due.reset {
            return Some(self.bare(self.next, true, now));
        }
        if self.state == State::Closed {
            return None;
        }
        let full = self.segment_size(limits);
        if full < self.sent_full {
            // RFC 1191, 6.4: at once, and not when the timer finds it.
            self.sent_full = full;
            self.sent.longer_is_lost(full);
            if self.sent.lost() > 0 {
                self.congestion.resend(self.next);
            }
        }
        if let Some((start, end)) = self.range(limits, now) {
            return Some(self.segment(start, end, limits, now));
        }
        if self.due.probe && self.is_synchronised() {
            // An old number, without data: whoever gets it says where it is. RFC 9293, 3.8.6.1 asks
            // for a byte of new data, which would have to be accounted for if it were taken.
            return Some(self.bare(self.una - 1, false, now));
        }
        if self.due.ack && self.is_synchronised() {
            return Some(self.bare(self.next, false, now));
        }
        self.settle(now);
        None
    }

    /// Payload of a full segment, in bytes.
    pub fn payload_max(&self, limits: Limits) -> u32 {
        self.segment_size(limits)
    }

    fn is_synchronised(&self) -> bool {
        !matches!(self.state, State::SynSent | State::Closed)
    }

    /// Whether our SYN is not acknowledged.
    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// The numbers that are to leave now, SYN and FIN among them.
    fn range(&self, limits: Limits, now: Instant) -> Option<(Seq, Seq)> {
        match self.state {
            State::Closed | State::TimeWait => return None,
            State::SynSent | State::SynReceived if self.next != self.iss => {
                return self.sent.first_lost();
            }
            State::SynSent | State::SynReceived => return Some((self.iss, self.iss + 1)),
            _ => {}
        }
        let full = self.segment_size(limits);
        let room = self
            .window_of_congestion(now)
            .saturating_sub(self.in_flight());
        // One segment may always be on its way (RFC 5681, 3.1), even if the path has become wider.
        let room = match self.in_flight() {
            0 => room.max(full),
            _ => room,
        };
        let most = whole(self.largest(limits).min(room.max(full)), full);
        if let Some((start, end)) = self.sent.first_lost() {
            // A probe that is due waits: this is more.
            let fits = room >= full.min(end - start);
            // A peer that has taken its window back gets no more than the first segment.
            let window_end = (self.una + self.window).max(self.una + full);
            let end = end.min(start + most).min(window_end);
            return (fits && start.is_before(end)).then_some((start, end));
        }
        if self.due.tail {
            return self.tail(full, limits);
        }
        self.fresh(room, full, limits)
    }

    /// The window, smaller after a long silence (RFC 5681, 4.1).
    fn window_of_congestion(&self, now: Instant) -> u32 {
        let mut congestion = self.congestion;
        if self.was_silent(now) {
            congestion.restart(self.full_segment());
        }
        congestion.window()
    }

    fn was_silent(&self, now: Instant) -> bool {
        let silence = Duration::from_nanos(now.0.saturating_sub(self.sent_at));
        self.sent.is_empty() && silence > self.round_trip.timeout()
    }

    /// Payload of the largest segment that the layer below takes, in bytes.
    fn largest(&self, limits: Limits) -> u32 {
        let header = HEADER_SIZE + self.options_size();
        limits.largest.saturating_sub(header as u32)
    }

    /// New data, and FIN behind it.
    fn fresh(&self, room: u32, full: u32, limits: Limits) -> Option<(Seq, Seq)> {
        let window_end = self.una + self.window;
        let waiting = self.queued - self.next;
        let usable = self.queued.min(window_end) - self.next;
        let mut len = usable.min(room).min(self.largest(limits).max(full));
        if !self.sent.has_room() {
            return None;
        }
        if len > full && (len < waiting || !self.may_be_small(len % full)) {
            len = whole(len, full);
        }
        if len < full && len > 0 && !self.is_worth(len, waiting, usable) {
            len = 0;
        }
        let fin = self.finishing && len == waiting && self.next != self.queued + 1;
        let fits = (self.next + len).is_before(window_end) || self.sent.is_empty();
        let fin = fin && (fits || len > 0);
        (len > 0 || fin).then(|| (self.next, self.next + len + u32::from(fin)))
    }

    /// Whether less than a full segment is to leave: silly windows are avoided (RFC 9293,
    /// 3.8.6.2.1).
    fn is_worth(&self, len: u32, waiting: u32, usable: u32) -> bool {
        let by_window = usable == len && len < waiting;
        if by_window {
            return len >= self.window_max / 2 || self.due.probe;
        }
        len == waiting && self.may_be_small(len)
    }

    /// Whether a segment may leave that is not full: none is on its way that was not, as Minshall
    /// has modified Nagle's algorithm (RFC 9293, 3.7.4).
    fn may_be_small(&self, len: u32) -> bool {
        let alone = !self.una.is_before(self.small_end);
        len == 0 || self.config.no_delay || self.finishing || alone
    }

    /// A segment that makes the peer tell whether it has the tail: a new one, or the last one again
    /// (RFC 8985, 7.3).
    fn tail(&self, full: u32, limits: Limits) -> Option<(Seq, Seq)> {
        if let Some(fresh) = self.fresh(full, full, limits) {
            return Some(fresh);
        }
        let (start, end) = self.sent.last()?;
        Some((start.max(end - full), end))
    }

    /// A segment with these numbers.
    fn segment(&self, start: Seq, end: Seq, limits: Limits, now: Instant) -> Segment {
        // Data has the number of the SYN once 4 GiB lie between them.
        let syn = start == self.iss && self.is_opening();
        let fin = self.queued.is_before(end);
        let mut segment = self.bare(start, false, now);
        segment.len = (end - start) - u32::from(syn) - u32::from(fin);
        if segment.header_size() as u32 + segment.len > limits.segment {
            // A full segment has a place for timestamps only (RFC 6691).
            segment.options.sack.clear();
        }
        segment.flags.syn = syn;
        segment.flags.fin = fin;
        segment.flags.psh = segment.len > 0 && !end.is_before(self.queued);
        if syn {
            segment.flags.ack = self.state != State::SynSent;
            if !segment.flags.ack {
                segment.ack = Seq(0);
            }
            segment.window = self.config.receive.min(u16::MAX.into()) as u16;
            segment.options = self.syn_options(now);
        }
        segment
    }

    /// The options of our SYN, which offers all, or repeats what both have.
    fn syn_options(&self, now: Instant) -> Options {
        let first = self.state == State::SynSent;
        Options {
            mss: Some(self.our_mss),
            // Between two shifts of 0, there is nothing to tell.
            scale: (first || self.scale.max(self.peer_scale) > 0).then(|| self.config.scale()),
            sack_permitted: first || self.sack,
            timestamps: self.stamp(now),
            ..Options::default()
        }
    }

    /// A segment without data.
    fn bare(&self, seq: Seq, rst: bool, now: Instant) -> Segment {
        let timestamps = self.stamp(now);
        let room = match timestamps {
            Some(_) => SACK_BLOCKS_MAX - 1,
            None => SACK_BLOCKS_MAX,
        };
        let sack = match self.sack && !rst {
            true => self.received.blocks(room),
            false => Default::default(),
        };
        Segment {
            seq,
            ack: self.expected,
            flags: Flags {
                ack: true,
                rst,
                ..Flags::default()
            },
            window: ((self.offer() - self.expected) >> self.scale) as u16,
            options: Options {
                timestamps,
                sack,
                ..Options::default()
            },
            ..Segment::default()
        }
    }

    /// This segment, which [`Self::next`] has given, has left.
    pub fn sent(&mut self, segment: &Segment, limits: Limits, now: Instant) {
        if segment.flags.rst {
            self.due = Due::default();
            return;
        }
        if segment.flags.ack {
            self.offered = self.offered.max(self.offer());
            let acks = core::mem::take(&mut self.due.ack);
            self.unanswered = 0;
            self.timers.ack = NEVER;
            // Where data has left no place for blocks, they follow alone.
            let no_place = segment.len > 0 && segment.options.sack.is_empty();
            if no_place && self.sack && self.received.has_to_tell() {
                self.due.ack = acks;
            } else {
                self.received.told();
            }
            if let Some(stamps) = &mut self.stamps {
                stamps.last_ack = self.expected;
                if let Some((value, _)) = segment.options.timestamps {
                    stamps.sent = value;
                }
            }
        }
        self.due.probe = false;
        if segment.sequence_len() > 0 {
            if core::mem::take(&mut self.due.tail) {
                self.probed = true;
                self.repeated_to = segment.seq.is_before(self.next).then_some(self.next);
            }
            self.sent_data(segment, limits, now);
        }
    }

    fn sent_data(&mut self, segment: &Segment, limits: Limits, now: Instant) {
        if self.was_silent(now) && !segment.flags.syn {
            self.congestion.restart(self.full_segment());
        }
        let (start, end) = (segment.seq, segment.end());
        if start == self.next {
            self.sent.push(start, end, now.0);
            self.next = end;
            let full = self.segment_size(limits);
            if !segment.len.is_multiple_of(full) {
                self.small_end = end;
            }
        } else {
            self.sent.push_again(start, end, now.0);
        }
        if segment.flags.fin {
            match self.state {
                State::Established => self.state = State::FinWait1,
                State::CloseWait => self.state = State::LastAck,
                _ => {}
            }
        }
        if segment.len > 0 {
            self.sent_full = self.segment_size(limits);
        }
        self.congestion.sent(end - start);
        let in_flight = self.in_flight();
        if !self.una.is_before(self.used_to) || in_flight > self.used {
            (self.used, self.used_to) = (in_flight, self.next);
        }
        self.sent_at = now.0;
        if self.timers.silent == NEVER {
            self.timers.silent = now;
        }
        if self.timers.retransmit == NEVER {
            self.timers.retransmit = now + self.round_trip.timeout();
        }
        self.arm_tail(now);
    }

    /// Something new was acknowledged, or all of it (RFC 6298, 5.2 and 5.3).
    pub(super) fn rearm(&mut self, now: Instant) {
        self.timers.tail = NEVER;
        self.due.tail = false;
        self.probed = false;
        if self.sent.is_empty() {
            self.timers.retransmit = NEVER;
            return;
        }
        self.timers.retransmit = now + self.round_trip.timeout();
        self.timers.silent = now;
        self.arm_tail(now);
    }

    /// When a probe of the tail leaves (RFC 8985, 7.2): a peer without SACK could not answer it.
    fn arm_tail(&mut self, now: Instant) {
        let Some(smoothed) = self.round_trip.smoothed() else {
            return;
        };
        let repairs = self.congestion.is_recovering() || self.sent.sacked() > 0;
        if !self.sack || self.probed || repairs {
            self.timers.tail = NEVER;
            return;
        }
        let mut wait = (2 * smoothed).max(TAIL_MIN);
        if self.next - self.una <= self.full_segment() {
            wait += ACK_DELAY_MAX;
        }
        // Where the retransmission timer would be first, the probe takes its place.
        self.timers.tail = (now + wait).min(self.timers.retransmit);
    }

    /// Nothing may leave: a closed window is probed (RFC 9293, 3.8.6.1).
    fn settle(&mut self, now: Instant) {
        let waits = self.next.is_before(self.queued) && self.sent.is_empty();
        let sends = matches!(self.state, State::Established | State::CloseWait);
        if sends && waits && self.timers.retransmit == NEVER {
            self.timers.retransmit = now + self.round_trip.timeout();
        }
    }

    /// When [`Self::expire`] is to be called next; [`NEVER`] if only a segment or the user can
    /// change anything.
    pub fn deadline(&self) -> Instant {
        let timers = &self.timers;
        [
            timers.retransmit,
            timers.tail,
            timers.reorder,
            timers.ack,
            timers.keep_alive,
            timers.end,
        ]
        .into_iter()
        .min()
        .unwrap_or(NEVER)
    }

    /// It is `now`.
    pub fn expire(&mut self, now: Instant) {
        if self.state == State::Closed {
            return;
        }
        if self.timers.end <= now {
            self.close(None);
            return;
        }
        if self.timers.ack <= now {
            self.timers.ack = NEVER;
            self.due.ack = true;
        }
        if self.timers.reorder <= now {
            self.repair(now);
        }
        if self.timers.tail <= now && self.timers.tail <= self.timers.retransmit {
            self.timers.tail = NEVER;
            self.timers.retransmit = now + self.round_trip.timeout();
            self.due.tail = !self.sent.is_empty();
        } else if self.timers.retransmit <= now {
            self.retransmit(now);
        }
        if self.timers.keep_alive <= now {
            self.keep_alive(now);
        }
    }

    /// The retransmission timer has run out (RFC 6298, 5.4 to 5.7), or the peer's window is closed
    /// and is probed.
    fn retransmit(&mut self, now: Instant) {
        self.timers.tail = NEVER;
        self.timers.reorder = NEVER;
        if self.has_lost_patience(now) {
            return;
        }
        if self.sent.is_empty() {
            self.due.probe = true;
        } else {
            let again = self.round_trip.has_backed_off();
            let flight = self.next - self.una;
            self.sent.all_is_lost();
            let segment = self.full_segment();
            self.congestion.time_out(flight, self.next, segment, again);
            self.duplicates = 0;
            self.due.tail = false;
            self.repeated_to = None;
        }
        self.round_trip.back_off();
        self.timers.retransmit = now + self.round_trip.timeout();
    }

    /// Gives a peer up that has been silent for too long.
    fn has_lost_patience(&mut self, now: Instant) -> bool {
        let patience = match self.is_opening() {
            true => self.config.patience.min(OPENING_PATIENCE),
            false => self.config.patience,
        };
        let since = self.timers.silent;
        if since == NEVER {
            self.timers.silent = now;
        }
        let lost = since != NEVER && now - since > patience;
        if lost {
            self.close(Some(Failure::TimedOut));
        }
        lost
    }

    fn keep_alive(&mut self, now: Instant) {
        self.timers.keep_alive = now + KEEP_ALIVE_INTERVAL;
        // Data that waits for the peer has a timer of its own.
        if self.timers.retransmit == NEVER && !self.has_lost_patience(now) {
            self.due.probe = true;
        }
    }
}

/// As many whole segments as fit into `len` bytes; `len` if it is less than one.
fn whole(len: u32, full: u32) -> u32 {
    if len > full { len - len % full } else { len }
}
