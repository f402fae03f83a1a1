//! Receive side scaling: which queue a frame goes to, by a hash over its addresses and ports
//! (datasheet, 7.1.2.8).

use super::registers::{RegisterFile, at, bit};
use crate::packet::headers::{Ip, Transport};
use crate::packet::toeplitz::toeplitz;

/// MRQC.MRQE: RSS alone, with 16 queues (8.2.3.7.12). No other mode is modelled.
const RSS_ALONE: u32 = 1;
const MODE: u32 = 0xf;
/// Entries of the table that turns a hash into a queue (7.1.2.8).
const ENTRIES: u32 = 128;
const QUEUE: u32 = 0xf;

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

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;
    use crate::packet::samples;
    use crate::packet::toeplitz::tests::key;

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
