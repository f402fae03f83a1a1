//! Drives a software device that doubles a word of DMA memory each time that its doorbell is rung,
//! and then interrupts. The argument says what is to be shown.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::WaitHandle;
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
/// How long nothing is to happen, in nanoseconds.
const QUIET: u64 = 50_000_000;
/// Interrupts that come before anybody waits for one.
const UNSEEN: u64 = 5;

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
        Some("idle") => Doubled::new(&device, &registers).idle(),
        Some("busy") => Doubled::new(&device, &registers).busy(),
        Some("masked") => Doubled::new(&device, &registers).masked(),
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

/// Words that go to the device and come back twice as large; each time it interrupts.
struct Doubled<'a> {
    registers: &'a Mmio,
    handle: WaitHandle,
    words: DmaRing<1, WORDS>,
}

impl<'a> Doubled<'a> {
    fn new(device: &PciDevice, registers: &'a Mmio) -> Self {
        let handle = device.wait_handle().expect("it is a bus master");
        let mut arena = unikernel::dma().expect("the manifest asks for DMA memory");
        let words: DmaRing<1, WORDS> = arena.ring().expect("there is enough");
        let (low, high) = words.iova().halves();
        registers.write(BASE[0], low);
        registers.write(BASE[1], high);
        Self {
            registers,
            handle,
            words,
        }
    }

    /// Has the device double the word of this round.
    fn ring(&self, round: u64) {
        let place = round as usize % WORDS;
        self.words.publish(place, 0, round);
        self.registers.write(DOORBELL, (place * 8) as u32);
    }

    fn is_doubled(&self, round: u64) -> bool {
        self.words.load(round as usize % WORDS, 0) == 2 * round
    }

    /// Looks, and does not wait, until the word is doubled and the interrupt behind it was sent:
    /// the device answers a question when it has done what came before.
    fn works_until_doubled(&self, round: u64) -> bool {
        let deadline = monotonic().0 + PATIENCE;
        while !self.is_doubled(round) {
            if monotonic().0 > deadline {
                return false;
            }
        }
        self.registers.read(SCRATCH) == 0
    }

    /// Sleeps for so long at most; whether the device has ended the sleep.
    fn sleeps(&self, longest: u64) -> bool {
        let deadline = Instant(monotonic().0 + longest);
        unikernel::wait(Some(deadline)).contains(self.handle)
    }

    /// Whoever has nothing to do is woken up by each interrupt.
    fn idle(&self) -> bool {
        for round in 1..=ROUNDS {
            self.ring(round);
            while !self.is_doubled(round) {
                if !self.sleeps(PATIENCE) {
                    println!("no interrupt in round {round}");
                    return false;
                }
            }
        }
        true
    }

    /// An interrupt of a device that is not waited for disturbs nobody, and is there at the next
    /// wait: once.
    fn busy(&self) -> bool {
        (1..=UNSEEN).all(|round| {
            self.ring(round);
            self.works_until_doubled(round) && self.sleeps(PATIENCE) && !self.sleeps(QUIET)
        })
    }

    /// From an interrupt on until somebody waits, others add nothing: the wait takes all of them.
    /// What comes behind it is another one.
    fn masked(&self) -> bool {
        let unseen = (1..=UNSEEN).all(|round| {
            self.ring(round);
            self.works_until_doubled(round)
        });
        let once = unseen && self.sleeps(PATIENCE) && !self.sleeps(QUIET);
        self.ring(UNSEEN + 1);
        once && self.sleeps(PATIENCE) && self.is_doubled(UNSEEN + 1) && !self.sleeps(QUIET)
    }
}

/// As often as it takes to see whether each way of asking is the one that is meant.
fn double(device: &PciDevice, registers: &Mmio) -> bool {
    let done = Doubled::new(device, registers).idle();
    println!("{} of {ROUNDS} by message", registers.read(ASKED));
    done
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
