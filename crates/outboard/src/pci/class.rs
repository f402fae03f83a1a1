//! What kind a device is of: PCI Code and ID Assignment Specification, section 1.

/// Class code of a device: class, subclass and programming interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(pub u32);

impl Class {
    /// Whether it is a network controller.
    pub fn is_network(self) -> bool {
        self.0 >> 16 == 0x02
    }

    /// Whether it is a bridge, behind which other devices are.
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
        assert_eq!(Class(0x01_08_02).name(), "NVMe");
        assert_eq!(Class(0x00_ff_00).name(), "other");
        assert_eq!(Class(u32::MAX).name(), "other");
    }
}
