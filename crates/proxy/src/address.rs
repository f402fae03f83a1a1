//! Addresses as programs write and read them: `struct sockaddr` of ip(7) and ipv6(7).

use crate::filter::family;
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of `sockaddr_in`, and the least of one that is taken.
const V4_BYTES: usize = 16;
/// Bytes of `sockaddr_in6`, and of one without its scope, which is taken as well (ipv6(7)).
const V6_BYTES: usize = 28;
const V6_BYTES_MIN: usize = 24;
/// Bytes of the longest one.
pub const BYTES_MAX: usize = V6_BYTES;
/// Bytes that the kernel takes at most: `struct sockaddr_storage`.
pub const STORAGE_BYTES: usize = 128;

/// The version of IP of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `AF_INET`
    V4,
    /// `AF_INET6`
    V6,
}

impl Family {
    /// The family with this number.
    pub fn of(number: u32) -> Option<Self> {
        match number {
            family::INET => Some(Self::V4),
            family::INET6 => Some(Self::V6),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            Self::V4 => family::INET as u16,
            Self::V6 => family::INET6 as u16,
        }
    }

    /// All addresses of this machine's.
    pub fn any(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// What a program has written as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// One of IP. IPv4 as IPv6 has it is IPv4 here.
    Address(SocketAddr),
    /// `AF_UNSPEC`: none any more.
    Nothing,
}

/// What a socket of this family takes these bytes for.
///
/// # Errors
/// `EINVAL` if they are too few, `EAFNOSUPPORT` if they are of another family.
pub fn read(socket: Family, bytes: &[u8]) -> Result<Named, Errno> {
    let Some((number, rest)) = bytes.split_first_chunk() else {
        return Err(Errno::INVAL);
    };
    let number = u32::from(u16::from_ne_bytes(*number));
    if number == 0 {
        return Ok(Named::Nothing);
    }
    let least = match socket {
        Family::V4 => V4_BYTES,
        Family::V6 => V6_BYTES_MIN,
    };
    if bytes.len() < least {
        return Err(Errno::INVAL);
    }
    if Family::of(number) != Some(socket) {
        return Err(Errno::AFNOSUPPORT);
    }
    let port = u16::from_be_bytes([rest[0], rest[1]]);
    let ip = match socket {
        Family::V4 => IpAddr::from([rest[2], rest[3], rest[4], rest[5]]),
        Family::V6 => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&rest[6..22]);
            IpAddr::from(octets).to_canonical()
        }
    };
    Ok(Named::Address(SocketAddr::new(ip, port)))
}

/// An address as a socket of this family shows it; its bytes, and how many they are.
pub fn write(socket: Family, address: SocketAddr) -> ([u8; BYTES_MAX], usize) {
    let mut bytes = [0; BYTES_MAX];
    bytes[..2].copy_from_slice(&socket.number().to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match (socket, address.ip()) {
        (Family::V4, IpAddr::V4(ip)) => {
            bytes[4..8].copy_from_slice(&ip.octets());
            (bytes, V4_BYTES)
        }
        // No socket of IPv4 has a peer of IPv6: it is shown none.
        (Family::V4, IpAddr::V6(_)) => (bytes, V4_BYTES),
        (Family::V6, ip) => {
            let ip = match ip {
                IpAddr::V4(ip) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED,
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let whole = SocketAddrV6::new(ip, address.port(), 0, 0);
            bytes[8..24].copy_from_slice(&whole.ip().octets());
            (bytes, V6_BYTES)
        }
    }
}

/// Where what is sent to this address from `local` goes: to this machine, if it names none. With
/// IPv4 that is the address that it comes from, where there is one (`ip_route_output_key_hash_rcu`
/// of Linux's `net/ipv4/route.c`).
pub fn destination(address: SocketAddr, local: IpAddr) -> SocketAddr {
    let ip = match (address.ip(), local) {
        (IpAddr::V4(ip), IpAddr::V4(local)) if ip.is_unspecified() && !local.is_unspecified() => {
            local.into()
        }
        (IpAddr::V4(ip), _) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        (IpAddr::V6(ip), _) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        (ip, _) => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(socket: Family, address: &str) -> Named {
        let (bytes, len) = write(socket, address.parse().unwrap());
        read(socket, &bytes[..len]).unwrap()
    }

    #[test]
    fn what_is_shown_is_what_is_taken() {
        for (socket, address) in [
            (Family::V4, "192.0.2.1:80"),
            (Family::V6, "[2001:db8::1]:443"),
            (Family::V6, "192.0.2.1:80"),
        ] {
            assert_eq!(
                round(socket, address),
                Named::Address(address.parse().unwrap())
            );
        }
    }

    #[test]
    fn bytes_are_those_of_the_manual() {
        let (bytes, len) = write(Family::V4, "192.0.2.1:80".parse().unwrap());
        assert_eq!(
            bytes[..len],
            [2, 0, 0, 80, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        let (bytes, len) = write(Family::V6, "192.0.2.1:258".parse().unwrap());
        assert_eq!(len, 28);
        assert_eq!(bytes[..8], [10, 0, 1, 2, 0, 0, 0, 0]);
        assert_eq!(bytes[18..28], [255, 255, 192, 0, 2, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let (v4, _) = write(Family::V4, "192.0.2.1:80".parse().unwrap());
        assert_eq!(read(Family::V4, &[]), Err(Errno::INVAL));
        assert_eq!(read(Family::V4, &[2]), Err(Errno::INVAL));
        assert_eq!(read(Family::V4, &v4[..15]), Err(Errno::INVAL));
        assert_eq!(read(Family::V6, &v4), Err(Errno::AFNOSUPPORT));
        assert_eq!(read(Family::V4, &[1; 20]), Err(Errno::AFNOSUPPORT));
        assert_eq!(read(Family::V6, &[0, 0]), Ok(Named::Nothing));
    }

    #[test]
    fn nowhere_is_here() {
        let from =
            |local: IpAddr, text: &str| destination(text.parse().unwrap(), local).to_string();
        for any in [Family::V4.any(), Family::V6.any()] {
            assert_eq!(from(any, "0.0.0.0:7"), "127.0.0.1:7");
            assert_eq!(from(any, "[::]:7"), "[::1]:7");
            assert_eq!(from(any, "192.0.2.1:7"), "192.0.2.1:7");
        }
        assert_eq!(from([192, 0, 2, 9].into(), "0.0.0.0:7"), "192.0.2.9:7");
        assert_eq!(from([192, 0, 2, 9].into(), "192.0.2.1:7"), "192.0.2.1:7");
        let v6 = "2001:db8::9".parse().unwrap();
        assert_eq!(from(v6, "[::]:7"), "[::1]:7");
    }
}
