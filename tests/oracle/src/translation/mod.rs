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
//! Where rules put one direction into a zone of its own, what is one name to us may be two
//! connections to the kernel, and the round ends. So it does where the router itself is sent a
//! packet in parts and says something else than the kernel, which has put them together.

mod ours;
mod rules;
mod talk;

use crate::bridge::{Error, PORTS};
use crate::conversation::{Disagreement, Packet, Router, listed};
use fastrand::Rng;
use nf::Listing;
use nf::nft::Limits;
use nf::router::Local;
use ours::{Ours, Out};
use std::net::{Ipv4Addr, Ipv6Addr};
use talk::Talk;

/// Conversations of a round.
pub const CONVERSATIONS: u32 = 20;
/// Rounds after which a router has had every port.
pub const ROUNDS_PER_ROUTER: u64 = 2500;
/// Most packets of a conversation.
const PACKETS_MAX: usize = 16;
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
    /// Those that the router itself sent.
    pub own: u64,
    /// Those that were translated.
    pub translated: u64,
    /// Ports that were chosen.
    pub chosen: u64,
    /// Rounds that ended where one name may be two connections, or one packet several.
    pub apart: u64,
    /// Counters that counted.
    pub counting: u64,
    /// Connections that were listed, where no port was chosen.
    pub listed: u64,
}

impl Compared {
    /// Adds a packet that came in, and the frames that it gave.
    fn saw(&mut self, frames: &[Out]) {
        self.packets += 1;
        self.passed += frames.len() as u64;
        self.own += frames.iter().filter(|out| out.is_own).count() as u64;
    }

    /// Adds what another round gave.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.passed += other.passed;
        self.own += other.own;
        self.translated += other.translated;
        self.chosen += other.chosen;
        self.apart += other.apart;
        self.counting += other.counting;
        self.listed += other.listed;
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

/// Whether an address is the router's at a port.
fn is_of(local: &Local, address: &[u8]) -> bool {
    local.ip4.is_some_and(|own| own.octets() == *address)
        || local.ip6.is_some_and(|own| own.octets() == *address)
}

/// Whether rules put one direction of a connection into a zone.
fn has_one_way_zones(text: &str) -> bool {
    ["ct original zone set", "ct reply zone set"]
        .iter()
        .any(|way| text.contains(way))
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
    router.forget_connections()?;
    let differ = |packets: &[Packet], kernel: String, nf: String| {
        Some(Disagreement {
            seed,
            rules: text.clone(),
            packets: packets.to_vec(),
            kernel,
            nf,
        })
    };
    let mut ours = match load(router, &text)? {
        Ok(ours) => ours,
        Err((kernel, nf)) => return Ok((compared, differ(&[], kernel, nf))),
    };
    let mut sent = Vec::new();
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
            compared.saw(&nf);
            let is_alike = are_alike(&packet, &kernel, &nf);
            if ours.is_taken && has_one_way_zones(&text) || !is_alike && ours.is_own_cut {
                compared.apart += 1;
                return Ok((compared, None));
            }
            if is_chosen(&packet, &kernel, &nf) {
                compared.chosen += 1;
                break;
            }
            if !is_alike {
                let nf: Vec<_> = nf.into_iter().map(|out| (out.to, out.frame)).collect();
                return Ok((compared, differ(&packets, words(&kernel), words(&nf))));
            }
            let sent = [packet.source.as_slice(), &packet.destination].concat();
            if let Some(seen) = nf.first().and_then(|out| Seen::new(out.to, &out.frame)) {
                let called = [seen.source.as_slice(), &seen.destination].concat();
                compared.translated += u64::from(called != sent && !nf[0].is_own);
                talk.arrives(&seen);
            }
        }
        sent.append(&mut packets);
    }
    let (kernel, nf) = (router.counts()?, explicit(&text, &ours.counts.0));
    compared.counting += nf.iter().filter(|count| **count > 0).count() as u64;
    if kernel != nf {
        return Ok((
            compared,
            differ(&[], format!("{kernel:?}"), format!("{nf:?}")),
        ));
    }
    let difference = lists_differ(router, &ours, &mut compared)?;
    let disagreement =
        difference.and_then(|(kernel, nf)| differ(&listed::about(&kernel, sent), kernel, nf));
    Ok((compared, disagreement))
}

/// Both judges get the same file; what each of them says, if one does not take it.
fn load(router: &Router, text: &str) -> Result<Result<Ours, (String, String)>, Error> {
    let kernel = router.load(&format!("{text}{}", rules::KERNEL_ALONE))?;
    let said = |said: Option<String>| said.unwrap_or("takes the rules".to_owned());
    Ok(match (kernel, Ours::new(text)) {
        (Ok(()), Ok(ours)) => Ok(ours),
        (kernel, ours) => Err((said(kernel.err()), said(ours.err()))),
    })
}

/// Where the connections differ that both list, if they do: where the kernel has chosen a port by
/// chance, they are not compared.
fn lists_differ(
    router: &Router,
    ours: &Ours,
    compared: &mut Compared,
) -> Result<Option<(String, String)>, Error> {
    if compared.chosen > 0 {
        return Ok(None);
    }
    let (kernel, nf) = (router.connections()?, ours.connections());
    compared.listed += nf.len() as u64;
    Ok(listed::difference(&kernel, &nf))
}

/// Whether both sent the same.
fn are_alike(packet: &Packet, kernel: &[(u8, Vec<u8>)], nf: &[Out]) -> bool {
    let compared = |(to, frame): &(u8, Vec<u8>), is_own| compared_of(packet, *to, frame, is_own);
    kernel.len() == nf.len()
        && kernel.iter().zip(nf).all(|(kernel, out)| {
            let nf = compared_of(packet, out.to, &out.frame, out.is_own);
            compared(kernel, out.is_own) == nf
        })
}

/// What is compared of a frame. Parts of a packet of IPv6 leave the kernel with another number, as
/// do packets of its own. An error about a packet in parts quotes what the kernel has made of them.
fn compared_of(packet: &Packet, to: u8, frame: &[u8], is_own: bool) -> (u8, Vec<u8>) {
    let mut bytes = frame[12..].to_vec();
    let is_ip6 = bytes[2] >> 4 == 6;
    if is_ip6 && bytes[8] == FRAGMENT {
        bytes[46..50].fill(0);
    }
    match is_ip6 {
        true if is_own => bytes[3..6].fill(0),
        false if is_own => {
            bytes[6..8].fill(0);
            bytes[12..14].fill(0);
        }
        _ => {}
    }
    if is_own && packet.parts > 1 {
        let quote = if is_ip6 { 44 } else { 24 };
        bytes.truncate(quote);
        bytes[4..8].fill(0);
    }
    (to, bytes)
}

/// Whether the kernel chose a source port, or the identifier of a question, by chance, and `nf` one
/// of its own or the one that there was: the kernel remembers connections of earlier rounds.
fn is_chosen(packet: &Packet, kernel: &[(u8, Vec<u8>)], nf: &[Out]) -> bool {
    let ([kernel, others @ ..], [nf, ours @ ..]) = (kernel, nf) else {
        return false;
    };
    if !are_alike(packet, others, ours) {
        return false;
    }
    let nf = &(nf.to, nf.frame.clone());
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
        .filter(|(rule, _)| {
            let words = || rule.text.split(' ');
            let mut pairs = words().zip(words().skip(1).chain([""]));
            // Counters that have a name stand behind the rules.
            let named = rule.text.starts_with("counter ") && words().count() == 2;
            named || pairs.any(|(word, next)| word == "counter" && next != "name")
        })
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
