//! A device that takes commands of ioregionfd gets any message: each is a command of that very
//! message, or has a reason why it is none, and no access of a command leaves the window.
#![no_main]

use libfuzzer_sys::fuzz_target;
use models::virtio::mmio;
use vmm::ioregionfd::{place, wire};

fuzz_target!(|message: &[u8]| {
    match wire::parse(message) {
        Ok(command) => {
            assert_eq!(command.encode(), message);
            if let Ok(offset) = place(&command) {
                assert!(offset + command.bytes as u64 <= mmio::BYTES);
            }
        }
        Err(fault) => assert!(!fault.to_string().contains(char::is_control)),
    }
    for bytes in [1, 2, 4, 8] {
        if let Ok(data) = wire::parse_answer(message, bytes) {
            assert!(bytes == 8 || data >> (8 * bytes) == 0);
        }
    }
});
