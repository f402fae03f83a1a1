//! Names of numbers in headers: those that rules have.

use nf::fields::{TCP_FLAGS, Type};

/// The bit of a flag.
pub(super) fn tcp_flag(name: &str) -> Option<u8> {
    let (_, flag) = TCP_FLAGS.iter().find(|(flag, _)| *flag == name)?;
    u8::try_from(*flag).ok()
}

/// The number of a type of ICMP, or of ICMPv6.
pub(super) fn icmp_type(name: &str, is_v6: bool) -> Option<u8> {
    let icmp_type = if is_v6 {
        Type::Icmpv6Type
    } else {
        Type::IcmpType
    };
    u8::try_from(icmp_type.number_of(name)?).ok()
}

/// Names of the flags that are set, with commas between.
pub(super) fn tcp_flags(flags: u8) -> String {
    let names = TCP_FLAGS.iter();
    let set = names
        .filter(|(_, flag)| u16::from(flags) & flag != 0)
        .map(|(name, _)| *name);
    match flags {
        0 => "none".to_owned(),
        _ => set.collect::<Vec<_>>().join(","),
    }
}
