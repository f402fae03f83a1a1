//! What the host does for a guest. Each host offers the same functions; which one it is, the image
//! learns when it starts.

use crate::clock::Instant;
use crate::{hvt, spt};
use abi::manifest::Entry;
use abi::note::Target;
use core::sync::atomic::{AtomicBool, Ordering};

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const INTERRUPTED: Self = Self(4);
    pub(crate) const IO: Self = Self(5);
    pub(crate) const AGAIN: Self = Self(11);
    pub(crate) const NO_MEMORY: Self = Self(12);
    pub(crate) const INVALID: Self = Self(22);
    /// The descriptor is in a bad state: the tap behind it is gone.
    pub(crate) const BAD_STATE: Self = Self(77);
    /// Nobody reads any more.
    pub(crate) const PIPE: Self = Self(32);
    /// Whoever was there went in the middle.
    pub(crate) const RESET: Self = Self(104);
    pub(crate) const NO_BUFFERS: Self = Self(105);
}

/// A device, by the number that the host knows it by.
#[derive(Clone, Copy)]
pub(crate) struct Handle(pub(crate) i32);

/// What every host tells at the start.
pub(crate) struct Told {
    /// One past the last byte of guest memory.
    pub(crate) memory_end: u64,
    /// Address of the command line, ended by a NUL.
    pub(crate) command_line: u64,
    /// Address of the manifest.
    pub(crate) manifest: u64,
}

/// Whether the host is `hvt`. Written once, at the start.
static IS_HVT: AtomicBool = AtomicBool::new(false);

#[inline]
pub(crate) fn is_hvt() -> bool {
    IS_HVT.load(Ordering::Relaxed)
}

/// Begins on the host that `target` names.
///
/// # Safety
/// To be called once, first, with the address that the tender of that host passed to the entry
/// point: its boot information, and all that it points to, is readable and unchanged while the
/// guest runs.
pub(crate) unsafe fn begin(target: Target, boot_info: u64) -> Told {
    IS_HVT.store(target == Target::Hvt, Ordering::Relaxed);
    match target {
        // SAFETY: the caller vouches for the address.
        Target::Spt => unsafe { spt::begin(boot_info) },
        // SAFETY: as above.
        Target::Hvt => unsafe { hvt::begin(boot_info) },
    }
}

/// The device with this index and entry of the manifest.
pub(crate) fn handle(index: usize, entry: &Entry) -> Handle {
    Handle(if is_hvt() {
        index as i32
    } else {
        entry.descriptor()
    })
}

/// Takes a frame from a network device.
#[inline]
pub(crate) fn read(device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::read(device, buffer);
    }
    spt::read(device, buffer)
}

/// Gives a frame to a network device.
#[inline]
pub(crate) fn write(device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::write(device, bytes);
    }
    spt::write(device, bytes)
}

/// Sends a message to a device that is reached by messages.
pub(crate) fn send(device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::send(device, bytes);
    }
    spt::send(device, bytes)
}

/// Takes what a device that is reached by messages has answered.
pub(crate) fn receive(device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::receive(device, buffer);
    }
    spt::read(device, buffer)
}

/// Reads from a disk.
pub(crate) fn pread(device: Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::pread(device, buffer, offset);
    }
    spt::pread(device, buffer, offset)
}

/// Writes to a disk.
pub(crate) fn pwrite(device: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    if is_hvt() {
        return hvt::pwrite(device, bytes, offset);
    }
    spt::pwrite(device, bytes, offset)
}

/// Writes to the console; how many bytes it took.
pub(crate) fn print(bytes: &[u8]) -> Result<usize, Errno> {
    if is_hvt() {
        return Ok(hvt::print(bytes));
    }
    spt::print(bytes)
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn monotonic() -> u64 {
    if is_hvt() {
        return hvt::monotonic();
    }
    spt::monotonic()
}

/// The processor's time-stamp counter: no call, and no known unit.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and no tender takes it away.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds since 1970.
pub(crate) fn wall() -> u64 {
    if is_hvt() {
        return hvt::wall();
    }
    spt::wall()
}

/// Sleeps until a network device has something, the host has something to say, or the deadline has
/// passed; a bit for each device that has, by its index in the manifest.
#[inline]
pub(crate) fn wait(deadline: Option<Instant>) -> u64 {
    if is_hvt() {
        return hvt::wait(deadline);
    }
    spt::wait(deadline)
}

/// Ends the guest.
pub(crate) fn exit(status: i32) -> ! {
    if is_hvt() {
        hvt::exit(status);
    }
    spt::exit(status)
}
