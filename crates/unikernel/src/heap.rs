//! The allocator: talc over all memory that is left behind the image.

use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use talc::TalcCell;
use talc::source::Manual;

struct Heap(TalcCell<Manual>);

// SAFETY: a unikernel has one thread, and no signal or interrupt handler runs guest code.
unsafe impl Sync for Heap {}

// SAFETY: every call is handed on to talc's own implementation.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap(TalcCell::new(Manual));

unsafe extern "C" {
    /// One past the last byte of the image, page-aligned; the linker script defines it.
    #[link_name = "_end"]
    static IMAGE_END: u8;
}

/// Gives the memory between the image and `memory_end` to the heap, but for as many bytes at the
/// top as `arena_bytes` asks for when told how many there are: the packet arena, returned.
///
/// The arena does not come from the heap because it must not be written before it is used: the
/// first touch of a page costs more than a frame.
///
/// # Safety
/// To be called once; the memory is zero, mapped, writable and used by nobody else, for ever.
pub(crate) unsafe fn init(
    memory_end: usize,
    arena_bytes: impl FnOnce(usize) -> usize,
) -> &'static mut [u8] {
    let start = (&raw const IMAGE_END).addr();
    let free = memory_end.saturating_sub(start);
    let arena_bytes = arena_bytes(free).min(free);
    let arena_start = (memory_end - arena_bytes) & !63;
    let base = core::ptr::with_exposed_provenance_mut::<u8>(start);
    // SAFETY: the range begins behind the image and ends below the arena; the caller vouches that
    // nobody else uses it.
    let claimed = unsafe { HEAP.0.claim(base, arena_start - start) };
    if claimed.is_none() {
        crate::write_console(b"outboard: no memory left for a heap: give more with --mem\n");
        crate::exit(abi::exit::ABORT);
    }
    let arena = core::ptr::with_exposed_provenance_mut::<u8>(arena_start);
    // SAFETY: the range begins where the heap ends and lies in guest memory, which is zero (so
    // initialised); it is handed out this once.
    unsafe { core::slice::from_raw_parts_mut(arena, arena_bytes) }
}

/// Whether the heap has so many bytes in one piece.
pub(crate) fn has_room(bytes: usize) -> bool {
    let mut probe = Vec::<u8>::new();
    let had_room = probe.try_reserve_exact(bytes).is_ok();
    // Or the compiler leaves out what nobody uses.
    core::hint::black_box(&probe);
    had_room
}
