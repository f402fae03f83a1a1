//! `ct count`: how many connections there are that a rule has seen, as the kernel counts them
//! (`net/netfilter/nft_connlimit.c`, `nf_conncount.c`).
//!
//! A rule, or an element of a set, remembers the connections that it was asked about, and looks at
//! each of them when it is asked again: what has ended, or waits for its end (TCP's `TIME_WAIT` and
//! `CLOSE`), is forgotten. It remembers no more than it takes to exceed the number.

use crate::conntrack::{Connection, Fate};
use core::fmt::{self, Display, Formatter};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most connections that a rule may ask for: each of them is looked at each time.
pub(crate) const COUNT_MAX: u32 = 1024;

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
        let count = connection.map_or(1, |connection| take_in(words, connection));
        (count > self.most as usize) == self.over
    }
}

/// Whether none of the connections goes on that are remembered in these words.
pub(crate) fn is_idle(words: &[AtomicU64], connection: &Connection<'_>) -> bool {
    let (length, known) = split(words);
    known
        .iter()
        .take(length)
        .all(|one| connection.fate_of(one.load(Relaxed)) != Fate::GoesOn)
}

/// How many there are, and what each is known by.
fn split(words: &[AtomicU64]) -> (usize, &[AtomicU64]) {
    match words.split_first() {
        Some((length, known)) => (known.len().min(length.load(Relaxed) as usize), known),
        None => (0, &[]),
    }
}

/// How many connections there are, with this one. Each of the others is looked at.
fn take_in(words: &[AtomicU64], connection: &Connection<'_>) -> usize {
    let (length, known) = split(words);
    let Some(own) = connection.known_by() else {
        return length + 1;
    };
    let mut kept = 0;
    for at in 0..length {
        let one = known[at].load(Relaxed);
        if one != own && connection.fate_of(one) == Fate::GoesOn {
            known[kept].store(one, Relaxed);
            kept += 1;
        }
    }
    let count = kept + 1;
    if let Some(place) = known.get(kept) {
        place.store(own, Relaxed);
        kept += 1;
    }
    if let Some(length) = words.first() {
        length.store(kept as u64, Relaxed);
    }
    count
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
