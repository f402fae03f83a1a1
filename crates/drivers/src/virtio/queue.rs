//! A split virtqueue (2.7), the driver's side.
//!
//! Positions count buffers since the start and are masked where they index. The device has those
//! from `seen` up to `next`: the driver has made them available, and has not found them used.
//!
//! **In order, or not.** A device may give buffers back in any order (2.7.8), and those that exist
//! do so in the order in which they came. So each slot of the ring of available buffers keeps its
//! descriptor, and what is written into that ring once holds for ever: at first, the slot's own
//! number. A buffer that comes back before its turn changes places with the one whose turn it was,
//! if the device has it at all; otherwise the device lies. `order` is what stands in the slots, in
//! the driver's own memory.
//!
//! **Places.** Either ring begins 4 bytes behind a word: as far as the specification wants (2.7),
//! and so that an element of the ring of used buffers is one word, which is read once.

use super::transport::{Bell, Rings};
use super::{Error, Lie, Transport, feature};
use alloc::boxed::Box;
use core::sync::atomic::{Ordering, fence};
use hw::{DmaArena, DmaRing, Done, Iova, OutOfDma};

/// Most descriptors of a queue here.
pub const SIZE_MAX: usize = 256;
/// Fewest here: slots of a word of the ring of available buffers.
const SIZE_MIN: usize = 4;

// A descriptor (2.7.5): the address, and a word of length, flags and the next descriptor.
const ADDRESS_WORD: usize = 0;
const LENGTH_WORD: usize = 1;
const NEXT: u64 = 1 << 32;
const WRITE: u64 = 1 << 33;
const NEXT_SHIFT: u32 = 48;

/// Where either ring begins, in bytes.
const RING_OFFSET: u64 = 4;
/// Flags and index, in the first word of either ring: 16 bits each, from here on.
const FLAGS_SHIFT: u32 = 32;
const INDEX_SHIFT: u32 = 48;
const INDEX: u64 = 0xffff << INDEX_SHIFT;
/// VIRTQ_AVAIL_F_NO_INTERRUPT (2.7.7).
const NO_INTERRUPT: u64 = 1 << FLAGS_SHIFT;
/// VIRTQ_USED_F_NO_NOTIFY (2.7.10).
const NO_NOTIFY: u64 = 1 << FLAGS_SHIFT;
/// The word behind flags and index.
const FIRST_WORD: usize = 1;
/// Slots of a word of the ring of available buffers.
const SLOTS: usize = 4;
const SLOT_BITS: usize = 16;
/// Words of the ring of available buffers, and of that of used ones: as many as the longest take,
/// and some that are not used.
const AVAILABLE_WORDS: usize = SIZE_MAX / 2;
const USED_WORDS: usize = 2 * SIZE_MAX;
/// What an element of the ring of used buffers says of the length.
const LENGTH_SHIFT: u32 = 32;

/// What a descriptor says of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its I/O address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u32,
    /// Whether the device writes it.
    pub write: bool,
}

/// The queue, with `N` descriptors, a power of two.
pub struct Queue<const N: usize> {
    descriptors: DmaRing<2, SIZE_MAX>,
    available: DmaRing<1, AVAILABLE_WORDS>,
    used: DmaRing<1, USED_WORDS>,
    /// The descriptor in each slot of the ring of available buffers.
    order: Box<[u8; N]>,
    /// Whether some slot has another descriptor than the one of its own number.
    shuffled: bool,
    seen: usize,
    next: usize,
    /// Whether notifications are at indices.
    events: bool,
    /// Whether used buffers are to interrupt, ever.
    interrupts: bool,
    bell: Bell,
}

impl<const N: usize> Queue<N> {
    /// A queue that no device has yet.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        const { assert!(N.is_power_of_two() && N >= SIZE_MIN && N <= SIZE_MAX) };
        Ok(Self {
            descriptors: arena.ring()?,
            available: arena.ring()?,
            used: arena.ring()?,
            order: Box::new([0; N]),
            shuffled: false,
            seen: 0,
            next: 0,
            events: false,
            interrupts: false,
            bell: Bell::default(),
        })
    }

    /// Gives the queue to a device that has just been reset, and that has accepted `features`
    /// (3.1.1, step 7). It has no buffer yet.
    ///
    /// # Errors
    /// If the device cannot have it.
    pub fn set_up<T: Transport>(
        &mut self,
        transport: &T,
        number: u16,
        features: u64,
        interrupts: bool,
    ) -> Result<(), Error> {
        let found = transport.queue_size_max(number);
        if usize::from(found) < N {
            return Err(Error::Queue { number, found });
        }
        (self.seen, self.next, self.shuffled) = (0, 0, false);
        self.events = features & feature::EVENT_IDX != 0;
        self.interrupts = interrupts;
        for (slot, descriptor) in self.order.iter_mut().enumerate() {
            *descriptor = slot as u8;
        }
        (0..AVAILABLE_WORDS).for_each(|word| self.available.store(word, 0, 0));
        (0..USED_WORDS).for_each(|word| self.used.store(word, 0, 0));
        for slot in (0..N).step_by(SLOTS) {
            self.write_slots(slot);
        }
        self.store_index(0);
        self.silence();
        let at = |iova: Iova| iova.raw() + RING_OFFSET;
        let rings = Rings {
            size: N as u16,
            descriptors: self.descriptors.iova().raw(),
            available: at(self.available.iova()),
            used: at(self.used.iova()),
        };
        self.bell = transport.set_up(number, rings, interrupts)?;
        Ok(())
    }

    /// The first position whose buffer has not been found used.
    #[inline]
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// The first position that the device does not have.
    #[inline]
    pub fn next(&self) -> usize {
        self.next
    }

    /// The descriptor table, for a loop to have at hand.
    #[inline]
    pub fn table(&self) -> Table {
        Table(self.descriptors)
    }

    /// What the device says of used buffers, for a loop to have at hand.
    #[inline]
    pub fn reports(&self) -> Reports<N> {
        Reports(self.used)
    }

    /// Lets `head` stand in the slot of this position, which the device does not have.
    pub fn put(&mut self, position: usize, head: u8) {
        let slot = slot::<N>(position);
        if self.order[slot] != head {
            self.order[slot] = head;
            self.write_slots(slot);
        }
    }

    /// Writes the word of the ring in which this slot is.
    fn write_slots(&self, slot: usize) {
        let first = slot & !(SLOTS - 1);
        let word = self.order[first..][..SLOTS].iter().rev();
        let word = word.fold(0, |word, slot| word << SLOT_BITS | u64::from(*slot));
        self.available.store(FIRST_WORD + first / SLOTS, 0, word);
    }

    /// Makes all positions before `next` available, and tells the device if it wants to know
    /// (2.7.13).
    #[inline]
    pub fn publish<T: Transport>(&mut self, transport: &T, next: usize) {
        let before = self.next;
        if next == before {
            return;
        }
        self.next = next;
        self.store_index(next);
        // The device looks at the index after it has said where it wants to be told (2.7.13.4.1).
        fence(Ordering::SeqCst);
        let wants = if self.events {
            let event = self.used.load(FIRST_WORD + N, 0) as u16;
            passes(event, next, before)
        } else {
            self.used.load(0, 0) & NO_NOTIFY == 0
        };
        if wants {
            transport.notify(self.bell);
        }
    }

    /// Writes flags and index. Without event indices, the flags keep interrupts off.
    #[inline]
    fn store_index(&self, next: usize) {
        let flags = if self.events { 0 } else { NO_INTERRUPT };
        let index = u64::from(next as u16) << INDEX_SHIFT;
        self.available.publish(0, 0, index | flags);
    }

    /// How many buffers the device says that it has used since [`Self::seen`], and its word.
    ///
    /// # Errors
    /// If it says more than it had.
    #[inline]
    pub fn used(&self) -> Result<Option<(Done, usize)>, Lie> {
        let report = self.used.report(0, 0);
        let index = report.word() & INDEX;
        let count = ((index >> INDEX_SHIFT) as u16).wrapping_sub(self.seen as u16);
        let count = usize::from(count);
        if count == 0 {
            return Ok(None);
        }
        if count > self.next - self.seen {
            return Err(Lie);
        }
        Ok(report.shows(INDEX, index).map(|done| (done, count)))
    }

    /// Whether the device has given buffers back in another order. Then each one is to be asked for
    /// ([`Self::overtake`]), also those whose turn it is.
    #[inline]
    pub fn is_shuffled(&self) -> bool {
        self.shuffled
    }

    /// The descriptor that the device says to have used at this position: whether it has that
    /// buffer. If it was not its turn, the queue is shuffled from now on.
    ///
    /// # Errors
    /// If the device does not have it.
    #[cold]
    pub fn overtake(&mut self, position: usize, descriptor: u32) -> Result<usize, Lie> {
        let mut behind = position..self.next;
        let there = behind
            .find(|other| u32::from(self.order[slot::<N>(*other)]) == descriptor)
            .ok_or(Lie)?;
        let (here, there) = (slot::<N>(position), slot::<N>(there));
        if here != there {
            self.shuffled = true;
            self.order.swap(here, there);
            // The device has read both slots: it cannot have used the one buffer otherwise, nor
            // skipped the other one.
            self.write_slots(here);
            self.write_slots(there);
        }
        Ok(descriptor as usize)
    }

    /// Takes note that all buffers before this position were found used.
    #[inline]
    pub fn saw(&mut self, position: usize) {
        self.seen = position;
    }

    /// Whether the device has used a buffer.
    pub fn is_ready(&self) -> bool {
        self.used.load(0, 0) >> INDEX_SHIFT != u64::from(self.seen as u16)
    }

    /// Lets the next used buffer interrupt, which takes the right away again, and looks once more:
    /// whether there is one already.
    pub fn arm(&mut self) -> bool {
        if self.events {
            self.store_event(self.seen as u16);
        } else {
            let index = u64::from(self.next as u16) << INDEX_SHIFT;
            self.available.publish(0, 0, index);
        }
        // The device looks at that after it has written its index (2.7.7.1).
        fence(Ordering::SeqCst);
        self.is_ready()
    }

    /// Keeps a queue that never interrupts from doing so: the index is one that the device has
    /// passed long ago. To be called once in a thousand buffers at least.
    #[inline]
    pub fn silence(&self) {
        if self.events && !self.interrupts {
            self.store_event((self.seen as u16).wrapping_sub(1));
        }
    }

    /// Writes the index at which a used buffer interrupts (2.7.7).
    #[inline]
    fn store_event(&self, index: u16) {
        let word = FIRST_WORD + N / SLOTS;
        self.available.store(word, 0, index.into());
    }
}

/// What the device says of used buffers: a copy says the same.
#[derive(Clone, Copy)]
pub struct Reports<const N: usize>(DmaRing<1, USED_WORDS>);

impl<const N: usize> Reports<N> {
    /// The element at this position, one of those that [`Queue::used`] counts: the descriptor, and
    /// the bytes that the device says to have written.
    #[inline]
    pub fn element(&self, position: usize) -> (u32, usize) {
        let element = self.0.load(FIRST_WORD + slot::<N>(position), 0);
        (element as u32, (element >> LENGTH_SHIFT) as usize)
    }

    /// Whether this is the descriptor whose turn is at this position, in a queue that is not
    /// shuffled.
    #[inline]
    pub fn is_next(&self, position: usize, descriptor: u32) -> bool {
        descriptor == slot::<N>(position) as u32
    }
}

/// The descriptor table: a copy is the same one.
#[derive(Clone, Copy)]
pub struct Table(DmaRing<2, SIZE_MAX>);

impl Table {
    /// Describes a buffer that is alone.
    #[inline]
    pub fn single(&self, descriptor: usize, address: u64, bytes: usize, write: bool) {
        let write = if write { WRITE } else { 0 };
        self.0.store(descriptor, ADDRESS_WORD, address);
        self.0.store(descriptor, LENGTH_WORD, bytes as u64 | write);
    }

    /// The same for another place of the buffer that was described there before.
    #[inline]
    pub fn replace(&self, descriptor: usize, address: u64) {
        self.0.store(descriptor, ADDRESS_WORD, address);
    }

    /// Describes buffers that belong together, in the descriptors from `first` on.
    pub fn chain(&self, first: usize, buffers: &[Buffer]) {
        for (n, buffer) in buffers.iter().enumerate() {
            let descriptor = first + n;
            let write = if buffer.write { WRITE } else { 0 };
            let next = match n + 1 < buffers.len() {
                true => NEXT | (descriptor as u64 + 1) << NEXT_SHIFT,
                false => 0,
            };
            let word = u64::from(buffer.bytes) | write | next;
            self.0.store(descriptor, ADDRESS_WORD, buffer.address);
            self.0.store(descriptor, LENGTH_WORD, word);
        }
    }
}

/// The slot of a position.
#[inline]
fn slot<const N: usize>(position: usize) -> usize {
    position & (N - 1)
}

/// Whether the index `event` is among those from `before` to before `next` (2.7.7.2, 2.7.10.1).
#[inline]
fn passes(event: u16, next: usize, before: usize) -> bool {
    let (next, before) = (next as u16, before as u16);
    next.wrapping_sub(event).wrapping_sub(1) < next.wrapping_sub(before)
}
