//! The host that the image runs on, chosen once at the start; nothing else asks which it is.

use crate::hvt::Hvt;
use crate::spt::Spt;
use abi::note::Target;
use core::cell::Cell;
use ports::Host;

/// Where an image runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A plain process, for debugging.
    Process,
    /// A sandboxed process.
    Spt,
    /// A virtual machine.
    Hvt,
}

/// What every tender tells at the start.
pub(crate) struct Start {
    /// One past the last byte of guest memory.
    pub(crate) memory_end: u64,
    /// Address of the command line, ended by a NUL.
    pub(crate) command_line: u64,
    /// Address of the manifest.
    pub(crate) manifest: u64,
}

struct Chosen(Cell<&'static dyn Host>);
// SAFETY: a unikernel has one thread, and no signal or interrupt handler runs guest code.
unsafe impl Sync for Chosen {}
static HOST: Chosen = Chosen(Cell::new(&Spt));

/// The host.
#[inline]
pub(crate) fn host() -> &'static dyn Host {
    HOST.0.get()
}

/// Begins on the host that `target` names.
///
/// # Safety
/// To be called once, first, with the address that the tender of that host passed to the entry
/// point: its boot information, and all that it points to, is readable and unchanged while the
/// guest runs.
pub(crate) unsafe fn begin(target: Target, boot_info: u64) -> Start {
    match target {
        Target::Spt => {
            HOST.0.set(&Spt);
            // SAFETY: the caller vouches for the address.
            unsafe { crate::spt::begin(boot_info) }
        }
        Target::Hvt => {
            HOST.0.set(&Hvt);
            // SAFETY: the caller vouches for the address.
            unsafe { crate::hvt::begin(boot_info) }
        }
    }
}

/// The processor's time-stamp counter.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and no tender takes it away.
    unsafe { core::arch::x86_64::_rdtsc() }
}
