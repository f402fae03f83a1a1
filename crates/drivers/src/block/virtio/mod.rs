//! The virtio block device (5.2): a disk with a queue of requests.
//!
//! Keep the specification open: [`virtio`] says which, and what the drivers of all virtio devices
//! share. Read in this order:
//!
//! | file | what | sections |
//! |---|---|---|
//! | `geometry` | what the device says of itself | 5.2.4, 5.2.5 |
//! | `slots` | requests, where their data lie, and what the device has | 5.2.6, 2.7 |
//! | `registers` | configuration, features, and the words of requests | 5.2.2 to 5.2.6 |
//!
//! As many requests are in flight as [`DEPTH`] says. Data go between the device and the caller's
//! own buffers: no byte is copied, and no request allocates.
//!
//! **Waiting.** The device is looked at and never interrupts: [`BlockQueue::arm`] says that nobody
//! must sleep.
//!
//! **Durability.** A device that offers VIRTIO_BLK_F_FLUSH keeps what was written once it has been
//! flushed, any other one once it is written (5.2.6.2). Behind a reset, the next flush fails if
//! there is anything that a cache may have lost (`block::cache`).
//!
//! **Trouble.** If a request takes too long ([`watch`]), or the device writes what cannot be, needs
//! a reset, was reset by something else, or is gone, it is reset, and everything that it had fails;
//! when it is given up, see [`recovery`](crate::net::recovery). Buffers come back when it says that
//! it was reset, and never if it does not, nor when the driver is dropped.

mod geometry;
mod registers;
mod slots;
#[cfg(test)]
mod tests;

use crate::block::cache::Cache;
use crate::block::flight::{self, Flight, Requests, State, landed, refused};
use crate::block::watch::{self, Watch};
use crate::net::recovery::{Recovery, Remedy};
use crate::virtio::{self, Error, Lie, Transport};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Limits, Operation, Request};
use geometry::Geometry;
use hw::{DmaArena, Done};
use registers::*;
use slots::{Order, SLOTS, Slots};

pub use registers::CONFIG_BYTES;
pub use slots::SLOTS as DEPTH;

/// The kind of device (5.2.1).
pub const KIND: u16 = 2;
/// DMA memory that the driver takes: the queue, and headers and statuses of requests.
pub const DMA_BYTES: usize = 4 * 4096;

/// Why a device is not to be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It wrote what cannot be.
    Lie,
    /// A request, or a reset, was not over in time.
    Late,
    /// It needs a reset, was reset by something else, or is gone.
    Dead,
    /// It is another disk behind a reset.
    Other,
    /// It does not come up.
    Start(Error),
}

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Resets.
    pub resets: u64,
    /// Why it was reset last, or given up.
    pub last: Option<Failure>,
}

/// The driver.
pub struct Driver<T: Transport> {
    transport: T,
    slots: Slots,
    state: State,
    /// Since when it is being reset.
    since: u64,
    geometry: Geometry,
    flights: [Option<Flight>; SLOTS],
    /// Requests that cannot be done, until somebody completes them.
    refused: Requests,
    cache: Cache,
    watch: Watch,
    recovery: Recovery,
    trouble: Trouble,
    clock: Box<dyn Fn() -> u64>,
}

impl<T: Transport> Driver<T> {
    /// Brings the device up. It takes [`DMA_BYTES`] from `arena`; `clock` tells the monotonic time
    /// in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within some seconds.
    pub fn new(
        transport: T,
        arena: &mut DmaArena,
        clock: impl Fn() -> u64 + 'static,
    ) -> Result<Self, Error> {
        let mut slots = Slots::new(arena)?;
        virtio::reset(&transport, &clock)?;
        let geometry = bring_up(&transport, &mut slots)?;
        let mut recovery = Recovery::default();
        recovery.comes_up(clock());
        Ok(Self {
            transport,
            slots,
            state: State::Running,
            since: 0,
            geometry,
            flights: [const { None }; SLOTS],
            refused: Vec::with_capacity(SLOTS),
            cache: Cache::default(),
            watch: Watch::default(),
            recovery,
            trouble: Trouble::default(),
            clock: Box::new(clock),
        })
    }

    /// What went wrong so far.
    pub fn trouble(&self) -> &Trouble {
        &self.trouble
    }

    /// Gives the device what a request says.
    #[inline]
    fn give(&mut self, slot: usize, mut request: Box<Request>) -> Result<(), Box<Request>> {
        let Geometry {
            limits, has_cache, ..
        } = &self.geometry;
        if let Err(error) = request.check(limits, self.geometry.capacity) {
            return refused(request, error);
        }
        let nothing = match request.operation {
            Operation::Flush if *has_cache => match self.cache.flushes() {
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
        let moves = matches!(request.operation, Operation::Read | Operation::Write);
        let length = if moves { request.length } else { 0 };
        let parts = request.buffers.addresses(length);
        let parts = parts.map(|(address, bytes)| (address.raw(), bytes));
        let described = self.slots.describe(slot, order(&request), parts);
        if described.is_err() {
            return refused(request, BlockError::Unsupported);
        }
        let buffers = match moves {
            false => None,
            true => match flight::lend(&mut request) {
                Ok(buffers) => Some(buffers),
                Err(error) => return refused(request, error),
            },
        };
        self.slots.put(slot);
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            self.cache.writes();
        }
        self.flights[slot] = Some(Flight { request, buffers });
        self.watch.begins(slot);
        Ok(())
    }

    /// Takes what the device answered, and whether it did.
    ///
    /// # Errors
    /// If it lied.
    #[inline]
    fn look(&mut self, done: &mut Requests) -> Result<bool, Lie> {
        let before = self.slots.busy();
        // It cannot answer more than it has.
        while let Some(answer) = self.slots.next()? {
            let Some(flight) = self.flights[answer.slot].take() else {
                continue;
            };
            let result = match answer.status {
                STATUS_OK => Ok(()),
                status => Err(BlockError::Device(status.into())),
            };
            if flight.request.operation == Operation::Flush && result.is_ok() {
                self.cache.flushed();
            }
            done.push(landed(flight, &answer.done, result));
        }
        let has_answered = self.slots.busy() != before;
        if has_answered {
            self.slots.silence();
        }
        Ok(has_answered)
    }

    /// Looks whether the device is as it should be, from time to time.
    #[cold]
    fn check(&mut self, now: u64) -> Result<(), Failure> {
        if !virtio::is_alive(&self.transport) {
            return Err(Failure::Dead);
        }
        let (busy, slow) = (self.slots.busy(), flight::slow(&self.flights));
        let transfers = (busy & !slow, watch::TRANSFER_NANOSECONDS);
        let others = (busy & slow, watch::SLOW_NANOSECONDS);
        let hangs = [transfers, others].map(|(slots, most)| self.watch.hangs(slots, most, now));
        match hangs {
            [false, false] => Ok(()),
            _ => Err(Failure::Late),
        }
    }

    /// The device is not to be relied on: it is reset unless it is given up, and all that it had
    /// fails.
    #[cold]
    fn distrust(&mut self, failure: Failure, now: u64, is_stopping: bool) {
        self.trouble.last = Some(failure);
        if self.geometry.has_cache {
            let mut flights = self.flights.iter().flatten();
            let is_flush = |flight: &Flight| flight.request.operation == Operation::Flush;
            self.cache.loses(flights.any(is_flush));
        }
        virtio::begin(&self.transport);
        self.since = now;
        self.state = match self.recovery.failed(self.watch.looks.worked_until()) {
            // One that was told to stop and did not has what it had.
            Remedy::Reset if !is_stopping => {
                self.trouble.resets += 1;
                State::Rising
            }
            _ => State::GivenUp,
        };
    }

    /// Takes the next step of a reset.
    #[cold]
    fn rise(&mut self, done: &mut Requests) {
        let now = (self.clock)();
        let Some(word) = self.transport.reset_done() else {
            if now.saturating_sub(self.since) > virtio::RESET_NANOSECONDS {
                self.distrust(Failure::Late, now, true);
            }
            return;
        };
        self.fail_all(done, &word);
        self.recovery.comes_up(now);
        self.watch = Watch::default();
        self.state = State::Running;
        match bring_up(&self.transport, &mut self.slots) {
            Ok(geometry) if geometry == self.geometry => {}
            // Nothing is read from it, and nothing written.
            Ok(_) => self.distrust(Failure::Other, now, false),
            Err(error) => self.distrust(Failure::Start(error), now, false),
        }
    }

    /// What the device had comes back, on its word that it has nothing any more.
    fn fail_all(&mut self, done: &mut Requests, word: &Done) {
        let flights = self.flights.iter_mut().filter_map(Option::take);
        done.extend(flights.map(|flight| landed(flight, word, Err(BlockError::Reset))));
    }
}

/// From a reset that has ended to a device that runs (3.1.1, 5.2.5).
fn bring_up<T: Transport>(transport: &T, slots: &mut Slots) -> Result<Geometry, Error> {
    let features = virtio::negotiate(transport, 0, |_| KNOWN)?;
    let geometry = Geometry::read(transport, features)?;
    slots.set_up(transport, features)?;
    virtio::run(transport);
    Ok(geometry)
}

/// What a request is to the device.
#[inline]
fn order(request: &Request) -> Order {
    let (sector, sectors) = (request.offset / SECTOR_BYTES, request.length / SECTOR_BYTES);
    // A range has fewer (`Geometry`).
    let sectors = sectors as u32;
    let (kind, sector, range) = match request.operation {
        Operation::Read => (TYPE_IN, sector, None),
        Operation::Write => (TYPE_OUT, sector, None),
        Operation::Flush => (TYPE_FLUSH, 0, None),
        Operation::Discard => (TYPE_DISCARD, 0, Some((sector, sectors, 0))),
        Operation::WriteZeroes => (TYPE_WRITE_ZEROES, 0, Some((sector, sectors, MAY_UNMAP))),
    };
    Order {
        kind,
        sector,
        range,
        fills: request.operation == Operation::Read,
    }
}

impl<T: Transport> BlockQueue for Driver<T> {
    fn capacity(&self) -> u64 {
        self.geometry.capacity
    }

    fn limits(&self) -> Limits {
        self.geometry.limits
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        // While it is reset, nothing is taken.
        while self.state != State::Rising && self.refused.len() < SLOTS {
            // One that was given up keeps what it had, and takes nothing more.
            let slot = match self.state {
                State::Running => match self.slots.free() {
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
        if self.state == State::Running {
            self.slots.ring(&self.transport);
        }
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        done.append(&mut self.refused);
        match self.state {
            State::Running => {
                let looked = self.look(done).map_err(|Lie| Failure::Lie);
                let is_due = match looked {
                    Ok(has_answered) => self.watch.looks.is_due(has_answered, &*self.clock),
                    Err(_) => Some((self.clock)()),
                };
                if let Some(now) = is_due {
                    let well = looked.and_then(|_| self.check(now));
                    if let Err(failure) = well {
                        self.distrust(failure, now, false);
                    }
                }
            }
            State::Rising => self.rise(done),
            State::GivenUp => {}
        }
        if self.state == State::GivenUp {
            done.extend(flight::abandoned(&mut self.flights));
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

impl<T: Transport> Drop for Driver<T> {
    /// The device is reset, so that it has nothing; nobody waits.
    fn drop(&mut self) {
        virtio::begin(&self.transport);
    }
}
