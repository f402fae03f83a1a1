//! What routers tell: themselves, and which addresses are on this link (RFC 4861, 6.3).

use crate::address::Prefix;
use crate::random::Random;
use arrayvec::ArrayVec;
use core::net::Ipv6Addr;
use core::time::Duration;
use ports::Instant;

/// Routers that are known at once.
pub const ROUTERS_MAX: usize = 4;
/// Prefixes on this link that are known at once.
pub const ON_LINK_MAX: usize = 8;

/// Bits of the network of link-local addresses (RFC 4291, 2.5.6).
const LINK_LOCAL_BITS: u8 = 64;

// RFC 4861, 10.
const SOLICITATIONS: u8 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
const SOLICITATION_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Router {
    address: Ipv6Addr,
    until: Instant,
}

#[derive(Clone, Copy, Debug)]
struct OnLink {
    prefix: Prefix<Ipv6Addr>,
    /// `None` is for ever.
    until: Option<Instant>,
}

/// What is known from routers.
#[derive(Debug)]
pub(super) struct Routers {
    routers: ArrayVec<Router, ROUTERS_MAX>,
    on_link: ArrayVec<OnLink, ON_LINK_MAX>,
    /// Solicitations that are still to be sent, and when.
    asking: Option<(u8, Instant)>,
}

impl Routers {
    /// Nobody is asked.
    pub fn new() -> Self {
        Self {
            routers: ArrayVec::new(),
            on_link: ArrayVec::new(),
            asking: None,
        }
    }

    /// Begins to ask.
    pub fn ask(&mut self, random: &mut Random, now: Instant) {
        self.asking = Some((SOLICITATIONS, now + random.within(SOLICITATION_DELAY)));
    }

    /// Asks no more.
    pub fn stop(&mut self) {
        self.asking = None;
    }

    /// Whether a solicitation is due now (RFC 4861, 6.3.7).
    pub fn take_solicitation(&mut self, now: Instant) -> bool {
        match self.asking {
            Some((left, due)) if due <= now => {
                let again = (left - 1, now + SOLICITATION_INTERVAL);
                self.asking = Some(again).filter(|(left, _)| *left > 0);
                true
            }
            _ => false,
        }
    }

    /// When [`Self::take_solicitation`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.asking.map(|(_, due)| due)
    }

    /// A router says that it is one for so long; not at all if that is zero.
    pub fn learn(&mut self, address: Ipv6Addr, lifetime: Duration, now: Instant) {
        self.routers
            .retain(|router| router.address != address && now < router.until);
        if !lifetime.is_zero() {
            self.asking = None;
            let until = now + lifetime;
            // The first ones stay: a flood of others pushes out none.
            let _ = self.routers.try_push(Router { address, until });
        }
    }

    /// A router says that a prefix is on this link until then.
    pub fn learn_on_link(
        &mut self,
        prefix: Prefix<Ipv6Addr>,
        until: Option<Instant>,
        now: Instant,
    ) {
        self.on_link
            .retain(|known| !known.prefix.is_same_network(&prefix) && is_before(now, known.until));
        if is_before(now, until) {
            let _ = self.on_link.try_push(OnLink { prefix, until });
        }
    }

    /// Bits of the longest prefix of this link that `destination` is in; `None` if it is in none.
    pub fn on_link(&self, destination: Ipv6Addr, now: Instant) -> Option<u8> {
        let known = self.on_link.iter();
        let known = known.filter(|known| is_before(now, known.until));
        let holds = known.filter(|known| known.prefix.contains(destination));
        let longest = holds.map(|known| known.prefix.bits()).max();
        longest.or_else(|| {
            destination
                .is_unicast_link_local()
                .then_some(LINK_LOCAL_BITS)
        })
    }

    /// Whom packets to `destination` go to. Of several routers, one goes first that `reaches` says
    /// is there, so that the others take over for one that does not answer (RFC 4861, 6.3.6).
    #[inline]
    pub fn next_hop(
        &self,
        destination: Ipv6Addr,
        reaches: impl Fn(Ipv6Addr) -> bool,
        now: Instant,
    ) -> Option<Ipv6Addr> {
        let on_link =
            |known: &OnLink| known.prefix.contains(destination) && is_before(now, known.until);
        if destination.is_unicast_link_local() || self.on_link.iter().any(on_link) {
            return Some(destination);
        }
        let mut current = self.routers.iter().filter(|router| now < router.until);
        let first = current.next()?;
        let chosen = if reaches(first.address) {
            first
        } else {
            current
                .find(|router| reaches(router.address))
                .unwrap_or(first)
        };
        Some(chosen.address)
    }
}

fn is_before(now: Instant, until: Option<Instant>) -> bool {
    until.is_none_or(|until| now < until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
    const NEAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const FAR: Ipv6Addr = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1);

    #[test]
    fn routers_are_asked_three_times_or_until_one_answers() {
        let mut routers = Routers::new();
        routers.ask(&mut Random::new(1), at(0));
        let mut asked = 0;
        while let Some(due) = routers.deadline() {
            asked += usize::from(routers.take_solicitation(due));
            assert!(!routers.take_solicitation(due));
        }
        assert_eq!(asked, 3);
        routers.ask(&mut Random::new(1), at(0));
        routers.learn(ROUTER, Duration::from_secs(9), at(0));
        assert_eq!(routers.deadline(), None);
    }

    #[test]
    fn what_is_on_link_goes_there_and_the_rest_to_a_router() {
        let mut routers = Routers::new();
        let next = |routers: &Routers, to, ms| routers.next_hop(to, |_| true, at(ms));
        assert_eq!(next(&routers, ROUTER, 0), Some(ROUTER));
        assert_eq!(next(&routers, NEAR, 0), None);
        routers.learn(ROUTER, Duration::from_secs(9), at(0));
        assert_eq!(next(&routers, NEAR, 0), Some(ROUTER));
        let prefix = Prefix::new(NEAR, 64).unwrap();
        routers.learn_on_link(prefix, Some(at(5000)), at(0));
        assert_eq!(
            (next(&routers, NEAR, 0), next(&routers, FAR, 0)),
            (Some(NEAR), Some(ROUTER))
        );
        assert_eq!(
            (next(&routers, NEAR, 5000), next(&routers, FAR, 9000)),
            (Some(ROUTER), None)
        );
        routers.learn_on_link(prefix, None, at(0));
        routers.learn_on_link(prefix, Some(at(0)), at(0));
        routers.learn(ROUTER, Duration::ZERO, at(0));
        assert_eq!(next(&routers, NEAR, 0), None);
    }

    #[test]
    fn floods_of_advertisements_are_bounded_and_push_nobody_out() {
        let mut routers = Routers::new();
        routers.learn(ROUTER, Duration::from_secs(9), at(0));
        for n in 0..1000 {
            let other = Ipv6Addr::from_bits(ROUTER.to_bits() + 1 + n);
            routers.learn(other, Duration::from_secs(9), at(0));
            let prefix = Prefix::new(Ipv6Addr::from_bits(n << 64), 64).unwrap();
            routers.learn_on_link(prefix, None, at(0));
        }
        assert_eq!(
            (routers.routers.len(), routers.on_link.len()),
            (ROUTERS_MAX, ON_LINK_MAX)
        );
        assert_eq!(routers.next_hop(FAR, |_| true, at(0)), Some(ROUTER));
    }

    #[test]
    fn another_router_takes_over_for_one_that_does_not_answer() {
        let mut routers = Routers::new();
        let second = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 10);
        routers.learn(ROUTER, Duration::from_secs(9), at(0));
        routers.learn(second, Duration::from_secs(9), at(0));
        let next = |reaches: fn(Ipv6Addr) -> bool| routers.next_hop(FAR, reaches, at(0));
        assert_eq!(next(|_| true), Some(ROUTER));
        assert_eq!(next(|address| address != ROUTER), Some(second));
        assert_eq!(next(|_| false), Some(ROUTER));
    }
}
