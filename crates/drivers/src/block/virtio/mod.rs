//! The virtio block device (5.2): a disk of which one transfer is done at a time, through a buffer
//! of its own.
//!
//! Keep the specification open: [`virtio`] says which, and what the drivers of all virtio devices
//! share.
//!
//! **Durability.** The driver does not accept VIRTIO_BLK_F_FLUSH: the device then stores what is
//! written before it says that it is done (5.2.6.2).
//!
//! **Waiting.** A transfer is waited for by looking at memory, at most
//! [`REQUEST_NANOSECONDS`](virtio::request::REQUEST_NANOSECONDS).
//!
//! **Trouble.** A device that writes what cannot be, or does not answer, is reset, and the transfer
//! fails; when it is given up, see [`recovery`](crate::net::recovery). Then all transfers fail.

mod registers;
#[cfg(test)]
mod tests;

use crate::net::recovery::{Recovery, Remedy};
use crate::virtio::queue::Buffer;
use crate::virtio::request::Requests;
use crate::virtio::{self, Error, Transport};
use alloc::boxed::Box;
use device::block::{Durability, Limits};
use device::{BlockDevice, BlockError};
use hw::{DmaArena, DmaBuf, Done, FromDevice, InFlight, ToDevice};
use registers::*;

pub use registers::CONFIG_BYTES;

/// The kind of device (5.2.1).
pub const KIND: u16 = 2;

/// Bytes of a transfer; more are several.
pub const TRANSFER_BYTES: usize = 64 << 10;
/// DMA memory that the driver takes: the transfer, header and status, and rings, each at pages.
pub const DMA_BYTES: usize = TRANSFER_BYTES + 5 * 4096;

/// Bytes of the header of a request.
const HEADER_BYTES: usize = 16;

/// What the device says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Geometry {
    capacity: u64,
    block_size: usize,
    /// Bytes of a transfer, whole blocks.
    transfer: usize,
    read_only: bool,
}

/// What a request consists of, while no device has it.
struct Buffers {
    header: DmaBuf,
    data: DmaBuf,
    status: DmaBuf,
}

/// The driver.
pub struct Driver<T: Transport> {
    transport: T,
    requests: Requests,
    /// None once a device that was given up has them for ever.
    buffers: Option<Buffers>,
    geometry: Geometry,
    clock: Box<dyn Fn() -> u64>,
    recovery: Recovery,
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
        let buffers = Buffers {
            header: arena.buf(HEADER_BYTES, HEADER_BYTES)?,
            status: arena.buf(1, 1)?,
            data: arena.buf(TRANSFER_BYTES, 4096)?,
        };
        let mut driver = Self {
            requests: Requests::new(arena)?,
            transport,
            buffers: Some(buffers),
            geometry: Geometry::default(),
            clock: Box::new(clock),
            recovery: Recovery::default(),
        };
        virtio::reset(&driver.transport, &*driver.clock)?;
        driver.geometry = driver.bring_up()?;
        Ok(driver)
    }

    /// From a reset that has ended to a device that runs (3.1.1, 5.2.5).
    fn bring_up(&mut self) -> Result<Geometry, Error> {
        let transport = &self.transport;
        let wanted = HAS_SIZE_MAX | READ_ONLY | HAS_BLK_SIZE;
        let features = virtio::negotiate(transport, 0, |_| wanted)?;
        let geometry = geometry(transport, features)?;
        self.requests.set_up(transport, REQUEST_QUEUE, features)?;
        virtio::run(transport);
        Ok(geometry)
    }

    /// Has the device do one transfer of `length` bytes at `offset`, to or from the buffer.
    fn transfer(&mut self, kind: u32, offset: u64, length: usize) -> Result<(), BlockError> {
        let gone = BlockError::Gone;
        let Buffers {
            mut header,
            data,
            mut status,
        } = self.buffers.take().ok_or(gone)?;
        let sector = offset / SECTOR_BYTES;
        header.bytes_mut()[..4].copy_from_slice(&kind.to_le_bytes());
        header.bytes_mut()[4..8].fill(0);
        header.bytes_mut()[8..].copy_from_slice(&sector.to_le_bytes());
        status.bytes_mut()[0] = STATUS_NONE;
        // All of them come out of DMA memory.
        let (header, header_at) = InFlight::<_, ToDevice>::lend(header).map_err(|_| gone)?;
        let (data, data_at) = InFlight::<_, FromDevice>::lend(data).map_err(|_| gone)?;
        let (status, status_at) = InFlight::<_, FromDevice>::lend(status).map_err(|_| gone)?;
        let part = |address: hw::Iova, bytes: usize, write| Buffer {
            address: address.raw(),
            bytes: bytes as u32,
            write,
        };
        let parts = [
            part(header_at, HEADER_BYTES, false),
            part(data_at, length, kind == TYPE_IN),
            part(status_at, 1, true),
        ];
        let answer = self.requests.run(&self.transport, &parts, &*self.clock);
        let is_answered = answer.is_ok();
        let done = answer.map_or_else(|_| self.reset(), |(done, _)| Some(done));
        // Without its word it may still use them: leaked.
        let done = done.ok_or(gone)?;
        let (header, data, status) = (header.done(&done), data.done(&done), status.done(&done));
        // What it says that it wrote is of no importance: this is, and it is read once.
        let said = status.bytes()[0];
        self.buffers = Some(Buffers {
            header,
            data,
            status,
        });
        match said {
            _ if !is_answered => Err(BlockError::Reset),
            STATUS_OK => Ok(()),
            status => Err(BlockError::Device(status.into())),
        }
    }

    /// Resets the device, and brings it up again if that can be: its word that it has no buffer any
    /// more, if it gives that.
    #[cold]
    fn reset(&mut self) -> Option<Done> {
        let now = (self.clock)();
        if self.recovery.failed(now) == Remedy::GiveUp {
            return None;
        }
        let done = virtio::reset(&self.transport, &*self.clock).ok()?;
        self.recovery.comes_up((self.clock)());
        match self.bring_up() {
            Ok(geometry) if geometry == self.geometry => {}
            // Another disk by now, or none: nothing is read from it, and nothing written.
            _ => self.geometry.capacity = 0,
        }
        Some(done)
    }

    /// The buffer's bytes.
    fn data(&mut self) -> Result<&mut [u8], BlockError> {
        let buffers = self.buffers.as_mut();
        let data = buffers.map(|buffers| buffers.data.bytes_mut());
        data.ok_or(BlockError::Gone)
    }
}

/// What the device says of itself.
fn geometry<T: Transport>(transport: &T, features: u64) -> Result<Geometry, Error> {
    let read = |transport: &T| {
        let [low, high] = CAPACITY.map(|half| u64::from(transport.config(half)));
        let size = transport.config(BLK_SIZE);
        let most = transport.config(SIZE_MAX);
        (low | high << 32, size, most)
    };
    let (sectors, block_size, most) = virtio::transport::stable(transport, read);
    let block_size = match features & HAS_BLK_SIZE {
        0 => SECTOR_BYTES as usize,
        _ => block_size as usize,
    };
    let sound = block_size.is_power_of_two()
        && (SECTOR_BYTES as usize..=TRANSFER_BYTES).contains(&block_size);
    if !sound {
        return Err(Error::Config("its size of a block"));
    }
    let most = match features & HAS_SIZE_MAX {
        0 => TRANSFER_BYTES,
        _ => TRANSFER_BYTES.min(most as usize),
    };
    let transfer = most / block_size * block_size;
    if transfer == 0 {
        return Err(Error::Config("its most bytes of a transfer"));
    }
    let bytes = sectors.checked_mul(SECTOR_BYTES);
    let bytes = bytes.ok_or(Error::Config("its capacity"))?;
    Ok(Geometry {
        capacity: bytes / block_size as u64 * block_size as u64,
        block_size,
        transfer,
        read_only: features & READ_ONLY != 0,
    })
}

impl<T: Transport> BlockDevice for Driver<T> {
    fn capacity(&self) -> u64 {
        self.geometry.capacity
    }

    fn limits(&self) -> Limits {
        let Geometry {
            block_size,
            transfer,
            read_only,
            ..
        } = self.geometry;
        Limits {
            transfer_bytes_max: transfer,
            read_only,
            durability: Durability::Written,
            ..Limits::plain(block_size)
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check(self.capacity(), offset, length)?;
        let size = self.geometry.transfer;
        for (part, offset) in blocks.chunks_mut(size).zip((offset..).step_by(size)) {
            self.transfer(TYPE_IN, offset, part.len())?;
            part.copy_from_slice(&self.data()?[..part.len()]);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits()
            .check_change(self.capacity(), offset, length)?;
        let size = self.geometry.transfer;
        for (part, offset) in blocks.chunks(size).zip((offset..).step_by(size)) {
            self.data()?[..part.len()].copy_from_slice(part);
            self.transfer(TYPE_OUT, offset, part.len())?;
        }
        Ok(())
    }
}

impl<T: Transport> Drop for Driver<T> {
    /// The device is reset, and has nothing: transfers are waited for.
    fn drop(&mut self) {
        virtio::begin(&self.transport);
    }
}
