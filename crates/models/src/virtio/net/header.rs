//! What stands in front of each frame (5.1.6).

use crate::packet::Offload;

/// Bytes of it, for drivers of this specification.
pub(super) const BYTES: usize = 12;

/// Bits of `flags`.
pub(super) const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of segmentation, and the bit beside them: CWR is set.
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCP4: u8 = 1;
pub(super) const GSO_TCP6: u8 = 4;
/// Datagrams of UDP (virtio 1.3, 5.1.6).
pub(super) const GSO_UDP: u8 = 5;
pub(super) const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr`, without what hashes would add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u8,
    pub(super) gso: u8,
    pub(super) header_len: u16,
    pub(super) gso_size: u16,
    pub(super) checksum_start: u16,
    pub(super) checksum_offset: u16,
    pub(super) buffers: u16,
}

impl Header {
    pub(super) fn read(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso: bytes[1],
            header_len: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
            buffers: word(10),
        }
    }

    pub(super) fn bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.gso);
        let words = [
            self.header_len,
            self.gso_size,
            self.checksum_start,
            self.checksum_offset,
            self.buffers,
        ];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The kind of segmentation.
    pub(super) fn kind(&self) -> u8 {
        self.gso & !GSO_ECN
    }

    /// What it leaves to do to its frame.
    pub(super) fn offload(&self) -> Offload {
        let checksum = self.flags & NEEDS_CHECKSUM != 0;
        Offload {
            checksum: checksum.then_some((self.checksum_start, self.checksum_offset)),
            segment: (self.kind() != GSO_NONE).then_some(self.gso_size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_twelve_bytes() {
        let bytes = [1, 0x84, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9];
        let header = Header::read(&bytes);
        assert_eq!(header.bytes(), bytes);
        assert_eq!((header.kind(), header.buffers), (GSO_TCP6, 0x090a));
        assert_eq!(header.offload().checksum, Some((0x0506, 0x0708)));
        assert_eq!(header.offload().segment, Some(0x0304));
    }
}
