//! What the tests of virtio's drivers have in common.

use drivers::virtio::Window;
use drivers::virtio::pci::Pci;
use hw::Mmio;
use models::Identity;

/// Vendor-specific (PCI 3.0, appendix H).
const VENDOR_SPECIFIC: u8 = 9;

/// Where the structures of a device lie, as its capabilities say (4.1.4).
pub fn transport(bar0: &Mmio, identity: &Identity) -> Pci {
    let structure = |kind: u8| {
        let mut all = identity.capabilities.iter();
        let found = all.find(|capability| {
            capability.bytes[0] == VENDOR_SPECIFIC && capability.bytes[3] == kind
        });
        let bytes = found.expect("a structure of each kind").bytes;
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
        assert_eq!(bytes[4], 0, "its BAR");
        (Window::new(bar0.clone(), 0, word(8), word(12)), bytes)
    };
    let (notify, bytes) = structure(2);
    Pci {
        common: structure(1).0,
        notify,
        notify_multiplier: u32::from_le_bytes(*bytes[16..].first_chunk().unwrap()) as usize,
        device: structure(4).0,
    }
}
