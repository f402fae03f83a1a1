//! Blocks of capture files (draft-ietf-opsawg-pcapng-03): one section, one interface.

use alloc::vec::Vec;

/// Types of blocks and codes of options, with the draft's sections.
mod code {
    pub const SECTION_HEADER: u32 = 0x0a0d_0d0a; // 4.1
    pub const INTERFACE_DESCRIPTION: u32 = 1; // 4.2
    pub const INTERFACE_STATISTICS: u32 = 5; // 4.6
    pub const ENHANCED_PACKET: u32 = 6; // 4.3
    pub const COMMENT: u16 = 1; // 3.5.1
    pub const SHB_USERAPPL: u16 = 4; // 4.1
    pub const IF_NAME: u16 = 2; // 4.2
    pub const IF_TSRESOL: u16 = 9; // 4.2
    pub const EPB_FLAGS: u16 = 2; // 4.3
    pub const ISB_IFDROP: u16 = 5; // 4.6
}
/// Tells readers how numbers are written (4.1).
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Version of the format (4.1).
const VERSION: (u16, u16) = (1, 0);
/// The section's length is not known (4.1).
const UNKNOWN_LENGTH: i64 = -1;
/// LINKTYPE_ETHERNET of <https://www.tcpdump.org/linktypes.html>.
const ETHERNET: u16 = 1;
/// Timestamps count 10^-9 s (if_tsresol, 4.2).
const NANOSECONDS: u8 = 9;
/// Inbound and outbound, as in the flags of an enhanced packet block (4.3.1).
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// The one interface.
const INTERFACE: u32 = 0;

/// A captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Whether it was transmitted, and not received.
    pub outbound: bool,
    /// Bytes that it had.
    pub length: u32,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// What there is to say about it; nothing if empty.
    pub comment: &'a str,
}

/// Makes one block after the other, in the same memory.
#[derive(Default)]
pub struct Blocks(Vec<u8>);

impl Blocks {
    /// The first block: a section, by this `application`.
    pub fn section(&mut self, application: &str) -> &[u8] {
        self.begin(code::SECTION_HEADER);
        self.u32(BYTE_ORDER_MAGIC);
        self.u16(VERSION.0);
        self.u16(VERSION.1);
        self.0.extend(UNKNOWN_LENGTH.to_le_bytes());
        self.option(code::SHB_USERAPPL, application.as_bytes());
        self.end()
    }

    /// The second block: the interface `name`, of which at most `snap` bytes of a frame are
    /// captured; all, if that is zero.
    pub fn interface(&mut self, name: &str, snap: u32) -> &[u8] {
        self.begin(code::INTERFACE_DESCRIPTION);
        self.u16(ETHERNET);
        self.u16(0);
        self.u32(snap);
        self.option(code::IF_NAME, name.as_bytes());
        self.option(code::IF_TSRESOL, &[NANOSECONDS]);
        self.end()
    }

    /// A frame.
    pub fn packet(&mut self, packet: &Packet<'_>) -> &[u8] {
        let direction = if packet.outbound { OUTBOUND } else { INBOUND };
        self.begin(code::ENHANCED_PACKET);
        self.u32(INTERFACE);
        self.time(packet.time);
        self.u32(packet.bytes.len() as u32);
        self.u32(packet.length);
        self.padded(packet.bytes);
        if !packet.comment.is_empty() {
            self.option(code::COMMENT, packet.comment.as_bytes());
        }
        self.option(code::EPB_FLAGS, &direction.to_le_bytes());
        self.end()
    }

    /// The last block: `lost` frames were not captured until `time`, in nanoseconds since 1970.
    pub fn statistics(&mut self, time: u64, lost: u64) -> &[u8] {
        self.begin(code::INTERFACE_STATISTICS);
        self.u32(INTERFACE);
        self.time(time);
        self.option(code::ISB_IFDROP, &lost.to_le_bytes());
        self.end()
    }

    /// Begins a block (3.1): its type, and room for its length.
    fn begin(&mut self, kind: u32) {
        self.0.clear();
        self.u32(kind);
        self.u32(0);
    }

    /// Ends a block, whose last field is an option.
    fn end(&mut self) -> &[u8] {
        // opt_endofopt (3.5) has code and length 0.
        self.u32(0);
        let length = self.0.len() as u32 + 4;
        self.0[4..8].copy_from_slice(&length.to_le_bytes());
        self.u32(length);
        &self.0
    }

    fn u16(&mut self, number: u16) {
        self.0.extend(number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    /// The upper half first (4.3).
    fn time(&mut self, time: u64) {
        self.u32((time >> 32) as u32);
        self.u32(time as u32);
    }

    /// An option (3.5). Values longer than its length can say are cut.
    fn option(&mut self, code: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.u16(code);
        self.u16(length);
        self.padded(&value[..usize::from(length)]);
    }

    /// Fields end at a multiple of 4 bytes, and so begin at one.
    fn padded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}
