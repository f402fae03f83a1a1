//! A segment on its way to the layer below, and its checksum.

use super::connection::Limits;
use super::identity::Ends;
use super::segment::{CHECKSUM, HEADER_SIZE, Segment};
use crate::address::pseudo_sum;
use crate::layer::{Filled, Unsent};
use core::net::IpAddr;
use device::{Checksum, Gso, GsoKind, Offload, checksum};

/// Protocol number of TCP.
pub const PROTOCOL: u8 = 6;

/// What TCP needs of the layer below.
pub trait Below {
    /// Our address towards `remote`; `None` if no route leads there.
    fn source(&self, remote: IpAddr) -> Option<IpAddr>;

    /// How large segments between these addresses may be, ours and the peer's, TCP's header
    /// included.
    fn limits(&self, local: IpAddr, remote: IpAddr) -> Limits;

    /// Sends a segment of at most `size` bytes, which `fill` writes.
    ///
    /// # Errors
    /// If it does not leave.
    fn send(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent>;
}

/// The MSS that we tell (RFC 6691).
pub(super) fn mss(limits: Limits) -> u16 {
    let mss = limits.segment.saturating_sub(HEADER_SIZE as u32);
    u16::try_from(mss).unwrap_or(u16::MAX)
}

/// Sends `segment` with its payload, in pieces of `full` bytes if it is longer.
pub(super) fn send(
    below: &mut impl Below,
    ends: &Ends,
    segment: &Segment,
    full: u32,
    payload: impl FnOnce(&mut [u8]),
) -> Result<(), Unsent> {
    let (from, to) = (ends.local().ip(), ends.remote().ip());
    let size = segment.header_size() + segment.len as usize;
    below.send(from, to, size, |place| {
        let header = segment.emit(place);
        payload(&mut place[header..size]);
        // The port completes it (virtio 1.2, 5.1.6.2).
        let sum = checksum::fold(pseudo_sum(from, to, PROTOCOL, size));
        place[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
        let gso = (segment.len > full).then_some(Gso {
            kind: if to.is_ipv4() {
                GsoKind::TcpV4
            } else {
                GsoKind::TcpV6
            },
            // An MSS, and a header of at most 60 bytes.
            size: full as u16,
            header: header as u16,
            ecn: false,
        });
        Filled {
            len: size,
            offload: Offload {
                checksum: Some(Checksum {
                    start: 0,
                    offset: CHECKSUM as u16,
                }),
                gso,
            },
        }
    })
}

/// Whether the checksum of a segment is right.
pub(super) fn is_right(source: IpAddr, destination: IpAddr, bytes: &[u8]) -> bool {
    let sum = pseudo_sum(source, destination, PROTOCOL, bytes.len()) + checksum::sum(bytes);
    checksum::fold(sum) == u16::MAX
}
