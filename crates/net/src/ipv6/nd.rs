//! Messages of Neighbour Discovery (RFC 4861, 4 and 6.1 and 7.1), read and written by smoltcp's
//! `wire`: there are few of them.

use super::addresses::Lifetimes;
use super::icmp;
use crate::address::Prefix;
use crate::ethernet::Mac;
use arrayvec::ArrayVec;
use core::net::Ipv6Addr;
use core::time::Duration;
use ports::Instant;
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{
    EthernetAddress, Icmpv6Packet, Icmpv6Repr, NdiscNeighborFlags, NdiscOption, NdiscOptionRepr,
    NdiscPrefixInfoFlags, NdiscRepr, RawHardwareAddress,
};

/// Hops of a message, which no router can have passed on (RFC 4861, 11.2).
pub(super) const HOPS: u8 = 255;
/// All stations.
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers.
pub(super) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Bytes of the longest message that we send: a target and one link address.
pub(super) const LEN_MAX: usize = 32;

/// Prefixes of one advertisement.
pub(super) const PREFIXES_MAX: usize = 8;
/// Bytes of a router advertisement in front of its options.
const ADVERTISEMENT: usize = 16;
/// Bytes of a unit in which options are counted.
const OPTION_UNIT: usize = 8;
/// A lifetime that does not end (RFC 4861, 4.6.2).
const INFINITE: u64 = 0xffff_ffff;

/// A prefix that a router tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    pub prefix: Prefix<Ipv6Addr>,
    /// Its addresses are on this link.
    pub on_link: bool,
    /// Stations may choose addresses in it.
    pub autonomous: bool,
    pub lifetimes: Lifetimes,
}

/// A message that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is looked at and gone; none is kept"
)]
pub(super) enum Message {
    /// Who has the target?
    Solicit {
        target: Ipv6Addr,
        /// Where who asks is; `None` if it asks whether it may have the target.
        mac: Option<Mac>,
    },
    /// The target is there.
    Advertise {
        target: Ipv6Addr,
        mac: Option<Mac>,
        solicited: bool,
        replaces: bool,
    },
    /// A router tells of itself and of the link.
    Router {
        mac: Option<Mac>,
        lifetime: Duration,
        mtu: Option<u32>,
        prefixes: ArrayVec<Announced, PREFIXES_MAX>,
    },
    /// Which routers are there?
    SolicitRouters {
        /// Where who asks is, if it says so.
        mac: Option<Mac>,
    },
}

/// Reads a message whose checksum is known to be right; `None` if it is malformed, or a redirect,
/// which we do not follow.
pub(super) fn parse(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hops: u8,
    message: &[u8],
    now: Instant,
) -> Option<Message> {
    let packet = Icmpv6Packet::new_checked(message).ok()?;
    let mut unverified = ChecksumCapabilities::default();
    unverified.icmpv6 = Checksum::None;
    let repr = Icmpv6Repr::parse(&source, &destination, &packet, &unverified).ok()?;
    let Icmpv6Repr::Ndisc(repr) = repr else {
        return None;
    };
    if hops != HOPS {
        return None;
    }
    match repr {
        // RFC 4861, 7.1.1.
        NdiscRepr::NeighborSolicit {
            target_addr: target,
            lladdr,
        } => {
            let probe = source.is_unspecified();
            let bad_probe = probe && (lladdr.is_some() || !destination.is_multicast());
            let mac = station(lladdr);
            (!target.is_multicast() && !bad_probe).then_some(Message::Solicit { target, mac })
        }
        // RFC 4861, 7.1.2.
        NdiscRepr::NeighborAdvert {
            flags,
            target_addr: target,
            lladdr,
        } => {
            let solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
            let bad = target.is_multicast() || (solicited && destination.is_multicast());
            (!bad).then_some(Message::Advertise {
                target,
                mac: station(lladdr),
                solicited,
                replaces: flags.contains(NdiscNeighborFlags::OVERRIDE),
            })
        }
        // RFC 4861, 6.1.2.
        NdiscRepr::RouterAdvert {
            router_lifetime,
            lladdr,
            mtu,
            ..
        } => source.is_unicast_link_local().then(|| Message::Router {
            mac: station(lladdr),
            lifetime: Duration::from_secs(router_lifetime.secs()),
            mtu,
            prefixes: prefixes(message, now),
        }),
        // RFC 4861, 6.1.1.
        NdiscRepr::RouterSolicit { lladdr } => {
            let bad = source.is_unspecified() && lladdr.is_some();
            let mac = station(lladdr);
            (!bad).then_some(Message::SolicitRouters { mac })
        }
        NdiscRepr::Redirect { .. } => None,
    }
}

/// The prefixes of an advertisement: `wire` keeps the last one only.
fn prefixes(message: &[u8], now: Instant) -> ArrayVec<Announced, PREFIXES_MAX> {
    let mut found = ArrayVec::new();
    let mut rest = message.get(ADVERTISEMENT..).unwrap_or(&[]);
    while let Ok(option) = NdiscOption::new_checked(rest) {
        if let Ok(NdiscOptionRepr::PrefixInformation(prefix)) = NdiscOptionRepr::parse(&option)
            && !prefix.prefix.is_unicast_link_local()
            && !prefix.prefix.is_multicast()
            // RFC 4862, 5.5.3 c.
            && prefix.preferred_lifetime <= prefix.valid_lifetime
            && let Some(network) = Prefix::new(prefix.prefix, prefix.prefix_len)
        {
            let until = |lifetime: smoltcp::time::Duration| {
                let seconds = lifetime.secs();
                (seconds < INFINITE).then(|| now + Duration::from_secs(seconds))
            };
            let announced = Announced {
                prefix: network,
                on_link: prefix.flags.contains(NdiscPrefixInfoFlags::ON_LINK),
                autonomous: prefix.flags.contains(NdiscPrefixInfoFlags::ADDRCONF),
                lifetimes: Lifetimes {
                    preferred: until(prefix.preferred_lifetime),
                    valid: until(prefix.valid_lifetime),
                },
            };
            if found.try_push(announced).is_err() {
                break;
            }
        }
        let len = OPTION_UNIT * usize::from(option.data_len());
        rest = match rest.get(len..) {
            Some(rest) if len > 0 => rest,
            _ => break,
        };
    }
    found
}

/// A link address that can be a station's.
fn station(address: Option<RawHardwareAddress>) -> Option<Mac> {
    let mac = Mac(address?.as_bytes().try_into().ok()?);
    mac.is_station().then_some(mac)
}

fn raw(mac: Mac) -> RawHardwareAddress {
    EthernetAddress(mac.0).into()
}

/// Who has the target? Asked from `mac`, unless to find out whether we may have it.
pub(super) fn solicit(target: Ipv6Addr, mac: Option<Mac>) -> NdiscRepr<'static> {
    NdiscRepr::NeighborSolicit {
        target_addr: target,
        lladdr: mac.map(raw),
    }
}

/// The target is at `mac`, and is a router or none: hosts forget a router that says it is none
/// (RFC 4861, 7.2.5).
pub(super) fn advertise(
    target: Ipv6Addr,
    mac: Mac,
    (solicited, router): (bool, bool),
) -> NdiscRepr<'static> {
    let mut flags = NdiscNeighborFlags::OVERRIDE;
    flags.set(NdiscNeighborFlags::SOLICITED, solicited);
    flags.set(NdiscNeighborFlags::ROUTER, router);
    NdiscRepr::NeighborAdvert {
        flags,
        target_addr: target,
        lladdr: Some(raw(mac)),
    }
}

/// Which routers are there?
pub(super) fn solicit_routers(mac: Option<Mac>) -> NdiscRepr<'static> {
    NdiscRepr::RouterSolicit {
        lladdr: mac.map(raw),
    }
}

/// Writes a message to the start of `place` and returns its length.
pub(super) fn write(
    message: NdiscRepr<'_>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    place: &mut [u8],
) -> usize {
    let len = message.buffer_len().min(place.len());
    let message = Icmpv6Repr::Ndisc(message);
    let place = &mut place[..len];
    place.fill(0);
    let mut packet = Icmpv6Packet::new_unchecked(&mut *place);
    message.emit(
        &source,
        &destination,
        &mut packet,
        &ChecksumCapabilities::ignored(),
    );
    icmp::complete(source, destination, place);
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use proptest::prelude::*;
    use std::vec::Vec;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn written(message: NdiscRepr<'_>) -> Vec<u8> {
        let mut place = [0xff; LEN_MAX];
        let len = write(message, A, B, &mut place);
        place[..len].to_vec()
    }

    fn read(source: Ipv6Addr, hops: u8, message: &[u8]) -> Option<Message> {
        parse(source, B, hops, message, at(0))
    }

    #[test]
    fn what_is_written_is_read() {
        let message = written(solicit(B, Some(MAC)));
        let expected = Message::Solicit {
            target: B,
            mac: Some(MAC),
        };
        assert_eq!(
            (read(A, HOPS, &message), message.len()),
            (Some(expected), LEN_MAX)
        );
        let probe = written(solicit(B, None));
        assert!(crate::icmp::is_intact(
            &probe,
            crate::address::pseudo_sum(A.into(), B.into(), 58, probe.len()),
        ));
        let expected = Message::Advertise {
            target: B,
            mac: Some(MAC),
            solicited: true,
            replaces: true,
        };
        assert_eq!(
            read(A, HOPS, &written(advertise(B, MAC, (true, false)))),
            Some(expected)
        );
        let question = written(solicit_routers(Some(MAC)));
        let expected = Message::SolicitRouters { mac: Some(MAC) };
        assert_eq!(read(A, HOPS, &question), Some(expected));
        assert_eq!(read(Ipv6Addr::UNSPECIFIED, HOPS, &question), None);
        assert_eq!(read(A, 64, &question), None);
    }

    #[test]
    fn messages_that_cannot_be_are_dropped() {
        let solicitation = written(solicit(B, Some(MAC)));
        assert_eq!(read(A, 254, &solicitation), None, "from another link");
        assert_eq!(read(Ipv6Addr::UNSPECIFIED, HOPS, &solicitation), None);
        assert_eq!(read(A, HOPS, &written(solicit(ALL_NODES, None))), None);
        let advertisement = written(advertise(B, MAC, (true, false)));
        assert_eq!(parse(A, ALL_NODES, HOPS, &advertisement, at(0)), None);
        assert_eq!(read(A, HOPS, &solicitation[..23]), None);
    }

    /// A router's advertisement with these options.
    fn advertisement(options: &[u8]) -> Vec<u8> {
        let mut message = [134, 0, 0, 0, 64, 0, 0, 30].to_vec();
        message.extend([0; 8]);
        message.extend(options);
        message
    }

    #[test]
    fn all_prefixes_of_an_advertisement_are_read() {
        let mut options = Vec::new();
        for (n, lifetimes) in [
            (1, [9, 5]),
            (2, [0xffff_ffff_u32, 0xffff_ffff]),
            (3, [1, 2]),
        ] {
            options.extend([3, 4, 64, 0xc0]);
            lifetimes
                .iter()
                .for_each(|seconds| options.extend(seconds.to_be_bytes()));
            options.extend([0; 4]);
            options.extend([0x20, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        let message = advertisement(&options);
        let Some(Message::Router {
            prefixes, lifetime, ..
        }) = read(A, HOPS, &message)
        else {
            panic!()
        };
        assert_eq!((prefixes.len(), lifetime), (2, Duration::from_secs(30)));
        assert_eq!(prefixes[0].lifetimes.valid, Some(at(9000)));
        assert_eq!(prefixes[0].lifetimes.preferred, Some(at(5000)));
        assert_eq!(prefixes[1].lifetimes, Lifetimes::INFINITE);
        assert!(prefixes[0].on_link && prefixes[0].autonomous);
        assert_eq!(read("2001:db8::1".parse().unwrap(), HOPS, &message), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            kind in 133u8..138,
            mut bytes in proptest::collection::vec(any::<u8>(), 4..120),
            options in proptest::collection::vec((1u8..6, 0u8..5), 0..8),
        ) {
            bytes[..2].copy_from_slice(&[kind, 0]);
            // Some of them with options that almost are.
            let mut at = if kind == 134 { 16 } else { 24 };
            for (option, units) in options {
                if let Some(place) = bytes.get_mut(at..at + 2) {
                    place.copy_from_slice(&[option, units]);
                }
                at += 8 * usize::from(units);
            }
            let _ = read(A, HOPS, &bytes);
        }
    }
}
