//! Descriptors of the C+ mode (datasheet, chapter 6, C+ mode descriptors).

/// Bytes of a descriptor.
pub(crate) const BYTES: u64 = 16;
/// Descriptors that a ring may have.
pub(crate) const RING_MAX: u64 = 64;
/// Rings begin at multiples of so many bytes.
pub(crate) const RING_ALIGN: u32 = 256;

/// The device has it.
pub(crate) const OWN: u64 = 1 << 31;
/// The last one of its ring.
pub(crate) const END_OF_RING: u64 = 1 << 30;
/// The first and the last part of a frame.
pub(crate) const FIRST: u64 = 1 << 29;
pub(crate) const LAST: u64 = 1 << 28;

/// Bits of what the device says of a received frame.
pub(crate) mod rx {
    pub(crate) const MULTICAST: u64 = 1 << 26;
    pub(crate) const MATCHED: u64 = 1 << 25;
    pub(crate) const BROADCAST: u64 = 1 << 24;
    pub(crate) const TCP: u64 = 1 << 16;
    pub(crate) const UDP: u64 = 2 << 16;
    pub(crate) const IP: u64 = 3 << 16;
    pub(crate) const IP_FAILS: u64 = 1 << 15;
    pub(crate) const UDP_FAILS: u64 = 1 << 14;
    pub(crate) const TCP_FAILS: u64 = 1 << 13;
    /// Of the second half: a tag was taken out.
    pub(crate) const TAGGED: u64 = 1 << (32 + 16);
    /// The size of a buffer, and the length of a frame.
    pub(crate) const LENGTH: u64 = 0x1fff;
}

/// Bits of a transmit descriptor that came back.
pub(crate) mod tx_error {
    pub(crate) const SUMMARY: u64 = 1 << 23;
    pub(crate) const LINK_FAILS: u64 = 1 << 21;
}

/// A descriptor of a frame that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transmit {
    pub(crate) address: u64,
    pub(crate) len: usize,
    pub(crate) first: bool,
    pub(crate) last: bool,
    /// The frame is to be cut into segments of so many bytes.
    pub(crate) segment: Option<u16>,
    pub(crate) ip_checksum: bool,
    pub(crate) udp_checksum: bool,
    pub(crate) tcp_checksum: bool,
    /// A tag is to be put in.
    pub(crate) tag: Option<u16>,
    /// Bits that must be zero and are not.
    pub(crate) reserved: bool,
}

impl Transmit {
    /// Reads one that the device has.
    pub(crate) fn read([first, address]: [u64; 2]) -> Self {
        let bit = |number: u32| first >> number & 1 != 0;
        let is_large = bit(27);
        let command = |number: u32| !is_large && bit(number);
        // Bits 26 to 19 are the size of segments, or reserved.
        let reserved = !is_large && first >> 19 & 0xff != 0 || first >> (32 + 18) != 0;
        Self {
            address,
            len: (first & 0xffff) as usize,
            first: first & FIRST != 0,
            last: first & LAST != 0,
            segment: is_large.then_some((first >> 16 & 0x7ff) as u16),
            ip_checksum: command(18),
            udp_checksum: command(17),
            tcp_checksum: command(16),
            tag: bit(32 + 17).then_some(((first >> 32) as u16).swap_bytes()),
            reserved: reserved || bit(32 + 16),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_what_their_bits_say() {
        let whole = Transmit::read([OWN | FIRST | LAST | 0x5_0040, 0x1000]);
        assert_eq!(
            (whole.address, whole.len, whole.segment),
            (0x1000, 64, None)
        );
        assert!(whole.first && whole.last && whole.ip_checksum && whole.tcp_checksum);
        assert!(!whole.udp_checksum && !whole.reserved && whole.tag.is_none());
        let large = 1 << 27 | 1460 << 16 | 9000;
        let tagged = Transmit::read([OWN | FIRST | large | 0x2_0510 << 32, 0]);
        assert_eq!((tagged.segment, tagged.tag), (Some(1460), Some(0x1005)));
        assert!(!tagged.ip_checksum && !tagged.last && !tagged.reserved);
        assert!(Transmit::read([1 << 24, 0]).reserved && Transmit::read([1 << 60, 0]).reserved);
    }
}
