//! A device in the process of its driver: in the same thread, or in one of its own.

use crate::device::{Device, Progress};
use crate::dma::Dma;
use hw::{Mmio, Registers};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A device in the driver's thread. It acts when it is told to, and then only.
#[derive(Debug)]
pub struct Local<D> {
    device: RefCell<D>,
    bytes: usize,
}

impl<D: Device + 'static> Local<D> {
    /// Takes a device in.
    pub fn new(device: D) -> Rc<Self> {
        Rc::new(Self {
            bytes: bar_bytes(&device),
            device: RefCell::new(device),
        })
    }

    /// Its first BAR, for a driver.
    pub fn mmio(self: &Rc<Self>) -> Mmio {
        Mmio::asked(self.clone())
    }

    /// The device itself.
    ///
    /// # Panics
    /// While somebody else has it.
    pub fn device(&self) -> RefMut<'_, D> {
        self.device.borrow_mut()
    }

    /// Lets the device act.
    pub fn poll(&self, dma: &dyn Dma, now: Duration) -> Progress {
        self.device().poll(dma, now)
    }
}

impl<D: Device> Registers for Local<D> {
    fn len(&self) -> usize {
        self.bytes
    }

    fn read32(&self, offset: usize) -> u32 {
        read32(&mut *self.device.borrow_mut(), offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        let mut device = self.device.borrow_mut();
        device.write(0, offset as u64, &value.to_le_bytes());
    }

    fn read_narrow(&self, offset: usize, bytes: usize) -> u32 {
        read(&mut *self.device.borrow_mut(), offset, bytes)
    }

    fn write_narrow(&self, offset: usize, bytes: usize, value: u32) {
        let mut device = self.device.borrow_mut();
        device.write(0, offset as u64, low(&value.to_le_bytes(), bytes));
    }
}

/// A device in a thread of its own.
///
/// Doorbells lie in shared memory, where the device sees them when it looks: it sees the last of
/// several writes, and can check that one alone. All other registers are asked for under a lock,
/// one by one and in order, after the doorbells that were rung before.
#[derive(Debug)]
pub struct Threaded<D> {
    shared: Arc<Shared<D>>,
    bytes: usize,
}

#[derive(Debug)]
struct Shared<D> {
    device: Mutex<D>,
    /// Drivers that want the device: its thread makes room for them.
    waiting: AtomicU32,
    doorbells: Vec<Doorbell>,
    stop: AtomicBool,
}

#[derive(Debug)]
#[repr(align(128))]
struct Doorbell {
    offset: usize,
    value: AtomicU32,
    /// What the device was told last.
    told: AtomicU32,
}

impl<D> Clone for Threaded<D> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            bytes: self.bytes,
        }
    }
}

impl<D: Device> Threaded<D> {
    /// Takes a device in.
    pub fn new(device: D) -> Self {
        let bytes = bar_bytes(&device);
        let doorbell = |offset: &usize| Doorbell {
            offset: *offset,
            value: AtomicU32::new(0),
            told: AtomicU32::new(0),
        };
        let shared = Shared {
            doorbells: device.doorbells().iter().map(doorbell).collect(),
            device: Mutex::new(device),
            waiting: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            bytes,
        }
    }

    /// Its first BAR, for a driver.
    pub fn mmio(&self) -> Mmio
    where
        D: 'static,
    {
        Mmio::asked(Rc::new(self.clone()))
    }

    /// The device itself; its thread waits meanwhile.
    pub fn device(&self) -> MutexGuard<'_, D> {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        let device = lock(&self.shared.device);
        self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
        device
    }

    /// The device's thread: lets it act until [`stop`](Self::stop) is called. `interrupt` is told
    /// the vectors that are raised.
    pub fn run(&self, dma: &dyn Dma, mut interrupt: impl FnMut(u64)) {
        let start = Instant::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            while self.shared.waiting.load(Ordering::Acquire) > 0 {
                std::thread::yield_now();
            }
            let mut device = lock(&self.shared.device);
            self.tell_doorbells(&mut *device);
            let progress = device.poll(dma, start.elapsed());
            let raised = device.take_interrupts();
            drop(device);
            if raised != 0 {
                interrupt(raised);
            }
            if progress.is_idle() {
                std::hint::spin_loop();
            }
        }
    }

    /// Ends [`run`](Self::run).
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    fn tell_doorbells(&self, device: &mut D) {
        for doorbell in &self.shared.doorbells {
            let value = doorbell.value.load(Ordering::Acquire);
            if doorbell.told.swap(value, Ordering::Relaxed) != value {
                device.write(0, doorbell.offset as u64, &value.to_le_bytes());
            }
        }
    }

    /// Writes a register that is no doorbell.
    fn write(&self, offset: usize, bytes: &[u8]) {
        let mut device = self.device();
        self.tell_doorbells(&mut *device);
        device.write(0, offset as u64, bytes);
        // A reset changes doorbells too: they are read anew.
        for doorbell in &self.shared.doorbells {
            let is = read32(&mut *device, doorbell.offset);
            doorbell.value.store(is, Ordering::Relaxed);
            doorbell.told.store(is, Ordering::Relaxed);
        }
    }

    fn doorbell(&self, offset: usize) -> Option<&Doorbell> {
        self.shared
            .doorbells
            .iter()
            .find(|doorbell| doorbell.offset == offset)
    }
}

impl<D: Device> Registers for Threaded<D> {
    fn len(&self) -> usize {
        self.bytes
    }

    fn read32(&self, offset: usize) -> u32 {
        let mut device = self.device();
        self.tell_doorbells(&mut *device);
        read32(&mut *device, offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        if let Some(doorbell) = self.doorbell(offset) {
            doorbell.value.store(value, Ordering::Release);
            return;
        }
        self.write(offset, &value.to_le_bytes());
    }

    fn read_narrow(&self, offset: usize, bytes: usize) -> u32 {
        let mut device = self.device();
        self.tell_doorbells(&mut *device);
        read(&mut *device, offset, bytes)
    }

    fn write_narrow(&self, offset: usize, bytes: usize, value: u32) {
        self.write(offset, low(&value.to_le_bytes(), bytes));
    }
}

/// A device whose thread panicked is as it is: what it holds are numbers.
fn lock<D>(device: &Mutex<D>) -> MutexGuard<'_, D> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bar_bytes(device: &impl Device) -> usize {
    device.identity().bars[0] as usize
}

fn read32(device: &mut impl Device, offset: usize) -> u32 {
    read(device, offset, 4)
}

/// Reads a register of so many bytes, at most 4.
fn read(device: &mut impl Device, offset: usize, bytes: usize) -> u32 {
    let mut word = [0; 4];
    device.read(0, offset as u64, &mut word[..bytes.min(4)]);
    u32::from_le_bytes(word)
}

/// So many low bytes of a word.
fn low(word: &[u8; 4], bytes: usize) -> &[u8] {
    &word[..bytes.min(4)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Identity, Msix};
    use crate::violation::Violations;
    use hw::Register;
    use hw::sim::arena;

    /// Register 0 counts writes to 4, a doorbell; 8 holds what is written.
    #[derive(Default)]
    struct Counts {
        rung: u32,
        held: u32,
        polls: u32,
        /// Writes of 16 bits.
        halves: Vec<(u64, u16)>,
        violations: Violations,
    }

    impl Device for Counts {
        fn identity(&self) -> Identity {
            Identity {
                vendor: 1,
                device: 2,
                class: [0; 3],
                revision: 0,
                bars: [16, 0, 0, 0, 0, 0],
                msix: Msix {
                    capability: 0x40,
                    vectors: 0,
                    bar: 0,
                    table: 0,
                    pending: 0,
                },
                ..Identity::default()
            }
        }

        fn read(&mut self, _: u8, offset: u64, bytes: &mut [u8]) {
            let value = match offset {
                0 => self.rung,
                8 => self.held,
                _ => 0,
            };
            bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
        }

        fn write(&mut self, _: u8, offset: u64, bytes: &[u8]) {
            if let [low, high] = bytes {
                self.halves
                    .push((offset, u16::from_le_bytes([*low, *high])));
                return;
            }
            let value = u32::from_le_bytes(bytes.try_into().unwrap());
            match offset {
                4 => self.rung += value,
                // What was rung before is known before.
                8 => self.held = value + self.rung,
                _ => {}
            }
        }

        fn reset(&mut self) {}

        fn poll(&mut self, _: &dyn Dma, _: Duration) -> Progress {
            self.polls += 1;
            Progress::default()
        }

        fn take_interrupts(&mut self) -> u64 {
            u64::from(self.polls)
        }

        fn doorbells(&self) -> &'static [usize] {
            &[4]
        }

        fn violations(&self) -> &Violations {
            &self.violations
        }
    }

    #[test]
    fn a_device_in_the_same_thread_acts_at_once() {
        let (_arena, memory) = arena(4096, 0x1000);
        let device = Local::new(Counts::default());
        let bar = device.mmio();
        bar.write(Register::at(4), 3);
        bar.write(Register::at(8), 4);
        assert_eq!(
            [bar.read(Register::at(0)), bar.read(Register::at(8))],
            [3, 7]
        );
        assert!(device.poll(&memory, Duration::ZERO).is_idle());
        assert_eq!((device.device().polls, bar.len()), (1, 16));
    }

    #[test]
    fn narrow_registers_reach_the_device_in_their_own_width() {
        let (local, threaded) = (
            Local::new(Counts::default()),
            Threaded::new(Counts::default()),
        );
        for bar in [local.mmio(), threaded.mmio()] {
            bar.write(Register::at(8), 0x1234_5678);
            bar.write(Register::<u16>::new("", 10, ""), 0xaabb);
            assert_eq!(bar.read(Register::<u16>::new("", 8, "")), 0x5678);
            assert_eq!(bar.read(Register::at(8)), 0x1234_5678);
        }
        assert_eq!(local.device().halves, [(10, 0xaabb)]);
        assert_eq!(threaded.device().halves, [(10, 0xaabb)]);
    }

    #[test]
    fn doorbells_are_heard_before_later_registers_and_by_the_devices_thread() {
        let (_arena, memory) = arena(4096, 0x1000);
        let device = Threaded::new(Counts::default());
        let bar = device.mmio();
        bar.write(Register::at(4), 3);
        bar.write(Register::at(8), 4);
        assert_eq!(
            [bar.read(Register::at(0)), bar.read(Register::at(8))],
            [3, 7]
        );
        std::thread::scope(|scope| {
            let other = device.clone();
            let (sender, receiver) = std::sync::mpsc::channel();
            // Nobody listens any more once the test has seen enough.
            scope.spawn(move || {
                other.run(&memory, |raised| {
                    sender.send(raised).ok();
                })
            });
            assert!(receiver.recv().unwrap() > 0);
            bar.write(Register::at(4), 5);
            while device.device().rung != 8 {
                std::thread::yield_now();
            }
            device.stop();
        });
    }
}
