//! What packets to a destination may measure on the whole way (RFC 1191, RFC 8201).
//!
//! Anybody can send an ICMP message. So a report counts only if who owns the quoted packet says
//! that it is in flight ([`believed`]); it only ever lowers; it never lowers below what every link
//! carries; and it is forgotten after ten minutes.

use crate::address::Address;
use crate::icmp::{Kind, Report};
use alloc::collections::BTreeMap;
use core::time::Duration;
use ports::Instant;

/// Destinations that are known at once.
pub const DESTINATIONS_MAX: usize = 512;

/// How long a report counts (RFC 1191, 6.3; RFC 8201, 4).
const AGE: Duration = Duration::from_secs(600);

/// Less is no report: RFC 8200, 5 for IPv6. IPv4 allows 68, but Linux takes nothing below 552, so
/// that no liar makes us send ten times the packets.
const IPV6_MIN: usize = 1280;
const IPV4_MIN: usize = 552;

/// Common MTUs, for routers that do not tell theirs (RFC 1191, 7.1).
const PLATEAUS: [usize; 8] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, IPV4_MIN];

/// What a report says about a destination that so far was sent packets of `current` bytes; `None`
/// if it counts for nothing. `reported` is zero if the router did not say; `quoted` is the length
/// of the packet that was too big. `live` is whether that packet is known to be in flight.
pub fn believed<A: Address>(
    current: usize,
    reported: usize,
    quoted: usize,
    live: bool,
) -> Option<usize> {
    let least = if A::BITS == 32 { IPV4_MIN } else { IPV6_MIN };
    let reported = if reported == 0 {
        let smaller = PLATEAUS.into_iter().find(|plateau| *plateau < quoted);
        smaller.unwrap_or(IPV4_MIN)
    } else {
        reported
    };
    let mtu = reported.max(least);
    (live && mtu < current).then_some(mtu)
}

#[derive(Clone, Copy, Debug)]
struct Path {
    mtu: usize,
    until: Instant,
}

/// Paths that carry less than the link.
#[derive(Debug)]
pub struct PathMtu<A> {
    paths: BTreeMap<A, Path>,
}

impl<A> Default for PathMtu<A> {
    fn default() -> Self {
        Self {
            paths: BTreeMap::new(),
        }
    }
}

impl<A: Address> PathMtu<A> {
    /// Largest packet for `destination` over a link that carries `link` bytes.
    #[inline]
    pub fn get(&self, destination: A, link: usize, now: Instant) -> usize {
        if self.paths.is_empty() {
            return link;
        }
        let path = self.paths.get(&destination);
        let known = path.filter(|path| now < path.until);
        known.map_or(link, |path| path.mtu.min(link))
    }

    /// Takes in a report about a packet of ours, where so far packets of `current` bytes were sent;
    /// the MTU that is [`believed`] and kept, if the report says anything of one.
    pub fn heed(
        &mut self,
        current: usize,
        report: &Report<A>,
        live: bool,
        now: Instant,
    ) -> Option<usize> {
        let Kind::TooBig { mtu } = report.kind else {
            return None;
        };
        let mtu = believed::<A>(current, mtu, report.len, live)?;
        self.learn(report.destination, mtu, now);
        Some(mtu)
    }

    /// Keeps what was [`believed`]. If too many are known, the one that ends first is forgotten.
    pub fn learn(&mut self, destination: A, mtu: usize, now: Instant) {
        if self.paths.len() >= DESTINATIONS_MAX && !self.paths.contains_key(&destination) {
            let oldest = self.paths.iter().min_by_key(|(_, path)| path.until);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.paths.remove(&oldest);
            }
        }
        let path = Path {
            mtu,
            until: now + AGE,
        };
        self.paths.insert(destination, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use core::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn only_a_live_packet_lowers_and_never_too_far() {
        let v4 = believed::<Ipv4Addr>;
        assert_eq!(v4(1500, 1400, 1500, true), Some(1400));
        assert_eq!(v4(1500, 1400, 1500, false), None);
        assert_eq!(v4(1400, 1500, 1500, true), None, "a report never raises");
        assert_eq!(v4(1500, 68, 1500, true), Some(552));
        let v6 = believed::<Ipv6Addr>;
        assert_eq!(v6(1500, 1000, 1500, true), Some(1280));
        assert_eq!(v6(1280, 1000, 1500, true), None);
    }

    #[test]
    fn a_router_that_says_nothing_means_the_next_smaller_link() {
        let v4 = believed::<Ipv4Addr>;
        assert_eq!(v4(1500, 0, 1500, true), Some(1492));
        assert_eq!(v4(9000, 0, 9000, true), Some(8166));
        assert_eq!(v4(600, 0, 500, true), Some(552));
    }

    #[test]
    fn paths_are_forgotten_after_ten_minutes_and_bounded() {
        let mut paths = PathMtu::default();
        let peer = Ipv4Addr::new(10, 0, 0, 2);
        paths.learn(peer, 1400, at(0));
        assert_eq!(paths.get(peer, 1500, at(599_999)), 1400);
        assert_eq!(paths.get(peer, 1300, at(0)), 1300);
        assert_eq!(paths.get(peer, 1500, at(600_000)), 1500);
        for n in 0..2000 {
            paths.learn(Ipv4Addr::from_bits(n), 1400, at(1 + u64::from(n)));
        }
        assert_eq!(paths.paths.len(), DESTINATIONS_MAX);
        assert_eq!(paths.get(Ipv4Addr::from_bits(1999), 1500, at(2001)), 1400);
    }
}
