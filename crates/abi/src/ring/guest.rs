//! The guest's end of a queue.

use super::{ENTRIES, Jump, Request, Words, heard, tell, word};
use core::sync::atomic::Ordering;

/// The end that posts requests and takes their results.
#[derive(Debug)]
pub struct Client<'a> {
    words: Words<'a>,
    /// Requests that were ever written, and those of them that the host was told of.
    written: u64,
    posted: u64,
    /// Results that were ever taken, and those that are known to be there.
    taken: u64,
    done: u64,
}

impl<'a> Client<'a> {
    pub(super) fn new(words: Words<'a>) -> Self {
        Self {
            words,
            written: 0,
            posted: 0,
            taken: 0,
            done: 0,
        }
    }

    /// How many requests can be written.
    #[inline]
    pub fn free_entries(&self) -> u64 {
        ENTRIES - self.outstanding()
    }

    /// How many requests wait for their results to be taken.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.written - self.taken
    }

    /// Writes a request, of which the host learns by [`Self::post`]; `false`, and nothing done, if
    /// there is no room.
    #[inline]
    #[must_use]
    pub fn write(&mut self, request: Request) -> bool {
        if self.free_entries() == 0 {
            return false;
        }
        let entry = self.words.entry(self.written);
        let length = u64::from(request.length) | (request.operation as u64) << 32;
        entry[word::ADDRESS].store(request.address, Ordering::Relaxed);
        entry[word::LENGTH].store(length, Ordering::Relaxed);
        entry[word::OFFSET].store(request.offset, Ordering::Relaxed);
        self.written += 1;
        true
    }

    /// Tells the host of all that was written; whether there was anything.
    #[inline]
    pub fn post(&mut self) -> bool {
        tell(&self.words.0[word::POSTED], &mut self.posted, self.written)
    }

    /// Whether there is a result to be taken.
    ///
    /// # Errors
    /// The host has served what was never posted, or takes a result back.
    #[inline]
    pub fn has_result(&mut self) -> Result<bool, Jump> {
        if self.done == self.taken {
            let most = self.posted - self.taken;
            self.done = heard(&self.words.0[word::DONE], self.taken, most)?;
        }
        Ok(self.done != self.taken)
    }

    /// The result of the oldest request: bytes that were transferred, or an error number below
    /// zero, unchecked; `None` if it is not there yet.
    ///
    /// # Errors
    /// As [`Self::has_result`].
    #[inline]
    pub fn take(&mut self) -> Result<Option<i64>, Jump> {
        if !self.has_result()? {
            return Ok(None);
        }
        let result = self.words.entry(self.taken)[word::RESULT].load(Ordering::Relaxed);
        self.taken += 1;
        Ok(Some(result.cast_signed()))
    }
}
