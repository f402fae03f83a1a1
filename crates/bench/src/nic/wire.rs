//! A wire whose other end sends no more than it has got back: what TCP makes of every path.

use hdrhistogram::Histogram;
use models::wire::{Offload, Wire};
use std::collections::VecDeque;
use std::time::Instant;

/// Longest round trip that is told apart, in nanoseconds.
const ROUND_TRIP_MAX: u64 = 10_000_000_000;

/// Frames of one size, of which so many are on their way at most.
pub struct Window {
    frame: Vec<u8>,
    most: usize,
    /// When each of those that are on their way left.
    left: VecDeque<Instant>,
    /// Round trips, in nanoseconds.
    pub round_trips: Histogram<u64>,
}

impl Window {
    /// Frames of `bytes` bytes, up to `most` of them on their way.
    pub fn new(bytes: usize, most: usize) -> Self {
        let mut frame = vec![0; bytes];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
        // Two digits are more than the machine is worth.
        let round_trips = Histogram::new_with_max(ROUND_TRIP_MAX, 2);
        Self {
            frame,
            most,
            left: VecDeque::with_capacity(most),
            round_trips: round_trips.unwrap_or_else(|_| unreachable!("bounds are constants")),
        }
    }
}

impl Wire for Window {
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        (self.left.len() < self.most).then(|| (self.frame.as_slice(), Offload::default()))
    }

    fn take(&mut self) {
        self.left.push_back(Instant::now());
    }

    fn send(&mut self, _: &[u8], _: Offload) {
        if let Some(left) = self.left.pop_front() {
            let _ = self.round_trips.record(left.elapsed().as_nanos() as u64);
        }
    }
}
