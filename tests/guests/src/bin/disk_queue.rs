//! A disk with several requests in flight (first argument): `whole` writes, flushes, discards and
//! reads all of it; `survive` reads until nobody serves the disk any more, and goes on.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use device::BlockError;
use device::block::{BlockQueue, Buffers, Operation, Request};
use unikernel::{monotonic, println};

unikernel::entry!(main);

/// What is moved by one request, and how many there are.
const PIECE: usize = 64 << 10;
const COUNT: usize = 32;
/// As in the guest `disk`.
const DISCARDED: core::ops::Range<usize> = (1 << 20)..(3 << 20);
const ZEROES: core::ops::Range<usize> = (5 << 20) + 4096..(5 << 20) + 4096 + (100 << 10);
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let (queue, buffers) = appliance::queue("disk", COUNT, PIECE).expect("disk");
    println!("{:?}, depth {}", queue.limits(), queue.depth());
    assert!(queue.wait_handle().is_some(), "somebody serves it");
    let requests = buffers
        .into_iter()
        .map(|one| Request::new(Buffers(vec![one])));
    let mut disk = Disk {
        queue,
        free: requests.collect(),
    };
    match unikernel::arguments().next() {
        Some("whole") => disk.whole(),
        _ => disk.survive(),
    }
    println!("SUCCESS");
}

/// The byte at this place.
fn expected(at: usize, is_changed: bool) -> u8 {
    match is_changed && (DISCARDED.contains(&at) || ZEROES.contains(&at)) {
        true => 0,
        false => (at >> 9) as u8 | 1,
    }
}

struct Disk {
    queue: Box<dyn BlockQueue>,
    #[expect(
        clippy::vec_box,
        reason = "the queue takes and gives boxes, which are made once"
    )]
    free: Vec<Box<Request>>,
}

impl Disk {
    /// Does these, as many at a time as there are requests, each prepared and looked at.
    fn all(
        &mut self,
        operation: Operation,
        ranges: impl IntoIterator<Item = (usize, usize)>,
        prepare: impl Fn(&mut Request),
        look: impl Fn(&Request),
    ) {
        let mut ranges = ranges.into_iter().peekable();
        let (mut waiting, mut done) = (VecDeque::new(), Vec::new());
        let late = monotonic() + PATIENCE;
        while ranges.peek().is_some() || self.free.len() < COUNT {
            while let Some(mut request) = self.free.pop() {
                let Some((offset, length)) = ranges.next() else {
                    self.free.push(request);
                    break;
                };
                request.operation = operation;
                (request.offset, request.length) = (offset as u64, length as u64);
                prepare(&mut request);
                waiting.push_back(request);
            }
            self.queue.submit(&mut waiting);
            self.queue.complete(&mut done);
            if done.is_empty() && !self.queue.arm() {
                unikernel::wait(Some(late));
                assert!(monotonic() < late, "nothing comes back");
            }
            for request in done.drain(..) {
                look(&request);
                self.free.push(request);
            }
        }
    }

    fn whole(&mut self) {
        let capacity = self.queue.capacity() as usize;
        let pieces = || (0..capacity).step_by(PIECE).map(|start| (start, PIECE));
        let fill = |request: &mut Request| {
            let mut at = request.offset as usize;
            for part in request.buffers.parts_mut(PIECE as u64) {
                for byte in part {
                    *byte = expected(at, false);
                    at += 1;
                }
            }
        };
        let is_done = |request: &Request| assert_eq!(request.result, Ok(()));
        let one = |range: core::ops::Range<usize>| [(range.start, range.len())];
        self.all(Operation::Write, pieces(), fill, is_done);
        self.all(Operation::Flush, [(0, 0)], |_| (), is_done);
        for start in DISCARDED.step_by(1 << 20) {
            self.all(Operation::Discard, [(start, 1 << 20)], |_| (), is_done);
        }
        self.all(Operation::WriteZeroes, one(ZEROES), |_| (), is_done);
        self.all(Operation::Flush, [(0, 0)], |_| (), is_done);
        let compare = |request: &Request| {
            is_done(request);
            let mut at = request.offset as usize;
            for part in request.buffers.parts(PIECE as u64) {
                for byte in part {
                    assert_eq!(*byte, expected(at, true), "byte {at}");
                    at += 1;
                }
            }
        };
        self.all(Operation::Read, pieces(), |_| (), compare);
        let refused = |request: &Request| assert_eq!(request.result, Err(BlockError::OutOfRange));
        let outside = [(capacity, 512), (1, 512), (usize::MAX - 511, 512)];
        self.all(Operation::Read, outside, |_| (), refused);
    }

    fn survive(&mut self) {
        println!("READY");
        let is_gone = core::cell::Cell::new(false);
        let look = |request: &Request| match request.result {
            Err(BlockError::Gone) => is_gone.set(true),
            result => assert_eq!(result, Ok(())),
        };
        while !is_gone.get() {
            let pieces = (0..COUNT).map(|number| (number * PIECE, PIECE));
            self.all(Operation::Read, pieces, |_| (), look);
        }
        let gone = |request: &Request| assert_eq!(request.result, Err(BlockError::Gone));
        self.all(Operation::Write, [(0, PIECE)], |_| (), gone);
        println!("GONE");
    }
}
