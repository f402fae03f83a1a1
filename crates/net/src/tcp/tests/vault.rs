//! Two hosts over a bad network, of which one is dropped whole and made again from what lies in its
//! vault, at any step or between any two stores: each byte comes once and in order.
//!
//! Whoever takes a vault up sees the memory as it was when the image ended. So does a test: it
//! looks through `/proc/self/mem`, while the host still has the memory.

use super::hosts::Wire;
use super::simulation::Network;
use super::transfers::seeds;
use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::NEVER;
use crate::tcp::host::{SocketId, Tcp};
use crate::tcp::identity::Secret;
use crate::tcp::seq::Seq;
use crate::tcp::vault::{Opened, Shape, Vault, inspect};
use crate::tcp::{Config, Segment};
use crate::testing::lying;
use core::cell::RefCell;
use core::net::{IpAddr, SocketAddr};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use device::Pool;
use fastrand::Rng;
use ports::Instant;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;
use zerocopy::IntoBytes;

/// Turns after which a transfer hangs.
const STEPS: u32 = 100_000;
/// Seeds in a plain `cargo test`.
const RUNS: u64 = 60;

/// Memory of a vault, as others see it.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    len: usize,
    shape: Shape,
}

impl Place {
    /// Vault memory with these bytes, or with nothing in it.
    fn open(shape: Shape, len: usize, bytes: &[u8]) -> (Self, Opened) {
        let memory: &'static mut [u32] = vec![0; len / 4].leak();
        let memory = memory.as_mut_bytes();
        memory[..bytes.len()].copy_from_slice(bytes);
        let address = memory.as_ptr().addr();
        let len = memory.len();
        let place = Self {
            address,
            len,
            shape,
        };
        (place, Vault::open(memory, shape).unwrap())
    }

    /// What it holds now.
    fn bytes(&self) -> Vec<u8> {
        lying(self.address, self.len)
    }
}

/// What happens while a host works.
#[derive(Default)]
struct Watch {
    /// Segments that have left in this turn.
    left: usize,
    /// Between so many stores from now on, the image ends.
    ends_in: Option<u32>,
    place: Option<Place>,
    /// What lay there then, and how many segments had left.
    end: Option<(Vec<u8>, usize)>,
    /// The first bytes of the peer, and ours: each segment that leaves is compared with the vault.
    judges: Option<[(Seq, u8); 2]>,
}

std::thread_local! {
    static WATCH: RefCell<Watch> = RefCell::default();
}

/// Between two stores of a vault.
pub fn moment() {
    WATCH.with_borrow_mut(|watch| {
        let (Some(place), Some(left)) = (watch.place, watch.ends_in) else {
            return;
        };
        watch.ends_in = left.checked_sub(1);
        if left == 0 {
            watch.end = Some((place.bytes(), watch.left));
        }
    });
}

/// A segment leaves a host.
pub fn leaves(segment: &[u8]) {
    WATCH.with_borrow_mut(|watch| {
        watch.left += 1;
        if let (Some(place), Some(firsts)) = (watch.place, watch.judges) {
            judge(segment, &place, firsts);
        }
    });
}

/// All that a segment tells lies in the vault: the bytes that it acknowledges, and its own.
fn judge(segment: &[u8], place: &Place, [(first, key), (own, own_key)]: [(Seq, u8); 2]) {
    let (segment, _) = Segment::parse(segment).unwrap();
    if segment.flags.rst {
        return;
    }
    let memory = place.bytes();
    let contents = inspect(&memory, place.shape).unwrap();
    assert!(contents.refused.is_empty());
    let [lying] = &contents.connections[..] else {
        // It is done, or there is none.
        assert_eq!(segment.len, 0);
        return;
    };
    let spans = lying.saved().spans().unwrap();
    // FIN is no byte.
    let end = spans[1].first + spans[1].len;
    assert!(!(end + 1).is_before(segment.ack), "{segment:?}, {spans:?}");
    let sent = spans[0].first + spans[0].len;
    assert!(!sent.is_before(segment.seq + segment.len) || segment.len == 0);
    let keys = [(own, own_key), (first, key)];
    for ((span, pieces), (first, key)) in spans.iter().zip(lying.pieces()).zip(keys) {
        let mut at = span.first - first;
        for piece in pieces {
            let buffer = contents.buffers + (piece.buffer * place.shape.buffer_size) as usize;
            let bytes = &memory[buffer + (piece.start + piece.done) as usize..];
            for byte in &bytes[..(piece.end - piece.done) as usize] {
                assert_eq!(*byte, expected(key, at), "at {at}");
                at += 1;
            }
        }
        assert_eq!(first + at, span.first + span.len);
    }
}

/// What a byte is at this place of a stream.
fn expected(key: u8, place: u32) -> u8 {
    (place.wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ key
}

/// A host and its user, which outlives it.
struct Side {
    tcp: Tcp,
    wire: Wire,
    place: Option<Place>,
    /// The port has its buffers in the vault.
    shares: bool,
    config: Config,
    socket: Option<SocketId>,
    /// The numbers of the first bytes of the peer, and of ours.
    firsts: [Seq; 2],
    key: u8,
    /// The key of what it reads.
    reads: u8,
    /// It gives back what comes, and writes nothing else.
    gives_back: bool,
    to_send: u32,
    written: u32,
    read: u32,
    done: bool,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Side {
    fn connection(&self) -> Option<&crate::tcp::Connection> {
        let socket = self.tcp.socket(self.socket?)?;
        Some(socket.connection())
    }

    /// Writes, reads, and closes at the end.
    fn work(&mut self, rng: &mut Rng, now: Instant) {
        let Some(socket) = self.socket.filter(|_| !self.done) else {
            return;
        };
        if self.gives_back {
            while rng.u32(..8) > 0
                && let Poll::Ready(given) = self.tcp.poll_give_back(socket, &mut context())
            {
                let count = given.expect("the peer has sent all");
                if count == 0 {
                    self.tcp.leave(socket, now);
                    self.done = true;
                    break;
                }
                // Less than it sends.
                self.written += count as u32;
                self.read += count as u32;
            }
            return;
        }
        while self.written < self.to_send && rng.u32(..8) > 0 {
            let most = (self.to_send - self.written).min(rng.u32(1..5000));
            let mut bytes: bytes::Bytes = (self.written..self.written + most)
                .map(|place| expected(self.key, place))
                .collect();
            let written = match rng.bool() {
                true => self.tcp.poll_write(socket, &bytes, &mut context()),
                false => self.tcp.poll_give(socket, &mut bytes, &mut context()),
            };
            let Poll::Ready(written) = written else { break };
            self.written += written.expect("it is open") as u32;
        }
        if self.written == self.to_send {
            self.tcp.shutdown(socket);
        }
        while rng.u32(..8) > 0 {
            let bytes = match rng.bool() {
                true => {
                    let mut place = vec![0; rng.usize(1..3000)];
                    let read = self.tcp.poll_read(socket, &mut place, &mut context());
                    read.map_ok(|count| place[..count].to_vec())
                }
                false => {
                    let taken = self.tcp.poll_take(socket, &mut context());
                    taken.map_ok(|payload| payload.map_or(Vec::new(), |bytes| bytes.to_vec()))
                }
            };
            let Poll::Ready(bytes) = bytes else { break };
            let bytes = bytes.expect("the peer has sent all");
            for byte in &bytes {
                assert_eq!(*byte, expected(self.reads, self.read));
                self.read += 1;
            }
            if bytes.is_empty() {
                if self.written == self.to_send {
                    self.tcp.leave(socket, now);
                    self.done = true;
                }
                break;
            }
        }
    }

    /// Forgets all but what lay in the vault.
    fn begin_anew(&mut self, bytes: &[u8], rng: &mut Rng, now: Instant) {
        let place = self.place.expect("it has one");
        let (place, opened) = Place::open(place.shape, place.len, bytes);
        assert_eq!((opened.refused, opened.fresh), (0, None));
        self.place = Some(place);
        if self.shares {
            self.wire.pool = opened.pool();
        }
        let secret = Secret::new([rng.u8(..); 16]);
        let tcp = Tcp::new(self.config, secret, [rng.u8(..); 16], 1 << 20);
        self.wire.sent.clear();
        self.tcp = tcp.with_vault(opened, now);
        self.socket = self.tcp.taken_up();
        assert!(self.tcp.sockets().count() <= 1);
    }

    /// The same with a connection: `written` and `read` were at least so much then.
    fn restart(&mut self, bytes: &[u8], least: [u32; 2], rng: &mut Rng, now: Instant) {
        self.begin_anew(bytes, rng, now);
        let Some(connection) = self.connection() else {
            // It was left.
            assert!(self.done, "the connection is lost");
            return;
        };
        let [theirs, ours] = self.firsts;
        let written = connection.queued - ours;
        let read = connection.unread - theirs;
        assert!((least[0]..=self.written).contains(&written), "{written}");
        assert!((least[1]..=self.read).contains(&read), "{read}");
        assert!(!self.gives_back || written == read, "{written} of {read}");
        (self.written, self.read, self.done) = (written, read, false);
    }
}

type Parcel = (usize, IpAddr, IpAddr, Vec<u8>);

struct World {
    sides: [Side; 2],
    network: Network,
    now: Instant,
    rng: Rng,
    under_way: BTreeMap<(Instant, u64), Parcel>,
    count: u64,
    /// How many stores each host's next end is away, if it ends so.
    ends_in: [Option<u32>; 2],
    judges: bool,
    restarts: u32,
}

fn side(n: u8, rng: &mut Rng) -> Side {
    let shares = rng.bool();
    // A quarter of the buffers takes a whole segment.
    let (buffer_size, buffers, largest) = match shares {
        true => (1600, 12..60, 1480),
        false => rng
            .choice([
                (100, 90..200, 1480),
                (700, 12..60, 1480),
                (5000, 60..61, 65_000),
            ])
            .unwrap(),
    };
    let shape = Shape {
        connections: 4,
        buffer_size,
    };
    let count = rng.usize(buffers);
    let len = (64 + 4 * 256 + 64 + count * (shape.buffer_size as usize + 16)).next_multiple_of(4);
    let (place, opened) = Place::open(shape, len, &[]);
    let config = Config {
        receive: *rng.choice(&[3000, 20_000, 65_535]).unwrap(),
        receive_max: *rng.choice(&[0, 200_000]).unwrap(),
        algorithm: *rng.choice(&[Algorithm::Reno, Algorithm::Cubic]).unwrap(),
        no_delay: rng.bool(),
        keep_alive: None,
        patience: Duration::from_secs(36_000),
    };
    let pool = match shares {
        true => opened.pool(),
        false => Pool::new(vec![0; 20 * 66_000].leak(), 66_000),
    };
    let tcp = Tcp::new(config, Secret::new([n; 16]), [n; 16], 1 << 20);
    Side {
        tcp: tcp.with_vault(opened, Instant(0)),
        wire: Wire {
            ours: IpAddr::from([10, 0, 0, n]),
            pool,
            largest,
            sent: Vec::new(),
            buffers: usize::MAX,
        },
        place: Some(place),
        shares,
        config,
        socket: None,
        firsts: [Seq(0); 2],
        key: if n == 1 { 0 } else { 0xff },
        reads: if n == 1 { 0xff } else { 0 },
        gives_back: false,
        to_send: *rng.choice(&[0, 1, 3000, 20_000, 60_000]).unwrap(),
        written: 0,
        read: 0,
        done: false,
    }
}

impl World {
    /// Two hosts with a connection between them.
    fn new(seed: u64) -> Self {
        Self::with(seed, |_| (), None)
    }

    /// The same with hosts that were changed before. The second one ends in this step of opening
    /// the connection.
    fn with(seed: u64, change: impl FnOnce(&mut [Side; 2]), ends_in: Option<u32>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let network = Network {
            lost: *rng.choice(&[0, 10, 50, 200]).unwrap(),
            doubled: *rng.choice(&[0, 10, 100]).unwrap(),
            late: *rng.choice(&[0, 10, 300]).unwrap(),
            jitter: Duration::from_millis(rng.u64(0..60)),
            delay: Duration::from_micros(*rng.choice(&[10, 1000, 50_000]).unwrap()),
            ..Network::GOOD
        };
        let mut world = Self {
            sides: [side(1, &mut rng), side(2, &mut rng)],
            network: Network::GOOD,
            now: Instant(rng.u64(1..1 << 60)),
            rng,
            under_way: BTreeMap::new(),
            count: 0,
            ends_in: [None; 2],
            judges: false,
            restarts: 0,
        };
        change(&mut world.sides);
        world.open(ends_in);
        world.network = network;
        world
    }

    fn open(&mut self, ends_in: Option<u32>) {
        let server = SocketAddr::new(self.sides[1].wire.ours, 80);
        let mut listener = self.sides[1].tcp.listen(server, 4).unwrap();
        let client = &mut self.sides[0];
        let connected = client.tcp.connect(&client.wire, server, self.now).unwrap();
        for step in 0..STEPS {
            if ends_in == Some(step) {
                let side = &mut self.sides[1];
                let bytes = side.place.expect("it has one").bytes();
                side.begin_anew(&bytes, &mut self.rng, self.now);
                listener = side.tcp.listen(server, 4).unwrap();
                self.restarts += 1;
            }
            if self.sides[1].socket.is_some() {
                break;
            }
            self.step();
            let accepted = self.sides[1].tcp.poll_accept(listener, &mut context());
            if let Poll::Ready(socket) = accepted {
                self.sides[1].socket = Some(socket);
            }
        }
        self.sides[0].socket = Some(connected);
        self.step();
        let first = [0, 1].map(|n| self.sides[n].connection().unwrap().iss + 1);
        self.sides[0].firsts = [first[1], first[0]];
        self.sides[1].firsts = first;
    }

    /// The second host gives back what the first one sends.
    fn giving_back(seed: u64) -> Self {
        let change = |[first, second]: &mut [Side; 2]| {
            first.reads = first.key;
            second.gives_back = true;
            second.to_send = first.to_send;
        };
        Self::with(seed, change, None)
    }

    fn is_done(&self) -> bool {
        self.sides.iter().all(|side| side.done)
    }

    /// Lets a host work. If it ends between two stores, it is made again from what lay there, and
    /// what it sent later has never left.
    fn on(&mut self, n: usize, work: impl FnOnce(&mut Side, &mut Rng, Instant)) {
        let (side, now) = (&mut self.sides[n], self.now);
        let least = [side.written, side.read];
        let [theirs, ours] = side.firsts;
        let watch = Watch {
            ends_in: self.ends_in[n],
            place: side.place,
            judges: (self.judges && side.socket.is_some())
                .then_some([(theirs, side.key ^ 0xff), (ours, side.key)]),
            ..Watch::default()
        };
        WATCH.set(watch);
        work(side, &mut self.rng, now);
        let watch = WATCH.take();
        self.ends_in[n] = watch.ends_in;
        let sent = side.wire.sent.drain(..).map(|(from, to, frame)| {
            let bytes = frame.bytes().to_vec();
            (from, to, bytes)
        });
        let mut sent: Vec<_> = sent.collect();
        if let Some((bytes, left)) = watch.end {
            sent.truncate(left);
            side.restart(&bytes, least, &mut self.rng, now);
            self.restarts += 1;
            self.ends_in[n] = Some(self.rng.u32(..500));
        }
        for (from, to, bytes) in sent {
            self.send(1 - n, from, to, bytes);
        }
    }

    fn send(&mut self, to: usize, source: IpAddr, destination: IpAddr, bytes: Vec<u8>) {
        let network = self.network;
        if self.rng.u32(..1000) < network.lost {
            return;
        }
        let mut at = self.now + network.delay;
        if self.rng.u32(..1000) < network.late {
            at = at + Duration::from_nanos(self.rng.u64(..=network.jitter.as_nanos() as u64));
        }
        for _ in 0..1 + u32::from(self.rng.u32(..1000) < network.doubled) {
            self.count += 1;
            let parcel = (to, source, destination, bytes.clone());
            self.under_way.insert((at, self.count), parcel);
        }
    }

    fn step(&mut self) {
        for n in 0..2 {
            self.on(n, |side, rng, now| side.work(rng, now));
            let mut all = false;
            for _ in 0..100 {
                self.on(n, |side, _, now| {
                    side.tcp.expire(&mut side.wire, now);
                    all = side.tcp.send(&mut side.wire, now);
                });
                if all {
                    break;
                }
            }
            assert!(all, "its buffers never come back");
        }
        let first = self.under_way.keys().next().map_or(NEVER, |(at, _)| *at);
        let deadlines = self
            .sides
            .each_ref()
            .map(|side| side.tcp.deadline(self.now));
        let next = deadlines.into_iter().fold(first, Instant::min);
        // A user that did not do all it could does it soon.
        self.now = self
            .now
            .max(next.min(self.now + Duration::from_millis(100)));
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (to, source, destination, bytes) = entry.remove();
            self.on(to, |side, _, now| {
                // A port without a buffer loses it.
                if let Some(mut frame) = side.wire.pool.alloc(bytes.len()) {
                    frame.bytes_mut().copy_from_slice(&bytes);
                    let Side { tcp, wire, .. } = side;
                    tcp.receive(wire, source, destination, frame, now);
                }
            });
        }
    }

    /// A host ends between two steps.
    fn restart(&mut self, n: usize) {
        let side = &mut self.sides[n];
        let bytes = side.place.expect("it has one").bytes();
        let least = [side.written, side.read];
        side.restart(&bytes, least, &mut self.rng, self.now);
        self.restarts += 1;
    }

    /// Until both users have all; how many steps.
    fn run(&mut self, mut each: impl FnMut(&mut Self, u32)) -> u32 {
        for step in 0..STEPS {
            if self.is_done() {
                let read = self.sides.each_ref().map(|side| side.read);
                let sent = self.sides.each_ref().map(|side| side.to_send);
                assert_eq!(read, [sent[1], sent[0]]);
                return step;
            }
            each(self, step);
            self.step();
        }
        let states = self.sides.each_ref().map(|side| side.connection().cloned());
        panic!("it hangs: {states:#?}");
    }
}

/// What a failing run is repeated with.
fn say(seed: u64) {
    std::println!("OUTBOARD_SEEDS={seed}..{}", seed + 1);
}

#[test]
fn a_host_outlives_its_image_at_random_steps() {
    for seed in seeds(RUNS) {
        say(seed);
        let mut world = World::new(seed);
        let every = world.rng.u32(2..40);
        world.run(|world, step| {
            // The first steps are not interrupted for ever.
            if step < 300 && world.rng.u32(..every) == 0 {
                let n = world.rng.usize(..2);
                world.restart(n);
            }
        });
    }
}

#[test]
fn a_host_outlives_its_image_at_every_step() {
    for seed in seeds(2) {
        say(seed);
        let steps = World::new(seed).run(|_, _| ());
        for end in 0..steps {
            for n in 0..2 {
                World::new(seed).run(|world, step| {
                    if step == end {
                        world.restart(n);
                    }
                });
            }
        }
    }
}

/// The peer may know that the connection is open when the image has nothing of it yet.
#[test]
fn a_host_outlives_its_image_while_a_connection_is_opened() {
    let mut restarts = 0;
    for seed in seeds(RUNS / 3) {
        say(seed);
        for step in 0..6 {
            let mut world = World::with(seed, |_| (), Some(step));
            restarts += world.restarts;
            world.run(|_, _| ());
        }
    }
    assert!(restarts > 60, "{restarts}");
}

#[test]
fn a_host_outlives_its_image_between_any_two_stores() {
    let mut restarts = 0;
    for seed in seeds(RUNS) {
        say(seed);
        let mut world = World::new(seed);
        world.ends_in = [(); 2].map(|()| Some(world.rng.u32(..500)));
        world.run(|world, step| {
            if step > 300 {
                world.ends_in = [None; 2];
            }
        });
        restarts += world.restarts;
    }
    std::println!("{restarts} restarts");
}

/// What is given back has been read in the same step: none is lost, and none comes twice.
#[test]
fn what_is_given_back_outlives_the_image_between_any_two_stores() {
    let mut restarts = 0;
    for seed in seeds(RUNS) {
        say(seed);
        let mut world = World::giving_back(seed);
        world.ends_in[1] = Some(world.rng.u32(..500));
        world.run(|world, step| {
            if step > 300 {
                world.ends_in[1] = None;
            }
        });
        restarts += world.restarts;
    }
    assert!(restarts > 0);
    std::println!("{restarts} restarts");
}

#[test]
fn only_bytes_in_the_vault_are_acknowledged_and_sent() {
    for seed in seeds(RUNS / 3) {
        say(seed);
        let mut world = World::new(seed);
        world.judges = true;
        world.run(|_, _| ());
    }
}
