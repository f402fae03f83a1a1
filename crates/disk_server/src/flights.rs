//! The requests of a connection that are under way: from their header until their last reply.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Requests of a connection that are under way at once; who sends more waits.
pub(crate) const FLIGHTS_MAX: usize = 64;

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    /// The client's own number for it.
    pub(crate) cookie: u64,
    /// Whether its replies carry data.
    pub(crate) is_read: bool,
    /// Where it begins, and how long it is, in bytes.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// Whether what it writes is to be durable, and is not yet.
    pub(crate) flush: bool,
    /// Parts of it that the disk has not done yet.
    pub(crate) left: u32,
    /// What went wrong first.
    pub(crate) error: Option<u32>,
}

/// All of a connection's.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    table: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Those that are over without anything from the disk.
    over: VecDeque<u32>,
}

impl Flights {
    /// Begins one; `None` if there are too many.
    pub(crate) fn begin(&mut self, flight: Flight) -> Option<u32> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.table.len() == FLIGHTS_MAX => return None,
            None => {
                self.table.push(None);
                self.table.len() as u32 - 1
            }
        };
        self.table[number as usize] = Some(flight);
        Some(number)
    }

    /// The one of this number, if it is under way.
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Flight> {
        self.table.get_mut(number as usize)?.as_mut()
    }

    /// It is over, and nothing of it is with the disk.
    pub(crate) fn is_over(&mut self, number: u32) {
        self.over.push_back(number);
    }

    /// The next that is over so.
    pub(crate) fn next_over(&mut self) -> Option<u32> {
        self.over.pop_front()
    }

    /// Its last reply was written.
    pub(crate) fn end(&mut self, number: u32) {
        let place = self.table.get_mut(number as usize);
        if place.and_then(Option::take).is_some() {
            self.free.push(number);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.table.len()
    }
}
