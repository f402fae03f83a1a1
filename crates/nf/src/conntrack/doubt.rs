//! Connections that began under other rules than those in force: whether these would let them
//! begin, which is found out at the next packet of each.
//!
//! A flow has the generation of the rules by which it is known to be permitted, and a table the one
//! that counts. A flow of another one is none that goes on in fewer steps ([`super::open`]), so its
//! next packet is looked at in full. Before rules judge that, they are asked about the packet that
//! would begin the connection now: of its original direction, `new`, with a SYN. They only say what
//! they would do ([`Trial`]). A connection that they drop ends, and so does the packet.
//!
//! Nothing is done at once for all flows, but once in 255 times: generations are bytes.

use super::entry::{Entry, Name};
use super::flows::Flows;
use super::record::{Record, kind_of, status};
use super::timeout::{Class, Ticks};
use super::track::Tracked;
use super::tuple::Address;
use super::{Connection, Conntrack, Family, State};
use crate::fib::Routes;
use crate::key::{Fragment, Key};
use crate::rule::{Moment, RuleIndex, Tally, Verdict, Way};

/// The packet that would begin a connection, in the place of one of its packets.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) key: Key,
    /// Whether the packet at hand goes the other way.
    pub(crate) is_reply: bool,
}

/// A connection that is to be judged anew, and whether the packet at hand goes the way of its
/// answers.
#[derive(Debug)]
pub(crate) struct Doubt {
    entry: Entry,
    pub(crate) is_reply: bool,
}

impl Doubt {
    pub(super) fn of<R: Record>(flow: &R, direction: usize) -> Self {
        let entry = Entry {
            // What rules do not see of a connection that begins.
            class: Class::SynSent,
            status: flow.tracker.standing.status & (status::SNAT | status::DNAT),
            mark: 0,
            left: 0,
            // The one that begins it is counted; how long it was, nobody knows any more.
            packets: [1, 0],
            bytes: [0; 2],
            ..Entry::of(flow, Class::SynSent, Ticks::default())
        };
        Self {
            entry,
            is_reply: direction == 1,
        }
    }

    /// What names its original direction.
    pub(crate) fn name(&self) -> &Name {
        &self.entry.name
    }

    /// What names the other one.
    pub(crate) fn reply(&self) -> &Name {
        &self.entry.reply
    }

    /// The connection as it would begin.
    pub(crate) fn begin<T>(&self, see: impl FnOnce(&Connection<'_>) -> T) -> Option<T> {
        self.entry.connection(see)
    }
}

/// Asks rules what they would do: nothing is counted, logged, added to a set or taken from a limit
/// or a quota. Limits and quotas are not exceeded.
pub(crate) struct Trial<'a, T>(pub(crate) &'a mut T);

impl<T: Tally> Tally for Trial<'_, T> {
    fn count(&mut self, _: RuleIndex) {}

    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}

    fn moment(&mut self) -> Moment {
        self.0.moment()
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.0.routes()
    }

    fn is_trial(&self) -> bool {
        true
    }
}

/// What rules say of a connection.
type Rules<'a> = dyn FnMut(&Connection<'_>) -> (Verdict, RuleIndex) + 'a;

impl Conntrack {
    /// Each connection ends at its next packet from now on, unless rules would let it begin then:
    /// they are asked about a packet that they see in the place of that one.
    pub fn revalidate(&mut self) {
        let generation = match self.cover.generation.checked_add(1) {
            Some(next) => next,
            None => {
                self.table4.forget_generations();
                self.table6.forget_generations();
                1
            }
        };
        self.cover.generation = generation;
        self.set_generation(generation);
    }

    pub(super) fn set_generation(&mut self, generation: u8) {
        self.table4.set_generation(generation);
        self.table6.set_generation(generation);
    }

    /// Ends the connection of a packet if it began under other rules, and these would not let it
    /// begin. What becomes of the packet then.
    #[inline(never)]
    pub(super) fn revoke_unless(
        &mut self,
        key: &Key,
        (family, tracked): (Family, Tracked),
        now: u64,
        rules: &mut Rules<'_>,
    ) -> Option<(Verdict, RuleIndex)> {
        let doubt = match family {
            Family::None => None,
            Family::V4 => self.table4.doubt(&tracked),
            Family::V6 => self.table6.doubt(&tracked),
        }?;
        let first = First {
            key: key.beginning(doubt.name(), doubt.is_reply),
            is_reply: doubt.is_reply,
        };
        let fate = doubt
            .entry
            .beginning(&first, |connection| rules(connection))?;
        let permitted = fate.0 == Verdict::Accept;
        match family {
            Family::None => {}
            Family::V4 => self.table4.conclude_doubt(tracked.flow, permitted),
            Family::V6 => self.table6.conclude_doubt(tracked.flow, permitted),
        }
        if permitted {
            return None;
        }
        self.cover.counts.revoked += 1;
        if key.fragment() == Fragment::First {
            self.fragments.insert(self.fragments.name(key), now, fate);
        }
        Some(fate)
    }
}

impl<A: Address> Flows<A> {
    /// The connection of a packet, if it is to be judged anew. An error about it is none of its
    /// packets.
    pub(super) fn doubt(&self, tracked: &Tracked) -> Option<Doubt> {
        if tracked.state == State::Related {
            return None;
        }
        let flow = self.get(tracked.flow);
        (flow.generation() != self.generation).then(|| Doubt::of(flow, tracked.direction))
    }

    /// A connection was judged anew.
    pub(super) fn conclude_doubt(&mut self, number: u32, permitted: bool) {
        match permitted {
            true => {
                let generation = self.generation;
                self.get_mut(number).set_generation(generation);
            }
            false => {
                self.remove(number);
                self.records.changed();
            }
        }
    }

    /// The generation that counts from now on.
    fn set_generation(&mut self, generation: u8) {
        self.generation = generation;
        self.kind = kind_of(generation);
    }

    /// All flows are of a generation that no table has.
    fn forget_generations(&mut self) {
        for number in 0..self.records.used() {
            self.get_mut(number).set_generation(0);
        }
    }
}
