//! A child that goes on as another part of this program: it is there sooner than one that begins
//! with a program of its own, which would have to be loaded and relocated.

use super::signal::{self, Held};
pub use crate::child::{Child, die_with};
use crate::child::{end_with_parent, stand_apart};
use abi::exit;
use rustix::process::Pid;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The directory with an entry for each thread of this process: proc_pid_task(5).
const THREADS: &str = "/proc/self/task";
/// Links of a directory without entries: its name and its `.`.
const LINKS_MIN: u64 = 2;

/// Runs `child` in a child process called `name`, which ends with the status that it returns, or
/// at once when this process ends. The child has copies of all that this process has, open
/// descriptors included, but none of its signal handlers, and of the signals `held` back here it
/// holds back none.
///
/// Nothing of this process's may wait in a buffer to be written: both would write it. SIGCHLD gets
/// its default disposition: a process that ignores it would never learn how a child has ended.
///
/// # Errors
/// This process has more than one thread, or what the kernel says.
pub fn fork(name: &CStr, held: &Held, child: impl FnOnce() -> i32) -> io::Result<Child> {
    let parent = rustix::process::getpid().as_raw_pid();
    copy(|| begin(name, held, || die_with(parent), child))
}

/// The same, but the child outlives this process. It has a session of its own, so that no signal of
/// a terminal's reaches it, and inherits its children's children that outlive their parents.
///
/// # Errors
/// Those of [`fork`].
pub fn fork_apart(name: &CStr, held: &Held, child: impl FnOnce() -> i32) -> io::Result<Child> {
    copy(|| begin(name, held, stand_apart, child))
}

/// The same as [`fork`] for a child that is the first process of a namespace of processes, if this
/// one has made one: it has no number of its parent's. It ends at once when this process ends from
/// then on; whether it has ended already, the child sees by whatever else joins them.
///
/// # Errors
/// Those of [`fork`].
pub fn fork_first(name: &CStr, held: &Held, child: impl FnOnce() -> i32) -> io::Result<Child> {
    copy(|| begin(name, held, end_with_parent, child))
}

/// Runs `child`, which is [`begin`], in a child process that ends with the status it returns.
fn copy(child: impl FnOnce() -> i32) -> io::Result<Child> {
    if rustix::fs::stat(THREADS)?.st_nlink != LINKS_MIN + 1 {
        return Err(io::Error::other("this process has more than one thread"));
    }
    signal::reset(libc::SIGCHLD);
    // SAFETY: (1) there is no other thread that could hold a lock for ever in the child, so it may
    // do all that this process may; (2) the child leaves this function only by `_exit`, for `begin`
    // lets nothing unwind: nothing of the callers' is used or dropped twice.
    let id = unsafe { libc::fork() };
    if id == 0 {
        let status = child();
        // SAFETY: it does not return, and runs no code of this process.
        unsafe { libc::_exit(status) }
    }
    // -1 stands for an error.
    let pid = Pid::from_raw(id.max(0));
    pid.map(Child).ok_or_else(io::Error::last_os_error)
}

/// Ends this process at once: nothing is flushed, freed or closed, which a jail may forbid.
pub fn end(status: i32) -> ! {
    // SAFETY: it does not return, and runs no code of this process.
    unsafe { libc::_exit(status) }
}

/// CPU time of all children that have ended and were waited for, and of theirs.
pub fn children_cpu() -> Duration {
    // SAFETY: all-zero bytes are a `rusage`: numbers alone.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `rusage` to where there is one.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used) };
    let time = |time: libc::timeval| {
        let micros = time.tv_sec.max(0) * 1_000_000 + time.tv_usec;
        Duration::from_micros(micros.cast_unsigned())
    };
    time(used.ru_utime) + time(used.ru_stime)
}

/// The child, from its first instruction on; its exit status.
fn begin(
    name: &CStr,
    held: &Held,
    bond: impl FnOnce() -> io::Result<()>,
    child: impl FnOnce() -> i32,
) -> i32 {
    // Without a parent there is nobody to tell.
    if bond().is_err() || rustix::thread::set_name(name).is_err() {
        return exit::FAILURE;
    }
    signal::reset_handlers();
    held.release();
    // What unwinds has printed its message, and must not go on as the parent.
    catch_unwind(AssertUnwindSafe(child)).unwrap_or(exit::ABORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_several_threads_is_not_forked() {
        // The harness's own thread may be the only one, so here is a second.
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let held = Held::new([]).unwrap();
        let error = fork(c"child", &held, || 0).unwrap_err();
        assert!(error.to_string().contains("thread"), "{error}");
        drop(end);
        thread.join().unwrap().unwrap_err();
    }
}
