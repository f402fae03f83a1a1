//! Frames to the driver (5.1.6.3, 5.1.6.4).
//!
//! A frame that the driver's queue has no room for stays on the wire. Where it can, the wire puts
//! the payload of a frame into the driver's buffers itself.

use super::super::chain::Chain;
use super::super::queue::{Alone, Virtqueue};
use super::super::work::Work;
use super::header::{self, GSO_ECN, GSO_TCP4, GSO_TCP6, GSO_UDP, Header, NEEDS_CHECKSUM};
use super::{Nic, POLL_FRAMES, PUBLISH_FRAMES, feature};
use crate::dma::Dma;
use crate::misbehaviour::Fault;
use crate::packet::segment::Plan;
use crate::packet::{self, Offload};
use crate::violation::Violation;
use crate::wire::Wire;

/// Most buffers of one frame.
const CHAINS_MAX: usize = 64;
/// Flag of TCP that tells of congestion (RFC 3168), and where flags are.
const CWR: u8 = 0x80;
const TCP_FLAGS: usize = 13;

/// The buffers that a frame goes to, and room for what is done to it.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    chains: Vec<Chain>,
    scratch: Vec<u8>,
    /// Segments of the frame at the end of the wire that were received.
    segments: usize,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The driver has it, or will never.
    Over,
    /// There is no room for it now.
    NoRoom,
}

/// How a frame goes to the driver.
enum Way {
    /// As it is, with this header.
    Whole(Header),
    /// As it is, once its checksum is complete.
    Completed(u16, u16),
    /// Cut into segments.
    Cut(Plan),
}

impl Receiver {
    pub(super) fn reset(&mut self) {
        self.segments = 0;
    }

    /// Receives what came in, up to a bound: how many frames.
    pub(super) fn receive(
        &mut self,
        nic: &mut Nic,
        frames: &mut [Virtqueue],
        wire: &mut impl Wire,
        work: &mut Work<'_>,
    ) -> u32 {
        let mut received = 0;
        for queue in frames.iter_mut().step_by(2) {
            // Nobody waits for buffers while there are some.
            queue.silence(work);
        }
        while received < POLL_FRAMES {
            let Some((frame, offload)) = wire.peek() else {
                break;
            };
            let number = usize::from(2 * nic.steering.pair(frame));
            let queue = frames.get_mut(number).filter(|queue| queue.is_ready());
            let fits = offload.segment.is_some() || nic.admits_length(frame.len());
            let Some(queue) = queue.filter(|_| fits && nic.filter.admits(frame)) else {
                wire.take();
                continue;
            };
            let mut outcome = self.deliver(nic, frame, offload, queue, work);
            // Buffers that came before the driver was asked to say so came without a word.
            while outcome == Outcome::NoRoom && queue.listen(work) {
                outcome = self.deliver(nic, frame, offload, queue, work);
            }
            if outcome == Outcome::NoRoom {
                break;
            }
            self.segments = 0;
            wire.take();
            received += 1;
            if received.is_multiple_of(PUBLISH_FRAMES) {
                queue.publish(work);
            }
        }
        for queue in frames.iter_mut().step_by(2) {
            queue.publish(work);
        }
        received
    }

    #[inline]
    fn deliver(
        &mut self,
        nic: &Nic,
        frame: &[u8],
        offload: Offload,
        queue: &mut Virtqueue,
        work: &mut Work<'_>,
    ) -> Outcome {
        match way(nic, frame, offload) {
            Way::Whole(header) => self.place(nic, header, frame, queue, work),
            Way::Completed(start, offset) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                scratch.extend_from_slice(frame);
                packet::complete(&mut scratch, start, offset);
                let outcome = self.place(nic, Header::default(), &scratch, queue, work);
                self.scratch = scratch;
                outcome
            }
            Way::Cut(plan) => {
                let mut scratch = std::mem::take(&mut self.scratch);
                let mut outcome = Outcome::Over;
                while plan.write(frame, self.segments, &mut scratch) {
                    outcome = self.place(nic, Header::default(), &scratch, queue, work);
                    if outcome == Outcome::NoRoom {
                        break;
                    }
                    self.segments += 1;
                }
                self.scratch = scratch;
                outcome
            }
        }
    }

    /// Writes a frame into the next buffers, which mostly is one.
    #[inline]
    fn place(
        &mut self,
        nic: &Nic,
        header: Header,
        frame: &[u8],
        queue: &mut Virtqueue,
        work: &mut Work<'_>,
    ) -> Outcome {
        if work.faults.is_off() {
            let needed = (header::BYTES + frame.len()) as u64;
            let least = match nic.has(feature::MRG_RXBUF) {
                true => needed,
                false => needed.max(least(nic)),
            };
            if let Some(buffer) = queue.take_alone(true, least.., work) {
                fill(&buffer, header, frame, queue, work);
                return Outcome::Over;
            }
        }
        self.place_in_chains(nic, header, frame, queue, work)
    }

    /// The same, into chains of any shape.
    #[inline(never)]
    fn place_in_chains(
        &mut self,
        nic: &Nic,
        mut header: Header,
        frame: &[u8],
        queue: &mut Virtqueue,
        work: &mut Work<'_>,
    ) -> Outcome {
        let needed = (header::BYTES + frame.len()) as u64;
        let most = match nic.has(feature::MRG_RXBUF) {
            true => CHAINS_MAX,
            false => 1,
        };
        let (mut used, mut room) = (0, 0);
        while room < needed && used < most {
            if self.chains.len() == used {
                self.chains.push(Chain::default());
            }
            let chain = &mut self.chains[used];
            if !queue.take(chain, work) {
                // A frame that all buffers together are too small for never fits.
                if used >= usize::from(queue.size) {
                    break;
                }
                let taken = self.chains[..used].iter().rev();
                taken.for_each(|chain| queue.put_back(chain.head));
                return Outcome::NoRoom;
            }
            used += 1;
            room += chain.writable_bytes();
            check(chain, nic, queue, work);
        }
        if room < needed {
            let (queue_name, bytes) = (queue.name, frame.len());
            let rule = "a receive buffer must have room for the longest frame (5.1.6.3.1)";
            work.report(Violation::Packet {
                queue: queue_name,
                bytes,
                rule,
            });
            // The buffers go back empty, so that a driver can put others in their place.
            for chain in &self.chains[..used] {
                queue.give_back(chain.head, 0, work);
            }
            return Outcome::Over;
        }
        header.buffers = used as u16;
        garble(&mut header, work);
        let late = work.faults.strikes(Fault::EarlyDone);
        if !late {
            self.write(used, &header, frame, queue, work);
        }
        let mut left = needed;
        for chain in &self.chains[..used] {
            let written = left.min(chain.writable_bytes());
            left -= written;
            queue.give_back(chain.head, written as u32, work);
        }
        if late {
            queue.publish(work);
            self.write(used, &header, frame, queue, work);
        }
        if work.faults.strikes(Fault::WildWrite) {
            queue.publish(work);
            let noise = work.faults.number().to_le_bytes();
            // What is not in the memory is not written.
            let _outside = self.chains[0].write(header::BYTES as u64, &noise, work.dma);
        }
        Outcome::Over
    }

    fn write(
        &self,
        used: usize,
        header: &Header,
        frame: &[u8],
        queue: &Virtqueue,
        work: &mut Work<'_>,
    ) {
        let mut done = 0;
        let mut front = Some(header.bytes());
        for chain in &self.chains[..used] {
            let mut write = || {
                let skip = match front.take() {
                    Some(header) => chain.write(0, &header, work.dma)?,
                    None => 0,
                };
                chain.write(skip as u64, &frame[done..], work.dma)
            };
            match write() {
                Ok(written) => done += written,
                Err(fault) => {
                    let queue = queue.name;
                    return work.report(Violation::Dma { queue, fault });
                }
            }
        }
    }
}

/// Writes a frame into the one buffer that it goes to, and gives that back.
#[inline]
fn fill(buffer: &Alone, header: Header, frame: &[u8], queue: &mut Virtqueue, work: &mut Work<'_>) {
    let header = Header {
        buffers: 1,
        ..header
    };
    // An address that wraps is in no memory, and is found there.
    let behind = buffer.iova.wrapping_add(header::BYTES as u64);
    let written = work.dma.write(buffer.iova, &header.bytes());
    if let Err(fault) = written.and_then(|()| work.dma.write(behind, frame)) {
        let queue = queue.name;
        work.report(Violation::Dma { queue, fault });
    }
    let bytes = header::BYTES + frame.len();
    queue.give_back(buffer.head, bytes as u32, work);
}

/// 5.1.6.3.1: what a buffer of the driver's must be.
fn check(chain: &Chain, nic: &Nic, queue: &Virtqueue, work: &mut Work<'_>) {
    let rule = if !chain.readable.is_empty() {
        "a receive buffer must be writable alone (5.1.6.3)"
    } else if chain.writable_bytes() < header::BYTES as u64 {
        "a receive buffer must have room for a header (5.1.6.3.1)"
    } else if !nic.has(feature::MRG_RXBUF) && chain.writable_bytes() < least(nic) {
        "a receive buffer must have room for the longest frame (5.1.6.3.1)"
    } else {
        return;
    };
    let (queue, index) = (queue.name, chain.head.into());
    work.report(Violation::Descriptor { queue, index, rule });
}

/// Least bytes of a buffer that takes a frame alone, with its header (5.1.6.3.1).
fn least(nic: &Nic) -> u64 {
    match nic.negotiated & feature::GUEST_LARGE {
        0 => 1526,
        _ => 65_562,
    }
}

/// What the driver has to be given of a frame; whoever places it fills in the number of buffers.
#[inline]
fn way(nic: &Nic, frame: &[u8], offload: Offload) -> Way {
    let header = Header::default();
    if let Some(size) = offload.segment {
        // What says that it is to be cut, and is neither TCP nor UDP, is left as it is.
        return match Plan::read(frame, size) {
            Some(plan) => large(nic, frame, &plan).map_or(Way::Cut(plan), Way::Whole),
            None => Way::Whole(header),
        };
    }
    match offload.checksum {
        None => Way::Whole(header),
        Some((checksum_start, checksum_offset)) if nic.has(feature::GUEST_CSUM) => {
            Way::Whole(Header {
                flags: NEEDS_CHECKSUM,
                checksum_start,
                checksum_offset,
                ..header
            })
        }
        Some((start, offset)) => Way::Completed(start, offset),
    }
}

/// The header of a large packet that the driver takes as it is (5.1.6.4.1).
fn large(nic: &Nic, frame: &[u8], plan: &Plan) -> Option<Header> {
    let (kind, feature) = match (plan.is_udp(), plan.ip.v6) {
        (false, false) => (GSO_TCP4, feature::GUEST_TSO4),
        (false, true) => (GSO_TCP6, feature::GUEST_TSO6),
        (true, false) => (GSO_UDP, feature::GUEST_USO4),
        (true, true) => (GSO_UDP, feature::GUEST_USO6),
    };
    let flags = frame.get(plan.ip.payload + TCP_FLAGS);
    let congested = !plan.is_udp() && flags.is_some_and(|flags| flags & CWR != 0);
    let taken = nic.has(feature) && (!congested || nic.has(feature::GUEST_ECN));
    taken.then_some(Header {
        flags: NEEDS_CHECKSUM,
        gso: if congested { kind | GSO_ECN } else { kind },
        header_len: plan.header as u16,
        gso_size: plan.size as u16,
        checksum_start: plan.ip.payload as u16,
        checksum_offset: plan.checksum_offset() as u16,
        ..Header::default()
    })
}

/// The device misbehaves, or not.
fn garble(header: &mut Header, work: &mut Work<'_>) {
    let faults = &mut work.faults;
    if faults.strikes(Fault::Status) {
        let [flags, gso, ..] = faults.number().to_le_bytes();
        (header.flags, header.gso) = (flags, gso);
        header.gso_size = faults.number() as u16;
        header.checksum_start = faults.number() as u16;
        header.checksum_offset = faults.number() as u16;
    }
    if faults.strikes(Fault::Coalesced) {
        header.buffers = faults.number() as u16;
    }
}
