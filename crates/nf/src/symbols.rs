//! Words that stand for numbers in rules.

/// Words and their numbers, which are the same on every machine: nothing is looked up. Several
/// words may stand for one number.
pub type Symbols = [(&'static str, u16)];

/// EtherTypes.
pub(crate) const ETHER_TYPES: &Symbols = &[
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("ip6", 0x86dd),
    ("8021q", 0x8100),
    ("vlan", 0x8100),
    ("8021ad", 0x88a8),
];

/// Protocols, as /etc/protocols names them everywhere.
pub(crate) const PROTOCOLS: &Symbols = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("comp", 108),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

/// Types of ICMP.
pub(crate) const ICMP_TYPES: &Symbols = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

/// Codes of ICMP's `destination-unreachable`.
pub(crate) const ICMP_CODES: &Symbols = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];

/// Codes of ICMPv6's `destination-unreachable`.
pub(crate) const ICMPV6_CODES: &Symbols = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

/// What codes of both have in common, behind `reject with icmpx` (NFT_REJECT_ICMPX_*).
pub(crate) const ICMPX_CODES: &Symbols = &[
    ("no-route", 0),
    ("port-unreachable", 1),
    ("host-unreachable", 2),
    ("admin-prohibited", 3),
];

/// Types of ICMPv6.
pub(crate) const ICMPV6_TYPES: &Symbols = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];
