//! `ct count`: how many connections there are that a rule has seen, as the kernel counts them
//! (`net/netfilter/nft_connlimit.c`, `nf_conncount.c`).
//!
//! A rule, or an element of a set, remembers the connections that it was asked about, no more
//! than it takes to exceed the number. Only where they exceed it does it look at them: what has
//! ended, or waits for its end (TCP's `TIME_WAIT` and `CLOSE`), is forgotten until they exceed it
//! no longer. A packet looks at `LOOKED_AT` of them at most, and the next one goes on behind those.
//! (The kernel looks at all of them, once in a tick of its clock.)

use crate::conntrack::{Connection, Fate};
use core::fmt::{self, Display, Formatter};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most connections that a rule may ask for: the numbers of all of them are read each time.
pub(crate) const COUNT_MAX: u32 = 1024;
/// Remembered connections that a packet looks up at most. A rule that asks for no more of them than
/// this counts nothing that has ended.
pub(crate) const LOOKED_AT: usize = 32;

/// What a rule says: `ct count [over] N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// So many connections, at most `COUNT_MAX`.
    pub most: u32,
    /// `over`: what exceeds them passes, and nothing else.
    pub over: bool,
}

/// As nft prints it.
impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let over = if self.over { "over " } else { "" };
        write!(f, "ct count {over}{}", self.most)
    }
}

impl Count {
    /// Words that connections are remembered in: how many there are, and what each is known by.
    pub(crate) const fn words(&self) -> usize {
        self.most as usize + 2
    }

    /// Whether a packet passes that exceeds nothing.
    pub(crate) fn would_pass(&self) -> bool {
        !self.over
    }

    /// Whether the packet of a connection passes, which is remembered in these words.
    pub(crate) fn passes(&self, words: &[AtomicU64], connection: Option<&Connection<'_>>) -> bool {
        let count = match (connection, Known::of(words)) {
            (Some(connection), Some(known)) => match connection.known_by() {
                Some(own) => {
                    known.take_in(self.most as usize, own, |one| has_ended(connection, one))
                }
                None => known.state().0 + 1,
            },
            _ => 1,
        };
        (count > self.most as usize) == self.over
    }
}

/// Whether none of the connections goes on that are remembered in these words, as far as so many
/// looks say. What has ended is forgotten.
pub(crate) fn is_idle(words: &[AtomicU64], connection: &Connection<'_>, looks: &mut usize) -> bool {
    let Some(known) = Known::of(words) else {
        return true;
    };
    let (mut length, hand) = known.state();
    while let Some(last) = length.checked_sub(1) {
        if *looks == 0 || !has_ended(connection, known.numbers[last].load(Relaxed)) {
            break;
        }
        *looks -= 1;
        length = last;
    }
    known.set_state(length, hand);
    length == 0
}

fn has_ended(connection: &Connection<'_>, one: u64) -> bool {
    connection.fate_of(one) != Fate::GoesOn
}

/// What is remembered in words.
struct Known<'a> {
    /// How many connections there are, and where looking at them goes on.
    state: &'a AtomicU64,
    /// What each of them is known by.
    numbers: &'a [AtomicU64],
}

impl<'a> Known<'a> {
    fn of(words: &'a [AtomicU64]) -> Option<Self> {
        let (state, numbers) = words.split_first()?;
        Some(Self { state, numbers })
    }

    fn state(&self) -> (usize, usize) {
        let state = self.state.load(Relaxed);
        let length = self.numbers.len().min(state as u32 as usize);
        (length, (state >> 32) as usize)
    }

    fn set_state(&self, length: usize, hand: usize) {
        self.state
            .store((hand as u64) << 32 | length as u64, Relaxed);
    }

    /// How many connections there are, with this one. Not more than `LOOKED_AT` are asked whether
    /// they have ended, and none if there are no more than `most`.
    fn take_in(&self, most: usize, own: u64, has_ended: impl Fn(u64) -> bool) -> usize {
        let mut looks = LOOKED_AT;
        let full = self.numbers.len();
        let (length, _) = self.state();
        let is_known = (self.numbers[..length].iter()).any(|one| one.load(Relaxed) == own);
        if !is_known && length == full {
            self.forget_ended(most, own, &mut looks, &has_ended);
        }
        let (length, hand) = self.state();
        let fits = is_known || length < full;
        if fits && !is_known {
            self.numbers[length].store(own, Relaxed);
            self.set_state(length + 1, hand);
        }
        self.forget_ended(most, own, &mut looks, has_ended) + usize::from(!fits)
    }

    /// Forgets connections that have ended, other than this one, until there are so many, or all of
    /// them or enough have been looked at. How many there are then.
    fn forget_ended(
        &self,
        most: usize,
        own: u64,
        looks: &mut usize,
        has_ended: impl Fn(u64) -> bool,
    ) -> usize {
        let (all, mut hand) = self.state();
        let mut length = all;
        for _ in 0..all {
            if length <= most || *looks == 0 {
                break;
            }
            if hand >= length {
                hand = 0;
            }
            let one = self.numbers[hand].load(Relaxed);
            if one == own {
                hand += 1;
                continue;
            }
            *looks -= 1;
            if has_ended(one) {
                length -= 1;
                self.numbers[hand].store(self.numbers[length].load(Relaxed), Relaxed);
            } else {
                hand += 1;
            }
        }
        self.set_state(length, hand);
        length
    }
}

/// What a rule counts.
#[derive(Debug)]
pub(crate) struct Census {
    count: Count,
    words: alloc::boxed::Box<[AtomicU64]>,
}

impl Census {
    pub(crate) fn new(count: Count) -> Self {
        Self {
            count,
            words: (0..count.words()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The same, of which nothing has been seen.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.count)
    }

    /// Whether the packet of a connection passes.
    pub(crate) fn passes(&self, connection: Option<&Connection<'_>>) -> bool {
        self.count.passes(&self.words, connection)
    }

    /// Whether a packet passes that exceeds nothing.
    pub(crate) fn would_pass(&self) -> bool {
        self.count.would_pass()
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::cell::Cell;

    const MOST: usize = 1000;

    fn words(most: usize) -> Vec<AtomicU64> {
        let count = Count {
            most: most as u32,
            over: true,
        };
        (0..count.words()).map(|_| AtomicU64::new(0)).collect()
    }

    /// How many there are, and how many were looked at for that.
    fn take_in(words: &[AtomicU64], own: u64, ended: impl Fn(u64) -> bool) -> (usize, usize) {
        let looks = Cell::new(0);
        let count = Known::of(words)
            .unwrap()
            .take_in(words.len() - 2, own, |one| {
                looks.set(looks.get() + 1);
                ended(one)
            });
        (count, looks.get())
    }

    #[test]
    fn a_packet_looks_at_few_and_at_none_without_need() {
        let words = words(MOST);
        for own in 1..=MOST as u64 {
            assert_eq!(take_in(&words, own, |_| false), (own as usize, 0));
        }
        // All of them go on: each further one exceeds them, at a cost that is bounded.
        for own in 2000..2100 {
            let (count, looks) = take_in(&words, own, |one| one >= 2000 && one != own);
            assert!(count > MOST && looks <= LOOKED_AT, "{count} {looks}");
        }
    }

    #[test]
    fn what_has_ended_is_found_by_and_by_wherever_it_is() {
        for ended in [1, 500, 1000] {
            let words = words(MOST);
            for own in 1..=MOST as u64 {
                take_in(&words, own, |_| false);
            }
            let tries = (2000..).take_while(|own| {
                // What was refused has not begun.
                let has_ended = |one| one == ended || one >= 2000 && one != *own;
                take_in(&words, *own, has_ended).0 > MOST
            });
            assert!(tries.count() <= MOST.div_ceil(LOOKED_AT) + 1, "{ended}");
        }
    }

    #[test]
    fn few_are_counted_exactly() {
        let words = words(LOOKED_AT);
        let all = LOOKED_AT as u64;
        (1..=all).for_each(|own| assert_eq!(take_in(&words, own, |_| false).0 as u64, own));
        assert_eq!(take_in(&words, 99, |_| false).0, LOOKED_AT + 1);
        // The same once more, and one of the others is over.
        assert_eq!(take_in(&words, 99, |one| one == all).0, LOOKED_AT);
        // Of a connection that is known, nothing is asked.
        assert_eq!(take_in(&words, 1, |_| true), (LOOKED_AT, 0));
    }
}
