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
//! | `open` | the same, in fewer steps, of most packets of open connections |
//! | `straight` | the same, in fewer steps still, of those that come in order |
//! | `ahead` | what a batch will need, brought near |
//! | `track` | which flow a packet belongs to, and what it does to it |
//! | `tcp`, `window` | what a segment does, and whether it can be one of its connection |
//! | `timeout`, `policy` | how long a flow stays: [`Class`], [`Timeouts`] |
//! | `flows` | the table, and who makes room in it when it is full |
//! | `hash` | the hash that finds a flow |
//! | `record` | what lies in memory of a flow |
//! | `store`, `cover` | memory that outlives the image, and what is taken up of it |
//! | `fragments` | packets in parts |
//! | `connection` | what rules see: [`Connection`] |
//! | `doubt` | connections that began under other rules, judged anew |
//! | `entry` | the flows of a table, listed for whoever asks: [`Entry`] |
//! | `passing` | a packet on its way through a router |
//! | `choose` | what a connection is called on the other side of one |
//! | `rewrite` | translation of a frame in place |
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
//! | what happens in one VLAN of a bridge is apart from the others | VLANs are one |
//! | addresses, ports and zone of a direction are one connection's | in some zones, maybe two's |
//! | of other protocols than TCP, UDP and ICMP, addresses name a flow | SCTP's ports do, too |
//! | ICMPv6's redirect is invalid | it is an error about what it quotes |
//! | a source has at most a quarter of the table for flows that are not assured | it has all |
//! | a full table gives up its oldest flow that is not assured, or a closing one | it tries few |
//! | with other rules, connections keep the timeouts that rules gave them | they lose them |
//! | `ct count` over 32 may count what has ended, for some packets | for a tick of its clock |
//! | no connection expects another one | helpers do where they are configured |
//!
//! Checksums are left because offloads may not have filled them in.

mod ahead;
mod choose;
mod connection;
mod cover;
mod doubt;
mod entry;
mod flows;
mod fragments;
mod hash;
mod open;
mod packet;
mod passing;
mod policy;
mod record;
mod rewrite;
mod store;
mod straight;
mod tcp;
mod timeout;
mod track;
mod tuple;
mod window;

#[cfg(test)]
mod tests;

pub(crate) use choose::Range;
pub(crate) use connection::Fate;
pub use connection::{Connection, State};
pub use cover::{ALIGN, TakenUp, Unsound, VERSION};
pub(crate) use doubt::{Doubt, First, Trial};
pub use entry::{Entry, LOOKED_AT_MAX, Name};
pub(crate) use fragments::Fragments;
#[cfg(test)]
pub(crate) use open::{FULL, TAKEN};
pub(crate) use passing::{Link, Open};
pub(crate) use policy::TIMEOUTS_MAX;
pub(crate) use rewrite::{Manip, translate_later};
pub use timeout::{Class, STREAM_SECONDS, Timeouts};

use crate::Malformed;
use crate::key::{Addresses, Fragment, Key};
use crate::rule::{RuleIndex, Verdict};
use alloc::boxed::Box;
use connection::View;
use core::fmt;
use cover::Cover;
use flows::{FLOW_BYTES, Flows, INDEX_BYTES};
use packet::Packet;
use store::{Records, Store};
use timeout::Ticks;
use track::{Found, Then, Tracked, recognise};
use tuple::Address;
pub(crate) use tuple::Zone;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Flows of a family that are ended at most by one [`Conntrack::expire`].
pub const EXPIRED_MAX: usize = 64;
/// Most flows of each family: Linux's `nf_conntrack_max` with this much memory.
pub const FLOWS_MAX: usize = 262_144;

/// More flows than this have no numbers.
const FLOWS_LIMIT: usize = (1 << 23) - 1;

/// Why a frame is dropped before any rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It begins a connection, and the table is full of others that stay.
    Full,
    /// It begins a connection, and its source has as many that nobody confirmed as one may have.
    Source,
    /// It is a part of a packet whose first part has not come.
    Fragment,
    /// It begins a connection, and what it is translated to is taken by another one.
    Ports,
    /// It is to be translated to the address of a port that has none.
    Address,
}

impl Refused {
    /// Every reason, in the order of their counters.
    pub const ALL: [Self; 5] = [
        Self::Full,
        Self::Source,
        Self::Fragment,
        Self::Ports,
        Self::Address,
    ];

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
            Self::Ports => "ports_taken",
            Self::Address => "port_without_address",
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
            Self::Ports => {
                "it begins a connection, and what it would be translated to is another one's"
            }
            Self::Address => "it is to be translated to the address of a port that has none",
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
    /// Connections that ended because rules that came later would not let them begin.
    pub revoked: u64,
}

/// Names of what a table counts: how many flows there are of each class, and then what happened.
pub const COUNTED: [&str; Class::ALL.len() + 5] = {
    let mut all = [""; Class::ALL.len() + 5];
    let (classes, counts) = all.split_at_mut(Class::ALL.len());
    let mut at = 0;
    while at < classes.len() {
        classes[at] = Class::ALL[at].name();
        at += 1;
    }
    counts.copy_from_slice(&["begun", "expired", "given_up", "invalid", "revoked"]);
    all
};

/// Connections, and what may come next of each.
#[derive(Debug)]
pub struct Conntrack {
    table4: Flows<[u8; 4]>,
    table6: Flows<[u8; 16]>,
    fragments: Fragments<(Verdict, RuleIndex)>,
    cover: Store<Cover>,
    /// When flows were expired last, if none was left then.
    expired: Ticks,
}

/// What was found of a frame's direction while its connection was looked for.
#[derive(Clone, Copy, Debug)]
pub struct Sought(Option<open::Found>);

impl Sought {
    /// It was not looked for.
    pub const NOTHING: Self = Self(None);
}

/// In the place of what became of a packet that is not known.
const NO_FATE: (Verdict, RuleIndex) = (Verdict::Drop, 0);

impl Conntrack {
    /// A table of so many flows of IPv4, and as many of IPv6. The key is secret: whoever knows it
    /// can make packets that are slow to look up.
    pub fn new(flows: usize, key: &[u8; 16]) -> Self {
        let flows = flows.clamp(1, FLOWS_LIMIT);
        Self {
            table4: Flows::new(Records::new(flows), key),
            table6: Flows::new(Records::new(flows), key),
            fragments: Fragments::new(key, NO_FATE),
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

    /// Whether a frame is what most are: a segment of TCP over IPv4, of a connection that both
    /// sides have confirmed. The connection takes note of it then, and the packet is established.
    /// `now` is as in [`Self::judge`].
    ///
    /// # Errors
    /// It is another one. It is to be judged, with what was found of it.
    #[inline(always)]
    pub fn goes_on(&mut self, frame: &[u8], now: u64) -> Result<(), Sought> {
        let found = open::go_on4(&mut self.table4, frame, Ticks::of(now));
        found.map(|_| ()).map_err(Sought)
    }

    /// Rules judge a frame, and see its connection; they are asked at most once, and once more
    /// before if the connection began under others ([`Self::revalidate`]). `sought` is what
    /// [`Self::goes_on`] has found, if it was asked. `now` is a time in nanoseconds that does not
    /// go back.
    ///
    /// # Errors
    /// It is dropped before any rule.
    #[inline]
    pub fn judge(
        &mut self,
        key: &Key,
        frame: &[u8],
        sought: Sought,
        now: u64,
        mut rules: impl FnMut(&Connection<'_>) -> (Verdict, RuleIndex),
    ) -> Result<(Verdict, RuleIndex), Refused> {
        if key.fragment() == Fragment::Later {
            let fate = self.fragments.find(self.fragments.name(key), now);
            return fate.ok_or(Refused::Fragment);
        }
        let ticks = Ticks::of(now);
        let known = match sought.0 {
            None => self.go_on(key, frame, ticks),
            found => Err(found),
        };
        let (family, tracked) = match known {
            Ok(known) => known,
            Err(sought) => {
                let found = self.find_or_begin(key, frame, sought, ticks)?;
                if let Some(fate) = self.revoke_unless(key, found, now, &mut rules) {
                    return Ok(fate);
                }
                found
            }
        };
        let view = match family {
            Family::None => View::None,
            Family::V4 => View::V4(self.table4.get(tracked.flow)),
            Family::V6 => View::V6(self.table6.get(tracked.flow)),
        };
        let connection = Connection::of(self, view, tracked.state, tracked.direction, ticks);
        let marked = connection.mark();
        let fate = rules(&connection);
        let mark = connection.mark();
        let mark = (mark != marked).then_some(mark);
        let timeouts = match tracked.then {
            Then::Begin(_) => connection.timeouts(),
            Then::Nothing | Then::End => None,
        };
        match family {
            Family::None => {}
            Family::V4 => conclude(&mut self.table4, &tracked, mark),
            Family::V6 => conclude(&mut self.table6, &tracked, mark),
        }
        if tracked.then != Then::Nothing {
            self.end_or_begin(family, &tracked, (fate.0, timeouts), ticks);
        }
        if key.fragment() == Fragment::First {
            self.fragments.insert(self.fragments.name(key), now, fate);
        }
        Ok(fate)
    }

    /// The flow of most packets of open connections, which takes note of this one.
    ///
    /// # Errors
    /// It is none of them. What was found of its direction, if it was looked for.
    #[inline(always)]
    fn go_on(
        &mut self,
        key: &Key,
        frame: &[u8],
        now: Ticks,
    ) -> Result<(Family, Tracked), Option<open::Found>> {
        if let Some(ends) = key.ends4() {
            let tracked = open::go_on(&mut self.table4, key, frame, ends, now)?;
            return Ok((Family::V4, tracked));
        }
        let tracked = open::go_on6(&mut self.table6, key, frame, now)?;
        Ok((Family::V6, tracked))
    }

    /// The flow of any packet, which takes note of it. If it begins one, that is in the table, but
    /// nobody finds it yet.
    #[inline(never)]
    fn find_or_begin(
        &mut self,
        key: &Key,
        frame: &[u8],
        sought: Option<open::Found>,
        now: Ticks,
    ) -> Result<(Family, Tracked), Refused> {
        let none = |state| (Family::None, Tracked::none(state));
        let Some((packet, addresses)) = packet_of(key, frame, Zone::default()) else {
            return Ok(none(State::Untracked));
        };
        let counts = &mut self.cover.counts;
        Ok(match addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                let found = recognise(&mut self.table4, counts, &packet, ends, sought, now);
                match found {
                    Ok(found) => (Family::V4, take(&mut self.table4, counts, found)?),
                    Err(state) => none(state),
                }
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let ends = [source.octets(), destination.octets()];
                let found = recognise(&mut self.table6, counts, &packet, ends, sought, now);
                match found {
                    Ok(found) => (Family::V6, take(&mut self.table6, counts, found)?),
                    Err(state) => none(state),
                }
            }
        })
    }

    /// Does what is to be done of a flow once rules have judged.
    #[inline(never)]
    fn end_or_begin(
        &mut self,
        family: Family,
        tracked: &Tracked,
        said: (Verdict, Option<Timeouts>),
        now: Ticks,
    ) {
        let counts = &mut self.cover.counts;
        match family {
            Family::None => {}
            Family::V4 => end_or_begin(&mut self.table4, counts, tracked, said, now),
            Family::V6 => end_or_begin(&mut self.table6, counts, tracked, said, now),
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
            revoked,
        } = self.cover.counts;
        let happened = [begun, expired, given_up, invalid, revoked];
        numbers[Class::ALL.len()..].copy_from_slice(&happened);
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
fn packet_of<'a>(key: &Key, frame: &'a [u8], zone: Zone) -> Option<(Packet<'a>, Addresses)> {
    let place = key.packet()?;
    let packet = Packet {
        length: (place.end - place.network) as u32,
        places: match zone.is_none() {
            true => [place.vlan; 2],
            // A router's packets have no VLAN.
            false => zone.of_directions(),
        },
        zone,
        protocol: place.protocol,
        payload: frame.get(place.transport..place.end)?,
        cut: key.fragment() != Fragment::Whole,
    };
    Some((packet, place.addresses))
}

/// Which table a flow is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// There is no flow.
    None,
    V4,
    V6,
}

/// The flow that was found, or a place for the one that begins.
fn take<A: Address>(
    flows: &mut Flows<A>,
    counts: &mut Counts,
    found: Found<A>,
) -> Result<Tracked, Refused> {
    match found {
        Found::Known(tracked) => Ok(tracked),
        Found::Begins(flow, class) => {
            let (flow, given_up) = flows.take(flow)?;
            counts.given_up += u64::from(given_up);
            Ok(Tracked {
                flow,
                direction: 0,
                state: State::New,
                then: Then::Begin(class),
            })
        }
    }
}

/// The flow of a packet that was judged is what it is now, with this mark if it has another one.
#[inline(always)]
fn conclude<A: Address>(flows: &mut Flows<A>, tracked: &Tracked, mark: Option<u32>) {
    if let Some(mark) = mark {
        flows.get_mut(tracked.flow).mark = mark;
    }
    if tracked.then == Then::Nothing {
        flows.records.changed();
    }
}

fn end_or_begin<A: Address>(
    flows: &mut Flows<A>,
    counts: &mut Counts,
    tracked: &Tracked,
    (verdict, timeouts): (Verdict, Option<Timeouts>),
    now: Ticks,
) {
    match tracked.then {
        Then::Nothing => {}
        Then::End => {
            flows.remove(tracked.flow);
            flows.records.changed();
        }
        Then::Begin(mut class) if verdict == Verdict::Accept => {
            counts.begun += 1;
            if let Some(timeouts) = timeouts {
                let mut record = *flows.get(tracked.flow);
                class = flows.choose_timeouts(&mut record, class, &timeouts);
                *flows.get_mut(tracked.flow) = record;
            }
            flows.confirm(tracked.flow, class, now);
        }
        Then::Begin(_) => flows.give_back(tracked.flow),
    }
}
