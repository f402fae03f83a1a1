//! Parts of a disk that were read at once, and that whoever asked for them may hold as well.

use crate::disk::LARGE;
use alloc::collections::VecDeque;
use bytes::{Bytes, BytesMut};
use core::ops::Range;

/// Parts of [`LARGE`] bytes by where they begin. Where another one needs the room, the oldest goes
/// that nobody has asked for since it was looked at last (the second-chance algorithm).
pub(crate) struct Parts {
    parts: VecDeque<Part>,
    most: usize,
}

struct Part {
    start: u64,
    bytes: Bytes,
    was_used: bool,
}

impl Parts {
    /// Room for `most` parts, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            parts: VecDeque::new(),
            most: most.max(1),
        }
    }

    /// The part that begins here, if it is kept.
    pub(crate) fn find(&mut self, start: u64) -> Option<Bytes> {
        let part = self.parts.iter_mut().find(|part| part.start == start)?;
        part.was_used = true;
        Some(part.bytes.clone())
    }

    /// Memory for another part, with anything in it: that of the part which goes, unless somebody
    /// holds it.
    pub(crate) fn blank(&mut self) -> BytesMut {
        let free = match self.parts.len() < self.most {
            true => None,
            false => self.free().and_then(|bytes| bytes.try_into_mut().ok()),
        };
        free.unwrap_or_else(|| BytesMut::zeroed(LARGE))
    }

    /// Keeps a part that is not kept yet; `blank` has made room for it.
    pub(crate) fn put(&mut self, start: u64, bytes: Bytes) -> Bytes {
        self.parts.push_back(Part {
            start,
            bytes: bytes.clone(),
            was_used: false,
        });
        bytes
    }

    /// Keeps no part that has any of these bytes.
    pub(crate) fn forget(&mut self, range: Range<u64>) {
        let is_apart =
            |part: &Part| part.start >= range.end || part.start + LARGE as u64 <= range.start;
        self.parts.retain(is_apart);
    }

    /// Takes out the part that goes.
    fn free(&mut self) -> Option<Bytes> {
        // In the second round, none was used.
        for _ in 0..2 * self.parts.len() {
            let mut part = self.parts.pop_front()?;
            if !core::mem::take(&mut part.was_used) {
                return Some(part.bytes);
            }
            self.parts.push_back(part);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(parts: &mut Parts, start: u64) -> Bytes {
        let mut bytes = parts.blank();
        bytes.fill(start as u8);
        parts.put(start, bytes.freeze())
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut parts = Parts::new(2);
        for start in [1, 2] {
            put(&mut parts, start);
        }
        assert_eq!(parts.find(1).unwrap()[..], [1; LARGE]);
        put(&mut parts, 3);
        assert!(parts.find(2).is_none() && parts.find(3).is_some() && parts.find(1).is_some());
        assert_eq!(parts.parts.len(), 2);
    }

    #[test]
    fn what_somebody_holds_is_not_written_over() {
        let mut parts = Parts::new(1);
        let held = put(&mut parts, 1);
        let place = put(&mut parts, 2).as_ptr();
        assert_eq!(held, [1; LARGE].as_slice());
        // Nobody holds this one.
        assert_eq!(put(&mut parts, 3).as_ptr(), place);
    }

    #[test]
    fn what_is_changed_is_forgotten() {
        let mut parts = Parts::new(9);
        let size = LARGE as u64;
        for start in [0, size, 2 * size] {
            put(&mut parts, start);
        }
        parts.forget(2 * size - 1..2 * size);
        assert!(parts.find(0).is_some() && parts.find(size).is_none());
        assert!(parts.find(2 * size).is_some());
    }
}
