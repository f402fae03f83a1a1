//! Multicast Listener Discovery (RFC 2710, RFC 3810), written beside IGMP, with which it shares all
//! but numbers and sizes.

use super::header::Header;
use super::{HEADER, TYPE_IPV6, emit, group_mac, icmp};
use crate::ethernet::Link;
use crate::groups::{self, Query, Said, Told, Types};
use crate::layer::Filled;
use core::net::Ipv6Addr;
use core::time::Duration;

const TYPES: Types = Types {
    report: 143,
    old_report: 131,
    old_leave: 132,
};

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Those that speak version 2 (RFC 3810, 5.2.14).
const ALL_REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Bytes of a question of version 1, and the fewest of one of version 2.
const QUERY_OLD: usize = 24;
const QUERY_MIN: usize = 28;
/// Where a question has its time, and its group.
const CODE_AT: usize = 4;
const GROUP_AT: usize = 8;
/// Hop-by-hop options: routers are to look at the packet for MLD (RFC 2711), and padding. ICMPv6
/// follows.
const ROUTER_ALERT: [u8; 8] = [icmp::PROTOCOL, 0, 5, 2, 0, 0, 1, 0];
/// The number of these options as a next header.
const HOP_BY_HOP: u8 = 0;

/// Reads a question whose checksum is right; `None` if it is malformed.
pub(super) fn parse(message: &[u8]) -> Option<Query<Ipv6Addr>> {
    let fixed: &[u8; QUERY_OLD] = message.first_chunk()?;
    let old = message.len() == QUERY_OLD;
    if !old && message.len() < QUERY_MIN {
        return None;
    }
    let code = u16::from_be_bytes([fixed[CODE_AT], fixed[CODE_AT + 1]]);
    let milliseconds = if old {
        code.into()
    } else {
        groups::decode(code.into(), 12)
    };
    let group = Ipv6Addr::from(*fixed[GROUP_AT..].first_chunk::<16>()?);
    Some(Query {
        group: (!group.is_unspecified()).then_some(group),
        within: Duration::from_millis(milliseconds.into()),
        old,
    })
}

/// Sends a message. One that cannot leave is lost, as it may be on the link.
pub(super) fn send(link: &mut impl Link, source: Ipv6Addr, told: &Told<Ipv6Addr>) {
    let mut message = groups::message(told, &TYPES, &told.group.octets());
    let destination = match (told.old, told.said) {
        (false, _) => ALL_REPORTS,
        (true, Said::Left) => ALL_ROUTERS,
        (true, _) => told.group,
    };
    icmp::complete(source, destination, &mut message);
    let header = Header {
        class: 0,
        payload: 0,
        next: HOP_BY_HOP,
        hops: 1,
        source,
        destination,
    };
    let len = ROUTER_ALERT.len() + message.len();
    let fill = |place: &mut [u8]| {
        emit(header, place, |place| {
            let (options, payload) = place.split_at_mut(ROUTER_ALERT.len());
            options.copy_from_slice(&ROUTER_ALERT);
            payload.copy_from_slice(&message);
            Filled::new(len)
        })
    };
    let _ = link.write(group_mac(destination), TYPE_IPV6, HEADER + len, fill);
}
