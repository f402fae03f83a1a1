//! Requests to a disk, each of which is somewhere at any time, and once.

use device::block::{BlockQueue, Buffers, Operation, Request};
use hw::DmaArena;
use std::collections::{BTreeSet, VecDeque};

/// Bytes of DMA memory that all of them take.
pub const ARENA_BYTES: usize = REQUESTS * BUFFER;
const BUFFER: usize = 8192;
const REQUESTS: usize = 12;
/// What an input does; each step takes eight bytes of it.
const STEPS_MAX: usize = 1000;

/// Requests that are over.
type Over = Vec<Box<Request>>;

/// All requests.
pub struct Requests {
    idle: VecDeque<Box<Request>>,
    todo: VecDeque<Box<Request>>,
    done: Over,
    in_flight: usize,
}

impl Requests {
    /// None of them asked for.
    pub fn new(arena: &mut DmaArena) -> Self {
        Self {
            idle: (0..REQUESTS).map(|token| request(arena, token)).collect(),
            todo: VecDeque::new(),
            done: Vec::new(),
            in_flight: 0,
        }
    }

    /// Submits a request, whatever it asks for.
    pub fn ask(&mut self, driver: &mut impl BlockQueue, small: u16, large: u32, more: u8) {
        let Some(mut request) = self.idle.pop_front() else {
            return;
        };
        request.operation = match more % 5 {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            _ => Operation::WriteZeroes,
        };
        request.offset = u64::from(small) * 512;
        request.length = u64::from(large % 20) * 512;
        self.in_flight += 1;
        self.todo.push_back(request);
        driver.submit(&mut self.todo);
    }

    /// Takes what is over: each request once, with its buffer unless the device was given up.
    pub fn look(&mut self, driver: &mut impl BlockQueue) {
        self.look_at(driver, |_| {});
    }

    /// The same, and shows each one that is over.
    pub fn look_at(&mut self, driver: &mut impl BlockQueue, show: impl FnMut(&Request)) {
        driver.submit(&mut self.todo);
        driver.complete(&mut self.done);
        self.done.iter().map(|request| &**request).for_each(show);
        self.in_flight -= self.done.len();
        self.idle.extend(self.done.drain(..));
        let seen: BTreeSet<_> = self.idle.iter().map(|request| request.token).collect();
        assert_eq!(seen.len(), self.idle.len(), "a request came twice");
        assert_eq!(seen.len() + self.in_flight, REQUESTS);
    }

    /// How many are not over.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether each has its buffer.
    pub fn have_buffers(&self) -> bool {
        let mut sizes = self.idle.iter().map(|request| request.buffers.bytes());
        sizes.all(|bytes| bytes == BUFFER as u64)
    }
}

fn request(arena: &mut DmaArena, token: usize) -> Box<Request> {
    let buffer = arena.buf(BUFFER, 4096).expect("there is room");
    let mut request = Request::new(Buffers(vec![buffer]));
    request.token = token as u64;
    request
}

/// The steps of an input: what is to be done, and three numbers.
pub fn steps(bytes: &[u8]) -> impl Iterator<Item = (u8, u16, u32, u8)> {
    bytes.chunks_exact(8).take(STEPS_MAX).map(|step| {
        let [what, a, b, c, d, e, f, more] = *step else {
            unreachable!("eight bytes");
        };
        let (small, large) = (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
        (what, small, large, more)
    })
}
