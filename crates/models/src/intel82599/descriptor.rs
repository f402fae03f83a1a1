//! Descriptors of both directions (datasheet, 7.1.6 and 7.2.3.2).

/// What a received frame is, as its descriptor says it (7.1.6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RxWriteBack {
    pub(crate) packet_type: u32,
    /// RSCCNT: 0 for a packet that came alone, else one more than were joined.
    pub(crate) coalesced: u8,
    pub(crate) status: u32,
    pub(crate) errors: u32,
    pub(crate) len: u16,
    pub(crate) tag: u16,
}

/// Bits of the packet type, which begins at bit 4 of the first word (7.1.6.2).
pub(crate) mod packet_type {
    use crate::packet::headers::Ip;

    pub(crate) const IPV4: u32 = 1 << 0;
    pub(crate) const IPV4_OPTIONS: u32 = 1 << 1;
    pub(crate) const IPV6: u32 = 1 << 2;
    pub(crate) const IPV6_EXTENDED: u32 = 1 << 3;
    pub(crate) const TCP: u32 = 1 << 4;
    pub(crate) const UDP: u32 = 1 << 5;
    pub(crate) const SCTP: u32 = 1 << 6;

    /// What an IP packet is, but for its payload.
    pub(crate) fn of(ip: &Ip) -> u32 {
        match (ip.v6, ip.extended) {
            (false, false) => IPV4,
            (false, true) => IPV4_OPTIONS,
            (true, false) => IPV6,
            (true, true) => IPV6_EXTENDED,
        }
    }
}

/// Bits of the extended status (7.1.6.2).
pub(crate) mod status {
    pub(crate) const DONE: u32 = 1 << 0;
    pub(crate) const END_OF_PACKET: u32 = 1 << 1;
    pub(crate) const VLAN: u32 = 1 << 3;
    pub(crate) const L4_CHECKED: u32 = 1 << 5;
    pub(crate) const IP_CHECKED: u32 = 1 << 6;
    pub(crate) const INEXACT: u32 = 1 << 7;
}

/// Bits of the extended errors (7.1.6.2).
pub(crate) mod error {
    pub(crate) const L4_CHECKSUM: u32 = 1 << 10;
    pub(crate) const IP_CHECKSUM: u32 = 1 << 11;
}

impl RxWriteBack {
    pub(crate) fn words(self) -> [u64; 2] {
        let first = u64::from(self.packet_type) << 4 | u64::from(self.coalesced & 0xf) << 17;
        let second = u64::from(self.status)
            | u64::from(self.errors) << 20
            | u64::from(self.len) << 32
            | u64::from(self.tag) << 48;
        [first, second]
    }
}

/// A transmit descriptor as software writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxDescriptor {
    Context(Context),
    Data(Data),
    /// DEXT is clear (7.2.3.2.2).
    Legacy,
    /// DTYP is neither.
    Unknown,
}

/// An advanced context descriptor (7.2.3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) index: u8,
    pub(crate) ip_len: u16,
    pub(crate) mac_len: u8,
    pub(crate) tag: u16,
    pub(crate) ipv4: bool,
    /// 0 is UDP, 1 TCP, 2 SCTP.
    pub(crate) l4_type: u8,
    pub(crate) l4_len: u8,
    pub(crate) mss: u16,
    /// Bits that must be zero and are not.
    pub(crate) reserved: bool,
}

/// An advanced data descriptor (7.2.3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) address: u64,
    pub(crate) len: u16,
    pub(crate) end_of_packet: bool,
    pub(crate) insert_check: bool,
    pub(crate) report: bool,
    pub(crate) tag: bool,
    pub(crate) segment: bool,
    pub(crate) context: u8,
    pub(crate) ip_checksum: bool,
    pub(crate) l4_checksum: bool,
    pub(crate) payload_len: u32,
    /// Bits that must be zero and are not.
    pub(crate) reserved: bool,
}

impl Data {
    /// Whether it can be written back as late as its packet is sent.
    pub(crate) fn may_wait(&self) -> bool {
        self.end_of_packet || !self.report
    }
}

const CONTEXT: u64 = 0b0010;
const DATA: u64 = 0b0011;
const EXTENSION: u64 = 1 << 29;

/// Bits of the second word of a context descriptor that mean something here: TUCMD (SNAP,
/// IPV4, L4T), DTYP, DEXT, IDX, L4LEN, MSS.
const CONTEXT_BITS: u64 = 0xf << 9 | 0xf << 20 | EXTENSION | 0x7 << 36 | 0xff << 40 | 0xffff << 48;
/// The same of a data descriptor: DTALEN, DTYP, EOP, IFCS, RS, DEXT, VLE, TSE, IDX, CC, IXSM, TXSM,
/// PAYLEN.
const DATA_BITS: u64 =
    0xffff | 0xf << 20 | 0xeb << 24 | 0x7 << 36 | 1 << 39 | 3 << 40 | 0x3_ffff << 46;

impl TxDescriptor {
    #[inline]
    pub(crate) fn read([first, second]: [u64; 2]) -> Self {
        let bit = |number: u32| second >> number & 1 != 0;
        if second & EXTENSION == 0 {
            return Self::Legacy;
        }
        match second >> 20 & 0xf {
            DATA => Self::Data(Data {
                address: first,
                len: second as u16,
                end_of_packet: bit(24),
                insert_check: bit(25),
                report: bit(27),
                tag: bit(30),
                segment: bit(31),
                context: (second >> 36 & 7) as u8,
                ip_checksum: bit(40),
                l4_checksum: bit(41),
                payload_len: (second >> 46) as u32,
                reserved: second & !DATA_BITS != 0,
            }),
            CONTEXT => Self::Context(Context {
                index: (second >> 36 & 7) as u8,
                ip_len: (first & 0x1ff) as u16,
                mac_len: (first >> 9 & 0x7f) as u8,
                tag: (first >> 16) as u16,
                ipv4: bit(10),
                l4_type: (second >> 11 & 3) as u8,
                l4_len: (second >> 40) as u8,
                mss: (second >> 48) as u16,
                reserved: second & !CONTEXT_BITS != 0 || first >> 32 != 0,
            }),
            _ => Self::Unknown,
        }
    }
}

/// What the device writes back (7.2.3.2.4): done, and nothing of what software wrote.
pub(crate) const TX_WRITE_BACK: [u64; 2] = [0, 1 << 32];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_lies_where_the_datasheet_says() {
        let back = RxWriteBack {
            packet_type: packet_type::IPV4 | packet_type::UDP,
            status: status::DONE | status::END_OF_PACKET,
            errors: error::L4_CHECKSUM,
            len: 0x5a5,
            tag: 0x123,
            coalesced: 12,
        };
        assert_eq!(back.words(), [0x18_0210, 0x0123_05a5_4000_0003]);
    }

    #[test]
    fn descriptors_are_what_their_bits_say() {
        let TxDescriptor::Data(data) = TxDescriptor::read([0x1000, 60 << 46 | 0x2b30_003c]) else {
            panic!("no data descriptor");
        };
        assert_eq!((data.address, data.len, data.payload_len), (0x1000, 60, 60));
        assert!(data.end_of_packet && data.insert_check && data.report && !data.reserved);
        assert!(!data.tag && !data.segment && !data.ip_checksum && !data.l4_checksum);
        let context = [
            20 | 14 << 9 | 0x64 << 16,
            1448 << 48 | 20 << 40 | 0x2020_0c00,
        ];
        let TxDescriptor::Context(context) = TxDescriptor::read(context) else {
            panic!("no context descriptor");
        };
        assert_eq!(
            (context.ip_len, context.mac_len, context.tag),
            (20, 14, 0x64)
        );
        assert_eq!(
            (context.l4_len, context.mss, context.l4_type),
            (20, 1448, 1)
        );
        assert!(context.ipv4 && !context.reserved);
        assert_eq!(TxDescriptor::read([0, 0x0b00_003c]), TxDescriptor::Legacy);
        assert_eq!(TxDescriptor::read([0, 0x2040_0000]), TxDescriptor::Unknown);
    }
}
