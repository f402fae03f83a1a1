//! A router between two networks: what leaves it, and what comes back.

mod census;
mod define;
mod doubt;
mod fib;
mod frame;
mod golden;
mod hooks;
mod invert;
mod map;
mod mark;
mod object;
mod open;
mod reject;
mod timeout;
mod translation;
mod zone;

use super::*;
use crate::nft::{Error, Limits};
use crate::rule::Tally;
use frame::{is_right, packet};
use std::net::IpAddr;

use std::vec;
use std::vec::Vec;

const PORTS: [&str; 2] = ["private", "public"];
const SECOND: u64 = 1_000_000_000;
const KEY: [u8; 16] = [9; 16];

/// Who is who: a client inside, another one, a server outside; and the router on both sides.
const CLIENT: &str = "10.0.0.2";
const OTHER: &str = "10.0.0.3";
const SERVER: &str = "192.0.2.80";
const INSIDE: &str = "10.0.0.1";
const OUTSIDE: &str = "192.0.2.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn load(text: &str) -> Result<Rules, Error> {
    Rules::load(text, &PORTS, &Limits::DEFAULT)
}

/// A table `ip` with a chain of the type `nat` at this hook.
fn nat(hook: &str, rules: &str) -> std::string::String {
    let name = if hook == "prerouting" {
        "dstnat"
    } else {
        "srcnat"
    };
    std::format!(
        "table inet {hook} {{\nchain c {{\ntype nat hook {hook} priority {name};\n{rules}\n}}\n}}\n"
    )
}

/// How often each rule and policy was reached.
#[derive(Debug, Default)]
struct Counts(Vec<u64>);

impl Tally for Counts {
    fn count(&mut self, rule: crate::RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: crate::RuleIndex, _: &str, _: &crate::Key, _: crate::Way) {}
}

struct Bench {
    rules: Rules,
    connections: Connections,
    now: u64,
    counts: Counts,
}

impl Bench {
    fn new(text: &str) -> Self {
        let rules = load(text).unwrap_or_else(|error| panic!("{}", error.render("test", text)));
        Self {
            counts: Counts(vec![0; rules.counters()]),
            rules,
            connections: Connections::new(1024, &KEY),
            now: SECOND,
        }
    }

    fn hooks(&mut self) -> Hooks<'_, Counts> {
        Hooks {
            rules: &self.rules,
            connections: Some(&mut self.connections),
            now: self.now,
            tally: &mut self.counts,
        }
    }

    /// Sends a frame on that comes in by this port; what leaves by the other one.
    fn forward(&mut self, from: u8, mut frame: Vec<u8>, partial: bool) -> Result<Vec<u8>, Stop> {
        let local = [INSIDE, OUTSIDE].map(|address| Local::of(&[ip(address), ip("fd00::1")]));
        let mut passage = Passage::new();
        let mut hooks = self.hooks();
        let arrival = Arrival {
            port: from,
            local: local[usize::from(from)],
            partial,
        };
        let to = 1 - from;
        hooks.prerouting(&mut passage, &mut frame, arrival)?;
        hooks.forward(&mut passage, to)?;
        hooks.postrouting(&mut passage, &mut frame, to, local[usize::from(to)])?;
        // What rules would see is what is there.
        let key = crate::Key::parse(&frame).expect("it is a packet");
        assert_eq!(key.fields(), passage.key(&frame).fields());
        Ok(frame)
    }

    /// The same of a packet, whose checksums are right before and behind it.
    fn pass(
        &mut self,
        from: u8,
        (source, destination): (&str, &str),
        number: u8,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Stop> {
        let frame = frame::frame(&packet(ip(source), ip(destination), number, payload));
        assert!(is_right(&frame));
        let left = self.forward(from, frame, false)?;
        assert!(is_right(&left), "{left:02x?}");
        Ok(left)
    }
}

/// Source, destination and ports of a frame of IPv4 with TCP or UDP.
fn ends(frame: &[u8]) -> (IpAddr, IpAddr, [u16; 2]) {
    let address = |at: usize| {
        let bytes: [u8; 4] = frame[at..at + 4].try_into().unwrap();
        IpAddr::from(bytes)
    };
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    (address(26), address(30), [port(34), port(36)])
}
