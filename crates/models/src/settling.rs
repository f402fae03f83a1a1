//! Bits of status that follow what was asked for, after a while.

/// Reads of a status bit that still find the old value: what the device does takes time, and a
/// driver must look again.
pub(crate) const SETTLE_READS: u8 = 2;

/// A bit that follows what was asked for, after a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settling {
    wanted: bool,
    is: bool,
    reads_left: u8,
    /// Software has read the bit since it is set.
    seen: bool,
}

impl Settling {
    /// Asks for a value.
    #[inline]
    pub(crate) fn want(&mut self, wanted: bool) {
        if wanted != self.wanted {
            self.wanted = wanted;
            self.reads_left = SETTLE_READS;
            self.seen = false;
        }
    }

    /// Software reads the bit.
    pub(crate) fn read(&mut self) -> bool {
        if self.reads_left > 0 {
            self.reads_left -= 1;
        } else {
            self.is = self.wanted;
        }
        self.seen |= self.is && self.wanted;
        self.is
    }

    /// Time has passed.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.is = self.wanted;
        self.reads_left = 0;
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether it is as it was asked for.
    pub(crate) fn is_settled(&self) -> bool {
        self.is == self.wanted
    }

    /// Whether the bit was set and software knows.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_takes_its_time_and_must_be_read() {
        let mut bit = Settling::default();
        bit.want(true);
        assert_eq!([bit.read(), bit.read(), bit.was_seen()], [false; 3]);
        assert_eq!([bit.read(), bit.was_seen()], [true; 2]);
        bit.want(false);
        assert_eq!([bit.read(), bit.read(), bit.read()], [true, true, false]);
    }
}
