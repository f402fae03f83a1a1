//! What a device says of itself (USB 2.0, 9.6; USB 3.2, 9.6): bytes of anybody's, checked.

use super::context::Speed;
use super::error::Error;
use super::host::Endpoint;

/// Bytes of a device descriptor.
pub const DEVICE_BYTES: usize = 18;
/// Kinds of descriptors.
const DEVICE: u8 = 1;
const CONFIGURATION: u8 = 2;
const INTERFACE: u8 = 4;
const ENDPOINT: u8 = 5;
const COMPANION: u8 = 0x30;
/// The class of hubs, and that of mass storage: SCSI commands, bulk-only (Mass Storage Class
/// Specification Overview 1.4, 2 and 3).
const HUB: u8 = 9;
const STORAGE: [u8; 3] = [0x08, 0x06, 0x50];
/// The kind of endpoint that moves bulk data, among its attributes.
const BULK: u8 = 2;
/// Packets at once of a bulk endpoint, at most, less one.
const BURST_MAX: u8 = 15;

/// A request for a descriptor (USB 2.0, 9.4.3), of which so many bytes are wanted.
pub const fn request(kind: Described, bytes: u16) -> [u8; 8] {
    let (kind, index, language) = match kind {
        Described::Device => (DEVICE, 0, 0),
        Described::Configuration => (CONFIGURATION, 0, 0),
        Described::Text(index) => (3, index, ENGLISH),
    };
    let ([low, high], [language_low, language_high]) =
        (bytes.to_le_bytes(), language.to_le_bytes());
    [0x80, 6, index, kind, language_low, language_high, low, high]
}

/// The language of texts that nearly all devices have.
const ENGLISH: u16 = 0x0409;

/// What a descriptor is wanted of.
#[derive(Clone, Copy, Debug)]
pub enum Described {
    Device,
    Configuration,
    /// The text of this number.
    Text(u8),
}

/// A request that a device use its configuration of this value (9.4.7).
pub const fn set_configuration(value: u8) -> [u8; 8] {
    [0x00, 9, value, 0, 0, 0, 0, 0]
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The descriptor.
    pub bytes: [u8; DEVICE_BYTES],
}

impl Identity {
    /// Of a device descriptor.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn of(answer: &[u8]) -> Result<Self, Error> {
        let bytes = answer.first_chunk().copied();
        let bytes: [u8; DEVICE_BYTES] = bytes.ok_or(Error::Config("its device descriptor"))?;
        match (usize::from(bytes[0]), bytes[1]) {
            (DEVICE_BYTES.., DEVICE) => Ok(Self { bytes }),
            _ => Err(Error::Config("its device descriptor")),
        }
    }

    /// Whether it is a hub.
    pub fn is_hub(&self) -> bool {
        self.bytes[4] == HUB
    }

    /// The number of the text that tells it from others of its kind; 0 if there is none.
    pub fn serial(&self) -> u8 {
        self.bytes[16]
    }
}

/// Bytes of a packet of the control endpoint, by the first eight bytes of the device descriptor.
///
/// # Errors
/// [`Error::Config`].
pub fn control_packet(speed: Speed, answer: &[u8]) -> Result<u16, Error> {
    let wrong = Error::Config("the packets of its control endpoint");
    let first: [u8; 8] = answer.first_chunk().copied().ok_or(wrong)?;
    let packet = first[7];
    let is_right = match speed {
        Speed::Super(_) => packet == 9,
        Speed::High => packet == 64,
        Speed::Full => matches!(packet, 8 | 16 | 32 | 64),
        Speed::Low => packet == 8,
    };
    match (is_right, speed) {
        (false, _) => Err(wrong),
        (true, Speed::Super(_)) => Ok(512),
        (true, _) => Ok(packet.into()),
    }
}

/// How a device's data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The value of its configuration.
    pub configuration: u8,
    /// The number of its interface.
    pub interface: u8,
    pub out: Endpoint,
    pub into: Endpoint,
}

/// The value of a configuration.
///
/// # Errors
/// [`Error::Config`].
pub fn configuration(answer: &[u8]) -> Result<u8, Error> {
    match *answer {
        [length, CONFIGURATION, _, _, _, value, ..] if length >= 9 => Ok(value),
        _ => Err(Error::Config("its configuration")),
    }
}

/// Descriptors one behind the other; one that does not fit ends them.
fn descriptors(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let length = usize::from(*rest.first()?);
        let (one, behind) = rest.split_at_checked(length).filter(|_| length >= 2)?;
        rest = behind;
        Some(one)
    })
}

/// The first interface of a configuration that is a disk's, without other settings.
///
/// # Errors
/// [`Error::Config`], or [`Error::Lacks`] if there is none.
pub fn storage(speed: Speed, answer: &[u8]) -> Result<Storage, Error> {
    let configuration = configuration(answer)?;
    let (interface, ends) = ends(answer).ok_or(Error::Lacks("no interface of a disk"))?;
    let [Some(out), Some(into)] = ends else {
        return Err(Error::Config("its endpoints"));
    };
    let is_right = |end: &Endpoint| {
        let bursts = matches!(speed, Speed::Super(_)) && end.burst <= BURST_MAX;
        speed.has_bulk_packet(end.packet) && (end.burst == 0 || bursts)
    };
    match is_right(&out) && is_right(&into) {
        true => Ok(Storage {
            configuration,
            interface,
            out,
            into,
        }),
        false => Err(Error::Config("the packets of its endpoints")),
    }
}

/// The number of that interface, and its first bulk endpoints: out, and in.
fn ends(answer: &[u8]) -> Option<(u8, [Option<Endpoint>; 2])> {
    let mut found = None;
    let mut ends = [None::<Endpoint>; 2];
    // The endpoint that a companion is about.
    let mut last = None;
    for one in descriptors(answer) {
        let about = last.take();
        match *one {
            [
                _,
                INTERFACE,
                number,
                setting,
                _,
                class,
                subclass,
                protocol,
                ..,
            ] => {
                if found.is_some() {
                    break;
                }
                let is_disk = setting == 0 && [class, subclass, protocol] == STORAGE;
                found = is_disk.then_some(number);
            }
            [_, ENDPOINT, address, kind, low, high, ..] if found.is_some() => {
                let way = usize::from(address >> 7);
                if kind & 3 == BULK && address & 0xf != 0 && ends[way].is_none() {
                    ends[way] = Some(Endpoint {
                        address: address & 0x8f,
                        packet: u16::from_le_bytes([low, high]),
                        burst: 0,
                    });
                    last = Some(way);
                }
            }
            [_, COMPANION, burst, ..] => {
                if let Some(end) = about.and_then(|way: usize| ends[way].as_mut()) {
                    end.burst = burst;
                }
            }
            _ => {}
        }
    }
    Some((found?, ends))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn disk(packet: u16, burst: u8) -> Vec<u8> {
        let [low, high] = packet.to_le_bytes();
        let mut bytes = alloc::vec![9, 2, 0, 0, 2, 7, 0, 0x80, 50];
        // A keyboard comes first.
        bytes.extend([9, 4, 0, 0, 1, 3, 1, 1, 0, 7, 5, 0x81, 3, 8, 0, 10]);
        bytes.extend([9, 4, 1, 0, 2, 8, 6, 0x50, 0]);
        bytes.extend([7, 5, 0x83, 2, low, high, 0, 6, 0x30, burst, 0, 0, 0]);
        bytes.extend([7, 5, 0x02, 2, low, high, 0, 6, 0x30, 0, 0, 0, 0]);
        // The same interface by other means (UAS).
        bytes.extend([9, 4, 1, 1, 4, 8, 6, 0x62, 0, 7, 5, 0x04, 2, 0, 4, 0]);
        bytes
    }

    #[test]
    fn a_disk_is_found_behind_other_interfaces() {
        let found = storage(Speed::Super(4), &disk(1024, 15)).unwrap();
        let end = |address, burst| Endpoint {
            address,
            packet: 1024,
            burst,
        };
        let wanted = Storage {
            configuration: 7,
            interface: 1,
            out: end(2, 0),
            into: end(0x83, 15),
        };
        assert_eq!(found, wanted);
        for (speed, packet, burst) in [
            (Speed::Super(4), 512, 0),
            (Speed::Super(4), 1024, 16),
            (Speed::High, 1024, 0),
            (Speed::High, 512, 1),
            (Speed::Full, 512, 0),
            (Speed::Low, 8, 0),
        ] {
            let found = storage(speed, &disk(packet, burst));
            assert!(matches!(found, Err(Error::Config(_))), "{speed:?} {packet}");
        }
        assert!(storage(Speed::High, &disk(512, 0)).is_ok());
    }

    #[test]
    fn packets_of_the_control_endpoint_are_those_that_a_speed_has() {
        let with = |packet| [18, 1, 0, 2, 0, 0, 0, packet];
        assert_eq!(control_packet(Speed::Full, &with(64)), Ok(64));
        assert_eq!(control_packet(Speed::Super(5), &with(9)), Ok(512));
        for (speed, packet) in [(Speed::Full, 0), (Speed::High, 8), (Speed::Super(4), 64)] {
            assert!(control_packet(speed, &with(packet)).is_err());
        }
        assert!(control_packet(Speed::High, &[18, 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_something_or_an_error(bytes: Vec<u8>) {
            let _ = storage(Speed::High, &bytes);
            let _ = Identity::of(&bytes);
            let _ = control_packet(Speed::Full, &bytes);
        }
    }
}
