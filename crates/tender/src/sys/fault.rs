//! What the tender does when a guest faults: it writes down how, and ends.
//!
//! The handler runs in the middle of the guest: the guest's %fs (no thread-local variables), no
//! allocation, no lock, and of all system calls it needs `exit_group`, and `pwrite64` for a core
//! file, which the jail allows.
//! What it reads of guest memory lies where the guest's stack can be, see [`look_within`].

use super::machine::Machine;
use crate::core_file::{CoreFile, Page};
use crate::memory::Gpa;
use crate::spt::signal::{Fault, registers};
use abi::backtrace::Backtrace;
use abi::exit::{ABORT, SIGNAL_BASE};
use abi::share::{BASE, CONTROL_OFFSET, CORE_OFFSET, EXITS_OFFSET, Exits, REPORT_MAGIC, Report};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::arch::asm;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The signals by which a guest can fault.
const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Room for the handler, a page, and the registers that the kernel saves (AVX-512: 2.7 KiB).
const STACK_BYTES: usize = 32 << 10;

/// Where the guest's stack can be: first address, and one past the last.
static STACK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The core file to write, and what of guest memory can be read for it.
static CORE: OnceLock<(CoreFile, Vec<Range<u64>>)> = OnceLock::new();

/// The shared file in memory, where the handler writes.
#[derive(Debug)]
pub struct Shared(());

impl Shared {
    /// Maps `length` bytes of `file` at [`BASE`]; those from [`CONTROL_OFFSET`] on can only be
    /// read, by the guest too. No page is touched.
    ///
    /// # Errors
    /// What the kernel says: `EACCES` if the file is not open for reading and writing.
    pub fn map(file: BorrowedFd<'_>, length: u64) -> io::Result<Self> {
        let control = CONTROL_OFFSET as u64;
        map_part(
            file,
            0..length.min(control),
            ProtFlags::READ | ProtFlags::WRITE,
        )?;
        if length > control {
            map_part(file, control..length, ProtFlags::READ)?;
        }
        Ok(Self(()))
    }

    /// Shows the file to the guest of a virtual machine, where it is mapped here, with the same
    /// rights. `length` is what was given to [`Self::map`].
    ///
    /// # Errors
    /// What KVM says.
    pub fn lend(&self, machine: &Machine, length: u64) -> io::Result<()> {
        let control = CONTROL_OFFSET as u64;
        let (first, second) = (Gpa::new(BASE), Gpa::new(BASE + control));
        // SAFETY: `map` has mapped these bytes for ever, and this program has no reference to them.
        unsafe { machine.lend(1, first, (BASE, length.min(control)), false) }?;
        if length > control {
            // SAFETY: as above.
            unsafe { machine.lend(2, second, (BASE + control, length - control), true) }?;
        }
        Ok(())
    }

    /// From now on, a fault is reported into the shared file and ends the process with the status
    /// `128 + signal`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn report_faults(&self) -> io::Result<()> {
        let stack: &'static mut [u8] = vec![0; STACK_BYTES].leak();
        let stack = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
        // SAFETY: the stack is never freed and nothing else uses it.
        check(unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) })?;
        FAULTS
            .into_iter()
            .try_for_each(|signal| self.report(signal))
    }

    /// From now on, whoever sends SIGQUIT learns where the guest was: it ends with a report too.
    /// Only for a guest that is this process, whose registers the kernel hands to the handler.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn report_quit(&self) -> io::Result<()> {
        self.report(libc::SIGQUIT)
    }

    /// Tells the guest that its panic is to be a fault, which leaves a core file.
    pub fn ask_for_panics(&self) {
        let place = std::ptr::with_exposed_provenance_mut::<u64>(BASE as usize + CORE_OFFSET);
        // SAFETY: in the page of the report, as for `leave`, behind it.
        unsafe { place.write_volatile(1) };
    }

    fn report(&self, signal: i32) -> io::Result<()> {
        let action = action();
        // SAFETY: `report` has the signature that SA_SIGINFO asks for and keeps to what may be
        // done in a handler; the page that it writes is mapped, as `self` shows.
        check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })
    }
}

/// Maps these bytes of `file` where the shared file has them.
fn map_part(file: BorrowedFd<'_>, bytes: Range<u64>, rights: ProtFlags) -> io::Result<()> {
    let address = std::ptr::with_exposed_provenance_mut((BASE + bytes.start) as usize);
    let length = (bytes.end - bytes.start) as usize;
    let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
    // SAFETY: NOREPLACE makes the kernel refuse rather than replace anything that exists.
    let mapped = unsafe { mmap(address, length, rights, flags, file, bytes.start) }?;
    if mapped != address {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(())
}

/// Writes a report into the shared file, which is mapped: [`Shared`] was.
pub fn leave(report: Report) {
    let page = std::ptr::with_exposed_provenance_mut::<Report>(BASE as usize);
    // SAFETY: who calls this has mapped `Shared`, which is never unmapped; the page is shared with
    // nothing that this program has a reference to.
    unsafe { page.write_volatile(report) };
}

/// From now on, the handler looks for the guest's callers in `stack`, and writes what is `readable`
/// into `core`.
///
/// # Safety
/// The memory is mapped, readable, and stays so while this program has a say.
pub(super) unsafe fn look_within(
    stack: Range<u64>,
    readable: Vec<Range<u64>>,
    core: Option<CoreFile>,
) {
    STACK[0].store(stack.start, Ordering::Relaxed);
    STACK[1].store(stack.end, Ordering::Relaxed);
    // Nobody has called this before: the guest is entered once.
    let _ = core.map(|core| CORE.set((core, readable)));
}

/// Copies the page at a guest address, if it is among what is readable.
fn copy_page(readable: &[Range<u64>], address: u64, to: &mut Page) -> Option<()> {
    readable.iter().find(|range| range.contains(&address))?;
    let page = std::ptr::with_exposed_provenance::<Page>(address as usize);
    // SAFETY: as in `two_words`, of ranges that `look_within` was told of, which are whole pages.
    *to = unsafe { page.read_volatile() };
    Some(())
}

/// The two words at a guest address, if they lie where the stack can be.
fn two_words(address: u64) -> Option<[u64; 2]> {
    let [start, end] = STACK.each_ref().map(|at| at.load(Ordering::Relaxed));
    let behind = address.checked_add(size_of::<[u64; 2]>() as u64)?;
    if address < start || behind > end {
        return None;
    }
    let words = std::ptr::with_exposed_provenance::<[u64; 2]>(address as usize);
    // SAFETY: (1) the words lie within what `look_within` was told is readable (checked above);
    // `read_unaligned` asks for no alignment; (2) the guest, who alone writes there, is what this
    // handler interrupted. One on the host `process` may have unmapped them: then the kernel ends
    // it here, by SIGSEGV, and the report has no callers.
    Some(unsafe { words.read_unaligned() })
}

/// Whether the guest has left a report of a panic, with its callers. One that only says so ends as
/// if it had panicked, which it may.
fn has_panicked() -> bool {
    let page = std::ptr::with_exposed_provenance::<Report>(BASE as usize);
    // SAFETY: the page is mapped, as in `leave`; any bytes are a `Report`, which is numbers.
    let report = unsafe { page.read_volatile() };
    report.magic == REPORT_MAGIC && report.signal == 0
}

/// Writes into the shared file, which is mapped, how often its guest was left.
pub fn leave_exits(exits: Exits) {
    let place = BASE as usize + EXITS_OFFSET;
    let place = std::ptr::with_exposed_provenance_mut::<Exits>(place);
    // SAFETY: as for `leave`: in the same page, behind the report.
    unsafe { place.write_volatile(exits) };
}

fn action() -> libc::sigaction {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *const libc::ucontext_t) = report;
    // SAFETY: all-zero bytes are a `sigaction`: numbers, an empty set, a null pointer.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    action
}

extern "C" fn report(
    signal: i32,
    information: *const libc::siginfo_t,
    context: *const libc::ucontext_t,
) {
    // SAFETY: the kernel passes a `siginfo_t` of 128 bytes, which begins with these.
    let fault = unsafe { information.cast::<Fault>().read() };
    // SAFETY: the kernel passes the `ucontext_t` of the interrupted guest.
    let saved = unsafe { (*context).uc_mcontext.gregs };
    let mut report = fault.report(signal, &saved);
    let panicked = signal == libc::SIGILL && has_panicked();
    if !panicked {
        // A handler exists only if `Shared` was mapped. There is a report before the guest's memory
        // is looked at, and with what was found there afterwards.
        leave(report);
        let called = signal == libc::SIGSEGV && report.address == report.instruction;
        report.backtrace = Backtrace::walk(&report.registers, called, two_words);
        leave(report);
    }
    let (shown, status) = match panicked {
        true => (libc::SIGABRT, ABORT),
        false => (signal, SIGNAL_BASE + signal),
    };
    if let Some((core, readable)) = CORE.get() {
        let end = readable.last().map_or(0, |last| last.end);
        let copy = |address, page: &mut Page| copy_page(readable, address, page);
        // There is nobody to tell of a file without room.
        let _ = core.write(shown, registers(&saved), end, copy);
    }
    exit_group(status)
}

/// Ends the process without the C library, which would look at thread-local variables.
fn exit_group(status: i32) -> ! {
    // SAFETY: this system call reads no memory and does not return.
    unsafe {
        asm!(
            "syscall",
            "ud2",
            in("rax") libc::SYS_exit_group,
            in("rdi") status,
            options(noreturn)
        )
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
