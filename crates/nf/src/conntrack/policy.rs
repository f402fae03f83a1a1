//! What timeouts the flows of a table have: those of Linux, or what rules say of some of them.
//!
//! A flow has a number for it, of three bits. What a number stands for belongs to the table, and
//! not to the rules: so connections keep their timeouts when other rules are loaded, and when
//! another image takes the table up.

use super::flows::Flows;
use super::record::{POLICIES, QUEUES_OF_POLICY, Record, policy, under};
use super::timeout::{Class, Timeouts};
use super::tuple::Address;
use crate::key::protocol;
use alloc::boxed::Box;
use core::ops::Range;
use zerocopy::FromZeros;

/// Timeouts beside those of Linux that the flows of a family may have at once.
pub(crate) const TIMEOUTS_MAX: usize = POLICIES - 1;

/// Timeouts by their number.
#[derive(Debug)]
pub(super) struct Policies {
    all: Box<[Timeouts; POLICIES]>,
    /// Numbers from this one on were never given.
    given: usize,
}

impl Policies {
    /// Those of Linux alone.
    pub(super) fn new() -> Self {
        Self {
            all: Box::new([Timeouts::DEFAULT; POLICIES]),
            given: 1,
        }
    }

    /// The timeouts of the flows of a queue.
    #[inline(always)]
    pub(super) fn of(&self, queue: u8) -> &Timeouts {
        &self.all[policy(queue)]
    }

    /// Numbers that may have flows.
    pub(super) fn given(&self) -> Range<usize> {
        0..self.given
    }

    /// The number of these timeouts, if they have one.
    fn find(&self, timeouts: &Timeouts) -> Option<usize> {
        self.given().find(|number| self.all[*number] == *timeouts)
    }

    /// Those that an earlier image has left. Whatever they are, flows can have them; what has none
    /// at all was never given.
    pub(super) fn take_up(&mut self, left: &[Timeouts; POLICIES]) {
        let given = |(_, timeouts): &(usize, &Timeouts)| **timeouts != Timeouts::new_zeroed();
        let others = left.iter().enumerate().skip(1).filter(given);
        others.for_each(|(number, timeouts)| self.set(number, timeouts));
    }

    /// Whether flows of a queue can be there.
    pub(super) fn has(&self, queue: u8) -> bool {
        self.given().contains(&policy(queue))
    }

    fn set(&mut self, number: usize, timeouts: &Timeouts) {
        self.all[number] = *timeouts;
        self.given = self.given.max(number + 1);
    }
}

impl<A: Address> Flows<A> {
    /// A flow that has not begun is to have these timeouts, and begins with the first of them, as
    /// in the kernel (`nft_ct_timeout_obj_eval`); its class then. If others have all numbers, it
    /// keeps those that it has.
    pub(super) fn choose_timeouts(
        &mut self,
        record: &mut A::Record,
        class: Class,
        timeouts: &Timeouts,
    ) -> Class {
        let Some(number) = self.number_of(timeouts) else {
            return class;
        };
        let queue = &mut record.tracker.standing.queue;
        *queue = under(*queue, number);
        match record.name().protocol {
            protocol::TCP => Class::SynSent,
            protocol::UDP => Class::Udp,
            _ => class,
        }
    }

    /// The number of these timeouts, which may be that of some that no flow has any more.
    fn number_of(&mut self, timeouts: &Timeouts) -> Option<usize> {
        if let Some(known) = self.timeouts.find(timeouts) {
            return Some(known);
        }
        let free = (1..POLICIES).find(|number| !self.has_any(*number))?;
        self.timeouts.set(free, timeouts);
        self.records.set_timeouts(free, timeouts);
        Some(free)
    }

    /// Whether there are flows with the timeouts of this number.
    fn has_any(&self, number: usize) -> bool {
        (0..QUEUES_OF_POLICY).any(|queue| self.length(under(queue, number)) != 0)
    }
}
