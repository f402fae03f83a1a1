//! The manifest: every device that an image may touch (Solo5 `mft_abi.h`, version 1).
//!
//! In the file it is the descriptor of the manifest note, behind [`crate::note::MANIFEST_PAD`]
//! bytes; in guest memory it is what `boot_info.mft` points to. Both are a [`Header`] and then
//! [`Header::entries`] times an [`Entry`], the first of which is reserved and empty.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the manifest.
pub const VERSION: u32 = 1;
/// Most entries, the reserved first one included.
pub const ENTRIES_MAX: usize = 64;
/// Longest device name in bytes.
pub const NAME_BYTES_MAX: usize = 67;

/// Entry types.
pub mod kind {
    /// A block device.
    pub const BLOCK_BASIC: u32 = 1;
    /// A network device.
    pub const NET_BASIC: u32 = 2;
    /// Sockets of the host's. Outboard's own: Solo5's tenders attach none, and refuse it.
    pub const SOCKETS: u32 = 1 << 29;
    /// The first entry of every manifest.
    pub const RESERVED_FIRST: u32 = 1 << 30;
}

/// What precedes the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`VERSION`], unchecked.
    pub version: u32,
    /// Number of entries, unchecked.
    pub entries: u32,
}

/// One entry as it lies in memory; integers until [`Entry::device`] has checked them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// The name, ended by a NUL.
    pub name: [u8; NAME_BYTES_MAX + 1],
    /// One of [`kind`].
    pub kind: u32,
    /// Properties that the tender fills in when it attaches the device: see [`Device`].
    pub properties: [u8; 16],
    /// The tender's own handle. On `spt` its first four bytes are the descriptor to use.
    pub backing: u64,
    /// 1 once the device is attached.
    pub attached: u8,
    /// Zero.
    pub padding: [u8; 7],
}

const _: () = assert!(size_of::<Header>() == 8 && size_of::<Entry>() == 104);
const _: () = assert!(core::mem::offset_of!(Entry, properties) == 72);
const _: () = assert!(core::mem::offset_of!(Entry, backing) == 88);
const _: () = assert!(core::mem::offset_of!(Entry, attached) == 96);

/// Size in bytes of a manifest of `entries` entries in memory.
pub const fn size_of_manifest(entries: usize) -> usize {
    size_of::<Header>() + entries * size_of::<Entry>()
}

/// A device of the manifest with the properties that the tender found when attaching it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// A network device: its MAC address, and its MTU in bytes (no Ethernet header).
    Net {
        /// MAC address that the guest should use.
        mac: [u8; 6],
        /// Largest payload of an Ethernet frame on the wire, in bytes.
        mtu: u16,
    },
    /// A block device: its size and that of a block, in bytes.
    Block {
        /// Size in bytes.
        capacity: u64,
        /// Size of a block in bytes; every transfer is one block.
        block_size: u16,
    },
    /// Sockets of the host's: an epoll descriptor, into which the guest puts those that it opens.
    Sockets,
}

/// Why an entry, or a manifest, is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Too short for the number of entries that it claims.
    Truncated,
    /// Another version than [`VERSION`].
    Version(u32),
    /// No entry at all, or more than [`ENTRIES_MAX`].
    Count(u32),
    /// The first entry is not the reserved one, or has a name.
    FirstEntry,
    /// The name of this entry is empty, not ended, or has a character other than A-Z, a-z, 0-9.
    Name(usize),
    /// This entry's type is not known here.
    Kind(usize, u32),
    /// This entry claims to be attached already.
    Attached(usize),
    /// Two entries bear the name of this one.
    Duplicate(usize),
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => write!(f, "manifest is cut short"),
            Self::Version(v) => write!(f, "manifest version is {v}, not {VERSION}"),
            Self::Count(n) => write!(f, "manifest has {n} entries, not 1 to {ENTRIES_MAX}"),
            Self::FirstEntry => write!(f, "manifest entry 0 is not the reserved one"),
            Self::Name(i) => write!(
                f,
                "manifest entry {i} has a name that is not 1 to {NAME_BYTES_MAX} letters and digits"
            ),
            Self::Kind(i, kind) => write!(f, "manifest entry {i} has the unknown type {kind}"),
            Self::Attached(i) => write!(f, "manifest entry {i} claims to be attached already"),
            Self::Duplicate(i) => write!(f, "manifest entry {i} has the name of an earlier one"),
        }
    }
}

impl core::error::Error for Malformed {}

impl Entry {
    /// The first entry of every manifest.
    pub const RESERVED: Self = Self {
        name: [0; NAME_BYTES_MAX + 1],
        kind: kind::RESERVED_FIRST,
        properties: [0; 16],
        backing: 0,
        attached: 0,
        padding: [0; 7],
    };

    /// An entry that is not attached yet; `None` if `name` is no device name.
    pub fn new(name: &str, kind: u32) -> Option<Self> {
        Some(Self {
            name: name_field(name)?,
            kind,
            ..Self::RESERVED
        })
    }

    /// The name, if it is one: 1 to 67 letters and digits.
    pub fn name(&self) -> Option<&str> {
        name_of(&self.name)
    }

    /// Records what the tender attached: properties, backing descriptor, and that it did.
    pub fn attach(&mut self, device: Device, descriptor: i32) {
        self.properties = [0; 16];
        match device {
            Device::Net { mac, mtu } => {
                self.properties[0..6].copy_from_slice(&mac);
                self.properties[6..8].copy_from_slice(&mtu.to_le_bytes());
            }
            Device::Block {
                capacity,
                block_size,
            } => {
                self.properties[0..8].copy_from_slice(&capacity.to_le_bytes());
                self.properties[8..10].copy_from_slice(&block_size.to_le_bytes());
            }
            Device::Sockets => {}
        }
        self.backing = u64::from(descriptor.cast_unsigned());
        self.attached = 1;
    }

    /// The attached device and its properties; `None` if it is of another kind.
    pub fn device(&self) -> Option<Device> {
        let p = &self.properties;
        match self.kind {
            kind::NET_BASIC => Some(Device::Net {
                mac: [p[0], p[1], p[2], p[3], p[4], p[5]],
                mtu: u16::from_le_bytes([p[6], p[7]]),
            }),
            kind::BLOCK_BASIC => Some(Device::Block {
                capacity: u64::from_le_bytes([p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]]),
                block_size: u16::from_le_bytes([p[8], p[9]]),
            }),
            kind::SOCKETS => Some(Device::Sockets),
            _ => None,
        }
    }

    /// The descriptor that backs the device on `spt`.
    pub fn descriptor(&self) -> i32 {
        let b = self.backing.to_le_bytes();
        i32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
}

/// The name in a field of a fixed size, ended by a NUL, if it is a device name.
pub fn name_of(field: &[u8; NAME_BYTES_MAX + 1]) -> Option<&str> {
    let end = field.iter().position(|byte| *byte == 0)?;
    let name = &field[..end];
    is_device_name(name).then(|| core::str::from_utf8(name).ok())?
}

/// The field of a fixed size that holds `name`, if it is a device name.
pub fn name_field(name: &str) -> Option<[u8; NAME_BYTES_MAX + 1]> {
    let mut field = [0; NAME_BYTES_MAX + 1];
    let place = field.get_mut(..name.len())?;
    place.copy_from_slice(name.as_bytes());
    is_device_name(name.as_bytes()).then_some(field)
}

/// Whether `name` can name a device on the command line of a tender.
pub fn is_device_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_alphanumeric)
}

/// The entries of a manifest that an image carries, the reserved first one included, after all of
/// it has been checked. `bytes` begins with the [`Header`]; what follows the last entry is ignored.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<impl Iterator<Item = Entry> + Clone + '_, Malformed> {
    let (header, rest) = Header::read_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    if header.version != VERSION {
        return Err(Malformed::Version(header.version));
    }
    let count = header.entries as usize;
    if !(1..=ENTRIES_MAX).contains(&count) {
        return Err(Malformed::Count(header.entries));
    }
    let table = rest
        .get(..count * size_of::<Entry>())
        .ok_or(Malformed::Truncated)?;
    let entries = table
        .chunks_exact(size_of::<Entry>())
        .map(|chunk| Entry::read_from_bytes(chunk).unwrap_or(Entry::RESERVED));
    for (i, entry) in entries.clone().enumerate() {
        check_entry(i, &entry)?;
        if i > 0 && entries.clone().take(i).any(|e| e.name() == entry.name()) {
            return Err(Malformed::Duplicate(i));
        }
    }
    Ok(entries)
}

fn check_entry(i: usize, entry: &Entry) -> Result<(), Malformed> {
    if i == 0 {
        let reserved = entry.kind == kind::RESERVED_FIRST && entry.name[0] == 0;
        return reserved.then_some(()).ok_or(Malformed::FirstEntry);
    }
    if entry.name().is_none() {
        return Err(Malformed::Name(i));
    }
    if entry.device().is_none() {
        return Err(Malformed::Kind(i, entry.kind));
    }
    if entry.attached != 0 {
        return Err(Malformed::Attached(i));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn manifest(entries: &[Entry]) -> Vec<u8> {
        let header = Header {
            version: VERSION,
            entries: entries.len() as u32,
        };
        let mut bytes = header.as_bytes().to_vec();
        entries
            .iter()
            .for_each(|e| bytes.extend_from_slice(e.as_bytes()));
        bytes
    }

    fn net(name: &str) -> Entry {
        Entry::new(name, kind::NET_BASIC).unwrap()
    }

    #[test]
    fn what_was_written_is_read_back() {
        let bytes = manifest(&[Entry::RESERVED, net("private"), net("public")]);
        let names: Vec<_> = parse(&bytes)
            .unwrap()
            .skip(1)
            .map(|e| e.name().map(std::string::ToString::to_string))
            .collect();
        assert_eq!(names, [Some("private".into()), Some("public".into())]);
    }

    #[test]
    fn properties_survive_attaching() {
        let mut entry = net("a");
        let device = Device::Net {
            mac: [2, 0, 0, 0, 0, 9],
            mtu: 9000,
        };
        entry.attach(device, -1);
        assert_eq!(entry.device(), Some(device));
        assert_eq!(entry.descriptor(), -1);
        let mut entry = Entry::new("d", kind::BLOCK_BASIC).unwrap();
        let device = Device::Block {
            capacity: 1 << 40,
            block_size: 4096,
        };
        entry.attach(device, 7);
        assert_eq!(entry.device(), Some(device));
        assert_eq!(entry.descriptor(), 7);
    }

    #[test]
    fn each_malformed_manifest_has_its_reason() {
        let reason = |bytes: &[u8]| parse(bytes).err();
        assert_eq!(reason(&[]), Some(Malformed::Truncated));
        let mut bytes = manifest(&[Entry::RESERVED]);
        bytes[0] = 9;
        assert_eq!(reason(&bytes), Some(Malformed::Version(9)));
        assert_eq!(reason(&manifest(&[])), Some(Malformed::Count(0)));
        assert_eq!(
            reason(&manifest(&[Entry::RESERVED; 65])),
            Some(Malformed::Count(65))
        );
        let mut bytes = manifest(&[Entry::RESERVED, net("a")]);
        bytes.pop();
        assert_eq!(reason(&bytes), Some(Malformed::Truncated));
        assert_eq!(reason(&manifest(&[net("a")])), Some(Malformed::FirstEntry));
        let bad_name = Entry {
            name: [b'a'; 68],
            ..net("a")
        };
        assert_eq!(
            reason(&manifest(&[Entry::RESERVED, bad_name])),
            Some(Malformed::Name(1))
        );
        let bad_kind = Entry {
            kind: 77,
            ..net("a")
        };
        assert_eq!(
            reason(&manifest(&[Entry::RESERVED, bad_kind])),
            Some(Malformed::Kind(1, 77))
        );
        let attached = Entry {
            attached: 1,
            ..net("a")
        };
        assert_eq!(
            reason(&manifest(&[Entry::RESERVED, attached])),
            Some(Malformed::Attached(1))
        );
        assert_eq!(
            reason(&manifest(&[Entry::RESERVED, net("a"), net("a")])),
            Some(Malformed::Duplicate(2))
        );
    }
}
