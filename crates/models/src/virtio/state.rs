//! Features, status, queues and configuration: what a driver reaches through any transport.

use super::device::VirtioDevice;
use super::queue::{Resumed, Virtqueue};
use super::work::Work;
use super::{feature, status};
use crate::device::Progress;
use crate::dma::Dma;
use crate::iotlb::Iotlb;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::violation::{Violation, Violations};
use std::ops::Range;
use std::time::Duration;

/// Features that there are without regard to device and transport.
const FEATURES: u64 =
    feature::VERSION_1 | feature::INDIRECT_DESC | feature::EVENT_IDX | feature::RING_RESET;
/// Most queues, as a set of them is a number.
const QUEUES_MAX: usize = 64;

/// One of the three areas of a queue (2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The descriptor area.
    Descriptors,
    /// The driver area: what is available.
    Driver,
    /// The device area: what is used.
    Device,
}

/// A device, and how far its driver is with it. Queue numbers and selectors are the driver's: any
/// number will do.
#[derive(Debug)]
pub struct State<D> {
    pub(super) device: D,
    /// Features that are offered.
    offered: u64,
    accepted: u64,
    status: u8,
    queues: Vec<Virtqueue>,
    generation: u8,
    config_interrupt: bool,
    queue_interrupts: u64,
    pub(super) violations: Violations,
    pub(super) faults: Faults,
    gone: bool,
}

impl<D: VirtioDevice> State<D> {
    /// A device as after a reset, behind a transport with these features.
    pub fn new(device: D, transport: u64, misbehaviour: &Misbehaviour) -> Self {
        let kinds = device.queues();
        let queues = kinds.iter().take(QUEUES_MAX);
        Self {
            offered: device.features() | FEATURES | transport,
            accepted: 0,
            status: 0,
            queues: queues
                .map(|kind| Virtqueue::new(kind.name, kind.size_max))
                .collect(),
            generation: 0,
            config_interrupt: false,
            queue_interrupts: 0,
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
            gone: false,
            device,
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The same, to be asked alone.
    pub(crate) fn device_ref(&self) -> &D {
        &self.device
    }

    /// 2.4: all is as it was at first, but for what the driver did wrong.
    pub fn reset(&mut self) {
        self.device.reset();
        // What changed before a reset is read after it.
        self.device.take_config_change();
        self.accepted = 0;
        self.status = 0;
        self.queues.iter_mut().for_each(Virtqueue::reset);
        self.config_interrupt = false;
        self.queue_interrupts = 0;
        self.gone = false;
    }

    /// Whether it is as if pulled out.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// What the driver did wrong since the device was made.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }

    fn order(&mut self, register: &'static str, rule: &'static str) {
        self.violations.add(Violation::Order { register, rule });
    }

    fn value(&mut self, register: &'static str, value: u32, rule: &'static str) {
        let violation = Violation::Value {
            register,
            value,
            rule,
        };
        self.violations.add(violation);
    }

    /// Whether the driver has accepted one of these features.
    pub(super) fn accepts(&self, features: u64) -> bool {
        self.accepted & features != 0
    }

    /// 32 of the features that are offered (2.2).
    pub fn offered_features(&self, select: u32) -> u32 {
        half(self.offered, select)
    }

    /// 32 of the features that the driver has written.
    pub fn accepted_features(&self, select: u32) -> u32 {
        half(self.accepted, select)
    }

    /// The driver accepts 32 of the features.
    pub fn accept_features(&mut self, select: u32, value: u32) {
        if self.status & status::FEATURES_OK != 0 {
            let rule = "features must not change behind FEATURES_OK (3.1.1)";
            return self.order("driver_feature", rule);
        }
        match set_half(&mut self.accepted, select, value) {
            true => {}
            false if value == 0 => {}
            false => self.value("driver_feature", value, "there are 64 features (2.2)"),
        }
    }

    /// The device status (2.1).
    pub fn status(&self) -> u8 {
        self.status
    }

    /// The driver writes the device status.
    pub fn set_status(&mut self, value: u8) {
        if value == 0 {
            return self.reset();
        }
        let unknown = value & !(status::OF_DRIVER | status::NEEDS_RESET);
        if unknown != 0 {
            self.violations.add(Violation::Reserved {
                register: "device_status",
                section: "2.1",
                bits: unknown.into(),
            });
        }
        if self.status & status::OF_DRIVER & !value != 0 {
            let rule = "no bit may be cleared but all, by a reset (2.1.1)";
            self.order("device_status", rule);
        }
        let all = self.status | value & status::OF_DRIVER;
        let new = all & !self.status;
        for (bit, before, rule) in [
            (
                status::DRIVER,
                status::ACKNOWLEDGE,
                "ACKNOWLEDGE comes before DRIVER (3.1.1)",
            ),
            (
                status::FEATURES_OK,
                status::DRIVER,
                "DRIVER comes before FEATURES_OK (3.1.1)",
            ),
        ] {
            if new & bit != 0 && all & before == 0 {
                self.order("device_status", rule);
            }
        }
        self.status = all & !(new & (status::FEATURES_OK | status::DRIVER_OK));
        if new & status::FEATURES_OK != 0 && self.features_will_do() {
            self.status |= status::FEATURES_OK;
        }
        if new & status::DRIVER_OK != 0 {
            if self.status & status::FEATURES_OK == 0 {
                let rule = "FEATURES_OK must read 1 before DRIVER_OK (3.1.1)";
                return self.order("device_status", rule);
            }
            self.status |= status::DRIVER_OK;
            self.device.start(self.accepted);
        }
    }

    /// 2.2.2: whether the device works with the features that the driver accepts.
    fn features_will_do(&mut self) -> bool {
        let more = self.accepted & !self.offered;
        let refusal = if more != 0 {
            Some("a driver must not accept what is not offered (2.2.1)")
        } else if self.accepted & feature::VERSION_1 == 0 {
            Some("a driver must accept VIRTIO_F_VERSION_1 (6.1)")
        } else {
            self.device.refuses(self.accepted)
        };
        if let Some(rule) = refusal {
            self.order("FEATURES_OK", rule);
        }
        refusal.is_none()
    }

    /// A number that is another one whenever the configuration may have changed (2.5).
    pub fn generation(&self) -> u8 {
        self.generation
    }

    /// Reads the configuration of the device. Where none is, zeros are read.
    pub fn read_config(&mut self, offset: usize, bytes: &mut [u8]) {
        bytes.fill(0);
        self.device.read_config(offset, bytes);
    }

    /// Writes the configuration of the device.
    pub fn write_config(&mut self, offset: usize, bytes: &[u8]) {
        if self.status & status::FEATURES_OK == 0 {
            self.order("device configuration", "FEATURES_OK must read 1 (3.1.1)");
        }
        if !self.device.write_config(offset, bytes, self.accepted) {
            self.violations.add(Violation::ReadOnly {
                register: "device configuration",
                section: "2.5",
                value: bytes.first().copied().unwrap_or(0).into(),
            });
        }
    }

    /// How many queues there are.
    pub fn queue_count(&self) -> u16 {
        self.queues.len() as u16
    }

    /// A queue by its number.
    pub fn queue(&self, number: u16) -> Option<&Virtqueue> {
        self.queues.get(usize::from(number))
    }

    /// A queue that the driver may set up now.
    fn unset_queue(&mut self, number: u16, register: &'static str) -> Option<&mut Virtqueue> {
        if self.status & status::FEATURES_OK == 0 {
            self.order(register, "FEATURES_OK must read 1 (3.1.1)");
        }
        match self.queue(number).map(|queue| queue.enabled) {
            Some(false) => return self.queues.get_mut(usize::from(number)),
            Some(true) => {
                let rule = "a queue that is enabled must be left alone (4.1.4.3.2)";
                self.order(register, rule);
            }
            None => self.value(register, number.into(), "there is no such queue (4.1.4.3)"),
        }
        None
    }

    /// The driver says how many descriptors a queue has.
    pub fn set_queue_size(&mut self, number: u16, size: u32) {
        const NAME: &str = "queue_size";
        let Some(queue) = self.unset_queue(number, NAME) else {
            return;
        };
        let most = u32::from(queue.size_max);
        // What it is not is seen when the queue is enabled.
        queue.size = size.min(u32::from(u16::MAX)) as u16;
        if size > most {
            self.value(
                NAME,
                size,
                "it must not be over what the device offers (4.1.4.3.2)",
            );
        } else if !size.is_power_of_two() {
            self.value(NAME, size, "it must be a power of two (2.7)");
        }
    }

    /// The driver says where an area of a queue lies: its lower half, or its upper.
    pub fn set_queue_address(&mut self, number: u16, area: Area, select: u32, value: u32) {
        if let Some(queue) = self.unset_queue(number, name(area)) {
            set_half(queue.address_mut(area), select, value);
        }
    }

    /// The driver enables a queue.
    pub fn enable_queue(&mut self, number: u16) {
        const NAME: &str = "queue_enable";
        let accepted = self.accepted;
        let Some(queue) = self.unset_queue(number, NAME) else {
            return;
        };
        queue.enable(accepted);
        let size = queue.size;
        if !size.is_power_of_two() || size > queue.size_max {
            queue.broken = true;
            self.value(NAME, 1, "its size must be one that it can have (2.7)");
        }
        for (area, align, rule) in [
            (Area::Descriptors, 16, "it must be a multiple of 16 (2.7)"),
            (Area::Driver, 2, "it must be a multiple of 2 (2.7)"),
            (Area::Device, 4, "it must be a multiple of 4 (2.7)"),
        ] {
            let queue = &mut self.queues[usize::from(number)];
            let address = *queue.address_mut(area);
            if !address.is_multiple_of(align) {
                queue.broken = true;
                self.value(name(area), address as u32, rule);
            }
        }
    }

    /// The driver stops a queue (4.2.2).
    pub fn disable_queue(&mut self, number: u16) {
        match self.queues.get_mut(usize::from(number)) {
            Some(queue) => {
                queue.reset();
                self.queue_interrupts &= !(1 << number);
            }
            None => self.value(
                "QueueReady",
                number.into(),
                "there is no such queue (4.2.2)",
            ),
        }
    }

    /// The driver resets a queue (2.6.1).
    pub fn reset_queue(&mut self, number: u16) {
        const NAME: &str = "queue_reset";
        if self.accepted & feature::RING_RESET == 0 {
            return self.order(NAME, "it takes VIRTIO_F_RING_RESET (2.6.1)");
        }
        match self.queues.get_mut(usize::from(number)) {
            Some(queue) if queue.enabled => {
                queue.reset();
                self.queue_interrupts &= !(1 << number);
            }
            Some(_) => self.order(NAME, "the queue must be enabled (2.6.1.1)"),
            None => self.value(NAME, number.into(), "there is no such queue (4.1.4.3)"),
        }
    }

    /// The driver notifies a queue (2.3), which is looked at when the device is polled.
    pub fn notify(&mut self, number: u16) {
        const NAME: &str = "queue_notify";
        if self.status & status::DRIVER_OK == 0 {
            self.order(NAME, "DRIVER_OK must be set before a notification (3.1.1)");
        }
        match self.queues.get_mut(usize::from(number)) {
            Some(queue) if queue.enabled => queue.notify(),
            Some(_) => self.order(NAME, "the queue must be enabled (4.1.4.3.2)"),
            None => self.value(NAME, number.into(), "there is no such queue (4.1.4.3)"),
        }
    }

    /// Whoever stands between the device and its driver has settled with it on these features, and
    /// all that comes before the first buffer (3.1.1); `false` if the device does not work so.
    pub(crate) fn settle(&mut self, features: u64) -> bool {
        self.reset();
        self.accepted = features;
        if !self.features_will_do() {
            return false;
        }
        self.status =
            status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK | status::DRIVER_OK;
        self.device.start(features);
        true
    }

    /// Starts a queue that is in use already, and was set up elsewhere.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn resume_queue(&mut self, number: u16, from: Resumed) -> Result<(), &'static str> {
        let accepted = self.accepted;
        let queue = self.queues.get_mut(usize::from(number));
        let queue = queue.ok_or("there is no such queue")?;
        if !from.size.is_power_of_two() || from.size > queue.size_max {
            return Err("the size of a queue must be one that it can have (2.7)");
        }
        for (address, align) in [(from.descriptors, 16), (from.available, 2), (from.used, 4)] {
            if !address.is_multiple_of(align) {
                return Err("the areas of a queue must be aligned (2.7)");
            }
        }
        let waiting = from.next.wrapping_sub(from.written);
        if waiting > from.size {
            return Err("a device must not have more chains than its queue has descriptors");
        }
        queue.resume(from, accepted);
        Ok(())
    }

    /// Stops a queue: the next chain of its driver's that the device would have taken.
    pub(crate) fn stop_queue(&mut self, number: u16) -> Option<u16> {
        let queue = self.queues.get_mut(usize::from(number))?;
        let next = queue.next();
        queue.reset();
        self.queue_interrupts &= !(1 << number);
        Some(next)
    }

    /// Whether memory is gone in which it is noted what the device has.
    pub(crate) fn is_lost(&self) -> bool {
        self.queues.iter().any(Virtqueue::is_lost)
    }

    /// All queues are looked at by the next poll, whether their driver notified them or not.
    pub(crate) fn look(&mut self) {
        for queue in self.queues.iter_mut().filter(|queue| queue.is_ready()) {
            queue.notify();
        }
    }

    /// Lets the device work.
    pub fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        if self.faults.strikes(Fault::Gone) {
            self.gone = true;
        }
        if self.gone || self.status & status::DRIVER_OK == 0 {
            return Progress::default();
        }
        let iotlb = Iotlb::new(dma);
        let mut work = Work {
            dma: &iotlb,
            now,
            features: self.accepted,
            violations: &mut self.violations,
            faults: &mut self.faults,
        };
        let progress = self.device.poll(&mut self.queues, &mut work);
        for (number, queue) in self.queues.iter_mut().enumerate() {
            if queue.take_interrupt() && !self.faults.strikes(Fault::LostInterrupt) {
                self.queue_interrupts |= 1 << number;
            }
        }
        let broken = self.queues.iter().any(Virtqueue::is_broken);
        if broken && self.status & status::NEEDS_RESET == 0 {
            // 2.1.2: the driver is told that the device cannot go on.
            self.status |= status::NEEDS_RESET;
            self.config_interrupt = true;
        }
        if self.device.take_config_change() {
            self.generation = self.generation.wrapping_add(1);
            self.config_interrupt = true;
        }
        progress
    }

    /// Queues whose driver is to be told that there is something, one bit each.
    pub fn take_queue_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.queue_interrupts)
    }

    /// Whether the driver is to be told that the configuration has changed.
    pub fn take_config_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.config_interrupt)
    }

    /// Numbers of the queues.
    pub(super) fn numbers(&self) -> Range<u16> {
        0..self.queue_count()
    }
}

impl Virtqueue {
    /// Where an area lies.
    pub(super) fn address(&self, area: Area) -> u64 {
        match area {
            Area::Descriptors => self.descriptors,
            Area::Driver => self.available,
            Area::Device => self.used,
        }
    }

    fn address_mut(&mut self, area: Area) -> &mut u64 {
        match area {
            Area::Descriptors => &mut self.descriptors,
            Area::Driver => &mut self.available,
            Area::Device => &mut self.used,
        }
    }
}

fn name(area: Area) -> &'static str {
    match area {
        Area::Descriptors => "queue_desc",
        Area::Driver => "queue_driver",
        Area::Device => "queue_device",
    }
}

/// The lower half of a number (0), the upper one (1), or nothing.
pub(super) fn half(value: u64, select: u32) -> u32 {
    match select {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

/// Changes one half of a number; `false` if it has no such half.
fn set_half(place: &mut u64, select: u32, value: u32) -> bool {
    let value = u64::from(value);
    match select {
        0 => *place = *place >> 32 << 32 | value,
        1 => *place = u64::from(*place as u32) | value << 32,
        _ => return false,
    }
    true
}
