//! A small valid image, made without a linker: what tests and fuzzing start from.
//!
//! Its program headers are those of [`crate::script`], in the order of [`header`].

use crate::manifest::Manifest;
use crate::note::{extension_note, manifest_note};
use abi::extension::{HostInfo, feature};
use abi::manifest::{Entry, NAME_BYTES_MAX, kind, name_field};
use abi::note::{Target, abi_note};
use abi::pci::{DMA_GRANULE, Request, request_flag};
use abi::region;
use abi::{IMAGE_BASE, PAGE_SIZE};

/// Indices of the program headers.
pub mod header {
    /// `PT_LOAD`, executable; the entry point is its first byte.
    pub const TEXT: usize = 0;
    /// `PT_LOAD`, read-only, with the notes.
    pub const RODATA: usize = 1;
    /// `PT_NOTE`.
    pub const ABI: usize = 2;
    /// `PT_NOTE`.
    pub const MANIFEST: usize = 3;
    /// `PT_NOTE`.
    pub const EXTENSION: usize = 4;
    /// `PT_LOAD`, writable, nothing in the file.
    pub const STACK: usize = 5;
    /// `PT_LOAD`, writable; holds the `host_info` area alone.
    pub const DATA: usize = 6;
    /// `PT_LOAD`, writable, nothing in the file.
    pub const BSS: usize = 7;
}

/// `p_type` of what is loaded, and of notes.
const LOAD: u32 = 1;
const NOTE: u32 = 4;
/// Readable and executable, readable, readable and writable.
const RX: u32 = 5;
const R: u32 = 4;
const RW: u32 = 6;

/// Guest address of the `host_info` area.
pub const HOST_INFO: u64 = IMAGE_BASE + 5 * PAGE_SIZE;

/// A request for BAR 0 of an Ethernet controller with this device ID, as a bus master.
pub fn request(name: &str, device: u16) -> Request {
    Request {
        name: name_field(name).unwrap_or([0; NAME_BYTES_MAX + 1]),
        class: 2,
        subclass: 0,
        progif: 0,
        bars: 1,
        vendor: 0x8086,
        device,
        flags: request_flag::BUS_MASTER,
    }
}

/// A request for an end of a link with so many slots.
pub fn link(name: &str, slots: usize) -> region::Request {
    region::Request {
        name: name_field(name).unwrap_or([0; NAME_BYTES_MAX + 1]),
        kind: region::kind::LINK,
        bytes: abi::link::file_bytes(slots) as u32,
    }
}

/// What the sample image asks for: a net device "net", a block device "disk", a PCIe device "nic",
/// a link "peer" of eight slots, and a large page of DMA memory.
pub fn manifest() -> Manifest {
    let mut manifest = Manifest::none();
    let devices = [("net", kind::NET_BASIC), ("disk", kind::BLOCK_BASIC)];
    let devices = devices.map(|(name, kind)| Entry::new(name, kind));
    manifest.entries.extend(devices.into_iter().flatten());
    manifest.pci.push(request("nic", 0x10d3));
    manifest.regions.push(link("peer", 8));
    manifest.dma_bytes = DMA_GRANULE;
    manifest
}

/// The bytes of an image for spt with the devices of [`manifest()`].
pub fn sample() -> Vec<u8> {
    let manifest = manifest();
    let (before, after) = extension_note(&manifest, feature::ALL);
    let extension = [&before[..], &HOST_INFO.to_le_bytes(), &after].concat();
    let abi = abi_note(Target::Spt).to_vec();
    let notes = [abi, manifest_note(&manifest.entries), extension];
    let sizes = notes.each_ref().map(|note| note.len() as u64);
    let notes = notes.concat();

    let page = |n: u64| (n * PAGE_SIZE, IMAGE_BASE + (n - 1) * PAGE_SIZE);
    let note = |before: u64| (page(2).0 + before, page(2).1 + before);
    let info_size = size_of::<HostInfo>() as u64;
    let headers = [
        program_header(LOAD, RX, page(1), 16, 16),
        program_header(LOAD, R, page(2), notes.len() as u64, notes.len() as u64),
        program_header(NOTE, R, note(0), sizes[0], sizes[0]),
        program_header(NOTE, R, note(sizes[0]), sizes[1], sizes[1]),
        program_header(NOTE, R, note(sizes[0] + sizes[1]), sizes[2], sizes[2]),
        program_header(LOAD, RW, page(4), 0, 2 * PAGE_SIZE),
        program_header(LOAD, RW, (page(4).0, HOST_INFO), info_size, info_size),
        program_header(LOAD, RW, page(8), 0, PAGE_SIZE + 1),
    ];
    let mut bytes = file_header(headers.len() as u16);
    bytes.extend_from_slice(&headers.concat());
    bytes.resize(page(1).0 as usize, 0);
    bytes.extend_from_slice(&[0xf4; 16]);
    bytes.resize(page(2).0 as usize, 0);
    bytes.extend_from_slice(&notes);
    bytes.resize((page(4).0 + info_size) as usize, 0);
    bytes
}

fn file_header(program_headers: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend_from_slice(&2u16.to_le_bytes()); // ET_EXEC
    bytes.extend_from_slice(&62u16.to_le_bytes()); // EM_X86_64
    bytes.extend_from_slice(&1u32.to_le_bytes());
    for word in [IMAGE_BASE, 64, 0] {
        bytes.extend_from_slice(&word.to_le_bytes()); // entry, program headers, section headers
    }
    bytes.extend_from_slice(&0u32.to_le_bytes());
    for half in [64, 56, program_headers, 64, 0, 0] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    bytes
}

fn program_header(
    kind: u32,
    flags: u32,
    (offset, address): (u64, u64),
    file_size: u64,
    memory_size: u64,
) -> [u8; 56] {
    let align = if kind == LOAD { PAGE_SIZE } else { 4 };
    let words = [offset, address, address, file_size, memory_size, align];
    let mut bytes = [0; 56];
    bytes[0..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..8].copy_from_slice(&flags.to_le_bytes());
    for (word, place) in words.iter().zip(bytes[8..].chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
