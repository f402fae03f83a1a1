//! The memory for the queues of all connections, and who may have how much of it.

/// The part that writers leave to what arrives: two ends that write until the other reads would
/// hear each other no more.
const ARRIVALS_PART: usize = 4;
/// Bytes that each writer may queue, however many there are, as long as some are free.
const SHARE_MIN: usize = 4 << 10;

/// What one socket has of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Bytes of its queues.
    pub bytes: usize,
    /// Whether it sends, or waits for memory to do so.
    pub writes: bool,
}

/// What all have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    max: usize,
    bytes: usize,
    writers: usize,
}

impl Budget {
    /// Nobody has any of `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            max,
            bytes: 0,
            writers: 0,
        }
    }

    /// The most that there may be.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Bytes that are queued.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A socket has something else than before.
    pub fn change(&mut self, before: Used, after: Used) {
        self.bytes = self.bytes - before.bytes + after.bytes;
        self.writers = self.writers - usize::from(before.writes) + usize::from(after.writes);
    }

    /// Whether so many bytes may still arrive.
    pub fn takes(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.max
    }

    /// Bytes that writers may queue.
    pub fn free(&self) -> usize {
        self.for_writers().saturating_sub(self.bytes)
    }

    /// The longest that the queue of this writer may become: an equal part for each, so that peers
    /// who take much leave something to the others.
    pub fn share(&self, of: Used) -> usize {
        let writers = self.writers + usize::from(!of.writes);
        (self.for_writers() / writers).max(SHARE_MIN)
    }

    fn for_writers(&self) -> usize {
        self.max - self.max / ARRIVALS_PART
    }
}
