//! What a device is: its vendor, its number, and its class (PCI Code and ID Assignment
//! Specification, section 1).

use std::fmt;

/// What a device is, as a manifest describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Class code.
    pub class: Class,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            vendor,
            device,
            class,
        } = self;
        write!(f, "{vendor:04x}:{device:04x} of class {class}")
    }
}

/// Class code of a device: class, subclass and programming interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(pub u32);

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

impl Class {
    /// The class code of these three parts.
    pub const fn new(class: u8, subclass: u8, interface: u8) -> Self {
        Self(u32::from_be_bytes([0, class, subclass, interface]))
    }

    /// Whether it is a network controller.
    pub fn is_network(self) -> bool {
        self.0 >> 16 == 0x02
    }

    /// Whether it is a bridge, which other devices are behind.
    pub fn is_bridge(self) -> bool {
        self.0 >> 16 == 0x06
    }

    /// Its name, short.
    pub fn name(self) -> &'static str {
        match (self.0 >> 16, self.0 >> 8 & 0xff) {
            (0x01, 0x01) => "IDE",
            (0x01, 0x06) => "SATA",
            (0x01, 0x08) => "NVMe",
            (0x01, _) => "storage",
            (0x02, 0x00) => "Ethernet",
            (0x02, _) => "network",
            (0x03, _) => "display",
            (0x04, _) => "multimedia",
            (0x05, _) => "memory",
            (0x06, 0x00) => "host bridge",
            (0x06, 0x01) => "ISA bridge",
            (0x06, 0x04) => "PCI bridge",
            (0x06, _) => "bridge",
            (0x07, _) => "communication",
            (0x08, _) => "system",
            (0x09, _) => "input",
            (0x0b, _) => "processor",
            (0x0c, 0x03) => "USB",
            (0x0c, 0x05) => "SMBus",
            (0x0c, _) => "serial bus",
            (0x0d, _) => "wireless",
            (0x10, _) => "encryption",
            (0x11, _) => "signal processing",
            (0x12, _) => "accelerator",
            _ => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_apart() {
        assert!(Class(0x02_00_00).is_network() && Class(0x02_80_00).is_network());
        assert!(!Class(0x0d_80_00).is_network());
        assert!(Class(0x06_04_00).is_bridge() && !Class(0x02_00_00).is_bridge());
        assert_eq!(Class::new(2, 0x80, 1), Class(0x02_80_01));
        assert_eq!(Class(0x01_08_02).name(), "NVMe");
        assert_eq!(Class(0x00_ff_00).name(), "other");
        assert_eq!(Class(u32::MAX).name(), "other");
    }
}
