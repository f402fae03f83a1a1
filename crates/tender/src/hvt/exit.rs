//! Why a processor has left its guest.

use crate::memory::Gpa;
use kvm_ioctls::VcpuExit;

/// Why the guest does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It wrote a 32-bit value to a port.
    Port(u16, u32),
    /// It used a port in another way.
    OtherPort(u16),
    /// It touched a guest-physical address where no memory is.
    Nowhere(Gpa),
    /// An exception that it could not handle, while it handled another one: a triple fault, or a
    /// HLT that nothing can end.
    Shutdown,
    /// A signal for this process.
    Interrupted,
    /// The processor does not accept its state: KVM's reason.
    Refused(u64),
    /// KVM gave up, which happens where it interprets instructions and meets one that it does not
    /// know.
    Internal,
    /// Something else, of which this program knows nothing.
    Unknown,
}

impl From<VcpuExit<'_>> for Exit {
    fn from(exit: VcpuExit<'_>) -> Self {
        match exit {
            VcpuExit::IoOut(port, data) => match <[u8; 4]>::try_from(data) {
                Ok(bytes) => Self::Port(port, u32::from_le_bytes(bytes)),
                Err(_) => Self::OtherPort(port),
            },
            VcpuExit::IoIn(port, _) => Self::OtherPort(port),
            VcpuExit::MmioRead(address, _) | VcpuExit::MmioWrite(address, _) => {
                Self::Nowhere(Gpa::new(address))
            }
            VcpuExit::Shutdown | VcpuExit::Hlt => Self::Shutdown,
            VcpuExit::FailEntry(reason, _) => Self::Refused(reason),
            VcpuExit::InternalError => Self::Internal,
            VcpuExit::Intr => Self::Interrupted,
            _ => Self::Unknown,
        }
    }
}
