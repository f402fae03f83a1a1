//! Asks a guest for its sockets, part by part.

use super::Error;
use super::socket::Socket;
use crate::instance::event::{lock, wake};
use crate::instance::{self, Instance};
use abi::sockets::{ANSWER_OFFSET, ASK_OFFSET, Answer, Ask, RECORDS_MAX, RECORDS_OFFSET, Record};
use rustix::io::{Errno, pread, pwrite};
use serde::Serialize;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

/// How long the guest may take for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(200);
/// Most answers of which a list is made: more than a million sockets.
const ANSWERS_MAX: usize = 1 << 13;

/// What a guest says of its sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct List {
    /// Listeners, sockets for datagrams, and connections.
    pub sockets: Vec<Socket>,
    /// Connections that peers have begun to open, beside them.
    pub half_open: u64,
    /// Connections in TIME-WAIT, beside them.
    pub time_wait: u64,
}

/// Asks a guest for all of its sockets.
///
/// # Errors
/// It does not answer, or without an end.
pub fn ask(instance: &Instance) -> Result<List, Error> {
    let event = instance.event().map_err(Error::Instance)?;
    let name = || instance.name().to_owned();
    // Those who ask take turns; the lock goes with the descriptor.
    if !lock(&event).map_err(system)? {
        return Err(Error::Busy(name()));
    }
    let share = instance.writable_share().map_err(Error::Instance)?;
    let mut list = List::default();
    let mut from = 0;
    for _ in 0..ANSWERS_MAX {
        let number = put(&share, from).map_err(system)?;
        wake(&event).map_err(system)?;
        let answer = answer(instance, number)?;
        list.sockets
            .extend(records(&share, &answer).map_err(system)?);
        (list.half_open, list.time_wait) = (answer.half_open, answer.time_wait);
        match answer.next {
            0 => return Ok(list),
            // It goes on, and never back.
            next if next > from => from = next,
            _ => break,
        }
    }
    Err(Error::Endless(name()))
}

fn system(errno: Errno) -> Error {
    Error::System(errno.into())
}

/// Writes a question; its number.
fn put(share: impl AsFd, from: u64) -> Result<u64, Errno> {
    let mut ask = Ask::new_zeroed();
    pread(&share, ask.as_mut_bytes(), ASK_OFFSET as u64)?;
    // Zero is no question.
    let number = ask.number.wrapping_add(1).max(1);
    for (offset, value) in [
        (offset_of!(Ask, from), from),
        (offset_of!(Ask, number), number),
    ] {
        let place = (ASK_OFFSET + offset) as u64;
        if pwrite(&share, value.as_bytes(), place)? != size_of::<u64>() {
            return Err(Errno::IO);
        }
    }
    Ok(number)
}

/// Waits for the answer to the question of this number.
fn answer(instance: &Instance, number: u64) -> Result<Answer, Error> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    loop {
        // Looked at first: a guest that answers and ends has answered.
        let runs = instance.is_running().map_err(Error::Instance)?;
        let mut answer = Answer::new_zeroed();
        pread(
            instance.share(),
            answer.as_mut_bytes(),
            ANSWER_OFFSET as u64,
        )
        .map_err(system)?;
        let name = || instance.name().to_owned();
        match answer.number == number {
            true => return Ok(answer),
            false if !runs => return Err(Error::Instance(instance::Error::Ended(name()))),
            false if Instant::now() > deadline => return Err(Error::Silent(name())),
            false => sleep(PAUSE),
        }
    }
}

/// The sockets of an answer. What is none is left out.
fn records(share: impl AsFd, answer: &Answer) -> Result<Vec<Socket>, Errno> {
    let count = usize::try_from(answer.count).map_or(RECORDS_MAX, |count| count.min(RECORDS_MAX));
    let mut records = vec![Record::new_zeroed(); count];
    pread(
        share,
        records.as_mut_slice().as_mut_bytes(),
        RECORDS_OFFSET as u64,
    )?;
    Ok(records.iter().filter_map(Socket::of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::share::BYTES;
    use rustix::fs::MemfdFlags;

    #[test]
    fn a_question_has_a_number_of_its_own_and_an_answer_its_bounds() {
        let share = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&share, BYTES).unwrap();
        assert_eq!([put(&share, 0), put(&share, 9)], [Ok(1), Ok(2)]);
        let mut ask = Ask::new_zeroed();
        pread(&share, ask.as_mut_bytes(), ASK_OFFSET as u64).unwrap();
        assert_eq!((ask.number, ask.from), (2, 9));
        let record = super::super::tests::connection();
        pwrite(&share, record.as_bytes(), RECORDS_OFFSET as u64).unwrap();
        let count = u64::MAX;
        let hostile = Answer {
            count,
            ..Answer::default()
        };
        assert_eq!(records(&share, &hostile).unwrap().len(), 1);
    }
}
