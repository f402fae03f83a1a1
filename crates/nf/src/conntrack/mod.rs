//! Connection tracking: which packets belong together, and what may come next.
//!
//! [`Conntrack::judge`] finds the connection that a frame belongs to, has rules judge it, and
//! remembers a new connection if they accept it. All decisions are pure, with the time as a
//! parameter, and nothing is allocated after the start.
//!
//! | module | what |
//! |---|---|
//! | `packet` | what is read of a packet besides its key |
//! | `tuple` | what names a direction of a flow |
//! | `tcp`, `window` | what a segment does, and whether it can be one of its connection |
//! | `timeout` | how long a flow stays: [`Class`] |
//! | `flows` | the table, and who makes room in it when it is full |
//! | `record` | what lies in memory of a flow |
//! | `store`, `cover` | memory that outlives the image, and what is taken up of it |
//! | `fragments` | packets in parts |
//! | `connection` | what rules see: [`Connection`] |
//!
//! A connection means what it means to Linux, with its defaults (`nf_conntrack` of Linux 6.18),
//! except for this, which is chosen:
//!
//! | here | in the kernel |
//! |---|---|
//! | a fragment shares the fate of the first, and is dropped before it | they are put together |
//! | `ct bytes` counts no fragment behind the first one | it counts whole packets |
//! | a connection of which a segment came in fragments has no windows | it has |
//! | checksums of TCP, UDP and ICMP are left to the receiver | a wrong one is invalid |
//! | what happens in one VLAN is apart from the others | VLANs are one |
//! | of other protocols than TCP, UDP and ICMP, addresses name a flow | SCTP's ports do, too |
//! | ICMPv6's redirect is invalid | it is an error about what it quotes |
//! | a source has at most a quarter of the table for flows that are not assured | it has all |
//! | a full table gives up its oldest flow that is not assured, or a closing one | it tries few |
//! | no connection expects another one | helpers do where they are configured |
//!
//! Checksums are left because offloads may not have filled them in.

mod connection;
mod cover;
mod flows;
mod fragments;
mod packet;
mod record;
mod store;
mod tcp;
mod timeout;
mod tuple;
mod window;

#[cfg(test)]
mod tests;

pub use connection::{Connection, State};
pub use cover::{ALIGN, TakenUp, Unsound, VERSION};
pub use timeout::{Class, STREAM_SECONDS};

use crate::Malformed;
use crate::key::{Addresses, Fragment, Key};
use crate::rule::{RuleIndex, Verdict};
use alloc::boxed::Box;
use connection::View;
use core::cell::Cell;
use core::fmt;
use cover::Cover;
use flows::{FLOW_BYTES, Flows, INDEX_BYTES};
use fragments::Fragments;
use packet::{Content, Packet};
use record::{Flow, Flow4, Flow6, Record, Tracker, status};
use store::{Records, Store};
use tcp::{Known, Outcome, Tcp};
use timeout::Ticks;
use tuple::{Address, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Flows of a family that are ended at most by one [`Conntrack::expire`].
pub const EXPIRED_MAX: usize = 64;
/// Most flows of each family: Linux's `nf_conntrack_max` with this much memory.
pub const FLOWS_MAX: usize = 262_144;

/// Why a frame is dropped before any rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It begins a connection, and the table is full of others that stay.
    Full,
    /// It begins a connection, and its source has as many that nobody confirmed as one may have.
    Source,
    /// It is a part of a packet whose first part has not come.
    Fragment,
}

impl Refused {
    /// Every reason, in the order of their counters.
    pub const ALL: [Self; 3] = [Self::Full, Self::Source, Self::Fragment];

    /// Number of the reason's counter: behind those of [`Malformed`], which begin at 0.
    pub fn index(self) -> usize {
        Malformed::ALL.len() + self as usize
    }

    /// Name of the reason's counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "connections_full",
            Self::Source => "connections_of_source",
            Self::Fragment => "fragment_before_first",
        }
    }

    /// What is wrong, as a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Full => "it begins a connection, and the table of connections is full",
            Self::Source => {
                "it begins a connection, and its source has too many that nobody confirmed"
            }
            Self::Fragment => "it is a fragment that came before the first one of its packet",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What has happened in a table so far.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Counts {
    /// Connections that began.
    pub begun: u64,
    /// Connections whose time was up.
    pub expired: u64,
    /// Connections that made room for others.
    pub given_up: u64,
    /// Frames that belong to no connection and begin none.
    pub invalid: u64,
}

/// Names of what a table counts: how many flows there are of each class, and then what happened.
pub const COUNTED: [&str; Class::ALL.len() + 4] = {
    let mut all = [""; Class::ALL.len() + 4];
    let (classes, counts) = all.split_at_mut(Class::ALL.len());
    let mut at = 0;
    while at < classes.len() {
        classes[at] = Class::ALL[at].name();
        at += 1;
    }
    counts.copy_from_slice(&["begun", "expired", "given_up", "invalid"]);
    all
};

/// Connections, and what may come next of each.
#[derive(Debug)]
pub struct Conntrack {
    table4: Flows<[u8; 4]>,
    table6: Flows<[u8; 16]>,
    fragments: Fragments,
    cover: Store<Cover>,
    /// When flows were expired last, if none was left then.
    expired: Ticks,
}

/// What judges a frame, and sees its connection. It is called at most once.
pub type Rules<'a> = &'a mut dyn FnMut(&Connection<'_>) -> (Verdict, RuleIndex);

/// A frame whose connection is known.
#[derive(Clone, Copy)]
struct Tracked {
    flow: u32,
    direction: usize,
    state: State,
    then: Then,
}

/// What is done once rules have judged a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// If it is accepted, its connection begins.
    Begin(Class),
    /// The connection ends.
    End,
}

impl Conntrack {
    /// A table of so many flows of IPv4, and as many of IPv6. The key is secret: whoever knows it
    /// can make packets that are slow to look up.
    pub fn new(flows: usize, key: &[u8; 16]) -> Self {
        let flows = flows.clamp(1, 1 << 30);
        Self {
            table4: Flows::new(Records::new(flows), key),
            table6: Flows::new(Records::new(flows), key),
            fragments: Fragments::new(key),
            cover: Store::Heap(Box::new(Cover::new(flows))),
            expired: Ticks::default(),
        }
    }

    /// Bytes of heap that a table of so many flows takes, a power of two.
    pub const fn memory(flows: usize) -> usize {
        flows.saturating_mul(FLOW_BYTES[0] + FLOW_BYTES[1])
    }

    /// Bytes of heap that a table of so many flows takes beside memory that outlives the image.
    pub const fn index_memory(flows: usize) -> usize {
        flows.saturating_mul(INDEX_BYTES)
    }

    /// Rules judge a frame, and see its connection. `now` is a time in nanoseconds that does not
    /// go back.
    ///
    /// # Errors
    /// It is dropped before any rule.
    #[inline]
    pub fn judge(
        &mut self,
        key: &Key,
        frame: &[u8],
        now: u64,
        rules: Rules<'_>,
    ) -> Result<(Verdict, RuleIndex), Refused> {
        let now = Ticks::of(now);
        match key.fragment() {
            Fragment::Whole => self.judge_packet(key, frame, now, rules),
            Fragment::Later => {
                let fate = self
                    .fragments
                    .find(&key.fields(), key.identification(), now);
                fate.ok_or(Refused::Fragment)
            }
            Fragment::First => {
                let fate = self.judge_packet(key, frame, now, rules)?;
                let (fields, id) = (key.fields(), key.identification());
                self.fragments.insert(&fields, id, now, fate);
                Ok(fate)
            }
        }
    }

    #[inline]
    fn judge_packet(
        &mut self,
        key: &Key,
        frame: &[u8],
        now: Ticks,
        rules: Rules<'_>,
    ) -> Result<(Verdict, RuleIndex), Refused> {
        let Some((packet, addresses)) = packet_of(key, frame) else {
            return Ok(rules(&Connection::untracked()));
        };
        let counts = &mut self.cover.counts;
        match addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                judge_in(&mut self.table4, counts, &packet, ends, now, rules)
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                judge_in(&mut self.table6, counts, &packet, ends, now, rules)
            }
        }
    }

    /// Ends connections whose time is up, at most [`EXPIRED_MAX`] of each family. To be called
    /// before each batch; a connection that waits to be ended is one no more.
    /// It does nothing, and says so, if it was called a moment ago.
    pub fn expire(&mut self, now: u64) -> bool {
        let now = Ticks::of(now);
        if now == self.expired {
            return false;
        }
        let ended = [
            self.table4.expire(now, EXPIRED_MAX),
            self.table6.expire(now, EXPIRED_MAX),
        ];
        self.cover.counts.expired += ended.iter().sum::<usize>() as u64;
        if !ended.contains(&EXPIRED_MAX) {
            self.expired = now;
        }
        true
    }

    /// Most flows of each family.
    pub fn capacity(&self) -> usize {
        self.table4.capacity()
    }

    /// There are other rules from now on: connections go on, and what became of the first parts of
    /// packets is forgotten.
    pub fn rules_changed(&mut self) {
        self.fragments.clear();
    }

    /// Everything that is counted: flows by [`Class`], then [`Counts`], in the order of
    /// [`COUNTED`].
    pub fn numbers(&self) -> [u64; COUNTED.len()] {
        let mut numbers = [0; COUNTED.len()];
        for (number, class) in numbers.iter_mut().zip(Class::ALL) {
            *number = self.count(class).into();
        }
        let Counts {
            begun,
            expired,
            given_up,
            invalid,
        } = self.cover.counts;
        numbers[Class::ALL.len()..].copy_from_slice(&[begun, expired, given_up, invalid]);
        numbers
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.cover.counts
    }

    /// Connections of a class.
    pub fn count(&self, class: Class) -> u32 {
        self.table4.count(class) + self.table6.count(class)
    }
}

/// The packet that a frame is, and its addresses; none if it is not IP.
#[inline]
fn packet_of<'a>(key: &Key, frame: &'a [u8]) -> Option<(Packet<'a>, Addresses)> {
    let place = key.packet()?;
    let packet = Packet {
        length: (place.end - place.network) as u32,
        vlan: place.vlan,
        protocol: place.protocol,
        payload: frame.get(place.transport..place.end)?,
        cut: key.fragment() != Fragment::Whole,
    };
    Some((packet, place.addresses))
}

fn judge_in<A: Address>(
    flows: &mut Flows<A>,
    counts: &mut Counts,
    packet: &Packet<'_>,
    [source, destination]: [A; 2],
    now: Ticks,
    rules: Rules<'_>,
) -> Result<(Verdict, RuleIndex), Refused> {
    let (tuple, content) = match packet::read(packet, A::ICMP) {
        Some((_, Content::Untracked)) => return Ok(rules(&Connection::untracked())),
        Some((ports, content)) => {
            let tuple = Tuple {
                source,
                destination,
                ports,
                vlan: packet.vlan,
                protocol: packet.protocol,
            };
            (tuple, content)
        }
        None => {
            counts.invalid += 1;
            return Ok(rules(&Connection::invalid()));
        }
    };
    let tracked = match content {
        Content::Error(quote) => error(flows, quote, &tuple, now),
        _ => track(flows, counts, packet, &tuple, &content, now)?,
    };
    let Some(Tracked {
        flow,
        direction,
        state,
        then,
    }) = tracked
    else {
        counts.invalid += 1;
        return Ok(rules(&Connection::invalid()));
    };
    let known = flows.get(flow);
    let marked = known.mark;
    let connection = Connection {
        state,
        direction,
        flow: A::view(known),
        now,
        mark: Cell::new(marked),
    };
    let fate = rules(&connection);
    let mark = connection.mark.get();
    if mark != marked {
        flows.get_mut(flow).mark = mark;
    }
    match then {
        Then::Nothing => flows.records.changed(),
        Then::End => {
            flows.remove(flow);
            flows.records.changed();
        }
        Then::Begin(class) if fate.0 == Verdict::Accept => {
            counts.begun += 1;
            flows.confirm(flow, class, now);
        }
        Then::Begin(_) => flows.give_back(flow),
    }
    Ok(fate)
}

/// An error about a packet of a connection, which whoever sent that packet is told.
fn error<A: Address>(
    flows: &Flows<A>,
    quote: &[u8],
    outer: &Tuple<A>,
    now: Ticks,
) -> Option<Tracked> {
    let quoted = A::quoted(quote, outer.vlan)?;
    let (flow, direction) = flows.find(&quoted.reversed()?, now)?;
    (outer.destination == quoted.source).then_some(Tracked {
        flow,
        direction,
        state: State::Related,
        then: Then::Nothing,
    })
}

/// What is known of a packet's connection, which takes note of it; none if it is invalid.
fn track<A: Address>(
    flows: &mut Flows<A>,
    counts: &mut Counts,
    packet: &Packet<'_>,
    tuple: &Tuple<A>,
    content: &Content<'_>,
    now: Ticks,
) -> Result<Option<Tracked>, Refused> {
    if let Some((flow, direction)) = flows.find(tuple, now) {
        match carry_on(flows, packet, flow, direction, content, now) {
            Carried::On(tracked) => return Ok(tracked),
            Carried::Over => {
                flows.remove(flow);
                flows.records.changed();
            }
        }
    }
    let Some((tracker, class)) = open(tuple, content, now) else {
        return Ok(None);
    };
    let mut flow = A::Record::new(tuple, tracker);
    flow.traffic[0].add(packet.length);
    if packet.cut && matches!(content, Content::Tcp(_)) {
        flow.tracker.tcp_mut().window.be_liberal();
    }
    let (flow, given_up) = flows.take(flow)?;
    counts.given_up += u64::from(given_up);
    Ok(Some(Tracked {
        flow,
        direction: 0,
        state: State::New,
        then: Then::Begin(class),
    }))
}

/// A connection that a packet begins.
fn open<A: Address>(
    tuple: &Tuple<A>,
    content: &Content<'_>,
    now: Ticks,
) -> Option<(Tracker, Class)> {
    tuple.reversed()?;
    match content {
        Content::Tcp(segment) => {
            let mut tcp = Tcp::open(segment)?;
            let known = Known {
                direction: 0,
                replied: false,
                assured: false,
            };
            match tcp.segment(segment, known) {
                Outcome::Stays { class, .. } => Some((Tracker::of_tcp(tcp), class)),
                _ => None,
            }
        }
        Content::Udp => {
            let stream = now.after(Ticks::of_seconds(STREAM_SECONDS));
            Some((Tracker::of_udp(stream), Class::Udp))
        }
        Content::Icmp => {
            let question = tuple::is_question(A::ICMP, tuple.ports[1]);
            question.then_some((Tracker::empty(), Class::Icmp))
        }
        Content::Other => Some((Tracker::empty(), Class::Generic)),
        Content::Error(_) | Content::Untracked => None,
    }
}

/// What comes of a packet of a connection.
enum Carried {
    On(Option<Tracked>),
    /// The connection was over: the packet begins another one.
    Over,
}

/// What a packet does to its flow, which has its protocol.
#[inline(always)]
fn outcome(
    flow: &mut Flow,
    packet: &Packet<'_>,
    content: &Content<'_>,
    known: Known,
    now: Ticks,
) -> Outcome {
    let always = |class| Outcome::Stays {
        class,
        assured: false,
    };
    match content {
        Content::Tcp(segment) => {
            let tcp = flow.tracker.tcp_mut();
            let outcome = tcp.segment(segment, known);
            if packet.cut && matches!(outcome, Outcome::Stays { .. }) {
                tcp.window.be_liberal();
            }
            outcome
        }
        Content::Udp => {
            let assured = known.replied && now > flow.tracker.stream();
            let class = if assured {
                Class::UdpStream
            } else {
                Class::Udp
            };
            Outcome::Stays { class, assured }
        }
        Content::Icmp => always(Class::Icmp),
        Content::Other => always(Class::Generic),
        Content::Error(_) | Content::Untracked => Outcome::Invalid,
    }
}

fn carry_on<A: Address>(
    flows: &mut Flows<A>,
    packet: &Packet<'_>,
    number: u32,
    direction: usize,
    content: &Content<'_>,
    now: Ticks,
) -> Carried {
    let flow = flows.records.change(number);
    let known = Known {
        direction,
        replied: flow.has(status::SEEN_REPLY),
        assured: flow.has(status::ASSURED),
    };
    let outcome = outcome(flow, packet, content, known, now);
    let mut then = Then::Nothing;
    match outcome {
        Outcome::Invalid => {
            flows.records.changed();
            return Carried::On(None);
        }
        Outcome::Reopens => return Carried::Over,
        Outcome::Ignored => {}
        Outcome::Ends => {
            flow.traffic[direction].add(packet.length);
            then = Then::End;
        }
        Outcome::Stays { .. } => flow.traffic[direction].add(packet.length),
    }
    if direction == 1 {
        flow.status |= status::SEEN_REPLY;
    }
    if let Outcome::Stays { class, assured } = outcome {
        if assured && !known.assured {
            flows.assure(number);
        }
        flows.refresh(number, class, now);
    }
    let answered = known.replied || direction == 1;
    Carried::On(Some(Tracked {
        flow: number,
        direction,
        state: if answered {
            State::Established
        } else {
            State::New
        },
        then,
    }))
}

impl Address for [u8; 4] {
    type Record = Flow4;
    const ICMP: u8 = crate::protocol::ICMP;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    fn network(&self) -> u64 {
        u32::from_be_bytes(*self).into()
    }

    fn view(flow: &Flow4) -> View<'_> {
        View::V4(flow)
    }

    fn quoted(bytes: &[u8], vlan: u16) -> Option<Tuple<Self>> {
        packet::quoted4(bytes, vlan)
    }
}

impl Address for [u8; 16] {
    type Record = Flow6;
    const ICMP: u8 = crate::protocol::ICMPV6;

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    fn network(&self) -> u64 {
        (u128::from_be_bytes(*self) >> 64) as u64
    }

    fn view(flow: &Flow6) -> View<'_> {
        View::V6(flow)
    }

    fn quoted(bytes: &[u8], vlan: u16) -> Option<Tuple<Self>> {
        packet::quoted6(bytes, vlan)
    }
}
