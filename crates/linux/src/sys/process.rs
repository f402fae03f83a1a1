//! A child that goes on as another part of this program: it is there sooner than one that begins
//! with a program of its own, which would have to be loaded and relocated.

use super::signal::{self, Held};
use abi::exit;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

/// The directory with an entry for each thread of this process: proc_pid_task(5).
const THREADS: &str = "/proc/self/task";
/// Links of a directory without entries: its name and its `.`.
const LINKS_MIN: u64 = 2;

/// A child of this process, by [`fork`].
#[derive(Debug)]
pub struct Child(Pid);

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

/// Runs `child` in a child process, which ends with the status that it returns.
fn copy(child: impl FnOnce() -> i32) -> io::Result<Child> {
    if rustix::fs::stat(THREADS)?.st_nlink != LINKS_MIN + 1 {
        return Err(io::Error::other("this process has more than one thread"));
    }
    signal::reset(libc::SIGCHLD);
    // SAFETY: (1) there is no other thread that could hold a lock for ever in the child, so it may
    // do all that this process may; (2) the child leaves this function only by `_exit`, so that
    // nothing of the callers' is used or dropped twice.
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

/// From now on this process has a session of its own, and inherits the children of its own that
/// outlive their parents.
fn stand_apart() -> io::Result<()> {
    let own = rustix::process::setsid()?;
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

/// From now on this process is killed when its parent, process `parent`, ends.
///
/// # Errors
/// `ESRCH` if its parent is another process, or has ended already; what the kernel says.
pub fn die_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the signal was asked for.
    if Pid::as_raw(rustix::process::getppid()) != parent {
        return Err(Errno::SRCH.into());
    }
    Ok(())
}

impl Child {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.as_raw_pid().cast_unsigned()
    }

    /// A descriptor that is ready for reading once it has ended: of this process and no later one
    /// with the same id, since nobody has waited for it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn pidfd(&self) -> io::Result<OwnedFd> {
        Ok(rustix::process::pidfd_open(self.0, PidfdFlags::empty())?)
    }

    /// Passes the signals that are `held` back here on to it until it has ended.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attend(self, held: &Held) -> io::Result<ExitStatus> {
        loop {
            let signal = held.wait()?;
            if signal != Signal::CHILD {
                // The id is the child's until it is waited for, so this reaches no one else; one
                // that has just ended no longer minds.
                let _ = rustix::process::kill_process(self.0, signal);
            } else if let Some((_, status)) =
                rustix::process::waitpid(Some(self.0), WaitOptions::NOHANG)?
            {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }
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

    #[test]
    fn only_the_parent_is_one() {
        let own = rustix::process::getpid().as_raw_pid();
        let error = die_with(own).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::SRCH));
        rustix::process::set_parent_process_death_signal(None).unwrap();
    }
}
