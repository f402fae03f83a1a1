use super::*;
use abi::IMAGE_BASE;
use abi::extension::device_flag;
use abi::manifest::{Device, kind, parse};
use std::fs::File;
use std::os::fd::OwnedFd;
use zerocopy::FromBytes;

const FACTS: Facts = Facts {
    memory: 2 << 20,
    image_end: 0x10_6000,
    epoll_fd: 3,
    timer_fd: 4,
};

fn arguments(list: &[&str]) -> Vec<OsString> {
    list.iter().map(Into::into).collect()
}

#[test]
fn arguments_are_joined_by_one_space() {
    assert_eq!(
        command_line(&arguments(&["a", "", "b c"])).unwrap(),
        b"a  b c"
    );
    assert_eq!(command_line(&[]).unwrap(), b"");
}

#[test]
fn the_longest_command_line_is_solo5s() {
    let longest = "x".repeat(COMMAND_LINE_BYTES_MAX);
    assert!(command_line(&arguments(&[&longest])).is_ok());
    let error = command_line(&arguments(&[&longest, ""])).unwrap_err();
    assert_eq!(error, CommandLineTooLong(COMMAND_LINE_BYTES_MAX + 1));
}

#[test]
fn the_guest_finds_manifest_and_command_line_by_their_addresses() {
    let mut entry = Entry::new("lan", kind::NET_BASIC).unwrap();
    entry.attach(
        Device::Net {
            mac: [2; 6],
            mtu: 1500,
        },
        9,
    );
    let manifest = [Entry::RESERVED, entry];
    let area = area(FACTS, &manifest, b"one two");
    assert_eq!(area.len() as u64, size(2, b"one two"));
    let info = BootInfo::read_from_prefix(&area).unwrap().0;
    assert_eq!(
        (info.mem_size, info.kernel_end),
        (FACTS.memory, FACTS.image_end)
    );
    assert_eq!((info.epoll_fd, info.timer_fd), (3, 4));
    let at = |address: u64| &area[(address - BOOT_INFO) as usize..];
    assert_eq!(at(info.cmdline), b"one two\0");
    assert_eq!(at(info.mft)[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
    let read = Entry::read_from_prefix(&at(info.mft)[8 + 104..]).unwrap().0;
    assert_eq!((read, read.descriptor()), (entry, 9));
    assert!(
        parse(at(info.mft)).is_err(),
        "an attached manifest is no manifest of an image"
    );
}

#[test]
fn the_largest_boot_area_lies_below_the_image() {
    let size = size(ENTRIES_MAX, &[0; COMMAND_LINE_BYTES_MAX]);
    assert!(BOOT_INFO + size <= IMAGE_BASE);
}

#[test]
fn each_device_is_told_of_with_its_flags() {
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let attached = |index, flags| Attached {
        index,
        device: net,
        fd: OwnedFd::from(File::open("/dev/null").unwrap()),
        flags,
    };
    let info = host_info(
        1,
        Some((4096, 8192)),
        &[attached(1, device_flag::VIRTIO_NET_HEADER), attached(2, 0)],
        &Pci::default(),
        &[],
        [7; 32],
    );
    assert_eq!(info.seed, [7; 32]);
    assert_eq!(info.devices[..3], [0, device_flag::VIRTIO_NET_HEADER, 0]);
    assert_eq!((info.flags, info.share, info.share_bytes), (1, 4096, 8192));
    let info = host_info(0, None, &[], &Pci::default(), &[], [0; 32]);
    assert_eq!(
        info,
        HostInfo {
            magic: info.magic,
            version: info.version,
            ..HostInfo::ZERO
        }
    );
    assert_eq!(info.magic, extension::HOST_INFO_MAGIC);
}
