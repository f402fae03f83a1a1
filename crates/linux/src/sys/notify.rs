//! System calls of other processes that this one answers: seccomp_unotify(2).

use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// An instruction of a filter: `struct sock_filter` of Linux's `include/uapi/linux/filter.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions that are skipped if a comparison holds.
    pub if_true: u8,
    /// And if not.
    pub if_false: u8,
    /// Its operand.
    pub operand: u32,
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What tells it from all others.
    pub id: u64,
    /// The thread that makes it, by its number in this process's namespace.
    pub thread: Pid,
    /// Its number: `asm/unistd_64.h`.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What a call is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It returns this.
    Value(i64),
    /// It fails with this error number, which is positive.
    Error(i32),
    /// The kernel does it. The caller may have changed its memory by then.
    Continue,
}

/// A descriptor that a caller is given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// What it refers to.
    pub descriptor: BorrowedFd<'a>,
    /// The number that it is to have, in the place of what has it; the lowest free one if `None`.
    pub number: Option<RawFd>,
    /// Whether it is closed at `execve`.
    pub close_on_exec: bool,
    /// Whether its number is the answer to the call.
    pub answers: bool,
}

/// Has this thread, and whatever it starts, make its system calls through `filter` from now on, and
/// never gain privileges by a program that it starts. Calls for which the filter says so wait until
/// whoever has the descriptor has answered them. While somebody works on an answer, only a signal
/// that kills ends the wait.
///
/// # Errors
/// `EINVAL` if the filter is none; `EBUSY` if calls of this thread are answered already.
pub fn listen(filter: &[Instruction]) -> io::Result<OwnedFd> {
    rustix::thread::set_no_new_privs(true)?;
    let mut instructions: Vec<libc::sock_filter> = filter
        .iter()
        .map(|one| libc::sock_filter {
            code: one.code,
            jt: one.if_true,
            jf: one.if_false,
            k: one.operand,
        })
        .collect();
    let len = u16::try_from(instructions.len());
    let program = libc::sock_fprog {
        len: len.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: instructions.as_mut_ptr(),
    };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mode = libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER);
    let program: *const libc::sock_fprog = &program;
    // SAFETY: the kernel reads one `sock_fprog` and the `len` instructions that it points to, which
    // are those of the vector; both outlive the call, and the kernel keeps a copy of its own.
    let raw = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, program) };
    let raw = check(raw)?;
    // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw as RawFd) })
}

/// The next call that waits for an answer.
///
/// # Errors
/// `ENOENT` if its caller has been killed meanwhile; `EINTR`.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Call> {
    let mut found = libc::seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: libc::seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    };
    let place: *mut libc::seccomp_notif = &mut found;
    // SAFETY: the kernel reads and writes one `seccomp_notif` at the pointer, which comes from a
    // unique reference and is all zero, as it asks.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, place) };
    check(result.into())?;
    let thread = i32::try_from(found.pid).ok().and_then(Pid::from_raw);
    Ok(Call {
        id: found.id,
        // A caller outside of this process's namespace has the number 0.
        thread: thread.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?,
        number: found.data.nr,
        arguments: found.data.args,
    })
}

/// Answers a call.
///
/// # Errors
/// `ENOENT` if it does not wait any more.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Value(value) => (value, 0, 0),
        Answer::Error(number) => (0, -number.abs(), 0),
        Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
    };
    let mut response = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    let response: *mut libc::seccomp_notif_resp = &mut response;
    // SAFETY: the kernel reads one `seccomp_notif_resp` at the pointer, which comes from a unique
    // reference that outlives the call.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            response,
        )
    };
    check(result.into()).map(drop)
}

/// Gives the caller of a call a descriptor; its number there.
///
/// # Errors
/// `ENOENT` if the call does not wait any more; `EMFILE` if the caller has as many as it may.
pub fn give(listener: BorrowedFd<'_>, id: u64, given: Given<'_>) -> io::Result<RawFd> {
    let number = given.number.map(i32::cast_unsigned);
    let mut flags = 0;
    if given.answers {
        flags |= libc::SECCOMP_ADDFD_FLAG_SEND as u32;
    }
    if number.is_some() {
        flags |= libc::SECCOMP_ADDFD_FLAG_SETFD as u32;
    }
    let mut request = libc::seccomp_notif_addfd {
        id,
        flags,
        srcfd: given.descriptor.as_raw_fd().cast_unsigned(),
        newfd: number.unwrap_or(0),
        newfd_flags: match given.close_on_exec {
            true => libc::O_CLOEXEC.cast_unsigned(),
            false => 0,
        },
    };
    let request: *mut libc::seccomp_notif_addfd = &mut request;
    // SAFETY: the kernel reads one `seccomp_notif_addfd` at the pointer, which comes from a unique
    // reference that outlives the call.
    let result = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD,
            request,
        )
    };
    Ok(check(result.into())? as RawFd)
}

/// Whether a call still waits for its answer: whoever made it is the one that made it.
pub fn waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    let id: *const u64 = &id;
    // SAFETY: the kernel reads one number at the pointer, which outlives the call.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, id) };
    result == 0
}

/// Reads another process's memory at this address; how many bytes, fewer where a part of it is not
/// there.
///
/// # Errors
/// `EFAULT` if none of it is there; `EPERM` if this process may not.
pub fn read_memory(thread: Pid, address: u64, place: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: place.as_mut_ptr().cast(),
        iov_len: place.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: place.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to `local`, which is `place`, borrowed
    // mutably. The remote address is another process's: the kernel checks it there.
    let count = unsafe { libc::process_vm_readv(thread.as_raw_pid(), &local, 1, &remote, 1, 0) };
    Ok(check(count as libc::c_long)? as usize)
}

/// Writes another process's memory at this address; how many bytes, fewer where a part of it is not
/// there. Only who waits for an answer may be written, where it has said so.
///
/// # Errors
/// Those of [`read_memory`].
pub fn write_memory(thread: Pid, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // A process that wrote itself would change what it has borrowed.
    if rustix::fs::stat(format!("/proc/self/task/{}", thread.as_raw_pid())).is_ok() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: the kernel reads at most `iov_len` bytes of `local`, which is `bytes`, and does not
    // write them. The remote address is another process's: no thread of this one has that number.
    let count = unsafe { libc::process_vm_writev(thread.as_raw_pid(), &local, 1, &remote, 1, 0) };
    Ok(check(count as libc::c_long)? as usize)
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
