//! A queue over a disk whose caller waits.

use super::{BlockDevice, BlockError, BlockQueue, Limits, Operation, Request};
use crate::WaitHandle;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Requests that are kept at once: more would only wait here.
const DEPTH: usize = 32;
/// Once so many bytes were moved, the caller has its turn.
const TURN_BYTES: u64 = 256 << 10;

/// Requests that are done one after the other while the caller completes them, a bounded part at a
/// time: for disks that cannot do anything else meanwhile.
pub struct Immediate<D> {
    device: D,
    taken: VecDeque<Box<Request>>,
}

impl<D: BlockDevice> Immediate<D> {
    /// A queue over `device`.
    pub fn new(device: D) -> Self {
        Self {
            device,
            taken: VecDeque::with_capacity(DEPTH),
        }
    }

    fn perform(&mut self, request: &mut Request) -> Result<(), BlockError> {
        let Self { device, .. } = self;
        request.check(&device.limits(), device.capacity())?;
        let (mut at, length) = (request.offset, request.length);
        match request.operation {
            Operation::Read => {
                for part in request.buffers.parts_mut(length) {
                    device.read(at, part)?;
                    at += part.len() as u64;
                }
                Ok(())
            }
            Operation::Write => {
                for part in request.buffers.parts(length) {
                    device.write(at, part)?;
                    at += part.len() as u64;
                }
                Ok(())
            }
            Operation::Flush => device.flush(),
            Operation::Discard => device.discard(at, length),
            Operation::WriteZeroes => device.write_zeroes(at, length),
        }
    }
}

impl<D: BlockDevice> BlockQueue for Immediate<D> {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&mut self, requests: &mut VecDeque<Box<Request>>) {
        let count = requests.len().min(DEPTH - self.taken.len());
        self.taken.extend(requests.drain(..count));
    }

    fn complete(&mut self, done: &mut Vec<Box<Request>>) {
        let mut bytes = 0;
        while bytes < TURN_BYTES
            && let Some(mut request) = self.taken.pop_front()
        {
            request.result = self.perform(&mut request);
            // Whatever moves no bytes takes some time, too.
            bytes += request.length.max(4096);
            done.push(request);
        }
    }

    fn arm(&mut self) -> bool {
        !self.taken.is_empty()
    }

    fn wait_handle(&self) -> Option<WaitHandle> {
        None
    }
}
