//! The bytes of the notes that an image carries, in front of what only a linker can know.

use crate::manifest::Manifest;
use abi::extension::{self, Descriptor};
use abi::manifest::{self, Entry, Header, size_of_manifest};
use abi::note::{MANIFEST_PAD, MANIFEST_TYPE, solo5_header};
use zerocopy::IntoBytes;

/// The whole manifest note. `entries` are at most [`manifest::ENTRIES_MAX`], the reserved first one
/// included; what [`crate::manifest`] returns is.
pub fn manifest_note(entries: &[Entry]) -> Vec<u8> {
    let descriptor_size = MANIFEST_PAD + size_of_manifest(entries.len());
    let header = Header {
        version: manifest::VERSION,
        entries: entries.len() as u32,
    };
    let mut bytes = solo5_header(MANIFEST_TYPE, descriptor_size as u32).to_vec();
    bytes.extend_from_slice(&[0; MANIFEST_PAD]);
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(entries.as_bytes());
    bytes
}

/// The extension note of an image with this manifest and these bits of [`extension::feature`], in
/// two parts: between them lies [`Descriptor::host_info`], which is an address of the linker's. It
/// has the same size for all manifests: [`extension::DESCRIPTOR_BYTES`].
pub fn extension_note(manifest: &Manifest, features: u32) -> (Vec<u8>, Vec<u8>) {
    let descriptor = Descriptor {
        version: extension::VERSION,
        features,
        host_info: 0,
        dma_bytes: manifest.dma_bytes,
        pci: manifest.pci.len() as u32,
        regions: manifest.regions.len() as u32,
    };
    let (before, after) = descriptor
        .as_bytes()
        .split_at(std::mem::offset_of!(Descriptor, host_info));
    let after = &after[size_of::<u64>()..];
    let mut after = [after, manifest.pci.as_bytes(), manifest.regions.as_bytes()].concat();
    let host_info_end = before.len() + size_of::<u64>();
    after.resize(extension::DESCRIPTOR_BYTES - host_info_end, 0);
    ([&extension::header(), before].concat(), after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::manifest::kind;

    /// Where the name of a golden note's second entry lies, and where its type.
    const NAME: usize = 0x88;
    const KIND: usize = 0xcc;

    /// What the notes of Solo5's `test_blk.spt` and `test_net.spt` have in common, by
    /// `readelf -x .note.solo5.manifest`: 240 bytes, most of them zero.
    fn golden() -> Vec<u8> {
        let mut bytes = vec![0; 0xf0];
        bytes[..0x20].copy_from_slice(&[
            0x06, 0, 0, 0, 0xdc, 0, 0, 0, 0x4d, 0x46, 0x54, 0x31, 0x53, 0x6f, 0x6c, 0x6f, 0x35, 0,
            0, 0, 0, 0, 0, 0, 0x01, 0, 0, 0, 0x02, 0, 0, 0,
        ]);
        bytes[0x67] = 0x40;
        bytes
    }

    #[test]
    fn manifest_note_of_a_block_device_is_byte_for_byte_solo5s() {
        let mut expected = golden();
        expected[NAME..][..7].copy_from_slice(&[0x73, 0x74, 0x6f, 0x72, 0x61, 0x67, 0x65]);
        expected[KIND] = 1;
        let device = Entry::new("storage", kind::BLOCK_BASIC).unwrap();
        assert_eq!(manifest_note(&[Entry::RESERVED, device]), expected);
    }

    #[test]
    fn manifest_note_of_a_net_device_is_byte_for_byte_solo5s() {
        let mut expected = golden();
        expected[NAME..][..8].copy_from_slice(&[0x73, 0x65, 0x72, 0x76, 0x69, 0x63, 0x65, 0x30]);
        expected[KIND] = 2;
        let device = Entry::new("service0", kind::NET_BASIC).unwrap();
        assert_eq!(manifest_note(&[Entry::RESERVED, device]), expected);
    }

    #[test]
    fn extension_note_stops_where_the_address_begins() {
        let golden = [
            9, 0, 0, 0, 0xe0, 0x0e, 0, 0, 0x4f, 0x42, 0x58, 0x31, b'O', b'u', b't', b'b', b'o',
            b'a', b'r', b'd', 0, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0,
        ];
        let (before, after) = extension_note(&Manifest::none(), 7);
        assert_eq!(before, golden);
        assert_eq!(after, [0; 3808 - 16]);
    }

    #[test]
    fn extension_note_goes_on_with_the_pci_devices_and_the_regions() {
        let manifest = Manifest {
            pci: vec![
                crate::sample::request("a", 1),
                crate::sample::request("b", 2),
            ],
            regions: vec![crate::sample::link("c", 1)],
            dma_bytes: 4 << 20,
            ..Manifest::none()
        };
        let (before, after) = extension_note(&manifest, 0);
        assert_eq!(before[4..8], 3808u32.to_le_bytes());
        assert_eq!(after[..8], (4u64 << 20).to_le_bytes());
        assert_eq!(after[8..16], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(
            [after[16], after[16 + 80], after[16 + 160]],
            [b'a', b'b', b'c']
        );
        assert_eq!(before.len() + 8 + after.len(), 24 + 3808);
        assert!(after[16 + 160 + 76..].iter().all(|byte| *byte == 0));
    }
}
