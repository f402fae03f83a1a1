use super::*;
use ::vfio_user::CapabilityHeader;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

fn info() -> RegionInfo {
    RegionInfo {
        argsz: 48,
        flags: region_flag::READ | region_flag::WRITE | region_flag::MMAP | region_flag::CAPS,
        index: 9,
        cap_offset: 32,
        size: 4096,
        offset: 0,
    }
}

fn kind() -> TypeCapability {
    TypeCapability {
        header: CapabilityHeader {
            id: capability::TYPE,
            version: 1,
            next: 0,
        },
        kind: doorbell::REGION_KIND,
        subtype: doorbell::REGION_SUBTYPE,
    }
}

#[test]
fn a_page_of_doorbells_is_known_by_its_type() {
    let kind = kind();
    assert!(is_doorbells(&info(), kind.as_bytes()));
    assert!(!is_whole(&info()));
    let other = TypeCapability { subtype: 1, ..kind };
    assert!(!is_doorbells(&info(), other.as_bytes()));
    assert!(!is_doorbells(&info(), &kind.as_bytes()[..15]));
    for cap_offset in [0, 31, 33, 48, u32::MAX] {
        let info = RegionInfo {
            cap_offset,
            ..info()
        };
        assert!(!is_doorbells(&info, kind.as_bytes()), "{cap_offset}");
    }
    let large = RegionInfo {
        size: 8192,
        ..info()
    };
    assert!(!is_doorbells(&large, kind.as_bytes()));
}

#[test]
fn only_bytes_that_stay_are_mapped() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("test", flags).unwrap();
    ftruncate(&file, 8192).unwrap();
    assert!(!is_lasting(&file, 0, 8192), "it could shrink");
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    assert!(is_lasting(&file, 0, 8192) && is_lasting(&file, 4096, 4096));
    // Whoever touched what is behind the end would get a signal, and the blame.
    for (offset, bytes) in [(0, 8193), (8192, 1), (1 << 40, 4096), (u64::MAX, 4096)] {
        assert!(!is_lasting(&file, offset, bytes), "{offset:#x} {bytes:#x}");
    }
    // A hole in this would be no zeros, but a signal. Without such pages it can be made, though not
    // be mapped.
    let large = memfd_create("test", flags | MemfdFlags::HUGETLB).unwrap();
    ftruncate(&large, 2 << 20).unwrap();
    fcntl_add_seals(&large, SealFlags::SHRINK).unwrap();
    assert!(!is_lasting(&large, 0, 8192));
    let (pipe, _) = std::io::pipe().unwrap();
    assert!(!is_lasting(&pipe.into(), 0, 0));
}

proptest! {
    #[test]
    fn capabilities_are_looked_for_within_the_answer(
        cap_offset in any::<u32>(),
        rest in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let info = RegionInfo { cap_offset, ..info() };
        prop_assert!(!is_doorbells(&info, &rest));
    }
}
