//! Descriptors that tasks wait for: a set of epoll(7), edge-triggered.
//!
//! A task tries first, and waits if the kernel has nothing. What becomes ready in between stays in
//! the set until it is asked for, so no waker comes too late.

use ports::Instant;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Events that are taken from the set at once.
pub const EVENTS_MAX: usize = 256;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// Waits in a set of epoll(7) until something of it is ready, which is put behind `events`, a
/// signal comes, or the deadline has passed; for ever if there is none.
///
/// # Errors
/// What the kernel says.
pub fn wait(
    epoll: BorrowedFd<'_>,
    deadline: Option<Instant>,
    now: Instant,
    events: &mut Vec<Event>,
) -> Result<(), Errno> {
    let left = deadline.map(|at| at.0.saturating_sub(now.0));
    let left = left.map(|left| Timespec {
        tv_sec: (left / SECOND).cast_signed(),
        tv_nsec: (left % SECOND).cast_signed(),
    });
    events.reserve(EVENTS_MAX);
    match epoll::wait(epoll, spare_capacity(events), left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The set.
pub struct Reactor {
    epoll: OwnedFd,
    places: RefCell<Vec<Option<Rc<Interest>>>>,
    free: RefCell<Vec<usize>>,
}

/// Who waits for a descriptor.
#[derive(Default)]
struct Interest {
    read: Direction,
    write: Direction,
    watcher: RefCell<Option<Waker>>,
    /// The other end is gone, in both directions.
    hung_up: Cell<bool>,
}

/// Who waits for a direction of it.
struct Direction {
    /// The kernel has not said that it would block since it said that it is ready.
    is_ready: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Default for Direction {
    fn default() -> Self {
        Self {
            is_ready: Cell::new(true),
            waker: RefCell::default(),
        }
    }
}

impl Direction {
    fn ready(&self) {
        self.is_ready.set(true);
        wake(&self.waker);
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    if let Some(waker) = waker.borrow_mut().take() {
        waker.wake();
    }
}

/// A descriptor in the set, which it leaves when it is dropped.
pub struct Watched {
    descriptor: OwnedFd,
    interest: Rc<Interest>,
    place: usize,
    reactor: Rc<Reactor>,
}

impl Reactor {
    /// An empty set.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            places: RefCell::default(),
            free: RefCell::default(),
        })
    }

    /// The set itself, for whoever sleeps in it. Data from [`Self::OTHERS`] on are not ours.
    pub fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// What others register with the set has this as its data, or more.
    pub const OTHERS: u64 = 1 << 32;

    /// Watches a descriptor, which does not block.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch(self: &Rc<Self>, descriptor: OwnedFd) -> Result<Watched, Errno> {
        let interest = Rc::<Interest>::default();
        let mut places = self.places.borrow_mut();
        let place = self.free.borrow_mut().pop().unwrap_or(places.len());
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(place as u64);
        if let Err(errno) = epoll::add(&self.epoll, &descriptor, data, flags) {
            if place < places.len() {
                self.free.borrow_mut().push(place);
            }
            return Err(errno);
        }
        match places.get_mut(place) {
            Some(free) => *free = Some(interest.clone()),
            None => places.push(Some(interest.clone())),
        }
        Ok(Watched {
            descriptor,
            interest,
            place,
            reactor: self.clone(),
        })
    }

    /// Wakes those for whom these events are.
    pub fn dispatch(&self, events: &[Event]) {
        let places = self.places.borrow();
        for event in events {
            let (data, flags) = (event.data.u64(), event.flags);
            let place = usize::try_from(data).ok();
            // An event of a descriptor that has left may lie in the same batch.
            let Some(Some(interest)) = place.and_then(|place| places.get(place)) else {
                continue;
            };
            let over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            if over {
                interest.hung_up.set(true);
                wake(&interest.watcher);
            }
            if over || flags.intersects(EventFlags::IN | EventFlags::RDHUP) {
                interest.read.ready();
            }
            if over || flags.contains(EventFlags::OUT) {
                interest.write.ready();
            }
        }
    }
}

impl Watched {
    /// Waits until `attempt` does not say that it would block.
    ///
    /// # Errors
    /// What `attempt` says otherwise.
    pub async fn reads<T>(
        &self,
        attempt: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.when(&self.interest.read, attempt).await
    }

    /// The same, for what waits for room.
    ///
    /// # Errors
    /// What `attempt` says otherwise.
    pub async fn writes<T>(
        &self,
        attempt: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.when(&self.interest.write, attempt).await
    }

    /// Waits until nobody has the other end any more.
    pub async fn hung_up(&self) {
        poll_fn(|context| match self.interest.hung_up.get() {
            true => Poll::Ready(()),
            false => {
                *self.interest.watcher.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    async fn when<T>(
        &self,
        direction: &Direction,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        poll_fn(|context: &mut Context<'_>| {
            while direction.is_ready.get() {
                match attempt(self.descriptor.as_fd()) {
                    Err(Errno::AGAIN) => direction.is_ready.set(false),
                    Err(Errno::INTR) => {}
                    done => return Poll::Ready(done),
                }
            }
            *direction.waker.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Somebody else may have a duplicate: the set would keep it.
        let _ = epoll::delete(&self.reactor.epoll, &self.descriptor);
        if let Some(place) = self.reactor.places.borrow_mut().get_mut(self.place) {
            *place = None;
        }
        self.reactor.free.borrow_mut().push(self.place);
    }
}
