//! An adapter that does what a test or a fuzzer says, be it true or not. It is no model of any: its
//! registers are memory, but for those whose bits are set or cleared by writing them, and it
//! knows of commands just enough to take them out and to answer them.

use super::init::Came;
use super::{Cache, Driver, Error, Recovery, State, Trouble, Watch};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Registers};

/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;
const BAR_BYTES: usize = 0x1100;
/// Ports that it has, one bit each, and where the registers of that with the disk begin.
const PORTS: u32 = 0b101;
const PORT: usize = 0x200;

/// HBA Capabilities.
pub const CAP: usize = 0x00;
/// Global HBA Control.
pub const GHC: usize = 0x04;
/// What the port says that happened.
pub const IS: usize = PORT + 0x10;
/// What the port does.
pub const CMD: usize = PORT + 0x18;
/// Status and error of the disk.
pub const TFD: usize = PORT + 0x20;
/// Of what kind the device is.
pub const SIG: usize = PORT + 0x24;
/// Whether there is a link.
pub const SSTS: usize = PORT + 0x28;
/// Whether the link is reset.
pub const SCTL: usize = PORT + 0x2c;
/// Errors of the link.
pub const SERR: usize = PORT + 0x30;
/// Queued commands that the disk has.
pub const SACT: usize = PORT + 0x34;
/// Commands that the adapter has.
pub const CI: usize = PORT + 0x38;

/// The link was lost, or the disk began anew: in PxSERR, and in PxIS.
const LINK_ERRORS: u32 = 1 << 26 | 1 << 16;
const LINK_INTERRUPTS: u32 = 1 << 22 | 1 << 6;

/// A command as its table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which slot has it.
    pub slot: usize,
    /// What is to be done.
    pub opcode: u8,
    /// The first block.
    pub block: u64,
    /// How many blocks, in whichever field its command has them.
    pub blocks: u32,
    /// Whether the header says that data go to the disk.
    pub is_write: bool,
    /// Address and length of its data.
    pub regions: Vec<(u64, usize)>,
}

/// The device's end.
pub struct Puppet {
    words: Vec<Cell<u32>>,
    view: View,
    /// Whether the link was being reset when it looked last, and slots that it took, one bit each.
    was_reset: Cell<bool>,
    taken: Cell<u32>,
    /// What IDENTIFY DEVICE finds.
    pub identity: RefCell<[u16; 256]>,
    /// Whether it was unplugged.
    is_gone: Cell<bool>,
    /// Whether it leaves resets alone.
    pub is_stuck: Cell<bool>,
    /// Whether it leaves IDENTIFY DEVICE alone.
    pub is_silent: Cell<bool>,
    /// Whether there is no disk.
    pub is_unplugged: Cell<bool>,
    /// Whether the disk does not get ready.
    pub is_busy: Cell<bool>,
    /// How often it was reset.
    pub resets: Cell<usize>,
    now: Cell<u64>,
}

/// What a disk of so many blocks of 512 bytes says of itself.
fn identity(blocks: u64) -> [u16; 256] {
    let mut words = [0; 256];
    words[49] = 0x0300;
    words[75] = 31;
    words[76] = 0x0100;
    words[83] = 0x6400;
    words[85] = 0x0020;
    words[87] = 0x4100;
    for n in 0..4 {
        words[100 + n] = (blocks >> (16 * n)) as u16;
    }
    words[169] = 1;
    words
}

impl Puppet {
    /// An adapter whose second port has a disk of so many blocks of 512 bytes.
    pub fn new(dma_bytes: usize, blocks: u64) -> (Rc<Self>, Mmio, DmaArena) {
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let puppet = Rc::new(Self {
            words: (0..BAR_BYTES / 4).map(|_| Cell::new(0)).collect(),
            view,
            was_reset: Cell::new(false),
            taken: Cell::new(0),
            identity: RefCell::new(identity(blocks)),
            is_gone: Cell::new(false),
            is_stuck: Cell::new(false),
            is_silent: Cell::new(false),
            is_unplugged: Cell::new(false),
            is_busy: Cell::new(false),
            resets: Cell::new(0),
            now: Cell::new(0),
        });
        // Addresses of 64 bits, a queue, 32 slots.
        puppet.set(CAP, 1 << 31 | 1 << 30 | 31 << 8);
        puppet.set(0x0c, PORTS);
        (puppet.clone(), Mmio::asked(puppet), arena)
    }

    /// The clock of its driver: at each look at it so many nanoseconds have passed, in which the
    /// device has done what it was asked to.
    pub fn clock(self: &Rc<Self>, nanoseconds: u64) -> impl Fn() -> u64 + use<> {
        let puppet = Rc::clone(self);
        move || {
            puppet.serve();
            puppet.sleep(nanoseconds);
            puppet.now.get()
        }
    }

    /// Time passes.
    pub fn sleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get().saturating_add(nanoseconds));
    }

    /// A register.
    pub fn get(&self, offset: usize) -> u32 {
        self.words.get(offset / 4).map_or(u32::MAX, Cell::get)
    }

    /// Changes a register behind the driver's back; outside of the BAR, nothing.
    pub fn set(&self, offset: usize, value: u32) {
        if let Some(word) = self.words.get(offset / 4)
            && !self.is_gone.get()
        {
            word.set(value);
        }
    }

    /// Unplugs the adapter.
    pub fn all_ones(&self) {
        self.is_gone.set(true);
        for word in &self.words {
            word.set(u32::MAX);
        }
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What a device does by itself: it follows resets, and answers IDENTIFY DEVICE.
    pub fn serve(&self) {
        if self.get(GHC) & 1 != 0 && !self.is_stuck.get() {
            (0x100..BAR_BYTES).step_by(4).for_each(|at| self.set(at, 0));
            self.set(GHC, 0);
            self.taken.set(0);
            self.resets.set(self.resets.get() + 1);
        }
        let is_reset = self.get(SCTL) & 0xf == 1;
        if self.was_reset.replace(is_reset) && !is_reset && !self.is_unplugged.get() {
            self.set(SSTS, 0x123);
            self.set(SIG, 0x0101);
            self.set(TFD, if self.is_busy.get() { 0x80 } else { 0x0150 });
            self.set(SERR, LINK_ERRORS);
            self.set(IS, LINK_INTERRUPTS);
        }
        let is_asked = self.get(CMD) & 1 != 0 && self.get(CI) & 1 != 0 && !self.is_silent.get();
        if is_asked && self.peek(0).is_ok_and(|taken| taken.opcode == 0xec) {
            // Where there is no memory, it puts nothing.
            let _ = self.identify();
        }
    }

    fn identify(&self) -> Result<(), Outside> {
        let Taken { regions, .. } = self.peek(0)?;
        let words = self.identity.borrow();
        let bytes: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (at, length) in regions.into_iter().take(1) {
            self.view.write(at, &bytes[..length.min(512)])?;
        }
        self.set(CI, self.get(CI) & !1);
        Ok(())
    }

    /// The command of a slot.
    ///
    /// # Errors
    /// If it is not in DMA memory.
    pub fn peek(&self, slot: usize) -> Result<Taken, Outside> {
        let list = u64::from(self.get(PORT)) | u64::from(self.get(PORT + 4)) << 32;
        let header = list.wrapping_add(32 * slot as u64);
        let (first, table) = (
            self.view.load(header)?,
            self.view.load(header.wrapping_add(8))?,
        );
        let mut frame = [0; 16];
        self.view.read(table, &mut frame)?;
        let [low, high] = [4, 8].map(|at| {
            let byte = |n: usize| u64::from(frame[at + n]);
            byte(0) | byte(1) << 8 | byte(2) << 16
        });
        let feature = u32::from(frame[3]) | u32::from(frame[11]) << 8;
        let count = u32::from(frame[12]) | u32::from(frame[13]) << 8;
        let mut regions = Vec::new();
        for index in 0..(first >> 16 & 0xffff).min(64) {
            let at = table.wrapping_add(0x80 + 16 * index);
            let length = self.view.load(at.wrapping_add(8))? >> 32 & 0x3f_ffff;
            regions.push((self.view.load(at)?, length as usize + 1));
        }
        Ok(Taken {
            slot,
            opcode: frame[2],
            block: low | high << 24,
            blocks: if matches!(frame[2], 0x60 | 0x61) {
                feature
            } else {
                count
            },
            is_write: first & 1 << 6 != 0,
            regions,
        })
    }

    /// The next command that it has not taken yet.
    ///
    /// # Errors
    /// If it is not in DMA memory.
    pub fn take(&self) -> Result<Option<Taken>, Outside> {
        let slots = self.get(CI) | self.get(SACT);
        self.taken.set(self.taken.get() & slots);
        let new = slots & !self.taken.get();
        if new == 0 || self.get(CMD) & 1 == 0 || self.is_gone.get() {
            return Ok(None);
        }
        let slot = new.trailing_zeros();
        self.taken.set(self.taken.get() | 1 << slot);
        self.peek(slot as usize).map(Some)
    }

    /// Answers a command, as a device that behaves.
    pub fn answer(&self, slot: usize) {
        let rest = !(1 << (slot % 32));
        self.set(CI, self.get(CI) & rest);
        self.set(SACT, self.get(SACT) & rest);
        self.taken.set(self.taken.get() & rest);
    }

    /// Whether the port carries out commands, and which it has, one bit each.
    pub fn slots(&self) -> u32 {
        match self.get(CMD) & 1 {
            0 => 0,
            _ => self.get(CI) | self.get(SACT),
        }
    }

    /// Something else stops the port and starts it again if `is_started`, or leaves it: what it had
    /// is forgotten.
    pub fn reset_port(&self, is_started: bool) {
        for offset in [CI, SACT, IS, SERR, SCTL, CMD] {
            self.set(offset, 0);
        }
        self.taken.set(0);
        self.set(CMD, u32::from(is_started));
    }

    /// The link is lost, and back: the disk begins anew, without what it had.
    pub fn bounce(&self) {
        self.set(SERR, self.get(SERR) | LINK_ERRORS);
        self.set(IS, self.get(IS) | LINK_INTERRUPTS);
        self.set(TFD, 0x0150);
        self.set(CI, 0);
        self.set(SACT, 0);
        self.taken.set(0);
    }

    /// Says that the disk has a fault, and not that a command failed: the port goes on.
    pub fn fault(&self) {
        self.set(TFD, 0x0070);
    }

    /// Says that a command failed: the port stands still.
    pub fn fail(&self, error: u8) {
        self.set(TFD, u32::from(error) << 8 | 0x41);
        self.set(IS, 1 << 30);
    }
}

impl Registers for Puppet {
    fn len(&self) -> usize {
        BAR_BYTES
    }

    fn read32(&self, offset: usize) -> u32 {
        self.get(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        let value = match offset {
            // A port that does not run takes nothing.
            SACT | CI if self.get(CMD) & 1 == 0 => return,
            SACT | CI => self.get(offset) | value,
            // Two bits are PxSERR's, and cleared there.
            IS if self.get(SERR) & LINK_ERRORS != 0 => self.get(IS) & (!value | LINK_INTERRUPTS),
            IS | SERR => self.get(offset) & !value,
            _ => value,
        };
        self.set(offset, value);
        match offset {
            SERR if value & LINK_ERRORS == 0 => self.set(IS, self.get(IS) & !LINK_INTERRUPTS),
            // It forgets what it had (3.3.13, 3.3.14).
            CMD if value & 1 == 0 => [CI, SACT].into_iter().for_each(|at| self.set(at, 0)),
            _ => {}
        }
    }

    /// The driver has none of these.
    fn read_narrow(&self, _offset: usize, _bytes: usize) -> u32 {
        u32::MAX
    }

    fn write_narrow(&self, _offset: usize, _bytes: usize, _value: u32) {}
}

impl Driver {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self) -> Result<(), Error> {
        self.trouble = Trouble::default();
        self.cache = Cache::default();
        self.recovery = Recovery::default();
        self.watch = Watch::default();
        self.suspects.clear();
        (self.is_trying, self.spares, self.failed) = (false, false, None);
        self.state = State::Rising;
        self.ascent.begin(&self.bar, (self.clock)());
        loop {
            let now = (self.clock)();
            if let Came::Up(disk) = self.ascent.step(&self.bar, &mut self.slots, now)? {
                self.disk = disk;
                self.limits = super::limits(&disk);
                self.depth = super::depth(&self.capabilities, &disk);
                self.state = State::Running;
                return Ok(());
            }
        }
    }
}
