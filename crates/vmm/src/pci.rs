//! The bus of PCI devices, as a processor reaches their configuration space: configuration
//! mechanism #1 (PCI Local Bus 2.1, 3.7.4.1). There is one bus, and each device has one function.

use crate::layout::{DEVICE_IRQ, DEVICES_MAX};
use models::Identity;
use std::ops::Range;

/// CONFIG_ADDRESS, which is accessed in 32 bits.
pub const ADDRESS: u16 = 0xcf8;
/// CONFIG_DATA, four ports.
pub const DATA: u16 = 0xcfc;
/// Bytes of each of them.
pub const PORT_BYTES: u16 = 4;
/// Bits of CONFIG_ADDRESS: Enable; bus, device and function; register.
const ENABLE: u32 = 1 << 31;
const BUS_SHIFT: u32 = 16;
const DEVICE_SHIFT: u32 = 11;
const FUNCTION_SHIFT: u32 = 8;
const REGISTER: u32 = 0xfc;
/// Device 0 is the bridge between processor and bus; ours come behind it.
const FIRST: u8 = 1;

/// What an access of a port is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// CONFIG_ADDRESS.
    Address,
    /// Bytes of the bridge's configuration space.
    Bridge(Range<usize>),
    /// Bytes of that of the device with this number, from 0 on.
    Device(usize, Range<usize>),
    /// Bytes of what there is not, or an access that there must not be.
    Nobody,
}

/// What an access of so many bytes at a port is about, while CONFIG_ADDRESS holds `address`;
/// nothing if the port is not the mechanism's.
pub fn target(port: u16, bytes: usize, address: u32) -> Option<Target> {
    if port == ADDRESS && bytes == usize::from(PORT_BYTES) {
        return Some(Target::Address);
    }
    let within = usize::from(port.checked_sub(DATA)?);
    if within >= usize::from(PORT_BYTES) {
        return None;
    }
    let field = |shift: u32, bits: u32| address >> shift & ((1 << bits) - 1);
    let aligned = matches!(bytes, 1 | 2 | 4) && within.is_multiple_of(bytes);
    let here = field(BUS_SHIFT, 8) == 0 && field(FUNCTION_SHIFT, 3) == 0;
    if address & ENABLE == 0 || !aligned || !here {
        return Some(Target::Nobody);
    }
    let begin = (address & REGISTER) as usize + within;
    let range = begin..begin + bytes;
    Some(match field(DEVICE_SHIFT, 5) {
        0 => Target::Bridge(range),
        number => Target::Device(number as usize - usize::from(FIRST), range),
    })
}

/// The bits of CONFIG_ADDRESS that hold what is written.
pub fn written(address: u32) -> u32 {
    address & (ENABLE | 0x00ff_ff00 | REGISTER)
}

/// The bridge: one that no driver asks for anything (class 6, subclass 0: PCI 3.0, appendix D).
pub fn bridge() -> Identity {
    Identity {
        // That of QEMU's machines for one that does nothing.
        vendor: 0x1b36,
        device: 0x0008,
        class: [0x06, 0x00, 0x00],
        ..Identity::default()
    }
}

/// The number of a device on the bus, and the interrupt of its pin, for each that there may be.
pub fn pins() -> impl Iterator<Item = (u8, u32)> {
    (FIRST..).zip(DEVICE_IRQ..).take(DEVICES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_device() {
        let at = |port, bytes, address| target(port, bytes, address).unwrap();
        assert_eq!(at(ADDRESS, 4, 0), Target::Address);
        assert_eq!(at(DATA, 4, 0x8000_0000), Target::Bridge(0..4));
        assert_eq!(at(DATA + 2, 2, 0x8000_0810), Target::Device(0, 0x12..0x14));
        assert_eq!(at(DATA + 3, 1, 0x8000_40fc), Target::Device(7, 255..256));
        assert_eq!(at(DATA, 4, 0x8000_f800), Target::Device(30, 0..4));
        for (port, bytes, address) in [
            (DATA, 4, 0x0000_0800),
            (DATA, 4, 0x8001_0800),
            (DATA, 4, 0x8000_0900),
            (DATA + 1, 2, 0x8000_0800),
            (DATA + 3, 2, 0x8000_0800),
            (DATA, 8, 0x8000_0800),
            (DATA, 0, 0x8000_0800),
        ] {
            assert_eq!(at(port, bytes, address), Target::Nobody, "{address:#x}");
        }
        for (port, bytes) in [(ADDRESS, 1), (ADDRESS + 1, 1), (DATA + 4, 4), (0x60, 1)] {
            assert_eq!(target(port, bytes, u32::MAX), None);
        }
        assert_eq!(written(u32::MAX), 0x80ff_fffc);
    }

    #[test]
    fn each_device_has_an_interrupt_of_its_own() {
        let pins: Vec<_> = pins().collect();
        assert_eq!((pins[0], pins.len()), ((1, DEVICE_IRQ), DEVICES_MAX));
    }
}
