//! Neighbours on a link and their link addresses: the table that ARP and Neighbour Discovery share
//! (RFC 4861, 7.3; RFC 1122, 2.3.2).
//!
//! The table is bounded, and so is what waits in it. An entry is *unproven* until we have used it:
//! because nobody has answered yet, or because a peer spoke of itself unasked. Unproven entries
//! take at most a quarter of the table and push out each other only, so that no flood of them
//! pushes out a neighbour that we talk to.
//!
//! Proven neighbours are noted down for the next host ([`Neighbours::keep`]), as long as there is
//! a place: it sends to them at once, and asks those again that nobody confirms.

use crate::address::Address;
use crate::bucket::Bucket;
use crate::counts::{Counts, reasons};
use crate::ethernet::Mac;
use crate::notes::Shelf;
use alloc::collections::BTreeMap;
use arrayvec::ArrayVec;
use core::time::Duration;
use ports::Instant;

/// Neighbours that are known at once.
pub const NEIGHBOURS_MAX: usize = 1024;
/// Unproven ones among them.
pub const UNPROVEN_MAX: usize = NEIGHBOURS_MAX / 4;
/// Packets that wait for one neighbour (RFC 4861, 7.2.2: a small queue, of which the oldest goes).
pub const WAITING_EACH_MAX: usize = 3;
/// Packets that wait for all neighbours: they hold buffers of the port.
pub const WAITING_MAX: usize = 64;

/// Requests for one neighbour before it is given up: MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT
/// (RFC 4861, 10).
const REQUESTS_MAX: u8 = 3;
/// Time between requests for one neighbour: RETRANS_TIMER (RFC 4861, 10).
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer is believed: REACHABLE_TIME (RFC 4861, 10).
const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// How long upper layers may confirm a neighbour before it is asked: DELAY_FIRST_PROBE_TIME.
const DELAY_TIME: Duration = Duration::from_secs(5);
/// Requests a second, for all neighbours together.
const REQUESTS_PER_SECOND: u32 = 100;
/// Requests at once.
const REQUESTS_BURST: u32 = 64;

/// What is known of a neighbour (RFC 4861, 7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was asked for so many times.
    Incomplete(u8),
    /// It answered, or an upper layer confirmed it.
    Reachable,
    /// Nothing was heard for a while.
    Stale,
    /// It was used since: upper layers may confirm it before it is asked.
    Delay,
    /// It was asked directly so many times.
    Probe(u8),
}

#[derive(Debug)]
struct Entry<W> {
    /// Means nothing while the state is incomplete.
    mac: Mac,
    state: State,
    /// When the state ends, or the next request is due.
    until: Instant,
    used: Instant,
    /// Whether we have sent to it since its address is known.
    proven: bool,
    waiting: ArrayVec<W, WAITING_EACH_MAX>,
    /// Where it is noted down.
    place: Option<u16>,
}

impl<W> Entry<W> {
    /// When there is something to do about it; `None` if only its use will tell.
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Incomplete(_) | State::Delay | State::Probe(_) => Some(self.until),
            State::Reachable | State::Stale => None,
        }
    }

    /// What the state is at this time.
    fn age(&mut self, now: Instant) {
        if self.state == State::Reachable && self.until <= now {
            self.state = State::Stale;
        }
    }
}

/// How a neighbour's link address was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answers us.
    Answer,
    /// It asks us, so that we will talk to it.
    Question,
    /// It says so to everybody.
    Announcement,
}

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<A> {
    /// Who is asked for.
    pub neighbour: A,
    /// Where it was; `None` asks everybody.
    pub last: Option<Mac>,
}

/// Packets that waited for a neighbour.
pub type Released<W> = ArrayVec<W, WAITING_EACH_MAX>;

reasons! {
    /// What went wrong with neighbours.
    pub enum Trouble {
        /// One did not answer.
        Silent = "neighbour_silent",
        /// One was forgotten, because the table is full.
        Evicted = "neighbour_evicted",
        /// A packet that waited was dropped for a newer one.
        Overtaken = "neighbour_overtaken",
        /// A packet could not wait.
        Refused = "neighbour_refused",
    }
}

/// The neighbours of one link; `W` is what waits for them.
#[derive(Debug)]
pub struct Neighbours<A, W> {
    entries: BTreeMap<A, Entry<W>>,
    /// When something is due at the earliest.
    next: Option<Instant>,
    requests: Bucket,
    waiting: usize,
    unproven: usize,
    trouble: Counts<Trouble>,
    shelf: Option<Shelf<A>>,
}

impl<A: Address, W> Default for Neighbours<A, W> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            next: None,
            requests: Bucket::new(REQUESTS_PER_SECOND, REQUESTS_BURST),
            waiting: 0,
            unproven: 0,
            trouble: Counts::default(),
            shelf: None,
        }
    }
}

impl<A: Address, W> Neighbours<A, W> {
    /// Goes on with the neighbours that an earlier host has noted down, and notes down its own from
    /// now on.
    ///
    /// # Panics
    /// In debug builds, if it has neighbours.
    pub fn keep(&mut self, mut shelf: Shelf<A>, now: Instant) {
        debug_assert!(self.is_empty(), "there are neighbours already");
        for (place, neighbour, mac) in shelf.take_up() {
            if self.entries.len() >= NEIGHBOURS_MAX || self.entries.contains_key(&neighbour) {
                shelf.erase(place);
                continue;
            }
            let entry = Entry {
                mac,
                state: State::Stale,
                until: now,
                used: now,
                proven: true,
                waiting: ArrayVec::new(),
                place: Some(place),
            };
            self.entries.insert(neighbour, entry);
        }
        self.shelf = Some(shelf);
    }

    /// Where to send, if that is known.
    #[inline]
    pub fn lookup(&mut self, neighbour: A, now: Instant) -> Option<Mac> {
        let entry = self.entries.get_mut(&neighbour)?;
        if matches!(entry.state, State::Incomplete(_)) {
            return None;
        }
        entry.used = now;
        entry.age(now);
        if !entry.proven {
            entry.proven = true;
            self.unproven -= 1;
            note(&mut self.shelf, neighbour, entry);
        }
        let mac = entry.mac;
        if entry.state == State::Stale {
            entry.state = State::Delay;
            entry.until = now + DELAY_TIME;
            self.wake(now + DELAY_TIME);
        }
        Some(mac)
    }

    /// Where a neighbour is, without the intent to send to it.
    pub fn mac(&self, neighbour: A) -> Option<Mac> {
        let entry = self.entries.get(&neighbour)?;
        (!matches!(entry.state, State::Incomplete(_))).then_some(entry.mac)
    }

    /// Keeps a packet for a neighbour whose address [`Self::lookup`] did not know; a request is due
    /// then.
    ///
    /// # Errors
    /// The packet, if too many wait.
    pub fn hold(&mut self, neighbour: A, packet: W, now: Instant) -> Result<(), W> {
        if self.waiting >= WAITING_MAX && !self.drop_oldest_waiting(neighbour) {
            self.trouble.add(Trouble::Refused);
            return Err(packet);
        }
        if !self.entries.contains_key(&neighbour) {
            self.insert(neighbour, Mac([0; 6]), State::Incomplete(0), now);
            self.wake(now);
        }
        let Some(entry) = self.entries.get_mut(&neighbour) else {
            return Err(packet);
        };
        entry.used = now;
        if entry.waiting.is_full() {
            entry.waiting.remove(0);
            self.waiting -= 1;
            self.trouble.add(Trouble::Overtaken);
        }
        entry.waiting.push(packet);
        self.waiting += 1;
        Ok(())
    }

    /// A neighbour's link address was heard; returns where to send what waited for it.
    pub fn learn(&mut self, neighbour: A, mac: Mac, heard: Heard, now: Instant) -> Released<W> {
        if !mac.is_station() {
            return Released::new();
        }
        let Some(entry) = self.entries.get_mut(&neighbour) else {
            if heard == Heard::Question {
                self.insert(neighbour, mac, State::Stale, now);
            }
            return Released::new();
        };
        entry.age(now);
        let incomplete = matches!(entry.state, State::Incomplete(_));
        match heard {
            // An answer that nobody asked for proves nothing (RFC 4861, 7.2.5).
            Heard::Answer if !matches!(entry.state, State::Stale | State::Reachable) => {
                entry.state = State::Reachable;
                entry.until = now + REACHABLE_TIME;
            }
            _ if incomplete || entry.mac != mac => entry.state = State::Stale,
            _ => {}
        }
        let moved = entry.mac != mac;
        entry.mac = mac;
        let released = core::mem::take(&mut entry.waiting);
        if incomplete && !released.is_empty() {
            entry.proven = true;
            self.unproven -= 1;
        }
        if moved && entry.proven {
            note(&mut self.shelf, neighbour, entry);
        }
        self.waiting -= released.len();
        released
    }

    /// An upper layer knows that the neighbour receives what we send (RFC 4861, 7.3.1).
    #[inline]
    pub fn confirm(&mut self, neighbour: A, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&neighbour)
            && !matches!(entry.state, State::Incomplete(_))
        {
            entry.state = State::Reachable;
            entry.until = now + REACHABLE_TIME;
        }
    }

    /// The next request that is due, if any: to be called until there is none.
    pub fn next_request(&mut self, now: Instant) -> Option<Request<A>> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        loop {
            // Looked at first: under a flood, nothing is searched for requests that must wait.
            if self.requests.ready() > now {
                self.next = Some(self.requests.ready());
                return None;
            }
            let earliest = self
                .entries
                .iter()
                .filter_map(|(address, entry)| Some((entry.due()?, *address)))
                .min();
            let Some((due, neighbour)) = earliest else {
                self.next = None;
                return None;
            };
            if now < due {
                self.next = Some(due);
                return None;
            }
            if let Some(request) = self.request(neighbour, now) {
                self.requests.take(now);
                return Some(request);
            }
        }
    }

    /// When [`Self::next_request`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Neighbours in the table.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What went wrong.
    pub fn trouble(&self) -> &Counts<Trouble> {
        &self.trouble
    }

    /// Takes the step that is due for `neighbour`: a request, or the end of its entry.
    fn request(&mut self, neighbour: A, now: Instant) -> Option<Request<A>> {
        let entry = self.entries.get_mut(&neighbour)?;
        let (state, last) = match entry.state {
            State::Incomplete(asked) if asked < REQUESTS_MAX => {
                (State::Incomplete(asked + 1), None)
            }
            State::Delay => (State::Probe(1), Some(entry.mac)),
            State::Probe(asked) if asked < REQUESTS_MAX => {
                (State::Probe(asked + 1), Some(entry.mac))
            }
            _ => {
                self.trouble.add(Trouble::Silent);
                self.remove(neighbour);
                return None;
            }
        };
        entry.state = state;
        entry.until = now + REQUEST_INTERVAL;
        Some(Request { neighbour, last })
    }

    fn insert(&mut self, neighbour: A, mac: Mac, state: State, now: Instant) {
        let evicted = if self.unproven >= UNPROVEN_MAX {
            self.oldest(|entry| !entry.proven)
        } else if self.entries.len() >= NEIGHBOURS_MAX {
            self.oldest(|_| true)
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.trouble.add(Trouble::Evicted);
            self.remove(evicted);
        }
        self.unproven += 1;
        let entry = Entry {
            mac,
            state,
            until: now,
            used: now,
            proven: false,
            waiting: ArrayVec::new(),
            place: None,
        };
        self.entries.insert(neighbour, entry);
    }

    /// Who was used least recently among those that `which` names.
    fn oldest(&self, which: impl Fn(&Entry<W>) -> bool) -> Option<A> {
        self.entries
            .iter()
            .filter(|(_, entry)| which(entry))
            .min_by_key(|(_, entry)| entry.used)
            .map(|(address, _)| *address)
    }

    fn remove(&mut self, neighbour: A) {
        if let Some(entry) = self.entries.remove(&neighbour) {
            self.waiting -= entry.waiting.len();
            self.unproven -= usize::from(!entry.proven);
            if let (Some(shelf), Some(place)) = (&mut self.shelf, entry.place) {
                shelf.erase(place);
            }
        }
    }

    /// Makes room for a packet that waits for `neighbour`: the neighbour that has waited longest
    /// loses one. `false` if all wait for this one, which its own bound prevents.
    fn drop_oldest_waiting(&mut self, neighbour: A) -> bool {
        let Some(oldest) = self.oldest(|entry| !entry.waiting.is_empty()) else {
            return false;
        };
        if oldest == neighbour {
            return true;
        }
        if let Some(entry) = self.entries.get_mut(&oldest) {
            entry.waiting.remove(0);
            self.waiting -= 1;
            self.trouble.add(Trouble::Overtaken);
        }
        true
    }

    fn wake(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// Notes down where a neighbour is. Not inlined: it happens once, and who it is is looked up for
/// each packet.
#[inline(never)]
fn note<A: Address, W>(shelf: &mut Option<Shelf<A>>, neighbour: A, entry: &mut Entry<W>) {
    if let Some(shelf) = shelf {
        entry.place = shelf.write(entry.place, neighbour, entry.mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes::Notes;
    use crate::testing::{at, lasting, lying};
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    type Table = Neighbours<Ipv4Addr, u32>;
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);

    fn address(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0b00_0000 + n)
    }

    fn requests(table: &mut Table, now: Instant) -> Vec<Request<Ipv4Addr>> {
        core::iter::from_fn(|| table.next_request(now)).collect()
    }

    /// A table that knows PEER since the beginning.
    fn known() -> Table {
        let mut table = Table::default();
        table.hold(PEER, 1, at(0)).unwrap();
        requests(&mut table, at(0));
        table.learn(PEER, MAC, Heard::Answer, at(0));
        table
    }

    #[test]
    fn packets_wait_until_the_neighbour_answers() {
        let mut table = Table::default();
        assert_eq!(table.lookup(PEER, at(0)), None);
        (1..=4).for_each(|packet| table.hold(PEER, packet, at(0)).unwrap());
        assert_eq!(
            requests(&mut table, at(0)),
            [Request {
                neighbour: PEER,
                last: None
            }]
        );
        assert_eq!(requests(&mut table, at(999)), []);
        let released = table.learn(PEER, MAC, Heard::Answer, at(999));
        assert_eq!(released[..], [2, 3, 4], "the oldest went");
        assert_eq!(table.trouble().get(Trouble::Overtaken), 1);
        assert_eq!(table.lookup(PEER, at(999)), Some(MAC));
        assert_eq!(requests(&mut table, at(5000)), []);
        assert_eq!(table.deadline(), None);
    }

    #[test]
    fn a_silent_neighbour_is_asked_three_times_and_given_up() {
        let mut table = Table::default();
        table.hold(PEER, 1, at(0)).unwrap();
        let times = [0, 1000, 2000].map(|ms| requests(&mut table, at(ms)).len());
        assert_eq!((times, table.deadline()), ([1, 1, 1], Some(at(3000))));
        assert_eq!(requests(&mut table, at(3000)), []);
        assert_eq!((table.len(), table.waiting, table.unproven), (0, 0, 0));
        assert_eq!(table.trouble().get(Trouble::Silent), 1);
    }

    #[test]
    fn a_stale_neighbour_is_used_and_then_asked_directly() {
        let mut table = known();
        assert_eq!(table.lookup(PEER, at(30_000)), Some(MAC));
        assert_eq!(requests(&mut table, at(34_999)), []);
        let direct = Request {
            neighbour: PEER,
            last: Some(MAC),
        };
        assert_eq!(requests(&mut table, at(35_000)), [direct]);
        table.learn(PEER, MAC, Heard::Answer, at(35_001));
        assert_eq!(requests(&mut table, at(60_000)), []);
        // And again, without an answer.
        table.lookup(PEER, at(70_000));
        let times = [75, 76, 77, 78].map(|s| requests(&mut table, at(s * 1000)).len());
        assert_eq!(
            (times, table.lookup(PEER, at(78_000))),
            ([1, 1, 1, 0], None)
        );
    }

    #[test]
    fn upper_layers_confirm_a_neighbour_without_a_request() {
        let mut table = known();
        table.lookup(PEER, at(30_000));
        table.confirm(PEER, at(31_000));
        assert_eq!(requests(&mut table, at(60_000)), []);
        table.confirm(address(1), at(0));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn an_address_that_moves_is_asked_again_and_nobody_is_learnt_unasked() {
        let mut table = known();
        table.learn(PEER, OTHER, Heard::Announcement, at(1));
        assert_eq!(table.lookup(PEER, at(2)), Some(OTHER));
        let direct = Request {
            neighbour: PEER,
            last: Some(OTHER),
        };
        assert_eq!(requests(&mut table, at(6000)), [direct]);
        table.learn(address(1), MAC, Heard::Announcement, at(2));
        table.learn(address(2), MAC, Heard::Answer, at(2));
        assert_eq!(table.len(), 1);
        table.learn(address(3), MAC, Heard::Question, at(2));
        assert_eq!(table.lookup(address(3), at(2)), Some(MAC));
        // Groups have no link address of their own.
        table.learn(PEER, Mac::BROADCAST, Heard::Answer, at(7000));
        assert_eq!(table.lookup(PEER, at(7000)), Some(OTHER));
    }

    #[test]
    fn floods_push_out_no_neighbour_that_is_used() {
        let mut table = known();
        for n in 0..10_000 {
            table.learn(address(n), OTHER, Heard::Announcement, at(1));
            table.learn(address(n), OTHER, Heard::Question, at(1));
            let _ = table.hold(address(20_000 + n), n, at(1));
        }
        assert_eq!(table.lookup(PEER, at(2)), Some(MAC));
        assert_eq!(
            (table.len(), table.unproven),
            (UNPROVEN_MAX + 1, UNPROVEN_MAX)
        );
        assert!(table.waiting <= WAITING_MAX);
        // A packet for somebody else may wait nevertheless.
        assert_eq!(table.hold(address(50_000), 7, at(2)), Ok(()));
        let asked = (0..10_000)
            .map(|ms| requests(&mut table, at(ms)).len())
            .sum::<usize>();
        assert!(
            asked <= 10 * REQUESTS_PER_SECOND as usize + REQUESTS_BURST as usize,
            "{asked}"
        );
        let count = |table: &Table| {
            table
                .entries
                .values()
                .map(|e| e.waiting.len())
                .sum::<usize>()
        };
        assert_eq!(table.waiting, count(&table));
    }

    #[test]
    fn a_full_table_forgets_whom_we_used_least_recently() {
        let mut table = known();
        for n in 0..2 * NEIGHBOURS_MAX as u32 {
            let now = at(1 + u64::from(n));
            table.hold(address(n), n, now).unwrap();
            table.learn(address(n), MAC, Heard::Answer, now);
            table.lookup(PEER, now);
        }
        assert_eq!(table.len(), NEIGHBOURS_MAX);
        assert_eq!(table.lookup(PEER, at(9000)), Some(MAC));
        assert_eq!(table.lookup(address(0), at(9000)), None);
    }

    #[test]
    fn neighbours_outlive_their_host_and_are_asked_again() {
        let memory = lasting(&[0; 512]);
        let start = memory.as_ptr().addr();
        let shelf = |bytes: &'static mut [u8]| {
            let mut notes = Notes::open(bytes, 1, Duration::ZERO);
            notes.remove(0).ipv4
        };
        let mut table = Table::default();
        table.keep(shelf(memory), at(0));
        table.hold(PEER, 1, at(0)).unwrap();
        requests(&mut table, at(0));
        table.learn(PEER, MAC, Heard::Answer, at(0));
        // Who has only spoken to us is not noted down.
        table.learn(address(3), MAC, Heard::Question, at(1));
        table.learn(PEER, OTHER, Heard::Announcement, at(2));
        let left = lasting(&lying(start, 512));
        let mut next = Table::default();
        next.keep(shelf(left), at(9));
        assert_eq!((next.len(), next.unproven), (1, 0));
        assert_eq!(next.lookup(PEER, at(9)), Some(OTHER));
        let direct = Request {
            neighbour: PEER,
            last: Some(OTHER),
        };
        assert_eq!(requests(&mut next, at(5009)), [direct]);
        // It does not answer, and is forgotten for the next host as well.
        (6..9).for_each(|s| drop(requests(&mut next, at(s * 1000 + 9))));
        assert_eq!(next.len(), 0);
    }
}
