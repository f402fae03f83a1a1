//! A command of a disk allocates nothing and copies nothing.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::{ahci, nvme, virtio};
use drivers::virtio::puppet::{FEATURES, Puppet};
use hw::{DmaArena, Reachable};
use std::collections::VecDeque;

const BYTES: usize = 4096;
const DEPTH: usize = 32;
const COMMANDS: usize = 40 * DEPTH;

/// Reads and writes with all that the queue takes in flight. `serve` is told where the buffers lie,
/// in the order of the blocks, and answers commands.
fn commands_allocate_nothing(
    mut driver: impl BlockQueue,
    mut arena: DmaArena,
    mut serve: impl FnMut(&[u64]),
) {
    assert_eq!(driver.depth(), DEPTH);
    let mut todo = VecDeque::with_capacity(DEPTH);
    let mut done = Vec::with_capacity(DEPTH);
    let mut places = Vec::new();
    for number in 0..DEPTH as u64 {
        let buffer = arena.buf(BYTES, BYTES).unwrap();
        places.push(buffer.iova().unwrap().raw());
        let mut request = Request::new(Buffers(vec![buffer]));
        request.operation = match number % 2 {
            0 => Operation::Read,
            _ => Operation::Write,
        };
        (request.offset, request.length) = (number * BYTES as u64, BYTES as u64);
        request.token = number;
        done.push(request);
    }
    let (mut answered, mut allocations) = (0, 0);
    while answered < COMMANDS {
        todo.extend(done.drain(..));
        allocations += allocation_counter::measure(|| driver.submit(&mut todo)).count_total;
        serve(&places);
        allocations += allocation_counter::measure(|| driver.complete(&mut done)).count_total;
        answered += done.len();
        for request in &done {
            let at = request.buffers.iova().map(hw::Iova::raw);
            assert_eq!(at, Some(places[request.token as usize]));
            assert_eq!(request.result, Ok(()));
        }
    }
    assert_eq!((allocations, answered), (0, COMMANDS));
}

#[test]
fn of_nvm_express() {
    let bytes = nvme::DMA_BYTES + DEPTH * BYTES;
    let (puppet, bar, mut arena) = nvme::puppet::Puppet::new(bytes, 1 << 20);
    let driver = nvme::Driver::new(bar, &mut arena, None, puppet.clock(1000)).unwrap();
    commands_allocate_nothing(driver, arena, |places| {
        while let Some(words) = puppet.fetch(1).unwrap() {
            let number = words[5] as usize * 512 / BYTES;
            assert_eq!((words[3], words[4]), (places[number], 0));
            puppet.post(1, (words[0] >> 16) as u16, 0).unwrap();
        }
    });
}

#[test]
fn of_ahci() {
    let bytes = ahci::DMA_BYTES + DEPTH * BYTES;
    let (puppet, bar, mut arena) = ahci::puppet::Puppet::new(bytes, 1 << 20);
    let driver = ahci::Driver::new(bar, &mut arena, puppet.clock(1_000_000)).unwrap();
    commands_allocate_nothing(driver, arena, |places| {
        while let Some(taken) = puppet.take().unwrap() {
            let number = taken.block as usize * 512 / BYTES;
            assert_eq!(taken.regions, [(places[number], BYTES)]);
            puppet.answer(taken.slot);
        }
    });
}

#[test]
fn of_virtio() {
    let (bytes, config) = (
        virtio::DMA_BYTES + DEPTH * BYTES,
        (1u64 << 20).to_le_bytes(),
    );
    let (puppet, transport, mut arena) = Puppet::pci(virtio::KIND, &config, bytes);
    puppet.device().offered.set(FEATURES);
    let driver = virtio::Driver::new(transport, &mut arena, puppet.clock()).unwrap();
    commands_allocate_nothing(driver, arena, |places| {
        while let Some((head, buffers)) = puppet.fetch(0).unwrap() {
            let sector = puppet.view().load(buffers[0].0 + 8).unwrap();
            let number = sector as usize * 512 / BYTES;
            assert_eq!((buffers[1].0, buffers[1].1), (places[number], BYTES as u32));
            puppet.view().write(buffers[2].0, &[0]).unwrap();
            puppet.give_back(0, head, 1).unwrap();
        }
    });
}
