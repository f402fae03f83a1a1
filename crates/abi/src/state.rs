//! States: memory that an image leaves to the next one ([`crate::region::kind::STATE`]).
//!
//! In the first page lies a header, in two copies, of which the newer sound one holds. What follows
//! is the image's own, and it alone knows what it means. It gives that a number, the layout, which
//! changes with what it keeps. An image whose layouts are fixed carries a [`Mark`] for each, so
//! that whoever would start it knows what it can take up.

use crate::manifest::{NAME_BYTES_MAX, is_device_name, name_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in front of what is the image's own: a page.
pub const HEAD_BYTES: usize = 4096;
/// Words from one copy of the header to the next.
pub const COPY_WORDS: usize = 64;
/// Copies of the header.
pub const COPIES: usize = 2;
/// "OBSTATE" and the version of the header.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OBSTATE\x01");

/// Words of a copy.
pub mod word {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// What lies behind the header, as the image calls it.
    pub const LAYOUT: usize = 1;
    /// Bytes behind the header.
    pub const BYTES: usize = 2;
    /// How many images have begun with it.
    pub const GENERATION: usize = 3;
    /// Checksum of the words before.
    pub const CHECK: usize = 4;
    /// All of them.
    pub const COUNT: usize = 5;
}

/// What a copy of the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What lies behind it, as the image calls it.
    pub layout: u64,
    /// Bytes behind it.
    pub bytes: u64,
    /// How many images have begun with it.
    pub generation: u64,
}

impl Header {
    /// FNV-1a over the words: it finds what was cut or mixed, and nobody else writes here.
    pub fn check(&self) -> u64 {
        let words = [MAGIC, self.layout, self.bytes, self.generation];
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// What a copy with these words says; `None` if it is not sound.
    pub fn of(words: [u64; word::COUNT]) -> Option<Self> {
        let header = Self {
            layout: words[word::LAYOUT],
            bytes: words[word::BYTES],
            generation: words[word::GENERATION],
        };
        let sound = words[word::MAGIC] == MAGIC && words[word::CHECK] == header.check();
        sound.then_some(header)
    }

    /// Of the copies of a header that is sound in one at least, the newer one and its number.
    pub fn newest(copies: impl Iterator<Item = [u64; word::COUNT]>) -> Option<(usize, Self)> {
        let copies = copies.map(Self::of).enumerate();
        let sound = copies.filter_map(|(at, copy)| Some((at, copy?)));
        sound.max_by_key(|(_, copy)| copy.generation)
    }
}

/// What a mark begins with.
const MARK_MAGIC: [u8; 16] = *b"Outboard.layout\x01";

/// Says, somewhere in an image, which layout a state of it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Mark {
    magic: [u8; 16],
    name: [u8; NAME_BYTES_MAX + 1],
    reserved: [u8; 4],
    layout: [u8; 8],
}

impl Mark {
    /// The state of this name has this layout.
    ///
    /// # Panics
    /// If that is no name of a device: at compile time, in a static.
    pub const fn new(name: &str, layout: u64) -> Self {
        let mut field = [0; NAME_BYTES_MAX + 1];
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX);
        let mut at = 0;
        while at < bytes.len() {
            assert!(bytes[at].is_ascii_alphanumeric());
            field[at] = bytes[at];
            at += 1;
        }
        Self {
            magic: MARK_MAGIC,
            name: field,
            reserved: [0; 4],
            layout: layout.to_le_bytes(),
        }
    }

    /// The state's name, if it is one.
    pub fn name(&self) -> Option<&str> {
        name_of(&self.name).filter(|name| is_device_name(name.as_bytes()))
    }

    /// Its layout.
    pub const fn layout(&self) -> u64 {
        u64::from_le_bytes(self.layout)
    }

    /// The layout that the image in these bytes says the state of this name has; `None` if it does
    /// not say that, or says two.
    pub fn find(image: &[u8], name: &str) -> Option<u64> {
        let places = image.windows(MARK_MAGIC.len()).enumerate();
        let places = places.filter(|(_, bytes)| *bytes == MARK_MAGIC);
        let marks = places.filter_map(|(at, _)| Self::read_from_prefix(&image[at..]).ok());
        let its = marks.filter(|(mark, _)| mark.name() == Some(name));
        let mut layouts = its.map(|(mark, _)| mark.layout());
        let first = layouts.next()?;
        layouts.all(|layout| layout == first).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn an_image_says_which_layout_a_state_has() {
        let [a, b] = [("a", 7), ("b", 8)].map(|(name, layout)| Mark::new(name, layout));
        let image = [&[1, 2, 3], a.as_bytes(), &[4], b.as_bytes()].concat();
        assert_eq!(Mark::find(&image, "a"), Some(7));
        assert_eq!(Mark::find(&image, "b"), Some(8));
        assert_eq!(Mark::find(&image, "c"), None);
        assert_eq!(Mark::find(&image[..image.len() - 1], "b"), None);
        let twice: Vec<u8> = [&image[..], Mark::new("a", 9).as_bytes()].concat();
        assert_eq!(Mark::find(&twice, "a"), None);
        assert_eq!(Mark::find(&MARK_MAGIC, "a"), None);
    }

    #[test]
    fn the_newer_sound_copy_of_a_header_holds() {
        let words = |generation| {
            let header = Header {
                layout: 7,
                bytes: 64,
                generation,
            };
            [MAGIC, 7, 64, generation, header.check()]
        };
        let newest = |copies: [[u64; word::COUNT]; 2]| Header::newest(copies.into_iter());
        let found = newest([words(3), words(4)]).unwrap();
        assert_eq!((found.0, found.1.generation), (1, 4));
        let mut cut = words(4);
        cut[word::BYTES] = 65;
        assert_eq!(newest([words(3), cut]).unwrap().0, 0);
        assert_eq!(newest([[0; word::COUNT]; 2]), None);
    }
}
