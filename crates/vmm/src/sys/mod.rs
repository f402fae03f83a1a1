//! Everything in this crate that needs `unsafe`, each wrapped so that its callers do not.

use crate::load::Memory;
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use std::io;
use std::os::fd::AsRawFd;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

/// Gives a machine this memory, which lives as long as this process, so that the machine cannot
/// outlive it.
///
/// # Errors
/// What KVM says.
pub fn lend(vm: &VmFd, memory: &'static Memory) -> io::Result<()> {
    for (slot, region) in memory.iter().enumerate() {
        let region = kvm_userspace_memory_region {
            slot: slot as u32,
            flags: 0,
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.as_ptr().expose_provenance() as u64,
        };
        // SAFETY: (1) the region is mapped, as large as said, and stays so: it is borrowed for
        // ever, and only dropping it unmaps it; (2) this process reaches it through vm-memory's
        // volatile accesses and views of `hw::sim` only, which allow that others change it.
        unsafe { vm.set_user_memory_region(region) }?;
    }
    Ok(())
}

/// `_IOW(0xae, 0x49, struct kvm_ioregion)`.
const KVM_SET_IOREGION: libc::Ioctl = 0x4040_ae49;

/// `KVM_SET_IOREGION`, which no library wraps, with the bytes of a `struct kvm_ioregion`.
///
/// # Errors
/// What KVM says; `ENOTTY` if it has no such call.
pub fn set_ioregion(vm: &VmFd, argument: &[u8; 64]) -> io::Result<()> {
    // SAFETY: KVM copies as many bytes from the pointer as the request's number says, which are 64
    // (0x40), and writes none; the array has as many, and outlives the call.
    match unsafe { libc::ioctl(vm.as_raw_fd(), KVM_SET_IOREGION, argument.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
