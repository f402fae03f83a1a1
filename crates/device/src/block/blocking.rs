//! A disk whose caller waits, over a queue.

use super::{BlockDevice, BlockError, BlockQueue, Buffers, Durability, Limits, Operation, Request};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::spin_loop;
use hw::DmaBuf;

/// A disk over a queue. What is longer than a buffer has as many requests in flight as there are
/// buffers and as the queue takes. It waits by looking: each request comes back, as [`BlockQueue`]
/// promises.
#[expect(
    clippy::vec_box,
    reason = "a request moves from list to list as its box"
)]
pub struct Blocking<Q> {
    queue: Q,
    /// Bytes of a read or write: whole blocks.
    size: usize,
    idle: Vec<Box<Request>>,
    todo: VecDeque<Box<Request>>,
    done: Vec<Box<Request>>,
}

/// What a request is about.
#[derive(Clone, Copy)]
struct Range {
    operation: Operation,
    offset: u64,
    length: u64,
    /// Most bytes of one request.
    size: u64,
}

impl<Q: BlockQueue> Blocking<Q> {
    /// A disk over `queue`, whose blocks move through these buffers: at least one, of at least a
    /// block each, that the queue's device can reach.
    pub fn new(queue: Q, buffers: Vec<DmaBuf>) -> Self {
        let limits = queue.limits();
        let shortest = buffers.iter().map(DmaBuf::len).min().unwrap_or(0);
        let size = shortest.min(limits.transfer_bytes_max);
        let count = buffers.len();
        let requests = buffers
            .into_iter()
            .map(|one| Request::new(Buffers(vec![one])));
        Self {
            size: size / limits.block_size * limits.block_size,
            idle: requests.collect(),
            todo: VecDeque::with_capacity(count),
            done: Vec::with_capacity(count),
            queue,
        }
    }

    /// Has the queue do all of `range`. `fill` is called with each request and its place in the
    /// range before, and `take` with each that has succeeded. The first error ends it, once
    /// everything in flight is back.
    fn run(
        &mut self,
        range: Range,
        mut fill: impl FnMut(usize, &mut Request),
        mut take: impl FnMut(usize, &Request),
    ) -> Result<(), BlockError> {
        let (mut next, mut in_flight, mut result) = (0, 0_usize, Ok(()));
        let mut is_over = false;
        loop {
            while range.size > 0
                && !is_over
                && result.is_ok()
                && let Some(mut request) = self.idle.pop()
            {
                request.operation = range.operation;
                request.token = next;
                request.offset = range.offset + next;
                request.length = range.size.min(range.length - next);
                fill(next as usize, &mut request);
                next += request.length;
                // A flush has no length, and is one request.
                is_over = next == range.length;
                in_flight += 1;
                self.todo.push_back(request);
            }
            if in_flight == 0 {
                break;
            }
            self.queue.submit(&mut self.todo);
            self.queue.complete(&mut self.done);
            if self.done.is_empty() {
                spin_loop();
            }
            for request in self.done.drain(..) {
                in_flight -= 1;
                match request.result {
                    Ok(()) => take(request.token as usize, &request),
                    Err(error) => result = result.and(Err(error)),
                }
                // One whose device keeps its buffers is used no more.
                if request.buffers.bytes() > 0 {
                    self.idle.push(request);
                }
            }
        }
        // Without buffers, nothing began.
        result.and(is_over.then_some(()).ok_or(BlockError::Gone))
    }

    fn range(&mut self, operation: Operation, offset: u64, length: u64) -> Result<(), BlockError> {
        let limits = self.queue.limits();
        limits.check_change(self.queue.capacity(), offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let range = Range {
            operation,
            offset,
            length,
            size: limits.range_bytes_max,
        };
        self.run(range, |_, _| {}, |_, _| {})
    }
}

impl<Q: BlockQueue> BlockDevice for Blocking<Q> {
    fn capacity(&self) -> u64 {
        self.queue.capacity()
    }

    fn limits(&self) -> Limits {
        self.queue.limits()
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check(self.capacity(), offset, length)?;
        if blocks.is_empty() {
            return Ok(());
        }
        let range = Range {
            operation: Operation::Read,
            offset,
            length,
            size: self.size as u64,
        };
        self.run(
            range,
            |_, _| {},
            |place, request| {
                let mut rest = &mut blocks[place..];
                for part in request.buffers.parts(request.length) {
                    let (front, behind) = rest.split_at_mut(part.len());
                    front.copy_from_slice(part);
                    rest = behind;
                }
            },
        )
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits()
            .check_change(self.capacity(), offset, length)?;
        if blocks.is_empty() {
            return Ok(());
        }
        let range = Range {
            operation: Operation::Write,
            offset,
            length,
            size: self.size as u64,
        };
        let fill = |place: usize, request: &mut Request| {
            let mut rest = &blocks[place..];
            for part in request.buffers.parts_mut(request.length) {
                let (front, behind) = rest.split_at(part.len());
                part.copy_from_slice(front);
                rest = behind;
            }
        };
        self.run(range, fill, |_, _| {})
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        match self.limits().durability {
            Durability::Written => return Ok(()),
            Durability::Unknown => return Err(BlockError::Unsupported),
            Durability::Flushed => {}
        }
        let range = Range {
            operation: Operation::Flush,
            offset: 0,
            length: 0,
            size: 1,
        };
        self.run(range, |_, _| {}, |_, _| {})
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        match self.limits().discard {
            true => self.range(Operation::Discard, offset, length),
            false => Err(BlockError::Unsupported),
        }
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        if self.limits().write_zeroes {
            return self.range(Operation::WriteZeroes, offset, length);
        }
        super::write_zeroes(self, offset, length)
    }
}
