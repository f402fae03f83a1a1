//! Which chains of a queue the device has, in memory that outlives it: a device that is killed
//! comes back, and neither loses a request nor answers one twice (vhost-user, "Inflight I/O
//! tracking").
//!
//! The memory is the front end's, which may write there what it likes: it is read when the queue
//! starts, and checked then.

use hw::sim::{Outside, View};
use std::fmt;

/// Bytes of a queue's own part, and of what follows it for each descriptor.
const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
/// Parts of queues begin at multiples of this.
const ALIGN: u64 = 64;
/// Offsets in the part of a queue.
const VERSION: u64 = 8;
const COUNT: u64 = 10;
const LAST_HEAD: u64 = 12;
const USED_INDEX: u64 = 14;
/// Offsets in an entry: whether the device has the chain of this head, the head that was given back
/// before it, and a number that is greater the later it was taken.
const HAS: u64 = 0;
const NEXT: u64 = 6;
const COUNTER: u64 = 8;
/// The version of this layout; 0 is memory that nobody has used.
const CURRENT: u16 = 1;

/// Bytes of the part of one queue with so many descriptors.
pub(crate) fn bytes(size: u16) -> u64 {
    (HEADER_BYTES + ENTRY_BYTES * u64::from(size)).next_multiple_of(ALIGN)
}

/// The part of a queue.
pub(crate) struct Inflight {
    memory: View,
    /// Where it begins.
    at: u64,
    counter: u64,
    /// The head that was given back last.
    last: u16,
    /// Heads that the device before this one had, the first to be taken last.
    again: Vec<u16>,
    /// Heads that were given back and are not published.
    done: Vec<u16>,
}

impl fmt::Debug for Inflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflight")
            .field("at", &self.at)
            .field("again", &self.again)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Inflight {
    /// The part that begins at `at`, of a queue with `size` descriptors whose driver has been told
    /// of `used` chains.
    ///
    /// # Errors
    /// What is wrong with what lies there.
    pub(crate) fn open(memory: View, at: u64, size: u16, used: u16) -> Result<Self, &'static str> {
        const OUTSIDE: &str = "the memory of inflight chains must have room for all queues";
        let outside = |_: Outside| OUTSIDE;
        let last = at.checked_add(bytes(size) - 1).ok_or(OUTSIDE)?;
        memory.read(last, &mut [0]).map_err(outside)?;
        let version = memory.load16(at + VERSION).map_err(outside)?;
        let mut inflight = Self {
            memory,
            at,
            counter: 0,
            last: 0,
            again: Vec::new(),
            done: Vec::with_capacity(size.into()),
        };
        match version {
            0 => inflight.format(size, used).map_err(outside)?,
            CURRENT => {
                let wrong = "the memory of inflight chains must be of a queue of this size";
                if inflight.memory.load16(at + COUNT).map_err(outside)? != size {
                    return Err(wrong);
                }
                inflight.finish(size, used).map_err(outside)?;
                inflight.collect(size).map_err(outside)?;
            }
            _ => return Err("the memory of inflight chains must be of version 1"),
        }
        Ok(inflight)
    }

    fn format(&self, size: u16, used: u16) -> Result<(), Outside> {
        self.memory.store16(self.at + COUNT, size)?;
        self.memory.store16(self.at + USED_INDEX, used)?;
        self.memory.store16(self.at + VERSION, CURRENT)
    }

    /// Does what the device before this one would have done next: it had told the driver of chains,
    /// and not yet said here that it has them no more.
    fn finish(&mut self, size: u16, used: u16) -> Result<(), Outside> {
        let known = self.memory.load16(self.at + USED_INDEX)?;
        let mut head = self.memory.load16(self.at + LAST_HEAD)?;
        for _ in 0..used.wrapping_sub(known).min(size) {
            if head >= size {
                break;
            }
            self.memory.write(self.entry(head) + HAS, &[0])?;
            head = self.memory.load16(self.entry(head) + NEXT)?;
        }
        self.last = self.memory.load16(self.at + LAST_HEAD)?;
        self.memory.store16(self.at + USED_INDEX, used)
    }

    fn collect(&mut self, size: u16) -> Result<(), Outside> {
        let mut found = Vec::new();
        for head in 0..size {
            let mut has = [0];
            self.memory.read(self.entry(head) + HAS, &mut has)?;
            if has != [0] {
                let counter = self.memory.load(self.entry(head) + COUNTER)?;
                found.push((counter, head));
            }
        }
        found.sort_unstable();
        self.counter = found
            .last()
            .map_or(0, |(counter, _)| counter.wrapping_add(1));
        self.again = found.into_iter().rev().map(|(_, head)| head).collect();
        Ok(())
    }

    fn entry(&self, head: u16) -> u64 {
        self.at + HEADER_BYTES + ENTRY_BYTES * u64::from(head)
    }

    /// Whether the front end has taken the memory away.
    pub(super) fn is_lost(&self) -> bool {
        self.memory.is_lost()
    }

    /// How many chains the device before this one had.
    pub(crate) fn left_over(&self) -> u16 {
        self.again.len() as u16
    }

    /// The next chain that it had.
    #[inline]
    pub(super) fn take_again(&mut self) -> Option<u16> {
        self.again.pop()
    }

    /// Whether it had any that were not taken yet.
    #[inline]
    pub(super) fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    // Memory that the front end takes away ends the session: nobody asks for these again.

    /// The device takes a chain.
    #[inline]
    pub(super) fn take(&mut self, head: u16) {
        let entry = self.entry(head);
        _ = self.memory.store(entry + COUNTER, self.counter);
        self.counter = self.counter.wrapping_add(1);
        _ = self.memory.write(entry + HAS, &[1]);
    }

    /// It gives one back as if it had not been taken.
    pub(super) fn put_back(&mut self, head: u16) {
        _ = self.memory.write(self.entry(head) + HAS, &[0]);
    }

    /// It is done with one.
    #[inline]
    pub(super) fn give_back(&mut self, head: u16) {
        _ = self.memory.store16(self.entry(head) + NEXT, self.last);
        _ = self.memory.store16(self.at + LAST_HEAD, head);
        self.last = head;
        self.done.push(head);
    }

    /// The driver has been told of all that were given back.
    #[inline]
    pub(super) fn publish(&mut self, used: u16) {
        while let Some(head) = self.done.pop() {
            _ = self.memory.write(self.entry(head) + HAS, &[0]);
        }
        _ = self.memory.store16(self.at + USED_INDEX, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::{AsFd, OwnedFd};

    const SIZE: u16 = 8;
    const AT: u64 = 64;
    const PAGE: u64 = 4096;

    /// Memory that is mapped as often as is asked for.
    struct Shared(OwnedFd);

    impl Shared {
        fn new() -> Self {
            let file = memfd_create("inflight", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, PAGE).unwrap();
            Self(file)
        }

        fn view(&self) -> View {
            View::of_file(self.0.as_fd(), 0, PAGE, 0, true).unwrap()
        }
    }

    fn open(memory: &Shared, used: u16) -> Inflight {
        Inflight::open(memory.view(), AT, SIZE, used).unwrap()
    }

    fn left(mut inflight: Inflight) -> Vec<u16> {
        std::iter::from_fn(|| inflight.take_again()).collect()
    }

    #[test]
    fn what_was_not_published_is_done_again_in_order() {
        let memory = Shared::new();
        let mut first = open(&memory, 5);
        [3, 1, 7, 0].into_iter().for_each(|head| first.take(head));
        first.give_back(1);
        first.publish(6);
        first.give_back(7);
        drop(first);
        assert_eq!(left(open(&memory, 6)), [3, 7, 0]);
    }

    #[test]
    fn what_was_published_is_not_done_again() {
        let memory = Shared::new();
        let mut first = open(&memory, u16::MAX);
        [3, 1, 7, 0].into_iter().for_each(|head| first.take(head));
        [7, 1].into_iter().for_each(|head| first.give_back(head));
        // It told the driver of both, whose index has wrapped, and was killed before it noted that.
        drop(first);
        assert_eq!(left(open(&memory, 1)), [3, 0]);
        assert_eq!(left(open(&memory, 1)), [3, 0]);
    }

    #[test]
    fn what_was_put_back_is_nobodys() {
        let memory = Shared::new();
        let mut first = open(&memory, 0);
        first.take(2);
        first.put_back(2);
        assert_eq!(left(open(&memory, 0)), []);
    }

    #[test]
    fn memory_that_says_anything_is_refused_or_read() {
        let memory = Shared::new();
        let opened = |at, size| Inflight::open(memory.view(), at, size, 3).map(left);
        for (at, size) in [(4096, SIZE), (4080, SIZE), (u64::MAX - 64, SIZE)] {
            assert!(opened(at, size).is_err(), "{at}");
        }
        let view = memory.view();
        view.write(AT, &[0xff; 256]).unwrap();
        assert!(opened(AT, SIZE).unwrap_err().contains("version 1"));
        view.store16(AT + VERSION, CURRENT).unwrap();
        assert!(opened(AT, SIZE).unwrap_err().contains("of this size"));
        view.store16(AT + COUNT, SIZE).unwrap();
        assert_eq!(opened(AT, SIZE).unwrap().len(), usize::from(SIZE));
    }
}
