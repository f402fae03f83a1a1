//! A driver says anything to a virtio disk, whose file is in memory: see `virtio`.
#![no_main]

use fuzz::model::disk;
use fuzz::virtio::{Memory, run};
use libfuzzer_sys::fuzz_target;
use models::virtio::VirtioBlk;

thread_local! {
    static MEMORY: Memory = Memory::new();
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let disk = disk(first % 4 == 0);
    MEMORY.with(|memory| run(VirtioBlk::new(disk), memory, rest));
});
