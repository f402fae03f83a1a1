//! Neighbour Discovery at work (RFC 4861, 7.2; RFC 4862): neighbours, routers, our own addresses.

use super::addresses::{Addresses, solicited};
use super::advertiser::{self, Advertised, Advertiser};
use super::nd::{self, Announced, Message};
use super::routers::Routers;
use super::{HEADER, Header, MTU_MIN, emit, group_mac, icmp};
use crate::address::Prefix;
use crate::arp::Detect;
use crate::counts::{Counts, reasons};
use crate::ethernet::{Link, Mac, Unaddressed};
use crate::layer::{Filled, Unsent};
use crate::neighbour::{Heard, Neighbours};
use crate::random::Random;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::net::Ipv6Addr;
use device::ethernet::TYPE_IPV6;
use ports::Instant;
use smoltcp::wire::NdiscRepr;

/// What makes 64 bits of a MAC address (RFC 4291, appendix A).
const EUI_MIDDLE: u16 = 0xfffe;
/// Bits of the part of an address that a station chooses (RFC 4862, 5.5.3 d; RFC 2464, 4).
const PREFIX_BITS: u8 = 64;

reasons! {
    /// Messages of Neighbour Discovery that left.
    pub enum Messages {
        /// Questions of others that were answered.
        Answered = "nd_answered",
        /// Questions that left: for neighbours, routers, and addresses that we claim.
        Asked = "nd_asked",
    }
}

/// What is known of the link.
pub(super) struct Discovery {
    pub addresses: Addresses,
    pub neighbours: Neighbours<Ipv6Addr, Unaddressed>,
    pub routers: Routers,
    /// Largest packet on this link, as a router says.
    pub mtu: usize,
    /// Whether addresses in announced prefixes are chosen, and how they are checked.
    autonomous: Option<Detect>,
    /// What stands between the halves of the MAC address in addresses that are chosen.
    middle: u16,
    /// What tells hosts of us, if we are their router.
    advertiser: Option<Box<Advertiser>>,
    random: Random,
    messages: Counts<Messages>,
}

impl Discovery {
    pub fn new(seed: u64) -> Self {
        Self {
            addresses: Addresses::new(seed),
            neighbours: Neighbours::default(),
            routers: Routers::new(),
            mtu: usize::MAX,
            autonomous: None,
            middle: EUI_MIDDLE,
            advertiser: None,
            random: Random::new(seed),
            messages: Counts::default(),
        }
    }

    /// Addresses that are chosen from now on are of this VLAN.
    pub fn on_vlan(&mut self, vlan: u16) {
        self.middle = vlan;
    }

    /// Chooses a link-local address, and asks for routers.
    pub fn start(&mut self, mac: Mac, detect: Detect, now: Instant) {
        let network = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);
        if let Some(local) = chosen(network, mac, self.middle) {
            self.addresses
                .add(local, detect, super::Lifetimes::INFINITE, now);
        }
        self.autonomous = Some(detect);
        self.routers.ask(&mut self.random, now);
    }

    /// Is a router of this link from now on: tells hosts so, and takes nothing from other routers
    /// (RFC 4861, 6.2.7).
    pub fn advertise(&mut self, advertised: Advertised, now: Instant) {
        self.autonomous = None;
        self.routers.stop();
        self.advertiser = Some(Box::new(Advertiser::new(advertised, now)));
    }

    /// Whom packets to `destination` go to, as routers tell.
    #[inline]
    pub fn next_hop(&self, destination: Ipv6Addr, now: Instant) -> Option<Ipv6Addr> {
        let reaches = |router| self.neighbours.mac(router).is_some();
        self.routers.next_hop(destination, reaches, now)
    }

    /// Bits of the network of this link that `destination` is in; `None` if a router leads there.
    pub fn on_link(&self, destination: Ipv6Addr, now: Instant) -> Option<u8> {
        self.routers.on_link(destination, now)
    }

    /// Keeps a packet until its neighbour is found.
    pub fn hold(
        &mut self,
        link: &mut impl Link,
        neighbour: Ipv6Addr,
        packet: Unaddressed,
        now: Instant,
    ) -> Result<(), Unsent> {
        let held = self.neighbours.hold(neighbour, packet, now);
        self.poll(link, now);
        held.map_err(|_| Unsent::NoNeighbour)
    }

    /// Takes a message from `source`, whose frame came from `from`.
    pub fn receive(
        &mut self,
        link: &mut impl Link,
        source: Ipv6Addr,
        from: Mac,
        message: Message,
        now: Instant,
    ) {
        if from == link.mac() {
            // Our own, come back from the network.
            return;
        }
        match message {
            Message::Solicit { target, mac } => {
                self.solicited(link, source, from, target, mac, now)
            }
            Message::Advertise {
                target,
                mac,
                solicited,
                replaces,
            } => {
                // RFC 4862, 5.4.4. Of an address that we use, the other one has to let go.
                self.addresses.conflict(target);
                if !self.addresses.is_own(target) {
                    let known = self.neighbours.mac(target);
                    let heard = if solicited {
                        Heard::Answer
                    } else {
                        Heard::Announcement
                    };
                    match mac.or(known) {
                        // RFC 4861, 7.2.5: who must not replace an address only adds one.
                        Some(mac) if replaces || known.is_none_or(|known| known == mac) => {
                            self.learn(link, target, mac, heard, now);
                        }
                        _ => {}
                    }
                }
            }
            Message::SolicitRouters { mac } => self.asked_for_routers(link, source, mac, now),
            Message::Router { .. } if self.advertiser.is_some() => {}
            Message::Router {
                mac,
                lifetime,
                mtu,
                prefixes,
                ..
            } => {
                self.routers.learn(source, lifetime, now);
                if let Some(mac) = mac {
                    self.learn(link, source, mac, Heard::Question, now);
                }
                // RFC 4861, 6.3.4.
                if let Some(mtu) = mtu.map(|mtu| mtu as usize)
                    && mtu >= MTU_MIN
                {
                    self.mtu = mtu;
                }
                for prefix in prefixes {
                    self.announced(link.mac(), prefix, now);
                }
            }
        }
    }

    /// Does what is due.
    pub fn poll(&mut self, link: &mut impl Link, now: Instant) {
        while let Some(target) = self.addresses.next_solicitation(now) {
            // RFC 4862, 5.4.2.
            self.messages.add(Messages::Asked);
            let message = nd::solicit(target, None);
            let group = solicited(target);
            send(
                link,
                Ipv6Addr::UNSPECIFIED,
                group,
                group_mac(group),
                message,
            );
        }
        if self.routers.take_solicitation(now) {
            let local = self.addresses.source(nd::ALL_ROUTERS, now);
            self.messages.add(Messages::Asked);
            let message = nd::solicit_routers(local.map(|_| link.mac()));
            let source = local.unwrap_or(Ipv6Addr::UNSPECIFIED);
            let to = group_mac(nd::ALL_ROUTERS);
            send(link, source, nd::ALL_ROUTERS, to, message);
        }
        self.tell(link, now);
        while let Some(request) = self.neighbours.next_request(now) {
            let target = request.neighbour;
            let Some(source) = self.addresses.source(target, now) else {
                continue;
            };
            self.messages.add(Messages::Asked);
            let message = nd::solicit(target, Some(link.mac()));
            match request.last {
                Some(mac) => send(link, source, target, mac, message),
                None => {
                    let group = solicited(target);
                    send(link, source, group, group_mac(group), message);
                }
            }
        }
    }

    /// Shows what was counted, by name.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.messages.show(show);
        self.neighbours.trouble().show(show);
    }

    /// When [`Self::poll`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let addresses = self.addresses.deadline().into_iter();
        addresses
            .chain(self.routers.deadline())
            .chain(self.neighbours.deadline())
            .chain(self.advertiser.iter().map(|told| told.deadline()))
            .min()
    }

    /// A host asks for routers (RFC 4861, 6.2.6).
    fn asked_for_routers(
        &mut self,
        link: &mut impl Link,
        source: Ipv6Addr,
        mac: Option<Mac>,
        now: Instant,
    ) {
        let Some(advertiser) = &mut self.advertiser else {
            return;
        };
        advertiser.solicited(&mut self.random, now);
        if let Some(mac) = mac {
            self.learn(link, source, mac, Heard::Question, now);
        }
    }

    /// Tells hosts of us, if that is due. While we have no address on the link, they learn it next
    /// time.
    fn tell(&mut self, link: &mut impl Link, now: Instant) {
        let Some(advertiser) = &mut self.advertiser else {
            return;
        };
        let source = self.addresses.source(nd::ALL_NODES, now);
        if !advertiser.take(&mut self.random, now) {
            return;
        }
        let Some(source) = source.filter(Ipv6Addr::is_unicast_link_local) else {
            return;
        };
        let mut networks = ArrayVec::<Prefix<Ipv6Addr>, { nd::PREFIXES_MAX }>::new();
        for own in self.addresses.iter() {
            let address = own.address();
            let is_told = networks.iter().any(|told| told.is_same_network(&own));
            let is_good = self.addresses.is_usable(address) && !address.is_unicast_link_local();
            if is_good && !is_told && networks.try_push(own).is_err() {
                break;
            }
        }
        let ends = (source, nd::ALL_NODES);
        let about = (link.mac(), link.mtu());
        let group = group_mac(nd::ALL_NODES);
        transmit(link, ends, group, advertiser::LEN_MAX, |place| {
            advertiser.write(ends, about, &networks, place)
        });
    }

    /// Somebody asks who has `target` (RFC 4861, 7.2.3 and 7.2.4).
    fn solicited(
        &mut self,
        link: &mut impl Link,
        source: Ipv6Addr,
        from: Mac,
        target: Ipv6Addr,
        mac: Option<Mac>,
        now: Instant,
    ) {
        let probe = source.is_unspecified();
        if probe {
            // RFC 4862, 5.4.3: two who want the same address both let go.
            self.addresses.conflict(target);
        }
        if !self.addresses.is_usable(target) || self.addresses.is_own(source) {
            return;
        }
        self.messages.add(Messages::Answered);
        let message = nd::advertise(target, link.mac(), (!probe, self.advertiser.is_some()));
        if probe {
            send(
                link,
                target,
                nd::ALL_NODES,
                group_mac(nd::ALL_NODES),
                message,
            );
            return;
        }
        if let Some(mac) = mac {
            self.learn(link, source, mac, Heard::Question, now);
        }
        send(link, target, source, mac.unwrap_or(from), message);
    }

    fn learn(
        &mut self,
        link: &mut impl Link,
        neighbour: Ipv6Addr,
        mac: Mac,
        heard: Heard,
        now: Instant,
    ) {
        for packet in self.neighbours.learn(neighbour, mac, heard, now) {
            link.address(mac, packet);
        }
    }

    /// A router tells of a prefix (RFC 4861, 6.3.4; RFC 4862, 5.5.3).
    fn announced(&mut self, mac: Mac, announced: Announced, now: Instant) {
        let Announced {
            prefix,
            on_link,
            autonomous,
            lifetimes,
        } = announced;
        if on_link {
            self.routers.learn_on_link(prefix, lifetimes.valid, now);
        }
        let Some(detect) = self.autonomous.filter(|_| autonomous) else {
            return;
        };
        if prefix.bits() != PREFIX_BITS {
            return;
        }
        if let Some(own) = chosen(prefix.address(), mac, self.middle)
            && !self.addresses.renew(own.address(), lifetimes, now)
            && lifetimes.valid.is_none_or(|valid| now < valid)
        {
            self.addresses.add(own, detect, lifetimes, now);
        }
    }
}

/// Our address in a network of [`PREFIX_BITS`], with this between the halves of the MAC address:
/// [`EUI_MIDDLE`] (RFC 2464, 4), or a VLAN, of which several have one MAC address. The bits of an
/// identifier mean nothing to others (RFC 7136).
fn chosen(
    network: Ipv6Addr,
    Mac([a, b, c, d, e, f]): Mac,
    middle: u16,
) -> Option<Prefix<Ipv6Addr>> {
    let [g, h] = middle.to_be_bytes();
    let station = u64::from_be_bytes([a ^ 2, b, c, g, h, d, e, f]);
    let network = network.to_bits() >> PREFIX_BITS << PREFIX_BITS;
    Prefix::new(
        Ipv6Addr::from_bits(network | u128::from(station)),
        PREFIX_BITS,
    )
}

/// Sends a message. Without a buffer it is lost, as it may be on the link: timers send it again.
fn send(
    link: &mut impl Link,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    to: Mac,
    message: NdiscRepr<'_>,
) {
    let ends = (source, destination);
    transmit(link, ends, to, nd::LEN_MAX, |place| {
        nd::write(message, source, destination, place)
    });
}

/// Sends a message of at most so many bytes, which `write` writes. Without a buffer it is lost.
fn transmit(
    link: &mut impl Link,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    to: Mac,
    most: usize,
    write: impl FnOnce(&mut [u8]) -> usize,
) {
    let header = Header {
        class: 0,
        payload: 0,
        next: icmp::PROTOCOL,
        hops: nd::HOPS,
        source,
        destination,
    };
    let _ = link.write(to, TYPE_IPV6, HEADER + most, |place| {
        emit(header, place, |place| Filled::new(write(place)))
    });
}
