//! A driver says anything to a virtio source of entropy: see `virtio`.

use crate::parts::virtio::{Memory, run};
use models::virtio::VirtioRng;

thread_local! {
    static MEMORY: Memory = Memory::new();
}

pub fn feed(bytes: &[u8]) {
    let source = VirtioRng::new().expect("there is a source");
    MEMORY.with(|memory| run(source, memory, bytes));
}
