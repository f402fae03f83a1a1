//! What the disk says of itself (ACS-2, IDENTIFY DEVICE): read once, and checked.

use super::error::Error;

/// Words of 16 bits.
pub const WORDS: usize = 256;
/// Blocks that the driver can use, in bytes.
const BLOCK_BYTES: [usize; 2] = [512, 4096];
/// Blocks that an address of 48 bits reaches.
const BLOCKS_MAX: u64 = 1 << 48;
/// The signature of the word that has a checksum.
const CHECKSUM_SIGNATURE: u16 = 0xa5;

/// Which disk it is, by what it says: another one of its model says something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Words 10 to 19.
    serial: [u16; 10],
    /// Words 23 to 26.
    firmware: [u16; 4],
    /// Words 27 to 46.
    model: [u16; 20],
    /// Words 108 to 111: the world wide name, of a disk that has one.
    world_wide: [u16; 4],
}

impl Name {
    fn of(words: &[u16; WORDS]) -> Self {
        fn some<const N: usize>(words: &[u16; WORDS], first: usize) -> [u16; N] {
            core::array::from_fn(|n| words[first + n])
        }
        Self {
            serial: some(words, 10),
            firmware: some(words, 23),
            model: some(words, 27),
            world_wide: match valid(words[87], 8) {
                true => some(words, 108),
                false => [0; 4],
            },
        }
    }
}

/// What a disk is like. Behind a reset it is compared as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub name: Name,
    pub block_size: usize,
    /// Bytes, whole blocks.
    pub capacity: u64,
    /// Queued commands that it takes at once; none if it has no queue.
    pub queue: Option<usize>,
    /// Whether what was written may be lost until it is flushed.
    pub has_cache: bool,
    /// FLUSH CACHE EXT.
    pub flushes: bool,
    /// DATA SET MANAGEMENT with TRIM.
    pub trims: bool,
}

/// Whether a word that says by its two highest bits whether it is valid has a bit.
fn valid(word: u16, bit: u32) -> bool {
    word >> 14 == 1 && word & 1 << bit != 0
}

impl Disk {
    /// Of the words.
    ///
    /// # Errors
    /// [`Error`], if the driver cannot use such a one.
    pub fn of(words: &[u16; WORDS]) -> Result<Self, Error> {
        if words[255] & 0xff == CHECKSUM_SIGNATURE {
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            if bytes.fold(0, u8::wrapping_add) != 0 {
                return Err(Error::Config("its checksum of that"));
            }
        }
        // General configuration, bit 15: 0 for ATA.
        if words[0] & 1 << 15 != 0 {
            return Err(Error::Lacks("another command set than that of disks"));
        }
        // Capabilities: DMA and LBA.
        if words[49] & (1 << 8 | 1 << 9) != 1 << 8 | 1 << 9 {
            return Err(Error::Lacks("no DMA"));
        }
        if !valid(words[83], 10) {
            return Err(Error::Lacks("no addresses of 48 bits"));
        }
        let block_size = match valid(words[106], 12) {
            true => 2 * (u64::from(words[117]) | u64::from(words[118]) << 16),
            false => 512,
        };
        let block_size = BLOCK_BYTES
            .into_iter()
            .find(|size| *size as u64 == block_size);
        let block_size = block_size.ok_or(Error::Lacks("blocks of an odd size"))?;
        let blocks = (0..4).fold(0, |blocks, n| {
            blocks | u64::from(words[100 + n]) << (16 * n)
        });
        if blocks == 0 || blocks > BLOCKS_MAX {
            return Err(Error::Config("how many blocks it has"));
        }
        // Serial ATA capabilities: 0 and all ones say nothing.
        let queues = !matches!(words[76], 0 | u16::MAX) && words[76] & 1 << 8 != 0;
        // Where words 85 to 87 mean nothing, it has a cache.
        let has_cache = words[87] >> 14 != 1 || words[85] & 1 << 5 != 0;
        Ok(Self {
            name: Name::of(words),
            block_size,
            capacity: blocks * block_size as u64,
            queue: queues.then_some(usize::from(words[75] & 0x1f) + 1),
            has_cache,
            flushes: valid(words[83], 13),
            trims: words[169] & 1 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good() -> [u16; WORDS] {
        let mut words = [0; WORDS];
        words[49] = 1 << 8 | 1 << 9;
        words[75] = 31;
        words[76] = 1 << 8;
        words[83] = 1 << 14 | 1 << 13 | 1 << 10;
        words[85] = 1 << 5;
        words[87] = 1 << 14 | 1 << 8;
        words[100] = 100;
        words[169] = 1;
        words
    }

    #[test]
    fn what_a_disk_says_is_believed_if_it_can_be() {
        let disk = Disk::of(&good()).unwrap();
        let wanted = Disk {
            name: Name::default(),
            block_size: 512,
            capacity: 51200,
            queue: Some(32),
            has_cache: true,
            flushes: true,
            trims: true,
        };
        assert_eq!(disk, wanted);
        let changed = |index: usize, value| {
            let mut words = good();
            words[index] = value;
            Disk::of(&words)
        };
        assert_eq!(changed(76, 0xffff).unwrap().queue, None);
        assert!(!changed(85, 0).unwrap().has_cache);
        let mut silent = good();
        (silent[85], silent[87]) = (0, 0);
        assert!(Disk::of(&silent).unwrap().has_cache, "it does not say");
        for word in [10, 19, 23, 26, 27, 46, 108, 111] {
            assert_ne!(changed(word, 0x4142).unwrap(), disk, "{word}");
        }
        assert!(matches!(changed(100, 0), Err(Error::Config(_))));
        assert!(matches!(changed(103, 2), Err(Error::Config(_))));
        assert!(matches!(changed(255, 0x01a5), Err(Error::Config(_))));
        for (index, value) in [
            (0, 1 << 15),
            (49, 1 << 8),
            (83, 1 << 10),
            (106, 1 << 14 | 1 << 12),
        ] {
            assert!(
                matches!(changed(index, value), Err(Error::Lacks(_))),
                "{index}"
            );
        }
        let mut large = good();
        (large[106], large[117]) = (1 << 14 | 1 << 12, 2048);
        assert_eq!(Disk::of(&large).unwrap().block_size, 4096);
    }

    proptest! {
        #[test]
        fn any_words_make_a_disk_that_can_be_or_none(
            changes in prop::collection::vec((0..WORDS, any::<u16>()), 0..8),
        ) {
            let mut words = good();
            for (index, value) in changes {
                words[index] = value;
            }
            if let Ok(disk) = Disk::of(&words) {
                prop_assert!(disk.capacity.is_multiple_of(disk.block_size as u64));
                prop_assert!(disk.queue.is_none_or(|depth| (1..=32).contains(&depth)));
            }
        }
    }
}
