//! A manifest's JSON becomes devices that an image may carry, or a reason of one line.

use image::{manifest, note};

pub fn feed(bytes: &[u8]) {
    match manifest::from_json(bytes) {
        Ok(manifest) => {
            // What a build writes, a tender reads: behind the note's header and its padding.
            let note = note::manifest_note(&manifest.entries);
            let descriptor = &note[abi::note::SOLO5_HEADER_SIZE + abi::note::MANIFEST_PAD..];
            let read = abi::manifest::parse(descriptor).expect("what a build writes is valid");
            assert!(read.eq(manifest.entries.iter().copied()));
            assert!(manifest.entries.len() + manifest.pci.len() <= abi::pci::INDICES_MAX);
            assert!(manifest.dma_bytes.is_multiple_of(abi::pci::DMA_GRANULE));
            assert!(manifest.dma_bytes <= abi::pci::DMA_BYTES_MAX);
            let names = manifest.pci.iter().map(abi::pci::Request::name);
            assert!(names.into_iter().all(|name| name.is_some()));
        }
        Err(reason) => assert!(!reason.to_string().contains(char::is_control)),
    }
}
