//! Configuration space of a PCI device (PCI Local Bus 3.0, chapter 6).

use crate::{Identity, Msix};

/// Size in bytes; no capability of PCI Express is offered.
pub(super) const BYTES: usize = 256;

/// Offsets (figure 6-1), and bits of the registers there.
mod offset {
    pub const VENDOR: usize = 0x00;
    pub const DEVICE: usize = 0x02;
    pub const COMMAND: usize = 0x04;
    pub const STATUS: usize = 0x06;
    pub const REVISION: usize = 0x08;
    pub const CLASS: usize = 0x09;
    pub const CACHE_LINE: usize = 0x0c;
    pub const BARS: usize = 0x10;
    pub const CAPABILITIES: usize = 0x34;
    pub const INTERRUPT_LINE: usize = 0x3c;
}

/// Memory Space (6.2.2).
const COMMAND_MEMORY: u16 = 1 << 1;
/// Bus Master (6.2.2).
const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Those that can be set: besides the two, Parity Error Response, SERR# Enable, Interrupt Disable.
const COMMAND_WRITABLE: u16 = COMMAND_MEMORY | COMMAND_BUS_MASTER | 1 << 6 | 1 << 8 | 1 << 10;
/// Capabilities List (6.2.3).
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Memory, 64 bits wide (6.2.5.1).
const BAR_64: u32 = 0b100;
/// ID of MSI-X (appendix H).
const CAPABILITY_MSIX: u8 = 0x11;
/// MSI-X Enable and Function Mask, in the upper byte of Message Control (6.8.2.3).
const MSIX_WRITABLE: u8 = 0xc0;

/// The registers, and which of their bits can be written.
#[derive(Clone, Debug)]
pub(super) struct ConfigSpace {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
}

impl ConfigSpace {
    /// As after a reset.
    pub(super) fn new(identity: &Identity) -> Self {
        let mut config = Self {
            bytes: [0; BYTES],
            writable: [0; BYTES],
        };
        config.set(offset::VENDOR, &identity.vendor.to_le_bytes());
        config.set(offset::DEVICE, &identity.device.to_le_bytes());
        config.set(offset::REVISION, &[identity.revision]);
        let [class, subclass, progif] = identity.class;
        config.set(offset::CLASS, &[progif, subclass, class]);
        config.allow(offset::COMMAND, &COMMAND_WRITABLE.to_le_bytes());
        config.allow(offset::CACHE_LINE, &[0xff]);
        config.allow(offset::INTERRUPT_LINE, &[0xff]);
        config.bars(&identity.bars);
        if identity.msix.vectors > 0 {
            config.msix(identity.msix);
        }
        config
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, offset: usize, bits: &[u8]) {
        self.writable[offset..offset + bits.len()].copy_from_slice(bits);
    }

    /// A BAR in front of an empty place is 64 bits wide (6.2.5.1): the place is its upper half.
    fn bars(&mut self, sizes: &[u64; 6]) {
        let mut number = 0;
        while number < sizes.len() {
            let at = offset::BARS + 4 * number;
            let address = !sizes[number].wrapping_sub(1);
            let wide = sizes.get(number + 1) == Some(&0);
            match sizes[number] {
                0 => number += 1,
                _ if wide => {
                    self.set(at, &BAR_64.to_le_bytes());
                    self.allow(at, &(address & !0xf).to_le_bytes());
                    number += 2;
                }
                _ => {
                    self.allow(at, &(address as u32 & !0xf).to_le_bytes());
                    number += 1;
                }
            }
        }
    }

    fn msix(&mut self, msix: Msix) {
        self.set(offset::STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.set(offset::CAPABILITIES, &[msix.capability]);
        let at = usize::from(msix.capability);
        let size = (msix.vectors - 1) & 0x7ff;
        self.set(at, &[CAPABILITY_MSIX, 0]);
        self.set(at + 2, &size.to_le_bytes());
        self.allow(at + 3, &[MSIX_WRITABLE]);
        for (at, place) in [(at + 4, msix.table), (at + 8, msix.pending)] {
            let place = place & !7 | u32::from(msix.bar & 7);
            self.set(at, &place.to_le_bytes());
        }
    }

    /// The bytes at `range`, which is within them.
    pub(super) fn read(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Writes what can be written of the bytes from `offset` on; all lie within.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let places = self.bytes[offset..]
            .iter_mut()
            .zip(&self.writable[offset..]);
        for ((place, writable), byte) in places.zip(bytes) {
            *place = *place & !writable | byte & writable;
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[offset::COMMAND], self.bytes[offset::COMMAND + 1]])
    }

    /// Whether the BARs answer.
    pub(super) fn memory_enabled(&self) -> bool {
        self.command() & COMMAND_MEMORY != 0
    }

    /// Whether the device may read and write memory.
    pub(super) fn bus_master(&self) -> bool {
        self.command() & COMMAND_BUS_MASTER != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ConfigSpace {
        ConfigSpace::new(&Identity {
            vendor: 0x1234,
            device: 0x11e8,
            class: [2, 0, 1],
            revision: 3,
            bars: [0x2_0000, 0, 0x1000, 0x4000, 0, 0],
            msix: Msix {
                capability: 0x70,
                vectors: 64,
                bar: 3,
                table: 0,
                pending: 0x2000,
            },
        })
    }

    fn long(config: &ConfigSpace, offset: usize) -> u32 {
        u32::from_le_bytes(config.read(offset..offset + 4).try_into().unwrap())
    }

    #[test]
    fn ids_class_and_msix_are_where_they_belong() {
        let config = config();
        assert_eq!(long(&config, 0), 0x11e8_1234);
        assert_eq!(long(&config, 8), 0x0200_0103);
        assert_eq!(long(&config, 0x34), 0x70);
        assert_eq!(long(&config, 0x70), 0x003f_0011);
        assert_eq!((long(&config, 0x74), long(&config, 0x78)), (3, 0x2003));
        assert_eq!(long(&config, 4) >> 16, 0x10);
    }

    #[test]
    fn a_bar_says_its_size_to_whoever_writes_all_ones() {
        let mut config = config();
        config.write(0x10, &[0xff; 24]);
        let sizes: Vec<u32> = (0..6).map(|n| long(&config, 0x10 + 4 * n)).collect();
        let expected = [0xfffe_0004, u32::MAX, 0xffff_f000, 0xffff_c004, u32::MAX, 0];
        assert_eq!(sizes, expected);
    }

    #[test]
    fn nothing_else_can_be_written() {
        let mut written = config();
        assert!(!written.memory_enabled() && !written.bus_master());
        written.write(0, &[0xff; BYTES]);
        assert!(written.memory_enabled() && written.bus_master());
        assert_eq!(long(&written, 0), 0x11e8_1234);
        assert_eq!(long(&written, 4), 0x0010_0546);
        assert_eq!(long(&written, 0x70), 0xc03f_0011);
        written.write(0, &[0; BYTES]);
        assert_eq!(written.bytes, config().bytes);
    }
}
