//! Generated frames: most of them well-formed, some spoilt.
//!
//! Left out is what a bridge does not forward whatever its rules say, or what never gets so far: a
//! group or zero as source address; 01:80:c2:00:00:01 to 0f, which are for bridges themselves;
//! frames shorter than an Ethernet header or, with tags, than 26 bytes; frames over the MTU. Nor
//! are there raw frames of IEEE 802.3, which begin like no LLC frame and had their time with
//! Netware: for them, the kernel has a `meta protocol` of their own.

use crate::values::Values;
use fastrand::Rng;
use nf::fields::Type;

/// Ethernet header.
const ETHERNET: usize = 14;
/// An 802.1Q tag.
const TAG: usize = 4;
/// Shortest frame with tags, whatever follows them, that the kernel looks at, in bytes: it wants
/// to see a second tag, or a header of PPPoE.
const TAGGED_MIN: usize = 26;
/// Most bytes of payload, mostly.
const PAYLOAD_MAX: usize = 40;
/// Ethernet's shortest frame, in bytes, without its checksum.
const PADDED: usize = 60;
/// Ethernet's longest frame, in bytes, without its checksum.
const FRAME_MAX: usize = ETHERNET + 1500;
/// One frame in so many is spoilt.
const SPOILT_EACH: u8 = 16;

/// One spoilt frame in so many ends in an authentication header of IPv6.
const CUT_EACH: u8 = 16;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
const SERVICE_VLAN: u16 = 0x88a8;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const AUTHENTICATION: u8 = 51;
const ICMPV6: u8 = 58;

/// A frame, and how it is sent.
#[derive(Clone, Debug)]
pub struct Frame {
    /// From its Ethernet header on.
    pub bytes: Vec<u8>,
    /// The port that it comes in by.
    pub from: u8,
    /// Whether it was left as it should be.
    pub well_formed: bool,
}

impl Frame {
    /// A frame.
    pub fn generate(rng: &mut Rng) -> Self {
        let mut bytes = ethernet(rng);
        let well_formed = rng.u8(0..SPOILT_EACH) > 0;
        if !well_formed {
            match rng.u8(0..CUT_EACH) {
                0 => cut_authentication(&mut bytes, rng),
                _ => spoil(&mut bytes, rng),
            }
        }
        Self {
            bytes,
            from: rng.u8(0..2),
            well_formed,
        }
    }

    /// What the kernel counts: not the Ethernet header, nor a tag.
    pub fn counted_bytes(&self) -> u64 {
        let tag = if self.tagged() { TAG } else { 0 };
        (self.bytes.len() - ETHERNET - tag) as u64
    }

    fn tagged(&self) -> bool {
        is_tag(&self.bytes)
    }

    /// The frame in hexadecimal.
    pub fn hex(&self) -> String {
        self.bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

fn is_tag(bytes: &[u8]) -> bool {
    [VLAN, SERVICE_VLAN].contains(&u16::from_be_bytes([bytes[12], bytes[13]]))
}

/// Changes, cuts or prolongs a frame, short of what no bridge forwards.
fn spoil(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..=2) {
        match rng.u8(0..4) {
            0 => {
                let length = rng.usize(ETHERNET..=bytes.len());
                bytes.truncate(length);
            }
            1 if bytes.len() > ETHERNET => {
                let at = rng.usize(ETHERNET..bytes.len());
                bytes[at] = rng.u8(..);
            }
            2 if bytes.len() > ETHERNET => {
                let at = rng.usize(ETHERNET..bytes.len().min(ETHERNET + 60));
                bytes[at] ^= 1 << rng.u8(0..8);
            }
            _ => bytes.extend(payload(rng)),
        }
    }
    fit(bytes);
}

/// Makes a frame an IPv6 packet that ends in an authentication header (RFC 4302, 2), and says so in
/// its length.
fn cut_authentication(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let left = [0, 1, 2, 7, 11][rng.usize(0..5)];
    bytes.truncate(ETHERNET - 2);
    bytes.extend(IPV6.to_be_bytes());
    bytes.extend([0x60, 0, 0, 0, 0, left, AUTHENTICATION, 64]);
    bytes.extend(Type::Ipv6.value(rng).to_be_bytes());
    bytes.extend(Type::Ipv6.value(rng).to_be_bytes());
    bytes.extend([TCP, 4].into_iter().chain([0; 9]).take(left.into()));
}

/// Makes a frame one that a bridge takes.
fn fit(bytes: &mut Vec<u8>) {
    bytes.truncate(FRAME_MAX);
    if is_tag(bytes) && bytes.len() < TAGGED_MIN {
        bytes.resize(TAGGED_MIN, 0);
    }
}

fn ethernet(rng: &mut Rng) -> Vec<u8> {
    // Without STP, a bridge forwards what is for STP.
    const GROUPS: [u128; 4] = [
        0xffff_ffff_ffff,
        0x0100_5e00_0001,
        0x3333_0000_0001,
        0x0180_c200_0000,
    ];
    let destination = match rng.u8(0..8) {
        0 => GROUPS[rng.usize(0..GROUPS.len())],
        _ => mac(rng),
    };
    let mut bytes = destination.to_be_bytes()[10..].to_vec();
    bytes.extend(&mac(rng).to_be_bytes()[10..]);
    match rng.u8(0..16) {
        0..=2 => tag(VLAN, rng, &mut bytes),
        3 => tag(SERVICE_VLAN, rng, &mut bytes),
        4 => {
            tag([VLAN, SERVICE_VLAN][rng.usize(0..2)], rng, &mut bytes);
            tag([VLAN, SERVICE_VLAN][rng.usize(0..2)], rng, &mut bytes);
        }
        _ => {}
    }
    let (ether_type, content) = content(rng);
    bytes.extend(ether_type.to_be_bytes());
    bytes.extend(content);
    if rng.bool() && bytes.len() < PADDED {
        bytes.resize(PADDED, 0);
    } else if rng.u8(0..8) == 0 {
        bytes.extend(payload(rng));
    }
    fit(&mut bytes);
    bytes
}

/// An address of one host.
fn mac(rng: &mut Rng) -> u128 {
    const GROUP: u128 = 1 << 40;
    match Type::EtherAddress.value(rng) & !GROUP {
        0 => 1,
        mac => mac,
    }
}

fn tag(protocol: u16, rng: &mut Rng, bytes: &mut Vec<u8>) {
    bytes.extend(protocol.to_be_bytes());
    let priority = if rng.bool() { rng.u16(0..16) << 12 } else { 0 };
    let identifier = Type::VlanId.value(rng) as u16;
    bytes.extend((priority | identifier).to_be_bytes());
}

fn content(rng: &mut Rng) -> (u16, Vec<u8>) {
    match rng.u8(0..20) {
        0..=10 => (IPV4, ipv4(rng)),
        11..=16 => (IPV6, ipv6(rng)),
        17 => (ARP, arp(rng)),
        18 => {
            // The length of an LLC frame (IEEE 802.3, 3.2.6), or a little over it.
            let mut content = payload(rng);
            content.splice(0..0, [0x42, 0x42, 3]);
            let length = [content.len() as u16, 4, 0x05ff][rng.usize(0..3)];
            (length, content)
        }
        _ => {
            const OTHERS: [u16; 5] = [0x88cc, 0x0600, 0xffff, 0x0842, 0x9100];
            (OTHERS[rng.usize(0..OTHERS.len())], payload(rng))
        }
    }
}

/// RFC 826.
fn arp(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, rng.u8(1..=2)];
    for _ in 0..2 {
        bytes.extend(&mac(rng).to_be_bytes()[10..]);
        bytes.extend((Type::Ipv4.value(rng) as u32).to_be_bytes());
    }
    bytes
}

/// RFC 791, 3.1.
fn ipv4(rng: &mut Rng) -> Vec<u8> {
    const MORE: u16 = 0x2000;
    const DO_NOT: u16 = 0x4000;
    let options = if rng.u8(0..8) == 0 {
        rng.usize(1..=10)
    } else {
        0
    };
    let protocol = protocol(rng);
    let (fragment, content) = match rng.u8(0..10) {
        0 => (MORE, transport(protocol, false, rng)),
        1 => {
            let more = [0, MORE][rng.usize(0..2)];
            (more | rng.u16(1..=0x1fff), payload(rng))
        }
        2..=4 => (DO_NOT, transport(protocol, true, rng)),
        _ => (0, transport(protocol, true, rng)),
    };
    let header = 20 + 4 * options;
    let total = (header + content.len()) as u16;
    let mut bytes = vec![0x45 + options as u8, rng.u8(..)];
    bytes.extend(total.to_be_bytes());
    bytes.extend(rng.u16(..).to_be_bytes());
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([rng.u8(..), protocol, 0, 0]);
    bytes.extend((Type::Ipv4.value(rng) as u32).to_be_bytes());
    bytes.extend((Type::Ipv4.value(rng) as u32).to_be_bytes());
    bytes.extend(std::iter::repeat_with(|| rng.u8(..)).take(4 * options));
    let checksum = checksum(&bytes);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(content);
    bytes
}

/// RFC 1071.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// RFC 8200, 3 and 4.
fn ipv6(rng: &mut Rng) -> Vec<u8> {
    let (first, content) = extensions(protocol(rng), rng);
    let mut bytes = vec![0x60 | rng.u8(0..16), rng.u8(..), rng.u8(..), rng.u8(..)];
    bytes.extend((content.len() as u16).to_be_bytes());
    bytes.extend([first, rng.u8(..)]);
    bytes.extend(Type::Ipv6.value(rng).to_be_bytes());
    bytes.extend(Type::Ipv6.value(rng).to_be_bytes());
    bytes.extend(content);
    bytes
}

/// Extension headers and what is behind them; the number of the first one.
fn extensions(protocol: u8, rng: &mut Rng) -> (u8, Vec<u8>) {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    const CHAIN: [u8; 6] = [
        HOP_BY_HOP,
        ROUTING,
        DESTINATION,
        DESTINATION,
        FRAGMENT,
        AUTHENTICATION,
    ];

    let count = if rng.u8(0..3) == 0 {
        rng.usize(1..=4)
    } else {
        0
    };
    let kinds: Vec<u8> = (0..count)
        .map(|_| CHAIN[rng.usize(0..CHAIN.len())])
        .collect();
    let mut bytes = Vec::new();
    let mut later = false;
    for (index, kind) in kinds.iter().enumerate() {
        let next = *kinds.get(index + 1).unwrap_or(&protocol);
        match *kind {
            FRAGMENT => {
                later = rng.u8(0..3) == 0;
                let offset = if later { rng.u16(1..=0x1fff) << 3 } else { 0 };
                bytes.extend([next, 0]);
                bytes.extend((offset | rng.u16(0..2)).to_be_bytes());
                bytes.extend([0; 4]);
            }
            AUTHENTICATION => {
                let words = rng.u8(1..=4);
                bytes.extend([next, words]);
                bytes.resize(bytes.len() + 4 * usize::from(words) + 6, 0xaa);
            }
            _ => {
                let units = rng.u8(0..=2);
                bytes.extend([next, units]);
                // Pad1 options; no segments are left of a route.
                bytes.resize(bytes.len() + 8 * usize::from(units) + 6, 0);
            }
        }
        if later {
            break;
        }
    }
    bytes.extend(if later {
        payload(rng)
    } else {
        transport(protocol, true, rng)
    });
    (*kinds.first().unwrap_or(&protocol), bytes)
}

/// A protocol over IP, as likely as rules ask for it.
fn protocol(rng: &mut Rng) -> u8 {
    const LIKELY: [u8; 8] = [TCP, TCP, TCP, UDP, UDP, UDP, ICMP, ICMPV6];
    // Extension headers have a place of their own.
    const OTHERS: [u8; 8] = [132, 47, 50, 2, 4, 136, 33, 255];
    match rng.u8(0..8) {
        0 => OTHERS[rng.usize(0..OTHERS.len())],
        _ => LIKELY[rng.usize(0..LIKELY.len())],
    }
}

fn transport(protocol: u8, whole: bool, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    let port = |rng: &mut Rng| (Type::Service.value(rng) as u16).to_be_bytes();
    match protocol {
        TCP => {
            bytes.extend(port(rng));
            bytes.extend(port(rng));
            let options = if rng.u8(0..4) == 0 { rng.u8(0..=10) } else { 0 };
            bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, (5 + options) << 4, flags(rng)]);
            bytes.extend([1, 0, 0, 0, 0, 0]);
            if whole {
                bytes.resize(bytes.len() + 4 * usize::from(options), 1);
            }
        }
        UDP => {
            bytes.extend(port(rng));
            bytes.extend(port(rng));
            bytes.extend([0, 8, 0, 0]);
        }
        ICMP => bytes.extend([
            Type::IcmpType.value(rng) as u8,
            Type::IcmpCode.value(rng) as u8,
            0,
            0,
        ]),
        ICMPV6 => bytes.extend([
            Type::Icmpv6Type.value(rng) as u8,
            Type::Icmpv6Code.value(rng) as u8,
            0,
            0,
        ]),
        _ => {}
    }
    bytes.extend(payload(rng));
    bytes
}

fn flags(rng: &mut Rng) -> u8 {
    const LIKELY: [u8; 6] = [0x02, 0x12, 0x10, 0x18, 0x11, 0x04];
    match rng.u8(0..4) {
        0 => rng.u8(..),
        _ => LIKELY[rng.usize(0..LIKELY.len())],
    }
}

fn payload(rng: &mut Rng) -> Vec<u8> {
    let length = match rng.u8(0..64) {
        0 => rng.usize(0..=600),
        1..=16 => 0,
        _ => rng.usize(0..=PAYLOAD_MAX),
    };
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}
