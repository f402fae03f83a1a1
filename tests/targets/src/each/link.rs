//! Either end of a link writes anything into its file at any time, while the other one sends,
//! receives, sleeps and begins anew: each step of that one must end in frames that lie in their
//! slots, in nothing, or in a reason to take the link down.

use abi::link::{ENTRIES, End, Entry, HEAD_WORDS, SLOT_BYTES, badge};
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 16;
/// Steps of one run; the input has no more to say than its bytes.
const STEPS_MAX: usize = 256;
/// Words of a file that are written: the header, and some entries.
const WRITTEN: usize = 64 + 4 * 16;

/// The next `N` bytes of the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

fn file() -> Vec<AtomicU64> {
    (0..HEAD_WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// One step of an end.
fn step(end: &mut End<'_>, what: u8, slot: u8) {
    match what % 6 {
        0 => {
            let entry = Entry {
                slot: u32::from(slot) % SLOTS as u32,
                length: 60,
                ..Entry::default()
            };
            let room = end.free_entries() > 0;
            assert_eq!(end.write(&entry), room);
        }
        1 => {
            end.post();
            let _ = end.must_ring(badge::FRAMES);
        }
        2 => {
            while let Ok(Some(entry)) = end.frame() {
                assert!((entry.slot as usize) < SLOTS);
                assert!(entry.offset as usize + entry.length as usize <= SLOT_BYTES);
                if !end.take() {
                    break;
                }
            }
            end.release();
        }
        3 => match end.take_back() {
            Ok(count) => assert!(count <= ENTRIES),
            Err(fault) => assert!(!fault.to_string().contains(char::is_control)),
        },
        4 => {
            // One change each time, and no more than two without a word of the other end's.
            let events = std::iter::from_fn(|| end.look()).take(3).count();
            assert!(events < 3);
            let _ = end.has_news();
        }
        _ => {
            end.sleep(badge::FRAMES | badge::STATE);
            let _ = end.pending();
            end.wake();
        }
    }
    assert!(end.outstanding() <= ENTRIES);
}

pub fn feed(input: &[u8]) {
    let files = [file(), file()];
    let begin = |at: usize| End::begin(&files[at], &files[1 - at], SLOTS).expect("enough words");
    let mut ends = [begin(0), begin(1)];
    let mut input = input;
    for _ in 0..STEPS_MAX {
        let Some([who, what]) = take(&mut input) else {
            break;
        };
        let at = usize::from(who & 1);
        match what {
            0..0x80 => step(&mut ends[at], what, who >> 1),
            0x80..0x90 => ends[at] = begin(at),
            _ => {
                let (Some([word]), Some(value)) = (take(&mut input), take(&mut input)) else {
                    break;
                };
                let word = usize::from(word) % WRITTEN;
                files[at][word].store(u64::from_le_bytes(value), Ordering::Relaxed);
            }
        }
    }
    // Whatever was written, two that begin anew find each other.
    let mut ends = [begin(0), begin(1)];
    for turn in 0..4 {
        while ends[turn % 2].look().is_some() {}
    }
    assert!(ends.iter().all(End::is_up));
}
