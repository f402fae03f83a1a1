//! Which packets are sent on, where to, and what their senders are told (RFC 1812, 5.2).

use crate::cut::cut;
use crate::fib::Fib;
use crate::own::{Judge, Ports, Shared};
use crate::packet::{Packet, is_ip, is_lent, on_wire, take_hop};
use crate::{told, trunk};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::ethernet::HEADER_SIZE;
use device::{Batch, Frame};
use net::counts::Counts;
use net::ethernet::Link;
use net::forwarding::Dropped;
use net::icmp::Refusal;
use net::interfaces::Interfaces;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::layer::Unsent;
use net::neighbour::WAITING_EACH_MAX;
use net::stack::Stack;
use net::version::{Addresses, Standing};
use nf::log::TokenBucket;
use nf::router::Local;
use ports::Instant;

/// Fewest hops with which a packet is sent on: it has one left behind this router.
const HOPS_MIN: u8 = 2;

/// The ports of the router's own stack.
pub(crate) type Ip = Interfaces<Ipv4, Ipv6>;

/// A router, with the stack that is its own.
pub struct Router {
    /// The stack: addresses, routes, neighbours, and what the router itself offers.
    pub stack: Rc<RefCell<Stack<Ipv4, Ipv6>>>,
    passage: Passage,
    /// Who counts frames that no port has taken.
    trunks: Vec<trunk::Dropped>,
}

/// All but the stack.
pub(crate) struct Passage {
    ports: Vec<Shared>,
    /// Ports that are lent addresses.
    clients: Vec<usize>,
    pub(crate) judge: Rc<RefCell<Judge>>,
    dropped: Counts<Dropped>,
    /// How many errors about packets that rules reject may be sent.
    pub(crate) errors: TokenBucket,
}

impl Router {
    /// A router with these ports. `stack` has them as [`Ports::of_stack`] gives them.
    pub fn new(ports: Ports, stack: Rc<RefCell<Stack<Ipv4, Ipv6>>>) -> Self {
        let Ports { ports, judge } = ports;
        let clients = stack.borrow_mut().dhcp().map(|(port, _)| port).collect();
        let passage = Passage {
            ports,
            clients,
            judge,
            dropped: Counts::default(),
            errors: told::errors(),
        };
        Self {
            stack,
            passage,
            trunks: Vec::new(),
        }
    }

    /// The same router, some of whose ports are VLANs of others: what those have dropped.
    #[must_use]
    pub fn with_trunks(mut self, trunks: Vec<trunk::Dropped>) -> Self {
        self.trunks = trunks;
        self
    }

    /// Takes in what the ports have, at most a batch each, and sends on what is for others; whether
    /// there was a frame.
    pub fn receive(&mut self, now: Instant) -> bool {
        let Self { stack, passage, .. } = self;
        let stack = &mut *stack.borrow_mut();
        passage.begin(&mut stack.ip);
        let any = stack.receive_through(now, |ip, port, frame| passage.gate(ip, port, frame, now));
        passage.flush(&mut stack.ip);
        any
    }

    /// Sends what is to be sent of the router's own; `false` if more is to leave.
    pub fn send(&mut self) -> bool {
        self.stack.borrow_mut().send()
    }

    /// Shows what was counted, by name, of the stack, of packets that were not sent on, and of
    /// frames that no port has taken. Names that come twice add up.
    pub fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.stack.borrow().counts(show);
        self.passage.dropped.show(show);
        self.trunks.iter().for_each(|trunk| trunk.show(show));
    }
}

impl Passage {
    /// A turn begins: other rules may be in force, and addresses may have changed.
    fn begin(&mut self, ip: &mut Ip) {
        let judge = &mut *self.judge.borrow_mut();
        judge.gate.refresh();
        for (number, local) in judge.locals.iter_mut().enumerate() {
            *local = local_of(ip, number);
        }
    }

    pub(crate) fn local(&self, port: usize) -> Local {
        let judge = self.judge.borrow();
        judge.locals.get(port).copied().unwrap_or_default()
    }

    /// Takes a frame that has come in; gives it back if it is for the router's own stack.
    fn gate(&mut self, ip: &mut Ip, port: usize, mut frame: Frame, now: Instant) -> Option<Frame> {
        let own = ip.port(port).link.mac().0;
        let to: [u8; 6] = *frame.bytes().first_chunk()?;
        let is_group = to[0] & 1 != 0;
        // The stack counts what is for other stations.
        if !is_ip(&frame) || !is_group && to != own {
            return Some(frame);
        }
        // What is lent comes before all rules, as to Linux's clients of DHCP.
        if self.clients.contains(&port) && is_lent(&frame) {
            let packet = Packet::read(&frame);
            if packet.is_some_and(|packet| is_group || ip.is_own(packet.destination)) {
                return Some(frame);
            }
        }
        let local = self.local(port);
        let arrives =
            self.judge
                .borrow_mut()
                .gate
                .arrives(&mut frame, port, local, &Fib { ip, now });
        if !arrives {
            // Who asks several is told by none of them (RFC 1122, 3.2.2).
            if !is_group {
                self.tell(ip, &frame, None, now);
            }
            return None;
        }
        let Some(packet) = Packet::read(&frame) else {
            self.dropped.add(Dropped::Short);
            return None;
        };
        // Nobody else has an address of ours. The kernel looks when it looks for a route, and at
        // IPv4 alone (`martian source`).
        if packet.source.is_ipv4() && ip.is_own(packet.source) {
            self.dropped.add(Dropped::Scope);
            return None;
        }
        if is_group || ip.is_own(packet.destination) || !packet.may_pass() {
            // Of what is not for the router, its stack says why.
            let fib = Fib { ip, now };
            let enters = self.judge.borrow_mut().gate.enters(&mut frame, &fib);
            if !enters && ip.is_own(packet.destination) && !is_group {
                self.tell(ip, &frame, Some(packet.destination), now);
            }
            return enters.then_some(frame);
        }
        if let Err((why, told)) = self.send_on(ip, frame, &packet, now) {
            self.dropped.add(why);
            if let Some((frame, refusal)) = told {
                let quoted = HEADER_SIZE..HEADER_SIZE + packet.bytes;
                if let Some(quoted) = frame.bytes().get(quoted) {
                    ip.port(port).complain(quoted, refusal, now);
                }
            }
        }
        None
    }

    /// Sends a packet on. What is not sent says why, and what its sender is told.
    fn send_on(
        &mut self,
        ip: &mut Ip,
        mut frame: Frame,
        packet: &Packet,
        now: Instant,
    ) -> Result<(), (Dropped, Option<(Frame, Refusal)>)> {
        let Some(to) = ip.way(packet.destination, now) else {
            return Err((Dropped::Route, Some((frame, Refusal::NoRoute))));
        };
        if packet.hops < HOPS_MIN {
            return Err((Dropped::Hops, Some((frame, Refusal::Hops))));
        }
        let mtu = ip.port(to).link.mtu();
        let is_large = on_wire(&frame, packet) > mtu;
        if is_large && !packet.may_be_cut {
            return Err((Dropped::TooBig, Some((frame, Refusal::TooBig { mtu }))));
        }
        let local = self.local(to);
        take_hop(&mut frame);
        let fib = Fib { ip, now };
        if !self.judge.borrow_mut().gate.passes(&mut frame, to, &fib) {
            self.tell(ip, &frame, None, now);
            return Ok(());
        }
        if !self.judge.borrow_mut().gate.leaves(&mut frame, to, local) {
            return Ok(());
        }
        // Rules may have changed whom it is from, and nothing behind the route.
        let mut sent = |ip: &mut Ip, frame| {
            self.make_room(ip, to);
            let sent = ip.port(to).forward(frame, packet.destination, now);
            sent.map_err(|why| (dropped(why), None))
        };
        if !is_large {
            return sent(ip, frame);
        }
        let mut pieces = cut(&mut frame, mtu).ok_or((Dropped::Short, None))?;
        while let Some(piece) = pieces.next(|len| ip.port(to).link.port().alloc(len)) {
            let piece = piece.ok_or((Dropped::Buffer, None))?;
            sent(ip, piece)?;
        }
        Ok(())
    }

    /// Sends what waits to leave by a port, if what comes next may not find room: a packet, or
    /// those that wait for a neighbour.
    pub(crate) fn make_room(&mut self, ip: &mut Ip, port: usize) {
        if ip.port(port).link.passing().room() <= WAITING_EACH_MAX {
            self.leave(ip, port);
        }
    }

    fn leave(&mut self, ip: &mut Ip, port: usize) {
        let passing: &mut Batch = ip.port(port).link.passing();
        if let (false, Some(port)) = (passing.is_empty(), self.ports.get(port)) {
            port.borrow_mut().transmit(passing);
        }
    }

    fn flush(&mut self, ip: &mut Ip) {
        (0..self.ports.len()).for_each(|port| self.leave(ip, port));
    }
}

fn dropped(why: Unsent) -> Dropped {
    match why {
        Unsent::NoBuffer => Dropped::Buffer,
        Unsent::NoRoute => Dropped::Route,
        Unsent::TooBig => Dropped::Short,
        Unsent::NoNeighbour => Dropped::Neighbour,
    }
}

/// The router's addresses at a port.
fn local_of(ip: &mut Ip, port: usize) -> Local {
    let port = ip.port(port);
    let usable4 = |own: &core::net::Ipv4Addr| port.v4.standing(*own) == Standing::Usable;
    let mut own4 = port.v4.addresses().iter().map(|own| own.address());
    let mut own6 = port.v6.addresses().map(|own| own.address());
    Local {
        ip4: own4.find(usable4),
        ip6: own6.find(|own| !own.is_unicast_link_local() && port.v6.is_usable(*own)),
    }
}
