//! Groups that a port listens to, and how routers and switches are told of them: IGMP (RFC 2236,
//! RFC 3376) and MLD (RFC 2710, RFC 3810), whose messages differ in sizes and numbers only.
//!
//! A group is told of when it is joined and left, twice each, and when somebody asks. While a
//! router asks in the older version's way, it is told in that way. What others tell is not listened
//! to: a switch that listens needs each station's own report.

use crate::address::Address;
use crate::random::Random;
use arrayvec::ArrayVec;
use core::time::Duration;
use ports::Instant;

/// Groups that one port listens to, for each version of IP.
pub const GROUPS_MAX: usize = 32;
/// Bytes of the longest message that we send.
pub(crate) const MESSAGE_MAX: usize = RECORD_AT + 4 + 16;

/// How often a change is told (RFC 3376, 8.1).
const ROBUSTNESS: u8 = 2;
/// Longest time between the two (RFC 3376, 8.11).
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// For so long after its last question an older router is there (RFC 3376, 8.12).
const OLDER_ROUTER: Duration = Duration::from_secs(260);
/// Where a report has its one record, behind its header.
const RECORD_AT: usize = 8;

/// What a message says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Joined,
    Listening,
    Left,
}

/// A message that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told<A> {
    pub group: A,
    pub said: Said,
    /// In the older version's way.
    pub old: bool,
}

/// Somebody asks who listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query<A> {
    /// To which group; `None` is to any.
    pub group: Option<A>,
    /// The answer is to come within that time.
    pub within: Duration,
    /// It is of the older version.
    pub old: bool,
}

#[derive(Clone, Copy, Debug)]
struct Group<A> {
    address: A,
    listens: bool,
    /// How often a change is still to be told.
    changes: u8,
    due: Option<Instant>,
}

/// The groups.
#[derive(Debug)]
pub(crate) struct Groups<A> {
    groups: ArrayVec<Group<A>, GROUPS_MAX>,
    old_until: Instant,
    random: Random,
}

impl<A: Address> Groups<A> {
    pub fn new(seed: u64) -> Self {
        Self {
            groups: ArrayVec::new(),
            old_until: Instant::PAST,
            random: Random::new(seed),
        }
    }

    #[inline]
    pub fn contains(&self, group: A) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|known| known.address == group && known.listens)
    }

    /// Listens to a group from now on; `false` if there are too many.
    pub fn join(&mut self, group: A, now: Instant) -> bool {
        self.contains(group) || self.change(group, true, now)
    }

    /// Listens to a group no more.
    pub fn leave(&mut self, group: A, now: Instant) {
        if self.contains(group) {
            self.change(group, false, now);
        }
    }

    fn change(&mut self, address: A, listens: bool, now: Instant) -> bool {
        self.groups.retain(|known| known.address != address);
        let group = Group {
            address,
            listens,
            changes: ROBUSTNESS,
            due: Some(now),
        };
        self.groups.try_push(group).is_ok()
    }

    /// Takes a question: answers are spread over the time that it gives (RFC 3376, 5.2).
    pub fn asked(&mut self, query: Query<A>, now: Instant) {
        if query.old {
            self.old_until = now + OLDER_ROUTER;
        }
        for group in &mut self.groups {
            let meant = query.group.is_none_or(|asked| asked == group.address);
            if meant && group.listens {
                let answer = now + self.random.within(query.within);
                group.due = Some(group.due.map_or(answer, |due| due.min(answer)));
            }
        }
    }

    /// The next message that is to be sent now.
    pub fn next(&mut self, now: Instant) -> Option<Told<A>> {
        let is_due = |group: &Group<A>| group.due.is_some_and(|due| due <= now);
        let place = self.groups.iter().position(is_due)?;
        let group = &mut self.groups[place];
        let said = match (group.listens, group.changes) {
            (false, _) => Said::Left,
            (true, 0) => Said::Listening,
            (true, _) => Said::Joined,
        };
        group.changes = group.changes.saturating_sub(1);
        let again = now + self.random.within(CHANGE_INTERVAL);
        group.due = (group.changes > 0).then_some(again);
        let told = Told {
            group: group.address,
            said,
            old: now < self.old_until,
        };
        if said == Said::Left && group.due.is_none() {
            self.groups.remove(place);
        }
        Some(told)
    }

    /// When [`Self::next`] has a message.
    pub fn deadline(&self) -> Option<Instant> {
        self.groups.iter().filter_map(|group| group.due).min()
    }
}

/// Types of messages in one of the protocols.
pub(crate) struct Types {
    pub report: u8,
    pub old_report: u8,
    pub old_leave: u8,
}

/// A message of which the checksum is missing, for the one of the two protocols that has these
/// types and addresses of these bytes (RFC 3376, 4.2; RFC 3810, 5.2; RFC 2236, 2; RFC 2710, 3).
pub(crate) fn message<A>(told: &Told<A>, types: &Types, group: &[u8]) -> ArrayVec<u8, MESSAGE_MAX> {
    let (kind, record) = match (told.said, told.old) {
        (Said::Left, true) => (types.old_leave, None),
        (_, true) => (types.old_report, None),
        // From nobody but none, and from all but none.
        (Said::Left, false) => (types.report, Some(3)),
        (Said::Joined, false) => (types.report, Some(4)),
        (Said::Listening, false) => (types.report, Some(2)),
    };
    let mut message = ArrayVec::new();
    let mut put = |bytes: &[u8]| message.extend(bytes.iter().copied());
    put(&[kind, 0, 0, 0]);
    match record {
        Some(record) => put(&[0, 0, 0, 1, record, 0, 0, 0]),
        // MLD has a time there, which only questions use.
        None if group.len() == 16 => put(&[0; 4]),
        None => {}
    }
    put(group);
    message
}

/// A number whose upper half is an exponent and a mantissa of `bits` bits, if its first bit, above
/// both, is set (RFC 3376, 4.1.1; RFC 3810, 5.1.3).
pub(crate) fn decode(code: u32, bits: u32) -> u32 {
    let first = 1 << (bits + 3);
    if code < first {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << ((code >> bits & 7) + 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use core::net::Ipv4Addr;

    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

    fn told(groups: &mut Groups<Ipv4Addr>, ms: u64) -> ArrayVec<(Said, bool), 64> {
        let next = || groups.next(at(ms)).map(|told| (told.said, told.old));
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn changes_are_told_twice_and_questions_answered_in_time() {
        let mut groups = Groups::new(1);
        assert!(groups.join(GROUP, at(0)) && groups.join(GROUP, at(0)));
        assert_eq!(told(&mut groups, 0)[..], [(Said::Joined, false)]);
        assert!(groups.deadline().unwrap() <= at(1000));
        assert_eq!(told(&mut groups, 1000)[..], [(Said::Joined, false)]);
        assert_eq!(groups.deadline(), None);

        let mut query = Query {
            group: None,
            within: Duration::from_secs(10),
            old: false,
        };
        groups.asked(query, at(2000));
        assert!(groups.deadline().unwrap() > at(2000), "not at once");
        assert_eq!(told(&mut groups, 12_000)[..], [(Said::Listening, false)]);
        query.group = Some(Ipv4Addr::new(239, 9, 9, 9));
        groups.asked(query, at(12_000));
        assert_eq!(groups.deadline(), None);

        query.old = true;
        query.group = Some(GROUP);
        groups.asked(query, at(20_000));
        assert_eq!(told(&mut groups, 30_000)[..], [(Said::Listening, true)]);
        groups.leave(GROUP, at(400_000));
        assert!(!groups.contains(GROUP));
        assert_eq!(told(&mut groups, 400_000)[..], [(Said::Left, false)]);
        assert_eq!(told(&mut groups, 401_000)[..], [(Said::Left, false)]);
        assert!(groups.groups.is_empty());
    }

    #[test]
    fn groups_are_bounded() {
        let mut groups = Groups::new(1);
        let joined = (0..99).filter(|n| groups.join(Ipv4Addr::new(239, 0, 0, *n), at(0)));
        assert_eq!(joined.count(), GROUPS_MAX);
    }

    #[test]
    fn long_times_have_an_exponent() {
        let codes = [(0x7f, 4), (0x80, 4), (0xff, 4), (0x7fff, 12), (0x8000, 12)];
        let times = codes.map(|(code, bits)| decode(code, bits));
        assert_eq!(times, [127, 128, 31 << 10, 32_767, 32_768]);
    }
}
