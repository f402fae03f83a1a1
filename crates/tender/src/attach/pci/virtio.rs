//! Virtio devices: what the guest needs to know of their configuration space, which it never
//! reaches (Virtual I/O Device 1.2, 4.1.4), and whether the IOMMU holds them.
//!
//! All of it comes from the device: numbers that lie outside of its BARs are not passed on.

use abi::pci::{BARS, Request, Structure, VIRTIO_VENDOR, Virtio};
use std::{fmt, io};

/// Bytes of a configuration space.
pub const CONFIG_BYTES: usize = 256;
/// The status register, and its bit that there are capabilities (PCI Local Bus 3.0, 6.2.3).
const STATUS: usize = 6;
const STATUS_CAPABILITIES: u8 = 1 << 4;
/// Where the first capability lies, a multiple of 4 behind the header (6.7).
const CAPABILITIES: usize = 0x34;
const HEADER_BYTES: usize = 0x40;
/// Most capabilities: as many as there is room for.
const CAPABILITIES_MAX: usize = (CONFIG_BYTES - HEADER_BYTES) / 4;

/// Device IDs of virtio devices (4.1.2): from before version 1.0 on to those of today.
const DEVICES: std::ops::RangeInclusive<u16> = 0x1000..=0x107f;
/// A capability of the vendor's own (PCI Local Bus 3.0, appendix H).
const VENDOR_CAPABILITY: u8 = 9;
/// Bytes of such a capability (4.1.4).
const CAPABILITY_BYTES: usize = 16;

/// Kinds of structures, `cfg_type` (4.1.4).
mod kind {
    pub const COMMON: u8 = 1;
    pub const NOTIFY: u8 = 2;
    pub const ISR: u8 = 3;
    pub const DEVICE: u8 = 4;
}

/// Registers of the common configuration (4.1.4.3).
const FEATURE_SELECT: u64 = 0;
const FEATURE: u64 = 4;
/// VIRTIO_F_ACCESS_PLATFORM (6): bit 33, of the second word of features.
const ACCESS_PLATFORM: u32 = 1 << 1;

/// What is wrong with a virtio device.
#[derive(Debug)]
pub enum Problem {
    /// It has no structures of version 1.0.
    Legacy,
    /// It takes addresses for those of the machine's memory.
    Bypasses,
    /// Its registers cannot be read.
    Registers(io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Legacy => f.write_str(
                "it is a virtio device from before version 1.0, which passes by the IOMMU; if it \
                 is QEMU's, set disable-legacy=on,iommu_platform=on",
            ),
            Self::Bypasses => f.write_str(
                "it does not offer VIRTIO_F_ACCESS_PLATFORM, and passes by the IOMMU; if it is \
                 QEMU's, set iommu_platform=on",
            ),
            Self::Registers(error) => write!(f, "its features cannot be read: {error}"),
        }
    }
}

/// Whether a request is for a virtio device.
pub fn is_virtio(request: &Request) -> bool {
    request.vendor == VIRTIO_VENDOR && DEVICES.contains(&request.device)
}

/// What the capabilities in a configuration space say of the structures that the guest needs, with
/// BARs of so many bytes. Of several of a kind, the first that lies in a BAR counts (4.1.4.1).
pub fn structures(config: &[u8; CONFIG_BYTES], bar_bytes: &[u64; BARS]) -> Virtio {
    let mut virtio = Virtio::ZERO;
    for capability in capabilities(config) {
        let header = capability.first_chunk::<CAPABILITY_BYTES>();
        let Some(header) = header.filter(|header| header[0] == VENDOR_CAPABILITY) else {
            continue;
        };
        let word = |at: usize| {
            let word = capability.get(at..).and_then(|bytes| bytes.first_chunk());
            word.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        };
        let found = Structure {
            bar: header[4].into(),
            offset: word(8),
            bytes: word(12),
        };
        let place = match header[3] {
            kind::COMMON => &mut virtio.common,
            kind::NOTIFY => &mut virtio.notify,
            kind::ISR => &mut virtio.isr,
            kind::DEVICE => &mut virtio.device,
            _ => continue,
        };
        if *place != Structure::NONE || !is_inside(&found, bar_bytes) {
            continue;
        }
        *place = found;
        if header[3] == kind::NOTIFY {
            virtio.notify_multiplier = word(CAPABILITY_BYTES);
        }
    }
    virtio
}

/// The capabilities in a configuration space, each with all that is behind it.
fn capabilities(config: &[u8; CONFIG_BYTES]) -> impl Iterator<Item = &[u8]> {
    let has_some = config[STATUS] & STATUS_CAPABILITIES != 0;
    let mut next = if has_some { config[CAPABILITIES] } else { 0 };
    let list = std::iter::from_fn(move || {
        let at = usize::from(next & !3);
        let capability = config.get(at..).filter(|_| at >= HEADER_BYTES)?;
        next = capability[1];
        Some(capability)
    });
    list.take(CAPABILITIES_MAX)
}

/// Whether a structure lies in its BAR.
fn is_inside(structure: &Structure, bar_bytes: &[u64; BARS]) -> bool {
    let bytes = bar_bytes.get(structure.bar as usize).copied();
    let end = u64::from(structure.offset) + u64::from(structure.bytes);
    structure.bytes > 0 && bytes.is_some_and(|bytes| end <= bytes)
}

/// Fails unless the device says that the platform translates its addresses. `write` and `read` are
/// of 32 bits at an offset of its common configuration; the device was reset before.
///
/// QEMU's devices pass by the IOMMU otherwise, whatever their driver accepts.
///
/// # Errors
/// [`Problem::Bypasses`], or that the registers cannot be read.
pub fn check_platform(
    write: impl Fn(u64, u32) -> io::Result<()>,
    read: impl Fn(u64) -> io::Result<u32>,
) -> Result<(), Problem> {
    let features = write(FEATURE_SELECT, 1).and_then(|()| read(FEATURE));
    match features.map_err(Problem::Registers)? {
        features if features & ACCESS_PLATFORM != 0 => Ok(()),
        _ => Err(Problem::Bypasses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BARS_BYTES: [u64; BARS] = [0, 4096, 0, 0, 0x4000, 0];

    /// A configuration space with these capabilities, in this order.
    fn config(list: &[&[u8]]) -> [u8; CONFIG_BYTES] {
        let mut config = [0; CONFIG_BYTES];
        config[6] = 1 << 4;
        let mut link = 0x34;
        let mut at = 0x40;
        for capability in list {
            config[link] = at as u8;
            config[at..at + capability.len()].copy_from_slice(capability);
            link = at + 1;
            at += capability.len().next_multiple_of(4);
        }
        config
    }

    fn structure(kind: u8, bar: u8, offset: u32, bytes: u32) -> [u8; 20] {
        let mut capability = [0; 20];
        capability[..5].copy_from_slice(&[9, 0, 20, kind, bar]);
        capability[8..12].copy_from_slice(&offset.to_le_bytes());
        capability[12..16].copy_from_slice(&bytes.to_le_bytes());
        capability[16] = 4;
        capability
    }

    #[test]
    fn structures_are_found_in_any_order() {
        let msix = [0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let found = [
            structure(5, 0, 0, 0),
            structure(2, 4, 0x3000, 0x1000),
            structure(4, 4, 0x2000, 0x1000),
            structure(3, 4, 0x1000, 0x1000),
            structure(1, 4, 0, 0x1000),
        ];
        let mut list: Vec<&[u8]> = vec![&msix];
        list.extend(found.iter().map(|capability| &capability[..]));
        let at = |offset, bytes| Structure {
            bar: 4,
            offset,
            bytes,
        };
        let expected = Virtio {
            common: at(0, 0x1000),
            notify: at(0x3000, 0x1000),
            isr: at(0x1000, 0x1000),
            device: at(0x2000, 0x1000),
            notify_multiplier: 4,
            reserved: 0,
        };
        assert_eq!(structures(&config(&list), &BARS_BYTES), expected);
    }

    #[test]
    fn what_is_outside_of_its_bar_is_none() {
        for (bar, offset, bytes) in [
            (0, 0, 0x38),
            (4, 0, 0),
            (4, 0x4000, 1),
            (4, 0x3fff, 2),
            (4, u32::MAX, u32::MAX),
            (6, 0, 0x38),
            (255, 0, 0x38),
        ] {
            let wrong = structure(1, bar, offset, bytes);
            assert_eq!(structures(&config(&[&wrong]), &BARS_BYTES), Virtio::ZERO);
            // The next one of the kind is taken in its place.
            let right = structure(1, 1, 0x10, 0x38);
            let other = structure(1, 4, 0, 0x38);
            let found = structures(&config(&[&wrong, &right, &other]), &BARS_BYTES);
            assert_eq!((found.common.bar, found.common.offset), (1, 0x10));
        }
    }

    #[test]
    fn a_device_that_passes_by_the_iommu_is_refused() {
        let check = |features| check_platform(|_, _| Ok(()), |_| Ok(features));
        assert!(check(ACCESS_PLATFORM).is_ok() && check(u32::MAX).is_ok());
        assert!(matches!(check(1), Err(Problem::Bypasses)));
        let fails = |_| Err(io::ErrorKind::NotFound.into());
        let failed = check_platform(|_, _| Ok(()), fails);
        assert!(matches!(failed, Err(Problem::Registers(_))));
    }

    proptest! {
        #[test]
        fn no_configuration_space_makes_it_panic(
            bytes in proptest::collection::vec(any::<u8>(), CONFIG_BYTES),
            wild in proptest::collection::vec((0..CONFIG_BYTES, any::<u8>()), 0..20),
        ) {
            let good = structure(1, 4, 0, 0x38);
            let mut both = [config(&[&good, &good]), bytes.try_into().unwrap()];
            for (at, byte) in wild {
                both[0][at] = byte;
            }
            for config in both {
                let found = structures(&config, &BARS_BYTES);
                for structure in [found.common, found.notify, found.isr, found.device] {
                    let inside = is_inside(&structure, &BARS_BYTES);
                    prop_assert!(inside || structure == Structure::NONE);
                }
            }
        }
    }
}
