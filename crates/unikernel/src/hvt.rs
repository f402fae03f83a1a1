//! The hypercalls of `hvt`: see [`abi::hvt`].

use crate::host::{Start, ticks};
use crate::trap;
use abi::hvt::{Block, BootInfo, CALL_PORT, Halt, Net, Poll, Puts, WallTime, call};
use abi::region::BELL_PORT;
use abi::ring::{KICK_PORT, KICK_VALUE};
use alloc::boxed::Box;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use device::Netif;
use ports::{Errno, Handle, Host, Instant, Network, TapPort, hypercall};

/// Nanoseconds in a cycle of the time-stamp counter, times 2^32.
static CYCLE: AtomicU64 = AtomicU64::new(0);

/// # Safety
/// As [`crate::host::begin`], on `hvt`.
pub(crate) unsafe fn begin(boot_info: u64) -> Start {
    // SAFETY: this runs once and first, in ring 0 of a machine of our own.
    unsafe { trap::install() };
    let info = core::ptr::with_exposed_provenance::<BootInfo>(boot_info as usize);
    // SAFETY: the caller vouches for the address.
    let info = unsafe { info.read() };
    let cycle = (1_000_000_000 << 32) / u128::from(info.cpu_cycle_freq.max(1));
    CYCLE.store(cycle as u64, Ordering::Relaxed);
    Start {
        memory_end: info.mem_size,
        command_line: info.cmdline,
        manifest: info.mft,
    }
}

/// Makes a call: the host reads and writes the argument, and the memory that it points to.
///
/// # Safety
/// Addresses in the argument are those of memory that the host may use as the call does.
#[inline]
unsafe fn call<T>(number: u16, argument: &mut T) {
    let address = (&raw mut *argument).expose_provenance();
    // SAFETY: the caller vouches for the argument. Memory ends at 4 GiB, so the address fits.
    unsafe {
        asm!("out dx, eax", in("dx") CALL_PORT + number, in("eax") address as u32,
            options(nostack, preserves_flags));
    }
}

/// Has the host do something with so many bytes of a disk.
///
/// # Safety
/// `data` is the address of as many bytes that the host may use as the call does, if it uses any.
unsafe fn block(number: u16, disk: Handle, range: (u64, u64), data: usize) -> Result<usize, Errno> {
    let mut block = Block {
        handle: disk.0 as u64,
        offset: range.0,
        data: data as u64,
        len: range.1,
        ..Block::default()
    };
    // SAFETY: the caller vouches for the bytes.
    unsafe { call(number, &mut block) };
    hypercall::answer(block.ret, range.1)
}

#[inline]
fn take(number: u16, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut net = Net {
        handle: device.0 as u64,
        data: buffer.as_mut_ptr().expose_provenance() as u64,
        len: buffer.len() as u64,
        ..Net::default()
    };
    // SAFETY: the buffer is ours to be written for its whole length.
    unsafe { call(number, &mut net) };
    hypercall::answer(net.ret, net.len)
}

#[inline]
fn give(number: u16, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
    let mut net = Net {
        handle: device.0 as u64,
        data: bytes.as_ptr().expose_provenance() as u64,
        len: bytes.len() as u64,
        ..Net::default()
    };
    // SAFETY: the bytes are ours to be read for their whole length.
    unsafe { call(number, &mut net) };
    hypercall::answer(net.ret, bytes.len() as u64)
}

/// The host `hvt`.
pub(crate) struct Hvt;

impl Host for Hvt {
    fn handle(&self, index: usize, _: i32) -> Handle {
        Handle(index as i32)
    }

    #[inline]
    fn read(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        take(call::NET_READ, device, buffer)
    }

    #[inline]
    fn write(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        give(call::NET_WRITE, device, bytes)
    }

    fn send(&self, device: Handle, bytes: &[u8]) -> Result<usize, Errno> {
        give(call::MESSAGE_SEND, device, bytes)
    }

    fn receive(&self, device: Handle, buffer: &mut [u8]) -> Result<usize, Errno> {
        take(call::MESSAGE_RECEIVE, device, buffer)
    }

    fn pread(&self, device: Handle, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let (range, data) = ((offset, buffer.len() as u64), buffer.as_mut_ptr());
        // SAFETY: the buffer is ours to be written for its whole length.
        unsafe { block(call::BLOCK_READ, device, range, data.expose_provenance()) }
    }

    fn pwrite(&self, device: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let (range, data) = ((offset, bytes.len() as u64), bytes.as_ptr());
        // SAFETY: the bytes are ours to be read for their whole length.
        unsafe { block(call::BLOCK_WRITE, device, range, data.expose_provenance()) }
    }

    fn sync(&self, device: Handle) -> Result<usize, Errno> {
        // SAFETY: the call uses no bytes.
        unsafe { block(call::BLOCK_FLUSH, device, (0, 0), 0) }
    }

    fn discard(&self, device: Handle, offset: u64, length: u64) -> Result<usize, Errno> {
        // SAFETY: the call uses no bytes.
        unsafe { block(call::BLOCK_DISCARD, device, (offset, length), 0) }
    }

    /// The console takes or loses all of it.
    fn print(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut puts = Puts {
            data: bytes.as_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
        };
        // SAFETY: the bytes are ours to be read for their whole length.
        unsafe { call(call::PUTS, &mut puts) };
        Ok(bytes.len())
    }

    #[inline]
    fn kick(&self) {
        // SAFETY: the tender that gave us rings has made this port an event, which touches no
        // memory.
        unsafe {
            asm!("out dx, eax", in("dx") KICK_PORT, in("eax") KICK_VALUE,
                options(nostack, preserves_flags));
        }
    }

    #[inline]
    fn ring(&self, number: usize, _: i32) {
        // SAFETY: the tender that gave us this link has made this port an event for its number,
        // which touches no memory.
        unsafe {
            asm!("out dx, eax", in("dx") BELL_PORT, in("eax") number as u32,
                options(nostack, preserves_flags));
        }
    }

    fn wait(&self, deadline: Option<Instant>, _: Option<Handle>) -> u64 {
        match deadline {
            Some(Instant::PAST) => poll(0),
            deadline => hypercall::wait(deadline, monotonic, poll),
        }
    }

    fn monotonic(&self) -> u64 {
        monotonic()
    }

    fn wall(&self) -> u64 {
        let mut time = WallTime::default();
        // SAFETY: the argument has no address.
        unsafe { call(call::WALL_TIME, &mut time) };
        time.nanoseconds
    }

    fn ticks(&self) -> u64 {
        ticks()
    }

    fn exit(&self, status: i32) -> ! {
        halt(status, 0)
    }

    fn tap(&'static self, network: Network) -> Box<dyn Netif> {
        Box::new(TapPort::new(self, network))
    }
}

/// The time-stamp counter, which the host keeps constant, in nanoseconds.
#[inline]
fn monotonic() -> u64 {
    let cycle = CYCLE.load(Ordering::Relaxed);
    ((u128::from(ticks()) * u128::from(cycle)) >> 32) as u64
}

/// Sleeps until a device has something, but no longer than so many nanoseconds; a bit for each that
/// has, by its index in the manifest.
fn poll(timeout: u64) -> u64 {
    let mut poll = Poll {
        timeout,
        ..Poll::default()
    };
    // SAFETY: the argument has no address.
    unsafe { call(call::POLL, &mut poll) };
    poll.ready
}

/// Ends the guest, with the address of [`abi::hvt::COOKIE_BYTES`] bytes that tell more, or 0.
pub(crate) fn halt(status: i32, cookie: u64) -> ! {
    loop {
        let mut halt = Halt {
            cookie,
            status,
            padding: 0,
        };
        // SAFETY: the host only reads the cookie. It does not return; the loop says so to the
        // compiler.
        unsafe { call(call::HALT, &mut halt) };
    }
}
