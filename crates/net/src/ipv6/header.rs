//! The header of IPv6, and those that may follow it (RFC 8200, 3 and 4).

use super::Dropped;
use core::net::Ipv6Addr;

/// Bytes of the header.
pub const SIZE: usize = 40;
/// Bytes of a fragment header (RFC 8200, 4.5).
pub const FRAGMENT_SIZE: usize = 8;

/// Extension headers that are looked through.
const EXTENSIONS_MAX: usize = 8;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
/// A fragment follows.
pub const FRAGMENT: u8 = 44;
const NOTHING: u8 = 59;
const DESTINATION: u8 = 60;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub class: u8,
    /// Bytes behind the header.
    pub payload: u16,
    /// Protocol of what follows.
    pub next: u8,
    /// Hops left.
    pub hops: u8,
    /// Who sent it.
    pub source: Ipv6Addr,
    /// Whom it is for.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Writes it.
    #[inline]
    pub fn emit(&self, place: &mut [u8; SIZE]) {
        // No flow label (RFC 6437, 3): nothing that we send asks for one.
        place[..4].copy_from_slice(&[0x60 | self.class >> 4, self.class << 4, 0, 0]);
        place[4..6].copy_from_slice(&self.payload.to_be_bytes());
        place[6] = self.next;
        place[7] = self.hops;
        place[8..24].copy_from_slice(&self.source.octets());
        place[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// Reads the header of a packet.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub fn parse(packet: &[u8]) -> Result<Header, Dropped> {
    let fixed: &[u8; SIZE] = packet.first_chunk().ok_or(Dropped::Short)?;
    if fixed[0] >> 4 != 6 {
        return Err(Dropped::Version);
    }
    let payload = u16::from_be_bytes([fixed[4], fixed[5]]);
    if SIZE + usize::from(payload) > packet.len() {
        return Err(Dropped::Short);
    }
    let [_, _, _, _, _, _, _, _, rest @ ..] = fixed;
    let (source, destination) = rest.split_at(16);
    let address = |bytes: &[u8]| bytes.first_chunk().map(|bytes: &[u8; 16]| (*bytes).into());
    let source: Ipv6Addr = address(source).ok_or(Dropped::Short)?;
    let destination: Ipv6Addr = address(destination).ok_or(Dropped::Short)?;
    // An IPv4 address in disguise would pass for one of another table.
    if source.is_multicast() || source.is_loopback() || source.to_ipv4_mapped().is_some() {
        return Err(Dropped::Source);
    }
    Ok(Header {
        class: fixed[0] << 4 | fixed[1] >> 4,
        payload,
        next: fixed[6],
        hops: fixed[7],
        source,
        destination,
    })
}

/// What a fragment header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the packet.
    pub id: u32,
    /// Where the piece lies in what was cut, in bytes: a multiple of 8.
    pub offset: u16,
    /// Whether more follows.
    pub more: bool,
}

impl Piece {
    /// Writes the header of a fragment of `protocol`.
    pub fn emit(&self, protocol: u8, place: &mut [u8; FRAGMENT_SIZE]) {
        place[..2].copy_from_slice(&[protocol, 0]);
        place[2..4].copy_from_slice(&(self.offset | u16::from(self.more)).to_be_bytes());
        place[4..].copy_from_slice(&self.id.to_be_bytes());
    }
}

/// Where the extension headers of a packet end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Protocol of what follows them.
    pub protocol: u8,
    /// Their bytes.
    pub len: usize,
    /// What follows is a piece of a packet.
    pub piece: Option<Piece>,
}

/// Walks over the extension headers at the start of `payload`, the first of which is `next`, up to
/// a fragment or to the transport header.
///
/// # Errors
/// What is wrong with one of them.
#[inline]
pub fn walk(next: u8, payload: &[u8]) -> Result<Chain, Dropped> {
    let mut chain = Chain {
        protocol: next,
        len: 0,
        piece: None,
    };
    for count in 0..=EXTENSIONS_MAX {
        let rest = payload.get(chain.len..).ok_or(Dropped::Extension)?;
        match chain.protocol {
            HOP_BY_HOP if count > 0 => return Err(Dropped::Extension),
            HOP_BY_HOP | DESTINATION => {
                let (next, len) = extension(rest)?;
                check_options(&rest[2..len])?;
                chain.protocol = next;
                chain.len += len;
            }
            ROUTING => {
                let (next, len) = extension(rest)?;
                // Further hops are to be visited, and we are no router.
                if rest[3] != 0 {
                    return Err(Dropped::SourceRoute);
                }
                chain.protocol = next;
                chain.len += len;
            }
            FRAGMENT => {
                let header: &[u8; FRAGMENT_SIZE] = rest.first_chunk().ok_or(Dropped::Extension)?;
                let [next, _, high, low, a, b, c, d] = *header;
                let offset = u16::from_be_bytes([high, low]);
                let piece = Piece {
                    id: u32::from_be_bytes([a, b, c, d]),
                    offset: offset & !7,
                    more: offset & 1 != 0,
                };
                chain.protocol = next;
                chain.len += FRAGMENT_SIZE;
                // A piece that is all of it needs no others (RFC 6946, 4).
                if piece.more || piece.offset != 0 {
                    chain.piece = Some(piece);
                    return Ok(chain);
                }
            }
            NOTHING => return Err(Dropped::Nothing),
            _ => return Ok(chain),
        }
    }
    Err(Dropped::Extension)
}

/// What follows an extension header, and its length in bytes, which lies inside of `rest`.
fn extension(rest: &[u8]) -> Result<(u8, usize), Dropped> {
    let [next, units, ..] = *rest else {
        return Err(Dropped::Extension);
    };
    let len = 8 * (usize::from(units) + 1);
    if len > rest.len() {
        return Err(Dropped::Extension);
    }
    Ok((next, len))
}

/// Options that we do not know are passed over if they allow that (RFC 8200, 4.2). For others, no
/// error is sent: we know none of those that a packet to us may need.
fn check_options(mut options: &[u8]) -> Result<(), Dropped> {
    while let [kind, rest @ ..] = options {
        options = match *kind {
            0 => rest,
            kind if kind >> 6 != 0 => return Err(Dropped::Option),
            _ => {
                let len = rest.first().copied().map_or(0, usize::from);
                rest.get(1 + len..).ok_or(Dropped::Extension)?
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const HEADER: Header = Header {
        class: 0xb8,
        payload: 60,
        next: 6,
        hops: 64,
        source: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
        destination: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
    };

    fn packet(header: &Header) -> Vec<u8> {
        let mut bytes = vec![7; 100];
        header.emit(bytes.first_chunk_mut().unwrap());
        bytes
    }

    #[test]
    fn each_bad_header_has_its_reason() {
        assert_eq!(parse(&[0x60; 39]), Err(Dropped::Short));
        assert_eq!(parse(&[0x45; 40]), Err(Dropped::Version));
        assert_eq!(
            parse(&packet(&Header {
                payload: 61,
                ..HEADER
            })),
            Err(Dropped::Short)
        );
        for source in ["ff02::1", "::1", "::ffff:10.0.0.1"] {
            let source = source.parse().unwrap();
            assert_eq!(
                parse(&packet(&Header { source, ..HEADER })),
                Err(Dropped::Source)
            );
        }
    }

    #[test]
    fn extension_headers_are_walked_over() {
        let two = [60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0, 0, 5, 1, 0, 99];
        let chain = Chain {
            protocol: 17,
            len: 16,
            piece: None,
        };
        assert_eq!(walk(0, &two), Ok(chain));
        assert_eq!(
            walk(6, b""),
            Ok(Chain {
                protocol: 6,
                len: 0,
                piece: None
            })
        );
        let piece = Piece {
            id: 9,
            offset: 1480,
            more: true,
        };
        let mut place = [0; 8];
        piece.emit(17, &mut place);
        assert_eq!(
            walk(44, &place),
            Ok(Chain {
                protocol: 17,
                len: 8,
                piece: Some(piece)
            })
        );
        // All of it in one piece.
        assert_eq!(walk(44, &[17, 0, 0, 0, 0, 0, 0, 1]).unwrap().piece, None);
        assert_eq!(walk(43, &[6, 0, 0, 0, 0, 0, 0, 0]).unwrap().protocol, 6);
    }

    #[test]
    fn each_bad_extension_has_its_reason() {
        assert_eq!(walk(59, b""), Err(Dropped::Nothing));
        assert_eq!(
            walk(43, &[6, 0, 0, 1, 0, 0, 0, 0]),
            Err(Dropped::SourceRoute)
        );
        assert_eq!(walk(60, &[6, 0, 0x40, 0, 0, 0, 0, 0]), Err(Dropped::Option));
        assert_eq!(walk(60, &[6, 1, 1, 4, 0, 0, 0, 0]), Err(Dropped::Extension));
        assert_eq!(walk(60, &[6, 0, 1, 5, 0, 0, 0, 0]), Err(Dropped::Extension));
        assert_eq!(walk(44, &[6; 7]), Err(Dropped::Extension));
        assert_eq!(walk(60, &[0, 0, 1, 4, 0, 0, 0, 0]), Err(Dropped::Extension));
        let many = [60, 0, 1, 4, 0, 0, 0, 0].repeat(10);
        assert_eq!(walk(60, &many), Err(Dropped::Extension));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            class: u8, payload in 0u16..=60, next: u8, hops: u8, to: [u8; 16], from: [u8; 15],
        ) {
            let mut source = [0x20; 16];
            source[1..].copy_from_slice(&from);
            let (source, destination) = (source.into(), to.into());
            let header = Header { class, payload, next, hops, source, destination };
            prop_assert_eq!(parse(&packet(&header)), Ok(header));
        }

        #[test]
        fn random_bytes_never_panic(
            next in prop::sample::select(vec![0u8, 43, 44, 60, 6]),
            bytes in proptest::collection::vec(0u8..64, 0..120),
        ) {
            let _ = parse(&bytes);
            if let Ok(chain) = walk(next, &bytes) {
                prop_assert!(chain.len <= bytes.len());
            }
        }
    }
}
