//! What a connection is called on the other side of a router (nf_nat_core.c of Linux 6.18).
//!
//! A name that is free is kept. Where the kernel takes a random number, this takes a hash under the
//! secret key: of who sends, so that whoever uses one port for many connections is called the same
//! in all of them where that is free; or, where rules say `random`, of a number that goes up.

use super::flows::Flows;
use super::record::{Record, status};
use super::rewrite::Manip;
use super::timeout::Ticks;
use super::tuple::{Address, Tuple};
use crate::key::protocol;
use core::hash::Hasher;
use core::ops::RangeInclusive;

/// Ports that are tried one behind the other, from one place on; and if there are more ports than
/// that, so many from another place, and so on (NF_NAT_MAX_ATTEMPTS).
const TRIES: [u32; 4] = [128, 64, 32, 16];

/// Ports stay in their class: some programs trust those that only an administrator may use.
const CLASSES: [RangeInclusive<u16>; 3] = [1..=511, 600..=1023, 1024..=65535];

/// What rules say that one end of a connection is to be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Lowest and highest address, as numbers; none if the address is kept.
    pub(crate) addresses: Option<(u128, u128)>,
    /// Lowest and highest port; none if the port is kept where it is free.
    pub(crate) ports: Option<(u16, u16)>,
    /// A port is chosen whether or not the one that there is would do.
    pub(crate) random: bool,
    /// Who sends is called the same for all that it sends to.
    pub(crate) persistent: bool,
}

impl Range {
    /// What there is, if it is free.
    pub(super) fn kept(address: u128) -> Self {
        Self {
            addresses: Some((address, address)),
            ports: None,
            random: false,
            persistent: false,
        }
    }

    fn holds(&self, address: u128, port: u16) -> bool {
        self.addresses
            .is_none_or(|(low, high)| (low..=high).contains(&address))
            && self.holds_port(port)
    }

    fn holds_port(&self, port: u16) -> bool {
        self.ports
            .is_none_or(|(low, high)| (low..=high).contains(&port))
    }
}

/// What packets of the original direction are called from now on, which are `tuple` so far. If no
/// name is free, it is one that is not.
pub(super) fn choose<A: Address>(
    flows: &Flows<A>,
    tuple: &Tuple<A>,
    manip: Manip,
    range: &Range,
    number: u64,
    now: Ticks,
) -> Tuple<A> {
    let taken = |tuple: &Tuple<A>| is_taken(flows, tuple, now);
    let address = address_of(tuple, manip).number();
    let keeps = manip == Manip::Source && !range.random;
    if keeps && range.holds(address, port_of(tuple, manip)) && !taken(tuple) {
        return *tuple;
    }
    let mut chosen = *tuple;
    if let Some(addresses) = range.addresses {
        let address = choose_address(flows, tuple, manip, addresses, range.persistent);
        *address_mut(&mut chosen, manip) = A::of_number(address);
    }
    let fixed = range.ports.is_some_and(|(low, high)| low == high);
    let fits = range.holds_port(port_of(&chosen, manip));
    if !range.random && fits && (fixed || !taken(&chosen)) {
        return chosen;
    }
    let Some(ports) = ports(&chosen, manip, range) else {
        return chosen;
    };
    let mut starts = Starts {
        seed: match range.random {
            true => number,
            false => sender(tuple),
        },
        hash: |seed: u64| hash_of(flows, seed, tuple),
        counted: manip == Manip::Destination && !range.random,
    };
    search(&mut chosen, manip, ports, &mut starts, taken);
    chosen
}

/// Whether another connection has this name already.
pub(super) fn is_taken<A: Address>(flows: &Flows<A>, tuple: &Tuple<A>, now: Ticks) -> bool {
    let reply = tuple.reversed();
    reply.is_some_and(|reply| flows.find(&reply, now).is_some())
}

/// Whether a connection that is not translated has this name the other way round, and is asked by
/// it: what begins here is what it is answered by, in another zone. The kernel then chooses no
/// other name for what begins of UDP (`nf_nat_used_tuple_new`), and there is no room for it.
pub(super) fn meets<A: Address>(flows: &Flows<A>, tuple: &Tuple<A>, now: Ticks) -> bool {
    if tuple.protocol != protocol::UDP {
        return false;
    }
    let reply = tuple.reversed();
    let met = reply.and_then(|reply| flows.find(&reply, now));
    let Some((flow, 0)) = met else {
        return false;
    };
    let flow = flows.get(flow);
    let answered = Tuple {
        place: tuple.place,
        ..flow.reply()
    };
    !flow.has(status::SNAT | status::DNAT) && answered == *tuple
}

/// Tries ports until one is free.
fn search<A: Address>(
    chosen: &mut Tuple<A>,
    manip: Manip,
    (low, size): (u16, u32),
    starts: &mut Starts<impl Fn(u64) -> u64>,
    taken: impl Fn(&Tuple<A>) -> bool,
) {
    for tries in TRIES {
        let start = starts.next();
        let tries = tries.min(size);
        for offset in 0..tries {
            let port = u32::from(low) + start.wrapping_add(offset) % size;
            // A range ends at 65535.
            *port_mut(chosen, manip) = port as u16;
            if !taken(chosen) {
                return;
            }
        }
        if tries == size {
            return;
        }
    }
}

/// Where tries begin.
struct Starts<H> {
    seed: u64,
    hash: H,
    /// Whether they first begin at the first port.
    counted: bool,
}

impl<H: Fn(u64) -> u64> Starts<H> {
    fn next(&mut self) -> u32 {
        if core::mem::take(&mut self.counted) {
            return 0;
        }
        self.seed = (self.hash)(self.seed);
        u32::from(self.seed as u16)
    }
}

/// The ports that there are, as the lowest one and their number; none if the port stays.
fn ports<A: Address>(tuple: &Tuple<A>, manip: Manip, range: &Range) -> Option<(u16, u32)> {
    let size = |low: u16, high: u16| (low, u32::from(high - low) + 1);
    let has_ports = matches!(tuple.protocol, protocol::TCP | protocol::UDP);
    if let (true, Some((low, high))) = (has_ports, range.ports) {
        return Some(size(low, high));
    }
    if tuple.protocol == A::ICMP {
        return Some(size(0, u16::MAX));
    }
    if !has_ports || manip == Manip::Destination {
        return None;
    }
    let port = port_of(tuple, manip);
    let class = match port {
        ..512 => &CLASSES[0],
        512..1024 => &CLASSES[1],
        _ => &CLASSES[2],
    };
    Some(size(*class.start(), *class.end()))
}

/// The address of a range for this sender and, unless it is called the same for all, this receiver.
fn choose_address<A: Address>(
    flows: &Flows<A>,
    tuple: &Tuple<A>,
    manip: Manip,
    (low, high): (u128, u128),
    persistent: bool,
) -> u128 {
    if low == high {
        return low;
    }
    let other = match (persistent, manip) {
        (true, _) => 0,
        (false, Manip::Source) => tuple.destination.number() as u64,
        (false, Manip::Destination) => tuple.source.number() as u64,
    };
    let hash = hash_of(flows, other, tuple);
    // Of a range of more than 2^64 addresses, the first ones are enough.
    let size = u64::try_from(high - low).unwrap_or(u64::MAX);
    low + ((u128::from(hash) * (u128::from(size) + 1)) >> 64)
}

/// A number that nobody can foresee, which is the same each time.
fn hash_of<A: Address>(flows: &Flows<A>, seed: u64, tuple: &Tuple<A>) -> u64 {
    let mut hasher = flows.hasher();
    hasher.write(tuple.source.bytes());
    hasher.write_u64(seed);
    hasher.finish()
}

/// Who sends, besides its address.
fn sender<A>(tuple: &Tuple<A>) -> u64 {
    u64::from(tuple.ports[0]) << 8 | u64::from(tuple.protocol)
}

fn address_of<A: Copy>(tuple: &Tuple<A>, manip: Manip) -> A {
    match manip {
        Manip::Source => tuple.source,
        Manip::Destination => tuple.destination,
    }
}

fn address_mut<A>(tuple: &mut Tuple<A>, manip: Manip) -> &mut A {
    match manip {
        Manip::Source => &mut tuple.source,
        Manip::Destination => &mut tuple.destination,
    }
}

/// The port of an end; of ICMP, the identifier, which both ends share.
fn port_of<A: Address>(tuple: &Tuple<A>, manip: Manip) -> u16 {
    match (tuple.protocol == A::ICMP, manip) {
        (true, _) | (_, Manip::Source) => tuple.ports[0],
        (false, Manip::Destination) => tuple.ports[1],
    }
}

fn port_mut<A: Address>(tuple: &mut Tuple<A>, manip: Manip) -> &mut u16 {
    match (tuple.protocol == A::ICMP, manip) {
        (true, _) | (_, Manip::Source) => &mut tuple.ports[0],
        (false, Manip::Destination) => &mut tuple.ports[1],
    }
}
