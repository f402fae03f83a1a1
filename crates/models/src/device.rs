//! What a software device is to the transport in front of it.

use crate::dma::Dma;
use crate::violation::Violations;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A software PCI device.
///
/// A transport turns what a driver does into calls of this, one at a time, and calls
/// [`poll`](Self::poll) when it was told that there is work, or always. Time is told to the device
/// and never asked for, so that whatever happened can be repeated.
pub trait Device {
    /// What the device is.
    fn identity(&self) -> Identity;

    /// Reads registers of a BAR. Where none is, it reads all ones.
    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]);

    /// Writes registers of a BAR.
    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]);

    /// What happens when the bus is reset: all is as it was at first.
    fn reset(&mut self);

    /// Does what there is to do, up to a bound: moves packets, and raises interrupts. `now` is the
    /// time since some start, and never goes backwards.
    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress;

    /// Vectors that were raised since the last call, one bit each.
    fn take_interrupts(&mut self) -> u64;

    /// Whether the device asserts its [interrupt pin](Identity::pin).
    fn asserts_pin(&self) -> bool {
        false
    }

    /// When the device wants to be [polled](Self::poll) again though nothing happens, in the same
    /// time: it holds an interrupt back.
    fn due(&self) -> Option<Duration> {
        None
    }

    /// Offsets in BAR 0 of 32-bit registers that may lie in shared memory instead: it does not
    /// matter when the device learns of a write, nor of those that another one followed.
    fn doorbells(&self) -> &'static [usize];

    /// What its driver did wrong since the device was made; a reset forgets none of it.
    fn violations(&self) -> &Violations;

    /// What becomes readable when something comes in from outside that the device should be
    /// [polled](Self::poll) for; `None` if nothing does.
    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Device for Box<dyn Device> {
    fn identity(&self) -> Identity {
        (**self).identity()
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        (**self).read(bar, offset, bytes);
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        (**self).write(bar, offset, bytes);
    }

    fn reset(&mut self) {
        (**self).reset();
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        (**self).poll(dma, now)
    }

    fn take_interrupts(&mut self) -> u64 {
        (**self).take_interrupts()
    }

    fn asserts_pin(&self) -> bool {
        (**self).asserts_pin()
    }

    fn due(&self) -> Option<Duration> {
        (**self).due()
    }

    fn doorbells(&self) -> &'static [usize] {
        (**self).doorbells()
    }

    fn violations(&self) -> &Violations {
        (**self).violations()
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).wire_descriptor()
    }
}

/// What one call of [`Device::poll`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Frames that went to the driver.
    pub received: u32,
    /// Frames, or parts of one, that came from the driver.
    pub transmitted: u32,
}

impl Progress {
    /// Whether nothing was done: it is no use to call again at once.
    pub fn is_idle(&self) -> bool {
        self.received == 0 && self.transmitted == 0
    }
}

/// What a device is, in terms of PCI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID and subsystem ID; zero where nobody asks.
    pub subsystem: (u16, u16),
    /// Class, subclass, programming interface.
    pub class: [u8; 3],
    /// Revision.
    pub revision: u8,
    /// Sizes in bytes of the BARs, 0 for none. One of 64 bits takes two places.
    pub bars: [u64; 6],
    /// What each of them is.
    pub spaces: [Space; 6],
    /// Whether the device has an interrupt pin, INTA# (PCI 3.0, 2.2.6), which it
    /// [asserts](Device::asserts_pin) until its driver has done what it asks for.
    pub pin: bool,
    /// Where the MSI-X table lies, and how many vectors it has; none in a device without.
    pub msix: Msix,
    /// Its other capabilities, in their order.
    pub capabilities: &'static [Capability],
    /// Which of them, by its place, is a window through configuration space to the BARs.
    pub window: Option<u8>,
}

/// A capability in configuration space (PCI 3.0, 6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Where it lies: a multiple of four from 0x40 on.
    pub at: u8,
    /// Its bytes, which begin with its ID; where the next one lies is filled in.
    pub bytes: &'static [u8],
    /// Which bits of them can be written; none behind the end of this.
    pub writable: &'static [u8],
}

/// Where the registers of a BAR lie (PCI 3.0, 6.2.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Space {
    /// In memory: anywhere if the next place is empty, else below 4 GiB.
    #[default]
    Memory,
    /// In memory, below 4 GiB.
    Low,
    /// In I/O space.
    Io,
}

/// The MSI-X structures of a device (PCI 3.0, 6.8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Msix {
    /// Where its capability lies in configuration space: a multiple of four from 0x40 to 0xf4.
    /// Linux's ixgbe looks at the card's place for it, whatever the list of capabilities says.
    pub capability: u8,
    /// Number of vectors.
    pub vectors: u16,
    /// BAR of both structures.
    pub bar: u8,
    /// Offset of the table.
    pub table: u32,
    /// Offset of the pending bits.
    pub pending: u32,
}
