//! The Internet checksum (RFC 1071).

/// Sum of 16-bit words in memory order, not yet folded; an odd last byte is padded with zero.
///
/// Summing in the machine's own byte order gives the swapped sum on a little-endian one
/// (RFC 1071, 2(B)), so sums of this module are stored with `to_ne_bytes`.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    // 32 bits at a time into 64: no carry is lost below 16 GiB, and compilers vectorise it.
    let (words, tail) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..tail.len()].copy_from_slice(tail);
    let total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    total + u64::from(u32::from_ne_bytes(last))
}

/// Folds a sum into 16 bits.
#[inline]
pub fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// A number of 16 bits as a word of a sum.
#[inline]
pub fn word(number: u16) -> u64 {
    u64::from(number.to_be())
}

/// Stores the checksum of `bytes` from `start` on at `field`, which holds the start value, such as
/// the sum of a pseudo header. Does nothing if the field does not lie inside.
#[inline]
pub fn complete(bytes: &mut [u8], start: usize, field: usize) {
    let Some(covered) = bytes.get(start..) else {
        return;
    };
    let checksum = !fold(sum(covered));
    // Zero means "no checksum" in UDP (RFC 768); 0xffff is the same number in one's complement.
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    if let Some(place) = bytes
        .get_mut(field..)
        .and_then(|rest| rest.first_chunk_mut())
    {
        *place = checksum.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: one word at a time, in network order, carry by carry.
        #[test]
        fn equals_the_definition(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut expected = 0u32;
            for pair in bytes.chunks(2) {
                expected += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                expected = (expected & 0xffff) + (expected >> 16);
            }
            prop_assert_eq!(u16::from_be(fold(sum(&bytes))), expected as u16);
        }
    }

    #[test]
    fn carries_are_not_lost() {
        assert_eq!(fold(sum(&[0xff; 65_536])), 0xffff);
        assert_eq!(fold(u64::MAX), 0xffff);
    }
}
