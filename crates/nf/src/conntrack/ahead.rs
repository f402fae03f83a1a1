//! What a batch of frames will need, brought near before it is judged.
//!
//! A table of many flows does not fit into the processor's caches, and a frame waits for three or
//! four of its lines, one after the other. So the flows of a whole batch are looked for first: what
//! one frame needs does not depend on another, and the processor waits for all of it at once.

use super::Conntrack;
use super::packet;
use arrayvec::ArrayVec;
use core::hint::black_box;

/// Frames of a batch that are looked at.
const AHEAD_MAX: usize = 64;
/// Records that fit into the caches of one core: with so few, there is nothing to be gained.
const NEAR_FLOWS: u32 = 4096;

impl Conntrack {
    /// Brings near what the first frames of a batch will need, at most 64 of them, if the table is
    /// large. Nothing changes.
    pub fn look_ahead<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) {
        if self.table4.records.used() <= NEAR_FLOWS {
            return;
        }
        let mut buckets = ArrayVec::<usize, AHEAD_MAX>::new();
        for tuple in frames.take(AHEAD_MAX).filter_map(packet::name4) {
            buckets.push(self.table4.bucket(&tuple));
        }
        // Reads whose results are used: there is no other way without `unsafe`.
        let mut flows = ArrayVec::<u32, AHEAD_MAX>::new();
        for bucket in buckets {
            flows.extend(self.table4.first_in(bucket));
        }
        let read = flows.into_iter().map(|flow| self.table4.glance(flow));
        black_box(read.fold(0, u32::wrapping_add));
    }
}
