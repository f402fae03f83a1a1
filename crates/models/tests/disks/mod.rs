//! Disks of both specifications: their files, and what their drivers go through.

use device::BlockDevice;
use fastrand::Rng;
use std::fs;
use std::path::PathBuf;

/// A file of zeros, until the test has ended.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new(name: &str, bytes: usize) -> Self {
        let program = env!("CARGO_CRATE_NAME");
        let name = format!("outboard-{program}-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, vec![0; bytes]).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left behind lies where temporary files are cleared away.
        let _ = fs::remove_file(&self.0);
    }
}

/// How many requests of a soak the disk did, and how many failed.
pub struct Soaked {
    pub done: u32,
    pub failed: u32,
}

/// Blocks of the disk, most of one request, and requests.
pub const BLOCKS: usize = 64;
const BLOCKS_MAX: usize = 16;
const REQUESTS: u32 = 1500;

/// Reads and writes. Whatever its device does, a driver must never panic, and what it says to have
/// read must be what was written there last; or what could not be, if that failed.
pub fn soak(disk: &mut impl BlockDevice, how: &str) -> Soaked {
    let size = disk.block_size();
    let mut random = Rng::with_seed(7);
    // What each block may be full of.
    let mut may_be = vec![vec![0]; BLOCKS];
    let mut soaked = Soaked { done: 0, failed: 0 };
    for number in 0..REQUESTS {
        let first = random.usize(..BLOCKS);
        let count = random.usize(1..=BLOCKS_MAX.min(BLOCKS - first));
        let offset = (first * size) as u64;
        let range = first..first + count;
        let mut bytes = vec![number as u8; count * size];
        let done = if random.bool() {
            let done = disk.write(offset, &bytes).is_ok();
            for block in &mut may_be[range] {
                if done {
                    block.clear();
                }
                block.push(number as u8);
            }
            done
        } else {
            let done = disk.read(offset, &mut bytes).is_ok();
            for (block, found) in may_be[range].iter_mut().zip(bytes.chunks(size)) {
                let full = found.iter().all(|byte| *byte == found[0]);
                let known = !done || full && block.contains(&found[0]);
                assert!(known, "{how}: request {number} read {found:?}");
                if done {
                    *block = vec![found[0]];
                }
            }
            done
        };
        soaked.done += u32::from(done);
        soaked.failed += u32::from(!done);
    }
    soaked
}
