//! What a host notes down for the next one beside its [connections](crate::tcp::vault): which link
//! addresses its neighbours have, and what was lent to it.
//!
//! Notes lie in memory that outlives the image. Each fills a cache line, says by itself what it is
//! about, and has a checksum. It counts from its last store on and until its first store is
//! changed, so that the image may end between any two: what was being noted then is learned again.
//! Whoever takes notes up believes none of them for long: a neighbour is asked again if nobody
//! confirms it, and a server is asked again at once.

pub(crate) mod place;

use crate::address::Address;
use crate::dhcp::LeaseNote;
use crate::ethernet::Mac;
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use place::Place;
use zerocopy::FromBytes;

/// It goes up with each change of what notes mean.
pub const VERSION: u32 = 1;
/// Bytes of a note: a cache line.
pub const NOTE_BYTES: usize = 64;
/// Words in which a note says something.
pub(crate) const WORDS: usize = 14;
/// What notes of a lease are about. Those of neighbours have the bits of their addresses here.
const LEASE: u32 = 1;

/// Words of a note that say something.
pub(crate) type Words = [u32; WORDS];

/// A place for a note.
type Note = Place<{ WORDS + 2 }>;

const _: () = assert!(size_of::<Note>() == NOTE_BYTES);

/// One place, for a note that is about one thing.
#[derive(Debug)]
pub(crate) struct Single {
    note: &'static Note,
    label: u32,
}

impl Single {
    /// What is noted.
    pub(crate) fn read(&self) -> Option<Words> {
        self.note.read(self.label)
    }

    /// Notes this down in place of what was there.
    pub(crate) fn write(&self, words: &Words) {
        self.note.write(self.label, words);
    }

    /// There is nothing to be noted any more.
    pub(crate) fn erase(&self) {
        self.note.erase();
    }
}

/// Places for notes on the neighbours of a port.
#[derive(Debug)]
pub struct Shelf<A> {
    notes: &'static [Note],
    label: u32,
    free: Vec<u16>,
    addresses: PhantomData<A>,
}

impl<A: Address> Shelf<A> {
    fn new(notes: &'static [Note], port: u16) -> Self {
        // A note is found again by its number.
        let (notes, _) = notes.split_at(notes.len().min(u16::MAX.into()));
        Self {
            notes,
            label: label(A::BITS.into(), port),
            free: Vec::new(),
            addresses: PhantomData,
        }
    }

    /// All that is noted here: where, who, and which link address that neighbour has. Places whose
    /// note is not sound are free.
    pub(crate) fn take_up(&mut self) -> Vec<(u16, A, Mac)> {
        self.free.clear();
        let mut known = Vec::new();
        for (note, place) in self.notes.iter().zip(0..) {
            match note.read(self.label).and_then(neighbour) {
                Some((address, mac)) => known.push((place, address, mac)),
                None => {
                    note.erase();
                    self.free.push(place);
                }
            }
        }
        known
    }

    /// Notes a neighbour down, at the place that it has or at a free one; none if all are taken.
    pub(crate) fn write(&mut self, place: Option<u16>, address: A, mac: Mac) -> Option<u16> {
        let place = place.or_else(|| self.free.pop())?;
        let mut words = [0; WORDS];
        let number: [u32; 4] = zerocopy::transmute!(address.number().to_le_bytes());
        words[..4].copy_from_slice(&number);
        let [a, b, c, d, e, f] = mac.0;
        words[4] = u32::from_le_bytes([a, b, c, d]);
        words[5] = u32::from_le_bytes([e, f, 0, 0]);
        self.notes
            .get(usize::from(place))?
            .write(self.label, &words);
        Some(place)
    }

    /// A neighbour was forgotten.
    pub(crate) fn erase(&mut self, place: u16) {
        if let Some(note) = self.notes.get(usize::from(place)) {
            note.erase();
            self.free.push(place);
        }
    }
}

/// What a note on a neighbour says, if it can be true.
fn neighbour<A: Address>(words: Words) -> Option<(A, Mac)> {
    let [a, b, c, d, low, high, ..] = words;
    let number: [u8; 16] = zerocopy::transmute!([a, b, c, d]);
    let address = A::of_number(u128::from_le_bytes(number))?;
    let ([a, b, c, d], [e, f, ..]) = (low.to_le_bytes(), high.to_le_bytes());
    let mac = Mac([a, b, c, d, e, f]);
    (address.is_station() && mac.is_station()).then_some((address, mac))
}

fn label(what: u32, port: u16) -> u32 {
    what << 16 | u32::from(port)
}

/// Where a port notes down what it knows.
#[derive(Debug)]
pub struct Notes {
    /// Neighbours over IPv4.
    pub ipv4: Shelf<Ipv4Addr>,
    /// Neighbours over IPv6.
    pub ipv6: Shelf<Ipv6Addr>,
    /// What a server lends.
    pub lease: LeaseNote,
}

impl Notes {
    /// Notes of so many ports, by their numbers, each with an equal part of `memory`. `wall` is the
    /// time since 1970 at [`ports::Instant::PAST`]: leases count by it, because the next image may
    /// have another clock. There are none if the memory is too small, or does not begin at a
    /// multiple of 4 bytes.
    pub fn open(memory: &'static mut [u8], ports: u16, wall: Duration) -> Vec<Self> {
        let whole = memory.len() - memory.len() % NOTE_BYTES;
        let Ok(notes) = <[Note]>::mut_from_bytes(&mut memory[..whole]) else {
            return Vec::new();
        };
        let notes: &'static [Note] = notes;
        let each = notes.len() / usize::from(ports.max(1));
        if each < 3 {
            return Vec::new();
        }
        let parts = notes.chunks_exact(each).zip(0..ports);
        let parts = parts.filter_map(|(part, port)| {
            let (note, part) = part.split_first()?;
            let (ipv4, ipv6) = part.split_at(part.len() / 2);
            let lease = Single {
                note,
                label: label(LEASE, port),
            };
            Some(Self {
                ipv4: Shelf::new(ipv4, port),
                ipv6: Shelf::new(ipv6, port),
                lease: LeaseNote::new(lease, wall),
            })
        });
        parts.collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
