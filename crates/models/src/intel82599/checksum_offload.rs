//! Checksum offload: checksums that a context asks for in a packet that is not cut (datasheet,
//! 7.2.5).

use super::descriptor::{Context, Data};
use crate::packet::checksum::{fold, set_word, sum, word};
use crate::packet::headers::{IPV4_CHECKSUM, Ip, TCP, TCP_CHECKSUM, UDP, UDP_CHECKSUM};

/// Why a packet cannot be sent: the rule that it breaks.
pub(super) type Refused = &'static str;

/// Kinds of L4 header (7.2.3.2.3).
const L4_UDP: u8 = 0;
pub(super) const L4_TCP: u8 = 1;

/// Where the headers lie, as a context says and the packet agrees.
///
/// Its IPV4 is of no interest here: a checksum of layer 4 begins with that of the pseudo header,
/// which the driver makes, and Linux's sets the bit for packets that are to be cut alone.
pub(super) fn locate(frame: &[u8], bytes: usize, context: Context) -> Result<Ip, Refused> {
    let start = usize::from(context.mac_len);
    let payload = start + usize::from(context.ip_len);
    if !(14..=127).contains(&start) || payload >= frame.len() {
        return Err("MACLEN and IPLEN must lie in the packet (7.2.3.2.3)");
    }
    let ipv4 = match word(frame, start - 2) {
        Some(0x0800) => true,
        Some(0x86dd) => false,
        _ => return Err("MACLEN must be that of the packet (7.2.3.2.3)"),
    };
    let header = &frame[start..payload];
    let protocol = match context.l4_type {
        L4_UDP => UDP,
        L4_TCP => TCP,
        _ => return Err("L4T must be UDP or TCP: SCTP is not modelled"),
    };
    let as_it_says = if ipv4 {
        header.len() >= 20
            && usize::from(header[0] & 15) * 4 == header.len()
            && header[9] == protocol
    } else {
        header.len() > 40 || header.len() == 40 && header[6] == protocol
    };
    if !as_it_says {
        return Err("IPLEN and L4T must be those of the packet (7.2.3.2.3)");
    }
    Ok(Ip {
        start,
        payload,
        end: bytes,
        v6: !ipv4,
        extended: false,
        fragment: false,
        protocol,
    })
}

/// 7.2.5: checksums of a packet that is not cut.
pub(super) fn insert_checksums(
    frame: &mut [u8],
    first: Data,
    context: Context,
) -> Result<(), Refused> {
    let ip = locate(frame, frame.len(), context)?;
    if first.ip_checksum {
        if ip.v6 || !context.ipv4 {
            return Err("IXSM is for IPv4, and takes IPV4 (7.2.3.2.3, 7.2.5.1)");
        }
        if word(frame, ip.start + IPV4_CHECKSUM) != Some(0) {
            return Err("the IPv4 checksum must hold 0 (7.2.5.1)");
        }
        let value = !fold(sum(&frame[ip.start..ip.payload]));
        set_word(frame, ip.start + IPV4_CHECKSUM, value);
    }
    if !first.l4_checksum {
        return Ok(());
    }
    let field = ip.payload
        + if ip.protocol == TCP {
            TCP_CHECKSUM
        } else {
            UDP_CHECKSUM
        };
    let len = if ip.v6 {
        word(frame, ip.start + 4).map(|len| usize::from(len) + 40)
    } else {
        word(frame, ip.start + 2).map(usize::from)
    };
    let len = len
        .and_then(|len| len.checked_sub(ip.payload - ip.start))
        .unwrap_or(0);
    if word(frame, field) != Some(fold(ip.pseudo_header(frame, len))) {
        return Err("the L4 checksum must hold the pseudo header's (7.2.5.2)");
    }
    let value = match !fold(sum(&frame[ip.payload..])) {
        0 if ip.protocol == UDP => 0xffff,
        value => value,
    };
    set_word(frame, field, value);
    Ok(())
}
