//! A frame out of a capture: a file in the format pcap or pcapng, `FILE#N` for its packet N.

use super::FRAME_BYTES_MAX;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Longest block of a file, in bytes: a frame and its options.
const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Most interfaces in a section of a pcapng file.
const INTERFACES_MAX: usize = 4096;
/// Longest name of an interface that is kept, in bytes: that of a manifest's device.
const NAME_BYTES_MAX: usize = 67;

/// Why a file has no such frame.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read.
    Read(io::Error),
    /// It is no capture.
    Format,
    /// It breaks off, or is damaged, behind this many packets.
    Damaged(u64),
    /// A block longer than `BLOCK_BYTES_MAX` stands behind this many packets.
    Block(u64),
    /// It has this many packets only.
    Packets(u64),
    /// The packet is no Ethernet frame; the number of its link type.
    LinkType(i32),
    /// The packet was captured in part: so many bytes of so many.
    Part(usize, u32),
    /// The packet is longer than a frame can be.
    TooLong(usize),
    /// More interfaces than `INTERFACES_MAX`.
    Interfaces,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(e) => write!(f, "{e}"),
            Self::Format => f.write_str("neither pcap nor pcapng; tcpdump -w writes such files"),
            Self::Damaged(packets) => write!(f, "damaged or cut off behind packet {packets}"),
            Self::Block(packets) => write!(
                f,
                "a block of more than {} KiB behind packet {packets}",
                BLOCK_BYTES_MAX >> 10
            ),
            Self::Packets(packets) => write!(f, "it has {packets} packets, numbered from 1"),
            Self::LinkType(number) => write!(
                f,
                "no Ethernet frame (link type {number}); capture on one interface, not on any"
            ),
            Self::Part(captured, all) => write!(
                f,
                "{captured} of the frame's {all} bytes were captured; capture with a longer snaplen"
            ),
            Self::TooLong(size) => {
                write!(f, "{size} bytes; a frame has at most {FRAME_BYTES_MAX}")
            }
            Self::Interfaces => write!(f, "more than {INTERFACES_MAX} interfaces"),
        }
    }
}

/// A captured frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub bytes: Vec<u8>,
    /// Name of the interface, if the file says it.
    pub interface: Option<String>,
}

/// An interface of a pcapng section, or the one of a pcap file.
struct Interface {
    link_type: Linktype,
    name: Option<String>,
}

/// Packet `number` of the file `path`, from 1.
pub(super) fn read(path: &Path, number: u64) -> Result<Captured, Error> {
    let file = File::open(path).map_err(Error::Read)?;
    if file.metadata().map_err(Error::Read)?.is_dir() {
        return Err(Error::Read(io::ErrorKind::IsADirectory.into()));
    }
    find(file, number)
}

/// Reads as far as the packet, with one block in memory at a time.
fn find(source: impl Read + Send, number: u64) -> Result<Captured, Error> {
    let mut reader = create_reader(BLOCK_BYTES_MAX, source).map_err(|e| match e {
        PcapError::ReadError => Error::Read(io::ErrorKind::Other.into()),
        _ => Error::Format,
    })?;
    let mut interfaces = Vec::new();
    let mut packets = 0;
    loop {
        match reader.next() {
            Ok((size, block)) => {
                if let Some(found) = visit(block, &mut interfaces, &mut packets, number)? {
                    return Ok(found);
                }
                reader.consume(size);
            }
            Err(PcapError::Eof) => return Err(Error::Packets(packets)),
            Err(PcapError::Incomplete(_)) => {
                let before = reader.data().len();
                reader.refill().map_err(|_| Error::Damaged(packets))?;
                // Neither more bytes nor their end: the block is longer than there is room.
                if reader.data().len() == before && !reader.reader_exhausted() {
                    return Err(Error::Block(packets));
                }
            }
            Err(PcapError::BufferTooSmall) => return Err(Error::Block(packets)),
            Err(_) => return Err(Error::Damaged(packets)),
        }
    }
}

/// Looks at a block: notes its interface, or counts its packet and returns it if it is the one.
fn visit(
    block: PcapBlockOwned,
    interfaces: &mut Vec<Interface>,
    packets: &mut u64,
    number: u64,
) -> Result<Option<Captured>, Error> {
    let (interface, bytes, length) = match &block {
        PcapBlockOwned::LegacyHeader(header) => {
            return note(interfaces, header.network, None).map(|()| None);
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let name = description.if_name().and_then(Result::ok);
            return note(interfaces, description.linktype, name).map(|()| None);
        }
        PcapBlockOwned::Legacy(packet) => (0, packet.data, packet.origlen),
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            (packet.if_id, packet.packet_data(), packet.origlen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            (0, packet.packet_data(), packet.origlen)
        }
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    *packets += 1;
    if *packets != number {
        return Ok(None);
    }
    let interface = interfaces.get(interface as usize);
    let interface = interface.ok_or(Error::Damaged(*packets))?;
    if interface.link_type != Linktype::ETHERNET {
        return Err(Error::LinkType(interface.link_type.0));
    }
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(Error::TooLong(bytes.len()));
    }
    if bytes.len() < length as usize {
        return Err(Error::Part(bytes.len(), length));
    }
    Ok(Some(Captured {
        bytes: bytes.to_vec(),
        interface: interface.name.clone(),
    }))
}

fn note(
    interfaces: &mut Vec<Interface>,
    link_type: Linktype,
    name: Option<&str>,
) -> Result<(), Error> {
    if interfaces.len() == INTERFACES_MAX {
        return Err(Error::Interfaces);
    }
    let name = name.filter(|name| name.len() <= NAME_BYTES_MAX);
    interfaces.push(Interface {
        link_type,
        name: name.map(str::to_owned),
    });
    Ok(())
}

#[cfg(test)]
mod tests;
