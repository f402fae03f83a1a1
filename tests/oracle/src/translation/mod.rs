//! Generated conversations through a router that translates, judged by the kernel and by
//! [`nf::router`].
//!
//! Each round makes a file of tables `inet` and `ip` and some conversations from one number, its
//! seed. Both judges get the same file. Each packet goes through a router of the kernel's and, in
//! the same order, through [`nf::router::Hooks`]; who answers sees what came out. What comes out
//! must be the same at the same port, byte for byte behind the addresses of the link, and what
//! rules counted must be the same.
//!
//! Each one who asks has a port of its own, so that mostly no port behind the router is taken.
//! Where one is all the same, the kernel chooses another one by chance, and the conversation ends.

mod rules;
mod talk;

use crate::bridge::{Error, PORTS};
use crate::conversation::{Disagreement, Packet, Router};
use fastrand::Rng;
use nf::nft::Limits;
use nf::router::{Arrival, Connections, Hooks, Local, Passage, Rules};
use nf::{Addresses, Key, Listing, RuleIndex, Tally, Way};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use talk::Talk;

/// Conversations of a round.
pub const CONVERSATIONS: u32 = 20;
/// Rounds after which a router has had every port.
pub const ROUNDS_PER_ROUTER: u64 = 2500;
/// Most packets of a conversation.
const PACKETS_MAX: usize = 16;
/// Flows that our table holds.
const FLOWS: usize = 4096;
/// The router's addresses, by port.
const LOCAL: [Local; 2] = [
    Local {
        ip4: Some(Ipv4Addr::new(10, 1, 0, 1)),
        ip6: Some(Ipv6Addr::new(0xfd0c, 1, 0, 0, 0, 0, 0, 1)),
    },
    Local {
        ip4: Some(Ipv4Addr::new(10, 2, 0, 1)),
        ip6: Some(Ipv6Addr::new(0xfd0c, 2, 0, 0, 0, 0, 0, 1)),
    },
];

/// IPv6's extension header of parts (RFC 8200, 4.5).
const FRAGMENT: u8 = 44;
/// Bytes of a frame that are shown.
const SHOWN_MAX: usize = 120;

/// What rounds have compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// Packets.
    pub packets: u64,
    /// Frames that came out.
    pub passed: u64,
    /// Those that were translated.
    pub translated: u64,
    /// Ports that were chosen.
    pub chosen: u64,
    /// Counters that counted.
    pub counting: u64,
}

impl Compared {
    /// Adds what another round gave.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.passed += other.passed;
        self.translated += other.translated;
        self.chosen += other.chosen;
        self.counting += other.counting;
    }
}

/// A packet that came out.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The port that it came out of.
    to: u8,
    source: Vec<u8>,
    destination: Vec<u8>,
    protocol: u8,
    /// From the transport header on.
    payload: Vec<u8>,
    /// From the IP header on.
    packet: Vec<u8>,
}

impl Seen {
    fn new(to: u8, frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?.to_vec();
        let (protocol, size, ends) = match packet.first()? >> 4 {
            4 => (*packet.get(9)?, 20, 12..20),
            _ => (*packet.get(6)?, 40, 8..40),
        };
        let (source, destination) = packet.get(ends.clone())?.split_at(ends.len() / 2);
        Some(Self {
            to,
            source: source.to_vec(),
            destination: destination.to_vec(),
            protocol,
            payload: packet.get(size..)?.to_vec(),
            packet,
        })
    }

    /// Source and destination port.
    fn ports(&self) -> Option<[u16; 2]> {
        let [a, b, c, d] = *self.payload.first_chunk()?;
        Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
    }
}

#[derive(Default)]
struct Counts(Vec<u64>);

impl Tally for Counts {
    fn count(&mut self, rule: RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

/// Our router.
struct Ours {
    rules: Rules,
    connections: Connections,
    counts: Counts,
    began: Instant,
}

impl Ours {
    fn new(text: &str) -> Result<Self, String> {
        let rules = Rules::load(text, &PORTS, &Limits::DEFAULT);
        let rules = rules.map_err(|error| error.render("rules.nft", text).to_string())?;
        Ok(Self {
            counts: Counts(vec![0; rules.counters()]),
            rules,
            connections: Connections::new(FLOWS, &[3; 16]),
            began: Instant::now(),
        })
    }

    /// What comes out, and where.
    fn send(&mut self, packet: &Packet) -> Vec<(u8, Vec<u8>)> {
        let frames = packet.frames([2; 6], [4; 6]);
        frames
            .into_iter()
            .filter_map(|frame| self.pass(packet.from, frame))
            .collect()
    }

    fn pass(&mut self, from: u8, mut frame: Vec<u8>) -> Option<(u8, Vec<u8>)> {
        let mut hooks = Hooks {
            rules: &self.rules,
            connections: Some(&mut self.connections),
            now: self.began.elapsed().as_nanos() as u64,
            tally: &mut self.counts,
        };
        let mut passage = Passage::new();
        let arrival = Arrival {
            port: from,
            local: LOCAL[usize::from(from)],
            partial: false,
        };
        hooks.prerouting(&mut passage, &mut frame, arrival).ok()?;
        let destination = destination(&frame)?;
        let is_local = |local: &Local| {
            local.ip4.map(IpAddr::V4) == Some(destination)
                || local.ip6.map(IpAddr::V6) == Some(destination)
        };
        if LOCAL.iter().any(is_local) {
            let _ = hooks.input(&mut passage, &mut frame);
            return None;
        }
        let to = route(destination)?;
        hooks.forward(&mut passage, to).ok()?;
        hop(&mut frame);
        let local = LOCAL[usize::from(to)];
        hooks
            .postrouting(&mut passage, &mut frame, to, local)
            .ok()?;
        Some((to, frame))
    }
}

fn destination(frame: &[u8]) -> Option<IpAddr> {
    Some(match Key::parse(frame).ok()?.fields().addresses? {
        Addresses::V4 { destination, .. } => destination.into(),
        Addresses::V6 { destination, .. } => destination.into(),
    })
}

/// The port that leads to an address, as [`Router`] has its routes.
fn route(destination: IpAddr) -> Option<u8> {
    let side = match destination {
        IpAddr::V4(address) => match address.octets() {
            [10, 128..192, ..] => 0,
            [10, 192..=255, ..] => 1,
            _ => return None,
        },
        IpAddr::V6(address) => match address.segments()[0] {
            0xfd0a => 0,
            0xfd0b => 1,
            _ => return None,
        },
    };
    Some(side)
}

/// One hop less, as the kernel counts it (`ip_decrease_ttl`).
fn hop(frame: &mut [u8]) {
    if frame[14] >> 4 == 6 {
        frame[21] -= 1;
        return;
    }
    frame[22] -= 1;
    let sum = u32::from(u16::from_be_bytes([frame[24], frame[25]])) + 0x100;
    let sum = sum + u32::from(sum >= 0xffff);
    frame[24..26].copy_from_slice(&(sum as u16).to_be_bytes());
}

/// One round; where the judges differ, if they do. `number` is how many rounds this router has had.
///
/// # Errors
/// The kernel cannot be asked.
pub fn round(
    router: &Router,
    seed: u64,
    number: u64,
) -> Result<(Compared, Option<Disagreement>), Error> {
    let mut rng = Rng::with_seed(seed);
    let text = rules::generate(&mut rng);
    let mut compared = Compared::default();
    let differ = |packets: &[Packet], kernel: String, nf: String| {
        Some(Disagreement {
            seed,
            rules: text.clone(),
            packets: packets.to_vec(),
            kernel,
            nf,
        })
    };
    let kernel = router.load(&format!("{text}{}", rules::KERNEL_ALONE))?;
    let mut ours = match (kernel, Ours::new(&text)) {
        (Ok(()), Ok(ours)) => ours,
        (kernel, ours) => {
            let said = |said: Option<String>| said.unwrap_or("takes the rules".to_owned());
            return Ok((compared, differ(&[], said(kernel.err()), said(ours.err()))));
        }
    };
    for conversation in 0..CONVERSATIONS {
        let hosts = 20 + number as u32 * CONVERSATIONS + conversation;
        let mut talk = Talk::new(&mut rng, hosts);
        let mut packets = Vec::new();
        for step in 0..rng.usize(2..PACKETS_MAX) {
            let Some(packet) = talk.next(&mut rng, step) else {
                continue;
            };
            packets.push(packet.clone());
            let (kernel, nf) = (router.send_any(&packet)?, ours.send(&packet));
            compared.packets += 1;
            compared.passed += nf.len() as u64;
            if is_chosen(&packet, &kernel, &nf) {
                compared.chosen += 1;
                break;
            }
            if !kernel
                .iter()
                .map(compared_of)
                .eq(nf.iter().map(compared_of))
            {
                return Ok((compared, differ(&packets, words(&kernel), words(&nf))));
            }
            let sent = [packet.source.as_slice(), &packet.destination].concat();
            if let Some(seen) = nf.first().and_then(|(to, frame)| Seen::new(*to, frame)) {
                let called = [seen.source.as_slice(), &seen.destination].concat();
                compared.translated += u64::from(called != sent);
                talk.arrives(&seen);
            }
        }
    }
    let (kernel, nf) = (router.counts()?, explicit(&text, &ours.counts.0));
    compared.counting += nf.iter().filter(|count| **count > 0).count() as u64;
    if kernel != nf {
        return Ok((
            compared,
            differ(&[], format!("{kernel:?}"), format!("{nf:?}")),
        ));
    }
    Ok((compared, None))
}

/// What is compared of a frame. Parts of a packet of IPv6 leave the kernel with another number.
fn compared_of((to, frame): &(u8, Vec<u8>)) -> (u8, Vec<u8>) {
    let mut packet = frame[12..].to_vec();
    if packet[2] >> 4 == 6 && packet[8] == FRAGMENT {
        packet[46..50].fill(0);
    }
    (*to, packet)
}

/// Whether the kernel chose a source port, or the identifier of a question, by chance, and `nf` one
/// of its own or the one that there was: the kernel remembers connections of earlier rounds.
fn is_chosen(packet: &Packet, kernel: &[(u8, Vec<u8>)], nf: &[(u8, Vec<u8>)]) -> bool {
    let ([kernel, others @ ..], [nf, ours @ ..]) = (kernel, nf) else {
        return false;
    };
    if !others
        .iter()
        .map(compared_of)
        .eq(ours.iter().map(compared_of))
    {
        return false;
    }
    let chosen = |(to, frame): &(u8, Vec<u8>)| {
        let mut seen = Seen::new(*to, frame)?;
        let (at, checksum) = match seen.protocol {
            6 => (0, 16),
            17 => (0, 6),
            1 | 58 => (4, 2),
            _ => return None,
        };
        let port = *seen.payload.get(at..)?.first_chunk::<2>()?;
        let sent = *packet.payload.get(at..)?.first_chunk::<2>()?;
        seen.payload.get_mut(at..at + 2)?.fill(0);
        seen.payload.get_mut(checksum..checksum + 2)?.fill(0);
        let class = match u16::from_be_bytes(port) {
            _ if at == 4 => 0,
            ..512 => 1,
            512..1024 => 2,
            1024.. => 3,
        };
        let rest = (seen.to, seen.source, seen.destination, seen.payload);
        Some((port, port != sent, (class, rest)))
    };
    let (Some(kernel), Some(nf)) = (chosen(kernel), chosen(nf)) else {
        return false;
    };
    kernel.1 && kernel.0 != nf.0 && kernel.2 == nf.2
}

/// The counts of rules that say `counter`, in the order of the file.
fn explicit(text: &str, counts: &[u64]) -> Vec<u64> {
    let listing = Listing::new(text, &Limits::DEFAULT).expect("both judges took it");
    let counted = listing.iter().zip(counts);
    counted
        .filter(|(rule, _)| rule.text.split(' ').any(|word| word == "counter"))
        .map(|(_, count)| *count)
        .collect()
}

fn words(frames: &[(u8, Vec<u8>)]) -> String {
    let words = frames.iter().map(|(to, frame)| {
        let bytes: String = frame
            .iter()
            .skip(12)
            .take(SHOWN_MAX)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("sends {} {bytes}", PORTS[usize::from(*to)])
    });
    let words: Vec<String> = words.collect();
    match words.is_empty() {
        true => "sends nothing".to_owned(),
        false => words.join(", "),
    }
}
