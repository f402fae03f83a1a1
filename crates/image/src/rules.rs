//! The text of the rules that an image comes with: for whoever shows what those rules counted. It
//! is in a section of its own that nobody loads, like line numbers, so that the guest's memory does
//! not hold it twice.

use abi::share::RULES_BYTES_MAX;
use elf::ElfBytes;
use elf::endian::LittleEndian;

/// Name of the section.
pub(crate) const SECTION: &str = ".outboard.rules";

/// The rules that the image in `bytes` comes with, if it says. Whether the guest uses them is its
/// own decision, and whether they are rules is not looked at.
pub fn built_in_rules(bytes: &[u8]) -> Option<&str> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).ok()?;
    let section = file.section_header_by_name(SECTION).ok()??;
    let (text, compression) = file.section_data(&section).ok()?;
    let plain = compression.is_none() && text.len() <= RULES_BYTES_MAX;
    plain.then(|| std::str::from_utf8(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_image_without_the_section_has_none() {
        assert_eq!(built_in_rules(&crate::sample::sample()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, at in 0..64_usize) {
            let mut image = crate::sample::sample();
            let end = (at + bytes.len()).min(64);
            image[at..end].copy_from_slice(&bytes[..end - at]);
            let _ = built_in_rules(&image);
        }
    }
}
