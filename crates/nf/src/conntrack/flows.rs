//! The table of one family's flows: a slab of flows, an index that finds either direction of one,
//! and a queue for each class, whose flows end in the order in which they stand.
//!
//! Nothing here allocates but [`Flows::new`]. A timeout is the same for all flows of a class, if no
//! rule gave them others ([`super::policy`]), whose flows have queues of their own: so who is put
//! behind the others of its queue ends behind them, and no flow has a timer. Flows that are not
//! assured have queues of their own, too: when the table is full, they make room, the oldest
//! first, and in the order of [`GIVEN_UP`].
//!
//! Flows that stay in a full table, which are those that most packets belong to, stand in no queue:
//! nobody asks which of them is the oldest, and a packet of one touches no other flow. What has
//! ended of them is found by going through the table from one end to the other, again and again, a
//! part each time ([`SWEPT_MAX`]). Until then it takes its place, and is a flow no more.

use super::connection::Fate;
use super::hash::Hash;
use super::packet::Plain;
use super::policy::Policies;
use super::record::{
    Flow, Flow4, Flow6, Link, Links, QUEUES_OF_POLICY, Record, class_of, kind_of, policy, queue_of,
    status, under,
};
use super::store::{Records, in_order};
use super::timeout::{Class, STREAM_SECONDS, Ticks};
use super::tuple::{self, Address, Tuple};
use super::{Refused, Unsound};
use crate::key::protocol;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// No flow.
pub(super) const NONE: u32 = 0xff_ffff;
/// Flows of one bucket that are looked at. Under a secret key, a table has no bucket of so many.
pub(super) const CHAIN_MAX: usize = 64;
/// Buckets for each flow, which has two directions.
const BUCKETS_PER_FLOW: usize = 2;
/// Numbers of queues: see [`queue_of`].
const QUEUES: usize = 1 << u8::BITS;
/// Sources of flows that are not assured are told apart by so many counters. Sources that share
/// one, which nobody can bring about, share a limit.
const SOURCES: usize = 1024;
/// The part of the table that flows of one source may take while they are not assured: one of so
/// many.
const SOURCE_SHARE: usize = 4;
/// What makes room in a full table: flows that are not assured, by class, and then connections that
/// are being closed. Established and assured flows never do.
const GIVEN_UP: [(Class, bool); 15] = [
    (Class::Close, false),
    (Class::TimeWait, false),
    (Class::SynSent, false),
    (Class::SynSent2, false),
    (Class::SynReceived, false),
    (Class::Icmp, false),
    (Class::Udp, false),
    (Class::Generic, false),
    (Class::Retransmitted, false),
    (Class::Unacknowledged, false),
    (Class::Close, true),
    (Class::TimeWait, true),
    (Class::LastAck, true),
    (Class::FinWait, true),
    (Class::CloseWait, true),
];

/// What both sides of a connection have confirmed has all of them.
pub(super) const OPEN: u8 = status::SEEN_REPLY | status::ASSURED | status::CONFIRMED;

/// Queues of a policy that are none, but a number of flows that stay: a bit for each.
const STAYING: u32 = {
    let staying = [
        Class::Established,
        Class::Retransmitted,
        Class::Unacknowledged,
        Class::UdpStream,
    ];
    let (mut bits, mut at) = (0, 0);
    while at < staying.len() {
        bits |= 1 << queue_of(staying[at], true);
        at += 1;
    }
    bits
};
/// Records that are looked at by one [`Flows::expire`]: the largest table ([`super::FLOWS_MAX`]) is
/// gone through in 69 s, for there is one in each tick.
pub(super) const SWEPT_MAX: u32 = 256;

/// A flow that ends sooner than this anyway is not [`Flows::hasten`]ed (`nf_tcp_handle_invalid`).
const HASTENED_MIN: Ticks = Ticks::of_seconds(120);

/// Whether a flow of this queue stays.
#[inline(always)]
pub(super) fn stays(queue: u8) -> bool {
    STAYING >> (queue % QUEUES_OF_POLICY) & 1 != 0
}

/// Bytes that a flow of IPv4 takes on the heap, its part of the index included, and one of IPv6.
pub(super) const FLOW_BYTES: [usize; 2] = [
    size_of::<Flow4>() + BUCKETS_PER_FLOW * size_of::<u32>(),
    size_of::<Flow6>() + BUCKETS_PER_FLOW * size_of::<u32>(),
];
/// Bytes on the heap for a flow of each family whose records lie elsewhere: buckets, a power of two
/// of them, and what puts flows in order while they are taken up, which may be moved once.
pub(super) const INDEX_BYTES: usize =
    2 * (2 * BUCKETS_PER_FLOW * size_of::<u32>()) + 3 * size_of::<(Ticks, u32)>();
const _: () = assert!(FLOW_BYTES[0] <= 128 && FLOW_BYTES[1] <= 192);

/// A queue: its oldest flow and its newest.
#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
}

impl Queue {
    const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };
}

/// The table.
#[derive(Debug)]
pub(super) struct Flows<A: Address> {
    pub(super) records: Records<A::Record>,
    /// The first direction of each bucket: the number of its flow, times two, and 1 for the reply.
    buckets: Box<[u32]>,
    queues: Box<[Queue; QUEUES]>,
    /// Flows of each queue, also of those that are none.
    lengths: Box<[u32; QUEUES]>,
    /// How long flows stay.
    pub(super) timeouts: Policies,
    /// The record that is looked at next: see [`SWEPT_MAX`].
    hand: u32,
    /// Flows of no use, in a list by `newer`.
    free: u32,
    /// Flows of another one are to be judged anew: see [`super::doubt`].
    pub(super) generation: u8,
    /// What it makes of a name: see [`kind_of`].
    pub(super) kind: u32,
    /// Flows that are not assured, by source.
    sources: Box<[u32]>,
    /// What names and sources are hashed by, and what else is.
    pub(super) hash: Hash,
    hasher: SipHasher13,
}

impl<A: Address> Flows<A> {
    /// A table of these records, of which none is in use; fewer than 2^23.
    pub(super) fn new(records: Records<A::Record>, key: &[u8; 16]) -> Self {
        let buckets = records.capacity().next_power_of_two() * BUCKETS_PER_FLOW;
        Self {
            records,
            buckets: vec![NONE; buckets].into(),
            queues: Box::new([Queue::EMPTY; QUEUES]),
            lengths: Box::new([0; QUEUES]),
            timeouts: Policies::new(),
            hand: 0,
            free: NONE,
            generation: 0,
            kind: kind_of(0),
            sources: vec![0; SOURCES].into(),
            hash: Hash::new(key),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// Most flows.
    pub(super) fn capacity(&self) -> usize {
        self.records.capacity()
    }

    pub(super) fn get(&self, flow: u32) -> &A::Record {
        self.records.get(flow)
    }

    pub(super) fn get_mut(&mut self, flow: u32) -> &mut A::Record {
        self.records.get_mut(flow)
    }

    /// What hashes under the secret key.
    pub(super) fn hasher(&self) -> SipHasher13 {
        self.hasher
    }

    #[inline]
    pub(super) fn bucket(&self, tuple: &Tuple<A>) -> usize {
        tuple.hash(&self.hash) as usize & (self.buckets.len() - 1)
    }

    /// The flow with this direction, and which one it is; not one whose time is up.
    #[inline(always)]
    pub(super) fn find(&self, tuple: &Tuple<A>, now: Ticks) -> Option<(u32, usize)> {
        let (number, direction, flow) = self.find_in(self.bucket(tuple), tuple)?;
        (flow.deadline > now).then_some((number, direction))
    }

    /// The same of a packet that is in another place if it answers.
    #[inline]
    pub(super) fn find_in_zone(
        &self,
        tuple: &Tuple<A>,
        answers: u16,
        now: Ticks,
    ) -> Option<(u32, usize)> {
        if answers == tuple.place {
            return self.find(tuple, now);
        }
        let asked = self
            .find(tuple, now)
            .filter(|(_, direction)| *direction == 0);
        let answer = Tuple {
            place: answers,
            ..*tuple
        };
        asked.or_else(|| {
            let found = self.find(&answer, now);
            found.filter(|(_, direction)| *direction == 1)
        })
    }

    /// The same as [`Self::find`], whether its time is up or not.
    #[inline(always)]
    fn find_in(&self, bucket: usize, tuple: &Tuple<A>) -> Option<(u32, usize, &A::Record)> {
        let mut link = self.buckets[bucket];
        for _ in 0..CHAIN_MAX {
            if link == NONE {
                return None;
            }
            let (number, direction) = (link >> 1, (link & 1) as usize);
            let flow = self.get(number);
            if flow.is(tuple, direction) {
                return Some((number, direction, flow));
            }
            link = flow.links().chain[direction].get();
        }
        None
    }

    /// A number that whoever does not know the key cannot give to two names, and by which one is
    /// found again: 32 bits of the one hash, and 31 of the other.
    pub(super) fn known_by(&self, name: &Tuple<A>) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(name.source.bytes());
        hasher.write(name.destination.bytes());
        hasher.write_u16(name.ports[0]);
        hasher.write_u16(name.ports[1]);
        hasher.write_u16(name.place);
        hasher.write_u8(name.protocol);
        u64::from(name.hash(&self.hash)) << 31 | hasher.finish() >> 33
    }

    /// What has become of a flow whose name has this number.
    pub(super) fn fate_of(&self, number: u64, now: Ticks) -> Fate {
        let mut link = self.buckets[(number >> 31) as usize & (self.buckets.len() - 1)];
        for _ in 0..CHAIN_MAX {
            if link == NONE {
                break;
            }
            let direction = (link & 1) as usize;
            let flow = self.get(link >> 1);
            if direction == 0 && self.known_by(&flow.name()) == number && flow.deadline > now {
                let is_tcp = flow.name().protocol == protocol::TCP;
                let state = is_tcp.then(|| flow.tracker.tcp().state());
                return match state {
                    Some(Class::TimeWait | Class::Close) => Fate::Closed,
                    _ => Fate::GoesOn,
                };
            }
            link = flow.links().chain[direction].get();
        }
        Fate::Gone
    }

    /// The first direction in the bucket of a hash.
    #[inline(always)]
    pub(super) fn first_of(&self, hash: u32) -> u32 {
        self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// The first flow of a bucket.
    #[inline]
    pub(super) fn first_in(&self, bucket: usize) -> Option<u32> {
        let link = self.buckets[bucket];
        (link != NONE).then_some(link >> 1)
    }

    /// A number that every cache line of a flow's record is read for.
    #[inline]
    pub(super) fn glance(&self, flow: u32) -> u32 {
        let flow = self.get(flow);
        let standing = flow.tracker.standing;
        let name = flow.name().ports[0];
        flow.deadline.0 ^ u32::from(standing.queue) ^ u32::from(name)
    }

    /// Takes a flow that nobody finds before it is [`Self::confirm`]ed; whether another one was
    /// given up for it.
    pub(super) fn take(&mut self, mut flow: A::Record) -> Result<(u32, bool), Refused> {
        flow.set_generation(self.generation);
        let capacity = self.capacity();
        if capacity >= 2 * SOURCE_SHARE
            && *self.source(flow.name().source) as usize >= capacity / SOURCE_SHARE
        {
            return Err(Refused::Source);
        }
        if self.free == NONE
            && let Some(number) = self.records.push(flow)
        {
            return Ok((number, false));
        }
        let given_up = self.free == NONE;
        if given_up {
            self.give_up().ok_or(Refused::Full)?;
        }
        let number = self.free;
        self.free = self.get(number).links().newer.get();
        *self.get_mut(number) = flow;
        Ok((number, given_up))
    }

    /// Gives back a flow that was not confirmed.
    pub(super) fn give_back(&mut self, number: u32) {
        let free = self.free;
        self.get_mut(number).links_mut().newer = Link::to(free);
        self.free = number;
    }

    /// Lets a flow be found, and puts it into the queue of its class.
    pub(super) fn confirm(&mut self, number: u32, class: Class, now: Ticks) {
        let tuples = [0, 1].map(|direction| self.get(number).tuple(direction));
        let buckets = tuples.each_ref().map(|tuple| self.bucket(tuple));
        // One of the same directions whose time is up may still be there.
        for (bucket, tuple) in buckets.into_iter().zip(&tuples) {
            if let Some((old, ..)) = self.find_in(bucket, tuple) {
                self.remove(old);
            }
        }
        self.index(number, buckets);
        self.enqueue(number, class, now);
        in_order();
        self.get_mut(number).tracker.standing.status |= status::CONFIRMED;
        in_order();
    }

    /// Lets both directions be found, and counts the flow of its source.
    fn index(&mut self, number: u32, buckets: [usize; 2]) {
        for (direction, bucket) in buckets.into_iter().enumerate() {
            let next = self.buckets[bucket];
            self.get_mut(number).links_mut().chain[direction] = Link::to(next);
            self.buckets[bucket] = number << 1 | direction as u32;
        }
        if !self.get(number).has(status::ASSURED) {
            *self.source(self.get(number).name().source) += 1;
        }
    }

    /// The counter of the flows that have this source.
    fn source(&mut self, source: A) -> &mut u32 {
        let hash = tuple::source_hash(source, &self.hash) as usize;
        &mut self.sources[hash % SOURCES]
    }

    /// A flow of this source counts no more.
    fn forget_source(&mut self, source: A) {
        let count = self.source(source);
        *count = count.saturating_sub(1);
    }

    /// Both sides have confirmed the flow, which was not assured: it stays in a full table.
    pub(super) fn assure(&mut self, number: u32) {
        let flow = self.get_mut(number);
        flow.tracker.standing.status |= status::ASSURED;
        let source = flow.name().source;
        self.forget_source(source);
    }

    /// The flow stays for the time of its class from now on.
    pub(super) fn refresh(&mut self, number: u32, class: Class, now: Ticks) {
        let flow = self.records.get_mut(number);
        let old = flow.tracker.standing.queue;
        let queue = under(queue_of(class, flow.has(status::ASSURED)), policy(old));
        let deadline = now.after(self.timeouts.of(old).of(class));
        if old == queue && flow.deadline == deadline {
            return;
        }
        if stays(old) && stays(queue) {
            flow.deadline = deadline;
            if old != queue {
                flow.tracker.standing.queue = queue;
                self.lengths[usize::from(old)] -= 1;
                self.lengths[usize::from(queue)] += 1;
            }
            return;
        }
        self.dequeue(number);
        self.enqueue(number, class, now);
    }

    /// A flow that would stay for long stays no longer than one that waits for an acknowledgement.
    pub(super) fn hasten(&mut self, number: u32, now: Ticks) {
        let flow = self.get(number);
        let timeouts = self.timeouts.of(flow.tracker.standing.queue);
        let deadline = now.after(timeouts.of(Class::Unacknowledged));
        if flow.deadline >= now.after(HASTENED_MIN) && flow.deadline > deadline {
            self.refresh(number, Class::Unacknowledged, now);
        }
    }

    /// An open connection takes note of a segment, if that lies inside its windows; else nothing
    /// has changed.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        number: u32,
        plain: &Plain<'_>,
        direction: usize,
        now: Ticks,
    ) -> Option<()> {
        let record = self.records.change(number);
        let is_settled = record.generation() == self.generation;
        let flow: &mut Flow = record;
        let is_open =
            is_settled && flow.is_open() && flow.tracker.tcp().goes_on(&plain.segment, direction);
        if !is_open {
            return None;
        }
        let class = flow.tracker.tcp_mut().go_on(&plain.segment, direction);
        flow.traffic.add(direction, plain.length);
        let (old, queue) = (flow.tracker.standing.queue, queue_of(class, true));
        if !stays(old) {
            self.refresh(number, class, now);
            return Some(());
        }
        flow.deadline = now.after(class.ticks());
        if old != queue {
            flow.tracker.standing.queue = queue;
            self.counts_as(old, queue);
        }
        Some(())
    }

    /// A flow that stays has changed its class.
    #[inline(always)]
    pub(super) fn counts_as(&mut self, old: u8, queue: u8) {
        self.lengths[usize::from(old)] -= 1;
        self.lengths[usize::from(queue)] += 1;
    }

    fn enqueue(&mut self, number: u32, class: Class, now: Ticks) {
        let flow = self.records.get_mut(number);
        let old = flow.tracker.standing.queue;
        let queue = queue_of(class, flow.has(status::ASSURED));
        flow.tracker.standing.queue = under(queue, policy(old));
        flow.deadline = now.after(self.timeouts.of(old).of(class));
        self.append(number);
    }

    /// Puts a flow behind the others of its queue.
    fn append(&mut self, number: u32) {
        let queue = self.get(number).tracker.standing.queue;
        self.lengths[usize::from(queue)] += 1;
        if stays(queue) {
            return;
        }
        let queue = usize::from(queue);
        let newest = self.queues[queue].newest;
        let links = self.get_mut(number).links_mut();
        (links.older, links.newer) = (Link::to(newest), Link::to(NONE));
        if newest != NONE {
            self.get_mut(newest).links_mut().newer = Link::to(number);
        }
        let queue = &mut self.queues[queue];
        if newest == NONE {
            queue.oldest = number;
        }
        queue.newest = number;
    }

    fn dequeue(&mut self, number: u32) {
        let flow = self.get(number);
        let queue = flow.tracker.standing.queue;
        let Links { older, newer, .. } = *flow.links();
        self.lengths[usize::from(queue)] -= 1;
        if stays(queue) {
            return;
        }
        let queue = usize::from(queue);
        let (older, newer) = (older.get(), newer.get());
        match older {
            NONE => self.queues[queue].oldest = newer,
            older => self.get_mut(older).links_mut().newer = Link::to(newer),
        }
        match newer {
            NONE => self.queues[queue].newest = older,
            newer => self.get_mut(newer).links_mut().older = Link::to(older),
        }
    }

    /// Ends a flow that was confirmed.
    pub(super) fn remove(&mut self, number: u32) {
        let flow = self.get_mut(number);
        let (assured, source) = (flow.has(status::ASSURED), flow.name().source);
        // Where it is found depends on its zone.
        flow.tracker.standing.status &= status::ZONES;
        in_order();
        self.dequeue(number);
        if !assured {
            self.forget_source(source);
        }
        for direction in 0..2 {
            self.unlink(number, direction);
        }
        self.give_back(number);
    }

    /// Takes one direction out of its bucket.
    fn unlink(&mut self, number: u32, direction: usize) {
        let flow = self.get(number);
        let next = flow.links().chain[direction].get();
        let bucket = self.bucket(&flow.tuple(direction));
        let sought = number << 1 | direction as u32;
        if self.buckets[bucket] == sought {
            self.buckets[bucket] = next;
            return;
        }
        let mut link = self.buckets[bucket];
        for _ in 0..self.capacity() {
            if link == NONE {
                return;
            }
            let links = self.get_mut(link >> 1).links_mut();
            let chain = &mut links.chain[(link & 1) as usize];
            if chain.get() == sought {
                *chain = Link::to(next);
                return;
            }
            link = chain.get();
        }
    }

    /// Ends a flow to make room for another one.
    fn give_up(&mut self) -> Option<()> {
        let queues = GIVEN_UP.iter().flat_map(|(class, assured)| {
            let policies = self.timeouts.given();
            policies.map(|policy| under(queue_of(*class, *assured), policy))
        });
        let mut oldest = queues.map(|queue| self.queues[usize::from(queue)].oldest);
        let number = oldest.find(|number| *number != NONE)?;
        self.remove(number);
        Some(())
    }

    /// Ends flows whose time is up, at most so many; how many did. Of those that stay, it looks at
    /// [`SWEPT_MAX`].
    pub(super) fn expire(&mut self, now: Ticks, most: usize) -> usize {
        let mut expired = 0;
        let policies = self.timeouts.given();
        let queues = policies.flat_map(|policy| {
            (0..QUEUES_OF_POLICY).map(move |queue| usize::from(under(queue, policy)))
        });
        for queue in queues {
            while expired < most {
                let oldest = self.queues[queue].oldest;
                if oldest == NONE || self.get(oldest).deadline > now {
                    break;
                }
                self.remove(oldest);
                expired += 1;
            }
        }
        let used = self.records.used();
        for _ in 0..used.min(SWEPT_MAX) {
            if expired == most {
                break;
            }
            let number = if self.hand < used { self.hand } else { 0 };
            self.hand = number + 1;
            let flow = self.get(number);
            let staying = flow.has(status::CONFIRMED) && stays(flow.tracker.standing.queue);
            if staying && flow.deadline <= now {
                self.remove(number);
                expired += 1;
            }
        }
        expired
    }

    /// Goes on with the flows that an earlier image left, which may have had another key; how many
    /// there are. None stays longer than one does whose last packet came `now`.
    ///
    /// # Errors
    /// Something there was left by no image. Then nothing in this table is of use.
    pub(super) fn take_up(&mut self, now: Ticks) -> Result<u32, Unsound> {
        self.records.undo().ok_or(Unsound::Table)?;
        self.timeouts.take_up(self.records.timeouts());
        let used = self.records.used();
        let mut in_order = Vec::new();
        for number in (0..used).rev() {
            let flow = self.get(number);
            if !flow.has(status::CONFIRMED) {
                self.give_back(number);
                continue;
            }
            let queue = flow.tracker.standing.queue;
            let (class, _) = class_of(queue).ok_or(Unsound::Flow)?;
            if !flow.is_sound() || !self.timeouts.has(queue) {
                return Err(Unsound::Flow);
            }
            let tuples = [0, 1].map(|direction| flow.tuple(direction));
            let buckets = tuples.each_ref().map(|tuple| self.bucket(tuple));
            let mut directions = buckets.into_iter().zip(&tuples);
            if directions.any(|(bucket, tuple)| self.find_in(bucket, tuple).is_some()) {
                return Err(Unsound::Twice);
            }
            let ticks = self.timeouts.of(queue).of(class);
            let flow = self.get_mut(number);
            flow.deadline = flow.deadline.min(now.after(ticks));
            if tuples[0].protocol == protocol::UDP {
                let stream = now.after(Ticks::of_seconds(STREAM_SECONDS));
                let stream = flow.tracker.stream().min(stream);
                flow.tracker.set_stream(stream);
            }
            in_order.push((flow.deadline, number));
            self.index(number, buckets);
        }
        in_order.sort_unstable();
        for (_, number) in &in_order {
            self.append(*number);
        }
        // There are fewer than 2^23.
        Ok(in_order.len() as u32)
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.buckets.fill(NONE);
        self.sources.fill(0);
        self.queues.fill(Queue::EMPTY);
        self.lengths.fill(0);
        self.timeouts = Policies::new();
        self.hand = 0;
        self.free = NONE;
    }

    /// Flows of a class.
    pub(super) fn count(&self, class: Class) -> u32 {
        let policies = self.timeouts.given();
        let length = |assured| {
            let queue = queue_of(class, assured);
            let lengths = policies
                .clone()
                .map(|policy| self.length(under(queue, policy)));
            lengths.sum::<u32>()
        };
        length(false) + length(true)
    }

    /// Flows of a queue.
    pub(super) fn length(&self, queue: u8) -> u32 {
        self.lengths[usize::from(queue)]
    }
}

#[cfg(test)]
impl<A: Address> Flows<A> {
    /// Panics unless slab, buckets, queues and counters of sources say the same.
    pub(super) fn check(&self) {
        let mut free = 0;
        let mut at = self.free;
        while at != NONE {
            (free, at) = (free + 1, self.get(at).links().newer.get());
        }
        let mut sources = vec![0; SOURCES];
        let mut lengths = [0; QUEUES];
        for (number, queue) in self.queues.iter().enumerate() {
            let (mut at, mut last) = (queue.oldest, Ticks(0));
            while at != NONE {
                let flow = self.get(at);
                assert_eq!(usize::from(flow.tracker.standing.queue), number);
                assert!(!stays(number as u8), "who stays is in no queue");
                assert!(flow.deadline >= last, "a queue is in order");
                self.check_flow(at);
                lengths[number] += 1;
                if !flow.has(status::ASSURED) {
                    let hash = tuple::source_hash(flow.name().source, &self.hash) as usize;
                    sources[hash % SOURCES] += 1;
                }
                last = flow.deadline;
                at = flow.links().newer.get();
            }
        }
        for number in 0..self.records.used() {
            let queue = self.get(number).tracker.standing.queue;
            if self.get(number).has(status::CONFIRMED) && stays(queue) {
                self.check_flow(number);
                lengths[usize::from(queue)] += 1;
            }
        }
        assert_eq!(lengths, *self.lengths);
        let queued = lengths.iter().sum::<u32>();
        assert_eq!(*sources, *self.sources);
        assert_eq!(free + queued, self.records.used());
    }

    fn check_flow(&self, number: u32) {
        let flow = self.get(number);
        let class = class_of(flow.tracker.standing.queue);
        assert_eq!(
            class.map(|(_, assured)| assured),
            Some(flow.has(status::ASSURED))
        );
        for direction in 0..2 {
            let found = self.find(&flow.tuple(direction), Ticks(0));
            assert_eq!(found, Some((number, direction)), "it is found");
        }
    }
}
