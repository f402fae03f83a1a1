//! Has an NVM Express disk read blocks of 4 KiB, to be counted by callgrind:
//!
//!     cargo xtask instructions
//!
//! which starts it as `commands DEPTH COMMANDS` and counts what is in `command_turn`: so many
//! commands are given to the device at once, and their answers taken. The device is a puppet,
//! outside of that.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::nvme::puppet::Puppet;
use drivers::block::nvme::{DEPTH, DMA_BYTES, Driver};
use std::collections::VecDeque;
use std::error::Error;

/// Bytes of a command.
const BYTES: usize = 4096;
/// Blocks of the disk, of 512 bytes.
const BLOCKS: u64 = 1 << 20;

/// What is counted of the way there.
#[inline(never)]
fn command_turn_there(driver: &mut Driver, todo: &mut VecDeque<Box<Request>>) {
    driver.submit(todo);
}

/// Requests that are over.
type Requests = Vec<Box<Request>>;

/// What is counted of the way back.
#[inline(never)]
fn command_turn_back(driver: &mut Driver, done: &mut Requests) {
    driver.complete(done);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: commands DEPTH COMMANDS");
    let (depth, commands): (usize, usize) = (next()?.parse()?, next()?.parse()?);
    if !(1..=DEPTH).contains(&depth) {
        return Err(format!("a depth from 1 to {DEPTH}").into());
    }
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES + depth * BYTES, BLOCKS);
    let mut driver = Driver::new(bar, &mut arena, None, puppet.clock(1000))?;
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
        while let Some(words) = puppet.fetch(1)? {
            puppet.post(1, (words[0] >> 16) as u16, 0)?;
        }
        command_turn_back(&mut driver, &mut done);
        if done.len() != depth || done.iter().any(|request| request.result.is_err()) {
            return Err("a command was not answered".into());
        }
    }
    Ok(())
}
