//! How many requests a disk does in a while, with one or several of them in flight.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use device::BlockDevice;
use device::block::{BlockQueue, Buffers, Operation, Request};
use hw::DmaBuf;
use ports::Instant;
use unikernel::{monotonic, println};

/// Bytes that are done between two looks at the clock, which is a call of the host.
const LOOK_BYTES: u64 = 1 << 20;
/// How long nothing may come back.
const PATIENCE: Duration = Duration::from_secs(5);
const USAGE: &str = "read|write random|sequential BYTES DEPTH MILLISECONDS; depth 0 waits for each";

/// What to do.
struct Load {
    writes: bool,
    random: bool,
    bytes: usize,
    depth: usize,
    length: Duration,
}

impl Load {
    fn parse() -> Option<Self> {
        let mut words = unikernel::arguments();
        let is = |word: Option<&str>, yes, no| match word {
            Some(word) if word == yes => Some(true),
            Some(word) if word == no => Some(false),
            _ => None,
        };
        let load = Self {
            writes: is(words.next(), "write", "read")?,
            random: is(words.next(), "random", "sequential")?,
            bytes: words.next()?.parse().ok().filter(|bytes| *bytes > 0)?,
            depth: words.next()?.parse().ok()?,
            length: Duration::from_millis(words.next()?.parse().ok()?),
        };
        words.next().is_none().then_some(load)
    }
}

/// Where the next request goes.
struct Places {
    random: bool,
    bytes: u64,
    count: u64,
    next: u64,
    state: u64,
}

impl Places {
    fn new(load: &Load, capacity: u64) -> Self {
        let bytes = load.bytes as u64;
        Self {
            random: load.random,
            bytes,
            count: capacity / bytes,
            next: 0,
            state: monotonic().0 | 1,
        }
    }

    /// In bytes. Numbers are those of xorshift64 (Marsaglia, 2003).
    fn next(&mut self) -> u64 {
        self.next = match self.random {
            true => {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                self.state % self.count
            }
            false => (self.next + 1) % self.count,
        };
        self.next * self.bytes
    }
}

/// When to end.
struct Clock {
    begin: Instant,
    end: Instant,
    /// Requests between two looks.
    every: u64,
    done: u64,
}

impl Clock {
    fn start(load: &Load) -> Self {
        let begin = monotonic();
        Self {
            begin,
            end: begin + load.length,
            every: (LOOK_BYTES / load.bytes as u64).max(1),
            done: 0,
        }
    }

    /// Counts one more; whether it is time.
    fn is_over(&mut self) -> bool {
        self.done += 1;
        self.done.is_multiple_of(self.every) && monotonic() >= self.end
    }

    /// Says how many there were, and in how many nanoseconds.
    fn say(&self) {
        println!("{} {}", self.done, monotonic().0 - self.begin.0);
    }
}

/// Does what the command line says, and says how many requests were done in how many nanoseconds.
pub fn run() -> i32 {
    let Some(load) = Load::parse() else {
        println!("{USAGE}");
        return abi::exit::FAILURE;
    };
    match load.depth {
        0 => wait_for_each(&load, &mut *appliance::disk("disk").expect("disk")),
        depth => {
            let (queue, buffers) = appliance::queue("disk", depth, load.bytes).expect("disk");
            in_flight(&load, queue, buffers);
        }
    }
    abi::exit::SUCCESS
}

fn wait_for_each(load: &Load, disk: &mut dyn BlockDevice) {
    // As from the heap of an appliance, but where a disk without a cache takes it as it is.
    let mut memory = vec![1; load.bytes + abi::PAGE_SIZE as usize];
    let start = memory.as_ptr().align_offset(abi::PAGE_SIZE as usize);
    let bytes = &mut memory[start..start + load.bytes];
    let mut places = Places::new(load, disk.capacity());
    let mut clock = Clock::start(load);
    loop {
        let place = places.next();
        let done = match load.writes {
            true => disk.write(place, bytes),
            false => disk.read(place, bytes),
        };
        done.expect("a transfer");
        if clock.is_over() {
            break;
        }
    }
    clock.say();
}

fn in_flight(load: &Load, mut queue: Box<dyn BlockQueue>, buffers: Vec<DmaBuf>) {
    let mut places = Places::new(load, queue.capacity());
    let requests = buffers.into_iter().map(|mut buffer| {
        buffer.bytes_mut().fill(1);
        Request::new(Buffers(vec![buffer]))
    });
    let mut waiting: VecDeque<Box<Request>> = requests.collect();
    for request in &mut waiting {
        prepare(load, request, &mut places);
    }
    let mut done = Vec::with_capacity(load.depth);
    let mut clock = Clock::start(load);
    let mut over = false;
    while !over {
        queue.submit(&mut waiting);
        queue.complete(&mut done);
        if done.is_empty() && !queue.arm() {
            let late = monotonic() + PATIENCE;
            unikernel::wait(Some(late));
            queue.complete(&mut done);
            assert!(!done.is_empty() || monotonic() < late, "nothing comes back");
        }
        for mut request in done.drain(..) {
            request.result.expect("a transfer");
            over |= clock.is_over();
            prepare(load, &mut request, &mut places);
            waiting.push_back(request);
        }
    }
    clock.say();
}

fn prepare(load: &Load, request: &mut Request, places: &mut Places) {
    request.operation = match load.writes {
        true => Operation::Write,
        false => Operation::Read,
    };
    request.offset = places.next();
    request.length = load.bytes as u64;
}
