//! Examines a network card with its driver, step by step, and says what each step found, a line
//! each. `outboard doctor --card` starts it and reads these lines:
//!
//! ```text
//! register WHEN NAME (0xOFFSET, section SECTION): 0xVALUE
//! step NAME VERDICT SECTION WHAT
//! done VERDICT
//! ```
//!
//! Its argument is how many seconds it listens to the wire.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::string::{String, ToString};
use core::fmt;
use drivers::net::checkup::{self, Patient, Place, Step, Verdict};
use drivers::net::{DRIVERS, Driver};
use hw::Register;
use ports::Instant;
use unikernel::println;

/// How long to listen, without an argument.
const LISTEN_SECONDS: u64 = 5;
const NANOSECONDS: u64 = 1_000_000_000;

unikernel::entry!(main);

fn main() -> i32 {
    match examine() {
        Ok(worst) => {
            println!("done {}", worst.name());
            match worst {
                Verdict::No => abi::exit::FAILURE,
                Verdict::Ok | Verdict::Warn => abi::exit::SUCCESS,
            }
        }
        Err(why) => {
            println!("checkup: {why}");
            abi::exit::FAILURE
        }
    }
}

fn examine() -> Result<Verdict, String> {
    let seconds = match unikernel::arguments().next() {
        None => LISTEN_SECONDS,
        Some(text) => text
            .parse::<u32>()
            .map_err(|_| "the argument is a number of seconds, as in: checkup.spt 5")?
            .into(),
    };
    let device = unikernel::pci("card").map_err(|error| error.to_string())?;
    let bar0 = device.bar(0).ok_or("no registers: set map_bar0")?;
    let mut arena = unikernel::dma().ok_or("no DMA memory: set dma_size")?;
    let request = device.request();
    let is_its =
        |driver: &&Driver| (driver.vendor, driver.device) == (request.vendor, request.device);
    let driver = DRIVERS.iter().find(is_its).ok_or("no driver for it")?;
    let examination = driver.examination.ok_or("there is no checkup of it")?;
    let patient = Patient {
        driver,
        examination,
        bar0,
        arena: &mut arena,
        clock: &clock,
        listen: seconds * NANOSECONDS,
    };
    let mut console = Console {
        handle: device.wait_handle(),
    };
    Ok(checkup::run(patient, &mut console))
}

fn clock() -> u64 {
    unikernel::monotonic().0
}

/// Findings go to the console.
struct Console {
    handle: Option<device::WaitHandle>,
}

impl Place for Console {
    fn now(&self) -> u64 {
        clock()
    }

    fn sleep(&mut self, until: u64) -> bool {
        let ready = unikernel::wait(Some(Instant(until)));
        self.handle.is_some_and(|handle| ready.contains(handle))
    }

    fn interrupts(&self) -> bool {
        self.handle.is_some()
    }

    fn register(&mut self, when: &str, register: Register, value: u32) {
        println!("register {when} {register}: {value:#010x}");
    }

    fn found(&mut self, step: Step, section: &str, verdict: Verdict, what: fmt::Arguments<'_>) {
        let (step, verdict) = (step.name(), verdict.name());
        println!("step {step} {verdict} {section} {what}");
    }
}
