//! Descriptors of both directions (82574, 7.1 and 7.2; 82540, 3.2.3 and 3.3). The extended ones are
//! the 82574's alone.

/// What a received frame is, as its descriptor says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RxWriteBack {
    /// What was hashed, and the queue (7.1.6, MRQ).
    pub(crate) hashed: u32,
    /// The hash, or the checksum of the packet in its upper half.
    pub(crate) hash: u32,
    pub(crate) status: u32,
    /// As the extended descriptor has them; the other one has the upper eight bits.
    pub(crate) errors: u32,
    pub(crate) tag: u16,
    /// Bytes of the header if it was split off.
    pub(crate) header: Option<u16>,
}

/// Bits of the status (7.1.4, 7.1.6).
pub(crate) mod status {
    pub(crate) const DONE: u32 = 1 << 0;
    pub(crate) const END_OF_PACKET: u32 = 1 << 1;
    pub(crate) const VLAN: u32 = 1 << 3;
    pub(crate) const UDP_CHECKED: u32 = 1 << 4;
    pub(crate) const TCP_CHECKED: u32 = 1 << 5;
    pub(crate) const IP_CHECKED: u32 = 1 << 6;
    pub(crate) const INEXACT: u32 = 1 << 7;
}

/// Bits of the errors (7.1.6); the status has the bits below.
pub(crate) mod error {
    pub(crate) const L4_CHECKSUM: u32 = 1 << 9;
    pub(crate) const IP_CHECKSUM: u32 = 1 << 10;
}

/// Bits of an extended status word that are its status.
const STATUS_BITS: u32 = 20;
/// Of the header's length: it was split off (7.1.10).
const HEADER_SPLIT: u64 = 1 << 15;

impl RxWriteBack {
    /// Of a frame of so many bytes in one buffer, extended (7.1.6).
    pub(crate) fn extended(self, len: u16) -> [u64; 2] {
        let first = u64::from(self.hashed) | u64::from(self.hash) << 32;
        let second = u64::from(self.status)
            | u64::from(self.errors) << STATUS_BITS
            | u64::from(len) << 32
            | u64::from(self.tag) << 48;
        [first, second]
    }

    /// The same with four buffers of so many bytes each (7.1.10).
    pub(crate) fn split(self, lens: [u16; 4]) -> [u64; 4] {
        let [first, second] = self.extended(lens[0]);
        let header = match self.header {
            Some(bytes) => u64::from(bytes) | HEADER_SPLIT,
            None => 0,
        };
        let pages = u64::from(lens[1]) << 16 | u64::from(lens[2]) << 32 | u64::from(lens[3]) << 48;
        [first, second, header | pages, 0]
    }

    /// What lies in the second word of the other kind (7.1.4): length, checksum, status, errors,
    /// tag. The first word stays the buffer's address.
    pub(crate) fn legacy(self, len: u16) -> u64 {
        // Its errors are the eight bits from CE to RXE.
        let errors = u64::from(self.errors >> 4 & 0xff);
        u64::from(len)
            | u64::from(self.hash >> 16) << 16
            | u64::from(self.status & 0xff) << 32
            | errors << 40
            | u64::from(self.tag) << 48
    }
}

/// A transmit descriptor as software writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxDescriptor {
    Context(Context),
    Data(Data),
    /// DTYP is neither.
    Unknown,
}

/// A context descriptor (7.2.6): where checksums lie, and how a packet is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) ip: Place,
    pub(crate) l4: Place,
    /// The packet is TCP, not UDP.
    pub(crate) tcp: bool,
    /// The packet is IPv4.
    pub(crate) ipv4: bool,
    /// It is for packets that are cut.
    pub(crate) segment: bool,
    pub(crate) report: bool,
    pub(crate) header_len: u8,
    pub(crate) mss: u16,
    /// Bytes behind the header (PAYLEN).
    pub(crate) payload_len: u32,
}

/// Where a checksum is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first byte that is summed, and the last one; 0 for the end of the packet.
    pub(crate) start: u8,
    pub(crate) end: u16,
    /// Its field.
    pub(crate) field: u8,
}

/// A data descriptor (7.2.4, 7.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) address: u64,
    pub(crate) len: u32,
    /// It is of the kind without offloads (7.2.4).
    pub(crate) legacy: bool,
    pub(crate) end_of_packet: bool,
    pub(crate) insert_check: bool,
    pub(crate) report: bool,
    pub(crate) tag: bool,
    pub(crate) vlan: u16,
    pub(crate) segment: bool,
    pub(crate) ip_checksum: bool,
    pub(crate) l4_checksum: bool,
    /// Of a legacy descriptor: the checksum that it asks for with IC (7.2.4.4).
    pub(crate) inserts: Option<Place>,
}

const CONTEXT: u64 = 0;
const DATA: u64 = 1;
const EXTENSION: u64 = 1 << 29;

impl TxDescriptor {
    #[inline]
    pub(crate) fn read(words: [u64; 2]) -> Self {
        let second = words[1];
        if second & EXTENSION == 0 {
            return Self::Data(legacy(words));
        }
        match second >> 20 & 0xf {
            DATA => Self::Data(data(words)),
            CONTEXT => Self::Context(context(words)),
            _ => Self::Unknown,
        }
    }
}

fn legacy([address, second]: [u64; 2]) -> Data {
    let bit = |number: u32| second >> number & 1 != 0;
    Data {
        address,
        len: (second & 0xffff) as u32,
        legacy: true,
        end_of_packet: bit(24),
        insert_check: bit(25),
        report: bit(27),
        tag: bit(30),
        vlan: (second >> 48) as u16,
        segment: false,
        ip_checksum: false,
        l4_checksum: false,
        inserts: bit(26).then_some(Place {
            start: (second >> 40) as u8,
            end: 0,
            field: (second >> 16) as u8,
        }),
    }
}

fn data([address, second]: [u64; 2]) -> Data {
    let bit = |number: u32| second >> number & 1 != 0;
    Data {
        address,
        len: (second & 0xf_ffff) as u32,
        legacy: false,
        end_of_packet: bit(24),
        insert_check: bit(25),
        report: bit(27),
        tag: bit(30),
        vlan: (second >> 48) as u16,
        segment: bit(26),
        ip_checksum: bit(40),
        l4_checksum: bit(41),
        inserts: None,
    }
}

fn context([first, second]: [u64; 2]) -> Context {
    let bit = |number: u32| second >> number & 1 != 0;
    let place = |shift: u32| Place {
        start: (first >> shift) as u8,
        field: (first >> (shift + 8)) as u8,
        end: (first >> (shift + 16)) as u16,
    };
    Context {
        ip: place(0),
        l4: place(32),
        tcp: bit(24),
        ipv4: bit(25),
        segment: bit(26),
        report: bit(27),
        header_len: (second >> 40) as u8,
        mss: (second >> 48) as u16,
        payload_len: (second & 0xf_ffff) as u32,
    }
}

/// DD, which the device writes back (7.2.4.5, 7.2.7.5).
pub(crate) const TX_DONE: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_lies_where_the_datasheet_says() {
        let back = RxWriteBack {
            hashed: 1,
            hash: 0x1234_5678,
            status: status::DONE | status::END_OF_PACKET,
            errors: error::L4_CHECKSUM,
            tag: 0x123,
            header: Some(54),
        };
        let first = 0x1234_5678_0000_0001;
        assert_eq!(back.extended(0x5a5), [first, 0x0123_05a5_2000_0003]);
        let split = back.split([54, 4096, 100, 0]);
        let expected = [first, 0x0123_0036_2000_0003, 0x0000_0064_1000_8036, 0];
        assert_eq!(split, expected);
        assert_eq!(back.legacy(0x5a5), 0x0123_2003_1234_05a5);
    }

    #[test]
    fn descriptors_are_what_their_bits_say() {
        let TxDescriptor::Data(data) = TxDescriptor::read([0x1000, 0x0007_0200_6b10_05ea]) else {
            panic!("no data descriptor");
        };
        assert_eq!((data.address, data.len, data.vlan), (0x1000, 1514, 7));
        assert!(data.end_of_packet && data.insert_check && data.report && data.tag);
        assert!(!data.segment && !data.ip_checksum && data.l4_checksum && !data.legacy);
        let context = [
            0x0000_3222_0021_180e,
            1448 << 48 | 54 << 40 | 0x2700_0000 | 5000,
        ];
        let TxDescriptor::Context(context) = TxDescriptor::read(context) else {
            panic!("no context descriptor");
        };
        let place = |start, field, end| Place { start, field, end };
        assert_eq!(context.ip, place(14, 24, 33));
        assert_eq!(context.l4, place(34, 50, 0));
        assert!(context.tcp && context.ipv4 && context.segment && !context.report);
        let numbers = (context.header_len, context.mss, context.payload_len);
        assert_eq!(numbers, (54, 1448, 5000));
        let TxDescriptor::Data(data) = TxDescriptor::read([0, 0x0009_2200_4f32_003c]) else {
            panic!("no data descriptor");
        };
        assert!(data.legacy && data.tag && data.end_of_packet);
        assert_eq!((data.len, data.vlan), (60, 9));
        assert_eq!(data.inserts, Some(place(0x22, 0x32, 0)));
        assert_eq!(TxDescriptor::read([0, 0x2040_0000]), TxDescriptor::Unknown);
    }
}
