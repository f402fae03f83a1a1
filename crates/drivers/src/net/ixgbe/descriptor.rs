//! Descriptors: two words of 64 bits each, as numbers (7.1.6, 7.2.3.2).

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

/// Bytes that the device may write into a buffer, for an MTU of 1500 (SRRCTL.BSIZEPACKET).
pub const RX_BUFFER_BYTES: usize = 2048;

/// 7.1.6.1: packet buffer address. Word 1 is the header buffer's address, and none.
pub const RX_ADDRESS: usize = 0;
/// 7.1.6.2: what kind of packet it is, once the device has written that.
pub const RX_PACKET: usize = 0;
/// RSCCNT, 4 bits from here: 0 for a frame as it came, otherwise one more than the number of
/// coalesced frames, as far as that goes.
pub const RX_PACKET_RSCCNT_SHIFT: u32 = 17;
/// 7.1.6.2: status, errors, length and tag, once the device has written them.
pub const RX_STATUS: usize = 1;
/// Descriptor done.
pub const RX_DD: u64 = 1 << 0;
/// End of packet.
pub const RX_EOP: u64 = 1 << 1;
/// MAC error: only where bad frames are stored.
pub const RX_RXE: u64 = 1 << 29;
/// Checksum of TCP or UDP is wrong.
pub const RX_L4E: u64 = 1 << 30;
/// Checksum of the IP header is wrong.
pub const RX_IPE: u64 = 1 << 31;
/// Length in bytes, 16 bits from here.
pub const RX_LENGTH_SHIFT: u32 = 32;

/// How many frames were made one; 0 and 1 mean that none were.
#[inline]
pub fn packets(packet: u64) -> usize {
    ((packet >> RX_PACKET_RSCCNT_SHIFT & 0xf) as usize).saturating_sub(1)
}

/// What a frame is that is not plainly good.
pub enum Examined {
    /// Passed on: a wrong checksum is for the receiver to see, as on a cable.
    BadChecksum,
    /// Dropped; the buffer is offered again.
    Bad,
    /// The device cannot have written that.
    Lie,
}

/// What a frame is that is not plainly good, by the status word of its descriptor.
#[cold]
pub fn examine(status: u64, packets: usize) -> Examined {
    // Without the end of the packet there is a second buffer, which none needs.
    if status & RX_EOP == 0 {
        Examined::Lie
    } else if status & RX_RXE != 0 || packets > 1 {
        // The checksum of what was coalesced is made anew, and would vouch for what is wrong.
        Examined::Bad
    } else {
        Examined::BadChecksum
    }
}

/// 7.2.3.2.4: buffer address.
pub const TX_ADDRESS: usize = 0;
/// 7.2.3.2.4 and 7.2.3.2.3: everything else.
pub const TX_COMMAND: usize = 1;
/// Advanced context descriptor.
pub const TX_DTYP_CONTEXT: u64 = 2 << 20;
/// Advanced data descriptor.
pub const TX_DTYP_DATA: u64 = 3 << 20;
/// End of packet.
pub const TX_EOP: u64 = 1 << 24;
/// A checksum is appended to the frame.
pub const TX_IFCS: u64 = 1 << 25;
/// Report when done.
pub const TX_RS: u64 = 1 << 27;
/// An advanced descriptor.
pub const TX_DEXT: u64 = 1 << 29;
/// To be cut into segments.
pub const TX_TSE: u64 = 1 << 31;
/// Done: what a report sets.
pub const TX_DD: u64 = 1 << 32;
/// The IP header's checksum is to be completed.
pub const TX_IXSM: u64 = 1 << 40;
/// The checksum of TCP or UDP is to be completed.
pub const TX_TXSM: u64 = 1 << 41;
/// Length of the payload, 18 bits from here.
pub const TX_PAYLEN_SHIFT: u32 = 46;

/// 7.2.3.2.3, word 0: length of the IP header from bit 0, of the link header from here.
pub const CONTEXT_MACLEN_SHIFT: u32 = 9;
/// Word 1: IPv4.
pub const CONTEXT_IPV4: u64 = 1 << 10;
/// TCP; UDP without.
pub const CONTEXT_TCP: u64 = 1 << 11;
/// Length of the TCP header.
pub const CONTEXT_L4LEN_SHIFT: u32 = 40;
/// Payload of a segment.
pub const CONTEXT_MSS_SHIFT: u32 = 48;
