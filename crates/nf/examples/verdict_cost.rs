//! Reads and judges one frame over and over, for `perf stat` or callgrind to count instructions:
//!
//!     cargo build --release -p nf --example verdict_cost
//!     valgrind --tool=callgrind --toggle-collect='*judge*' PATH/verdict_cost tcp 100000

use std::hint::black_box;
use std::time::Instant;

/// The hot path of a firewall, kept apart so that its instructions can be counted.
#[inline(never)]
fn judge(rules: &nf::RuleSet, frame: &[u8]) -> usize {
    match nf::Key::parse(frame) {
        Ok(key) => rules.verdict(&key, nf::Way { from: 0, to: 1 }, &mut ()).1,
        Err(_) => usize::MAX,
    }
}

/// A frame of 60 bytes: Ethernet, IPv4, and 26 bytes that serve as any transport header.
fn frame(protocol: u8, port: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = [
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    frame[14..34].copy_from_slice(&ip);
    let words = ip
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!sum as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[46] = 0x50;
    frame
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|text| text.parse().ok());
    let (Some(count), Some(frame)) = (
        count,
        match kind.as_str() {
            "tcp" => Some(frame(6, 7070)),
            "udp" => Some(frame(17, 53)),
            "drop" => Some(frame(6, 1234)),
            _ => None,
        },
    ) else {
        eprintln!(
            "verdict_cost: give a kind of frame and a count: verdict_cost tcp|udp|drop 1000000"
        );
        std::process::exit(1);
    };
    let rules = nf::seed001();
    let start = Instant::now();
    let mut decider = 0;
    for _ in 0..count {
        decider = judge(&rules, black_box(&frame));
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / f64::from(count);
    let decided = rules.describe(decider);
    println!("{kind}: {nanoseconds:.1} ns a frame, decided by: {decided}");
}
