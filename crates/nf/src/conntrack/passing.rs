//! A packet on its way through a router: its connection is known from one hook to the next, and
//! takes its place in the table behind the last one.

use super::choose::{self, Range};
use super::connection::View;
use super::flows::Flows;
use super::open;
use super::packet_of;
use super::record::{Flow, Flow4, Flow6, Record, status};
use super::rewrite::{self, Manip};
use super::timeout::{Class, Ticks, Timeouts};
use super::track::{Found, Then, Tracked, recognise};
use super::tuple::{Address, Tuple, Zone};
use super::{Connection, Conntrack, Counts, Doubt, Family, Refused, Sought, State};
use crate::key::{Addresses, Key, protocol};

/// What a packet is to the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It has no connection.
    None(State),
    V4(Of<Flow4>),
    V6(Of<Flow6>),
}

/// The connection of a packet, and what the packet is to it.
#[derive(Clone, Copy, Debug)]
struct Of<R> {
    held: Held<R>,
    direction: usize,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum Held<R> {
    /// Its number in the table.
    In(u32),
    /// It is not in the table: it begins with the packet of its direction 0, if it has a class, or
    /// has ended.
    Out(R, Option<Class>),
}

/// What a hook does with a connection, whatever its family.
macro_rules! with {
    ($table:expr, $link:expr, |$flows:ident, $of:ident| $work:expr, $none:expr) => {
        match $link {
            Kind::None(_) => $none,
            Kind::V4($of) => {
                let $flows = &mut $table.table4;
                $work
            }
            Kind::V6($of) => {
                let $flows = &mut $table.table6;
                $work
            }
        }
    };
}

/// The open connection of IPv4 that a packet belongs to, and which way it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    flow: u32,
    direction: usize,
}

impl Link {
    /// Of a packet of an open connection.
    pub(crate) fn of_open(open: Open) -> Self {
        Self(Kind::V4(Of::known(
            open.flow,
            open.direction,
            State::Established,
        )))
    }

    /// Of a packet without a connection.
    pub(crate) const fn none(state: State) -> Self {
        Self(Kind::None(state))
    }

    /// Whether the packet's connection is to be looked up: it has none yet, but perhaps a zone
    /// (`new`, as in the kernel), and rules do not say that it has none.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.0, Kind::None(State::Invalid | State::New))
    }

    /// Of a packet that answers one with this connection, in the connection's place: it is related,
    /// and goes the other way (the kernel's `nf_conntrack_attach`). It begins nothing.
    pub(crate) fn answered(&self) -> Option<Self> {
        match &self.0 {
            Kind::None(_) => None,
            Kind::V4(of) => Some(Self(Kind::V4(of.answered()))),
            Kind::V6(of) => Some(Self(Kind::V6(of.answered()))),
        }
    }

    /// Whether the packet belongs to a connection that was answered.
    #[inline(always)]
    pub(crate) fn is_established(&self) -> bool {
        let state = match &self.0 {
            Kind::None(state) => *state,
            Kind::V4(of) => of.state,
            Kind::V6(of) => of.state,
        };
        state == State::Established
    }

    /// The direction of this packet in a connection that has not begun yet: 0 begins it, and 1
    /// answers a packet that would have.
    #[inline(always)]
    pub(crate) fn has_not_begun(&self) -> Option<usize> {
        match &self.0 {
            Kind::None(_) => None,
            Kind::V4(of) => of.has_not_begun().then_some(of.direction),
            Kind::V6(of) => of.has_not_begun().then_some(of.direction),
        }
    }
}

impl Conntrack {
    /// Finds the connection of a packet in this zone, which takes note of it. `sought` is what
    /// [`Self::look_up_open`] has found, if it was asked. `now` is a time in nanoseconds
    /// that does not go back.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        link: &mut Link,
        key: &Key,
        frame: &[u8],
        (sought, zone): (Sought, Zone),
        now: u64,
    ) {
        let now = Ticks::of(now);
        let known = match sought.0 {
            _ if !zone.is_none() => Err(None),
            None => self.go_on(key, frame, now),
            found => Err(found),
        };
        match known {
            Ok((family, tracked)) => {
                let Tracked {
                    flow,
                    direction,
                    state,
                    ..
                } = tracked;
                if family == Family::V4 {
                    self.table4.records.changed();
                    link.0 = Kind::V4(Of::known(flow, direction, state));
                } else {
                    self.table6.records.changed();
                    link.0 = Kind::V6(Of::known(flow, direction, state));
                }
            }
            Err(sought) => *link = self.look_up_any(key, frame, (sought, zone), now),
        }
    }

    /// What [`Self::goes_on`] does, for a packet on its way through a router.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub(crate) fn look_up_open(&mut self, frame: &[u8], now: u64) -> Result<Open, Sought> {
        let found = open::go_on4(&mut self.table4, frame, Ticks::of(now));
        let (flow, direction) = found.map_err(Sought)?;
        Ok(Open { flow, direction })
    }

    /// Calls one end of such a packet what its connection calls it.
    #[inline(always)]
    pub(crate) fn translate_open(&self, open: Open, manip: Manip, frame: &mut [u8], partial: bool) {
        let Open { flow, direction } = open;
        let flow = self.table4.get(flow);
        if is_translated(flow, direction, manip) {
            // What the other side says of this packet, turned round.
            let said = flow.tuple(1 - direction);
            let (address, port) = match manip {
                Manip::Source => (said.destination, said.ports[1]),
                Manip::Destination => (said.source, said.ports[0]),
            };
            rewrite::translate_plain(frame, manip, address, port, partial);
        }
    }

    #[inline(never)]
    fn look_up_any(
        &mut self,
        key: &Key,
        frame: &[u8],
        (sought, zone): (Option<open::Found>, Zone),
        now: Ticks,
    ) -> Link {
        let Some((packet, addresses)) = packet_of(key, frame, zone) else {
            return Link::none(State::Untracked);
        };
        let counts = &mut self.cover.counts;
        match addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                let found = recognise(&mut self.table4, counts, &packet, ends, sought, now);
                link(&mut self.table4, found, Kind::V4)
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                let found = recognise(&mut self.table6, counts, &packet, ends, sought, now);
                link(&mut self.table6, found, Kind::V6)
            }
        }
    }

    /// The connection, as rules see it.
    pub(crate) fn seen<'a>(&'a self, link: &'a Link, now: u64) -> Connection<'a> {
        let (state, direction, flow) = match &link.0 {
            Kind::None(state) => return Connection::none(*state),
            Kind::V4(of) => (of.state, of.direction, View::V4(of.flow(&self.table4))),
            Kind::V6(of) => (of.state, of.direction, View::V6(of.flow(&self.table6))),
        };
        Connection::of(self, flow, state, direction, Ticks::of(now))
    }

    /// The connection has this mark from now on.
    pub(crate) fn set_mark(&mut self, link: &mut Link, mark: u32) {
        with!(
            self,
            &mut link.0,
            |flows, of| of.flow_mut(flows).mark = mark,
            ()
        );
    }

    /// A connection that begins is to have these timeouts.
    pub(crate) fn set_timeouts(&mut self, link: &mut Link, timeouts: &Timeouts) {
        with!(
            self,
            &mut link.0,
            |flows, of| of.set_timeouts(flows, timeouts),
            ()
        );
    }

    /// Chooses what one end of a connection that begins is called. `number` is another one each
    /// time.
    pub(crate) fn choose(
        &mut self,
        link: &mut Link,
        manip: Manip,
        range: Option<&Range>,
        number: u64,
        now: u64,
    ) {
        let now = Ticks::of(now);
        with!(
            self,
            &mut link.0,
            |flows, of| of.choose(flows, manip, range, number, now),
            ()
        );
    }

    /// Calls one end of a packet what its connection calls it.
    pub(crate) fn translate(
        &mut self,
        link: &Link,
        manip: Manip,
        key: &mut Key,
        frame: &mut [u8],
        partial: bool,
    ) {
        with!(
            self,
            &link.0,
            |flows, of| {
                let flow = of.flow(flows);
                if is_translated(flow, of.direction, manip) {
                    of.call(flow, manip, key, frame, partial);
                }
            },
            ()
        );
    }

    /// The connection of a packet, if it is to be judged anew ([`Self::revalidate`]).
    pub(crate) fn doubt(&self, link: &Link) -> Option<Doubt> {
        match &link.0 {
            Kind::None(_) => None,
            Kind::V4(of) => self.table4.doubt(&of.tracked()?),
            Kind::V6(of) => self.table6.doubt(&of.tracked()?),
        }
    }

    /// It was: it goes on, or ends.
    pub(crate) fn conclude_doubt(&mut self, link: &mut Link, permitted: bool) {
        self.cover.counts.revoked += u64::from(!permitted);
        with!(
            self,
            &mut link.0,
            |flows, of| of.conclude_doubt(flows, permitted),
            ()
        );
    }

    /// A connection of TCP was reset by the router (the kernel's `nf_ct_set_closing`).
    pub(crate) fn close(&mut self, link: &Link, now: u64) {
        let now = Ticks::of(now);
        with!(self, &link.0, |flows, of| of.close(flows, now), ());
    }

    /// Puts a connection that begins into the table.
    ///
    /// # Errors
    /// There is no room for it, or what it is called is taken.
    pub(crate) fn confirm(&mut self, link: &mut Link, now: u64) -> Result<(), Refused> {
        let (now, counts) = (Ticks::of(now), &mut self.cover.counts);
        with!(
            self,
            &mut link.0,
            |flows, of| of.confirm(flows, counts, now),
            Ok(())
        )
    }
}

/// What was found of a packet, and whether it ends its connection.
fn link<A: Address>(
    flows: &mut Flows<A>,
    found: Result<Found<A>, State>,
    of: fn(Of<A::Record>) -> Kind,
) -> Link {
    Link(match found {
        Err(state) => Kind::None(state),
        Ok(Found::Begins(record, class)) => of(Of {
            held: Held::Out(record, Some(class)),
            direction: 0,
            state: State::New,
        }),
        Ok(Found::Known(Tracked {
            flow,
            direction,
            state,
            then,
        })) => {
            let mut held = Held::In(flow);
            if then == Then::End {
                held = Held::Out(*flows.get(flow), None);
                flows.remove(flow);
            }
            flows.records.changed();
            of(Of {
                held,
                direction,
                state,
            })
        }
    })
}

impl<A: Address<Record = R>, R: Record<Address = A>> Of<R> {
    /// Of a flow in the table.
    #[inline(always)]
    fn known(flow: u32, direction: usize, state: State) -> Self {
        Self {
            held: Held::In(flow),
            direction,
            state,
        }
    }

    #[inline(always)]
    fn flow<'a>(&'a self, flows: &'a Flows<A>) -> &'a R {
        match &self.held {
            Held::In(number) => flows.get(*number),
            Held::Out(record, _) => record,
        }
    }

    fn flow_mut<'a>(&'a mut self, flows: &'a mut Flows<A>) -> &'a mut R {
        match &mut self.held {
            Held::In(number) => flows.get_mut(*number),
            Held::Out(record, _) => record,
        }
    }

    fn has_not_begun(&self) -> bool {
        matches!(self.held, Held::Out(_, Some(_)))
    }

    fn answered(&self) -> Self {
        Self {
            held: self.held,
            direction: 1 - self.direction,
            state: State::Related,
        }
    }

    /// What the packet is to its flow, if that is in the table.
    fn tracked(&self) -> Option<Tracked> {
        let Held::In(flow) = self.held else {
            return None;
        };
        Some(Tracked {
            flow,
            direction: self.direction,
            state: self.state,
            then: Then::Nothing,
        })
    }

    fn conclude_doubt(&mut self, flows: &mut Flows<A>, permitted: bool) {
        if let Held::In(number) = self.held {
            if !permitted {
                self.held = Held::Out(*flows.get(number), None);
            }
            flows.conclude_doubt(number, permitted);
        }
    }

    fn close(&self, flows: &mut Flows<A>, now: Ticks) {
        let Held::In(number) = self.held else {
            return;
        };
        if self.flow(flows).name().protocol == protocol::TCP
            && flows.get_mut(number).tracker.tcp_mut().close()
        {
            flows.refresh(number, Class::Close, now);
        }
    }

    fn set_timeouts(&mut self, flows: &mut Flows<A>, timeouts: &Timeouts) {
        if let Held::Out(record, Some(class)) = &mut self.held {
            *class = flows.choose_timeouts(record, *class, timeouts);
        }
    }

    /// Without a range, an end is called what it was called, if that is free.
    fn choose(
        &mut self,
        flows: &Flows<A>,
        manip: Manip,
        range: Option<&Range>,
        number: u64,
        now: Ticks,
    ) {
        let Held::Out(record, Some(_)) = &mut self.held else {
            return;
        };
        let Some(tuple) = record.reply().reversed() else {
            return;
        };
        let kept = Range::kept(tuple.source.number());
        let (range, keeps) = match (range, manip) {
            (Some(range), _) => (range, false),
            (None, Manip::Source) => (&kept, !record.has(status::DNAT)),
            (None, Manip::Destination) => return,
        };
        let chosen = choose::choose(flows, &tuple, manip, range, number, now);
        if chosen != tuple
            && !(keeps && choose::meets(flows, &tuple, now))
            && let Some(reply) = chosen.reversed()
        {
            record.set_reply(&reply);
            record.tracker.standing.status |= bit(manip);
        }
    }

    /// Calls one end of a packet of a flow that is translated what that calls it.
    #[inline(never)]
    fn call(&self, flow: &R, manip: Manip, key: &mut Key, frame: &mut [u8], partial: bool) {
        let Some(packet) = key.packet() else {
            return;
        };
        // What the other side says of this packet, turned round.
        let said: Tuple<A> = flow.tuple(1 - self.direction);
        let is_icmp = said.protocol == A::ICMP;
        let (address, port) = match (manip, is_icmp) {
            (Manip::Source, true) => (said.destination, said.ports[0]),
            (Manip::Source, false) => (said.destination, said.ports[1]),
            (Manip::Destination, _) => (said.source, said.ports[0]),
        };
        let has_port = is_icmp || matches!(said.protocol, protocol::TCP | protocol::UDP);
        let port = has_port.then_some(port);
        // A reset in a connection's place is related as well.
        let is_message = matches!(packet.protocol, protocol::ICMP | protocol::ICMPV6);
        let is_error = self.state == State::Related && is_message;
        address.translate(frame, &packet, manip, port, is_error, partial);
        let in_key = port.filter(|_| !is_icmp && !is_error);
        key.translate(manip == Manip::Source, address.ip(), in_key);
    }

    fn confirm(
        &mut self,
        flows: &mut Flows<A>,
        counts: &mut Counts,
        now: Ticks,
    ) -> Result<(), Refused> {
        // Who answers the first packet begins nothing.
        let (Held::Out(record, Some(class)), 0) = (&self.held, self.direction) else {
            return Ok(());
        };
        let names = [record.name(), record.reply()];
        if names.iter().any(|name| flows.find(name, now).is_some()) {
            return Err(Refused::Ports);
        }
        let (number, given_up) = flows.take(*record)?;
        counts.given_up += u64::from(given_up);
        counts.begun += 1;
        flows.confirm(number, *class, now);
        self.held = Held::In(number);
        Ok(())
    }
}

/// Whether this end of a flow's packet of this direction is called something else.
#[inline(always)]
fn is_translated(flow: &Flow, direction: usize, manip: Manip) -> bool {
    let end = match direction {
        0 => manip,
        _ => manip.other(),
    };
    flow.has(bit(end))
}

/// The bit of a connection whose end is translated.
fn bit(manip: Manip) -> u8 {
    match manip {
        Manip::Source => status::SNAT,
        Manip::Destination => status::DNAT,
    }
}
