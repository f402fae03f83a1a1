//! A capture that is played in, and one that is written of what is sent.

use super::{Offload, Wire};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::time::SystemTime;

/// Longest block of a capture, in bytes.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Largest capture that is played, in bytes of frames: it is held in memory.
const CAPTURE_BYTES_MAX: usize = 1 << 30;
/// Most interfaces of a section.
const INTERFACES_MAX: usize = 4096;

/// Why a capture cannot be played.
#[derive(Debug)]
pub enum PcapFault {
    /// It cannot be read or written.
    File(io::Error),
    /// It is no capture.
    Format,
    /// It breaks off, or is damaged, behind this many packets.
    Damaged(usize),
    /// A packet is no whole Ethernet frame; its number.
    NoFrame(usize),
    /// It has too many bytes or interfaces.
    TooLarge,
}

impl fmt::Display for PcapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::Format => f.write_str("neither pcap nor pcapng; tcpdump -w writes such files"),
            Self::Damaged(packets) => write!(f, "damaged or cut off behind packet {packets}"),
            Self::NoFrame(packet) => write!(
                f,
                "packet {packet} is no whole Ethernet frame; capture on one interface, with -s 0"
            ),
            Self::TooLarge => write!(
                f,
                "more than {} MiB of frames, or {INTERFACES_MAX} interfaces; play a part of it",
                CAPTURE_BYTES_MAX >> 20
            ),
        }
    }
}

impl std::error::Error for PcapFault {}

impl From<io::Error> for PcapFault {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// Plays one capture once, and writes another.
#[derive(Debug)]
pub struct Pcap {
    frames: Vec<Vec<u8>>,
    next: usize,
    out: Option<BufWriter<File>>,
}

impl Pcap {
    /// Opens the capture to be played and makes the one to be written, in the format pcap.
    ///
    /// # Errors
    /// If a file cannot be used.
    pub fn open(play: Option<&Path>, record: Option<&Path>) -> Result<Self, PcapFault> {
        let frames = match play {
            Some(path) => read(File::open(path)?)?,
            None => Vec::new(),
        };
        let out = record.map(create).transpose()?;
        Ok(Self {
            frames,
            next: 0,
            out,
        })
    }

    /// Whether all of the capture was played.
    pub fn is_over(&self) -> bool {
        self.next == self.frames.len()
    }
}

impl Wire for Pcap {
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        Some((self.frames.get(self.next)?, Offload::default()))
    }

    fn take(&mut self) {
        self.next = self.frames.len().min(self.next + 1);
    }

    fn send(&mut self, frame: &[u8], _: Offload) {
        if let Some(out) = &mut self.out
            && write_packet(out, frame).is_err()
        {
            // The disk is full, or the file is gone: the capture ends here.
            self.out = None;
        }
    }

    fn flush(&mut self) {
        if self.out.as_mut().is_some_and(|out| out.flush().is_err()) {
            self.out = None;
        }
    }
}

/// All frames of a capture.
fn read(source: impl Read + Send) -> Result<Vec<Vec<u8>>, PcapFault> {
    let mut reader = create_reader(BLOCK_BYTES_MAX, source).map_err(|_| PcapFault::Format)?;
    let mut frames = Frames::default();
    loop {
        let packets = frames.frames.len();
        match reader.next() {
            Ok((size, block)) => {
                frames.visit(block)?;
                reader.consume(size);
            }
            Err(PcapError::Eof) => return Ok(frames.frames),
            Err(PcapError::Incomplete(_)) => {
                let before = reader.data().len();
                reader.refill().map_err(|_| PcapFault::Damaged(packets))?;
                if reader.data().len() == before && !reader.reader_exhausted() {
                    return Err(PcapFault::Damaged(packets));
                }
            }
            Err(_) => return Err(PcapFault::Damaged(packets)),
        }
    }
}

#[derive(Default)]
struct Frames {
    frames: Vec<Vec<u8>>,
    bytes: usize,
    interfaces: Vec<Linktype>,
}

impl Frames {
    fn visit(&mut self, block: PcapBlockOwned<'_>) -> Result<(), PcapFault> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => self.interface(header.network),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                Ok(())
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.interface(interface.linktype)
            }
            PcapBlockOwned::Legacy(packet) => {
                let bytes = packet.data.get(..packet.caplen as usize);
                self.frame(0, bytes.unwrap_or_default(), packet.origlen)
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                self.frame(packet.if_id as usize, packet.packet_data(), packet.origlen)
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                self.frame(0, packet.packet_data(), packet.origlen)
            }
            PcapBlockOwned::NG(_) => Ok(()),
        }
    }

    fn interface(&mut self, kind: Linktype) -> Result<(), PcapFault> {
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(PcapFault::TooLarge);
        }
        self.interfaces.push(kind);
        Ok(())
    }

    fn frame(&mut self, interface: usize, bytes: &[u8], whole: u32) -> Result<(), PcapFault> {
        let is_ethernet = self.interfaces.get(interface) == Some(&Linktype::ETHERNET);
        if !is_ethernet || bytes.len() != whole as usize || bytes.len() < 14 {
            return Err(PcapFault::NoFrame(self.frames.len() + 1));
        }
        self.bytes += bytes.len();
        if self.bytes > CAPTURE_BYTES_MAX {
            return Err(PcapFault::TooLarge);
        }
        self.frames.push(bytes.to_vec());
        Ok(())
    }
}

/// Makes a capture: magic number, version 2.4, longest packet, Ethernet (draft-ietf-opsawg-pcap).
fn create(path: &Path) -> io::Result<BufWriter<File>> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&(BLOCK_BYTES_MAX as u32).to_le_bytes())?;
    out.write_all(&1u32.to_le_bytes())?;
    out.flush()?;
    Ok(out)
}

fn write_packet(out: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let len = frame.len() as u32;
    for number in [now.as_secs() as u32, now.subsec_micros(), len, len] {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;

    #[test]
    fn what_was_written_can_be_played() {
        let folder = std::env::temp_dir().join(format!("models-pcap-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("wire.pcap");
        let frames: Vec<_> = (0..5)
            .map(|n| samples::udp(false, None, &[n; 100]))
            .collect();
        let mut pcap = Pcap::open(None, Some(&path)).unwrap();
        frames
            .iter()
            .for_each(|frame| pcap.send(frame, Offload::default()));
        assert!(pcap.is_over() && pcap.peek().is_none());
        drop(pcap);
        let mut pcap = Pcap::open(Some(&path), None).unwrap();
        for frame in &frames {
            assert_eq!(pcap.peek().unwrap().0, frame);
            pcap.take();
        }
        assert!(pcap.is_over());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let damaged = read(&bytes[..bytes.len() - 1]);
        assert!(matches!(damaged, Err(PcapFault::Damaged(4))), "{damaged:?}");
        assert!(matches!(read(&b"no capture"[..]), Err(PcapFault::Format)));
    }
}
