//! The flow director: filters of single flows, each with the queue that its frames go to
//! (datasheet, 7.1.2.7 and 8.2.3.21).
//!
//! A filter is one of two kinds, for all of them at a time. A perfect one names addresses, ports
//! and tag, of which masks leave parts out. A signature is two hashes over all of these: frames of
//! other flows with the same ones match as well.

use super::registers::{RegisterFile, at, bit};
use crate::packet::checksum::word;
use crate::packet::headers::{ETHERNET, Ip, Transport};
use std::collections::HashMap;

/// Most filters at a time (7.1.2.7, with the largest buffer): perfect ones, and signatures.
const PERFECT_MAX: usize = 8 << 10;
const SIGNATURES_MAX: usize = 32 << 10;
/// Bits of a hash.
const HASH: u32 = 0x7fff;
/// Where the signature lies in FDIRHASH, or the number that software gives a perfect filter.
const SIGNATURE_SHIFT: u32 = 16;
/// The number of a frame's protocol in a flow's type; IPv6 is one bit more.
const UDP: u8 = 1;
const TCP: u8 = 2;
const SCTP: u8 = 3;
const IPV6: u8 = 4;

/// What is to be done (8.2.3.21, FDIRCMD.CMD).
const ADD: u32 = 1;
const REMOVE: u32 = 2;
const QUERY: u32 = 3;

/// What a flow's frames have in common; parts that do not count are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Flow {
    kind: u8,
    /// Of IPv6, all words of both, one upon the other.
    addresses: [u32; 2],
    ports: [u16; 2],
    tag: u16,
    /// Two bytes of the frame, from a place that FDIRCTRL names.
    bytes: u16,
}

/// Where frames that match go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) queue: usize,
    /// FDIRHASH as software wrote it, for descriptors.
    pub(crate) hash: u32,
}

/// All filters.
#[derive(Debug, Default)]
pub(crate) struct FlowDirector {
    perfect: HashMap<Flow, Target>,
    /// The flows of perfect filters, by their numbers.
    numbers: HashMap<u32, Flow>,
    signatures: HashMap<u32, Target>,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// What FDIRCMD reads now.
    Command(u32),
    /// There are too many filters.
    Full,
}

fn is_perfect(file: &RegisterFile) -> bool {
    file.has(at::FDIRCTRL, bit::FDIRCTRL_PERFECT)
}

impl FlowDirector {
    /// FDIRCTRL is written, or filters are cleared: there are none.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.perfect.is_empty() && self.signatures.is_empty()
    }

    /// FDIRCMD is written, behind the registers that say more.
    pub(crate) fn command(&mut self, file: &RegisterFile, value: u32) -> Done {
        if value & bit::FDIRCMD_CLEAR != 0 {
            self.clear();
        }
        let hash = file.get(at::FDIRHASH);
        let key = if is_perfect(file) {
            hash >> SIGNATURE_SHIFT & HASH
        } else {
            hash & (HASH << SIGNATURE_SHIFT | HASH)
        };
        let mut is_valid = false;
        match value & bit::FDIRCMD_COMMAND {
            ADD => {
                let queue = match value & bit::FDIRCMD_DROP {
                    0 => value >> bit::FDIRCMD_QUEUE_SHIFT & 0x7f,
                    _ => file.get(at::FDIRCTRL) >> bit::FDIRCTRL_DROP_SHIFT & 0x7f,
                };
                let queue = queue as usize;
                if !self.add(file, value, key, Target { queue, hash }) {
                    return Done::Full;
                }
            }
            REMOVE => _ = self.remove(file, key),
            QUERY if is_perfect(file) => is_valid = self.numbers.contains_key(&key),
            QUERY => is_valid = self.signatures.contains_key(&key),
            _ => {}
        }
        let valid = if is_valid { bit::FDIRCMD_VALID } else { 0 };
        Done::Command(value & !(bit::FDIRCMD_COMMAND | bit::FDIRCMD_VALID) | valid)
    }

    fn add(&mut self, file: &RegisterFile, command: u32, key: u32, target: Target) -> bool {
        if is_perfect(file) {
            let flow = Flow::named(file, command);
            self.remove(file, key);
            if self.numbers.len() >= PERFECT_MAX {
                return false;
            }
            self.numbers.insert(key, flow);
            self.perfect.insert(flow, target);
        } else {
            let is_new = !self.signatures.contains_key(&key);
            if is_new && self.signatures.len() >= SIGNATURES_MAX {
                return false;
            }
            self.signatures.insert(key, target);
        }
        true
    }

    fn remove(&mut self, file: &RegisterFile, key: u32) -> Option<()> {
        if is_perfect(file) {
            let flow = self.numbers.remove(&key)?;
            self.perfect.remove(&flow);
        } else {
            self.signatures.remove(&key)?;
        }
        Some(())
    }

    /// Where a frame goes, of which at least the headers are there.
    pub(crate) fn find(&self, file: &RegisterFile, frame: &[u8]) -> Option<Target> {
        let flow = Flow::of(file, frame)?;
        match is_perfect(file) {
            true => self.perfect.get(&flow.masked(file)),
            false => self.signatures.get(&flow.signature(file)),
        }
        .copied()
    }
}

impl Flow {
    /// The flow that registers name, for a perfect filter of IPv4.
    fn named(file: &RegisterFile, command: u32) -> Self {
        let ports = file.get(at::FDIRPORT);
        let tag = file.get(at::FDIRVLAN);
        let flow = Self {
            kind: (command >> bit::FDIRCMD_KIND_SHIFT & 7) as u8,
            addresses: [file.get(at::FDIRIPSA), file.get(at::FDIRIPDA)],
            ports: [ports as u16, (ports >> 16) as u16],
            tag: tag as u16,
            bytes: ((tag >> 16) as u16).swap_bytes(),
        };
        flow.masked(file)
    }

    /// That of a frame; none if it is no IP packet, or a part of one.
    fn of(file: &RegisterFile, frame: &[u8]) -> Option<Self> {
        let ip = Ip::find_in(frame, usize::MAX).filter(|ip| !ip.fragment)?;
        let protocol = match ip.transport(frame) {
            Some(Transport::Tcp { .. }) => TCP,
            Some(Transport::Udp) => UDP,
            Some(Transport::Sctp) => SCTP,
            None => 0,
        };
        let address = |from: usize, len: usize| {
            let words = frame.get(from..from + len)?.chunks_exact(4);
            let words = words.map(|word| word.iter().fold(0, |all, &b| all << 8 | u32::from(b)));
            Some(words.fold(0, |all, word| all ^ word))
        };
        let (from, len) = if ip.v6 { (8, 16) } else { (12, 4) };
        let is_tagged = ip.start > ETHERNET;
        let place = file.get(at::FDIRCTRL) >> bit::FDIRCTRL_PLACE_SHIFT & 0x1f;
        let port = |at| match protocol {
            0 => Some(0),
            _ => word(frame, ip.payload + at),
        };
        Some(Self {
            kind: protocol | if ip.v6 { IPV6 } else { 0 },
            addresses: [
                address(ip.start + from, len)?,
                address(ip.start + from + len, len)?,
            ],
            ports: [port(0)?, port(2)?],
            tag: if is_tagged { word(frame, ETHERNET)? } else { 0 },
            bytes: word(frame, 2 * place as usize).unwrap_or(0),
        })
    }

    /// What of it counts for perfect filters: bits that are set in masks do not.
    fn masked(self, file: &RegisterFile) -> Self {
        let ignored = file.get(at::FDIRM);
        let ports = match self.kind & 3 {
            TCP => at::FDIRTCPM,
            UDP => at::FDIRUDPM,
            _ => at::FDIRSCTPM,
        };
        // Their bits are in reverse, those of the source port in the low half.
        let ports = file.get(ports);
        let [source, destination] = [ports as u16, (ports >> 16) as u16].map(u16::reverse_bits);
        let protocol = ignored & bit::FDIRM_PROTOCOL == 0;
        let kept = |is: bool, value: u16| if is { value } else { 0 };
        let id = kept(ignored & bit::FDIRM_VLAN == 0, 0x0fff);
        let priority = kept(ignored & bit::FDIRM_PRIORITY == 0, 0xe000);
        Self {
            kind: if protocol {
                self.kind
            } else {
                self.kind & IPV6
            },
            addresses: [
                self.addresses[0] & !file.get(at::FDIRSIP4M),
                self.addresses[1] & !file.get(at::FDIRDIP4M),
            ],
            ports: [
                kept(protocol, self.ports[0] & !source),
                kept(protocol, self.ports[1] & !destination),
            ],
            tag: self.tag & (id | priority),
            bytes: kept(ignored & bit::FDIRM_BYTES == 0, self.bytes),
        }
    }

    /// Both hashes, as FDIRHASH has them (7.1.2.7.4).
    fn signature(&self, file: &RegisterFile) -> u32 {
        let [bucket, signature] = [at::FDIRHKEY, at::FDIRSKEY].map(|key| self.hash(file.get(key)));
        signature << SIGNATURE_SHIFT | bucket
    }

    /// The hash over all of it: for each bit of the key that is set, the input from that bit on.
    /// The input repeats, so that its words can be laid one upon the other before.
    fn hash(&self, key: u32) -> u32 {
        let [source, destination] = self.ports.map(u32::from);
        let ports = (source ^ u32::from(self.bytes)) << 16 | destination;
        let flow = self.addresses[0] ^ self.addresses[1] ^ ports;
        let rest = u32::from(self.kind) << 16 | u32::from(self.tag);
        let low = flow.rotate_left(16);
        // The very first bit has none of the rest.
        let first = if key & 1 != 0 { low } else { 0 };
        let low = u64::from(low ^ rest ^ rest << 16);
        let high = u64::from(flow ^ rest ^ rest >> 16);
        let hash = (0..16).fold(0, |hash, bit| {
            let low = if bit > 0 && key >> bit & 1 != 0 {
                low >> bit
            } else {
                0
            };
            let high = if key >> (bit + 16) & 1 != 0 {
                high >> bit
            } else {
                0
            };
            hash ^ low ^ high
        });
        (hash as u32 ^ first) & HASH
    }
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;
    use crate::packet::samples;

    const QUEUE_3: u32 = 3 << 16 | 1 << 15;

    /// With two bytes of the EtherType; perfect or not. Masks leave all out but for what is named.
    fn file(control: u32) -> RegisterFile {
        let mut file = registers::file();
        file.set(at::FDIRCTRL, 6 << 16 | control | 1);
        file.set(at::FDIRHKEY, 0x3dad_14e2);
        file.set(at::FDIRSKEY, 0x174d_3614);
        file.set(
            at::FDIRM,
            bit::FDIRM_VLAN | bit::FDIRM_PRIORITY | bit::FDIRM_BYTES,
        );
        for mask in [
            at::FDIRSIP4M,
            at::FDIRDIP4M,
            at::FDIRTCPM,
            at::FDIRUDPM,
            at::FDIRSCTPM,
        ] {
            file.set(mask, u32::MAX);
        }
        file
    }

    fn queue(flows: &FlowDirector, file: &RegisterFile, frame: &[u8]) -> Option<usize> {
        flows.find(file, frame).map(|target| target.queue)
    }

    /// What Debian's driver (Linux 6.1) wrote to FDIRHASH for a connection of iperf3's.
    #[test]
    fn a_signature_is_what_linux_computes() {
        let flow = Flow {
            kind: TCP,
            addresses: [0x0a08_0001, 0x0a08_0002],
            ports: [5201, 57_240],
            tag: 0,
            bytes: 0x0800,
        };
        assert_eq!(flow.signature(&file(0)), 0x4e49_0f6a);
    }

    #[test]
    fn frames_of_a_signature_go_where_it_says_until_it_is_removed() {
        let mut file = file(0);
        let mut flows = FlowDirector::default();
        let (frame, other) = (
            samples::tcp(true, Some(7), 1, &[1; 9]),
            samples::udp(true, Some(7), &[1; 9]),
        );
        let signature = Flow::of(&file, &frame).unwrap().signature(&file);
        file.set(at::FDIRHASH, signature | 1 << 15);
        assert_eq!(flows.command(&file, ADD | QUEUE_3), Done::Command(QUEUE_3));
        assert_eq!(queue(&flows, &file, &frame), Some(3));
        assert_eq!(queue(&flows, &file, &other), None);
        // The headers suffice, and the tag counts.
        assert_eq!(queue(&flows, &file, &frame[..frame.len() - 9]), Some(3));
        assert_eq!(
            queue(&flows, &file, &samples::tcp(true, Some(8), 1, &[1; 9])),
            None
        );
        assert_eq!(
            flows.command(&file, QUERY),
            Done::Command(bit::FDIRCMD_VALID)
        );
        assert_eq!(flows.command(&file, REMOVE), Done::Command(0));
        assert_eq!(flows.command(&file, QUERY), Done::Command(0));
        assert!(flows.is_empty());
    }

    #[test]
    fn a_perfect_filter_matches_what_its_masks_leave() {
        let mut file = file(bit::FDIRCTRL_PERFECT | 127 << bit::FDIRCTRL_DROP_SHIFT);
        let mut flows = FlowDirector::default();
        // TCP to port 80, from whoever: the mask of ports has them in reverse.
        file.set(at::FDIRTCPM, 0x0000_ffff);
        file.set(at::FDIRPORT, 80 << 16 | 99);
        file.set(at::FDIRHASH, 5 << 16 | 0x123);
        let kind = u32::from(TCP) << bit::FDIRCMD_KIND_SHIFT;
        let _done = flows.command(&file, ADD | QUEUE_3 | kind);
        for (v6, frame, expected) in [
            (false, samples::tcp(false, None, 1, &[1; 9]), Some(3)),
            (false, samples::tcp(false, Some(9), 1, &[1; 9]), Some(3)),
            (false, samples::udp(false, None, &[1; 9]), None),
            (true, samples::tcp(true, None, 1, &[1; 9]), None),
        ] {
            assert_eq!(queue(&flows, &file, &frame), expected, "{v6}");
        }
        let frame = samples::tcp(false, None, 1, &[1; 9]);
        let found = flows.find(&file, &frame).map(|target| target.hash);
        assert_eq!(found, Some(5 << 16 | 0x123));
        // The same number again is the same filter: it is moved, to the queue of what is dropped.
        let _done = flows.command(&file, ADD | QUEUE_3 | kind | bit::FDIRCMD_DROP);
        assert_eq!(queue(&flows, &file, &frame), Some(127));
        // A source address is named as well, and it is another one.
        file.set(at::FDIRSIP4M, 0);
        file.set(at::FDIRIPSA, 0x0a00_0009);
        file.set(at::FDIRHASH, 5 << 16);
        let _done = flows.command(&file, ADD | QUEUE_3 | kind);
        assert_eq!(queue(&flows, &file, &frame), None);
        file.set(at::FDIRIPSA, 0x0a00_0001);
        let _done = flows.command(&file, ADD | QUEUE_3 | kind);
        assert_eq!(queue(&flows, &file, &frame), Some(3));
        assert_eq!(
            flows.command(&file, bit::FDIRCMD_CLEAR),
            Done::Command(bit::FDIRCMD_CLEAR)
        );
        assert!(flows.is_empty());
    }

    #[test]
    fn filters_are_bounded() {
        let mut file = file(bit::FDIRCTRL_PERFECT);
        let mut flows = FlowDirector::default();
        file.set(at::FDIRSIP4M, 0);
        for number in 0..PERFECT_MAX as u32 {
            file.set(at::FDIRHASH, number << 16);
            file.set(at::FDIRIPSA, number);
            assert_eq!(flows.command(&file, ADD), Done::Command(0));
        }
        file.set(at::FDIRHASH, (PERFECT_MAX as u32) << 16);
        assert_eq!(flows.command(&file, ADD), Done::Full);
        // One that is there is replaced.
        file.set(at::FDIRHASH, 0);
        assert_eq!(flows.command(&file, ADD), Done::Command(0));
    }

    #[test]
    fn what_is_no_packet_has_no_flow() {
        let file = file(0);
        assert_eq!(Flow::of(&file, &[0xff; 60]), None);
        let mut fragment = samples::udp(false, None, &[1; 9]);
        fragment[20] = 0x20;
        assert_eq!(Flow::of(&file, &fragment), None);
        assert_eq!(Flow::of(&file, &samples::udp(false, None, &[])[..30]), None);
    }
}
