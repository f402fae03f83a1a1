//! What a frame costs where rules know connections, without any I/O:
//!
//!     cargo run --release -p nf --example connection_cost [CONNECTIONS [FRAMES]] [WHAT]
//!
//! | what | counted in | each frame |
//! |---|---|---|
//! | `open` | `connection_turn` | data of an open connection or an ACK, on a bridge (the default) |
//! | `kept` | the same | of connections in memory that outlives the image |
//! | `ahead` | the same, and `ahead_turn` | the same in batches of 32, looked for beforehand |
//! | `routed` | `routed_turn` | the same through a router: all three hooks |
//! | `translated` | the same | of connections that are translated |
//! | `ruled` | the same | the same of one, with so many rules that translate others |
//! | `grouped` | the same | the same with a set of so many addresses of others, asked first |
//! | `new` | `connection_turn` | the SYN of another connection |
//! | `full` | the same | the same in a table of so many flows, which make room for others |
//! | `nat` | `routed_turn` | the same through a router with so many rules that translate others |
//! | `set` | the same | the same with a set of so many addresses of others instead |
//! | `tuples`, `ranges` | the same | the same with so many tuples of others, single or ranges |
//! | `bare` | the same | the same where rules ask for no connection |
//! | `expire` | `expire_turn` | no frame: what has ended is looked for before a batch |
//!
//! For callgrind to count instructions, and misses of a cache of 32 MiB:
//!
//!     cargo build --release -p nf --example connection_cost
//!     valgrind --tool=callgrind --toggle-collect='*connection_turn*' PATH/connection_cost 1 20000
//!     valgrind --tool=callgrind --toggle-collect='*connection_turn*' --cache-sim=yes \
//!         --LL=33554432,16,64 PATH/connection_cost 1000000 20000

use nf::conntrack::{Class, Conntrack, Sought};
use nf::nft::Limits;
use nf::router::{Arrival, Connections, Hooks, Local, Passage, Rules};
use nf::{Key, RuleIndex, RuleSet, Tally, Way};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

const BRIDGE: &str = "table bridge t {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related counter accept
        ct state invalid counter drop
        tcp dport 7070 counter accept
    }
}
";
const BARE: &str = "table bridge t {
    chain forward {
        type filter hook forward priority 0; policy drop;
        tcp sport 7070 counter accept
        tcp dport 7070 counter accept
    }
}
";
const ROUTER: &str = "table inet t {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related counter accept
        ct state invalid counter drop
        tcp dport 7070 counter accept
    }
}
";
const NAT: &str = "table ip nat {
    chain out {
        type nat hook postrouting priority srcnat;
        oifname public masquerade
    }
}
";
const CONNECTIONS: usize = 1000;
const FRAMES: usize = 4_000_000;
/// Frames that are made and then timed at once: the fastest round counts.
const ROUND: usize = 1000;
/// Frames of a batch.
const BATCH: usize = 32;
/// From one connection to the next one: a prime number, so that each has its turn, and no two
/// neighbours have theirs together.
const STRIDE: usize = 611_953;
/// A time in nanoseconds at which connections begin.
const BEGIN: u64 = 1_000_000_000;
/// Nanoseconds of a tick, in which what has ended is looked for once.
const TICK: u64 = 1 << 26;

const SYN: u8 = 2;
const ACK: u8 = 16;
const SERVER: [u8; 4] = [192, 0, 2, 1];
/// Nobody here has an address from this one on.
const OTHERS: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// What clients are called behind a router that translates them.
const PUBLIC: [u8; 4] = [192, 0, 2, 9];
/// Bytes of data of a segment.
const DATA: u32 = 1000;
/// Ports of each client. A source may have a part of the table alone.
const PORTS: u32 = 64;

struct Counters(Vec<u64>);

impl Tally for Counters {
    #[inline]
    fn count(&mut self, rule: RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

/// Rules at work, and what they count.
trait Firewall {
    /// A frame passes that opens a connection, which is not counted.
    fn open(&mut self, frame: &mut [u8], reply: bool, now: u64);
    /// A batch comes.
    fn look_ahead(&mut self, frames: &[Frame]);
    /// A frame passes, and may change.
    fn turn(&mut self, frame: &mut [u8], reply: bool, now: u64);
    fn connections(&mut self) -> &mut Conntrack;
}

struct Bridge {
    rules: RuleSet,
    connections: Conntrack,
    key: Key,
    counters: Counters,
}

impl Bridge {
    fn new(text: &str, connections: Conntrack) -> Self {
        let rules = nf::load(text, &["private", "public"], &Limits::DEFAULT);
        let rules = rules.expect("rules of this example");
        Self {
            counters: Counters(vec![0; rules.len() + 1]),
            rules,
            connections,
            key: Key::EMPTY,
        }
    }
}

impl Firewall for Bridge {
    fn open(&mut self, frame: &mut [u8], reply: bool, now: u64) {
        judge(self, frame, Sought::NOTHING, reply, now);
    }

    fn look_ahead(&mut self, frames: &[Frame]) {
        ahead_turn(&self.connections, frames);
    }

    fn turn(&mut self, frame: &mut [u8], reply: bool, now: u64) {
        black_box(connection_turn(self, black_box(frame), reply, now));
    }

    fn connections(&mut self) -> &mut Conntrack {
        &mut self.connections
    }
}

/// The hot path of a bridge, kept apart so that its instructions can be counted.
#[inline(never)]
fn connection_turn(bridge: &mut Bridge, frame: &[u8], reply: bool, now: u64) -> RuleIndex {
    let Some(settled) = bridge.rules.settled() else {
        return judge(bridge, frame, Sought::NOTHING, reply, now);
    };
    match bridge.connections.goes_on(frame, now) {
        Ok(()) => settled.say(&mut bridge.counters).1,
        Err(sought) => judge(bridge, frame, sought, reply, now),
    }
}

#[inline(never)]
fn judge(bridge: &mut Bridge, frame: &[u8], sought: Sought, reply: bool, now: u64) -> RuleIndex {
    let Bridge {
        rules,
        connections,
        key,
        counters,
    } = bridge;
    if key.read(frame).is_err() {
        return RuleIndex::MAX;
    }
    let from = u8::from(reply);
    let way = Way { from, to: 1 - from };
    if !rules.tracks() {
        return rules.verdict(key, way, counters).1;
    }
    let judged = connections.judge(key, frame, sought, now, |connection| {
        rules.verdict_within(key, way, connection, counters)
    });
    judged.map_or(RuleIndex::MAX, |(_, rule)| rule)
}

struct Router {
    rules: Rules,
    connections: Connections,
    passage: Passage,
    counters: Counters,
}

impl Router {
    fn new(text: &str, connections: Connections) -> Self {
        let rules = Rules::load(text, &["private", "public"], &Limits::DEFAULT);
        let rules = rules.expect("rules of this example");
        Self {
            counters: Counters(vec![0; rules.counters()]),
            rules,
            connections,
            passage: Passage::new(),
        }
    }
}

impl Firewall for Router {
    fn open(&mut self, frame: &mut [u8], reply: bool, now: u64) {
        assert!(pass_hooks(self, frame, reply, now));
    }

    fn look_ahead(&mut self, frames: &[Frame]) {
        ahead_turn(&self.connections.table, frames);
    }

    fn turn(&mut self, frame: &mut [u8], reply: bool, now: u64) {
        assert!(routed_turn(self, black_box(frame), reply, now));
    }

    fn connections(&mut self) -> &mut Conntrack {
        &mut self.connections.table
    }
}

/// The hot path of a router: whether the packet goes on.
#[inline(never)]
fn routed_turn(router: &mut Router, frame: &mut [u8], reply: bool, now: u64) -> bool {
    pass_hooks(router, frame, reply, now)
}

#[inline(always)]
fn pass_hooks(router: &mut Router, frame: &mut [u8], reply: bool, now: u64) -> bool {
    let port = u8::from(reply);
    let local = |port| Local {
        ip4: (port == 1).then_some(PUBLIC.into()),
        ip6: None,
    };
    let arrival = Arrival {
        port,
        local: local(port),
        partial: false,
    };
    let mut hooks = Hooks {
        rules: &router.rules,
        connections: Some(&mut router.connections),
        now,
        tally: &mut router.counters,
    };
    let passage = &mut router.passage;
    let to = 1 - port;
    hooks.prerouting(passage, frame, arrival).is_ok()
        && hooks.forward(passage, to).is_ok()
        && hooks.postrouting(passage, frame, to, local(to)).is_ok()
}

/// What is done before each batch of a large table.
#[inline(never)]
fn ahead_turn(connections: &Conntrack, frames: &[Frame]) {
    connections.look_ahead(frames.iter().map(|(frame, len, _)| &frame[..*len]));
}

/// What is done before each batch: whether it was time for it.
#[inline(never)]
fn expire_turn(connections: &mut Conntrack, now: u64) -> bool {
    connections.expire(now)
}

/// A table with room for so many connections, as images have it whose manifest names a state.
fn table_in_state(connections: usize) -> Conntrack {
    let mut bytes = 0;
    while Conntrack::flows_in(bytes) < connections {
        bytes += 4096;
    }
    // Pages begin at multiples of any cache line.
    let memory = vec![0_u8; bytes + 4096].leak();
    let shift = memory.as_ptr().align_offset(4096);
    let taken_up = Conntrack::take_up(&mut memory[shift..shift + bytes], &[7; 16], 0);
    taken_up.expect("there is room").0
}

/// Bytes of a frame: Ethernet, IPv4, TCP with a timestamp, which is what most have. The data is
/// told of in the header alone; nobody reads it.
const HEADERS: usize = 14 + 20 + 32;
const FRAME: usize = HEADERS + DATA as usize;

/// A frame, its length, and whether it is an answer.
type Frame = ([u8; FRAME], usize, bool);

/// What is known of both sides of a connection: bytes that were sent, by data and by its ACK.
type Sent = u32;

/// Makes the frame of a connection that comes next: of a number of rounds, data comes first.
fn make(
    frame: &mut [u8; FRAME],
    number: u32,
    reply: bool,
    flags: u8,
    sent: Sent,
    nat: bool,
) -> usize {
    let client = u32::from_be_bytes([10, 0, 0, 0]) + number / PORTS;
    let port = 1024 + (number % PORTS) as u16;
    // Translation keeps a port that is free.
    let (client, port) = match nat && reply {
        true => (PUBLIC, 1024 + number as u16),
        false => (
            client.to_be_bytes(),
            if nat { 1024 + number as u16 } else { port },
        ),
    };
    let data = if flags == ACK && !reply {
        DATA as usize
    } else {
        0
    };
    let (mut addresses, mut ports) = ([client, SERVER], [port, 7070]);
    let (mut seq, mut ack) = (1 + sent, 1);
    if reply {
        addresses.reverse();
        ports.reverse();
        (seq, ack) = (1, 1 + sent);
    }
    if flags & SYN != 0 {
        seq = 0;
    }
    frame[12..14].copy_from_slice(&[8, 0]);
    let len = HEADERS + data;
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
    frame[26..34].copy_from_slice(addresses.as_flattened());
    let words = frame[14..34].as_chunks().0.iter();
    let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[34..38].copy_from_slice(ports.map(u16::to_be_bytes).as_flattened());
    frame[38..42].copy_from_slice(&u32::to_be_bytes(seq));
    frame[42..46].copy_from_slice(&u32::to_be_bytes(if flags & ACK == 0 { 0 } else { ack }));
    frame[46..50].copy_from_slice(&[0x80, flags, 0xff, 0]);
    // A SYN says that windows are not scaled, and that ACKs may be selective.
    frame[54..66].copy_from_slice(match flags & SYN {
        0 => &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1],
        _ => &[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 0, 1, 0],
    });
    len
}

/// Frames of so many connections, one after the other.
struct Traffic {
    frames: Vec<Frame>,
    sent: Vec<Sent>,
    next: usize,
    /// Frames until answers have their turn, or data.
    left: usize,
    reply: bool,
    nat: bool,
}

impl Traffic {
    fn new(connections: usize, nat: bool) -> Self {
        Self {
            frames: vec![([0; FRAME], 0, false); ROUND],
            sent: vec![0; connections],
            next: 0,
            left: connections,
            reply: false,
            nat,
        }
    }

    /// The next frames: data of one connection after the other, and then an ACK of each.
    fn make(&mut self, count: usize) {
        for (frame, len, reply) in &mut self.frames[..count] {
            let sent = &mut self.sent[self.next];
            if self.reply {
                *sent += DATA;
            }
            (*len, *reply) = (0, self.reply);
            *len = make(frame, self.next as u32, self.reply, ACK, *sent, self.nat);
            self.next = (self.next + STRIDE) % self.sent.len();
            self.left -= 1;
            if self.left == 0 {
                (self.left, self.reply) = (self.sent.len(), !self.reply);
            }
        }
    }
}

/// Opens so many connections.
fn open(firewall: &mut dyn Firewall, connections: usize, nat: bool) {
    let mut frame = [0; FRAME];
    for number in 0..connections as u32 {
        for (reply, flags) in [(false, SYN), (true, SYN | ACK), (false, ACK), (true, ACK)] {
            let sent = if (reply, flags) == (true, ACK) {
                DATA
            } else {
                0
            };
            let len = make(&mut frame, number, reply, flags, sent, nat);
            firewall.open(&mut frame[..len], reply, BEGIN);
        }
    }
    let open = firewall.connections().count(Class::Established);
    assert_eq!(open as usize, connections, "each connection is open");
}

/// Nanoseconds of a frame in the middle one of all rounds.
fn pass(
    firewall: &mut dyn Firewall,
    connections: usize,
    frames: usize,
    nat: bool,
    ahead: bool,
) -> f64 {
    open(firewall, connections, nat);
    let mut traffic = Traffic::new(connections, nat);
    traffic.sent.fill(DATA);
    let mut rounds = Vec::new();
    for round in (0..frames).step_by(ROUND) {
        let round = ROUND.min(frames - round);
        traffic.make(round);
        let start = Instant::now();
        for batch in traffic.frames[..round].chunks_mut(BATCH) {
            if ahead {
                firewall.look_ahead(batch);
            }
            for (frame, len, reply) in batch {
                firewall.turn(&mut frame[..*len], *reply, BEGIN);
            }
        }
        rounds.push(start.elapsed().as_nanos() as f64 / round as f64);
    }
    rounds.sort_unstable_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// The same of SYNs, each of another connection.
fn begin(firewall: &mut dyn Firewall, frames: usize) -> f64 {
    let mut nanoseconds = f64::INFINITY;
    let mut traffic = Traffic::new(1, false);
    for first in (0..frames).step_by(ROUND) {
        let round = ROUND.min(frames - first);
        for (at, (frame, len, _)) in traffic.frames[..round].iter_mut().enumerate() {
            *len = make(frame, (first + at) as u32, false, SYN, 0, false);
        }
        let start = Instant::now();
        for (frame, len, _) in &mut traffic.frames[..round] {
            firewall.turn(&mut frame[..*len], false, BEGIN);
        }
        nanoseconds = nanoseconds.min(start.elapsed().as_nanos() as f64 / round as f64);
    }
    nanoseconds
}

/// Rules that translate so many others before they translate whoever comes.
fn nat_of_others(count: usize) -> String {
    let rules = (0..count).map(|number| {
        let address = Ipv4Addr::from_bits(OTHERS + number as u32);
        format!("ip saddr {address} snat to 192.0.2.8\n")
    });
    NAT.replace("oifname", &(rules.collect::<String>() + "oifname"))
}

/// Rules with a set of so many addresses of others, in front of this word. No two are neighbours.
fn set_of_others(count: usize, before: &str) -> String {
    let addresses = (0..count).map(|number| {
        let address = Ipv4Addr::from_bits(OTHERS + 2 * number as u32);
        format!("{address}, ")
    });
    let rule = format!(
        "ip saddr {{ {} }} drop\n{before}",
        addresses.collect::<String>()
    );
    [&ROUTER.replace(before, &rule), NAT].concat()
}

/// The same of tuples: an address, or a prefix, and a port, or a range.
fn tuples_of_others(count: usize, ranges: bool) -> String {
    let tuples = (0..count as u32).map(|number| {
        let address = Ipv4Addr::from_bits(OTHERS + 2 * number);
        let port = 1024 + number % 60_000;
        match number % 3 {
            1 if ranges => format!("{address}/31 . {port}, "),
            2 if ranges => format!("{address} . {port}-{}, ", port + 9),
            _ => format!("{address} . {port}, "),
        }
    });
    let rule = format!(
        "ip saddr . tcp dport {{ {} }} drop\nct state inv",
        tuples.collect::<String>()
    );
    [&ROUTER.replace("ct state inv", &rule), NAT].concat()
}

/// The fastest of so many looks for what has ended, once all connections have.
fn expire(firewall: &mut dyn Firewall, connections: usize, turns: usize) -> f64 {
    open(firewall, connections, false);
    let end = BEGIN + 1_000_000_000 * u64::from(Class::Established.seconds() + 1);
    let mut nanoseconds = f64::INFINITY;
    for turn in 0..turns {
        let now = end + turn as u64 * TICK;
        let start = Instant::now();
        black_box(expire_turn(firewall.connections(), black_box(now)));
        nanoseconds = nanoseconds.min(start.elapsed().as_nanos() as f64);
    }
    nanoseconds
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.pop_if(|last| last.parse::<usize>().is_err());
    let mut numbers = arguments.iter().map(|argument| argument.parse());
    let mut number = |otherwise| numbers.next().unwrap_or(Ok(otherwise));
    let (Ok(count @ 1..), Ok(frames)) = (number(CONNECTIONS), number(FRAMES)) else {
        eprintln!("connection_cost: give numbers: connection_cost [CONNECTIONS [FRAMES]] [WHAT]");
        std::process::exit(1);
    };
    let what = what.as_deref().unwrap_or("open");
    let Some(nanoseconds) = measure(what, count, frames) else {
        eprintln!("connection_cost: there is no `{what}`");
        std::process::exit(1);
    };
    println!("{what}, {count} connections: {nanoseconds:.1} ns");
}

/// Nanoseconds of this; none if it is nothing.
fn measure(what: &str, count: usize, frames: usize) -> Option<f64> {
    let table = || Conntrack::new(2 * count, &[7; 16]);
    let many = || Conntrack::new(8 * frames.max(PORTS as usize), &[7; 16]);
    let routed = || Connections::of(table(), &[7; 16]);
    Some(match what {
        "open" | "ahead" => {
            let ahead = what == "ahead";
            pass(
                &mut Bridge::new(BRIDGE, table()),
                count,
                frames,
                false,
                ahead,
            )
        }
        "kept" => {
            let table = table_in_state(2 * count);
            pass(&mut Bridge::new(BRIDGE, table), count, frames, false, false)
        }
        "routed" => pass(
            &mut Router::new(ROUTER, routed()),
            count,
            frames,
            false,
            false,
        ),
        "ruled" => {
            let rules = [ROUTER, &nat_of_others(count)].concat();
            pass(&mut Router::new(&rules, routed()), 1, frames, true, false)
        }
        "grouped" => {
            let rules = set_of_others(count, "ct state est");
            pass(&mut Router::new(&rules, routed()), 1, frames, true, false)
        }
        "translated" => {
            let rules = [ROUTER, NAT].concat();
            pass(
                &mut Router::new(&rules, routed()),
                count,
                frames,
                true,
                false,
            )
        }
        "new" => begin(&mut Bridge::new(BRIDGE, many()), frames),
        "full" => {
            let table = Conntrack::new(count, &[7; 16]);
            begin(&mut Bridge::new(BRIDGE, table), frames)
        }
        "nat" | "set" | "tuples" | "ranges" => {
            let rules = match what {
                "nat" => [ROUTER, &nat_of_others(count)].concat(),
                "tuples" | "ranges" => tuples_of_others(count, what == "ranges"),
                _ => set_of_others(count, "ct state inv"),
            };
            begin(
                &mut Router::new(&rules, Connections::of(many(), &[7; 16])),
                frames,
            )
        }
        "bare" => begin(&mut Bridge::new(BARE, Conntrack::new(1, &[7; 16])), frames),
        "expire" => expire(&mut Bridge::new(BRIDGE, table()), count, frames),
        _ => return None,
    })
}
