//! A packet from hook to hook.

use super::doubt::Course;
use super::reject::{ANSWER_MAX, Rejection};
use super::rules::{Chain, Rules, Stage};
use super::{Connections, Fate};
use crate::conntrack::{
    Connection, Link, Manip, Open, Range, Refused, Sought, State, Zone, translate_later,
};
use crate::ir::{Nat, NatAddress, Values};
use crate::key::{Addresses, Fragment, Key};
use crate::malformed::Malformed;
use crate::nft::ast::Hook;
use crate::rule::{RuleIndex, Tally, Verdict, Way};
use crate::ruleset::End;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The number of no port: `iifname` and `oifname` are none then.
pub(super) const NO_PORT: u8 = u8::MAX;

/// Why a packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is none.
    Malformed(Malformed),
    /// Rules say so: the number of the rule's or policy's counter.
    Rule(RuleIndex),
    /// The same, and its sender is told: [`Passage::answer`].
    Rejected(RuleIndex, Rejection),
    /// Its connection cannot be.
    Refused(Refused),
}

/// The router's addresses at a port: what packets are translated to that leave by it
/// (`masquerade`), or have come in by it (`redirect`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// The first one of IPv4.
    pub ip4: Option<Ipv4Addr>,
    /// The first one of IPv6 that others than its own link know.
    pub ip6: Option<Ipv6Addr>,
}

impl Local {
    /// The first address of either family.
    pub fn of(addresses: &[IpAddr]) -> Self {
        Self {
            ip4: addresses.iter().find_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            }),
            ip6: addresses.iter().find_map(|address| match address {
                IpAddr::V4(_) => None,
                IpAddr::V6(address) => Some(*address),
            }),
        }
    }
}

/// How a packet has come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port, by its position among those that [`Rules::load`] was told.
    pub port: u8,
    /// The router's addresses there.
    pub local: Local,
    /// Whether the checksum of its transport header is not complete: its field has the sum of the
    /// pseudo header, as virtio's `needs checksum` says.
    pub partial: bool,
}

/// A packet on its way. One may be used for one packet after the other.
#[derive(Debug)]
pub struct Passage {
    pub(super) key: Key,
    pub(super) way: Way,
    pub(super) link: Link,
    /// Which ends of its connection, which it begins, are called what they will be: the source, and
    /// the destination.
    chosen: [bool; 2],
    partial: bool,
    part: Part,
    /// Its connection, if that is open and nothing else was to be known: then its key has not been
    /// read, and only its way and `partial` are known beside.
    open: Option<Open>,
    /// What was found of its connection before its key was read.
    sought: Sought,
    /// `meta mark`.
    mark: Cell<u32>,
    /// The zone that rules have put it into, before its connection is looked up.
    zone: Option<Zone>,
}

/// Which part of a packet it is.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// All of it, or one that rules look at themselves, for connections are not tracked.
    Whole,
    /// The first one, by what it has in common with the others.
    First(u64),
    /// Another one, and the source that it gets when it leaves.
    Later(IpAddr),
}

impl Passage {
    /// Of no packet.
    pub const fn new() -> Self {
        Self {
            key: Key::EMPTY,
            way: Way {
                from: NO_PORT,
                to: NO_PORT,
            },
            link: Link::none(State::Untracked),
            chosen: [false; 2],
            partial: false,
            part: Part::Whole,
            open: None,
            sought: Sought::NOTHING,
            mark: Cell::new(0),
            zone: None,
        }
    }

    /// What is known of the packet in `frame`, as far as it is translated by now.
    pub fn key(&mut self, frame: &[u8]) -> &Key {
        // It was read with fewer steps, and can be read.
        if self.read(frame).is_err() {
            self.key = Key::EMPTY;
        }
        &self.key
    }

    /// Reads the key of a packet that has come as far as this without one.
    fn read(&mut self, frame: &[u8]) -> Result<(), Stop> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.part = Part::Whole;
        self.chosen = [false; 2];
        self.link = Link::of_open(open);
        self.key.read(frame).map_err(Stop::Malformed)
    }

    /// The ports that it came in by and goes out by; 255 for none.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Writes the frame that tells the sender of the packet in `frame` that rules reject it,
    /// without addresses of the link; its length, or none if nobody is to be told. An error comes
    /// from the router's address `own`. What is written is to pass [`Hooks::answers`].
    pub fn answer(
        &self,
        rejection: Rejection,
        frame: &[u8],
        own: IpAddr,
        place: &mut [u8; ANSWER_MAX],
    ) -> Option<usize> {
        rejection.answer(&self.key, frame, self.partial, own, place)
    }

    /// Whether rules are asked what this end of its connection is called. The kernel asks them
    /// about a reset of a connection that has not begun, too, as it does not about an error.
    fn asks(&self, manip: Manip) -> bool {
        match self.link.has_not_begun() {
            None => false,
            Some(0) => !self.chosen[manip as usize],
            Some(_) => !self.chosen[manip as usize] && self.key.is_tcp(),
        }
    }

    /// Begins anew with another packet, of an open connection.
    #[inline(always)]
    fn begin_open(&mut self, open: Open, arrival: Arrival) {
        self.way = Way {
            from: arrival.port,
            to: NO_PORT,
        };
        self.partial = arrival.partial;
        self.mark.set(0);
        self.open = Some(open);
    }

    /// Begins anew with another packet.
    fn begin(&mut self, frame: &[u8], from: u8, partial: bool) -> Result<(), Stop> {
        self.way = Way { from, to: NO_PORT };
        self.partial = partial;
        self.part = Part::Whole;
        self.chosen = [false; 2];
        self.mark.set(0);
        // Where connections are not looked up yet, the kernel says so.
        self.link = Link::none(State::Invalid);
        self.open = None;
        self.zone = None;
        self.sought = Sought::NOTHING;
        self.key.read(frame).map_err(Stop::Malformed)
    }
}

impl Default for Passage {
    fn default() -> Self {
        Self::new()
    }
}

/// What a router asks at each hook. It is made for one packet or for many.
#[derive(Debug)]
pub struct Hooks<'a, T> {
    /// The rules in force.
    pub rules: &'a Rules,
    /// Connections; to be there if the rules ask for them ([`Rules::tracks`]).
    pub connections: Option<&'a mut Connections>,
    /// A time in nanoseconds that does not go back.
    pub now: u64,
    /// Who takes down what rules count and log.
    pub tally: &'a mut T,
}

impl<T: Tally> Hooks<'_, T> {
    /// A packet has come in. Its destination may be another one behind this.
    ///
    /// # Errors
    /// It goes no further.
    #[inline]
    pub fn prerouting(
        &mut self,
        passage: &mut Passage,
        frame: &mut [u8],
        arrival: Arrival,
    ) -> Result<(), Stop> {
        match self.begin_open(passage, frame, arrival) {
            Ok(()) => Ok(()),
            Err(sought) => self.begin(passage, frame, arrival, sought),
        }
    }

    /// Not inlined, nor is what else few packets need: the others would pay for it.
    #[inline(never)]
    fn begin(
        &mut self,
        passage: &mut Passage,
        frame: &mut [u8],
        arrival: Arrival,
        sought: Sought,
    ) -> Result<(), Stop> {
        passage.begin(frame, arrival.port, arrival.partial)?;
        passage.sought = sought;
        self.enter(Hook::Prerouting, passage, frame, arrival.local)
    }

    /// The same of most packets: those of open connections, where rules ask for nothing else.
    ///
    /// # Errors
    /// It is another one. What was found of it.
    #[inline(always)]
    fn begin_open(
        &mut self,
        passage: &mut Passage,
        frame: &mut [u8],
        arrival: Arrival,
    ) -> Result<(), Sought> {
        let said = self.rules.open(Hook::Prerouting).ok_or(Sought::NOTHING)?;
        let connections = self.connections.as_deref_mut();
        let table = &mut connections.ok_or(Sought::NOTHING)?.table;
        let open = table.look_up_open(frame, self.now)?;
        passage.begin_open(open, arrival);
        table.translate_open(open, Manip::Destination, frame, arrival.partial);
        said.iter().for_each(|settled| {
            settled.say(self.tally);
        });
        Ok(())
    }

    /// What is said of such a packet at a hook.
    #[inline(always)]
    fn say(&mut self, hook: Hook) {
        for settled in self.rules.open(hook).unwrap_or_default() {
            settled.say(self.tally);
        }
    }

    /// The packet is for the router itself. Its source may be another one behind this.
    ///
    /// # Errors
    /// It goes no further.
    pub fn input(&mut self, passage: &mut Passage, frame: &mut [u8]) -> Result<(), Stop> {
        passage.read(frame)?;
        self.permit_at(passage, Course::In)?;
        self.leave(Hook::Input, passage, frame, Local::default())
    }

    /// The packet is to leave by the port `to`.
    ///
    /// # Errors
    /// It goes no further.
    #[inline]
    pub fn forward(&mut self, passage: &mut Passage, to: u8) -> Result<(), Stop> {
        passage.way.to = to;
        if passage.open.is_some() {
            self.say(Hook::Forward);
            return Ok(());
        }
        self.pass(passage)
    }

    #[inline(never)]
    fn pass(&mut self, passage: &mut Passage) -> Result<(), Stop> {
        if let Part::Later(_) = passage.part {
            return Ok(());
        }
        self.permit_at(passage, Course::Through)?;
        let stopped = self.run(Hook::Forward, passage, &mut [], Local::default());
        self.remember_stop(passage, stopped)
    }

    /// The router sends a packet of its own, which is to leave by the port `to`. Its destination
    /// may be another one behind this, and so its port. `partial` is what [`Arrival::partial`] is.
    ///
    /// # Errors
    /// It goes no further.
    pub fn output(
        &mut self,
        passage: &mut Passage,
        frame: &mut [u8],
        to: u8,
        partial: bool,
    ) -> Result<(), Stop> {
        passage.begin(frame, NO_PORT, partial)?;
        passage.way.to = to;
        self.enter(Hook::Output, passage, frame, Local::default())
    }

    /// The answer to a packet that was rejected is to leave by the port `to`, at which the router
    /// has the addresses `local`. It belongs to the connection of that packet, and ends one of TCP.
    ///
    /// # Errors
    /// It goes no further.
    pub fn answers(
        &mut self,
        rejected: &Passage,
        answer: &mut Passage,
        frame: &mut [u8],
        to: u8,
        local: Local,
    ) -> Result<(), Stop> {
        answer.begin(frame, NO_PORT, false)?;
        answer.way.to = to;
        if let Some(link) = rejected.link.answered() {
            answer.link = link;
            answer.chosen = rejected.chosen;
        }
        // Whether rules let the reset leave or not.
        if let (Some(connections), true) = (self.connections.as_deref_mut(), answer.key.is_tcp()) {
            connections.table.close(&rejected.link, self.now);
        }
        self.run(Hook::Output, answer, frame, Local::default())?;
        self.leave(Hook::Postrouting, answer, frame, local)
    }

    /// The packet leaves by the port `to`, at which the router has the addresses `local`. Its
    /// source may be another one behind this.
    ///
    /// # Errors
    /// It goes no further.
    #[inline]
    pub fn postrouting(
        &mut self,
        passage: &mut Passage,
        frame: &mut [u8],
        to: u8,
        local: Local,
    ) -> Result<(), Stop> {
        passage.way.to = to;
        if let Some(open) = passage.open {
            self.say(Hook::Postrouting);
            if let Some(connections) = self.connections.as_deref() {
                let table = &connections.table;
                table.translate_open(open, Manip::Source, frame, passage.partial);
            }
            return Ok(());
        }
        if passage.way.from == NO_PORT {
            self.permit_at(passage, Course::Out)?;
        }
        self.leave(Hook::Postrouting, passage, frame, local)
    }

    /// See [`Hooks::revalidate`].
    fn permit_at(&mut self, passage: &mut Passage, course: Course) -> Result<(), Stop> {
        let permitted = self.revalidate(passage, course);
        self.remember_stop(passage, permitted)
    }

    /// The first hook of a packet.
    fn enter(
        &mut self,
        hook: Hook,
        passage: &mut Passage,
        frame: &mut [u8],
        local: Local,
    ) -> Result<(), Stop> {
        let Some(connections) = self.connections.as_deref_mut() else {
            return self.run(hook, passage, frame, local);
        };
        match passage.key.fragment() {
            Fragment::Whole => return self.run(hook, passage, frame, local),
            Fragment::First => {
                passage.part = Part::First(connections.fragments.name(&passage.key));
            }
            Fragment::Later => {
                let name = connections.fragments.name(&passage.key);
                let fate = connections.fragments.find(name, self.now);
                let fate = fate.ok_or(Stop::Refused(Refused::Fragment))?;
                match fate.stopped {
                    // Its sender has been told.
                    Some(Stop::Rejected(rule, _)) => return Err(Stop::Rule(rule)),
                    Some(stopped) => return Err(stopped),
                    None => {}
                }
                call(passage, frame, Manip::Destination, fate.destination);
                passage.part = Part::Later(fate.source);
                return Ok(());
            }
        }
        let stopped = self.run(hook, passage, frame, local);
        self.remember_stop(passage, stopped)
    }

    /// The last hook of a packet: behind it, its connection has begun.
    #[inline(never)]
    fn leave(
        &mut self,
        hook: Hook,
        passage: &mut Passage,
        frame: &mut [u8],
        local: Local,
    ) -> Result<(), Stop> {
        if let Part::Later(source) = passage.part {
            call(passage, frame, Manip::Source, source);
            return Ok(());
        }
        let mut stopped = self.run(hook, passage, frame, local);
        if let (Ok(()), Some(connections)) = (stopped, self.connections.as_deref_mut()) {
            let confirmed = connections.table.confirm(&mut passage.link, self.now);
            stopped = confirmed.map_err(Stop::Refused);
            if stopped.is_ok() {
                remember(connections, passage, self.now, None);
            }
        }
        self.remember_stop(passage, stopped)
    }

    /// Remembers that the first part of a packet goes no further, if it does not.
    fn remember_stop(&mut self, passage: &Passage, stopped: Result<(), Stop>) -> Result<(), Stop> {
        if let (Err(why), Some(connections)) = (stopped, self.connections.as_deref_mut()) {
            remember(connections, passage, self.now, Some(why));
        }
        stopped
    }

    /// What happens at a hook, one after the other.
    fn run(
        &mut self,
        hook: Hook,
        passage: &mut Passage,
        frame: &mut [u8],
        local: Local,
    ) -> Result<(), Stop> {
        let rules = self.rules;
        for stage in rules.stages(hook) {
            match stage {
                Stage::Track => self.track(passage, frame),
                Stage::Filter(chain) => {
                    if self.connections.is_some()
                        && passage.link.is_established()
                        && let Some((verdict, rule)) = chain.settled(&passage.key, self.tally)
                    {
                        if verdict == Verdict::Drop {
                            return Err(Stop::Rule(rule));
                        }
                        continue;
                    }
                    let (end, rule) = self.ask(chain, passage);
                    goes_on(end, rule)?;
                }
                Stage::Translate(chains) => {
                    let manip = match hook {
                        Hook::Prerouting | Hook::Output => Manip::Destination,
                        Hook::Input | Hook::Forward | Hook::Postrouting => Manip::Source,
                    };
                    self.translate(chains, passage, frame, manip, local)?;
                }
            }
        }
        Ok(())
    }

    /// The connection of a packet is looked up. Not inlined: other stages need less.
    #[inline(never)]
    fn track(&mut self, passage: &mut Passage, frame: &[u8]) {
        if let Some(connections) = self.connections.as_deref_mut()
            && passage.link.is_unknown()
        {
            // What is invalid is in none.
            let zone = passage.zone.take().unwrap_or_default();
            let Passage {
                key, link, sought, ..
            } = passage;
            connections
                .table
                .look_up(link, key, frame, (*sought, zone), self.now);
        }
    }

    /// What a chain says of a packet, and which rule.
    fn ask(&mut self, chain: &Chain, passage: &mut Passage) -> (End, RuleIndex) {
        let rules = self.rules;
        let Some(connections) = self.connections.as_deref_mut() else {
            let values = Values {
                key: &passage.key,
                way: passage.way,
                connection: None,
                mark: &passage.mark,
            };
            return rules.ask(chain, &values, self.tally);
        };
        let connection: Connection<'_> = connections.table.seen(&passage.link, self.now);
        if let (Some(zone), true) = (passage.zone, passage.link.is_unknown()) {
            connection.is_in_zone(zone);
        }
        let marked = connection.mark();
        let values = Values {
            key: &passage.key,
            way: passage.way,
            connection: Some(&connection),
            mark: &passage.mark,
        };
        let asked = rules.ask(chain, &values, self.tally);
        let (mark, state, zone) = (connection.mark(), connection.state(), connection.zone());
        let begins = passage.link.has_not_begun().is_some();
        let timeouts = begins.then(|| connection.timeouts()).flatten();
        if let Some(timeouts) = timeouts {
            connections.table.set_timeouts(&mut passage.link, &timeouts);
        }
        if zone.is_some() {
            passage.zone = zone;
            passage.link = Link::none(State::New);
        } else if state == State::Untracked {
            passage.link = Link::none(state);
        }
        if mark != marked {
            connections.table.set_mark(&mut passage.link, mark);
        }
        asked
    }

    /// Translates one end of a packet; if it begins a connection, as these chains say.
    fn translate(
        &mut self,
        chains: &[Chain],
        passage: &mut Passage,
        frame: &mut [u8],
        manip: Manip,
        local: Local,
    ) -> Result<(), Stop> {
        if passage.asks(manip) {
            passage.chosen[manip as usize] = true;
            self.choose(chains, passage, manip, local)?;
        }
        if let Some(connections) = self.connections.as_deref_mut() {
            let Passage {
                key, link, partial, ..
            } = passage;
            connections
                .table
                .translate(link, manip, key, frame, *partial);
        }
        Ok(())
    }

    /// Chooses what one end of a connection that begins is called, as these chains say.
    #[inline(never)]
    fn choose(
        &mut self,
        chains: &[Chain],
        passage: &mut Passage,
        manip: Manip,
        local: Local,
    ) -> Result<(), Stop> {
        let mut range = None;
        for chain in chains {
            let (end, rule) = self.ask(chain, passage);
            goes_on(end, rule)?;
            if let End::Nat(number) = end {
                let range_of = range_of(self.rules.nat(number), &passage.key, manip, local);
                range = Some(range_of.ok_or(Stop::Refused(Refused::Address))?);
                break;
            }
        }
        if let Some(connections) = self.connections.as_deref_mut() {
            connections.number += 1;
            connections.table.choose(
                &mut passage.link,
                manip,
                range.as_ref(),
                connections.number,
                self.now,
            );
        }
        Ok(())
    }
}

/// Whether a packet goes on behind a chain that ended so, with this rule.
pub(super) fn goes_on(end: End, rule: RuleIndex) -> Result<(), Stop> {
    match end {
        End::Verdict(Verdict::Accept) | End::Nat(_) => Ok(()),
        End::Verdict(Verdict::Drop) => Err(Stop::Rule(rule)),
        End::Reject(told) => Err(Stop::Rejected(rule, told)),
    }
}

/// What a translation means for a packet; none if the port has no address of its family.
fn range_of(nat: &Nat, key: &Key, manip: Manip, local: Local) -> Option<Range> {
    let addresses = match nat.address {
        NatAddress::Kept => None,
        NatAddress::Given(low, high) => Some((low, high)),
        NatAddress::Network(low, high) => {
            let (source, destination) = ends(key)?;
            let own = match manip {
                Manip::Source => source,
                Manip::Destination => destination,
            };
            let own = match own {
                IpAddr::V4(own) => own.to_bits().into(),
                IpAddr::V6(own) => own.to_bits(),
            };
            let address = low | own & (high - low);
            Some((address, address))
        }
        NatAddress::OfPort => {
            let address = match key.fields().addresses? {
                Addresses::V4 { .. } => local.ip4?.to_bits().into(),
                Addresses::V6 { .. } => local.ip6?.to_bits(),
            };
            Some((address, address))
        }
    };
    Some(Range {
        addresses,
        ports: nat.ports,
        random: nat.random,
        persistent: nat.persistent,
    })
}

/// Remembers what became of the first part of a packet.
fn remember(connections: &mut Connections, passage: &Passage, now: u64, stopped: Option<Stop>) {
    let Part::First(name) = passage.part else {
        return;
    };
    let Some((source, destination)) = ends(&passage.key) else {
        return;
    };
    let fate = Fate {
        stopped,
        source,
        destination,
    };
    connections.fragments.insert(name, now, fate);
}

/// Calls one end of another part of a packet what the first part was called.
fn call(passage: &mut Passage, frame: &mut [u8], manip: Manip, address: IpAddr) {
    let Some((source, destination)) = ends(&passage.key) else {
        return;
    };
    let is_source = manip == Manip::Source;
    let called = if is_source { source } else { destination };
    if called == address {
        return;
    }
    let network = passage.key.network_offset();
    match address {
        IpAddr::V4(address) => translate_later(frame, network, manip, address.octets()),
        IpAddr::V6(address) => translate_later(frame, network, manip, address.octets()),
    }
    passage.key.translate(is_source, address, None);
}

/// Source and destination of a packet.
fn ends(key: &Key) -> Option<(IpAddr, IpAddr)> {
    Some(match key.fields().addresses? {
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
