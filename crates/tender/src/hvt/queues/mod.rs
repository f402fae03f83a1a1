//! What a guest asks for through rings, done: frames and sectors move between its memory and the
//! host's devices, and nothing is copied.
//!
//! Every number in a ring is the guest's: indices are compared with our own, an entry is read once,
//! and what it names goes through the one door, [`GuestMemory`], at each use.

use super::cause::Violation;
use crate::attach::Attached;
use crate::memory::Gpa;
use crate::sys::guest::GuestMemory;
use crate::transfer::{self, result};
use abi::manifest::Device;
use abi::ring::{self, Request, Rings, Server};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// Most requests of one queue that are served before it is another's turn, and before the guest is
/// told: as many as it takes at once.
const BATCH_REQUESTS_MAX: usize = 64;
/// A turn ends with this many bytes: more would leave the cache before the guest looks at them.
const BATCH_BYTES_MAX: usize = 128 << 10;

/// All queues of a guest.
#[derive(Debug)]
pub struct Queues<'a> {
    memory: GuestMemory,
    nets: Vec<Net<'a>>,
    disks: Vec<Disk<'a>>,
}

#[derive(Debug)]
struct Net<'a> {
    index: usize,
    fd: BorrowedFd<'a>,
    /// Buffers in which frames are received.
    receive: Server<'a>,
    /// Frames to be sent.
    transmit: Server<'a>,
    /// Whether it may have a frame: nothing has said that there is none since the last event.
    readable: bool,
}

#[derive(Debug)]
struct Disk<'a> {
    index: usize,
    attached: &'a Attached,
    capacity: u64,
    requests: Server<'a>,
}

/// What was done in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Frames were received, or sectors moved.
    pub received: bool,
    /// Frames were sent.
    pub sent: bool,
}

impl<'a> Queues<'a> {
    /// The queues of `devices` in `rings`. Buffers lie in `memory`.
    pub fn new(rings: Rings<'a>, devices: &'a [Attached], memory: GuestMemory) -> Self {
        let (mut nets, mut disks) = (Vec::new(), Vec::new());
        for device in devices {
            let (index, fd) = (device.index, device.fd.as_fd());
            let queues = (
                rings.server(ring::receive(index)),
                rings.server(ring::transmit(index)),
            );
            match (device.device, queues) {
                (Device::Net { .. }, (Some(receive), Some(transmit))) => nets.push(Net {
                    index,
                    fd,
                    receive,
                    transmit,
                    readable: true,
                }),
                (Device::Block { capacity, .. }, (Some(requests), _)) => disks.push(Disk {
                    index,
                    attached: device,
                    capacity,
                    requests,
                }),
                // The manifest has fewer entries than there are queues.
                _ => {}
            }
        }
        Self {
            memory,
            nets,
            disks,
        }
    }

    /// One turn of each queue.
    ///
    /// # Errors
    /// What the guest must not ask for; it is to be ended then.
    pub fn serve(&mut self) -> Result<Done, Violation> {
        let mut done = Done::default();
        for net in &mut self.nets {
            done.sent |= net.send(&self.memory)?;
            done.received |= net.receive(&self.memory)?;
        }
        for disk in &mut self.disks {
            done.received |= disk.serve(&self.memory)?;
        }
        Ok(done)
    }

    /// Whether there is anything to be done.
    ///
    /// # Errors
    /// As [`Self::serve`].
    pub fn has_work(&mut self) -> Result<bool, Violation> {
        for net in &mut self.nets {
            let work = net
                .has_work()
                .map_err(|jump| Violation::Ring(net.index, jump));
            if work? {
                return Ok(true);
            }
        }
        for disk in &mut self.disks {
            let work = disk.requests.has_request();
            if work.map_err(|jump| Violation::Ring(disk.index, jump))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a network may have a frame.
    pub fn any_readable(&self) -> bool {
        self.nets.iter().any(|net| net.readable)
    }

    /// Whether all networks may have one, so that no event says anything new.
    pub fn all_readable(&self) -> bool {
        self.nets.iter().all(|net| net.readable)
    }

    /// The network with this index in the manifest may have a frame.
    pub fn set_readable(&mut self, index: u64) {
        for net in &mut self.nets {
            net.readable |= net.index as u64 == index;
        }
    }
}

impl Net<'_> {
    fn has_work(&mut self) -> Result<bool, abi::ring::Jump> {
        Ok(self.transmit.has_request()? || self.readable && self.receive.has_request()?)
    }

    /// Sends frames; whether there was one.
    fn send(&mut self, memory: &GuestMemory) -> Result<bool, Violation> {
        for _ in 0..BATCH_REQUESTS_MAX {
            let Some(Request {
                address, length, ..
            }) = next(&mut self.transmit, self.index)?
            else {
                break;
            };
            let written = memory.write(self.fd, Gpa::new(address), length.into());
            let written = written.map_err(|outside| Violation::Buffer(self.index, outside))?;
            if written != Err(Errno::INTR) {
                self.transmit.serve(result(written));
            }
        }
        Ok(self.transmit.publish())
    }

    /// Receives frames, as long as there are buffers; whether there was one.
    fn receive(&mut self, memory: &GuestMemory) -> Result<bool, Violation> {
        let mut bytes = 0;
        for _ in 0..BATCH_REQUESTS_MAX {
            if !self.readable || bytes >= BATCH_BYTES_MAX {
                break;
            }
            let Some(Request {
                address, length, ..
            }) = next(&mut self.receive, self.index)?
            else {
                break;
            };
            let read = memory.read(self.fd, Gpa::new(address), length.into());
            let read = read.map_err(|outside| Violation::Buffer(self.index, outside))?;
            match read {
                Ok(length) => bytes += length,
                Err(Errno::INTR) => continue,
                Err(_) => self.readable = false,
            }
            if read != Err(Errno::AGAIN) {
                self.receive.serve(result(read));
            }
        }
        Ok(self.receive.publish())
    }
}

/// The oldest request to the device with this index that was not served.
fn next(queue: &mut Server<'_>, index: usize) -> Result<Option<Request>, Violation> {
    queue.request().map_err(|jump| Violation::Ring(index, jump))
}

impl Disk<'_> {
    /// Moves sectors; whether any were asked for.
    fn serve(&mut self, memory: &GuestMemory) -> Result<bool, Violation> {
        for _ in 0..BATCH_REQUESTS_MAX {
            let Some(request) = next(&mut self.requests, self.index)? else {
                break;
            };
            let done = transfer::perform(self.attached, self.capacity, &request, memory);
            let done = done.map_err(|outside| Violation::Buffer(self.index, outside))?;
            if done != Err(Errno::INTR) {
                self.requests.serve(result(done));
            }
        }
        Ok(self.requests.publish())
    }
}

#[cfg(test)]
mod tests;
