//! Questions of the host, and the answers; see [`abi::inquiry`].

use crate::share::{HostWord, SharedFile};
use abi::inquiry::{Answer, Ask, RECORDS_BYTES, Subject};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const WORD: usize = size_of::<u64>();
/// Longest piece of what is asked about in particular, in words.
const DETAIL_WORDS_MAX: usize = 10;

/// Hears questions about some subjects, and answers them.
pub struct Inquiry {
    subjects: &'static [Subject],
    ask: &'static [HostWord],
    details: &'static [HostWord],
    /// The words of an [`Answer`], and of its records.
    answer: &'static [AtomicU64],
    /// The last question that was answered, or that is another one's to answer.
    answered: u64,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    number: u64,
    /// What it is about.
    pub subject: Subject,
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
    /// Flows that have ended since they were to, or elements that were changed.
    pub ended: u64,
}

impl Inquiry {
    /// Begins to listen for questions about these subjects. An image has one for each.
    pub fn new(share: &SharedFile, subjects: &'static [Subject]) -> Self {
        let (ask, answer) = share.ask().zip(share.answer()).unwrap_or_default();
        Self {
            subjects,
            ask,
            details: share.details().unwrap_or_default(),
            answer,
            answered: 0,
        }
    }

    /// The question that waits. One load of memory where none does; [`crate::Runtime::wait`]
    /// returns when one may have come.
    #[inline]
    pub fn question(&mut self) -> Option<Question> {
        // Acquire: what the host wrote before the number is seen with it.
        let number = self.ask.first()?.load(Ordering::Acquire);
        if number == self.answered {
            return None;
        }
        let own = self.own(number);
        if own.is_none() {
            self.answered = number;
        }
        own
    }

    /// The question of this number, if it is about a subject of ours.
    #[cold]
    fn own(&self, number: u64) -> Option<Question> {
        let field = |offset: usize| Some(self.ask.get(offset / WORD)?.load(Ordering::Relaxed));
        let about = field(offset_of!(Ask, subject))?;
        let mut own = self.subjects.iter();
        Some(Question {
            number,
            subject: *own.find(|subject| **subject as u64 == about)?,
            from: field(offset_of!(Ask, from))?,
        })
    }

    /// What is asked about in particular: the piece of this number, of the type `T`, of at most 80
    /// bytes and a multiple of eight. The host may change it at any time, so it is read once.
    pub fn detail<T: FromBytes>(&self, number: usize) -> Option<T> {
        const { assert!(size_of::<T>().is_multiple_of(WORD)) }
        const { assert!(size_of::<T>() <= DETAIL_WORDS_MAX * WORD) }
        let words = size_of::<T>() / WORD;
        let mut piece = self.details.chunks_exact(words);
        let piece = piece.nth(number)?;
        let mut copy = [0; DETAIL_WORDS_MAX];
        for (to, word) in copy.iter_mut().zip(piece) {
            *to = word.load(Ordering::Relaxed);
        }
        T::read_from_bytes(copy[..words].as_bytes()).ok()
    }

    /// Answers with what `list` hands over: a record at a time, until there is no more room
    /// (`false`).
    #[cold]
    pub fn answer<R: IntoBytes + Immutable>(
        &mut self,
        question: Question,
        list: impl FnOnce(&mut dyn FnMut(&R) -> bool) -> Listed,
    ) {
        const { assert!(size_of::<R>().is_multiple_of(WORD)) }
        let head_words = size_of::<Answer>() / WORD;
        let (head, records) = self.answer.split_at(head_words.min(self.answer.len()));
        let records = &records[..records.len().min(RECORDS_BYTES / WORD)];
        let mut places = records.chunks_exact(size_of::<R>() / WORD);
        let mut count = 0;
        let listed = list(&mut |record| {
            let Some(place) = places.next() else {
                return false;
            };
            let (words, _) = record.as_bytes().as_chunks::<WORD>();
            for (to, word) in place.iter().zip(words) {
                to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
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
        say(offset_of!(Answer, subject), question.subject as u64);
        say(offset_of!(Answer, ended), listed.ended);
        say(offset_of!(Answer, number), question.number);
        self.answered = question.number;
    }
}
