//! What rules see of the connection that a frame belongs to: nft's `ct`.

use super::Conntrack;
use super::doubt::First;
use super::record::{Flow, Flow4, Flow6, Record, Traffic, status};
use super::timeout::{Ticks, Timeouts};
use super::tuple::{Tuple, Zone};
use crate::fields::{ABSENT, Slot};
use core::cell::Cell;

/// What a frame is to the connection that it belongs to: nft's `ct state`, with its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It belongs to no connection, and begins none.
    Invalid = 1,
    /// The other side has answered.
    Established = 2,
    /// An error about a packet of a connection.
    Related = 4,
    /// It begins a connection, or comes before the first answer.
    New = 8,
    /// It is not tracked.
    Untracked = 64,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [
        Self::Invalid,
        Self::Established,
        Self::Related,
        Self::New,
        Self::Untracked,
    ];

    /// Its name in nft.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Established => "established",
            Self::Related => "related",
            Self::New => "new",
            Self::Untracked => "untracked",
        }
    }
}

impl core::fmt::Display for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// The connection of a frame, as rules see it. Only its mark changes; and it may turn out
/// not to be tracked.
#[derive(Debug)]
pub struct Connection<'a> {
    pub(super) state: Cell<State>,
    pub(super) direction: usize,
    pub(super) flow: View<'a>,
    pub(super) now: Ticks,
    pub(super) mark: Cell<u32>,
    /// The zone of the frame, if rules have said it and there is no connection yet.
    pub(super) zone: Cell<Option<Zone>>,
    /// What it is to have, if it has not begun.
    pub(super) timeouts: Cell<Option<Timeouts>>,
    /// The packet that rules are to judge in the place of the one at hand.
    pub(super) first: Option<&'a First>,
    /// The table that it is in, or may be.
    pub(super) table: Option<&'a Conntrack>,
}

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in no table, or not yet.
    Gone,
    /// TCP: it waits for its end.
    Closed,
    GoesOn,
}

/// A flow of either family.
#[derive(Clone, Copy, Debug)]
pub(super) enum View<'a> {
    None,
    V4(&'a Flow4),
    V6(&'a Flow6),
}

impl<'a> Connection<'a> {
    /// What a frame of this direction is to a flow.
    #[inline(always)]
    pub(super) fn of(
        table: &'a Conntrack,
        flow: View<'a>,
        state: State,
        direction: usize,
        now: Ticks,
    ) -> Self {
        let mark = match flow {
            View::None => 0,
            View::V4(flow) => flow.mark,
            View::V6(flow) => flow.mark,
        };
        Self {
            state: Cell::new(state),
            direction,
            flow,
            now,
            mark: Cell::new(mark),
            zone: Cell::new(None),
            timeouts: Cell::new(None),
            first: None,
            table: Some(table),
        }
    }

    /// Of a frame that has no connection.
    pub(crate) const fn none(state: State) -> Connection<'static> {
        Connection {
            state: Cell::new(state),
            direction: 0,
            flow: View::None,
            now: Ticks(0),
            mark: Cell::new(0),
            zone: Cell::new(None),
            timeouts: Cell::new(None),
            first: None,
            table: None,
        }
    }

    /// `ct state`.
    pub fn state(&self) -> State {
        self.state.get()
    }

    /// There is to be no connection; nothing if there is one already.
    pub(crate) fn untrack(&self) {
        if let (View::None, None) = (self.flow, self.zone.get()) {
            self.state.set(State::Untracked);
        }
    }

    /// Puts the frame into a zone; nothing if there is a connection already, or a zone
    /// (`nft_ct_set_zone_eval`).
    pub(crate) fn set_zone(&self, zone: Zone) {
        if let (View::None, None) = (self.flow, self.zone.get()) {
            self.is_in_zone(zone);
        }
    }

    /// Rules have put the frame into a zone before.
    pub(crate) fn is_in_zone(&self, zone: Zone) {
        self.zone.set(Some(zone));
        self.state.set(State::New);
    }

    /// The zone that rules have put the frame into, which has no connection yet.
    pub(crate) fn zone(&self) -> Option<Zone> {
        self.zone.get()
    }

    /// The zone of the connection.
    fn zone_in_force(&self) -> Option<Zone> {
        match self.flow {
            View::None => None,
            View::V4(flow) => Some(flow.zone()),
            View::V6(flow) => Some(flow.zone()),
        }
    }

    /// Whether the frame goes the way of the connection's answers, if it has one.
    pub fn is_reply(&self) -> bool {
        self.direction == 1
    }

    /// The packet that would begin it, if that is what rules are to judge.
    #[inline(always)]
    pub(crate) fn first(&self) -> Option<&First> {
        self.first
    }

    /// A number that it is known by while it lasts; none if there is no connection.
    pub(crate) fn known_by(&self) -> Option<u64> {
        let table = self.table?;
        match self.flow {
            View::None => None,
            View::V4(flow) => Some(table.table4.known_by(&flow.name()) << 1),
            View::V6(flow) => Some(table.table6.known_by(&flow.name()) << 1 | 1),
        }
    }

    /// What has become of a connection with such a number. Where nobody knows, it goes on.
    pub(crate) fn fate_of(&self, number: u64) -> Fate {
        let fate = self.table.map(|table| match number & 1 {
            0 => table.table4.fate_of(number >> 1, self.now),
            _ => table.table6.fate_of(number >> 1, self.now),
        });
        fate.unwrap_or(Fate::GoesOn)
    }

    pub(crate) fn mark(&self) -> u32 {
        self.mark.get()
    }

    /// Sets `ct mark`, if there is a connection.
    pub(crate) fn set_mark(&self, mark: u32) {
        self.mark.set(mark);
    }

    /// Timeouts that a rule has given it.
    pub(crate) fn timeouts(&self) -> Option<Timeouts> {
        self.timeouts.take()
    }

    /// It is to have these timeouts, if it has not begun and is one of this protocol.
    pub(crate) fn set_timeouts(&self, protocol: u8, timeouts: &Timeouts) {
        let name = match self.flow {
            View::None => return,
            View::V4(flow) => flow.name().protocol,
            View::V6(flow) => flow.name().protocol,
        };
        let has_begun = self.common().is_some_and(|it| it.has(status::CONFIRMED));
        if !has_begun && name == protocol {
            self.timeouts.set(Some(*timeouts));
        }
    }

    fn common(&self) -> Option<&Flow> {
        match self.flow {
            View::None => None,
            View::V4(flow) => Some(flow),
            View::V6(flow) => Some(flow),
        }
    }

    fn ports(&self, direction: usize) -> Option<[u16; 2]> {
        match self.flow {
            View::None => None,
            View::V4(flow) => Some(flow.tuple(direction).ports),
            View::V6(flow) => Some(flow.tuple(direction).ports),
        }
    }

    fn tuple4(&self, direction: usize) -> Option<Tuple<[u8; 4]>> {
        match self.flow {
            View::V4(flow) => Some(flow.tuple(direction)),
            _ => None,
        }
    }

    fn tuple6(&self, direction: usize) -> Option<Tuple<[u8; 16]>> {
        match self.flow {
            View::V6(flow) => Some(flow.tuple(direction)),
            _ => None,
        }
    }

    /// The value of a narrow field.
    pub(crate) fn narrow(&self, slot: Slot) -> u32 {
        let port = |direction, end: usize| self.ports(direction).map(|ports| ports[end].into());
        let address = |address: [u8; 4]| u32::from_be_bytes(address);
        let source = |direction| self.tuple4(direction).map(|tuple| address(tuple.source));
        let destination = |direction| self.tuple4(direction).map(|it| address(it.destination));
        let zone = |direction: usize| {
            let zone = self.zone_in_force();
            zone.map(|zone| zone.of_directions()[direction].into())
        };
        let value = match slot {
            Slot::CtState => return self.state() as u32,
            Slot::CtMark => self.common().map(|_| self.mark.get()),
            Slot::CtStatus => self
                .common()
                .map(|common| u32::from(common.tracker.standing.status & !status::ZONES)),
            Slot::CtZone => self.zone_in_force().map(|zone| zone.number().into()),
            Slot::CtOriginalZone => zone(0),
            Slot::CtReplyZone => zone(1),
            Slot::CtDirection => self.common().map(|_| self.direction as u32),
            Slot::CtExpiration => self.common().map(|common| self.expiration(common)),
            Slot::CtOriginalIp4Source => source(0),
            Slot::CtOriginalIp4Destination => destination(0),
            Slot::CtReplyIp4Source => source(1),
            Slot::CtReplyIp4Destination => destination(1),
            Slot::CtOriginalSourcePort => port(0, 0),
            Slot::CtOriginalDestinationPort => port(0, 1),
            Slot::CtReplySourcePort => port(1, 0),
            Slot::CtReplyDestinationPort => port(1, 1),
            _ => None,
        };
        // Where rules have said a zone and no more, the kernel knows nothing else either.
        value.unwrap_or(ABSENT)
    }

    fn expiration(&self, common: &Flow) -> u32 {
        match common.has(status::CONFIRMED) {
            false => 0,
            true => common.deadline.milliseconds_from(self.now),
        }
    }

    /// The value of a wide field; 0 where there is none, for these fields are never compared
    /// without [`Slot::CtState`].
    pub(crate) fn wide(&self, slot: Slot) -> u128 {
        let source = |direction| self.tuple6(direction).map(|tuple| tuple.source);
        let destination = |direction| self.tuple6(direction).map(|tuple| tuple.destination);
        let address = |address: Option<[u8; 16]>| address.map_or(0, u128::from_be_bytes);
        let sum = |of: fn(&Traffic, usize) -> u64, directions: &[usize]| {
            let Some(common) = self.common() else {
                return 0;
            };
            let each = directions.iter();
            each.map(|direction| u128::from(of(&common.traffic, *direction)))
                .sum()
        };
        match slot {
            Slot::CtOriginalIp6Source => address(source(0)),
            Slot::CtOriginalIp6Destination => address(destination(0)),
            Slot::CtReplyIp6Source => address(source(1)),
            Slot::CtReplyIp6Destination => address(destination(1)),
            Slot::CtBytes => sum(Traffic::bytes, &[0, 1]),
            Slot::CtOriginalBytes => sum(Traffic::bytes, &[0]),
            Slot::CtReplyBytes => sum(Traffic::bytes, &[1]),
            Slot::CtPackets => sum(Traffic::packets, &[0, 1]),
            Slot::CtOriginalPackets => sum(Traffic::packets, &[0]),
            Slot::CtReplyPackets => sum(Traffic::packets, &[1]),
            _ => 0,
        }
    }
}
