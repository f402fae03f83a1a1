//! Asks a guest about what it has in its memory, part by part; see [`abi::inquiry`].

use crate::instance::event::{self, lock, wake};
use crate::instance::{self, Instance};
use abi::inquiry::{
    ANSWER_OFFSET, ASK_OFFSET, Answer, Ask, DETAILS_BYTES, DETAILS_OFFSET, RECORDS_OFFSET, Subject,
    records_max,
};
use rustix::io::{Errno, pread, pwrite};
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fmt, io};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// How long the guest may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);
/// Most answers of which a list is made: about two million records.
const ANSWERS_MAX: usize = 1 << 14;

/// Why a guest has not answered.
#[derive(Debug)]
pub enum Error {
    /// No such guest.
    Instance(instance::Error),
    /// Another command changes the shared file all the time.
    Busy(String),
    /// The guest says nothing.
    Silent(String),
    /// The guest does not know what it was asked.
    Stranger(String),
    /// The guest's list has no end.
    Endless(String),
    /// The shared file or the event cannot be used.
    System(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Busy(name) => write!(
                f,
                "another command has been talking to {name} for {} s; try again",
                event::LOCK_TIMEOUT.as_secs()
            ),
            Self::Silent(name) => write!(
                f,
                "{name} has not answered for {} s; is it stopped, or was its image built before \
                 images answered this?",
                ANSWER_TIMEOUT.as_secs()
            ),
            Self::Stranger(name) => write!(
                f,
                "{name} does not know this question; build its image anew, and start it"
            ),
            Self::Endless(name) => write!(f, "the list of {name} has no end"),
            Self::System(e) => write!(f, "cannot ask: {e}"),
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// A conversation with a guest. Those who ask take turns: others wait until it is over.
#[derive(Debug)]
pub struct Inquiry<'a> {
    instance: &'a Instance,
    /// Locked; the lock goes with the descriptor.
    event: OwnedFd,
    share: OwnedFd,
}

impl<'a> Inquiry<'a> {
    /// Begins one.
    ///
    /// # Errors
    /// The guest cannot be reached, or others are asking all the time.
    pub fn begin(instance: &'a Instance) -> Result<Self, Error> {
        let event = instance.event().map_err(Error::Instance)?;
        if !lock(&event)? {
            return Err(Error::Busy(instance.name().to_owned()));
        }
        let share = instance.writable_share().map_err(Error::Instance)?;
        Ok(Self {
            instance,
            event,
            share,
        })
    }

    /// Hands over all records of a list to `take`, and returns the last answer.
    ///
    /// # Errors
    /// The guest does not answer, or without an end.
    pub fn list<R: FromBytes + IntoBytes>(
        &self,
        subject: Subject,
        mut take: impl FnMut(&R),
    ) -> Result<Answer, Error> {
        let mut from = 0;
        for _ in 0..ANSWERS_MAX {
            let answer = self.ask(subject, from)?;
            records(&self.share, &answer)?.iter().for_each(&mut take);
            match answer.next {
                0 => return Ok(answer),
                // It goes on, and never back.
                next if next > from => from = next,
                _ => break,
            }
        }
        Err(Error::Endless(self.instance.name().to_owned()))
    }

    /// Asks with these details, which are cut where there is no more room; `from` as in [`Ask`].
    ///
    /// # Errors
    /// The guest does not answer.
    pub fn ask_about(&self, subject: Subject, from: u64, details: &[u8]) -> Result<Answer, Error> {
        let details = &details[..details.len().min(DETAILS_BYTES)];
        if pwrite(&self.share, details, DETAILS_OFFSET as u64)? != details.len() {
            return Err(Errno::IO.into());
        }
        self.ask(subject, from)
    }

    fn ask(&self, subject: Subject, from: u64) -> Result<Answer, Error> {
        let number = put(&self.share, subject, from)?;
        wake(&self.event)?;
        let answer = self.answer(number)?;
        match answer.subject == subject as u64 {
            true => Ok(answer),
            false => Err(Error::Stranger(self.instance.name().to_owned())),
        }
    }

    /// Waits for the answer to the question of this number.
    fn answer(&self, number: u64) -> Result<Answer, Error> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            // Looked at first: a guest that answers and ends has answered.
            let runs = self.instance.is_running().map_err(Error::Instance)?;
            let mut answer = Answer::new_zeroed();
            pread(&self.share, answer.as_mut_bytes(), ANSWER_OFFSET as u64)?;
            let name = || self.instance.name().to_owned();
            match answer.number == number {
                true => return Ok(answer),
                false if !runs => return Err(Error::Instance(instance::Error::Ended(name()))),
                false if Instant::now() > deadline => return Err(Error::Silent(name())),
                false => sleep(PAUSE),
            }
        }
    }
}

/// Writes a question; its number.
fn put(share: impl AsFd, subject: Subject, from: u64) -> Result<u64, Errno> {
    let mut ask = Ask::new_zeroed();
    pread(&share, ask.as_mut_bytes(), ASK_OFFSET as u64)?;
    // Zero is no question.
    let number = ask.number.wrapping_add(1).max(1);
    for (offset, value) in [
        (offset_of!(Ask, from), from),
        (offset_of!(Ask, subject), subject as u64),
        (offset_of!(Ask, number), number),
    ] {
        let place = (ASK_OFFSET + offset) as u64;
        if pwrite(&share, value.as_bytes(), place)? != size_of::<u64>() {
            return Err(Errno::IO);
        }
    }
    Ok(number)
}

/// The records of an answer, however many it claims to have.
fn records<R: FromBytes + IntoBytes>(share: impl AsFd, answer: &Answer) -> Result<Vec<R>, Errno> {
    let most = records_max::<R>();
    let count = usize::try_from(answer.count).map_or(most, |count| count.min(most));
    let mut records: Vec<R> = (0..count).map(|_| R::new_zeroed()).collect();
    let bytes = records.as_mut_slice().as_mut_bytes();
    pread(share, bytes, RECORDS_OFFSET as u64)?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::flows::Record;
    use abi::share::BYTES;
    use rustix::fs::MemfdFlags;

    #[test]
    fn a_question_has_a_number_of_its_own_and_an_answer_its_bounds() {
        let share = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&share, BYTES).unwrap();
        let first = put(&share, Subject::Sockets, 0);
        assert_eq!([first, put(&share, Subject::Flows, 9)], [Ok(1), Ok(2)]);
        let mut ask = Ask::new_zeroed();
        pread(&share, ask.as_mut_bytes(), ASK_OFFSET as u64).unwrap();
        assert_eq!((ask.number, ask.from, ask.subject), (2, 9, 1));
        let record = Record {
            mark: 7,
            ..Record::default()
        };
        pwrite(&share, record.as_bytes(), RECORDS_OFFSET as u64).unwrap();
        let hostile = Answer {
            count: u64::MAX,
            ..Answer::default()
        };
        let records: Vec<Record> = records(&share, &hostile).unwrap();
        assert_eq!(
            (records.len(), records[0]),
            (records_max::<Record>(), record)
        );
        assert!(records.len() > 100);
    }
}
