//! The Internet checksum (RFC 1071) and the Ethernet one (IEEE 802.3, 3.2.9).

/// Sum of 16-bit words in network order, not folded; an odd last byte is padded with zero.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // Four bytes at a time into 64 bits: no carry is lost below 16 GiB (RFC 1071, 2(C)).
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    // The machine's byte order only swaps the folded sum (RFC 1071, 2(B)).
    u64::from(u16::from_be(fold(total)))
}

/// Folds a sum into 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// The 16 bits at `offset`, in network order.
pub(crate) fn word(bytes: &[u8], offset: usize) -> Option<u16> {
    let (pair, _) = bytes.get(offset..)?.split_first_chunk::<2>()?;
    Some(u16::from_be_bytes(*pair))
}

/// Stores 16 bits in network order; `false` if they do not lie inside.
pub(crate) fn set_word(bytes: &mut [u8], offset: usize, value: u16) -> bool {
    let place = bytes
        .get_mut(offset..)
        .and_then(|rest| rest.first_chunk_mut::<2>());
    match place {
        Some(place) => {
            *place = value.to_be_bytes();
            true
        }
        None => false,
    }
}

/// The frame check sequence of a frame, as it follows it on the wire.
pub(crate) fn frame_check(frame: &[u8]) -> [u8; 4] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut crc = u32::MAX;
    for byte in frame {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_definition(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut expected = 0u32;
            for pair in bytes.chunks(2) {
                expected += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                expected = (expected >> 16) + (expected & 0xffff);
            }
            prop_assert_eq!(fold(sum(&bytes)), expected as u16);
        }
    }

    #[test]
    fn the_frame_check_is_that_of_the_standard() {
        // The check value that every description of CRC-32 gives.
        assert_eq!(u32::from_le_bytes(frame_check(b"123456789")), 0xcbf4_3926);
    }
}
