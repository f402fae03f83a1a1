//! Virtio over memory-mapped I/O (4.2): registers of any device in one window, and an interrupt.
//!
//! Whoever has the window turns accesses of it into calls of [`Mmio::read`] and [`Mmio::write`],
//! lets the device work by [`Mmio::poll`] after notifications or always, and interrupts the driver:
//! by a level while [`Mmio::is_asserted`], or by an edge for each [`Mmio::take_raised`].

use super::device::VirtioDevice;
use super::feature;
use super::state::{Area, State};
use crate::device::Progress;
use crate::dma::Dma;
use crate::misbehaviour::Misbehaviour;
use crate::violation::{Violation, Violations};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Bytes of the window.
pub const BYTES: u64 = 0x200;
/// Where queues are notified: a write there asks for nothing but a [poll](Mmio::poll).
pub const NOTIFY: u64 = 0x50;
/// Where the configuration of the device begins.
pub const CONFIG: u64 = 0x100;
/// Bytes of a control register (4.2.2.2).
const WIDTH: usize = 4;
/// "virt", and the version of this layout (4.2.2).
const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
/// Whose device it is: a number that is as good as any (4.2.2).
const VENDOR: u32 = 0x5442_544f;
/// Bits of InterruptStatus (4.2.2).
const USED: u32 = 1;
const CONFIG_CHANGED: u32 = 2;

/// A control register (table 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    Magic,
    Version,
    DeviceId,
    VendorId,
    DeviceFeatures,
    DeviceFeaturesSelect,
    DriverFeatures,
    DriverFeaturesSelect,
    QueueSelect,
    QueueSizeMax,
    QueueSize,
    QueueReady,
    QueueNotify,
    InterruptStatus,
    InterruptAck,
    Status,
    /// An area, and which half of its address.
    Queue(Area, u32),
    SharedMemorySelect,
    /// Of a region of shared memory, of which there are none.
    SharedMemory,
    QueueReset,
    Generation,
}

/// What a driver may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
    Both,
}

use Direction::{Both, Read, Write};

/// Where the registers lie, what they are called, and what may be done with them.
const REGISTERS: [(u64, Register, &str, Direction); 29] = [
    (0x00, Register::Magic, "MagicValue", Read),
    (0x04, Register::Version, "Version", Read),
    (0x08, Register::DeviceId, "DeviceID", Read),
    (0x0c, Register::VendorId, "VendorID", Read),
    (0x10, Register::DeviceFeatures, "DeviceFeatures", Read),
    (
        0x14,
        Register::DeviceFeaturesSelect,
        "DeviceFeaturesSel",
        Write,
    ),
    (0x20, Register::DriverFeatures, "DriverFeatures", Write),
    (
        0x24,
        Register::DriverFeaturesSelect,
        "DriverFeaturesSel",
        Write,
    ),
    (0x30, Register::QueueSelect, "QueueSel", Write),
    (0x34, Register::QueueSizeMax, "QueueNumMax", Read),
    (0x38, Register::QueueSize, "QueueNum", Write),
    (0x44, Register::QueueReady, "QueueReady", Both),
    (NOTIFY, Register::QueueNotify, "QueueNotify", Write),
    (0x60, Register::InterruptStatus, "InterruptStatus", Read),
    (0x64, Register::InterruptAck, "InterruptACK", Write),
    (0x70, Register::Status, "Status", Both),
    (
        0x80,
        Register::Queue(Area::Descriptors, 0),
        "QueueDescLow",
        Write,
    ),
    (
        0x84,
        Register::Queue(Area::Descriptors, 1),
        "QueueDescHigh",
        Write,
    ),
    (
        0x90,
        Register::Queue(Area::Driver, 0),
        "QueueDriverLow",
        Write,
    ),
    (
        0x94,
        Register::Queue(Area::Driver, 1),
        "QueueDriverHigh",
        Write,
    ),
    (
        0xa0,
        Register::Queue(Area::Device, 0),
        "QueueDeviceLow",
        Write,
    ),
    (
        0xa4,
        Register::Queue(Area::Device, 1),
        "QueueDeviceHigh",
        Write,
    ),
    (0xac, Register::SharedMemorySelect, "SHMSel", Write),
    (0xb0, Register::SharedMemory, "SHMLenLow", Read),
    (0xb4, Register::SharedMemory, "SHMLenHigh", Read),
    (0xb8, Register::SharedMemory, "SHMBaseLow", Read),
    (0xbc, Register::SharedMemory, "SHMBaseHigh", Read),
    (0xc0, Register::QueueReset, "QueueReset", Both),
    (0xfc, Register::Generation, "ConfigGeneration", Read),
];

/// What the register at an offset is called (table 4.1); `None` where none begins, or from 0x100
/// on, where each device has its own.
pub fn name(offset: u64) -> Option<&'static str> {
    let found = REGISTERS.iter().find(|(at, ..)| *at == offset);
    found.map(|(_, _, name, _)| *name)
}

/// A virtio device behind a window of registers.
#[derive(Debug)]
pub struct Mmio<D> {
    state: State<D>,
    device_select: u32,
    driver_select: u32,
    queue_select: u16,
    interrupts: u32,
    /// Those of them that came after the driver last read which there are.
    unread: u32,
    raised: bool,
}

impl<D: VirtioDevice> Mmio<D> {
    /// A device as after a reset.
    pub fn new(device: D, misbehaviour: &Misbehaviour) -> Self {
        Self {
            state: State::new(device, feature::NOTIFICATION_DATA, misbehaviour),
            device_select: 0,
            driver_select: 0,
            queue_select: 0,
            interrupts: 0,
            unread: 0,
            raised: false,
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut D {
        self.state.device()
    }

    /// All is as it was at first, as when the machine is reset.
    pub fn reset(&mut self) {
        self.state.reset();
        self.reset_registers();
    }

    fn reset_registers(&mut self) {
        self.device_select = 0;
        self.driver_select = 0;
        self.queue_select = 0;
        self.interrupts = 0;
        self.unread = 0;
        self.raised = false;
    }

    /// What the driver did wrong since the device was made.
    pub fn violations(&self) -> &Violations {
        self.state.violations()
    }

    /// What becomes readable when something comes in that the device should be polled for.
    pub fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.state.device.wire_descriptor()
    }

    /// Lets the device work, up to a bound. `now` is the time since some start, and never goes
    /// backwards.
    pub fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let progress = self.state.poll(dma, now);
        let mut bits = 0;
        if self.state.take_queue_interrupts() != 0 {
            bits |= USED;
        }
        if self.state.take_config_interrupt() {
            bits |= CONFIG_CHANGED;
        }
        self.interrupts |= bits;
        self.unread |= bits;
        self.raised |= bits != 0;
        progress
    }

    /// The driver notifies a queue, which whoever has the window learned in another way, such as an
    /// event of the kernel's.
    pub fn notify(&mut self, queue: u16) {
        self.state.notify(queue);
    }

    /// Whether the interrupt is asserted: until the driver has acknowledged all of it.
    pub fn is_asserted(&self) -> bool {
        self.interrupts != 0
    }

    /// Whether there was something to tell since this was asked.
    pub fn take_raised(&mut self) -> bool {
        std::mem::take(&mut self.raised)
    }

    /// The register at an offset, if it is accessed as it must be.
    fn register(
        &mut self,
        offset: u64,
        bytes: usize,
        written: Option<u32>,
    ) -> Option<(Register, &'static str, Direction)> {
        let found = REGISTERS
            .iter()
            .find(|(at, ..)| (*at..*at + WIDTH as u64).contains(&offset));
        let Some(&(at, register, name, direction)) = found else {
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            self.state
                .violations
                .add(Violation::NoRegister { offset, written });
            return None;
        };
        if (at, WIDTH) != (offset, bytes) {
            let bits = 8 * WIDTH;
            self.state.violations.add(Violation::Access {
                offset,
                bytes,
                bits,
            });
            return None;
        }
        Some((register, name, direction))
    }

    /// Reads bytes at an offset of the window. Where none can be read, they are zero; all ones of a
    /// device that is as if pulled out.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) {
        if self.state.is_gone() {
            return bytes.fill(0xff);
        }
        bytes.fill(0);
        if offset >= CONFIG {
            let at = usize::try_from(offset - CONFIG).unwrap_or(usize::MAX);
            return self.state.read_config(at, bytes);
        }
        let Some((register, name, direction)) = self.register(offset, bytes.len(), None) else {
            return;
        };
        if direction == Write {
            self.state.violations.add(Violation::WriteOnly {
                register: name,
                section: "4.2.2.2",
            });
            return;
        }
        let value = self.get(register);
        let value = self.state.faults.read(offset as usize, value);
        bytes.copy_from_slice(&value.to_le_bytes());
    }

    fn get(&mut self, register: Register) -> u32 {
        let queue = self.state.queue(self.queue_select);
        match register {
            Register::Magic => MAGIC,
            Register::Version => VERSION,
            Register::DeviceId => self.state.device.id().into(),
            Register::VendorId => VENDOR,
            Register::DeviceFeatures => self.state.offered_features(self.device_select),
            Register::QueueSizeMax => queue.map_or(0, |queue| queue.size_max()).into(),
            Register::QueueReady => queue.is_some_and(|queue| queue.enabled).into(),
            Register::InterruptStatus => {
                self.unread = 0;
                self.interrupts
            }
            Register::Status => self.state.status().into(),
            // 4.2.2.1: a length of all ones says that there is no such region.
            Register::SharedMemory => u32::MAX,
            Register::Generation => self.state.generation().into(),
            // The reset of a queue is over at once; all others are written alone.
            _ => 0,
        }
    }

    /// Writes bytes at an offset of the window.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if self.state.is_gone() {
            return;
        }
        if offset >= CONFIG {
            let at = usize::try_from(offset - CONFIG).unwrap_or(usize::MAX);
            return self.state.write_config(at, bytes);
        }
        let value = bytes.iter().take(WIDTH).rev();
        let value = value.fold(0, |value, byte| value << 8 | u32::from(*byte));
        let found = self.register(offset, bytes.len(), Some(value));
        let Some((register, name, direction)) = found else {
            return;
        };
        if direction == Read {
            self.state.violations.add(Violation::ReadOnly {
                register: name,
                section: "4.2.2.2",
                value,
            });
            return;
        }
        self.set(register, name, value);
    }

    fn set(&mut self, register: Register, name: &'static str, value: u32) {
        let queue = self.queue_select;
        match register {
            Register::DeviceFeaturesSelect => self.device_select = value,
            Register::DriverFeaturesSelect => self.driver_select = value,
            Register::DriverFeatures => self.state.accept_features(self.driver_select, value),
            // A number that no queue has is one that no queue has.
            Register::QueueSelect => self.queue_select = value.min(u16::MAX.into()) as u16,
            Register::QueueSize => self.state.set_queue_size(queue, value),
            Register::QueueReady if value == 1 => self.state.enable_queue(queue),
            Register::QueueReady if value == 0 => self.state.disable_queue(queue),
            Register::QueueReset if value == 1 => self.state.reset_queue(queue),
            Register::QueueReady | Register::QueueReset => {
                self.state.violations.add(Violation::Value {
                    register: name,
                    value,
                    rule: "it is set to 1, or QueueReady to 0 (4.2.2)",
                });
            }
            // With VIRTIO_F_NOTIFICATION_DATA, the number of the queue is the lower half (4.2.3.3).
            Register::QueueNotify if self.state.accepts(feature::NOTIFICATION_DATA) => {
                self.state.notify(value as u16);
            }
            Register::QueueNotify => self.state.notify(value.min(u16::MAX.into()) as u16),
            Register::InterruptAck => self.acknowledge(value),
            Register::Status => {
                self.state.set_status(value.min(u8::MAX.into()) as u8);
                if value == 0 {
                    self.reset_registers();
                }
            }
            Register::Queue(area, select) => {
                self.state.set_queue_address(queue, area, select, value);
            }
            // There are no regions to choose from, and nothing else is written.
            _ => {}
        }
    }

    fn acknowledge(&mut self, value: u32) {
        let unknown = value & !(USED | CONFIG_CHANGED);
        if unknown != 0 {
            self.state.violations.add(Violation::Reserved {
                register: "InterruptACK",
                section: "4.2.2",
                bits: unknown,
            });
        }
        // What came after the driver looked, it cannot have handled. If it went away here, an edge
        // would be found without a cause: with writes that the driver does not wait for, that
        // would be the last it hears of it.
        self.interrupts &= !value | std::mem::take(&mut self.unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;
    use crate::virtio::VirtioNet;
    use crate::virtio::testing::{IOVA, Ring};
    use crate::wire::{Offload, Pair, Wire, pair};
    use hw::sim::{View, arena};
    use proptest::prelude::*;

    const ADDRESS: [u8; 6] = samples::DESTINATION;

    struct Machine {
        mmio: Mmio<VirtioNet<Pair>>,
        memory: View,
        wire: Pair,
    }

    impl Machine {
        fn new() -> Self {
            let (ours, wire) = pair();
            let memory = arena(1 << 20, IOVA).1;
            let mmio = Mmio::new(VirtioNet::new(ADDRESS, ours), &Misbehaviour::default());
            Self { mmio, memory, wire }
        }

        fn read(&mut self, offset: u64) -> u32 {
            let mut word = [0xee; 4];
            self.mmio.read(offset, &mut word);
            u32::from_le_bytes(word)
        }

        fn write(&mut self, offset: u64, value: u32) {
            self.mmio.write(offset, &value.to_le_bytes());
        }

        /// As Linux does it, with MRG_RXBUF alone.
        fn bring_up(&mut self) -> Ring {
            assert_eq!((self.read(0), self.read(4), self.read(8)), (MAGIC, 2, 1));
            self.write(0x70, 0);
            for status in [1, 3] {
                self.write(0x70, status);
            }
            for (select, features) in [(1, 1), (0, 1 << 15)] {
                self.write(0x14, select);
                assert_eq!(self.read(0x10) & features, features);
                self.write(0x24, select);
                self.write(0x20, features);
            }
            self.write(0x70, 11);
            assert_eq!(self.read(0x70), 11);
            self.write(0x30, 0);
            assert_eq!((self.read(0x44), self.read(0x34)), (0, 1024));
            let ring = Ring::new(0, 16);
            self.write(0x38, 16);
            for (at, address) in [
                (0x80, ring.at),
                (0x90, ring.driver_area()),
                (0xa0, ring.device_area()),
            ] {
                self.write(at, address as u32);
                self.write(at + 4, (address >> 32) as u32);
            }
            self.write(0x44, 1);
            assert_eq!(self.read(0x44), 1);
            self.write(0x70, 15);
            ring
        }

        fn poll(&mut self) {
            self.mmio.poll(&self.memory, Duration::ZERO);
        }

        fn assert_report(&self, part: &str) {
            let text = self.mmio.violations().to_string();
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_frame_comes_in_and_its_interrupt_is_acknowledged() {
        let mut machine = Machine::new();
        let mut ring = machine.bring_up();
        let buffer = crate::virtio::testing::Buffer {
            iova: IOVA + 0x8_0000,
            bytes: 2000,
            writable: true,
        };
        ring.offer(&machine.memory, &[buffer]);
        machine.write(NOTIFY, 0);
        let frame = samples::udp(false, None, b"x");
        machine.wire.send(&frame, Offload::default());
        machine.poll();
        assert!(machine.mmio.is_asserted() && machine.mmio.take_raised());
        assert!(!machine.mmio.take_raised());
        assert_eq!((machine.read(0x60), machine.read(0x60)), (1, 1));
        machine.write(0x64, 1);
        assert!(!machine.mmio.is_asserted());
        let used = ring.take_used(&machine.memory);
        assert_eq!(used, Some((0, 12 + frame.len() as u32)));
        machine.wire.plug(false);
        machine.poll();
        assert_eq!((machine.read(0x60), machine.read(0xfc)), (2, 1));
        assert!(machine.mmio.violations().is_empty());
        // Shared memory has no regions, and the configuration any width.
        assert_eq!(
            (machine.read(0xb0), machine.read(0xb4)),
            (u32::MAX, u32::MAX)
        );
        let mut bytes = [0; 6];
        for (at, byte) in (0x100..).zip(&mut bytes) {
            machine.mmio.read(at, std::slice::from_mut(byte));
        }
        assert_eq!(bytes, ADDRESS);
        machine.write(0x70, 0);
        assert_eq!((machine.read(0x60), machine.read(0x44)), (0, 0));
        assert!(machine.mmio.violations().is_empty());
    }

    /// The acknowledgement of the first interrupt comes behind the second: that one stays.
    #[test]
    fn what_the_driver_has_not_read_is_not_acknowledged() {
        let mut machine = Machine::new();
        machine.bring_up();
        let change = |machine: &mut Machine, up| {
            machine.wire.plug(up);
            machine.poll();
            assert!(machine.mmio.take_raised());
        };
        change(&mut machine, false);
        assert_eq!(machine.read(0x60), 2);
        change(&mut machine, true);
        machine.write(0x64, 2);
        assert_eq!(machine.read(0x60), 2);
        machine.write(0x64, 2);
        assert_eq!(machine.read(0x60), 0);
        // Who acknowledges without reading is not asked for ever.
        change(&mut machine, false);
        machine.write(0x64, 2);
        machine.write(0x64, 2);
        assert!(!machine.mmio.is_asserted());
        assert!(machine.mmio.violations().is_empty());
    }

    #[test]
    fn a_queue_that_is_stopped_is_left_alone() {
        let mut machine = Machine::new();
        let mut ring = machine.bring_up();
        machine.write(0x44, 0);
        assert_eq!(machine.read(0x44), 0);
        let buffer = crate::virtio::testing::Buffer {
            iova: IOVA + 0x8_0000,
            bytes: 2000,
            writable: true,
        };
        ring.offer(&machine.memory, &[buffer]);
        machine.wire.send(&[2; 60], Offload::default());
        machine.poll();
        assert_eq!(ring.take_used(&machine.memory), None);
        assert!(machine.mmio.violations().is_empty());
    }

    #[test]
    fn every_register_has_its_width_and_direction() {
        let mut machine = Machine::new();
        machine.bring_up();
        for (at, _, name, direction) in REGISTERS {
            let mut half = [0; 2];
            machine.mmio.read(at, &mut half);
            machine.assert_report(&format!("2 bytes at {at:#x} were accessed"));
            machine.mmio.write(at + 1, &[0; 4]);
            machine.assert_report(&format!("4 bytes at {:#x} were accessed", at + 1));
            match direction {
                Read => {
                    machine.write(at, 7);
                    let part = format!("0x7 was written to {name}, which is read-only");
                    machine.assert_report(&part);
                }
                Write => {
                    assert_eq!(machine.read(at), 0, "{name}");
                    machine.assert_report(&format!("{name} was read, which is write-only"));
                }
                Both => {}
            }
        }
        for at in [0x18, 0x40, 0x74, 0xa8, 0xc4, 0xf8] {
            assert_eq!(machine.read(at), 0);
            machine.write(at, 1);
            machine.assert_report(&format!("{at:#x} was read, no register"));
        }
        machine.write(0x64, 4);
        machine.assert_report("reserved bits 0x4 of InterruptACK");
        machine.write(0x44, 2);
        machine.assert_report("QueueReady was set to 0x2");
        machine.write(NOTIFY, 0x1_0000);
        machine.assert_report("there is no such queue");
        assert_eq!(machine.read(0x1000), 0);
        assert_eq!(machine.read(u64::MAX), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_access_makes_it_panic(
            accesses in proptest::collection::vec(
                (any::<u64>(), 0u64..0x120, 1usize..9, any::<u32>(), 0u8..8),
                1..200,
            ),
        ) {
            let mut machine = Machine::new();
            for (far, near, bytes, value, kind) in accesses {
                let offset = match kind {
                    0 => far,
                    1 | 2 => near,
                    _ => near & !3,
                };
                let value = if kind < 5 { value } else { value % 16 };
                let mut word = u64::from(value).to_le_bytes();
                let bytes = if kind < 4 { bytes } else { 4 };
                machine.mmio.write(offset, &word[..bytes]);
                machine.mmio.read(offset, &mut word[..bytes]);
                machine.poll();
            }
            machine.mmio.reset();
            machine.bring_up();
        }
    }
}
