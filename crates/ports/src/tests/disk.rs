//! Disks that the host attached, by calls.

use crate::DeviceError;
use crate::puppet::{Scene, Setup};
use abi::manifest::Device;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::{format, vec};
use device::{BlockDevice, BlockError};

/// A disk of so many bytes, of which the host has 8192, beside a network.
fn disk(capacity: u64) -> (Scene, Box<dyn BlockDevice>) {
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
        devices: vec![("disk", disk, 0), ("net", net, 0)],
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
