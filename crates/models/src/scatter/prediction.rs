//! Where the payload of the next large frame belongs.
//!
//! Frames of a connection are much alike. So the next one is read as if it had the headers and the
//! segments of the last one: headers to memory of our own, where they are judged, and payload to
//! the driver's buffers, in each behind the place of its packet's headers. If the frame turns out
//! to be another one, it is copied together and takes the way of all others. The buffers are the
//! device's until it writes their descriptors back, so nobody sees what was in them meanwhile.

use crate::dma::Dma;
use crate::packet::headers::IP_BYTES_MAX;
use arrayvec::ArrayVec;
use hw::sim::vectored::{SPANS_MAX, SpanMut};

/// Places in the driver's memory, in order.
pub(crate) type Places<'a> = ArrayVec<SpanMut<'a>, SPANS_MAX>;

/// What the next large frame is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// Bytes of its headers.
    pub(crate) header: usize,
    /// How many of them are not placed: a tag that goes to the descriptor.
    pub(crate) stripped: usize,
    /// Bytes of payload of a segment.
    pub(crate) size: usize,
    /// Segments that one buffer takes together.
    pub(crate) segments: usize,
}

impl Prediction {
    /// Whether a frame that is like `other` lies where this one said that it would, if it is placed
    /// in as many segments to a buffer.
    pub(crate) fn fits(&self, other: &Self) -> bool {
        let segments = self.segments;
        Self { segments, ..*other } == *self
    }

    /// Where the payload begins in a buffer.
    pub(crate) fn payload_at(&self, buffer: u64) -> Option<u64> {
        buffer.checked_add((self.header - self.stripped) as u64)
    }

    /// Finds the places of the payload of the longest such frame. `buffer` says where the next
    /// buffers begin, by number; `None` if there are too few of them.
    pub(crate) fn find_places<'a>(
        &self,
        buffer: impl Fn(usize) -> Option<u64>,
        dma: &'a dyn Dma,
        places: &mut Places<'a>,
    ) -> Option<()> {
        let bytes = self.segments * self.size;
        for number in 0..IP_BYTES_MAX.div_ceil(bytes) {
            let at = self.payload_at(buffer(number)?)?;
            places.try_push(dma.span_mut(at, bytes).ok()?).ok()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::arena;

    const LAST: Prediction = Prediction {
        header: 70,
        stripped: 4,
        size: 1000,
        segments: 8,
    };

    #[test]
    fn places_are_for_the_longest_frame_or_there_are_none() {
        let (_arena, memory) = arena(16 << 14, 0x10_0000);
        let find = |buffers: usize| {
            let mut places = Places::new();
            let buffer =
                |number: usize| (number < buffers).then_some(0x10_0000 + (number as u64) * 0x4000);
            let found = LAST.find_places(buffer, &memory, &mut places);
            found.map(|()| places.iter().map(|place| place.as_span().len()).collect())
        };
        assert_eq!(find(9), Some(vec![8000; 9]));
        assert_eq!(find(8), None);
        let mut places = Places::new();
        let outside = |_| Some(0x10_0000 + (16 << 14) - 100);
        assert_eq!(LAST.find_places(outside, &memory, &mut places), None);
    }

    #[test]
    fn a_frame_fits_whatever_the_next_one_will_be() {
        let next = |change: fn(&mut Prediction)| {
            let mut next = LAST;
            change(&mut next);
            LAST.fits(&next)
        };
        assert!(next(|_| {}) && next(|next| next.segments = 3));
        assert!(!next(|next| next.header = 74) && !next(|next| next.stripped = 0));
        assert!(!next(|next| next.size = 999));
    }
}
