//! Over PCI (4.1). The structures lie in BARs; where, the tender has read in the configuration
//! space, which a guest never reaches.

use super::transport::{Bell, Rings};
use super::{Error, Transport, Window, feature};
use hw::{Done, Register, Width};

// The common configuration (4.1.4.3).
/// Which half of the features offered is read.
const DEVICE_FEATURE_SELECT: Register = Register::new("device_feature_select", 0x00, "4.1.4.3");
const DEVICE_FEATURE: Register = Register::new("device_feature", 0x04, "4.1.4.3");
/// Which half of the features accepted is written.
const DRIVER_FEATURE_SELECT: Register = Register::new("driver_feature_select", 0x08, "4.1.4.3");
const DRIVER_FEATURE: Register = Register::new("driver_feature", 0x0c, "4.1.4.3");
/// MSI-X vector of changes of the configuration.
const CONFIG_MSIX_VECTOR: Register<u16> = Register::new("config_msix_vector", 0x10, "4.1.4.3");
const DEVICE_STATUS: Register<u8> = Register::new("device_status", 0x14, "4.1.4.3");
const CONFIG_GENERATION: Register<u8> = Register::new("config_generation", 0x15, "4.1.4.3");
/// Which queue the registers behind it are of.
const QUEUE_SELECT: Register<u16> = Register::new("queue_select", 0x16, "4.1.4.3");
const QUEUE_SIZE: Register<u16> = Register::new("queue_size", 0x18, "4.1.4.3");
/// MSI-X vector of used buffers.
const QUEUE_MSIX_VECTOR: Register<u16> = Register::new("queue_msix_vector", 0x1a, "4.1.4.3");
const QUEUE_ENABLE: Register<u16> = Register::new("queue_enable", 0x1c, "4.1.4.3");
/// Where the queue's doorbell lies, in units of the multiplier.
const QUEUE_NOTIFY_OFF: Register<u16> = Register::new("queue_notify_off", 0x1e, "4.1.4.3");
const QUEUE_DESC: Register = Register::new("queue_desc", 0x20, "4.1.4.3");
const QUEUE_DRIVER: Register = Register::new("queue_driver", 0x28, "4.1.4.3");
const QUEUE_DEVICE: Register = Register::new("queue_device", 0x30, "4.1.4.3");
/// Bytes of the common configuration that are used.
const COMMON_BYTES: usize = 0x38;

/// The vector that the tender gives an event to.
const VECTOR: u16 = 0;
/// No vector (4.1.5.1.2).
const NO_VECTOR: u16 = 0xffff;

/// The structures of a device, and how far the doorbells of its queues lie apart.
#[derive(Clone)]
pub struct Pci {
    /// Common configuration (4.1.4.3).
    pub common: Window,
    /// Doorbells (4.1.4.4).
    pub notify: Window,
    /// Bytes from one doorbell to the next; 0 if all queues share one.
    pub notify_multiplier: usize,
    /// The configuration of the kind of device (4.1.4.6).
    pub device: Window,
}

impl Pci {
    /// Writes a register of 64 bits, as two of 32 (4.1.3.1).
    fn write_long(&self, register: Register, value: u64) {
        self.common.write(register, value as u32);
        self.common.write(register.nth(1, 4), (value >> 32) as u32);
    }
}

impl Transport for Pci {
    /// Of which kind it is, its device ID has said (4.1.2).
    fn check(&self, _kind: u16, config_bytes: usize) -> Result<(), Error> {
        self.common
            .check("its common configuration", COMMON_BYTES)?;
        self.notify.check("its doorbells", u16::BYTES)?;
        self.device.check("its configuration", config_bytes)
    }

    /// Without it, QEMU's devices would take addresses for those of the machine's memory.
    fn needed(&self) -> u64 {
        feature::ACCESS_PLATFORM
    }

    fn status(&self) -> u8 {
        self.common.read(DEVICE_STATUS)
    }

    fn set_status(&self, status: u8) {
        self.common.write(DEVICE_STATUS, status);
    }

    fn reset_done(&self) -> Option<Done> {
        self.common.shows(DEVICE_STATUS, u8::MAX, 0)
    }

    fn features(&self) -> u64 {
        let half = |select| {
            self.common.write(DEVICE_FEATURE_SELECT, select);
            u64::from(self.common.read(DEVICE_FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn accept(&self, features: u64) {
        for (select, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.common.write(DRIVER_FEATURE_SELECT, select);
            self.common.write(DRIVER_FEATURE, half);
        }
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        self.common.write(QUEUE_SELECT, queue);
        match self.common.read(QUEUE_SIZE) {
            // What a register reads that is not there; no power of two.
            u16::MAX => 0,
            size => size,
        }
    }

    fn set_up(&self, queue: u16, rings: Rings, interrupts: bool) -> Result<Bell, Error> {
        let common = &self.common;
        common.write(QUEUE_SELECT, queue);
        common.write(QUEUE_SIZE, rings.size);
        // A driver that waits for buffers is to know of changes as well: of a link.
        let vector = if interrupts { VECTOR } else { NO_VECTOR };
        common.write(QUEUE_MSIX_VECTOR, vector);
        if interrupts {
            common.write(CONFIG_MSIX_VECTOR, vector);
        }
        self.write_long(QUEUE_DESC, rings.descriptors);
        self.write_long(QUEUE_DRIVER, rings.available);
        self.write_long(QUEUE_DEVICE, rings.used);
        let number = usize::from(common.read(QUEUE_NOTIFY_OFF));
        let offset = number.saturating_mul(self.notify_multiplier);
        self.notify
            .check("its doorbells", offset.saturating_add(u16::BYTES))?;
        common.write(QUEUE_ENABLE, 1);
        Ok(Bell { offset, queue })
    }

    /// 4.1.5.2: 16 bits.
    #[inline]
    fn notify(&self, bell: Bell) {
        let register = Register::<u16>::new("queue_notify", bell.offset, "4.1.4.4");
        self.notify.write(register, bell.queue);
    }

    fn config<F: Width>(&self, field: Register<F>) -> F {
        self.device.read(field)
    }

    fn generation(&self) -> u32 {
        self.common.read(CONFIG_GENERATION).into()
    }
}
