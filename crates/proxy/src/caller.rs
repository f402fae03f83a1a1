//! Who has made a call: its memory and its descriptors, which are touched where the call names them
//! and nowhere else.
//!
//! What is read is a copy, which is checked after it was read. A caller that changes its memory
//! meanwhile, or has another thread of it do so, gets an answer to what was read.

use crate::address::{BYTES_MAX, Family, STORAGE_BYTES};
use crate::address::{Named, read, write};
use linux::notify::{self, Answer, Call, Given};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

/// `ERESTARTSYS` of Linux's `include/linux/errno.h`: the kernel makes of it what a call that waits
/// and is interrupted by a signal returns. Programs never see it, as long as a signal is there.
const RESTART: i32 = 512;

/// A call, and where its answer goes.
#[derive(Clone)]
pub struct Caller {
    listener: Rc<OwnedFd>,
    call: Call,
}

impl Caller {
    /// Whoever has made this call.
    pub fn new(listener: Rc<OwnedFd>, call: Call) -> Self {
        Self { listener, call }
    }

    /// The number of the call.
    pub fn number(&self) -> i32 {
        self.call.number
    }

    /// An argument, as it is.
    pub fn argument(&self, index: usize) -> u64 {
        self.call.arguments[index]
    }

    /// An argument that is an `int`: the kernel takes no more of it.
    pub fn int(&self, index: usize) -> i32 {
        self.call.arguments[index] as i32
    }

    /// The thread.
    pub fn thread(&self) -> Pid {
        self.call.thread
    }

    /// Whether it still waits for its answer.
    pub fn waits(&self) -> bool {
        notify::waits(self.descriptor(), self.call.id)
    }

    /// Answers the call. Who does not wait any more needs no answer.
    pub fn answer(&self, answer: Answer) {
        let _ = notify::answer(self.descriptor(), self.call.id, answer);
    }

    /// Answers the call with a value, or with an error number.
    pub fn finish(&self, result: Result<i64, Errno>) {
        self.answer(match result {
            Ok(value) => Answer::Value(value),
            Err(errno) => Answer::Error(errno.raw_os_error()),
        });
    }

    /// Says that a signal came first. Where it is certain that this thread gets it, the kernel
    /// begins the call anew if the signal's handler wants that.
    pub fn interrupt(&self, signal: Pending) {
        self.answer(Answer::Error(match signal {
            Pending::Here => RESTART,
            Pending::Somewhere => Errno::INTR.raw_os_error(),
        }));
    }

    /// Answers the call with a descriptor; its number there, or `None` if nobody waits for it any
    /// more.
    ///
    /// # Errors
    /// `EMFILE` if the caller has as many as it may.
    pub fn give(
        &self,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> Result<Option<i32>, Errno> {
        let given = Given {
            descriptor,
            number: None,
            close_on_exec,
            answers: true,
        };
        match notify::give(self.descriptor(), self.call.id, given).map_err(number) {
            Ok(number) => Ok(Some(number)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A duplicate of a descriptor of the caller's.
    ///
    /// # Errors
    /// `EBADF` if it has none with this number.
    pub fn duplicate(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        duplicate(self.call.thread, descriptor)
    }

    /// Reads as many bytes as `place` has.
    ///
    /// # Errors
    /// `EFAULT` if they are not all there.
    pub fn read(&self, address: u64, place: &mut [u8]) -> Result<(), Errno> {
        if place.is_empty() {
            return Ok(());
        }
        let read = notify::read_memory(self.call.thread, address, place);
        // Its number may be another process's by now, whose memory that was: seccomp_unotify(2).
        match read {
            _ if !self.waits() => Err(Errno::NOENT),
            Ok(count) if count == place.len() => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }

    /// Reads an `int`.
    ///
    /// # Errors
    /// `EFAULT`
    pub fn read_int(&self, address: u64) -> Result<i32, Errno> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Writes all of `bytes`, if the caller still waits.
    ///
    /// # Errors
    /// `EFAULT` if there is no room for them all.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        // Its number may be another process's by now.
        if !self.waits() {
            return Err(Errno::NOENT);
        }
        match notify::write_memory(self.call.thread, address, bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }

    /// The address of so many bytes that the call names.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`, `EAFNOSUPPORT`
    pub fn address(&self, socket: Family, at: u64, len: i32) -> Result<Named, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        if len > STORAGE_BYTES {
            return Err(Errno::INVAL);
        }
        let mut bytes = [0; STORAGE_BYTES];
        self.read(at, &mut bytes[..len])?;
        read(socket, &bytes[..len])
    }

    /// Shows an address at `at`, whose length the caller has at `len_at` and is told there: as much
    /// of it as there is room for (accept(2)).
    ///
    /// # Errors
    /// `EFAULT`, and `EINVAL` if there is less than no room.
    pub fn show(
        &self,
        socket: Family,
        address: SocketAddr,
        at: u64,
        len_at: u64,
    ) -> Result<(), Errno> {
        let room = self.read_int(len_at)?;
        let (bytes, len) = write(socket, address);
        let room = usize::try_from(room).map_err(|_| Errno::INVAL)?;
        self.write(at, &bytes[..len.min(room).min(BYTES_MAX)])?;
        self.write(len_at, &(len as i32).to_ne_bytes())
    }

    /// Whether a signal waits for the thread that it does not hold back: who waits is to be
    /// interrupted then (signal(7)).
    pub fn signal(&self) -> Option<Pending> {
        let path = format!("/proc/{}/status", self.call.thread.as_raw_pid());
        fs::read_to_string(path)
            .ok()
            .and_then(|status| pending(&status))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&*self.listener)
    }
}

/// A signal that waits, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// This thread.
    Here,
    /// Some thread of this process's.
    Somewhere,
}

/// The signal that is pending and not blocked, in the text of proc_pid_status(5).
fn pending(status: &str) -> Option<Pending> {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let digits = line.map(|line| line.trim_start_matches(':').trim());
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok())
    };
    let [thread, process, blocked] = ["SigPnd", "ShdPnd", "SigBlk"].map(set);
    let taken = !blocked.unwrap_or(0);
    let is_alone = status.lines().any(|line| line == "Threads:\t1");
    match (thread.unwrap_or(0) & taken, process.unwrap_or(0) & taken) {
        (0, 0) => None,
        (0, _) if !is_alone => Some(Pending::Somewhere),
        _ => Some(Pending::Here),
    }
}

/// A duplicate of a descriptor of this thread's.
///
/// # Errors
/// `EBADF` if it has none with this number; `ESRCH` if it is gone.
pub fn duplicate(thread: Pid, descriptor: i32) -> Result<OwnedFd, Errno> {
    if descriptor < 0 {
        return Err(Errno::BADF);
    }
    // Before Linux 6.9 only the first thread of a process can be opened.
    let process = match pidfd_open(thread, PidfdFlags::empty()) {
        Err(Errno::INVAL | Errno::NOENT) => {
            pidfd_open(process(thread).ok_or(Errno::SRCH)?, PidfdFlags::empty())?
        }
        opened => opened?,
    };
    pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty())
}

/// The process of a thread.
fn process(thread: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", thread.as_raw_pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Pid::from_raw(line.trim().parse().ok()?)
}

/// The number of an error.
fn number(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_counts_unless_it_is_held_back() {
        let status = |thread: u64, process: u64, blocked: u64| {
            format!(
                "Name:\tx\nThreads:\t1\nSigQ:\t1/2\nSigPnd:\t{thread:016x}\n\
                 ShdPnd:\t{process:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t0\n"
            )
        };
        let here = Some(Pending::Here);
        assert_eq!(pending(&status(0, 0, 0)), None);
        assert_eq!(pending(&status(2, 0, 0)), here);
        assert_eq!(pending(&status(0, 0x4000, 2)), here);
        assert_eq!(pending(&status(2, 0x4000, 0x4002)), None);
        let several = |text: String| text.replace("Threads:\t1\n", "Threads:\t12\n");
        assert_eq!(
            pending(&several(status(0, 0x4000, 2))),
            Some(Pending::Somewhere)
        );
        assert_eq!(pending(&several(status(2, 0x4000, 0))), here);
        assert_eq!(pending(""), None);
    }
}
