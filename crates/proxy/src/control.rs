//! What is said beside a datagram: `struct cmsghdr` of cmsg(3), with `IP_PKTINFO` of ip(7) and
//! `IPV6_PKTINFO` of ipv6(7).

use crate::address::Family;
use rustix::io::Errno;
use std::net::{IpAddr, Ipv4Addr};

/// Bytes of a control message in front of what it says, and what its length is rounded up to.
const HEAD: usize = 16;
const ALIGNMENT: usize = 8;
/// Most bytes of control messages that are read.
pub const BYTES_MAX: usize = 1 << 10;
/// Levels: Linux's `include/linux/socket.h`.
const IP: i32 = 0;
const UDP: i32 = 17;
const IPV6: i32 = 41;
/// `IP_PKTINFO`, and bytes of `struct in_pktinfo`: the interface, our address, and where it went.
const PKTINFO: i32 = 8;
const PKTINFO_BYTES: usize = 12;
/// `IPV6_PKTINFO`, and bytes of `struct in6_pktinfo`: the address, and the interface.
const PKTINFO6: i32 = 50;
const PKTINFO6_BYTES: usize = 20;
/// `UDP_SEGMENT`: datagrams that are to be cut, which no option of ours says either.
const SEGMENT: i32 = 103;

/// Which control messages a socket wants with what it receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `IP_PKTINFO`
    pub v4: bool,
    /// `IPV6_RECVPKTINFO`
    pub v6: bool,
}

/// Control messages for whoever has received a datagram.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// As much of them as there is room for.
    pub bytes: Vec<u8>,
    /// There was too little room (`MSG_CTRUNC`).
    pub is_cut: bool,
}

impl Said {
    /// What a socket of this family is told, in so many bytes, of a datagram that went `to` one of
    /// our addresses, by the interface with this number.
    pub fn new(family: Family, wanted: Wanted, to: IpAddr, interface: i32, room: usize) -> Self {
        let mut said = Self::default();
        let number = interface.to_ne_bytes();
        if let (true, IpAddr::V4(to)) = (wanted.v4, to.to_canonical()) {
            let info = [number, to.octets(), to.octets()].concat();
            said.put((IP, PKTINFO), &info, room);
        }
        if wanted.v6 && family == Family::V6 {
            let to = match to {
                IpAddr::V4(to) => to.to_ipv6_mapped(),
                IpAddr::V6(to) => to,
            };
            let info = [&to.octets()[..], &number].concat();
            said.put((IPV6, PKTINFO6), &info, room);
        }
        said
    }

    /// Puts a message behind the others, as Linux's `put_cmsg` does.
    fn put(&mut self, (level, kind): (i32, i32), what: &[u8], room: usize) {
        let room = room.saturating_sub(self.bytes.len());
        let len = (HEAD + what.len()).min(room);
        self.is_cut |= len < HEAD + what.len();
        if room < HEAD {
            return;
        }
        let start = self.bytes.len();
        self.bytes.extend((len as u64).to_ne_bytes());
        self.bytes.extend(level.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(&what[..len - HEAD]);
        let whole = (HEAD + what.len()).next_multiple_of(ALIGNMENT).min(room);
        self.bytes.resize(start + whole, 0);
    }
}

/// From which of our addresses a datagram is to leave, as control messages say.
///
/// # Errors
/// `EINVAL` if they are none, or ask for what nobody does.
pub fn source(family: Family, mut bytes: &[u8]) -> Result<Option<IpAddr>, Errno> {
    let mut source = None;
    while bytes.len() >= HEAD {
        let (head, _) = bytes.split_at(HEAD);
        let len = usize::try_from(word(head)).unwrap_or(usize::MAX);
        if !(HEAD..=bytes.len()).contains(&len) {
            return Err(Errno::INVAL);
        }
        let what = &bytes[HEAD..len];
        match (int(&head[8..]), int(&head[12..])) {
            (IP, PKTINFO) => {
                let ip: [u8; 4] = exactly::<PKTINFO_BYTES, 4>(what, 4)?;
                source = Some(IpAddr::V4(ip.into()));
            }
            (IPV6, PKTINFO6) if family == Family::V6 => {
                let ip: [u8; 16] = exactly::<PKTINFO6_BYTES, 16>(what, 0)?;
                source = Some(IpAddr::from(ip).to_canonical());
            }
            (UDP, SEGMENT) => return Err(Errno::INVAL),
            // What says something of packets that the stack decides by itself.
            _ => {}
        }
        bytes = bytes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or(&[]);
    }
    let any = |ip: &IpAddr| ip.is_unspecified() || *ip == Ipv4Addr::UNSPECIFIED;
    Ok(source.filter(|ip| !any(ip)))
}

/// The `N` bytes from `at` of what has exactly `WHOLE`.
fn exactly<const WHOLE: usize, const N: usize>(what: &[u8], at: usize) -> Result<[u8; N], Errno> {
    let whole: &[u8; WHOLE] = what.try_into().map_err(|_| Errno::INVAL)?;
    let part = whole.get(at..).and_then(<[u8]>::first_chunk);
    part.copied().ok_or(Errno::INVAL)
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_ne_bytes(*word))
}

fn int(bytes: &[u8]) -> i32 {
    bytes
        .first_chunk()
        .map_or(0, |int| i32::from_ne_bytes(*int))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Wanted = Wanted { v4: true, v6: true };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_said_is_what_an_answer_is_sent_from() {
        for (family, to) in [
            (Family::V4, "192.0.2.1"),
            (Family::V6, "192.0.2.1"),
            (Family::V6, "2001:db8::1"),
        ] {
            let said = Said::new(family, BOTH, ip(to), 2, 1024);
            assert!(!said.is_cut);
            assert_eq!(source(family, &said.bytes), Ok(Some(ip(to))));
        }
        let nothing = Said::new(Family::V4, Wanted::default(), ip("192.0.2.1"), 2, 1024);
        assert_eq!(nothing, Said::default());
        let other = Said::new(Family::V4, BOTH, ip("2001:db8::1"), 2, 1024);
        assert_eq!(other, Said::default());
    }

    #[test]
    fn bytes_are_those_of_the_manual() {
        let said = Said::new(Family::V4, BOTH, ip("192.0.2.1"), 3, 1024);
        let head = [28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0];
        let info = [3, 0, 0, 0, 192, 0, 2, 1, 192, 0, 2, 1, 0, 0, 0, 0];
        assert_eq!(said.bytes, [head, info].concat());
        // Unspecified: whoever chooses the interface alone leaves the address to the route.
        let mut any = said.bytes.clone();
        any[20..24].fill(0);
        assert_eq!(source(Family::V4, &any), Ok(None));
    }

    #[test]
    fn what_has_no_room_is_cut_as_the_kernel_cuts_it() {
        for room in 0..64 {
            let said = Said::new(Family::V4, BOTH, ip("192.0.2.1"), 3, room);
            assert_eq!(said.is_cut, room < 28, "{room}");
            let shown = if room < HEAD { 0 } else { room.min(32) };
            assert_eq!(said.bytes.len(), shown, "{room}");
            if shown > 0 {
                assert_eq!(word(&said.bytes) as usize, room.min(28), "{room}");
            }
        }
    }

    #[test]
    fn what_is_no_control_message_is_refused() {
        let head = |len: u64, level: i32, kind: i32| {
            let words = [level.to_ne_bytes(), kind.to_ne_bytes()].concat();
            [&len.to_ne_bytes()[..], &words].concat()
        };
        assert_eq!(source(Family::V4, &[1; 15]), Ok(None));
        for len in [0, 15, 17, u64::MAX] {
            let bytes = head(len, 0, 8);
            assert_eq!(source(Family::V4, &bytes), Err(Errno::INVAL), "{len}");
        }
        // Too short for what it is, and of datagrams that are to be cut.
        assert_eq!(source(Family::V4, &head(16, 0, 8)), Err(Errno::INVAL));
        assert_eq!(source(Family::V6, &head(16, 41, 50)), Err(Errno::INVAL));
        assert_eq!(source(Family::V4, &head(16, 17, 103)), Err(Errno::INVAL));
        assert_eq!(source(Family::V4, &head(16, 0, 2)), Ok(None));
    }
}
