//! Descriptors: two 64-bit words each, as numbers.
//!
//! Received frames come in extended descriptors (7.1): all that the device says of a frame lies
//! in one word, so that one load reads it. Frames to be sent take extended data descriptors
//! (7.2), which are the ones that can have a checksum inserted; see `offload`.

use device::ethernet::HEADER_SIZE;

/// Words of a descriptor.
pub const WORDS: usize = 2;
/// The word of a receive descriptor that the device writes status and length into, and of a
/// transmit descriptor that it writes the status into.
pub const STATUS_WORD: usize = 1;

/// Bytes that the device may write into a buffer (RCTL.BSIZE).
pub const RX_BUFFER_BYTES: usize = 2048;

/// Descriptor done.
pub const RX_DD: u64 = 1 << 0;
/// End of packet.
const RX_EOP: u64 = 1 << 1;
/// Errors of the frame itself: CRC, symbol, sequence, carrier extension, data. Those of IP and TCP
/// checksums (bits 29 and 30) are no business of a port's.
const RX_ERRORS: u64 = 1 << 24 | 1 << 25 | 1 << 26 | 1 << 28 | 1 << 31;
const RX_LENGTH_SHIFT: u32 = 32;

/// What a device says of a receive descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Not done yet.
    Pending,
    /// A frame of so many bytes: at least an Ethernet header, at most [`RX_BUFFER_BYTES`].
    Frame(usize),
    /// A bad frame.
    Error,
    /// Something that cannot be: more bytes than the buffer has, fewer than a header, or a frame
    /// that goes on in the next buffer, though longer ones are discarded.
    Lie,
}

/// Reads the status word of a receive descriptor.
#[inline]
pub fn received(word: u64) -> Received {
    let length = usize::from((word >> RX_LENGTH_SHIFT) as u16);
    if word & RX_DD == 0 {
        Received::Pending
    } else if word & RX_EOP == 0 || !(HEADER_SIZE..=RX_BUFFER_BYTES).contains(&length) {
        Received::Lie
    } else if word & RX_ERRORS != 0 {
        Received::Error
    } else {
        Received::Frame(length)
    }
}

/// Extended descriptor, and data rather than context.
pub const TX_DEXT: u64 = 1 << 29;
const TX_DTYP_DATA: u64 = 1 << 20;
/// End of packet.
const TX_EOP: u64 = 1 << 24;
/// Insert the checksum of the frame.
const TX_IFCS: u64 = 1 << 25;
/// In a context: the packet is TCP, so that a sum of 0 is not sent as ones.
pub const TX_CONTEXT_TCP: u64 = 1 << 24;
/// Report status: write the descriptor back.
pub const TX_RS: u64 = 1 << 27;
/// Descriptor done.
pub const TX_DD: u64 = 1 << 32;
/// Insert the checksum that the context describes.
const TX_TXSM: u64 = 1 << 41;

/// The second word of a data descriptor for `length` bytes, below 2^20, of a frame.
#[inline]
pub fn data(length: usize, is_last: bool, checksum: bool) -> u64 {
    let end = if is_last { TX_EOP } else { 0 };
    let insert = if checksum { TX_TXSM } else { 0 };
    length as u64 | TX_DTYP_DATA | TX_DEXT | TX_IFCS | end | insert
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: u64 = RX_DD | RX_EOP;

    #[test]
    fn what_a_device_says_of_a_frame_is_checked() {
        let length = |bytes: u64| bytes << RX_LENGTH_SHIFT;
        assert_eq!(received(0), Received::Pending);
        assert_eq!(received(length(60) | RX_EOP), Received::Pending);
        assert_eq!(received(DONE | length(60)), Received::Frame(60));
        assert_eq!(received(DONE | length(2048)), Received::Frame(2048));
        // A VLAN tag and bad checksums of IP and TCP change nothing.
        let more = 0xffff << 48 | 1 << 29 | 1 << 30 | 1 << 3;
        assert_eq!(received(DONE | length(1514) | more), Received::Frame(1514));
        for bit in [24, 25, 26, 28, 31] {
            assert_eq!(received(DONE | length(60) | 1 << bit), Received::Error);
        }
        let lengths = [0, 13, 2049].map(|bytes| DONE | length(bytes));
        for lie in lengths.into_iter().chain([RX_DD | length(60), u64::MAX]) {
            assert_eq!(received(lie), Received::Lie, "{lie:#x}");
        }
    }

    #[test]
    fn descriptors_to_be_sent_are_as_the_datasheet_lays_them_out() {
        // DTYP 1, DCMD: EOP, IFCS and DEXT; POPTS: TXSM.
        assert_eq!(data(1514, true, false), 0x0000_0000_2310_05ea);
        assert_eq!(data(60, true, true), 0x0000_0200_2310_003c);
        assert_eq!(data(60, false, false), 0x0000_0000_2210_003c);
        let word = data(60, true, true) | TX_RS;
        assert!(word & TX_DD == 0 && TX_DD == 1 << 32);
    }
}
