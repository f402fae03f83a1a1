//! Which frames are for us (82574, 7.1.1; 82540, 3.2.1).

use super::{at, bit};
use crate::packet::multicast;
use crate::registers::RegisterFile;

/// Receive addresses (82574, 10.2.5.18; 82540, 13.5.2).
const ADDRESSES: usize = 16;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// An address matched, or is not asked for.
    Exact,
    /// The hash of a multicast address matched.
    Inexact,
    No,
}

/// Whether a frame passes the filters of addresses and VLANs.
#[inline]
pub(crate) fn pass<I>(file: &RegisterFile<I>, frame: &[u8]) -> Passed {
    let Some(destination) = frame.first_chunk::<6>() else {
        return Passed::No;
    };
    match pass_address(file, destination) {
        Passed::No => Passed::No,
        passed if pass_vlan(file, frame) => passed,
        _ => Passed::No,
    }
}

fn pass_address<I>(file: &RegisterFile<I>, destination: &[u8; 6]) -> Passed {
    let control = file.get(at::RCTL);
    let is_multicast = destination[0] & 1 != 0;
    let all = match is_multicast {
        true => bit::RCTL_MULTICAST_ALL,
        false => bit::RCTL_UNICAST_ALL,
    };
    let is_broadcast = *destination == [0xff; 6] && control & bit::RCTL_BROADCAST != 0;
    if is_broadcast || control & all != 0 || is_receive_address(file, destination) {
        return Passed::Exact;
    }
    match is_multicast && hash_passes(file, destination) {
        true => Passed::Inexact,
        false => Passed::No,
    }
}

/// 10.2.5.19: the address is one of RAL and RAH.
fn is_receive_address<I>(file: &RegisterFile<I>, [a, b, c, d, e, f]: &[u8; 6]) -> bool {
    let low = u32::from_le_bytes([*a, *b, *c, *d]);
    let high = u32::from(u16::from_le_bytes([*e, *f]));
    // Bits 17 and 16 choose what is compared: 0, the destination.
    let is = |number: usize| {
        file.get(at::RAL + 8 * number) == low
            && file.get(at::RAH + 8 * number) == high | bit::ADDRESS_VALID
    };
    (0..ADDRESSES).any(is)
}

/// 10.2.5.17: RCTL.MO chooses the bits of the address.
fn hash_passes<I>(file: &RegisterFile<I>, destination: &[u8; 6]) -> bool {
    let offset = file.get(at::RCTL) >> bit::RCTL_MULTICAST_SHIFT;
    let hash = multicast::hash(destination, offset);
    file.has(at::MTA + hash / 32 * 4, 1 << (hash % 32))
}

/// 7.1.1.2: with RCTL.VFE, tagged frames pass if their VLAN is in VFTA.
fn pass_vlan<I>(file: &RegisterFile<I>, frame: &[u8]) -> bool {
    if !file.has(at::RCTL, bit::RCTL_VLAN_FILTER) {
        return true;
    }
    match tag(file, frame) {
        None => true,
        Some(tag) => {
            let vlan = usize::from(tag & 0xfff);
            file.has(at::VFTA + vlan / 32 * 4, 1 << (vlan % 32))
        }
    }
}

/// The VLAN tag of a frame, if it has one (7.5).
#[inline]
pub(crate) fn tag<I>(file: &RegisterFile<I>, frame: &[u8]) -> Option<u16> {
    let &[k0, k1, t0, t1] = frame.get(12..)?.first_chunk()?;
    let kind = u32::from(u16::from_be_bytes([k0, k1]));
    (kind == file.get(at::VET) & 0xffff).then(|| u16::from_be_bytes([t0, t1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 7];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 0x12, 0x34, 0x56];

    fn file() -> RegisterFile<()> {
        let mut file = RegisterFile::new(0x6000, &[], &[], None);
        file.set(at::VET, 0x8100);
        file
    }

    fn frame(destination: [u8; 6]) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&destination);
        frame
    }

    #[test]
    fn addresses_pass_as_the_registers_say() {
        let mut file = file();
        let passed = |file: &RegisterFile<()>| {
            [OURS, [2; 6], GROUP, [0xff; 6]].map(|address| pass(file, &frame(address)))
        };
        use Passed::{Exact, Inexact, No};
        assert_eq!(passed(&file), [No; 4]);
        file.set(at::RAL + 8 * 15, u32::from_le_bytes([2, 0, 0, 0]));
        file.set(at::RAH + 8 * 15, 0x0700);
        assert_eq!(passed(&file), [No; 4], "not valid");
        file.set(at::RAH + 8 * 15, 0x8000_0700);
        assert_eq!(passed(&file), [Exact, No, No, No]);
        file.set(at::RCTL, bit::RCTL_BROADCAST);
        assert_eq!(passed(&file), [Exact, No, No, Exact]);
        // 0x5634, bits 15 to 4; then, bits 11 to 0.
        file.set(at::MTA + 0x563 / 32 * 4, 1 << (0x563 % 32));
        assert_eq!(passed(&file), [Exact, No, Inexact, Exact]);
        file.set(at::RCTL, 3 << 12);
        assert_eq!(passed(&file), [Exact, No, No, No]);
        file.set(at::RCTL, bit::RCTL_UNICAST_ALL | bit::RCTL_MULTICAST_ALL);
        assert_eq!(passed(&file), [Exact; 4]);
    }

    #[test]
    fn vlans_pass_as_the_table_says() {
        let mut file = file();
        file.set(at::RCTL, bit::RCTL_UNICAST_ALL);
        let mut tagged = frame(OURS);
        tagged[12..16].copy_from_slice(&[0x81, 0x00, 0xe0 | 0x01, 0x23]);
        assert_eq!(tag(&file, &tagged), Some(0xe123));
        assert_eq!(pass(&file, &tagged), Passed::Exact);
        file.set(at::RCTL, bit::RCTL_UNICAST_ALL | bit::RCTL_VLAN_FILTER);
        assert_eq!(pass(&file, &tagged), Passed::No);
        assert_eq!(pass(&file, &frame(OURS)), Passed::Exact);
        file.set(at::VFTA + 0x123 / 32 * 4, 1 << (0x123 % 32));
        assert_eq!(pass(&file, &tagged), Passed::Exact);
    }
}
