use super::*;

#[test]
fn what_no_guest_can_have_is_the_images_fault() {
    let small = TooSmall {
        memory: 1 << 20,
        needed: 3 << 20,
    };
    let expected = "the image does not fit into 1 MiB of memory; give it at least --mem=3";
    assert_eq!(small.to_string(), expected);
    let wild = TooSmall {
        needed: 1 << 51,
        ..small
    };
    assert_eq!(
        wild.to_string(),
        "the image asks for memory up to 0x8000000000000, and no guest has any above 0x4000000000; \
         build it anew"
    );
}

const READ: ProtFlags = ProtFlags::READ;
const WRITE: ProtFlags = ProtFlags::WRITE;
const EXECUTE: ProtFlags = ProtFlags::EXEC;
const NONE: ProtFlags = ProtFlags::empty();

fn segment(addresses: Range<u64>, file: Range<u64>, rights: ProtFlags) -> Segment {
    let (file_offset, file_size) = (file.start, file.end - file.start);
    Segment {
        addresses,
        file_offset,
        file_size,
        rights,
    }
}

fn segments() -> Vec<Segment> {
    vec![
        segment(0x10_0000..0x10_1800, 0x1000..0x2800, READ | EXECUTE),
        segment(0x10_3000..0x10_3100, 0x3000..0x3100, READ),
        segment(0x10_4000..0x10_6000, 0x4000..0x4010, READ | WRITE),
    ]
}

fn planned(map_files: bool) -> Plan {
    plan(segments(), 0x10_6000, 2 << 20, 100, map_files).unwrap()
}

#[test]
fn every_page_has_its_rights_and_the_gaps_none() {
    let region = |addresses, rights| Region {
        addresses,
        rights,
        file_offset: None,
    };
    assert_eq!(
        planned(false).regions,
        [
            region(0x1_0000..0x1_1000, NONE),
            region(0x1_1000..0x1_2000, READ),
            region(0x1_2000..0x10_0000, NONE),
            region(0x10_0000..0x10_2000, READ | EXECUTE),
            region(0x10_2000..0x10_3000, NONE),
            region(0x10_3000..0x10_4000, READ),
            region(0x10_4000..0x10_6000, READ | WRITE),
            region(0x10_6000..0x20_0000, READ | WRITE),
        ]
    );
}

#[test]
fn nothing_is_ever_writable_and_executable() {
    for region in planned(true).regions {
        assert!(!region.rights.contains(WRITE | EXECUTE), "{region:?}");
    }
}

#[test]
fn regions_cover_guest_memory_without_gap_or_overlap() {
    for map_files in [false, true] {
        let mut end = GUEST_BASE;
        for region in planned(map_files).regions {
            assert_eq!(region.addresses.start, end);
            assert_eq!(region.addresses.end % PAGE_SIZE, 0);
            end = region.addresses.end;
        }
        assert_eq!(end, 2 << 20);
    }
}

#[test]
fn all_segments_with_bytes_are_copied() {
    assert_eq!(planned(false).copied, segments());
    let zero = segment(0x10_0000..0x10_1000, 0..0, READ | WRITE);
    assert_eq!(
        plan(vec![zero], 0x10_1000, 2 << 20, 1, false)
            .unwrap()
            .copied,
        []
    );
}

#[test]
fn segments_that_are_not_written_are_mapped_from_the_file() {
    let plan = planned(true);
    assert_eq!(plan.copied, segments()[2..]);
    let mapped: Vec<_> = plan
        .regions
        .iter()
        .filter_map(|region| region.file_offset)
        .collect();
    assert_eq!(mapped, [0x1000, 0x3000]);
}

#[test]
fn a_segment_at_another_place_in_its_page_is_copied() {
    let odd = segment(0x10_0010..0x10_0020, 0x1000..0x1010, READ);
    assert!(!can_be_mapped(&odd));
    let same = segment(0x10_0010..0x10_0020, 0x1010..0x1020, READ);
    let plan = plan(vec![same], 0x10_1000, 2 << 20, 1, true).unwrap();
    let mapped = plan.regions.iter().find_map(|region| region.file_offset);
    assert_eq!((mapped, plan.copied.len()), (Some(0x1000), 0));
}

#[test]
fn zeroes_behind_the_file_are_not_mapped() {
    assert!(!can_be_mapped(&segment(
        0x10_0000..0x10_2000,
        0x1000..0x1010,
        READ
    )));
}

#[test]
fn memory_that_does_not_hold_the_image_is_an_error() {
    let end = (2 << 20) - HEAP_BYTES_MIN;
    assert!(plan(vec![], end, 2 << 20, 1, false).is_ok());
    let error = plan(vec![], end + PAGE_SIZE, 2 << 20, 1, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image does not fit into 2 MiB of memory; give it at least --mem=3"
    );
    assert!(plan(vec![], u64::MAX, 2 << 20, 1, false).is_err());
}

#[test]
fn stacks_are_looked_for_in_the_writable_end() {
    assert_eq!(writable_end(&planned(true).regions), 0x10_4000..0x20_0000);
    assert_eq!(
        writable_end(&planned(true).regions[..6]),
        0x10_4000..0x10_4000
    );
    assert_eq!(writable_end(&[]), 0..0);
}
