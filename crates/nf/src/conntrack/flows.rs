//! The table of one family's flows: a slab of flows, an index that finds either direction of one,
//! and a queue for each class, whose flows end in the order in which they stand.
//!
//! Nothing here allocates but [`Flows::new`]. A timeout is the same for all flows of a class, so
//! who is put behind the others of its queue ends behind them, and no flow has a timer. Flows that
//! are not assured have queues of their own: when the table is full, they make room, the oldest
//! first, and in the order of [`GIVEN_UP`].

use super::Refused;
use super::tcp::Tcp;
use super::timeout::{Class, Ticks};
use super::tuple::{self, Address, Tuple};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use siphasher::sip::SipHasher13;

/// No flow.
pub(super) const NONE: u32 = u32::MAX;
/// Flows of one bucket that are looked at. Under a secret key, a table has no bucket of so many.
const CHAIN_MAX: usize = 64;
/// Buckets for each flow, which has two directions.
const BUCKETS_PER_FLOW: usize = 2;
/// Queues of classes: of flows that are not assured, then of those that are.
const QUEUES: usize = 2 * Class::ALL.len();
/// Sources of flows that are not assured are told apart by so many counters. Sources that share
/// one, which nobody can bring about, share a limit.
const SOURCES: usize = 1024;
/// The part of the table that flows of one source may take while they are not assured: one of so
/// many.
const SOURCE_SHARE: usize = 4;
/// What makes room in a full table: flows that are not assured, by class, and then connections that
/// are being closed. Established and assured flows never do.
const GIVEN_UP: [(Class, bool); 13] = [
    (Class::Close, false),
    (Class::TimeWait, false),
    (Class::SynSent, false),
    (Class::SynReceived, false),
    (Class::Icmp, false),
    (Class::Udp, false),
    (Class::Generic, false),
    (Class::Unacknowledged, false),
    (Class::Close, true),
    (Class::TimeWait, true),
    (Class::LastAck, true),
    (Class::FinWait, true),
    (Class::CloseWait, true),
];

/// What is known of a flow. `status` has the bits of nft's `ct status`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow<A> {
    source: A,
    destination: A,
    ports: [u16; 2],
    vlan: u16,
    protocol: u8,
    pub(super) status: u8,
    queue: u8,
    /// The next direction in the bucket of each direction.
    chain: [u32; 2],
    older: u32,
    newer: u32,
    pub(super) deadline: Ticks,
    pub(super) mark: u32,
    pub(super) traffic: [Traffic; 2],
    pub(super) tracker: Tracker,
}

/// Bits of `status`, which are those of nft's `ct status`.
pub(super) mod status {
    pub const SEEN_REPLY: u8 = 2;
    pub const ASSURED: u8 = 4;
    pub const CONFIRMED: u8 = 8;
}

/// What a protocol knows of its flow.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tracker {
    Tcp(Tcp),
    /// When it is a stream, if packets still come.
    Udp {
        stream: Ticks,
    },
    Other(Class),
}

/// Packets and bytes of one direction: 44 and 52 bits. Both stay at their largest value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    packets: u32,
    bytes: u32,
    /// The upper bits: 12 and 20.
    upper: u32,
}

impl Traffic {
    const PACKETS_MAX: u64 = (1 << 44) - 1;
    const BYTES_MAX: u64 = (1 << 52) - 1;

    pub(super) fn packets(self) -> u64 {
        u64::from(self.upper & 0xfff) << 32 | u64::from(self.packets)
    }

    pub(super) fn bytes(self) -> u64 {
        u64::from(self.upper >> 12) << 32 | u64::from(self.bytes)
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: u32) {
        let packets = (self.packets() + 1).min(Self::PACKETS_MAX);
        let bytes = (self.bytes() + u64::from(bytes)).min(Self::BYTES_MAX);
        (self.packets, self.bytes) = (packets as u32, bytes as u32);
        self.upper = (packets >> 32) as u32 | ((bytes >> 32) as u32) << 12;
    }
}

/// Bytes that a flow of IPv4 takes, its part of the index included, and one of IPv6.
pub(super) const FLOW_BYTES: [usize; 2] = [
    size_of::<Flow<[u8; 4]>>() + BUCKETS_PER_FLOW * size_of::<u32>(),
    size_of::<Flow<[u8; 16]>>() + BUCKETS_PER_FLOW * size_of::<u32>(),
];
const _: () = assert!(FLOW_BYTES[0] <= 128 && FLOW_BYTES[1] <= 192);

impl<A: Address> Flow<A> {
    pub(super) fn new(tuple: &Tuple<A>, tracker: Tracker) -> Self {
        Self {
            source: tuple.source,
            destination: tuple.destination,
            ports: tuple.ports,
            vlan: tuple.vlan,
            protocol: tuple.protocol,
            status: 0,
            queue: 0,
            chain: [NONE; 2],
            older: NONE,
            newer: NONE,
            deadline: Ticks::default(),
            mark: 0,
            traffic: [Traffic::default(); 2],
            tracker,
        }
    }

    /// One direction of it; 0 is the original one.
    #[inline]
    pub(super) fn tuple(&self, direction: usize) -> Tuple<A> {
        let original = Tuple {
            source: self.source,
            destination: self.destination,
            ports: self.ports,
            vlan: self.vlan,
            protocol: self.protocol,
        };
        match direction {
            0 => original,
            // What has no other direction never became a flow.
            _ => original.reversed().unwrap_or(original),
        }
    }

    /// Whether a direction of it is this one.
    #[inline]
    fn is(&self, tuple: &Tuple<A>, direction: usize) -> bool {
        self.protocol == tuple.protocol && self.tuple(direction) == *tuple
    }

    pub(super) fn has(&self, bit: u8) -> bool {
        self.status & bit != 0
    }
}

/// A queue: its oldest flow and its newest, and how many there are.
#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    length: u32,
}

/// The table.
#[derive(Debug)]
pub(super) struct Flows<A> {
    slab: Box<[Flow<A>]>,
    /// The first direction of each bucket: the number of its flow, times two, and 1 for the reply.
    buckets: Box<[u32]>,
    queues: [Queue; QUEUES],
    /// Flows of no use, in a list by `newer`.
    free: u32,
    /// Flows that are not assured, by source.
    sources: Box<[u32]>,
    hasher: SipHasher13,
}

impl<A: Address> Flows<A> {
    /// A table for so many flows, at least 1 and at most 2^30.
    pub(super) fn new(capacity: usize, empty: A, key: &[u8; 16]) -> Self {
        let capacity = capacity.clamp(1, 1 << 30);
        let tuple = Tuple {
            source: empty,
            destination: empty,
            ports: [0; 2],
            vlan: 0,
            protocol: 0,
        };
        let unused = Flow::new(&tuple, Tracker::Other(Class::Generic));
        let mut slab: Vec<Flow<A>> = vec![unused; capacity];
        for (number, flow) in slab.iter_mut().enumerate() {
            flow.newer = number as u32 + 1;
        }
        slab[capacity - 1].newer = NONE;
        let queue = Queue {
            oldest: NONE,
            newest: NONE,
            length: 0,
        };
        Self {
            slab: slab.into(),
            buckets: vec![NONE; capacity.next_power_of_two() * BUCKETS_PER_FLOW].into(),
            queues: [queue; QUEUES],
            free: 0,
            sources: vec![0; SOURCES].into(),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// Most flows.
    pub(super) fn capacity(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn get(&self, flow: u32) -> &Flow<A> {
        &self.slab[flow as usize]
    }

    pub(super) fn get_mut(&mut self, flow: u32) -> &mut Flow<A> {
        &mut self.slab[flow as usize]
    }

    #[inline]
    fn bucket(&self, tuple: &Tuple<A>) -> usize {
        tuple.hash(&self.hasher) as usize & (self.buckets.len() - 1)
    }

    /// The flow with this direction, and which one it is; not one whose time is up.
    #[inline]
    pub(super) fn find(&self, tuple: &Tuple<A>, now: Ticks) -> Option<(u32, usize)> {
        self.find_in(self.bucket(tuple), tuple, now)
    }

    #[inline]
    fn find_in(&self, bucket: usize, tuple: &Tuple<A>, now: Ticks) -> Option<(u32, usize)> {
        let mut link = self.buckets[bucket];
        for _ in 0..CHAIN_MAX {
            if link == NONE {
                return None;
            }
            let (number, direction) = (link >> 1, (link & 1) as usize);
            let flow = self.get(number);
            if flow.is(tuple, direction) {
                return (flow.deadline > now).then_some((number, direction));
            }
            link = flow.chain[direction];
        }
        None
    }

    /// Takes a flow that nobody finds before it is [`Self::confirm`]ed; whether another one was
    /// given up for it.
    pub(super) fn take(&mut self, flow: Flow<A>) -> Result<(u32, bool), Refused> {
        if self.slab.len() >= 2 * SOURCE_SHARE
            && *self.source(flow.source) as usize >= self.slab.len() / SOURCE_SHARE
        {
            return Err(Refused::Source);
        }
        let given_up = self.free == NONE;
        if given_up {
            self.give_up().ok_or(Refused::Full)?;
        }
        let number = self.free;
        self.free = self.get(number).newer;
        *self.get_mut(number) = flow;
        Ok((number, given_up))
    }

    /// Gives back a flow that was not confirmed.
    pub(super) fn give_back(&mut self, number: u32) {
        let free = self.free;
        self.get_mut(number).newer = free;
        self.free = number;
    }

    /// Lets a flow be found, and puts it into the queue of its class.
    pub(super) fn confirm(&mut self, number: u32, class: Class, now: Ticks) {
        let tuples = [0, 1].map(|direction| self.get(number).tuple(direction));
        let buckets = tuples.each_ref().map(|tuple| self.bucket(tuple));
        // One of the same directions whose time is up may still be there.
        for (bucket, tuple) in buckets.into_iter().zip(&tuples) {
            if let Some((old, _)) = self.find_in(bucket, tuple, Ticks(0)) {
                self.remove(old);
            }
        }
        for (direction, bucket) in buckets.into_iter().enumerate() {
            let next = self.buckets[bucket];
            self.get_mut(number).chain[direction] = next;
            self.buckets[bucket] = number << 1 | direction as u32;
        }
        self.get_mut(number).status |= status::CONFIRMED;
        *self.source(self.get(number).source) += 1;
        self.enqueue(number, class, now);
    }

    /// The counter of the flows that have this source.
    fn source(&mut self, source: A) -> &mut u32 {
        let hash = tuple::source_hash(source, &self.hasher) as usize;
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
        flow.status |= status::ASSURED;
        let source = flow.source;
        self.forget_source(source);
    }

    /// The flow stays for the time of its class from now on.
    #[inline]
    pub(super) fn refresh(&mut self, number: u32, class: Class, now: Ticks) {
        let flow = self.get(number);
        let queue = queue_of(class, flow.has(status::ASSURED));
        if flow.queue == queue && flow.deadline == now.after(class.ticks()) {
            return;
        }
        self.dequeue(number);
        self.enqueue(number, class, now);
    }

    fn enqueue(&mut self, number: u32, class: Class, now: Ticks) {
        let queue = queue_of(class, self.get(number).has(status::ASSURED));
        let newest = self.queues[usize::from(queue)].newest;
        let flow = self.get_mut(number);
        (flow.older, flow.newer, flow.queue) = (newest, NONE, queue);
        flow.deadline = now.after(class.ticks());
        if newest != NONE {
            self.get_mut(newest).newer = number;
        }
        let queue = &mut self.queues[usize::from(queue)];
        if newest == NONE {
            queue.oldest = number;
        }
        queue.newest = number;
        queue.length += 1;
    }

    fn dequeue(&mut self, number: u32) {
        let Flow {
            older,
            newer,
            queue,
            ..
        } = *self.get(number);
        match older {
            NONE => self.queues[usize::from(queue)].oldest = newer,
            older => self.get_mut(older).newer = newer,
        }
        match newer {
            NONE => self.queues[usize::from(queue)].newest = older,
            newer => self.get_mut(newer).older = older,
        }
        self.queues[usize::from(queue)].length -= 1;
    }

    /// Ends a flow that was confirmed.
    pub(super) fn remove(&mut self, number: u32) {
        self.dequeue(number);
        let flow = self.get(number);
        if !flow.has(status::ASSURED) {
            self.forget_source(flow.source);
        }
        for direction in 0..2 {
            self.unlink(number, direction);
        }
        self.give_back(number);
    }

    /// Takes one direction out of its bucket.
    fn unlink(&mut self, number: u32, direction: usize) {
        let flow = self.get(number);
        let (bucket, next) = (self.bucket(&flow.tuple(direction)), flow.chain[direction]);
        let sought = number << 1 | direction as u32;
        if self.buckets[bucket] == sought {
            self.buckets[bucket] = next;
            return;
        }
        let mut link = self.buckets[bucket];
        for _ in 0..self.slab.len() {
            if link == NONE {
                return;
            }
            let chain = &mut self.get_mut(link >> 1).chain[(link & 1) as usize];
            if *chain == sought {
                *chain = next;
                return;
            }
            link = *chain;
        }
    }

    /// Ends a flow to make room for another one.
    fn give_up(&mut self) -> Option<()> {
        let queues = GIVEN_UP
            .iter()
            .map(|(class, assured)| queue_of(*class, *assured));
        let oldest = queues.map(|queue| self.queues[usize::from(queue)].oldest);
        let number = oldest.into_iter().find(|number| *number != NONE)?;
        self.remove(number);
        Some(())
    }

    /// Ends flows whose time is up, at most so many; how many did.
    pub(super) fn expire(&mut self, now: Ticks, most: usize) -> usize {
        let mut expired = 0;
        for queue in 0..QUEUES {
            while expired < most {
                let oldest = self.queues[queue].oldest;
                if oldest == NONE || self.get(oldest).deadline > now {
                    break;
                }
                self.remove(oldest);
                expired += 1;
            }
        }
        expired
    }

    /// Flows of a class.
    pub(super) fn count(&self, class: Class) -> u32 {
        let length = |assured| self.queues[usize::from(queue_of(class, assured))].length;
        length(false) + length(true)
    }
}

fn queue_of(class: Class, assured: bool) -> u8 {
    class as u8 + if assured { Class::ALL.len() as u8 } else { 0 }
}

#[cfg(test)]
impl<A: Address + core::fmt::Debug> Flows<A> {
    /// Panics unless slab, buckets, queues and counters of sources say the same.
    pub(super) fn check(&self) {
        let mut free = 0;
        let mut at = self.free;
        while at != NONE {
            (free, at) = (free + 1, self.get(at).newer);
        }
        let mut queued = 0;
        let mut sources = vec![0; SOURCES];
        for (number, queue) in self.queues.iter().enumerate() {
            let (mut at, mut last, mut length) = (queue.oldest, Ticks(0), 0);
            while at != NONE {
                let flow = self.get(at);
                assert_eq!(usize::from(flow.queue), number);
                assert!(flow.deadline >= last, "a queue is in order");
                assert_eq!(flow.has(status::ASSURED), number >= Class::ALL.len());
                for direction in 0..2 {
                    let found = self.find(&flow.tuple(direction), Ticks(0));
                    assert_eq!(found, Some((at, direction)), "it is found");
                }
                if !flow.has(status::ASSURED) {
                    let hash = tuple::source_hash(flow.source, &self.hasher) as usize;
                    sources[hash % SOURCES] += 1;
                }
                (last, length) = (flow.deadline, length + 1);
                at = flow.newer;
            }
            assert_eq!(length, queue.length);
            queued += length as usize;
        }
        assert_eq!(*sources, *self.sources);
        assert_eq!(free + queued, self.slab.len());
    }
}
