//! Notes outlive their host, whenever it ends.

use super::*;
use crate::testing::{lasting, lying};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 3]);
const PLACES: usize = 4;

std::thread_local! {
    /// Where notes lie, and what lay there between any two stores.
    static WATCH: RefCell<Option<(usize, Vec<Vec<u8>>)>> = const { RefCell::new(None) };
}

/// A store has happened.
pub(crate) fn moment() {
    WATCH.with_borrow_mut(|watch| {
        if let Some((address, seen)) = watch {
            seen.push(bytes_at(*address));
        }
    });
}

fn bytes_at(address: usize) -> Vec<u8> {
    lying(address, PLACES * NOTE_BYTES)
}

fn shelf(bytes: &[u8]) -> (Shelf<Ipv4Addr>, usize) {
    let memory = lasting(bytes);
    let address = memory.as_ptr().addr();
    let notes = <[Note]>::mut_from_bytes(memory).unwrap();
    (Shelf::new(notes, 7), address)
}

/// Who is noted down there.
fn known(bytes: &[u8]) -> BTreeMap<Ipv4Addr, Mac> {
    let known = shelf(bytes).0.take_up();
    known.into_iter().map(|(_, who, mac)| (who, mac)).collect()
}

fn neighbour(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

#[test]
fn a_neighbour_outlives_its_host_between_any_two_stores() {
    let (mut shelf, address) = shelf(&[0; PLACES * NOTE_BYTES]);
    assert_eq!(shelf.take_up(), []);
    let mut places = BTreeMap::new();
    let mut model = BTreeMap::new();
    // Whether somebody is met, has moved, or is forgotten.
    let steps = [(1, Some(MAC)), (2, Some(MAC)), (1, Some(OTHER)), (2, None)];
    for (n, mac) in steps.into_iter().chain([(3, Some(OTHER)), (1, None)]) {
        let who = neighbour(n);
        WATCH.set(Some((address, Vec::new())));
        match mac {
            Some(mac) => {
                let place = shelf.write(places.get(&who).copied(), who, mac).unwrap();
                places.insert(who, place);
            }
            None => shelf.erase(places.remove(&who).unwrap()),
        }
        let (_, seen) = WATCH.take().unwrap();
        let before = model.clone();
        match mac {
            Some(mac) => model.insert(who, mac),
            None => model.remove(&who),
        };
        assert!(seen.len() >= if mac.is_some() { WORDS + 3 } else { 1 });
        let mut between = before.clone();
        between.remove(&who);
        for bytes in &seen {
            let found = known(bytes);
            assert!([&before, &between, &model].contains(&&found), "{found:?}");
        }
        assert_eq!(known(&bytes_at(address)), model);
    }
}

#[test]
fn a_full_shelf_takes_nobody_else_until_one_is_forgotten() {
    let (mut shelf, _) = shelf(&[0; PLACES * NOTE_BYTES]);
    shelf.take_up();
    let places = [1, 2, 3, 4, 5].map(|n| shelf.write(None, neighbour(n), MAC));
    assert_eq!(places[4], None);
    shelf.erase(places[1].unwrap());
    assert_eq!(shelf.write(None, neighbour(5), MAC), places[1]);
}

#[test]
fn notes_of_another_port_or_version_of_ip_are_none() {
    let (mut shelf, address) = shelf(&[0; PLACES * NOTE_BYTES]);
    shelf.take_up();
    shelf.write(None, neighbour(1), MAC);
    let again = || <[Note]>::mut_from_bytes(lasting(&bytes_at(address))).unwrap();
    assert_eq!(Shelf::<Ipv4Addr>::new(again(), 7).take_up().len(), 1);
    assert_eq!(Shelf::<Ipv4Addr>::new(again(), 8).take_up(), []);
    assert_eq!(Shelf::<Ipv6Addr>::new(again(), 7).take_up(), []);
}

#[test]
fn each_port_has_its_part() {
    let open = |bytes, ports| Notes::open(lasting(&vec![0; bytes]), ports, Duration::ZERO);
    assert_eq!(open(2 * NOTE_BYTES, 1).len(), 0);
    let notes = open(14 * NOTE_BYTES + 4, 2);
    let places = notes
        .iter()
        .map(|notes| (notes.ipv4.notes.len(), notes.ipv6.notes.len()));
    assert_eq!(places.collect::<Vec<_>>(), [(3, 3), (3, 3)]);
    assert_eq!(open(0, 0).len(), 0);
}

proptest! {
    /// Whatever lies there: who is taken up can be a neighbour, and the rest is free.
    #[test]
    fn what_is_no_note_is_a_free_place(
        bytes in prop::collection::vec(any::<u8>(), PLACES * NOTE_BYTES),
        sound in any::<[bool; PLACES]>(),
        words in any::<[Words; PLACES]>(),
    ) {
        let (mut shelf, _) = shelf(&bytes);
        for (note, (sound, words)) in shelf.notes.iter().zip(sound.into_iter().zip(words)) {
            if sound {
                note.write(shelf.label, &words);
            }
        }
        let known = shelf.take_up();
        prop_assert_eq!(known.len() + shelf.free.len(), PLACES);
        for (place, who, mac) in known {
            prop_assert!(sound[usize::from(place)]);
            prop_assert!(mac.is_station() && !who.is_multicast());
        }
    }
}
