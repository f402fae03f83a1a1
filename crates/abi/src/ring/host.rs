//! The host's end of a queue.

use super::{ENTRIES, Jump, Operation, Request, Words, heard, tell, word};
use core::sync::atomic::Ordering;

/// The end that serves requests.
#[derive(Debug)]
pub struct Server<'a> {
    words: Words<'a>,
    /// Requests that were ever served, and those of them that the guest was told of.
    served: u64,
    done: u64,
    /// Requests that are known to be posted.
    posted: u64,
}

impl<'a> Server<'a> {
    pub(super) fn new(words: Words<'a>) -> Self {
        Self {
            words,
            served: 0,
            done: 0,
            posted: 0,
        }
    }

    /// Whether there is a request to be served.
    ///
    /// # Errors
    /// The guest has posted more than there are entries, or takes a request back.
    #[inline]
    pub fn has_request(&mut self) -> Result<bool, Jump> {
        if self.posted == self.served {
            self.posted = heard(&self.words.0[word::POSTED], self.served, ENTRIES)?;
        }
        Ok(self.posted != self.served)
    }

    /// The oldest request that was not served, read once; `None` if there is none. It stays there
    /// until [`Self::serve`].
    ///
    /// # Errors
    /// As [`Self::has_request`].
    #[inline]
    pub fn request(&mut self) -> Result<Option<Request>, Jump> {
        if !self.has_request()? {
            return Ok(None);
        }
        let entry = self.words.entry(self.served);
        let length = entry[word::LENGTH].load(Ordering::Relaxed);
        Ok(Some(Request {
            address: entry[word::ADDRESS].load(Ordering::Relaxed),
            length: length as u32,
            operation: Operation::of(length >> 32),
            offset: entry[word::OFFSET].load(Ordering::Relaxed),
        }))
    }

    /// Answers the oldest request; the guest learns of it by [`Self::publish`]. To be called once
    /// for each that [`Self::request`] has returned.
    #[inline]
    pub fn serve(&mut self, result: i64) {
        let entry = self.words.entry(self.served);
        entry[word::RESULT].store(result.cast_unsigned(), Ordering::Relaxed);
        self.served += 1;
    }

    /// Tells the guest of all that was served; whether there was anything.
    #[inline]
    pub fn publish(&mut self) -> bool {
        tell(&self.words.0[word::DONE], &mut self.done, self.served)
    }
}
