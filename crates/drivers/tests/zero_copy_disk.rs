//! A command of an NVM Express disk allocates nothing and copies nothing.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::nvme::puppet::Puppet;
use drivers::block::nvme::{DEPTH, DMA_BYTES, Driver};
use hw::Reachable;
use std::collections::VecDeque;

const BYTES: usize = 4096;
const COMMANDS: usize = 40 * DEPTH;

#[test]
fn commands_allocate_nothing_and_the_device_has_the_callers_buffers() {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES + DEPTH * BYTES, 1 << 20);
    let mut driver = Driver::new(bar, &mut arena, None, puppet.clock(1000)).unwrap();
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
    let mut answered = 0;
    let counted = allocation_counter::measure(|| {
        while answered < COMMANDS {
            todo.extend(done.drain(..));
            driver.submit(&mut todo);
            while let Some(words) = puppet.fetch(1).unwrap() {
                let number = words[5] as usize * 512 / BYTES;
                assert_eq!((words[3], words[4]), (places[number], 0));
                puppet.post(1, (words[0] >> 16) as u16, 0).unwrap();
            }
            driver.complete(&mut done);
            answered += done.len();
            for request in &done {
                let at = request.buffers.iova().map(hw::Iova::raw);
                assert_eq!(at, Some(places[request.token as usize]));
            }
        }
    });
    assert_eq!((counted.count_total, answered), (0, COMMANDS));
}
