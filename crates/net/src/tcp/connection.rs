//! What a connection knows, and what its user asks of it.

use super::congestion::{Algorithm, Congestion};
use super::received::Received;
use super::rtt::RoundTrip;
use super::segment::{HEADER_SIZE, SCALE_MAX, Segment, TIMESTAMPS_SIZE};
use super::sent::Sent;
use super::seq::Seq;
use crate::counts::reasons;
use core::time::Duration;
use ports::Instant;

/// A moment that never comes.
pub const NEVER: Instant = Instant(u64::MAX);

/// Twice the longest life of a segment (RFC 9293, 3.4.2 says 4 minutes; Linux and the BSDs take a
/// minute, which with timestamps is as safe).
pub const TIME_WAIT: Duration = Duration::from_secs(60);

/// MSS of a peer that tells none (RFC 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// The least that is believed, as in Linux: smaller segments would be all headers.
pub(super) const LEAST_MSS: u16 = 88;

/// What an image wants of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes that may be received and not read at first; the window that is offered.
    pub receive: u32,
    /// The most that the window grows to, for a user that keeps up.
    pub receive_max: u32,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Small segments leave while others are on their way (RFC 9293, 3.7.4: no Nagle algorithm).
    pub no_delay: bool,
    /// An idle connection is probed after so long (RFC 9293, 3.8.4); none is, by default.
    pub keep_alive: Option<Duration>,
    /// A peer that acknowledges nothing for so long is given up ("R2" of RFC 9293, 3.8.3).
    pub patience: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive: 128 << 10,
            receive_max: 4 << 20,
            algorithm: Algorithm::Cubic,
            no_delay: false,
            keep_alive: None,
            patience: Duration::from_secs(600),
        }
    }
}

reasons! {
    /// RFC 9293, 3.3.2. LISTEN and passive opening are the listener's.
    pub enum State {
        /// SYN was sent.
        SynSent = "syn_sent",
        /// SYN was sent and received, and is not acknowledged.
        SynReceived = "syn_received",
        /// Data flows both ways.
        Established = "established",
        /// Our FIN is not acknowledged.
        FinWait1 = "fin_wait_1",
        /// Our FIN is acknowledged, and the peer may send.
        FinWait2 = "fin_wait_2",
        /// The peer's FIN has come, and we may send.
        CloseWait = "close_wait",
        /// Both FINs were sent, and ours is not acknowledged.
        Closing = "closing",
        /// The peer's FIN came first, and ours is not acknowledged.
        LastAck = "last_ack",
        /// All is done, and old segments may still be under way.
        TimeWait = "time_wait",
        /// There is no connection.
        Closed = "closed",
    }
}

/// Why a connection ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The peer did not want it.
    Refused,
    /// The peer has reset it.
    Reset,
    /// The peer has not answered for too long.
    TimedOut,
    /// The user has reset it.
    Aborted,
}

/// Largest segments that may leave, from what lies below: both in bytes of TCP's header and
/// payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A segment that fits the path's MTU.
    pub segment: u32,
    /// What may be given to the layer below in one go, to be cut into segments.
    pub largest: u32,
}

/// One end of a connection, without its data: plain numbers.
///
/// It is told of each segment ([`Self::receive`]), of the user's wishes and of time
/// ([`Self::expire`]), and asked what to send ([`Self::next`]). Its owner keeps the bytes: those to
/// be sent from the first that is not acknowledged on ([`Self::unacknowledged`]), and those that
/// have arrived from the first that was not read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub(super) state: State,
    pub(super) failure: Option<Failure>,
    pub(super) config: Config,

    // Sending (RFC 9293, 3.3.1).
    /// The initial number.
    pub(super) iss: Seq,
    /// First number that is not acknowledged.
    pub(super) una: Seq,
    /// First number that was never sent.
    pub(super) next: Seq,
    /// The number behind the data that the user has given.
    pub(super) queued: Seq,
    /// FIN comes behind it.
    pub(super) finishing: bool,
    /// Bytes that the peer takes from `una` on.
    pub(super) window: u32,
    /// The largest window that the peer has offered.
    pub(super) window_max: u32,
    /// Number and acknowledgement of the segment that told `window`.
    pub(super) window_seq: Seq,
    pub(super) window_ack: Seq,
    /// Behind the last segment that was not full (RFC 9293, 3.7.4, as Minshall has it).
    pub(super) small_end: Seq,
    /// What we take, as our SYN says, in bytes of payload and options.
    pub(super) our_mss: u16,
    /// What the peer takes.
    pub(super) peer_mss: u16,
    /// Shift of the peer's windows; 0 without scaling.
    pub(super) peer_scale: u8,
    /// When a segment last left, in nanoseconds.
    pub(super) sent_at: u64,
    /// Payload of a full segment when data last left, in bytes; 0 if none has.
    pub(super) sent_full: u32,
    pub(super) sent: Sent,
    pub(super) round_trip: RoundTrip,
    pub(super) congestion: Congestion,
    /// The most bytes that were on their way at once in this round trip, which ends when `used_to`
    /// is acknowledged: how much of the congestion window is in use (RFC 7661, 4.1).
    pub(super) used: u32,
    pub(super) used_to: Seq,
    /// The tail was probed, and nothing new was acknowledged since.
    pub(super) probed: bool,
    /// A probe has repeated data, and nobody knows whether it was lost: what was sent ends here
    /// (RFC 8985, 7.4, "TLP.end_seq").
    pub(super) repeated_to: Option<Seq>,
    /// Acknowledgements in a row that repeat `una`, from a peer without SACK.
    pub(super) duplicates: u32,

    // Receiving.
    /// The number that is expected next.
    pub(super) expected: Seq,
    /// The first number that the user has not read.
    pub(super) unread: Seq,
    /// The number behind the window that was offered.
    pub(super) offered: Seq,
    /// Where the peer's FIN lies, once it is known.
    pub(super) fin_at: Option<Seq>,
    /// Shift of our windows; 0 without scaling.
    pub(super) scale: u8,
    /// The largest payload that has come in one segment: a full one is taken to be so long.
    pub(super) full: u32,
    /// Bytes that came since the last acknowledgement left.
    pub(super) unanswered: u32,
    /// Segments that are acknowledged at once, because the peer may be in slow start.
    pub(super) quick: u8,
    pub(super) received: Received,
    /// The user reads no more: data that comes now is lost.
    pub(super) deaf: bool,

    // Options that both ends have.
    pub(super) sack: bool,
    /// Timestamps (RFC 7323).
    pub(super) stamps: Option<Stamps>,

    // What is to be done.
    pub(super) due: Due,
    pub(super) timers: Timers,
}

/// Timestamps of a connection (RFC 7323, 4.3 and 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamps {
    /// What is added to the clock, so that it tells nothing of the image.
    pub offset: u32,
    /// TSval that is echoed ("TS.Recent").
    pub recent: u32,
    /// When it came, in nanoseconds.
    pub recent_at: u64,
    /// "Last.ACK.sent".
    pub last_ack: Seq,
    /// The last TSval that left, or one that is later.
    pub sent: u32,
}

/// What is to leave although no data does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// An acknowledgement.
    pub ack: bool,
    /// The repetition of an old number, which makes the peer tell its window and that it lives
    /// (RFC 9293, 3.8.4 and 3.8.6.1).
    pub probe: bool,
    /// The tail, although it may have arrived (RFC 8985, 7.3).
    pub tail: bool,
    /// RST.
    pub reset: bool,
}

/// When something is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timers {
    /// Retransmission (RFC 6298, 5), or a probe of a closed window (RFC 9293, 3.8.6.1).
    pub retransmit: Instant,
    /// A probe of the tail (RFC 8985, 7.2).
    pub tail: Instant,
    /// Segments that were overtaken are lost (RFC 8985, 6.2, step 5).
    pub reorder: Instant,
    /// An acknowledgement that was put off.
    pub ack: Instant,
    /// A probe of an idle connection.
    pub keep_alive: Instant,
    /// The end of TIME-WAIT, or of waiting for a FIN that nobody would read.
    pub end: Instant,
    /// Since when the peer is silent although it should not be; [`NEVER`] if it is not.
    pub silent: Instant,
    /// Before this, no answer to a segment out of order leaves (RFC 5961, 7).
    pub challenge: Instant,
}

impl Timers {
    pub(super) const IDLE: Self = Self {
        retransmit: NEVER,
        tail: NEVER,
        reorder: NEVER,
        ack: NEVER,
        keep_alive: NEVER,
        end: NEVER,
        silent: NEVER,
        challenge: Instant::PAST,
    };
}

/// Segments at the beginning of a connection that are acknowledged at once.
pub(super) const QUICK: u8 = 16;

/// What a connection begins with, besides its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The initial number (RFC 6528).
    pub iss: Seq,
    /// What is added to the clock of timestamps (RFC 7323, 5.4).
    pub stamp_offset: u32,
    /// The largest segment that fits the path, in bytes behind TCP's header (RFC 6691).
    pub mss: u16,
}

/// How our answer to a peer's SYN came to be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeted {
    /// It was sent once, so long ago: the first round trip (RFC 6298, 2.2).
    Once(Duration),
    /// It was sent again, so that little is known of the path (RFC 5681, 3.1; RFC 6298, 5.7).
    Again,
    /// Nobody knows: nothing was kept.
    Unknown,
}

/// What a peer's SYN has told, and our answer to it: enough to make the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Our side.
    pub opening: Opening,
    /// The peer's initial number.
    pub irs: Seq,
    /// The peer's MSS.
    pub peer_mss: u16,
    /// The peer's shift, if both scale windows.
    pub peer_scale: Option<u8>,
    /// Whether both take SACK.
    pub sack: bool,
    /// The peer's TSval, if both send timestamps.
    pub peer_stamp: Option<u32>,
}

impl Config {
    /// By how many bits our windows are shifted (RFC 7323, 2.3).
    pub fn scale(&self) -> u8 {
        let bits = u32::BITS - (self.receive.max(self.receive_max) >> 16).leading_zeros();
        bits.min(SCALE_MAX.into()) as u8
    }
}

impl Connection {
    /// Opens a connection actively. The first call of [`Self::next`] has the SYN.
    pub fn connect(config: Config, opening: Opening) -> Self {
        let Opening { iss, .. } = opening;
        let stamps = Stamps {
            offset: opening.stamp_offset,
            recent: 0,
            recent_at: 0,
            last_ack: Seq(0),
            sent: 0,
        };
        Self {
            state: State::SynSent,
            failure: None,
            iss,
            una: iss,
            next: iss,
            queued: iss + 1,
            finishing: false,
            window: 0,
            window_max: 0,
            window_seq: Seq(0),
            window_ack: Seq(0),
            small_end: iss,
            our_mss: opening.mss,
            peer_mss: opening.mss,
            peer_scale: 0,
            sent_at: 0,
            sent_full: 0,
            sent: Sent::default(),
            round_trip: RoundTrip::default(),
            congestion: Congestion::new(config.algorithm, opening.mss.into()),
            used: 0,
            used_to: iss,
            probed: false,
            repeated_to: None,
            duplicates: 0,
            expected: Seq(0),
            unread: Seq(0),
            offered: Seq(0),
            fin_at: None,
            scale: 0,
            full: 0,
            unanswered: 0,
            quick: QUICK,
            received: Received::default(),
            deaf: false,
            sack: false,
            stamps: Some(stamps),
            due: Due::default(),
            timers: Timers::IDLE,
            config,
        }
    }

    /// A connection whose peer has acknowledged our answer to its SYN: that segment is to be
    /// [received](Self::receive) next.
    pub fn accept(config: Config, agreed: &Agreed, greeted: Greeted, now: Instant) -> Self {
        let Opening { iss, .. } = agreed.opening;
        let mut connection = Self::connect(config, agreed.opening);
        connection.una = iss + 1;
        connection.next = iss + 1;
        connection.small_end = iss + 1;
        connection.agree(agreed, now);
        connection.state = State::Established;
        // Older than what opens it, whose window counts even where it begins with old data.
        connection.window_seq = agreed.irs - u32::from(u16::MAX);
        connection.window_ack = iss + 1;
        connection.offered = connection.expected + connection.config.receive.min(u16::MAX.into());
        match greeted {
            Greeted::Once(sample) => connection.round_trip.measured(sample, now.0),
            Greeted::Again => {
                connection.round_trip.begin_slowly();
                let segment = connection.full_segment();
                connection.congestion.begin_slowly(segment);
            }
            Greeted::Unknown => {}
        }
        connection.rest(now);
        connection
    }

    /// Takes in what both ends have agreed on.
    pub(super) fn agree(&mut self, agreed: &Agreed, now: Instant) {
        let Agreed { irs, .. } = *agreed;
        self.expected = irs + 1;
        self.unread = irs + 1;
        self.offered = irs + 1;
        self.peer_mss = agreed.peer_mss;
        self.peer_scale = agreed.peer_scale.unwrap_or(0);
        self.scale = agreed.peer_scale.map_or(0, |_| self.config.scale());
        self.sack = agreed.sack;
        let value = self.stamp(now).map_or(0, |(value, _)| value);
        self.stamps = self
            .stamps
            .zip(agreed.peer_stamp)
            .map(|(ours, peer)| Stamps {
                recent: peer,
                recent_at: now.0,
                last_ack: irs + 1,
                // Our SYN had none later than this.
                sent: value,
                ..ours
            });
        self.congestion = Congestion::new(self.config.algorithm, self.full_segment());
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended before its time, if it did.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The user has `bytes` more to send. They lie behind those that it gave before.
    ///
    /// # Panics
    /// In debug builds, if it said before that there are no more, or that half of the number space
    /// would be in use.
    pub fn queue(&mut self, bytes: u32) {
        debug_assert!(!self.finishing, "data behind the end");
        debug_assert!((self.queued + bytes).after(self.una) > 0);
        self.queued = self.queued + bytes;
    }

    /// The user has read so many bytes, and there is room for more.
    pub fn read(&mut self, bytes: u32) {
        self.unread = (self.unread + bytes).min(self.expected);
        // Worth an acknowledgement of its own (RFC 9293, 3.8.6.2.2)? Only for a peer that has used
        // up half of its window: others learn it with the next acknowledgement of data.
        let worth = (self.config.receive / 2).min(2 * self.full.max(1));
        let (offer, left) = (self.offer(), self.offered - self.expected);
        let halved = offer - self.expected >= 2 * left;
        if offer - self.offered >= worth && halved && self.can_receive() {
            self.due.ack = true;
        }
    }

    /// The user sends no more: FIN follows behind what it has given.
    pub fn shutdown(&mut self) {
        self.finishing = true;
    }

    /// The user lets go of it: data that it has given still leaves, and nothing is read. One that
    /// nobody has answered yet is forgotten (RFC 9293, 3.10.4, SYN-SENT).
    pub fn leave(&mut self, now: Instant) {
        if self.state == State::SynSent {
            self.close(Some(Failure::Aborted));
            return;
        }
        self.shutdown();
        self.deafen(now);
    }

    /// The user reads no more: a peer that sends data from now on is reset (RFC 9293, 3.6.1).
    pub fn deafen(&mut self, now: Instant) {
        self.deaf = true;
        if self.readable() > 0 {
            // What it will not read is lost, and the peer is told (RFC 2525, 2.17).
            self.abort();
        } else if self.state == State::FinWait2 {
            self.timers.end = now + TIME_WAIT;
        }
    }

    /// Ends it at once; the peer is told with RST (RFC 9293, 3.10.5).
    pub fn abort(&mut self) {
        // What is due stays due.
        self.due.reset |= matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::Closing
                | State::LastAck
        );
        self.close(Some(Failure::Aborted));
    }

    /// Bytes that have arrived in order and were not read.
    pub fn readable(&self) -> u32 {
        let fin = u32::from(self.fin_at.is_some_and(|fin| fin.is_before(self.expected)));
        (self.expected - self.unread).saturating_sub(fin)
    }

    /// Whether the peer sends no more, and all was read or can be.
    pub fn is_finished(&self) -> bool {
        let fin = self.fin_at.is_some_and(|fin| fin.is_before(self.expected));
        fin || self.state == State::Closed
    }

    /// The number that is expected next: all data before it has arrived.
    pub fn expected(&self) -> Seq {
        self.expected
    }

    /// The first byte that is not acknowledged: the owner may forget all before it.
    pub fn unacknowledged(&self) -> Seq {
        // SYN and FIN are no bytes. (After 4 GiB, a byte has the number of the SYN.)
        match self.is_opening() {
            true => self.iss + 1,
            false => self.una.min(self.queued),
        }
    }

    /// Whether the number `seq` has left and is not acknowledged.
    pub fn is_under_way(&self, seq: Seq) -> bool {
        !seq.is_before(self.una) && seq.is_before(self.next)
    }

    /// Nobody takes our segments, somebody credible says: an opening fails; whether it was one.
    pub fn refuse(&mut self) -> bool {
        let opening = self.is_opening();
        if opening {
            self.close(Some(Failure::Refused));
        }
        opening
    }

    /// Whether the number `seq` has left before.
    pub fn has_sent(&self, seq: Seq) -> bool {
        seq.is_before(self.next)
    }

    /// Bytes that were queued and are not acknowledged.
    pub fn unsent_or_unacknowledged(&self) -> u32 {
        self.queued - self.unacknowledged()
    }

    /// Whether the peer has yet to acknowledge something that was queued, or the end if there is
    /// one. Nothing is outstanding of a connection that is no more.
    pub fn is_outstanding(&self) -> bool {
        let end = match self.state {
            State::Closed | State::FinWait2 | State::TimeWait => return false,
            _ => self.queued + u32::from(self.finishing),
        };
        self.una != end
    }

    /// Bytes that may be received and not read.
    pub fn receive_window(&self) -> u32 {
        self.config.receive
    }

    /// Changes how many bytes may be received and not read. What was offered stays offered, and
    /// the configured maximum holds.
    pub fn set_receive(&mut self, bytes: u32) {
        self.config.receive = bytes.min(self.config.receive_max.max(self.config.receive));
    }

    /// Whether the user may queue more: it has not closed, and neither is the connection.
    pub fn may_queue(&self) -> bool {
        !self.finishing && self.state != State::Closed
    }

    /// Small segments leave while others are on their way, or wait.
    pub fn set_no_delay(&mut self, no_delay: bool) {
        self.config.no_delay = no_delay;
    }

    /// While nothing comes, the peer is asked after so long whether it is still there
    /// (RFC 9293, 3.8.4); never with `None`.
    pub fn set_keep_alive(&mut self, idle: Option<Duration>, now: Instant) {
        self.config.keep_alive = idle;
        self.rest(now);
    }

    /// The smoothed round-trip time, once it was measured.
    pub fn smoothed_round_trip(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// The congestion window, in bytes.
    pub fn congestion_window(&self) -> u32 {
        self.congestion.window()
    }

    /// What is known of the path's round-trip time.
    pub fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// What congestion control knows.
    pub fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// The largest payload that the peer takes in a segment, in bytes.
    pub fn peer_segment(&self) -> u16 {
        self.peer_mss
    }

    /// Bytes that the peer takes behind what it has acknowledged.
    pub fn send_window(&self) -> u32 {
        self.window
    }

    /// What outlives it in TIME-WAIT: the next number of each side, and the timestamp to echo.
    pub(super) fn numbers(&self) -> (Seq, Seq, Option<u32>) {
        (
            self.next,
            self.expected,
            self.stamps.map(|stamps| stamps.recent),
        )
    }

    /// As if all had been exchanged.
    #[cfg(test)]
    pub(super) fn in_time_wait(&mut self) {
        (self.expected, self.state, self.stamps) = (Seq(5000), State::TimeWait, None);
    }

    pub(super) fn can_receive(&self) -> bool {
        matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        )
    }

    /// The number behind the window that can be offered now. It never moves back
    /// (RFC 9293, 3.8.6).
    #[inline]
    pub(super) fn offer(&self) -> Seq {
        let room = self
            .config
            .receive
            .saturating_sub(self.expected - self.unread);
        // What the header can say.
        let room = room.min(u32::from(u16::MAX) << self.scale) >> self.scale << self.scale;
        let edge = self.expected + room;
        // Silly windows are avoided (RFC 9293, 3.8.6.2.2).
        match edge - self.offered >= (self.config.receive / 2).min(self.full.max(1)) {
            true => self.offered.max(edge),
            false => self.offered,
        }
    }

    /// Payload of a full segment, in bytes.
    #[inline]
    pub(super) fn segment_size(&self, limits: Limits) -> u32 {
        let header = HEADER_SIZE as u32;
        let mss = u32::from(self.peer_mss).min(limits.segment.saturating_sub(header));
        mss.saturating_sub(self.options_size() as u32).max(1)
    }

    /// Bytes of options in each segment that has data.
    #[inline]
    pub(super) fn options_size(&self) -> usize {
        self.stamps.map_or(0, |_| TIMESTAMPS_SIZE)
    }

    /// The clock of timestamps (RFC 7323, 5.4): milliseconds.
    #[inline]
    pub(super) fn stamp(&self, now: Instant) -> Option<(u32, u32)> {
        let stamps = self.stamps?;
        let value = (now.0 / 1_000_000) as u32;
        Some((value.wrapping_add(stamps.offset), stamps.recent))
    }

    /// There is no connection any more.
    pub(super) fn close(&mut self, failure: Option<Failure>) {
        self.state = State::Closed;
        self.failure = self.failure.or(failure);
        self.sent = Sent::default();
        self.received = Received::default();
        self.due = Due {
            reset: self.due.reset,
            ..Due::default()
        };
        self.timers = Timers::IDLE;
    }

    /// Nothing is on its way: the peer may be silent.
    pub(super) fn rest(&mut self, now: Instant) {
        self.timers.keep_alive = match self.config.keep_alive {
            Some(idle) if !matches!(self.state, State::TimeWait | State::Closed) => now + idle,
            _ => NEVER,
        };
    }
}

impl Agreed {
    /// What a SYN and our answer to it agree on.
    pub fn of(syn: &Segment, opening: Opening) -> Self {
        Self {
            opening,
            irs: syn.seq,
            peer_mss: syn.options.mss.unwrap_or(DEFAULT_MSS).max(LEAST_MSS),
            peer_scale: syn.options.scale,
            sack: syn.options.sack_permitted,
            peer_stamp: syn.options.timestamps.map(|(value, _)| value),
        }
    }
}
