//! Names of numbers in headers, as nft has them.

/// TCP's flags from the lowest bit (RFC 9293, 3.1).
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];

/// Types of ICMP (RFC 792, RFC 950, RFC 1256).
const ICMP_TYPES: [(&str, u8); 15] = [
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

/// Types of ICMPv6 (RFC 4443, RFC 2710, RFC 4861, RFC 2894, RFC 3122, RFC 3810).
const ICMPV6_TYPES: [(&str, u8); 18] = [
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
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

/// The bit of a flag.
pub(super) fn tcp_flag(name: &str) -> Option<u8> {
    let bit = TCP_FLAGS.iter().position(|flag| *flag == name)?;
    Some(1 << bit)
}

/// The number of a type of ICMP, or of ICMPv6.
pub(super) fn icmp_type(name: &str, is_v6: bool) -> Option<u8> {
    let names: &[_] = if is_v6 { &ICMPV6_TYPES } else { &ICMP_TYPES };
    let (_, number) = names.iter().find(|(known, _)| *known == name)?;
    Some(*number)
}

/// Names of the flags that are set, with commas between.
pub(super) fn tcp_flags(flags: u8) -> String {
    let names = TCP_FLAGS.iter().enumerate();
    let set = names
        .filter(|(bit, _)| flags >> bit & 1 == 1)
        .map(|(_, name)| *name);
    match flags {
        0 => "none".to_owned(),
        _ => set.collect::<Vec<_>>().join(","),
    }
}
