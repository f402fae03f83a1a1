//! A driver for tests, which keeps to the rules, and can be told not to.

use super::device::VirtioDevice;
use super::pci::Pci;
use crate::device::{Device, Progress};
use crate::misbehaviour::Misbehaviour;
use hw::sim::{View, arena};
use std::time::Duration;

/// Memory of a test.
pub(crate) const IOVA: u64 = 0x10_0000;
pub(crate) const BYTES: usize = 4 << 20;
/// Where buffers lie; queues lie before.
const BUFFERS: u64 = IOVA + (1 << 20);
/// Room for one queue.
const QUEUE: u64 = 0x1_0000;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A buffer of the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) iova: u64,
    pub(crate) bytes: u32,
    pub(crate) writable: bool,
}

/// The driver's side of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    pub(crate) at: u64,
    pub(crate) size: u16,
    pub(crate) available: u16,
    pub(crate) used: u16,
    pub(crate) next: u16,
}

impl Ring {
    pub(crate) fn new(number: u16, size: u16) -> Self {
        Self {
            at: IOVA + u64::from(number) * QUEUE,
            size,
            available: 0,
            used: 0,
            next: 0,
        }
    }

    pub(crate) fn driver_area(&self) -> u64 {
        self.at + 16 * u64::from(self.size)
    }

    pub(crate) fn device_area(&self) -> u64 {
        (self.driver_area() + 6 + 2 * u64::from(self.size)).next_multiple_of(4)
    }

    pub(crate) fn describe(
        &self,
        memory: &View,
        index: u16,
        buffer: Buffer,
        flags: u16,
        next: u16,
    ) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&buffer.iova.to_le_bytes());
        bytes[8..12].copy_from_slice(&buffer.bytes.to_le_bytes());
        let flags = flags | if buffer.writable { WRITE } else { 0 };
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        memory
            .write(self.at + 16 * u64::from(index), &bytes)
            .unwrap();
    }

    /// Makes a head available.
    pub(crate) fn offer_head(&mut self, memory: &View, head: u16) {
        let slot = u64::from(self.available % self.size);
        memory
            .store16(self.driver_area() + 4 + 2 * slot, head)
            .unwrap();
        self.available = self.available.wrapping_add(1);
        memory
            .store16(self.driver_area() + 2, self.available)
            .unwrap();
    }

    /// Makes a chain available: its head.
    pub(crate) fn offer(&mut self, memory: &View, buffers: &[Buffer]) -> u16 {
        let head = self.next;
        for (number, buffer) in buffers.iter().enumerate() {
            let index = self.next;
            self.next = (self.next + 1) % self.size;
            let more = number + 1 < buffers.len();
            self.describe(
                memory,
                index,
                *buffer,
                if more { NEXT } else { 0 },
                self.next,
            );
        }
        self.offer_head(memory, head);
        head
    }

    /// The next chain that is used: its head and the bytes that were written.
    pub(crate) fn take_used(&mut self, memory: &View) -> Option<(u32, u32)> {
        if memory.load16(self.device_area() + 2).unwrap() == self.used {
            return None;
        }
        let slot = u64::from(self.used % self.size);
        let mut bytes = [0; 8];
        memory
            .read(self.device_area() + 4 + 8 * slot, &mut bytes)
            .unwrap();
        self.used = self.used.wrapping_add(1);
        let word = u64::from_le_bytes(bytes);
        Some((word as u32, (word >> 32) as u32))
    }
}

/// A device behind PCI, and its driver.
pub(crate) struct Driver<D> {
    pub(crate) pci: Pci<D>,
    pub(crate) memory: View,
    pub(crate) rings: Vec<Ring>,
    free: u64,
}

impl<D: VirtioDevice> Driver<D> {
    /// A device that nobody has touched.
    pub(crate) fn new(device: D, misbehave: &str) -> Self {
        let misbehaviour: Misbehaviour = misbehave.parse().unwrap();
        let mut pci = Pci::new(device, &misbehaviour);
        pci.reset();
        Self {
            pci,
            memory: arena(BYTES, IOVA).1,
            rings: Vec::new(),
            free: BUFFERS,
        }
    }

    /// A device that is driven, with these features.
    pub(crate) fn up(device: D, features: u64) -> Self {
        let mut driver = Self::new(device, "");
        driver.bring_up(features, 64);
        driver
    }

    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> u32 {
        let mut word = [0; 4];
        self.pci.read(0, offset, &mut word[..bytes]);
        u32::from_le_bytes(word)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: usize, value: u32) {
        self.pci.write(0, offset, &value.to_le_bytes()[..bytes]);
    }

    pub(crate) fn status(&mut self) -> u32 {
        self.read(0x14, 1)
    }

    /// Accepts these features and VERSION_1.
    pub(crate) fn negotiate(&mut self, features: u64) -> u32 {
        self.write(0x14, 1, 0);
        for status in [1, 3] {
            self.write(0x14, 1, status);
        }
        let features = features | 1 << 32;
        for (select, value) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.write(0x08, 4, select);
            self.write(0x0c, 4, value);
        }
        self.write(0x14, 1, 11);
        self.status()
    }

    /// Sets a queue up.
    pub(crate) fn set_up(&mut self, number: u16, size: u16) {
        let ring = Ring::new(number, size);
        self.write(0x16, 2, number.into());
        self.write(0x18, 2, size.into());
        self.write(0x1a, 2, u32::from(number) + 1);
        for (at, address) in [
            (0x20, ring.at),
            (0x28, ring.driver_area()),
            (0x30, ring.device_area()),
        ] {
            self.write(at, 4, address as u32);
            self.write(at + 4, 4, (address >> 32) as u32);
        }
        let len = ring.device_area() + 6 + 8 * u64::from(size) - ring.at;
        self.memory.write(ring.at, &vec![0; len as usize]).unwrap();
        self.write(0x1c, 2, 1);
        match self.rings.get_mut(usize::from(number)) {
            Some(place) => *place = ring,
            None => self.rings.push(ring),
        }
    }

    /// Does all that comes before the first buffer (3.1.1).
    pub(crate) fn bring_up(&mut self, features: u64, size: u16) {
        assert_eq!(self.negotiate(features), 11);
        self.write(0x10, 2, 0);
        self.rings.clear();
        for number in 0..self.read(0x12, 2) as u16 {
            self.write(0x16, 2, number.into());
            let size = size.min(self.read(0x18, 2) as u16);
            self.set_up(number, size);
        }
        self.write(0x14, 1, 15);
        assert_eq!(self.status(), 15);
        self.assert_good();
    }

    /// The same, whatever was reported before.
    pub(crate) fn bring_up_again(&mut self) {
        assert_eq!(self.negotiate(0), 11);
        self.rings.clear();
        self.set_up(0, 64);
        self.write(0x14, 1, 15);
        let buffer = self.buffer(1, false);
        self.offer(0, &[buffer]);
        self.poll();
        assert!(self.used(0).is_some());
    }

    /// Memory for a buffer.
    pub(crate) fn buffer(&mut self, bytes: usize, writable: bool) -> Buffer {
        let iova = self.free;
        self.free += bytes as u64;
        assert!(self.free <= IOVA + BYTES as u64);
        Buffer {
            iova,
            bytes: bytes as u32,
            writable,
        }
    }

    /// A buffer that has these bytes.
    pub(crate) fn filled(&mut self, bytes: &[u8]) -> Buffer {
        let buffer = self.buffer(bytes.len(), false);
        self.memory.write(buffer.iova, bytes).unwrap();
        buffer
    }

    pub(crate) fn offer(&mut self, queue: usize, buffers: &[Buffer]) -> u16 {
        let head = self.rings[queue].offer(&self.memory, buffers);
        self.notify(queue as u16);
        head
    }

    pub(crate) fn used(&mut self, queue: usize) -> Option<(u32, u32)> {
        self.rings[queue].take_used(&self.memory)
    }

    /// What lies in a buffer.
    pub(crate) fn bytes(&self, buffer: Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.bytes as usize];
        self.memory.read(buffer.iova, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn notify(&mut self, queue: u16) {
        self.write(0x3000 + 4 * u64::from(queue), 2, queue.into());
    }

    pub(crate) fn poll(&mut self) -> Progress {
        self.pci.poll(&self.memory, Duration::ZERO)
    }

    /// What the device reports.
    pub(crate) fn reports(&self) -> Vec<String> {
        let reports = self.pci.violations().reports().iter();
        reports.map(|report| report.violation.to_string()).collect()
    }

    pub(crate) fn assert_good(&self) {
        assert_eq!(self.reports(), Vec::<String>::new());
    }

    /// The device reports this, once its driver did it.
    pub(crate) fn assert_report(&self, part: &str) {
        let reports = self.reports();
        assert!(
            reports.iter().any(|report| report.contains(part)),
            "{part}: {reports:?}"
        );
    }
}
