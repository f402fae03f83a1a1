//! Which addresses are lent, and to whom.

use super::message::Key;
use super::shelf::{Noted, Shelf};
use crate::random::mix;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ports::Instant;

/// What an address is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// It is the server's own.
    Own,
    /// Nothing; its holder has given it back, if it has one.
    Free,
    /// It is kept for its holder.
    Offered,
    /// Its holder has it.
    Lent,
    /// Somebody else was found to have it.
    Declined,
}

/// An address of the range.
#[derive(Clone, Debug)]
struct Place {
    used: Use,
    /// Who has it, or had it last.
    holder: Option<Key>,
    /// When that ends, or has ended.
    until: Instant,
}

impl Place {
    /// What it is used for now.
    fn used(&self, now: Instant) -> Use {
        match self.used {
            Use::Offered | Use::Lent | Use::Declined if self.until <= now => Use::Free,
            used => used,
        }
    }

    /// How far it is from being given to somebody new; `None` is never.
    fn rank(&self, now: Instant) -> Option<u8> {
        match self.used(now) {
            Use::Free if self.holder.is_none() => Some(0),
            Use::Free => Some(1),
            // Whoever only asks keeps nobody out.
            Use::Offered => Some(2),
            Use::Declined => Some(3),
            Use::Own | Use::Lent => None,
        }
    }
}

/// How an address stands to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is the client's, is kept for it, or was its last one.
    Held,
    /// The client has another one, or somebody else has it.
    Wrong,
    /// Nobody has it, and nothing is known of the client.
    Free,
    /// It is none of the range.
    Unknown,
}

/// The addresses of a range. Each client is the holder of one of them at most.
#[derive(Debug)]
pub(super) struct Table {
    first: u32,
    places: Vec<Place>,
    /// Where the next table finds what is lent.
    shelf: Option<Shelf>,
}

impl Table {
    /// The addresses from `first` to `last`; `own` is the server's.
    pub fn new((first, last): (Ipv4Addr, Ipv4Addr), own: Ipv4Addr) -> Self {
        let count = (first..=last).count();
        let free = Place {
            used: Use::Free,
            holder: None,
            until: Instant::PAST,
        };
        let mut table = Self {
            first: first.to_bits(),
            places: alloc::vec![free; count],
            shelf: None,
        };
        if let Some(place) = table.find(own) {
            place.used = Use::Own;
        }
        table
    }

    /// Goes on with what is noted down there, and notes down what changes. Each client has one
    /// address, and each address one client, whatever lies there.
    pub fn keep(&mut self, shelf: Shelf, now: Instant) {
        for noted in shelf.take_up(now).collect::<Vec<_>>() {
            let is_known = noted
                .holder
                .as_ref()
                .is_some_and(|key| self.held(key).is_some());
            let place = self.find(noted.address);
            let place = place.filter(|place| place.used == Use::Free && !is_known);
            if let Some(place) = place {
                let used = match noted.holder {
                    Some(_) => Use::Lent,
                    None => Use::Declined,
                };
                *place = Place {
                    used,
                    holder: noted.holder,
                    until: noted.until,
                };
            }
        }
        self.shelf = Some(shelf);
        (0..self.places.len()).for_each(|number| self.note(number));
    }

    /// Notes down what an address is used for.
    fn note(&self, number: usize) {
        if let (Some(shelf), Some(place)) = (&self.shelf, self.places.get(number)) {
            let is_kept = matches!(place.used, Use::Lent | Use::Declined);
            let noted = is_kept.then(|| Noted {
                address: self.address(number),
                holder: place.holder.clone(),
                until: place.until,
            });
            shelf.write(number, noted);
        }
    }

    /// The same of one that is given.
    fn note_of(&self, address: Ipv4Addr) {
        if let Some(number) = address.to_bits().checked_sub(self.first) {
            self.note(number as usize);
        }
    }

    /// How many are lent.
    pub fn lent(&self, now: Instant) -> usize {
        let lent = self.places.iter();
        lent.filter(|place| place.used(now) == Use::Lent).count()
    }

    fn find(&mut self, address: Ipv4Addr) -> Option<&mut Place> {
        let number = address.to_bits().checked_sub(self.first)?;
        self.places.get_mut(number as usize)
    }

    fn address(&self, number: usize) -> Ipv4Addr {
        // The range ends before the addresses do.
        Ipv4Addr::from_bits(self.first + number as u32)
    }

    /// The number of the address whose holder this is.
    fn held(&self, key: &Key) -> Option<usize> {
        let mut places = self.places.iter();
        places.position(|place| place.holder.as_ref() == Some(key))
    }

    /// An address for a client: the one that it has or had; else the one that it would have, if
    /// that was nobody's; else another one. `None` if all are lent.
    pub fn choose(&self, key: &Key, wanted: Option<Ipv4Addr>, now: Instant) -> Option<Ipv4Addr> {
        if let Some(number) = self.held(key) {
            return Some(self.address(number));
        }
        let count = self.places.len();
        // Each has its own place to begin: a server that has forgotten all gives most of them the
        // same again.
        let hash = key
            .bytes()
            .iter()
            .fold(0, |hash, byte| mix(hash ^ u64::from(*byte)));
        let start = (hash % count.max(1) as u64) as usize;
        let ranked = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(number, place)| {
                let rank = place.rank(now)?;
                let is_wanted = rank == 0 && wanted == Some(self.address(number));
                let distance = (number + count - start) % count;
                let since = if rank == 0 {
                    Instant::PAST
                } else {
                    place.until
                };
                Some(((rank, !is_wanted, since, distance), number))
            });
        ranked.min().map(|(_, number)| self.address(number))
    }

    /// How an address stands to a client.
    pub fn standing(&mut self, key: &Key, address: Ipv4Addr, now: Instant) -> Standing {
        let held = self.held(key).map(|number| self.address(number));
        let Some(place) = self.find(address) else {
            return Standing::Unknown;
        };
        match place.used(now) {
            _ if held == Some(address) => Standing::Held,
            Use::Free if held.is_none() => Standing::Free,
            _ => Standing::Wrong,
        }
    }

    /// Keeps an address for a client until then, unless it has it already.
    pub fn offer(&mut self, key: Key, address: Ipv4Addr, until: Instant, now: Instant) {
        if let Some(place) = self.find(address)
            && place.used(now) != Use::Lent
        {
            *place = Place {
                used: Use::Offered,
                holder: Some(key),
                until,
            };
        }
    }

    /// A client has an address until then.
    pub fn lend(&mut self, key: Key, address: Ipv4Addr, until: Instant) {
        if let Some(place) = self.find(address) {
            *place = Place {
                used: Use::Lent,
                holder: Some(key),
                until,
            };
        }
        self.note_of(address);
    }

    /// A client gives back what it has; it stays the holder. Whether it had it.
    pub fn release(&mut self, key: &Key, address: Ipv4Addr, now: Instant) -> bool {
        self.end(key, address, now, |place| {
            place.used = Use::Free;
            place.until = now;
        })
    }

    /// Somebody else has what a client was lent: nobody gets it until then. Whether it was.
    pub fn decline(&mut self, key: &Key, address: Ipv4Addr, until: Instant, now: Instant) -> bool {
        self.end(key, address, now, |place| {
            *place = Place {
                used: Use::Declined,
                holder: None,
                until,
            };
        })
    }

    fn end(
        &mut self,
        key: &Key,
        address: Ipv4Addr,
        now: Instant,
        change: impl FnOnce(&mut Place),
    ) -> bool {
        let place = self.find(address).filter(|place| {
            let is_used = matches!(place.used(now), Use::Offered | Use::Lent);
            is_used && place.holder.as_ref() == Some(key)
        });
        let is_changed = place.map(change).is_some();
        if is_changed {
            self.note_of(address);
        }
        is_changed
    }

    /// A client has chosen another server's offer: ours is kept no more.
    pub fn withdraw(&mut self, key: &Key, now: Instant) {
        if let Some(number) = self.held(key)
            && let Some(place) = self.places.get_mut(number)
            && place.used(now) == Use::Offered
        {
            place.used = Use::Free;
            place.until = now;
        }
    }
}
