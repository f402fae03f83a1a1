//! What is left to the device: checksums (7.2). A context descriptor says where a checksum lies,
//! once for all frames that have it in the same place.

use super::descriptor::{TX_CONTEXT_TCP, TX_DEXT, WORDS};
use device::offload::Checksum;

/// Offset of TCP's checksum in its header (RFC 9293).
const TCP_CHECKSUM: u16 = 16;

/// A context descriptor: the place of a checksum that runs to the frame's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// First byte that is summed.
    start: u8,
    /// The field.
    field: u8,
    tcp: bool,
}

impl Context {
    /// The context for this checksum; `None` if it lies too far behind for a descriptor.
    #[inline]
    pub fn new(checksum: Checksum) -> Option<Self> {
        Some(Self {
            start: u8::try_from(checksum.start).ok()?,
            field: u8::try_from(checksum.start.checked_add(checksum.offset)?).ok()?,
            tcp: checksum.offset == TCP_CHECKSUM,
        })
    }

    /// The descriptor's words: TUCSS, TUCSO, and TUCSE 0 for the end of the packet.
    pub fn words(self) -> [u64; WORDS] {
        let tcp = if self.tcp { TX_CONTEXT_TCP } else { 0 };
        let place = u64::from(self.start) << 32 | u64::from(self.field) << 40;
        [place, TX_DEXT | tcp]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_as_the_datasheet_lays_them_out() {
        let checksum = |start, offset| Checksum { start, offset };
        // TUCSS 34, TUCSO 50, TUCSE 0; TUCMD: TCP and DEXT.
        let tcp = Context::new(checksum(34, 16)).unwrap().words();
        assert_eq!(tcp, [0x0000_3222_0000_0000, 0x2100_0000]);
        let udp = Context::new(checksum(54, 6)).unwrap().words();
        assert_eq!(udp, [0x0000_3c36_0000_0000, 0x2000_0000]);
        assert_eq!(Context::new(checksum(240, 16)), None);
        assert_eq!(Context::new(checksum(65_535, 16)), None);
    }
}
