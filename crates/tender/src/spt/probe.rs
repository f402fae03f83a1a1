//! The smallest guest that there can be, by which a machine shows whether it can run any.

use super::close_jail;
use crate::jail::Grants;
use crate::memory::{Gpa, Memory, Region};
use crate::start::{Error, Step, wait_set};
use crate::sys::memory::Filling;
use abi::{IMAGE_BASE, PAGE_SIZE};
use rustix::mm::ProtFlags;
use std::convert::Infallible;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

/// Exit status of the guest; no tender ends with it.
pub const STATUS: i32 = 42;

/// `mov eax, exit_group; mov edi, STATUS; syscall`
const CODE: [u8; 12] = [
    0xb8,
    abi::spt::syscall::EXIT_GROUP as u8,
    0,
    0,
    0,
    0xbf,
    STATUS as u8,
    0,
    0,
    0,
    0x0f,
    0x05,
];
/// Where its memory ends: one page of code, one of stack.
const END: u64 = IMAGE_BASE + 2 * PAGE_SIZE;

/// Turns this process, which has one thread, into a guest without devices that ends with
/// [`STATUS`]; on the host `spt` if `jailed`, else on `process`.
///
/// # Errors
/// The first step towards a guest that this machine refuses.
pub fn enter(jailed: bool) -> Result<Infallible, Error> {
    let system = |step| move |error| Error::System(step, error);
    let mut guest = Filling::claim(END).map_err(|error| Error::Memory(END >> 20, error))?;
    if let Some(place) = guest.bytes(Gpa::new(IMAGE_BASE), CODE.len() as u64) {
        place.copy_from_slice(&CODE);
    }
    let code = Region {
        addresses: IMAGE_BASE..IMAGE_BASE + PAGE_SIZE,
        rights: ProtFlags::READ | ProtFlags::EXEC,
        file_offset: None,
    };
    // No region is mapped from a file, but there has to be one.
    let none = File::open("/dev/null").map_err(system(Step::Null))?;
    let ready = guest.finish(&[code], &none);
    let ready = ready.map_err(system(Step::Protect))?;
    let (epoll, timer) = wait_set(&[])?;
    if jailed {
        let grants = Grants {
            epoll_fd: epoll.as_raw_fd(),
            quiet_fd: None,
            timer_fd: timer.as_raw_fd(),
            event_fd: None,
            held: Vec::new(),
            sockets: Vec::new(),
            bells: Vec::new(),
            devices: Vec::new(),
            core_file: None,
        };
        // Freeing it may be a forbidden system call by then.
        close_jail(&ManuallyDrop::new(grants), false)?;
    }
    ready.enter(IMAGE_BASE, 0, None)
}

/// The ABI level of the kernel's Landlock: landlock_create_ruleset(2).
///
/// # Errors
/// `ENOSYS` if the kernel has none, `EOPNOTSUPP` if it was not switched on at boot.
pub fn landlock() -> std::io::Result<u32> {
    crate::sys::landlock::abi()
}
