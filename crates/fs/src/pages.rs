//! Pages of a disk that are kept in memory, within a budget.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Pages by their numbers. Where another one needs the room, the first goes that nobody has asked
/// for since the hand came by (the second-chance algorithm).
pub(crate) struct Pages {
    places: BTreeMap<u64, usize>,
    pages: Vec<Page>,
    most: usize,
    hand: usize,
}

struct Page {
    number: u64,
    bytes: Box<[u8]>,
    was_used: bool,
}

impl Pages {
    /// Room for `most` pages, at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            pages: Vec::new(),
            most: most.max(1),
            hand: 0,
        }
    }

    /// The page of this number, if it is kept.
    pub(crate) fn get(&mut self, number: u64) -> Option<&[u8]> {
        let page = self.pages.get_mut(*self.places.get(&number)?)?;
        page.was_used = true;
        Some(&page.bytes)
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// Keeps a page that is not kept yet.
    pub(crate) fn put(&mut self, number: u64, bytes: Box<[u8]>) {
        let page = Page {
            number,
            bytes,
            was_used: false,
        };
        let place = if self.pages.len() < self.most {
            self.pages.push(page);
            self.pages.len() - 1
        } else {
            let place = self.free();
            self.places.remove(&self.pages[place].number);
            self.pages[place] = page;
            place
        };
        self.places.insert(number, place);
    }

    /// Keeps a page no longer: it was written. Its place is the next to be used.
    pub(crate) fn forget(&mut self, number: u64) {
        if let Some(place) = self.places.remove(&number) {
            // No page of a disk has this number.
            self.pages[place].number = u64::MAX;
            self.pages[place].was_used = false;
            self.hand = place;
        }
    }

    /// The place of a page that may go. Each that was used loses its chance, so that the second
    /// round ends.
    fn free(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.pages.len();
            if !core::mem::take(&mut self.pages[place].was_used) {
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn page(byte: u8) -> Box<[u8]> {
        vec![byte; 4].into()
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut pages = Pages::new(3);
        for number in 0..3 {
            pages.put(number, page(number as u8));
        }
        assert_eq!(pages.get(0), Some(&[0; 4][..]));
        pages.put(3, page(3));
        assert!(pages.has(0) && !pages.has(1) && pages.has(2) && pages.has(3));
        // Its second chance is over.
        pages.put(4, page(4));
        pages.put(5, page(5));
        assert!(!pages.has(2) && pages.pages.len() == 3 && pages.places.len() == 3);
    }

    #[test]
    fn what_was_written_is_forgotten() {
        let mut pages = Pages::new(2);
        pages.put(1, page(1));
        pages.put(2, page(2));
        pages.forget(2);
        assert!(!pages.has(2));
        pages.put(3, page(3));
        assert!(pages.has(1) && pages.has(3));
    }

    #[test]
    fn one_page_is_always_kept() {
        let mut pages = Pages::new(0);
        pages.put(7, page(7));
        pages.put(8, page(8));
        assert!(!pages.has(7));
        assert_eq!(pages.get(8), Some(&[8; 4][..]));
    }
}
