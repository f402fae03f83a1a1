//! Symbols that stand for numbers. They are the same on every machine: nothing is looked up.

/// Flags of TCP, from the lowest bit of [`crate::L4::Tcp`] on, as nft names them.
pub const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];

/// A table of symbols and their numbers. Of two symbols for one number, the first is printed.
pub type Symbols = [(&'static str, u16)];

/// The number of `word`.
pub fn number(symbols: &Symbols, word: &str) -> Option<u16> {
    let symbol = symbols.iter().find(|(symbol, _)| *symbol == word);
    symbol.map(|(_, number)| *number)
}

/// EtherTypes.
pub const ETHER_TYPES: &Symbols = &[
    ("ip", 0x0800),
    ("arp", 0x0806),
    ("ip6", 0x86dd),
    ("8021q", 0x8100),
    ("vlan", 0x8100),
    ("8021ad", 0x88a8),
];

/// Protocols, as /etc/protocols names them everywhere.
pub const PROTOCOLS: &Symbols = &[
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
pub const ICMP_TYPES: &Symbols = &[
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

/// Types of ICMPv6.
pub const ICMPV6_TYPES: &Symbols = &[
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

/// Services whose names mean the same port on every machine. nft looks names up in
/// /etc/services, which differs from machine to machine: others are to be written as numbers.
pub const SERVICES: &Symbols = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap2", 143),
    ("snmp", 161),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
];
