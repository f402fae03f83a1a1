//! How much may be on its way: slow start and congestion avoidance (RFC 5681), by Reno or CUBIC
//! (RFC 9438), and what leaves while a loss is repaired (RFC 9937). Integers only.

use super::seq::Seq;
use core::time::Duration;

/// Segments of the initial window (RFC 6928, 2), and of one after a long silence (RFC 5681, 4.1).
const INITIAL_SEGMENTS: u32 = 10;
/// The least that a loss leaves, in segments (RFC 5681, 3.1, equation 4).
const LEAST_SEGMENTS: u32 = 2;
/// Largest window, in bytes: what RFC 7323 can announce.
const WINDOW_MAX: u32 = 1 << 30;
/// CUBIC's multiplicative decrease, in tenths (RFC 9438, 4.6).
const BETA: u64 = 7;
/// CUBIC's constant C, in tenths of segments for each second cubed (RFC 9438, 5.1).
const C: u128 = 4;

/// How the window grows where nothing is lost, and how far a loss brings it down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
}

/// What is going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing is lost.
    #[default]
    Open,
    /// What was lost is sent again (RFC 9937), until all before `until` has arrived.
    Recovery {
        until: Seq,
        /// Bytes that were on their way when it began ("RecoverFS").
        flight: u32,
        /// Bytes that have arrived since.
        delivered: u32,
        /// Bytes that were sent since.
        out: u32,
    },
    /// The retransmission timer had run out, and all before `until` is to be acknowledged.
    Loss { until: Seq },
}

/// How much may be on its way, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    window: u32,
    /// Below it, slow start ("ssthresh").
    threshold: u32,
    phase: Phase,
    /// What was sent before the last repair ended ends here, until more is acknowledged
    /// ("recover" of RFC 6582).
    repaired: Option<Seq>,
    algorithm: Algorithm,
    cubic: Cubic,
    /// Bytes times window by which the window is due to grow, and has not yet.
    credit: u64,
}

/// RFC 9438, 4.1.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cubic {
    /// The window before it was last reduced, in bytes ("W_max").
    before: u32,
    /// When growth began, in nanoseconds; 0 before it has.
    epoch: u64,
    /// Until the plateau is reached, in milliseconds ("K").
    plateau: u64,
    /// The window that Reno would have, in bytes ("W_est"), and a fraction of 2^-16.
    reno: u64,
}

/// What has arrived, and the path that it took.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// Bytes that were not known to have arrived before.
    pub bytes: u32,
    /// Whether the first of what was not acknowledged is, now.
    pub advanced: bool,
    /// Whether more was found to be lost.
    pub lost: bool,
    /// Whether the window was what held the sender back (RFC 7661).
    pub limited: bool,
    /// Bytes of payload of a full segment.
    pub segment: u32,
    /// The smoothed round trip.
    pub smoothed: Duration,
    /// Now, in nanoseconds.
    pub now: u64,
}

impl Congestion {
    /// The initial window, for segments of so many bytes.
    pub fn new(algorithm: Algorithm, segment: u32) -> Self {
        Self {
            window: INITIAL_SEGMENTS * segment,
            threshold: WINDOW_MAX,
            phase: Phase::Open,
            repaired: None,
            algorithm,
            cubic: Cubic::default(),
            credit: 0,
        }
    }

    /// Bytes that may be on their way.
    #[inline]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Below this window, in bytes, it grows by slow start.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The same; `None` before there was a loss.
    pub fn known_threshold(&self) -> Option<u32> {
        (self.threshold < WINDOW_MAX).then_some(self.threshold)
    }

    /// Whether a loss is being repaired.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Whether a loss is being repaired that the timer has not found, and `una` is not behind all
    /// that was on its way then.
    pub fn is_repairing(&self, una: Seq) -> bool {
        matches!(self.phase, Phase::Recovery { until, .. } if una.is_before(until))
    }

    /// Whether duplicates of `una` tell of something, from a peer without SACK: that more has
    /// arrived while a loss is repaired, or of a new loss. They do not where they may answer what
    /// was sent twice: no more is acknowledged than had left when the last repair began (RFC 6582,
    /// 3.2, step 1, and 4.1).
    pub fn may_tell(&self, una: Seq) -> bool {
        match self.phase {
            Phase::Recovery { .. } => true,
            Phase::Loss { .. } => false,
            Phase::Open => self.repaired.is_none_or(|until| until.is_before(una)),
        }
    }

    /// Data is sent again that was too long for a path that has become narrower: no sign of
    /// congestion, so that the window stays (RFC 1191, 6.4). `next`: the number behind all of it.
    pub fn resend(&mut self, next: Seq) {
        if !self.is_recovering() {
            self.phase = Phase::Loss { until: next };
        }
    }

    /// Whether a loss is being repaired that the retransmission timer has found.
    pub fn is_after_timeout(&self) -> bool {
        matches!(self.phase, Phase::Loss { .. })
    }

    /// Data has arrived; `una` is the first number that is not acknowledged, `in_flight` what is
    /// still on its way. Whether a repair came to its end with it.
    #[inline]
    pub fn delivered(&mut self, delivery: Delivery, una: Seq, in_flight: u32) -> bool {
        let ended = match self.phase {
            Phase::Recovery { until, .. } | Phase::Loss { until } => Some(until),
            Phase::Open => self.repaired,
        };
        self.repaired = ended.filter(|until| !until.is_before(una));
        match &mut self.phase {
            Phase::Open => {
                self.grow(delivery);
                false
            }
            Phase::Loss { until } => {
                let repaired = !una.is_before(*until);
                if repaired {
                    self.phase = Phase::Open;
                }
                self.grow(delivery);
                repaired
            }
            Phase::Recovery { until, .. } if !una.is_before(*until) => {
                self.phase = Phase::Open;
                self.window = self.threshold;
                self.credit = 0;
                true
            }
            Phase::Recovery {
                flight,
                delivered,
                out,
                ..
            } => {
                *delivered = delivered.saturating_add(delivery.bytes);
                let more = if in_flight > self.threshold {
                    let share = u64::from(*delivered) * u64::from(self.threshold);
                    let share = share.div_ceil(u64::from((*flight).max(1)));
                    let share = share.saturating_sub(u64::from(*out));
                    share.min(u64::from(WINDOW_MAX)) as u32
                } else {
                    // As many as have arrived, and one more where all goes well ("SafeACK").
                    let caught_up = delivered.saturating_sub(*out).max(delivery.bytes);
                    let safe = delivery.advanced && !delivery.lost;
                    let bound = caught_up.saturating_add(if safe { delivery.segment } else { 0 });
                    bound.min(self.threshold - in_flight)
                };
                // The first retransmission leaves at once.
                let more = if *out == 0 {
                    more.max(delivery.segment)
                } else {
                    more
                };
                self.window = in_flight.saturating_add(more).min(WINDOW_MAX);
                false
            }
        }
    }

    /// So many bytes have left.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        if let Phase::Recovery { out, .. } = &mut self.phase {
            *out = out.saturating_add(bytes);
        }
    }

    /// A loss was found, with `flight` bytes not acknowledged, `in_flight` of them on their way,
    /// and `next` the number behind them. Losses of one window count once.
    pub fn lose(&mut self, flight: u32, in_flight: u32, next: Seq, segment: u32) {
        if self.is_recovering() {
            return;
        }
        self.reduce(flight, segment);
        self.phase = Phase::Recovery {
            until: next,
            flight,
            delivered: 0,
            out: 0,
        };
        // The first retransmission leaves at once (RFC 5681, 3.2, step 3).
        self.window = in_flight + segment;
    }

    /// A loss was found that is repaired already.
    pub fn lose_one(&mut self, segment: u32) {
        self.reduce(self.window, segment);
        self.window = self.window.min(self.threshold);
    }

    /// The retransmission timer has run out with `flight` bytes not acknowledged (RFC 5681, 3.1).
    /// `again`: for data that was sent again already.
    pub fn time_out(&mut self, flight: u32, next: Seq, segment: u32, again: bool) {
        if !again && !self.is_after_timeout() {
            self.reduce(flight, segment);
        }
        self.window = segment;
        self.phase = Phase::Loss { until: next };
    }

    /// Nothing was sent for longer than the retransmission time-out (RFC 5681, 4.1).
    pub fn restart(&mut self, segment: u32) {
        self.window = self.window.min(INITIAL_SEGMENTS * segment);
        self.cubic.epoch = 0;
    }

    /// The SYN was lost, so that little is known of the path (RFC 5681, 3.1).
    pub fn begin_slowly(&mut self, segment: u32) {
        self.window = segment;
    }

    fn reduce(&mut self, flight: u32, segment: u32) {
        let flight = flight.min(self.window);
        let rest = match self.algorithm {
            Algorithm::Reno => flight / 2,
            Algorithm::Cubic => {
                // Fast convergence (RFC 9438, 4.7).
                let shrinks = self.window < self.cubic.before;
                let (tenths, window) = (if shrinks { 10 + BETA } else { 20 }, self.window);
                self.cubic.before = (u64::from(window) * tenths / 20) as u32;
                self.cubic.epoch = 0;
                (u64::from(flight) * BETA / 10) as u32
            }
        };
        self.threshold = rest.max(LEAST_SEGMENTS * segment);
        self.credit = 0;
    }

    #[inline]
    fn grow(&mut self, delivery: Delivery) {
        // While segments may be out of order or lost, it stays as it is (RFC 3042, 2).
        if !delivery.limited || !delivery.advanced || delivery.lost {
            return;
        }
        if self.window < self.threshold {
            // RFC 3465 counts bytes, at most two segments for each acknowledgement. A receiver that
            // is given large frames acknowledges many segments at once, so all count, as in Linux.
            self.window = self.window.saturating_add(delivery.bytes).min(WINDOW_MAX);
            return;
        }
        let target = match self.algorithm {
            Algorithm::Reno => self.window.saturating_add(delivery.segment),
            Algorithm::Cubic => self.cubic.target(self.window, delivery),
        };
        // In a round trip the whole window is acknowledged, and it grows to its target.
        let more = u64::from(target.saturating_sub(self.window)) * u64::from(delivery.bytes);
        self.credit += more;
        let grown = self.credit / u64::from(self.window.max(1));
        self.credit -= grown * u64::from(self.window);
        self.window = self.window.saturating_add(grown as u32).min(WINDOW_MAX);
    }
}

impl Cubic {
    /// The window to grow to within a round trip (RFC 9438, 4.2 to 4.5).
    fn target(&mut self, window: u32, delivery: Delivery) -> u32 {
        let segment = u128::from(delivery.segment.max(1));
        if self.epoch == 0 {
            self.epoch = delivery.now.max(1);
            self.before = self.before.max(window);
            let missing = u128::from(self.before - window);
            self.plateau = cube_root(missing * 10_000_000_000 / (C * segment));
            self.reno = u64::from(window) << 16;
        }
        // Reno's window grows by alpha segments a round trip, until it is as large as it was.
        let reno = self.reno >> 16;
        let alpha_53rds = if reno < u64::from(self.before) {
            28
        } else {
            53
        };
        let bytes = u64::from(delivery.bytes) << 16;
        // Its growth in a round trip is at most its window.
        let rounds = (bytes / u64::from(window.max(1))).min(1 << 16);
        self.reno += rounds * u64::from(delivery.segment) * alpha_53rds / 53;
        let reno = (self.reno >> 16).min(u64::from(WINDOW_MAX)) as u32;

        let elapsed = delivery.now.saturating_sub(self.epoch) + delivery.smoothed.as_nanos() as u64;
        let elapsed = elapsed / 1_000_000;
        let distance = u128::from(elapsed.abs_diff(self.plateau).min(1 << 24));
        let change = C * segment * distance.pow(3) / 10_000_000_000;
        let change = change.min(u128::from(WINDOW_MAX)) as u32;
        let cubic = if elapsed < self.plateau {
            self.before.saturating_sub(change)
        } else {
            self.before.saturating_add(change)
        };
        let bound = window.saturating_add(window / 2);
        cubic.max(reno).clamp(window, bound)
    }
}

/// The largest number whose cube is at most `of`; at most 2^32.
fn cube_root(of: u128) -> u64 {
    let mut root = 0;
    for bit in (0..32).rev() {
        let higher: u128 = root | 1 << bit;
        if higher.pow(3) <= of {
            root = higher;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT: u32 = 1000;
    const MS: u64 = 1_000_000;

    fn delivery(bytes: u32, now: u64) -> Delivery {
        Delivery {
            bytes,
            advanced: true,
            lost: false,
            limited: true,
            segment: SEGMENT,
            smoothed: Duration::from_millis(20),
            now,
        }
    }

    /// A window of data is acknowledged, by two segments at a time.
    fn round(congestion: &mut Congestion, now: u64) {
        for _ in 0..congestion.window() / (2 * SEGMENT) {
            congestion.delivered(delivery(2 * SEGMENT, now), Seq(0), 0);
        }
    }

    #[test]
    fn slow_start_doubles_and_reno_then_adds_a_segment() {
        let mut congestion = Congestion::new(Algorithm::Reno, SEGMENT);
        assert_eq!(congestion.window(), 10 * SEGMENT);
        round(&mut congestion, MS);
        assert_eq!(congestion.window(), 20 * SEGMENT);
        congestion.lose(20_000, 17_000, Seq(20_000), SEGMENT);
        assert_eq!(congestion.threshold(), 10_000);
        assert!(congestion.delivered(delivery(20_000, MS), Seq(20_000), 0));
        round(&mut congestion, MS);
        // A little less, because the window grows within the round trip.
        assert!((10_950..=11_000).contains(&congestion.window()));
        let full = congestion;
        congestion.delivered(
            Delivery {
                limited: false,
                ..delivery(9000, MS)
            },
            Seq(0),
            0,
        );
        assert_eq!(
            congestion, full,
            "who does not use the window gets no larger one"
        );
    }

    #[test]
    fn what_is_sent_while_repairing_follows_what_arrives() {
        let mut congestion = Congestion::new(Algorithm::Reno, SEGMENT);
        round(&mut congestion, MS);
        congestion.lose(20_000, 16_000, Seq(20_000), SEGMENT);
        let mut in_flight = 16_000;
        let mut sent = 0;
        for _ in 0..16 {
            let room = congestion.window().saturating_sub(in_flight) / SEGMENT * SEGMENT;
            congestion.sent(room);
            (in_flight, sent) = (in_flight + room - SEGMENT, sent + room);
            congestion.delivered(delivery(SEGMENT, MS), Seq(0), in_flight);
        }
        // RFC 9937: half of what arrives, so that no burst follows and no silence comes before.
        assert!((7000..=10_000).contains(&sent), "{sent}");
        congestion.lose(20_000, 16_000, Seq(30_000), SEGMENT);
        assert_eq!(
            congestion.threshold(),
            10_000,
            "losses of one window count once"
        );
        assert!(congestion.delivered(delivery(SEGMENT, MS), Seq(20_000), 5000));
        assert_eq!(
            (congestion.window(), congestion.is_recovering()),
            (10_000, false)
        );
    }

    #[test]
    fn a_timeout_begins_with_one_segment() {
        let mut congestion = Congestion::new(Algorithm::Cubic, SEGMENT);
        congestion.time_out(10_000, Seq(10_000), SEGMENT, false);
        assert_eq!((congestion.window(), congestion.threshold()), (1000, 7000));
        congestion.time_out(10_000, Seq(10_000), SEGMENT, true);
        assert_eq!(congestion.threshold(), 7000);
        assert!(!congestion.delivered(delivery(1000, MS), Seq(1000), 0));
        assert_eq!(congestion.window(), 2000);
        assert!(congestion.delivered(delivery(9000, MS), Seq(10_000), 0));
    }

    /// RFC 9438, 4.2, as it stands there, in floating point.
    #[test]
    fn cubic_follows_its_function() {
        let mut congestion = Congestion::new(Algorithm::Cubic, SEGMENT);
        (0..4).for_each(|_| round(&mut congestion, MS));
        let before = congestion.window();
        congestion.lose(before, before, Seq(1), SEGMENT);
        congestion.delivered(delivery(before, MS), Seq(1), 0);
        let after = f64::from(congestion.window()) / f64::from(SEGMENT);
        let top = f64::from(before) / f64::from(SEGMENT);
        assert!((after - 0.7 * top).abs() < 0.01);
        let plateau = ((top - after) / 0.4).cbrt();
        for trip in 1..500 {
            let now = MS + trip * 20 * MS;
            round(&mut congestion, now);
            let elapsed = trip as f64 * 0.02;
            let cubic = 0.4 * (elapsed - plateau).powi(3) + top;
            let reno = after + 0.529 * trip as f64;
            let expected = cubic.max(if reno < top { reno } else { 0.0 });
            let window = f64::from(congestion.window()) / f64::from(SEGMENT);
            if reno < top {
                assert!(
                    (window - expected).abs() < 0.03 * expected + 2.0,
                    "{trip}: {window} is not {expected}"
                );
            }
        }
        assert!(congestion.window() > 2 * before);
    }

    proptest! {
        #[test]
        fn cube_roots_are_floors(of in 0u128..1 << 95) {
            let root = u128::from(cube_root(of));
            prop_assert!(root.pow(3) <= of && of < (root + 1).pow(3));
        }

        #[test]
        fn no_number_makes_it_panic(
            steps in proptest::collection::vec((0u8..5, any::<u32>(), any::<u32>()), 1..50),
            cubic in any::<bool>(),
            segment in 1u32..65_536,
        ) {
            let algorithm = if cubic { Algorithm::Cubic } else { Algorithm::Reno };
            let mut congestion = Congestion::new(algorithm, segment);
            for (step, a, b) in steps {
                let (bytes, in_flight) = (a % WINDOW_MAX, b % WINDOW_MAX);
                match step {
                    0 => congestion.lose(bytes, in_flight, Seq(b), segment),
                    1 => congestion.time_out(bytes, Seq(b), segment, a % 2 == 0),
                    2 => congestion.restart(segment),
                    3 => congestion.sent(bytes),
                    _ => {
                        let delivery = Delivery { segment, ..delivery(bytes, u64::from(b) << 20) };
                        congestion.delivered(delivery, Seq(a), in_flight);
                    }
                }
                prop_assert!(congestion.window() <= 3 * WINDOW_MAX);
            }
        }
    }
}
