//! Two PCIe devices of one kind in one image, each by its name: `edu` of QEMU's, twice.

#![no_std]
#![no_main]

use hw::{Mmio, Register};
use unikernel::{Instant, PciDevice, monotonic, println};

unikernel::entry!(main);

const LIVENESS: Register = Register::at(0x04);
const INTERRUPT_RAISE: Register = Register::at(0x60);
const INTERRUPT_ACKNOWLEDGE: Register = Register::at(0x64);
const PATIENCE: u64 = 10_000_000_000;

fn main() -> i32 {
    let devices = ["first", "second"].map(|name| unikernel::pci(name).expect("it is attached"));
    let registers = devices
        .each_ref()
        .map(|device| device.bar(0).expect("it has BAR 0"));
    registers[0].write(LIVENESS, 1);
    registers[1].write(LIVENESS, 2);
    let apart = [0, 1].map(|n| registers[n].read(LIVENESS)) == [!1, !2];
    let awake = (0..2).all(|n| interrupts_alone(&devices, &registers[n], n));
    println!("{}", if apart && awake { "SUCCESS" } else { "FAILURE" });
    i32::from(!(apart && awake))
}

/// Whether an interrupt of device `n` is that device's.
fn interrupts_alone(devices: &[PciDevice; 2], registers: &Mmio, n: usize) -> bool {
    let handle = |n: usize| devices[n].wait_handle().expect("it is a bus master");
    registers.write(INTERRUPT_RAISE, 1);
    let ready = unikernel::wait(Some(Instant(monotonic().0 + PATIENCE)));
    registers.write(INTERRUPT_ACKNOWLEDGE, 1);
    ready.contains(handle(n)) && !ready.contains(handle(1 - n))
}
