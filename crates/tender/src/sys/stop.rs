//! Stopping the processor of a guest from another thread, by a signal.
//!
//! The signal is held back in all threads and let through only while the guest runs, by KVM itself
//! (`KVM_SET_SIGNAL_MASK`, Linux `Documentation/virt/kvm/api.rst`, 4.21). So it is never delivered,
//! needs no handler, and none that is sent just before the guest runs is lost.

use rustix::process::Pid;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// One that is ignored where nobody holds it back, and that nothing here causes: whoever sends it
/// from outside changes nothing.
const SIGNAL: i32 = libc::SIGURG;
const KVM_SET_SIGNAL_MASK: libc::Ioctl = 0x4004_ae8b;
/// Bytes of a set of signals, as the kernel counts them.
const SET_BYTES: usize = 8;

/// `struct kvm_signal_mask` with its set: the signals that are held back while the guest runs.
#[repr(C)]
struct Mask {
    bytes: u32,
    set: [u8; SET_BYTES],
}

/// Whose processor is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    process: Pid,
    thread: Pid,
}

impl Stop {
    /// By this, other threads stop `vcpu`, the processor that this thread runs. Threads that begin
    /// from now on hold the signal back too.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(vcpu: BorrowedFd<'_>) -> io::Result<Self> {
        let own = signals();
        let mut former = own;
        // SAFETY: both sets are ours; holding signals back runs no code.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const own, &raw mut former) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: the set is ours.
        unsafe { libc::sigdelset(&raw mut former, SIGNAL) };
        let former: *const libc::sigset_t = &raw const former;
        let mask = Mask {
            bytes: SET_BYTES as u32,
            // SAFETY: the C library's sets begin with the kernel's, and are larger.
            set: unsafe { former.cast::<[u8; SET_BYTES]>().read() },
        };
        // SAFETY: the kernel reads the structure, which says how many bytes its set has.
        let result = unsafe { libc::ioctl(vcpu.as_raw_fd(), KVM_SET_SIGNAL_MASK, &raw const mask) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            process: rustix::process::getpid(),
            thread: rustix::thread::gettid(),
        })
    }

    /// The numbers of process, thread and signal that [`Self::send`] passes to `tgkill`.
    pub fn numbers(self) -> [i32; 3] {
        [self.process.as_raw_pid(), self.thread.as_raw_pid(), SIGNAL]
    }

    /// Interrupts the guest: now if it runs, and before its next instruction if not.
    pub fn send(self) {
        let [process, thread, signal] = self.numbers();
        // SAFETY: the signal is held back by the thread that it is for, and has no handler.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    }

    /// Takes the signal away if this thread has got it, or waits so long for it. Only after that
    /// can the guest run again.
    pub fn take(wait: Duration) {
        let own = signals();
        let wait = libc::timespec {
            tv_sec: wait.as_secs().cast_signed(),
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: set and time are ours; a null pointer stands for no interest in details.
        unsafe { libc::sigtimedwait(&raw const own, null_mut(), &raw const wait) };
    }
}

/// The set of this one signal.
fn signals() -> libc::sigset_t {
    // SAFETY: all-zero bytes are the empty set: an array of bits.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: the set is ours.
    unsafe { libc::sigaddset(&raw mut set, SIGNAL) };
    set
}
