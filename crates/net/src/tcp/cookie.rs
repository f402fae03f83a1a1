//! Answers to SYNs of which nothing need be kept: their initial number says that we have made them,
//! and what the peer's MSS is; their timestamp, if the peer has sent one, the other options (RFC
//! 4987, 3.6).
//!
//! They serve when too many connections are half open, and when an image ends: its vault has no
//! half-open connection, but [what cookies are made with](Cookies).

use super::connection::{Agreed, Config, Opening};
use super::half_open::{self, milliseconds};
use super::identity::{Ends, Purpose, Secret};
use super::segment::Segment;
use super::seq::Seq;
use core::time::Duration;
use ports::Instant;

/// A cookie is good for so long, at most twice (RFC 4987, appendix A; Linux takes a minute).
const LIFE: Duration = Duration::from_secs(60);
/// What a cookie can say of the peer's MSS: the largest of these that is not above it.
const MSS: [u16; 8] = [216, 536, 1200, 1360, 1400, 1440, 1460, 8960];
/// Bits of a timestamp in which a cookie has the other options.
const STAMP_BITS: u32 = 5;
/// In these, no scaling.
const NO_SCALE: u32 = 15;

/// What cookies are made with.
#[derive(Clone)]
pub struct Cookies {
    secret: Secret,
    /// What is added to the number of lives that the clock has seen.
    base: u32,
    /// Until then, one may come back of which nothing was kept.
    until: Instant,
}

impl Cookies {
    /// None has left so far.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            base: 0,
            until: Instant::PAST,
        }
    }

    /// Cookies of an earlier host may come back, which had this secret; `period` was its last.
    pub fn go_on(secret: Secret, period: u32, now: Instant) -> Self {
        Self {
            secret,
            base: period.wrapping_sub(lives(now)),
            until: now + 2 * LIFE,
        }
    }

    /// The secret, for who [goes on](Self::go_on).
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// What changes each minute, the life of a cookie.
    pub fn period(&self, now: Instant) -> u32 {
        self.base.wrapping_add(lives(now))
    }

    /// The initial number that answers a SYN with this number.
    pub fn number(&self, ends: &Ends, irs: Seq, peer_mss: u16, now: Instant) -> Seq {
        let index = MSS.iter().rposition(|known| *known <= peer_mss);
        self.made(ends, irs, self.period(now), index.unwrap_or(0) as u32)
    }

    fn made(&self, ends: &Ends, irs: Seq, period: u32, index: u32) -> Seq {
        let more = [irs.0, period, index];
        let number = self.secret.number(Purpose::Cookie, ends, more) as u32;
        let count = MSS.len() as u32;
        Seq(number / count * count + index)
    }

    /// The answer to a SYN of which nothing is kept. `opening`: what else our side begins with.
    pub fn answer(
        &mut self,
        config: &Config,
        ends: &Ends,
        syn: &Segment,
        opening: Opening,
        now: Instant,
    ) -> Segment {
        let mut agreed = Agreed::of(syn, opening);
        agreed.opening.iss = self.number(ends, syn.seq, agreed.peer_mss, now);
        if agreed.peer_stamp.is_none() {
            // There is no place for them.
            (agreed.peer_scale, agreed.sack) = (None, false);
        }
        self.until = now + 2 * LIFE;
        let clock = milliseconds(now).wrapping_add(opening.stamp_offset);
        half_open::answer(config, ends, &agreed, stamp(&agreed, clock))
    }

    /// What was agreed on with a peer that returns a cookie of the last two minutes. `mss`: the
    /// largest segment that we take.
    pub fn returned(
        &self,
        ends: &Ends,
        segment: &Segment,
        mss: u16,
        now: Instant,
    ) -> Option<Agreed> {
        let flags = segment.flags;
        if now > self.until || !flags.ack || flags.syn || flags.rst {
            return None;
        }
        let (iss, irs) = (segment.ack - 1, segment.seq - 1);
        let index = iss.0 % MSS.len() as u32;
        let period = self.period(now);
        let known = [period, period.wrapping_sub(1)];
        if !known
            .iter()
            .any(|period| self.made(ends, irs, *period, index) == iss)
        {
            return None;
        }
        let stamps = segment.options.timestamps;
        let options = stamps.map_or(NO_SCALE << 1, |(_, echo)| echo);
        let scale = options >> 1 & NO_SCALE;
        // Stamps go on from the cookie's, which may have left by another clock.
        let last = options.wrapping_add(1 << STAMP_BITS);
        Some(Agreed {
            opening: Opening {
                iss,
                stamp_offset: last.wrapping_sub(milliseconds(now)),
                mss,
            },
            irs,
            peer_mss: MSS[index as usize],
            peer_scale: (scale != NO_SCALE).then_some(scale as u8),
            sack: stamps.is_some() && options & 1 != 0,
            peer_stamp: stamps.map(|(value, _)| value),
        })
    }
}

/// How many lives of cookies the clock has seen.
fn lives(now: Instant) -> u32 {
    (now.0 / LIFE.as_nanos() as u64) as u32
}

/// The timestamp that says what was agreed on: the last one that is not ahead of `clock`.
pub fn stamp(agreed: &Agreed, clock: u32) -> u32 {
    let scale = agreed.peer_scale.map_or(NO_SCALE, u32::from);
    let options = scale << 1 | u32::from(agreed.sack);
    let rounded = clock >> STAMP_BITS << STAMP_BITS | options;
    let ahead = (rounded.wrapping_sub(clock) as i32) > 0;
    rounded.wrapping_sub(if ahead { 1 << STAMP_BITS } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::super::half_open::tests::{NOW, ack, ends, syn};
    use super::*;
    use proptest::prelude::*;

    fn cookies(secret: u8) -> Cookies {
        Cookies::new(Secret::new([secret; 16]))
    }

    fn answer(cookies: &mut Cookies, syn: &Segment, now: Instant) -> Segment {
        let opening = Secret::new([7; 16]).opening(&ends(), 1460, now);
        cookies.answer(&Config::default(), &ends(), syn, opening, now)
    }

    #[test]
    fn a_cookie_says_all_that_it_can() {
        let mut cookies = cookies(9);
        let answer = answer(&mut cookies, &syn(), NOW);
        let later = NOW + LIFE;
        let returned = |cookies: &Cookies, at| cookies.returned(&ends(), &ack(&answer), 1460, at);
        let agreed = returned(&cookies, later).unwrap();
        let opening = Opening {
            iss: answer.seq,
            ..agreed.opening
        };
        let expected = Agreed {
            peer_stamp: Some(78),
            ..Agreed::of(&syn(), opening)
        };
        assert_eq!(agreed, expected);
        assert_eq!(returned(&cookies, NOW + Duration::from_secs(121)), None);
        cookies.secret = Secret::new([8; 16]);
        assert_eq!(returned(&cookies, NOW), None);
    }

    #[test]
    fn nothing_comes_back_where_none_has_left() {
        let answer = answer(&mut cookies(9), &syn(), NOW);
        assert_eq!(cookies(9).returned(&ends(), &ack(&answer), 1460, NOW), None);
    }

    #[test]
    fn another_host_goes_on_by_its_own_clock() {
        let mut first = cookies(9);
        let answer = answer(&mut first, &syn(), NOW);
        for clock in [Instant(5), Instant(u64::MAX / 2)] {
            let second = Cookies::go_on(first.secret().clone(), first.period(NOW), clock);
            let at = clock + LIFE;
            let agreed = second.returned(&ends(), &ack(&answer), 1460, at).unwrap();
            assert_eq!(
                (agreed.opening.iss, agreed.peer_scale),
                (answer.seq, Some(7))
            );
            // PAWS (RFC 7323, 5.3): no stamp is before the cookie's.
            let next = milliseconds(at).wrapping_add(agreed.opening.stamp_offset);
            let ahead = next.wrapping_sub(answer.options.timestamps.unwrap().0);
            assert_eq!(ahead, 1 << STAMP_BITS);
        }
    }

    #[test]
    fn a_peer_without_timestamps_gets_a_plain_connection() {
        let mut cookies = cookies(9);
        let mut syn = syn();
        syn.options.timestamps = None;
        let answer = answer(&mut cookies, &syn, NOW);
        assert_eq!(
            (answer.options.scale, answer.options.sack_permitted),
            (None, false)
        );
        let agreed = cookies.returned(&ends(), &ack(&answer), 1460, NOW).unwrap();
        assert_eq!(
            (agreed.peer_mss, agreed.peer_scale, agreed.sack),
            (1460, None, false)
        );
    }

    proptest! {
        #[test]
        fn a_stamp_is_never_ahead_of_the_clock(
            now in any::<u64>(),
            scale in 0u8..15,
            sack in any::<bool>(),
        ) {
            let mut cookies = cookies(9);
            let now = Instant(now);
            let mut syn = syn();
            (syn.options.scale, syn.options.sack_permitted) = (Some(scale), sack);
            let answer = answer(&mut cookies, &syn, now);
            let (value, _) = answer.options.timestamps.unwrap();
            let offset = Secret::new([7; 16]).stamp_offset(&ends());
            let clock = milliseconds(now).wrapping_add(offset);
            prop_assert!(clock.wrapping_sub(value) <= 1 << STAMP_BITS);
            let agreed = cookies.returned(&ends(), &ack(&answer), 1460, now).unwrap();
            prop_assert_eq!((agreed.peer_scale, agreed.sack), (Some(scale), sack));
        }
    }
}
