//! All of TCP of one host: which connection a segment belongs to, who listens, and what leaves.

use super::below::{self, Below, is_right, mss};
use super::budget::{Budget, Used};
use super::connection::{Config, Connection, NEVER, State};
use super::cookie::Cookies;
use super::counted::{Openings, Segments, Sums};
use super::half_open::HalfOpen;
use super::identity::{Ends, Secret};
use super::input::{self, Dropped};
use super::listener::Listener;
use super::queues::Payload;
use super::segment::{Malformed, Segment};
use super::seq::Seq;
use super::socket::{Error, Socket};
use super::time_wait::TimeWaits;
use super::vault::Vault;
use crate::layer::Unsent;
use crate::slices::Slices;
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use bytes::Bytes;
use core::hash::BuildHasher;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll};
use core::time::Duration;
use device::Frame;
use hashbrown::{HashMap, HashTable};
use ports::Instant;
use siphasher::sip::SipHasher13;

/// Connections that are half open, at most; a listener's backlog bounds its own.
pub const HALF_OPEN_MAX: usize = 4096;
/// Segments that one connection sends before others have their turn.
const TURN: usize = 4;
/// Between two looks at connections that are half open.
pub(super) const HALF_OPEN_TICK: Duration = Duration::from_millis(250);
/// Old connections that are forgotten in one go.
const FORGET_MAX: usize = 64;
/// Answers to segments without a connection that leave in a second, be it RSTs or acknowledgements:
/// more would serve whoever forges them (RFC 5961, 7).
pub(super) const ANSWERS_MAX: u32 = 1000;
/// A socket of [`Tcp`]. It means none any more once that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketId {
    place: u32,
    generation: u32,
}

/// A listener of [`Tcp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub(super) u32);

/// All of TCP of one host.
pub struct Tcp {
    pub(super) config: Config,
    pub(super) secret: Secret,
    pub(super) cookies: Cookies,
    pub(super) hasher: Keyed,
    pub(super) places: Vec<Place>,
    pub(super) free: Vec<u32>,
    by_ends: HashTable<u32>,
    /// Whose the last segment was: segments come in trains.
    recent: u32,
    pub(super) half_open: HashMap<Ends, HalfOpen, Keyed>,
    pub(super) half_open_at: Instant,
    pub(super) time_waits: TimeWaits,
    pub(super) listeners: Vec<Option<Listener>>,
    /// When to look at which place, once for each; it may be too early.
    timers: BTreeSet<(Instant, u32)>,
    /// Sockets that may have something to send.
    line: VecDeque<u32>,
    /// The memory of all queues.
    pub(super) budget: Budget,
    /// Sockets that wait for memory, each once.
    starving: Vec<SocketId>,
    /// Connections that we have opened, for their ports.
    opened: u32,
    /// Answers to segments without a connection: since when, and how many.
    answers: (Instant, u32),
    pub(super) sums: Sums,
    /// Where connections and their bytes outlive the image. A connection has the same place there.
    pub(super) vault: Option<Vault>,
    /// Those that were taken up, until somebody asks for them.
    pub(super) taken_up: VecDeque<SocketId>,
    /// Until then, some who will listen do not yet.
    pub(super) listened_from: Instant,
    /// Until then, a peer that the host before has answered may be heard out of order.
    pub(super) in_order_from: Instant,
}

/// A hash whose key nobody knows, so that no peer can fill one place of a table.
#[derive(Clone)]
pub(super) struct Keyed(SipHasher13);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

/// It grows with the largest number of connections that there ever were; what it holds of one does
/// so while there is one.
#[derive(Default)]
pub(super) struct Place {
    generation: u32,
    pub(super) socket: Option<Box<Socket>>,
}

#[cfg(test)]
impl Tcp {
    /// Bytes of the heap that a socket holds, its place and the 5 bytes of its index included, both
    /// of which are there for twice as many connections at worst.
    pub fn allocated(&self, id: SocketId) -> usize {
        let Some(socket) = self.socket(id) else {
            return 0;
        };
        let connection = socket.connection();
        let queues = socket.send.allocated() + socket.receive.allocated();
        let known = connection.sent.allocated() + connection.received.allocated();
        2 * (size_of::<Place>() + 5) + size_of::<Socket>() + queues + known
    }
}

/// Why nobody can listen or connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The address and port are in use.
    InUse,
    /// No route leads there.
    NoRoute,
    /// All ports towards that address are in use.
    NoPort,
    /// There are as many connections as the image's vault has places for.
    NoPlace,
}

impl core::fmt::Display for Unusable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::InUse => "the port is in use",
            Self::NoRoute => "no route to the host",
            Self::NoPort => "no port is free",
            Self::NoPlace => "too many connections",
        })
    }
}

impl core::error::Error for Unusable {}

impl Tcp {
    /// No connection, none listening. All queues together hold at most `memory_max` bytes.
    pub fn new(config: Config, secret: Secret, hash_key: [u8; 16], memory_max: usize) -> Self {
        let hasher = Keyed(SipHasher13::new_with_key(&hash_key));
        Self {
            config,
            cookies: Cookies::new(secret.clone()),
            secret,
            places: Vec::new(),
            free: Vec::new(),
            by_ends: HashTable::new(),
            recent: 0,
            half_open: HashMap::with_hasher(hasher.clone()),
            half_open_at: NEVER,
            hasher,
            time_waits: TimeWaits::default(),
            listeners: Vec::new(),
            timers: BTreeSet::new(),
            line: VecDeque::new(),
            budget: Budget::new(memory_max),
            starving: Vec::new(),
            opened: 0,
            answers: (Instant::PAST, 0),
            sums: Sums::default(),
            vault: None,
            taken_up: VecDeque::new(),
            listened_from: Instant::PAST,
            in_order_from: Instant::PAST,
        }
    }

    /// All sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.places
            .iter()
            .filter_map(|place| place.socket.as_deref())
    }

    /// Those from this place on, each with its place.
    pub fn sockets_from(&self, first: u32) -> impl Iterator<Item = (u32, &Socket)> {
        let places = self.places.get(first as usize..).unwrap_or_default();
        let sockets = (first..).zip(places);
        sockets.filter_map(|(place, slot)| Some((place, slot.socket.as_deref()?)))
    }

    /// The socket.
    pub fn socket(&self, id: SocketId) -> Option<&Socket> {
        let place = self.places.get(id.place as usize)?;
        place
            .socket
            .as_deref()
            .filter(|_| place.generation == id.generation)
    }

    pub(super) fn socket_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        let place = self.places.get_mut(id.place as usize)?;
        let generation = place.generation;
        place
            .socket
            .as_deref_mut()
            .filter(|_| generation == id.generation)
    }

    /// Opens a connection to `remote`.
    ///
    /// # Errors
    /// If no route leads there, or no port or no place is free.
    pub fn connect(
        &mut self,
        below: &impl Below,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<SocketId, Unusable> {
        if self.is_full() {
            return Err(Unusable::NoPlace);
        }
        let source = below.source(remote.ip()).ok_or(Unusable::NoRoute)?;
        let mss = mss(below.limits(source, remote.ip()));
        let any = Ends::new(SocketAddr::new(source, 0), remote);
        for _ in 0..=u16::MAX - super::identity::EPHEMERAL_FIRST {
            let port = self.secret.port(&any, self.opened);
            self.opened = self.opened.wrapping_add(1);
            let local = SocketAddr::new(source, port);
            let ends = Ends::new(local, remote);
            if self.place_of(&ends).is_none() && !self.is_heard(local) {
                let opening = self.secret.opening(&ends, mss, now);
                self.sums.openings.add(Openings::Active);
                return Ok(self.insert(ends, Connection::connect(self.config, opening)));
            }
        }
        Err(Unusable::NoPort)
    }

    fn is_heard(&self, local: SocketAddr) -> bool {
        self.listener(local).is_some()
    }

    pub(super) fn place_of(&self, ends: &Ends) -> Option<u32> {
        let same = |place: &u32| {
            let place = self.places.get(*place as usize);
            let socket = place.and_then(|place| place.socket.as_ref());
            socket.is_some_and(|socket| socket.ends == *ends)
        };
        if same(&self.recent) {
            return Some(self.recent);
        }
        self.by_ends.find(self.hasher.hash_one(ends), same).copied()
    }

    /// Whether there is no place for one more connection.
    pub(super) fn is_full(&self) -> bool {
        let places = |vault: Vault| self.places.len() >= vault.connections();
        self.free.is_empty() && self.vault.is_some_and(places)
    }

    /// Finds a place for a connection; there is one.
    pub(super) fn insert(&mut self, ends: Ends, connection: Connection) -> SocketId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let berth = self.vault.map(|vault| vault.berth(place));
        self.occupy(place, Socket::new(ends, connection, berth))
    }

    /// Puts a socket into a place that nobody has.
    pub(super) fn occupy(&mut self, place: u32, socket: Socket) -> SocketId {
        let ends = socket.ends;
        self.budget.change(Used::default(), socket.used());
        self.sums.states.add(socket.counted);
        let slot = &mut self.places[place as usize];
        slot.socket = Some(Box::new(socket));
        let generation = slot.generation;
        let (places, hasher) = (&self.places, &self.hasher);
        let hash = |place: &u32| match &places[*place as usize].socket {
            Some(socket) => hasher.hash_one(socket.ends),
            None => 0,
        };
        self.by_ends
            .insert_unique(hasher.hash_one(ends), place, hash);
        self.stand_in_line(place);
        SocketId { place, generation }
    }

    fn remove(&mut self, place: u32) {
        let slot = &mut self.places[place as usize];
        if let Some(socket) = slot.socket.take() {
            slot.generation = slot.generation.wrapping_add(1);
            socket.retract();
            self.sums.states.take(socket.counted);
            self.budget.change(socket.used(), Used::default());
            self.timers.remove(&(socket.armed, place));
            self.free.push(place);
            let hash = self.hasher.hash_one(socket.ends);
            let entry = self.by_ends.find_entry(hash, |found| *found == place);
            entry.map(|entry| entry.remove()).ok();
        }
    }

    fn stand_in_line(&mut self, place: u32) {
        if let Some(socket) = &mut self.places[place as usize].socket
            && !socket.in_line
        {
            socket.in_line = true;
            self.line.push_back(place);
        }
    }

    /// Lets `work` change a socket; what follows from it is done.
    pub(super) fn with<T>(
        &mut self,
        id: SocketId,
        work: impl FnOnce(&mut Socket) -> T,
    ) -> Option<T> {
        let socket = self.socket_mut(id)?;
        let before = socket.used();
        let result = work(socket);
        socket.publish();
        let after = socket.used();
        self.budget.change(before, after);
        self.stand_in_line(id.place);
        Some(result)
    }

    /// Waits until the connection is open.
    pub fn poll_open(
        &mut self,
        id: SocketId,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        match self.socket_mut(id) {
            Some(socket) => socket.poll_open(context),
            None => Poll::Ready(Err(Error::Closed)),
        }
    }

    /// How many bytes a socket takes now, at most; waits until it is one.
    fn poll_room(&mut self, id: SocketId, context: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        self.poll_room_of(id, 0, context)
    }

    /// The same for a socket that has memory for so many bytes at least.
    fn poll_room_of(
        &mut self,
        id: SocketId,
        least: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let budget = self.budget;
        let Some(socket) = self.socket_mut(id) else {
            return Poll::Ready(Err(Error::Closed));
        };
        let (before, free) = (socket.used(), socket.free(budget.free()).max(least));
        let room = socket.poll_room(free, budget.share(before).max(least), context);
        let after = socket.used();
        if room.is_pending() && free == 0 && !core::mem::replace(&mut socket.starves, true) {
            self.starving.push(id);
        }
        self.budget.change(before, after);
        room
    }

    /// Wakes those who wait for memory, once there is some.
    fn feed(&mut self) {
        let room = self.vault.is_none_or(|vault| vault.room() > 0);
        if self.budget.free() > 0 && room {
            for id in core::mem::take(&mut self.starving) {
                if let Some(socket) = self.socket_mut(id) {
                    socket.feed();
                }
            }
        }
    }

    /// Queues what there is room for of `bytes`, which are not empty; how many. They are copied
    /// once here and once into a frame; [`Self::poll_give`] saves the first copy.
    pub fn poll_write(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let room = core::task::ready!(self.poll_room(id, context))?;
        let count = bytes.len().min(room);
        let written = self.with(id, |socket| socket.write(&bytes[..count]));
        Poll::Ready(Ok(written.unwrap_or(0)))
    }

    /// The same with several slices, which go into the queue together; some byte is in them.
    pub fn poll_write_vectored(
        &mut self,
        id: SocketId,
        slices: &Slices<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let room = core::task::ready!(self.poll_room(id, context))?;
        let written = self.with(id, |socket| socket.write_vectored(slices, room));
        Poll::Ready(Ok(written.unwrap_or(0)))
    }

    /// Waits until the peer has acknowledged all that was queued, and the end if there is one.
    pub fn poll_acknowledged(
        &mut self,
        id: SocketId,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        match self.socket_mut(id) {
            Some(socket) => socket.poll_acknowledged(context),
            None => Poll::Ready(Err(Error::Closed)),
        }
    }

    /// Queues what there is room for of `bytes`, which are not empty, and takes it off them.
    /// Nothing is copied but into a frame; into the vault, if there is one.
    pub fn poll_give(
        &mut self,
        id: SocketId,
        bytes: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let room = core::task::ready!(self.poll_room(id, context))?;
        let count = bytes.len().min(room);
        let given = self.with(id, |socket| socket.give(bytes, count));
        Poll::Ready(Ok(given.unwrap_or(0)))
    }

    /// Reads what is there into `place`, which is not empty; how many bytes, 0 at the end.
    pub fn poll_read(
        &mut self,
        id: SocketId,
        place: &mut [u8],
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let Some(socket) = self.socket_mut(id) else {
            return Poll::Ready(Ok(0));
        };
        let readable = core::task::ready!(socket.poll_readable(context))?;
        let read = match readable {
            0 => Some(0),
            _ => self.with(id, |socket| socket.read(readable, place)),
        };
        Poll::Ready(Ok(read.unwrap_or(0)))
    }

    /// The next bytes that have come, uncopied; `None` at the end.
    pub fn poll_take(
        &mut self,
        id: SocketId,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Payload>, Error>> {
        let Some(socket) = self.socket_mut(id) else {
            return Poll::Ready(Ok(None));
        };
        let payload = match core::task::ready!(socket.poll_readable(context))? {
            0 => None,
            readable => self.with(id, |socket| socket.take(readable)).flatten(),
        };
        Poll::Ready(Ok(payload))
    }

    /// Queues what has come to be sent back, as much as there is room for, and takes that as read,
    /// in one step: with a vault, the next image finds both done or neither. How many bytes, 0 at
    /// the end.
    pub fn poll_give_back(
        &mut self,
        id: SocketId,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let Some(socket) = self.socket_mut(id) else {
            return Poll::Ready(Ok(0));
        };
        let readable = core::task::ready!(socket.poll_readable(context))?;
        if readable == 0 {
            return Poll::Ready(Ok(0));
        }
        let least = socket.turned_over();
        let room = core::task::ready!(self.poll_room_of(id, least, context))?;
        let given = self.with(id, |socket| socket.give_back(room.min(readable)));
        Poll::Ready(Ok(given.unwrap_or(0)))
    }

    /// Whether the number `seq` of a connection between these ends is on its way: who quotes it has
    /// seen the segment (RFC 5927, 4.1).
    pub fn is_under_way(&self, ends: &Ends, seq: Seq) -> bool {
        let socket = self
            .place_of(ends)
            .and_then(|place| self.places[place as usize].socket.as_ref());
        socket.is_some_and(|socket| socket.connection().is_under_way(seq))
    }

    /// A router or the peer's host says that nobody takes segments of this connection: one that is
    /// being opened fails, any other goes on (RFC 1122, 4.2.3.9; RFC 5927, 5.2).
    pub fn unreachable(&mut self, ends: &Ends) {
        if let Some(place) = self.place_of(ends)
            && let Some(socket) = &mut self.places[place as usize].socket
            && socket.connection.refuse()
        {
            socket.caught_up();
            self.stand_in_line(place);
        }
    }

    /// The path of a connection between these ends has become narrower: what was too long for it is
    /// sent again at once (RFC 1191, 6.4).
    pub fn narrowed(&mut self, ends: &Ends) {
        if let Some(place) = self.place_of(ends) {
            self.stand_in_line(place);
        }
    }

    /// Sends no more; what was queued is sent before.
    pub fn shutdown(&mut self, id: SocketId) {
        self.with(id, |socket| socket.connection.shutdown());
    }

    /// Small segments leave at once.
    pub fn set_no_delay(&mut self, id: SocketId, no_delay: bool) {
        self.with(id, |socket| socket.connection.set_no_delay(no_delay));
    }

    /// While nothing comes, the peer is asked after so long whether it is still there
    /// (RFC 9293, 3.8.4); never with `None`.
    pub fn set_keep_alive(&mut self, id: SocketId, idle: Option<Duration>, now: Instant) {
        self.with(id, |socket| socket.connection.set_keep_alive(idle, now));
    }

    /// Resets the connection.
    pub fn abort(&mut self, id: SocketId) {
        self.with(id, |socket| {
            socket.connection.abort();
            socket.caught_up();
        });
    }

    /// The user lets go of the socket: what was queued is still sent, and nothing is read.
    pub fn leave(&mut self, id: SocketId, now: Instant) {
        self.with(id, |socket| {
            socket.left = true;
            socket.connection.leave(now);
            socket.caught_up();
        });
    }

    /// Takes in a segment that came from `source` to `destination`: `frame` from TCP's header on.
    /// Whether it shows that what we send arrives (RFC 4861, 7.3.1).
    pub fn receive(
        &mut self,
        below: &mut impl Below,
        source: IpAddr,
        destination: IpAddr,
        frame: Frame,
        now: Instant,
    ) -> bool {
        self.sums.segments.add(Segments::Received);
        let (segment, header) = match Segment::parse(frame.bytes()) {
            Ok(parsed) => parsed,
            Err(Malformed::Short | Malformed::HeaderLength | Malformed::Option) => {
                self.sums.dropped.add(Dropped::Malformed);
                return false;
            }
        };
        if frame.offload().checksum.is_none() && !is_right(source, destination, frame.bytes()) {
            self.sums.dropped.add(Dropped::Checksum);
            return false;
        }
        let ends = Ends::of(source, destination, &segment);
        if let Some(place) = self.place_of(&ends) {
            self.recent = place;
            self.deliver(below, place, &segment, frame, header, now)
        } else if let Some(opened) = self.greet(below, &ends, &segment, now) {
            // It acknowledges our answer.
            self.deliver(below, opened.place, &segment, frame, header, now);
            true
        } else {
            false
        }
    }

    fn deliver(
        &mut self,
        below: &mut impl Below,
        place: u32,
        segment: &Segment,
        frame: Frame,
        header: usize,
        now: Instant,
    ) -> bool {
        let mut full = !self.budget.takes(segment.len as usize);
        let Some(socket) = &mut self.places[place as usize].socket else {
            return false;
        };
        if let Some(vault) = self.vault {
            let behind = socket.connection.expected.is_before(segment.seq);
            full |= !vault.takes(&frame, segment.len as usize, behind);
        }
        let acknowledged = socket.connection.una;
        if full && segment.len > 0 {
            // The peer sends it again, more slowly. Its acknowledgement is heard all the same.
            self.sums.dropped.add(Dropped::Memory);
            let mut bare = segment.clone();
            (bare.len, bare.flags.fin) = (0, false);
            let before = socket.used();
            socket.connection.receive(&bare, now);
            socket.caught_up();
            let arrives = socket.connection.una != acknowledged;
            let after = socket.used();
            self.budget.change(before, after);
            self.stand_in_line(place);
            return arrives;
        }
        let before = socket.used();
        let outcome = socket.arrived(segment, frame, header, now);
        let ends = socket.ends;
        // New data says so of our acknowledgements.
        let arrives = socket.connection.una != acknowledged || outcome.keep.is_some();
        self.budget.change(before, socket.used());
        if let Some(reason) = outcome.dropped {
            self.sums.dropped.add(reason);
        }
        if outcome.reset {
            self.reset(below, &ends, segment, now);
        }
        self.stand_in_line(place);
        arrives
    }

    pub(super) fn reset(
        &mut self,
        below: &mut impl Below,
        ends: &Ends,
        segment: &Segment,
        now: Instant,
    ) {
        let Some(reset) = input::reset_for(segment) else {
            return;
        };
        if self.may_answer(now) {
            self.sums.segments.add(Segments::Resets);
            self.send_bare(below, ends, &reset);
        }
    }

    /// Whether a segment without a connection may be answered; each is asked for once.
    pub(super) fn may_answer(&mut self, now: Instant) -> bool {
        let (since, count) = &mut self.answers;
        if now - *since >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= ANSWERS_MAX
    }

    /// Sends a segment without data; if it does not leave, it is lost.
    pub(super) fn send_bare(&mut self, below: &mut impl Below, ends: &Ends, segment: &Segment) {
        if below::send(below, ends, segment, 0, |_| {}).is_ok() {
            self.sums.segments.add(Segments::Sent);
        }
    }

    /// Lets all sockets send that have something. `false` if the layer below has no buffer, and
    /// more is to be sent once it has.
    pub fn send(&mut self, below: &mut impl Below, now: Instant) -> bool {
        self.feed();
        // Those that have more stand at the end of the line again.
        while let Some(place) = self.line.pop_front() {
            if let Some(socket) = &mut self.places[place as usize].socket {
                socket.in_line = false;
            }
            match self.turn(below, place, now) {
                Ok(false) => self.settle(place, now),
                Ok(true) => {
                    self.settle(place, now);
                    self.stand_in_line(place);
                }
                Err(NoBuffer) => {
                    self.stand_in_line(place);
                    return false;
                }
            }
        }
        true
    }

    /// Lets a socket send; whether it has more.
    fn turn(&mut self, below: &mut impl Below, place: u32, now: Instant) -> Result<bool, NoBuffer> {
        let Some(socket) = &mut self.places[place as usize].socket else {
            return Ok(false);
        };
        let (local, remote) = (socket.ends.local().ip(), socket.ends.remote().ip());
        let limits = below.limits(local, remote);
        for _ in 0..TURN {
            let Some(mut segment) = socket.connection.next(limits, now) else {
                return Ok(false);
            };
            segment.source = socket.ends.local().port();
            segment.destination = socket.ends.remote().port();
            let full = socket.connection.payload_max(limits);
            let offset = segment.seq + u32::from(segment.flags.syn) - socket.send_from;
            let payload = |place: &mut [u8]| {
                // What is to be sent is in the queue; a mistake of ours sends no other bytes.
                if !socket.send.copy(offset as usize, place) {
                    place.fill(0);
                }
            };
            let again = socket.connection.has_sent(segment.seq);
            socket.publish_leaving(&segment);
            // Whatever else stops it, the timer repeats it.
            let left = below::send(below, &socket.ends, &segment, full, payload);
            if left == Err(Unsent::NoBuffer) {
                return Err(NoBuffer);
            }
            let again = again && segment.sequence_len() > 0;
            self.sums.sent(again, segment.flags.rst);
            socket.again = socket.again.saturating_add(again.into());
            socket.connection.sent(&segment, limits, now);
        }
        Ok(true)
    }

    /// A socket has done what it can: the clock looks at it when something is due, and its place
    /// is given away at its end.
    fn settle(&mut self, place: u32, now: Instant) {
        let Some(socket) = &mut self.places[place as usize].socket else {
            return;
        };
        socket.caught_up();
        socket.publish();
        self.sums.states.take(socket.counted);
        socket.counted = socket.connection.state();
        self.sums.states.add(socket.counted);
        match socket.counted {
            State::Closed if socket.left => self.remove(place),
            State::TimeWait if socket.left => {
                self.time_waits
                    .insert(socket.ends, &socket.connection, &self.hasher, now);
                self.remove(place);
            }
            _ => {
                let deadline = socket.connection.deadline();
                // A later one is found when the earlier one passes: most timers are put off again
                // and again.
                if deadline < socket.armed {
                    self.timers.remove(&(socket.armed, place));
                    self.timers.insert((deadline, place));
                    socket.armed = deadline;
                }
            }
        }
    }

    /// When [`Self::expire`] is to be called next.
    pub fn deadline(&self, now: Instant) -> Instant {
        let first = self.timers.first().map_or(NEVER, |(at, _)| *at);
        let old = self.time_waits.deadline(now).unwrap_or(NEVER);
        first.min(self.half_open_at).min(old)
    }

    /// It is `now`. Call [`Self::send`] behind it.
    pub fn expire(&mut self, below: &mut impl Below, now: Instant) {
        while let Some((at, place)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let Some(socket) = &mut self.places[place as usize].socket else {
                continue;
            };
            socket.armed = NEVER;
            if socket.connection.deadline() <= now {
                socket.connection.expire(now);
                socket.caught_up();
            }
            self.stand_in_line(place);
        }
        if self.half_open_at <= now {
            self.repeat_answers(below, now);
        }
        self.time_waits.expire(&self.hasher, now, FORGET_MAX);
    }
}

/// The layer below has no buffer.
struct NoBuffer;
