//! Virtio over PCI (4.1): registers of any device in one BAR, which capabilities name.
//!
//! | BAR | what | section |
//! |---|---|---|
//! | 0 at 0 | common configuration | 4.1.4.3 |
//! | 0 at 0x1000 | ISR status | 4.1.4.5 |
//! | 0 at 0x2000 | configuration of the device | 4.1.4.6 |
//! | 0 at 0x3000 | notifications, four bytes for each queue | 4.1.4.4 |
//! | 2 | the MSI-X structures | 4.1.5.1.2 |

use super::device::VirtioDevice;
use super::feature;
use super::state::{Area, State, half};
use crate::device::{Capability, Device, Identity, Msix, Progress};
use crate::dma::Dma;
use crate::misbehaviour::Misbehaviour;
use crate::msix::MsixBar;
use crate::violation::{Violation, Violations};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// BAR 0, and what lies in it; each part has a page of its own.
const BAR_BYTES: u64 = 0x4000;
const PAGE: u64 = 0x1000;
const ISR: u64 = 0x1000;
const CONFIG: u64 = 0x2000;
/// Where queues are notified, in BAR 0: a write there asks for nothing but a poll.
pub const NOTIFY: u64 = 0x3000;
/// Bytes of the common configuration.
const COMMON_BYTES: u64 = 0x3c;
/// Bytes between the places of two queues to notify.
pub const NOTIFY_MULTIPLIER: u64 = 4;
const NOTIFY_BYTES: u64 = 64 * NOTIFY_MULTIPLIER;
/// BAR 2: the MSI-X structures.
const MSIX_BAR: u8 = 2;
const MSIX_BYTES: usize = 0x1000;
const PENDING: u32 = 0x800;
/// No vector (4.1.5.1.2).
const NO_VECTOR: u16 = 0xffff;
/// Bits of the ISR status (4.1.4.5).
const ISR_QUEUE: u8 = 1;
const ISR_CONFIG: u8 = 2;
/// Notifications of the first queues: what shared memory may hold, with VIRTIO_F_NOTIFICATION_DATA.
const DOORBELLS: [usize; 2] = [NOTIFY as usize, (NOTIFY + NOTIFY_MULTIPLIER) as usize];
/// Vendor, and device ID less that of virtio (4.1.2).
const VENDOR: u16 = 0x1af4;
const DEVICE_BASE: u16 = 0x1040;

/// Vendor-specific (PCI 3.0, appendix H).
const VENDOR_SPECIFIC: u8 = 9;
/// Kinds of structures (4.1.4).
const CFG_COMMON: u8 = 1;
const CFG_NOTIFY: u8 = 2;
const CFG_ISR: u8 = 3;
const CFG_DEVICE: u8 = 4;
const CFG_PCI: u8 = 5;

/// `struct virtio_pci_cap` (4.1.4), without what follows it.
const fn structure(kind: u8, bytes: u8, offset: u64, length: u64) -> [u8; 16] {
    let [o0, o1, o2, o3] = (offset as u32).to_le_bytes();
    let [l0, l1, l2, l3] = (length as u32).to_le_bytes();
    [
        VENDOR_SPECIFIC,
        0,
        bytes,
        kind,
        0,
        0,
        0,
        0,
        o0,
        o1,
        o2,
        o3,
        l0,
        l1,
        l2,
        l3,
    ]
}

/// The same with a word behind it.
const fn longer(kind: u8, offset: u64, length: u64, more: u32) -> [u8; 20] {
    let mut all = [0; 20];
    let (front, back) = (structure(kind, 20, offset, length), more.to_le_bytes());
    let mut at = 0;
    while at < 20 {
        all[at] = if at < 16 { front[at] } else { back[at - 16] };
        at += 1;
    }
    all
}

static COMMON_CAPABILITY: [u8; 16] = structure(CFG_COMMON, 16, 0, COMMON_BYTES);
static ISR_CAPABILITY: [u8; 16] = structure(CFG_ISR, 16, ISR, 1);
static DEVICE_CAPABILITY: [u8; 16] = structure(CFG_DEVICE, 16, CONFIG, PAGE);
static NOTIFY_CAPABILITY: [u8; 20] =
    longer(CFG_NOTIFY, NOTIFY, NOTIFY_BYTES, NOTIFY_MULTIPLIER as u32);
static WINDOW_CAPABILITY: [u8; 20] = longer(CFG_PCI, 0, 0, 0);
/// Of the window, the driver writes BAR, offset, length and data (4.1.4.9).
static WINDOW_WRITABLE: [u8; 20] = {
    let mut all = [0xff; 20];
    let mut at = 0;
    while at < 8 {
        all[at] = if at == 4 { 0xff } else { 0 };
        at += 1;
    }
    all
};

/// Where the capabilities lie in configuration space.
static CAPABILITIES: [Capability; 5] = [
    Capability {
        at: 0x40,
        bytes: &COMMON_CAPABILITY,
        writable: &[],
    },
    Capability {
        at: 0x50,
        bytes: &ISR_CAPABILITY,
        writable: &[],
    },
    Capability {
        at: 0x60,
        bytes: &DEVICE_CAPABILITY,
        writable: &[],
    },
    Capability {
        at: 0x70,
        bytes: &NOTIFY_CAPABILITY,
        writable: &[],
    },
    Capability {
        at: WINDOW,
        bytes: &WINDOW_CAPABILITY,
        writable: &WINDOW_WRITABLE,
    },
];
const WINDOW: u8 = 0x84;
const MSIX_CAPABILITY: u8 = 0x98;

/// A register of the common configuration (4.1.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    DeviceFeatureSelect,
    DeviceFeature,
    DriverFeatureSelect,
    DriverFeature,
    ConfigVector,
    QueueCount,
    Status,
    Generation,
    QueueSelect,
    QueueSize,
    QueueVector,
    QueueEnable,
    QueueNotify,
    /// An area, and which half of its address.
    Queue(Area, u32),
    QueueReset,
}

/// The registers: where they lie, and how many bytes they have.
const FIELDS: [(Field, u64, usize); 20] = [
    (Field::DeviceFeatureSelect, 0x00, 4),
    (Field::DeviceFeature, 0x04, 4),
    (Field::DriverFeatureSelect, 0x08, 4),
    (Field::DriverFeature, 0x0c, 4),
    (Field::ConfigVector, 0x10, 2),
    (Field::QueueCount, 0x12, 2),
    (Field::Status, 0x14, 1),
    (Field::Generation, 0x15, 1),
    (Field::QueueSelect, 0x16, 2),
    (Field::QueueSize, 0x18, 2),
    (Field::QueueVector, 0x1a, 2),
    (Field::QueueEnable, 0x1c, 2),
    (Field::QueueNotify, 0x1e, 2),
    (Field::Queue(Area::Descriptors, 0), 0x20, 4),
    (Field::Queue(Area::Descriptors, 1), 0x24, 4),
    (Field::Queue(Area::Driver, 0), 0x28, 4),
    (Field::Queue(Area::Driver, 1), 0x2c, 4),
    (Field::Queue(Area::Device, 0), 0x30, 4),
    (Field::Queue(Area::Device, 1), 0x34, 4),
    (Field::QueueReset, 0x3a, 2),
];

impl Field {
    /// What it is called (4.1.4.3).
    fn name(self) -> &'static str {
        match self {
            Self::DeviceFeatureSelect => "device_feature_select",
            Self::DeviceFeature => "device_feature",
            Self::DriverFeatureSelect => "driver_feature_select",
            Self::DriverFeature => "driver_feature",
            Self::ConfigVector => "config_msix_vector",
            Self::QueueCount => "num_queues",
            Self::Status => "device_status",
            Self::Generation => "config_generation",
            Self::QueueSelect => "queue_select",
            Self::QueueSize => "queue_size",
            Self::QueueVector => "queue_msix_vector",
            Self::QueueEnable => "queue_enable",
            Self::QueueNotify => "queue_notify_off",
            Self::QueueReset => "queue_reset",
            Self::Queue(Area::Descriptors, _) => "queue_desc",
            Self::Queue(Area::Driver, _) => "queue_driver",
            Self::Queue(Area::Device, _) => "queue_device",
        }
    }
}

/// What the register that has a byte of a BAR is called; those of the device's configuration, and
/// those that notify queues, have one name each.
pub fn name(bar: u8, offset: u64) -> Option<&'static str> {
    match (bar, offset / PAGE * PAGE) {
        (0, 0) => {
            let has = |(_, at, width): &&(Field, u64, usize)| {
                (*at..*at + *width as u64).contains(&offset)
            };
            FIELDS.iter().find(has).map(|(field, ..)| field.name())
        }
        (0, ISR) if offset == ISR => Some("ISR"),
        (0, CONFIG) => Some("configuration"),
        (0, NOTIFY) => Some("notifications"),
        _ => None,
    }
}

/// A virtio device behind PCI.
#[derive(Debug)]
pub struct Pci<D> {
    state: State<D>,
    device_select: u32,
    driver_select: u32,
    queue_select: u16,
    config_vector: u16,
    queue_vectors: Vec<u16>,
    /// What was written to notify each queue last.
    notified: Vec<u32>,
    isr: u8,
    msix: MsixBar,
    raised: u64,
}

impl<D: VirtioDevice> Pci<D> {
    /// A device as after a reset.
    pub fn new(device: D, misbehaviour: &Misbehaviour) -> Self {
        // 6.2: what reaches memory by I/O addresses says so.
        let transport = feature::NOTIFICATION_DATA | feature::ACCESS_PLATFORM;
        let state = State::new(device, transport, misbehaviour);
        let queues = usize::from(state.queue_count());
        Self {
            msix: MsixBar::new(MSIX_BYTES, msix(state.queue_count())),
            state,
            device_select: 0,
            driver_select: 0,
            queue_select: 0,
            config_vector: NO_VECTOR,
            queue_vectors: vec![NO_VECTOR; queues],
            notified: vec![0; queues],
            isr: 0,
            raised: 0,
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut D {
        self.state.device()
    }

    /// What a reset of the device by its driver leaves as well (4.1.5.1.2, 2.4).
    fn reset_registers(&mut self) {
        self.device_select = 0;
        self.driver_select = 0;
        self.queue_select = 0;
        self.config_vector = NO_VECTOR;
        self.queue_vectors.fill(NO_VECTOR);
        self.notified.fill(0);
        self.isr = 0;
        self.raised = 0;
    }

    /// The register at an offset, if it is accessed as it must be.
    fn field(&mut self, offset: u64, bytes: usize, written: Option<u32>) -> Option<Field> {
        let inside =
            |(_, at, width): &&(Field, u64, usize)| (*at..*at + *width as u64).contains(&offset);
        let Some(&(field, at, width)) = FIELDS.iter().find(inside) else {
            self.no_register(offset, written);
            return None;
        };
        if (at, width) == (offset, bytes) {
            return Some(field);
        }
        // 4.1.3.1: each field is accessed in its own size, and 64 bits in two halves.
        let bits = 8 * width;
        self.state.violations.add(Violation::Access {
            offset,
            bytes,
            bits,
        });
        None
    }

    fn no_register(&mut self, offset: u64, written: Option<u32>) {
        let offset = offset as usize;
        self.state
            .violations
            .add(Violation::NoRegister { offset, written });
    }

    fn get(&mut self, field: Field) -> u32 {
        let queue = self.state.queue(self.queue_select);
        let number = usize::from(self.queue_select);
        match field {
            Field::DeviceFeatureSelect => self.device_select,
            Field::DeviceFeature => self.state.offered_features(self.device_select),
            Field::DriverFeatureSelect => self.driver_select,
            Field::DriverFeature => self.state.accepted_features(self.driver_select),
            Field::ConfigVector => self.config_vector.into(),
            Field::QueueCount => self.state.queue_count().into(),
            Field::Status => self.state.status().into(),
            Field::Generation => self.state.generation().into(),
            Field::QueueSelect => self.queue_select.into(),
            // 4.1.4.3.1: zero says that there is no such queue.
            Field::QueueSize => queue.map_or(0, |queue| queue.size).into(),
            Field::QueueVector => self
                .queue_vectors
                .get(number)
                .map_or(NO_VECTOR, |v| *v)
                .into(),
            Field::QueueEnable => queue.is_some_and(|queue| queue.enabled).into(),
            Field::QueueNotify => match queue {
                Some(_) => self.queue_select.into(),
                None => 0,
            },
            Field::Queue(area, select) => {
                queue.map_or(0, |queue| half(queue.address(area), select))
            }
            // The reset of a queue is over at once (2.6.1.1).
            Field::QueueReset => 0,
        }
    }

    fn set(&mut self, field: Field, value: u32) {
        let number = self.queue_select;
        let vector = |vectors: u16| match value as u16 {
            vector if vector < vectors => vector,
            // 4.1.5.1.2: the driver sees that there is no such vector.
            _ => NO_VECTOR,
        };
        let vectors = vectors(self.state.queue_count());
        match field {
            Field::DeviceFeatureSelect => self.device_select = value,
            Field::DriverFeatureSelect => self.driver_select = value,
            Field::DriverFeature => self.state.accept_features(self.driver_select, value),
            Field::ConfigVector => self.config_vector = vector(vectors),
            Field::Status => {
                self.state.set_status(value as u8);
                if value == 0 {
                    self.reset_registers();
                }
            }
            Field::QueueSelect => self.queue_select = value as u16,
            Field::QueueSize => self.state.set_queue_size(number, value),
            Field::QueueVector => {
                if let Some(place) = self.queue_vectors.get_mut(usize::from(number)) {
                    *place = vector(vectors);
                }
            }
            Field::QueueEnable if value == 1 => self.state.enable_queue(number),
            Field::QueueEnable => {
                self.forbidden("queue_enable", value, "it is set to 1 (4.1.4.3.2)")
            }
            Field::Queue(area, select) => {
                self.state.set_queue_address(number, area, select, value);
            }
            Field::QueueReset if value == 1 => self.state.reset_queue(number),
            Field::QueueReset => self.forbidden("queue_reset", value, "it is set to 1 (4.1.4.3.2)"),
            Field::DeviceFeature => self.read_only("device_feature", value),
            Field::QueueCount => self.read_only("num_queues", value),
            Field::Generation => self.read_only("config_generation", value),
            Field::QueueNotify => self.read_only("queue_notify_off", value),
        }
    }

    fn forbidden(&mut self, register: &'static str, value: u32, rule: &'static str) {
        self.state.violations.add(Violation::Value {
            register,
            value,
            rule,
        });
    }

    fn read_only(&mut self, register: &'static str, value: u32) {
        self.state.violations.add(Violation::ReadOnly {
            register,
            section: "4.1.4.3",
            value,
        });
    }

    /// 4.1.5.2: the driver notifies the queue that this place is of.
    fn notify(&mut self, offset: u64, bytes: &[u8]) {
        let number = offset / NOTIFY_MULTIPLIER;
        let queue = usize::try_from(number).ok();
        let Some(place) = queue.and_then(|queue| self.notified.get_mut(queue)) else {
            return self.no_register(NOTIFY + offset, Some(low(bytes)));
        };
        let with_data = self.state.accepts(feature::NOTIFICATION_DATA);
        let width = if with_data { 4 } else { 2 };
        if !offset.is_multiple_of(NOTIFY_MULTIPLIER) || bytes.len() != width {
            self.state.violations.add(Violation::Access {
                offset: NOTIFY + offset,
                bytes: bytes.len(),
                bits: 8 * width,
            });
            return;
        }
        let value = low(bytes);
        *place = value;
        if u64::from(value & 0xffff) != number {
            let rule = "it must be the number of the queue (4.1.5.2)";
            self.forbidden("queue_notify", value, rule);
        }
        self.state.notify(number as u16);
    }

    /// Raises the vectors of what there is to tell.
    fn raise(&mut self) {
        let queues = self.state.take_queue_interrupts();
        if queues != 0 {
            self.isr |= ISR_QUEUE;
            for number in self.state.numbers() {
                if queues & 1 << number != 0 {
                    self.raised |= bit(self.queue_vectors[usize::from(number)]);
                }
            }
        }
        if self.state.take_config_interrupt() {
            self.isr |= ISR_CONFIG;
            self.raised |= bit(self.config_vector);
        }
    }
}

impl<D: VirtioDevice> Device for Pci<D> {
    fn identity(&self) -> Identity {
        let id = self.state.device.id();
        Identity {
            vendor: VENDOR,
            device: DEVICE_BASE + id,
            subsystem: (VENDOR, DEVICE_BASE + id),
            class: class(id),
            // 4.1.2.1: no transitional device.
            revision: 1,
            bars: [BAR_BYTES, 0, MSIX_BYTES as u64, 0, 0, 0],
            pin: true,
            msix: msix(self.state.queue_count()),
            capabilities: &CAPABILITIES,
            window: Some(WINDOW),
            ..Identity::default()
        }
    }

    fn read(&mut self, bar: u8, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0xff);
        if self.state.is_gone() {
            return;
        }
        match (bar, offset / PAGE * PAGE) {
            (MSIX_BAR, _) => self.msix.read(offset, bytes),
            (0, 0) => {
                if let Some(field) = self.field(offset, bytes.len(), None) {
                    let value = self.get(field);
                    let value = self.state.faults.read(offset as usize, value);
                    bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
                }
            }
            // 4.1.4.5: reading it clears it.
            (0, ISR) if (offset, bytes.len()) == (ISR, 1) => {
                bytes[0] = std::mem::take(&mut self.isr);
            }
            (0, CONFIG) => {
                self.state.read_config((offset - CONFIG) as usize, bytes);
                if bytes.len() <= size_of::<u32>() {
                    let value = self.state.faults.read(offset as usize, low(bytes));
                    bytes.copy_from_slice(&value.to_le_bytes()[..bytes.len()]);
                }
            }
            (0, NOTIFY) => {
                let number = ((offset - NOTIFY) / NOTIFY_MULTIPLIER) as usize;
                let value = self.notified.get(number).copied().unwrap_or(0);
                let bytes_there = value.to_le_bytes();
                bytes.fill(0);
                let len = bytes.len().min(bytes_there.len());
                bytes[..len].copy_from_slice(&bytes_there[..len]);
            }
            _ => self.no_register(offset, None),
        }
    }

    fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
        if self.state.is_gone() {
            return;
        }
        match (bar, offset / PAGE * PAGE) {
            (MSIX_BAR, _) => self.msix.write(offset, bytes),
            (0, 0) => {
                if let Some(field) = self.field(offset, bytes.len(), Some(low(bytes))) {
                    self.set(field, low(bytes));
                }
            }
            (0, CONFIG) => self.state.write_config((offset - CONFIG) as usize, bytes),
            (0, NOTIFY) => self.notify(offset - NOTIFY, bytes),
            _ => self.no_register(offset, Some(low(bytes))),
        }
    }

    fn reset(&mut self) {
        self.state.reset();
        self.reset_registers();
        self.msix.reset();
    }

    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        let progress = self.state.poll(dma, now);
        self.raise();
        progress
    }

    fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.raised)
    }

    /// 4.1.4.5: until the driver has read the ISR status.
    fn asserts_pin(&self) -> bool {
        !self.state.is_gone() && self.isr != 0
    }

    fn doorbells(&self) -> &'static [usize] {
        &DOORBELLS[..self.notified.len().min(DOORBELLS.len())]
    }

    fn violations(&self) -> &Violations {
        self.state.violations()
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.state.device.wire_descriptor()
    }
}

/// A vector for the configuration, and one for each queue.
fn vectors(queues: u16) -> u16 {
    queues.saturating_add(1).min(64)
}

fn msix(queues: u16) -> Msix {
    Msix {
        capability: MSIX_CAPABILITY,
        vectors: vectors(queues),
        bar: MSIX_BAR,
        table: 0,
        pending: PENDING,
    }
}

/// The class of a device with this ID (PCI 3.0, appendix D).
fn class(id: u16) -> [u8; 3] {
    match id {
        super::net::ID => [0x02, 0x00, 0x00],
        super::blk::ID => [0x01, 0x80, 0x00],
        _ => [0xff, 0x00, 0x00],
    }
}

/// A vector as a set of one; none for none.
fn bit(vector: u16) -> u64 {
    1u64.checked_shl(vector.into()).unwrap_or(0)
}

/// The first four bytes as a number, or as many as there are.
fn low(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().take(4).rev();
    bytes.fold(0, |value, byte| value << 8 | u32::from(*byte))
}
