//! Our router: [`nf::router`] with what is between its hooks, and a stack that offers nothing.

use super::{LOCAL, is_of};
use crate::bridge::PORTS;
use crate::conversation::Packet;
use crate::conversation::listed::{self, Listed};
use crate::frame::checksum;
use nf::conntrack::Refused;
use nf::nft::Limits;
use nf::router::{ANSWER_MAX, Arrival, Connections, Hooks, Local, Passage, Rejection, Rules, Stop};
use nf::{Addresses, Key, Routes, RuleIndex, Tally, Way};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// Flows that our table holds.
const FLOWS: usize = 4096;
/// Questions of ICMP and of ICMPv6, and what they are answered by.
const ECHOES: [(u8, u8); 2] = [(8, 0), (128, 129)];
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Another connection is called the same.
const TAKEN: Stop = Stop::Refused(Refused::Ports);
/// Nobody listens at the port of a datagram.
const PORT_UNREACHABLE: Rejection = Rejection::Unreachable { ip: 3, ip6: 4 };

/// How often each rule was reached, and how many bytes the packet has that it is asked about.
#[derive(Default)]
pub struct Counts(pub Vec<u64>, u64);

impl Tally for Counts {
    fn count(&mut self, rule: RuleIndex) {
        self.0[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
    fn bytes(&self) -> u64 {
        self.1
    }
    fn routes(&self) -> Option<&dyn Routes> {
        Some(&Known)
    }
}

/// What [`crate::conversation::Router`] has of routes and addresses.
struct Known;

impl Routes for Known {
    fn way(&self, to: IpAddr) -> Option<u8> {
        route(to)
    }

    fn is_own(&self, address: IpAddr, port: Option<u8>) -> bool {
        let ports = LOCAL.iter().zip(0u8..);
        ports
            .filter(|(_, number)| port.is_none_or(|port| port == *number))
            .any(|(local, _)| is_of(local, &octets(address)))
    }

    fn is_broadcast(&self, _: Ipv4Addr, _: Option<u8>) -> bool {
        false
    }
}

/// A frame that came out.
pub struct Out {
    /// The port that it came out of.
    pub to: u8,
    pub frame: Vec<u8>,
    /// Whether the router itself sent it.
    pub is_own: bool,
}

/// Our router.
pub struct Ours {
    rules: Rules,
    connections: Connections,
    pub counts: Counts,
    /// Whether a connection was refused because another one is called the same.
    pub is_taken: bool,
    /// Whether a part of a packet was for the router itself. [`own`] answers parts, and the kernel
    /// whole packets.
    pub is_own_cut: bool,
    began: Instant,
}

impl Ours {
    pub fn new(text: &str) -> Result<Self, String> {
        let rules = Rules::load(text, &PORTS, &Limits::DEFAULT);
        let rules = rules.map_err(|error| error.render("rules.nft", text).to_string())?;
        Ok(Self {
            counts: Counts(vec![0; rules.counters()], 0),
            rules,
            connections: Connections::new(FLOWS, &[3; 16]),
            is_taken: false,
            is_own_cut: false,
            began: Instant::now(),
        })
    }

    /// What it lists.
    pub fn connections(&self) -> Listed {
        let now = self.began.elapsed().as_nanos() as u64;
        listed::ours(&self.connections.table, now)
    }

    /// What comes out, and where.
    pub fn send(&mut self, packet: &Packet) -> Vec<Out> {
        let frames = packet.frames([2; 6], [4; 6]);
        frames
            .into_iter()
            .filter_map(|frame| self.pass(packet, frame))
            .collect()
    }

    fn pass(&mut self, packet: &Packet, mut frame: Vec<u8>) -> Option<Out> {
        let from = packet.from;
        // The kernel asks about whole packets.
        let header = if frame[14] >> 4 == 4 { 20 } else { 40 };
        self.counts.1 = (header + packet.payload.len()) as u64;
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
        if let Err(stop) = hooks.prerouting(&mut passage, &mut frame, arrival) {
            return tell(&mut hooks, &passage, &frame, stop, None);
        }
        let (source, destination) = ends(&frame)?;
        let is_ours = |address| LOCAL.iter().any(|local| is_of(local, &octets(address)));
        // As [`routing`] does, and the kernel's look for a route.
        if source.is_ipv4() && is_ours(source) {
            return None;
        }
        if is_ours(destination) {
            self.is_own_cut |= packet.parts > 1;
            return match hooks.input(&mut passage, &mut frame) {
                Ok(()) => own(&mut hooks, &passage, &frame),
                Err(stop) => {
                    self.is_taken |= stop == TAKEN;
                    tell(&mut hooks, &passage, &frame, stop, Some(destination))
                }
            };
        }
        let to = route(destination)?;
        hop(&mut frame);
        if let Err(stop) = hooks.forward(&mut passage, to) {
            return tell(&mut hooks, &passage, &frame, stop, None);
        }
        let local = LOCAL[usize::from(to)];
        if let Err(stop) = hooks.postrouting(&mut passage, &mut frame, to, local) {
            self.is_taken |= stop == TAKEN;
            return None;
        }
        let is_own = false;
        Some(Out { to, frame, is_own })
    }
}

/// What the sender of a packet is told that rules reject, by the address `own` or that of the port
/// that leads to the sender.
fn tell(
    hooks: &mut Hooks<'_, Counts>,
    passage: &Passage,
    frame: &[u8],
    stop: Stop,
    own: Option<IpAddr>,
) -> Option<Out> {
    let Stop::Rejected(_, rejection) = stop else {
        return None;
    };
    let (source, destination) = ends(frame)?;
    let to = route(source)?;
    let local = LOCAL[usize::from(to)];
    // Of IPv6, the address that was asked answers at each hook (`icmpv6_send`).
    let is_asked = |local: &Local| destination.is_ipv6() && is_of(local, &octets(destination));
    let asked = LOCAL.iter().any(is_asked).then_some(destination);
    let own = own.or(asked).or(address_of(local, source))?;
    let mut place = [0; ANSWER_MAX];
    let length = passage.answer(rejection, frame, own, &mut place)?;
    let mut frame = place[..length].to_vec();
    hooks.tally.1 = length as u64 - 14;
    hooks
        .answers(passage, &mut Passage::new(), &mut frame, to, local)
        .ok()?;
    let is_own = true;
    Some(Out { to, frame, is_own })
}

/// What a stack says that has the packet and offers nothing.
fn own(hooks: &mut Hooks<'_, Counts>, passage: &Passage, frame: &[u8]) -> Option<Out> {
    let (source, destination) = ends(frame)?;
    let at = if frame[14] >> 4 == 4 { 34 } else { 54 };
    let protocol = if at == 34 { frame[23] } else { frame[20] };
    let mut place = [0; ANSWER_MAX];
    let mut says = |rejection| {
        let length = passage.answer(rejection, frame, destination, &mut place)?;
        Some(place[..length].to_vec())
    };
    let mut frame = match protocol {
        TCP => says(Rejection::Reset)?,
        UDP => says(PORT_UNREACHABLE)?,
        ICMP | ICMPV6 => echo(frame, at)?,
        _ => return None,
    };
    let to = route(source)?;
    let mut passage = Passage::new();
    hooks.tally.1 = frame.len() as u64 - 14;
    hooks.output(&mut passage, &mut frame, to, false).ok()?;
    let to = route(ends(&frame)?.1)?;
    let local = LOCAL[usize::from(to)];
    hooks
        .postrouting(&mut passage, &mut frame, to, local)
        .ok()?;
    let is_own = true;
    Some(Out { to, frame, is_own })
}

/// The answer to a question of ICMP whose message begins at `at`.
fn echo(frame: &[u8], at: usize) -> Option<Vec<u8>> {
    let (_, answer) = ECHOES
        .into_iter()
        .find(|(question, _)| *question == frame[at])?;
    let mut frame = frame.to_vec();
    let first = if at == 34 { 26 } else { 22 };
    let half = (at - first) / 2;
    let (source, destination) = frame[first..at].split_at_mut(half);
    source.swap_with_slice(destination);
    let mut covered = Vec::new();
    frame[at] = answer;
    frame[at + 2..at + 4].fill(0);
    if at == 54 {
        covered.extend(&frame[first..at]);
        covered.extend(((frame.len() - at) as u32).to_be_bytes());
        covered.extend([0, 0, 0, ICMPV6]);
    } else {
        frame[20..22].fill(0);
        frame[22] = 64;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]).to_be_bytes();
        frame[24..26].copy_from_slice(&sum);
    }
    covered.extend(&frame[at..]);
    let sum = checksum(&covered).to_be_bytes();
    frame[at + 2..at + 4].copy_from_slice(&sum);
    Some(frame)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The router's address at a port, of the family of another one.
fn address_of(local: Local, other: IpAddr) -> Option<IpAddr> {
    match other {
        IpAddr::V4(_) => local.ip4.map(IpAddr::V4),
        IpAddr::V6(_) => local.ip6.map(IpAddr::V6),
    }
}

/// Source and destination.
fn ends(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    Some(match Key::parse(frame).ok()?.fields().addresses? {
        Addresses::V4 {
            source,
            destination,
        } => (source.into(), destination.into()),
        Addresses::V6 {
            source,
            destination,
        } => (source.into(), destination.into()),
    })
}

/// The port that leads to an address, as [`crate::conversation::Router`] has its routes.
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
