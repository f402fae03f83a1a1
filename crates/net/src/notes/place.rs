//! A place in memory that outlives the image. What it says counts from its last store on and until
//! its first store is changed.

use crate::stores::in_order;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use zerocopy::{FromBytes, IntoBytes, KnownLayout};

/// A label, which is 0 where nothing is said, words that say something, and a check.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Place<const ALL: usize>([AtomicU32; ALL]);

impl<const ALL: usize> Place<ALL> {
    /// The words, if it has this label.
    pub(crate) fn read<const WORDS: usize>(&self, label: u32) -> Option<[u32; WORDS]> {
        let words = self.words();
        let [first, .., last] = &self.0[..] else {
            return None;
        };
        let is_sound = first.load(Relaxed) == label && last.load(Relaxed) == check(label, &words);
        is_sound.then_some(words)
    }

    /// The words, sound or not.
    pub(crate) fn words<const WORDS: usize>(&self) -> [u32; WORDS] {
        const { assert!(WORDS + 2 == ALL) }
        core::array::from_fn(|number| self.0[1 + number].load(Relaxed))
    }

    /// Says this, in place of what was there.
    pub(crate) fn write<const WORDS: usize>(&self, label: u32, words: &[u32; WORDS]) {
        const { assert!(WORDS + 2 == ALL) }
        self.erase();
        let behind = words.iter().copied().chain([check(label, words)]);
        for (place, word) in self.0.iter().skip(1).zip(behind) {
            place.store(word, Relaxed);
            in_order();
        }
        self.0[0].store(label, Relaxed);
        in_order();
    }

    /// Says nothing any more.
    pub(crate) fn erase(&self) {
        self.0[0].store(0, Relaxed);
        in_order();
    }
}

/// FNV-1a: it finds what was cut or mixed, and nobody else writes here.
fn check(label: u32, words: &[u32]) -> u32 {
    let all = core::iter::once(label).chain(words.iter().copied());
    let bytes = all.flat_map(u32::to_le_bytes);
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
