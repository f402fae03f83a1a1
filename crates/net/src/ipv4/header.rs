//! The header of IPv4 (RFC 791, 3.1).

use super::Dropped;
use core::net::Ipv4Addr;
use device::checksum;

/// Bytes of a header without options, as we send it.
pub const SIZE: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Loose and strict source routes.
const SOURCE_ROUTES: [u8; 2] = [131, 137];
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// DSCP and ECN.
    pub class: u8,
    /// Bytes of the packet, header included.
    pub total: u16,
    /// Number of the packet, which its fragments share.
    pub id: u16,
    /// Whether routers must not cut it.
    pub dont_fragment: bool,
    /// Whether more fragments follow.
    pub more: bool,
    /// Where the payload lies in that of the whole packet, in bytes: a multiple of 8.
    pub offset: u16,
    /// Hops left.
    pub hops: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
}

impl Header {
    /// Writes it, with its checksum.
    #[inline]
    pub fn emit(&self, place: &mut [u8; SIZE]) {
        let mut fragment = self.offset / 8;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more {
            fragment |= MORE_FRAGMENTS;
        }
        place[0] = 0x45;
        place[1] = self.class;
        place[2..4].copy_from_slice(&self.total.to_be_bytes());
        place[4..6].copy_from_slice(&self.id.to_be_bytes());
        place[6..8].copy_from_slice(&fragment.to_be_bytes());
        place[8] = self.hops;
        place[9] = self.protocol;
        place[10..12].fill(0);
        place[12..16].copy_from_slice(&self.source.octets());
        place[16..20].copy_from_slice(&self.destination.octets());
        let sum = !checksum::fold(checksum::sum(place));
        place[10..12].copy_from_slice(&sum.to_ne_bytes());
    }

    /// Whether the packet is one of several fragments.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.more || self.offset != 0
    }
}

/// Reads the header of a packet, and its length in bytes, options included.
///
/// # Errors
/// What is wrong with it.
#[inline]
pub fn parse(packet: &[u8]) -> Result<(Header, usize), Dropped> {
    let fixed: &[u8; SIZE] = packet.first_chunk().ok_or(Dropped::Short)?;
    let be16 = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    if fixed[0] >> 4 != 4 {
        return Err(Dropped::Version);
    }
    let len = 4 * usize::from(fixed[0] & 0xf);
    let total = be16(2);
    if len < SIZE || usize::from(total) < len {
        return Err(Dropped::Length);
    }
    if usize::from(total) > packet.len() {
        return Err(Dropped::Short);
    }
    if checksum::fold(checksum::sum(&packet[..len])) != 0xffff {
        return Err(Dropped::Checksum);
    }
    if len > SIZE {
        check_options(&packet[SIZE..len])?;
    }
    let address = |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]);
    let source = address(12);
    if source.is_multicast() || source.is_broadcast() || source.is_loopback() {
        return Err(Dropped::Source);
    }
    let fragment = be16(6);
    let header = Header {
        class: fixed[1],
        total,
        id: be16(4),
        dont_fragment: fragment & DONT_FRAGMENT != 0,
        more: fragment & MORE_FRAGMENTS != 0,
        offset: (fragment & OFFSET) << 3,
        hops: fixed[8],
        protocol: fixed[9],
        source,
        destination: address(16),
    };
    Ok((header, len))
}

/// Options are passed over, but for those that let a sender choose the way of our answers
/// (RFC 7126, 4.3 and 4.4).
fn check_options(mut options: &[u8]) -> Result<(), Dropped> {
    while let [kind, rest @ ..] = options {
        options = match *kind {
            OPTION_END => return Ok(()),
            OPTION_NOTHING => rest,
            kind if SOURCE_ROUTES.contains(&kind) => return Err(Dropped::SourceRoute),
            _ => {
                let len = rest.first().copied().map_or(0, usize::from);
                // The length counts kind and length.
                options
                    .get(len.max(2)..)
                    .filter(|_| len >= 2)
                    .ok_or(Dropped::Options)?
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn header() -> impl Strategy<Value = Header> {
        let flags = (any::<bool>(), any::<bool>(), 0u16..0x2000);
        let rest = (any::<[u8; 3]>(), any::<u16>(), 20u16..100, any::<[u8; 4]>());
        (flags, rest).prop_map(
            |((dont_fragment, more, offset), (bytes, id, total, to))| Header {
                class: bytes[0],
                total,
                id,
                dont_fragment,
                more,
                offset: offset << 3,
                hops: bytes[1],
                protocol: bytes[2],
                source: [10, bytes[0], bytes[1], bytes[2]].into(),
                destination: to.into(),
            },
        )
    }

    fn packet(header: &Header) -> Vec<u8> {
        let mut bytes = [7; 100];
        header.emit(bytes.first_chunk_mut().unwrap());
        bytes.into()
    }

    /// A packet after an edit, with its checksum made right again.
    fn edited(edit: impl FnOnce(&mut Vec<u8>)) -> Result<(Header, usize), Dropped> {
        let mut bytes = packet(&Header {
            class: 0,
            total: 100,
            id: 1,
            dont_fragment: true,
            more: false,
            offset: 0,
            hops: 64,
            protocol: 6,
            source: [10, 0, 0, 2].into(),
            destination: [10, 0, 0, 1].into(),
        });
        edit(&mut bytes);
        let len = 4 * usize::from(bytes[0] & 0xf);
        if let Some(header) = bytes.get_mut(..len).filter(|_| len >= SIZE) {
            header[10..12].fill(0);
            let sum = !checksum::fold(checksum::sum(header));
            header[10..12].copy_from_slice(&sum.to_ne_bytes());
        }
        parse(&bytes)
    }

    #[test]
    fn each_bad_header_has_its_reason() {
        assert_eq!(parse(&[0x45; 19]), Err(Dropped::Short));
        assert_eq!(edited(|bytes| bytes[0] = 0x65), Err(Dropped::Version));
        assert_eq!(edited(|bytes| bytes[0] = 0x44), Err(Dropped::Length));
        assert_eq!(edited(|bytes| bytes[3] = 19), Err(Dropped::Length));
        assert_eq!(edited(|bytes| bytes[3] = 101), Err(Dropped::Short));
        assert_eq!(edited(|bytes| bytes.truncate(99)), Err(Dropped::Short));
        let mut wrong = packet(&edited(|_| {}).unwrap().0);
        wrong[10] ^= 1;
        assert_eq!(parse(&wrong), Err(Dropped::Checksum));
        for source in [[224, 0, 0, 1], [255; 4], [127, 0, 0, 1]] {
            let read = edited(|bytes| bytes[12..16].copy_from_slice(&source));
            assert_eq!(read, Err(Dropped::Source));
        }
    }

    #[test]
    fn options_are_passed_over_but_source_routes() {
        let with = |options: [u8; 4]| {
            edited(|bytes| {
                bytes[0] = 0x46;
                bytes[20..24].copy_from_slice(&options);
            })
        };
        assert_eq!(with([1, 148, 3, 0]).unwrap().1, 24);
        assert_eq!(with([131, 3, 4, 0]), Err(Dropped::SourceRoute));
        assert_eq!(with([1, 137, 3, 4]), Err(Dropped::SourceRoute));
        assert_eq!(with([148, 1, 0, 0]), Err(Dropped::Options));
        assert_eq!(with([148, 5, 0, 0]), Err(Dropped::Options));
        assert_eq!(with([1, 1, 1, 148]), Err(Dropped::Options));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(header in header()) {
            prop_assert_eq!(parse(&packet(&header)), Ok((header, SIZE)));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse(&bytes);
            let _ = check_options(&bytes);
        }
    }
}
