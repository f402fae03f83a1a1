//! A device that takes commands of ioregionfd gets any message: each is a command of that very
//! message, or has a reason why it is none, and no access of a command leaves the BARs of a device,
//! which are those of a window or of a card.

use models::{Identity, Space};
use vmm::ioregionfd::{place, wire};
use vmm::ranges::{CONFIG, Ranges};

pub fn feed(message: &[u8]) {
    match wire::parse(message) {
        Ok(command) => {
            assert_eq!(command.encode(), message);
            let card = Identity {
                bars: [0x2_0000, 0, 0x40, 0, 0, 0],
                spaces: [Space::Low; 6],
                ..Identity::default()
            };
            for ranges in [Ranges::window(3), Ranges::of(&card, |_, _| None)] {
                if let Ok(place) = place(&command, &ranges) {
                    assert!(place.bar < 6 || place.bar == CONFIG);
                    let end = place.offset + command.bytes as u64;
                    assert!(end <= ranges.bytes(place.bar));
                }
            }
        }
        Err(fault) => assert!(!fault.to_string().contains(char::is_control)),
    }
    for bytes in [1, 2, 4, 8] {
        if let Ok(data) = wire::parse_answer(message, bytes) {
            assert!(bytes == 8 || data >> (8 * bytes) == 0);
        }
    }
}
