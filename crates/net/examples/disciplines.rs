//! What it costs who allocates, fills and copies buffers: our discipline, and two older ones in its
//! place, under the same TCP and IP.
//!
//!     cargo run --release -p net --example disciplines [-- --json]
//!
//! - `filled`, ours. To send, the port allocates, and layers fill its buffer from the top down.
//!   To receive, the frame itself goes up.
//! - `listed`. To send, IP allocates a page for all headers; the list of that page and views of
//!   the payload is gathered into the port's buffer. To receive, the port's frame is copied into
//!   a fresh buffer once, of which layers above see parts.
//! - `layered`. To send, TCP allocates a buffer for header and payload, IP and Ethernet one each
//!   for their headers; the list is gathered into the port's buffer. To receive, each layer copies
//!   into a fresh buffer for the one above.
//!
//! A server has its turns with one of them. Its peer has ours, and does not count. Layers' buffers
//! are whole pages, and come from a list of free ones, which costs less than a heap: so the older
//! disciplines are measured at their best. Headers of a list lie in the place of the gathered ones
//! when they are written; they are written once more, into the layer's buffer. Applications give
//! payload with its ownership, and take it so, in all three. There is no wire, and what carries
//! frames from port to port is not timed.

#![forbid(unsafe_code)]

mod mover;

use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use device::{Batch, FRAME_BYTES_MAX, Frame, HEADROOM, Pool};
use mover::{MTU, Mover, Queues};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::{HEADER, Ipv4};
use net::ipv6::Ipv6;
use net::layer::{Filled, Unsent};
use net::tcp::below::{Below, PROTOCOL};
use net::tcp::host::{SocketId, Tcp};
use net::tcp::identity::Secret;
use net::tcp::{Config, Limits};
use net::version::{Addresses, Arrived, Packet, Version};
use ports::Instant;
use std::cell::RefCell;
use std::rc::Rc;

#[global_allocator]
static HEAP: dhat::Alloc = dhat::Alloc;

const ETHERNET: usize = 14;
const PAGE: usize = 4096;
const PORT: u16 = 80;
/// Payload that is given in a round: 32 segments.
const ROUND: usize = 32 * 1448;
/// Rounds that nobody counts: windows grow.
const WARM_UP: usize = 200;
/// Payload of a run.
const RUN: usize = 32_000_000;
/// Runs of each case that are timed.
const RUNS: usize = 9;
/// Between two rounds.
const STEP: Duration = Duration::from_micros(100);
/// Rounds of a run, at most.
const ROUNDS_MAX: usize = 100_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Discipline {
    Filled,
    Listed,
    Layered,
}

const DISCIPLINES: [(&str, Discipline); 3] = [
    ("filled", Discipline::Filled),
    ("listed", Discipline::Listed),
    ("layered", Discipline::Layered),
];

/// What a server does.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    sends: bool,
    /// The port cuts segments, and hands over several as one.
    tso: bool,
    /// It reads in each of so many rounds.
    reads: usize,
}

const fn case(name: &'static str, sends: bool, tso: bool, reads: usize) -> Case {
    Case {
        name,
        sends,
        tso,
        reads,
    }
}

const CASES: [Case; 5] = [
    case("send", true, false, 1),
    case("send, port cuts segments", true, true, 1),
    case("receive", false, false, 1),
    case("receive, port joins segments", false, true, 1),
    case("receive, read in each eighth round", false, false, 8),
];

/// Buffers of an end, used again in each run.
#[derive(Clone, Copy)]
struct Pools {
    port: Pool,
    /// A page each, for headers.
    headers: Pool,
    /// Whole pages for a packet.
    packets: Pool,
}

impl Pools {
    fn new(tso: bool) -> Self {
        let frame = if tso { FRAME_BYTES_MAX } else { MTU + 18 };
        let pages = (HEADROOM + frame).next_multiple_of(PAGE);
        Self {
            port: mover::pool(frame),
            headers: mover::pool(PAGE - HEADROOM),
            packets: mover::pool(pages - HEADROOM),
        }
    }

    /// Bytes of buffers in use.
    fn in_use(&self) -> usize {
        let pools = [self.port, self.headers, self.packets];
        let bytes = |pool: Pool| in_use(pool) * (pool.frame_bytes_max() + HEADROOM);
        pools.into_iter().map(bytes).sum()
    }
}

fn in_use(pool: Pool) -> usize {
    pool.count() - pool.free()
}

/// What was counted at a server.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Buffers that layers took, beside the port's.
    buffers: u64,
    /// Bytes that were copied: payload, and headers into a list or out of it.
    copied: u64,
    /// Bytes of buffers in use, at most.
    in_use_max: usize,
    /// Buffers of the port in use, at most.
    port_max: usize,
    /// How often the port had no buffer.
    none: u64,
}

/// How layers hand bytes to each other.
struct Layers {
    discipline: Discipline,
    pools: Pools,
    tally: Tally,
}

impl Layers {
    fn look(&mut self) {
        let Self { pools, tally, .. } = self;
        tally.in_use_max = tally.in_use_max.max(pools.in_use());
        tally.port_max = tally.port_max.max(in_use(pools.port));
    }

    fn buffer(&mut self, pool: Pool, len: usize) -> Frame {
        self.tally.buffers += 1;
        let buffer = pool.alloc(len).expect("there are enough");
        self.look();
        buffer
    }

    /// A layer's frame, copied for the one above.
    fn raised(&mut self, frame: Frame) -> Frame {
        self.look();
        let mut fresh = self.buffer(self.pools.packets, frame.len());
        fresh.bytes_mut().copy_from_slice(frame.bytes());
        fresh.set_offload(frame.offload());
        self.tally.copied += frame.len() as u64;
        fresh
    }
}

/// IP as TCP sees it.
struct Lower<'a> {
    ip: &'a mut Ip,
    layers: &'a mut Layers,
    now: Instant,
}

/// Bytes of TCP's header at the beginning of `segment`.
fn header(segment: &[u8]) -> usize {
    usize::from(segment[12] >> 4) * 4
}

impl Below for Lower<'_> {
    fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        self.ip.source(remote, self.now)
    }

    fn limits(&self, _: IpAddr, remote: IpAddr) -> Limits {
        Limits {
            segment: (self.ip.mtu(remote, self.now) - HEADER) as u32,
            largest: self.ip.largest(remote, self.now) as u32,
        }
    }

    fn send(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent> {
        let Self { ip, layers, now } = self;
        let packet = Packet::new(from, to, PROTOCOL);
        let mut copied = 0;
        let pools = layers.pools;
        let result = match layers.discipline {
            Discipline::Filled => {
                let fill = |place: &mut [u8]| {
                    let filled = fill(place);
                    copied = filled.len - header(place);
                    filled
                };
                ip.write(packet, size, fill, *now)
            }
            Discipline::Listed => {
                let mut page = layers.buffer(pools.headers, PAGE - HEADROOM);
                let fill = |place: &mut [u8]| {
                    let filled = fill(place);
                    let (lower, upper) = page.bytes_mut().split_at_mut(ETHERNET + HEADER);
                    lower.fill(0);
                    upper[..header(place)].copy_from_slice(&place[..header(place)]);
                    copied = ETHERNET + HEADER + filled.len;
                    filled
                };
                ip.write(packet, size, fill, *now)
            }
            Discipline::Layered => {
                let mut segment = layers.buffer(pools.packets, size);
                let filled = fill(segment.bytes_mut());
                let payload = filled.len - header(segment.bytes());
                for header in [HEADER, ETHERNET] {
                    let mut buffer = layers.buffer(pools.headers, header);
                    buffer.bytes_mut().fill(0);
                }
                copied = payload + filled.len + HEADER + ETHERNET;
                let gather = |place: &mut [u8]| {
                    place[..filled.len].copy_from_slice(&segment.bytes()[..filled.len]);
                    filled
                };
                ip.write(packet, size, gather, *now)
            }
        };
        layers.tally.copied += copied as u64;
        layers.tally.none += u64::from(result == Err(Unsent::NoBuffer));
        layers.look();
        result
    }
}

/// One end of the connection.
struct End {
    ip: Ip,
    tcp: Tcp,
    layers: Layers,
    queues: Rc<RefCell<Queues>>,
    socket: Option<SocketId>,
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

impl End {
    fn new(last: u8, discipline: Discipline, pools: Pools, tso: bool, now: Instant) -> Self {
        let queues = Rc::<RefCell<Queues>>::default();
        let port = Mover {
            queues: queues.clone(),
            pool: pools.port,
            last,
            tso,
        };
        let (mut v4, v6) = (Ipv4::new(pools.port, 1), Ipv6::new(pools.port, 1));
        v4.add_address(Prefix::new(address(last), 24).unwrap(), Detect::Later, now);
        let tally = Tally::default();
        Self {
            ip: Ip::new(Ethernet::new(Box::new(port)), v4, v6),
            tcp: Tcp::new(Config::default(), Secret::new([last; 16]), [9; 16], 1 << 24),
            layers: Layers {
                discipline,
                pools,
                tally,
            },
            queues,
            socket: None,
        }
    }

    /// Takes in at most one batch; whether there was a frame.
    fn receive(&mut self, now: Instant) -> bool {
        let mut batch = Batch::new();
        self.ip.receive(&mut batch);
        let any = !batch.is_empty();
        for frame in batch.drain() {
            self.accept(frame, now);
        }
        let Self { ip, layers, .. } = self;
        self.tcp.expire(&mut Lower { ip, layers, now }, now);
        self.ip.poll(now);
        any
    }

    fn accept(&mut self, frame: Frame, now: Instant) {
        let Self {
            ip, tcp, layers, ..
        } = self;
        let copies = match layers.discipline {
            Discipline::Filled => 0,
            Discipline::Listed => 1,
            Discipline::Layered => 3,
        };
        let mut raised = |frame, layer| match layer < copies {
            true => layers.raised(frame),
            false => frame,
        };
        let frame = raised(frame, 0);
        let Some(mut arrival) = ip.link.accept(frame) else {
            return;
        };
        arrival.frame = raised(arrival.frame, 1);
        match arrival.ethertype {
            device::ethernet::TYPE_ARP => ip.v4.resolve(&mut ip.link, arrival, now),
            device::ethernet::TYPE_IPV4 => {
                if let Some(Arrived::Packet(packet)) = ip.v4.accept(&mut ip.link, arrival, now) {
                    let frame = raised(packet.frame, 2);
                    let (from, to) = (packet.source.into(), packet.destination.into());
                    layers.look();
                    if tcp.receive(&mut Lower { ip, layers, now }, from, to, frame, now) {
                        ip.confirm(from, now);
                    }
                }
            }
            _ => ip.link.refuse(arrival),
        }
    }

    fn send(&mut self, now: Instant) {
        let Self {
            ip, tcp, layers, ..
        } = self;
        tcp.send(&mut Lower { ip, layers, now }, now);
        ip.flush();
    }

    /// Gives what there is room for, and sends.
    fn write(&mut self, mut bytes: Bytes, now: Instant) {
        let mut context = Context::from_waker(Waker::noop());
        let socket = self.socket.expect("open");
        self.receive(now);
        while !bytes.is_empty()
            && let Poll::Ready(Ok(1..)) = self.tcp.poll_give(socket, &mut bytes, &mut context)
        {
        }
        self.send(now);
    }

    /// Takes in what has come, and acknowledges; how many bytes its reader took, if it reads.
    fn read(&mut self, reads: bool, now: Instant) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        let socket = self.socket.expect("open");
        let mut count = 0;
        loop {
            let any = self.receive(now);
            while reads
                && let Poll::Ready(Ok(Some(bytes))) = self.tcp.poll_take(socket, &mut context)
            {
                count += bytes.len();
            }
            self.send(now);
            if !any {
                return count;
            }
        }
    }
}

/// Carries what one end has sent to the other one, as devices do: from memory to memory.
fn carry(from: &mut End, to: &mut End) {
    // Their places stay, so that a server asks for none.
    let sent = &mut from.queues.borrow_mut().sent;
    let carried = sent.drain(..).map(|frame| {
        let mut carried = to.layers.pools.port.alloc(frame.len()).expect("enough");
        carried.bytes_mut().copy_from_slice(frame.bytes());
        carried.set_offload(frame.offload());
        carried
    });
    to.queues.borrow_mut().arrived = carried.rev().collect();
}

/// A server and its peer, with a connection.
fn connected(case: Case, discipline: Discipline, pools: [Pools; 2], now: Instant) -> [End; 2] {
    let mut ends = [
        End::new(1, discipline, pools[0], case.tso, now),
        End::new(2, Discipline::Filled, pools[1], case.tso, now),
    ];
    let any = SocketAddr::from((address(2), PORT));
    let listener = ends[1].tcp.listen(any, 1).unwrap();
    let End {
        ip, tcp, layers, ..
    } = &mut ends[0];
    ends[0].socket = Some(tcp.connect(&Lower { ip, layers, now }, any, now).unwrap());
    let [server, peer] = &mut ends;
    for _ in 0..10 {
        server.receive(now);
        server.send(now);
        carry(server, peer);
        peer.receive(now);
        peer.send(now);
        carry(peer, server);
    }
    let mut context = Context::from_waker(Waker::noop());
    match peer.tcp.poll_accept(listener, &mut context) {
        Poll::Ready(socket) => peer.socket = Some(socket),
        Poll::Pending => panic!("there is no connection"),
    }
    ends
}

/// What a server's turns took: time, or memory of the heap.
#[derive(Default)]
struct Turns {
    /// Whether the heap is counted, which takes time.
    counts: bool,
    /// Of the turns of a group of rounds, each.
    times: Vec<Duration>,
    /// Of the group that has begun.
    time: Duration,
    heap: u64,
    held: isize,
    held_max: isize,
}

impl Turns {
    fn turn<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if !self.counts {
            let begin = std::time::Instant::now();
            let result = work();
            self.time += begin.elapsed();
            return result;
        }
        let before = dhat::HeapStats::get();
        let result = work();
        let after = dhat::HeapStats::get();
        self.heap += after.total_blocks - before.total_blocks;
        self.held += after.curr_bytes as isize - before.curr_bytes as isize;
        self.held_max = self.held_max.max(self.held);
        result
    }

    /// A group of rounds has ended.
    fn lap(&mut self) {
        self.times.push(std::mem::take(&mut self.time));
    }
}

/// What a run came to.
struct Outcome {
    payload: usize,
    turns: Turns,
    tally: Tally,
}

fn run(case: Case, discipline: Discipline, pools: [Pools; 2], counts: bool) -> Outcome {
    let mut now = Instant::PAST + Duration::from_secs(1000);
    let bytes = Bytes::from(vec![7; ROUND]);
    let [mut server, mut peer] = connected(case, discipline, pools, now);
    let mut turns = Turns::default();
    let mut payload = 0;
    for round in 0..ROUNDS_MAX {
        if round == WARM_UP {
            server.layers.tally = Tally::default();
            turns = Turns {
                counts,
                ..Turns::default()
            };
            payload = 0;
        }
        now = now + STEP;
        if case.sends {
            turns.turn(|| server.write(bytes.clone(), now));
            carry(&mut server, &mut peer);
            payload += peer.read(true, now);
            carry(&mut peer, &mut server);
            turns.turn(|| server.receive(now));
        } else {
            peer.write(bytes.clone(), now);
            carry(&mut peer, &mut server);
            let reads = (round + 1) % case.reads == 0;
            payload += turns.turn(|| server.read(reads, now));
            carry(&mut server, &mut peer);
            peer.receive(now);
        }
        if (round + 1) % case.reads == 0 {
            turns.lap();
        }
        if round > WARM_UP && payload >= RUN {
            let tally = server.layers.tally;
            return Outcome {
                payload,
                turns,
                tally,
            };
        }
    }
    panic!("{}: {payload} bytes have come", case.name);
}

/// By the median group of rounds: other programs interrupt few of them.
fn gigabits(outcome: &Outcome) -> f64 {
    let times = &outcome.turns.times;
    let nanoseconds = median(times.iter().map(|time| time.as_nanos() as f64).collect());
    let groups = times.len() as f64;
    outcome.payload as f64 * 8.0 / groups / nanoseconds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A line of the table.
struct Line {
    case: &'static str,
    discipline: &'static str,
    gigabits: f64,
    /// Of the rate of ours, in the same round.
    ratio: f64,
    counted: Outcome,
}

fn measure(case: Case, pools: [Pools; 2]) -> Vec<Line> {
    let mut rates = [const { Vec::new() }; DISCIPLINES.len()];
    for _ in 0..RUNS {
        for (rates, (_, discipline)) in rates.iter_mut().zip(DISCIPLINES) {
            rates.push(gigabits(&run(case, discipline, pools, false)));
        }
    }
    let ours = rates[0].clone();
    let lines = rates.into_iter().zip(DISCIPLINES);
    let line = |(rates, (name, discipline)): (Vec<f64>, _)| {
        let profiler = dhat::Profiler::builder().testing().build();
        let counted = run(case, discipline, pools, true);
        drop(profiler);
        let ratios = rates.iter().zip(&ours).map(|(rate, ours)| rate / ours);
        Line {
            case: case.name,
            discipline: name,
            ratio: median(ratios.collect()),
            gigabits: median(rates),
            counted,
        }
    };
    lines.map(line).collect()
}

impl Line {
    fn megabytes(&self) -> f64 {
        self.counted.payload as f64 / 1e6
    }

    fn peak(&self) -> f64 {
        let heap = self.counted.turns.held_max as f64;
        (heap + self.counted.tally.in_use_max as f64) / 1024.0
    }

    fn print(&self) {
        let Tally {
            buffers,
            copied,
            port_max,
            none,
            ..
        } = self.counted.tally;
        println!(
            "| {} | {} | {:.1} | {:.2} | {:.0} | {:.2} | {:.2} | {:.0} | {port_max} | {none} |",
            self.case,
            self.discipline,
            self.gigabits,
            self.ratio,
            buffers as f64 / self.megabytes(),
            self.counted.turns.heap as f64 / self.megabytes(),
            copied as f64 / self.counted.payload as f64,
            self.peak(),
        );
    }

    fn json(&self) -> serde_json::Value {
        let Tally {
            buffers,
            copied,
            in_use_max,
            port_max,
            none,
        } = self.counted.tally;
        serde_json::json!({
            "case": self.case,
            "discipline": self.discipline,
            "gigabits": self.gigabits,
            "ratio": self.ratio,
            "payload_bytes": self.counted.payload,
            "layer_buffers": buffers,
            "heap_allocations": self.counted.turns.heap,
            "copied_bytes": copied,
            "buffer_bytes_max": in_use_max,
            "heap_bytes_max": self.counted.turns.held_max,
            "port_buffers_max": port_max,
            "port_had_none": none,
        })
    }
}

const TITLES: &str = "\
| case | discipline | Gb/s | ratio | layers' buffers a MB | heap allocations a MB \
| copied bytes a byte | memory at most, KiB | port's buffers at most | port had none |
|---|---|---|---|---|---|---|---|---|---|";

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let pools = [false, true].map(|tso| [Pools::new(tso), Pools::new(tso)]);
    if !json {
        println!("{TITLES}");
    }
    let mut all = Vec::new();
    for case in CASES {
        for line in measure(case, pools[usize::from(case.tso)]) {
            match json {
                true => all.push(line.json()),
                false => line.print(),
            }
        }
    }
    if json {
        println!("{:#}", serde_json::Value::from(all));
    }
}
