//! Our own addresses: found to be nobody else's before their use, with lifetimes (RFC 4862, 5.4 and
//! 5.5), and the choice among them (RFC 6724, 5).

use crate::address::Prefix;
use crate::arp::Detect;
use crate::random::Random;
use arrayvec::ArrayVec;
use core::net::Ipv6Addr;
use core::time::Duration;
use ports::Instant;

/// Addresses of one port.
pub const ADDRESSES_MAX: usize = 16;

/// Solicitations before an address is ours: DupAddrDetectTransmits (RFC 4862, 5.1).
const SOLICITATIONS: u8 = 1;
/// Time between them, and before the address is ours: RETRANS_TIMER (RFC 4861, 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(1);
/// Before the first one: MAX_RTR_SOLICITATION_DELAY (RFC 4861, 10).
const DELAY_MAX: Duration = Duration::from_secs(1);

/// An advertisement that nobody has proved to be from a router shortens a lifetime to this at least
/// (RFC 4862, 5.5.3 e).
const SHORTENED_MIN: Duration = Duration::from_secs(2 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many solicitations were sent; usable at once or not.
    Tentative(u8, Detect),
    /// It is ours.
    Held,
    /// Somebody else has it.
    Duplicate,
}

/// How long an address is used; `None` is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Until when new conversations use it.
    pub preferred: Option<Instant>,
    /// Until when it is ours.
    pub valid: Option<Instant>,
}

impl Lifetimes {
    /// For ever.
    pub const INFINITE: Self = Self {
        preferred: None,
        valid: None,
    };
}

#[derive(Clone, Copy, Debug)]
struct Own {
    prefix: Prefix<Ipv6Addr>,
    stage: Stage,
    due: Instant,
    lifetimes: Lifetimes,
}

impl Own {
    fn is_usable(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Tentative(_, Detect::Later))
    }

    fn due(&self) -> Option<Instant> {
        let step = matches!(self.stage, Stage::Tentative(..)).then_some(self.due);
        step.into_iter().chain(self.lifetimes.valid).min()
    }
}

/// Our addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    own: ArrayVec<Own, ADDRESSES_MAX>,
    random: Random,
}

impl Addresses {
    pub fn new(seed: u64) -> Self {
        Self {
            own: ArrayVec::new(),
            random: Random::new(seed),
        }
    }

    /// Adds an address; `false` if there are too many.
    pub fn add(
        &mut self,
        prefix: Prefix<Ipv6Addr>,
        detect: Detect,
        lifetimes: Lifetimes,
        now: Instant,
    ) -> bool {
        self.remove(prefix.address());
        let delay = match detect {
            Detect::First => self.random.within(DELAY_MAX),
            Detect::Soon | Detect::Later => Duration::ZERO,
        };
        let own = Own {
            prefix,
            stage: Stage::Tentative(0, detect),
            due: now + delay,
            lifetimes,
        };
        self.own.try_push(own).is_ok()
    }

    pub fn remove(&mut self, address: Ipv6Addr) {
        self.own.retain(|own| own.prefix.address() != address);
    }

    /// Whether an address is ours to use.
    #[inline]
    pub fn is_usable(&self, address: Ipv6Addr) -> bool {
        self.find(address).is_some_and(Own::is_usable)
    }

    /// Whether an address is or will be ours.
    pub fn is_own(&self, address: Ipv6Addr) -> bool {
        self.find(address).is_some()
    }

    /// Whether somebody else turned out to have an address.
    pub fn is_duplicate(&self, address: Ipv6Addr) -> bool {
        self.find(address)
            .is_some_and(|own| own.stage == Stage::Duplicate)
    }

    /// Whether `group` is the solicited-node group of an address of ours (RFC 4291, 2.7.1).
    pub fn is_solicited(&self, group: Ipv6Addr) -> bool {
        self.own
            .iter()
            .any(|own| solicited(own.prefix.address()) == group)
    }

    /// Somebody else showed to have an address of ours, or to want it. Returns whether that ended
    /// our claim.
    pub fn conflict(&mut self, address: Ipv6Addr) -> bool {
        let own = self
            .own
            .iter_mut()
            .find(|own| own.prefix.address() == address);
        match own {
            Some(own) if matches!(own.stage, Stage::Tentative(..)) => {
                own.stage = Stage::Duplicate;
                true
            }
            _ => false,
        }
    }

    /// An advertisement renews or shortens the lifetimes of an address (RFC 4862, 5.5.3 e); `false`
    /// if it is not ours yet.
    pub fn renew(&mut self, address: Ipv6Addr, new: Lifetimes, now: Instant) -> bool {
        let own = self
            .own
            .iter_mut()
            .find(|own| own.prefix.address() == address);
        let Some(own) = own else {
            return false;
        };
        own.lifetimes.preferred = new.preferred;
        let least = now + SHORTENED_MIN;
        own.lifetimes.valid = match (own.lifetimes.valid, new.valid) {
            (_, None) => None,
            // It grows, or ends late enough.
            (_, Some(new)) if new >= least => Some(new),
            (Some(old), Some(new)) if new >= old => Some(new),
            (Some(old), Some(_)) if old <= least => Some(old),
            _ => Some(least),
        };
        true
    }

    /// The address for which a solicitation is due now, if any: to be called until there is none.
    pub fn next_solicitation(&mut self, now: Instant) -> Option<Ipv6Addr> {
        self.own
            .retain(|own| own.lifetimes.valid.is_none_or(|valid| now < valid));
        for own in &mut self.own {
            if let Stage::Tentative(sent, detect) = own.stage
                && own.due <= now
            {
                own.due = now + SOLICITATION_INTERVAL;
                if sent < SOLICITATIONS {
                    own.stage = Stage::Tentative(sent + 1, detect);
                    return Some(own.prefix.address());
                }
                own.stage = Stage::Held;
            }
        }
        None
    }

    /// When [`Self::next_solicitation`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.own.iter().filter_map(Own::due).min()
    }

    /// The address that packets to `destination` come from (RFC 6724, 5: rules 1, 2, 3 and 8).
    pub fn source(&self, destination: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        let local = scope_is_link(destination);
        let usable = self.own.iter().filter(|own| own.is_usable());
        let best = usable.max_by_key(|own| {
            let address = own.prefix.address();
            let fresh = own
                .lifetimes
                .preferred
                .is_none_or(|preferred| now < preferred);
            let differ = address.to_bits() ^ destination.to_bits();
            let same = differ.leading_zeros().min(own.prefix.bits().into());
            (scope_is_link(address) == local, fresh, same)
        })?;
        Some(best.prefix.address())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Prefix<Ipv6Addr>> + '_ {
        self.own.iter().map(|own| own.prefix)
    }

    fn find(&self, address: Ipv6Addr) -> Option<&Own> {
        self.own.iter().find(|own| own.prefix.address() == address)
    }
}

/// Whether an address means something on its link only.
pub(super) fn scope_is_link(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_unicast_link_local() || (first == 0xff && second & 0xf <= 2)
}

/// The group to which solicitations for an address go (RFC 4291, 2.7.1).
pub(super) fn solicited(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const GLOBAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const OTHER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

    fn prefix(address: Ipv6Addr) -> Prefix<Ipv6Addr> {
        Prefix::new(address, 64).unwrap()
    }

    fn with(all: &[Ipv6Addr]) -> Addresses {
        let mut addresses = Addresses::new(1);
        for address in all {
            addresses.add(prefix(*address), Detect::Later, Lifetimes::INFINITE, at(0));
        }
        addresses
    }

    #[test]
    fn an_address_is_used_once_nobody_else_is_known_to_have_it() {
        let mut addresses = Addresses::new(1);
        addresses.add(prefix(LOCAL), Detect::First, Lifetimes::INFINITE, at(0));
        let first = addresses.deadline().unwrap();
        assert!(first < at(1000));
        assert_eq!(addresses.next_solicitation(first), Some(LOCAL));
        assert_eq!(addresses.next_solicitation(first), None);
        assert!(!addresses.is_usable(LOCAL) && addresses.is_own(LOCAL));
        assert!(addresses.is_solicited("ff02::1:ff00:1".parse().unwrap()));
        let second = addresses.deadline().unwrap();
        assert_eq!(second, first + Duration::from_secs(1));
        assert_eq!(addresses.next_solicitation(second), None);
        assert!(addresses.is_usable(LOCAL) && addresses.deadline().is_none());
        assert!(!addresses.conflict(LOCAL), "too late");
    }

    #[test]
    fn a_duplicate_is_not_used() {
        let mut addresses = with(&[LOCAL]);
        assert!(
            addresses.is_usable(LOCAL),
            "until the duplicate is heard of"
        );
        assert!(addresses.conflict(LOCAL));
        assert!(addresses.is_duplicate(LOCAL) && !addresses.is_usable(LOCAL));
        assert_eq!(addresses.next_solicitation(at(9000)), None);
    }

    #[test]
    fn a_source_has_the_scope_of_its_destination_and_is_near() {
        let addresses = with(&[LOCAL, GLOBAL, OTHER]);
        let source = |to: &str| addresses.source(to.parse().unwrap(), at(0)).unwrap();
        assert_eq!(source("fe80::9"), LOCAL);
        assert_eq!(source("ff02::1"), LOCAL);
        assert_eq!(source("2001:db8::9"), GLOBAL);
        assert_eq!(source("fd00::9"), OTHER);
        assert_eq!(source("2600::1"), GLOBAL);
        assert_eq!(Addresses::new(1).source(LOCAL, at(0)), None);
    }

    #[test]
    fn addresses_grow_old_and_end() {
        let mut addresses = with(&[OTHER]);
        let lifetimes = Lifetimes {
            preferred: Some(at(10)),
            valid: Some(at(20)),
        };
        addresses.add(prefix(GLOBAL), Detect::Later, lifetimes, at(0));
        let far = "2001:db8::9".parse().unwrap();
        assert_eq!(addresses.source(far, at(9)), Some(GLOBAL));
        assert_eq!(addresses.source(far, at(10)), Some(OTHER));
        while addresses.next_solicitation(at(20)).is_some() {}
        assert!(!addresses.is_own(GLOBAL));
    }

    #[test]
    fn an_advertisement_shortens_to_two_hours_at_least() {
        let hours = |n: u64| at(n * 3_600_000);
        let valid = |valid| Lifetimes {
            preferred: None,
            valid,
        };
        let mut addresses = Addresses::new(1);
        addresses.add(prefix(GLOBAL), Detect::Later, valid(Some(hours(9))), at(0));
        let mut renewed = |new| {
            assert!(addresses.renew(GLOBAL, valid(new), at(0)));
            addresses.own[0].lifetimes.valid
        };
        assert_eq!(renewed(Some(hours(1))), Some(hours(2)));
        assert_eq!(renewed(Some(hours(1))), Some(hours(2)));
        assert_eq!(renewed(Some(hours(5))), Some(hours(5)));
        assert_eq!(renewed(None), None);
        assert!(!addresses.renew(OTHER, Lifetimes::INFINITE, at(0)));
    }
}
