//! Large frames whose payload the wire writes to the driver's buffers: what a prediction of the
//! next frame is made of, and how a frame is received that was placed by one.

use super::Nic;
use super::coalescing::Large;
use super::filter;
use crate::dma::Dma;
use crate::packet::headers::TAG;
use crate::packet::segment::Plan;
use crate::scatter::{Places, Prediction};
use crate::wire::Incoming;

/// All frames go to this queue; where they are spread, nothing is predicted.
const QUEUE: usize = 0;

impl Nic {
    /// Notes what a large frame was, for the next one; nothing if its segments are not coalesced.
    pub(super) fn predict(&mut self, large: &Large<'_>) {
        let segments = large.runs(self.rx[QUEUE].buffer_bytes).all_coalesced();
        self.prediction = segments
            .filter(|_| self.coalesces(QUEUE) && !self.spreads)
            .map(|segments| Prediction {
                header: large.plan.header,
                stripped: self.stripped(large.frame),
                size: large.plan.size,
                segments,
            });
    }

    /// Bytes of a frame that are not placed: its tag.
    fn stripped(&self, frame: &[u8]) -> usize {
        match filter::tag(&self.file, frame) {
            Some(_) if self.rx[QUEUE].strip_tag => TAG,
            _ => 0,
        }
    }

    /// Says where the next frame goes: how many bytes of headers it has, and the places of the
    /// rest. There are none if nothing is predicted, or too few buffers for the longest frame.
    #[inline]
    pub(super) fn find_places<'a>(&self, dma: &'a dyn Dma, places: &mut Places<'a>) -> usize {
        places.clear();
        let ring = &self.rx[QUEUE].ring;
        match self.prediction {
            Some(prediction) if self.faults.is_off() && self.segments_received == 0 => {
                let buffer = |number| ring.ahead(number).map(|[iova, _]| iova);
                let found = ring.is_on().then_some(());
                if found
                    .and_then(|()| prediction.find_places(buffer, dma, places))
                    .is_none()
                {
                    places.clear();
                    return usize::MAX;
                }
                prediction.header
            }
            _ => usize::MAX,
        }
    }

    /// Takes in a frame whose payload lies in the [places](Self::find_places) for it; `false` if
    /// it was another one than predicted, and must be copied together.
    pub(super) fn receive_placed(&mut self, incoming: &Incoming<'_>, dma: &dyn Dma) -> bool {
        let (headers, bytes) = (incoming.frame, incoming.frame.len() + incoming.placed);
        let plan = incoming
            .offload
            .segment
            .and_then(|size| Plan::read_in(headers, bytes, size));
        let (Some(plan), Some(prediction)) = (plan, self.prediction.take()) else {
            return false;
        };
        let large = Large {
            plan,
            frame: headers,
            bytes,
        };
        self.predict(&large);
        let fits = self.prediction.is_some_and(|next| prediction.fits(&next));
        if !fits || plan.header != headers.len() {
            return false;
        }
        let mut out = std::mem::take(&mut self.segment);
        let count = plan.count(bytes);
        let mut first = 0;
        while first < count {
            let run = first..count.min(first + prediction.segments);
            plan.write_headers(headers, bytes, &run, &mut out);
            let placed = plan.payload(bytes, &run).len();
            if run.len() > 1 {
                self.receive_coalesced(&large, &run, (&out, &[], placed), dma);
            } else {
                self.receive_single(&plan, &mut out, placed, &prediction, dma);
            }
            first = run.end;
        }
        self.segment = out;
        true
    }

    /// A segment that is alone in its buffer has a checksum of its own.
    fn receive_single(
        &mut self,
        plan: &Plan,
        out: &mut Vec<u8>,
        placed: usize,
        prediction: &Prediction,
        dma: &dyn Dma,
    ) {
        let next = self.rx[QUEUE].ring.ahead(0);
        let Some(at) = next.and_then(|[iova, _]| prediction.payload_at(iova)) else {
            return;
        };
        let header = out.len();
        out.resize(header + placed, 0);
        // It was within the memory when it was filled.
        let _lost = dma.read(at, &mut out[header..]);
        plan.write_checksum(out);
        self.receive(out, true, dma);
    }
}
