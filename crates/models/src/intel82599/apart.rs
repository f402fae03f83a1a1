//! Large frames whose payload goes from the wire to the driver's buffers at once.
//!
//! Frames of a connection are much alike. So the next one is read as if it had the headers and the
//! segments of the last one: headers to memory of our own, where they are judged, and payload to
//! where it belongs if all is as expected, behind the place of the headers of each packet. Where it
//! is not, the frame is gathered, and takes the way of all others. The buffers are the device's
//! until it writes their descriptors back, so it matters to nobody what was in them meanwhile.

use super::Nic;
use super::coalesce::Large;
use super::filter;
use crate::dma::Dma;
use crate::packet::segment::Plan;
use crate::wire::Incoming;
use arrayvec::ArrayVec;
use hw::sim::vectored::{SPANS_MAX, SpanMut};

/// Longest IP packet.
const IP_MAX: usize = 0xffff;
/// All frames go to this queue.
const QUEUE: usize = 0;

/// What the next frame is expected to be: as the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Bytes of its headers, and how many of them are not placed.
    pub(super) header: usize,
    stripped: usize,
    /// Bytes of a segment's payload, and segments that are placed together.
    size: usize,
    joined: usize,
}

/// Where its payload goes.
pub(super) type Places<'a> = ArrayVec<SpanMut<'a>, SPANS_MAX>;

impl Nic {
    /// Notes what a large frame was, for the next one; `None` if its segments are not joined.
    pub(super) fn expect(&mut self, large: &Large<'_>) {
        let joined = large.runs(self.rx[QUEUE].buffer_bytes).all_joined();
        self.expected = joined
            .filter(|_| self.coalesces(QUEUE))
            .map(|joined| Expected {
                header: large.plan.header,
                stripped: self.stripped(large.frame),
                size: large.plan.size,
                joined,
            });
    }

    /// Bytes of a frame that are not placed: its tag.
    fn stripped(&self, frame: &[u8]) -> usize {
        match filter::tag(&self.file, frame) {
            Some(_) if self.rx[QUEUE].strip_tag => super::receive::TAG,
            _ => 0,
        }
    }

    /// Says where the next frame goes: how many bytes of headers it has, and the places of the
    /// rest. There are none if nothing is expected, or too few buffers for the longest frame.
    #[inline]
    pub(super) fn find_places<'a>(&self, dma: &'a dyn Dma, places: &mut Places<'a>) -> usize {
        places.clear();
        match self.expected {
            Some(expected) if self.mischief.is_calm() && self.segments_received == 0 => {
                if self.find_all(expected, dma, places).is_none() {
                    places.clear();
                    return usize::MAX;
                }
                expected.header
            }
            _ => usize::MAX,
        }
    }

    fn find_all<'a>(
        &self,
        expected: Expected,
        dma: &'a dyn Dma,
        places: &mut Places<'a>,
    ) -> Option<()> {
        let Expected {
            header,
            stripped,
            size,
            joined,
        } = expected;
        let ring = Some(&self.rx[QUEUE].ring).filter(|ring| ring.is_on())?;
        for number in 0..IP_MAX.div_ceil(joined * size) {
            let [iova, _] = ring.ahead(number)?;
            let at = iova.checked_add((header - stripped) as u64)?;
            let place = dma.span_mut(at, joined * size).ok()?;
            places.try_push(place).ok()?;
        }
        Some(())
    }

    /// Takes in a frame whose payload lies in the [places](Self::find_places) for it; `false` if
    /// it was another one than expected, and must be gathered.
    pub(super) fn receive_apart(&mut self, incoming: &Incoming<'_>, dma: &dyn Dma) -> bool {
        let (headers, bytes) = (incoming.frame, incoming.frame.len() + incoming.behind);
        let plan = incoming
            .offload
            .segment
            .and_then(|size| Plan::read_in(headers, bytes, size));
        let (Some(plan), Some(expected)) = (plan, self.expected.take()) else {
            return false;
        };
        let large = Large {
            plan,
            frame: headers,
            bytes,
        };
        self.expect(&large);
        let as_expected = self.expected.is_some_and(|is| {
            Expected {
                joined: expected.joined,
                ..is
            } == expected
        });
        if !as_expected || plan.header != headers.len() {
            return false;
        }
        let mut out = std::mem::take(&mut self.segment);
        let count = plan.count(bytes);
        let mut first = 0;
        while first < count {
            let run = first..count.min(first + expected.joined);
            plan.write_headers(headers, bytes, &run, &mut out);
            let behind = plan.payload(bytes, &run).len();
            if run.len() > 1 {
                self.receive_joined(&large, &run, (&out, &[], behind), dma);
            } else {
                self.receive_alone(&plan, &mut out, behind, expected.stripped, dma);
            }
            first = run.end;
        }
        self.segment = out;
        true
    }

    /// A segment whose payload lies in the next buffer has a checksum of its own.
    fn receive_alone(
        &mut self,
        plan: &Plan,
        out: &mut Vec<u8>,
        behind: usize,
        stripped: usize,
        dma: &dyn Dma,
    ) {
        let Some([iova, _]) = self.rx[QUEUE].ring.ahead(0) else {
            return;
        };
        let header = out.len();
        out.resize(header + behind, 0);
        let at = iova.wrapping_add((header - stripped) as u64);
        // It was within the memory when it was filled.
        let _lost = dma.read(at, &mut out[header..]);
        plan.write_checksum(out);
        self.receive(out, true, dma);
    }
}
