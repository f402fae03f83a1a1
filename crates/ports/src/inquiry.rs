//! Questions of the host about sockets, and the answers; see [`abi::sockets`].

use crate::share::{HostWord, SharedFile};
use abi::sockets::{Answer, Ask, RECORDS_MAX, Record};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use zerocopy::transmute;

const WORD: usize = size_of::<u64>();
const RECORD_WORDS: usize = size_of::<Record>() / WORD;

/// Hears questions, and answers them. An image has one.
pub struct Inquiry {
    ask: &'static [HostWord],
    /// The words of an [`Answer`], and of its records.
    answer: &'static [AtomicU64],
    /// The last question that was answered.
    answered: u64,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    number: u64,
    /// Where the list is to begin; the host may say anything.
    pub from: u64,
}

/// What follows from a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Where it goes on, or 0 at its end.
    pub next: u64,
    /// Connections that are half open.
    pub half_open: u64,
    /// Connections in TIME-WAIT.
    pub time_wait: u64,
}

impl Inquiry {
    /// Begins to listen.
    pub fn new(share: &SharedFile) -> Self {
        let (ask, answer) = share.ask().zip(share.answer()).unwrap_or_default();
        Self {
            ask,
            answer,
            answered: 0,
        }
    }

    /// The question that waits. One load of memory where none does; [`crate::Runtime::wait`]
    /// returns when one may have come.
    #[inline]
    pub fn question(&self) -> Option<Question> {
        // Acquire: what the host wrote before the number is seen with it.
        let number = self.ask.first()?.load(Ordering::Acquire);
        if number == self.answered {
            return None;
        }
        let from = self.ask.get(offset_of!(Ask, from) / WORD)?;
        Some(Question {
            number,
            from: from.load(Ordering::Relaxed),
        })
    }

    /// Answers with what `list` hands over: a record at a time, until there is no more room
    /// (`false`).
    #[cold]
    pub fn answer(
        &mut self,
        question: Question,
        list: impl FnOnce(&mut dyn FnMut(&Record) -> bool) -> Listed,
    ) {
        let head_words = size_of::<Answer>() / WORD;
        let (head, records) = self.answer.split_at(head_words.min(self.answer.len()));
        let mut places = records.chunks_exact(RECORD_WORDS).take(RECORDS_MAX);
        let mut count = 0;
        let listed = list(&mut |record| {
            let Some(place) = places.next() else {
                return false;
            };
            let words: [u64; RECORD_WORDS] = transmute!(*record);
            for (to, word) in place.iter().zip(words) {
                to.store(word, Ordering::Relaxed);
            }
            count += 1;
            true
        });
        let say = |offset: usize, value: u64| {
            if let Some(word) = head.get(offset / WORD) {
                word.store(value, Ordering::Release);
            }
        };
        say(offset_of!(Answer, next), listed.next);
        say(offset_of!(Answer, count), count);
        say(offset_of!(Answer, half_open), listed.half_open);
        say(offset_of!(Answer, time_wait), listed.time_wait);
        say(offset_of!(Answer, number), question.number);
        self.answered = question.number;
    }
}
