//! A device that does what a test, a fuzzer or a benchmark says, be it true or not. It is no model
//! of any: its registers are memory, and it knows of queues just enough to take commands out and to
//! answer them.

use super::command::COMMAND_WORDS;
use super::init::Came;
use super::queue::ENTRIES;
use super::registers::*;
use super::watch::Watch;
use super::{Cache, Driver, Error, Recovery, State, Trouble};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Register};

/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;
const BAR_BYTES: usize = 0x2000;
const PAGE: usize = 4096;
/// Queues that it knows: the admin queues, and one for I/O.
const QUEUES: usize = 2;
/// Bytes of entries.
const SUBMISSION_BYTES: usize = 64;
const COMPLETION_BYTES: usize = 16;
/// CAP as it is unless a test says otherwise: 1024 entries, ready in half a second, the NVM Command
/// Set.
pub const CAPABILITIES: u64 = 1023 | 1 << 24 | 1 << 37;

/// Where a queue has got to.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// Addresses of submissions and completions.
    rings: [u64; 2],
    fetched: usize,
    posted: usize,
}

/// The device's end.
pub struct Puppet {
    words: &'static [AtomicU32],
    view: View,
    queues: RefCell<[Queue; QUEUES]>,
    enabled: Cell<bool>,
    /// What Identify finds of the controller, of its namespaces, and of each of them.
    pub pages: RefCell<[Vec<u8>; 3]>,
    /// The opcode of an admin command that it refuses, and the status by which it does.
    pub refuses: Cell<Option<(u8, u16)>>,
    /// Whether it leaves admin commands alone.
    pub is_silent: Cell<bool>,
    /// Whether CSTS.RDY does not follow CC.EN.
    pub is_stuck: Cell<bool>,
    /// Admin commands that it was given.
    pub asked: RefCell<Vec<[u64; COMMAND_WORDS]>>,
    /// How often it was enabled.
    pub starts: Cell<usize>,
    now: Cell<u64>,
}

impl Puppet {
    /// A device with one namespace of so many blocks of 512 bytes.
    pub fn new(dma_bytes: usize, blocks: u64) -> (Rc<Self>, Mmio, DmaArena) {
        let words: Vec<_> = (0..BAR_BYTES / 4).map(|_| AtomicU32::new(0)).collect();
        let words: &'static [AtomicU32] = Box::leak(words.into_boxed_slice());
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let mut controller = vec![0; PAGE];
        controller[77] = 7;
        controller[512..514].copy_from_slice(&[0x66, 0x44]);
        controller[520] = 1 << 2 | 1 << 3;
        controller[525] = 1;
        let mut list = vec![0; PAGE];
        list[0] = 1;
        let mut namespace = vec![0; PAGE];
        namespace[..8].copy_from_slice(&blocks.to_le_bytes());
        namespace[130] = 9;
        let puppet = Self {
            words,
            view,
            queues: RefCell::default(),
            enabled: Cell::new(false),
            pages: RefCell::new([controller, list, namespace]),
            refuses: Cell::new(None),
            is_silent: Cell::new(false),
            is_stuck: Cell::new(false),
            asked: RefCell::default(),
            starts: Cell::new(0),
            now: Cell::new(0),
        };
        puppet.set_capabilities(CAPABILITIES);
        (Rc::new(puppet), Mmio::shared(words), arena)
    }

    /// The clock of its driver: at each look at it so many nanoseconds have passed, in which the
    /// device has done what it was asked to.
    pub fn clock(self: &Rc<Self>, nanoseconds: u64) -> impl Fn() -> u64 + use<> {
        let puppet = Rc::clone(self);
        move || {
            puppet.serve();
            puppet.now.set(puppet.now.get() + nanoseconds);
            puppet.now.get()
        }
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Time passes.
    pub fn sleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }

    /// A register.
    pub fn get(&self, register: Register) -> u32 {
        self.words[register.offset() / 4].load(Ordering::Relaxed)
    }

    /// Changes a register behind the driver's back; outside of the BAR, nothing.
    pub fn set(&self, register: Register, value: u32) {
        if let Some(word) = self.words.get(register.offset() / 4) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Changes CAP.
    pub fn set_capabilities(&self, value: u64) {
        self.set(CAP[0], value as u32);
        self.set(CAP[1], (value >> 32) as u32);
    }

    /// Changes CSTS.
    pub fn set_status(&self, value: u32) {
        self.set(CSTS, value);
    }

    /// Something else resets the device: it forgets its queues, and its configuration.
    pub fn reset_behind(&self) {
        self.set(CC, 0);
        self.serve();
    }

    /// Unplugs the device.
    pub fn all_ones(&self) {
        for word in self.words {
            word.store(ALL_ONES, Ordering::Relaxed);
        }
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What a device does by itself: it follows CC.EN, and answers admin commands.
    pub fn serve(&self) {
        let enabled = self.get(CC) & CC_ENABLE != 0;
        if !self.is_stuck.get() && enabled != self.enabled.replace(enabled) {
            self.set_status(u32::from(enabled));
            *self.queues.borrow_mut() = Default::default();
            (0..2 * QUEUES).for_each(|bell| self.set(DOORBELLS.nth(bell, 4), 0));
            self.starts.set(self.starts.get() + usize::from(enabled));
            let both = |halves: [Register; 2]| {
                let [low, high] = halves.map(|half| u64::from(self.get(half)));
                low | high << 32
            };
            self.queues.borrow_mut()[0].rings = [both(ASQ), both(ACQ)];
        }
        if self.enabled.get() && !self.is_silent.get() {
            // Where there are no queues, the puppet finds none.
            let _ = self.answer_admin();
        }
    }

    fn answer_admin(&self) -> Result<(), Outside> {
        while let Some(words) = self.fetch(0)? {
            self.asked.borrow_mut().push(words);
            let (opcode, id) = (words[0] as u8, (words[0] >> 16) as u16);
            let mut queues = self.queues.borrow_mut();
            match opcode {
                0x01 => queues[1].rings[0] = words[3],
                0x05 => queues[1].rings[1] = words[3],
                0x06 => {
                    let which = match words[5] as u8 {
                        1 => 0,
                        2 => 1,
                        _ => 2,
                    };
                    self.view.write(words[3], &self.pages.borrow()[which])?;
                }
                _ => {}
            }
            drop(queues);
            let refused = self.refuses.get().filter(|(which, _)| *which == opcode);
            self.post(0, id, refused.map_or(0, |(_, status)| status))?;
        }
        Ok(())
    }

    /// The driver's tail.
    fn tail(&self, queue: usize) -> usize {
        self.get(DOORBELLS.nth(2 * queue, 4)) as usize % ENTRIES
    }

    /// The next command of a queue.
    ///
    /// # Errors
    /// If the queue is not in DMA memory.
    pub fn fetch(&self, queue: usize) -> Result<Option<[u64; COMMAND_WORDS]>, Outside> {
        let Queue { rings, fetched, .. } = self.queues.borrow()[queue];
        if fetched % ENTRIES == self.tail(queue) {
            return Ok(None);
        }
        let at = rings[0].wrapping_add((fetched % ENTRIES * SUBMISSION_BYTES) as u64);
        let mut words = [0; COMMAND_WORDS];
        for (index, word) in (0..).zip(&mut words) {
            *word = self.view.load(at.wrapping_add(8 * index))?;
        }
        self.queues.borrow_mut()[queue].fetched += 1;
        Ok(Some(words))
    }

    /// Answers a command, as a device that behaves.
    ///
    /// # Errors
    /// If the queue is not in DMA memory.
    pub fn post(&self, queue: usize, id: u16, status: u16) -> Result<(), Outside> {
        let head = self.queues.borrow()[queue].fetched % ENTRIES;
        self.post_as(queue, head as u16, queue as u16, id, status)
    }

    /// Answers with any head and submission queue.
    ///
    /// # Errors
    /// If the queue is not in DMA memory.
    pub fn post_as(
        &self,
        queue: usize,
        head: u16,
        submissions: u16,
        id: u16,
        status: u16,
    ) -> Result<(), Outside> {
        let posted = self.queues.borrow()[queue].posted;
        let phase = u64::from(posted & ENTRIES == 0);
        let of_id = u64::from(id) | phase << 16 | u64::from(status) << 17;
        let word = u64::from(head) | u64::from(submissions) << 16 | of_id << 32;
        self.scribble(queue, 0, word)?;
        self.queues.borrow_mut()[queue].posted += 1;
        Ok(())
    }

    /// Leaves an entry of the completion queue as it is.
    pub fn skip(&self, queue: usize) {
        self.queues.borrow_mut()[queue].posted += 1;
    }

    /// Writes the second word of a completion that lies so many behind the next one.
    ///
    /// # Errors
    /// If the queue is not in DMA memory.
    pub fn scribble(&self, queue: usize, further: usize, word: u64) -> Result<(), Outside> {
        let Queue { rings, posted, .. } = self.queues.borrow()[queue];
        let index = posted.wrapping_add(further) % ENTRIES;
        let at = rings[1].wrapping_add((index * COMPLETION_BYTES) as u64);
        self.view.store(at.wrapping_add(8), word)
    }

    /// Where the data of a command lie, in pieces of a page at most, as its pages say.
    ///
    /// # Errors
    /// If a list is not in DMA memory.
    pub fn pieces(
        &self,
        words: &[u64; COMMAND_WORDS],
        bytes: usize,
    ) -> Result<Vec<(u64, usize)>, Outside> {
        let [first, second] = [words[3], words[4]];
        let in_first = bytes.min(PAGE - first as usize % PAGE);
        let mut pieces = Vec::from([(first, in_first)]);
        let mut left = bytes - in_first;
        let is_list = left > PAGE;
        let mut entry = second;
        while left > 0 {
            let at = match is_list {
                true => self.view.load(entry)?,
                false => second,
            };
            pieces.push((at, left.min(PAGE)));
            left -= left.min(PAGE);
            entry = entry.wrapping_add(8);
        }
        Ok(pieces)
    }
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
        self.state = State::Rising;
        self.ascent.begin(&self.bar, (self.clock)());
        loop {
            let now = (self.clock)();
            let Self {
                ascent,
                bar,
                admin,
                io,
                ..
            } = self;
            if let Came::Up(controller, namespace) = ascent.step(bar, admin, io, now)? {
                self.limits = super::limits(&controller, &namespace);
                (self.controller, self.namespace) = (controller, namespace);
                self.state = State::Running;
                return Ok(());
            }
        }
    }
}
