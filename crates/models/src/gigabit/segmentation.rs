//! TCP segmentation: packets that are cut into segments, here or by whoever is at the other end of
//! a wire that takes large frames (82574, 7.3; 82540, 3.5).

use super::Mac;
use super::checksum_offload::Refused;
use super::descriptor::{Context, Data};
use super::transmit::Packet;
use crate::packet::Offload;
use crate::packet::checksum::{fold, word};
use crate::packet::headers::{
    ETHERNET, FRAME_MIN, IP_BYTES_MAX, IPV4_CHECKSUM, Ip, TAG, TCP, TCP_CHECKSUM,
};
use crate::packet::segment::{FlagMasks, Plan};
use crate::wire::Wire;

/// FIN and PSH in the last segment alone (7.3.6.2). CWR stays where it is, in every segment.
const MASKS: FlagMasks = FlagMasks {
    first: 0xff6,
    middle: 0xff6,
    last: 0xfff,
};
/// Bytes of a TCP header without options, where its flags lie, and CWR.
const TCP_HEADER: usize = 20;
const FLAGS: usize = 12;
const CWR: u16 = 0x80;

impl<I: Copy + PartialEq> Mac<I> {
    /// 7.3: TCP segmentation.
    pub(super) fn send_segments(
        &mut self,
        packet: &Packet,
        buffer: &mut [u8],
        wire: &mut impl Wire,
    ) -> Result<(), Refused> {
        let context = packet
            .context
            .ok_or("TSE takes a context (7.2.6 / 3.3.6)")?;
        let mut bytes = packet.bytes;
        let mut plan = plan(&buffer[..bytes], packet.first, context)?;
        if packet.tag.is_some() {
            bytes = self.insert_tag(buffer, bytes, packet.tag);
            plan.ip.start += TAG;
            plan.ip.payload += TAG;
            plan.ip.end += TAG;
            plan.header += TAG;
        }
        let frame = &mut buffer[..bytes];
        let count = plan.count(bytes);
        self.statistics.segmented += 1;
        // Another one would have CWR in the first segment alone.
        let has_cwr = word(frame, plan.ip.payload + FLAGS).is_some_and(|flags| flags & CWR != 0);
        let fits = bytes - plan.ip.start <= IP_BYTES_MAX;
        if count > 1 && wire.takes_large_frames() && fits && !has_cwr {
            let full = plan.header + plan.size;
            self.count_sent(frame, full, count as u64 - 1);
            self.count_sent(frame, bytes - (count - 1) * plan.size, 1);
            let offload = plan.leave_to_wire(frame, bytes);
            wire.send(frame, offload);
            return Ok(());
        }
        let mut segment = std::mem::take(&mut self.segment);
        for index in 0..count {
            plan.write(frame, index, &mut segment);
            if segment.len() < FRAME_MIN {
                segment.resize(FRAME_MIN, 0);
            }
            self.count_sent(&segment, segment.len(), 1);
            wire.send(&segment, Offload::default());
        }
        self.segment = segment;
        Ok(())
    }
}

/// What a packet is cut into, if all is as 7.3 asks for.
fn plan(frame: &[u8], first: Data, context: Context) -> Result<Plan, Refused> {
    let Context { ip, l4, .. } = context;
    let (start, payload) = (usize::from(ip.start), usize::from(l4.start));
    let header = usize::from(context.header_len);
    if !context.segment || !context.tcp {
        return Err("TSE takes a context with TSE and TCP: UDP is not modelled (7.3.4 / 3.5)");
    }
    if !first.l4_checksum || first.ip_checksum != context.ipv4 {
        return Err("TSE takes TXSM, and for IPv4 IXSM (7.3.6 / 3.5)");
    }
    if start < ETHERNET || payload <= start || header < payload + TCP_HEADER {
        return Err("IPCSS, TUCSS and HDRLEN must be those of the packet (7.2.6 / 3.3.6)");
    }
    if header >= frame.len() || context.payload_len as usize != frame.len() - header {
        return Err("PAYLEN must be the length without headers (7.2.6 / 3.3.6)");
    }
    if context.mss == 0 {
        return Err("MSS must not be 0 (7.2.6 / 3.3.6)");
    }
    let as_it_says = match context.ipv4 {
        true => frame[start] >> 4 == 4 && usize::from(frame[start] & 15) * 4 == payload - start,
        false => frame[start] >> 4 == 6 && payload - start >= 40,
    };
    if !as_it_says || usize::from(frame[payload + FLAGS] >> 4) * 4 != header - payload {
        return Err("its headers must be as long as the context says (7.2.6 / 3.3.6)");
    }
    let fields = [usize::from(ip.field), usize::from(l4.field)];
    if context.ipv4 && fields[0] != start + IPV4_CHECKSUM || fields[1] != payload + TCP_CHECKSUM {
        return Err("IPCSO and TUCSO must be those of the packet (7.2.6 / 3.3.6)");
    }
    let ip = Ip {
        start,
        payload,
        end: frame.len(),
        v6: !context.ipv4,
        extended: false,
        fragment: false,
        protocol: TCP,
    };
    if word(frame, fields[1]) != Some(fold(ip.pseudo_header(frame, 0))) {
        return Err("TCP's checksum must hold the pseudo header's without length (7.3.6.2 / 3.5)");
    }
    Ok(Plan {
        ip,
        header,
        size: usize::from(context.mss),
        masks: MASKS,
    })
}
