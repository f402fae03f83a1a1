//! Disks that the host attached, by calls.

use crate::DeviceError;
use crate::puppet::{Scene, Setup};
use abi::extension::device_flag::{DIRECT, DISK, READ_ONLY};
use abi::manifest::Device;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::{format, vec};
use device::block::Durability;
use device::{BlockDevice, BlockError};

/// A disk of so many bytes, of which the host has 8192, beside a network.
fn disk(capacity: u64) -> (Scene, Box<dyn BlockDevice>) {
    disk_with(capacity, 0)
}

/// The same with these flags.
fn disk_with(capacity: u64, flags: u32) -> (Scene, Box<dyn BlockDevice>) {
    let block_size = 512;
    let disk = Device::Block {
        capacity,
        block_size,
    };
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let scene = Setup {
        devices: vec![("disk", disk, flags), ("net", net, 0)],
        ..Setup::default()
    }
    .start();
    let disk = scene.runtime.disk("disk").unwrap();
    (scene, disk)
}

#[test]
fn blocks_are_moved_one_by_one() {
    let (scene, mut disk) = disk(8192);
    assert_eq!((disk.capacity(), disk.block_size()), (8192, 512));
    assert_eq!(disk.write(1024, &[7; 1024]), Ok(()));
    let mut blocks = [0; 2048];
    assert_eq!(disk.read(512, &mut blocks), Ok(()));
    let expected = [[0; 512], [7; 512], [7; 512], [0; 512]].concat();
    assert_eq!(blocks, *expected);
    assert_eq!(*scene.host.transfers.borrow(), [512; 6]);
}

#[test]
fn what_is_not_whole_blocks_of_the_disk_is_refused() {
    let (scene, mut disk) = disk(8192);
    let refused = Err(BlockError::OutOfRange);
    assert_eq!(disk.read(1, &mut [0; 512]), refused);
    assert_eq!(disk.read(0, &mut [0; 511]), refused);
    assert_eq!(disk.read(8192, &mut [0; 512]), refused);
    assert_eq!(disk.write(u64::MAX - 511, &[0; 512]), refused);
    assert!(scene.host.transfers.borrow().is_empty());
}

#[test]
fn a_host_that_moves_less_is_an_error() {
    let (_, mut disk) = disk(16384);
    assert_eq!(disk.read(8192, &mut [0; 512]), Err(BlockError::Host(5)));
    assert_eq!(disk.write(8192, &[0; 512]), Err(BlockError::Host(5)));
}

#[test]
fn a_device_is_handed_out_once_and_as_what_it_is() {
    let (scene, _disk) = disk(8192);
    let error =
        |found: Result<_, DeviceError>| found.map(|_: Box<dyn BlockDevice>| ()).unwrap_err();
    assert_eq!(error(scene.runtime.disk("disk")), DeviceError::Taken);
    let other = error(scene.runtime.disk("other"));
    assert_eq!(format!("{other:?}"), "NotInManifest([\"disk\", \"net\"])");
    let says = "no device of this name: ask for one that manifest.json has (disk, net), or add it \
                there";
    assert_eq!(other.to_string(), says);
    assert_eq!(error(scene.runtime.disk("net")), DeviceError::OtherKind);
}

/// One that the host has all of.
fn whole_disk(capacity: usize, flags: u32) -> (Scene, Box<dyn BlockDevice>) {
    let (scene, disk) = disk_with(capacity as u64, flags);
    let bytes = (0..capacity).map(|at| (at / 512 + at) as u8).collect();
    *scene.host.disk.borrow_mut() = bytes;
    (scene, disk)
}

#[test]
fn who_knows_of_more_moves_several_blocks_as_far_as_that_reaches() {
    const CAPACITY: usize = (192 << 10) + 1024;
    let (scene, mut disk) = whole_disk(CAPACITY, DISK);
    let mut bytes = vec![0; CAPACITY];
    assert_eq!(disk.read(0, &mut bytes), Ok(()));
    assert_eq!(bytes, *scene.host.disk.borrow());
    let expected = [65536, 65536, 65536, 512, 512];
    assert_eq!(*scene.host.transfers.borrow(), expected);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    scene.host.transfers.borrow_mut().clear();
    assert_eq!(disk.write(128 << 10, &bytes[128 << 10..]), Ok(()));
    assert_eq!(bytes[128 << 10..], scene.host.disk.borrow()[128 << 10..]);
    assert_eq!(*scene.host.transfers.borrow(), [65536, 512, 512]);
}

#[test]
fn a_flush_reaches_the_host_where_it_says_that_it_has_one() {
    let (scene, mut disk) = disk_with(8192, DISK);
    assert_eq!(disk.limits().durability, Durability::Flushed);
    assert_eq!(disk.flush(), Ok(()));
    assert_eq!(scene.host.syncs.get(), 1);
    let (scene, mut disk) = self::disk(8192);
    assert_eq!(disk.limits().durability, Durability::Unknown);
    assert_eq!(disk.flush(), Err(BlockError::Unsupported));
    assert_eq!(disk.discard(0, 512), Err(BlockError::Unsupported));
    assert_eq!(scene.host.syncs.get(), 0);
    assert!(scene.host.discards.borrow().is_empty());
}

#[test]
fn a_disk_that_is_read_only_is_only_read() {
    let (scene, mut disk) = disk_with(8192, DISK | READ_ONLY);
    let refused = Err(BlockError::ReadOnly);
    assert_eq!(disk.write(0, &[0; 512]), refused);
    assert_eq!(disk.discard(0, 512), refused);
    assert_eq!(disk.write_zeroes(0, 512), refused);
    assert_eq!(disk.flush(), Ok(()), "there is nothing to flush");
    assert_eq!(disk.read(0, &mut [0; 512]), Ok(()));
    assert_eq!(*scene.host.transfers.borrow(), [512]);
    assert_eq!(scene.host.syncs.get(), 0);
}

#[test]
fn zeroes_are_holes_or_else_written() {
    const CAPACITY: usize = (2 << 20) + 512;
    let (scene, mut disk) = whole_disk(CAPACITY, DISK);
    assert_eq!(disk.write_zeroes(1024, (2 << 20) - 1024), Ok(()));
    let megabyte = 1 << 20;
    let discards = scene.host.discards.take();
    assert_eq!(discards[..2], [(1024, megabyte), (megabyte + 1024, 512)]);
    assert_eq!(discards.len(), 1 + 2046);
    assert!(scene.host.transfers.borrow().is_empty());
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    assert!(is_zero(&scene.host.disk.borrow()[1024..2 << 20]));
    assert!(!is_zero(&scene.host.disk.borrow()[2 << 20..]));
    // Where the host cannot.
    let (scene, mut disk) = whole_disk(CAPACITY, DISK);
    scene.host.never_discards.set(true);
    assert_eq!(disk.discard(0, 1024), Err(BlockError::Unsupported));
    assert_eq!(disk.write_zeroes(512, 128 << 10), Ok(()));
    assert_eq!(*scene.host.transfers.borrow(), [65536, 65536]);
    let end = (128 << 10) + 512;
    assert!(is_zero(&scene.host.disk.borrow()[512..end]));
    assert!(!is_zero(&scene.host.disk.borrow()[end..end + 512]));
    assert_eq!(
        disk.discard(512, CAPACITY as u64),
        Err(BlockError::OutOfRange)
    );
}

#[test]
fn where_bytes_pass_the_hosts_cache_by_buffers_begin_at_pages() {
    let (scene, mut disk) = whole_disk(256 << 10, DISK | DIRECT);
    assert_eq!(disk.limits().alignment, 4096);
    let mut bytes = vec![0; (200 << 10) + 1];
    let bytes = &mut bytes[1..];
    // Either as it comes, or one byte on: at most one of them begins at a page.
    assert_eq!(disk.read(512, bytes), Ok(()));
    assert_eq!(*bytes, scene.host.disk.borrow()[512..][..bytes.len()]);
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    assert_eq!(disk.write(1024, bytes), Ok(()));
    assert_eq!(*bytes, scene.host.disk.borrow()[1024..][..bytes.len()]);
    assert_eq!(scene.host.unaligned.get(), 0);
}
