//! The ELF notes of an image (Solo5 `elf_abi.h`).
//!
//! Each note is the first of a `PT_NOTE` program header of its own; a stock tender looks at no
//! other. A note is `namesz u32, descsz u32, type u32, name (padded to 4 bytes), descriptor`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of Solo5's notes, as it lies in the file.
pub const SOLO5_NAME: [u8; 8] = *b"Solo5\0\0\0";
/// `namesz` of Solo5's notes: the name and its NUL.
pub const SOLO5_NAME_SIZE: u32 = 6;
/// Type of the ABI note, "ABI1".
pub const ABI_TYPE: u32 = 0x3149_4241;
/// Type of the manifest note, "MFT1".
pub const MANIFEST_TYPE: u32 = 0x3154_464d;
/// Bytes of a Solo5 note in front of its descriptor.
pub const SOLO5_HEADER_SIZE: usize = 20;
/// The manifest's descriptor is aligned to 8 bytes relative to the start of the note: it begins
/// with this many bytes of padding, which `descsz` counts.
pub const MANIFEST_PAD: usize = 4;

/// The host that an image was built for: the field `abi_target` of its ABI note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Target {
    /// A KVM virtual machine.
    Hvt = 1,
    /// A seccomp-sandboxed process.
    Spt = 2,
}

impl Target {
    /// The target with this number, if Outboard knows it.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Hvt),
            2 => Some(Self::Spt),
            _ => None,
        }
    }

    /// The name that users type, and the file extension of such an image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hvt => "hvt",
            Self::Spt => "spt",
        }
    }
}

/// Version of the ABI that both `hvt` and `spt` of Solo5 v0.12 speak.
pub const ABI_VERSION: u32 = 2;

/// Descriptor of the ABI note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AbiDescriptor {
    /// A [`Target`], unchecked.
    pub target: u32,
    /// [`ABI_VERSION`], unchecked.
    pub version: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

/// Size of the whole ABI note in the file.
pub const ABI_NOTE_SIZE: usize = SOLO5_HEADER_SIZE + size_of::<AbiDescriptor>();
const _: () = assert!(ABI_NOTE_SIZE == 36);

/// Offset of the target field from the start of the ABI note: the one word in which the `.spt`
/// and `.hvt` images of one build differ, and by which a running image learns its host.
pub const ABI_TARGET_OFFSET: usize = SOLO5_HEADER_SIZE;

/// Header and name of a Solo5 note with a descriptor of `descriptor_size` bytes.
pub fn solo5_header(note_type: u32, descriptor_size: u32) -> [u8; SOLO5_HEADER_SIZE] {
    let mut bytes = [0; SOLO5_HEADER_SIZE];
    bytes[0..4].copy_from_slice(&SOLO5_NAME_SIZE.to_le_bytes());
    bytes[4..8].copy_from_slice(&descriptor_size.to_le_bytes());
    bytes[8..12].copy_from_slice(&note_type.to_le_bytes());
    bytes[12..20].copy_from_slice(&SOLO5_NAME);
    bytes
}

/// The bytes of an ABI note for `target`.
pub fn abi_note(target: Target) -> [u8; ABI_NOTE_SIZE] {
    let descriptor = AbiDescriptor {
        target: target as u32,
        version: ABI_VERSION,
        reserved: [0; 2],
    };
    let mut bytes = [0; ABI_NOTE_SIZE];
    bytes[..SOLO5_HEADER_SIZE].copy_from_slice(&solo5_header(ABI_TYPE, 16));
    bytes[SOLO5_HEADER_SIZE..].copy_from_slice(descriptor.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Taken from a Solo5-built `test_hello.spt` by `readelf -x .note.solo5.abi`.
    #[test]
    fn abi_note_is_byte_for_byte_solo5s() {
        let golden = [
            6, 0, 0, 0, 16, 0, 0, 0, 0x41, 0x42, 0x49, 0x31, b'S', b'o', b'l', b'o', b'5', 0, 0, 0,
            2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(abi_note(Target::Spt), golden);
    }

    #[test]
    fn a_target_knows_its_number() {
        for target in [Target::Hvt, Target::Spt] {
            assert_eq!(Target::from_number(target as u32), Some(target));
        }
        assert_eq!(Target::from_number(0), None);
        assert_eq!(Target::from_number(5), None);
    }
}
