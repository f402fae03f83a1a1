//! A split virtqueue, on the device's side (2.7).
//!
//! What the driver can write is read once and checked. Indices of the device's are its own: those
//! in memory are for the driver alone. A queue whose driver broke a rule of its structure is
//! [broken](Virtqueue::is_broken): nothing is taken from it any more, and the device needs a reset
//! (2.1.2).

use super::chain::Chain;
use super::feature;
use super::inflight::Inflight;
use super::work::Work;
use crate::dma::{Dma, DmaFault};
use crate::iotlb::Iotlb;
use crate::misbehaviour::Fault;
use crate::scatter::Fragment;
use crate::violation::{Queue, Violation};
use arrayvec::ArrayVec;
use std::ops::RangeBounds;
use std::sync::atomic::{Ordering, fence};

/// Most descriptors of a queue (2.7).
pub(super) const SIZE_MAX: u16 = 1 << 15;
/// Bytes of a descriptor (2.7.5).
const DESCRIPTOR_BYTES: u64 = 16;
/// Most bytes of a chain (2.7.5.2).
const CHAIN_BYTES_MAX: u64 = 1 << 32;

/// Flags of a descriptor (2.7.5).
mod flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
}
/// All of them; others are ignored.
const ALL_FLAGS: u16 = flag::NEXT | flag::WRITE | flag::INDIRECT;

/// Offsets of `flags` and `idx` in both rings, and of their elements (2.7.6, 2.7.8).
const FLAGS: u64 = 0;
const INDEX: u64 = 2;
const RING: u64 = 4;
const AVAILABLE_BYTES: u64 = 2;
const USED_BYTES: u64 = 8;
/// Chains whose heads are read at once, and elements of the used ring that are written at once:
/// what the driver's processor has lately written is waited for together.
const BATCH: usize = 32;
/// In the available ring: the driver needs no notification (2.7.6).
const NO_INTERRUPT: u16 = 1;
/// In the used ring: the device needs none (2.7.8).
const NO_NOTIFY: u16 = 1;

/// What the driver set up, and where the device is in it.
#[derive(Debug)]
pub struct Virtqueue {
    /// What it is called.
    pub(super) name: Queue,
    pub(super) size_max: u16,
    pub(super) size: u16,
    /// Addresses of the descriptor area, the driver area and the device area (2.6).
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    pub(super) enabled: bool,
    pub(super) broken: bool,
    /// Features that it works with.
    indirect: bool,
    event_index: bool,
    /// The index of the driver's that was seen last, and how far the device is.
    seen: u16,
    next: u16,
    /// Chains that were read ahead.
    ahead: Ahead,
    /// Elements of the used ring that there are, with those that are to be written, and those of
    /// which the driver was told.
    written: u16,
    told: u16,
    unwritten: ArrayVec<[u8; USED_BYTES as usize], BATCH>,
    /// The driver has notified the device, which has not found the queue empty since.
    notified: bool,
    /// The driver is not to notify the device.
    quiet: bool,
    /// The driver wants to know of what was published.
    interrupt: bool,
    /// Where it is noted what the device has, if anywhere.
    inflight: Option<Box<Inflight>>,
}

/// Where a queue that is in use already lies, and how far its driver and its device are.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) size: u16,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// The next chain of the driver's.
    pub(crate) next: u16,
    /// Chains that the driver was told of.
    pub(crate) written: u16,
    pub(crate) inflight: Option<Box<Inflight>>,
}

/// A chain of one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    pub(super) head: u16,
    /// Where the buffer begins.
    pub iova: u64,
    /// Bytes of it.
    pub bytes: u32,
}

/// Why nothing can be taken any more.
type Broken = Violation;

impl Virtqueue {
    pub(super) fn new(name: Queue, size_max: u16) -> Self {
        let size_max = size_max.min(SIZE_MAX);
        Self {
            name,
            size_max,
            size: size_max,
            descriptors: 0,
            available: 0,
            used: 0,
            enabled: false,
            broken: false,
            indirect: false,
            event_index: false,
            seen: 0,
            next: 0,
            ahead: Ahead::default(),
            written: 0,
            told: 0,
            unwritten: ArrayVec::new(),
            notified: false,
            quiet: false,
            interrupt: false,
            inflight: None,
        }
    }

    /// 2.6.1: all is as it was at first.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.name, self.size_max);
    }

    /// The driver has set it up: it works from now on.
    pub(super) fn enable(&mut self, features: u64) {
        self.enabled = true;
        self.indirect = features & feature::INDIRECT_DESC != 0;
        self.event_index = features & feature::EVENT_IDX != 0;
    }

    /// It works from now on, and goes on where it was.
    pub(super) fn resume(&mut self, from: Resumed, features: u64) {
        self.reset();
        self.size = from.size;
        (self.descriptors, self.available, self.used) =
            (from.descriptors, from.available, from.used);
        (self.seen, self.next) = (from.next, from.next);
        (self.written, self.told) = (from.written, from.written);
        self.inflight = from.inflight;
        // Whoever was here before may have been told of chains that it never looked for.
        self.notified = true;
        self.enable(features);
    }

    /// Whether the memory is gone in which it is noted what the device has.
    pub(super) fn is_lost(&self) -> bool {
        let inflight = self.inflight.as_ref();
        inflight.is_some_and(|inflight| inflight.is_lost())
    }

    /// The next chain of the driver's that the device would take.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    /// Most descriptors of it.
    pub fn size_max(&self) -> u16 {
        self.size_max
    }

    /// Whether the driver uses it.
    pub fn is_ready(&self) -> bool {
        self.enabled && !self.broken
    }

    /// Whether the driver broke a rule that it cannot be used after.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The driver says that there is something.
    pub(super) fn notify(&mut self) {
        self.notified = true;
    }

    /// Whether the device is to look for chains: the driver has notified it, and it has not found
    /// the queue empty since. Until then, the memory of the queue may not even be there.
    pub fn is_notified(&self) -> bool {
        self.notified && self.is_ready()
    }

    /// Whether a chain waits: what the driver wrote last may have come since.
    #[inline]
    pub fn has_next(&mut self, work: &mut Work<'_>) -> bool {
        if !self.is_ready() {
            return false;
        }
        let again = self.inflight.as_ref().is_some_and(|had| had.has_again());
        if self.seen != self.next || again {
            return true;
        }
        match self.look(work.dma) {
            Ok(any) => any,
            Err(why) => self.fail(why, work),
        }
    }

    /// Takes the next chain into `chain`; `false` if there is none.
    #[inline]
    pub fn take(&mut self, chain: &mut Chain, work: &mut Work<'_>) -> bool {
        if !self.has_next(work) {
            return false;
        }
        // What whoever was here before had comes first.
        let again = match &mut self.inflight {
            Some(inflight) => inflight.take_again(),
            None => None,
        };
        match self.read_chain(again, chain, work.dma) {
            Ok(()) => {
                if again.is_none() {
                    self.next = self.next.wrapping_add(1);
                }
                if let Some(inflight) = &mut self.inflight {
                    inflight.take(chain.head);
                }
                true
            }
            Err(why) => self.fail(why, work),
        }
    }

    /// Takes the next chain if it is one buffer with so many bytes, for the device to write, or to
    /// read. Most chains of a network card are so, and nothing about them can break a rule of the
    /// queue. `None` takes nothing: [`take`](Self::take) says why.
    #[inline]
    pub fn take_alone(
        &mut self,
        writable: bool,
        bytes: impl RangeBounds<u64>,
        work: &mut Work<'_>,
    ) -> Option<Alone> {
        if self.inflight.is_some() || !self.is_ready() {
            return None;
        }
        let (head, first) = match self.ahead.get(self.next) {
            Some(head) => head,
            None if self.has_next(work) => self.next_head(work.dma).ok()?,
            None => return None,
        };
        let kind = if writable { flag::WRITE } else { 0 };
        if first.flags & ALL_FLAGS != kind || !bytes.contains(&first.bytes.into()) {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some(Alone {
            head,
            iova: first.iova,
            bytes: first.bytes,
        })
    }

    /// Gives back the chain that was taken last, as if it had not been taken: it is the next one.
    pub(super) fn put_back(&mut self, head: u16) {
        self.next = self.next.wrapping_sub(1);
        if let Some(inflight) = &mut self.inflight {
            inflight.put_back(head);
        }
    }

    #[cold]
    fn fail(&mut self, why: Violation, work: &mut Work<'_>) -> bool {
        work.violations.add(why);
        self.broken = true;
        false
    }

    fn outside(&self, fault: DmaFault) -> Broken {
        Violation::Dma {
            queue: self.name,
            fault,
        }
    }

    fn rule(&self, index: u16, rule: &'static str) -> Broken {
        Violation::Descriptor {
            queue: self.name,
            index: index.into(),
            rule,
        }
    }

    /// Reads the driver's index (2.7.6).
    #[inline]
    fn look(&mut self, dma: &Iotlb<'_>) -> Result<bool, Broken> {
        let at = self.available.wrapping_add(INDEX);
        let seen = dma.load16(at).map_err(|fault| self.outside(fault))?;
        // Each chain that the device has takes a descriptor at least: there are no more chains.
        if seen.wrapping_sub(self.written) > self.size {
            return Err(Violation::TailPastHead {
                queue: self.name,
                tail: seen.into(),
                head: self.written.into(),
            });
        }
        self.seen = seen;
        Ok(seen != self.next)
    }

    #[inline]
    fn read_chain(
        &mut self,
        again: Option<u16>,
        chain: &mut Chain,
        dma: &Iotlb<'_>,
    ) -> Result<(), Broken> {
        chain.clear();
        let first;
        (chain.head, first) = match again {
            Some(head) => (head, self.read_head(head, dma)?),
            None => self.next_head(dma)?,
        };
        if first.flags & (flag::NEXT | flag::INDIRECT) == 0 {
            // Most chains of a network card are one buffer, of which no rule can be broken.
            first.add_to(chain);
            return Ok(());
        }
        let mut walk = Walk {
            queue: self,
            chain,
            left: self.size - 1,
            bytes: 0,
        };
        let head = walk.chain.head;
        walk.table(self.descriptors, self.size, (head, first), false, dma)
    }

    /// The next chain's head, and its first descriptor.
    #[inline]
    fn next_head(&mut self, dma: &Iotlb<'_>) -> Result<(u16, Descriptor), Broken> {
        if let Some(head) = self.ahead.get(self.next) {
            return Ok(head);
        }
        self.read_ahead(dma)?;
        let slot = self.next & (self.size - 1);
        // What is wrong ahead may be right when its turn comes, and is told then.
        match self.ahead.get(self.next) {
            Some(head) => Ok(head),
            None => {
                let at = RING + AVAILABLE_BYTES * u64::from(slot);
                let at = self.available.wrapping_add(at);
                let head = dma.load16(at).map_err(|fault| self.outside(fault))?;
                Ok((head, self.read_head(head, dma)?))
            }
        }
    }

    /// Reads heads that wait, with their descriptors, up to the end of the ring.
    fn read_ahead(&mut self, dma: &Iotlb<'_>) -> Result<(), Broken> {
        let slot = self.next & (self.size - 1);
        let waiting = self.seen.wrapping_sub(self.next).min(self.size - slot);
        let count = usize::from(waiting).min(BATCH);
        let at = RING + AVAILABLE_BYTES * u64::from(slot);
        let mut heads = [0; BATCH * AVAILABLE_BYTES as usize];
        let heads = &mut heads[..count * AVAILABLE_BYTES as usize];
        dma.read(self.available.wrapping_add(at), heads)
            .map_err(|fault| self.outside(fault))?;
        self.ahead.first = self.next;
        self.ahead.heads.clear();
        for bytes in heads.chunks_exact(AVAILABLE_BYTES as usize) {
            let head = u16::from_le_bytes([bytes[0], bytes[1]]);
            match Descriptor::load(self.descriptors, head, dma) {
                Ok(first) if head < self.size => self.ahead.heads.push((head, first)),
                _ => break,
            }
        }
        Ok(())
    }

    /// The first descriptor of a chain.
    #[inline]
    fn read_head(&self, head: u16, dma: &Iotlb<'_>) -> Result<Descriptor, Broken> {
        if head >= self.size {
            return Err(Violation::TailOutside {
                queue: self.name,
                tail: head.into(),
                descriptors: self.size.into(),
            });
        }
        self.read_descriptor(self.descriptors, head, dma)
    }

    /// A descriptor of a table.
    #[inline]
    fn read_descriptor(
        &self,
        table: u64,
        index: u16,
        dma: &Iotlb<'_>,
    ) -> Result<Descriptor, Broken> {
        Descriptor::load(table, index, dma).map_err(|fault| self.outside(fault))
    }

    /// Gives a chain back, in which the device wrote so many bytes (2.7.8). The driver knows once
    /// it is [published](Self::publish).
    #[inline]
    pub fn give_back(&mut self, head: u16, bytes: u32, work: &mut Work<'_>) {
        let faults = &mut work.faults;
        if faults.strikes(Fault::Skip) {
            return;
        }
        let id = match faults.strikes(Fault::Garbage) {
            true => faults.number() as u32,
            false => head.into(),
        };
        let bytes = match faults.strikes(Fault::Length) {
            true => faults.number() as u32,
            false => bytes,
        };
        let element = u64::from(bytes) << 32 | u64::from(id);
        self.unwritten.push(element.to_le_bytes());
        self.written = self.written.wrapping_add(1);
        if let Some(inflight) = &mut self.inflight {
            inflight.give_back(head);
        }
        let ring_ends = self.written & (self.size - 1) == 0;
        if (ring_ends || self.unwritten.is_full())
            && let Err(fault) = self.write_used(work.dma)
        {
            self.fail(self.outside(fault), work);
        }
    }

    /// Writes the elements of the used ring that are not there yet, which lie one behind the other.
    fn write_used(&mut self, dma: &Iotlb<'_>) -> Result<(), DmaFault> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let first = self.written.wrapping_sub(self.unwritten.len() as u16);
        let slot = u64::from(first & (self.size - 1));
        let at = self.used.wrapping_add(RING + USED_BYTES * slot);
        let written = dma.write(at, self.unwritten.as_flattened());
        self.unwritten.clear();
        written
    }

    /// Tells the driver of what was [given back](Self::give_back), and notes whether it is to be
    /// interrupted.
    #[inline]
    pub fn publish(&mut self, work: &mut Work<'_>) {
        if self.written == self.told || self.broken {
            return;
        }
        match self.try_publish(work.dma) {
            Ok(wanted) => self.interrupt |= wanted,
            Err(fault) => _ = self.fail(self.outside(fault), work),
        }
    }

    /// Whether the driver wants to be notified (2.7.7.2).
    fn try_publish(&mut self, dma: &Iotlb<'_>) -> Result<bool, DmaFault> {
        self.write_used(dma)?;
        let (new, old) = (self.written, self.told);
        dma.store16(self.used.wrapping_add(INDEX), new)?;
        self.told = new;
        if let Some(inflight) = &mut self.inflight {
            inflight.publish(new);
        }
        // Either the driver sees the index when it looks once more, or what it wrote is seen here.
        fence(Ordering::SeqCst);
        if !self.event_index {
            return Ok(dma.load16(self.available.wrapping_add(FLAGS))? & NO_INTERRUPT == 0);
        }
        let used_event = RING + AVAILABLE_BYTES * u64::from(self.size);
        let event = dma.load16(self.available.wrapping_add(used_event))?;
        Ok(passes(event, new, old))
    }

    /// The driver need not notify the device: it looks by itself (2.7.10).
    #[inline]
    pub fn silence(&mut self, work: &mut Work<'_>) {
        // With event indices it is enough to leave the last one as it is.
        if !self.is_ready() || self.event_index || self.quiet {
            return;
        }
        self.quiet = true;
        if let Err(fault) = work.dma.store16(self.used.wrapping_add(FLAGS), NO_NOTIFY) {
            self.fail(self.outside(fault), work);
        }
    }

    /// The driver must notify the device of the next chain; `true` if one has come meanwhile, of
    /// which it may say nothing.
    #[inline]
    pub fn listen(&mut self, work: &mut Work<'_>) -> bool {
        if !self.is_ready() {
            return false;
        }
        let before = self.seen;
        if let Err(fault) = self.try_listen(work.dma) {
            return self.fail(self.outside(fault), work);
        }
        match self.look(work.dma) {
            Ok(any) => {
                self.notified &= any;
                self.seen != before
            }
            Err(why) => self.fail(why, work),
        }
    }

    fn try_listen(&mut self, dma: &Iotlb<'_>) -> Result<(), DmaFault> {
        if self.event_index {
            let avail_event = RING + USED_BYTES * u64::from(self.size);
            dma.store16(self.used.wrapping_add(avail_event), self.seen)?;
        } else if self.quiet {
            dma.store16(self.used.wrapping_add(FLAGS), 0)?;
            self.quiet = false;
        } else {
            return Ok(());
        }
        // The driver looks at it after it wrote its index: one of both sees what the other wrote.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Whether the driver is to be interrupted; forgotten when it was asked.
    pub(super) fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.interrupt)
    }
}

/// Whether an index that moved from `old` to `new` has passed `event` (2.7.10.1).
fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Heads of chains with their first descriptors, from the index `first` of the driver's ring on.
#[derive(Debug, Default)]
struct Ahead {
    first: u16,
    heads: ArrayVec<(u16, Descriptor), BATCH>,
}

impl Ahead {
    /// The head at an index of the driver's ring.
    #[inline]
    fn get(&self, index: u16) -> Option<(u16, Descriptor)> {
        let place = usize::from(index.wrapping_sub(self.first));
        self.heads.get(place).copied()
    }
}

/// On the way along a chain.
struct Walk<'a> {
    queue: &'a Virtqueue,
    chain: &'a mut Chain,
    /// Descriptors that it may still have.
    left: u16,
    bytes: u64,
}

impl Walk<'_> {
    /// Follows descriptors of a table of `size` behind one of them, by its index.
    fn table(
        &mut self,
        table: u64,
        size: u16,
        (mut index, mut descriptor): (u16, Descriptor),
        is_indirect: bool,
        dma: &Iotlb<'_>,
    ) -> Result<(), Broken> {
        let queue = self.queue;
        loop {
            if descriptor.flags & flag::INDIRECT != 0 {
                if is_indirect {
                    let rule = "a table must not refer to a table (2.7.5.3.1)";
                    return Err(queue.rule(index, rule));
                }
                return self.indirect(index, descriptor, dma);
            }
            self.add(index, descriptor)?;
            if descriptor.flags & flag::NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
            if index >= size {
                return Err(queue.rule(index, "NEXT must be in the table (2.7.5)"));
            }
            let Some(left) = self.left.checked_sub(1) else {
                let rule = "a chain must not be longer than its queue, nor loop (2.7.5.2)";
                return Err(queue.rule(index, rule));
            };
            self.left = left;
            descriptor = queue.read_descriptor(table, index, dma)?;
        }
    }

    fn indirect(&mut self, index: u16, table: Descriptor, dma: &Iotlb<'_>) -> Result<(), Broken> {
        let queue = self.queue;
        let wrong = |rule| Err(queue.rule(index, rule));
        if !queue.indirect {
            return wrong("INDIRECT takes VIRTIO_F_INDIRECT_DESC (2.7.5.3.1)");
        }
        if table.flags & flag::NEXT != 0 {
            return wrong("INDIRECT and NEXT must not both be set (2.7.5.3.1)");
        }
        let (count, rest) = (
            u64::from(table.bytes) / DESCRIPTOR_BYTES,
            u64::from(table.bytes) % DESCRIPTOR_BYTES,
        );
        if rest != 0 || count == 0 {
            return wrong("a table must have whole descriptors, and one at least (2.7.5.3.2)");
        }
        if count > u64::from(queue.size) {
            return wrong("a table must not be longer than the queue (2.7.5.3.1)");
        }
        // The descriptor of the table itself is not one of the chain, whose first one takes its
        // place.
        let first = queue.read_descriptor(table.iova, 0, dma)?;
        self.table(table.iova, count as u16, (0, first), true, dma)
    }

    fn add(&mut self, index: u16, descriptor: Descriptor) -> Result<(), Broken> {
        self.bytes += u64::from(descriptor.bytes);
        if self.bytes > CHAIN_BYTES_MAX {
            let rule = "a chain must not have more than 2^32 bytes (2.7.5.2)";
            return Err(self.queue.rule(index, rule));
        }
        if descriptor.flags & flag::WRITE == 0 && !self.chain.writable.is_empty() {
            let rule = "what can be read must come before what can be written (2.7.4.2)";
            return Err(self.queue.rule(index, rule));
        }
        descriptor.add_to(self.chain);
        Ok(())
    }
}

/// A descriptor (2.7.5).
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    iova: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    /// Adds its buffer to a chain.
    #[inline]
    fn add_to(&self, chain: &mut Chain) {
        let fragment = Fragment {
            iova: self.iova,
            bytes: self.bytes as usize,
        };
        match self.flags & flag::WRITE {
            0 => chain.push_readable(fragment),
            _ => chain.push_writable(fragment),
        }
    }

    /// Reads the one at an index of a table.
    #[inline]
    fn load(table: u64, index: u16, dma: &Iotlb<'_>) -> Result<Self, DmaFault> {
        let mut bytes = [0; DESCRIPTOR_BYTES as usize];
        dma.read(
            table.wrapping_add(DESCRIPTOR_BYTES * u64::from(index)),
            &mut bytes,
        )?;
        let word = u128::from_le_bytes(bytes);
        Ok(Self {
            iova: word as u64,
            bytes: (word >> 64) as u32,
            flags: (word >> 96) as u16,
            next: (word >> 112) as u16,
        })
    }
}
