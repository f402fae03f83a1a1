//! A driver says anything to a virtio network card, whose wire sends back what it sends: see
//! `virtio`.

use crate::parts::virtio::{Memory, run};
use models::virtio::VirtioNet;
use models::wire::Loop;

thread_local! {
    static MEMORY: Memory = Memory::new();
}

pub fn feed(bytes: &[u8]) {
    let card = VirtioNet::new([2, 0, 0, 0, 0, 1], Loop::new());
    MEMORY.with(|memory| run(card, memory, bytes));
}
