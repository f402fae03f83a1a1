//! The hash of multicast addresses that Intel's NICs filter by.

/// Twelve bits of the last two bytes of an address, from the bit that the two lowest bits of
/// `offset` choose: 0 for 36, then 35, 34 and 32 (82599, 8.2.3.7.3; 82574, 10.2.5.1).
pub(crate) fn hash(address: &[u8; 6], offset: u32) -> usize {
    let last = u32::from(u16::from_le_bytes([address[4], address[5]]));
    let shift = match offset & 3 {
        0 => 4,
        1 => 3,
        2 => 2,
        _ => 0,
    };
    (last >> shift & 0xfff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_offset_takes_other_bits() {
        let address = [1, 0, 0x5e, 0x12, 0x34, 0x56];
        let hashes = [0, 1, 2, 3].map(|offset| hash(&address, offset));
        assert_eq!(hashes, [0x563, 0xac6, 0x58d, 0x634]);
    }
}
