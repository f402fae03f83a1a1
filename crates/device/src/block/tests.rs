//! Queues and devices over one another, and requests that no disk can do.

use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hw::DmaBuf;
use std::boxed::Box;

const BLOCK: usize = 512;
const BLOCKS: usize = 64;
const BYTES: usize = BLOCK * BLOCKS;

/// A disk whose bytes tell their places.
fn ram() -> MemoryDisk {
    let ram = MemoryDisk::new(BYTES);
    ram.content_mut().bytes = (0..BYTES).map(|at| (at / BLOCK + at) as u8).collect();
    ram
}

fn buffer(bytes: usize) -> DmaBuf {
    DmaBuf::plain(vec![0; bytes].leak())
}

/// A device over a queue over a device, with so many buffers of so many bytes.
fn both_ways(ram: &MemoryDisk, buffers: &[usize]) -> Blocking<Immediate<MemoryDisk>> {
    let buffers = buffers.iter().map(|bytes| buffer(*bytes)).collect();
    Blocking::new(Immediate::new(ram.clone()), buffers)
}

#[test]
fn blocks_go_both_ways_through_a_queue() {
    let ram = ram();
    let mut disk = both_ways(&ram, &[4 * BLOCK, 4 * BLOCK + 1, 5 * BLOCK]);
    let mut bytes = vec![0; BYTES - BLOCK];
    disk.read(BLOCK as u64, &mut bytes).unwrap();
    assert_eq!(bytes, ram.content().bytes[BLOCK..]);
    let asked = ram.content().transfers.clone();
    assert!(asked.iter().all(|(_, length)| *length <= 4 * BLOCK));
    assert_eq!(asked.len(), (BLOCKS - 1).div_ceil(4));
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    disk.write(0, &bytes).unwrap();
    assert_eq!(bytes, ram.content().bytes[..BYTES - BLOCK]);
    disk.flush().unwrap();
    assert_eq!(ram.content().flushes, 1);
    disk.write_zeroes(BLOCK as u64, 3 * BLOCK as u64).unwrap();
    let zeroes = &ram.content().bytes[BLOCK..4 * BLOCK];
    assert!(zeroes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_block_that_fails_ends_its_own_request_alone() {
    let ram = ram();
    ram.content_mut().bad = Some(3 * BLOCK as u64);
    let mut disk = both_ways(&ram, &[BLOCK; 4]);
    let failed = Err(BlockError::Device(1));
    assert_eq!(disk.read(0, &mut [0; 8 * BLOCK]), failed);
    assert_eq!(disk.write(0, &[0; 8 * BLOCK]), failed);
    assert_eq!(disk.read(0, &mut [0; 3 * BLOCK]), Ok(()));
    assert_eq!(disk.read(4 * BLOCK as u64, &mut [0; 4 * BLOCK]), Ok(()));
    // None of its buffers was lost.
    ram.content_mut().bad = None;
    assert_eq!(disk.read(0, &mut [0; BYTES]), Ok(()));
}

#[test]
fn requests_come_back_with_their_buffers_and_what_became_of_them() {
    let ram = ram();
    ram.content_mut().bad = Some(9 * BLOCK as u64);
    let mut queue = Immediate::new(ram.clone());
    let mut todo: VecDeque<_> = (0..2 * queue.depth() as u64)
        .map(|token| {
            let mut request = Request::new(Buffers(vec![buffer(BLOCK), buffer(2 * BLOCK)]));
            request.operation = Operation::Read;
            (request.token, request.offset) = (token, token % 16 * BLOCK as u64);
            request.length = 2 * BLOCK as u64;
            request
        })
        .collect();
    let (total, mut done) = (todo.len(), Vec::new());
    queue.submit(&mut todo);
    assert_eq!(
        todo.len(),
        total - queue.depth(),
        "it takes what it has room for"
    );
    while queue.arm() {
        queue.complete(&mut done);
        queue.submit(&mut todo);
    }
    assert_eq!(done.len(), total);
    for request in &done {
        let block = request.token as usize % 16;
        let fails = (block..block + 2).contains(&9);
        assert_eq!(request.result.is_err(), fails);
        let parts: Vec<_> = request.buffers.parts(request.length).collect();
        let [first, second] = parts[..] else {
            panic!("two buffers: {parts:?}");
        };
        assert_eq!((first.len(), second.len()), (BLOCK, BLOCK));
        if !fails {
            let bytes = &ram.content().bytes[block * BLOCK..][..2 * BLOCK];
            assert_eq!([first, second].concat(), bytes);
        }
    }
}

#[test]
fn what_no_disk_can_do_is_refused_with_its_reason() {
    use BlockError::{OutOfRange, ReadOnly, Unsupported};
    use Operation::{Discard, Read, Write, WriteZeroes};
    let limits = Limits {
        transfer_bytes_max: 4 * BLOCK,
        buffers_max: 2,
        ..Limits::plain(BLOCK)
    };
    let check = |operation, offset, length, buffers: &[usize], limits| {
        let buffers = buffers.iter().map(|bytes| buffer(*bytes)).collect();
        let mut request = Request::new(Buffers(buffers));
        request.operation = operation;
        (request.offset, request.length) = (offset, length);
        request.check(&limits, BYTES as u64)
    };
    let (block, end) = (BLOCK as u64, BYTES as u64);
    assert_eq!(check(Read, 0, block, &[BLOCK], limits), Ok(()));
    assert_eq!(check(Read, 1, block, &[BLOCK], limits), Err(OutOfRange));
    assert_eq!(check(Read, 0, 511, &[BLOCK], limits), Err(OutOfRange));
    assert_eq!(check(Read, end, block, &[BLOCK], limits), Err(OutOfRange));
    let last = u64::MAX - 511;
    assert_eq!(check(Write, last, block, &[BLOCK], limits), Err(OutOfRange));
    // Too few bytes, a part of a block between two buffers, too many buffers, too many bytes.
    for buffers in [&[BLOCK][..], &[100, BLOCK], &[BLOCK, BLOCK, BLOCK]] {
        assert_eq!(check(Read, 0, 2 * block, buffers, limits), Err(Unsupported));
    }
    let large = [8 * BLOCK];
    assert_eq!(check(Read, 0, 5 * block, &large, limits), Err(Unsupported));
    assert_eq!(check(Discard, 0, block, &[], limits), Err(Unsupported));
    let offers = Limits {
        discard: true,
        write_zeroes: true,
        range_bytes_max: 2 * block,
        ..limits
    };
    for operation in [Discard, WriteZeroes] {
        assert_eq!(check(operation, 0, 2 * block, &[], offers), Ok(()));
        assert_eq!(
            check(operation, 0, 3 * block, &[], offers),
            Err(Unsupported)
        );
        let read_only = Limits {
            read_only: true,
            ..offers
        };
        assert_eq!(check(operation, 0, block, &[], read_only), Err(ReadOnly));
        assert_eq!(check(Write, 0, block, &[BLOCK], read_only), Err(ReadOnly));
        assert_eq!(check(Read, 0, block, &[BLOCK], read_only), Ok(()));
    }
}

#[test]
fn a_device_that_keeps_its_buffers_is_asked_no_more() {
    /// A queue that gives back no buffers.
    struct Keeps(Immediate<MemoryDisk>);
    impl BlockQueue for Keeps {
        fn capacity(&self) -> u64 {
            self.0.capacity()
        }
        fn limits(&self) -> Limits {
            self.0.limits()
        }
        fn depth(&self) -> usize {
            self.0.depth()
        }
        fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
            self.0.submit(requests);
        }
        fn complete(&mut self, done: &mut Vec<Box<Request>>) {
            self.0.complete(done);
            for request in done {
                request.buffers = Buffers::default();
                request.result = Err(BlockError::Reset);
            }
        }
        fn arm(&mut self) -> bool {
            self.0.arm()
        }
        fn wait_handle(&self) -> Option<crate::WaitHandle> {
            None
        }
    }
    let queue = Keeps(Immediate::new(ram()));
    let mut disk = Blocking::new(queue, vec![buffer(BLOCK), buffer(BLOCK)]);
    assert_eq!(disk.read(0, &mut [0; BYTES]), Err(BlockError::Reset));
    assert_eq!(disk.read(0, &mut [0; BLOCK]), Err(BlockError::Gone));
    assert_eq!(disk.flush(), Err(BlockError::Gone));
}

#[test]
fn a_flush_is_what_durability_says() {
    struct Plain(Durability);
    impl BlockDevice for Plain {
        fn capacity(&self) -> u64 {
            0
        }
        fn limits(&self) -> Limits {
            Limits {
                durability: self.0,
                ..Limits::plain(BLOCK)
            }
        }
        fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), BlockError> {
            Ok(())
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), BlockError> {
            Ok(())
        }
    }
    assert_eq!(Plain(Durability::Written).flush(), Ok(()));
    let unsupported = Err(BlockError::Unsupported);
    assert_eq!(Plain(Durability::Unknown).flush(), unsupported);
    let over = |durability| Blocking::new(Immediate::new(Plain(durability)), Vec::new()).flush();
    assert_eq!(over(Durability::Written), Ok(()));
    assert_eq!(over(Durability::Unknown), unsupported);
}
