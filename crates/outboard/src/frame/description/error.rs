//! What can be wrong with a description, and what to write instead.

use std::fmt;
use std::ops::Range;

/// What is wrong with a description, and where, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The words in question; empty at the end of the text.
    pub at: Range<usize>,
    /// What is wrong with them.
    pub reason: Reason,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It ends where this should follow.
    Missing(&'static str),
    /// This should stand here.
    NotLiteral(&'static str),
    /// No frame begins with this word.
    Kind,
    /// No IP address.
    Address,
    /// No address and port.
    AddressAndPort,
    /// An IP address, and behind it no port but another number.
    Port,
    /// The other address is of the other IP version.
    Version,
    /// This kind of frame has addresses of another IP version, which is this one.
    VersionOf(&'static str, u8),
    /// No MAC address.
    Mac,
    /// No number from the first to the second.
    Number(u64, u64),
    /// No flag of TCP.
    Flag,
    /// No type of ICMP or ICMPv6.
    IcmpType,
    /// Neither `first` nor `later`.
    Part,
    /// A protocol, or EtherType, with a header that has to be described: in these words.
    Described(&'static str),
    /// An IPv6 extension header.
    Extension,
    /// A length, not an EtherType.
    Length,
    /// No clause begins with this word.
    Clause,
    /// The clause stands there twice.
    Twice,
    /// The clause has no meaning for this kind of frame.
    NotFor(&'static str),
    /// The frame's headers alone have this many bytes.
    TooShort(usize),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::NotLiteral(what) => write!(f, "`{what}` should stand here"),
            Self::Kind => f.write_str("no kind of frame"),
            Self::Address => f.write_str("no IP address"),
            Self::AddressAndPort => f.write_str("no IP address with a port"),
            Self::Port => write!(f, "its port is no number from 0 to {}", u16::MAX),
            Self::Version => f.write_str("an address of the other IP version"),
            Self::VersionOf(kind, version) => write!(f, "{kind} has IPv{version} addresses"),
            Self::Mac => f.write_str("no MAC address"),
            Self::Number(low, high) => write!(f, "no number from {low} to {high}"),
            Self::Flag => f.write_str("no flag of TCP"),
            Self::IcmpType => f.write_str("no type of this protocol"),
            Self::Part => f.write_str("no part of a packet"),
            Self::Described(_) => f.write_str("this has a header of its own"),
            Self::Extension => f.write_str("an extension header of IPv6"),
            Self::Length => f.write_str("below 0x0600 it is a length, and no EtherType"),
            Self::Clause => f.write_str("unknown word"),
            Self::Twice => f.write_str("this was said before"),
            Self::NotFor(kind) => write!(f, "no such thing in {kind}"),
            Self::TooShort(size) => write!(f, "its headers alone have {size} bytes"),
        }
    }
}

impl Reason {
    /// What to write instead.
    pub fn help(&self) -> String {
        const KINDS: &str = "begin with tcp, udp, icmp, icmpv6, ip, arp or ether, give hex digits, \
                             or the path of a capture: ./FILE#N";
        match self {
            Self::Missing(what) => format!("add {what}"),
            Self::NotLiteral(what) => format!("write `{what}` in front of it"),
            Self::Kind => KINDS.into(),
            Self::Address => "such as 10.0.0.1 or fe80::1".into(),
            Self::AddressAndPort | Self::Port => "such as 10.0.0.1:999 or [fe80::1]:999".into(),
            Self::Version => "both are IPv4, or both are IPv6".into(),
            Self::VersionOf("icmp", _) => "over IPv6 it is icmpv6".into(),
            Self::VersionOf("icmpv6", _) => "over IPv4 it is icmp".into(),
            Self::VersionOf(..) => "the neighbours of IPv6 are asked by icmpv6 A > B type \
                                    nd-neighbor-solicit"
                .into(),
            Self::Mac => "such as 02:00:00:00:00:01".into(),
            Self::Number(..) => "decimal, or hexadecimal behind 0x".into(),
            Self::Flag => {
                "fin, syn, rst, psh, ack, urg, ecn and cwr, with commas between, or none".into()
            }
            Self::IcmpType => "a number, or a name as nft has it, such as echo-request".into(),
            Self::Part => "`fragment first` has the transport header, `fragment later` not".into(),
            Self::Described(words) => format!("describe it: {words}"),
            Self::Extension => "give such a frame as hex digits or capture".into(),
            Self::Length => "give such a frame as hex digits or capture".into(),
            Self::Clause => "there are in, vlan, len, from, to; behind IP fragment; behind tcp \
                             flags; behind icmp and icmpv6 type and code"
                .into(),
            Self::Twice => "leave one of them out".into(),
            Self::NotFor(_) => "leave it out".into(),
            Self::TooShort(size) => format!("write len {size} or more, or leave it out"),
        }
    }
}
