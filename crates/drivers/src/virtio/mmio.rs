//! Over memory-mapped registers (4.2), of version 2.
//!
//! **Interrupts** are neither read nor acknowledged (4.2.3.4). The image takes none: whoever has
//! its window wakes it up by an event, once for each, and looks at no register for that. What the
//! image then does, it decides by the rings alone. So for a frame, a driver writes doorbells and
//! nothing else.

use super::transport::{Bell, Rings};
use super::{Error, Transport, Window};
use hw::{Done, Mmio as Bar, Register, Width};

/// "virt".
const MAGIC_VALUE: Register = Register::new("MagicValue", 0x000, "4.2.2");
const MAGIC: u32 = u32::from_le_bytes(*b"virt");
const VERSION: Register = Register::new("Version", 0x004, "4.2.2");
/// Not that of devices before the specification.
const VERSION_MODERN: u32 = 2;
/// The kind of device (5).
const DEVICE_ID: Register = Register::new("DeviceID", 0x008, "4.2.2");
const DEVICE_FEATURES: Register = Register::new("DeviceFeatures", 0x010, "4.2.2");
const DEVICE_FEATURES_SEL: Register = Register::new("DeviceFeaturesSel", 0x014, "4.2.2");
const DRIVER_FEATURES: Register = Register::new("DriverFeatures", 0x020, "4.2.2");
const DRIVER_FEATURES_SEL: Register = Register::new("DriverFeaturesSel", 0x024, "4.2.2");
const QUEUE_SEL: Register = Register::new("QueueSel", 0x030, "4.2.2");
const QUEUE_NUM_MAX: Register = Register::new("QueueNumMax", 0x034, "4.2.2");
const QUEUE_NUM: Register = Register::new("QueueNum", 0x038, "4.2.2");
const QUEUE_READY: Register = Register::new("QueueReady", 0x044, "4.2.2");
const QUEUE_NOTIFY: Register = Register::new("QueueNotify", 0x050, "4.2.2");
const STATUS: Register = Register::new("Status", 0x070, "4.2.2");
const QUEUE_DESC: Register = Register::new("QueueDescLow", 0x080, "4.2.2");
const QUEUE_DRIVER: Register = Register::new("QueueDriverLow", 0x090, "4.2.2");
const QUEUE_DEVICE: Register = Register::new("QueueDeviceLow", 0x0a0, "4.2.2");
const CONFIG_GENERATION: Register = Register::new("ConfigGeneration", 0x0fc, "4.2.2");
/// The device's own configuration begins here.
const CONFIG: usize = 0x100;

/// What a register reads that is not there.
const ALL_ONES: u32 = u32::MAX;

/// The registers of a device.
#[derive(Clone)]
pub struct Mmio(Window);

impl Mmio {
    /// The device behind `registers`, whatever it is.
    pub fn new(registers: Bar) -> Self {
        let len = registers.len();
        Self(Window::new(registers, 0, 0, len))
    }

    /// Writes a register of 64 bits, as two of 32 (4.2.2.2).
    fn write_long(&self, register: Register, value: u64) {
        self.0.write(register, value as u32);
        self.0.write(register.nth(1, 4), (value >> 32) as u32);
    }
}

impl Transport for Mmio {
    fn check(&self, kind: u16, config_bytes: usize) -> Result<(), Error> {
        self.0.check("its register window", CONFIG + config_bytes)?;
        let found = [MAGIC_VALUE, VERSION, DEVICE_ID].map(|register| self.0.read(register));
        let wanted = [MAGIC, VERSION_MODERN, kind.into()];
        (found == wanted).then_some(()).ok_or(Error::Kind)
    }

    /// Whoever gives the guest such a window is its monitor, which also says what memory the device
    /// has.
    fn needed(&self) -> u64 {
        0
    }

    fn status(&self) -> u8 {
        match self.0.read(STATUS) {
            ALL_ONES => u8::MAX,
            status => status as u8,
        }
    }

    fn set_status(&self, status: u8) {
        self.0.write(STATUS, status.into());
    }

    fn reset_done(&self) -> Option<Done> {
        self.0.shows(STATUS, ALL_ONES, 0)
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.0.write(DEVICE_FEATURES_SEL, select);
            u64::from(self.0.read(DEVICE_FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn accept(&self, features: u64) {
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.0.write(DRIVER_FEATURES_SEL, select);
            self.0.write(DRIVER_FEATURES, half);
        }
    }

    /// A queue that is in use already is none (4.2.3.2).
    fn queue_size_max(&self, queue: u16) -> u16 {
        self.0.write(QUEUE_SEL, queue.into());
        if self.0.read(QUEUE_READY) != 0 {
            return 0;
        }
        match self.0.read(QUEUE_NUM_MAX) {
            ALL_ONES => 0,
            size => u16::try_from(size).unwrap_or(u16::MAX),
        }
    }

    /// Interrupts are kept off by the queue itself: the transport has one for all.
    fn set_up(&self, queue: u16, rings: Rings, _interrupts: bool) -> Result<Bell, Error> {
        self.0.write(QUEUE_SEL, queue.into());
        self.0.write(QUEUE_NUM, rings.size.into());
        self.write_long(QUEUE_DESC, rings.descriptors);
        self.write_long(QUEUE_DRIVER, rings.available);
        self.write_long(QUEUE_DEVICE, rings.used);
        self.0.write(QUEUE_READY, 1);
        let offset = QUEUE_NOTIFY.offset();
        Ok(Bell { offset, queue })
    }

    #[inline]
    fn notify(&self, bell: Bell) {
        self.0.write(QUEUE_NOTIFY, bell.queue.into());
    }

    fn config<F: Width>(&self, field: Register<F>) -> F {
        self.0.read(field.nth(1, CONFIG))
    }

    fn generation(&self) -> u32 {
        self.0.read(CONFIG_GENERATION)
    }
}
