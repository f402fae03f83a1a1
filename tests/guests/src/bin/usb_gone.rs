//! Reads the first block of a USB disk again and again, until it is taken out. Then it is gone for
//! good, and nothing waits for it.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::block::BlockError;
use unikernel::println;

unikernel::entry!(main);

/// How long somebody has to take it out, in nanoseconds.
const PATIENCE: u64 = 100_000_000_000;

fn main() {
    let mut disk = match appliance::disk("disk") {
        Ok(disk) => disk,
        Err(error) => panic!("{error}"),
    };
    let mut block = [0; 512];
    disk.read(0, &mut block).expect("read");
    println!("READY");
    let begin = unikernel::monotonic().0;
    let error = loop {
        if let Err(error) = disk.read(0, &mut block) {
            break error;
        }
        assert!(
            unikernel::monotonic().0 - begin < PATIENCE,
            "it is still there"
        );
    };
    assert_eq!(error, BlockError::Gone);
    assert_eq!(disk.write(0, &block), Err(BlockError::Gone));
    println!("GONE");
}
