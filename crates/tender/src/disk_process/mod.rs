//! The process that serves a disk with several requests in flight (`abi::ring::lanes`), on each
//! host.
//!
//! A jail has no asynchronous call, so whoever wants several reads at once needs as many threads.
//! They are in a process of their own, which the tender starts before its own jail closes: a copy
//! of it, without guest memory, which keeps the disk and the memory that it shares with the guest,
//! and nothing else. Each thread takes a request from a lane that no other one serves at the
//! moment, and makes one system call for it, to or from the guest's buffers in place.
//!
//! It ends when the guest ends. If it ends before, the guest's requests fail
//! (`BlockError::Gone`), and the guest goes on.

mod lanes;

use crate::attach::Attached;
use crate::jail::{self, Argument, Error, Rule, Step};
use crate::sys::guest::GuestMemory;
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::ring::Rings;
use abi::ring::lanes::{LANES, TRANSFER_BYTES_MAX};
use abi::spt::syscall::DISCARD;
use lanes::Lanes;
use linux::process::{self, Child};
use linux::signal::Held;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What `ps` shows.
const NAME: &std::ffi::CStr = c"outboard-disk";
/// Stack of a thread; it calls little.
const STACK_BYTES: usize = 64 << 10;
/// How long threads may take to begin.
const START_POLL: Duration = Duration::from_micros(20);
const START_POLLS_MAX: u32 = 250_000;

/// What the process is given.
#[derive(Debug)]
pub struct Served {
    /// The disk.
    pub disk: Attached,
    /// The memory that it shares with the guest.
    pub rings: Rings<'static>,
    /// The buffers there.
    pub memory: GuestMemory,
    /// What wakes its threads up, one at a time.
    pub bell: OwnedFd,
    /// What wakes the guest up.
    pub guest_bell: OwnedFd,
    /// A pipe whose other end the guest alone holds: nothing comes out of it but its end.
    pub guest: OwnedFd,
}

/// The numbers of what it keeps.
#[derive(Clone, Copy, Debug)]
struct Grants {
    disk: RawFd,
    capacity: u64,
    writes: bool,
    knows_more: bool,
    bell: RawFd,
    guest_bell: RawFd,
    guest: RawFd,
    /// What its threads wait at until the jail is closed.
    gate: RawFd,
}

/// Starts the process. It ends when this one does: by the signal that it asked for, or, where the
/// jail of this one lets no signal out, by the end of the pipe.
///
/// # Errors
/// What the kernel says.
pub fn start(served: Served) -> io::Result<Child> {
    let held = Held::new([])?;
    let started = process::fork(NAME, &held, || {
        // Whoever types Ctrl-C means the guest, which takes this process with it.
        let apart = rustix::process::setsid().is_ok();
        // There is nobody to tell why not; the guest learns that it has ended.
        if apart {
            let _ = serve(served);
        }
        abi::exit::FAILURE
    });
    held.release();
    started
}

/// Serves until there is a reason not to.
fn serve(served: Served) -> Result<(), Error> {
    let step = |error| Error::Step(Step::DiskThreads, error);
    let gate = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE);
    let gate: &'static OwnedFd = Box::leak(Box::new(gate.map_err(|errno| step(errno.into()))?));
    let Some(grants) = Grants::of(&served, gate) else {
        return Ok(());
    };
    let filter = jail::compile(&rules(&grants), false)?;
    // Not even the kernel makes the file longer for it.
    let most = Rlimit {
        current: Some(grants.capacity),
        maximum: Some(grants.capacity),
    };
    rustix::process::setrlimit(Resource::Fsize, most).map_err(|errno| step(errno.into()))?;
    let (lanes, guest) = Lanes::new(served, grants.capacity);
    let lanes: &'static Lanes = Box::leak(Box::new(lanes));
    let keep = [
        grants.disk,
        grants.bell,
        grants.guest_bell,
        grants.guest,
        grants.gate,
    ];
    jail::confine(keep.to_vec())?;
    start_threads(lanes, gate).map_err(step)?;
    jail::forbid_calls(&filter)?;
    let threads = LANES as u64;
    let opened = rustix::io::write(gate, &threads.to_ne_bytes());
    opened.map_err(|errno| step(errno.into()))?;
    // Nobody writes there.
    while rustix::io::read(&guest, &mut [0; 8]) == Err(Errno::INTR) {}
    process::end(abi::exit::SUCCESS)
}

impl Grants {
    /// `None` if that is no disk.
    fn of(served: &Served, gate: &OwnedFd) -> Option<Self> {
        let disk = &served.disk;
        let Device::Block { capacity, .. } = disk.device else {
            return None;
        };
        Some(Self {
            disk: disk.fd.as_raw_fd(),
            capacity,
            writes: !disk.is_read_only(),
            knows_more: disk.flags & device_flag::DISK != 0,
            bell: served.bell.as_raw_fd(),
            guest_bell: served.guest_bell.as_raw_fd(),
            guest: served.guest.as_raw_fd(),
            gate: gate.as_raw_fd(),
        })
    }
}

/// Starts as many threads as there are lanes; they run when this returns, and wait at the `gate`.
fn start_threads(lanes: &'static Lanes, gate: &'static OwnedFd) -> io::Result<()> {
    let begun = Arc::new(AtomicUsize::new(0));
    for number in 0..LANES {
        let begins = Arc::clone(&begun);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(move || {
            begins.fetch_add(1, Ordering::Release);
            // Dropping it could free memory, which the jail forbids.
            std::mem::forget(begins);
            while rustix::io::read(gate, &mut [0; 8]) == Err(Errno::INTR) {}
            lanes.serve(number);
            process::end(abi::exit::FAILURE)
        })?;
    }
    for _ in 0..START_POLLS_MAX {
        if begun.load(Ordering::Acquire) == LANES {
            std::mem::forget(begun);
            return Ok(());
        }
        std::thread::sleep(START_POLL);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// All that the process may ask of the kernel.
fn rules(grants: &Grants) -> Vec<Rule> {
    use Argument::{Int, Long, LongAtMost};
    let fd = |fd: RawFd| Int(0, fd.cast_unsigned());
    let rule = |syscall: i64, arguments: &[Argument], reason| Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    };
    let disk = fd(grants.disk);
    let last = grants.capacity.saturating_sub(1);
    let transfer = [disk, LongAtMost(2, TRANSFER_BYTES_MAX), LongAtMost(3, last)];
    let eight = Long(2, size_of::<u64>() as u64);
    let mut rules = vec![
        rule(libc::SYS_pread64, &transfer, "read the disk"),
        rule(libc::SYS_read, &[fd(grants.bell), eight], "sleep"),
        rule(
            libc::SYS_read,
            &[fd(grants.guest), eight],
            "wait for the guest's end",
        ),
        rule(
            libc::SYS_read,
            &[fd(grants.gate), eight],
            "wait for the jail",
        ),
        rule(libc::SYS_write, &[fd(grants.gate), eight], "begin"),
        rule(
            libc::SYS_write,
            &[fd(grants.bell), eight],
            "wake another thread up",
        ),
        rule(
            libc::SYS_write,
            &[fd(grants.guest_bell), eight],
            "wake the guest up",
        ),
        rule(libc::SYS_exit_group, &[], "end"),
    ];
    if grants.writes {
        rules.push(rule(libc::SYS_pwrite64, &transfer, "write the disk"));
    }
    if grants.writes && grants.knows_more {
        let hole = Int(1, DISCARD);
        let range = [
            disk,
            hole,
            LongAtMost(2, last),
            LongAtMost(3, grants.capacity),
        ];
        rules.push(rule(libc::SYS_fdatasync, &[disk], "flush the disk"));
        rules.push(rule(libc::SYS_fallocate, &range, "discard parts of it"));
    }
    rules
}

#[cfg(test)]
mod tests;
