//! Writes into the ring of captured frames what cannot be, as its argument says, and goes on.

#![no_std]
#![no_main]

use abi::share::{
    BASE, CAPTURE_OFFSET, CAPTURE_PASSED, CAPTURE_RING_OFFSET, CONTROL_OFFSET, CaptureHead,
    CaptureRecord, Control,
};
use core::time::Duration;
use unikernel::println;

unikernel::entry!(main);

/// How long the monitor may take to want no more captures.
const PATIENCE: Duration = Duration::from_secs(10);
const SIZE: u64 = size_of::<CaptureRecord>() as u64;

fn main() -> i32 {
    let mut record = CaptureRecord {
        time: 1,
        captured: 8,
        length: 8,
        port: 1,
        direction: 0,
        fate: CAPTURE_PASSED,
        generation: 0,
    };
    let mut head = SIZE + 8;
    match unikernel::arguments().next().expect("what to write") {
        "head" => head = u64::MAX,
        "aligned" => head -= 1,
        "short" => head = 8,
        "length" => (record.captured, record.length) = (9, 9),
        "captured" => record.captured = u32::MAX,
        "port" => record.port = 63,
        "direction" => record.direction = 2,
        "fate" => record.fate = 999,
        other => panic!("{other}"),
    }
    let at = |offset: usize| core::ptr::with_exposed_provenance_mut::<u8>(BASE as usize + offset);
    // SAFETY: the tender maps the ring there, for this guest to write.
    unsafe {
        at(CAPTURE_RING_OFFSET)
            .cast::<CaptureRecord>()
            .write_volatile(record)
    };
    // SAFETY: as above.
    unsafe {
        at(CAPTURE_OFFSET)
            .cast::<CaptureHead>()
            .write_volatile(CaptureHead { head, lost: 0 })
    };
    let deadline = unikernel::monotonic() + PATIENCE;
    loop {
        // SAFETY: the tender maps what the host says there, for this guest to read.
        let control = unsafe { at(CONTROL_OFFSET).cast::<Control>().read_volatile() };
        if control.capture_ports == 0 {
            println!("SUCCESS");
            return 0;
        }
        let now = unikernel::monotonic();
        if now > deadline {
            println!("FAILURE: the monitor still wants captures");
            return 1;
        }
        unikernel::wait(Some(now + Duration::from_millis(5)));
    }
}
