//! The runtime inside an image.
//!
//! An appliance is a `main` function and [`entry!`]; it forbids unsafe code. What it may touch is
//! in its manifest; [`net`], [`block`] and [`pci`] hand each device out once, by name.
//!
#![doc = include_str!("../guide.md")]
//! # How it works
//!
//! There is one thread, no signal and no interrupt. The host is learnt from the image's own ABI
//! note when it starts ([`host()`]). A panic prints message and place and
//! ends the guest with [`abi::exit::ABORT`].
//!
//! Only what cannot be safe code, and what it is made of, is here. What decides is in `ports`.
//!
//! | module | what, and why it is here |
//! |---|---|
//! | `entry` | first instruction, stack: assembler |
//! | `boot`, `share` | boot information, shared file, rings, links: memory that the tender mapped |
//! | `host` | which host it is: a static that is written once |
//! | `spt` | [`ports::Host`] by system calls, on the hosts `spt` and `process` |
//! | `sockets` | sockets of the host's by system calls, on `process` |
//! | `hvt`, `trap` | [`ports::Host`] by hypercalls, and exceptions, in a virtual machine |
//! | `memory`, `heap` | what the compiler expects of a C library; the allocator |
//! | `pci` | BARs, doorbells and DMA memory: mapped by the tender |
//! | `panic` | the end of a guest that found itself wrong: reads its own stack |
//! | `console` | the macros that print |

#![no_std]

extern crate alloc;

mod boot;
mod console;
mod entry;
mod heap;
mod host;
mod hvt;
mod memory;
mod panic;
mod pci;
mod share;
mod sockets;
mod spt;
mod trap;

pub use abi;
pub use boot::{arguments, command_line, host, memory_bytes, runtime, seed};
#[doc(hidden)]
pub use console::print as __print;
pub use console::write_console;
pub use host::HostKind;
#[doc(hidden)]
pub use panic::panic as __panic;
pub use pci::{PciDevice, dma, pci, pci_left};
pub use ports::{Counter, DeviceError, Instant, Ready, inquiry::Inquiry};

pub use abi::state::Mark;
use alloc::boxed::Box;
use core::time::Duration;
use device::{BlockDevice, Netif};
use hw::DmaArena;
use ports::DiskQueue;
use ports::sockets::{HostSockets, SocketCalls};
use ports::state::State;

/// The host's network of this name, once. Appliances with NIC drivers take `appliance::port`.
///
/// # Errors
/// If the manifest has no such device or it was handed out already.
pub fn net(name: &str) -> Result<Box<dyn Netif>, DeviceError> {
    runtime().network(name)
}

/// The block device of this name, once.
///
/// # Errors
/// If the manifest has no such device or it was handed out already.
pub fn block(name: &str) -> Result<Box<dyn BlockDevice>, DeviceError> {
    runtime().disk(name)
}

/// The block device of this name as a queue that a process of the host's serves, once, and the
/// memory that its buffers lie in; `None` if the manifest asks for none. Appliances take
/// `appliance::queue`.
///
/// # Errors
/// If it was handed out already.
pub fn queue(name: &str) -> Result<Option<(DiskQueue, DmaArena)>, DeviceError> {
    runtime().queue(name)
}

/// The state that is marked, once: memory that outlives the image, as the last one left it. What
/// was left under another layout, a number of the image's choice for what it keeps, is refused.
///
/// # Errors
/// If the manifest has no such state, it was handed out already, or the tender attaches none.
pub fn state(mark: &Mark) -> Result<State, DeviceError> {
    runtime().state(mark)
}

/// The sockets of the host's that have this name, once; `None` if the manifest has none of this
/// name.
///
/// # Errors
/// If they were handed out already, or this host has none.
pub fn sockets(name: &str) -> Result<Option<HostSockets>, DeviceError> {
    let calls: &dyn SocketCalls = &sockets::Sockets;
    let calls = (host() == HostKind::Process).then_some(calls);
    runtime().sockets(name, calls)
}

/// Sleeps until a network device may have something to receive, the host has changed the shared
/// file, or `deadline` has passed, if there is one. A deadline in the past makes it a look without
/// sleep.
#[inline]
pub fn wait(deadline: Option<Instant>) -> Ready {
    runtime().wait(deadline)
}

/// The monotonic clock.
#[inline]
pub fn monotonic() -> Instant {
    Instant(host::host().monotonic())
}

/// The wall clock: time since 1970-01-01 00:00 UTC.
pub fn wall() -> Duration {
    Duration::from_nanos(host::host().wall())
}

/// Ends the guest with this exit status.
pub fn exit(status: i32) -> ! {
    boot::if_started(|boot| boot.runtime.exit(status));
    host::host().exit(status)
}

/// What `main` may return: `()` or an exit status.
pub trait Termination {
    /// The exit status.
    fn status(self) -> i32;
}

impl Termination for () {
    fn status(self) -> i32 {
        abi::exit::SUCCESS
    }
}

impl Termination for i32 {
    fn status(self) -> i32 {
        self
    }
}

/// Makes `$main`, a function without arguments that returns a [`Termination`], the program.
///
/// The panic handler is the image's and not the runtime's, so that host crates can be compiled
/// together with the runtime.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        /// Called by the runtime once stack, heap and devices are there.
        #[unsafe(no_mangle)]
        extern "Rust" fn outboard_main() -> i32 {
            $crate::Termination::status($main())
        }

        #[panic_handler]
        fn outboard_panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::__panic(info)
        }
    };
}
