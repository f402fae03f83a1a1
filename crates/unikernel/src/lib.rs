//! The runtime inside an image.
//!
//! An appliance is a `main` function and [`entry!`]; it forbids unsafe code. What it may touch is
//! in its manifest; [`net`] and [`block`] hand each device out once, by name.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! #![forbid(unsafe_code)]
//!
//! unikernel::entry!(main);
//!
//! fn main() {
//!     unikernel::println!("hello, {}", unikernel::arguments().next().unwrap_or("world"));
//! }
//! ```
//!
//! There is one thread, no signal and no interrupt. The host is learnt from the image's own ABI
//! note when it starts ([`host()`]); nothing else knows it. A panic prints message and place and
//! ends the guest with [`abi::exit::ABORT`].
//!
//! | module | what |
//! |---|---|
//! | `entry` | first instruction, stack, boot information |
//! | `host` | what the host does for the guest, whichever it is |
//! | `spt` | the same by system calls, on the hosts `spt` and `process` |
//! | `hvt`, `trap` | the same by hypercalls, and exceptions, in a virtual machine |
//! | `memory`, `heap` | what the compiler expects of a C library; the allocator |
//! | `net`, `ledger`, `block` | ports, what they count, and disks that the host attached |
//! | `ring` | frames and sectors without calls, in a virtual machine |
//! | `pci` | PCIe devices, and the memory that they reach |
//! | `share`, [`rules`] | the file that host and guest share; rules in it |
//! | `capture` | what the host wants to see of the ports' frames |
//! | `clock`, `wait`, `console`, `counters` | the rest of the world |

#![no_std]

extern crate alloc;

mod block;
mod boot;
mod capture;
mod clock;
mod console;
mod counters;
mod entry;
mod heap;
mod host;
mod hvt;
mod ledger;
mod memory;
mod net;
mod panic;
mod pci;
mod ring;
pub mod rules;
mod share;
mod spt;
mod trap;
mod wait;

pub use abi;
pub use abi::capture::Fate;
pub use block::Block;
pub use boot::{
    DeviceError, Host, arguments, command_line, device_count, host, memory_bytes, networks,
    pci_left,
};
pub use clock::{Instant, monotonic, wall};
#[doc(hidden)]
pub use console::print as __print;
pub use console::write_console;
pub use counters::{Counter, counter};
pub use heap::has_room;
pub use net::Port;
#[doc(hidden)]
pub use panic::panic as __panic;
pub use pci::{PciDevice, dma, pci};
pub use wait::{Ready, wait};

/// The network device of this name, once.
///
/// # Errors
/// If the manifest has no such device or it was handed out already.
pub fn net(name: &str) -> Result<Port, DeviceError> {
    boot::take(name).and_then(Port::new)
}

/// The block device of this name, once.
///
/// # Errors
/// If the manifest has no such device or it was handed out already.
pub fn block(name: &str) -> Result<Block, DeviceError> {
    boot::take(name).and_then(Block::new)
}

/// Ends the guest with this exit status.
pub fn exit(status: i32) -> ! {
    boot::if_started(|boot| {
        boot.capture.publish();
        if let Some(rings) = &boot.rings {
            rings.flush();
        }
    });
    host::exit(status)
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
