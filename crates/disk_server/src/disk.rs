//! A disk that several connections share: one queue, and for each connection buffers of its own.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::ops::{Deref, DerefMut};
use core::task::{Context, Poll, Waker};
use device::block::{BlockError, BlockQueue, Buffers, Limits, Operation, Request};
use hw::DmaBuf;

/// Connections at once: as many as there are buffers for.
pub const CONNECTIONS_MAX: usize = 8;
/// Buffers of a connection: so many parts of its requests are with the disk at once.
pub const BUFFERS: usize = 16;
/// Bytes of a buffer.
pub const BUFFER_BYTES: usize = 64 << 10;

/// The disk, for all that use it.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Shared>>);

#[expect(
    clippy::vec_box,
    reason = "a request moves from list to list as its box"
)]
struct Shared {
    queue: Box<dyn BlockQueue>,
    /// What the queue had no room for yet.
    todo: VecDeque<Box<Request>>,
    done: Vec<Box<Request>>,
    in_flight: usize,
    places: Vec<Place>,
}

/// What a connection has of it.
#[derive(Default)]
#[expect(
    clippy::vec_box,
    reason = "a request moves from list to list as its box"
)]
struct Place {
    is_taken: bool,
    idle: Vec<Box<Request>>,
    done: VecDeque<Box<Request>>,
    in_flight: usize,
    /// Why a flush of somebody else's has failed. The host says so once, and what this one has
    /// written may be lost with it: so its next flush fails as well.
    lost: Option<BlockError>,
    /// Whoever waits for either.
    waker: Option<Waker>,
}

/// A place at the disk, for one connection. Dropped, it is free again once all that it has asked
/// for is done.
pub struct Seat {
    disk: Disk,
    number: usize,
}

/// A request and its buffer, which go back where they came from.
pub struct Slot<'a> {
    seat: &'a Seat,
    /// None once it was submitted.
    request: Option<Box<Request>>,
}

impl Disk {
    /// Over `queue`, for as many connections as there are lists of buffers. A buffer is at least as
    /// long as a block.
    pub fn new(queue: Box<dyn BlockQueue>, buffers: Vec<Vec<DmaBuf>>) -> Self {
        let place = |buffers: Vec<DmaBuf>| {
            let requests = buffers
                .into_iter()
                .map(|one| Request::new(Buffers(vec![one])));
            Place {
                idle: requests.collect(),
                ..Place::default()
            }
        };
        Self(Rc::new(RefCell::new(Shared {
            queue,
            todo: VecDeque::new(),
            done: Vec::new(),
            in_flight: 0,
            places: buffers.into_iter().map(place).collect(),
        })))
    }

    /// Size in bytes.
    pub fn capacity(&self) -> u64 {
        self.0.borrow().queue.capacity()
    }

    /// What it is like.
    pub fn limits(&self) -> Limits {
        self.0.borrow().queue.limits()
    }

    /// A place, if there is one.
    pub fn seat(&self) -> Option<Seat> {
        let mut shared = self.0.borrow_mut();
        let is_free =
            |place: &Place| !place.is_taken && place.in_flight == 0 && !place.idle.is_empty();
        let number = shared.places.iter().position(is_free)?;
        shared.places[number].is_taken = true;
        shared.places[number].lost = None;
        let disk = self.clone();
        Some(Seat { disk, number })
    }

    /// Hands requests to the disk and takes in what it has done; whether there was anything.
    pub fn turn(&self) -> bool {
        let mut shared = self.0.borrow_mut();
        let Shared {
            queue,
            todo,
            done,
            in_flight,
            places,
        } = &mut *shared;
        if *in_flight == 0 {
            return false;
        }
        queue.submit(todo);
        queue.complete(done);
        let any = !done.is_empty();
        *in_flight -= done.len();
        for mut request in done.drain(..) {
            let (number, _) = parts(request.token);
            if request.operation == Operation::Flush {
                if let Err(error) = request.result {
                    places.iter_mut().for_each(|place| place.lost = Some(error));
                }
                // Whose flush it is learns of it now.
                let lost = places[number].lost.take();
                request.result = lost.map_or(Ok(()), Err);
            }
            let place = &mut places[number];
            place.in_flight -= 1;
            match place.is_taken {
                true => place.done.push_back(request),
                false => place.rest(request),
            }
            place.wake();
        }
        any
    }

    /// Whether nobody must sleep, since the disk has something to be taken in or has to be looked
    /// at again and again.
    pub fn is_busy(&self) -> bool {
        let mut shared = self.0.borrow_mut();
        shared.in_flight > 0 && (!shared.todo.is_empty() || shared.queue.arm())
    }

    /// Whether it has something to do, so that nobody may sleep for long.
    pub fn has_in_flight(&self) -> bool {
        self.0.borrow().in_flight > 0
    }
}

impl Place {
    /// Keeps a request for the next time, unless a device has its buffer for ever.
    fn rest(&mut self, request: Box<Request>) {
        if request.buffers.bytes() > 0 {
            self.idle.push(request);
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The numbers of place and flight in a token.
fn parts(token: u64) -> (usize, u32) {
    ((token >> 32) as usize, token as u32)
}

impl Seat {
    /// Most bytes of one read or write: whole blocks.
    pub fn part_bytes(&self) -> usize {
        let limits = self.disk.limits();
        let most = BUFFER_BYTES.min(limits.transfer_bytes_max);
        most / limits.block_size * limits.block_size
    }

    fn place<T>(&self, with: impl FnOnce(&mut Place) -> T) -> T {
        with(&mut self.disk.0.borrow_mut().places[self.number])
    }

    /// The next buffer of this connection that nobody uses.
    pub async fn slot(&self) -> Slot<'_> {
        poll_fn(|context| match self.place(|place| place.idle.pop()) {
            Some(request) => Poll::Ready(self.hold(request)),
            None => self.wait(context),
        })
        .await
    }

    /// The next request that the disk has done.
    pub(crate) fn done(&self) -> Option<Slot<'_>> {
        let request = self.place(|place| place.done.pop_front())?;
        Some(self.hold(request))
    }

    /// Has what comes back from the disk wake this task.
    pub(crate) fn wait<T>(&self, context: &Context<'_>) -> Poll<T> {
        self.place(|place| place.waker = Some(context.waker().clone()));
        Poll::Pending
    }

    /// Has this task go on.
    pub(crate) fn wake(&self) {
        self.place(Place::wake);
    }

    fn hold(&self, request: Box<Request>) -> Slot<'_> {
        Slot {
            seat: self,
            request: Some(request),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.place(|place| {
            place.is_taken = false;
            place.waker = None;
            while let Some(request) = place.done.pop_front() {
                place.rest(request);
            }
        });
    }
}

impl Slot<'_> {
    /// Has the disk do it, for this flight.
    pub(crate) fn submit(mut self, flight: u32) {
        if let Some(mut request) = self.request.take() {
            request.token = (self.seat.number as u64) << 32 | u64::from(flight);
            let mut shared = self.seat.disk.0.borrow_mut();
            shared.places[self.seat.number].in_flight += 1;
            shared.in_flight += 1;
            shared.todo.push_back(request);
        }
    }

    /// The flight that it was submitted for.
    pub(crate) fn flight(&self) -> u32 {
        parts(self.token).1
    }
}

impl Deref for Slot<'_> {
    type Target = Request;

    fn deref(&self) -> &Request {
        self.request.as_ref().expect("only `submit` takes it")
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut Request {
        self.request.as_mut().expect("only `submit` takes it")
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            self.seat.place(|place| {
                place.rest(request);
                place.wake();
            });
        }
    }
}
