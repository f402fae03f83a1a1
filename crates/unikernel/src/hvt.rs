//! The hypercalls of `hvt`: see [`abi::hvt`].

use crate::host::{Start, ticks};
use crate::trap;
use abi::hvt::{Block, BootInfo, CALL_PORT, Halt, Net, Poll, Puts, WallTime, call, result};
use abi::region::BELL_PORT;
use abi::ring::{KICK_PORT, KICK_VALUE};
use alloc::boxed::Box;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use device::Netif;
use ports::{Errno, Handle, Host, Instant, Network, TapPort};

/// Longest wait, in nanoseconds: 146 years.
const WAIT_MAX: u64 = 1 << 62;
/// The host's clock and the time-stamp counter run apart by less than one part in so many.
const DRIFT: u64 = 1000;
/// Waits until one deadline: each but the last ends early by the drift of the one before.
const WAITS_MAX: usize = 8;

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

#[inline]
fn answer(number: i32, length: u64) -> Result<usize, Errno> {
    match number {
        result::OK => Ok(length as usize),
        result::AGAIN => Err(Errno::AGAIN),
        result::INVALID => Err(Errno::INVALID),
        result::UNSUPPORTED => Err(Errno::NOT_SUPPORTED),
        _ => Err(Errno::IO),
    }
}

/// Has the host do with a disk what takes no bytes.
fn ask(number: u16, device: Handle, offset: u64, length: u64) -> Result<(), Errno> {
    let mut block = Block {
        handle: device.0 as u64,
        offset,
        len: length,
        ..Block::default()
    };
    // SAFETY: the argument has no address.
    unsafe { call(number, &mut block) };
    answer(block.ret, 0).map(drop)
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
    answer(net.ret, net.len)
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
    answer(net.ret, bytes.len() as u64)
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
        let mut block = Block {
            handle: device.0 as u64,
            offset,
            data: buffer.as_mut_ptr().expose_provenance() as u64,
            len: buffer.len() as u64,
            ..Block::default()
        };
        // SAFETY: the buffer is ours to be written for its whole length.
        unsafe { call(call::BLOCK_READ, &mut block) };
        answer(block.ret, buffer.len() as u64)
    }

    fn pwrite(&self, device: Handle, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let mut block = Block {
            handle: device.0 as u64,
            offset,
            data: bytes.as_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
            ..Block::default()
        };
        // SAFETY: the bytes are ours to be read for their whole length.
        unsafe { call(call::BLOCK_WRITE, &mut block) };
        answer(block.ret, bytes.len() as u64)
    }

    fn sync(&self, device: Handle) -> Result<(), Errno> {
        ask(call::BLOCK_FLUSH, device, 0, 0)
    }

    fn discard(&self, device: Handle, offset: u64, length: u64) -> Result<(), Errno> {
        ask(call::BLOCK_DISCARD, device, offset, length)
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
            deadline => wait(deadline),
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

/// Sleeps. If that ends a little early, by the drift of the clocks, it sleeps again; if much, the
/// host has something to say.
fn wait(deadline: Option<Instant>) -> u64 {
    let left = || deadline.map_or(WAIT_MAX, |Instant(at)| at.saturating_sub(monotonic()));
    let mut timeout = left().min(WAIT_MAX);
    for _ in 0..WAITS_MAX {
        let ready = poll(timeout);
        let rest = left();
        if ready != 0 || rest == 0 || rest > timeout / DRIFT {
            return ready;
        }
        timeout = rest;
    }
    0
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
