//! Two ends and the network between them, in time that is made up.

use crate::tcp::connection::{Agreed, Greeted, NEVER};
use crate::tcp::segment::HEADER_SIZE;
use crate::tcp::seq::Seq;
use crate::tcp::{Config, Connection, Limits, Opening, Segment, State, input};
use core::time::Duration;
use fastrand::Rng;
use ports::Instant;
use std::collections::BTreeMap;
use std::println;
use std::vec::Vec;

/// What the network does to segments.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Of a thousand segments, so many are lost.
    pub lost: u32,
    /// Of a thousand, so many come twice.
    pub doubled: u32,
    /// Of a thousand, so many are late by up to [`Self::jitter`].
    pub late: u32,
    /// How late.
    pub jitter: Duration,
    /// One way.
    pub delay: Duration,
    /// Bytes each second; 0 for no limit.
    pub rate: u64,
    /// Bytes that wait where the rate is limited; more are lost.
    pub queue: u64,
}

impl Network {
    pub const GOOD: Self = Self {
        lost: 0,
        doubled: 0,
        late: 0,
        jitter: Duration::ZERO,
        delay: Duration::from_millis(10),
        rate: 0,
        queue: 0,
    };
}

/// One end, with its bytes: those that it sends are a function of their place.
pub struct End {
    pub connection: Option<Connection>,
    pub config: Config,
    limits: Limits,
    key: u8,
    /// Bytes that are still to be given to the connection.
    pub to_send: u32,
    /// Bytes that may be given and not acknowledged.
    pub send_buffer: u32,
    queued: u32,
    iss: Seq,
    irs: Option<Seq>,
    kept: BTreeMap<u32, Vec<u8>>,
    /// Bytes that were read and were right.
    pub read: u32,
    /// It reads no faster than so many bytes at a time, and only so often.
    pub pause: Option<(u32, Duration)>,
    reads_at: Instant,
    /// It closes when it has sent all.
    pub closes: bool,
    pub segments_sent: u32,
    pub bytes_sent: u64,
}

/// A segment under way.
struct Parcel {
    segment: Segment,
    payload: Vec<u8>,
}

/// Ends, network and time.
pub struct Simulation {
    pub ends: [End; 2],
    pub network: Network,
    pub now: Instant,
    pub rng: Rng,
    under_way: BTreeMap<(Instant, u64), (usize, Parcel)>,
    /// When the link of each direction is free.
    free_at: [Instant; 2],
    count: u64,
    /// Each segment is printed as it leaves: `OUTBOARD_SHOW=1`.
    shows: bool,
}

/// What a byte is at this place of the stream of this end.
fn byte(key: u8, place: u32) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ key
}

impl End {
    pub fn new(config: Config, iss: u32, key: u8) -> Self {
        Self {
            connection: None,
            config,
            limits: Limits {
                segment: 1460 + HEADER_SIZE as u32,
                largest: 65_000,
            },
            key,
            to_send: 0,
            send_buffer: 256 << 10,
            queued: 0,
            iss: Seq(iss),
            irs: None,
            kept: BTreeMap::new(),
            read: 0,
            pause: None,
            reads_at: Instant(0),
            closes: true,
            segments_sent: 0,
            bytes_sent: 0,
        }
    }

    fn opening(&self) -> Opening {
        Opening {
            iss: self.iss,
            stamp_offset: self.iss.0 ^ 0x5555,
            mss: 1460,
        }
    }

    pub fn connect(&mut self) {
        self.connection = Some(Connection::connect(self.config, self.opening()));
    }

    /// As an application does: writes, closes and reads.
    fn work(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if connection.state() == State::Closed {
            return;
        }
        let room = self
            .send_buffer
            .saturating_sub(connection.unsent_or_unacknowledged());
        let more = self.to_send.min(room);
        if more > 0 {
            connection.queue(more);
            self.to_send -= more;
            self.queued += more;
        }
        if self.to_send == 0
            && self.closes
            && matches!(connection.state(), State::Established | State::CloseWait)
        {
            connection.shutdown();
        }
        let mut readable = connection.readable();
        if let Some((bytes, pause)) = self.pause {
            if now < self.reads_at {
                return;
            }
            readable = readable.min(bytes);
            if readable > 0 {
                self.reads_at = now + pause;
            }
        }
        if readable == 0 {
            return;
        }
        connection.read(readable);
        self.check(readable);
    }

    /// Forgets all but what is saved, and the bytes that have arrived in order.
    pub fn restart(&mut self, now: Instant) {
        let Some(connection) = &self.connection else {
            return;
        };
        let Some(saved) = connection.save() else {
            return;
        };
        let arrived = self.read + connection.readable();
        self.kept.retain(|start, bytes| {
            let room = arrived.saturating_sub(*start) as usize;
            bytes.truncate(room);
            room > 0
        });
        self.connection = Some(Connection::resume(&saved, self.config, now).expect("it is one"));
    }

    /// Reads what is left.
    pub fn drain(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let readable = connection.readable();
        connection.read(readable);
        self.check(readable);
    }

    /// Each byte that is read is the one that the peer has sent.
    fn check(&mut self, count: u32) {
        let end = self.read + count;
        while self.read < end {
            let (&start, bytes) = self.kept.range(..=self.read).next_back().expect("kept");
            let piece = &bytes[(self.read - start) as usize..];
            assert!(!piece.is_empty(), "kept at {}", self.read);
            for got in piece.iter().take((end - self.read) as usize) {
                let expected = byte(self.key ^ 0xff, self.read);
                assert_eq!(*got, expected, "at {}", self.read);
                self.read += 1;
            }
        }
        // What was read is forgotten; one piece may reach further.
        let rest = self.kept.split_off(&self.read);
        if let Some((start, bytes)) = self.kept.pop_last()
            && start + bytes.len() as u32 > self.read
        {
            self.kept.clear();
            self.kept.insert(start, bytes);
        } else {
            self.kept.clear();
        }
        self.kept.extend(rest);
    }

    fn take(&mut self, parcel: &Parcel, now: Instant) -> Option<Segment> {
        let segment = &parcel.segment;
        let Some(connection) = &mut self.connection else {
            // It listens.
            if segment.flags.syn && !segment.flags.ack {
                // A half-open connection is simulated by one that opens at the same time.
                self.connect();
                let connection = self.connection.as_mut()?;
                if let Some(syn) = connection.next(self.limits, now) {
                    connection.sent(&syn, self.limits, now);
                }
                connection.receive(segment, now);
                self.irs = Some(segment.seq);
            }
            return None;
        };
        if connection.state() == State::Closed {
            return input::reset_for(segment);
        }
        if segment.flags.syn {
            self.irs.get_or_insert(segment.seq);
        }
        let outcome = connection.receive(segment, now);
        if let Some(keep) = outcome.keep {
            let place = keep.at - (self.irs.expect("synchronised") + 1);
            let bytes = &parcel.payload[keep.skip as usize..][..keep.len as usize];
            // The longer one stays.
            let old = self.kept.get(&place).map_or(0, Vec::len);
            if bytes.len() > old {
                self.kept.insert(place, bytes.to_vec());
            }
            // Pieces that overlap are made to follow each other.
            self.untangle();
        }
        outcome.reset.then(|| input::reset_for(segment)).flatten()
    }

    fn untangle(&mut self) {
        let mut next = 0;
        let kept = std::mem::take(&mut self.kept);
        for (start, bytes) in kept {
            let end = start + bytes.len() as u32;
            if end <= next {
                continue;
            }
            let skip = next.saturating_sub(start);
            self.kept
                .insert(start + skip, bytes[skip as usize..].to_vec());
            next = end;
        }
    }

    fn deadline(&self) -> Instant {
        let timer = self.connection.as_ref().map_or(NEVER, Connection::deadline);
        let reads = match self.pause {
            Some(_) if self.connection.as_ref().is_some_and(|c| c.readable() > 0) => self.reads_at,
            _ => NEVER,
        };
        timer.min(reads)
    }
}

impl Simulation {
    pub fn new(seed: u64, network: Network, configs: [Config; 2]) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ends = [
            End::new(configs[0], rng.u32(..), 0),
            End::new(configs[1], rng.u32(..), 0xff),
        ];
        Self {
            ends,
            network,
            now: Instant(rng.u64(1..1 << 60)),
            rng,
            under_way: BTreeMap::new(),
            free_at: [Instant(0); 2],
            count: 0,
            shows: std::env::var_os("OUTBOARD_SHOW").is_some(),
        }
    }

    /// Makes both ends established without the network's faults.
    pub fn open(&mut self) {
        let faults = std::mem::replace(&mut self.network, Network::GOOD);
        let server = self.ends[1].opening();
        self.ends[0].connect();
        let client = self.ends[0].connection.as_mut().unwrap();
        let limits = self.ends[0].limits;
        let syn = client.next(limits, self.now).unwrap();
        client.sent(&syn, limits, self.now);
        self.ends[1].irs = Some(syn.seq);
        let agreed = Agreed::of(&syn, server);
        let clock = ((self.now.0 / 1_000_000) as u32).wrapping_add(server.stamp_offset);
        let answer = Segment {
            seq: server.iss,
            ack: syn.seq + 1,
            flags: crate::tcp::segment::Flags {
                syn: true,
                ack: true,
                ..Default::default()
            },
            window: self.ends[1].config.receive.min(u16::MAX.into()) as u16,
            options: crate::tcp::segment::Options {
                mss: Some(server.mss),
                scale: Some(self.ends[1].config.scale()),
                sack_permitted: agreed.sack,
                timestamps: agreed.peer_stamp.map(|stamp| (clock, stamp)),
                ..Default::default()
            },
            ..Segment::default()
        };
        client.receive(&answer, self.now);
        self.ends[0].irs = Some(server.iss);
        let ack = client.next(limits, self.now).unwrap();
        client.sent(&ack, limits, self.now);
        let mut accepted =
            Connection::accept(self.ends[1].config, &agreed, Greeted::Unknown, self.now);
        accepted.receive(&ack, self.now);
        self.ends[1].connection = Some(accepted);
        self.network = faults;
    }

    /// Lets both ends do what they can, and time pass until something happens; `false` if nothing
    /// will.
    pub fn step(&mut self) -> bool {
        for end in 0..2 {
            self.ends[end].work(self.now);
            self.pump(end);
        }
        let next = self.under_way.keys().next().map_or(NEVER, |(at, _)| *at);
        let next = next
            .min(self.ends[0].deadline())
            .min(self.ends[1].deadline());
        if next == NEVER {
            return false;
        }
        self.now = self.now.max(next);
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, parcel) = entry.remove();
            if let Some(reset) = self.ends[to].take(&parcel, self.now) {
                self.send(to, reset, Vec::new());
            }
        }
        for end in &mut self.ends {
            if let Some(connection) = &mut end.connection
                && connection.deadline() <= self.now
            {
                connection.expire(self.now);
            }
        }
        true
    }

    /// Sends what an end has to send.
    fn pump(&mut self, from: usize) {
        for _ in 0..10_000 {
            let end = &mut self.ends[from];
            let Some(connection) = &mut end.connection else {
                return;
            };
            let Some(segment) = connection.next(end.limits, self.now) else {
                return;
            };
            connection.sent(&segment, end.limits, self.now);
            let full = connection.payload_max(end.limits);
            let size = segment.header_size() as u32 + segment.len.min(full);
            assert!(size <= end.limits.segment, "too long: {segment:?}");
            end.segments_sent += 1;
            end.bytes_sent += u64::from(segment.len);
            let first = segment.seq - (end.iss + 1);
            let bytes: Vec<u8> = (first..first + segment.len)
                .map(|at| byte(end.key, at))
                .collect();
            let given = segment.len == 0 || first + segment.len <= end.queued;
            assert!(given, "never given: {segment:?} of {:#?}", end.connection);
            assert!(segment.header_size() as u32 + segment.len <= end.limits.largest);
            if self.shows {
                self.show(from, &segment);
            }
            // As a NIC cuts it.
            let mut rest = segment;
            let mut at = 0;
            while rest.len > full {
                let mut piece = rest.clone();
                piece.len = full;
                piece.flags.fin = false;
                let payload = bytes[at as usize..(at + full) as usize].to_vec();
                self.send(from, piece, payload);
                rest.seq = rest.seq + full;
                rest.len -= full;
                at += full;
            }
            self.send(from, rest, bytes[at as usize..].to_vec());
        }
        panic!("an end never stops sending");
    }

    /// Numbers count from the initial ones.
    fn show(&self, from: usize, segment: &Segment) {
        let end = &self.ends[from];
        let ours = |seq: Seq| seq.0.wrapping_sub(end.iss.0);
        let theirs = |seq: Seq| seq.0.wrapping_sub(end.irs.map_or(0, |irs| irs.0));
        let blocks = segment.options.sack.iter();
        let sack: Vec<_> = blocks
            .map(|block| theirs(block.0)..theirs(block.1))
            .collect();
        println!(
            "{} {from}: {:?} {}+{} ack {} window {} sack {sack:?}, may send {}",
            self.now.0,
            segment.flags,
            ours(segment.seq),
            segment.len,
            theirs(segment.ack),
            segment.window,
            end.connection
                .as_ref()
                .map_or(0, Connection::congestion_window),
        );
    }

    /// Gives a segment to the network.
    fn send(&mut self, from: usize, segment: Segment, payload: Vec<u8>) {
        let network = self.network;
        if self.rng.u32(..1000) < network.lost {
            return;
        }
        let mut at = self.now;
        if network.rate > 0 {
            let size = 54 + u64::from(segment.len);
            let free = self.free_at[from].max(self.now);
            let waiting = (free - self.now).as_nanos() as u64 * network.rate / 1_000_000_000;
            if waiting > network.queue {
                return;
            }
            at = free + Duration::from_nanos(size * 1_000_000_000 / network.rate);
            self.free_at[from] = at;
        }
        at = at + network.delay;
        if self.rng.u32(..1000) < network.late {
            at = at + Duration::from_nanos(self.rng.u64(..=network.jitter.as_nanos() as u64));
        }
        let copies = 1 + u32::from(self.rng.u32(..1000) < network.doubled);
        for _ in 0..copies {
            self.count += 1;
            let parcel = Parcel {
                segment: segment.clone(),
                payload: payload.clone(),
            };
            self.under_way.insert((at, self.count), (1 - from, parcel));
        }
    }
}
