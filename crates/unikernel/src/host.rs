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

/// Bit of `ecx` of leaf 1 that says that the processor has RDRAND (Intel SDM, volume 2, CPUID).
const HAS_RDRAND: u32 = 1 << 30;
/// RDRAND may find nothing for a moment; ten failures in a row say that it is broken (Intel SDM,
/// volume 1, 7.3.17.1).
const RDRAND_TRIES: u32 = 10;

/// Random bytes of the processor's, under a tender that gives none.
pub(crate) fn random() -> Option<[u8; 32]> {
    if core::arch::x86_64::__cpuid(1).ecx & HAS_RDRAND == 0 {
        return None;
    }
    let mut bytes = [0; 32];
    for word in bytes.chunks_exact_mut(8) {
        let mut number = 0;
        // SAFETY: the processor has the instruction, as it says, and writes to our own variable.
        let mut draw = || unsafe { core::arch::x86_64::_rdrand64_step(&mut number) } == 1;
        if !(0..RDRAND_TRIES).any(|_| draw()) {
            return None;
        }
        word.copy_from_slice(&number.to_ne_bytes());
    }
    Some(bytes)
}
