//! Drives a software device that doubles a word of DMA memory each time that its doorbell is rung,
//! and then interrupts. The argument says what is to be shown.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use hw::{DmaRing, Mmio, Register};
use unikernel::{Instant, PciDevice, monotonic, println};

unikernel::entry!(main);

/// Reads what was written.
const SCRATCH: Register = Register::at(0x04);
/// How often the doorbell was rung by message.
const ASKED: Register = Register::at(0x08);
/// The offset in DMA memory of the word to double.
const DOORBELL: Register = Register::at(0x18);
/// Low half of the address of DMA memory, and the high one.
const BASE: [Register; 2] = [Register::at(0x20), Register::at(0x24)];
const WORDS: usize = 256;
const ROUNDS: u64 = 2000;
/// Longer than anything here takes, in nanoseconds.
const PATIENCE: u64 = 10_000_000_000;

fn main() -> i32 {
    let device = match unikernel::pci("doubler") {
        Ok(device) => device,
        Err(error) => {
            println!("FAILURE: {error}");
            return 1;
        }
    };
    let registers = device.bar(0).expect("BAR 0 is in the manifest");
    let done = match unikernel::arguments().next() {
        Some("registers") => read_and_write(&registers),
        Some("double") => double(&device, &registers),
        Some("sleep") => {
            println!("asleep");
            unikernel::wait(None);
            false
        }
        Some("ask") => ask(&registers),
        other => panic!("{other:?}"),
    };
    println!("{}", if done { "SUCCESS" } else { "FAILURE" });
    i32::from(!done)
}

fn read_and_write(registers: &Mmio) -> bool {
    let written = (0..100).all(|round: u32| {
        registers.write(SCRATCH, round.wrapping_mul(0x0101_0101));
        registers.read(SCRATCH) == round.wrapping_mul(0x0101_0101)
    });
    println!("{} bytes", registers.len());
    written && registers.read(Register::at(0x1000)) == u32::MAX
}

/// Words go to the device and come back twice as large; each time an interrupt ends the sleep.
fn double(device: &PciDevice, registers: &Mmio) -> bool {
    let handle = device.wait_handle().expect("it is a bus master");
    let mut arena = unikernel::dma().expect("the manifest asks for DMA memory");
    let words: DmaRing<1, WORDS> = arena.ring().expect("there is enough");
    let (low, high) = words.iova().halves();
    registers.write(BASE[0], low);
    registers.write(BASE[1], high);
    for round in 1..=ROUNDS {
        let place = round as usize % WORDS;
        words.publish(place, 0, round);
        registers.write(DOORBELL, (place * 8) as u32);
        while words.load(place, 0) != 2 * round {
            let late = Some(Instant(monotonic().0 + PATIENCE));
            if !unikernel::wait(late).contains(handle) {
                println!("no interrupt in round {round}: {}", words.load(place, 0));
                return false;
            }
        }
    }
    println!("{} of {ROUNDS} by message", registers.read(ASKED));
    true
}

/// Asks until the device is lost, which then reads all ones.
fn ask(registers: &Mmio) -> bool {
    println!("asking");
    let deadline = monotonic().0 + PATIENCE;
    let mut asked = 0u64;
    while registers.read(SCRATCH) != u32::MAX {
        asked += 1;
        if monotonic().0 > deadline {
            return false;
        }
    }
    registers.write(SCRATCH, 5);
    println!("answered {} times", asked.min(1));
    registers.read(SCRATCH) == u32::MAX
}
