//! Receive side scaling: which queue a frame goes to, by a hash over its addresses and ports
//! (datasheet, 7.1.11).

use super::registers::{RegisterFile, at, bit};
use crate::gigabit::receive::Hashed;
use crate::packet::headers::{Ip, Transport};
use crate::packet::toeplitz::{KEY_WORDS, toeplitz};

/// Entries of the table that turns a hash into a queue (10.2.5.22).
const ENTRIES: u32 = 128;
/// Of an entry, the bit that is the queue.
const QUEUE_SHIFT: u32 = 7;

/// Kinds of packets: the bit of MRQC that has them hashed (10.2.5.21), and what the descriptor says
/// of them (7.1.11.1).
struct Kind {
    enabled: u32,
    told: u32,
}

const TCP_IPV4: Kind = kind(16, 1);
const IPV4: Kind = kind(17, 2);
const TCP_IPV6: Kind = kind(21, 3);
const IPV6: Kind = kind(20, 5);

const fn kind(bit: u32, told: u32) -> Kind {
    Kind {
        enabled: 1 << bit,
        told,
    }
}

/// The hash of a frame, of which at least the headers are there, and the queue that it goes to; the
/// first one without RSS, or without a hash.
pub(crate) fn spread(file: &RegisterFile, frame: &[u8]) -> Hashed {
    if file.get(at::MRQC) & 3 != bit::MRQC_RSS {
        return Hashed::default();
    }
    let Some((kind, hash)) = hash_of(file, frame) else {
        return Hashed::default();
    };
    let entry = hash % ENTRIES;
    let entries = file.get(at::RETA + entry as usize / 4 * 4);
    let queue = (entries >> (8 * (entry % 4) + QUEUE_SHIFT) & 1) as usize;
    Hashed { kind, hash, queue }
}

fn hash_of(file: &RegisterFile, frame: &[u8]) -> Option<(u32, u32)> {
    // Of a longer frame, its headers say how long it is.
    let ip = Ip::find_in(frame, usize::MAX)?;
    let addresses = match ip.v6 {
        true => frame.get(ip.start + 8..ip.start + 40)?,
        false => frame.get(ip.start + 12..ip.start + 20)?,
    };
    let (with_ports, without) = match ip.v6 {
        false => (TCP_IPV4, IPV4),
        true => (TCP_IPV6, IPV6),
    };
    let is_enabled = |kind: &Kind| file.has(at::MRQC, kind.enabled);
    let key: [u32; KEY_WORDS] = std::array::from_fn(|number| file.get(at::RSSRK + 4 * number));
    let is_tcp = matches!(ip.transport(frame), Some(Transport::Tcp { .. }));
    if is_tcp && is_enabled(&with_ports) {
        let ports = frame.get(ip.payload..ip.payload + 4)?;
        return Some((with_ports.told, toeplitz(&key, &[addresses, ports])));
    }
    is_enabled(&without).then(|| (without.told, toeplitz(&key, &[addresses])))
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;
    use crate::packet::samples;
    use crate::packet::toeplitz::tests::key;

    /// With the published key, and a table that leads odd hashes to the second queue.
    fn file(mrqc: u32) -> RegisterFile {
        let mut file = registers::file();
        file.set(at::MRQC, mrqc);
        for (number, word) in key().into_iter().enumerate() {
            file.set(at::RSSRK + 4 * number, word);
        }
        for entry in 0..32usize {
            file.set(at::RETA + 4 * entry, 0x8000_8000);
        }
        file
    }

    #[test]
    fn what_is_enabled_is_hashed_and_sent_where_the_table_says() {
        let cases = [
            (false, true, 1 << 16, 1),
            (false, true, 1 << 16 | 1 << 17, 1),
            (false, true, 1 << 17, 2),
            (false, false, 1 << 16, 0),
            (false, false, 1 << 17, 2),
            (true, true, 1 << 21, 3),
            (true, true, 1 << 20, 5),
            (true, false, 1 << 21, 0),
        ];
        for (v6, tcp, enabled, kind) in cases {
            for tag in [None, Some(5)] {
                let frame = match tcp {
                    true => samples::tcp(v6, tag, 1, &[7; 100]),
                    false => samples::udp(v6, tag, &[7; 100]),
                };
                let hashed = spread(&file(enabled | 1), &frame);
                assert_eq!(hashed.kind, kind, "{v6} {tcp} {enabled:#x}");
                assert_eq!(hashed.queue, (hashed.hash % 2) as usize);
                assert_eq!(spread(&file(enabled), &frame), Hashed::default());
            }
        }
        assert_eq!(spread(&file(0xff_0001), &[0xff; 60]), Hashed::default());
    }
}
