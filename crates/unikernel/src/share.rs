//! The memory that the tender shares with the guest beside its own: shared file, rings, links
//! and states. What lies there, `ports` knows.

use abi::extension::HostInfo;
use abi::link::HEAD_BYTES;
use abi::region::{Info, own_address, peer_address};
use abi::ring::WORDS;
use abi::share::CONTROL_OFFSET;
use core::sync::atomic::AtomicU64;
use ports::LinkMemory;
use ports::share::{HostWord, SharedFile};
use ports::state::{self, StateMemory};

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

/// The memory of region `number`; `None` if it is no link that was attached.
///
/// # Safety
/// To be called once for each number: if `info` names a link, as many bytes as it says are mapped
/// for ever at the addresses of this number, those of this end writable and written by nobody else.
pub(crate) unsafe fn link(number: usize, info: &Info) -> Option<LinkMemory> {
    let slots = (info.own_bytes as usize).checked_sub(HEAD_BYTES)?;
    if info.peer_bytes == 0 {
        return None;
    }
    let start = own_address(number) as usize;
    let own = core::ptr::with_exposed_provenance::<AtomicU64>(start);
    let first = core::ptr::with_exposed_provenance_mut::<u8>(start + HEAD_BYTES);
    let peer = core::ptr::with_exposed_provenance::<AtomicU64>(peer_address(number) as usize);
    Some(LinkMemory {
        // SAFETY: mapped and aligned to a page (caller); words of any value; only touched as
        // atomics.
        own: unsafe { core::slice::from_raw_parts(own, HEAD_BYTES / WORD) },
        // SAFETY: mapped and writable (caller), disjoint from the words above, and borrowed this
        // once; the other image only reads it.
        slots: unsafe { core::slice::from_raw_parts_mut(first, slots) },
        // SAFETY: mapped and aligned (caller); words of any value, which the other image writes.
        // `ports` and `abi::link` load them and do nothing else; a load of one word does not write
        // (`core::sync::atomic`).
        peer: unsafe { core::slice::from_raw_parts(peer, info.peer_bytes as usize / WORD) },
    })
}

/// The memory of region `number`; `None` if it is no state that was attached.
///
/// # Safety
/// To be called once for each number: if `info` names a state, as many bytes as it says are mapped
/// writable for ever at the address of this number, and nobody else uses them.
pub(crate) unsafe fn state(number: usize, info: &Info) -> Option<StateMemory> {
    let body = (info.own_bytes as usize).checked_sub(state::HEAD_BYTES)?;
    if info.peer_bytes != 0 {
        return None;
    }
    let start = own_address(number) as usize;
    let head = core::ptr::with_exposed_provenance::<AtomicU64>(start);
    let first = core::ptr::with_exposed_provenance_mut::<u8>(start + state::HEAD_BYTES);
    Some(StateMemory {
        // SAFETY: mapped and aligned to a page (caller); words of any value; only touched as
        // atomics.
        head: unsafe { core::slice::from_raw_parts(head, state::HEAD_BYTES / WORD) },
        // SAFETY: mapped and writable (caller), disjoint from the words above, bytes of any value,
        // and borrowed this once.
        body: unsafe { core::slice::from_raw_parts_mut(first, body) },
    })
}
