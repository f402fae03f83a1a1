//! Forwards frames of 64 bytes from one 82599 to another, to be counted by callgrind:
//!
//!     cargo xtask bench driver
//!
//! which starts it as `forward BATCH FRAMES` and counts what is in `forward_batch`. Both devices
//! are puppets, outside of that. `--copy` takes each frame through the heap, as where received
//! buffers cannot be given away. `--look` reads where a frame begins, as who judges it does, so
//! that the pages of the buffers are used as well. `--e1000e` takes two 82574L instead, and
//! `--virtio` two virtio devices.

use device::{BATCH_FRAMES_MAX, Batch, Nic, Pool};
use drivers::net::puppet::{Part, Puppet};
use drivers::net::{e1000e, ixgbe, virtio};
use drivers::virtio::pci::Pci;
use hw::sim::Outside;
use std::error::Error;
use std::hint::black_box;

/// Bytes of a frame of 64, without its checksum.
const FRAME_BYTES: usize = 60;

/// A driver and the device's end.
struct Card<P, N> {
    puppet: P,
    driver: N,
    pool: Pool,
}

/// What the device's end does.
trait Far {
    /// Says that a frame has come, and touches none of its bytes.
    fn write_back(&mut self) -> Result<(), Outside>;
    /// Says that all frames are sent; how many bytes they had.
    fn report(&mut self) -> Result<usize, Outside>;
}

impl<P: Part> Far for Puppet<P> {
    fn write_back(&mut self) -> Result<(), Outside> {
        Self::write_back(self, FRAME_BYTES as u64)
    }

    fn report(&mut self) -> Result<usize, Outside> {
        // A frame across the end of a page has two descriptors on some devices.
        let mut bytes = 0;
        Self::report(self, |[_, command]| bytes += command as usize & 0xffff)?;
        Ok(bytes)
    }
}

impl Far for virtio::puppet::Puppet {
    fn write_back(&mut self) -> Result<(), Outside> {
        Self::write_back(self, FRAME_BYTES as u64)
    }

    fn report(&mut self) -> Result<usize, Outside> {
        let frames = self.drain()?;
        // It wants to be told of the next frame, as one that is idle does.
        self.set_event(1, self.used(1))?;
        let header = virtio::puppet::PLAIN.len();
        Ok(frames.iter().map(|frame| frame.len() - header).sum())
    }
}

/// What is counted: a batch is received and sent.
#[inline(never)]
fn forward_batch<N: Nic>(from: &mut N, to: &mut N, batch: &mut Batch) {
    from.receive(batch);
    to.transmit(batch);
}

/// The same with copies.
#[inline(never)]
fn forward_batch_copied<N: Nic>(from: &mut N, to: &mut N, batch: &mut Batch, pool: &Pool) {
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
fn forward_batch_seen<N: Nic>(from: &mut N, to: &mut N, batch: &mut Batch) {
    from.receive(batch);
    for frame in batch.iter() {
        black_box(frame.bytes().first());
    }
    to.transmit(batch);
}

/// Two drivers with this name, each with its puppet.
macro_rules! cards {
    ($driver:ident) => {{
        // Buffers, aligned to cache lines, and rings.
        const DMA_BYTES: usize =
            $driver::BUFFERS * ($driver::BUFFER_BYTES + 64) + 4 * 16 * $driver::RING;
        let card = || -> Result<_, Box<dyn Error>> {
            let (puppet, bar, mut arena) = $driver::puppet::Puppet::new(DMA_BYTES);
            let pool = Pool::dma(&mut arena, $driver::BUFFERS, $driver::BUFFER_BYTES)?;
            let config = $driver::Config::FORWARD;
            let driver: $driver::Driver =
                $driver::Driver::new(bar, &mut arena, pool, config, puppet.clock())?;
            Ok(Card {
                puppet,
                driver,
                pool,
            })
        };
        (card()?, card()?)
    }};
}

/// A virtio device, and its driver.
fn virtio_card() -> Result<Card<virtio::puppet::Puppet, virtio::Driver<Pci>>, Box<dyn Error>> {
    const DMA_BYTES: usize = virtio::BUFFERS * (virtio::BUFFER_BYTES + 64) + 6 * 4096;
    let (puppet, transport, mut arena) = virtio::puppet::Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, virtio::BUFFERS, virtio::BUFFER_BYTES)?;
    let config = virtio::Config::FORWARD;
    let driver = virtio::Driver::new(transport, &mut arena, pool, config, puppet.clock())?;
    Ok(Card {
        puppet,
        driver,
        pool,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (batch, frames, flag) = match arguments.as_slice() {
        [batch, frames] => (batch, frames, ""),
        [
            batch,
            frames,
            flag @ ("--copy" | "--look" | "--e1000e" | "--virtio"),
        ] => (batch, frames, *flag),
        _ => {
            return Err(
                "usage: forward BATCH FRAMES [--copy | --look | --e1000e | --virtio]".into(),
            );
        }
    };
    let (size, frames): (usize, usize) = (batch.parse()?, frames.parse()?);
    match flag {
        "--e1000e" => forward(cards!(e1000e), size, frames, flag),
        "--virtio" => forward((virtio_card()?, virtio_card()?), size, frames, flag),
        _ => forward(cards!(ixgbe), size, frames, flag),
    }
}

/// Forwards so many frames in batches of this size.
fn forward<P: Far, N: Nic>(
    (mut left, mut right): (Card<P, N>, Card<P, N>),
    size: usize,
    frames: usize,
    flag: &str,
) -> Result<(), Box<dyn Error>> {
    let (from, to) = (&mut left.driver, &mut right.driver);
    let mut batch = Batch::new();
    let mut bytes = 0;
    while bytes < frames * FRAME_BYTES {
        for _ in 0..size {
            left.puppet.write_back()?;
        }
        // A batch holds that many; more are several.
        for _ in 0..size.div_ceil(BATCH_FRAMES_MAX) {
            match flag {
                "--copy" => forward_batch_copied(from, to, &mut batch, &left.pool),
                "--look" => forward_batch_seen(from, to, &mut batch),
                _ => forward_batch(from, to, &mut batch),
            }
        }
        bytes += right.puppet.report()?;
    }
    let all = frames.next_multiple_of(size) * FRAME_BYTES;
    assert_eq!(bytes, all, "every frame was sent");
    Ok(())
}
