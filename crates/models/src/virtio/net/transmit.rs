//! Frames from the driver (5.1.6.2).

use super::super::chain::Chain;
use super::super::queue::{Alone, Virtqueue};
use super::super::work::Work;
use super::header::{self, GSO_ECN, GSO_NONE, GSO_TCP4, GSO_TCP6, GSO_UDP, Header, NEEDS_CHECKSUM};
use super::{Nic, POLL_FRAMES, PUBLISH_FRAMES, feature};
use crate::dma::{Dma, DmaFault};
use crate::iotlb::Iotlb;
use crate::misbehaviour::Fault;
use crate::packet;
use crate::packet::Offload;
use crate::packet::segment::Plan;
use crate::violation::Violation;
use crate::wire::Wire;
use arrayvec::ArrayVec;
use hw::sim::vectored::{SPANS_MAX, Span};

/// Longest frame: an IP packet behind an Ethernet header with two tags.
const FRAME_BYTES_MAX: usize = 0xffff + 22;
/// Bytes of a frame that are copied and looked at, if the rest may stay where it is.
const FRONT_BYTES: usize = 256;
/// The same with the header.
const FRONT_MAX: u64 = (header::BYTES + FRONT_BYTES) as u64;

/// A frame that cannot be sent; the rule has its section.
type Refused = &'static str;

/// Room for what is being sent.
#[derive(Debug)]
pub(super) struct Transmitter {
    chain: Chain,
    /// A header and its frame.
    bytes: Vec<u8>,
    segment: Vec<u8>,
    /// Headers with a number of buffers that were not reported yet.
    counted: u64,
}

impl Default for Transmitter {
    fn default() -> Self {
        Self {
            chain: Chain::default(),
            bytes: vec![0; header::BYTES + FRAME_BYTES_MAX],
            segment: Vec::with_capacity(FRAME_BYTES_MAX),
            counted: 0,
        }
    }
}

impl Transmitter {
    /// Sends what waits in the queues of all pairs, up to a bound: how many frames.
    pub(super) fn transmit(
        &mut self,
        nic: &mut Nic,
        frames: &mut [Virtqueue],
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) -> u32 {
        let mut left = POLL_FRAMES;
        for pair in 0..nic.steering.pairs() {
            let Some(queue) = frames.get_mut(usize::from(2 * pair + 1)) else {
                continue;
            };
            if !queue.is_notified() {
                continue;
            }
            queue.silence(work);
            loop {
                while left > 0 && wire.can_send() && self.take(nic, pair, queue, wire, work) {
                    left -= 1;
                    if left.is_multiple_of(PUBLISH_FRAMES) {
                        queue.publish(work);
                    }
                }
                queue.publish(work);
                if left == 0 || !queue.listen(work) {
                    break;
                }
            }
        }
        // DPDK's driver leaves what a card wrote there; no card looks at it.
        let advice = Violation::Advice {
            register: "num_buffers",
            rule: "it must be 0 (5.1.6.2.1)",
        };
        work.report_often(advice, std::mem::take(&mut self.counted));
        POLL_FRAMES - left
    }

    /// Takes one frame, and sends it; `false` if there is none.
    #[inline]
    fn take(
        &mut self,
        nic: &mut Nic,
        pair: u16,
        queue: &mut Virtqueue,
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) -> bool {
        if work.faults.is_off()
            && !nic.hung
            && let Some(buffer) = queue.take_alone(false, ..=FRONT_MAX, work)
        {
            self.pass_alone(&buffer, nic, pair, queue, wire, work);
            return true;
        }
        if !queue.take(&mut self.chain, work) {
            return false;
        }
        nic.hung |= work.faults.strikes(Fault::TransmitHang);
        if !nic.hung {
            self.pass(nic, pair, queue, wire, work);
        }
        true
    }

    /// Sends one frame that lies in one buffer and is short, and gives that back.
    #[inline]
    fn pass_alone(
        &mut self,
        buffer: &Alone,
        nic: &mut Nic,
        pair: u16,
        queue: &mut Virtqueue,
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) {
        let bytes = buffer.bytes as usize;
        let copied = work.dma.read(buffer.iova, &mut self.bytes[..bytes]);
        let sent = copied.map(|()| {
            let header = self.judge(nic, bytes, bytes, 0)?;
            self.send_copied(nic, pair, bytes, &header, wire)
        });
        report(sent, queue, bytes, work);
        queue.give_back(buffer.head, 0, work);
    }

    /// Sends one frame, and gives its buffers back.
    fn pass(
        &mut self,
        nic: &mut Nic,
        pair: u16,
        queue: &mut Virtqueue,
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) {
        let early = work.faults.strikes(Fault::EarlyDone);
        if early {
            queue.give_back(self.chain.head, 0, work);
            queue.publish(work);
        }
        let sent = self.send(nic, pair, wire, work);
        let bytes = self.chain.readable_bytes() as usize;
        report(sent, queue, bytes, work);
        if !early {
            queue.give_back(self.chain.head, 0, work);
        }
    }

    fn send(
        &mut self,
        nic: &mut Nic,
        pair: u16,
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) -> Result<Result<(), Refused>, DmaFault> {
        let front = FRONT_MAX.min(self.chain.readable_bytes()) as usize;
        let front = self.chain.read(0, &mut self.bytes[..front], work.dma)?;
        let bytes = self.chain.readable_bytes() as usize;
        let header = match self.judge(nic, front, bytes, self.chain.writable_bytes()) {
            Ok(header) => header,
            Err(rule) => return Ok(Err(rule)),
        };
        let len = bytes - header::BYTES;
        if wire.sends_fragments()
            && len > FRONT_BYTES
            && let Some(sent) = self.send_in_place(nic, pair, len, &header, wire, work.dma)?
        {
            return Ok(sent);
        }
        let rest = &mut self.bytes[front..header::BYTES + len];
        if !rest.is_empty() {
            self.chain.read(front as u64, rest, work.dma)?;
        }
        Ok(self.send_copied(nic, pair, bytes, &header, wire))
    }

    /// The header of a chain, of which so many bytes were copied.
    #[inline]
    fn judge(
        &mut self,
        nic: &Nic,
        copied: usize,
        readable: usize,
        writable: u64,
    ) -> Result<Header, Refused> {
        let header = match self.bytes[..copied].first_chunk() {
            Some(header) => Header::read(header),
            None => return Err("a frame must have a header in front (5.1.6.2)"),
        };
        self.counted += u64::from(header.buffers != 0);
        check(nic, writable, &header, readable - header::BYTES)?;
        Ok(header)
    }

    /// Sends a frame that was copied, with its header.
    #[inline]
    fn send_copied(
        &mut self,
        nic: &mut Nic,
        pair: u16,
        bytes: usize,
        header: &Header,
        wire: &mut impl Wire,
    ) -> Result<(), Refused> {
        let frame = &mut self.bytes[header::BYTES..bytes];
        nic.steering.note(pair, frame, frame.len());
        send_whole(frame, header, &mut self.segment, wire)
    }

    /// Sends a frame of which only the front was copied; `None` if it has to be copied.
    fn send_in_place(
        &self,
        nic: &mut Nic,
        pair: u16,
        len: usize,
        header: &Header,
        wire: &mut impl Wire,
        dma: &Iotlb<'_>,
    ) -> Result<Option<Result<(), Refused>>, DmaFault> {
        let front = &self.bytes[header::BYTES..][..FRONT_BYTES];
        let mut spans: ArrayVec<Span<'_>, SPANS_MAX> = ArrayVec::new();
        let skip = (header::BYTES + FRONT_BYTES) as u64;
        for part in self.chain.to_read(skip, len as u64) {
            if spans.try_push(dma.span(part.iova, part.bytes)?).is_err() {
                return Ok(None);
            }
        }
        let offload = header.offload();
        if let Some(size) = offload.segment {
            match Plan::read_in(front, len, size) {
                Some(plan) if fits(&plan, header) => {
                    if !takes_whole(wire, Some(&plan)) {
                        return Ok(None);
                    }
                }
                Some(_) => return Ok(Some(Err(MISMATCH))),
                None => return Ok(None),
            }
        }
        nic.steering.note(pair, front, len);
        wire.send_fragments(front, &spans, offload);
        Ok(Some(Ok(())))
    }
}

/// Reports why a frame of so many bytes, header included, was not sent, if it was not.
#[inline]
fn report(
    sent: Result<Result<(), Refused>, DmaFault>,
    queue: &Virtqueue,
    bytes: usize,
    work: &mut Work<'_>,
) {
    let queue = queue.name;
    match sent {
        Ok(Ok(())) => {}
        Ok(Err(rule)) => work.report(Violation::Packet { queue, bytes, rule }),
        Err(fault) => work.report(Violation::Dma { queue, fault }),
    }
}

const MISMATCH: Refused =
    "gso_type, csum_start and csum_offset must fit what the frame is (5.1.6.2.1)";

/// Whether headers are of what their virtio-net header says.
fn fits(plan: &Plan, header: &Header) -> bool {
    let kind = match header.kind() {
        GSO_UDP => plan.is_udp(),
        kind => !plan.is_udp() && plan.ip.v6 == (kind == GSO_TCP6),
    };
    kind && usize::from(header.checksum_start) == plan.ip.payload
        && usize::from(header.checksum_offset) == plan.checksum_offset()
}

/// Whether a wire takes what is to be cut like this as it is.
fn takes_whole(wire: &impl Wire, plan: Option<&Plan>) -> bool {
    match plan {
        Some(plan) if plan.is_udp() => wire.takes_large_datagrams(),
        _ => wire.takes_large_frames(),
    }
}

/// 5.1.6.2.1: what a driver must keep to.
fn check(nic: &Nic, writable: u64, header: &Header, len: usize) -> Result<(), Refused> {
    if writable > 0 {
        return Err("a buffer that is sent must not be writable (5.1.6.2)");
    }
    if len > FRAME_BYTES_MAX {
        return Err("it must not be longer than an IP packet (5.1.6.2)");
    }
    if len < packet::headers::ETHERNET {
        return Err("it must have an Ethernet header (5.1.6.2)");
    }
    if header.flags & !NEEDS_CHECKSUM != 0 {
        return Err("flags other than NEEDS_CSUM must not be set (5.1.6.2.1)");
    }
    let needs_checksum = header.flags & NEEDS_CHECKSUM != 0;
    if needs_checksum {
        if !nic.has(feature::CSUM) {
            return Err("NEEDS_CSUM takes CSUM (5.1.6.2.1)");
        }
        let end = usize::from(header.checksum_start) + usize::from(header.checksum_offset) + 2;
        if end > len {
            return Err("the checksum must lie in the frame (5.1.6.2.1)");
        }
    }
    let feature = match header.kind() {
        GSO_NONE if header.gso == GSO_NONE && nic.admits_length(len) => return Ok(()),
        GSO_NONE if header.gso == GSO_NONE => return Err("it must not exceed the MTU (5.1.4.2)"),
        GSO_NONE => return Err("ECN takes a kind of segmentation (5.1.6.2.1)"),
        GSO_TCP4 => feature::HOST_TSO4,
        GSO_TCP6 => feature::HOST_TSO6,
        GSO_UDP if header.gso == GSO_UDP => feature::HOST_USO,
        GSO_UDP => return Err("ECN is of TCP alone (5.1.6.2.1)"),
        _ => return Err("gso_type must be one that was negotiated (5.1.6.2.1)"),
    };
    if !nic.has(feature) {
        return Err("gso_type must be one that was negotiated (5.1.6.2.1)");
    }
    if header.gso & GSO_ECN != 0 && !nic.has(feature::HOST_ECN) {
        return Err("ECN takes HOST_ECN (5.1.6.2.1)");
    }
    if !needs_checksum || header.gso_size == 0 {
        return Err("segmentation takes NEEDS_CSUM and a gso_size (5.1.6.2.1)");
    }
    Ok(())
}

/// Sends a frame that lies in one place; what the wire does not do is done here.
fn send_whole(
    frame: &mut [u8],
    header: &Header,
    segment: &mut Vec<u8>,
    wire: &mut impl Wire,
) -> Result<(), Refused> {
    let offload = header.offload();
    let plan = match offload.segment {
        Some(size) => {
            let plan = Plan::read(frame, size).filter(|plan| fits(plan, header));
            Some(plan.ok_or(MISMATCH)?)
        }
        None => None,
    };
    if takes_whole(wire, plan.as_ref()) {
        wire.send(frame, offload);
        return Ok(());
    }
    match plan {
        Some(plan) => {
            for index in 0..plan.count(frame.len()) {
                plan.write(frame, index, segment);
                wire.send(segment, Offload::default());
            }
        }
        None => {
            if let Some((start, offset)) = offload.checksum {
                packet::complete(frame, start, offset);
            }
            wire.send(frame, Offload::default());
        }
    }
    Ok(())
}
