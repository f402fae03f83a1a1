//! Packets to be cut whose payload goes from the driver's buffers to the wire at once, those of one
//! connection together.
//!
//! Of such a packet only the headers are copied, once, and judged. Its payload stays where it is
//! until the wire has it; so its descriptor is written back after that.

use super::Nic;
use super::descriptor::Data;
use super::transmit::{IP_MAX, Refused, prepare_large};
use crate::dma::{Dma, DmaFault};
use crate::packet::coalesce::follows;
use crate::packet::headers::Ip;
use crate::packet::segment::Plan;
use crate::violation::{Queue, Violation};
use crate::wire::Wire;
use arrayvec::ArrayVec;
use hw::sim::vectored::{SPANS_MAX, Span};

const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;

/// Ranges of the driver's memory: address and length.
pub(super) type Pieces = ArrayVec<(u64, usize), SPANS_MAX>;

/// Packets that wait for the next one, to be sent as one.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// What they are cut like; `None` if there are none.
    plan: Option<Plan>,
    headers: Vec<u8>,
    payload: usize,
    pieces: Pieces,
    /// Descriptors to be written back when they are sent.
    done: Vec<u32>,
}

impl Joined {
    pub(super) fn is_empty(&self) -> bool {
        self.plan.is_none()
    }

    /// The descriptor is written back when what is held is sent.
    pub(super) fn hold(&mut self, descriptor: u32) {
        self.done.push(descriptor);
    }

    /// Whether a packet continues what is held, and there is room for it.
    fn continues(&self, headers: &[u8], plan: &Plan, payload: usize, pieces: &Pieces) -> bool {
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
            && plan.header + self.payload + payload - plan.ip.start <= IP_MAX
            && self.pieces.remaining_capacity() >= pieces.len()
            && follows(&self.headers, headers, &plan.ip, self.payload / plan.size)
    }

    /// Adds a packet to what is held, which is nothing or continued by it.
    fn add(&mut self, headers: &[u8], plan: &Plan, payload: usize, pieces: &Pieces) {
        if self.is_empty() {
            self.plan = Some(*plan);
            self.headers.clear();
            self.headers.extend_from_slice(headers);
            self.payload = 0;
        }
        let at = plan.ip.payload + FLAGS;
        self.headers[at] |= headers[at] & (PSH | FIN);
        self.payload += payload;
        self.pieces.extend(pieces.iter().copied());
    }
}

impl Nic {
    /// How many bytes of headers are copied of a packet that begins with this descriptor, if its
    /// payload can stay where it is.
    pub(super) fn front(&self, number: usize, data: Data, wire: &impl Wire) -> Option<usize> {
        let direct = wire.takes_parts() && wire.takes_large_frames() && self.mischief.is_calm();
        let context = self.tx[number].context(data)?;
        let headers = usize::from(context.mac_len)
            + usize::from(context.ip_len)
            + usize::from(context.l4_len);
        let inside = headers <= usize::from(data.len) && may_wait(data);
        (data.segment && direct && inside).then_some(headers)
    }

    /// Notes where the payload of a descriptor lies, and copies headers, which the first descriptor
    /// begins with; `false` if the packet is better copied.
    pub(super) fn gather_apart(
        &mut self,
        number: usize,
        data: Data,
        headers: usize,
        dma: &dyn Dma,
    ) -> Result<bool, DmaFault> {
        let state = &mut self.tx[number];
        let len = usize::from(data.len);
        if state.pieces.is_full() || !may_wait(data) {
            return Ok(false);
        }
        dma.check(data.address, len)?;
        if let Some(place) = state.buffer.get_mut(..headers) {
            dma.read(data.address, place)?;
        }
        if len > headers {
            // The range was checked, so that the sum is in it.
            let iova = data.address.wrapping_add(headers as u64);
            state.pieces.push((iova, len - headers));
        }
        Ok(true)
    }

    /// Copies the payload of a packet behind its headers.
    pub(super) fn gather_rest(
        &mut self,
        number: usize,
        rest: &mut [u8],
        dma: &dyn Dma,
    ) -> Result<(), DmaFault> {
        let state = &mut self.tx[number];
        state.front = None;
        let mut at = 0;
        for (iova, len) in state.pieces.drain(..) {
            let Some(place) = rest.get_mut(at..at + len) else {
                break;
            };
            dma.read(iova, place)?;
            at += len;
        }
        Ok(())
    }

    /// A packet is to be sent with the next ones, or at the end of the turn.
    pub(super) fn join(
        &mut self,
        number: usize,
        headers: &[u8],
        plan: &Plan,
        bytes: usize,
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) {
        let payload = bytes - plan.header;
        // Packets that are joined are not of one length.
        let plan = Plan {
            ip: Ip { end: 0, ..plan.ip },
            ..*plan
        };
        let pieces = std::mem::take(&mut self.tx[number].pieces);
        let joined = &self.tx[number].joined;
        if !joined.is_empty() && !joined.continues(headers, &plan, payload, &pieces) {
            self.send_joined(number, wire, dma);
        }
        let joined = &mut self.tx[number].joined;
        joined.add(headers, &plan, payload, &pieces);
    }

    /// Sends what is held, and writes its descriptors back.
    #[inline]
    pub(super) fn send_joined(&mut self, number: usize, wire: &mut impl Wire, dma: &dyn Dma) {
        if let Some(plan) = self.tx[number].joined.plan.take() {
            self.send_all(number, plan, wire, dma);
        }
    }

    fn send_all(&mut self, number: usize, plan: Plan, wire: &mut impl Wire, dma: &dyn Dma) {
        let mut joined = std::mem::take(&mut self.tx[number].joined);
        let offload = prepare_large(&mut joined.headers, plan.header + joined.payload, &plan);
        let pieces = joined.pieces.drain(..);
        let spans = pieces.map(|(iova, len)| dma.span(iova, len));
        let spans: Result<ArrayVec<Span<'_>, SPANS_MAX>, _> = spans.collect();
        match spans {
            Ok(spans) => wire.send_parts(&joined.headers, &spans, offload),
            // It was there when the packet was gathered.
            Err(fault) => self.report.add(Violation::Dma {
                queue: Queue::Tx(number as u8),
                fault,
            }),
        }
        for index in joined.done.drain(..) {
            self.write_back(number, index, dma);
        }
        self.tx[number].joined = joined;
    }
}

/// Whether a descriptor can be written back as late as its packet is sent.
fn may_wait(data: Data) -> bool {
    data.end_of_packet || !data.report
}

/// What a driver is told that takes memory away while a packet needs it.
pub(super) const TAKEN_AWAY: Refused = "its buffers must stay in DMA memory until it is sent";
