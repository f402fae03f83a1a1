//! Writing of capture files (draft-ietf-opsawg-pcapng-03): one section, one interface.

use std::io::{self, Write};

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

/// A file under way.
pub struct Writer<W> {
    file: W,
    /// The block that is being made.
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file about the interface `name`, of which at most `snap` bytes of a frame are
    /// captured.
    ///
    /// # Errors
    /// What the file says.
    pub fn new(file: W, application: &str, name: &str, snap: u32) -> io::Result<Self> {
        let block = Vec::new();
        let mut writer = Self { file, block };
        writer.begin(code::SECTION_HEADER);
        writer.u32(BYTE_ORDER_MAGIC);
        writer.u16(VERSION.0);
        writer.u16(VERSION.1);
        writer.block.extend(UNKNOWN_LENGTH.to_le_bytes());
        writer.option(code::SHB_USERAPPL, application.as_bytes());
        writer.end()?;
        writer.begin(code::INTERFACE_DESCRIPTION);
        writer.u16(ETHERNET);
        writer.u16(0);
        writer.u32(snap);
        writer.option(code::IF_NAME, name.as_bytes());
        writer.option(code::IF_TSRESOL, &[NANOSECONDS]);
        writer.end()?;
        Ok(writer)
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// What the file says.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
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

    /// Ends the file: `lost` frames were not captured until `time`, in nanoseconds since 1970.
    ///
    /// # Errors
    /// What the file says.
    pub fn statistics(&mut self, time: u64, lost: u64) -> io::Result<()> {
        self.begin(code::INTERFACE_STATISTICS);
        self.u32(INTERFACE);
        self.time(time);
        self.option(code::ISB_IFDROP, &lost.to_le_bytes());
        self.end()?;
        self.flush()
    }

    /// Has all that was added written.
    ///
    /// # Errors
    /// What the file says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Begins a block (3.1): its type, and room for its length.
    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.u32(kind);
        self.u32(0);
    }

    /// Ends a block, whose last field is an option, and writes it.
    fn end(&mut self) -> io::Result<()> {
        // opt_endofopt (3.5) has code and length 0.
        self.u32(0);
        let length = self.block.len() as u32 + 4;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.u32(length);
        self.file.write_all(&self.block)
    }

    fn u16(&mut self, number: u16) {
        self.block.extend(number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.block.extend(number.to_le_bytes());
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
        self.block.extend_from_slice(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_parser::traits::PcapReaderIterator;
    use pcap_parser::{Block, OptionCode, PcapNGOption, PcapNGReader};

    fn value<'a>(options: &'a [PcapNGOption<'_>], code: OptionCode) -> Option<&'a [u8]> {
        let option = options.iter().find(|option| option.code == code)?;
        Some(&option.value[..usize::from(option.len)])
    }

    /// What a parser that is not ours says of each block.
    fn read(file: &[u8]) -> Vec<String> {
        let mut reader = PcapNGReader::new(1 << 17, file).unwrap();
        let mut blocks = Vec::new();
        while let Ok((offset, block)) = reader.next() {
            let pcap_parser::PcapBlockOwned::NG(block) = block else {
                panic!("not pcapng");
            };
            blocks.push(match block {
                Block::SectionHeader(header) => {
                    let application = value(&header.options, OptionCode(4)).unwrap();
                    format!("section by {}", String::from_utf8_lossy(application))
                }
                Block::InterfaceDescription(interface) => format!(
                    "interface {} link {} snap {} resolution {}",
                    String::from_utf8_lossy(value(&interface.options, OptionCode::IfName).unwrap()),
                    interface.linktype.0,
                    interface.snaplen,
                    interface.if_tsresol,
                ),
                Block::EnhancedPacket(packet) => {
                    let comment = value(&packet.options, OptionCode::Comment);
                    format!(
                        "packet at {} {:?} of {} flags {:?} {}",
                        u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                        &packet.data[..packet.caplen as usize],
                        packet.origlen,
                        value(&packet.options, OptionCode(2)).unwrap(),
                        String::from_utf8_lossy(comment.unwrap_or_default()),
                    )
                }
                Block::InterfaceStatistics(statistics) => format!(
                    "statistics lost {:?}",
                    value(&statistics.options, OptionCode(5)).unwrap()
                ),
                other => panic!("{other:?}"),
            });
            reader.consume(offset);
        }
        blocks
    }

    #[test]
    fn another_parser_reads_what_was_written() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "outboard 1", "private", 64).unwrap();
        let mut packet = Packet {
            time: 1_800_000_000_123_456_789,
            outbound: false,
            length: 3,
            bytes: b"abc",
            comment: "",
        };
        writer.packet(&packet).unwrap();
        packet.outbound = true;
        packet.comment = "dropped";
        packet.length = 99;
        writer.packet(&packet).unwrap();
        writer.statistics(5, 258).unwrap();
        assert_eq!(
            read(&file),
            [
                "section by outboard 1",
                "interface private link 1 snap 64 resolution 9",
                "packet at 1800000000123456789 [97, 98, 99] of 3 flags [1, 0, 0, 0] ",
                "packet at 1800000000123456789 [97, 98, 99] of 99 flags [2, 0, 0, 0] dropped",
                "statistics lost [2, 1, 0, 0, 0, 0, 0, 0]",
            ]
        );
    }

    #[test]
    fn every_length_is_padded() {
        for length in 0..9 {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file, "x", "y", 9).unwrap();
            let comment = "c".repeat(length);
            let bytes = vec![7; length];
            let packet = Packet {
                time: 1,
                outbound: false,
                length: 9,
                bytes: &bytes,
                comment: &comment,
            };
            writer.packet(&packet).unwrap();
            let expected = format!("packet at 1 {bytes:?} of 9 flags [1, 0, 0, 0] {comment}");
            assert_eq!(read(&file)[2], expected);
        }
    }
}
