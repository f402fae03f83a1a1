//! Where a table lies, and how it can be taken up whenever its image ends.
//!
//! A packet changes one flow at most. Before it does, the flow is copied beside the table, and is
//! *named*; when all is done, none is named. Whoever takes the table up puts the copy of the one
//! that is named back: each flow is as it was before its last packet or after it, in whatever order
//! what lies between was stored. A flow begins and ends by one byte, its status.

use super::record::{Flow, POLICIES, Record};
use super::timeout::Timeouts;
use alloc::boxed::Box;
use alloc::vec;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use zerocopy::{FromBytes, FromZeros, IntoBytes, KnownLayout};

/// What was stored before this stays before what is stored behind it. The image has one thread, and
/// whoever takes its memory up comes after its end: only the compiler could change the order.
#[inline(always)]
pub(super) fn in_order() {
    compiler_fence(Ordering::SeqCst);
    #[cfg(test)]
    super::tests::kept::moment();
}

/// Memory on the heap, or some that outlives the image.
#[derive(Debug)]
pub(super) enum Store<T: ?Sized + 'static> {
    Heap(Box<T>),
    State(&'static mut T),
}

impl<T: ?Sized> Deref for Store<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            Self::Heap(memory) => memory,
            Self::State(memory) => memory,
        }
    }
}

impl<T: ?Sized> DerefMut for Store<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Heap(memory) => memory,
            Self::State(memory) => memory,
        }
    }
}

/// What stands before the records of a family.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct Head {
    /// The number of the flow that is being changed, plus 1; 0 for none.
    named: AtomicU32,
    /// Records from this number on were never used, and may hold anything.
    used: AtomicU32,
    /// What the named one was.
    before: Flow,
    /// Timeouts of flows, by their number; of 0, nothing.
    timeouts: [Timeouts; POLICIES],
    reserved: [u32; 2],
}

/// Whole cache lines.
const _: () = assert!(size_of::<Head>() == 9 * 64);

/// The records of a family, and what stands before them.
#[derive(Debug)]
pub(super) struct Records<R: Record> {
    head: Store<Head>,
    records: Store<[R]>,
}

impl<R: Record> Records<R> {
    /// So many on the heap.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            head: Store::Heap(Box::new(Head::new_zeroed())),
            records: Store::Heap(vec![R::new_zeroed(); capacity].into()),
        }
    }

    /// So many in memory that may outlive the image, and has that size.
    pub(super) fn over(memory: &'static mut [u8]) -> Option<Self> {
        let (head, records) = memory.split_at_mut_checked(size_of::<Head>())?;
        Some(Self {
            head: Store::State(Head::mut_from_bytes(head).ok()?),
            records: Store::State(<[R]>::mut_from_bytes(records).ok()?),
        })
    }

    /// As many on the heap as these bytes have room for, which begin with what lies there.
    pub(super) fn copied(bytes: &[u8]) -> Option<Self> {
        let (head, records) = Head::read_from_prefix(bytes).ok()?;
        let mut copied = Self::new(records.len() / size_of::<R>());
        *copied.head = head;
        copied.records.as_mut_bytes().copy_from_slice(records);
        Some(copied)
    }

    /// Bytes of memory for so many.
    pub(super) const fn bytes(capacity: usize) -> usize {
        size_of::<Head>() + capacity * size_of::<R>()
    }

    pub(super) fn capacity(&self) -> usize {
        self.records.len()
    }

    /// How many have been used, those with the lowest numbers.
    pub(super) fn used(&self) -> u32 {
        self.head.used.load(Relaxed)
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &R {
        &self.records[number as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut R {
        &mut self.records[number as usize]
    }

    /// The number of one that was never used, for this record, which nobody is to find yet.
    pub(super) fn push(&mut self, record: R) -> Option<u32> {
        let number = self.used();
        *self.records.get_mut(number as usize)? = record;
        in_order();
        self.head.used.store(number + 1, Relaxed);
        in_order();
        Some(number)
    }

    /// A flow that is about to be changed: until [`Self::changed`], it is what it was before.
    #[inline(always)]
    pub(super) fn change(&mut self, number: u32) -> &mut R {
        let record = &mut self.records[number as usize];
        // Nobody takes up what is on the heap.
        if let Store::State(head) = &mut self.head {
            head.before = **record;
            in_order();
            head.named.store(number + 1, Relaxed);
            in_order();
        }
        record
    }

    /// The flow that was changed is what it is now.
    #[inline]
    pub(super) fn changed(&mut self) {
        in_order();
        self.head.named.store(0, Relaxed);
        in_order();
    }

    /// Timeouts of flows, by their number; of 0, nothing.
    pub(super) fn timeouts(&self) -> &[Timeouts; POLICIES] {
        &self.head.timeouts
    }

    /// Flows that have this number have these timeouts from now on. There is none that has it.
    pub(super) fn set_timeouts(&mut self, number: usize, timeouts: &Timeouts) {
        self.head.timeouts[number] = *timeouts;
        in_order();
    }

    /// Makes all of them unused.
    pub(super) fn clear(&mut self) {
        self.head.named.store(0, Relaxed);
        in_order();
        self.head.used.store(0, Relaxed);
        in_order();
    }

    /// Puts back what the last image was changing. None if it was changing one that is none.
    pub(super) fn undo(&mut self) -> Option<()> {
        let (named, used) = (self.head.named.load(Relaxed), self.used());
        if used as usize > self.records.len() || named > used {
            return None;
        }
        if let Some(number) = named.checked_sub(1) {
            *self.records[number as usize] = self.head.before;
            self.changed();
        }
        Some(())
    }
}
