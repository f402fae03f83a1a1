//! The guest's side of captures: how records come into the ring of [`crate::share`].
//!
//! One writer, one reader, no lock. A record's words are written first and become visible when the
//! writer's position is stored to [`crate::share::CaptureHead::head`], so until then what became of
//! a frame can still be amended.

mod stamp;

pub use stamp::Stamp;

use crate::share::{CAPTURE_PASSED, CAPTURE_RULE, CaptureRecord, PortCounter};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

const WORD: usize = size_of::<u64>();
/// The word of a record that holds its fate, and where in it.
const FATE_WORD: u64 = (offset_of!(CaptureRecord, fate) / WORD) as u64;
const FATE_BYTE: usize = offset_of!(CaptureRecord, fate) % WORD;
const _: () = assert!(size_of::<CaptureRecord>().is_multiple_of(WORD) && FATE_BYTE + 4 <= WORD);

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was not dropped.
    Passed,
    /// It was dropped, and this counter of its port's block counted that.
    Counter(u16),
    /// It was dropped by the rule of this number.
    Rule(u16),
}

impl Fate {
    /// The number for [`CaptureRecord::fate`].
    pub const fn number(self) -> u32 {
        match self {
            Self::Passed => CAPTURE_PASSED,
            Self::Counter(number) => number as u32,
            Self::Rule(rule) => CAPTURE_RULE + rule as u32,
        }
    }
}

impl From<PortCounter> for Fate {
    fn from(counter: PortCounter) -> Self {
        Self::Counter(counter as u16)
    }
}

/// The writer of a ring. Positions count bytes since the start.
#[derive(Debug)]
pub struct Writer<'a> {
    ring: &'a [AtomicU64],
    head: u64,
}

impl<'a> Writer<'a> {
    /// Of an empty ring, whose length is zero or a power of two.
    pub fn new(ring: &'a [AtomicU64]) -> Self {
        Self { ring, head: 0 }
    }

    /// Position behind the last record, for [`crate::share::CaptureHead::head`].
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Writes a record: `head` with the length of `bytes` for [`CaptureRecord::captured`], and
    /// `bytes`. Returns its position, or `None` if there is no room in front of `tail`, the
    /// reader's position.
    pub fn push(&mut self, tail: u64, head: CaptureRecord, bytes: &[u8]) -> Option<u64> {
        let captured = u32::try_from(bytes.len()).ok()?;
        let size = size_of::<CaptureRecord>() + bytes.len().next_multiple_of(WORD);
        let used = usize::try_from(self.head.wrapping_sub(tail)).ok()?;
        // A tail in front of the head makes `used` larger than any ring.
        if self.ring.len() * WORD < used.checked_add(size)? {
            return None;
        }
        let head = CaptureRecord { captured, ..head };
        let start = self.slot(self.head / WORD as u64);
        let (wrapped, first) = self.ring.split_at_checked(start)?;
        let slots = first.iter().chain(wrapped);
        // Words of known length: a copy of a varying one is a call for each.
        let (whole, rest) = bytes.as_chunks::<WORD>();
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(&last);
        let words = head
            .as_bytes()
            .as_chunks()
            .0
            .iter()
            .chain(whole)
            .chain(last);
        words.zip(slots).for_each(|(word, slot)| {
            slot.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        });
        let position = self.head;
        self.head += size as u64;
        Some(position)
    }

    /// Says what became of the frame whose record is at `position` and not visible yet.
    pub fn amend(&mut self, position: u64, fate: Fate) {
        let slot = self.slot(position / WORD as u64 + FATE_WORD);
        let Some(slot) = self.ring.get(slot) else {
            return;
        };
        let mut word = slot.load(Ordering::Relaxed).to_ne_bytes();
        word[FATE_BYTE..][..4].copy_from_slice(&fate.number().to_ne_bytes());
        slot.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }

    fn slot(&self, word: u64) -> usize {
        word as usize & self.ring.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    extern crate std;
    use std::vec::Vec;

    fn ring(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    /// So many bytes from a position on.
    fn read(ring: &[AtomicU64], position: u64, bytes: usize) -> Vec<u8> {
        let words = (0..bytes.div_ceil(WORD)).map(|i| (position as usize / WORD + i) % ring.len());
        let mut read: Vec<u8> = words
            .flat_map(|i| ring[i].load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        read.truncate(bytes);
        read
    }

    fn record(time: u64) -> CaptureRecord {
        CaptureRecord {
            time,
            length: 99,
            port: 3,
            direction: 1,
            fate: CAPTURE_PASSED,
            generation: 7,
            ..CaptureRecord::default()
        }
    }

    #[test]
    fn records_wrap_around_and_are_whole() {
        let ring = ring(16); // Two records of 48 bytes and a piece of the third.
        let mut writer = Writer::new(&ring);
        let mut tail = 0;
        for time in 0..100 {
            let bytes: Vec<u8> = (0..time as u8 % 17).map(|i| i ^ time as u8).collect();
            let position = writer.push(tail, record(time), &bytes).unwrap();
            assert_eq!(position, tail, "nothing lies between");
            let whole = read(&ring, position, 32 + bytes.len());
            let (found, rest) = CaptureRecord::read_from_prefix(&whole).unwrap();
            let captured = bytes.len() as u32;
            assert_eq!(
                found,
                CaptureRecord {
                    captured,
                    ..record(time)
                }
            );
            assert_eq!(rest, bytes);
            tail = writer.head();
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_and_stays_as_it_is() {
        let ring = ring(16);
        let mut writer = Writer::new(&ring);
        assert_eq!(writer.push(0, record(1), &[1; 32]), Some(0));
        assert_eq!(writer.push(0, record(2), &[2; 33]), None);
        assert_eq!(writer.head(), 64);
        assert_eq!(writer.push(0, record(2), &[2; 32]), Some(64));
        assert_eq!(writer.push(0, record(3), &[]), None);
        assert_eq!(writer.push(64, record(3), &[]), Some(128));
        assert_eq!(read(&ring, 96, 32), [2; 32]);
    }

    #[test]
    fn no_tail_makes_room_that_is_not_there() {
        let ring = ring(16);
        let mut writer = Writer::new(&ring);
        writer.push(0, record(1), &[1; 64]).unwrap();
        for tail in [97, 1 << 40, u64::MAX, u64::MAX - 200] {
            assert_eq!(writer.push(tail, record(2), &[]), None, "{tail}");
        }
        assert_eq!(Writer::new(&[]).push(0, record(1), &[]), None);
    }

    #[test]
    fn a_fate_is_amended_alone() {
        let ring = ring(16);
        let mut writer = Writer::new(&ring);
        let position = writer.push(0, record(5), b"abc").unwrap();
        for fate in [Fate::Rule(9), PortCounter::TxTooBig.into(), Fate::Passed] {
            writer.amend(position, fate);
            let found = CaptureRecord::read_from_prefix(&read(&ring, 0, 32))
                .unwrap()
                .0;
            let expected = CaptureRecord {
                captured: 3,
                fate: fate.number(),
                ..record(5)
            };
            assert_eq!(found, expected);
        }
        Writer::new(&[]).amend(0, Fate::Passed);
    }
}
