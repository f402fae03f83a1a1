//! A driver that writes whatever it likes into the registers and the queues of a virtio device: the
//! device must neither panic nor go on for ever, and work once the driver does.

use hw::sim::{View, arena};
use models::Misbehaviour;
use models::virtio::mmio::BYTES;
use models::virtio::{Mmio, VirtioDevice};
use std::time::Duration;

/// Where the memory lies, and its size.
const IOVA: u64 = 0x1000;
const MEMORY: usize = 128 << 10;
/// Room of each queue, and its descriptors.
const QUEUE: u64 = 0x1000;
const SIZE: u16 = 64;
/// Offsets of the rings in it.
const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x600;
/// What one input does; each step takes some bytes of it.
const STEPS_MAX: usize = 256;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn half(&mut self) -> Option<u16> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*first))
    }

    fn word(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }
}

/// Memory that a device and its driver share, one for all inputs.
pub struct Memory(View);

impl Memory {
    /// Zeros.
    pub fn new() -> Self {
        Self(arena(MEMORY, IOVA).1)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// Does what the input says to a new device, and brings it up again.
pub fn run<D: VirtioDevice>(device: D, memory: &Memory, bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut driver = Driver {
        mmio: Mmio::new(device, &Misbehaviour::default()),
        memory: &memory.0,
        now: 0,
    };
    driver
        .memory
        .write(IOVA, &[0; MEMORY])
        .expect("it is there");
    driver.bring_up(input.word().unwrap_or(0));
    for _ in 0..STEPS_MAX {
        if driver.step(&mut input).is_none() {
            break;
        }
    }
    driver.poll();
    driver.mmio.reset();
    driver.bring_up(0);
    let reports = driver.mmio.violations().reports().iter();
    for report in reports {
        assert!(!report.to_string().contains(char::is_control));
    }
}

struct Driver<'a, D> {
    mmio: Mmio<D>,
    memory: &'a View,
    now: u64,
}

impl<D: VirtioDevice> Driver<'_, D> {
    fn read(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.mmio.read(offset, &mut word);
        u32::from_le_bytes(word)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.mmio.write(offset, &value.to_le_bytes());
    }

    /// As the specification has it, with some of the features that no device is without.
    fn bring_up(&mut self, choice: u32) {
        for status in [0, 1, 3] {
            self.write(0x70, status);
        }
        self.write(0x24, 1);
        self.write(0x20, 1);
        self.write(0x14, 0);
        let offered = self.read(0x10);
        self.write(0x24, 0);
        self.write(0x20, offered & choice);
        self.write(0x70, 11);
        if self.read(0x70) != 11 {
            // These features do not go together: those do that are none.
            return self.bring_up(0);
        }
        let mut number = 0;
        loop {
            self.write(0x30, number);
            if self.read(0x34) == 0 {
                break;
            }
            let at = (IOVA + u64::from(number) * QUEUE) as u32;
            self.write(0x38, SIZE.into());
            self.write(0x80, at);
            self.write(0x90, at + AVAILABLE as u32);
            self.write(0xa0, at + USED as u32);
            self.write(0x44, 1);
            number += 1;
        }
        self.write(0x70, 15);
        assert_eq!(self.read(0x70) & 15, 15, "a driver that behaves comes up");
    }

    fn poll(&mut self) {
        self.now += 1;
        self.mmio.poll(self.memory, Duration::from_millis(self.now));
    }

    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        // What is outside of the memory cannot be written: that is no news.
        match input.byte()? % 8 {
            0 => {
                let (offset, bytes, value) = (input.half()?, input.byte()?, input.word()?);
                let value = u64::from(value).to_le_bytes();
                let bytes = &value[..usize::from(bytes % 8) + 1];
                self.mmio.write(u64::from(offset) % (BYTES + 8), bytes);
            }
            1 => {
                let (offset, bytes) = (input.half()?, input.byte()?);
                let mut value = [0; 8];
                let bytes = &mut value[..usize::from(bytes % 8) + 1];
                self.mmio.read(u64::from(offset) % (BYTES + 8), bytes);
            }
            2 => {
                let (register, value) = (input.byte()?, input.byte()?);
                self.write(u64::from(register & 0x7f) * 4, value.into());
            }
            3 => {
                let (place, value) = (input.word()?, input.word()?);
                let place = IOVA + u64::from(place) % MEMORY as u64;
                _ = self.memory.write(place, &value.to_le_bytes());
            }
            // A descriptor that lies in the memory, mostly.
            4 | 5 => {
                let (queue, index, flags, next) =
                    (input.byte()?, input.byte()?, input.byte()?, input.byte()?);
                let (at, bytes) = (input.half()?, input.half()?);
                let descriptor = u128::from(IOVA + 2 * u64::from(at))
                    | u128::from(bytes) << 64
                    | u128::from(flags & 7) << 96
                    | u128::from(next % 65) << 112;
                let place = self.queue(queue) + 16 * u64::from(index % 64);
                _ = self.memory.write(place, &descriptor.to_le_bytes());
            }
            // A head, and an index.
            6 => {
                let (queue, head) = (input.byte()?, input.byte()?);
                let ring = self.queue(queue) + AVAILABLE;
                let index = self.memory.load16(ring + 2).unwrap_or(0);
                let slot = ring + 4 + 2 * u64::from(index % SIZE);
                _ = self.memory.store16(slot, (head % 65).into());
                _ = self.memory.store16(ring + 2, index.wrapping_add(1));
                self.write(0x50, (queue % 12).into());
            }
            _ => self.poll(),
        }
        Some(())
    }

    fn queue(&self, number: u8) -> u64 {
        IOVA + u64::from(number % 12) * QUEUE
    }
}
