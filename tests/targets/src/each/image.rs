//! An image is a file from a stranger: reading it must end in an image that keeps the promises of
//! its type, or in a reason of one line.

use image::{Image, retarget};

pub fn feed(bytes: &[u8]) {
    let image = match Image::parse(bytes) {
        Ok(image) => image,
        Err(reason) => {
            assert!(!reason.to_string().contains(char::is_control));
            return;
        }
    };
    let mut free_from = abi::IMAGE_BASE;
    for segment in &image.segments {
        assert!(segment.first_page() >= free_from);
        assert_eq!(segment.file(bytes).len(), segment.file_size);
        assert!(segment.file_size as u64 <= segment.memory_size);
        assert!(!(segment.rights.write && segment.rights.execute));
        free_from = segment.pages_end();
    }
    assert_eq!(image.end, free_from);
    assert!((1..=abi::manifest::ENTRIES_MAX).contains(&image.entries.len()));
    assert!(
        image
            .entries
            .iter()
            .skip(1)
            .all(|entry| entry.name().is_some())
    );
    assert!(image.entries.len() + image.pci.len() <= abi::pci::INDICES_MAX);
    assert!(image.pci.iter().all(|request| request.name().is_some()));
    assert!(image.dma_bytes <= abi::pci::DMA_BYTES_MAX);

    let mut retargeted = bytes.to_vec();
    if retarget(&mut retargeted, abi::note::Target::Hvt).is_ok() {
        let changed = bytes
            .iter()
            .zip(&retargeted)
            .filter(|(a, b)| a != b)
            .count();
        assert!(changed <= 1);
    }
}
