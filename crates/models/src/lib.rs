//! Software devices, to run drivers against: written from the datasheets of the hardware, without
//! a line or a number in common with the drivers, so that two readings must agree.
//!
//! | module | what |
//! |---|---|
//! | [`Intel82599`] | the NIC: registers, rings, offloads, interrupts |
//! | [`Device`] | what a device is to a transport |
//! | [`Local`], [`Threaded`] | a device in the process of its driver |
//! | [`vfio_user`] | a device as a process that others drive |
//! | [`Dma`] | the driver's memory, as a device reaches it |
//! | [`wire`] | what a NIC is connected to |
//! | [`Report`], [`Violation`] | what a driver did that the datasheet forbids |
//! | [`Misbehaviour`] | what a device does wrong on demand |

#![forbid(unsafe_code)]

mod device;
mod dma;
mod intel82599;
mod local;
mod misbehaviour;
mod packet;
mod stale;
pub mod vfio_user;
mod violation;
pub mod wire;

pub use device::{Device, Identity, Msix, Progress};
pub use dma::{Dma, DmaFault};
pub use intel82599::Intel82599;
pub use local::{Local, Threaded};
pub use misbehaviour::{Fault, Misbehaviour, NoFault, StuckBits};
pub use violation::{Queue, Report, Violation};
