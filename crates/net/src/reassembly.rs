//! Packets that come in fragments, for both versions of IP (RFC 791, 3.2; RFC 8200, 4.5; RFC 5722).
//!
//! Each packet is put together in one large buffer, so that a fragment's own buffer goes back to
//! the port at once. Memory is bounded by the pool of these buffers. Of those that wait, no source
//! has more than half; who has most loses its oldest if another one comes.
//!
//! What overlaps is dropped whole, and so is what comes of it later (RFC 5722, 4): nobody decides
//! which of two readings is the right one.

use crate::address::Address;
use crate::counts::{Counts, reasons};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::time::Duration;
use device::{Frame, Pool};
use ports::Instant;

/// Packets that wait at once, at most.
pub const PENDING_MAX: usize = 16;

/// Runs of bytes that a packet may have before it is whole. Fragments of 576 bytes in any order
/// have fewer in 64 KiB.
const RUNS_MAX: usize = 64;

/// Room in front of a packet for its network header.
const HEADER_ROOM: usize = 40;

/// What the fragments of one packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<A> {
    /// Source of the packet.
    pub source: A,
    /// Destination of the packet.
    pub destination: A,
    /// Its protocol; zero over IPv6 (RFC 8200, 4.5).
    pub protocol: u8,
    /// Its number.
    pub id: u32,
}

/// A fragment.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'a, A> {
    /// Which packet it belongs to.
    pub key: Key<A>,
    /// The network header of the whole packet, at most 40 bytes; the first fragment's counts.
    pub header: &'a [u8],
    /// Protocol of the payload, as this fragment says.
    pub protocol: u8,
    /// Where its payload lies in that of the packet, in bytes.
    pub offset: usize,
    /// Whether more follows.
    pub more: bool,
    /// Its payload.
    pub payload: &'a [u8],
}

/// A packet that is whole, or whose time is over.
#[derive(Debug)]
pub struct Packet<A> {
    /// Which one.
    pub key: Key<A>,
    /// Protocol of the payload, as the first fragment said.
    pub protocol: u8,
    /// The payload, with so many bytes of network header in front of it, popped.
    pub frame: Frame,
    /// Bytes of network header.
    pub header: usize,
}

reasons! {
    /// Why fragments were dropped.
    pub enum Dropped {
        /// One is empty, or not a multiple of eight bytes though more follows.
        Malformed = "fragment_malformed",
        /// One ends where no packet can.
        TooLong = "fragment_too_long",
        /// Two overlap, or say different ends: the packet is dropped.
        Overlap = "fragment_overlap",
        /// A packet lies in too many pieces.
        TooMany = "fragment_too_many",
        /// No buffer is left.
        NoBuffer = "fragment_no_buffer",
        /// A packet gave way to another one.
        Evicted = "fragment_evicted",
        /// A packet did not become whole in time.
        Late = "fragment_late",
    }
}

#[derive(Debug)]
struct Pending<A> {
    key: Key<A>,
    /// `None` once fragments overlapped.
    frame: Option<Frame>,
    /// Of the first fragment, once that is there.
    header: Option<usize>,
    protocol: u8,
    /// What is there: runs from and to, in order, none touching the next one.
    runs: ArrayVec<(usize, usize), RUNS_MAX>,
    /// Length of the packet, once the last fragment is there.
    end: Option<usize>,
    until: Instant,
}

/// How a fragment fits in what is there.
enum Fit {
    /// In front of the run of this number.
    At(usize),
    /// It lies in what is there.
    Inside,
    /// It lies partly in what is there, or the ends differ.
    Overlap,
}

impl<A: Address> Pending<A> {
    fn fit(&self, fragment: &Fragment<'_, A>) -> Fit {
        let (from, to) = (fragment.offset, fragment.offset + fragment.payload.len());
        let last = self.runs.last().map_or(0, |run| run.1);
        let ends_differ = match self.end {
            Some(end) if fragment.more => to > end,
            Some(end) => to != end,
            None => !fragment.more && last > to,
        };
        let place = self.runs.partition_point(|run| run.1 <= from);
        match self.runs.get(place) {
            _ if ends_differ => Fit::Overlap,
            Some(run) if run.0 <= from && to <= run.1 => Fit::Inside,
            Some(run) if run.0 < to => Fit::Overlap,
            _ => Fit::At(place),
        }
    }

    /// Takes a fragment in.
    fn insert(&mut self, fragment: &Fragment<'_, A>) -> Result<(), Dropped> {
        let fit = self.fit(fragment);
        let frame = self.frame.as_mut().ok_or(Dropped::Overlap)?;
        let (from, to) = (fragment.offset, fragment.offset + fragment.payload.len());
        let place = frame
            .bytes_mut()
            .get_mut(HEADER_ROOM + from..HEADER_ROOM + to);
        let place = place.ok_or(Dropped::TooLong)?;
        let run = match fit {
            Fit::At(run) => run,
            // The network may double a packet (RFC 8200, 4.5).
            Fit::Inside if place == fragment.payload => return Ok(()),
            Fit::Inside | Fit::Overlap => {
                self.frame = None;
                return Err(Dropped::Overlap);
            }
        };
        join(&mut self.runs, run, from, to)?;
        place.copy_from_slice(fragment.payload);
        if from == 0 {
            let header = fragment.header.len();
            frame.bytes_mut()[HEADER_ROOM - header..HEADER_ROOM].copy_from_slice(fragment.header);
            self.header = Some(header);
            self.protocol = fragment.protocol;
        }
        if !fragment.more {
            self.end = Some(to);
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.runs[..] == [(0, end)])
    }

    /// The packet up to its first hole; `None` if its beginning is not there.
    fn into_packet(self) -> Option<Packet<A>> {
        let (mut frame, header) = (self.frame?, self.header?);
        let (_, end) = *self.runs.first()?;
        frame.truncate(HEADER_ROOM + end);
        frame.pop_front(HEADER_ROOM).then_some(Packet {
            key: self.key,
            protocol: self.protocol,
            frame,
            header,
        })
    }
}

/// Adds a run in front of that of number `run`, and joins what touches.
fn join(
    runs: &mut ArrayVec<(usize, usize), RUNS_MAX>,
    run: usize,
    from: usize,
    to: usize,
) -> Result<(), Dropped> {
    let before = run.checked_sub(1).filter(|before| runs[*before].1 == from);
    let behind = runs.get(run).is_some_and(|next| next.0 == to);
    match (before, behind) {
        (Some(before), true) => runs[before].1 = runs.remove(run).1,
        (Some(before), false) => runs[before].1 = to,
        (None, true) => runs[run].0 = from,
        (None, false) => {
            let added = runs.try_insert(run, (from, to));
            return added.map_err(|_| Dropped::TooMany);
        }
    }
    Ok(())
}

/// Packets that are not whole yet.
pub struct Reassembly<A> {
    /// At most `most`, for which there is room: on the heap, because stacks of images are small.
    pending: Vec<Pending<A>>,
    buffers: Pool,
    /// Packets that may wait at once.
    most: usize,
    /// Bytes of the largest payload.
    payload_max: usize,
    timeout: Duration,
    dropped: Counts<Dropped>,
}

impl<A: Address> Reassembly<A> {
    /// Of packets with at most `payload_max` bytes behind their network headers, in `buffers` of
    /// which at most a third is used, so that some are left for whoever holds what came.
    pub fn new(buffers: Pool, payload_max: usize, timeout: Duration) -> Self {
        let room = buffers.frame_bytes_max().saturating_sub(HEADER_ROOM);
        Self {
            pending: Vec::with_capacity(PENDING_MAX),
            buffers,
            most: (buffers.count() / 3).clamp(1, PENDING_MAX),
            payload_max: payload_max.min(room),
            timeout,
            dropped: Counts::default(),
        }
    }

    /// Takes a fragment; returns the packet once that is whole.
    pub fn insert(&mut self, fragment: Fragment<'_, A>, now: Instant) -> Option<Packet<A>> {
        let whole = self.place(&fragment, now).and_then(|n| {
            let pending = &mut self.pending[n];
            pending.insert(&fragment)?;
            Ok(pending.is_whole().then(|| self.pending.remove(n)))
        });
        match whole {
            Ok(whole) => whole?.into_packet(),
            Err(reason) => {
                self.dropped.add(reason);
                None
            }
        }
    }

    /// Drops a packet whose time is over, and returns what there is of it if its beginning is: its
    /// sender learns of that (RFC 792; RFC 4443, 3.3). To be called until there is none.
    pub fn expire(&mut self, now: Instant) -> Option<Packet<A>> {
        while let Some(n) = self.pending.iter().position(|pending| pending.until <= now) {
            self.dropped.add(Dropped::Late);
            let packet = self.pending.remove(n).into_packet();
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    /// When [`Self::expire`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.until).min()
    }

    /// What was dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// The number of the packet that `fragment` belongs to, among those that wait.
    fn place(&mut self, fragment: &Fragment<'_, A>, now: Instant) -> Result<usize, Dropped> {
        let len = fragment.payload.len();
        if len == 0
            || (fragment.more && !len.is_multiple_of(8))
            || fragment.header.len() > HEADER_ROOM
        {
            return Err(Dropped::Malformed);
        }
        if fragment.offset + len > self.payload_max {
            return Err(Dropped::TooLong);
        }
        let known = self
            .pending
            .iter()
            .position(|other| other.key == fragment.key);
        if let Some(known) = known {
            return Ok(known);
        }
        self.make_room(fragment.key.source);
        let frame = self.buffers.alloc_max().ok_or(Dropped::NoBuffer)?;
        self.pending.push(Pending {
            key: fragment.key,
            frame: Some(frame),
            header: None,
            protocol: fragment.protocol,
            runs: ArrayVec::new(),
            end: None,
            until: now + self.timeout,
        });
        Ok(self.pending.len() - 1)
    }

    /// Makes room for a packet of `source`, which loses its own oldest one if it has half of all;
    /// if there is none left, who has most loses its oldest.
    fn make_room(&mut self, source: A) {
        let count = |pending: &[Pending<A>], of: A| {
            let of_source = pending.iter().filter(|other| other.key.source == of);
            of_source.count()
        };
        let greedy = if count(&self.pending, source) >= (self.most / 2).max(1) {
            source
        } else if self.pending.len() >= self.most {
            let sources = self.pending.iter().map(|pending| pending.key.source);
            let most = sources.max_by_key(|of| count(&self.pending, *of));
            most.unwrap_or(source)
        } else {
            return;
        };
        // They lie in the order in which they came.
        let oldest = self
            .pending
            .iter()
            .position(|other| other.key.source == greedy);
        if let Some(oldest) = oldest {
            self.pending.remove(oldest);
            self.dropped.add(Dropped::Evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::testing::{at, large};
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use std::vec::Vec;

    const HEADER: [u8; 20] = [0x45; 20];

    fn key(source: u8, id: u32) -> Key<Ipv4Addr> {
        Key {
            source: [10, 0, 0, source].into(),
            destination: Ipv4Addr::LOCALHOST,
            protocol: 17,
            id,
        }
    }

    fn reassembly(buffers: usize) -> Reassembly<Ipv4Addr> {
        Reassembly::new(large(buffers), 65_515, Duration::from_secs(30))
    }

    fn fragment(id: u32, offset: usize, more: bool, payload: &[u8]) -> Fragment<'_, Ipv4Addr> {
        Fragment {
            key: key(1, id),
            header: &HEADER,
            protocol: 17,
            offset,
            more,
            payload,
        }
    }

    #[test]
    fn a_packet_is_whole_once_all_of_it_is_there() {
        let mut packets = reassembly(12);
        assert!(
            packets
                .insert(fragment(1, 8, false, b"end"), at(0))
                .is_none()
        );
        assert!(
            packets
                .insert(fragment(2, 0, true, b"anothers"), at(0))
                .is_none()
        );
        let mut whole = packets
            .insert(fragment(1, 0, true, b"the very"), at(0))
            .unwrap();
        assert_eq!(whole.frame.bytes(), b"the veryend");
        assert_eq!(
            whole.frame.push_front(whole.header),
            Some(&mut { HEADER }[..])
        );
        assert_eq!(packets.pending.len(), 1);
    }

    #[test]
    fn a_doubled_fragment_is_no_overlap() {
        let mut packets = reassembly(9);
        packets.insert(fragment(1, 0, true, b"12345678"), at(0));
        packets.insert(fragment(1, 0, true, b"12345678"), at(0));
        assert!(packets.insert(fragment(1, 8, false, b"9"), at(0)).is_some());
    }

    #[test]
    fn what_overlaps_is_dropped_whole_and_so_is_what_follows() {
        for second in [
            fragment(1, 0, true, b"1234567X"),
            fragment(1, 8, true, b"9012345678901234"),
            fragment(1, 8, false, b"90123456"),
            fragment(1, 0, false, b"1"),
        ] {
            let mut packets = reassembly(9);
            packets.insert(fragment(1, 0, true, b"12345678"), at(0));
            packets.insert(fragment(1, 16, true, b"12345678"), at(0));
            assert!(packets.insert(second, at(0)).is_none());
            packets.insert(fragment(1, 8, true, b"12345678"), at(0));
            assert!(
                packets
                    .insert(fragment(1, 24, false, b"1"), at(0))
                    .is_none()
            );
            assert_eq!(packets.dropped().get(Dropped::Overlap), 3, "{second:?}");
            assert!(packets.expire(at(30_000)).is_none());
        }
    }

    #[test]
    fn two_ends_are_an_overlap() {
        let mut packets = reassembly(9);
        packets.insert(fragment(1, 8, false, b"12"), at(0));
        packets.insert(fragment(1, 8, true, b"12345678"), at(0));
        assert_eq!(packets.dropped().get(Dropped::Overlap), 1);
    }

    #[test]
    fn each_bad_fragment_has_its_reason() {
        let mut packets = reassembly(9);
        packets.insert(fragment(1, 0, true, b"123"), at(0));
        packets.insert(fragment(1, 0, false, b""), at(0));
        assert_eq!(packets.dropped().get(Dropped::Malformed), 2);
        packets.insert(fragment(1, 65_512, false, b"1234"), at(0));
        assert_eq!(packets.dropped().get(Dropped::TooLong), 1);
        for n in 0..=RUNS_MAX {
            packets.insert(fragment(1, 16 * n, true, b"12345678"), at(0));
        }
        assert_eq!(packets.dropped().get(Dropped::TooMany), 1);
        let held: Vec<_> = core::iter::from_fn(|| packets.buffers.alloc_max()).collect();
        let mut other = fragment(2, 0, true, b"12345678");
        other.key = key(2, 2);
        packets.insert(other, at(0));
        assert_eq!(packets.dropped().get(Dropped::NoBuffer), 1);
        drop(held);
    }

    #[test]
    fn the_beginning_of_a_late_packet_is_told() {
        let mut packets = reassembly(9);
        packets.insert(fragment(1, 0, true, b"12345678"), at(0));
        packets.insert(fragment(1, 16, true, b"12345678"), at(0));
        assert_eq!(packets.deadline(), Some(at(30_000)));
        assert!(packets.expire(at(29_999)).is_none());
        let late = packets.expire(at(30_000)).unwrap();
        assert_eq!((late.frame.bytes(), late.key.id), (&b"12345678"[..], 1));
        packets.insert(fragment(2, 8, true, b"12345678"), at(0));
        assert!(
            packets.expire(at(30_000)).is_none(),
            "without its beginning"
        );
        assert_eq!(packets.dropped().get(Dropped::Late), 2);
        assert_eq!(
            packets.buffers.free(),
            8,
            "a buffer is the sender's of the error"
        );
    }

    #[test]
    fn a_flood_takes_no_more_than_its_share() {
        let mut packets = reassembly(18);
        let mut other = fragment(7, 0, true, b"12345678");
        other.key = key(2, 7);
        packets.insert(other, at(0));
        for id in 0..10_000 {
            packets.insert(fragment(id, 0, true, b"12345678"), at(1));
        }
        assert_eq!((packets.pending.len(), packets.buffers.free()), (4, 14));
        let mut rest = fragment(7, 8, false, b"9");
        rest.key = key(2, 7);
        assert!(packets.insert(rest, at(2)).is_some());
        // From many sources: as much as there is room for.
        for source in 0..200 {
            let mut one = fragment(1, 0, true, b"12345678");
            one.key = key(source, 1);
            packets.insert(one, at(3));
        }
        assert_eq!((packets.pending.len(), packets.buffers.free()), (6, 12));
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_make_the_packet(
            payload in proptest::collection::vec(any::<u8>(), 9..3000),
            size in 1usize..64,
            seed: u64,
        ) {
            let size = 8 * size.max(payload.len() / 8 / 100 + 1);
            let mut pieces: Vec<_> = payload.chunks(size).enumerate().collect();
            let mut random = Random::new(seed);
            // Shuffled, and each one perhaps twice.
            for n in (1..pieces.len()).rev() {
                pieces.swap(n, random.below(n as u64 + 1) as usize);
            }
            let mut packets = reassembly(6);
            let mut whole = None;
            for (n, piece) in &pieces {
                let offset = n * size;
                let more = offset + piece.len() < payload.len();
                for _ in 0..=random.below(2) {
                    if whole.is_none() {
                        whole = packets.insert(fragment(1, offset, more, piece), at(0));
                    }
                }
            }
            let whole = whole.unwrap();
            prop_assert_eq!(whole.frame.bytes(), &payload[..]);
        }

        /// Whatever comes: never a panic, and what is whole was never two readings.
        #[test]
        fn arbitrary_fragments_are_bounded(
            pieces in proptest::collection::vec(
                (0u32..4, 0usize..8, any::<bool>(), 0usize..40),
                0..60,
            ),
        ) {
            let mut packets = reassembly(9);
            for (id, place, more, len) in pieces {
                let payload = [7; 40];
                packets.insert(fragment(id, 8 * place, more, &payload[..len]), at(0));
                prop_assert!(packets.pending.len() <= packets.most);
                let held = packets.pending.iter().filter(|one| one.frame.is_some()).count();
                prop_assert_eq!(packets.buffers.free() + held, 9);
            }
        }
    }
}
