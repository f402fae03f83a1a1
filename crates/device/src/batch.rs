//! What moves between ports.

use crate::frame::Frame;
use arrayvec::{ArrayVec, Drain};

/// Most frames in a batch.
pub const BATCH_FRAMES_MAX: usize = 64;

/// A port stops receiving once a batch holds this many bytes: more would leave the cache before
/// it is sent.
pub const BATCH_BYTES_MAX: usize = 128 << 10;

/// Up to [`BATCH_FRAMES_MAX`] owned frames, in place: it never allocates.
#[derive(Debug, Default)]
pub struct Batch {
    frames: ArrayVec<Frame, BATCH_FRAMES_MAX>,
    bytes: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a port should add no more: by frames or by bytes.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.frames.len() >= BATCH_FRAMES_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    /// How many frames a port may add: none once the batch is full by bytes.
    #[inline]
    pub fn room(&self) -> usize {
        if self.bytes >= BATCH_BYTES_MAX {
            0
        } else {
            self.frames.remaining_capacity()
        }
    }

    /// Whether there is no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of all frames.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// The frame, if the batch holds [`BATCH_FRAMES_MAX`] already.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        let len = frame.len();
        self.frames.try_push(frame).map_err(|full| full.element())?;
        self.bytes += len;
        Ok(())
    }

    /// The frames, in order.
    #[inline]
    pub fn iter(&self) -> core::slice::Iter<'_, Frame> {
        self.frames.iter()
    }

    /// Keeps the frames of which `keep` says so, in order, and drops the others.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Frame) -> bool) {
        self.frames.retain(|frame| keep(frame));
        self.bytes = self.frames.iter().map(Frame::len).sum();
    }

    /// Takes all frames out, in order.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_, Frame, BATCH_FRAMES_MAX> {
        self.bytes = 0;
        self.frames.drain(..)
    }
}
