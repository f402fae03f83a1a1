//! What most packets are: segments of open connections of TCP that both sides have confirmed, with
//! data or an ACK, inside the windows. What becomes of one is what [`super::track`] says, in fewer
//! steps; what is no such segment is left to it.

use super::connection::State;
use super::flows::Flows;
use super::packet::{self, Plain};
use super::timeout::Ticks;
use super::track::{Then, Tracked};
use super::tuple::{Address, Tuple};
use crate::key::{Key, protocol};

/// What was found of a packet's direction: its flow and which one it is, if there is one.
pub(super) type Found = Option<(u32, usize)>;

#[cfg(test)]
std::thread_local! {
    /// Whether each packet is looked at in full.
    pub(crate) static FULL: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    /// How many took fewer steps.
    pub(crate) static TAKEN: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
    /// How many of those came in order.
    pub(crate) static STRAIGHT: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// The flow of such a segment, between these addresses, which takes note of it.
///
/// # Errors
/// It is looked at in full. What was found of its direction.
#[inline(always)]
pub(super) fn go_on<A: Address>(
    flows: &mut Flows<A>,
    key: &Key,
    frame: &[u8],
    [source, destination]: [A; 2],
    now: Ticks,
) -> Result<Tracked, Option<Found>> {
    #[cfg(test)]
    if FULL.get() {
        return Err(None);
    }
    let plain = packet::plain(key, frame).ok_or(None::<Found>)?;
    note(flows, &plain, [source, destination], now)
}

/// The same of IPv4, of a frame that nobody has read yet: its flow, and which direction of it.
#[inline(always)]
pub(super) fn go_on4(
    flows: &mut Flows<[u8; 4]>,
    frame: &[u8],
    now: Ticks,
) -> Result<(u32, usize), Option<Found>> {
    #[cfg(test)]
    if FULL.get() {
        return Err(None);
    }
    if !packet::may_be_plain4(frame) {
        return Err(None);
    }
    if let Some(straight) = packet::straight4(frame)
        && let Some((flow, direction)) = flows.find_straight(&straight, now)
        && let Some(()) = flows.go_straight(flow, &straight, direction, now)
    {
        #[cfg(test)]
        {
            TAKEN.set(TAKEN.get() + 1);
            STRAIGHT.set(STRAIGHT.get() + 1);
        }
        return Ok((flow, direction));
    }
    go_on4_beside(flows, frame, now)
}

/// The same of those that are not [`packet::Straight`], or not next.
#[inline(never)]
fn go_on4_beside(
    flows: &mut Flows<[u8; 4]>,
    frame: &[u8],
    now: Ticks,
) -> Result<(u32, usize), Option<Found>> {
    let (plain, ends) = packet::plain4(frame).ok_or(None::<Found>)?;
    let tracked = note(flows, &plain, ends, now)?;
    flows.records.changed();
    Ok((tracked.flow, tracked.direction))
}

#[inline(always)]
fn note<A: Address>(
    flows: &mut Flows<A>,
    plain: &Plain<'_>,
    [source, destination]: [A; 2],
    now: Ticks,
) -> Result<Tracked, Option<Found>> {
    let tuple = Tuple {
        source,
        destination,
        ports: plain.ports,
        place: plain.vlan,
        protocol: protocol::TCP,
    };
    let found = flows.find(&tuple, now);
    let (flow, direction) = found.ok_or(Some(None))?;
    // What is not noted has changed nothing; it is looked at in full now.
    flows.note(flow, plain, direction, now).ok_or(Some(found))?;
    #[cfg(test)]
    TAKEN.set(TAKEN.get() + 1);
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
    key: &Key,
    frame: &[u8],
    now: Ticks,
) -> Result<Tracked, Option<Found>> {
    go_on(flows, key, frame, key.ends6(), now)
}
