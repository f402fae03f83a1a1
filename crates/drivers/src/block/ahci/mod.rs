//! AHCI: a Serial ATA disk with queued commands.
//!
//! Keep the specifications open: AHCI 1.3.1, Serial ATA 3.0, and ACS-2 for the commands of a disk.
//! Section numbers in this folder are of the first where nothing else is said. Read in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `init` | reset and bring-up, step by step | 10.1.2, 10.4 |
//! | `identify` | what the disk says of itself | ACS-2 |
//! | `slots` | commands, where their data lie, and what the device has | 4.2, 5.3 |
//! | `command` | the words of commands | 4.2.2 |
//! | `registers` | all registers | 3 |
//!
//! The first port with a disk is used, and the others are left alone. As many commands are in
//! flight as adapter and disk can have, up to [`DEPTH_MAX`]; one without native command queuing has
//! one. Data go between the device and the caller's own buffers: no byte is copied, and no command
//! allocates.
//!
//! **Alone.** Flush and TRIM cannot be queued (Serial ATA 3.0, 13.6): they are given to the device
//! once it has nothing, and nothing is until they are over.
//!
//! **Waiting.** The device is looked at and never interrupts: [`BlockQueue::arm`] says that nobody
//! must sleep.
//!
//! **Durability.** A disk whose cache is on keeps what was written once it has been flushed, any
//! other one once it is written. Behind a reset, the next flush fails if there is anything that a
//! cache may have lost (`block::cache`).
//!
//! **Done.** A slot that is over is a command that is done only if the port says besides that it
//! runs as the driver started it, that its link was never lost, and that nothing failed
//! (`init::vouches`).
//!
//! **A command that fails** stops the port, and with it all others (6.2.2). The adapter is reset,
//! what it had is tried again one command at a time, and the one that fails then has failed. A
//! flush is not tried again: a disk may give up what it could not write, and succeed.
//!
//! **Trouble.** If a command takes too long ([`watch`]), the device says what cannot be, that it
//! cannot go on, or is gone, it is reset, and everything that it had fails; when it is given up,
//! see [`recovery`](crate::net::recovery). Buffers come back when it says that it was reset, and
//! never if it does not, nor when the driver is dropped.

mod command;
mod error;
mod identify;
mod init;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod registers;
mod slots;
#[cfg(test)]
mod tests;

pub use error::{Error, Lie};
pub use slots::SLOTS as DEPTH_MAX;

use crate::block::cache::Cache;
use crate::block::flight::{self, Flight, Requests, State, landed, refused};
use crate::block::watch::{self, Watch};
use crate::net::recovery::{Recovery, Remedy};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use command::{Command, RANGE_BLOCKS, RANGES};
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Durability, Limits, Operation, Request};
use hw::{DmaArena, Done, Mmio};
use identify::Disk;
use init::{Ascent, Came, Capabilities};
use registers::Port;
use slots::{REGIONS_MAX, SLOTS, Slots};

/// The class of such devices: mass storage, Serial ATA, AHCI (2.1.5).
pub const CLASS: [u8; 3] = [0x01, 0x06, 0x01];
/// The base address register of the registers (2.1.11).
pub const BAR: usize = 5;
/// DMA memory that the driver takes: the list of commands, their tables, what the disk says, and
/// what IDENTIFY DEVICE fills.
pub const DMA_BYTES: usize = 11 * 4096;

/// Bytes of a transfer, at most: fewer than a command can have, so that none takes the disk long.
const TRANSFER_BYTES_MAX: usize = 256 << 10;
/// Looks at the device while it starts; more only if the clock stands still.
const LOOKS_MAX: usize = 100_000_000;

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Times that the port stood still for a command that failed.
    pub failures: u64,
    /// Resets, but for those after a command that failed.
    pub resets: u64,
    /// Why it was reset last, or given up.
    pub last: Option<Error>,
}

/// The driver of one disk.
pub struct Driver {
    bar: Mmio,
    port: Port,
    slots: Slots,
    ascent: Ascent,
    state: State,
    capabilities: Capabilities,
    disk: Disk,
    depth: usize,
    limits: Limits,
    flights: [Option<Flight>; SLOTS],
    /// Requests that are to be tried again one by one, and whether the device has one of them.
    suspects: Requests,
    is_trying: bool,
    /// Whether what the device has when it is reset is to be tried again.
    spares: bool,
    /// The slot whose command failed, and what the disk said of it, until it is back.
    failed: Option<(usize, u16)>,
    /// Requests that cannot be done, until somebody completes them.
    refused: Requests,
    cache: Cache,
    watch: Watch,
    recovery: Recovery,
    trouble: Trouble,
    clock: Box<dyn Fn() -> u64>,
}

impl Driver {
    /// Brings the first disk of the adapter up. It takes [`DMA_BYTES`] from `arena`; `clock` tells
    /// the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within half a minute for each port at worst: disks take long to spin up.
    pub fn new(
        bar: Mmio,
        arena: &mut DmaArena,
        clock: impl Fn() -> u64 + 'static,
    ) -> Result<Self, Error> {
        let capabilities = init::capabilities(&bar)?;
        let mut ascent = Ascent::new(capabilities.ports);
        let mut slots = Slots::new(arena, capabilities.is_wide)?;
        ascent.begin(&bar, clock());
        for _ in 0..LOOKS_MAX {
            match ascent.step(&bar, &mut slots, clock())? {
                Came::Up(disk) => {
                    let mut recovery = Recovery::default();
                    recovery.comes_up(clock());
                    return Ok(Self {
                        bar,
                        port: ascent.port(),
                        slots,
                        ascent,
                        state: State::Running,
                        depth: depth(&capabilities, &disk),
                        limits: limits(&disk),
                        capabilities,
                        disk,
                        flights: [const { None }; SLOTS],
                        suspects: Vec::with_capacity(SLOTS),
                        is_trying: false,
                        spares: false,
                        failed: None,
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

    /// Whether commands are queued.
    #[inline]
    fn is_queued(&self, operation: Operation) -> bool {
        let queues = self.capabilities.queues && self.disk.queue.is_some();
        queues && matches!(operation, Operation::Read | Operation::Write)
    }

    /// A slot for a request that is done like this, if the device may have it now.
    #[inline]
    fn slot(&self, operation: Operation) -> Option<usize> {
        let depth = match self.is_queued(operation) {
            _ if self.is_trying || !self.suspects.is_empty() || self.slots.is_alone() => 0,
            true => self.depth,
            false => usize::from(self.slots.busy() == 0),
        };
        self.slots.free(depth)
    }

    /// Gives the device what a request says.
    #[inline]
    fn give(&mut self, slot: usize, mut request: Box<Request>) -> Result<(), Box<Request>> {
        if let Err(error) = request.check(&self.limits, self.disk.capacity) {
            return refused(request, error);
        }
        let nothing = match request.operation {
            Operation::Flush if self.disk.has_cache => match self.cache.flushes() {
                Ok(()) => false,
                Err(error) => return refused(request, error),
            },
            Operation::Flush => true,
            _ => request.length == 0,
        };
        if nothing {
            request.result = Ok(());
            return Err(request);
        }
        let (command, regions) = match self.describe(slot, &request) {
            Ok(described) => described,
            Err(error) => return refused(request, error),
        };
        if matches!(request.operation, Operation::Write | Operation::Discard) {
            self.cache.writes();
        }
        let buffers = match request.operation {
            Operation::Read | Operation::Write => match flight::lend(&mut request) {
                Ok(buffers) => Some(buffers),
                Err(error) => return refused(request, error),
            },
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => None,
        };
        self.flights[slot] = Some(Flight { request, buffers });
        self.watch.begins(slot);
        self.slots.put(slot, &command, regions);
        Ok(())
    }

    /// The command of a request, and how many regions its data are.
    #[inline]
    fn describe(&self, slot: usize, request: &Request) -> Result<(Command, usize), BlockError> {
        let shift = self.limits.block_size.trailing_zeros();
        let (block, blocks) = (request.offset >> shift, request.length >> shift);
        let of = match request.operation {
            Operation::Read => Command::read,
            Operation::Write => Command::write,
            Operation::Flush if self.disk.flushes => return Ok((Command::flush(), 0)),
            Operation::Discard => {
                let regions = self.slots.describe_ranges(slot, block, blocks);
                return Ok((Command::trim(), regions));
            }
            Operation::Flush | Operation::WriteZeroes => return Err(BlockError::Unsupported),
        };
        let parts = request.buffers.addresses(request.length);
        let parts = parts.map(|(address, bytes)| (address.raw(), bytes));
        let regions = self.slots.describe(slot, parts);
        let regions = regions.map_err(|_scattered| BlockError::Unsupported)?;
        // A transfer has fewer blocks (`limits`).
        Ok((
            of(self.is_queued(request.operation), block, blocks as u32),
            regions,
        ))
    }

    /// Takes what the device answered, and whether it did. Where a command failed, the port stands
    /// still (6.2.2), and what seems to be over is tried again as well.
    ///
    /// # Errors
    /// If the device lied, or cannot go on.
    #[inline]
    fn look(&mut self, done: &mut Requests) -> Result<bool, Error> {
        if self.slots.busy() == 0 {
            return Ok(false);
        }
        let over = self.slots.over(&self.bar, &self.port)?;
        if let Some(task) = init::vouches(&self.bar, &self.port)? {
            self.restart(task);
            return Ok(false);
        }
        if over != 0 && !init::is_ours(&self.bar, &self.port) {
            return Err(Error::Stopped);
        }
        let Some(answers) = self.slots.take(&self.bar, &self.port, over) else {
            return Ok(false);
        };
        let mut left = answers.slots;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            if let Some(flight) = self.flights[slot].take() {
                if flight.request.operation == Operation::Flush {
                    self.cache.flushed();
                }
                done.push(landed(flight, &answers.done, Ok(())));
            }
        }
        Ok(true)
    }

    /// What the device is doing, of a command that is alone.
    fn operation(&self) -> Option<Operation> {
        let first = self.slots.busy().trailing_zeros() as usize;
        let flight = self.flights.get(first)?.as_ref()?;
        Some(flight.request.operation)
    }

    /// Resets a port that stands still, for a command that failed as this says. What it has is
    /// tried again, but for one that was, and a flush.
    #[cold]
    fn restart(&mut self, task: u16) {
        let busy = self.slots.busy();
        let is_known = self.is_trying || self.operation() == Some(Operation::Flush);
        if is_known && busy.is_power_of_two() {
            self.failed = Some((busy.trailing_zeros() as usize, task));
        }
        self.spares = true;
        self.trouble.failures += 1;
        self.ascent.begin(&self.bar, (self.clock)());
        self.state = State::Rising;
    }

    /// Gives the device the next request that is to be tried again, once it has nothing.
    #[inline]
    fn retry(&mut self) {
        if self.slots.busy() != 0 || self.state != State::Running {
            return;
        }
        self.is_trying = false;
        let Some(request) = self.suspects.pop() else {
            return;
        };
        match self.give(0, request) {
            Ok(()) => self.is_trying = true,
            Err(request) => self.refused.push(request),
        }
        self.slots.ring(&self.bar, &self.port);
    }

    /// Looks whether the device is as it should be, from time to time.
    #[cold]
    fn check(&mut self, now: u64) -> Result<(), Error> {
        init::check(&self.bar, &self.port)?;
        let most = match self.operation() {
            Some(Operation::Flush | Operation::Discard) => watch::SLOW_NANOSECONDS,
            _ => watch::TRANSFER_NANOSECONDS,
        };
        match self.watch.hangs(self.slots.busy(), most, now) {
            true => Err(Error::Timeout("a command, it is done")),
            false => Ok(()),
        }
    }

    /// The device is not to be relied on: it is reset unless it is given up, and all that it had
    /// fails.
    #[cold]
    fn distrust(&mut self, error: Error, now: u64) {
        self.trouble.last = Some(error);
        (self.spares, self.failed) = (false, None);
        if self.disk.has_cache {
            self.cache.loses(self.operation() == Some(Operation::Flush));
        }
        self.state = match self.recovery.failed(self.watch.looks.worked_until()) {
            // One that was told to stop and did not has what it had.
            Remedy::Reset if !(self.state == State::Rising && self.ascent.is_stopping()) => {
                self.trouble.resets += 1;
                self.ascent.begin(&self.bar, now);
                State::Rising
            }
            _ => {
                init::reset(&self.bar);
                State::GivenUp
            }
        };
    }

    /// Takes the next step of a reset.
    #[cold]
    fn rise(&mut self, done: &mut Requests) {
        let now = (self.clock)();
        match self.ascent.step(&self.bar, &mut self.slots, now) {
            Ok(Came::Nowhere) => {}
            Ok(Came::Stopped(word)) => self.bring_back(done, &word),
            Ok(Came::Up(disk)) => {
                // Resets for a command that failed say nothing of how healthy it is.
                if !self.spares {
                    self.recovery.comes_up(now);
                    self.watch = Watch::default();
                }
                self.state = State::Running;
                if disk != self.disk {
                    // Nothing is read from it, and nothing written.
                    self.distrust(Error::Config("that it is another disk"), now);
                }
            }
            Err(error) => self.distrust(error, now),
        }
    }

    /// What the device had comes back, on its word that it has nothing any more, unless it is to be
    /// tried again.
    fn bring_back(&mut self, done: &mut Requests, word: &Done) {
        let failed = self.failed.take();
        for (slot, flight) in self.flights.iter_mut().enumerate() {
            let Some(flight) = flight.take() else {
                continue;
            };
            match failed {
                Some((which, task)) if which == slot => {
                    done.push(landed(flight, word, Err(BlockError::Device(task))));
                }
                _ => self
                    .suspects
                    .push(landed(flight, word, Err(BlockError::Reset))),
            }
        }
        if !self.spares {
            done.append(&mut self.suspects);
        }
    }

    /// What the device has it keeps: nobody knows whether it still reads and writes there.
    #[cold]
    fn abandon(&mut self, done: &mut Requests) {
        done.extend(flight::abandoned(&mut self.flights));
        done.extend(self.suspects.drain(..).map(|mut request| {
            request.result = Err(BlockError::Gone);
            request
        }));
    }
}

/// Commands that adapter and disk have at once.
fn depth(capabilities: &Capabilities, disk: &Disk) -> usize {
    match disk.queue {
        Some(queue) if capabilities.queues => queue.min(capabilities.slots),
        _ => 1,
    }
}

/// What a disk is like that says this of itself.
fn limits(disk: &Disk) -> Limits {
    let block_size = disk.block_size;
    Limits {
        block_size,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        buffers_max: REGIONS_MAX,
        alignment: 2,
        range_bytes_max: RANGE_BLOCKS * RANGES as u64 * block_size as u64,
        read_only: false,
        durability: match disk {
            Disk {
                has_cache: false, ..
            } => Durability::Written,
            Disk { flushes: true, .. } => Durability::Flushed,
            Disk { flushes: false, .. } => Durability::Unknown,
        },
        discard: disk.trims,
        write_zeroes: false,
    }
}

impl BlockQueue for Driver {
    fn capacity(&self) -> u64 {
        self.disk.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        // While it is reset, nothing is taken.
        while self.state != State::Rising && self.refused.len() < SLOTS {
            let Some(next) = requests.front() else {
                break;
            };
            // One that was given up keeps what it had, and takes nothing more.
            let slot = match self.state {
                State::Running => match self.slot(next.operation) {
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
        self.slots.ring(&self.bar, &self.port);
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        done.append(&mut self.refused);
        match self.state {
            State::Running => {
                let looked = self.look(done);
                self.retry();
                let is_due = match looked {
                    _ if self.state != State::Running => None,
                    Ok(answered) => self.watch.looks.is_due(answered, &*self.clock),
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
    /// The adapter is reset, so that it has nothing; nobody waits. What was written stays in the
    /// disk's cache, and is lost with its power unless it was flushed.
    fn drop(&mut self) {
        init::reset(&self.bar);
    }
}
