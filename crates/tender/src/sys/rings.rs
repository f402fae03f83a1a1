//! The memory of the rings, which a guest and this process share.

use super::guest::GuestMemory;
use super::machine::{Machine, RINGS_SLOT};
use super::window::Window;
use crate::memory::Gpa;
use abi::ring::lanes::DATA_OFFSET;
use abi::ring::{BASE, BYTES, Rings, WORDS};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::io;
use std::sync::atomic::AtomicU64;

/// Maps zeroed rings at their address and lends them to the guest of `machine`.
///
/// # Errors
/// What the kernel or KVM says.
pub fn map(machine: &Machine) -> io::Result<Rings<'static>> {
    let words = words()?;
    // SAFETY: they are mapped for ever, and nothing but atomics refers to them.
    unsafe { machine.lend(RINGS_SLOT, Gpa::new(BASE), (BASE, BYTES), false) }?;
    Rings::new(words).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The rings of a disk that a process serves, and the buffers behind them, in a window that is
/// shared with a guest; `None` if that is too small or is not written.
pub fn lanes(window: &Window) -> Option<(Rings<'static>, GuestMemory)> {
    let bytes = window.bytes().checked_sub(DATA_OFFSET)?;
    let place = window.place().filter(|_| window.is_writable())?;
    // SAFETY: (1) so many bytes are mapped for ever, from the start of a page on; (2) any bytes are
    // words; (3) they are only used as atomics, here and by the guest.
    let words = unsafe { std::slice::from_raw_parts(place.as_ptr().cast::<AtomicU64>(), WORDS) };
    // SAFETY: the window is longer than that (checked).
    let buffers = unsafe { place.add(DATA_OFFSET as usize) };
    let mut memory = GuestMemory::new();
    // SAFETY: a window is never unmapped, and there is no reference to what is behind the words.
    unsafe { memory.add(Gpa::new(DATA_OFFSET), buffers, bytes) };
    Some((Rings::new(words)?, memory))
}

fn words() -> io::Result<&'static [AtomicU64]> {
    let address = std::ptr::with_exposed_provenance_mut(BASE as usize);
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: NOREPLACE makes the kernel refuse rather than replace anything that exists.
    let mapped = unsafe { mmap_anonymous(address, BYTES as usize, rights, flags) }?;
    if mapped != address {
        // A kernel before 4.17 ignores NOREPLACE and maps elsewhere.
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    // SAFETY: (1) as many bytes were mapped just now, at the start of a page, and stay for ever;
    // (2) the kernel gives zeroes, and any bytes are words; (3) they are only used as atomics, here
    // and by the guest.
    Ok(unsafe { std::slice::from_raw_parts(mapped.cast::<AtomicU64>(), WORDS) })
}
