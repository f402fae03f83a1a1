//! IGMP (RFC 2236, RFC 3376), written by hand: smoltcp's `wire` has no version 3.

use super::header::{Header, SIZE};
use super::{TYPE_IPV4, group_mac};
use crate::ethernet::Link;
use crate::groups::{self, Query, Said, Told, Types};
use crate::icmp::is_intact;
use crate::layer::Filled;
use core::net::Ipv4Addr;
use core::time::Duration;
use device::checksum;

/// Its number as a protocol of IPv4.
pub(super) const PROTOCOL: u8 = 2;

const QUERY: u8 = 0x11;
const TYPES: Types = Types {
    report: 0x22,
    old_report: 0x16,
    old_leave: 0x17,
};

const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Those that speak version 3 (RFC 3376, 4.2.14).
const ALL_REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Bytes of a question of version 2, and the fewest of one of version 3.
const QUERY_OLD: usize = 8;
const QUERY_MIN: usize = 12;
/// One unit of the time that a question gives.
const UNIT: Duration = Duration::from_millis(100);
/// Routers are to look at a packet that is not for them (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];
/// Precedence Internetwork Control (RFC 3376, 4).
const CLASS: u8 = 0xc0;

/// The question in a message; none is in one of another type. `None` if it is malformed.
pub(super) fn parse(message: &[u8]) -> Option<Option<Query<Ipv4Addr>>> {
    let &[kind, code, _, _, a, b, c, d] = message.first_chunk::<QUERY_OLD>()?;
    if !is_intact(message, 0) {
        return None;
    }
    if kind != QUERY {
        return Some(None);
    }
    let old = message.len() == QUERY_OLD;
    if !old && message.len() < QUERY_MIN {
        return None;
    }
    let units = if old {
        code.into()
    } else {
        groups::decode(code.into(), 4)
    };
    let group = Ipv4Addr::new(a, b, c, d);
    Some(Some(Query {
        group: (!group.is_unspecified()).then_some(group),
        within: UNIT * units,
        old,
    }))
}

/// Sends a message. One that cannot leave is lost, as it may be on the link.
pub(super) fn send(link: &mut impl Link, source: Ipv4Addr, told: &Told<Ipv4Addr>) {
    let mut message = groups::message(told, &TYPES, &told.group.octets());
    checksum::complete(&mut message, 0, 2);
    let destination = match (told.old, told.said) {
        (false, _) => ALL_REPORTS,
        (true, Said::Left) => ALL_ROUTERS,
        (true, _) => told.group,
    };
    let front = SIZE + ROUTER_ALERT.len();
    let header = Header {
        class: CLASS,
        total: (front + message.len()) as u16,
        id: 0,
        dont_fragment: true,
        more: false,
        offset: 0,
        hops: 1,
        protocol: PROTOCOL,
        source,
        destination,
    };
    let fill = |place: &mut [u8]| {
        if let Some((fixed, rest)) = place.split_first_chunk_mut::<SIZE>() {
            header.emit(fixed);
            let (options, payload) = rest.split_at_mut(ROUTER_ALERT.len());
            options.copy_from_slice(&ROUTER_ALERT);
            payload.copy_from_slice(&message);
        }
        place[0] += (ROUTER_ALERT.len() / 4) as u8;
        place[10..12].fill(0);
        checksum::complete(&mut place[..front], 0, 10);
        Filled::new(place.len())
    };
    let size = front + message.len();
    let _ = link.write(group_mac(destination), TYPE_IPV4, size, fill);
}
