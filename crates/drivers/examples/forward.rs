//! Forwards frames of 64 bytes from one 82599 to another, to be counted by callgrind:
//!
//!     cargo xtask bench driver
//!
//! which starts it as `forward BATCH FRAMES` and counts what is in `forward_batch`. Both devices
//! are puppets, outside of that. `--copy` takes each frame through the heap, as where received
//! buffers cannot be given away. `--look` reads where a frame begins, as who judges it does, so
//! that the pages of the buffers are used as well.

use device::{BATCH_FRAMES_MAX, Batch, Nic, Pool};
use drivers::net::ixgbe::puppet::Puppet;
use drivers::net::ixgbe::{BUFFER_BYTES, BUFFERS, Config, Driver, RING};
use std::error::Error;
use std::hint::black_box;

/// Bytes of a frame of 64, without its checksum.
const FRAME_BYTES: usize = 60;
/// Buffers, aligned to cache lines, and rings.
const DMA_BYTES: usize = BUFFERS * (BUFFER_BYTES + 64) + 4 * 16 * RING;

/// What is counted: a batch is received and sent.
#[inline(never)]
fn forward_batch(from: &mut Driver, to: &mut Driver, batch: &mut Batch) {
    from.receive(batch);
    to.transmit(batch);
}

/// The same with copies.
#[inline(never)]
fn forward_batch_copied(from: &mut Driver, to: &mut Driver, batch: &mut Batch, pool: &Pool) {
    from.receive(batch);
    let mut copied = Batch::new();
    for frame in batch.drain() {
        let bytes = frame.bytes().to_vec();
        drop(frame);
        if let Some(mut frame) = pool.alloc(bytes.len()) {
            frame.bytes_mut().copy_from_slice(&bytes);
            // As many as there were.
            let _ = copied.push(frame);
        }
    }
    to.transmit(&mut copied);
}

/// The same with a look at each frame.
#[inline(never)]
fn forward_batch_seen(from: &mut Driver, to: &mut Driver, batch: &mut Batch) {
    from.receive(batch);
    for frame in batch.iter() {
        black_box(frame.bytes().first());
    }
    to.transmit(batch);
}

fn nic() -> Result<(Puppet, Driver, Pool), Box<dyn Error>> {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES)?;
    let nic = Driver::new(bar, &mut arena, pool, Config::FORWARD, puppet.clock())?;
    Ok((puppet, nic, pool))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (batch, frames, flag) = match arguments.as_slice() {
        [batch, frames] => (batch, frames, ""),
        [batch, frames, flag @ ("--copy" | "--look")] => (batch, frames, *flag),
        _ => return Err("usage: forward BATCH FRAMES [--copy | --look]".into()),
    };
    let (size, frames): (usize, usize) = (batch.parse()?, frames.parse()?);
    let (mut left, mut from, pool) = nic()?;
    let (mut right, mut to, _) = nic()?;
    let mut batch = Batch::new();
    let mut sent = 0;
    while sent < frames {
        for _ in 0..size {
            left.write_back(FRAME_BYTES as u64)?;
        }
        // A batch holds that many; more are several.
        for _ in 0..size.div_ceil(BATCH_FRAMES_MAX) {
            match flag {
                "--copy" => forward_batch_copied(&mut from, &mut to, &mut batch, &pool),
                "--look" => forward_batch_seen(&mut from, &mut to, &mut batch),
                _ => forward_batch(&mut from, &mut to, &mut batch),
            }
        }
        right.report(|[_, command]| sent += usize::from(command & 0xffff == FRAME_BYTES as u64))?;
    }
    assert_eq!(sent, frames.next_multiple_of(size), "every frame was sent");
    Ok(())
}
