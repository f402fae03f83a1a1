//! Reads of a disk past the guest's cache, at random places, some at a time.

use super::outcome::{Counts, Events, Reads, distribution};
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Bytes of a read, and what its place and its memory are multiples of.
const BLOCK_BYTES: usize = 4096;
/// Steps from place to place: odd, so that all are reached where their number is a power of two.
const STRIDE: u64 = 7919;

/// Reads `count` blocks, `depth` at a time.
///
/// # Errors
/// The disk cannot be opened or read.
pub fn read(disk: &Path, depth: u32, count: u64) -> io::Result<Reads> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let mut file: File = open(disk, flags, Mode::empty())?.into();
    let blocks = file.seek(SeekFrom::End(0))? / BLOCK_BYTES as u64;
    let depth = depth.max(1);
    let each = count / u64::from(depth);
    let begin = Instant::now();
    let latencies: io::Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        let file = &file;
        let readers = (0..depth).map(|reader| {
            let first = u64::from(reader) * each;
            scope.spawn(move || read_some(file, blocks, first..first + each))
        });
        let readers: Vec<_> = readers.collect();
        let join = |reader: thread::ScopedJoinHandle<'_, _>| match reader.join() {
            Ok(latencies) => latencies,
            Err(_) => Err(io::Error::other("a reader has panicked")),
        };
        readers.into_iter().map(join).collect()
    });
    let latencies = latencies?.concat();
    Ok(Reads {
        depth,
        count: latencies.len() as u64,
        elapsed_ns: begin.elapsed().as_nanos() as u64,
        latency: distribution(&latencies),
        counts: Counts::new(),
        events: Events::default(),
    })
}

/// One read after the other; how long each took, in nanoseconds.
fn read_some(file: &File, blocks: u64, numbers: std::ops::Range<u64>) -> io::Result<Vec<u64>> {
    let mut memory = vec![0; 2 * BLOCK_BYTES];
    let begin = memory.as_ptr().align_offset(BLOCK_BYTES);
    let block = &mut memory[begin..begin + BLOCK_BYTES];
    let mut latencies = Vec::new();
    for number in numbers {
        let place = (number * STRIDE) % blocks.max(1) * BLOCK_BYTES as u64;
        let before = Instant::now();
        file.read_exact_at(block, place)?;
        latencies.push(before.elapsed().as_nanos() as u64);
    }
    Ok(latencies)
}
