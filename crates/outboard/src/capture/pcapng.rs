//! Writing of capture files in the format pcapng.

use net::pcapng::{Blocks, Packet};
use std::io::{self, Write};

/// A file under way.
pub struct Writer<W> {
    file: W,
    blocks: Blocks,
}

impl<W: Write> Writer<W> {
    /// Begins a file about the interface `name`, of which at most `snap` bytes of a frame are
    /// captured.
    ///
    /// # Errors
    /// What the file says.
    pub fn new(mut file: W, application: &str, name: &str, snap: u32) -> io::Result<Self> {
        let mut blocks = Blocks::default();
        file.write_all(blocks.section(application))?;
        file.write_all(blocks.interface(name, snap))?;
        Ok(Self { file, blocks })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// What the file says.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        self.file.write_all(self.blocks.packet(packet))
    }

    /// Ends the file: `lost` frames were not captured until `time`, in nanoseconds since 1970.
    ///
    /// # Errors
    /// What the file says.
    pub fn statistics(&mut self, time: u64, lost: u64) -> io::Result<()> {
        self.file.write_all(self.blocks.statistics(time, lost))?;
        self.flush()
    }

    /// Has all that was added written.
    ///
    /// # Errors
    /// What the file says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
