//! The system calls of `spt` and `process`: those that the jail lets through, and no other.

use abi::spt::syscall;
use core::arch::asm;

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const IO: Self = Self(5);
    pub(crate) const AGAIN: Self = Self(11);
    pub(crate) const NO_MEMORY: Self = Self(12);
    /// The descriptor is in a bad state: the tap behind it is gone.
    pub(crate) const BAD_STATE: Self = Self(77);
    pub(crate) const NO_BUFFERS: Self = Self(105);
    pub(crate) const INTERRUPTED: Self = Self(4);
}

/// Clocks of `clock_gettime`.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    Realtime = 0,
    Monotonic = 1,
}

#[repr(C)]
#[derive(Default)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// `struct epoll_event` on x86-64.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub(crate) struct EpollEvent {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

const TIMER_ABSOLUTE: usize = 1;

/// # Safety
/// The arguments are valid for this call: pointers point to memory that the kernel may use so.
unsafe fn call(number: u64, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers rcx and r11 alone, and
    // uses no stack of ours.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    if result < 0 {
        return Err(Errno(-result as i32));
    }
    Ok(result as usize)
}

/// `read(2)`.
#[inline]
pub(crate) fn read(fd: i32, buffer: &mut [u8]) -> Result<usize, Errno> {
    let arguments = [
        fd as usize,
        buffer.as_mut_ptr().addr(),
        buffer.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the buffer is ours to be written for its whole length.
    unsafe { call(syscall::READ, arguments) }
}

/// `write(2)`.
#[inline]
pub(crate) fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    let arguments = [fd as usize, bytes.as_ptr().addr(), bytes.len(), 0, 0, 0];
    // SAFETY: the bytes are ours to be read for their whole length.
    unsafe { call(syscall::WRITE, arguments) }
}

/// `pread64(2)`.
pub(crate) fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let (address, count) = (buffer.as_mut_ptr().addr(), buffer.len());
    let arguments = [fd as usize, address, count, offset as usize, 0, 0];
    // SAFETY: the buffer is ours to be written for its whole length.
    unsafe { call(syscall::PREAD64, arguments) }
}

/// `pwrite64(2)`.
pub(crate) fn pwrite(fd: i32, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
    let (address, count) = (bytes.as_ptr().addr(), bytes.len());
    let arguments = [fd as usize, address, count, offset as usize, 0, 0];
    // SAFETY: the bytes are ours to be read for their whole length.
    unsafe { call(syscall::PWRITE64, arguments) }
}

/// `clock_gettime(2)`, in nanoseconds.
pub(crate) fn clock(clock: Clock) -> u64 {
    let mut time = Timespec::default();
    let arguments = [clock as usize, (&raw mut time).addr(), 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec there. It cannot fail for these clocks.
    let _ = unsafe { call(syscall::CLOCK_GETTIME, arguments) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// The CPU's timestamp counter: no system call, and no known unit.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and no tender takes it away.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Sets the timer to go off once at `deadline` nanoseconds of the monotonic clock; 0 disarms it.
pub(crate) fn set_timer(timer: i32, deadline: u64) {
    let value = [
        Timespec::default(),
        Timespec {
            seconds: (deadline / 1_000_000_000) as i64,
            nanoseconds: (deadline % 1_000_000_000) as i64,
        },
    ];
    let address = (&raw const value).addr();
    let arguments = [timer as usize, TIMER_ABSOLUTE, address, 0, 0, 0];
    // SAFETY: the kernel reads one itimerspec there (interval, then value).
    let _ = unsafe { call(syscall::TIMERFD_SETTIME, arguments) };
}

/// `epoll_pwait(2)`: waits for ever, or not at all. Returns how many of `events` were filled.
pub(crate) fn epoll_wait(epoll: i32, events: &mut [EpollEvent], for_ever: bool) -> usize {
    let timeout = if for_ever { -1i32 } else { 0 };
    let (address, count) = (events.as_mut_ptr().addr(), events.len());
    let arguments = [epoll as usize, address, count, timeout as usize, 0, 0];
    // SAFETY: the kernel writes at most `count` events there.
    let filled = unsafe { call(syscall::EPOLL_PWAIT, arguments) };
    filled.unwrap_or(0).min(count)
}

/// `exit_group(2)`.
pub(crate) fn exit(status: i32) -> ! {
    loop {
        // SAFETY: no pointer is passed. It does not return; the loop says so to the compiler.
        let _ = unsafe { call(syscall::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
    }
}
