//! Values that rules and frames share: few of each kind, so that rules match, with the bounds of
//! each kind among them; and how rules spell them.

use fastrand::Rng;
use nf::fields::Type;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Prefix of every MAC address: one of local administration.
const MAC: u128 = 0x0200_0000_0000;
/// `fd00::/64`.
const SUBNET: u128 = 0xfd00 << 112;

/// Values of a type, and how rules spell them.
pub trait Values: Copy {
    /// The values of the type; the first ones are the likely ones.
    fn pool(self) -> Vec<u128>;

    /// One of the pool, mostly; else a neighbour of one, or any value.
    fn value(self, rng: &mut Rng) -> u128;

    /// One of 256 values that lie together: what long chains go through one by one.
    fn near(self, rng: &mut Rng) -> u128;

    /// A value in one of the spellings that there are.
    fn text(self, value: u128, rng: &mut Rng) -> String;

    /// A value without symbols, as the ends of a range must be.
    fn number(self, value: u128, rng: &mut Rng) -> String;

    /// Bits of an address that has prefixes.
    fn prefix_bits(self) -> Option<u32>;
}

impl Values for Type {
    fn pool(self) -> Vec<u128> {
        let likely: &[u128] = match self {
            Self::EtherAddress => &[MAC | 1, MAC | 2, MAC | 0xff, MAC | 0x100, 0xfeff_ffff_ffff],
            Self::EtherType => &[
                0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x88cc, 0x0600, 0x05ff, 0, 0xffff, 4, 1,
            ],
            Self::VlanId => &[5, 6, 0, 1, 4094, 4095],
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
            Self::Service => &[80, 443, 53, 22, 81, 1024, 0, 65_535, 7070],
            Self::IcmpType => &[8, 0, 3, 11, 5, 255],
            Self::Icmpv6Type => &[128, 129, 135, 136, 1, 134, 0, 255],
            _ => {
                let symbols = self.symbols().iter().map(|(_, number)| u128::from(*number));
                return symbols.chain([0, self.max()]).collect();
            }
        };
        likely.to_vec()
    }

    fn value(self, rng: &mut Rng) -> u128 {
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

    fn near(self, rng: &mut Rng) -> u128 {
        let start = match self {
            Self::EtherAddress | Self::EtherType | Self::Ipv4 | Self::Ipv6 => {
                self.pool()[0] & !0xff
            }
            _ => 0,
        };
        start | u128::from(rng.u8(..))
    }

    fn text(self, value: u128, rng: &mut Rng) -> String {
        let symbols = self.symbols().iter();
        let mut symbols = symbols.filter(|(_, number)| u128::from(*number) == value);
        if let Some((symbol, _)) = symbols.nth(rng.usize(0..2))
            && rng.bool()
        {
            return (*symbol).to_owned();
        }
        self.number(value, rng)
    }

    fn number(self, value: u128, rng: &mut Rng) -> String {
        match self {
            Self::EtherAddress => mac_text(value),
            Self::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
            Self::Ipv6 => ipv6_text(value, rng),
            Self::EtherType if rng.u8(0..4) > 0 => format!("{value:#06x}"),
            _ if rng.u8(0..8) == 0 => format!("{value:#x}"),
            _ => value.to_string(),
        }
    }

    fn prefix_bits(self) -> Option<u32> {
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
