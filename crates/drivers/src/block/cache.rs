//! What a disk with a cache may have lost. It knows writes, flushes and resets, and no device.
//!
//! Writes that succeeded may still be in the cache, and nobody knows what a disk that had to be
//! reset has kept of it. So the next flush fails then, once: its caller writes again what is to be
//! durable.

use core::mem;
use device::block::BlockError;

/// Whether writes wait for a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Some that no flush has covered yet, and some that began behind the last flush.
    is_dirty: bool,
    is_newer: bool,
    is_lost: bool,
}

impl Cache {
    /// The device is given something that changes the disk.
    #[inline]
    pub fn writes(&mut self) {
        (self.is_dirty, self.is_newer) = (true, true);
    }

    /// A flush is to begin.
    ///
    /// # Errors
    /// [`BlockError::Reset`], if what it would be for may be lost.
    pub fn flushes(&mut self) -> Result<(), BlockError> {
        if mem::take(&mut self.is_lost) {
            return Err(BlockError::Reset);
        }
        self.is_newer = false;
        Ok(())
    }

    /// A flush has succeeded: it covered what had begun before the last one did, or that one does.
    pub fn flushed(&mut self) {
        self.is_dirty = self.is_newer;
    }

    /// The device is reset. A flush that it has fails with that, and says enough of all that had
    /// begun before it.
    pub fn loses(&mut self, is_flushing: bool) {
        self.is_lost |= self.is_dirty && (self.is_newer || !is_flushing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_behind_a_loss_fails_once() {
        let mut cache = Cache::default();
        cache.loses(false);
        assert_eq!(cache.flushes(), Ok(()), "nothing was written");
        cache.writes();
        cache.loses(false);
        assert_eq!(cache.flushes(), Err(BlockError::Reset));
        assert_eq!(cache.flushes(), Ok(()));
    }

    #[test]
    fn what_was_flushed_is_not_lost() {
        let mut cache = Cache::default();
        cache.writes();
        cache.flushes().unwrap();
        cache.flushed();
        cache.loses(false);
        assert_eq!(cache.flushes(), Ok(()));
        // A write behind the beginning of the flush is not covered by it.
        cache.writes();
        cache.flushes().unwrap();
        cache.writes();
        cache.flushed();
        cache.loses(false);
        assert_eq!(cache.flushes(), Err(BlockError::Reset));
    }

    #[test]
    fn a_flush_that_fails_with_the_reset_says_enough_of_what_was_before_it() {
        for is_newer in [false, true] {
            let mut cache = Cache::default();
            cache.writes();
            cache.flushes().unwrap();
            if is_newer {
                cache.writes();
            }
            cache.loses(true);
            assert_eq!(cache.flushes().is_err(), is_newer);
        }
    }
}
