//! What is left to the device: checksums (7.2.5) and segmentation (7.2.4).

use super::descriptor::*;
use device::offload::Checksum;
use device::{Frame, Gso, GsoKind, Transport};

/// Most header bytes in front of the payload (7.2.3.2.3).
const HEADERS_MAX: usize = 512;
/// Fields of a context descriptor: 7, 9 and 8 bits.
const MACLEN_MAX: usize = 127;
const IPLEN_MAX: usize = 511;
const L4LEN_MAX: usize = 255;

/// Offset of TCP's checksum in its header (RFC 9293, 3.1), and of UDP's (RFC 768).
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// A frame as the device is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The context descriptor that has to come before.
    pub context: Option<[u64; 2]>,
    /// Bits of its data descriptors.
    pub command: u64,
    /// Whether it is cut into segments.
    pub segments: bool,
}

/// Prepares a frame; `None` if it is not what its offload says. A checksum that the device would
/// not find is completed here.
pub fn prepare(frame: &mut Frame) -> Option<Work> {
    let offload = frame.offload();
    if let Some(gso) = offload.gso {
        return segments(frame, gso);
    }
    let length = frame.len() as u64;
    let plain = length << TX_PAYLEN_SHIFT;
    let context = offload
        .checksum
        .and_then(|checksum| checksum_context(frame, checksum));
    if context.is_none() {
        offload.complete_checksum(frame.bytes_mut());
    }
    Some(Work {
        context,
        command: plain | if context.is_some() { TX_TXSM } else { 0 },
        segments: false,
    })
}

/// 7.2.5.1: where the headers begin and end. The sum of the pseudo header lies in the checksum's
/// field, as the device wants it.
fn checksum_context(frame: &Frame, checksum: Checksum) -> Option<[u64; 2]> {
    let transport = Transport::find(frame.bytes())?;
    let tcp = match usize::from(checksum.offset) {
        TCP_CHECKSUM => CONTEXT_TCP,
        UDP_CHECKSUM => 0,
        _ => return None,
    };
    let found = transport.start == usize::from(checksum.start);
    found.then(|| context(transport, tcp, 0))?
}

/// 7.2.4: the device writes lengths, numbers, flags and checksums of each segment.
fn segments(frame: &mut Frame, gso: Gso) -> Option<Work> {
    let transport = Transport::find(frame.bytes())?;
    let header = usize::from(gso.header);
    let tcp_header = header.checked_sub(transport.start)?;
    let payload = frame.len().checked_sub(header).filter(|bytes| *bytes > 0)?;
    let is_tcp = matches!(gso.kind, GsoKind::TcpV4 | GsoKind::TcpV6);
    let kind_fits = is_tcp && gso.kind.fits(&transport);
    if !kind_fits || tcp_header > L4LEN_MAX || header > HEADERS_MAX || gso.size == 0 {
        return None;
    }
    let sizes =
        (tcp_header as u64) << CONTEXT_L4LEN_SHIFT | u64::from(gso.size) << CONTEXT_MSS_SHIFT;
    let context = context(transport, CONTEXT_TCP, sizes)?;
    clear_lengths(frame.bytes_mut(), transport)?;
    let ip_checksum = if transport.ipv6 { 0 } else { TX_IXSM };
    Some(Work {
        context: Some(context),
        command: TX_TSE | TX_TXSM | ip_checksum | (payload as u64) << TX_PAYLEN_SHIFT,
        segments: true,
    })
}

fn context(transport: Transport, tcp: u64, sizes: u64) -> Option<[u64; 2]> {
    let (mac, ip) = (transport.ip, transport.start - transport.ip);
    if mac > MACLEN_MAX || ip > IPLEN_MAX {
        return None;
    }
    let version = if transport.ipv6 { 0 } else { CONTEXT_IPV4 };
    Some([
        ip as u64 | (mac as u64) << CONTEXT_MACLEN_SHIFT,
        TX_DTYP_CONTEXT | TX_DEXT | version | tcp | sizes,
    ])
}

/// What differs from segment to segment is zero, as the device wants it: the IP length, the IP
/// header's checksum, and the TCP length in the sum of the pseudo header.
fn clear_lengths(frame: &mut [u8], transport: Transport) -> Option<()> {
    let tcp_bytes = (frame.len() - transport.start) as u16;
    let ip = frame.get_mut(transport.ip..)?;
    if transport.ipv6 {
        ip.get_mut(4..6)?.fill(0);
    } else {
        ip.get_mut(2..4)?.fill(0);
        ip.get_mut(10..12)?.fill(0);
    }
    let field = frame.get_mut(transport.start + TCP_CHECKSUM..)?;
    let field = field.first_chunk_mut::<2>()?;
    // One's complement: adding the inverse takes away (RFC 1624).
    let sum = u32::from(u16::from_be_bytes(*field)) + u32::from(!tcp_bytes);
    *field = ((sum & 0xffff) + (sum >> 16)).to_be_bytes()[2..]
        .try_into()
        .ok()?;
    Some(())
}
