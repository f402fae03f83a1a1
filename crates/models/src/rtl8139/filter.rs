//! Which frames are for us (datasheet, chapter 6, RCR, IDR and MAR).

use super::descriptor::rx;
use super::registers::{RegisterFile, at, bit};
use crate::packet::checksum::frame_check;

/// What a frame's descriptor says of its address, if it passes.
pub(super) fn pass(file: &RegisterFile, frame: &[u8]) -> Option<u64> {
    let destination: &[u8; 6] = frame.first_chunk()?;
    let control = file.get(at::RCR);
    let with = |accept: u32, said: u64| (control & accept != 0).then_some(said);
    if *destination == [0xff; 6] {
        return with(bit::ACCEPT_BROADCAST, rx::BROADCAST);
    }
    if destination[0] & 1 != 0 {
        return with(bit::ACCEPT_MULTICAST, rx::MULTICAST)
            .filter(|_| hash_passes(file, destination));
    }
    let [a, b, c, d, e, f] = *destination;
    let low = u32::from_le_bytes([a, b, c, d]);
    let high = u32::from(u16::from_le_bytes([e, f]));
    let is_ours = file.get(at::IDR) == low && file.get(at::IDR + 4) & 0xffff == high;
    match is_ours {
        true => with(bit::ACCEPT_MATCH | bit::ACCEPT_ALL, rx::MATCHED),
        false => with(bit::ACCEPT_ALL, 0),
    }
}

/// The highest six bits of the check sequence of the address, as it is sent, choose a bit of MAR.
fn hash_passes(file: &RegisterFile, destination: &[u8; 6]) -> bool {
    let check = !u32::from_le_bytes(frame_check(destination));
    let hash = check.reverse_bits() >> 26;
    file.has(at::MAR + 4 * (hash / 32) as usize, 1 << (hash % 32))
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
    /// The bit that 802.3's polynomial gives 01:00:5e:00:00:01, all hosts of a link.
    const GROUP_BIT: u32 = 31;

    #[test]
    fn addresses_pass_as_the_registers_say() {
        let mut file = registers::file();
        file.set(at::IDR, u32::from_le_bytes([2, 0, 0, 0]));
        file.set(at::IDR + 4, 0x0700);
        let mut passed = |accept: u32| {
            file.set(at::RCR, accept);
            [OURS, [2; 6], GROUP, [0xff; 6]].map(|address| pass(&file, &address))
        };
        assert_eq!(passed(0), [None; 4]);
        assert_eq!(
            passed(bit::ACCEPT_MATCH),
            [Some(rx::MATCHED), None, None, None]
        );
        assert_eq!(
            passed(bit::ACCEPT_ALL),
            [Some(rx::MATCHED), Some(0), None, None]
        );
        let broadcast = [None, None, None, Some(rx::BROADCAST)];
        assert_eq!(passed(bit::ACCEPT_BROADCAST), broadcast);
        assert_eq!(passed(bit::ACCEPT_MULTICAST), [None; 4], "not in the table");
        file.set(at::MAR, 1 << GROUP_BIT);
        assert_eq!(pass(&file, &GROUP), Some(rx::MULTICAST));
        file.set(at::MAR, !(1 << GROUP_BIT));
        assert_eq!(pass(&file, &GROUP), None);
    }
}
