//! SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012) of names of flows,
//! whose length is known: no bytes are gathered, and the key is mixed in once.

/// A hash under a secret key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sip([u64; 4]);

impl Sip {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *key;
        let keys = [
            u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            u64::from_le_bytes(rest),
        ];
        // "somepseudorandomlygeneratedbytes".
        Self([
            keys[0] ^ 0x736f_6d65_7073_6575,
            keys[1] ^ 0x646f_7261_6e64_6f6d,
            keys[0] ^ 0x6c79_6765_6e65_7261,
            keys[1] ^ 0x7465_6462_7974_6573,
        ])
    }

    /// Of these bytes, as little-endian words. The highest byte of the last one is how many bytes
    /// stand before it.
    #[inline(always)]
    pub(super) fn hash<const N: usize>(&self, words: [u64; N]) -> u64 {
        let mut state = self.0;
        for word in words {
            state[3] ^= word;
            round(&mut state);
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

#[inline(always)]
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    proptest! {
        #[test]
        fn it_is_siphash(
            key in any::<[u8; 16]>(),
            first in any::<u64>(),
            last in any::<[u8; 7]>(),
        ) {
            let [a, b, c, d, e, f, g] = last;
            let tail = |length| u64::from_le_bytes([a, b, c, d, e, f, g, length]);
            let (ours, theirs) = (Sip::new(&key), SipHasher13::new_with_key(&key));
            let bytes = |words: &[u64]| {
                let words = words.iter().flat_map(|word| word.to_le_bytes());
                words.chain(last).collect::<std::vec::Vec<u8>>()
            };
            prop_assert_eq!(ours.hash([first, tail(15)]), theirs.hash(&bytes(&[first])));
            let four = [first, !first, first ^ 1, 7];
            let five = [first, !first, first ^ 1, 7, tail(39)];
            prop_assert_eq!(ours.hash(five), theirs.hash(&bytes(&four)));
        }
    }
}
