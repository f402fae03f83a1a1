//! State: memory that outlives the image, with a header that says what left it ([`abi::state`]).
//!
//! Whoever begins writes the copy of the header that does not hold, the checksum last, so that an
//! image that is killed leaves the one or the other. What lies behind the header is the image's
//! own; it must say by itself which of it is whole.

use abi::state::{COPIES, COPY_WORDS, Header, MAGIC, word};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The memory of a state.
pub struct StateMemory {
    /// The words of the header.
    pub head: &'static [AtomicU64],
    /// What follows it.
    pub body: &'static mut [u8],
}

/// A state that was taken up.
pub struct State {
    /// What is the image's own, aligned to a page. If the last image left nothing sound, it is
    /// zero.
    pub body: &'static mut [u8],
    /// How many images have begun with it, this one included.
    pub generation: u64,
    /// Why nothing was kept of what the last image left, if there was anything.
    pub refused: Option<Unsound>,
}

/// Why a state cannot be taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// No copy of the header is whole.
    Header,
    /// The image that left it calls it by this other number.
    Layout(u64),
    /// It had so many bytes.
    Bytes(u64),
}

impl fmt::Display for Unsound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("no copy of its header is whole"),
            Self::Layout(layout) => write!(f, "it is of another image: layout {layout:#x}"),
            Self::Bytes(bytes) => write!(f, "it had {bytes} bytes"),
        }
    }
}

impl core::error::Error for Unsound {}

/// The words of a copy of the header.
fn read(copy: &[AtomicU64]) -> [u64; word::COUNT] {
    core::array::from_fn(|number| copy[number].load(Ordering::Acquire))
}

fn write(header: &Header, copy: &[AtomicU64]) {
    let store = |number: usize, value| copy[number].store(value, Ordering::Release);
    // Until the checksum is there, this copy is none.
    store(word::CHECK, !header.check());
    store(word::MAGIC, MAGIC);
    store(word::LAYOUT, header.layout);
    store(word::BYTES, header.bytes);
    store(word::GENERATION, header.generation);
    store(word::CHECK, header.check());
}

/// Takes up what lies there, if it has this `layout`, a number of the image's choice that changes
/// with what it keeps; otherwise makes it zero. `None` if the memory is shorter than the header.
pub fn open(memory: StateMemory, layout: u64) -> Option<State> {
    let StateMemory { head, body } = memory;
    let head = head.get(..COPIES * COPY_WORDS)?;
    let newest = Header::newest(head.chunks_exact(COPY_WORDS).map(read));
    let bytes = body.len() as u64;
    let fresh = head.iter().all(|word| word.load(Ordering::Relaxed) == 0);
    let refused = match newest {
        None => (!fresh).then_some(Unsound::Header),
        Some((_, copy)) if copy.layout != layout => Some(Unsound::Layout(copy.layout)),
        Some((_, copy)) if copy.bytes != bytes => Some(Unsound::Bytes(copy.bytes)),
        Some(_) => None,
    };
    let (at, last) = newest.map_or((1, 0), |(at, copy)| (at, copy.generation));
    if refused.is_some() {
        body.fill(0);
    }
    let generation = last.wrapping_add(1);
    let header = Header {
        layout,
        bytes,
        generation,
    };
    let other = (at + 1) % COPIES * COPY_WORDS;
    write(&header, &head[other..other + COPY_WORDS]);
    Some(State {
        body,
        generation,
        refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    use abi::state::HEAD_BYTES;

    const LAYOUT: u64 = 7;
    const BYTES: usize = 64;

    fn head() -> &'static [AtomicU64] {
        let words: Vec<_> = (0..HEAD_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        words.leak()
    }

    /// What is found with this header by an image with this layout, over so many bytes of 1.
    fn found(head: &'static [AtomicU64], layout: u64, bytes: usize) -> (u64, u8, Option<Unsound>) {
        let body = vec![1; bytes].leak();
        let state = open(StateMemory { head, body }, layout).unwrap();
        (state.generation, state.body[0], state.refused)
    }

    #[test]
    fn each_image_finds_what_the_last_one_left() {
        let head = head();
        for generation in 1..10 {
            assert_eq!(found(head, LAYOUT, BYTES), (generation, 1, None));
        }
        let short = StateMemory {
            head: &head[..64],
            body: &mut [],
        };
        assert!(open(short, LAYOUT).is_none());
    }

    #[test]
    fn what_is_not_sound_is_refused_and_made_zero() {
        let head = head();
        assert_eq!(found(head, LAYOUT, BYTES).0, 1);
        assert_eq!(found(head, 8, BYTES), (2, 0, Some(Unsound::Layout(LAYOUT))));
        let other = Some(Unsound::Bytes(BYTES as u64));
        assert_eq!(found(head, 8, BYTES * 2), (3, 0, other));
        for word in head {
            word.store(0x5555, Ordering::Relaxed);
        }
        assert_eq!(found(head, LAYOUT, BYTES), (1, 0, Some(Unsound::Header)));
        assert_eq!(found(head, LAYOUT, BYTES), (2, 1, None));
    }

    /// Killed between any two stores, an image leaves the copy before or its own.
    #[test]
    fn a_header_that_is_cut_is_the_one_before() {
        for stores in 0..6 {
            let head = head();
            assert_eq!(found(head, LAYOUT, BYTES).0, 1);
            let before: Vec<u64> = head.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            assert_eq!(found(head, LAYOUT, BYTES).0, 2);
            // The order of the stores: all but the first `stores` are undone.
            let order = [word::CHECK, word::MAGIC, word::LAYOUT, word::BYTES];
            let order = order.into_iter().chain([word::GENERATION, word::CHECK]);
            for number in order.skip(stores) {
                let at = COPY_WORDS + number;
                head[at].store(before[at], Ordering::Relaxed);
            }
            let (generation, byte, refused) = found(head, LAYOUT, BYTES);
            assert_eq!((generation, byte, refused), (2, 1, None), "{stores}");
        }
    }
}
