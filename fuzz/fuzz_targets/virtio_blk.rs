//! A driver says anything to a virtio disk, whose file is in memory: see `virtio`.
#![no_main]

use fuzz::virtio::{Memory, run};
use libfuzzer_sys::fuzz_target;
use models::disk::Disk;
use models::virtio::VirtioBlk;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::path::Path;

const DISK: u64 = 64 << 10;

thread_local! {
    static MEMORY: Memory = Memory::new();
    static FILE: OwnedFd = {
        let file = memfd_create("disk", MemfdFlags::CLOEXEC).expect("there is memory");
        ftruncate(&file, DISK).expect("there is memory");
        file
    };
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let path = FILE.with(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let disk = Disk::open(Path::new(&path), first % 4 == 0).expect("the file is there");
    assert_eq!(disk.bytes(), DISK, "no driver changes the size");
    MEMORY.with(|memory| run(VirtioBlk::new(disk), memory, rest));
});
