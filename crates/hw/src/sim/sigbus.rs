//! Memory of another process that goes away while it is mapped.
//!
//! A seal keeps a file from shrinking, but not its pages: whoever shares a file of huge pages can
//! give one back (`fallocate(2)` with `FALLOC_FL_PUNCH_HOLE`), and if there is none when it is
//! touched again, the kernel sends SIGBUS. (`F_SEAL_FUTURE_WRITE` would forbid that, but also that
//! a second device maps the same memory.) So that this ends a session and not the process, the
//! handler puts memory that is nobody else's in the place of the page, and notes it.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::io;
use std::sync::OnceLock;

/// Most mappings at a time, of all sessions of a process.
const MAPPINGS_MAX: usize = 256;
/// No address: the slot is free, or being filled.
const FREE: usize = 0;
const TAKEN: usize = 1;

/// What the handler knows of a mapping.
struct Slot {
    start: AtomicUsize,
    bytes: AtomicUsize,
    page: AtomicUsize,
    lost: AtomicBool,
}

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        bytes: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

/// What was done about SIGBUS before.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// A mapping that the handler knows.
pub(super) struct Watched(&'static Slot);

impl Watched {
    /// Watches over `bytes` bytes at `start`, mapped in pages of `page` bytes.
    ///
    /// # Errors
    /// If there are too many mappings, or what the kernel says about the handler.
    pub(super) fn new(start: usize, bytes: usize, page: usize) -> io::Result<Self> {
        install()?;
        let take = |slot: &&Slot| {
            let taken =
                slot.start
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        };
        let slot = SLOTS.iter().find(take).ok_or(io::ErrorKind::OutOfMemory)?;
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.page.store(page, Ordering::Relaxed);
        slot.lost.store(false, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Ok(Self(slot))
    }

    /// Whether a page of it went away.
    pub(super) fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.start.store(FREE, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    let before = BEFORE.get_or_init(|| {
        // SAFETY: all-zero bytes are a `sigaction`: numbers, an empty set, a null pointer.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut before = action;
        // SAFETY: both point to a `sigaction`, and the handler does what handlers may (see there).
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut before) } {
            0 => Some(before),
            _ => None,
        }
    });
    // It fails for no signal that can be caught.
    before.map(drop).ok_or(io::ErrorKind::Unsupported.into())
}

/// Puts memory where a page went away. It uses atomics and two system calls, which a handler may.
extern "C" fn handler(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO what is known of the signal.
    let info = unsafe { &*info };
    // SAFETY: SIGBUS of the kernel has an address; of another process, some number, which is in no
    // mapping or does no harm: a page of shared memory is lost that the sender could have written.
    let address = unsafe { info.si_addr() } as usize;
    let has = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        let offset = address.wrapping_sub(start);
        start > TAKEN && offset < slot.bytes.load(Ordering::Relaxed)
    };
    let replaced = SLOTS.iter().find(has).is_some_and(|slot| {
        slot.lost.store(true, Ordering::Relaxed);
        replace(address, slot.page.load(Ordering::Relaxed))
    });
    if !replaced {
        leave_to_others();
    }
}

/// Maps zeros where a page lies.
fn replace(address: usize, page: usize) -> bool {
    let start = address - address % page.max(1);
    // SAFETY: the page is part of a mapping that is shared with other processes, of which a `View`
    // hands out no reference; it is whole, as mappings are of whole pages. What accesses it finds
    // other bytes from now on, as if another process had written them.
    let mapped = unsafe {
        libc::mmap(
            start as *mut c_void,
            page,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Lets the access happen again, with what was done about it before.
fn leave_to_others() {
    let Some(Some(before)) = BEFORE.get() else {
        // SAFETY: a call without memory of ours.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    };
    // SAFETY: it is an action that was in force.
    unsafe { libc::sigaction(libc::SIGBUS, core::ptr::from_ref(before), null_mut()) };
}
