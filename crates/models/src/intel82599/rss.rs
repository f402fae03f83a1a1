//! Receive side scaling: which queue a frame goes to, by a hash over its addresses and ports
//! (datasheet, 7.1.2.8).

use super::registers::{RegisterFile, at, bit};
use crate::packet::headers::{Ip, Transport};

/// MRQC.MRQE: RSS alone, with 16 queues (8.2.3.7.12). No other mode is modelled.
const RSS_ALONE: u32 = 1;
const MODE: u32 = 0xf;
/// Entries of the table that turns a hash into a queue (7.1.2.8).
const ENTRIES: u32 = 128;
const QUEUE: u32 = 0xf;
/// Registers of the key.
const KEY_WORDS: usize = 10;

/// Kinds of packets: the bit of MRQC that has them hashed (8.2.3.7.12), and what the descriptor
/// says of them (7.1.6.2).
struct Kind {
    enabled: u32,
    told: u8,
}

const TCP_IPV4: Kind = kind(16, 1);
const IPV4: Kind = kind(17, 2);
const TCP_IPV6: Kind = kind(21, 3);
const IPV6: Kind = kind(20, 5);
const UDP_IPV4: Kind = kind(22, 7);
const UDP_IPV6: Kind = kind(23, 8);

/// The same of a frame that a filter of the flow director matched.
const BY_FILTER: u8 = 0xf;

const fn kind(bit: u32, told: u8) -> Kind {
    Kind {
        enabled: 1 << bit,
        told,
    }
}

/// What was found of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// What was hashed; 0 for nothing (7.1.6.2).
    pub(crate) kind: u8,
    pub(crate) hash: u32,
}

impl Hashed {
    /// The bits of a descriptor's first word that tell it (7.1.6.2).
    pub(crate) fn told(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.kind & 0xf)
    }

    /// Of a frame that a filter of the flow director matched.
    pub(crate) fn by_filter(hash: u32) -> Self {
        let kind = BY_FILTER;
        Self { kind, hash }
    }
}

/// Whether frames are spread at all.
#[inline]
pub(crate) fn is_on(file: &RegisterFile) -> bool {
    file.get(at::MRQC) & MODE == RSS_ALONE
}

/// The hash of a frame, of which at least the headers are there, and the queue that it goes to.
pub(crate) fn spread(file: &RegisterFile, frame: &[u8]) -> (Hashed, usize) {
    let hashed = hash_of(file, frame).unwrap_or_default();
    let entry = hashed.hash % ENTRIES;
    let entries = file.get(at::RETA + entry as usize / 4 * 4);
    let queue = match hashed.kind {
        // 7.1.2.8: without a hash, the first queue.
        0 => 0,
        _ => entries >> (8 * (entry % 4)) & QUEUE,
    };
    (hashed, queue as usize)
}

/// The descriptor tells the hash, and not the checksum of fragments (8.2.3.7.5).
pub(crate) fn is_told(file: &RegisterFile) -> bool {
    file.has(at::RXCSUM, bit::RXCSUM_HASH)
}

fn hash_of(file: &RegisterFile, frame: &[u8]) -> Option<Hashed> {
    // Of a longer frame, its headers say how long it is.
    let ip = Ip::find_in(frame, usize::MAX)?;
    let enabled = file.get(at::MRQC);
    let addresses = match ip.v6 {
        true => frame.get(ip.start + 8..ip.start + 40)?,
        false => frame.get(ip.start + 12..ip.start + 20)?,
    };
    let ports = || frame.get(ip.payload..ip.payload + 4);
    let (with_ports, without) = match (ip.v6, ip.transport(frame)) {
        (false, Some(Transport::Tcp { .. })) => (Some(TCP_IPV4), IPV4),
        (false, Some(Transport::Udp)) => (Some(UDP_IPV4), IPV4),
        (false, _) => (None, IPV4),
        (true, Some(Transport::Tcp { .. })) => (Some(TCP_IPV6), IPV6),
        (true, Some(Transport::Udp)) => (Some(UDP_IPV6), IPV6),
        (true, _) => (None, IPV6),
    };
    let is_enabled = |kind: &Kind| enabled & kind.enabled != 0;
    let key = std::array::from_fn(|number| file.get(at::RSSRK + 4 * number));
    if let (Some(kind), Some(ports)) = (with_ports.filter(is_enabled), ports()) {
        let hash = toeplitz(&key, &[addresses, ports]);
        return Some(Hashed {
            kind: kind.told,
            hash,
        });
    }
    is_enabled(&without).then(|| Hashed {
        kind: without.told,
        hash: toeplitz(&key, &[addresses]),
    })
}

/// The Toeplitz hash (7.1.2.8.1). The first byte of the key is the lowest one of the first
/// register.
fn toeplitz(key: &[u32; KEY_WORDS], input: &[&[u8]]) -> u32 {
    let mut bytes = key.iter().flat_map(|word| word.to_le_bytes());
    let mut window = (0..4).fold(0, |window, _| {
        window << 8 | u32::from(bytes.next().unwrap_or(0))
    });
    let mut hash = 0;
    for byte in input.iter().copied().flatten() {
        let next = bytes.next().unwrap_or(0);
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;
    use crate::packet::samples;
    use std::net::IpAddr;

    /// Key and values that the driver interface of Windows has for this hash, to verify it
    /// ("Verifying the RSS hash calculation").
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    /// Source, its port, destination, its port; the hash without ports, and with them.
    const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
        (
            "66.9.149.187",
            2794,
            "161.142.100.80",
            1766,
            0x323e_8fc2,
            0x51cc_c178,
        ),
        (
            "199.92.111.2",
            14230,
            "65.69.140.83",
            4739,
            0xd718_262a,
            0xc626_b0ea,
        ),
        (
            "24.19.198.95",
            12898,
            "12.22.207.184",
            38024,
            0xd2d0_a5de,
            0x5c2b_394a,
        ),
        (
            "38.27.205.30",
            48228,
            "209.142.163.6",
            2217,
            0x8298_9176,
            0xafc7_327f,
        ),
        (
            "153.39.163.191",
            44251,
            "202.188.127.2",
            1303,
            0x5d18_09c5,
            0x10e8_28a2,
        ),
        (
            "3ffe:2501:200:1fff::7",
            2794,
            "3ffe:2501:200:3::1",
            1766,
            0x2cc1_8cd5,
            0x4020_7d3d,
        ),
        (
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            "ff02::1",
            4739,
            0x0f0c_461c,
            0xdde5_1bbf,
        ),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            "fe80::200:f8ff:fe21:67cf",
            38024,
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn key() -> [u32; 10] {
        std::array::from_fn(|word| {
            u32::from_le_bytes(std::array::from_fn(|byte| KEY[4 * word + byte]))
        })
    }

    fn bytes(address: &str) -> Vec<u8> {
        match address.parse().unwrap() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    #[test]
    fn the_hash_is_the_one_that_is_published() {
        for (source, source_port, destination, port, plain, with_ports) in VECTORS {
            let addresses = [bytes(source), bytes(destination)].concat();
            let ports = [source_port.to_be_bytes(), port.to_be_bytes()].concat();
            assert_eq!(toeplitz(&key(), &[&addresses]), plain, "{source}");
            assert_eq!(
                toeplitz(&key(), &[&addresses, &ports]),
                with_ports,
                "{source}"
            );
        }
    }

    /// With the published key, and a table that leads each hash to a queue of its own.
    fn file(mrqc: u32) -> RegisterFile {
        let mut file = registers::file();
        file.set(at::MRQC, mrqc);
        for (number, word) in key().into_iter().enumerate() {
            file.set(at::RSSRK + 4 * number, word);
        }
        for entry in 0..32usize {
            let first = 4 * entry as u32;
            let queues = [first, first + 1, first + 2, first + 3].map(|entry| (entry % 16) as u8);
            file.set(at::RETA + 4 * entry, u32::from_le_bytes(queues));
        }
        file
    }

    #[test]
    fn what_is_told_lies_where_the_datasheet_says() {
        let (kind, hash) = (7, 0x89ab_cdef);
        assert_eq!(Hashed { kind, hash }.told(), 0x89ab_cdef_0000_0007);
    }

    #[test]
    fn what_is_enabled_is_hashed_and_sent_where_the_table_says() {
        let cases = [
            (false, true, 1 << 16, 1),
            (false, true, 1 << 16 | 1 << 17, 1),
            (false, true, 1 << 17, 2),
            (false, true, 1 << 22, 0),
            (false, false, 1 << 22, 7),
            (false, false, 1 << 16, 0),
            (true, true, 1 << 21, 3),
            (true, false, 1 << 23, 8),
            (true, false, 1 << 20, 5),
        ];
        for (v6, tcp, enabled, kind) in cases {
            for tag in [None, Some(5)] {
                let frame = match tcp {
                    true => samples::tcp(v6, tag, 1, &[7; 100]),
                    false => samples::udp(v6, tag, &[7; 100]),
                };
                let file = file(enabled | RSS_ALONE);
                assert!(is_on(&file));
                let (hashed, queue) = spread(&file, &frame);
                assert_eq!(hashed.kind, kind, "{v6} {tcp} {enabled:#x}");
                assert_eq!(queue, (hashed.hash % 16) as usize);
                // Of a frame whose payload lies elsewhere, the headers do.
                assert_eq!(spread(&file, &frame[..frame.len() - 100]), (hashed, queue));
            }
        }
        assert!(!is_on(&file(1 << 16)));
        assert_eq!(
            spread(&file(0xff_0001), &[0xff; 60]),
            (Hashed::default(), 0)
        );
    }
}
