//! Which memory a device may write now: buffers for received frames, until their descriptors are
//! written back. A driver that gives a part of one away again, or sends it, is told.

/// Bytes of what is tracked: whole cache lines, so that neighbours in one do not count.
const LINE: u64 = 64;
const LINES_PER_WORD: u64 = 64;
/// Words of the map: 4 GiB of memory from where the first buffer lies.
const WORDS_MAX: usize = 1 << 20;
const BASE_ALIGN: u64 = 1 << 30;

/// A map of lines that the device may write to.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    base: Option<u64>,
    words: Vec<u64>,
}

impl Ownership {
    /// The device gets a buffer; `false` if it has a part of it already.
    #[inline]
    pub(crate) fn take(&mut self, iova: u64, bytes: u64) -> bool {
        let base = *self.base.get_or_insert(iova & !(BASE_ALIGN - 1));
        let mut is_new = true;
        for_each_word(base, iova, bytes, |word, mask| {
            if word >= self.words.len() {
                self.words.resize((word + 1).next_power_of_two(), 0);
            }
            is_new &= self.words[word] & mask == 0;
            self.words[word] |= mask;
        });
        is_new
    }

    /// The driver gets a buffer back.
    #[inline]
    pub(crate) fn give_back(&mut self, iova: u64, bytes: u64) {
        let Some(base) = self.base else { return };
        for_each_word(base, iova, bytes, |word, mask| {
            if let Some(word) = self.words.get_mut(word) {
                *word &= !mask;
            }
        });
    }

    /// Whether the device has a part of this.
    #[inline]
    pub(crate) fn has(&self, iova: u64, bytes: u64) -> bool {
        let Some(base) = self.base else { return false };
        let mut any = false;
        for_each_word(base, iova, bytes, |word, mask| {
            any |= self.words.get(word).is_some_and(|word| word & mask != 0);
        });
        any
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }
}

/// Calls `each` for every word of the map that whole lines of this range touch.
#[inline]
fn for_each_word(base: u64, iova: u64, bytes: u64, mut each: impl FnMut(usize, u64)) {
    let Some(offset) = iova.checked_sub(base) else {
        return;
    };
    let Some(end) = offset.checked_add(bytes) else {
        return;
    };
    let (mut line, end) = (offset.div_ceil(LINE), end / LINE);
    while line < end {
        let word = line / LINES_PER_WORD;
        if word >= WORDS_MAX as u64 {
            return;
        }
        let first = line % LINES_PER_WORD;
        let count = (LINES_PER_WORD - first).min(end - line);
        let mask = (u64::MAX >> (LINES_PER_WORD - count)) << first;
        each(word as usize, mask);
        line += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_owner() {
        let mut owned = Ownership::default();
        let base = 0x10_0000_0000;
        assert!(owned.take(base + 2048, 2048));
        assert!(owned.take(base + 4096, 64));
        assert!(!owned.take(base + 4000, 500), "it reaches into both");
        owned.give_back(base + 2048, 2048);
        assert!(owned.take(base + 2048, 1024));
        assert!(owned.has(base + 2900, 200) && !owned.has(base + 3200, 640));
        // Neighbours may share a line.
        assert!(owned.take(base + 10_010, 1000) && owned.take(base + 11_010, 1000));
        owned.clear();
        assert!(!owned.has(base, 1 << 20));
    }
}
