//! A private copy of what a shared file says, so that nobody changes what was decided on.

use super::Error;
use abi::share::{
    CAPTURE_OFFSET, CONTROL_OFFSET, COUNTERS, COUNTERS_OFFSET, CaptureHead, Control, EXITS_OFFSET,
    Exits, RULE_COUNTERS_OFFSET, RULES_BYTES_MAX, RULES_MAX, RULES_OFFSET, RULES_STATUS_OFFSET,
    RuleCounter, RulesStatus, SLOTS,
};
use rustix::io::Errno;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How often to start again when rules are replaced while they are read.
const ATTEMPTS_MAX: usize = 8;
/// One `pread` may be cut short by a signal, never so often.
const READS_MAX: usize = 64;

/// A text of rules is read so many bytes at a time, a divisor of its longest length.
const TEXT_CHUNK_BYTES: usize = 64 << 10;
const _: () = assert!(RULES_BYTES_MAX.is_multiple_of(TEXT_CHUNK_BYTES));

/// What a shared file says, not yet believed. What lies behind a short file's end is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// The counters by number.
    pub counters: Vec<u64>,
    /// How often the guest was left, as its tender says.
    pub exits: Exits,
    /// What the guest says of its rules.
    pub status: RulesStatus,
    /// The counters of the slot that the guest names, at most [`RULES_MAX`]; none if there is no
    /// such slot.
    pub rules: Vec<RuleCounter>,
    /// What the host has said to the guest.
    pub control: Control,
    /// What the guest says of captured frames.
    pub capture: CaptureHead,
    /// Whether the rules stayed the same all the while.
    pub steady: bool,
}

impl Raw {
    /// Copies it out of `file`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(file: impl AsFd) -> Result<Self, Error> {
        let file = file.as_fd();
        let mut raw = Self::copy(file)?;
        for _ in 1..ATTEMPTS_MAX {
            if raw.steady {
                break;
            }
            raw = Self::copy(file)?;
        }
        Ok(raw)
    }

    fn copy(file: impl AsFd) -> Result<Self, Error> {
        let file = file.as_fd();
        let in_force = |status: &RulesStatus| (status.generation, status.slot, status.rules);
        let wanted = |control: &Control| (control.generation, control.slot, control.length);
        let status: RulesStatus = one(file, RULES_STATUS_OFFSET)?;
        let control: Control = one(file, CONTROL_OFFSET)?;
        let rules = match slot(status.slot) {
            None => Vec::new(),
            Some(slot) => {
                let count = usize::try_from(status.rules).map_or(RULES_MAX, |n| n.min(RULES_MAX));
                let size = RULES_MAX * size_of::<RuleCounter>();
                many(file, RULE_COUNTERS_OFFSET + slot * size, count)?
            }
        };
        let counters = many(file, COUNTERS_OFFSET, COUNTERS)?;
        let capture = one(file, CAPTURE_OFFSET)?;
        let exits = one(file, EXITS_OFFSET)?;
        let steady = in_force(&one(file, RULES_STATUS_OFFSET)?) == in_force(&status)
            && wanted(&one(file, CONTROL_OFFSET)?) == wanted(&control);
        Ok(Self {
            counters,
            exits,
            status,
            rules,
            control,
            capture,
            steady,
        })
    }
}

/// The text of rules in `slot`, which a NUL ends where there is room for one; `None` if there is no
/// such slot.
///
/// # Errors
/// The file cannot be read.
pub fn text(file: impl AsFd, slot: u64) -> Result<Option<Vec<u8>>, Error> {
    let Some(slot) = self::slot(slot) else {
        return Ok(None);
    };
    let start = RULES_OFFSET + slot * RULES_BYTES_MAX;
    let mut text = Vec::new();
    while text.len() < RULES_BYTES_MAX {
        let chunk: Vec<u8> = many(&file, start + text.len(), TEXT_CHUNK_BYTES)?;
        let end = chunk.iter().position(|byte| *byte == 0);
        text.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
        if end.is_some() {
            break;
        }
    }
    Ok(Some(text))
}

/// The number of a slot, if it is one.
fn slot(number: u64) -> Option<usize> {
    usize::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

fn one<T: FromBytes + IntoBytes>(file: impl AsFd, offset: usize) -> Result<T, Error> {
    let mut value = T::new_zeroed();
    fill(file, value.as_mut_bytes(), offset)?;
    Ok(value)
}

fn many<T>(file: impl AsFd, offset: usize, count: usize) -> Result<Vec<T>, Error>
where
    T: FromBytes + IntoBytes + Immutable + Clone,
{
    let mut values = vec![T::new_zeroed(); count];
    fill(file, values.as_mut_slice().as_mut_bytes(), offset)?;
    Ok(values)
}

/// Reads until `bytes` are full or the file ends.
fn fill(file: impl AsFd, bytes: &mut [u8], offset: usize) -> Result<(), Error> {
    let mut done = 0;
    for _ in 0..READS_MAX {
        match rustix::io::pread(&file, &mut bytes[done..], (offset + done) as u64) {
            Ok(0) => return Ok(()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::Read(error.into())),
        }
        if done == bytes.len() {
            return Ok(());
        }
    }
    Err(Error::Read(std::io::ErrorKind::UnexpectedEof.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::share::{BYTES, BYTES_MIN};
    use rustix::fs::MemfdFlags;
    use std::os::fd::OwnedFd;

    fn file(size: u64) -> OwnedFd {
        let file = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, size).unwrap();
        file
    }

    fn write(file: &OwnedFd, bytes: &[u8], offset: usize) {
        let written = rustix::io::pwrite(file, bytes, offset as u64).unwrap();
        assert_eq!(written, bytes.len());
    }

    #[test]
    fn a_short_file_reads_as_zeros_behind_its_end() {
        let file = file(BYTES_MIN);
        write(&file, &7u64.to_ne_bytes(), COUNTERS_OFFSET + 8);
        let raw = Raw::read(&file).unwrap();
        assert_eq!(raw.counters.len(), COUNTERS);
        assert_eq!(raw.counters[..3], [0, 7, 0]);
        assert_eq!(raw.status, RulesStatus::default());
        assert!(raw.rules.is_empty() && raw.steady);
    }

    #[test]
    fn rules_are_read_from_the_slot_in_force() {
        let file = file(BYTES);
        let status = RulesStatus {
            generation: 3,
            slot: 1,
            rules: 2,
            ..RulesStatus::default()
        };
        write(&file, status.as_bytes(), RULES_STATUS_OFFSET);
        let counter = RuleCounter {
            frames: 5,
            bytes: 500,
        };
        write(
            &file,
            counter.as_bytes(),
            RULE_COUNTERS_OFFSET + (RULES_MAX + 1) * 16,
        );
        write(&file, b"table\0no more", RULES_OFFSET + RULES_BYTES_MAX);
        let raw = Raw::read(&file).unwrap();
        assert_eq!(raw.status, status);
        assert_eq!(raw.rules, [RuleCounter::default(), counter]);
        assert_eq!(text(&file, 1).unwrap().unwrap(), b"table");
    }

    #[test]
    fn nonsense_is_clamped() {
        let file = file(BYTES);
        let nonsense = RulesStatus {
            slot: u64::MAX,
            rules: u64::MAX,
            ..RulesStatus::default()
        };
        write(&file, nonsense.as_bytes(), RULES_STATUS_OFFSET);
        assert!(Raw::read(&file).unwrap().rules.is_empty());
        write(&file, &0u64.to_ne_bytes(), RULES_STATUS_OFFSET + 8);
        assert_eq!(Raw::read(&file).unwrap().rules.len(), RULES_MAX);
        assert_eq!(text(&file, 2).unwrap(), None);
    }

    #[test]
    fn the_longest_text_ends_at_its_slot() {
        let file = file(BYTES);
        write(&file, &vec![b'#'; RULES_BYTES_MAX], RULES_OFFSET);
        write(&file, b"other", RULES_OFFSET + RULES_BYTES_MAX);
        assert_eq!(text(&file, 0).unwrap().unwrap().len(), RULES_BYTES_MAX);
    }
}
