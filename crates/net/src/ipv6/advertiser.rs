//! A router tells hosts of itself and of the link (RFC 4861, 6.2; RFC 8106).

use super::nd::PREFIXES_MAX;
use super::{HEADER, icmp};
use crate::address::Prefix;
use crate::ethernet::Mac;
use crate::random::Random;
use arrayvec::ArrayVec;
use core::net::Ipv6Addr;
use core::time::Duration;
use ports::Instant;

/// Servers of names of one advertisement.
pub const SERVERS_MAX: usize = 4;

// Times between advertisements that nobody has asked for: MaxRtrAdvInterval and MinRtrAdvInterval
// (RFC 4861, 6.2.1).
const INTERVAL_MAX: Duration = Duration::from_secs(600);
const INTERVAL_MIN: Duration = Duration::from_secs(200);
// RFC 4861, 10.
const INITIAL: u8 = 3;
const INITIAL_INTERVAL: Duration = Duration::from_secs(16);
const DELAY_MAX: Duration = Duration::from_millis(500);
const BETWEEN_MIN: Duration = Duration::from_secs(3);

/// How long we are hosts' router, and servers of names theirs, in seconds: three times the longest
/// interval (RFC 4861, 6.2.1; RFC 8106, 5.1).
const LIFETIME: u16 = 1800;
/// How long hosts have addresses in a prefix, and choose them for new conversations, in seconds: a
/// day and four hours, as radvd has it. RFC 4861's month outlives a prefix that is gone.
const VALID: u32 = 86_400;
const PREFERRED: u32 = 14_400;
/// Hops that hosts give their packets (RFC 1700).
const HOPS: u8 = 64;
/// Bits of a network in which hosts choose addresses (RFC 4862, 5.5.3 d).
const AUTONOMOUS_BITS: u8 = 64;

// Options (RFC 4861, 4.6; RFC 8106, 5.1), and flags of a prefix.
const SOURCE: u8 = 1;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const SERVERS: u8 = 25;
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

const ADVERTISEMENT: u8 = 134;
const FRONT: usize = 16;
/// Bytes of the longest advertisement: its front, the link address, the MTU, prefixes and servers.
pub(super) const LEN_MAX: usize =
    FRONT + 8 + 8 + 32 * PREFIXES_MAX + 8 + size_of::<Ipv6Addr>() * SERVERS_MAX;
const _: () = assert!(HEADER + LEN_MAX <= super::MTU_MIN);

/// What a router tells beside itself and the networks of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertised {
    /// Who resolves names.
    pub servers: ArrayVec<Ipv6Addr, SERVERS_MAX>,
}

/// When a router tells hosts what.
#[derive(Debug)]
pub(super) struct Advertiser {
    advertised: Advertised,
    /// Advertisements that come soon after each other at the beginning, and are still to be sent.
    initial: u8,
    last: Option<Instant>,
    due: Instant,
}

impl Advertiser {
    /// Tells from now on.
    pub fn new(advertised: Advertised, now: Instant) -> Self {
        Self {
            advertised,
            initial: INITIAL,
            last: None,
            due: now,
        }
    }

    /// A host asks (RFC 4861, 6.2.6). All are answered, so that a flood of questions brings few
    /// answers.
    pub fn solicited(&mut self, random: &mut Random, now: Instant) {
        let soon = now + random.within(DELAY_MAX);
        let after_last = self.last.map_or(now, |last| last + BETWEEN_MIN);
        self.due = self.due.min(soon.max(after_last));
    }

    /// Whether an advertisement is due now (RFC 4861, 6.2.4).
    pub fn take(&mut self, random: &mut Random, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        let interval = INTERVAL_MIN + random.within(INTERVAL_MAX - INTERVAL_MIN);
        let is_initial = self.initial > 0;
        self.initial = self.initial.saturating_sub(1);
        let most = if is_initial {
            INITIAL_INTERVAL
        } else {
            INTERVAL_MAX
        };
        self.due = now + interval.min(most);
        self.last = Some(now);
        true
    }

    /// When [`Self::take`] has something to do.
    pub fn deadline(&self) -> Instant {
        self.due
    }

    /// Writes an advertisement of these networks to the start of a place of [`LEN_MAX`] bytes; how
    /// many it has. The checksum covers these addresses.
    pub fn write(
        &self,
        (source, destination): (Ipv6Addr, Ipv6Addr),
        link: (Mac, usize),
        networks: &[Prefix<Ipv6Addr>],
        place: &mut [u8],
    ) -> usize {
        let bytes = self.message(link, networks);
        let Some(place) = place.get_mut(..bytes.len()) else {
            return 0;
        };
        place.copy_from_slice(&bytes);
        icmp::complete(source, destination, place);
        bytes.len()
    }

    fn message(
        &self,
        (mac, mtu): (Mac, usize),
        networks: &[Prefix<Ipv6Addr>],
    ) -> ArrayVec<u8, LEN_MAX> {
        let mut bytes = ArrayVec::new();
        // What has no room is not said: there is room for all.
        let mut say = |part: &[u8]| {
            let _ = bytes.try_extend_from_slice(part);
        };
        let [a, b] = LIFETIME.to_be_bytes();
        say(&[ADVERTISEMENT, 0, 0, 0, HOPS, 0, a, b]);
        // Times of neighbours are hosts' own.
        say(&[0; 8]);
        say(&[SOURCE, 1]);
        say(&mac.0);
        say(&[MTU, 1, 0, 0]);
        say(&u32::try_from(mtu).unwrap_or(u32::MAX).to_be_bytes());
        for network in networks.iter().take(PREFIXES_MAX) {
            let bits = network.bits();
            let autonomous = if bits == AUTONOMOUS_BITS {
                AUTONOMOUS
            } else {
                0
            };
            say(&[PREFIX, 4, bits, ON_LINK | autonomous]);
            say(&VALID.to_be_bytes());
            say(&PREFERRED.to_be_bytes());
            say(&[0; 4]);
            let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            say(&(network.address().to_bits() & !host).to_be_bytes());
        }
        let servers = &self.advertised.servers;
        if !servers.is_empty() {
            // In units of eight bytes; there are at most SERVERS_MAX.
            let units = 1 + 2 * servers.len() as u8;
            say(&[SERVERS, units, 0, 0]);
            say(&u32::from(LIFETIME).to_be_bytes());
            servers.iter().for_each(|server| say(&server.octets()));
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn advertiser() -> Advertiser {
        Advertiser::new(Advertised::default(), at(0))
    }

    #[test]
    fn advertisements_come_soon_at_first_and_then_now_and_then() {
        let (mut advertiser, mut random) = (advertiser(), Random::new(1));
        let mut before = at(0);
        for n in 0..50 {
            let now = advertiser.deadline();
            assert!(advertiser.take(&mut random, now) && !advertiser.take(&mut random, now));
            let passed = now - before;
            match n {
                0 => assert_eq!(passed, Duration::ZERO),
                1..=3 => assert_eq!(passed, INITIAL_INTERVAL),
                _ => assert!((INTERVAL_MIN..=INTERVAL_MAX).contains(&passed)),
            }
            before = now;
        }
    }

    #[test]
    fn questions_are_answered_soon_but_not_often() {
        let (mut advertiser, mut random) = (advertiser(), Random::new(1));
        for _ in 0..4 {
            let due = advertiser.deadline();
            advertiser.take(&mut random, due);
        }
        let start = advertiser.last.unwrap() + Duration::from_secs(60);
        advertiser.solicited(&mut random, start);
        assert!(advertiser.deadline() - start <= DELAY_MAX);
        let mut answers = 0;
        // A flood of a minute.
        for n in 0..60_000 {
            let now = start + Duration::from_millis(n);
            advertiser.solicited(&mut random, now);
            answers += u32::from(advertiser.take(&mut random, now));
        }
        assert!((19..=21).contains(&answers), "{answers}");
    }
}
