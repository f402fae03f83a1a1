//! What a NIC has made of TCP segments that follow each other: one large frame, to be cut again.

use crate::checksum;
use crate::offload::{Checksum, Gso, GsoKind, Offload};
use crate::segment::{CWR, Layout, TCP_CHECKSUM, TCP_FLAGS};

/// Makes of `frame`, which a device has put together from `count` segments, what a sender leaves to
/// be cut: as many segments, of equal size, and the sum of the pseudo header in the checksum's
/// field. None of them was larger than `mtu` bytes from the IP header on, and none will be.
///
/// `None` if it is not one whole TCP packet over IPv4 with a byte for each of them.
pub fn coalesced(frame: &mut [u8], count: usize, mtu: usize) -> Option<Offload> {
    let kind = GsoKind::TcpV4;
    let Layout { transport, header } = Layout::read(frame, kind)?;
    let payload = frame.len() - header;
    let size_max = mtu.saturating_sub(header - transport.ip);
    if count == 0 || payload < count || size_max == 0 {
        return None;
    }
    let size = payload.div_ceil(count).min(size_max);
    let length = u16::try_from(frame.len() - transport.start).ok()?;
    let addresses = &frame[transport.ip + 12..transport.ip + 20];
    let pseudo = checksum::sum(addresses)
        + checksum::word(transport.protocol.into())
        + checksum::word(length);
    let field = transport.start + TCP_CHECKSUM;
    frame[field..field + 2].copy_from_slice(&checksum::fold(pseudo).to_ne_bytes());
    Some(Offload {
        checksum: Some(Checksum {
            start: transport.start as u16,
            offset: TCP_CHECKSUM as u16,
        }),
        gso: Some(Gso {
            kind,
            // No longer than the packet, whose length is a number of 16 bits.
            size: size as u16,
            // At most SEGMENT_HEADER_MAX.
            header: header as u16,
            ecn: frame[transport.start + TCP_FLAGS] & CWR != 0,
        }),
    })
}
