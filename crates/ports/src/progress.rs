//! The turns of an image, counted where whoever watches it reads them: [`abi::share::PROGRESS`].
//!
//! A turn begins with each call of the wait, so an image whose drivers are busy and that never
//! sleeps counts as well. An image that is stuck in one turn stands still and is not asleep.

use crate::counters::Counter;
use crate::share::SharedFile;
use abi::share::{PROGRESS, PROGRESS_ASLEEP};

/// The number of the turn, and whether the image sleeps in it.
#[derive(Debug)]
pub(crate) struct Progress(Counter);

/// An image is asleep while this lives.
pub(crate) struct Asleep<'a>(&'a Progress);

impl Progress {
    pub(crate) fn new(share: &SharedFile) -> Self {
        Self(Counter::of(share.counters(), PROGRESS))
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn turn(&self) {
        self.0.add(PROGRESS_ASLEEP + 1);
    }

    /// The image asks its host to wait.
    #[inline]
    pub(crate) fn sleep(&self) -> Asleep<'_> {
        self.0.set(self.0.get() | PROGRESS_ASLEEP);
        Asleep(self)
    }
}

impl Drop for Asleep<'_> {
    #[inline]
    fn drop(&mut self) {
        let Progress(counter) = self.0;
        counter.set(counter.get() & !PROGRESS_ASLEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_counted_and_a_sleep_is_seen() {
        let progress = Progress(Counter::of(&[], PROGRESS));
        let begin = progress.0.get();
        progress.turn();
        assert_eq!(progress.0.get(), begin + 2);
        let asleep = progress.sleep();
        assert_eq!(progress.0.get(), begin + 3);
        drop(asleep);
        assert_eq!(progress.0.get(), begin + 2);
        progress.turn();
        assert_eq!(progress.0.get(), begin + 4);
    }
}
