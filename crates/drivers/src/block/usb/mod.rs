//! USB mass storage: a disk behind an xHCI controller, and any hubs.
//!
//! How the controller and devices are spoken to is in [`usb`](crate::usb). Keep open what this
//! folder is about: Mass Storage Class, Bulk-Only Transport 1.0, and SPC-4 and SBC-3 for the
//! commands of a disk. Read in this order:
//!
//! | file | what |
//! |---|---|
//! | `scsi` | commands, and what a disk answers |
//! | `transport` | how they move: bulk-only |
//! | `disk` | what the disk is like |
//! | `task` | the driver at work |
//!
//! The first disk in the order of ports is used, and of that the first unit. The device has one
//! command at a time; up to [`DEPTH`] requests wait for it. Data go between the device and the
//! caller's own buffers: no byte is copied, and no command allocates.
//!
//! **Waiting.** The device is looked at and never interrupts: [`BlockQueue::arm`] says that nobody
//! must sleep.
//!
//! **Durability.** A disk keeps what was written once it has been flushed, or, if it says that it
//! has no cache, once it is written. If it was reset, or lost its power, since the last flush, then
//! the next flush fails with [`BlockError::Reset`], for nobody knows what it still had.
//!
//! **Trouble.** If a transfer takes too long or fails, or the device says what cannot be, the
//! controller is reset, the disk is looked for where it was, and the request fails with
//! [`BlockError::Reset`]. One that was taken out is given up, and so is one with another disk in
//! its place; else see [`recovery`](crate::net::recovery). Buffers come back when the controller
//! says that it was reset, and never if it does not, nor when the driver is dropped.

mod disk;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod scsi;
mod task;
#[cfg(test)]
mod tests;
mod transport;

pub use crate::usb::{Error, Lie};

use crate::block::flight::{Requests, State, refused};
use crate::net::recovery::Recovery;
use crate::usb::host::{self, Host};
use crate::usb::init;
use crate::usb::registers::Places;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::pin::Pin;
use core::task::{Context, Waker};
use device::WaitHandle;
use device::block::{BlockError, BlockQueue, Durability, Limits, Request};
use disk::Disk;
use hw::{DmaArena, Mmio};
use task::Task;
use transport::Transport;

/// The class of such controllers: serial bus, USB, xHCI (5.2.1).
pub const CLASS: [u8; 3] = [0x0c, 0x03, 0x30];
/// DMA memory that the driver takes; and a page for each that the controller asks for.
pub const DMA_BYTES: usize = host::DMA_BYTES + transport::DMA_BYTES;
/// Requests that the driver has at once, one of which the device has.
pub const DEPTH: usize = 4;

/// Bytes of a transfer, at most, and buffers: fewer than the controller can be told parts.
const TRANSFER_BYTES_MAX: usize = 128 << 10;
const BUFFERS_MAX: usize = 16;
/// Looks at the device while it starts; more only if the clock stands still.
const LOOKS_MAX: usize = 1_000_000_000;

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Resets of the controller.
    pub resets: u64,
    /// Why it was reset last, or given up.
    pub last: Option<Error>,
}

/// What passes between callers and the driver at work.
struct Desk {
    waiting: VecDeque<Box<Request>>,
    done: Requests,
    state: State,
    limits: Limits,
    capacity: u64,
    trouble: Trouble,
}

impl Desk {
    /// The device is given up, and with it all that waits.
    fn give_up(&mut self) {
        self.state = State::GivenUp;
        self.done.extend(self.waiting.drain(..).map(|mut request| {
            request.result = Err(BlockError::Gone);
            request
        }));
    }
}

/// The driver of one disk.
pub struct Driver {
    desk: Rc<RefCell<Desk>>,
    /// The driver at work; none once the device is given up.
    task: Option<Pin<Box<dyn Future<Output = ()>>>>,
    #[cfg(any(test, feature = "puppet"))]
    home: Rc<RefCell<Task>>,
    bar: Mmio,
    places: Places,
}

impl Driver {
    /// Brings the first disk behind the controller up. It takes [`DMA_BYTES`] from `arena`; `clock`
    /// tells the monotonic time in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within two minutes at worst: disks take long to spin up.
    pub fn new(
        bar: Mmio,
        arena: &mut DmaArena,
        clock: impl Fn() -> u64 + 'static,
    ) -> Result<Self, Error> {
        let host = Host::new(bar.clone(), arena, Rc::new(clock))?;
        let places = host.places();
        let way = Transport::new(host, arena)?;
        if !way.reaches_all() {
            return Err(Error::Lacks(
                "no addresses of 64 bits, which its memory has",
            ));
        }
        let desk = Rc::new(RefCell::new(Desk {
            waiting: VecDeque::with_capacity(DEPTH),
            done: Vec::with_capacity(2 * DEPTH),
            state: State::Rising,
            limits: Limits::plain(512),
            capacity: 0,
            trouble: Trouble::default(),
        }));
        let home = Rc::new(RefCell::new(Task {
            way,
            desk: Rc::clone(&desk),
            recovery: Recovery::default(),
            flight: None,
            disk: None,
            is_dirty: false,
            has_lost: false,
        }));
        let mut driver = Self {
            desk,
            task: Some(Box::pin(task::live(Rc::clone(&home)))),
            #[cfg(any(test, feature = "puppet"))]
            home,
            bar,
            places,
        };
        driver.rise()?;
        Ok(driver)
    }

    /// Waits until the disk is up.
    fn rise(&mut self) -> Result<(), Error> {
        for _ in 0..LOOKS_MAX {
            self.work();
            let Desk { state, trouble, .. } = *self.desk.borrow();
            match state {
                State::Running => return Ok(()),
                State::Rising => core::hint::spin_loop(),
                State::GivenUp => return Err(trouble.last.unwrap_or(Error::NoDisk)),
            }
        }
        Err(Error::Timeout("a clock that goes on"))
    }

    /// What went wrong so far.
    pub fn trouble(&self) -> Trouble {
        self.desk.borrow().trouble
    }

    /// Goes on with what is to be done, as far as the device lets it.
    #[inline]
    fn work(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(task) = &mut self.task
            && task.as_mut().poll(&mut context).is_ready()
        {
            self.task = None;
        }
    }
}

/// What a disk is like that says this of itself.
fn limits(disk: &Disk) -> Limits {
    Limits {
        block_size: disk.block_size,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        buffers_max: BUFFERS_MAX,
        alignment: 4,
        range_bytes_max: disk.unmap_bytes,
        read_only: disk.read_only,
        durability: match disk {
            Disk {
                has_cache: false, ..
            } => Durability::Written,
            Disk { flushes: true, .. } => Durability::Flushed,
            Disk { flushes: false, .. } => Durability::Unknown,
        },
        discard: disk.unmap_bytes > 0,
        write_zeroes: false,
    }
}

impl BlockQueue for Driver {
    fn capacity(&self) -> u64 {
        self.desk.borrow().capacity
    }

    fn limits(&self) -> Limits {
        self.desk.borrow().limits
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        let mut desk = self.desk.borrow_mut();
        // The device may have one more.
        while desk.waiting.len() < DEPTH - 1 && desk.done.len() < DEPTH {
            let Some(request) = requests.pop_front() else {
                break;
            };
            match desk.state {
                State::GivenUp => {
                    // It takes nothing more.
                    if let Err(request) = refused::<()>(request, BlockError::Gone) {
                        desk.done.push(request);
                    }
                }
                _ => desk.waiting.push_back(request),
            }
        }
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        self.work();
        done.append(&mut self.desk.borrow_mut().done);
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
    /// The controller is reset, so that it has nothing; nobody waits. What was written stays in the
    /// disk's cache, and is lost with its power unless it was flushed.
    fn drop(&mut self) {
        init::stop(&self.bar, &self.places);
    }
}
