//! A device that does what a test or a benchmark says, be it true or not. It is no model of any: it
//! keeps what the driver writes into its registers, and knows of queues just enough to take buffers
//! out and to give them back.

use super::pci::Pci;
use super::transport::Window;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Registers};

/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;
/// What a register reads where there is no device.
const ALL_ONES: u32 = u32::MAX;
/// Queues of a device.
const QUEUES: usize = 3;
/// What a doorbell holds that was not rung.
const QUIET: u32 = 0xffff;
/// Most buffers of a chain that it follows.
const CHAIN_MAX: usize = 64;

// Where the structures lie in its BAR on PCI.
const BAR: usize = 4;
const BAR_BYTES: usize = 0x3000;
const DEVICE: usize = 0x2000;
const MULTIPLIER: usize = 4;
/// Where doorbells and its own configuration lie on MMIO.
const MMIO_NOTIFY: usize = 0x50;
const MMIO_CONFIG: usize = 0x100;
const MMIO_BYTES: usize = 0x200;

/// A queue, as the driver has set it up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// Descriptors.
    pub size: u16,
    /// Addresses of the descriptor table and both rings: available, used.
    pub places: [u64; 3],
    /// Whether it is in use.
    pub enabled: bool,
    /// The MSI-X vector.
    pub vector: u16,
    /// Buffers that the puppet has taken out.
    fetched: u16,
    /// Buffers that it has given back.
    used: u16,
}

/// A buffer of a chain: its address, its bytes, and whether the device writes it.
pub type Buffer = (u64, u32, bool);

/// What the driver sees of the device, and what the test says of it.
pub struct Device {
    mmio: bool,
    kind: u16,
    /// Most descriptors of a queue.
    pub size_max: Cell<u16>,
    /// Features that it offers.
    pub offered: Cell<u64>,
    /// Those that the driver has accepted.
    pub accepted: Cell<u64>,
    /// The status, as it reads.
    pub status: Cell<u8>,
    /// Whether it takes no features.
    pub refuses: Cell<bool>,
    /// Whether a reset does not end.
    pub hangs: Cell<bool>,
    /// Whether all registers read all ones.
    pub gone: Cell<bool>,
    /// All that was written to the status since the last reset, that one included.
    pub statuses: RefCell<Vec<u8>>,
    /// Accesses of registers on MMIO, but for doorbells.
    pub accesses: Cell<usize>,
    /// Its own configuration.
    pub config: RefCell<Vec<u8>>,
    /// The number of that.
    pub generation: Cell<u8>,
    /// Its queues.
    pub queues: RefCell<[Queue; QUEUES]>,
    /// Their doorbells, in the other order.
    bells: &'static [AtomicU32; QUEUES],
    selected: Cell<[u32; 3]>,
}

/// The device's end.
pub struct Puppet {
    device: Rc<Device>,
    view: View,
}

/// Features that are offered if nobody says otherwise: version 1, the platform's addresses, and
/// event indices.
pub const FEATURES: u64 = 1 << 32 | 1 << 33 | 1 << 29;

impl Puppet {
    fn new(kind: u16, mmio: bool, config: &[u8], dma_bytes: usize) -> (Self, DmaArena) {
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let device = Device {
            mmio,
            kind,
            size_max: Cell::new(1024),
            offered: Cell::new(FEATURES),
            accepted: Cell::new(0),
            status: Cell::new(0),
            refuses: Cell::new(false),
            hangs: Cell::new(false),
            gone: Cell::new(false),
            statuses: RefCell::default(),
            accesses: Cell::new(0),
            config: RefCell::new(config.to_vec()),
            generation: Cell::new(0),
            queues: RefCell::default(),
            bells: Box::leak(Box::new([const { AtomicU32::new(QUIET) }; QUEUES])),
            selected: Cell::new([0; 3]),
        };
        let device = Rc::new(device);
        (Self { device, view }, arena)
    }

    /// A device with this configuration behind PCI; so many bytes of DMA memory.
    pub fn pci(kind: u16, config: &[u8], dma_bytes: usize) -> (Self, Pci, DmaArena) {
        let (puppet, arena) = Self::new(kind, false, config, dma_bytes);
        let transport = puppet.transport();
        (puppet, transport, arena)
    }

    /// The same with memory-mapped registers.
    pub fn mmio(kind: u16, config: &[u8], dma_bytes: usize) -> (Self, Mmio, DmaArena) {
        let (puppet, arena) = Self::new(kind, true, config, dma_bytes);
        let registers = Mmio::asked(puppet.device.clone());
        (puppet, registers, arena)
    }

    /// The structures of a device behind PCI.
    pub fn transport(&self) -> Pci {
        let bar = || Mmio::asked(self.device.clone());
        Pci {
            common: Window::new(bar(), BAR, 0, 0x38),
            // In memory, so that what is counted is what a mapped register costs.
            notify: Window::new(Mmio::shared(self.device.bells), BAR, 0, QUEUES * MULTIPLIER),
            notify_multiplier: MULTIPLIER,
            device: Window::new(bar(), BAR, DEVICE, 0x1000),
        }
    }

    /// What the driver sees of it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// A clock of which a microsecond passes at each look.
    pub fn clock(&self) -> impl Fn() -> u64 + use<> {
        let now = Cell::new(0);
        move || {
            now.set(now.get() + 1_000);
            now.get()
        }
    }

    fn queue(&self, queue: usize) -> Queue {
        self.device.queues.borrow()[queue]
    }

    fn short(&self, address: u64) -> Result<u16, Outside> {
        let mut bytes = [0; 2];
        self.view.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// How many buffers the driver has made available that were not taken out.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn available(&self, queue: usize) -> Result<usize, Outside> {
        let Queue {
            places, fetched, ..
        } = self.queue(queue);
        let index = self.short(places[1].wrapping_add(2))?;
        Ok(index.wrapping_sub(fetched).into())
    }

    /// Takes the next chain out: its first descriptor, and its buffers.
    ///
    /// # Errors
    /// If any of it is not in DMA memory.
    pub fn fetch(&self, number: usize) -> Result<Option<(u16, Vec<Buffer>)>, Outside> {
        if self.available(number)? == 0 {
            return Ok(None);
        }
        let queue = self.queue(number);
        let slot = u64::from(queue.fetched % queue.size);
        let head = self.short(queue.places[1].wrapping_add(4 + 2 * slot))?;
        self.device.queues.borrow_mut()[number].fetched = queue.fetched.wrapping_add(1);
        let mut buffers = vec![];
        let mut descriptor = head;
        for _ in 0..CHAIN_MAX {
            let place = queue.places[0].wrapping_add(16 * u64::from(descriptor));
            let (address, word) = (self.view.load(place)?, self.view.load(place + 8)?);
            buffers.push((address, word as u32, word >> 33 & 1 != 0));
            if word >> 32 & 1 == 0 {
                break;
            }
            descriptor = (word >> 48) as u16;
        }
        Ok(Some((head, buffers)))
    }

    /// Gives a chain back, of whose buffers so many bytes were written.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn give_back(&self, queue: usize, head: u16, bytes: u32) -> Result<(), Outside> {
        self.scribble(queue, 0, head.into(), bytes)?;
        let used = self.queue(queue).used.wrapping_add(1);
        self.set_used(queue, used)
    }

    /// Writes an element of the ring of used buffers, `ahead` of the next one, whatever it is.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn scribble(&self, queue: usize, ahead: u16, id: u32, bytes: u32) -> Result<(), Outside> {
        let Queue {
            places, used, size, ..
        } = self.queue(queue);
        let slot = u64::from(used.wrapping_add(ahead) % size.max(1));
        let element = u64::from(id) | u64::from(bytes) << 32;
        let place = places[2].wrapping_add(4 + 8 * slot);
        self.view.write(place, &element.to_le_bytes())
    }

    /// Writes the index of the ring of used buffers, whatever it is.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn set_used(&self, queue: usize, index: u16) -> Result<(), Outside> {
        let place = self.queue(queue).places[2].wrapping_add(2);
        self.view.write(place, &index.to_le_bytes())?;
        self.device.queues.borrow_mut()[queue].used = index;
        Ok(())
    }

    /// The index of the ring of used buffers.
    pub fn used(&self, queue: usize) -> u16 {
        self.queue(queue).used
    }

    /// Says that it wants to be told of the buffer with this index, and not of others.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn set_event(&self, queue: usize, index: u16) -> Result<(), Outside> {
        let Queue { places, size, .. } = self.queue(queue);
        let place = places[2].wrapping_add(4 + 8 * u64::from(size));
        self.view.write(place, &index.to_le_bytes())
    }

    /// Writes the flags of the ring of used buffers.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn set_flags(&self, queue: usize, flags: u16) -> Result<(), Outside> {
        let place = self.queue(queue).places[2];
        self.view.write(place, &flags.to_le_bytes())
    }

    /// What the driver says of interrupts: its flags, and the index at which it wants one.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn wants(&self, queue: usize) -> Result<(u16, u16), Outside> {
        let Queue { places, size, .. } = self.queue(queue);
        let event = places[1].wrapping_add(4 + 2 * u64::from(size));
        Ok((self.short(places[1])?, self.short(event)?))
    }
}

impl Device {
    /// Whether the driver has rung the bell of a queue since this was last asked.
    pub fn has_rung(&self, queue: usize) -> bool {
        let bell = &self.bells[QUEUES - 1 - queue];
        bell.swap(QUIET, Ordering::Relaxed) & 0xffff == queue as u32
    }

    fn set_status(&self, status: u8) {
        if status == 0 {
            self.statuses.borrow_mut().clear();
            self.accepted.set(0);
            *self.queues.borrow_mut() = Default::default();
        }
        self.statuses.borrow_mut().push(status);
        let refused = if self.refuses.get() { 1 << 3 } else { 0 };
        let stays = self.hangs.get() && status == 0;
        let found = if stays {
            self.status.get()
        } else {
            status & !refused
        };
        self.status.set(found);
    }

    fn ring(&self, queue: u32) {
        if let Some(bell) = (QUEUES - 1).checked_sub(queue as usize) {
            self.bells[bell].store(queue, Ordering::Relaxed);
        }
    }

    /// Half of the features offered.
    fn offer(&self) -> u32 {
        match self.selected.get()[0] {
            0 => self.offered.get() as u32,
            1 => (self.offered.get() >> 32) as u32,
            _ => 0,
        }
    }

    /// The driver accepts half of the features.
    fn accept(&self, half: u32) {
        let accepted = self.accepted.get();
        self.accepted.set(match self.selected.get()[1] {
            0 => accepted & !0xffff_ffff | u64::from(half),
            _ => accepted & 0xffff_ffff | u64::from(half) << 32,
        });
    }

    fn select(&self, which: usize, value: u32) {
        let mut selected = self.selected.get();
        selected[which] = value;
        self.selected.set(selected);
    }

    /// Changes the queue that is selected.
    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let queue = self.selected.get()[2] as usize;
        if let Some(queue) = self.queues.borrow_mut().get_mut(queue) {
            change(queue);
        }
    }

    fn selected(&self) -> Queue {
        let queue = self.selected.get()[2] as usize;
        self.queues.borrow().get(queue).copied().unwrap_or_default()
    }

    /// Half of the address of a part of the queue.
    fn set_place(&self, part: usize, high: bool, half: u32) {
        self.change(|queue| {
            let place = &mut queue.places[part];
            *place = match high {
                false => *place & !0xffff_ffff | u64::from(half),
                true => *place & 0xffff_ffff | u64::from(half) << 32,
            };
        });
    }

    fn read_config(&self, offset: usize, bytes: usize) -> u32 {
        let config = self.config.borrow();
        let field = config.get(offset..).and_then(|config| config.get(..bytes));
        let field = field.map(|field| {
            let bytes = field.iter().rev();
            bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
        });
        field.unwrap_or(ALL_ONES)
    }

    fn read_pci(&self, offset: usize, bytes: usize) -> u32 {
        match (offset, bytes) {
            (0x04, 4) => self.offer(),
            (0x12, 2) => QUEUES as u32,
            (0x14, 1) => self.status.get().into(),
            (0x15, 1) => self.generation.get().into(),
            (0x18, 2) => self.size_max.get().into(),
            // Doorbells lie in another order than queues.
            (0x1e, 2) => QUEUES as u32 - 1 - self.selected.get()[2],
            (DEVICE.., _) => self.read_config(offset - DEVICE, bytes),
            _ => ALL_ONES,
        }
    }

    fn write_pci(&self, offset: usize, bytes: usize, value: u32) {
        match (offset, bytes) {
            (0x00, 4) => self.select(0, value),
            (0x08, 4) => self.select(1, value),
            (0x0c, 4) => self.accept(value),
            (0x14, 1) => self.set_status(value as u8),
            (0x16, 2) => self.select(2, value),
            (0x18, 2) => self.change(|queue| queue.size = value as u16),
            (0x1a, 2) => self.change(|queue| queue.vector = value as u16),
            (0x1c, 2) => self.change(|queue| queue.enabled = value == 1),
            (0x20..0x38, 4) => {
                let word = (offset - 0x20) / 4;
                self.set_place(word / 2, word % 2 == 1, value);
            }
            _ => {}
        }
    }

    fn read_mmio(&self, offset: usize, bytes: usize) -> u32 {
        self.accesses.set(self.accesses.get() + 1);
        match (offset, bytes) {
            (0x000, 4) => u32::from_le_bytes(*b"virt"),
            (0x004, 4) => 2,
            (0x008, 4) => self.kind.into(),
            (0x010, 4) => self.offer(),
            (0x034, 4) => self.size_max.get().into(),
            (0x044, 4) => self.selected().enabled.into(),
            (0x070, 4) => self.status.get().into(),
            (0x0fc, 4) => self.generation.get().into(),
            (MMIO_CONFIG.., _) => self.read_config(offset - MMIO_CONFIG, bytes),
            _ => ALL_ONES,
        }
    }

    fn write_mmio(&self, offset: usize, bytes: usize, value: u32) {
        if offset != MMIO_NOTIFY {
            self.accesses.set(self.accesses.get() + 1);
        }
        match (offset, bytes) {
            (0x014, 4) => self.select(0, value),
            (0x024, 4) => self.select(1, value),
            (0x020, 4) => self.accept(value),
            (0x030, 4) => self.select(2, value),
            (0x038, 4) => self.change(|queue| queue.size = value as u16),
            (0x044, 4) => self.change(|queue| queue.enabled = value == 1),
            (MMIO_NOTIFY, 4) => self.ring(value),
            (0x070, 4) => self.set_status(value as u8),
            (0x080..0x0b0, 4) => {
                let word = offset % 16 / 4;
                self.set_place((offset - 0x80) / 16, word == 1, value);
            }
            _ => {}
        }
    }
}

impl Registers for Device {
    fn len(&self) -> usize {
        if self.mmio { MMIO_BYTES } else { BAR_BYTES }
    }

    fn read32(&self, offset: usize) -> u32 {
        self.read_narrow(offset, 4)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.write_narrow(offset, 4, value);
    }

    fn read_narrow(&self, offset: usize, bytes: usize) -> u32 {
        match () {
            () if self.gone.get() => ALL_ONES,
            () if self.mmio => self.read_mmio(offset, bytes),
            () => self.read_pci(offset, bytes),
        }
    }

    fn write_narrow(&self, offset: usize, bytes: usize, value: u32) {
        match () {
            () if self.gone.get() => {}
            () if self.mmio => self.write_mmio(offset, bytes, value),
            () => self.write_pci(offset, bytes, value),
        }
    }
}
