//! What most packets are: segments of open connections of TCP that both sides have confirmed, with
//! data or an ACK, inside the windows. What becomes of one is what [`super::track`] says, in fewer
//! steps; what is no such segment is left to it.

use super::connection::State;
use super::flows::Flows;
use super::packet::{self, Packet};
use super::record::status;
use super::timeout::Ticks;
use super::track::{Then, Tracked};
use super::tuple::{Address, Tuple};
use crate::key::protocol;

/// Whether a packet is such a segment.
pub(super) enum Opened {
    /// It is, and its flow has taken note of it.
    On(Tracked),
    /// It is not. What was found of its direction, if it was looked for.
    Other(Option<Found>),
}

/// A flow and its direction, if there is one.
pub(super) type Found = Option<(u32, usize)>;

/// What both sides have confirmed has all of them.
const CONFIRMED: u8 = status::SEEN_REPLY | status::ASSURED | status::CONFIRMED;

/// Looks at a packet with these addresses.
#[inline(always)]
pub(super) fn go_on<A: Address>(
    flows: &mut Flows<A>,
    packet: &Packet<'_>,
    [source, destination]: [A; 2],
    now: Ticks,
) -> Opened {
    let Some((ports, segment)) = packet::plain_segment(packet) else {
        return Opened::Other(None);
    };
    let tuple = Tuple {
        source,
        destination,
        ports,
        vlan: packet.vlan,
        protocol: protocol::TCP,
    };
    let found = flows.find(&tuple, now);
    let Some((flow, direction)) = found else {
        return Opened::Other(Some(None));
    };
    let confirmed = flows.get(flow).tracker.standing.status & CONFIRMED == CONFIRMED;
    if !confirmed {
        return Opened::Other(Some(found));
    }
    let record = flows.records.change(flow);
    let Some(class) = record.tracker.tcp_mut().goes_on(&segment, direction) else {
        // It is changed in full now.
        return Opened::Other(Some(found));
    };
    record.traffic.add(direction, packet.length);
    flows.refresh(flow, class, now);
    Opened::On(Tracked {
        flow,
        direction,
        state: State::Established,
        then: Then::Nothing,
    })
}
