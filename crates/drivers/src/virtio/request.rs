//! A queue of requests, of which the device has one at a time: for devices whose driver waits.

use super::queue::{Buffer, Queue};
use super::transport::Transport;
use super::{Error, LOOKS_MAX};
use crate::net::recovery::HEALTHY_NANOSECONDS;
use hw::{DmaArena, Done, OutOfDma};

/// Descriptors of the queue: more than the buffers of a request.
const DESCRIPTORS: usize = 8;
/// How long a device may take for a request, in nanoseconds.
pub const REQUEST_NANOSECONDS: u64 = 5_000_000_000;
/// Or one that is silent behind each reset would seem healthy in between.
const _: () = assert!(REQUEST_NANOSECONDS < HEALTHY_NANOSECONDS);

/// Why there is no answer. The device keeps the buffers until it has been reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It wrote what cannot be true.
    Lie,
    /// It did not answer in [`REQUEST_NANOSECONDS`].
    Timeout,
}

/// The queue.
pub struct Requests {
    queue: Queue<DESCRIPTORS>,
}

impl Requests {
    /// A queue that no device has yet.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        let queue = Queue::new(arena)?;
        Ok(Self { queue })
    }

    /// Gives the queue to a device that has just been reset and has accepted `features`.
    ///
    /// # Errors
    /// If the device cannot have it.
    pub fn set_up<T: Transport>(
        &mut self,
        transport: &T,
        number: u16,
        features: u64,
    ) -> Result<(), Error> {
        self.queue.set_up(transport, number, features, false)
    }

    /// Has the device do what these buffers say, at most eight, and waits for it: its word, and how
    /// many bytes it says to have written.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn run<T: Transport>(
        &mut self,
        transport: &T,
        buffers: &[Buffer],
        clock: &dyn Fn() -> u64,
    ) -> Result<(Done, usize), Failure> {
        let position = self.queue.next();
        self.queue.table().chain(0, buffers);
        self.queue.put(position, 0);
        self.queue.publish(transport, position + 1);
        let start = clock();
        for _ in 0..LOOKS_MAX {
            match self.queue.used() {
                Ok(None) => {}
                Ok(Some((done, _))) => {
                    let (head, bytes) = self.queue.reports().element(position);
                    let known = self.queue.overtake(position, head);
                    known.map_err(|_| Failure::Lie)?;
                    self.queue.saw(position + 1);
                    self.queue.silence();
                    return Ok((done, bytes));
                }
                Err(_) => return Err(Failure::Lie),
            }
            if clock().saturating_sub(start) > REQUEST_NANOSECONDS {
                break;
            }
            core::hint::spin_loop();
        }
        Err(Failure::Timeout)
    }
}
