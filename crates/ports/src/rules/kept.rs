//! Counters of rules in memory that outlives the image: they go on if the next image begins with
//! the same text.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use zerocopy::FromBytes;

/// Words in front of the counters.
const HEAD_WORDS: usize = 8;

/// What these words are.
mod word {
    /// 1 if the others count.
    pub const PUBLISHED: usize = 0;
    /// Checksum of the text.
    pub const TEXT: usize = 1;
    /// Its length in bytes.
    pub const BYTES: usize = 2;
    /// Rules that are counted.
    pub const RULES: usize = 3;
}

/// Memory for counters of rules, which outlives the image.
pub(super) struct Kept(&'static [AtomicU64]);

/// What was stored before this stays before what is stored behind it. The image has one thread, and
/// whoever takes its memory up comes after its end: only the compiler could change the order.
fn in_order() {
    compiler_fence(Ordering::SeqCst);
}

/// FNV-1a: it tells texts apart that nobody made to be mistaken for each other.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Kept {
    /// The words of this memory; none if it does not begin at a multiple of eight.
    pub(super) fn over(memory: &'static mut [u8]) -> Self {
        let whole = memory.len() / size_of::<AtomicU64>() * size_of::<AtomicU64>();
        let words = <[AtomicU64]>::mut_from_bytes(&mut memory[..whole]);
        Self(words.map_or(&[], |words| &*words))
    }

    /// Counters for so many rules of this text, if there is room: those of the last image, if it
    /// had the same and they are to `go_on`, and else zero.
    pub(super) fn begin(
        &self,
        text: &str,
        rules: usize,
        go_on: bool,
    ) -> Option<&'static [AtomicU64]> {
        let head = self.0.get(..HEAD_WORDS)?;
        let numbers = [
            (word::TEXT, checksum(text)),
            (word::BYTES, text.len() as u64),
            (word::RULES, rules as u64),
        ];
        let same = |(number, value): &(usize, u64)| head[*number].load(Relaxed) == *value;
        let found = head[word::PUBLISHED].load(Relaxed) == 1 && numbers.iter().all(same);
        let counters = self.0.get(HEAD_WORDS..HEAD_WORDS + 2 * rules);
        if found && go_on {
            return counters;
        }
        head[word::PUBLISHED].store(0, Relaxed);
        in_order();
        let counters = counters?;
        for counter in counters {
            counter.store(0, Relaxed);
        }
        for (number, value) in numbers {
            head[number].store(value, Relaxed);
        }
        in_order();
        head[word::PUBLISHED].store(1, Relaxed);
        in_order();
        Some(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use zerocopy::IntoBytes;

    /// Room for three rules.
    fn memory() -> Kept {
        Kept::over(vec![0_u64; HEAD_WORDS + 6].leak().as_mut_bytes())
    }

    fn values(counters: &[AtomicU64]) -> Vec<u64> {
        counters.iter().map(|word| word.load(Relaxed)).collect()
    }

    #[test]
    fn counters_goes_on_the_same_text() {
        let kept = memory();
        let counters = kept.begin("a", 2, true).unwrap();
        assert_eq!(values(counters), [0; 4]);
        counters[3].store(7, Relaxed);
        assert_eq!(values(kept.begin("a", 2, true).unwrap()), [0, 0, 0, 7]);
        for (text, rules, go_on) in [("b", 2, true), ("b", 1, true), ("b", 1, false)] {
            let counters = kept.begin(text, rules, go_on).unwrap();
            assert_eq!(values(counters), vec![0; 2 * rules]);
            counters[0].store(7, Relaxed);
        }
    }

    #[test]
    fn where_there_is_no_room_nothing_is_kept() {
        let kept = memory();
        kept.begin("a", 3, true).unwrap()[0].store(7, Relaxed);
        assert!(kept.begin("a", 4, true).is_none());
        assert_eq!(values(kept.begin("a", 3, true).unwrap()), [0; 6]);
        assert!(Kept::over(&mut []).begin("a", 0, true).is_none());
    }

    /// Cut between any two stores, what lies there is of the text before, or counts as nothing.
    #[test]
    fn counters_that_are_cut_are_those_of_one_text() {
        let kept = memory();
        kept.begin("a", 3, true).unwrap()[5].store(7, Relaxed);
        kept.0[word::PUBLISHED].store(0, Relaxed);
        assert_eq!(values(kept.begin("a", 3, true).unwrap()), [0; 6]);
    }
}
