//! What was lent, noted down in memory that outlives the image, so that the next one lends nobody
//! what somebody has.
//!
//! Each address of a range has a place. What it says counts from its last store on and until its
//! first store is changed, as with [notes](crate::notes); what is taken up is checked, and believed
//! no longer than an address is lent.

use super::message::{IDENTIFIER_MAX, Key};
use super::{DECLINED_TIME, LEASE_TIME};
use crate::ethernet::Mac;
use crate::notes::place;
use core::net::Ipv4Addr;
use core::time::Duration;
use ports::Instant;
use zerocopy::FromBytes;

/// It goes up with each change of what places mean.
pub const VERSION: u32 = 1;
/// Words in which a place says something: address, shape, two of a time, and the holder.
const WORDS: usize = 4 + HOLDER_WORDS;
const HOLDER_WORDS: usize = IDENTIFIER_MAX / 4;
/// Bytes of a place.
pub const PLACE_BYTES: usize = 4 * (WORDS + 2);
/// What the labels of places are about, above the number of their port.
const LABEL: u32 = 0x4c45_0000;

// What a place's shape says: what the address is used for, and who has it.
const DECLINED: u32 = 0;
const BY_MAC: u32 = 1;
const BY_IDENTIFIER: u32 = 2;

/// A place: whose it is, what it says, and a check.
type Place = place::Place<{ WORDS + 2 }>;

const _: () = assert!(size_of::<Place>() == PLACE_BYTES && IDENTIFIER_MAX.is_multiple_of(4));

/// What is noted down of an address: who has it, or nobody if somebody was found to have it, and
/// until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    pub address: Ipv4Addr,
    pub holder: Option<Key>,
    pub until: Instant,
}

/// Places for what a server lends.
#[derive(Debug)]
pub struct Shelf {
    places: &'static [Place],
    label: u32,
    /// Time since 1970 at [`Instant::PAST`]: the next image may have another clock.
    wall: Duration,
}

impl Shelf {
    /// Places for the server of this port. There are none if the memory does not begin at a
    /// multiple of 4 bytes.
    pub fn open(memory: &'static mut [u8], port: u16, wall: Duration) -> Self {
        let whole = memory.len() - memory.len() % PLACE_BYTES;
        let places = <[Place]>::mut_from_bytes(&mut memory[..whole]);
        Self {
            places: places.map_or(&[], |places| places),
            label: LABEL | u32::from(port),
            wall,
        }
    }

    /// All that is noted here and can be true at `now`. Then nothing is noted any more.
    pub(super) fn take_up(&self, now: Instant) -> impl Iterator<Item = Noted> {
        self.places.iter().filter_map(move |place| {
            let noted = place.read(self.label);
            place.erase();
            self.noted(noted?, now)
        })
    }

    fn noted(&self, words: [u32; WORDS], now: Instant) -> Option<Noted> {
        let [address, shape, low, high, holder @ ..] = words;
        let holder: [u8; IDENTIFIER_MAX] = zerocopy::transmute!(holder);
        let (kind, len) = (shape & 0xff, (shape >> 8) as usize);
        let bytes = holder.get(..len)?;
        let (holder, longest) = match kind {
            DECLINED => (None, DECLINED_TIME),
            BY_MAC => {
                let mac = Mac(*bytes.first_chunk()?);
                let is_one = len == 6 && mac.is_station();
                (Some(is_one.then_some(Key::Mac(mac))?), LEASE_TIME)
            }
            BY_IDENTIFIER => (Some(Key::identifier(bytes)?), LEASE_TIME),
            _ => return None,
        };
        let until = Duration::from_secs(u64::from(low) | u64::from(high) << 32);
        let passed = self.wall + (now - Instant::PAST);
        let left = until.checked_sub(passed)?;
        Some(Noted {
            address: Ipv4Addr::from_bits(address),
            holder,
            // A clock may have been turned back.
            until: now + left.min(longest),
        })
    }

    /// Notes down what the address with this number is used for; `None` is nothing.
    pub(super) fn write(&self, number: usize, noted: Option<Noted>) {
        let Some(place) = self.places.get(number) else {
            return;
        };
        let Some(noted) = noted else {
            return place.erase();
        };
        let (kind, bytes) = match &noted.holder {
            None => (DECLINED, &[][..]),
            Some(key @ Key::Mac(_)) => (BY_MAC, key.bytes()),
            Some(key @ Key::Identifier(_)) => (BY_IDENTIFIER, key.bytes()),
        };
        let mut holder = [0; IDENTIFIER_MAX];
        let len = bytes.len().min(IDENTIFIER_MAX);
        holder[..len].copy_from_slice(&bytes[..len]);
        let holder: [u32; HOLDER_WORDS] = zerocopy::transmute!(holder);
        let until = (self.wall + (noted.until - Instant::PAST)).as_secs();
        let mut words = [0; WORDS];
        words[..4].copy_from_slice(&[
            noted.address.to_bits(),
            kind | (len as u32) << 8,
            until as u32,
            (until >> 32) as u32,
        ]);
        words[4..].copy_from_slice(&holder);
        place.write(self.label, &words);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{at, lasting, lying};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::vec::Vec;

    const PLACES: usize = 2;
    const BYTES: usize = PLACES * PLACE_BYTES;

    std::thread_local! {
        /// Where places lie, and what lay there between any two stores.
        static WATCH: RefCell<Option<(usize, Vec<Vec<u8>>)>> = const { RefCell::new(None) };
    }

    /// A store has happened.
    pub(crate) fn moment() {
        WATCH.with_borrow_mut(|watch| {
            if let Some((address, seen)) = watch {
                seen.push(lying(*address, BYTES));
            }
        });
    }

    fn shelf(bytes: &[u8]) -> (Shelf, usize) {
        let memory = lasting(bytes);
        let address = memory.as_ptr().addr();
        (Shelf::open(memory, 7, Duration::from_secs(1000)), address)
    }

    fn known(bytes: &[u8], now: Instant) -> Vec<Noted> {
        shelf(bytes).0.take_up(now).collect()
    }

    fn noted(last: u8, holder: Option<Key>, seconds: u64) -> Noted {
        Noted {
            address: Ipv4Addr::new(10, 0, 0, last),
            holder,
            until: at(1000 * seconds),
        }
    }

    fn someone(n: u8) -> Option<Key> {
        Some(Key::Mac(Mac([2, 0, 0, 0, 0, n])))
    }

    #[test]
    fn what_was_lent_outlives_its_server_between_any_two_stores() {
        let (shelf, address) = shelf(&[0; BYTES]);
        let long = Key::identifier(&[9; IDENTIFIER_MAX]);
        let mut model = [None, None];
        for (number, next) in [
            (0, Some(noted(100, someone(1), 600))),
            (1, Some(noted(101, long, 700))),
            (0, Some(noted(100, someone(2), 800))),
            (1, None),
            (0, Some(noted(100, None, 300))),
        ] {
            WATCH.set(Some((address, Vec::new())));
            shelf.write(number, next.clone());
            let (_, seen) = WATCH.take().unwrap();
            let before = model.clone();
            model[number] = next;
            let mut between = before.clone();
            between[number] = None;
            assert!(!seen.is_empty());
            let all = [&before, &between, &model].map(|one| one.iter().flatten().cloned());
            let all = all.map(Iterator::collect::<Vec<_>>);
            for bytes in seen {
                let found = known(&bytes, at(0));
                assert!(all.contains(&found), "{found:?}");
            }
            assert_eq!(known(&lying(address, BYTES), at(0)), all[2]);
        }
    }

    #[test]
    fn what_is_over_or_of_another_port_is_not_taken_up() {
        let (shelf, address) = shelf(&[0; BYTES]);
        shelf.write(0, Some(noted(100, someone(1), 600)));
        shelf.write(1, Some(noted(101, someone(2), 100_000)));
        let bytes = lying(address, BYTES);
        let found = known(&bytes, at(601_000));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].until, at(601_000) + LEASE_TIME);
        let wall = Duration::from_secs(1000);
        let other = Shelf::open(lasting(&bytes), 8, wall);
        assert_eq!(other.take_up(at(0)).count(), 0);
        // A number that has no place.
        shelf.write(PLACES, Some(noted(102, someone(3), 600)));
        assert_eq!(lying(address, BYTES), bytes);
    }

    proptest! {
        #[test]
        fn whatever_lies_there_is_believed_for_no_longer_than_is_lent(
            bytes in prop::collection::vec(any::<u8>(), BYTES),
            sound in any::<[bool; PLACES]>(),
            shape in any::<[(u8, u8); PLACES]>(),
        ) {
            let (shelf, address) = shelf(&bytes);
            let all = shelf.places.iter().zip(sound.into_iter().zip(shape));
            for (place, (sound, (kind, len))) in all {
                let mut words: [u32; WORDS] = place.words();
                words[1] = u32::from(kind % 4) | u32::from(len) << 8;
                if sound {
                    place.write(shelf.label, &words);
                }
            }
            let found: Vec<_> = shelf.take_up(at(5)).collect();
            prop_assert!(found.len() <= sound.into_iter().filter(|sound| *sound).count());
            for one in found {
                prop_assert!(one.until <= at(5) + LEASE_TIME);
            }
            prop_assert_eq!(known(&lying(address, BYTES), at(5)), []);
        }
    }
}
