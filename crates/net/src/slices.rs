//! Several slices as one run of bytes that is written piece by piece.

/// Slices one behind the other, without the bytes at their front that were taken.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    /// The first one has bytes left, if there is one.
    slices: &'a [&'a [u8]],
    /// Bytes of the first that were taken.
    done: usize,
}

impl<'a> Slices<'a> {
    /// All of them.
    pub fn new(slices: &'a [&'a [u8]]) -> Self {
        let mut all = Self { slices, done: 0 };
        all.advance(0);
        all
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// What is left, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> {
        let first = self.slices.first().map(|first| &first[self.done..]);
        let others = self.slices.get(1..).unwrap_or_default();
        first.into_iter().chain(others.iter().copied())
    }

    /// Takes `count` bytes off; more than there are take all.
    pub fn advance(&mut self, count: usize) {
        self.done += count;
        while let Some((first, others)) = self.slices.split_first()
            && first.len() <= self.done
        {
            self.done -= first.len();
            self.slices = others;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn pieces_of_any_size_are_taken_off() {
        let slices: [&[u8]; 5] = [b"", b"ab", b"", b"cdef", b""];
        for step in 1..8 {
            let mut rest = Slices::new(&slices);
            let mut taken = Vec::new();
            while !rest.is_empty() {
                let left: Vec<u8> = rest.parts().flatten().copied().collect();
                let count = step.min(left.len());
                taken.extend_from_slice(&left[..count]);
                rest.advance(count);
            }
            assert_eq!(taken, b"abcdef");
        }
        assert!(Slices::new(&[]).is_empty());
        let mut rest = Slices::new(&slices);
        rest.advance(100);
        assert!(rest.is_empty());
        assert_eq!(rest.parts().count(), 0);
    }
}
