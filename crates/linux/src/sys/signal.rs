//! What is done about signals: the dispositions that a parent left, and signals that wait.

use rustix::process::Signal;
use std::io;
use std::mem::zeroed;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

/// Signals are numbered from 1 to this one, those without a name included (signal(7)).
const SIGNAL_MAX: i32 = 64;

/// Gives SIGPIPE its default disposition: a guest whose console is a closed pipe ends by it.
pub fn reset_pipe() {
    reset(libc::SIGPIPE);
}

/// Whether whoever started this program told it to ignore `signal`, as `nohup` and the shell's `&`
/// do.
pub fn is_ignored(signal: Signal) -> bool {
    disposition(signal.as_raw()) == libc::SIG_IGN
}

/// Gives every signal that has a handler its default disposition.
pub(crate) fn reset_handlers() {
    for signal in 1..=SIGNAL_MAX {
        if ![libc::SIG_DFL, libc::SIG_IGN].contains(&disposition(signal)) {
            reset(signal);
        }
    }
}

/// Gives `signal` its default disposition.
pub(crate) fn reset(signal: i32) {
    // SAFETY: SIG_DFL is no handler of ours, so no code can run in an unexpected place.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// The handler of `signal`, `SIG_DFL` or `SIG_IGN`; `SIG_DFL` also for the C library's own signals.
fn disposition(signal: i32) -> libc::sighandler_t {
    // SAFETY: all-zero bytes are a `sigaction`: numbers, an empty set, a null pointer.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: without a new action this only writes to `action`, if it writes at all.
    unsafe { libc::sigaction(signal, null(), &raw mut action) };
    action.sa_sigaction
}

/// Signals that are held back until they are waited for, so that none is lost and none interrupts
/// anything. They stay so for the rest of this thread's life.
#[derive(Debug)]
pub struct Held {
    set: libc::sigset_t,
    /// What was held back before.
    former: libc::sigset_t,
}

impl Held {
    /// Holds back `signals`, and SIGCHLD, which tells of a child's end. A process that should not
    /// miss any has one thread.
    ///
    /// # Errors
    /// What the C library says.
    pub fn new(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        // SAFETY: all-zero bytes are the empty set: an array of bits.
        let mut set: libc::sigset_t = unsafe { zeroed() };
        for signal in signals.into_iter().chain([Signal::CHILD]) {
            // SAFETY: `set` is a set, and ours.
            unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
        }
        let mut former = set;
        // SAFETY: both sets are ours; holding signals back runs no code.
        let error =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut former) };
        match error {
            0 => Ok(Self { set, former }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Takes the next of them, or sleeps until there is one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&self) -> io::Result<Signal> {
        Ok(self.wait_sent()?.0)
    }

    /// A descriptor that is ready for reading while one of them waits; [`Self::take`] takes it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the set is ours; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.set, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, for nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Takes the next of them, or sleeps until there is one; and whether the kernel has sent it by
    /// itself, as it sends a terminal's to all processes of a group.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait_sent(&self) -> io::Result<(Signal, bool)> {
        loop {
            // SAFETY: all-zero bytes are a `siginfo_t`: numbers.
            let mut info: libc::siginfo_t = unsafe { zeroed() };
            // SAFETY: set and details are ours.
            let signal = unsafe { libc::sigwaitinfo(&raw const self.set, &raw mut info) };
            match Signal::from_named_raw(signal) {
                Some(signal) => return Ok((signal, info.si_code == libc::SI_KERNEL)),
                None => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The same if one waits.
    pub fn take_sent(&self) -> Option<(Signal, bool)> {
        // SAFETY: all-zero bytes are a time: none.
        let none: libc::timespec = unsafe { zeroed() };
        // SAFETY: all-zero bytes are a `siginfo_t`: numbers.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let (set, details) = (&raw const self.set, &raw mut info);
        // SAFETY: set, details and time are ours.
        let signal = unsafe { libc::sigtimedwait(set, details, &raw const none) };
        Some((
            Signal::from_named_raw(signal)?,
            info.si_code == libc::SI_KERNEL,
        ))
    }

    /// Takes the next of them, if one waits.
    pub fn take(&self) -> Option<Signal> {
        Some(self.take_sent()?.0)
    }

    /// Lets those signals through that went through before.
    pub fn release(&self) {
        // SAFETY: the set is ours. What may run now are the handlers that are installed, as before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.former, null_mut()) };
    }
}
