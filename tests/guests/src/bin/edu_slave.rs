//! Tells a device to write to memory that the manifest does not let it reach, since it may not be
//! bus master. The registers are those of QEMU's `edu` (docs/specs/edu.rst).

#![no_std]
#![no_main]

use abi::pci::bar_address;
use hw::{FromDevice, InFlight, Register};
use unikernel::{monotonic, println};

unikernel::entry!(main);

const BYTES: usize = 2048;
const SOURCE: usize = 0x80;
const DESTINATION: usize = 0x88;
const COUNT: usize = 0x90;
const COMMAND: Register = Register::at(0x98);
const START: u32 = 1;
const FROM_DEVICE: u32 = 2;
const DEVICE_MEMORY: u64 = 0x4_0000;
const PATIENCE: u64 = 10_000_000_000;

fn main() -> i32 {
    let device = unikernel::pci("edu").expect("it is attached");
    let registers = device.bar(0).expect("BAR 0 is in the manifest");
    let mut arena = unikernel::dma().expect("the manifest asks for DMA memory");
    let mut to = arena.buf(BYTES, 4096).expect("there is enough");
    to.bytes_mut().fill(0x55);
    let lent = InFlight::<_, FromDevice>::lend(to);
    let (lent, destination) = lent.expect("devices reach it");
    write64(SOURCE, DEVICE_MEMORY);
    write64(DESTINATION, destination.raw());
    write64(COUNT, BYTES as u64);
    registers.write(COMMAND, START | FROM_DEVICE);
    let deadline = monotonic().0 + PATIENCE;
    while registers.read(COMMAND) & START != 0 && monotonic().0 < deadline {}
    let done = registers.shows(COMMAND, START, 0);
    let kept = done.is_some_and(|done| lent.done(&done).bytes().iter().all(|byte| *byte == 0x55));
    let kept = kept && device.wait_handle().is_none();
    println!("{}", if kept { "SUCCESS" } else { "FAILURE" });
    i32::from(!kept)
}

/// These registers take an address in one write alone.
fn write64(offset: usize, value: u64) {
    let address = bar_address(0, 0) as usize + offset;
    let register = core::ptr::with_exposed_provenance_mut::<u64>(address);
    // SAFETY: a register of the device, in BAR 0, which is mapped for ever.
    unsafe { register.write_volatile(value) };
}
