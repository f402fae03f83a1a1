//! A disk with several requests in flight, which a process of the host's serves; see
//! [`abi::ring::lanes`].
//!
//! A request goes to the lane with the fewest, part by part, and comes back once all of its parts
//! have. What lies in the memory between is the other side's to change at any time: it is believed
//! in what it says of transfers, and in nothing that would have us touch other memory. If what it
//! says makes no sense, or it has ended, all requests come back as [`BlockError::Gone`], and so do
//! those that follow.

#![expect(
    clippy::vec_box,
    reason = "a request moves from list to list as its box"
)]

#[cfg(test)]
mod tests;

use crate::devices::{Attached, DeviceError, RegionAttached};
use crate::disk::{failed, properties};
use crate::host::Errno;
use crate::ring::{Nonsense, outcome};
use crate::runtime::Runtime;
use abi::extension::device_flag;
use abi::ring::lanes::{LANES, REQUESTS_MAX, TRANSFER_BYTES_MAX};
use abi::ring::{self, Client, Rings, Sleepers, waiting};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU64;
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Buffers, Limits, Operation, Request};
use hw::{DmaArena, Reachable};

/// Requests that are in flight at once.
const DEPTH: usize = 64;
/// Most buffers of one of them.
const BUFFERS_MAX: usize = 16;
const _: () = assert!(DEPTH * BUFFERS_MAX / LANES < REQUESTS_MAX);

/// The memory that the queue of a disk and whoever serves it share.
pub struct QueueMemory {
    /// The rings.
    pub words: &'static [AtomicU64],
    /// What buffers are taken from. Their addresses are those of this image.
    pub arena: DmaArena,
    /// Where the region begins, as an address like those.
    pub start: u64,
}

/// The queues of an image's disks.
pub(crate) struct Queues {
    /// Those that nobody has asked for yet, by the numbers of their regions.
    memory: RefCell<Vec<Option<QueueMemory>>>,
    /// Those that were handed out: the index of the region, and who sleeps there.
    out: RefCell<Vec<(u8, Sleepers<'static>)>>,
}

impl Queues {
    pub(crate) fn new(memory: Vec<Option<QueueMemory>>) -> Self {
        Self {
            memory: RefCell::new(memory),
            out: RefCell::default(),
        }
    }

    /// The queue of this region for this disk, and what its buffers are taken from; `None` if there
    /// is no such memory.
    pub(crate) fn take(
        &self,
        runtime: &'static Runtime,
        region: &RegionAttached,
        disk: &Attached,
    ) -> Result<Option<(DiskQueue, DmaArena)>, DeviceError> {
        let mut memory = self.memory.borrow_mut();
        let memory = memory.get_mut(region.number).and_then(Option::take);
        let Some((memory, rings)) = memory.and_then(|memory| {
            let rings = Rings::new(memory.words)?;
            Some((memory, rings))
        }) else {
            return Err(DeviceError::NotAttached);
        };
        let (capacity, limits) = properties(disk)?;
        let sleepers = rings.sleepers();
        self.out.borrow_mut().push((region.index, sleepers));
        let queue = DiskQueue {
            runtime,
            name: region.name,
            number: region.number,
            bell: region.info.bell,
            handle: WaitHandle(region.index),
            start: memory.start,
            capacity,
            limits: Limits {
                transfer_bytes_max: TRANSFER_BYTES_MAX as usize / limits.block_size
                    * limits.block_size,
                buffers_max: BUFFERS_MAX,
                ..limits
            },
            knows_more: disk.flags & device_flag::DISK != 0,
            sleepers,
            sleep: Cell::new(0),
            is_armed: false,
            is_lost: false,
            lanes: (0..LANES)
                .filter_map(|lane| Some(Lane::new(rings.client(lane)?)))
                .collect(),
            flights: (0..DEPTH).map(|_| None).collect(),
            free: (0..DEPTH as u8).collect(),
            over: Vec::with_capacity(DEPTH),
        };
        Ok(Some((queue, memory.arena)))
    }

    /// Notes that whoever serves the disk whose queue has this index is gone; whether there is such
    /// a queue.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        let out = self.out.borrow();
        let found = out.iter().find(|(found, _)| usize::from(*found) == index);
        found.inspect(|(_, sleepers)| sleepers.say_gone()).is_some()
    }
}

/// Requests that are done one after the other.
struct Lane {
    client: Client<'static>,
    /// Which flight each of them is of, and its bytes.
    under_way: VecDeque<(u8, u32)>,
}

impl Lane {
    fn new(client: Client<'static>) -> Self {
        Self {
            client,
            under_way: VecDeque::with_capacity(REQUESTS_MAX),
        }
    }
}

/// A request in flight, and how many of its parts are.
struct Flight {
    request: Box<Request>,
    parts: usize,
}

/// A disk that a process of the host's serves.
pub struct DiskQueue {
    runtime: &'static Runtime,
    name: &'static str,
    /// The number of its region.
    number: usize,
    bell: i32,
    handle: WaitHandle,
    /// Where the region begins.
    start: u64,
    capacity: u64,
    limits: Limits,
    /// Whether it can be flushed.
    knows_more: bool,
    sleepers: Sleepers<'static>,
    /// The number of the last sleep.
    sleep: Cell<u64>,
    is_armed: bool,
    /// Whether nobody serves it any more.
    is_lost: bool,
    lanes: Vec<Lane>,
    flights: Vec<Option<Flight>>,
    free: Vec<u8>,
    /// Requests that were over when they came.
    over: Vec<Box<Request>>,
}

impl DiskQueue {
    /// What of a request goes to the other side: addresses and lengths of its parts, at most
    /// [`BUFFERS_MAX`].
    fn parts(&self, request: &Request) -> Result<Parts, BlockError> {
        request.check(&self.limits, self.capacity)?;
        let mut parts = Parts::default();
        match request.operation {
            Operation::Flush if self.limits.read_only => {}
            Operation::Flush if self.knows_more => parts.push((0, 0)),
            Operation::Flush => return Err(BlockError::Unsupported),
            Operation::Discard | Operation::WriteZeroes => parts.push((0, request.length as u32)),
            Operation::Read | Operation::Write if request.length == 0 => {}
            Operation::Read | Operation::Write => {
                // Only memory of the region can be reached there.
                request.buffers.iova().ok_or(BlockError::Unsupported)?;
                for (iova, length) in request.buffers.addresses(request.length) {
                    let address = iova.raw().checked_sub(self.start);
                    parts.push((address.ok_or(BlockError::Unsupported)?, length as u32));
                }
            }
        }
        Ok(parts)
    }

    /// Hands a request over, for which there is a flight.
    fn launch(&mut self, mut request: Box<Request>) {
        let parts = match self.is_lost {
            true => Err(BlockError::Gone),
            false => self.parts(&request),
        };
        let parts = match parts {
            Ok(parts) if parts.count > 0 => parts,
            other => {
                request.result = other.map(drop);
                self.over.push(request);
                return;
            }
        };
        let Some(number) = self.free.pop() else {
            request.result = Err(BlockError::Unsupported);
            self.over.push(request);
            return;
        };
        let operation = match request.operation {
            Operation::Read => ring::Operation::Read,
            Operation::Write => ring::Operation::Write,
            Operation::Flush => ring::Operation::Flush,
            Operation::Discard | Operation::WriteZeroes => ring::Operation::Discard,
        };
        let mut offset = request.offset;
        let mut count = 0;
        for (address, length) in parts.iter() {
            let lane = self
                .lanes
                .iter_mut()
                .min_by_key(|lane| lane.client.outstanding());
            let written = lane.is_some_and(|lane| {
                lane.under_way.push_back((number, length));
                lane.client.write(ring::Request {
                    address,
                    length,
                    operation,
                    offset,
                })
            });
            debug_assert!(written, "there is room: see DEPTH");
            offset += u64::from(length);
            count += 1;
        }
        request.result = Ok(());
        self.flights[usize::from(number)] = Some(Flight {
            request,
            parts: count,
        });
    }

    /// Takes what came back.
    fn take(&mut self, done: &mut Vec<Box<Request>>) -> Result<(), Nonsense> {
        let Self {
            lanes,
            flights,
            free,
            ..
        } = self;
        for lane in lanes {
            while let Some(result) = lane.client.take()? {
                // There is one for each that was written.
                let Some((number, length)) = lane.under_way.pop_front() else {
                    break;
                };
                let place = &mut flights[usize::from(number)];
                let Some(flight) = place else { continue };
                let operation = flight.request.operation;
                let most = length as usize;
                let result = outcome(result, most)?;
                if let Err(error) = judged(operation, result, most) {
                    flight.request.result = Err(error);
                }
                flight.parts -= 1;
                if flight.parts == 0
                    && let Some(flight) = place.take()
                {
                    free.push(number);
                    done.push(flight.request);
                }
            }
        }
        Ok(())
    }

    /// Nobody serves it any more: what is in flight comes back. Without its buffers, if somebody
    /// may still write them.
    #[cold]
    fn lose(&mut self, why: Option<Nonsense>, done: &mut Vec<Box<Request>>) {
        self.is_lost = true;
        self.sleepers.say_gone();
        let Self { runtime, name, .. } = self;
        match why {
            None => runtime.print(format_args!(
                "outboard: disk {name}: the process that served it has ended\n"
            )),
            Some(why) => runtime.print(format_args!(
                "outboard: disk {name}: asked no more: the ring makes no sense: {why}\n"
            )),
        }
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            let mut request = flight.request;
            request.result = Err(BlockError::Gone);
            if why.is_some() {
                request.buffers = Buffers::default();
            }
            done.push(request);
        }
    }
}

/// What became of a part of a request.
fn judged(
    operation: Operation,
    result: Result<usize, Errno>,
    length: usize,
) -> Result<(), BlockError> {
    let is_range = matches!(operation, Operation::Discard | Operation::WriteZeroes);
    match result {
        // Of a range there is nothing to be counted.
        Ok(count) if count == length || is_range => Ok(()),
        Ok(_) => Err(BlockError::Host(Errno::IO.0)),
        // The range is the disk's: a block device has holes of its own blocks alone.
        Err(Errno::INVALID) if is_range => Err(BlockError::Unsupported),
        Err(errno) => Err(failed(errno)),
    }
}

impl BlockQueue for DiskQueue {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        while !self.free.is_empty()
            && self.over.len() < DEPTH
            && let Some(request) = requests.pop_front()
        {
            self.launch(request);
        }
        let mut posted = false;
        for lane in &mut self.lanes {
            posted |= lane.client.post();
        }
        // One wakes the next if there is more to do.
        if posted && self.sleepers.host_waits() != 0 {
            self.runtime.host.ring(self.number, self.bell);
        }
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        if self.is_armed {
            self.is_armed = false;
            self.sleepers.guest_sleeps(0);
        }
        done.append(&mut self.over);
        if self.is_lost {
            return;
        }
        let is_gone = self.sleepers.is_gone();
        match self.take(done) {
            Err(nonsense) => self.lose(Some(nonsense), done),
            Ok(()) if is_gone => self.lose(None, done),
            Ok(()) => {}
        }
    }

    fn arm(&mut self) -> bool {
        self.sleep.set(self.sleep.get() + waiting::SLEEP);
        self.sleepers
            .guest_sleeps(self.sleep.get() | waiting::RECEIVE);
        self.is_armed = true;
        // A jump is found by whoever takes the result.
        let mut lanes = self.lanes.iter_mut();
        let has_result = lanes.any(|lane| lane.client.has_result().unwrap_or(true));
        let is_new = self.sleepers.is_gone() && !self.is_lost;
        has_result && !self.is_lost || is_new || !self.over.is_empty()
    }

    fn wait_handle(&self) -> Option<WaitHandle> {
        Some(self.handle)
    }
}

/// Addresses and lengths of the parts of a request.
#[derive(Default)]
struct Parts {
    all: [(u64, u32); BUFFERS_MAX],
    count: usize,
}

impl Parts {
    /// Adds one; [`Request::check`] has found that there are no more.
    fn push(&mut self, part: (u64, u32)) {
        if let Some(place) = self.all.get_mut(self.count) {
            *place = part;
            self.count += 1;
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        self.all[..self.count].iter().copied()
    }
}
