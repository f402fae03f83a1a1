//! A virtual machine of KVM's with one processor, and its memory.

use super::guest::GuestMemory;
use super::window::Window;
use crate::memory::{Gpa, Memory};
use kvm_bindings::{KVM_MEM_READONLY, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use vmm_sys_util::eventfd::EventFd;

/// The slot of KVM's that holds guest memory from address 0 on.
const SLOT: u32 = 0;
/// The slot of the rings; those between are the shared file's.
pub const RINGS_SLOT: u32 = 3;
/// `MAP_HUGE_2MB`: the size of large pages, as their logarithm from bit 26 on.
const HUGE_2MB: u32 = 21 << 26;

/// A machine while it is set up: nobody but this program touches its memory.
#[derive(Debug)]
pub struct Machine {
    vcpu: VcpuFd,
    vm: VmFd,
    memory: NonNull<u8>,
    bytes: usize,
}

/// A machine whose guest runs.
#[derive(Debug)]
pub struct Running {
    vcpu: VcpuFd,
    /// Kept open, for the processor is a part of it.
    _vm: VmFd,
    memory: GuestMemory,
    bytes: u64,
}

impl Machine {
    /// A machine with `bytes` of zeroed memory, from guest-physical address 0 on; in pages of 2 MiB
    /// that are reserved now if `huge`.
    ///
    /// # Errors
    /// What the kernel says; `ENOMEM` also for lack of huge pages.
    pub fn new(kvm: &Kvm, bytes: usize, huge: bool) -> io::Result<Self> {
        let vm = kvm.create_vm().map_err(os_error)?;
        let mut flags = MapFlags::PRIVATE;
        if huge {
            flags |= MapFlags::HUGETLB | MapFlags::from_bits_retain(HUGE_2MB);
        } else {
            flags |= MapFlags::NORESERVE;
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without an address and without FIXED, the kernel chooses a place where nothing
        // is.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, flags) }?;
        // SAFETY: advice about pages that were mapped just now changes none of their bytes here.
        // Processes that are copies of this one have none of them.
        unsafe { madvise(memory, bytes, Advice::LinuxDontFork) }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = kvm_userspace_memory_region {
            slot: SLOT,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: bytes as u64,
            userspace_addr: memory.as_ptr().expose_provenance() as u64,
        };
        // SAFETY: the memory was mapped for this, is as large as said, and is never unmapped: it
        // goes with the process.
        unsafe { vm.set_user_memory_region(region) }.map_err(os_error)?;
        let vcpu = vm.create_vcpu(0).map_err(os_error)?;
        Ok(Self {
            vcpu,
            vm,
            memory,
            bytes,
        })
    }

    /// Lends `length` bytes of this process from `address` on, whole pages, to the guest at the
    /// guest-physical address `physical`, in the memory slot `slot`, which is not the first.
    ///
    /// # Errors
    /// What KVM says: `EINVAL` if addresses are odd or taken.
    ///
    /// # Safety
    /// The memory is mapped and stays so as long as this process lives, and no reference to it
    /// exists but to atomics: the guest may read it at any time, and write it unless `read_only`.
    pub unsafe fn lend(
        &self,
        slot: u32,
        physical: Gpa,
        (address, length): (u64, u64),
        read_only: bool,
    ) -> io::Result<()> {
        let flags = if read_only { KVM_MEM_READONLY } else { 0 };
        let region = kvm_userspace_memory_region {
            slot,
            flags,
            guest_phys_addr: physical.number(),
            memory_size: length,
            userspace_addr: address,
        };
        // SAFETY: the caller vouches for the memory.
        unsafe { self.vm.set_user_memory_region(region) }.map_err(os_error)
    }

    /// An event that the guest raises by writing `value`, 32 bits, to `port`: the kernel does so
    /// without returning from [`Running::run`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn event_of_port(&self, port: u16, value: u32) -> io::Result<OwnedFd> {
        let event = linux::event::new()?;
        self.ring_by_port(port, value, &event)?;
        Ok(event)
    }

    /// Has the guest raise `event` in this way.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ring_by_port(&self, port: u16, value: u32, event: &OwnedFd) -> io::Result<()> {
        let copy = event.try_clone()?.into_raw_fd();
        // SAFETY: the number is that of an open descriptor, which `into_raw_fd` gives away.
        let event = unsafe { EventFd::from_raw_fd(copy) };
        let port = IoEventAddress::Pio(port.into());
        let registered = self.vm.register_ioevent(&event, &port, value);
        registered.map_err(os_error)
    }

    /// The processor, to be set up or asked for its registers.
    pub fn vcpu(&self) -> &VcpuFd {
        &self.vcpu
    }

    /// The machine, to be told of devices.
    pub fn vm(&self) -> &VmFd {
        &self.vm
    }

    /// Goes on to where the guest can run, and nobody has a reference to its memory any more.
    /// It may also name addresses in `arena`, by those that they have here.
    pub fn start(self, arena: Option<&Window>) -> Running {
        let mut memory = GuestMemory::new();
        // SAFETY: `new` has mapped the memory, it is never unmapped, and `self`, from which all
        // references to it were borrowed, ends here.
        unsafe { memory.add(Gpa::new(0), self.memory, self.bytes as u64) };
        if let Some((place, window)) = arena.and_then(|window| Some((window.place()?, window))) {
            // SAFETY: windows are never unmapped, and no reference to one is ever made.
            unsafe { memory.add(Gpa::new(window.address()), place, window.bytes()) };
        }
        Running {
            vcpu: self.vcpu,
            _vm: self.vm,
            memory,
            bytes: self.bytes as u64,
        }
    }
}

impl Running {
    /// KVM's statistics of the processor, to be read as `include/uapi/linux/kvm.h` says.
    ///
    /// # Errors
    /// What the kernel says: `ENOTTY` before Linux 5.14.
    pub fn statistics(&self) -> io::Result<OwnedFd> {
        const KVM_GET_STATS_FD: libc::Ioctl = 0xaece;
        // SAFETY: the request has no argument.
        let fd = unsafe { libc::ioctl(self.vcpu.as_raw_fd(), KVM_GET_STATS_FD) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has opened it just now, and nobody else knows of it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The processor, to be asked for its registers.
    pub fn vcpu(&self) -> &VcpuFd {
        &self.vcpu
    }

    /// The same, for whoever has to leave it at once.
    pub fn vcpu_mut(&mut self) -> &mut VcpuFd {
        &mut self.vcpu
    }

    /// The processor's descriptor.
    pub fn vcpu_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the processor is there, from which it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.vcpu.as_raw_fd()) }
    }

    /// What the guest may name by address.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Size of the memory that begins at address 0.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Runs the guest until it needs somebody. Whoever has devices at addresses without memory gets
    /// the bytes that were written there, or are to be read.
    ///
    /// # Errors
    /// What KVM says: `EFAULT` for guest memory that the host cannot provide.
    pub fn enter(&mut self) -> Result<VcpuExit<'_>, Errno> {
        match self.vcpu.run() {
            Ok(exit) => Ok(exit),
            Err(error) if error.errno() == libc::EINTR => Ok(VcpuExit::Intr),
            Err(error) => Err(Errno::from_raw_os_error(error.errno())),
        }
    }
}

impl Memory for Machine {
    fn bytes(&mut self, address: Gpa, length: u64) -> Option<&mut [u8]> {
        let end = address.checked_add(length)?.number();
        if end > self.bytes as u64 {
            return None;
        }
        // SAFETY: the address lies within the mapping (checked above), or one past its end.
        let start = unsafe { self.memory.add(address.number() as usize) };
        // SAFETY: (1) the range lies within memory that `new` mapped readable and writable, all of
        // it initialised, since the kernel gives zeroes; (2) no other slice of it exists, for each
        // borrows self; (3) the guest runs only once `start` has consumed self.
        Some(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length as usize) })
    }
}

fn os_error(error: kvm_ioctls::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}
