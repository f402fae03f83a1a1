use super::*;
use crate::error::{RequestError, SegmentError};
use crate::sample::{HOST_INFO, header, sample};
use crate::{Manifest, PROGRAM_HEADERS_MAX, Rights, give_manifest};
use abi::manifest::Malformed;
use abi::pci::DEVICES_MAX;
use abi::region::REGIONS_MAX;
use abi::{IMAGE_BASE, PAGE_SIZE};
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// Offsets of fields in the ELF header (System V ABI, figure 4-3, 64-bit).
const EI_VERSION: usize = 6;
const E_TYPE: usize = 16;
const E_MACHINE: usize = 18;
const E_VERSION: usize = 20;
const E_ENTRY: usize = 24;
const E_PHOFF: usize = 32;
const E_EHSIZE: usize = 52;
const E_PHENTSIZE: usize = 54;
const E_PHNUM: usize = 56;

/// Offsets of fields in a program header (figure 5-1, 64-bit).
const P_TYPE: usize = 0;
const P_FLAGS: usize = 4;
const P_OFFSET: usize = 8;
const P_VADDR: usize = 16;
const P_FILESZ: usize = 32;
const P_MEMSZ: usize = 40;
const P_ALIGN: usize = 48;

/// Where field `field` of program header `index` lies in the file.
fn at(index: usize, field: usize) -> usize {
    64 + 56 * index + field
}

/// Where byte `byte` of the note of program header `index` lies in the file.
fn in_note(index: usize, byte: usize) -> usize {
    let place = at(index, P_OFFSET);
    let bytes = sample();
    u64::from_le_bytes(bytes[place..place + 8].try_into().unwrap()) as usize + byte
}

/// What becomes of the sample once `value` lies at `place`.
fn patched(place: usize, value: &[u8]) -> Result<Image, ImageError> {
    let mut bytes = sample();
    bytes[place..place + value.len()].copy_from_slice(value);
    Image::parse(&bytes)
}

fn refusal(place: usize, value: &[u8]) -> ImageError {
    patched(place, value).unwrap_err()
}

/// Why program header `index` is refused once `field` is `value`.
fn segment_refusal(index: usize, field: usize, value: u64) -> SegmentError {
    match refusal(at(index, field), &value.to_le_bytes()) {
        ImageError::Segment(found, cause) if found == index => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_valid_image_is_read_as_it_was_written() {
    let bytes = sample();
    let image = Image::parse(&bytes).unwrap();
    assert_eq!(image.entry, IMAGE_BASE);
    assert_eq!((image.target, image.abi_version), (Target::Spt, 2));
    let names: Vec<_> = image.entries.iter().map(Entry::name).collect();
    assert_eq!(names, [None, Some("net"), Some("disk")]);
    let networks: Vec<_> = image.networks().collect();
    assert_eq!(networks, [(1, "net"), (3, "nic"), (4, "peer")]);
    let extension = image.extension.unwrap();
    assert_eq!(extension.host_info, HOST_INFO);
    assert_eq!(extension.features, extension::feature::ALL);
    let manifest = crate::sample::manifest();
    assert_eq!(
        (image.pci, image.regions, image.dma_bytes),
        (manifest.pci, manifest.regions, manifest.dma_bytes)
    );
    let rights: Vec<_> = image.segments.iter().map(|s| s.rights).collect();
    let rights_of = |read, write, execute| Rights {
        read,
        write,
        execute,
    };
    let (rx, ro, rw) = (
        rights_of(true, false, true),
        rights_of(true, false, false),
        rights_of(true, true, false),
    );
    assert_eq!(rights, [rx, ro, rw, rw, rw]);
    assert_eq!(image.segments[0].file(&bytes), [0xf4; 16]);
    assert!(image.segments[2].file(&bytes).is_empty());
    assert_eq!(image.segments[4].memory_size, PAGE_SIZE + 1);
    assert_eq!(image.end, IMAGE_BASE + 9 * PAGE_SIZE);
}

#[test]
fn what_is_no_elf_file_is_refused() {
    assert_eq!(Image::parse(&[]), Err(ImageError::NotElf));
    assert_eq!(Image::parse(&sample()[..63]), Err(ImageError::NotElf));
    assert_eq!(Image::parse(b"#!/bin/sh\n"), Err(ImageError::NotElf));
    for (place, value) in [(0, 0), (4, 1), (4, 3), (5, 2), (5, 0)] {
        assert_eq!(refusal(place, &[value]), ImageError::NotElf, "{place}");
    }
}

#[test]
fn each_bad_file_header_has_its_reason() {
    assert_eq!(refusal(E_TYPE, &[3, 0]), ImageError::NotStatic(3));
    assert_eq!(refusal(E_MACHINE, &[183, 0]), ImageError::Machine(183));
    assert_eq!(refusal(E_VERSION, &[2]), ImageError::Header);
    assert_eq!(refusal(EI_VERSION, &[0]), ImageError::Header);
    assert_eq!(refusal(E_EHSIZE, &[63]), ImageError::Header);
    assert_eq!(refusal(E_PHENTSIZE, &[32]), ImageError::Header);
    for count in [0, PROGRAM_HEADERS_MAX + 1, u16::MAX] {
        let error = refusal(E_PHNUM, &count.to_le_bytes());
        assert_eq!(error, ImageError::ProgramHeaderCount(count));
    }
    for offset in [u64::MAX, 1 << 32, sample().len() as u64 - 1] {
        let error = refusal(E_PHOFF, &offset.to_le_bytes());
        assert_eq!(error, ImageError::ProgramHeadersCut);
    }
}

#[test]
fn the_entry_point_is_executable() {
    for entry in [0, IMAGE_BASE - 1, IMAGE_BASE + 16, HOST_INFO, u64::MAX] {
        let error = refusal(E_ENTRY, &entry.to_le_bytes());
        assert_eq!(error, ImageError::Entry(entry));
    }
    assert!(patched(E_ENTRY, &(IMAGE_BASE + 15).to_le_bytes()).is_ok());
}

#[test]
fn each_bad_segment_has_its_reason() {
    use SegmentError::*;
    for offset in [u64::MAX, sample().len() as u64 - 15] {
        assert_eq!(segment_refusal(header::TEXT, P_OFFSET, offset), FileCut);
    }
    assert_eq!(segment_refusal(header::TEXT, P_FILESZ, u64::MAX), FileCut);
    assert_eq!(segment_refusal(header::TEXT, P_MEMSZ, 15), FileOverMemory);
    assert_eq!(segment_refusal(header::TEXT, P_MEMSZ, 0), FileOverMemory);
    for alignment in [0, 1, 16, 2048, 4097, 12288] {
        let error = segment_refusal(header::DATA, P_ALIGN, alignment);
        assert_eq!(error, Alignment(alignment));
    }
    let below = IMAGE_BASE - PAGE_SIZE;
    assert_eq!(
        segment_refusal(header::TEXT, P_VADDR, below),
        BelowBase(below)
    );
    assert_eq!(segment_refusal(header::TEXT, P_VADDR, 0), BelowBase(0));
    assert_eq!(
        segment_refusal(header::TEXT, P_ALIGN, 2 << 20),
        BelowBase(0)
    );
    for address in [u64::MAX, u64::MAX - 16, u64::MAX - PAGE_SIZE + 2] {
        assert_eq!(
            segment_refusal(header::BSS, P_VADDR, address),
            AddressOverflow
        );
    }
    assert_eq!(
        segment_refusal(header::BSS, P_MEMSZ, u64::MAX),
        AddressOverflow
    );
    for address in [IMAGE_BASE, HOST_INFO, HOST_INFO + PAGE_SIZE - 1] {
        assert_eq!(segment_refusal(header::BSS, P_VADDR, address), Order);
    }
    assert_eq!(
        refusal(at(header::DATA, P_FLAGS), &[7]),
        ImageError::Segment(header::DATA, WriteAndExecute)
    );
}

#[test]
fn a_segment_may_begin_inside_a_page_and_be_execute_only() {
    let inside = HOST_INFO + 2 * PAGE_SIZE + 8;
    let image = patched(at(header::BSS, P_VADDR), &inside.to_le_bytes()).unwrap();
    assert_eq!(image.segments[4].first_page(), HOST_INFO + 2 * PAGE_SIZE);
    let image = patched(at(header::TEXT, P_FLAGS), &[1]).unwrap();
    assert!(!image.segments[0].rights.read && image.segments[0].rights.execute);
}

#[test]
fn an_empty_segment_is_left_out_wherever_it_claims_to_be() {
    let mut bytes = sample();
    for field in [P_VADDR, P_MEMSZ, P_ALIGN] {
        bytes[at(header::STACK, field)..][..8].fill(0);
    }
    assert_eq!(Image::parse(&bytes).unwrap().segments.len(), 4);
}

#[test]
fn nothing_to_load_is_refused() {
    let mut bytes = sample();
    for index in 0..8 {
        bytes[at(index, P_TYPE)] = 4;
    }
    assert_eq!(Image::parse(&bytes), Err(ImageError::NoSegment));
}

#[test]
fn notes_are_the_first_of_their_program_header() {
    use header::{ABI, EXTENSION, MANIFEST};
    assert_eq!(refusal(at(ABI, P_TYPE), &[6]), ImageError::NoAbi);
    assert_eq!(refusal(in_note(ABI, 8), &[0]), ImageError::NoAbi);
    assert_eq!(refusal(in_note(ABI, 12), b"s"), ImageError::NoAbi);
    assert_eq!(refusal(at(MANIFEST, P_TYPE), &[6]), ImageError::NoManifest);
    for index in [ABI, MANIFEST, EXTENSION] {
        let cut = ImageError::NoteCut(index);
        assert_eq!(refusal(in_note(index, 4), &[0xff; 4]), cut);
        assert_eq!(refusal(in_note(index, 4), &[3, 0, 0, 0]), cut);
        assert_eq!(
            refusal(at(index, P_OFFSET), &[0xff; 8]),
            ImageError::Segment(index, SegmentError::FileCut)
        );
    }
    // A program header too small for a note holds none; without it, the other is first.
    assert_eq!(refusal(at(ABI, P_FILESZ), &[19]), ImageError::NoAbi);
}

#[test]
fn each_bad_note_has_its_reason() {
    assert_eq!(
        refusal(in_note(header::ABI, 20), &[3]),
        ImageError::Target(3)
    );
    assert_eq!(
        refusal(in_note(header::ABI, 24), &[1]),
        ImageError::AbiVersion(1)
    );
    assert_eq!(
        refusal(in_note(header::MANIFEST, 24), &[2]),
        ImageError::Manifest(Malformed::Version(2))
    );
    assert_eq!(
        refusal(in_note(header::MANIFEST, 28), &[4]),
        ImageError::Manifest(Malformed::Truncated)
    );
    // The type of entry 1.
    assert_eq!(
        refusal(in_note(header::MANIFEST, 32 + 104 + 68), &[9]),
        ImageError::Manifest(Malformed::Kind(1, 9))
    );
}

#[test]
fn the_host_info_area_is_writable_memory() {
    let rodata = IMAGE_BASE + PAGE_SIZE;
    for address in [0, rodata, HOST_INFO - 8, HOST_INFO + 8, u64::MAX - 8] {
        let error = refusal(in_note(header::EXTENSION, 32), &address.to_le_bytes());
        assert_eq!(error, ImageError::HostInfo(address));
    }
}

/// Where the fields of the note, its descriptor and of the first request lie in the extension note.
const DESCRIPTOR_SIZE: usize = 4;
const DMA_BYTES: usize = 40;
const PCI: usize = 48;
const REGIONS: usize = 52;
const REQUEST: usize = 56;
const REGION: usize = REQUEST + 80;

#[test]
fn each_bad_request_has_its_reason() {
    let reason = |byte: usize, value: &[u8]| match refusal(in_note(header::EXTENSION, byte), value)
    {
        ImageError::Request(reason) => reason,
        other => panic!("{other:?}"),
    };
    for bytes in [32_u32, 32 + 80] {
        let value = bytes.to_le_bytes();
        assert_eq!(reason(DESCRIPTOR_SIZE, &value), RequestError::Truncated);
    }
    assert_eq!(reason(PCI, &[33]), RequestError::Count(33));
    assert_eq!(reason(PCI, &[0xff; 4]), RequestError::Count(u32::MAX));
    for name in [&b"\0"[..], b"a-b", &[b'a'; 68]] {
        assert_eq!(reason(REQUEST, name), RequestError::Name(0));
    }
    assert_eq!(reason(REQUEST, b"disk\0"), RequestError::Duplicate(0));
    assert_eq!(reason(REQUEST + 71, &[0x40]), RequestError::Bars(0));
    assert_eq!(reason(REQUEST + 76, &[3]), RequestError::Flags(0));
    assert_eq!(reason(REGIONS, &[2]), RequestError::RegionName(1));
    assert_eq!(reason(REGIONS, &[17]), RequestError::RegionCount(17));
    assert_eq!(reason(REGION, b"a-b"), RequestError::RegionName(0));
    assert_eq!(reason(REGION, b"nic\0"), RequestError::RegionDuplicate(0));
    assert_eq!(reason(REGION + 68, &[4]), RequestError::RegionDisk(0));
    assert_eq!(reason(REGION + 68, &[5]), RequestError::RegionKind(0));
    for bytes in [0, 4096, 4097, 0x1000_1000, u32::MAX] {
        let bytes = u32::to_le_bytes(bytes);
        assert_eq!(reason(REGION + 72, &bytes), RequestError::RegionBytes(0));
    }
    for bytes in [1, (2 << 20) + 4096, (4 << 30) + (2 << 20), u64::MAX] {
        let value = u64::to_le_bytes(bytes);
        assert_eq!(reason(DMA_BYTES, &value), RequestError::DmaBytes(bytes));
    }
    let most = patched(in_note(header::EXTENSION, DMA_BYTES), &[0, 0, 0, 0, 1]).unwrap();
    assert_eq!(most.dma_bytes, 4 << 30);
    let none = patched(in_note(header::EXTENSION, PCI), &[0, 0, 0, 0, 0]).unwrap();
    assert!(none.pci.is_empty() && none.regions.is_empty());
}

#[test]
fn devices_of_both_kinds_have_numbers_below_64() {
    let parse = |entries: usize, requests: usize| {
        let names = (0..entries).map(|i| Entry::new(&format!("e{i}"), 2).unwrap());
        let entries: Vec<_> = names.collect();
        let requests = (0..requests).map(|i| crate::sample::request(&format!("p{i}"), 1));
        let bytes: Vec<_> = requests.collect();
        let descriptor = Descriptor {
            version: extension::VERSION,
            features: 0,
            host_info: 0,
            dma_bytes: 0,
            pci: bytes.len() as u32,
            regions: 0,
        };
        let requests = requests::parse(&descriptor, bytes.as_bytes(), &entries);
        requests.map(|requests| requests.pci.len())
    };
    assert_eq!(parse(32, 32), Ok(32));
    assert_eq!(parse(63, 1), Ok(1));
    assert_eq!(parse(33, 32), Err(RequestError::Count(32)));
    assert_eq!(parse(64, 1), Err(RequestError::Count(1)));
}

#[test]
fn an_extension_of_another_version_is_ignored() {
    let image = patched(in_note(header::EXTENSION, 24), &[9]).unwrap();
    assert_eq!(
        (image.extension, image.pci.len(), image.dma_bytes),
        (None, 0, 0)
    );
    assert_eq!(image.other_version, Some(9));
    let image = patched(at(header::EXTENSION, P_TYPE), &[6]).unwrap();
    assert_eq!((image.extension, image.other_version), (None, None));
}

#[test]
fn retargeting_changes_one_word_and_back() {
    let before = sample();
    let mut bytes = before.clone();
    retarget(&mut bytes, Target::Hvt).unwrap();
    assert_eq!(Image::parse(&bytes).unwrap().target, Target::Hvt);
    let changed = before.iter().zip(&bytes).filter(|(a, b)| a != b).count();
    assert_eq!(changed, 1);
    retarget(&mut bytes, Target::Spt).unwrap();
    assert_eq!(bytes, before);
    let mut bytes = b"no image".to_vec();
    assert_eq!(retarget(&mut bytes, Target::Hvt), Err(ImageError::NotElf));
}

#[test]
fn another_manifest_is_what_the_image_asks_for_then() {
    let before = Image::parse(&sample()).unwrap();
    let disk = Entry::new("other", kind::BLOCK_BASIC).unwrap();
    let several = Manifest {
        entries: vec![Entry::RESERVED, disk],
        pci: vec![
            crate::sample::request("a", 1),
            crate::sample::request("b", 2),
        ],
        regions: vec![crate::sample::link("c", 8)],
        dma_bytes: 4 << 20,
    };
    for manifest in [several, Manifest::none(), most()] {
        let mut bytes = sample();
        give_manifest(&mut bytes, &manifest).unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(image.entries, manifest.entries);
        assert_eq!(
            (&image.pci, &image.regions),
            (&manifest.pci, &manifest.regions)
        );
        assert_eq!(image.dma_bytes, manifest.dma_bytes);
        let (new, old) = (image.extension.unwrap(), before.extension.unwrap());
        assert_eq!((new.host_info, new.features), (old.host_info, old.features));
        assert_eq!(image.segments, before.segments);
        // All that the image had asked for is gone.
        give_manifest(&mut bytes, &crate::sample::manifest()).unwrap();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(
            (image.entries, image.pci),
            (before.entries.clone(), before.pci.clone())
        );
    }
}

/// A manifest with as much as there may be.
fn most() -> Manifest {
    let entries = (1..16).map(|i| Entry::new(&format!("e{i}"), kind::NET_BASIC).unwrap());
    let pci = (0..DEVICES_MAX).map(|i| crate::sample::request(&format!("p{i}"), 1));
    let regions = (0..REGIONS_MAX).map(|i| crate::sample::link(&format!("r{i}"), 8));
    Manifest {
        entries: [Entry::RESERVED].into_iter().chain(entries).collect(),
        pci: pci.collect(),
        regions: regions.collect(),
        dma_bytes: 2 << 20,
    }
}

#[test]
fn what_has_no_room_for_another_manifest_says_so() {
    let refused = |place: usize, value: &[u8]| {
        let mut bytes = sample();
        bytes[place..place + value.len()].copy_from_slice(value);
        let before = bytes.clone();
        let error = give_manifest(&mut bytes, &Manifest::none()).unwrap_err();
        assert_eq!(bytes, before, "a refused image is as it was");
        error
    };
    let size = in_note(header::EXTENSION, DESCRIPTOR_SIZE);
    assert_eq!(refused(size, &[32 + 80 + 76, 0]), ImageError::NoRoom);
    assert_eq!(
        refused(in_note(header::EXTENSION, 24), &[9]),
        ImageError::NoRoom
    );
    assert_eq!(
        refused(at(header::EXTENSION, P_TYPE), &[6]),
        ImageError::NoRoom
    );
    assert_eq!(refused(0, b"no"), ImageError::NotElf);
}

#[test]
fn every_error_is_one_line_that_says_what_to_do() {
    let segment = ImageError::Segment(6, SegmentError::WriteAndExecute);
    assert_eq!(
        segment.to_string(),
        "segment 6 is both writable and executable; build it anew"
    );
    let request = ImageError::Request(RequestError::DmaBytes(1));
    for error in [
        ImageError::NotElf,
        ImageError::NotStatic(3),
        segment,
        request,
    ] {
        let text = error.to_string();
        assert!(text.contains("; ") && !text.contains('\n'), "{text}");
    }
}

/// What every image that is accepted promises to those who load it.
fn check_promises(image: &Image, bytes: &[u8]) {
    let mut free_from = IMAGE_BASE;
    for segment in &image.segments {
        assert!(segment.first_page() >= free_from);
        assert!(segment.file(bytes).len() == segment.file_size);
        assert!(segment.file_size as u64 <= segment.memory_size);
        assert!(!(segment.rights.write && segment.rights.execute));
        free_from = segment.pages_end();
    }
    assert_eq!(image.end, free_from);
    let names = image.entries.iter().skip(1).map(Entry::name);
    let names = names.chain(image.pci.iter().map(Request::name));
    // The queue of a disk has its disk's.
    let is_queue = |region: &&region::Request| region.kind == region::kind::QUEUE;
    let queues = image.regions.iter().filter(is_queue).count();
    let regions = image.regions.iter().filter(|region| !is_queue(region));
    let mut names: Vec<_> = names.chain(regions.map(region::Request::name)).collect();
    assert!(names.len() < abi::pci::INDICES_MAX && !names.contains(&None));
    names.sort();
    names.dedup();
    let devices = image.entries.len() + image.pci.len() + image.regions.len();
    assert_eq!(names.len() + 1 + queues, devices);
    assert!(image.dma_bytes <= abi::pci::DMA_BYTES_MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_mutation_makes_parse_panic_or_break_its_promises(
        mutations in proptest::collection::vec((0usize..64 + 8 * 56, any::<u8>()), 1..12),
        notes in proptest::collection::vec((0x2000usize..0x2200, any::<u8>()), 0..4),
        length in 0usize..20_000,
    ) {
        let mut bytes = sample();
        for (place, value) in mutations.into_iter().chain(notes) {
            bytes[place] = value;
        }
        bytes.truncate(length.max(512));
        if let Ok(image) = Image::parse(&bytes) {
            check_promises(&image, &bytes);
        }
        let mut given = bytes.clone();
        if give_manifest(&mut given, &crate::sample::manifest()).is_ok() {
            check_promises(&Image::parse(&given).unwrap(), &given);
        }
        let mut retargeted = bytes.clone();
        if retarget(&mut retargeted, Target::Hvt).is_ok() {
            prop_assert_eq!(Image::parse(&retargeted).unwrap().target, Target::Hvt);
        }
    }
}
