//! Packets of IPv4 that are cut into fragments (RFC 791, 2.3 and 3.2).

use device::Frame;
use device::checksum;
use device::ethernet::HEADER_SIZE;

/// Bytes of a header without options.
const FIXED: usize = 20;
/// More fragments follow.
const MORE: u16 = 0x2000;
/// Where in its packet a fragment begins, in units of eight bytes.
const OFFSET: u16 = 0x1fff;
/// An option that is copied into all fragments.
const COPIED: u8 = 0x80;
/// The end of options, and one that does nothing.
const END: u8 = 0;
const NOTHING: u8 = 1;

/// A packet that is being cut.
pub struct Pieces<'a> {
    frame: &'a Frame,
    /// Bytes of the packet's header.
    header: usize,
    /// Bytes of the packet.
    total: usize,
    /// Payload bytes of all fragments but the last.
    most: usize,
    /// Payload bytes that are in fragments already.
    done: usize,
}

/// Begins to cut the packet in a frame so that each fragment has `mtu` bytes at most. The checksum
/// of its transport header is completed before. `None` if it is no packet, or if no fragment has
/// room for eight bytes.
pub fn cut(frame: &mut Frame, mtu: usize) -> Option<Pieces<'_>> {
    let offload = frame.offload();
    offload.complete_checksum(frame.bytes_mut());
    let packet = frame.bytes().get(HEADER_SIZE..)?;
    let fixed: &[u8; FIXED] = packet.first_chunk()?;
    let header = 4 * usize::from(fixed[0] & 0xf);
    let total: usize = u16::from_be_bytes([fixed[2], fixed[3]]).into();
    let most = mtu.checked_sub(header)? & !7;
    let is_whole = header >= FIXED && header < total && total <= packet.len();
    (is_whole && most > 0).then_some(Pieces {
        frame,
        header,
        total,
        most,
        done: 0,
    })
}

impl Pieces<'_> {
    /// The next fragment, in a frame that `alloc` gives; `Some(None)` if that gives none.
    pub fn next(&mut self, alloc: impl FnOnce(usize) -> Option<Frame>) -> Option<Option<Frame>> {
        let payload = self.total - self.header;
        let len = (payload - self.done).min(self.most);
        if len == 0 {
            return None;
        }
        let Some(mut piece) = alloc(HEADER_SIZE + self.header + len) else {
            return Some(None);
        };
        let from = self.frame.bytes();
        let front = HEADER_SIZE + self.header;
        let place = piece.bytes_mut();
        place[..front].copy_from_slice(&from[..front]);
        place[front..].copy_from_slice(&from[front + self.done..][..len]);
        let header = &mut place[HEADER_SIZE..front];
        if self.done > 0 {
            keep_copied(&mut header[FIXED..]);
        }
        let was = u16::from_be_bytes([header[6], header[7]]);
        let more = was & MORE != 0 || self.done + len < payload;
        let offset = (was & OFFSET) + (self.done / 8) as u16;
        let flags = (was & !(MORE | OFFSET)) | if more { MORE } else { 0 } | (offset & OFFSET);
        header[2..4].copy_from_slice(&((self.header + len) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[10..12].fill(0);
        checksum::complete(header, 0, 10);
        self.done += len;
        Some(Some(piece))
    }
}

/// Makes options nothing that only the first fragment has.
fn keep_copied(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            END => return,
            NOTHING => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)),
        };
        let end = at + len;
        if len == 0 || end > options.len() {
            return;
        }
        if kind & COPIED == 0 {
            options[at..end].fill(NOTHING);
        }
        at = end;
    }
}
