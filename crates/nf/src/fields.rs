//! The fields that rules can name: one table, `TABLE`, with one entry for each field.
//!
//! The parser, the printer, the resolver, the compiler, the interpreter, the warnings of `outboard
//! rules check` and the generator of the oracle take from here what they know of a field. A new
//! field is an entry in the table and, if the key does not hold its bytes yet, a `Slot` that
//! [`crate::Key`] fills. If nft has a data type of its own for it, that is a new [`Type`].
//!
//! The files that a new field touches: this one; `key/mod.rs`, which reads its bytes;
//! `nft/tests/accepted.txt`, whose rules are shown to nft too; the oracle's `frame.rs`, which makes
//! frames that have it; and the changelog.

use crate::fib::KINDS;
pub use crate::flags::TCP_FLAGS;
use crate::flags::{STATES, STATUSES};
use crate::services::SERVICES;
pub(crate) use crate::symbols::ICMPX_CODES;
pub use crate::symbols::Symbols;
use crate::symbols::{ETHER_TYPES, ICMP_CODES, ICMP_TYPES, ICMPV6_CODES, ICMPV6_TYPES, PROTOCOLS};
use core::fmt;

/// One field.
struct Entry {
    /// How nft prints it. The first word names the header; a name of one word belongs to `meta`,
    /// which may be left out in front of it.
    name: &'static str,
    value_type: Type,
    slot: Slot,
    header: Option<Header>,
}

const fn entry(name: &'static str, value_type: Type, slot: Slot, header: Option<Header>) -> Entry {
    Entry {
        name,
        value_type,
        slot,
        header,
    }
}

/// Every field: its name, the type of its values, its place in the key, and the header that a frame
/// must have for it.
static TABLE: [Entry; FIELDS] = {
    use Header::{
        Connection, ConnectionIp, ConnectionIp6, ConnectionPorts, Icmp, Icmpv6, Ip, Ip6, Tcp, Udp,
        Vlan,
    };
    [
        entry("iifname", Type::InterfaceName, Slot::Input, None),
        entry("oifname", Type::InterfaceName, Slot::Output, None),
        entry("meta protocol", Type::EtherType, Slot::Protocol, None),
        entry("meta l4proto", Type::Protocol, Slot::L4Protocol, None),
        entry("meta mark", Type::Mark, Slot::Mark, None),
        entry("ether type", Type::EtherType, Slot::LinkType, None),
        entry("ether saddr", Type::EtherAddress, Slot::EtherSource, None),
        entry(
            "ether daddr",
            Type::EtherAddress,
            Slot::EtherDestination,
            None,
        ),
        entry("vlan id", Type::VlanId, Slot::VlanId, Some(Vlan)),
        entry("ip saddr", Type::Ipv4, Slot::Ip4Source, Some(Ip)),
        entry("ip daddr", Type::Ipv4, Slot::Ip4Destination, Some(Ip)),
        entry("ip protocol", Type::Protocol, Slot::NextHeader, Some(Ip)),
        entry("ip6 saddr", Type::Ipv6, Slot::Ip6Source, Some(Ip6)),
        entry("ip6 daddr", Type::Ipv6, Slot::Ip6Destination, Some(Ip6)),
        entry("ip6 nexthdr", Type::Protocol, Slot::NextHeader, Some(Ip6)),
        entry("tcp sport", Type::Service, Slot::SourcePort, Some(Tcp)),
        entry("tcp dport", Type::Service, Slot::DestinationPort, Some(Tcp)),
        entry("tcp flags", Type::TcpFlags, Slot::TcpFlags, Some(Tcp)),
        entry("udp sport", Type::Service, Slot::SourcePort, Some(Udp)),
        entry("udp dport", Type::Service, Slot::DestinationPort, Some(Udp)),
        entry("icmp type", Type::IcmpType, Slot::IcmpType, Some(Icmp)),
        entry("icmp code", Type::IcmpCode, Slot::IcmpCode, Some(Icmp)),
        entry(
            "icmpv6 type",
            Type::Icmpv6Type,
            Slot::IcmpType,
            Some(Icmpv6),
        ),
        entry(
            "icmpv6 code",
            Type::Icmpv6Code,
            Slot::IcmpCode,
            Some(Icmpv6),
        ),
        entry("ct state", Type::CtState, Slot::CtState, None),
        entry(
            "ct status",
            Type::CtStatus,
            Slot::CtStatus,
            Some(Connection),
        ),
        entry("ct mark", Type::Mark, Slot::CtMark, Some(Connection)),
        entry(
            "ct direction",
            Type::CtDirection,
            Slot::CtDirection,
            Some(Connection),
        ),
        entry(
            "ct expiration",
            Type::Time,
            Slot::CtExpiration,
            Some(Connection),
        ),
        entry(
            "ct original ip saddr",
            Type::Ipv4,
            Slot::CtOriginalIp4Source,
            Some(ConnectionIp),
        ),
        entry(
            "ct original ip daddr",
            Type::Ipv4,
            Slot::CtOriginalIp4Destination,
            Some(ConnectionIp),
        ),
        entry(
            "ct reply ip saddr",
            Type::Ipv4,
            Slot::CtReplyIp4Source,
            Some(ConnectionIp),
        ),
        entry(
            "ct reply ip daddr",
            Type::Ipv4,
            Slot::CtReplyIp4Destination,
            Some(ConnectionIp),
        ),
        entry(
            "ct original ip6 saddr",
            Type::Ipv6,
            Slot::CtOriginalIp6Source,
            Some(ConnectionIp6),
        ),
        entry(
            "ct original ip6 daddr",
            Type::Ipv6,
            Slot::CtOriginalIp6Destination,
            Some(ConnectionIp6),
        ),
        entry(
            "ct reply ip6 saddr",
            Type::Ipv6,
            Slot::CtReplyIp6Source,
            Some(ConnectionIp6),
        ),
        entry(
            "ct reply ip6 daddr",
            Type::Ipv6,
            Slot::CtReplyIp6Destination,
            Some(ConnectionIp6),
        ),
        entry(
            "ct original proto-src",
            Type::Service,
            Slot::CtOriginalSourcePort,
            Some(ConnectionPorts),
        ),
        entry(
            "ct original proto-dst",
            Type::Service,
            Slot::CtOriginalDestinationPort,
            Some(ConnectionPorts),
        ),
        entry(
            "ct reply proto-src",
            Type::Service,
            Slot::CtReplySourcePort,
            Some(ConnectionPorts),
        ),
        entry(
            "ct reply proto-dst",
            Type::Service,
            Slot::CtReplyDestinationPort,
            Some(ConnectionPorts),
        ),
        entry("ct zone", Type::Zone, Slot::CtZone, Some(Connection)),
        entry(
            "ct original zone",
            Type::Zone,
            Slot::CtOriginalZone,
            Some(Connection),
        ),
        entry(
            "ct reply zone",
            Type::Zone,
            Slot::CtReplyZone,
            Some(Connection),
        ),
        entry("ct bytes", Type::Count, Slot::CtBytes, Some(Connection)),
        entry(
            "ct original bytes",
            Type::Count,
            Slot::CtOriginalBytes,
            Some(Connection),
        ),
        entry(
            "ct reply bytes",
            Type::Count,
            Slot::CtReplyBytes,
            Some(Connection),
        ),
        entry("ct packets", Type::Count, Slot::CtPackets, Some(Connection)),
        entry(
            "ct original packets",
            Type::Count,
            Slot::CtOriginalPackets,
            Some(Connection),
        ),
        entry(
            "ct reply packets",
            Type::Count,
            Slot::CtReplyPackets,
            Some(Connection),
        ),
    ]
};

/// Number of fields.
const FIELDS: usize = 50;

/// Fields that nft has in the headers of the table, and that rules do not see.
pub(crate) const UNREAD: &[&str] = &[
    "type",
    "cfi",
    "dei",
    "pcp",
    "version",
    "hdrlength",
    "dscp",
    "ecn",
    "length",
    "id",
    "frag-off",
    "ttl",
    "checksum",
    "option",
    "flowlabel",
    "hoplimit",
    "sequence",
    "ackseq",
    "doff",
    "reserved",
    "window",
    "urgptr",
    "gateway",
    "mtu",
    "parameter-problem",
    "max-delay",
    "taddr",
    "daddr",
];

/// A field of a frame, or what is known of it: an entry of the table.
///
/// Unlike in the kernel, a field of a transport header never matches a fragment behind the first
/// one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field(u8);

impl Field {
    /// Every field, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        (0..FIELDS as u8).map(Self)
    }

    fn entry(self) -> &'static Entry {
        &TABLE[usize::from(self.0)]
    }

    /// How nft prints it, such as `tcp dport`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// What its values are.
    pub fn value_type(self) -> Type {
        self.entry().value_type
    }

    /// The header that a frame must have for this field, and that a rule with this field therefore
    /// asks for. None for what each frame has.
    pub fn header(self) -> Option<Header> {
        self.entry().header
    }

    /// Whether it is a field of the frame's connection, and not of the frame.
    pub fn is_of_connection(self) -> bool {
        self.slot().is_of_connection()
    }

    /// Its place in the key.
    pub(crate) fn slot(self) -> Slot {
        self.entry().slot
    }

    /// All flags of a field that is made of them.
    pub(crate) fn all_flags(self) -> u16 {
        self.value_type().max() as u16
    }

    /// The two words of the name; the first one is `meta` if it may be left out.
    fn words(self) -> (&'static str, &'static str) {
        let name = self.name();
        name.split_once(' ').unwrap_or(("meta", name))
    }

    /// The field that `header` and `word` name.
    pub(crate) fn find(header: &str, word: &str) -> Option<Self> {
        Self::all().find(|field| field.words() == (header, word))
    }

    /// The field that `word` names alone.
    pub(crate) fn find_single(word: &str) -> Option<Self> {
        Self::all().find(|field| field.name() == word)
    }

    /// The header that `word` names, if fields of it are in the table.
    pub(crate) fn find_header(word: &str) -> Option<&'static str> {
        let mut headers = Self::all().map(|field| field.words().0);
        headers.find(|header| *header == word)
    }

    /// The second words of the fields of `header`.
    pub(crate) fn words_behind(header: &str) -> impl Iterator<Item = &'static str> + Clone {
        let words = Self::all().map(Self::words);
        words.filter_map(move |(first, second)| (first == header).then_some(second))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Field({})", self.name())
    }
}

/// A header that only some frames have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A tag of 802.1Q.
    Vlan,
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// None, but a connection that the frame belongs to. `ct state` is known without one.
    Connection,
    /// The same, and it is one of IPv4.
    ConnectionIp,
    /// The same, and it is one of IPv6.
    ConnectionIp6,
    /// The same, and it is one of TCP or UDP, which the rule has asked for before.
    ConnectionPorts,
}

/// Declares [`Slot`] and the list of all slots from one list of names.
macro_rules! slots {
    ($($(#[$attribute:meta])* $name:ident,)+) => {
        /// A place in the key. Fields that no frame has both of may share one. Those of at most 32
        /// bits come first.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum Slot { $($(#[$attribute])* $name,)+ }

        impl Slot {
            /// Every slot, each at its number.
            pub(crate) const ALL: [Self; SLOTS] = [$(Self::$name,)+];
        }

        /// Number of slots.
        pub(crate) const SLOTS: usize = [$(Slot::$name,)+].len();
    };
}

slots! {
    Input,
    Output,
    /// The type in the Ethernet header, which may be a tag's.
    LinkType,
    VlanId,
    /// The type behind the tag.
    Protocol,
    Ip4Source,
    Ip4Destination,
    /// What the IP header itself names: `ip protocol` and `ip6 nexthdr`.
    NextHeader,
    L4Protocol,
    SourcePort,
    DestinationPort,
    TcpFlags,
    IcmpType,
    IcmpCode,
    // From here on of the frame's connection, and in no key.
    CtState,
    CtStatus,
    CtMark,
    CtDirection,
    CtExpiration,
    CtOriginalIp4Source,
    CtOriginalIp4Destination,
    CtReplyIp4Source,
    CtReplyIp4Destination,
    CtOriginalSourcePort,
    CtOriginalDestinationPort,
    CtReplySourcePort,
    CtReplyDestinationPort,
    CtZone,
    CtOriginalZone,
    CtReplyZone,
    // From here on of the packet on its way, and in no key.
    Mark,
    // From here on wider than 32 bits.
    EtherSource,
    EtherDestination,
    Ip6Source,
    Ip6Destination,
    // From here on of the frame's connection again.
    CtOriginalIp6Source,
    CtOriginalIp6Destination,
    CtReplyIp6Source,
    CtReplyIp6Destination,
    CtBytes,
    CtOriginalBytes,
    CtReplyBytes,
    CtPackets,
    CtOriginalPackets,
    CtReplyPackets,
}

/// Number of slots of at most 32 bits.
pub(crate) const NARROW: usize = Slot::EtherSource as usize;
/// Number of those that are in a key.
pub(crate) const NARROW_OF_FRAME: usize = Slot::CtState as usize;

/// A narrow field that the frame lacks. No set holds it: the fields as wide as this, an address of
/// IPv4 and `ct mark`, are never compared without a condition that says that they are there.
pub(crate) const ABSENT: u32 = u32::MAX;

impl Slot {
    pub(crate) const fn is_narrow(self) -> bool {
        (self as usize) < NARROW
    }

    /// Whether it is one of the frame's connection.
    pub(crate) const fn is_of_connection(self) -> bool {
        let number = self as usize;
        NARROW_OF_FRAME <= number && number < Self::Mark as usize
            || number >= Self::CtOriginalIp6Source as usize
    }

    /// Whether a key has it, or it is the way of a frame.
    pub(crate) const fn is_of_frame(self) -> bool {
        let number = self as usize;
        number < NARROW_OF_FRAME || NARROW <= number && !self.is_of_connection()
    }

    /// The largest value of the slot.
    pub(crate) fn max(self) -> u128 {
        self.first_field().value_type().max()
    }

    /// What a person calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NextHeader => "protocol in the IP header",
            Self::SourcePort => "source port",
            Self::DestinationPort => "destination port",
            _ => self.first_field().name(),
        }
    }

    /// The first field of the table that is in this slot.
    fn first_field(self) -> Field {
        Field(FIRST_FIELDS[self as usize])
    }
}

/// The number of the first field of each slot.
const FIRST_FIELDS: [u8; SLOTS] = {
    let mut first = [u8::MAX; SLOTS];
    let mut field = FIELDS;
    while field > 0 {
        field -= 1;
        let slot = TABLE[field].slot;
        let bits = TABLE[field].value_type.describe().bits;
        assert!(slot.is_narrow() == (bits <= 32), "slots come by width");
        first[slot as usize] = field as u8;
    }
    let mut slot = 0;
    while slot < SLOTS {
        assert!(first[slot] != u8::MAX, "each slot is some field's");
        slot += 1;
    }
    first
};

/// A data type of nft: what the values of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The name of an interface. Its value is the number of a port.
    InterfaceName,
    /// An EtherType.
    EtherType,
    /// A MAC address.
    EtherAddress,
    /// The identifier of a VLAN.
    VlanId,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// The number of a protocol over IP.
    Protocol,
    /// A port of TCP or UDP.
    Service,
    /// Flags of TCP, which have a syntax of their own.
    TcpFlags,
    /// The type of an ICMP message.
    IcmpType,
    /// What an ICMP message of some type says in particular.
    IcmpCode,
    /// The type of an ICMPv6 message.
    Icmpv6Type,
    /// What an ICMPv6 message of some type says in particular.
    Icmpv6Code,
    /// What a frame is to its connection, which has a syntax of its own.
    CtState,
    /// What is known of a connection, which has a syntax of its own.
    CtStatus,
    /// A number that rules give to a packet or to a connection.
    Mark,
    /// Whether a frame goes the way of the first one of its connection.
    CtDirection,
    /// A time, in milliseconds.
    Time,
    /// A number of frames or bytes.
    Count,
    /// The number of a zone.
    Zone,
    /// What an address is to a router.
    AddressKind,
}

/// What there is to know of a [`Type`].
struct Description {
    /// Its name behind `type` in a set; none if no set has elements of this type.
    set: Option<&'static str>,
    /// What a value of the type is called in messages.
    expected: &'static str,
    bits: u32,
    symbols: &'static Symbols,
}

/// What values that are made of flags are called in messages.
const FLAGS_OF_TCP: &str = "flags of TCP: fin, syn, rst, psh, ack, urg, ecn or cwr";
const STATES_OF_CT: &str = "states: new, established, related, invalid or untracked";
const STATUSES_OF_CT: &str =
    "statuses: seen-reply, assured, confirmed, expected, snat, dnat or dying";

const KINDS_OF_ADDRESSES: &str =
    "what an address is: local, unicast, broadcast, multicast or unreachable";

impl Type {
    const fn describe(self) -> Description {
        let (set, expected, bits, symbols): (_, _, _, &Symbols) = match self {
            Self::InterfaceName => (Some("ifname"), "the name of an interface", 8, &[]),
            Self::EtherType => (
                Some("ether_type"),
                "an EtherType: ip, ip6, arp, vlan or a number",
                16,
                ETHER_TYPES,
            ),
            Self::EtherAddress => (Some("ether_addr"), "a MAC address", 48, &[]),
            Self::VlanId => (None, "a VLAN identifier: 0 to 4095", 12, &[]),
            Self::Ipv4 => (Some("ipv4_addr"), "an IPv4 address", 32, &[]),
            Self::Ipv6 => (Some("ipv6_addr"), "an IPv6 address", 128, &[]),
            Self::Protocol => (
                Some("inet_proto"),
                "a protocol: tcp, udp, icmp, icmpv6 or a number",
                8,
                PROTOCOLS,
            ),
            Self::Service => (
                Some("inet_service"),
                "a port: a number, or the name of a well-known one",
                16,
                SERVICES,
            ),
            Self::TcpFlags => (None, FLAGS_OF_TCP, 8, TCP_FLAGS),
            Self::IcmpType => (
                Some("icmp_type"),
                "a type of ICMP, such as echo-request, or a number",
                8,
                ICMP_TYPES,
            ),
            Self::IcmpCode => (
                Some("icmp_code"),
                "a code of ICMP, such as port-unreachable, or a number",
                8,
                ICMP_CODES,
            ),
            Self::Icmpv6Type => (
                Some("icmpv6_type"),
                "a type of ICMPv6, such as echo-request, or a number",
                8,
                ICMPV6_TYPES,
            ),
            Self::Icmpv6Code => (
                Some("icmpv6_code"),
                "a code of ICMPv6, such as port-unreachable, or a number",
                8,
                ICMPV6_CODES,
            ),
            Self::CtState => (None, STATES_OF_CT, 8, STATES),
            Self::CtStatus => (None, STATUSES_OF_CT, 10, STATUSES),
            Self::Mark => (Some("mark"), "a mark: a number", 32, &[]),
            Self::CtDirection => (None, "a direction: original or reply", 8, DIRECTIONS),
            Self::Time => (None, "a time, such as 30s or 1d2h", 32, &[]),
            Self::Count => (None, "a number of frames or bytes", 64, &[]),
            Self::Zone => (None, "the number of a zone: 0 to 65535", 16, &[]),
            Self::AddressKind => (None, KINDS_OF_ADDRESSES, 8, KINDS),
        };
        Description {
            set,
            expected,
            bits,
            symbols,
        }
    }

    /// Its name behind `type` in a set; none if no set has elements of this type.
    pub fn set_name(self) -> Option<&'static str> {
        self.describe().set
    }

    /// Every type that a set may have.
    pub(crate) fn of_sets() -> impl Iterator<Item = Self> + Clone {
        let types = || Field::all().map(Field::value_type);
        let is_first = move |(at, value_type): &(usize, Self)| {
            types().position(|other| other == *value_type) == Some(*at)
        };
        let all = types().enumerate().filter(is_first);
        all.filter_map(|(_, value_type)| value_type.set_name().and(Some(value_type)))
    }

    /// What a value of the type is called.
    pub(crate) fn expected(self) -> &'static str {
        self.describe().expected
    }

    /// The largest value of the type.
    pub fn max(self) -> u128 {
        u128::MAX >> (u128::BITS - self.describe().bits)
    }

    /// Whether its values are made of flags.
    pub(crate) fn is_flags(self) -> bool {
        matches!(self, Self::TcpFlags | Self::CtState | Self::CtStatus)
    }

    /// Words for some of the values.
    pub fn symbols(self) -> &'static Symbols {
        self.describe().symbols
    }

    /// The number that `word` stands for.
    pub fn number_of(self, word: &str) -> Option<u16> {
        let mut symbols = self.symbols().iter();
        let symbol = symbols.find(|(symbol, _)| *symbol == word);
        symbol.map(|(_, number)| *number)
    }
}

/// Values of `ct direction`.
const DIRECTIONS: &Symbols = &[("original", 0), ("reply", 1)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_fields() {
        for field in Field::all() {
            let (header, word) = field.words();
            assert_eq!(Field::find(header, word), Some(field));
            assert_eq!(Field::find_header(header), Some(header));
            let single = Some(field).filter(|field| !field.name().contains(' '));
            assert_eq!(Field::find_single(word), single);
        }
    }

    #[test]
    fn fields_of_one_slot_have_one_width() {
        for field in Field::all() {
            assert_eq!(field.value_type().max(), field.slot().max(), "{field}");
        }
        for (number, slot) in Slot::ALL.into_iter().enumerate() {
            assert_eq!(slot as usize, number);
        }
    }
}
