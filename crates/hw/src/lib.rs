//! Device registers and DMA memory as types: the unsafe island of the drivers, which themselves
//! have no unsafe code and do not know where they run.
//!
//! | type | what |
//! |---|---|
//! | [`Mmio`] | the registers of a BAR: mapped, by message, or simulated |
//! | [`Register`] | one of them: name, offset, width, section of the datasheet |
//! | [`DmaArena`] | the DMA memory of an image, handed out piece by piece |
//! | [`DmaBuf`] | owned bytes of it, for frames and whatever a device reads or writes |
//! | [`InFlight`] | what a device has now: nobody can look at its bytes until it is back |
//! | [`Done`] | a device's word that it is done, without which nothing comes back |
//! | [`DmaRing`] | descriptors that driver and device both write, word by word |
//! | [`Iova`] | an address as devices use it |
//! | [`Lease`] | something that goes back to its pool when it is dropped |
//! | `sim` | the same types over plain memory, for drivers against models (feature `host`) |
//!
//! **What a device can write is hostile.** Descriptors are read word by word, each once, and what
//! was read is checked before it is used; what a driver must remember it keeps in memory of its
//! own. A device that behaves writes into a buffer only while it is [`InFlight`]. One that does not
//! may write at any time into all of the DMA memory, and nowhere else: the IOMMU sees to that. So a
//! decision about bytes in DMA memory is made on a copy (`nf` reads each header byte once).

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "host"))]
extern crate std;

mod arena;
mod buf;
mod flight;
mod iova;
mod lease;
mod mmio;
mod register;
mod ring;
#[cfg(feature = "host")]
pub mod sim;

pub use arena::{DmaArena, OutOfDma};
pub use buf::DmaBuf;
pub use flight::{Direction, Done, FromDevice, InFlight, Reachable, ToDevice, leaked};
pub use iova::Iova;
pub use lease::{Lease, Recycle};
pub use mmio::{Mmio, Registers};
pub use register::{Register, Width};
pub use ring::{DmaRing, Report};
