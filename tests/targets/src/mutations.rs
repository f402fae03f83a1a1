//! Inputs from numbers: a number and a corpus make the same input each time, so that a failure is
//! one number.

use fastrand::Rng;
use std::ops::Range;

/// Bytes of an input, at most: as many as libFuzzer takes.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Bytes of an input that nothing preceded, at most.
pub const FRESH_BYTES_MAX: usize = 512;
/// Changes of one input, at most.
const CHANGES_MAX: usize = 8;
/// One input of so many is a fresh one, where there are others to change.
const FRESH: u32 = 16;
/// Bytes that are inserted or repeated at once, at most.
const PIECE_BYTES_MAX: usize = 64;
/// Borders of numbers, as are those of their widths.
const BORDERS: [u64; 9] = [
    0,
    1,
    0x7f,
    0x80,
    0x7fff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    u64::MAX,
];

/// The numbers that `OUTBOARD_SEEDS` asks for, as FIRST..LAST; or the first so many.
///
/// # Errors
/// One line, if it has another form.
pub fn numbers(count: u64) -> Result<Range<u64>, String> {
    let Ok(asked) = std::env::var("OUTBOARD_SEEDS") else {
        return Ok(0..count);
    };
    let numbers = asked
        .split_once("..")
        .and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?));
    numbers.ok_or_else(|| {
        format!("OUTBOARD_SEEDS={asked} is no range; type it as OUTBOARD_SEEDS=FIRST..LAST")
    })
}

/// The input of a number: one of the corpus that was changed in some places, or, seldom or where
/// the corpus is empty, a fresh one.
pub fn input(number: u64, corpus: &[&[u8]]) -> Vec<u8> {
    let mut rng = Rng::with_seed(number);
    let mut bytes = match rng.choice(corpus) {
        Some(seed) if rng.u32(..FRESH) > 0 => seed.to_vec(),
        _ => return fresh(&mut rng),
    };
    for _ in 0..rng.usize(1..=CHANGES_MAX) {
        change(&mut rng, &mut bytes, corpus);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

/// Bytes by chance. In a half of these inputs most are small: readers take them for choices, counts
/// and lengths.
fn fresh(rng: &mut Rng) -> Vec<u8> {
    let small = rng.bool();
    let length = rng.usize(..=FRESH_BYTES_MAX);
    let mut byte = || match small && rng.u8(..4) > 0 {
        true => rng.u8(..16),
        false => rng.u8(..),
    };
    (0..length).map(|_| byte()).collect()
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[&[u8]]) {
    if bytes.is_empty() {
        *bytes = fresh(rng);
        return;
    }
    let at = rng.usize(..bytes.len());
    match rng.u8(..9) {
        0 => bytes[at] ^= 1 << rng.u8(..8),
        1 => bytes[at] = rng.u8(..),
        2 => bytes[at] = bytes[at].wrapping_add(rng.u8(..=32)).wrapping_sub(16),
        3 => put_border(rng, &mut bytes[at..]),
        4 => bytes.truncate(at),
        5 => {
            let end = at + rng.usize(..=PIECE_BYTES_MAX.min(bytes.len() - at));
            bytes.drain(at..end);
        }
        6 => {
            let piece: Vec<u8> = (0..rng.usize(1..=PIECE_BYTES_MAX))
                .map(|_| rng.u8(..))
                .collect();
            bytes.splice(at..at, piece);
        }
        7 => {
            let end = at + rng.usize(..=PIECE_BYTES_MAX.min(bytes.len() - at));
            let piece = bytes[at..end].to_vec();
            let to = rng.usize(..=bytes.len());
            bytes.splice(to..to, piece);
        }
        // The end of another one, or some bytes of it in place of as many.
        _ => {
            let other = rng.choice(corpus).copied().unwrap_or_default();
            let from = rng.usize(..=other.len());
            if rng.bool() {
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            } else {
                let length = PIECE_BYTES_MAX
                    .min(other.len() - from)
                    .min(bytes.len() - at);
                bytes[at..at + length].copy_from_slice(&other[from..from + length]);
            }
        }
    }
}

/// Writes a number at its border, in one of four widths and either order of bytes.
fn put_border(rng: &mut Rng, place: &mut [u8]) {
    let width = place.len().min(1 << rng.u8(..4));
    let border = BORDERS[rng.usize(..BORDERS.len())];
    let number = border.wrapping_add(u64::from(rng.bool()));
    place[..width].copy_from_slice(&number.to_le_bytes()[..width]);
    if rng.bool() {
        place[..width].reverse();
    }
}
