//! Packets of one connection that a driver wants segmented, sent as one.
//!
//! Only their headers were copied. Their payload stays in the driver's buffers until the wire has
//! it; so their descriptors are written back after that.

use super::{Fragment, Fragments, Gather};
use crate::dma::{Dma, DmaFault};
use crate::packet::coalesce::follows;
use crate::packet::headers::{IP_BYTES_MAX, Ip};
use crate::packet::segment::Plan;
use crate::wire::Wire;
use arrayvec::ArrayVec;
use hw::sim::vectored::{SPANS_MAX, Span};

const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;

/// Packets that wait for the next one, to be sent with it.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    /// How they are to be cut; `None` if there are none.
    plan: Option<Plan>,
    headers: Vec<u8>,
    payload: usize,
    fragments: Fragments,
    /// Descriptors to be written back once they are sent.
    descriptors: Vec<u32>,
}

impl Aggregate {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.plan.is_none()
    }

    /// Puts off the write-back of a descriptor until what is held was sent.
    pub(crate) fn defer(&mut self, descriptor: u32) {
        self.descriptors.push(descriptor);
    }

    /// Takes the descriptors that were put off.
    pub(crate) fn deferred(&mut self) -> impl Iterator<Item = u32> {
        self.descriptors.drain(..)
    }

    /// Takes in a packet of `bytes` bytes that `gather` has noted, with its headers; `false` if
    /// what is held must be sent first.
    pub(crate) fn add(
        &mut self,
        headers: &[u8],
        plan: &Plan,
        bytes: usize,
        gather: &mut Gather,
    ) -> bool {
        let payload = bytes - plan.header;
        // Packets of one connection are not of one length.
        let plan = Plan {
            ip: Ip { end: 0, ..plan.ip },
            ..*plan
        };
        if self.is_empty() {
            self.plan = Some(plan);
            self.headers.clear();
            self.headers.extend_from_slice(headers);
            self.payload = 0;
        } else if !self.is_continued_by(headers, &plan, payload, gather.fragments()) {
            return false;
        }
        let at = plan.ip.payload + FLAGS;
        self.headers[at] |= headers[at] & (PSH | FIN);
        self.payload += payload;
        self.fragments.extend(gather.take_fragments());
        true
    }

    /// Whether a packet continues what is held, and there is room for it.
    fn is_continued_by(
        &self,
        headers: &[u8],
        plan: &Plan,
        payload: usize,
        fragments: usize,
    ) -> bool {
        let tcp = plan.ip.payload;
        let sequence = |headers: &[u8]| headers.get(tcp + SEQUENCE..)?.first_chunk::<4>().copied();
        let (Some(ours), Some(theirs)) = (sequence(&self.headers), sequence(headers)) else {
            return false;
        };
        let next = u32::from_be_bytes(ours).wrapping_add(self.payload as u32);
        let flags = |headers: &[u8]| headers[tcp + FLAGS];
        self.plan == Some(*plan)
            && u32::from_be_bytes(theirs) == next
            && self.payload.is_multiple_of(plan.size)
            && flags(headers) & !(PSH | FIN) == flags(&self.headers)
            && plan.header + self.payload + payload - plan.ip.start <= IP_BYTES_MAX
            && self.fragments.remaining_capacity() >= fragments
            && follows(&self.headers, headers, &plan.ip, self.payload / plan.size)
    }

    /// Sends what is held. Its descriptors can be written back then, whatever became of it.
    ///
    /// # Errors
    /// If its payload is not in the memory any more, where it was when it was noted.
    pub(crate) fn send(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> Result<(), DmaFault> {
        let Some(plan) = self.plan.take() else {
            return Ok(());
        };
        let offload = plan.leave_to_wire(&mut self.headers, plan.header + self.payload);
        let fragments = self.fragments.drain(..);
        let spans = fragments.map(|Fragment { iova, bytes }| dma.span(iova, bytes));
        let spans: ArrayVec<Span<'_>, SPANS_MAX> = spans.collect::<Result<_, _>>()?;
        wire.send_fragments(&self.headers, &spans, offload);
        Ok(())
    }
}
