//! Addresses of both versions of IP, as the parts see them that the versions share.

use core::fmt::Debug;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::checksum;

/// An address of one version of IP.
pub trait Address: Copy + Ord + Debug + Into<IpAddr> + 'static {
    /// Bits of an address.
    const BITS: u8;

    /// The address as a number.
    fn number(self) -> u128;

    /// The address of that number; `None` if an address has fewer bits.
    fn of_number(number: u128) -> Option<Self>;

    /// Whether it can be one station's own.
    fn is_station(self) -> bool;
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;

    #[inline]
    fn number(self) -> u128 {
        self.to_bits().into()
    }

    fn of_number(number: u128) -> Option<Self> {
        Some(Self::from_bits(u32::try_from(number).ok()?))
    }

    fn is_station(self) -> bool {
        !(self.is_unspecified() || self.is_multicast() || self.is_broadcast())
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;

    #[inline]
    fn number(self) -> u128 {
        self.to_bits()
    }

    fn of_number(number: u128) -> Option<Self> {
        Some(Self::from_bits(number))
    }

    fn is_station(self) -> bool {
        !(self.is_unspecified() || self.is_multicast())
    }
}

/// An address, and how many of its first bits its network shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<A> {
    address: A,
    bits: u8,
}

impl<A: Address> Prefix<A> {
    /// `None` if an address has fewer bits.
    pub fn new(address: A, bits: u8) -> Option<Self> {
        (bits <= A::BITS).then_some(Self { address, bits })
    }

    /// The address, its bits behind the prefix included.
    #[inline]
    pub fn address(&self) -> A {
        self.address
    }

    /// Bits that the network shares.
    #[inline]
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether both are of the same network.
    pub fn is_same_network(&self, other: &Self) -> bool {
        self.bits == other.bits && self.contains(other.address)
    }

    /// Whether `address` lies in the network.
    #[inline]
    pub fn contains(&self, address: A) -> bool {
        // A shift by all bits of the number is none.
        let shift = u32::from(A::BITS - self.bits);
        let differ = self.address.number() ^ address.number();
        differ.checked_shr(shift).unwrap_or(0) == 0
    }
}

impl Prefix<Ipv6Addr> {
    /// All addresses: where a default route leads.
    pub const ALL_IPV6: Self = Self {
        address: Ipv6Addr::UNSPECIFIED,
        bits: 0,
    };
}

impl Prefix<Ipv4Addr> {
    /// All addresses: where a default route leads.
    pub const ALL_IPV4: Self = Self {
        address: Ipv4Addr::UNSPECIFIED,
        bits: 0,
    };

    /// The network's own broadcast address; `None` for a point-to-point network (RFC 3021).
    #[inline]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        let host = u32::MAX.checked_shr(self.bits.into()).unwrap_or(0);
        (self.bits < 31).then(|| Ipv4Addr::from_bits(self.address.to_bits() | host))
    }
}

/// Sum of the pseudo header that checksums of transport protocols cover (RFC 9293, 3.1; RFC 8200,
/// 8.1), not yet folded. `len` counts the bytes of transport header and payload.
#[inline]
pub fn pseudo_sum(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u64 {
    let addresses = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            checksum::sum(&source.octets()) + checksum::sum(&destination.octets())
        }
        (source, destination) => {
            checksum::sum(&to_ipv6(source).octets()) + checksum::sum(&to_ipv6(destination).octets())
        }
    };
    // The high half of a longer length has no place in 16 bits: packets end at 65,535 bytes.
    addresses + checksum::word(protocol.into()) + checksum::word(len as u16)
}

fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(address: [u8; 4], bits: u8) -> Prefix<Ipv4Addr> {
        Prefix::new(address.into(), bits).unwrap()
    }

    #[test]
    fn a_network_contains_what_shares_its_prefix() {
        let network = v4([10, 1, 2, 3], 16);
        assert!(network.contains([10, 1, 255, 255].into()));
        assert!(!network.contains([10, 2, 2, 3].into()));
        assert!(v4([0; 4], 0).contains([255; 4].into()));
        assert!(!v4([10, 0, 0, 1], 32).contains([10, 0, 0, 2].into()));
        let all = Prefix::new(Ipv6Addr::UNSPECIFIED, 0).unwrap();
        assert!(all.contains(Ipv6Addr::LOCALHOST));
        assert_eq!(Prefix::new(Ipv4Addr::LOCALHOST, 33), None);
    }

    #[test]
    fn point_to_point_networks_have_no_broadcast() {
        let broadcast = v4([10, 1, 2, 3], 24).broadcast();
        assert_eq!(broadcast, Some([10, 1, 2, 255].into()));
        assert_eq!(v4([10, 1, 2, 3], 31).broadcast(), None);
        assert_eq!(v4([10, 1, 2, 3], 0).broadcast(), Some([255; 4].into()));
    }

    #[test]
    fn the_pseudo_header_is_that_of_the_rfcs() {
        let (a, b) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 129));
        let header = [192, 0, 2, 1, 192, 0, 2, 129, 0, 17, 0x12, 0x34];
        let sum = pseudo_sum(a.into(), b.into(), 17, 0x1234);
        assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&header)));

        let (a, b) = (Ipv6Addr::LOCALHOST, Ipv6Addr::from([7; 16]));
        let mut header = [0; 40];
        header[..16].copy_from_slice(&a.octets());
        header[16..32].copy_from_slice(&b.octets());
        header[34..36].copy_from_slice(&[0x12, 0x34]);
        header[39] = 6;
        let sum = pseudo_sum(a.into(), b.into(), 6, 0x1234);
        assert_eq!(checksum::fold(sum), checksum::fold(checksum::sum(&header)));
    }
}
