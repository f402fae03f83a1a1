//! Has a disk read blocks of 4 KiB, to be counted by callgrind:
//!
//!     cargo xtask instructions
//!
//! which starts it as `commands DEPTH COMMANDS [--ahci | --virtio]` and counts what is in
//! `command_turn`: so many commands are given to the device at once, and their answers taken. The
//! device is a puppet, outside of that: an NVM Express disk, or one of those.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::{ahci, nvme, virtio};
use drivers::virtio::puppet::Puppet;
use hw::DmaArena;
use std::collections::VecDeque;
use std::error::Error;

/// Bytes of a command.
const BYTES: usize = 4096;
/// Blocks of the disk, of 512 bytes.
const BLOCKS: u64 = 1 << 20;
/// Most commands at once, of each of these drivers.
const DEPTH: usize = 32;
/// Features of a virtio disk with an event index and a cache, and its configuration: its sectors.
const FEATURES: u64 = drivers::virtio::puppet::FEATURES | 1 << 9;

/// What is counted of the way there.
#[inline(never)]
fn command_turn_there(driver: &mut impl BlockQueue, todo: &mut VecDeque<Box<Request>>) {
    driver.submit(todo);
}

/// Requests that are over.
type Requests = Vec<Box<Request>>;

/// What is counted of the way back.
#[inline(never)]
fn command_turn_back(driver: &mut impl BlockQueue, done: &mut Requests) {
    driver.complete(done);
}

type Failed = Box<dyn Error>;

/// Has so many commands done, `depth` at a time, that `serve` answers.
fn turns(
    mut driver: impl BlockQueue,
    mut arena: DmaArena,
    [depth, commands]: [usize; 2],
    mut serve: impl FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (mut todo, mut done) = (VecDeque::with_capacity(depth), Vec::with_capacity(depth));
    for number in 0..depth as u64 {
        let mut request = Request::new(Buffers(vec![arena.buf(BYTES, BYTES)?]));
        request.operation = Operation::Read;
        (request.offset, request.length) = (number * BYTES as u64, BYTES as u64);
        done.push(request);
    }
    for _ in 0..commands / depth {
        todo.extend(done.drain(..));
        command_turn_there(&mut driver, &mut todo);
        serve()?;
        command_turn_back(&mut driver, &mut done);
        if done.len() != depth || done.iter().any(|request| request.result.is_err()) {
            return Err("a command was not answered".into());
        }
    }
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: commands DEPTH COMMANDS");
    let (depth, commands): (usize, usize) = (next()?.parse()?, next()?.parse()?);
    if !(1..=DEPTH).contains(&depth) {
        return Err(format!("a depth from 1 to {DEPTH}").into());
    }
    let counts = [depth, commands];
    match arguments.next().as_deref() {
        None => nvme_turns(counts),
        Some("--ahci") => ahci_turns(counts),
        Some("--virtio") => virtio_turns(counts),
        Some(other) => Err(format!("no device is {other}").into()),
    }
}

fn nvme_turns(counts: [usize; 2]) -> Result<(), Failed> {
    let bytes = nvme::DMA_BYTES + DEPTH * BYTES;
    let (puppet, bar, mut arena) = nvme::puppet::Puppet::new(bytes, BLOCKS);
    let driver = nvme::Driver::new(bar, &mut arena, None, puppet.clock(1000))?;
    turns(driver, arena, counts, || {
        while let Some(words) = puppet.fetch(1)? {
            puppet.post(1, (words[0] >> 16) as u16, 0)?;
        }
        Ok(())
    })
}

fn ahci_turns(counts: [usize; 2]) -> Result<(), Failed> {
    let bytes = ahci::DMA_BYTES + DEPTH * BYTES;
    let (puppet, bar, mut arena) = ahci::puppet::Puppet::new(bytes, BLOCKS);
    let driver = ahci::Driver::new(bar, &mut arena, puppet.clock(1_000_000))?;
    turns(driver, arena, counts, || {
        while let Some(taken) = puppet.take()? {
            puppet.answer(taken.slot);
        }
        Ok(())
    })
}

fn virtio_turns(counts: [usize; 2]) -> Result<(), Failed> {
    let bytes = virtio::DMA_BYTES + DEPTH * BYTES;
    let config = BLOCKS.to_le_bytes();
    let (puppet, transport, mut arena) = Puppet::pci(virtio::KIND, &config, bytes);
    puppet.device().offered.set(FEATURES);
    let driver = virtio::Driver::new(transport, &mut arena, puppet.clock())?;
    turns(driver, arena, counts, || {
        while let Some((head, buffers)) = puppet.fetch(0)? {
            let (status, ..) = *buffers.last().ok_or("no status")?;
            puppet.view().write(status, &[0])?;
            puppet.give_back(0, head, 1)?;
        }
        Ok(())
    })
}
