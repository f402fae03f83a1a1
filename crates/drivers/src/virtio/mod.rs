//! What the drivers of all virtio devices share: Virtual I/O Device (VIRTIO) Version 1.2, OASIS
//! Committee Specification 01, July 2022. Section numbers in this folder, and in the drivers'
//! own, refer to it.
//!
//! | file | what | sections |
//! |---|---|---|
//! | [`feature`] | what is negotiated with each device | 6 |
//! | `init` | reset and bring-up, step by step | 3.1 |
//! | [`queue`] | a split virtqueue, the driver's side | 2.7 |
//! | [`request`] | a queue of which a driver waits | 2.7 |
//! | [`transport`] | what a driver asks of a transport | |
//! | [`pci`], [`mmio`] | the transports | 4.1, 4.2 |
//! | `either` | one of them, chosen when the image runs | |
//! | `error` | why a device cannot be used | |
//! | `puppet` | a device that does what a test says | |
//!
//! The drivers are in `net/virtio`, `block/virtio` and `entropy/virtio`. None of them knows its
//! transport.
//!
//! **A device that lies.** It can write the ring of used buffers, its registers, and whatever lies
//! in DMA memory. The driver reads each of those once and checks it. Which descriptor is whose
//! turn, and whose buffer it has, the driver knows from memory of its own: of what it wrote into
//! the rings it reads nothing back.

mod either;
mod error;
pub mod feature;
mod init;
pub mod mmio;
pub mod pci;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
pub mod queue;
pub mod request;
#[cfg(test)]
mod tests;
pub mod transport;

pub use either::Either;
pub use error::Error;
pub(crate) use init::{begin, is_alive, negotiate, run};
pub use transport::{Transport, Window};

/// Vendor ID of all virtio devices (4.1.2).
pub const VENDOR: u16 = 0x1af4;
/// PCI device ID of the virtio device of type 0 (4.1.2): that of others is so much more.
pub const PCI_DEVICE_BASE: u16 = 0x1040;

/// How long a device may take for a reset, in nanoseconds; the specification gives no time.
pub const RESET_NANOSECONDS: u64 = 1_000_000_000;

/// Looks at a device that starts; more only if the clock stands still.
const LOOKS_MAX: usize = 10_000_000;

/// The device wrote what cannot be true: it is not asked again before it has been reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie;

/// Resets the device while an image starts (3.1.1, step 1), and returns its word.
///
/// # Errors
/// If it does not report that it is reset.
pub(crate) fn reset<T: Transport>(
    transport: &T,
    clock: impl Fn() -> u64,
) -> Result<hw::Done, Error> {
    begin(transport);
    let start = clock();
    for _ in 0..LOOKS_MAX {
        if let Some(done) = transport.reset_done() {
            return Ok(done);
        }
        if clock().saturating_sub(start) > RESET_NANOSECONDS {
            break;
        }
    }
    Err(Error::Timeout)
}
