//! ARP (RFC 826): who has an IPv4 address on this link. Our own are announced and defended
//! (RFC 5227).
//!
//! Messages are read and written by smoltcp's `wire`: there are few of them.

use crate::counts::{Counts, reasons};
use crate::ethernet::{Link, Mac, Unaddressed};
use crate::layer::{Filled, Unsent};
use crate::neighbour::{Heard, Neighbours, Trouble};
use crate::notes::Shelf;
use crate::random::Random;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use core::time::Duration;
use device::ethernet::TYPE_ARP;
use ports::Instant;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress};

/// Addresses of our own.
pub const CLAIMS_MAX: usize = 16;

// RFC 5227, 1.1.
const PROBE_WAIT: Duration = Duration::from_secs(1);
const PROBES: u8 = 3;
const PROBE_MIN: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(2);
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
const ANNOUNCEMENTS: u8 = 2;
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// How much faster [`Detect::Soon`] is than these times.
const PACE_SOON: u32 = 8;

/// Whether an address is used at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detect {
    /// It is used once nobody else was found to use it: about six seconds later (RFC 5227, 2.1).
    First,
    /// The same within a second: for addresses that a server has checked before it lent them
    /// (RFC 2131, 2.2).
    Soon,
    /// It is used and announced at once: for addresses that somebody has assigned.
    Later,
}

/// How IPv4 finds the link addresses of neighbours, and defends its own addresses: [`Arp`], or
/// whatever takes its place.
pub trait Resolve {
    /// The neighbour's link address, if it is known.
    fn lookup(&mut self, neighbour: Ipv4Addr, now: Instant) -> Option<Mac>;

    /// Keeps a packet until the neighbour's address is known, and asks for it.
    ///
    /// # Errors
    /// [`Unsent::NoNeighbour`], if too many wait already.
    fn hold(
        &mut self,
        link: &mut impl Link,
        neighbour: Ipv4Addr,
        packet: Unaddressed,
        now: Instant,
    ) -> Result<(), Unsent>;

    /// The neighbour was just heard to receive what we send: a segment of it acknowledged new data
    /// (RFC 4861, 7.3.1).
    fn confirm(&mut self, neighbour: Ipv4Addr, now: Instant);

    /// Claims an address of our own; `false` if there are too many.
    fn claim(&mut self, address: Ipv4Addr, detect: Detect, now: Instant) -> bool;

    /// Gives an address up.
    fn release(&mut self, address: Ipv4Addr);

    /// Whether an address is ours to use.
    fn is_usable(&self, address: Ipv4Addr) -> bool;

    /// Whether somebody else turned out to have an address that we claimed.
    fn is_lost(&self, address: Ipv4Addr) -> bool;

    /// Takes a message of the protocol, from a frame of this station.
    fn receive(&mut self, link: &mut impl Link, from: Mac, message: &[u8], now: Instant);

    /// Does what is due.
    fn poll(&mut self, link: &mut impl Link, now: Instant);

    /// When [`Self::poll`] has something to do.
    fn deadline(&self) -> Option<Instant>;

    /// Shows what was counted, by name.
    fn counts(&self, show: &mut dyn FnMut(&'static str, u64));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many probes were sent, this much faster than RFC 5227 has it.
    Probing(u8, u32),
    /// So many announcements were sent.
    Announcing(u8),
    /// It is ours, and was last defended at this time.
    Held(Option<Instant>),
    /// Somebody else has it.
    Lost,
}

/// An address of our own.
#[derive(Debug)]
struct Claim {
    address: Ipv4Addr,
    stage: Stage,
    /// When the next step of the stage is due.
    due: Instant,
}

impl Claim {
    fn is_usable(&self) -> bool {
        matches!(self.stage, Stage::Announcing(_) | Stage::Held(_))
    }

    /// Whether a step is due at some time.
    fn due(&self) -> Option<Instant> {
        matches!(self.stage, Stage::Probing(..) | Stage::Announcing(_)).then_some(self.due)
    }

    /// Takes the step that is due now; returns the sender's address of the request to be sent.
    fn step(&mut self, random: &mut Random, now: Instant) -> Option<Ipv4Addr> {
        match self.stage {
            Stage::Probing(sent, pace) if sent < PROBES => {
                self.stage = Stage::Probing(sent + 1, pace);
                let wait = if sent + 1 < PROBES {
                    PROBE_MIN + random.within(PROBE_MAX - PROBE_MIN)
                } else {
                    ANNOUNCE_WAIT
                };
                self.due = now + wait / pace;
                Some(Ipv4Addr::UNSPECIFIED)
            }
            Stage::Probing(..) | Stage::Announcing(0) => {
                self.stage = Stage::Announcing(1);
                self.due = now + ANNOUNCE_INTERVAL;
                Some(self.address)
            }
            Stage::Announcing(sent) => {
                self.stage = if sent + 1 < ANNOUNCEMENTS {
                    Stage::Announcing(sent + 1)
                } else {
                    Stage::Held(None)
                };
                self.due = now + ANNOUNCE_INTERVAL;
                Some(self.address)
            }
            Stage::Held(_) | Stage::Lost => None,
        }
    }

    /// Somebody else uses the address, or asks for it. Returns whether to announce it once more.
    fn conflict(&mut self, now: Instant) -> bool {
        match self.stage {
            // RFC 5227, 2.1.1.
            Stage::Probing(..) => self.stage = Stage::Lost,
            // RFC 5227, 2.4 (c): a server defends its address for ever, but not for every frame.
            Stage::Held(defended) => {
                let again = defended.is_none_or(|last| last + DEFEND_INTERVAL <= now);
                if again {
                    self.stage = Stage::Held(Some(now));
                }
                return again;
            }
            Stage::Announcing(_) | Stage::Lost => {}
        }
        false
    }
}

reasons! {
    /// Why a message was dropped.
    pub enum Dropped {
        /// It is not ARP for IPv4 over Ethernet, or ends too early.
        Malformed = "arp_malformed",
        /// The sender's link address is a group, nobody's, or not that of the frame.
        Sender = "arp_sender",
        /// Somebody else claims an address of ours.
        Conflict = "arp_conflict",
    }
}

reasons! {
    /// Messages that came and left.
    pub enum Messages {
        /// Messages that came, good or not.
        Received = "arp_received",
        /// Questions of others that were answered.
        Answered = "arp_answered",
        /// Questions that left: for neighbours, and for addresses that we claim.
        Asked = "arp_asked",
    }
}

/// Neighbours over IPv4, and our own addresses.
pub struct Arp {
    claims: ArrayVec<Claim, CLAIMS_MAX>,
    neighbours: Neighbours<Ipv4Addr, Unaddressed>,
    random: Random,
    dropped: Counts<Dropped>,
    messages: Counts<Messages>,
}

impl Arp {
    /// Nobody is known. The seed varies the times of probes, as RFC 5227 asks.
    pub fn new(seed: u64) -> Self {
        Self {
            claims: ArrayVec::new(),
            neighbours: Neighbours::default(),
            random: Random::new(seed),
            dropped: Counts::default(),
            messages: Counts::default(),
        }
    }

    /// Goes on with the neighbours of an earlier host: see [`Neighbours::keep`].
    pub fn keep(&mut self, shelf: Shelf<Ipv4Addr>, now: Instant) {
        self.neighbours.keep(shelf, now);
    }

    /// Messages that were dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// What went wrong with neighbours.
    pub fn trouble(&self) -> &Counts<Trouble> {
        self.neighbours.trouble()
    }

    /// Whom requests for `target` come from: the address that shares most of its network, since
    /// some stations answer no other.
    fn sender(&self, target: Ipv4Addr) -> Ipv4Addr {
        let near = |claim: &&Claim| {
            let differ = claim.address.to_bits() ^ target.to_bits();
            differ.leading_zeros()
        };
        let usable = self.claims.iter().filter(|claim| claim.is_usable());
        let nearest = usable.max_by_key(near);
        nearest.map_or(Ipv4Addr::UNSPECIFIED, |claim| claim.address)
    }

    fn handle(
        &mut self,
        link: &mut impl Link,
        message: Message,
        now: Instant,
    ) -> Result<(), Dropped> {
        let Message {
            operation,
            mac,
            sender,
            target,
        } = message;
        if mac == link.mac() {
            // Our own, come back from the network.
            return Ok(());
        }
        let request = operation == ArpOperation::Request;
        let probe = sender.is_unspecified();
        let contested = if probe { target } else { sender };
        let mine = self
            .claims
            .iter_mut()
            .find(|claim| claim.address == contested);
        if let Some(claim) = mine {
            // Somebody who probes for an address that we use gets an answer, below.
            if !probe || !claim.is_usable() {
                if claim.conflict(now) {
                    send(link, ArpOperation::Request, contested, None, contested);
                }
                return Err(Dropped::Conflict);
            }
        }
        let to_us = self.is_usable(target);
        if !probe {
            let heard = match (request, to_us) {
                (_, false) => Heard::Announcement,
                (true, true) => Heard::Question,
                (false, true) => Heard::Answer,
            };
            for packet in self.neighbours.learn(sender, mac, heard, now) {
                link.address(mac, packet);
            }
        }
        if request && to_us {
            self.messages.add(Messages::Answered);
            send_to(link, ArpOperation::Reply, target, Some(mac), mac, sender);
        }
        Ok(())
    }
}

impl Resolve for Arp {
    #[inline]
    fn lookup(&mut self, neighbour: Ipv4Addr, now: Instant) -> Option<Mac> {
        self.neighbours.lookup(neighbour, now)
    }

    fn hold(
        &mut self,
        link: &mut impl Link,
        neighbour: Ipv4Addr,
        packet: Unaddressed,
        now: Instant,
    ) -> Result<(), Unsent> {
        let held = self.neighbours.hold(neighbour, packet, now);
        self.poll(link, now);
        held.map_err(|_| Unsent::NoNeighbour)
    }

    #[inline]
    fn confirm(&mut self, neighbour: Ipv4Addr, now: Instant) {
        self.neighbours.confirm(neighbour, now);
    }

    fn claim(&mut self, address: Ipv4Addr, detect: Detect, now: Instant) -> bool {
        self.release(address);
        let (stage, due) = match detect {
            Detect::First => (Stage::Probing(0, 1), now + self.random.within(PROBE_WAIT)),
            Detect::Soon => (Stage::Probing(0, PACE_SOON), now),
            Detect::Later => (Stage::Announcing(0), now),
        };
        let claim = Claim {
            address,
            stage,
            due,
        };
        self.claims.try_push(claim).is_ok()
    }

    fn release(&mut self, address: Ipv4Addr) {
        self.claims.retain(|claim| claim.address != address);
    }

    #[inline]
    fn is_usable(&self, address: Ipv4Addr) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.address == address && claim.is_usable())
    }

    fn is_lost(&self, address: Ipv4Addr) -> bool {
        self.claims
            .iter()
            .any(|claim| claim.address == address && claim.stage == Stage::Lost)
    }

    /// RFC 826, packet reception; RFC 5227, 2.4.
    fn receive(&mut self, link: &mut impl Link, from: Mac, message: &[u8], now: Instant) {
        self.messages.add(Messages::Received);
        let handled = parse(message, from).and_then(|message| self.handle(link, message, now));
        if let Err(reason) = handled {
            self.dropped.add(reason);
        }
    }

    fn poll(&mut self, link: &mut impl Link, now: Instant) {
        for n in 0..self.claims.len() {
            let claim = &mut self.claims[n];
            if claim.due().is_some_and(|due| due <= now)
                && let Some(sender) = claim.step(&mut self.random, now)
            {
                let target = claim.address;
                self.messages.add(Messages::Asked);
                send(link, ArpOperation::Request, sender, None, target);
            }
        }
        while let Some(request) = self.neighbours.next_request(now) {
            let sender = self.sender(request.neighbour);
            self.messages.add(Messages::Asked);
            send(
                link,
                ArpOperation::Request,
                sender,
                request.last,
                request.neighbour,
            );
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let claims = self.claims.iter().filter_map(Claim::due);
        claims.chain(self.neighbours.deadline()).min()
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.dropped.show(show);
        self.messages.show(show);
        self.neighbours.trouble().show(show);
    }
}

/// A message that was checked.
struct Message {
    operation: ArpOperation,
    mac: Mac,
    sender: Ipv4Addr,
    target: Ipv4Addr,
}

fn parse(bytes: &[u8], from: Mac) -> Result<Message, Dropped> {
    let packet = ArpPacket::new_checked(bytes).map_err(|_| Dropped::Malformed)?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = ArpRepr::parse(&packet).map_err(|_| Dropped::Malformed)?
    else {
        return Err(Dropped::Malformed);
    };
    if !matches!(operation, ArpOperation::Request | ArpOperation::Reply) {
        return Err(Dropped::Malformed);
    }
    let mac = Mac(source_hardware_addr.0);
    let sender = source_protocol_addr;
    if !mac.is_station() || mac != from || sender.is_broadcast() || sender.is_multicast() {
        return Err(Dropped::Sender);
    }
    Ok(Message {
        operation,
        mac,
        sender,
        target: target_protocol_addr,
    })
}

/// Sends a message to everybody, or to where the target was last.
fn send(
    link: &mut impl Link,
    operation: ArpOperation,
    sender: Ipv4Addr,
    last: Option<Mac>,
    target: Ipv4Addr,
) {
    let to = last.unwrap_or(Mac::BROADCAST);
    send_to(link, operation, sender, last, to, target);
}

fn send_to(
    link: &mut impl Link,
    operation: ArpOperation,
    sender: Ipv4Addr,
    target_mac: Option<Mac>,
    to: Mac,
    target: Ipv4Addr,
) {
    let message = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(link.mac().0),
        source_protocol_addr: sender,
        target_hardware_addr: EthernetAddress(target_mac.map_or([0; 6], |mac| mac.0)),
        target_protocol_addr: target,
    };
    let len = message.buffer_len();
    // Without a buffer it is lost, as it may be on the link: the timers send it again.
    let _ = link.write(to, TYPE_ARP, len, |place| {
        message.emit(&mut ArpPacket::new_unchecked(place));
        Filled::new(len)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::Ethernet;
    use crate::testing::{self, Wire, at};
    use alloc::boxed::Box;
    use proptest::prelude::*;
    use std::vec::Vec;

    const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    struct Bench {
        arp: Arp,
        link: Ethernet,
        wire: Wire,
    }

    /// A message, as the wire showed it: to whom, operation, sender, target.
    type Seen = (Mac, ArpOperation, Ipv4Addr, Ipv4Addr);

    impl Bench {
        fn new() -> Self {
            let (port, wire) = testing::port();
            let link = Ethernet::new(Box::new(port));
            Self {
                arp: Arp::new(1),
                link,
                wire,
            }
        }

        /// One that has had its address for a while.
        fn settled() -> Self {
            let mut bench = Self::new();
            bench.arp.claim(OURS, Detect::Later, at(0));
            bench.poll(0);
            bench.poll(2000);
            bench
        }

        fn poll(&mut self, ms: u64) -> Vec<Seen> {
            self.arp.poll(&mut self.link, at(ms));
            self.seen()
        }

        fn receive(
            &mut self,
            operation: ArpOperation,
            sender: Ipv4Addr,
            target: Ipv4Addr,
            ms: u64,
        ) -> Vec<Seen> {
            self.hear(operation, sender, target, ms);
            self.seen()
        }

        fn hear(&mut self, operation: ArpOperation, sender: Ipv4Addr, target: Ipv4Addr, ms: u64) {
            let message = ArpRepr::EthernetIpv4 {
                operation,
                source_hardware_addr: EthernetAddress(MAC.0),
                source_protocol_addr: sender,
                target_hardware_addr: EthernetAddress([0; 6]),
                target_protocol_addr: target,
            };
            let mut bytes = [0; 28];
            message.emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
            self.arp.receive(&mut self.link, MAC, &bytes, at(ms));
        }

        fn seen(&mut self) -> Vec<Seen> {
            self.link.flush();
            let read = |frame: &Vec<u8>| {
                let packet = ArpPacket::new_checked(&frame[14..]).ok()?;
                let ArpRepr::EthernetIpv4 {
                    operation,
                    source_protocol_addr,
                    target_protocol_addr,
                    ..
                } = ArpRepr::parse(&packet).ok()?
                else {
                    return None;
                };
                let to = Mac(*frame.first_chunk().unwrap());
                Some((to, operation, source_protocol_addr, target_protocol_addr))
            };
            self.wire.sent().iter().filter_map(read).collect()
        }
    }

    use ArpOperation::{Reply, Request};

    #[test]
    fn a_request_for_our_address_is_answered() {
        let mut bench = Bench::settled();
        assert_eq!(
            bench.receive(Request, PEER, OURS, 9000),
            [(MAC, Reply, OURS, PEER)]
        );
        assert_eq!(
            bench.arp.lookup(PEER, at(9000)),
            Some(MAC),
            "who asks will be answered"
        );
        assert_eq!(bench.receive(Request, PEER, PEER, 9000), []);
        // A probe for an address that we use.
        assert_eq!(
            bench.receive(Request, NOBODY, OURS, 9000),
            [(MAC, Reply, OURS, NOBODY)]
        );
    }

    #[test]
    fn a_packet_waits_for_the_reply() {
        let mut bench = Bench::settled();
        let packet = bench
            .link
            .prepare(0x800, 3, |place| {
                place.copy_from_slice(b"abc");
                Filled::new(3)
            })
            .unwrap();
        bench
            .arp
            .hold(&mut bench.link, PEER, packet, at(9000))
            .unwrap();
        assert_eq!(bench.seen(), [(Mac::BROADCAST, Request, OURS, PEER)]);
        bench.hear(Reply, PEER, OURS, 9001);
        bench.link.flush();
        let sent = [&MAC.0[..], &[2, 0, 0, 0, 0, 0, 8, 0], b"abc"].concat();
        assert_eq!(bench.wire.sent(), [sent]);
        assert_eq!(bench.arp.lookup(PEER, at(9001)), Some(MAC));
    }

    #[test]
    fn a_request_comes_from_our_address_in_that_network() {
        let mut bench = Bench::settled();
        bench
            .arp
            .claim([192, 0, 2, 1].into(), Detect::Later, at(9000));
        bench.poll(9000);
        for (target, sender) in [
            ([10, 0, 0, 9], OURS),
            ([192, 0, 2, 9], [192, 0, 2, 1].into()),
        ] {
            let packet = bench.link.prepare(0x800, 0, |_| Filled::new(0)).unwrap();
            let target = target.into();
            bench
                .arp
                .hold(&mut bench.link, target, packet, at(9000))
                .unwrap();
            assert_eq!(bench.seen(), [(Mac::BROADCAST, Request, sender, target)]);
        }
    }

    #[test]
    fn an_assigned_address_is_announced_twice() {
        let mut bench = Bench::new();
        bench.arp.claim(OURS, Detect::Later, at(0));
        assert!(bench.arp.is_usable(OURS));
        let announcement = [(Mac::BROADCAST, Request, OURS, OURS)];
        assert_eq!(bench.poll(0), announcement);
        assert_eq!(
            (bench.poll(1999), bench.poll(2000)),
            ([].into(), announcement.into())
        );
        assert_eq!((bench.poll(9000), bench.arp.deadline()), ([].into(), None));
    }

    #[test]
    fn an_address_is_probed_before_its_use() {
        let mut bench = Bench::new();
        bench.arp.claim(OURS, Detect::First, at(0));
        let mut seen = Vec::new();
        while let Some(due) = bench.arp.deadline() {
            bench.arp.poll(&mut bench.link, due);
            seen.extend(bench.seen());
            assert_eq!(bench.arp.is_usable(OURS), seen.len() > 3);
        }
        let probe = (Mac::BROADCAST, Request, NOBODY, OURS);
        let announcement = (Mac::BROADCAST, Request, OURS, OURS);
        assert_eq!(seen, [probe, probe, probe, announcement, announcement]);
    }

    #[test]
    fn an_address_that_was_lent_is_ours_within_a_second() {
        let mut bench = Bench::new();
        bench.arp.claim(OURS, Detect::Soon, at(0));
        for probes in 1..=3 {
            let due = bench.arp.deadline().unwrap();
            bench.arp.poll(&mut bench.link, due);
            assert_eq!(bench.seen().len(), 1, "{probes}");
            assert!(!bench.arp.is_usable(OURS));
        }
        assert!(bench.arp.deadline().unwrap() <= at(1000));
        bench.poll(1000);
        assert!(bench.arp.is_usable(OURS) && !bench.arp.is_lost(OURS));
    }

    #[test]
    fn an_address_that_somebody_has_or_probes_for_is_not_taken() {
        for sender in [OURS, NOBODY] {
            let mut bench = Bench::new();
            bench.arp.claim(OURS, Detect::First, at(0));
            bench.poll(1000);
            bench.receive(Request, sender, OURS, 1001);
            assert!(bench.arp.is_lost(OURS) && !bench.arp.is_usable(OURS));
            assert_eq!(bench.poll(60_000), []);
        }
    }

    #[test]
    fn our_address_is_defended_every_ten_seconds() {
        let mut bench = Bench::settled();
        let defence = [(Mac::BROADCAST, Request, OURS, OURS)];
        assert_eq!(bench.receive(Reply, OURS, OURS, 20_000), defence);
        assert_eq!(bench.receive(Reply, OURS, OURS, 29_999), []);
        assert_eq!(bench.receive(Reply, OURS, OURS, 30_000), defence);
        assert_eq!(bench.arp.dropped().get(Dropped::Conflict), 3);
        assert!(bench.arp.is_usable(OURS));
    }

    #[test]
    fn claims_are_bounded() {
        let mut arp = Arp::new(0);
        let claimed = (0..99).filter(|n| arp.claim([10, 0, 0, *n].into(), Detect::Later, at(0)));
        assert_eq!(claimed.count(), CLAIMS_MAX);
    }

    #[test]
    fn senders_that_cannot_be_are_dropped() {
        let mut bench = Bench::settled();
        bench.receive(Request, Ipv4Addr::BROADCAST, OURS, 9000);
        bench.receive(Request, [224, 0, 0, 1].into(), OURS, 9000);
        assert_eq!(bench.arp.dropped().get(Dropped::Sender), 2);
        let mut message = [0; 28];
        message[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        message[8..14].copy_from_slice(&[2, 0, 0, 0, 0, 8]);
        bench.arp.receive(&mut bench.link, MAC, &message, at(0));
        assert_eq!(
            bench.arp.dropped().get(Dropped::Sender),
            3,
            "not who sent the frame"
        );
        bench
            .arp
            .receive(&mut bench.link, MAC, &message[..27], at(0));
        assert_eq!(bench.arp.dropped().get(Dropped::Malformed), 1);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bench = Bench::settled();
            bench.arp.receive(&mut bench.link, MAC, &bytes, at(0));
        }
    }
}
