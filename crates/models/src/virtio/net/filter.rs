//! Which frames are for the driver (5.1.6.5.1, 5.1.6.5.3).

use crate::packet::checksum::word;
use crate::packet::headers::{ETHERNET, VLAN};

/// Addresses that are let in one by one; with more of one kind, all of it are.
pub(super) const ADDRESSES_MAX: usize = 64;
/// Numbers of VLANs.
const VLANS: usize = 4096;

/// Modes that the driver switches (5.1.6.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) promiscuous: bool,
    pub(super) all_multicast: bool,
}

/// What is let in.
#[derive(Debug)]
pub(super) struct Filter {
    address: [u8; 6],
    pub(super) modes: Modes,
    unicast: Table,
    multicast: Table,
    /// One bit for each VLAN that is let in; `None` if all are.
    vlans: Option<Box<[u64; VLANS / 64]>>,
}

/// Addresses of a kind.
#[derive(Debug, Default)]
struct Table {
    addresses: Vec<[u8; 6]>,
    /// There were more than it holds.
    overflows: bool,
}

impl Table {
    fn set(&mut self, addresses: impl ExactSizeIterator<Item = [u8; 6]>) {
        self.overflows = addresses.len() > ADDRESSES_MAX;
        self.addresses.clear();
        self.addresses.extend(addresses.take(ADDRESSES_MAX));
    }

    fn has(&self, address: &[u8; 6]) -> bool {
        self.overflows || self.addresses.contains(address)
    }
}

impl Filter {
    /// As after a reset: all is let in, until a driver says what it wants.
    pub(super) fn new(address: [u8; 6]) -> Self {
        Self {
            address,
            modes: Modes {
                promiscuous: true,
                all_multicast: false,
            },
            unicast: Table::default(),
            multicast: Table::default(),
            vlans: None,
        }
    }

    /// A driver that can switch VLANs begins with none of them.
    pub(super) fn start(&mut self, vlans: bool) {
        self.vlans = vlans.then(|| Box::new([0; VLANS / 64]));
    }

    /// The address of the card.
    pub(super) fn address(&self) -> [u8; 6] {
        self.address
    }

    pub(super) fn set_address(&mut self, address: [u8; 6]) {
        self.address = address;
    }

    /// The tables of addresses of stations and of groups.
    pub(super) fn set_tables(
        &mut self,
        unicast: impl ExactSizeIterator<Item = [u8; 6]>,
        multicast: impl ExactSizeIterator<Item = [u8; 6]>,
    ) {
        self.unicast.set(unicast);
        self.multicast.set(multicast);
    }

    /// Lets a VLAN in, or not; `false` if there is no such.
    pub(super) fn set_vlan(&mut self, vlan: u16, is_in: bool) -> bool {
        let Some(vlans) = &mut self.vlans else {
            return false;
        };
        let Some(word) = vlans.get_mut(usize::from(vlan) / 64) else {
            return false;
        };
        let bit = 1 << (vlan % 64);
        *word = if is_in { *word | bit } else { *word & !bit };
        true
    }

    /// Whether a frame is for the driver.
    #[inline]
    pub(super) fn admits(&self, frame: &[u8]) -> bool {
        self.admits_tag(frame) && (self.modes.promiscuous || self.admits_address(frame))
    }

    fn admits_tag(&self, frame: &[u8]) -> bool {
        let Some(vlans) = &self.vlans else {
            return true;
        };
        if word(frame, ETHERNET - 2) != Some(VLAN) {
            return true;
        }
        let vlan = usize::from(word(frame, ETHERNET).unwrap_or(0)) % VLANS;
        // A tag of VLAN 0 has a priority alone (IEEE 802.1Q, 6.9).
        vlan == 0 || vlans[vlan / 64] & 1 << (vlan % 64) != 0
    }

    fn admits_address(&self, frame: &[u8]) -> bool {
        let Some(to) = frame.first_chunk::<6>() else {
            return false;
        };
        if *to == [0xff; 6] {
            return true;
        }
        match to[0] & 1 {
            0 => *to == self.address || self.unicast.has(to),
            _ => self.modes.all_multicast || self.multicast.has(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

    fn frame(to: [u8; 6], vlan: Option<u16>) -> Vec<u8> {
        let mut frame = [to, [2; 6]].concat();
        if let Some(vlan) = vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        frame.extend([8, 0, 0]);
        frame
    }

    #[test]
    fn frames_are_let_in_by_address_once_the_driver_says_so() {
        let mut filter = Filter::new(OURS);
        let stranger = [2, 9, 9, 9, 9, 9];
        assert!(filter.admits(&frame(stranger, None)));
        filter.modes.promiscuous = false;
        assert!(!filter.admits(&frame(stranger, None)) && filter.admits(&frame(OURS, None)));
        assert!(filter.admits(&frame([0xff; 6], None)) && !filter.admits(&frame(GROUP, None)));
        filter.set_tables([stranger].into_iter(), [GROUP].into_iter());
        assert!(filter.admits(&frame(stranger, None)) && filter.admits(&frame(GROUP, None)));
        filter.set_tables([].into_iter(), [GROUP; ADDRESSES_MAX + 1].into_iter());
        let other_group = [1, 0, 0x5e, 9, 9, 9];
        assert!(!filter.admits(&frame(stranger, None)) && filter.admits(&frame(other_group, None)));
        filter.set_tables([].into_iter(), [].into_iter());
        filter.modes.all_multicast = true;
        assert!(filter.admits(&frame(other_group, None)) && !filter.admits(&[0; 5]));
        filter.set_address(stranger);
        assert!(filter.admits(&frame(stranger, None)) && !filter.admits(&frame(OURS, None)));
    }

    #[test]
    fn vlans_are_let_in_one_by_one() {
        let mut filter = Filter::new(OURS);
        assert!(filter.admits(&frame(OURS, Some(5))) && !filter.set_vlan(5, true));
        filter.start(true);
        assert!(!filter.admits(&frame(OURS, Some(5))) && filter.admits(&frame(OURS, None)));
        assert!(filter.admits(&frame(OURS, Some(0xe000))));
        assert!(filter.set_vlan(5, true) && !filter.set_vlan(4096, true));
        assert!(filter.admits(&frame(OURS, Some(0x2005))) && !filter.admits(&frame(OURS, Some(6))));
        assert!(filter.set_vlan(5, false) && !filter.admits(&frame(OURS, Some(5))));
    }
}
