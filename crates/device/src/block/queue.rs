//! Requests in flight.

use super::{BlockError, Limits};
use crate::WaitHandle;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hw::{DmaBuf, Iova, Reachable};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`BlockDevice::read`](super::BlockDevice::read), into the buffers.
    Read,
    /// [`BlockDevice::write`](super::BlockDevice::write), out of the buffers.
    Write,
    /// [`BlockDevice::flush`](super::BlockDevice::flush), of what was done when it was submitted.
    Flush,
    /// [`BlockDevice::discard`](super::BlockDevice::discard).
    Discard,
    /// [`BlockDevice::write_zeroes`](super::BlockDevice::write_zeroes); unlike there, only where
    /// [`Limits::write_zeroes`].
    WriteZeroes,
}

/// A request, from whoever makes it to the queue and back. It is made once and used again, so that
/// none costs an allocation: what moves is its box.
#[derive(Debug)]
pub struct Request {
    /// The caller's own; the queue does not look at it.
    pub token: u64,
    /// What is to be done.
    pub operation: Operation,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How many bytes; a flush has none.
    pub length: u64,
    /// Where the bytes are, or go.
    pub buffers: Buffers,
    /// What became of it, once it is back.
    pub result: Result<(), BlockError>,
}

impl Request {
    /// A request with these buffers, for whatever it is used for.
    pub fn new(buffers: Buffers) -> Box<Self> {
        Box::new(Self {
            token: 0,
            operation: Operation::Flush,
            offset: 0,
            length: 0,
            buffers,
            result: Ok(()),
        })
    }

    /// Whether a disk with these limits and this capacity can do it.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn check(&self, limits: &Limits, capacity: u64) -> Result<(), BlockError> {
        let Self { offset, length, .. } = *self;
        match self.operation {
            Operation::Flush => return Ok(()),
            Operation::Read => limits.check(capacity, offset, length)?,
            Operation::Write | Operation::Discard | Operation::WriteZeroes => {
                limits.check_change(capacity, offset, length)?;
            }
        }
        let ranges = length <= limits.range_bytes_max;
        let fits = match self.operation {
            Operation::Discard => limits.discard && ranges,
            Operation::WriteZeroes => limits.write_zeroes && ranges,
            _ => length <= limits.transfer_bytes_max as u64 && self.buffers.fit(limits, length),
        };
        fits.then_some(()).ok_or(BlockError::Unsupported)
    }
}

/// The buffers of a request, used one after the other. Each but the last that is used is whole
/// blocks long. A device has all of them ([`hw::InFlight`]) or none.
#[derive(Debug, Default)]
pub struct Buffers(pub Vec<DmaBuf>);

impl Buffers {
    /// How many bytes they have.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|buffer| buffer.len() as u64).sum()
    }

    /// Whether they hold `length` bytes in parts that a disk with these limits takes.
    fn fit(&self, limits: &Limits, length: u64) -> bool {
        let mut left = length;
        let mut parts = self.0.iter().map_while(|buffer| used(buffer, &mut left));
        let is_whole = parts.all(|part| part.is_multiple_of(limits.block_size));
        is_whole && left == 0 && self.0.len() <= limits.buffers_max
    }

    /// The first `length` bytes, in parts.
    pub fn parts(&self, length: u64) -> impl Iterator<Item = &[u8]> {
        let mut left = length;
        let buffers = self.0.iter();
        buffers.map_while(move |buffer| Some(&buffer.bytes()[..used(buffer, &mut left)?]))
    }

    /// The same, to be written.
    pub fn parts_mut(&mut self, length: u64) -> impl Iterator<Item = &mut [u8]> {
        let mut left = length;
        let buffers = self.0.iter_mut();
        buffers.map_while(move |buffer| {
            let used = used(buffer, &mut left)?;
            Some(&mut buffer.bytes_mut()[..used])
        })
    }

    /// Where a device finds the first `length` bytes: address and length of each part. To be asked
    /// once [`Reachable::iova`] has said that there are addresses.
    pub fn addresses(&self, length: u64) -> impl Iterator<Item = (Iova, usize)> {
        let mut left = length;
        let buffers = self.0.iter();
        buffers.map_while(move |buffer| {
            let used = used(buffer, &mut left)?;
            Some((buffer.iova()?, used))
        })
    }
}

/// How many bytes of `buffer` are used where so many are `left`; `None` at the end.
fn used(buffer: &DmaBuf, left: &mut u64) -> Option<usize> {
    let used = (*left).min(buffer.len() as u64);
    *left -= used;
    (used > 0).then_some(used as usize)
}

/// Devices reach them if they reach each.
impl Reachable for Buffers {
    fn iova(&self) -> Option<Iova> {
        let all = self.0.iter().all(|buffer| buffer.iova().is_some());
        self.0.first().filter(|_| all)?.iova()
    }
}

/// A disk with several requests in flight.
///
/// No call waits. Each request comes back, done or with its error, some bounded time after it was
/// submitted, as long as [`Self::complete`] is called: a driver gives a device up that does not
/// answer. The order is any.
pub trait BlockQueue {
    /// Size in bytes, a multiple of the block size.
    fn capacity(&self) -> u64;

    /// What it is like.
    fn limits(&self) -> Limits;

    /// Most requests that are in flight at once.
    fn depth(&self) -> usize;

    /// Takes requests from the front, as many as there is room for. One that cannot be done is
    /// taken as well, and comes back with its error.
    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>);

    /// Adds the requests that are over to `done`. Their buffers are as they were, but where a
    /// device may write them for ever: then the request has none any more.
    fn complete(&mut self, done: &mut Vec<Box<Request>>);

    /// Has [`Self::wait_handle`] end the next sleep once there is something to complete; `true` if
    /// there is already, or nothing will end it, so that nobody must sleep.
    fn arm(&mut self) -> bool;

    /// What to sleep on while requests are in flight; `None` if there is nothing, and the queue is
    /// looked at again and again.
    fn wait_handle(&self) -> Option<WaitHandle>;
}

impl<Q: BlockQueue + ?Sized> BlockQueue for Box<Q> {
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn depth(&self) -> usize {
        (**self).depth()
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        (**self).submit(requests);
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        (**self).complete(done);
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }

    fn wait_handle(&self) -> Option<WaitHandle> {
        (**self).wait_handle()
    }
}
