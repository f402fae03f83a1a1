//! A driver says anything to a virtio disk, whose file is in memory: see `virtio`.

use crate::each::model::disk;
use crate::parts::virtio::{Memory, run};
use models::virtio::VirtioBlk;

thread_local! {
    static MEMORY: Memory = Memory::new();
}

pub fn feed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let disk = disk(first % 4 == 0);
    MEMORY.with(|memory| run(VirtioBlk::new(disk), memory, rest));
}
