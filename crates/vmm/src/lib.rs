//! A monitor for a stock Linux guest under KVM, to measure and to test with: a kernel, a RAM disk
//! and a serial console, in a jail as any tender's.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the command line, as data |
//! | [`layout`] | what lies where in guest-physical addresses |
//! | [`load`] | kernel, RAM disk and command line in guest memory: Linux's boot protocol |
//! | [`mptable`] | which processor and interrupt controllers there are: Intel's MP specification |
//! | [`cpu`] | the processor as Linux finds it: CPUID, MSRs, registers |
//! | [`ports`] | serial console and reset |
//! | [`machine`] | all of it put together, and run |
//! | [`jail`] | what is left of the kernel once the guest runs |
//! | [`sys`] | the unsafe island |

pub mod cpu;
pub mod jail;
pub mod layout;
pub mod load;
pub mod machine;
pub mod mptable;
pub mod options;
pub mod ports;
pub mod sys;

use options::Request;
use std::ffi::OsString;
use std::io::Write;

/// Exit status of a start that failed, and of a guest that did not end by itself.
const FAILURE: i32 = 1;

/// The whole program: its arguments without its name, its exit status. While a guest runs, it does
/// not return.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let result = match options::parse(arguments) {
        Ok(Request::Help) => return say(options::HELP),
        Ok(Request::Start(options)) => machine::run(&options).map_err(|error| error.to_string()),
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

fn say(text: &str) -> i32 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => 0,
        Err(_) => FAILURE,
    }
}
