//! Pages of a disk that are kept in memory, within a budget.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Pages whose memory waits for others at most: as many as are read at once.
const BLANK_MAX: usize = crate::disk::AHEAD;

/// Pages by their numbers. Where another one needs the room, the first goes that nobody has asked
/// for since the hand came by (the second-chance algorithm), and that the disk has as it is.
pub(crate) struct Pages {
    places: BTreeMap<u64, usize>,
    /// Those that were changed since they were read or written.
    changed: BTreeSet<u64>,
    pages: Vec<Page>,
    /// Memory of pages that went, for those that come.
    blank: Vec<Box<[u8]>>,
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
            changed: BTreeSet::new(),
            pages: Vec::new(),
            blank: Vec::new(),
            most: most.max(1),
            hand: 0,
        }
    }

    /// Where the page of this number is, if it is kept, until another one comes.
    pub(crate) fn find(&self, number: u64) -> Option<usize> {
        self.places.get(&number).copied()
    }

    /// The page that is there.
    pub(crate) fn at(&mut self, place: usize) -> &[u8] {
        let page = &mut self.pages[place];
        page.was_used = true;
        &page.bytes
    }

    /// Memory for a page of this size, with anything in it.
    pub(crate) fn blank(&mut self, size: usize) -> Box<[u8]> {
        match self.blank.pop() {
            Some(bytes) if bytes.len() == size => bytes,
            _ => vec![0; size].into(),
        }
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        self.places.contains_key(&number)
    }

    /// The page of this number, if it is kept, for who changes it.
    pub(crate) fn change(&mut self, number: u64) -> Option<&mut [u8]> {
        let page = self.pages.get_mut(*self.places.get(&number)?)?;
        page.was_used = true;
        self.changed.insert(number);
        Some(&mut page.bytes)
    }

    /// How many were changed.
    pub(crate) fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Most that may have been changed: the others are for those who read.
    pub(crate) fn changed_max(&self) -> usize {
        (self.most / 2).max(1)
    }

    /// The changed pages from this number on that follow each other, at most so many; none if
    /// none has this number or a higher one.
    pub(crate) fn run(&self, from: u64, most: usize) -> core::ops::Range<u64> {
        let mut run = from..from;
        for number in self.changed.range(from..).take(most) {
            match run.is_empty() {
                true => run = *number..number + 1,
                false if *number == run.end => run.end += 1,
                false => break,
            }
        }
        run
    }

    /// The disk has these pages as they are.
    pub(crate) fn written(&mut self, run: core::ops::Range<u64>) {
        self.changed.retain(|number| !run.contains(number));
    }

    /// Keeps a page that is not kept yet. It is given back where there is no room: all that are
    /// kept were changed.
    pub(crate) fn put(&mut self, number: u64, bytes: Box<[u8]>) -> Result<(), Box<[u8]>> {
        let place = match self.pages.len() < self.most {
            true => self.pages.len(),
            false => match self.free() {
                Some(place) => place,
                None => return Err(bytes),
            },
        };
        let page = Page {
            number,
            bytes,
            was_used: false,
        };
        match self.pages.get_mut(place) {
            Some(old) => {
                self.places.remove(&old.number);
                let old = core::mem::replace(old, page);
                if self.blank.len() < BLANK_MAX {
                    self.blank.push(old.bytes);
                }
            }
            None => self.pages.push(page),
        }
        self.places.insert(number, place);
        Ok(())
    }

    /// The place of a page that may go. Each that was used loses its chance, so that the second
    /// round finds one, if there is one.
    fn free(&mut self) -> Option<usize> {
        for _ in 0..2 * self.pages.len() {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.pages.len();
            let page = &mut self.pages[place];
            if !core::mem::take(&mut page.was_used) && !self.changed.contains(&page.number) {
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(pages: &mut Pages, number: u64) -> Option<&[u8]> {
        let place = pages.find(number)?;
        Some(pages.at(place))
    }

    fn page(byte: u8) -> Box<[u8]> {
        vec![byte; 4].into()
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut pages = Pages::new(3);
        for number in 0..3 {
            pages.put(number, page(number as u8)).unwrap();
        }
        assert_eq!(get(&mut pages, 0), Some(&[0; 4][..]));
        pages.put(3, page(3)).unwrap();
        assert!(pages.has(0) && !pages.has(1) && pages.has(2) && pages.has(3));
        // Its second chance is over.
        pages.put(4, page(4)).unwrap();
        pages.put(5, page(5)).unwrap();
        assert!(!pages.has(2) && pages.pages.len() == 3 && pages.places.len() == 3);
    }

    #[test]
    fn what_was_changed_stays_until_it_is_written() {
        let mut pages = Pages::new(3);
        for number in [1, 2, 3] {
            pages.put(number, page(0)).unwrap();
            pages.change(number).unwrap().fill(number as u8);
        }
        assert_eq!(pages.put(7, page(7)), Err(page(7)));
        assert_eq!((pages.run(0, 2), pages.run(0, 9)), (1..3, 1..4));
        assert!(pages.run(4, 9).is_empty());
        pages.written(2..3);
        assert_eq!((pages.run(0, 9), pages.run(2, 9)), (1..2, 3..4));
        pages.put(7, page(7)).unwrap();
        assert!(pages.has(1) && !pages.has(2) && pages.changed() == 2);
        assert_eq!(get(&mut pages, 3), Some(&[3; 4][..]));
    }

    #[test]
    fn one_page_is_always_kept() {
        let mut pages = Pages::new(0);
        pages.put(7, page(7)).unwrap();
        pages.put(8, page(8)).unwrap();
        assert!(!pages.has(7));
        assert_eq!(get(&mut pages, 8), Some(&[8; 4][..]));
    }
}
