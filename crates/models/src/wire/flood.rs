//! A generator and a sink, to measure a driver with.

use super::{Offload, Wire};

/// The same frames come in again and again; what is sent is counted and forgotten.
#[derive(Debug)]
pub struct Flood {
    frames: Vec<Vec<u8>>,
    next: usize,
    /// Frames that came in.
    pub received: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
}

impl Flood {
    /// A flood of these frames.
    pub fn new(frames: Vec<Vec<u8>>) -> Self {
        Self {
            frames,
            next: 0,
            received: 0,
            sent: 0,
            sent_bytes: 0,
        }
    }
}

impl Wire for Flood {
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        Some((self.frames.get(self.next)?, Offload::default()))
    }

    fn take(&mut self) {
        self.received += 1;
        self.next += 1;
        if self.next >= self.frames.len() {
            self.next = 0;
        }
    }

    fn send(&mut self, frame: &[u8], _: Offload) {
        self.sent += 1;
        self.sent_bytes += frame.len() as u64;
    }
}
