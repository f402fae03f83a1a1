//! The memory that the tender shares with the guest beside its own: shared file, rings, links,
//! states and queues of disks. What lies there, `ports` knows.

use abi::extension::HostInfo;
use abi::region::{own_address, peer_address};
use abi::ring::WORDS;
use abi::ring::lanes::DATA_OFFSET;
use abi::share::CONTROL_OFFSET;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use hw::DmaArena;
use ports::QueueMemory;
use ports::share::{HostWord, SharedFile};

const WORD: usize = size_of::<AtomicU64>();

/// The shared file.
///
/// # Safety
/// If `host_info` names a file, as many bytes as it says are mapped at that address for ever,
/// aligned to a page; those up to [`CONTROL_OFFSET`] are writable.
pub(crate) unsafe fn file(host_info: &HostInfo) -> SharedFile {
    if host_info.share == 0 {
        return SharedFile::default();
    }
    let bytes = host_info.share_bytes as usize;
    let (guest_bytes, host_bytes) = (
        bytes.min(CONTROL_OFFSET),
        bytes.saturating_sub(CONTROL_OFFSET),
    );
    let guest = host_info.share as usize as *const AtomicU64;
    let host = (host_info.share as usize + CONTROL_OFFSET) as *const HostWord;
    // SAFETY: mapped and aligned (caller); words of any value; only touched as atomics.
    let guest = unsafe { core::slice::from_raw_parts(guest, guest_bytes / WORD) };
    // SAFETY: as above; empty, with an aligned address, where the file ends before. `HostWord` is
    // laid out as the `AtomicU64` in it, and loads are all that it has in an image (its stores are
    // for tests); a load of one word does not write (`core::sync::atomic`).
    let host = unsafe { core::slice::from_raw_parts(host, host_bytes / WORD) };
    SharedFile::new(guest, host)
}

/// The words of the rings, if there are rings.
///
/// # Safety
/// If `host_info` names rings, as many bytes as it says are mapped writable at that address for
/// ever, aligned to a page.
pub(crate) unsafe fn rings(host_info: &HostInfo) -> Option<&'static [AtomicU64]> {
    if host_info.rings == 0 || (host_info.rings_bytes as usize) < WORDS * WORD {
        return None;
    }
    let words = host_info.rings as usize as *const AtomicU64;
    // SAFETY: mapped and aligned (caller); words of any value; only touched as atomics.
    Some(unsafe { core::slice::from_raw_parts(words, WORDS) })
}

/// The memory of region `number`, of which the first `head` bytes are words; `None` if there is
/// less than that.
///
/// # Safety
/// To be called once for each number: so many bytes are mapped writable for ever at the address of
/// this number, and nobody else writes them.
pub(crate) unsafe fn own(
    number: usize,
    bytes: u64,
    head: usize,
) -> Option<(&'static [AtomicU64], &'static mut [u8])> {
    let rest = (bytes as usize).checked_sub(head)?;
    let start = own_address(number) as usize;
    let words = core::ptr::with_exposed_provenance(start);
    let first = core::ptr::with_exposed_provenance_mut(start + head);
    // SAFETY: mapped and aligned to a page (caller); words of any value; only touched as atomics.
    let words = unsafe { core::slice::from_raw_parts(words, head / WORD) };
    // SAFETY: mapped and writable (caller), disjoint from the words above, and borrowed this once;
    // another image reads it at most.
    Some((words, unsafe {
        core::slice::from_raw_parts_mut(first, rest)
    }))
}

/// The memory of region `number`, which has so many bytes, as that of a disk's queue; `None` if
/// there are too few.
///
/// # Safety
/// To be called once for each number: so many bytes are mapped writable for ever at the address of
/// this number.
pub(crate) unsafe fn queue(number: usize, bytes: u64) -> Option<QueueMemory> {
    let rest = bytes.checked_sub(DATA_OFFSET)?;
    let start = own_address(number);
    let words = core::ptr::with_exposed_provenance(start as usize);
    let first = start + DATA_OFFSET;
    let data = NonNull::new(core::ptr::with_exposed_provenance_mut(first as usize))?;
    // SAFETY: mapped and aligned to a page (caller); words of any value; only touched as atomics.
    let words = unsafe { core::slice::from_raw_parts(words, WORDS) };
    // SAFETY: mapped and writable (caller), behind the words, and handed out once. Whoever serves
    // the disk is to it what a device is to DMA memory: it writes where it was told to.
    let arena = unsafe { DmaArena::new(data, rest as usize, first) };
    Some(QueueMemory {
        words,
        arena,
        start,
    })
}

/// What the other end of link `number` writes.
///
/// # Safety
/// So many bytes are mapped readable for ever at the address of this number.
pub(crate) unsafe fn peer(number: usize, bytes: u64) -> &'static [AtomicU64] {
    let words = core::ptr::with_exposed_provenance(peer_address(number) as usize);
    // SAFETY: mapped and aligned to a page (caller); words of any value, which another image
    // writes. `ports` and `abi::link` load them and do nothing else; a load of one word does not
    // write (`core::sync::atomic`).
    unsafe { core::slice::from_raw_parts(words, bytes as usize / WORD) }
}
