//! A driver says anything to a virtio source of entropy: see `virtio`.
#![no_main]

use fuzz::virtio::{Memory, run};
use libfuzzer_sys::fuzz_target;
use models::virtio::VirtioRng;

thread_local! {
    static MEMORY: Memory = Memory::new();
}

fuzz_target!(|bytes: &[u8]| {
    let source = VirtioRng::new().expect("there is a source");
    MEMORY.with(|memory| run(source, memory, bytes));
});
