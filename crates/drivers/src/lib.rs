//! Drivers, in safe Rust, each from its datasheet.
//!
//! A driver does not know where it runs: it has registers ([`hw::Mmio`]), DMA memory and a pool of
//! frames, and is told the time. It never trusts what its device can write.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod block;
pub mod entropy;
pub mod net;
mod said;
pub mod usb;
pub mod virtio;
