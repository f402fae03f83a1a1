//! TCP segmentation: packets that are cut into segments, here or by whoever is at the other end of
//! a wire that takes large frames (datasheet, 7.2.4).

use super::Nic;
use super::checksum_offload::{L4_TCP, Refused, locate};
use super::descriptor::{Context, Data};
use super::registers::at;
use super::transmit::Packet;
use crate::dma::Dma;
use crate::packet::Offload;
use crate::packet::checksum::{fold, word};
use crate::packet::headers::{FRAME_MIN, IP_BYTES_MAX, IPV4_CHECKSUM, TAG, TCP_CHECKSUM};
use crate::packet::segment::{FlagMasks, Plan};
use crate::violation::{Queue, Violation};
use crate::wire::Wire;

impl Nic {
    /// 7.2.4: TCP segmentation.
    pub(super) fn send_segments(
        &mut self,
        number: usize,
        packet: &Packet,
        buffer: &mut [u8],
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) -> Result<(), Refused> {
        let Packet {
            first,
            context,
            mut bytes,
        } = *packet;
        let context = context.ok_or("TSE takes a context (7.2.4)")?;
        let scattered = self.tx[number].gather.headers();
        let mut copied = scattered.unwrap_or(bytes);
        let mut plan = self.plan(&buffer[..copied], bytes, first, context)?;
        if first.tag {
            copied = self.insert_tag(buffer, copied, context.tag);
            bytes += TAG;
            plan.ip.start += TAG;
            plan.ip.payload += TAG;
            plan.ip.end += TAG;
            plan.header += TAG;
        }
        let count = plan.count(bytes);
        let large = count > 1 && wire.takes_large_frames() && bytes - plan.ip.start <= IP_BYTES_MAX;
        if large {
            let frame = &mut buffer[..copied];
            let full = plan.header + plan.size;
            self.count_sent(number, frame, full, count as u64 - 1);
            self.count_sent(number, frame, bytes - (count - 1) * plan.size, 1);
            if scattered.is_some() {
                self.send_together(number, frame, &plan, bytes, wire, dma);
                return Ok(());
            }
            self.flush_aggregate(number, wire, dma);
            let offload = plan.leave_to_wire(frame, bytes);
            wire.send(frame, offload);
            return Ok(());
        }
        self.flush_aggregate(number, wire, dma);
        if scattered.is_some() {
            let rest = &mut buffer[copied..bytes];
            let linear = self.tx[number].gather.linearize(rest, dma);
            linear.map_err(|_| "its buffers must stay in DMA memory until it is sent")?;
        }
        let mut segment = std::mem::take(&mut self.segment);
        for index in 0..count {
            plan.write(&buffer[..bytes], index, &mut segment);
            if segment.len() < FRAME_MIN {
                segment.resize(FRAME_MIN, 0);
            }
            self.count_sent(number, &segment, segment.len(), 1);
            wire.send(&segment, Offload::default());
        }
        self.segment = segment;
        Ok(())
    }

    /// What a packet of so many bytes is cut into, if all is as 7.2.4 asks for. `frame` has at
    /// least its headers.
    fn plan(
        &self,
        frame: &[u8],
        bytes: usize,
        first: Data,
        context: Context,
    ) -> Result<Plan, Refused> {
        let ip = locate(frame, bytes, context)?;
        if context.ipv4 == ip.v6 {
            return Err("IPV4 must be that of the packet (7.2.3.2.3)");
        }
        if context.l4_type != L4_TCP || !first.l4_checksum || first.ip_checksum == ip.v6 {
            return Err("TSE takes L4T = TCP, TXSM, and for IPv4 IXSM (7.2.4)");
        }
        let tcp = frame
            .get(ip.payload..)
            .and_then(|tcp| tcp.first_chunk::<20>());
        let tcp = tcp.ok_or("the TCP header must lie in the packet")?;
        let header = ip.payload + usize::from(context.l4_len);
        if usize::from(tcp[12] >> 4) * 4 != usize::from(context.l4_len) || header >= bytes {
            return Err("L4LEN must be the length of the TCP header (7.2.3.2.3)");
        }
        if first.payload_len as usize != bytes - header {
            return Err("PAYLEN must be the length without headers (7.2.3.2.4)");
        }
        if context.mss == 0 {
            return Err("MSS must not be 0 (7.2.3.2.3)");
        }
        if word(frame, ip.payload + TCP_CHECKSUM) != Some(fold(ip.pseudo_header(frame, 0))) {
            return Err("TCP's checksum must hold the pseudo header's without length (7.2.4)");
        }
        if !ip.v6 && word(frame, ip.start + IPV4_CHECKSUM) != Some(0) {
            return Err("the IPv4 checksum must hold 0 (7.2.4)");
        }
        let low = self.file.get(at::DTXTCPFLGL);
        let masks = FlagMasks {
            first: low as u16 & 0xfff,
            middle: (low >> 16) as u16 & 0xfff,
            last: self.file.get(at::DTXTCPFLGH) as u16 & 0xfff,
        };
        let size = usize::from(context.mss);
        Ok(Plan {
            ip,
            header,
            size,
            masks,
        })
    }

    /// How many bytes of headers a packet has that begins with this descriptor, if the rest of it
    /// can stay in the driver's memory until it is sent.
    pub(super) fn headers_alone(
        &self,
        number: usize,
        data: Data,
        wire: &impl Wire,
    ) -> Option<usize> {
        if !data.segment {
            return None;
        }
        let direct = wire.sends_fragments() && wire.takes_large_frames() && self.faults.is_off();
        let context = self.tx[number].context(data)?;
        let headers = usize::from(context.mac_len)
            + usize::from(context.ip_len)
            + usize::from(context.l4_len);
        let inside = headers <= usize::from(data.len) && data.may_wait();
        (direct && inside).then_some(headers)
    }

    /// A packet is to be sent with the next ones, or at the end of the turn.
    fn send_together(
        &mut self,
        number: usize,
        headers: &[u8],
        plan: &Plan,
        bytes: usize,
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) {
        let queue = &mut self.tx[number];
        if queue.aggregate.add(headers, plan, bytes, &mut queue.gather) {
            return;
        }
        self.flush_aggregate(number, wire, dma);
        let queue = &mut self.tx[number];
        queue.aggregate.add(headers, plan, bytes, &mut queue.gather);
    }

    /// Sends what is held to be sent together, and writes its descriptors back.
    #[inline]
    pub(super) fn flush_aggregate(&mut self, number: usize, wire: &mut impl Wire, dma: &dyn Dma) {
        if !self.tx[number].aggregate.is_empty() {
            self.send_aggregate(number, wire, dma);
        }
    }

    fn send_aggregate(&mut self, number: usize, wire: &mut impl Wire, dma: &dyn Dma) {
        let mut aggregate = std::mem::take(&mut self.tx[number].aggregate);
        if let Err(fault) = aggregate.send(wire, dma) {
            let queue = Queue::Tx(number as u8);
            self.violations.add(Violation::Dma { queue, fault });
        }
        for index in aggregate.deferred() {
            self.write_back(number, index, dma);
        }
        self.tx[number].aggregate = aggregate;
    }
}
