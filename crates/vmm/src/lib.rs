//! A monitor for a stock Linux guest under KVM, to measure and to test with: a kernel, a RAM disk,
//! a serial console and virtio's devices, in a jail as any tender's. Or for one of our images, with
//! the same devices in place of the PCI devices of its manifest.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the command line, as data |
//! | [`layout`] | what lies where in guest-physical addresses |
//! | [`load`] | kernel, RAM disk and command line in guest memory: Linux's boot protocol |
//! | [`acpi`] | which interrupt controllers and devices there are |
//! | [`cpu`] | the processor as Linux finds it: CPUID, MSRs, registers |
//! | [`ports`] | serial console and reset |
//! | [`attach`] | devices opened, and given to KVM |
//! | [`ranges`] | where registers of a device are |
//! | [`bus`] | what a processor finds at the addresses of devices |
//! | [`pci`] | configuration space of PCI devices, as a processor reaches it |
//! | [`mapping`] | what KVM does itself of accesses |
//! | [`window`] | a device behind its registers, and the thread that lets it work |
//! | [`function`] | the same of a PCI device |
//! | [`ioregionfd`] | accesses of registers as messages |
//! | [`counters`] | what is counted of devices |
//! | [`machine`] | all of it put together, and run |
//! | [`hvt`] | the same for one of our images |
//! | [`jail`] | what is left of the kernel once the guest runs |
//! | [`sys`] | the unsafe island |

pub mod acpi;
pub mod attach;
pub mod bus;
pub mod counters;
pub mod cpu;
pub mod function;
pub mod hvt;
pub mod ioregionfd;
pub mod jail;
pub mod layout;
pub mod load;
pub mod machine;
pub mod mapping;
pub mod options;
pub mod pci;
pub mod ports;
pub mod ranges;
pub mod sys;
pub mod window;

use options::Request;
use std::ffi::OsString;
use std::io::Write;

/// Exit status of a start that failed, and of a Linux that did not end by itself.
const FAILURE: i32 = 1;

/// The whole program: its arguments without its name, its exit status. While a guest runs, it does
/// not return.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let result = match options::parse(arguments) {
        Ok(Request::Help) => return say(options::HELP),
        Ok(Request::Start(options)) => machine::run(&options).map_err(|error| error.to_string()),
        Ok(Request::Image(image)) => hvt::run(&image).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(status) => status,
        Err(error) => {
            // Who closed standard error does not want to know.
            let _ = writeln!(std::io::stderr(), "outboard-vmm: {error}");
            FAILURE
        }
    }
}

/// Says something of a device.
pub(crate) fn complain(name: &str, what: &str) {
    // Who closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "outboard-vmm: {name}: {what}");
}

fn say(text: &str) -> i32 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        Err(_) => FAILURE,
    }
}
