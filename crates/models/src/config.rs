//! Configuration space of a PCI device (PCI Local Bus 3.0, chapter 6).
//!
//! It is apart from the device, which knows nothing of it: whoever stands between the device and
//! its driver has it, and asks it which accesses reach the device.

use crate::{Capability, Identity, Msix, Space};
use std::ops::Range;

/// Size in bytes; no capability of PCI Express is offered.
pub const BYTES: usize = 256;

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
    pub const SUBSYSTEM: usize = 0x2c;
    pub const CAPABILITIES: usize = 0x34;
    pub const INTERRUPT_LINE: usize = 0x3c;
    pub const INTERRUPT_PIN: usize = 0x3d;
}

/// I/O Space (6.2.2).
const COMMAND_IO: u16 = 1 << 0;
/// Memory Space (6.2.2).
const COMMAND_MEMORY: u16 = 1 << 1;
/// Bus Master (6.2.2).
const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Interrupt Disable (6.2.2).
const COMMAND_NO_PIN: u16 = 1 << 10;
/// Those that can be set: besides these, Parity Error Response and SERR# Enable; and I/O Space in a
/// device that has some.
const COMMAND_WRITABLE: u16 =
    COMMAND_MEMORY | COMMAND_BUS_MASTER | 1 << 6 | 1 << 8 | COMMAND_NO_PIN;
/// Capabilities List (6.2.3).
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Memory, 64 bits wide (6.2.5.1).
const BAR_64: u32 = 0b100;
/// I/O space (6.2.5.1).
const BAR_IO: u32 = 0b1;
/// INTA# (6.2.4).
const PIN_A: u8 = 1;
/// ID of MSI-X (appendix H).
const CAPABILITY_MSIX: u8 = 0x11;
/// MSI-X Enable and Function Mask, in the upper byte of Message Control (6.8.2.3).
const MSIX_WRITABLE: u8 = 0xc0;
const MSIX_ENABLE: u8 = 0x80;

/// Where the data lie in a window to the BARs, and how many bytes they have (virtio 1.2, 4.1.4.9).
const WINDOW_DATA: usize = 16;
/// As above.
pub const WINDOW_DATA_BYTES: usize = 4;

/// A place in a BAR that the window of configuration space shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The BAR.
    pub bar: u8,
    /// Where in it.
    pub offset: u64,
    /// How many bytes.
    pub bytes: usize,
}

/// The registers, and which of their bits can be written.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
    /// Sizes of the BARs, and what each of them is.
    sizes: [u64; 6],
    spaces: [Space; 6],
    /// Where the window to the BARs lies, if there is one.
    window: Option<usize>,
    /// Where the upper byte of MSI-X's Message Control lies, if there is one.
    msix_control: Option<usize>,
}

impl ConfigSpace {
    /// As after a reset.
    pub fn new(identity: &Identity) -> Self {
        let mut config = Self {
            bytes: [0; BYTES],
            writable: [0; BYTES],
            sizes: identity.bars,
            spaces: identity.spaces,
            window: identity.window.map(usize::from),
            msix_control: None,
        };
        config.set(offset::VENDOR, &identity.vendor.to_le_bytes());
        config.set(offset::DEVICE, &identity.device.to_le_bytes());
        config.set(offset::REVISION, &[identity.revision]);
        let [class, subclass, progif] = identity.class;
        config.set(offset::CLASS, &[progif, subclass, class]);
        let io = match identity.spaces.contains(&Space::Io) {
            true => COMMAND_IO,
            false => 0,
        };
        config.allow(offset::COMMAND, &(COMMAND_WRITABLE | io).to_le_bytes());
        config.allow(offset::CACHE_LINE, &[0xff]);
        config.allow(offset::INTERRUPT_LINE, &[0xff]);
        if identity.pin {
            config.set(offset::INTERRUPT_PIN, &[PIN_A]);
        }
        config.set(offset::SUBSYSTEM, &identity.subsystem.0.to_le_bytes());
        config.set(offset::SUBSYSTEM + 2, &identity.subsystem.1.to_le_bytes());
        config.bars(&identity.bars);
        let mut last = offset::CAPABILITIES;
        for Capability {
            at,
            bytes,
            writable,
        } in identity.capabilities
        {
            last = config.capability(*at, bytes, writable, last);
        }
        if identity.msix.vectors > 0 {
            config.msix(identity.msix, last);
        }
        config
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, offset: usize, bits: &[u8]) {
        self.writable[offset..offset + bits.len()].copy_from_slice(bits);
    }

    /// A BAR in front of an empty place is 64 bits wide (6.2.5.1) unless it says otherwise: the
    /// place is its upper half.
    fn bars(&mut self, sizes: &[u64; 6]) {
        let mut number = 0;
        while number < sizes.len() {
            let at = offset::BARS + 4 * number;
            let address = !sizes[number].wrapping_sub(1);
            let wide = sizes.get(number + 1) == Some(&0);
            match self.spaces[number] {
                _ if sizes[number] == 0 => number += 1,
                Space::Io => {
                    self.set(at, &BAR_IO.to_le_bytes());
                    self.allow(at, &(address as u32 & !0x3).to_le_bytes());
                    number += 1;
                }
                Space::Memory if wide => {
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

    /// Links a capability in (6.7). `last` is where the place of the next one is told; returned is
    /// the same of this one.
    fn capability(&mut self, at: u8, bytes: &[u8], writable: &[u8], last: usize) -> usize {
        self.set(offset::STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.set(last, &[at]);
        let at = usize::from(at);
        self.set(at, bytes);
        self.set(at + 1, &[0]);
        self.allow(at, writable);
        at + 1
    }

    fn msix(&mut self, msix: Msix, last: usize) {
        let size = (msix.vectors - 1) & 0x7ff;
        let [low, high] = size.to_le_bytes();
        self.capability(msix.capability, &[CAPABILITY_MSIX, 0, low, high], &[], last);
        let at = usize::from(msix.capability);
        self.allow(at + 3, &[MSIX_WRITABLE]);
        self.msix_control = Some(at + 3);
        for (at, place) in [(at + 4, msix.table), (at + 8, msix.pending)] {
            let place = place & !7 | u32::from(msix.bar & 7);
            self.set(at, &place.to_le_bytes());
        }
    }

    /// The bytes at `range`, which is within them.
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Writes what can be written of the bytes from `offset` on; all lie within.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        let places = self.bytes[offset..]
            .iter_mut()
            .zip(&self.writable[offset..]);
        for ((place, writable), byte) in places.zip(bytes) {
            *place = *place & !writable | byte & writable;
        }
    }

    /// The command register (6.2.2).
    pub fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[offset::COMMAND], self.bytes[offset::COMMAND + 1]])
    }

    /// Whether a BAR answers.
    pub fn answers(&self, bar: u32) -> bool {
        let enable = match self.spaces.get(bar as usize) {
            Some(Space::Io) => COMMAND_IO,
            _ => COMMAND_MEMORY,
        };
        self.command() & enable != 0
    }

    /// Whether the device may assert its interrupt pin: not while MSI-X is enabled (6.8.3.3).
    pub fn pin_enabled(&self) -> bool {
        let msix = self
            .msix_control
            .is_some_and(|at| self.bytes[at] & MSIX_ENABLE != 0);
        self.command() & COMMAND_NO_PIN == 0 && !msix
    }

    /// Where a BAR lies, while it answers (6.2.5.1).
    pub fn address(&self, bar: u32) -> Option<u64> {
        let number = bar as usize;
        let size = *self.sizes.get(number).filter(|size| **size > 0)?;
        let long = |number: usize| {
            let at = offset::BARS + 4 * number;
            let word = self.bytes.get(at..)?.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*word)))
        };
        let low = long(number)?;
        let upper = match low & u64::from(BAR_64 | BAR_IO) == u64::from(BAR_64) {
            true => long(number + 1)? << 32,
            false => 0,
        };
        // What is below the size says what kind of BAR it is, and cannot be written.
        self.answers(bar).then_some((upper | low) & !(size - 1))
    }

    /// The bytes of a BAR that an access of configuration space is about: it touches the data of
    /// the window to the BARs (virtio 1.2, 4.1.4.9), and the window shows a place that there is.
    pub fn seen(&self, touched: &Range<usize>) -> Option<Seen> {
        let at = self.window?;
        let data = at + WINDOW_DATA;
        if touched.start >= data + WINDOW_DATA_BYTES || data >= touched.end {
            return None;
        }
        let long = |at: usize| Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?));
        let (bar, offset, bytes) = (*self.bytes.get(at + 4)?, long(at + 8)?, long(at + 12)?);
        let fits = matches!(bytes, 1 | 2 | 4) && offset.is_multiple_of(bytes);
        let size = *self.sizes.get(usize::from(bar))?;
        let inside = u64::from(offset) + u64::from(bytes) <= size;
        (fits && inside && self.answers(bar.into())).then_some(Seen {
            bar,
            offset: offset.into(),
            bytes: bytes as usize,
        })
    }

    /// What was written into the window.
    pub fn shown(&self) -> [u8; WINDOW_DATA_BYTES] {
        let data = self.window.map(|at| at + WINDOW_DATA);
        let data = data.and_then(|at| self.bytes.get(at..)?.first_chunk().copied());
        data.unwrap_or_default()
    }

    /// Shows these bytes in the window, of which it has [`WINDOW_DATA_BYTES`] at most.
    pub fn show(&mut self, bytes: &[u8]) {
        if let Some(at) = self.window {
            self.set(at + WINDOW_DATA, bytes);
        }
    }

    /// Whether the device may read and write memory.
    pub fn bus_master(&self) -> bool {
        self.command() & COMMAND_BUS_MASTER != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
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
            ..Identity::default()
        }
    }

    fn config() -> ConfigSpace {
        ConfigSpace::new(&identity())
    }

    #[test]
    fn capabilities_are_linked_and_the_last_is_msix() {
        const OWN: [Capability; 2] = [
            Capability {
                at: 0x40,
                bytes: &[9, 0xee, 8, 1, 2, 3, 4, 5],
                writable: &[],
            },
            Capability {
                at: 0x50,
                bytes: &[9, 0, 20, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                writable: &[0, 0, 0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff],
            },
        ];
        let mut config = ConfigSpace::new(&Identity {
            capabilities: &OWN,
            subsystem: (0x1af4, 0x1041),
            window: Some(0x50),
            ..identity()
        });
        assert_eq!(long(&config, 0x34), 0x40);
        assert_eq!(
            (long(&config, 0x40), long(&config, 0x44)),
            (0x0108_5009, 0x0504_0302)
        );
        assert_eq!(long(&config, 0x50), 0x0514_7009);
        assert_eq!(long(&config, 0x70), 0x003f_0011);
        assert_eq!(long(&config, 0x2c), 0x1041_1af4);
        let data = 0x60..0x64;
        let mut seen = |at, bytes: &[u8]| {
            config.write(at, bytes);
            config.seen(&data)
        };
        let shown = [3, 7, 7, 7, 8, 1, 0, 0, 4, 9, 9, 9];
        assert_eq!(seen(0x54, &shown), None, "no BAR answers");
        let wanted = Seen {
            bar: 3,
            offset: 0x108,
            bytes: 4,
        };
        assert_eq!(seen(4, &[2]), Some(wanted));
        assert_eq!(seen(0x58, &[2]), None, "not aligned");
        assert_eq!(
            seen(0x58, &[0xfc, 0x3f]),
            Some(Seen {
                offset: 0x3ffc,
                ..wanted
            })
        );
        assert_eq!(seen(0x58, &[0, 0x40]), None, "outside of the BAR");
        assert_eq!(seen(0x54, &[6, 0, 0, 0, 4, 0]), None, "no such BAR");
        config.write(0x54, &shown);
        assert_eq!(config.seen(&(0x5c..0x60)), None, "other bytes");
        assert_eq!(config.seen(&(0x63..0x64)), Some(wanted));
        config.show(&[1, 2]);
        assert_eq!(config.shown(), [1, 2, 0, 0]);
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
    fn bars_of_both_spaces_answer_when_their_space_is_enabled() {
        let mut config = ConfigSpace::new(&Identity {
            bars: [0x40, 0x100, 0, 0, 0, 0],
            spaces: [
                Space::Io,
                Space::Low,
                Space::Memory,
                Space::Memory,
                Space::Memory,
                Space::Memory,
            ],
            pin: true,
            ..Identity::default()
        });
        assert_eq!((long(&config, 4), config.read(0x3d..0x3e)), (0, &[1][..]));
        config.write(0x10, &[0xff; 24]);
        let sizes = [0x10, 0x14, 0x18].map(|at| long(&config, at));
        assert_eq!(sizes, [0xffff_ffc1, 0xffff_ff00, 0]);
        for (command, answer) in [(1, [true, false]), (2, [false, true])] {
            config.write(4, &[command]);
            assert_eq!([config.answers(0), config.answers(1)], answer);
        }
    }

    #[test]
    fn a_bar_is_where_it_was_put_while_it_answers() {
        let mut config = config();
        config.write(0x10, &[0x12, 0, 0xfe, 0xd0, 1]);
        config.write(0x18, &[0, 0x10, 0, 0xd0]);
        assert_eq!(config.address(0), None);
        config.write(4, &[2]);
        let found = [0, 1, 2, 3, 5, 6].map(|bar| config.address(bar));
        let wanted = [
            Some(0x1_d0fe_0000),
            None,
            Some(0xd000_1000),
            Some(0),
            None,
            None,
        ];
        assert_eq!(found, wanted);
        let mut io = ConfigSpace::new(&Identity {
            bars: [0x40, 0, 0, 0, 0, 0],
            spaces: [Space::Io; 6],
            ..Identity::default()
        });
        io.write(0x10, &[0x43, 0xc0]);
        io.write(4, &[1]);
        assert_eq!(io.address(0), Some(0xc040));
    }

    #[test]
    fn the_pin_is_silent_while_msix_or_the_command_says_so() {
        let mut config = config();
        for (msix, command, enabled) in [
            (0, 0, true),
            (0x80, 0, false),
            (0, 4, false),
            (0x40, 0, true),
        ] {
            config.write(0x73, &[msix]);
            config.write(5, &[command]);
            assert_eq!(config.pin_enabled(), enabled, "{msix:#x} {command:#x}");
        }
    }

    #[test]
    fn nothing_else_can_be_written() {
        let mut written = config();
        assert!(!written.answers(0) && !written.bus_master() && written.pin_enabled());
        written.write(0, &[0xff; BYTES]);
        assert!(written.answers(0) && written.bus_master() && !written.pin_enabled());
        assert_eq!(long(&written, 0), 0x11e8_1234);
        assert_eq!(long(&written, 4), 0x0010_0546);
        assert_eq!(long(&written, 0x70), 0xc03f_0011);
        written.write(0, &[0; BYTES]);
        assert_eq!(written.bytes, config().bytes);
    }
}
