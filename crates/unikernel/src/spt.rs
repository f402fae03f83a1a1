//! The system calls of `spt` and `process`: those that the jail lets through, and no other.

use crate::boot;
use crate::host::{Start, ticks};
use abi::extension::EPOLL_GONE;
use abi::spt::{BootInfo, CONSOLE_FD, syscall};
use alloc::boxed::Box;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use device::Netif;
use ports::{Errno, Handle, Host, Instant, Network, TapPort};

/// Events taken in one call; the timer and more devices than this are reported by the next call.
const EVENTS_MAX: usize = 16;

/// One past the last number of a device that has gone.
const EPOLL_GONE_END: u64 = EPOLL_GONE + 64;

/// What the guest waits on, and the timer in it.
static EPOLL: AtomicI32 = AtomicI32::new(-1);
static TIMER: AtomicI32 = AtomicI32::new(-1);
/// Whether the timer was set and may have gone off. It cannot be read, so it stays ready until it
/// is set again.
static TIMER_SET: AtomicBool = AtomicBool::new(false);

/// Clocks of `clock_gettime`.
#[derive(Clone, Copy)]
enum Clock {
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
/// As [`crate::host::begin`], on `spt` or `process`.
pub(crate) unsafe fn begin(boot_info: u64) -> Start {
    let info = core::ptr::with_exposed_provenance::<BootInfo>(boot_info as usize);
    // SAFETY: the caller vouches for the address.
    let info = unsafe { info.read() };
    EPOLL.store(info.epoll_fd, Ordering::Relaxed);
    TIMER.store(info.timer_fd, Ordering::Relaxed);
    Start {
        memory_end: info.mem_size,
        command_line: info.cmdline,
        manifest: info.mft,
    }
}

/// # Safety
/// The arguments are valid for this call: pointers point to memory that the kernel may use so.
pub(crate) unsafe fn call(number: u64, arguments: [usize; 6]) -> Result<usize, Errno> {
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

/// The hosts `spt` and `process`.
pub(crate) struct Spt;

impl Host for Spt {
    fn handle(&self, _: usize, descriptor: i32) -> Handle {
        Handle(descriptor)
    }

    /// `read(2)`.
    #[inline]
    fn read(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        let (address, count) = (buffer.as_mut_ptr().addr(), buffer.len());
        let arguments = [device.0 as usize, address, count, 0, 0, 0];
        // SAFETY: the buffer is ours to be written for its whole length.
        unsafe { call(syscall::READ, arguments) }
    }

    /// `write(2)`.
    #[inline]
    fn write(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let (address, count) = (bytes.as_ptr().addr(), bytes.len());
        let arguments = [device.0 as usize, address, count, 0, 0, 0];
        // SAFETY: the bytes are ours to be read for their whole length.
        unsafe { call(syscall::WRITE, arguments) }
    }

    /// `sendto(2)`, to whom the socket is connected to.
    fn send(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        let (address, count) = (bytes.as_ptr().addr(), bytes.len());
        let flags = syscall::MSG_NOSIGNAL as usize;
        let arguments = [device.0 as usize, address, count, flags, 0, 0];
        // SAFETY: the bytes are ours to be read for their whole length; there is no address.
        unsafe { call(syscall::SENDTO, arguments) }
    }

    /// `read(2)`.
    fn receive(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.read(device, buffer)
    }

    /// `pread64(2)`.
    fn pread(&self, device: Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let (address, count) = (buffer.as_mut_ptr().addr(), buffer.len());
        let arguments = [device.0 as usize, address, count, offset as usize, 0, 0];
        // SAFETY: the buffer is ours to be written for its whole length.
        unsafe { call(syscall::PREAD64, arguments) }
    }

    /// `pwrite64(2)`.
    fn pwrite(&self, device: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let (address, count) = (bytes.as_ptr().addr(), bytes.len());
        let arguments = [device.0 as usize, address, count, offset as usize, 0, 0];
        // SAFETY: the bytes are ours to be read for their whole length.
        unsafe { call(syscall::PWRITE64, arguments) }
    }

    /// `fdatasync(2)`.
    fn sync(&self, Handle(disk): Handle) -> Result<usize, Errno> {
        // SAFETY: no pointer is passed.
        unsafe { call(syscall::FDATASYNC, [disk as usize, 0, 0, 0, 0, 0]) }
    }

    /// `fallocate(2)`.
    fn discard(&self, Handle(disk): Handle, offset: u64, length: u64) -> Result<usize, Errno> {
        let [at, length] = [offset, length].map(|number| number as usize);
        let arguments = [disk as usize, syscall::DISCARD as usize, at, length, 0, 0];
        // SAFETY: no pointer is passed.
        unsafe { call(syscall::FALLOCATE, arguments) }
    }

    /// `write(2)` to the console.
    fn print(&self, bytes: &[u8]) -> Result<usize, Errno> {
        self.write(Handle(CONSOLE_FD), bytes)
    }

    fn kick(&self) {}

    /// `write(2)` to the event.
    #[inline]
    fn ring(&self, _: usize, bell: i32) {
        // An event that is full has been heard.
        let _ = self.write(Handle(bell), &1u64.to_ne_bytes());
    }

    fn wait(&self, deadline: Option<Instant>, set: Option<Handle>) -> u64 {
        let Handle(set) = set.unwrap_or(Handle(EPOLL.load(Ordering::Relaxed)));
        wait(deadline, set)
    }

    fn monotonic(&self) -> u64 {
        clock(Clock::Monotonic)
    }

    fn wall(&self) -> u64 {
        clock(Clock::Realtime)
    }

    fn ticks(&self) -> u64 {
        ticks()
    }

    /// `exit_group(2)`.
    fn exit(&self, status: i32) -> ! {
        loop {
            // SAFETY: no pointer is passed. It does not return; the loop says so to the compiler.
            let _ = unsafe { call(syscall::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
        }
    }

    fn tap(&'static self, network: Network) -> Box<dyn Netif> {
        Box::new(TapPort::new(self, network))
    }
}

/// `clock_gettime(2)`, in nanoseconds.
fn clock(clock: Clock) -> u64 {
    let mut time = Timespec::default();
    let arguments = [clock as usize, (&raw mut time).addr(), 0, 0, 0, 0];
    // SAFETY: the kernel writes one timespec there. It cannot fail for these clocks.
    let _ = unsafe { call(syscall::CLOCK_GETTIME, arguments) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

/// Sleeps until the deadline, for ever without one, or not at all if it has passed.
fn wait(deadline: Option<Instant>, set: i32) -> u64 {
    let sleep = match deadline {
        None => true,
        Some(Instant::PAST) => false,
        Some(Instant(deadline)) => deadline > clock(Clock::Monotonic),
    };
    match deadline {
        Some(Instant(deadline)) if sleep => set_timer(deadline),
        _ if TIMER_SET.load(Ordering::Relaxed) => set_timer(0),
        _ => {}
    }
    let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS_MAX];
    let filled = epoll_wait(set, &mut events, sleep);
    let mut ready = 0;
    for event in &events[..filled] {
        match event.data {
            number @ 0..64 => ready |= 1 << number,
            number @ EPOLL_GONE..EPOLL_GONE_END => {
                ready |= gone((number - EPOLL_GONE) as usize);
            }
            // The timer, or the shared file has changed.
            _ => {}
        }
    }
    ready
}

/// The process that was the device with this index has gone; the bit of a device that has something
/// for that reason.
#[cold]
fn gone(index: usize) -> u64 {
    boot::runtime().device_gone(index)
}

/// `timerfd_settime(2)`: once at `deadline` nanoseconds of the monotonic clock; 0 disarms it.
fn set_timer(deadline: u64) {
    let value = [
        Timespec::default(),
        Timespec {
            seconds: (deadline / 1_000_000_000) as i64,
            nanoseconds: (deadline % 1_000_000_000) as i64,
        },
    ];
    let timer = TIMER.load(Ordering::Relaxed);
    let address = (&raw const value).addr();
    let arguments = [timer as usize, TIMER_ABSOLUTE, address, 0, 0, 0];
    // SAFETY: the kernel reads one itimerspec there (interval, then value).
    let _ = unsafe { call(syscall::TIMERFD_SETTIME, arguments) };
    TIMER_SET.store(deadline != 0, Ordering::Relaxed);
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
