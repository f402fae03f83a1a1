//! What most packets are: segments of open connections of TCP that both sides have confirmed, with
//! data or an ACK, inside the windows. What becomes of one is what [`super::track`] says, in fewer
//! steps; what is no such segment is left to it.

use super::connection::State;
use super::flows::Flows;
use super::packet::Plain;
use super::record::status;
use super::timeout::Ticks;
use super::track::{Then, Tracked};
use super::tuple::{Address, Tuple};
use crate::key::protocol;

/// What was found of a packet's direction: its flow and which one it is, if there is one.
pub(super) type Found = Option<(u32, usize)>;

/// What both sides have confirmed has all of them.
const CONFIRMED: u8 = status::SEEN_REPLY | status::ASSURED | status::CONFIRMED;

/// The flow of a segment with these addresses, which takes note of it.
///
/// # Errors
/// It is looked at in full. What was found of its direction.
#[inline(always)]
pub(super) fn go_on<A: Address>(
    flows: &mut Flows<A>,
    plain: &Plain<'_>,
    [source, destination]: [A; 2],
    now: Ticks,
) -> Result<Tracked, Option<Found>> {
    let tuple = Tuple {
        source,
        destination,
        ports: plain.ports,
        vlan: plain.vlan,
        protocol: protocol::TCP,
    };
    let found = flows.find(&tuple, now);
    let (flow, direction) = found.ok_or(Some(None))?;
    if flows.get(flow).tracker.standing.status & CONFIRMED != CONFIRMED {
        return Err(Some(found));
    }
    let record = flows.records.change(flow);
    let class = record.tracker.tcp_mut().goes_on(&plain.segment, direction);
    // If there is none, it is changed in full now.
    let class = class.ok_or(Some(found))?;
    record.traffic.add(direction, plain.length);
    flows.refresh_assured(flow, class, now);
    Ok(Tracked {
        flow,
        direction,
        state: State::Established,
        then: Then::Nothing,
    })
}

/// The same of IPv6, beside the way of most packets.
#[inline(never)]
pub(super) fn go_on6(
    flows: &mut Flows<[u8; 16]>,
    plain: &Plain<'_>,
    ends: [[u8; 16]; 2],
    now: Ticks,
) -> Result<Tracked, Option<Found>> {
    go_on(flows, plain, ends, now)
}
