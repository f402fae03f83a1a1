//! Disks that the image drives itself.

use super::{Queue, Reason};
use alloc::boxed::Box;
use alloc::vec::Vec;
use device::BlockDevice;
use device::block::{BlockQueue, Blocking};
use drivers::block::{ahci, nvme, usb, virtio};
use drivers::virtio::Either;
use hw::DmaBuf;

/// Buffers of a disk whose caller waits, and bytes of each: as many are in flight at once.
pub(crate) const BUFFERS: usize = 4;
pub(crate) const BUFFER_BYTES: usize = 64 << 10;

/// A disk, and its driver.
pub(crate) enum Driven {
    Virtio(Box<virtio::Driver<Either>>),
    Nvme(Box<nvme::Driver>),
    Ahci(Box<ahci::Driver>),
    Usb(Box<usb::Driver>),
}

impl Driven {
    /// A disk whose caller waits.
    pub(crate) fn device(self) -> Result<Box<dyn BlockDevice>, Reason> {
        match self {
            Self::Virtio(disk) => waiting(disk),
            Self::Nvme(disk) => waiting(disk),
            Self::Ahci(disk) => waiting(disk),
            Self::Usb(disk) => waiting(disk),
        }
    }

    /// A queue, and buffers that its device reaches.
    pub(crate) fn queue(self, count: usize, bytes: usize) -> Result<Queue, Reason> {
        match self {
            Self::Virtio(disk) => {
                let buffers = buffers(&disk, count, bytes)?;
                Ok((disk, buffers))
            }
            Self::Nvme(disk) => {
                let buffers = buffers(&disk, count, bytes)?;
                Ok((disk, buffers))
            }
            Self::Ahci(disk) => {
                let buffers = buffers(&disk, count, bytes)?;
                Ok((disk, buffers))
            }
            Self::Usb(disk) => {
                let buffers = buffers(&disk, count, bytes)?;
                Ok((disk, buffers))
            }
        }
    }
}

/// A disk whose caller waits for its queue.
fn waiting(queue: impl BlockQueue + 'static) -> Result<Box<dyn BlockDevice>, Reason> {
    let buffers = buffers(&queue, BUFFERS, BUFFER_BYTES)?;
    Ok(Box::new(Blocking::new(queue, buffers)))
}

/// So many buffers of DMA memory, as a queue wants them.
fn buffers(queue: &dyn BlockQueue, count: usize, bytes: usize) -> Result<Vec<DmaBuf>, Reason> {
    let alignment = queue.limits().alignment;
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    let buffers = (0..count).map(|_| arena.buf(bytes, alignment));
    let buffers = buffers.collect::<Result<_, _>>();
    buffers.map_err(Reason::Buffers)
}
