//! Which connection a segment belongs to, and numbers that only we can know beforehand (RFC 6528).

use super::connection::Opening;
use super::segment::Segment;
use super::seq::Seq;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use ports::Instant;
use siphasher::sip::SipHasher13;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Both ends of a connection. IPv4 addresses are mapped into IPv6 (RFC 4291, 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ends {
    local: [u8; 16],
    remote: [u8; 16],
    local_port: u16,
    remote_port: u16,
}

impl Ends {
    /// These two.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: mapped(local.ip()),
            remote: mapped(remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// Those of a segment that came from `source` to `destination`.
    pub fn of(source: IpAddr, destination: IpAddr, segment: &Segment) -> Self {
        Self {
            local: mapped(destination),
            remote: mapped(source),
            local_port: segment.destination,
            remote_port: segment.source,
        }
    }

    /// Our end.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.local).to_canonical(), self.local_port)
    }

    /// The peer's end.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(Ipv6Addr::from(self.remote).to_canonical(), self.remote_port)
    }
}

impl Hash for Ends {
    /// All of it at once: it is done for each segment.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// What initial numbers, ports and cookies are made with. Whoever knows it can forge segments: it
/// is new at each start, and never a part of a connection's state. That of cookies outlives the
/// image in its vault.
#[derive(Clone)]
pub struct Secret([u8; 16]);

/// For what a number is made: numbers for one thing tell nothing of those for another.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    InitialNumber,
    Timestamps,
    Cookie,
    Port,
    Name,
}

impl Secret {
    /// A secret of these random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The random bytes.
    pub(super) fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// A number that follows from `ends` and `more`, and that nobody else can guess.
    pub(super) fn number(&self, purpose: Purpose, ends: &Ends, more: [u32; 3]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write_u8(purpose as u8);
        ends.hash(&mut hasher);
        more.iter().for_each(|number| hasher.write_u32(*number));
        hasher.finish()
    }

    /// With what our side of a connection begins at `now` (RFC 6528, 3; RFC 7323, 5.4). `mss`: the
    /// largest segment that we take.
    pub fn opening(&self, ends: &Ends, mss: u16, now: Instant) -> Opening {
        Opening {
            iss: self.initial_number(ends, now),
            stamp_offset: self.stamp_offset(ends),
            mss,
        }
    }

    /// The number with which our side of a connection begins at `now` (RFC 6528, 3).
    pub(super) fn initial_number(&self, ends: &Ends, now: Instant) -> Seq {
        // A clock of 4 microseconds (RFC 9293, 3.4.1).
        let clock = (now.0 / 4000) as u32;
        let number = self.number(Purpose::InitialNumber, ends, [0; 3]) as u32;
        Seq(number.wrapping_add(clock))
    }

    /// What is added to the clock of a connection's timestamps: the same for all connections
    /// between two ends, so that an old one's segments are known as old.
    pub(super) fn stamp_offset(&self, ends: &Ends) -> u32 {
        self.number(Purpose::Timestamps, ends, [0; 3]) as u32
    }

    /// A port to connect from, by counting upwards from a place that depends on the other end
    /// (RFC 6056, 3.3.3). `count`: of such connections before.
    pub fn port(&self, ends: &Ends, count: u32) -> u16 {
        let free = u32::from(u16::MAX - EPHEMERAL_FIRST) + 1;
        let somewhere = self.number(Purpose::Port, ends, [0; 3]) as u32;
        // Below 2^16.
        EPHEMERAL_FIRST + (somewhere.wrapping_add(count) % free) as u16
    }
}

/// The first port that may be taken for a connection that we open; the last one is 65,535 (RFC
/// 6335, 6).
pub const EPHEMERAL_FIRST: u16 = 49_152;

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn ends(port: u16) -> Ends {
        let remote = SocketAddr::new("2001:db8::1".parse().unwrap(), 80);
        Ends::new(SocketAddr::new("10.0.0.2".parse().unwrap(), port), remote)
    }

    #[test]
    fn addresses_come_back() {
        assert_eq!(ends(7).local().to_string(), "10.0.0.2:7");
        assert_eq!(ends(7).remote().to_string(), "[2001:db8::1]:80");
        let segment = Segment {
            source: 80,
            destination: 7,
            ..Segment::default()
        };
        let (remote, local) = (ends(7).remote(), ends(7).local());
        assert_eq!(Ends::of(remote.ip(), local.ip(), &segment), ends(7));
    }

    #[test]
    fn numbers_follow_the_clock_and_tell_nothing_of_others() {
        let secret = Secret::new([1; 16]);
        let first = secret.opening(&ends(1), 1460, Instant(0));
        let later = secret.opening(&ends(1), 1460, Instant(4_000_000));
        assert_eq!(later.iss - first.iss, 1000);
        assert_eq!(later.stamp_offset, first.stamp_offset);
        let other = secret.opening(&ends(2), 1460, Instant(0));
        assert_ne!(other.iss, first.iss);
        let guess = Secret::new([2; 16]).opening(&ends(1), 1460, Instant(0));
        assert_ne!(guess.iss, first.iss);
    }

    #[test]
    fn ports_count_up_within_their_range() {
        let secret = Secret::new([1; 16]);
        let ports: std::vec::Vec<_> = (0..20_000)
            .map(|count| secret.port(&ends(0), count))
            .collect();
        assert!(ports.iter().all(|port| *port >= EPHEMERAL_FIRST));
        assert!(
            ports
                .windows(2)
                .all(|pair| pair[1] == pair[0].wrapping_add(1).max(EPHEMERAL_FIRST))
        );
    }
}
