//! A pair of queues (Base 2.0, 3.3): submissions, completions, and which commands the device has.
//!
//! What the device has is known here alone: what it says is compared with it, and what cannot be is
//! a [`Lie`].

use super::command::{COMMAND_WORDS, COMPLETION_WORDS, Command, Completion, PHASE, Status};
use super::error::Lie;
use super::registers::DOORBELLS;
use hw::{DmaArena, DmaRing, Done, Iova, Mmio, OutOfDma, Register};

/// Entries of each queue.
pub const ENTRIES: usize = 64;
/// Commands of a queue that the device has at most: half of what fits, so that neither queue can
/// overflow, whatever the device says of its head.
pub const SLOTS: usize = 32;

/// Identifiers have the slot in their low bits, and in those above how often it was used. The
/// highest bit stays 0: FFFFh is none (3.3.3.1).
const SLOT_BITS: u32 = SLOTS.trailing_zeros();
const ID_MASK: u16 = 0x7fff;

/// A command that was answered.
#[derive(Debug)]
pub struct Answer {
    /// The device's word.
    pub done: Done,
    /// The slot, free again.
    pub slot: usize,
    /// What became of it.
    pub status: Status,
}

/// A pair of queues of the same number.
pub struct Pair {
    number: u16,
    submissions: DmaRing<COMMAND_WORDS, ENTRIES>,
    completions: DmaRing<COMPLETION_WORDS, ENTRIES>,
    tail_doorbell: Register,
    head_doorbell: Register,
    /// Submissions that were written, and those that the device was told of; both only grow.
    tail: usize,
    rung: usize,
    /// Submissions that the device says to have taken.
    taken: usize,
    /// Completions that were seen, and those that the device was told of.
    head: usize,
    told: usize,
    /// Identifier of the last command of each slot.
    ids: [u16; SLOTS],
    /// Slots whose commands the device has, one bit each, and how many.
    busy: u32,
    busy_count: usize,
}

impl Pair {
    /// Queues that no device has yet.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena, number: u16) -> Result<Self, OutOfDma> {
        let mut ids = [0; SLOTS];
        for (slot, id) in (0..).zip(&mut ids) {
            *id = slot;
        }
        Ok(Self {
            number,
            submissions: arena.ring()?,
            completions: arena.ring()?,
            tail_doorbell: DOORBELLS,
            head_doorbell: DOORBELLS,
            tail: 0,
            rung: 0,
            taken: 0,
            head: 0,
            told: 0,
            ids,
            busy: 0,
            busy_count: 0,
        })
    }

    /// Makes them what a device finds that has been reset, and whose doorbells lie so many bytes
    /// apart.
    pub fn clear(&mut self, stride: usize) {
        let first = 2 * usize::from(self.number);
        self.tail_doorbell = DOORBELLS.nth(first, stride);
        self.head_doorbell = DOORBELLS.nth(first + 1, stride);
        (self.tail, self.rung, self.taken) = (0, 0, 0);
        (self.head, self.told) = (0, 0);
        (self.busy, self.busy_count) = (0, 0);
        // No phase tag is that of the first pass (3.3.3.2.2).
        for index in 0..ENTRIES {
            for word in 0..COMPLETION_WORDS {
                self.completions.store(index, word, 0);
            }
        }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Where the device finds both: submissions, completions.
    pub fn rings(&self) -> [Iova; 2] {
        [self.submissions.iova(), self.completions.iova()]
    }

    /// A slot for a command.
    #[inline]
    pub fn free(&self) -> Option<usize> {
        let slot = self.busy.trailing_ones() as usize;
        (slot < SLOTS).then_some(slot)
    }

    /// Slots that the device has, one bit each.
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// The identifier of the command that a slot has, or had last.
    pub fn id(&self, slot: usize) -> u16 {
        self.ids[slot]
    }

    /// Writes a command for a free slot; the device is told by [`Self::ring`].
    #[inline]
    pub fn put(&mut self, slot: usize, command: &Command) {
        let id = self.ids[slot].wrapping_add(1 << SLOT_BITS) & ID_MASK;
        self.ids[slot] = id;
        self.busy |= 1 << slot;
        self.busy_count += 1;
        for (word, value) in command.words(id).into_iter().enumerate() {
            self.submissions.store(self.tail, word, value);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Tells the device of all that was put.
    #[inline]
    pub fn ring(&mut self, bar: &Mmio) {
        if self.rung != self.tail {
            self.rung = self.tail;
            bar.doorbell(self.tail_doorbell, (self.tail % ENTRIES) as u32);
        }
    }

    /// The phase tag of a new entry (3.3.3.2.2): it changes with each pass, and begins with 1.
    #[inline]
    fn phase(at: usize) -> u64 {
        if at & ENTRIES == 0 { PHASE } else { 0 }
    }

    /// The next command that was answered.
    ///
    /// # Errors
    /// If the device says what cannot be. It must be reset.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Answer>, Lie> {
        let report = self.completions.report(self.head, 1);
        let Some(done) = report.shows(PHASE, Self::phase(self.head)) else {
            return Ok(None);
        };
        let said = Completion::of(report.word());
        let slot = usize::from(said.id) % SLOTS;
        if said.id != self.ids[slot] {
            return Err(Lie::UnknownId(said.id));
        }
        if self.busy & 1 << slot == 0 {
            return Err(Lie::AnsweredTwice(said.id));
        }
        if said.queue != self.number {
            return Err(Lie::OtherQueue(said.queue));
        }
        self.busy &= !(1 << slot);
        self.busy_count -= 1;
        self.take(said.head)?;
        self.head = self.head.wrapping_add(1);
        let status = said.status;
        Ok(Some(Answer { done, slot, status }))
    }

    /// The device's head of the submission queue: it never goes back, nor beyond what was rung, and
    /// each command that was answered has been taken.
    #[inline]
    fn take(&mut self, head: u16) -> Result<(), Lie> {
        let further = usize::from(head).wrapping_sub(self.taken) % ENTRIES;
        let taken = self.taken.wrapping_add(further);
        let known = self.rung.wrapping_sub(self.taken);
        let waiting = self.tail.wrapping_sub(taken);
        if usize::from(head) >= ENTRIES || further > known || waiting > self.busy_count {
            return Err(Lie::Head(head));
        }
        self.taken = taken;
        Ok(())
    }

    /// Tells the device which completions were seen.
    #[inline]
    pub fn tell(&mut self, bar: &Mmio) {
        if self.told != self.head {
            self.told = self.head;
            bar.doorbell(self.head_doorbell, (self.head % ENTRIES) as u32);
        }
    }

    /// Whether an entry was left out: of a device that does not answer, those behind the next one
    /// are looked at, as many as it may have written.
    pub fn has_gap(&self) -> bool {
        (1..SLOTS).any(|further| {
            let at = self.head.wrapping_add(further);
            self.completions.load(at, 1) & PHASE == Self::phase(at)
        })
    }
}
