//! The table of all that a stack counts, and how its numbers reach the host.
//!
//! A guest tells numbers and no names. [`TABLE`] has the names, for the host as for the image: an
//! addition is a line in one of the enums that it lists. With the numbers the image tells a
//! [`FINGERPRINT`] of its table, so that a host with another table shows none of them under a
//! wrong name.

use crate::counts::Reason;
use crate::tcp::{State, counted, input};
use crate::{
    arp, dhcp, ethernet, forwarding, icmp, interfaces, ipv4, ipv6, neighbour, reassembly, udp,
};
use core::time::Duration;
use ports::Instant;

/// What was counted lies with the host after so long.
pub const PERIOD: Duration = Duration::from_millis(100);

/// What numbers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How often something has happened, or how much has passed.
    Total,
    /// How many were dropped for a reason.
    Drop,
    /// How often something has gone wrong.
    Event,
    /// How many connections are in a state now.
    State,
    /// How much there is now.
    Level,
}

/// Numbers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What they say.
    pub kind: Kind,
    /// What they count.
    pub unit: &'static str,
    /// The name of each.
    pub names: &'static [&'static str],
    /// What each is, in a sentence.
    pub help: &'static [&'static str],
}

impl Group {
    const fn of<R: Reason>(kind: Kind, unit: &'static str) -> Self {
        Self {
            kind,
            unit,
            names: R::NAMES,
            help: R::HELP,
        }
    }
}

/// All that a stack counts, in the order of the numbers.
pub const TABLE: [Group; 20] = [
    Group::of::<counted::Segments>(Kind::Total, "segments"),
    Group::of::<counted::Openings>(Kind::Total, "connections"),
    Group::of::<udp::Datagrams>(Kind::Total, "datagrams"),
    Group::of::<icmp::Messages>(Kind::Total, "messages"),
    Group::of::<arp::Messages>(Kind::Total, "messages"),
    Group::of::<ipv6::Discovered>(Kind::Total, "messages"),
    Group::of::<ethernet::Dropped>(Kind::Drop, "frames"),
    Group::of::<arp::Dropped>(Kind::Drop, "messages"),
    Group::of::<interfaces::Dropped>(Kind::Drop, "packets"),
    Group::of::<forwarding::Dropped>(Kind::Drop, "packets"),
    Group::of::<forwarding::Untagged>(Kind::Drop, "frames"),
    Group::of::<ipv4::Dropped>(Kind::Drop, "packets"),
    Group::of::<ipv6::Dropped>(Kind::Drop, "packets"),
    Group::of::<reassembly::Dropped>(Kind::Drop, "fragments"),
    Group::of::<input::Dropped>(Kind::Drop, "segments"),
    Group::of::<udp::Dropped>(Kind::Drop, "datagrams"),
    Group::of::<dhcp::Dropped>(Kind::Drop, "messages"),
    Group::of::<neighbour::Trouble>(Kind::Event, "times"),
    Group::of::<State>(Kind::State, "connections"),
    Group::of::<counted::Memory>(Kind::Level, "bytes"),
];

/// How many numbers there are.
pub const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < TABLE.len() {
        count += TABLE[group].names.len();
        group += 1;
    }
    count
};

/// What tells one table from another: a hash of all names (FNV-1a of 64 bits), never zero.
pub const FINGERPRINT: u64 = {
    let (mut hash, mut group) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while group < TABLE.len() {
        let names = TABLE[group].names;
        let mut name = 0;
        while name < names.len() {
            let bytes = names[name].as_bytes();
            let mut at = 0;
            // The end of a name counts as well.
            while at <= bytes.len() {
                let byte = if at < bytes.len() { bytes[at] } else { 0 };
                hash = (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3);
                at += 1;
            }
            name += 1;
        }
        group += 1;
    }
    hash | 1
};

/// All names, in the order of the numbers.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|group| group.names).copied()
}

/// Tells the host what was counted, at most once in [`PERIOD`]. `set` gives a number its value: the
/// [`FINGERPRINT`] has number 0, and the others follow.
pub struct Publisher<F> {
    set: F,
    sums: [u64; COUNT],
    due: Instant,
    pending: bool,
}

impl<F: Fn(usize, u64)> Publisher<F> {
    /// Nothing was told.
    pub fn new(set: F) -> Self {
        Self {
            set,
            sums: [0; COUNT],
            due: Instant::PAST,
            pending: false,
        }
    }

    /// A turn of the stack has ended. Tells what `counts` shows if it is time, and else later.
    #[inline]
    pub fn turn(&mut self, now: Instant, counts: impl FnOnce(&mut dyn FnMut(&'static str, u64))) {
        self.pending = now < self.due;
        if !self.pending {
            self.due = now + PERIOD;
            self.publish(counts);
        }
    }

    /// When the next turn is to be, so that what the last one has counted is told.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.then_some(self.due)
    }

    /// Tells what `counts` shows. Names that come twice add up; others than those of [`TABLE`] are
    /// passed over.
    pub fn publish(&mut self, counts: impl FnOnce(&mut dyn FnMut(&'static str, u64))) {
        self.sums.fill(0);
        // They come almost in order: the search begins behind the last one.
        let mut next = 0;
        counts(&mut |name, value| {
            let behind = names().enumerate().skip(next);
            let mut from_there = behind.chain(names().enumerate().take(next));
            if let Some((place, _)) = from_there.find(|(_, other)| *other == name) {
                self.sums[place] = self.sums[place].wrapping_add(value);
                next = place + 1;
            }
        });
        for (number, sum) in self.sums.iter().enumerate() {
            (self.set)(1 + number, *sum);
        }
        (self.set)(0, FINGERPRINT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, stack};
    use core::cell::RefCell;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_has_what_a_stack_counts_and_nothing_else() {
        let mut shown = BTreeSet::new();
        stack().0.counts(&mut |name, _| {
            shown.insert(name);
        });
        let named: BTreeSet<_> = names().collect();
        assert_eq!(named, shown);
        assert_eq!(names().count(), COUNT, "a name comes twice");
        assert_eq!(named.len(), COUNT);
        assert!(
            TABLE
                .iter()
                .all(|group| group.help.iter().all(|help| help.ends_with('.')))
        );
    }

    #[test]
    fn numbers_are_told_in_time_and_not_all_the_time() {
        let told = RefCell::new([None; COUNT + 1]);
        let mut publisher = Publisher::new(|number, value| told.borrow_mut()[number] = Some(value));
        let count = |many| move |show: &mut dyn FnMut(&'static str, u64)| show("arp_asked", many);
        let place = 1 + names().position(|name| name == "arp_asked").unwrap();
        publisher.turn(at(0), count(1));
        assert_eq!(
            (told.borrow()[0], told.borrow()[place]),
            (Some(FINGERPRINT), Some(1))
        );
        assert_eq!(publisher.deadline(), None);
        publisher.turn(at(99), count(2));
        assert_eq!(told.borrow()[place], Some(1));
        assert_eq!(publisher.deadline(), Some(at(100)));
        publisher.turn(at(100), count(3));
        assert_eq!(
            (told.borrow()[place], publisher.deadline()),
            (Some(3), None)
        );
    }

    #[test]
    fn what_comes_twice_adds_up_and_strangers_are_passed_over() {
        let told = RefCell::new([0; COUNT + 1]);
        let mut publisher = Publisher::new(|number, value| told.borrow_mut()[number] = value);
        publisher.publish(|show| {
            for (name, value) in [("fragment_late", 1), ("nobody", 9), ("fragment_late", 2)] {
                show(name, value);
            }
        });
        assert_eq!(told.borrow()[1..].iter().sum::<u64>(), 3);
    }
}
