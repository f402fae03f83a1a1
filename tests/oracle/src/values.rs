//! Values that rules and frames share: few of each kind, so that rules match, with the bounds of
//! each kind among them; and how rules spell them.

use fastrand::Rng;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a field of a rule is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A MAC address.
    Mac,
    /// An EtherType, or the length of an LLC frame.
    EtherType,
    /// The identifier of a VLAN.
    Vlan,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// The number of a protocol over IP.
    Protocol,
    /// A port of TCP or UDP.
    Port,
    /// The type of an ICMP message.
    Icmp,
    /// The type of an ICMPv6 message.
    Icmpv6,
}

/// Prefix of every MAC address: one of local administration.
const MAC: u128 = 0x0200_0000_0000;
/// `fd00::/64`.
const SUBNET: u128 = 0xfd00 << 112;

impl Kind {
    /// Its values; the first ones are the likely ones.
    pub fn pool(self) -> &'static [u128] {
        match self {
            Self::Mac => &[MAC | 1, MAC | 2, MAC | 0xff, MAC | 0x100, 0xfeff_ffff_ffff],
            Self::EtherType => &[
                0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc, 0x0600, 0x05ff, 0, 0xffff, 4, 1,
            ],
            Self::Vlan => &[5, 6, 0, 1, 4094, 4095],
            Self::Ipv4 => &[
                0x0a00_0001,
                0x0a00_0002,
                0x0a00_00ff,
                0x0a00_0100,
                0x0aff_ffff,
                0x0b00_0000,
                0xc0a8_0101,
                0xe000_0001,
                0,
                0xffff_ffff,
            ],
            Self::Ipv6 => &[
                SUBNET | 1,
                SUBNET | 2,
                SUBNET | 0xffff,
                SUBNET | 0x1_0000,
                (0xfe80 << 112) | 1,
                (0xff02 << 112) | 1,
                0,
                u128::MAX,
            ],
            Self::Protocol => &[6, 17, 1, 58, 132, 47, 50, 51, 0, 2, 4, 43, 44, 59, 60, 255],
            Self::Port => &[80, 443, 53, 22, 81, 1024, 0, 65_535, 7070],
            Self::Icmp => &[8, 0, 3, 11, 5, 255],
            Self::Icmpv6 => &[128, 129, 135, 136, 1, 134, 0, 255],
        }
    }

    /// The largest value.
    pub fn max(self) -> u128 {
        match self {
            Self::Mac => 0xffff_ffff_ffff,
            Self::EtherType | Self::Port => 0xffff,
            Self::Vlan => 4095,
            Self::Ipv4 => 0xffff_ffff,
            Self::Ipv6 => u128::MAX,
            Self::Protocol | Self::Icmp | Self::Icmpv6 => 0xff,
        }
    }

    /// What a named set calls it; a VLAN has no name of its own.
    pub fn set_type(self) -> Option<&'static str> {
        match self {
            Self::Mac => Some("ether_addr"),
            Self::EtherType => Some("ether_type"),
            Self::Vlan => None,
            Self::Ipv4 => Some("ipv4_addr"),
            Self::Ipv6 => Some("ipv6_addr"),
            Self::Protocol => Some("inet_proto"),
            Self::Port => Some("inet_service"),
            Self::Icmp => Some("icmp_type"),
            Self::Icmpv6 => Some("icmpv6_type"),
        }
    }

    /// Symbols for some of the values.
    fn symbols(self) -> &'static [(u128, &'static str)] {
        match self {
            Self::EtherType => &[
                (0x0800, "ip"),
                (0x86dd, "ip6"),
                (0x0806, "arp"),
                (0x8100, "vlan"),
                (0x8100, "8021q"),
                (0x88a8, "8021ad"),
            ],
            Self::Protocol => &[
                (6, "tcp"),
                (17, "udp"),
                (1, "icmp"),
                (58, "icmpv6"),
                (58, "ipv6-icmp"),
                (132, "sctp"),
                (50, "esp"),
                (51, "ah"),
            ],
            Self::Port => &[(80, "http"), (443, "https"), (53, "domain"), (22, "ssh")],
            Self::Icmp => &[
                (8, "echo-request"),
                (0, "echo-reply"),
                (3, "destination-unreachable"),
                (11, "time-exceeded"),
                (5, "redirect"),
            ],
            Self::Icmpv6 => &[
                (128, "echo-request"),
                (129, "echo-reply"),
                (135, "nd-neighbor-solicit"),
                (136, "nd-neighbor-advert"),
                (134, "nd-router-advert"),
                (1, "destination-unreachable"),
            ],
            Self::Mac | Self::Vlan | Self::Ipv4 | Self::Ipv6 => &[],
        }
    }

    /// One of the pool, mostly; else a neighbour of one, or any value.
    pub fn value(self, rng: &mut Rng) -> u128 {
        let pool = self.pool();
        let likely = pool.len().min(2);
        match rng.u8(0..20) {
            0 => rng.u128(0..=self.max()),
            1 => rng.choice(pool).map_or(0, |value| value.saturating_sub(1)),
            2 => rng
                .choice(pool)
                .map_or(0, |value| self.max().min(value.saturating_add(1))),
            3..=5 => self.near(rng),
            6..=11 => pool[rng.usize(0..likely)],
            _ => pool[rng.usize(0..pool.len())],
        }
    }

    /// One of 256 values that lie together: what long chains go through one by one.
    pub fn near(self, rng: &mut Rng) -> u128 {
        let start = match self {
            Self::Vlan | Self::Protocol | Self::Port | Self::Icmp | Self::Icmpv6 => 0,
            Self::Mac | Self::EtherType | Self::Ipv4 | Self::Ipv6 => self.pool()[0] & !0xff,
        };
        start | u128::from(rng.u8(..))
    }

    /// A value in one of the spellings that there are.
    pub fn text(self, value: u128, rng: &mut Rng) -> String {
        let mut symbols = self.symbols().iter().filter(|symbol| symbol.0 == value);
        if let Some(symbol) = symbols.nth(rng.usize(0..2))
            && rng.bool()
        {
            return symbol.1.to_owned();
        }
        self.number(value, rng)
    }

    /// A value without symbols, as the ends of a range must be.
    pub fn number(self, value: u128, rng: &mut Rng) -> String {
        match self {
            Self::Mac => mac_text(value),
            Self::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Self::Ipv6 => ipv6_text(value, rng),
            Self::EtherType if rng.u8(0..4) > 0 => format!("{value:#06x}"),
            _ if rng.u8(0..8) == 0 => format!("{value:#x}"),
            _ => value.to_string(),
        }
    }

    /// Bits of an address that has prefixes.
    pub fn prefix_bits(self) -> Option<u32> {
        match self {
            Self::Ipv4 => Some(32),
            Self::Ipv6 => Some(128),
            _ => None,
        }
    }
}

fn mac_text(value: u128) -> String {
    let bytes = &value.to_be_bytes()[10..];
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let colon = if index > 0 { ":" } else { "" };
        write!(text, "{colon}{byte:02x}").expect("a String takes all");
    }
    text
}

fn ipv6_text(value: u128, rng: &mut Rng) -> String {
    let address = Ipv6Addr::from_bits(value);
    if rng.u8(0..8) > 0 {
        return address.to_string();
    }
    let words = address.segments().map(|word| format!("{word:x}"));
    words.join(":")
}
