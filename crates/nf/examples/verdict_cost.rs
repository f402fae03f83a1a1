//! What a verdict costs without any I/O, for few rules, many rules and large sets:
//!
//!     cargo run --release -p nf --example verdict_cost [-- --json]
//!
//! A frame is read and judged, and the rule that decided is counted. The rules ask for addresses,
//! prefixes, ports and ranges; there is a frame for each of up to 1024 of them, and one in five is
//! for none. One case alone, and a number of frames, for callgrind to count instructions:
//!
//!     cargo build --release -p nf --example verdict_cost
//!     valgrind --tool=callgrind --toggle-collect='*judge*' PATH/verdict_cost 10000 100000

use nf::nft::Limits;
use nf::{Key, RuleIndex, RuleSet, Tally, Way};
use std::fmt::Write;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const CASES: [&str; 8] = [
    "default",
    "4",
    "100",
    "10000",
    "set",
    "joint",
    "joined-ranges",
    "update",
];
/// Elements of the set in the cases `set`, `joint` and `joined-ranges`.
const SET_ELEMENTS: u32 = 100_000;
const FLOWS_MAX: usize = 1024;
const FRAMES: usize = 4_000_000;
/// Frames that are timed at once: the fastest round counts, for it was disturbed least.
const ROUND: usize = 20_000;

/// The hot path of a firewall, kept apart so that its instructions can be counted.
#[inline(never)]
fn judge(rules: &RuleSet, key: &mut Key, frame: &[u8], counters: &mut Counters) -> RuleIndex {
    match key.read(frame) {
        Ok(()) => rules.verdict(key, Way { from: 0, to: 1 }, counters).1,
        Err(_) => RuleIndex::MAX,
    }
}

struct Counters(Vec<u64>);

impl Tally for Counters {
    #[inline]
    fn count(&mut self, rule: RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

/// Numbers without a pattern, the same ones each time (xorshift64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }
}

/// The fields of a frame that rules ask for.
#[derive(Clone, Copy)]
struct Flow {
    source: u32,
    destination: u32,
    protocol: u8,
    port: u16,
}

/// A frame of 60 bytes: Ethernet, IPv4, and 26 bytes that serve as any transport header.
fn frame(flow: Flow) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let mut ip = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, flow.protocol, 0, 0].to_vec();
    ip.extend(flow.source.to_be_bytes());
    ip.extend(flow.destination.to_be_bytes());
    let words = ip.chunks(2);
    let sum: u32 = words
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
    frame[14..34].copy_from_slice(&ip);
    frame[34..36].copy_from_slice(&1000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&flow.port.to_be_bytes());
    frame[46] = 0x50;
    frame
}

/// A text of rules, and what fits each of them.
struct Case {
    text: String,
    flows: Vec<Flow>,
}

fn table(sets: &str, rules: &str) -> String {
    format!(
        "table bridge t {{\n{sets}\nchain forward {{\n\
         type filter hook forward priority 0; policy drop;\n{rules}}}\n}}\n"
    )
}

/// The rules that the firewall comes with, and its service.
fn default() -> Case {
    let text = include_str!("../../../unikernels/firewall/rules/default.nft").to_owned();
    let flow = Flow {
        source: 1,
        destination: 2,
        protocol: 6,
        port: 7070,
    };
    Case {
        text,
        flows: vec![flow],
    }
}

/// `count` rules of five shapes, no two alike.
fn distinct(count: usize) -> Case {
    let mut noise = Noise(0x0b0a_0003);
    let (mut rules, mut flows) = (String::new(), Vec::new());
    for index in 0..count {
        let (a, b, port) = (noise.next(), noise.next(), (noise.next() % 60_000) as u16);
        let (source, destination) = (Ipv4Addr::from_bits(a), Ipv4Addr::from_bits(b));
        let last = port + 3;
        let _ = match index % 5 {
            0 => writeln!(rules, "ip saddr {source} accept"),
            1 => writeln!(rules, "ip daddr {destination}/24 tcp dport {port} accept"),
            2 => writeln!(rules, "udp dport {port}-{last} accept"),
            3 => writeln!(rules, "ip saddr {source}/16 tcp dport {port} accept"),
            _ => writeln!(rules, "ip saddr {source} ip daddr {destination} accept"),
        };
        let protocol = if index % 5 == 2 { 17 } else { 6 };
        flows.push(Flow {
            source: a,
            destination: b,
            protocol,
            port,
        });
    }
    Case {
        text: table("", &rules),
        flows,
    }
}

/// Four rules, one of which looks a large set up.
fn large_set() -> Case {
    let mut noise = Noise(0x0b0a_0004);
    let (mut elements, mut flows) = (String::new(), Vec::new());
    for index in 0..SET_ELEMENTS {
        // One element in each block, so that none overlap.
        let block = index * (u32::MAX / SET_ELEMENTS);
        let low = block + noise.next() % 0x4000;
        let address = Ipv4Addr::from_bits(low);
        let _ = match index % 3 {
            0 => write!(elements, "{address}, "),
            1 => write!(elements, "{}/24, ", Ipv4Addr::from_bits(low & !0xff)),
            _ => write!(elements, "{address}-{}, ", Ipv4Addr::from_bits(low + 99)),
        };
        flows.push(Flow {
            source: low,
            destination: 1,
            protocol: 6,
            port: 1,
        });
    }
    let set = format!(
        "set s {{ type ipv4_addr; flags interval; elements = {{ {} }}\n}}",
        elements.trim_end_matches(", ")
    );
    let rules = "ether type arp accept\nip saddr @s accept\ntcp dport 7070 accept\n\
                 ip protocol icmp accept\n";
    Case {
        text: table(&set, rules),
        flows,
    }
}

/// The same of tuples: an address or a prefix, and a port or a range.
fn joined(ranges: bool) -> Case {
    let mut noise = Noise(0x0b0a_0006);
    let (mut elements, mut flows) = (String::new(), Vec::new());
    for index in 0..SET_ELEMENTS {
        let (low, port) = (noise.next(), (noise.next() % 60_000) as u16);
        let address = Ipv4Addr::from_bits(low);
        let _ = match index % 3 {
            1 if ranges => write!(
                elements,
                "{}/24 . {port}, ",
                Ipv4Addr::from_bits(low & !0xff)
            ),
            2 if ranges => write!(elements, "{address} . {port}-{}, ", port + 99),
            _ => write!(elements, "{address} . {port}, "),
        };
        flows.push(Flow {
            source: low,
            destination: 1,
            protocol: 6,
            port,
        });
    }
    let flags = if ranges { "flags interval; " } else { "" };
    let set = format!(
        "set s {{ type ipv4_addr . inet_service; {flags}elements = {{ {} }}\n}}",
        elements.trim_end_matches(", ")
    );
    let rules = "ether type arp accept\nip saddr . tcp dport @s accept\ntcp dport 7070 accept\n\
                 ip protocol icmp accept\n";
    Case {
        text: table(&set, rules),
        flows,
    }
}

/// A rule that gives each source a limit of its own, in a set that it fills.
fn update() -> Case {
    let mut noise = Noise(0x0b0a_0007);
    let flow = |source| Flow {
        source,
        destination: 1,
        protocol: 6,
        port: 22,
    };
    let set = "set s { type ipv4_addr; size 2048; flags dynamic, timeout; timeout 1m; }";
    let rules = "tcp dport 22 update @s { ip saddr limit rate over 10/second } drop\n";
    Case {
        text: table(set, rules),
        flows: (0..FLOWS_MAX).map(|_| flow(noise.next())).collect(),
    }
}

fn case(name: &str) -> Option<Case> {
    match name {
        "default" => Some(default()),
        "set" => Some(large_set()),
        "joint" => Some(joined(false)),
        "joined-ranges" => Some(joined(true)),
        "update" => Some(update()),
        count => count.parse().ok().map(distinct),
    }
}

/// Frames for rules taken at random, and for none.
fn frames(flows: &[Flow]) -> Vec<[u8; 60]> {
    let mut noise = Noise(0x0b0a_0005);
    let count = if flows.len() == 1 { 1 } else { FLOWS_MAX };
    let mut flow = |index| match index % 5 {
        4 => Flow {
            source: noise.next(),
            destination: noise.next(),
            protocol: 6,
            port: 65_000,
        },
        _ => flows[noise.next() as usize % flows.len()],
    };
    (0..count).map(|index| frame(flow(index))).collect()
}

struct Cost {
    nanoseconds: f64,
    load: Duration,
    memory: usize,
    text: usize,
}

fn measure(case: &Case, count: usize) -> Cost {
    let start = Instant::now();
    let mut rules = match nf::load(&case.text, &["private", "public"], &Limits::DEFAULT) {
        Ok(rules) => rules,
        Err(error) => panic!("{}", error.render("case", &case.text)),
    };
    let load = start.elapsed();
    // The key is no secret here.
    rules.begin(&[7; 16], 0, None);
    let mut counters = Counters(vec![0; rules.len() + 1]);
    let frames = frames(&case.flows);
    let (mut key, mut nanoseconds) = (Key::EMPTY, f64::INFINITY);
    for round in (0..count).step_by(ROUND) {
        let round = ROUND.min(count - round);
        let start = Instant::now();
        for frame in frames.iter().cycle().take(round) {
            black_box(judge(&rules, &mut key, black_box(frame), &mut counters));
        }
        nanoseconds = nanoseconds.min(start.elapsed().as_nanos() as f64 / round as f64);
    }
    assert_eq!(
        counters.0.iter().sum::<u64>(),
        count as u64,
        "each frame is decided on"
    );
    Cost {
        nanoseconds,
        load,
        memory: rules.memory(),
        text: case.text.len(),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut values = arguments.iter().filter(|argument| *argument != "--json");
    let only = values.next();
    let count = values
        .next()
        .map_or(Some(FRAMES), |count| count.parse().ok());
    let known = only.is_none_or(|name| case(name).is_some());
    let Some(count) = count.filter(|count| *count > 0 && known) else {
        eprintln!(
            "verdict_cost: give a case and a number of frames: \
             verdict_cost [--json] [default|4|100|10000|set|joint|joined-ranges|update \
             [FRAMES]]"
        );
        std::process::exit(1);
    };
    let names = CASES.into_iter().filter(|_| only.is_none());
    let names: Vec<&str> = only.map(String::as_str).into_iter().chain(names).collect();
    if !json {
        println!(
            "{:>13}  {:>8}  {:>12}  {:>12}  {:>10}",
            "case", "ns/frame", "memory bytes", "text bytes", "load ms"
        );
    }
    for name in names {
        let Some(case) = case(name) else { continue };
        let cost = measure(&case, count);
        let load = cost.load.as_secs_f64() * 1e3;
        let (nanoseconds, memory, text) = (cost.nanoseconds, cost.memory, cost.text);
        if json {
            println!(
                "{{\"case\":\"{name}\",\"nanoseconds\":{nanoseconds:.1},\"memory_bytes\":{memory},\
                 \"text_bytes\":{text},\"load_milliseconds\":{load:.2}}}"
            );
        } else {
            println!("{name:>13}  {nanoseconds:>8.1}  {memory:>12}  {text:>12}  {load:>10.2}");
        }
    }
}
