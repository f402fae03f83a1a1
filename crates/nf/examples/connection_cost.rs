//! What a frame of an open connection costs where rules know connections, without any I/O:
//!
//!     cargo run --release -p nf --example connection_cost [CONNECTIONS [FRAMES]] [kept]
//!
//! If they are `kept`, they lie in memory that outlives the image.
//!
//! For callgrind to count instructions:
//!
//!     cargo build --release -p nf --example connection_cost
//!     valgrind --tool=callgrind --toggle-collect='*connection_turn*' PATH/connection_cost 1 20000

use nf::conntrack::{Class, Conntrack};
use nf::nft::Limits;
use nf::{Key, RuleIndex, RuleSet, Tally, Way};
use std::hint::black_box;
use std::time::Instant;

const RULES: &str = "table bridge t {
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related counter accept
        ct state invalid counter drop
        tcp dport 7070 counter accept
    }
}
";
const CONNECTIONS: usize = 1000;
const FRAMES: usize = 4_000_000;
/// Frames that are timed at once: the fastest round counts, for it was disturbed least.
const ROUND: usize = 20_000;

const SYN: u8 = 2;
const ACK: u8 = 16;

struct Counters(Vec<u64>);

impl Tally for Counters {
    #[inline]
    fn count(&mut self, rule: RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

/// A firewall, and the counters of its rules.
struct Firewall {
    rules: RuleSet,
    connections: Conntrack,
    key: Key,
    counters: Counters,
}

impl Firewall {
    fn new(connections: usize, kept: bool) -> Self {
        let rules = nf::load(RULES, &["private", "public"], &Limits::DEFAULT);
        let rules = rules.expect("rules of this example");
        Self {
            counters: Counters(vec![0; rules.len() + 1]),
            rules,
            connections: match kept {
                true => table_in_state(2 * connections),
                false => Conntrack::new(2 * connections, &[7; 16]),
            },
            key: Key::EMPTY,
        }
    }
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

/// The hot path, kept apart so that its instructions can be counted.
#[inline(never)]
fn connection_turn(firewall: &mut Firewall, frame: &[u8]) -> RuleIndex {
    let Firewall {
        rules,
        connections,
        key,
        counters,
    } = firewall;
    if key.read(frame).is_err() {
        return RuleIndex::MAX;
    }
    let way = Way { from: 0, to: 1 };
    let judged = connections.judge(key, frame, 0, &mut |connection| {
        rules.verdict_within(key, way, connection, counters)
    });
    judged.map_or(RuleIndex::MAX, |(_, rule)| rule)
}

/// A segment of a connection without data, in a frame of 54 bytes.
fn segment(number: u32, reply: bool, flags: u8) -> [u8; 54] {
    let mut frame = [0; 54];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let (client, server) = (number.to_be_bytes(), [10, 0, 0, 2]);
    let ports = [[0x12, 0x34], 7070u16.to_be_bytes()];
    let (addresses, ports) = match reply {
        false => ([client, server].concat(), ports.concat()),
        true => ([server, client].concat(), [ports[1], ports[0]].concat()),
    };
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    frame[26..34].copy_from_slice(&addresses);
    let words = frame[14..34].chunks(2);
    let words = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[34..38].copy_from_slice(&ports);
    // Each SYN counts as a byte.
    frame[41] = u8::from(flags & SYN == 0);
    frame[45] = u8::from(flags & ACK != 0);
    frame[46] = 0x50;
    frame[47] = flags;
    frame[48] = 0xff;
    frame
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let kept = arguments.pop_if(|last| last == "kept").is_some();
    let mut arguments = arguments.iter().map(|argument| argument.parse());
    let mut number = |otherwise| arguments.next().unwrap_or(Ok(otherwise));
    let (Ok(count @ 1..), Ok(frames)) = (number(CONNECTIONS), number(FRAMES)) else {
        eprintln!("connection_cost: give numbers: connection_cost [CONNECTIONS [FRAMES]] [kept]");
        std::process::exit(1);
    };
    let mut firewall = Firewall::new(count, kept);
    for number in 0..count as u32 {
        for (reply, flags) in [(false, SYN), (true, SYN | ACK), (false, ACK)] {
            connection_turn(&mut firewall, &segment(number, reply, flags));
        }
    }
    let open = firewall.connections.count(Class::Established);
    assert_eq!(open as usize, count, "each connection is open");
    let data: Vec<_> = (0..count as u32)
        .map(|number| segment(number, false, ACK))
        .collect();
    let mut nanoseconds = f64::INFINITY;
    for round in (0..frames).step_by(ROUND) {
        let round = ROUND.min(frames - round);
        let start = Instant::now();
        for frame in data.iter().cycle().take(round) {
            black_box(connection_turn(&mut firewall, black_box(frame)));
        }
        nanoseconds = nanoseconds.min(start.elapsed().as_nanos() as f64 / round as f64);
    }
    println!("{count} connections: {nanoseconds:.1} ns/frame");
}
