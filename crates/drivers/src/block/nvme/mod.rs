//! NVM Express, behind PCI Express: a disk with queues of commands.
//!
//! Keep the specifications open: NVM Express Base 2.0, NVM Command Set 1.0 and NVMe over PCIe
//! Transport 1.0. Section numbers in this folder are of the first where nothing else is said. Read
//! in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | reset and bring-up, step by step | 3.5.1 |
//! | `identify` | what controller and namespace say of themselves | 5.17.2 |
//! | `queue` | submissions, completions, and what the device has | 3.3 |
//! | `pages` | where the data of a command lie | 4.1.1 |
//! | `command` | the words of commands and completions | 3.3.3, 5 |
//! | `watch` | commands that take too long | 5.1 |
//! | `registers` | all registers | 3.1.3 |
//!
//! One pair of queues for I/O, with as many commands in flight as [`DEPTH`] says. Data go between
//! the device and the caller's own buffers: no byte is copied, and no command allocates.
//!
//! **Parts.** A command's data are pages (4.1.1), of which only the first may begin and only the
//! last may end within one. Where blocks are as large as pages, a request may have many buffers;
//! where they are smaller, one.
//!
//! **Waiting.** The device is looked at and never interrupts: [`BlockQueue::arm`] says that nobody
//! must sleep.
//!
//! **Durability.** A device with a cache that loses its content (VWC) keeps what was written once
//! it has been flushed, any other one once it is written. Behind a reset, the next flush fails if
//! there is anything that a cache may have lost (`block::cache`).
//!
//! **Trouble.** A command that takes too long ([`watch`]) is aborted. If it is not over then, or
//! the device writes what cannot be, says that it cannot go on, was reset by something else, or is
//! gone, it is reset, and everything that it had fails; when it is given up, see
//! [`recovery`](crate::net::recovery). Buffers come back when it says that it is disabled, and
//! never if it does not, nor when the driver is dropped.

mod command;
mod error;
mod identify;
mod init;
mod pages;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod queue;
mod registers;
#[cfg(test)]
mod tests;
pub mod watch;

pub use command::Status;
pub use error::{Error, Lie};
pub use queue::SLOTS as DEPTH;

use crate::block::cache::Cache;
use crate::block::flight::{self, Flight, Requests, State, landed, refused};
use crate::net::recovery::{Recovery, Remedy};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use command::Command;
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Durability, Limits, Operation, Request};
use hw::{DmaArena, Done, Mmio};
use identify::{Controller, Namespace};
use init::{Ascent, Came};
use pages::{Lists, PAGE};
use queue::{Pair, SLOTS};
use watch::{Verdict, Watch};

/// The class of such devices: mass storage, non-volatile memory, NVM Express (PCIe Transport 1.0,
/// 3.1.1).
pub const CLASS: [u8; 3] = [0x01, 0x08, 0x02];
/// DMA memory that the driver takes: two pairs of queues, lists of pages, and what Identify fills.
pub const DMA_BYTES: usize = 9 * PAGE;

/// Blocks of a range, at most (NVM Command Set 1.0, 3.2.8: NLB has 16 bits).
const RANGE_BLOCKS_MAX: u64 = 1 << 16;
/// Buffers of a request, at most, where blocks are pages.
const BUFFERS_MAX: usize = pages::TRANSFER_BYTES_MAX / PAGE;
/// Looks at the device while it starts; more only if the clock stands still.
const LOOKS_MAX: usize = 100_000_000;

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Commands that took too long, and were aborted.
    pub aborts: u64,
    /// Resets.
    pub resets: u64,
    /// Why it was reset last, or given up.
    pub last: Option<Error>,
}

/// The driver of one namespace.
pub struct Driver {
    bar: Mmio,
    admin: Pair,
    io: Pair,
    lists: Lists,
    ascent: Ascent,
    state: State,
    controller: Controller,
    namespace: Namespace,
    limits: Limits,
    flights: [Option<Flight>; SLOTS],
    /// Requests that cannot be done, until somebody completes them.
    refused: Requests,
    cache: Cache,
    watch: Watch,
    recovery: Recovery,
    trouble: Trouble,
    clock: Box<dyn Fn() -> u64>,
}

impl Driver {
    /// Brings the device up, with the namespace of this number, or the first one. It takes
    /// [`DMA_BYTES`] from `arena`; `clock` tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within two minutes at worst: a device says itself how long it takes.
    pub fn new(
        bar: Mmio,
        arena: &mut DmaArena,
        namespace: Option<u32>,
        clock: impl Fn() -> u64 + 'static,
    ) -> Result<Self, Error> {
        let capabilities = init::capabilities(&bar)?;
        let mut ascent = Ascent::new(arena, capabilities, namespace)?;
        let (mut admin, mut io) = (Pair::new(arena, 0)?, Pair::new(arena, 1)?);
        let lists = Lists::new(arena)?;
        ascent.begin(&bar, clock());
        for _ in 0..LOOKS_MAX {
            match ascent.step(&bar, &mut admin, &mut io, clock())? {
                Came::Up(controller, namespace) => {
                    let mut recovery = Recovery::default();
                    recovery.comes_up(clock());
                    return Ok(Self {
                        bar,
                        admin,
                        io,
                        lists,
                        ascent,
                        state: State::Running,
                        limits: limits(&controller, &namespace),
                        controller,
                        namespace,
                        flights: [const { None }; SLOTS],
                        refused: Vec::with_capacity(SLOTS),
                        cache: Cache::default(),
                        watch: Watch::default(),
                        recovery,
                        trouble: Trouble::default(),
                        clock: Box::new(clock),
                    });
                }
                Came::Nowhere | Came::Stopped(_) => core::hint::spin_loop(),
            }
        }
        Err(Error::Timeout("a clock that goes on"))
    }

    /// What went wrong so far.
    pub fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// The number of its namespace.
    pub fn namespace(&self) -> u32 {
        self.namespace.number
    }

    /// Gives the device what a request says.
    #[inline]
    fn give(&mut self, slot: usize, mut request: Box<Request>) -> Result<(), Box<Request>> {
        if let Err(error) = request.check(&self.limits, self.namespace.capacity) {
            return refused(request, error);
        }
        let Namespace {
            number, block_size, ..
        } = self.namespace;
        let shift = block_size.trailing_zeros();
        let (block, blocks) = (request.offset >> shift, request.length >> shift);
        if blocks == 0 && request.operation != Operation::Flush {
            request.result = Ok(());
            return Err(request);
        }
        // A transfer and a range have fewer (`limits`).
        let blocks = blocks as u32;
        let (command, moves) = match request.operation {
            Operation::Read | Operation::Write => {
                let parts = request.buffers.addresses(request.length);
                let parts = parts.map(|(address, bytes)| (address.raw(), bytes));
                let Ok(pages) = self.lists.describe(slot, parts) else {
                    return refused(request, BlockError::Unsupported);
                };
                let of = match request.operation {
                    Operation::Read => Command::read,
                    _ => {
                        self.cache.writes();
                        Command::write
                    }
                };
                (of(number, block, blocks, pages), true)
            }
            Operation::Flush => {
                if let Err(error) = self.cache.flushes() {
                    return refused(request, error);
                }
                (Command::flush(number), false)
            }
            Operation::WriteZeroes => {
                self.cache.writes();
                (Command::write_zeroes(number, block, blocks), false)
            }
            Operation::Discard => {
                self.cache.writes();
                let range = self.lists.place(slot, command::range(block, blocks));
                (Command::deallocate(number, range), false)
            }
        };
        let buffers = match moves {
            false => None,
            true => match flight::lend(&mut request) {
                Ok(buffers) => Some(buffers),
                Err(error) => return refused(request, error),
            },
        };
        self.flights[slot] = Some(Flight { request, buffers });
        self.watch.begins(slot);
        self.io.put(slot, &command);
        Ok(())
    }

    /// Takes what the device answered.
    ///
    /// # Errors
    /// If it lied.
    #[inline]
    fn look(&mut self, done: &mut Requests) -> Result<usize, Lie> {
        let mut answered = 0;
        // It cannot answer more than it has.
        while let Some(answer) = self.io.next()? {
            answered += 1;
            if let Some(flight) = self.flights[answer.slot].take() {
                let outcome = outcome(answer.status);
                if flight.request.operation == Operation::Flush && outcome.is_ok() {
                    self.cache.flushed();
                }
                done.push(landed(flight, &answer.done, outcome));
            }
        }
        self.io.tell(&self.bar);
        Ok(answered)
    }

    /// Looks whether the device is as it should be, from time to time.
    #[cold]
    fn check(&mut self, now: u64) -> Result<(), Error> {
        if !init::is_ready(&self.bar)? || !init::is_ours(&self.bar) {
            return Err(Error::Stopped);
        }
        // Answers to aborts: the commands themselves are what counts.
        while self.admin.next()?.is_some() {}
        self.admin.tell(&self.bar);
        let long = flight::slow(&self.flights);
        match self.watch.look(self.io.busy(), long, now) {
            Verdict::Well => Ok(()),
            Verdict::Abort(slot) => {
                if self.admin.busy() == 0
                    && let Some(free) = self.admin.free()
                {
                    self.trouble.aborts += 1;
                    let command = Command::abort(self.io.number(), self.io.id(slot));
                    self.admin.put(free, &command);
                    self.admin.ring(&self.bar);
                    self.watch.aborts(slot);
                }
                Ok(())
            }
            Verdict::Hangs if self.io.has_gap() => Err(Error::Lie(Lie::Phase)),
            Verdict::Hangs => Err(Error::Timeout("a command, it is done")),
        }
    }

    /// The device is not to be relied on: it is stopped, and reset unless it is given up.
    #[cold]
    fn distrust(&mut self, error: Error, now: u64) {
        self.trouble.last = Some(error);
        if self.controller.has_cache {
            let mut flights = self.flights.iter().flatten();
            let is_flush = |flight: &Flight| flight.request.operation == Operation::Flush;
            self.cache.loses(flights.any(is_flush));
        }
        self.state = match self.recovery.failed(self.watch.looks.worked_until()) {
            // One that was told to stop and did not has what it had.
            Remedy::Reset if !(self.state == State::Rising && self.ascent.is_stopping()) => {
                self.trouble.resets += 1;
                self.ascent.begin(&self.bar, now);
                State::Rising
            }
            _ => {
                init::disable(&self.bar);
                State::GivenUp
            }
        };
    }

    /// Takes the next step of a reset.
    #[cold]
    fn rise(&mut self, done: &mut Requests) {
        let now = (self.clock)();
        let Self {
            ascent,
            bar,
            admin,
            io,
            ..
        } = self;
        match ascent.step(bar, admin, io, now) {
            Ok(Came::Nowhere) => {}
            Ok(Came::Stopped(word)) => self.fail_all(done, &word),
            Ok(Came::Up(controller, namespace)) => {
                self.recovery.comes_up(now);
                self.watch = Watch::default();
                self.state = State::Running;
                if (controller, namespace) != (self.controller, self.namespace) {
                    // Nothing is read from it, and nothing written.
                    self.distrust(Error::Config("that it is another disk"), now);
                }
            }
            Err(error) => self.distrust(error, now),
        }
    }

    /// What the device had comes back, on its word that it has nothing any more.
    fn fail_all(&mut self, done: &mut Requests, word: &Done) {
        let flights = self.flights.iter_mut().filter_map(Option::take);
        done.extend(flights.map(|flight| landed(flight, word, Err(BlockError::Reset))));
    }

    /// What the device has it keeps: nobody knows whether it still reads and writes there.
    #[cold]
    fn abandon(&mut self, done: &mut Requests) {
        done.extend(flight::abandoned(&mut self.flights));
    }
}

/// What a status means to whoever made the request.
#[inline]
fn outcome(status: Status) -> Result<(), BlockError> {
    match status {
        status if status.is_success() => Ok(()),
        status if status.is_write_protected() => Err(BlockError::ReadOnly),
        status => Err(BlockError::Device(status.code())),
    }
}

/// What a disk is like that says this of itself.
fn limits(controller: &Controller, namespace: &Namespace) -> Limits {
    let block_size = namespace.block_size;
    let (alignment, buffers_max) = match block_size {
        PAGE => (PAGE, BUFFERS_MAX),
        _ => (pages::ALIGNMENT, 1),
    };
    Limits {
        block_size,
        transfer_bytes_max: controller.transfer_bytes_max,
        buffers_max,
        alignment,
        range_bytes_max: RANGE_BLOCKS_MAX * block_size as u64,
        read_only: namespace.read_only,
        durability: match controller.has_cache {
            true => Durability::Flushed,
            false => Durability::Written,
        },
        discard: controller.deallocates,
        write_zeroes: controller.writes_zeroes,
    }
}

impl BlockQueue for Driver {
    fn capacity(&self) -> u64 {
        self.namespace.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        // While it is reset, nothing is taken.
        while self.state != State::Rising && self.refused.len() < SLOTS {
            // One that was given up keeps what it had, and takes nothing more.
            let slot = match self.state {
                State::Running => match self.io.free() {
                    Some(slot) => Some(slot),
                    None => break,
                },
                _ => None,
            };
            let Some(request) = requests.pop_front() else {
                break;
            };
            let given = match slot {
                Some(slot) => self.give(slot, request),
                None => refused(request, BlockError::Gone),
            };
            if let Err(request) = given {
                self.refused.push(request);
            }
        }
        self.io.ring(&self.bar);
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        done.append(&mut self.refused);
        match self.state {
            State::Running => {
                let looked = self.look(done).map_err(Error::Lie);
                let is_due = match looked {
                    Ok(answered) => self.watch.looks.is_due(answered > 0, &*self.clock),
                    Err(_) => Some((self.clock)()),
                };
                if let Some(now) = is_due {
                    let well = looked.and_then(|_| self.check(now));
                    if let Err(error) = well {
                        self.distrust(error, now);
                    }
                }
            }
            State::Rising => self.rise(done),
            State::GivenUp => {}
        }
        if self.state == State::GivenUp {
            self.abandon(done);
        }
    }

    /// The device does not interrupt.
    fn arm(&mut self) -> bool {
        true
    }

    fn wait_handle(&self) -> Option<WaitHandle> {
        None
    }
}

impl Drop for Driver {
    /// The device is told to shut down (3.6.1), so that it keeps what it was given, and has what it
    /// has: nobody waits.
    fn drop(&mut self) {
        init::shut_down(&self.bar);
    }
}
