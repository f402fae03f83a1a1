//! Of the segments of open connections, those that most are: of IPv4, without options or with a
//! timestamp alone, and next in the order of their side. What becomes of one is what
//! [`super::open`] says of any, in fewer steps still, for less is to be asked where
//!
//! - it begins where its side has ended: it is not below what the other side may still want;
//! - it ends where its side may send, or before that;
//! - its ACK is not below the last one of its side, nor far below what the other side has sent;
//! - it is not the last segment once more, and offers a window: then the connection waits for
//!   nothing but acknowledgements.

use super::flows::{CHAIN_MAX, Flows, NONE, stays};
use super::hash::Hash;
use super::open::Found;
use super::packet::{Numbers, Straight};
use super::record::{Flow, Record, queue_of};
use super::timeout::{Class, Ticks};
use crate::key::protocol;

impl Flows<[u8; 4]> {
    /// The flow of such a segment, as [`Flows::find`] says, if it is of the rules in force.
    #[inline(always)]
    pub(super) fn find_straight(&self, segment: &Straight<'_>, now: Ticks) -> Found {
        let mut link = self.first_of(segment.hash(&self.hash));
        for _ in 0..CHAIN_MAX {
            if link == NONE {
                return None;
            }
            let (number, direction) = (link >> 1, (link & 1) as usize);
            let flow = self.get(number);
            if flow.is_of(segment.addresses, segment.ports, self.kind, direction) {
                return (flow.deadline > now).then_some((number, direction));
            }
            link = flow.links().chain[direction].get();
        }
        None
    }

    /// The connection takes note of such a segment, if that is next and nothing else is to be done;
    /// else nothing has changed.
    #[inline(always)]
    pub(super) fn go_straight(
        &mut self,
        number: u32,
        segment: &Straight<'_>,
        direction: usize,
        now: Ticks,
    ) -> Option<()> {
        let numbers = segment.numbers();
        if !self.get(number).has_next(&numbers, direction) {
            return None;
        }
        let flow: &mut Flow = self.records.change(number);
        let waits = flow.tracker.tcp_mut().go_straight(&numbers, direction);
        flow.traffic.add(direction, numbers.length.into());
        let (ticks, queue) = if waits { WAITS } else { OPENED };
        flow.deadline = now.after(ticks);
        let old = core::mem::replace(&mut flow.tracker.standing.queue, queue);
        if old != queue {
            self.counts_as(old, queue);
        }
        self.records.changed();
        Some(())
    }
}

/// How long such a connection stays, and its queue: if it waits for an acknowledgement, or not.
const WAITS: (Ticks, u8) = of(Class::Unacknowledged);
const OPENED: (Ticks, u8) = of(Class::Established);

const fn of(class: Class) -> (Ticks, u8) {
    (class.ticks(), queue_of(class, true))
}

impl Flow {
    #[inline(always)]
    fn has_next(&self, numbers: &Numbers, direction: usize) -> bool {
        self.is_open()
            && stays(self.tracker.standing.queue)
            && self.tracker.tcp().has_next(numbers, direction)
    }
}

impl Straight<'_> {
    /// As [`super::tuple::Tuple::hash`] has it.
    #[inline(always)]
    fn hash(&self, hash: &Hash) -> u32 {
        let rest = u64::from(self.ports) | u64::from(protocol::TCP) << 48;
        hash.of([[self.addresses, rest]])
    }
}
