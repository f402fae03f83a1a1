//! The flows of a table, for whoever asks from outside.
//!
//! A list is had in parts: each begins where the one before has ended. A flow stays where it is, so
//! one that lives meanwhile is in the list once; one that comes or goes may be in it or not.

use super::Conntrack;
use super::connection::{Connection, State};
use super::doubt::First;
use super::flows::Flows;
use super::record::{Record, Tracker, Traffic, class_of, queue_of, status};
use super::timeout::{Class, Ticks};
use super::tuple::{Address, Tuple, Zone};
use crate::key::protocol;
use core::cell::Cell;
use core::net::IpAddr;

/// Flows that are looked at for one part of a list, whether anybody wants them or not.
pub const LOOKED_AT_MAX: u32 = 512;

/// A place in the list: IPv6 is above this bit, and below it is the number of a flow.
const IPV6_BIT: u32 = 32;

/// What names a direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// Who sends.
    pub source: IpAddr,
    /// To whom, of the same family.
    pub destination: IpAddr,
    /// Ports of TCP and UDP. Of ICMP, the identifier, and type and code in one number.
    pub ports: [u16; 2],
    /// Of a bridge: identifier of the VLAN, or 0.
    pub vlan: u16,
    /// Of a router: number of the zone that this direction is in, or 0.
    pub zone: u16,
    /// Number of the protocol over IP.
    pub protocol: u8,
}

/// A flow, as it is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its original direction.
    pub name: Name,
    /// The other one. It is the reverse of the first, but for what is translated.
    pub reply: Name,
    /// Of TCP its state, and never [`Class::Unacknowledged`]; of others the class that decides how
    /// long it stays.
    pub class: Class,
    /// Bits of nft's `ct status`.
    pub status: u8,
    /// `ct mark`.
    pub mark: u32,
    /// Milliseconds for which it stays without a packet.
    pub left: u32,
    /// Packets of the original direction and of the other one.
    pub packets: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
}

impl Entry {
    pub(super) fn of<R: Record>(flow: &R, class: Class, now: Ticks) -> Self {
        Self {
            name: Name::of(&flow.name(), flow.zone_bits() != 0),
            reply: Name::of(&flow.reply(), flow.zone_bits() != 0),
            class,
            status: flow.tracker.standing.status & !status::ZONES,
            mark: flow.mark,
            left: flow.deadline.milliseconds_from(now),
            packets: [0, 1].map(|direction| flow.traffic.packets(direction)),
            bytes: [0, 1].map(|direction| flow.traffic.bytes(direction)),
        }
    }

    /// What rules see of it: `ct state` is `established` if it was answered, and `new` if not.
    /// None if its addresses are of several families.
    pub fn connection<T>(&self, see: impl FnOnce(&Connection<'_>) -> T) -> Option<T> {
        match self.name.source {
            IpAddr::V4(_) => self.seen_as::<[u8; 4], T>(None, see),
            IpAddr::V6(_) => self.seen_as::<[u8; 16], T>(None, see),
        }
    }

    /// The same, for rules that are to judge its first packet.
    pub(super) fn beginning<T>(
        &self,
        first: &First,
        see: impl FnOnce(&Connection<'_>) -> T,
    ) -> Option<T> {
        match self.name.source {
            IpAddr::V4(_) => self.seen_as::<[u8; 4], T>(Some(first), see),
            IpAddr::V6(_) => self.seen_as::<[u8; 16], T>(Some(first), see),
        }
    }

    fn seen_as<A: Address, T>(
        &self,
        first: Option<&First>,
        see: impl FnOnce(&Connection<'_>) -> T,
    ) -> Option<T> {
        let mut tracker = Tracker::empty();
        let zone = Zone::between([self.name.zone, self.reply.zone])?;
        tracker.standing.status = self.status & !status::ZONES | zone.bits();
        tracker.standing.queue = queue_of(self.class, self.status & status::ASSURED != 0);
        let (name, reply) = (self.name.tuple()?, self.reply.tuple()?);
        let mut flow = A::Record::new(&name, &reply, tracker);
        flow.mark = self.mark;
        flow.traffic = Traffic::of(self.packets, self.bytes);
        flow.deadline = Ticks::of_milliseconds(self.left);
        let state = match flow.has(status::SEEN_REPLY) {
            true => State::Established,
            false => State::New,
        };
        Some(see(&Connection {
            state: Cell::new(state),
            direction: 0,
            flow: A::view(&flow),
            now: Ticks::default(),
            mark: Cell::new(self.mark),
            zone: Cell::new(None),
            timeouts: Cell::new(None),
            first,
            table: None,
        }))
    }
}

impl Name {
    fn of<A: Address>(tuple: &Tuple<A>, is_in_zone: bool) -> Self {
        let (vlan, zone) = match is_in_zone {
            true => (0, tuple.place),
            false => (tuple.place, 0),
        };
        Self {
            source: tuple.source.ip(),
            destination: tuple.destination.ip(),
            ports: tuple.ports,
            vlan,
            zone,
            protocol: tuple.protocol,
        }
    }

    /// The same, if it is of this family.
    fn tuple<A: Address>(&self) -> Option<Tuple<A>> {
        Some(Tuple {
            source: A::of_ip(self.source)?,
            destination: A::of_ip(self.destination)?,
            ports: self.ports,
            place: self.vlan | self.zone,
            protocol: self.protocol,
        })
    }
}

impl Conntrack {
    /// Hands over the flows from this place on, 0 at the beginning, until `take` has no room for
    /// one (`false`), or [`LOOKED_AT_MAX`] were looked at. Where the list goes on; 0 at its end.
    pub fn list(&self, from: u64, now: u64, take: &mut dyn FnMut(&Entry) -> bool) -> u64 {
        let now = Ticks::of(now);
        let number = from as u32;
        match from >> IPV6_BIT {
            0 => match list_in(&self.table4, number, now, take) {
                Some(next) => next.into(),
                None => 1 << IPV6_BIT,
            },
            1 => match list_in(&self.table6, number, now, take) {
                Some(next) => 1 << IPV6_BIT | u64::from(next),
                None => 0,
            },
            _ => 0,
        }
    }

    /// Ends the flow of this name, whatever it does; whether there was one. Of packets that come
    /// behind this, rules decide as of any that belong to no connection yet.
    pub fn end(&mut self, name: &Name, now: u64) -> bool {
        let now = Ticks::of(now);
        match name.source {
            IpAddr::V4(_) => end_in(&mut self.table4, name.tuple(), now),
            IpAddr::V6(_) => end_in(&mut self.table6, name.tuple(), now),
        }
    }
}

/// Where the list of a family goes on, if it does.
fn list_in<A: Address>(
    flows: &Flows<A>,
    from: u32,
    now: Ticks,
    take: &mut dyn FnMut(&Entry) -> bool,
) -> Option<u32> {
    let used = flows.records.used();
    let end = from.saturating_add(LOOKED_AT_MAX).min(used);
    for number in from..end {
        let flow = flows.get(number);
        // One that is not confirmed may never be one.
        if !flow.has(status::CONFIRMED) || flow.deadline <= now {
            continue;
        }
        let class = match flow.name().protocol {
            protocol::TCP => Some(flow.tracker.tcp().state()),
            _ => class_of(flow.tracker.standing.queue).map(|(class, _)| class),
        };
        if let Some(class) = class
            && !take(&Entry::of(flow, class, now))
        {
            return Some(number);
        }
    }
    (end < used).then_some(end)
}

fn end_in<A: Address>(flows: &mut Flows<A>, name: Option<Tuple<A>>, now: Ticks) -> bool {
    let found = name.and_then(|name| Some((name, flows.find(&name, now)?.0)));
    // Its other direction is no name of it, unless both are the same.
    let Some((name, flow)) = found else {
        return false;
    };
    let is_name = flows.get(flow).name() == name;
    if is_name {
        flows.remove(flow);
    }
    is_name
}
