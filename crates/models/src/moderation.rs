//! Moderation of interrupts: a vector is raised no more often than its interval allows.

use std::time::Duration;

/// When each of `N` vectors may be raised again.
#[derive(Debug)]
pub(crate) struct Moderation<const N: usize> {
    next: [Duration; N],
    /// When the first of those may that were held back.
    due: Option<Duration>,
}

impl<const N: usize> Moderation<N> {
    pub(crate) fn new() -> Self {
        Self {
            next: [Duration::ZERO; N],
            due: None,
        }
    }

    /// A look at all vectors begins: none was held back yet.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.due = None;
    }

    /// Whether the interval since the last message of a vector has passed; if so, the next one
    /// begins, which is `interval`.
    #[inline]
    pub(crate) fn admits(&mut self, vector: usize, now: Duration, interval: Duration) -> bool {
        let next = self.next[vector];
        if now < next {
            self.due = Some(self.due.map_or(next, |due| due.min(next)));
            return false;
        }
        self.next[vector] = now + interval;
        true
    }

    /// When the first vector may be raised that was held back.
    #[inline]
    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }
}
