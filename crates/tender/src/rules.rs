//! Rules for the guest, put into the shared file: at the start, and by whoever replaces them later.
//!
//! What they mean is the guest's to say, so that the tender stays small: here they are bytes.

use crate::share::SharedFile;
use abi::extension::feature;
use abi::share::{
    BYTES, CONTROL_OFFSET, Control, REVALIDATE_OFFSET, RULES_BYTES_MAX, RULES_OFFSET,
    RULES_STATUS_OFFSET, RulesStatus, SLOTS,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};
use std::fs::File;
use std::io::Read;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::Path;
use std::{fmt, io};
use zerocopy::{FromZeros, IntoBytes};

/// Writes of one text that may be cut short or interrupted, one after the other.
const WRITES_MAX: usize = 64;

/// Why rules cannot be given to a guest.
#[derive(Debug)]
pub enum Error {
    /// The image does not take any.
    NotTaken,
    /// There is no shared file, or a smaller one.
    NoRoom,
    /// The file cannot be read.
    Read(io::Error),
    /// It is no regular file.
    NoFile,
    /// It is longer than [`RULES_BYTES_MAX`].
    TooLong,
    /// The shared file cannot be written.
    Write(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTaken => write!(
                f,
                "this image takes no rules; leave the option away, or build the image with \
                 rule_files::appliance(FILE) in its build.rs"
            ),
            Self::NoRoom => write!(
                f,
                "rules are handed over in a shared file of {BYTES} bytes; type: truncate -s \
                 {BYTES} FILE, and add --share=FILE"
            ),
            Self::Read(error) => write!(f, "{error}; name a file of rules that can be read"),
            Self::NoFile => write!(f, "no regular file; name a file of rules"),
            Self::TooLong => write!(
                f,
                "longer than {} MiB; shorten it, with sets in place of rules",
                RULES_BYTES_MAX >> 20
            ),
            Self::Write(error) => write!(
                f,
                "the shared file cannot be written: {error}; make room where it lies, or name \
                 another one with --share=FILE"
            ),
        }
    }
}

/// Reads a file of rules.
///
/// # Errors
/// It cannot be read, or is no file of at most [`RULES_BYTES_MAX`] bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    // NONBLOCK: a FIFO of this name must not hold anybody up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(file.map_err(|errno| Error::Read(errno.into()))?);
    if !file.metadata().map_err(Error::Read)?.is_file() {
        return Err(Error::NoFile);
    }
    let mut text = Vec::new();
    let mut most = file.take(RULES_BYTES_MAX as u64 + 1);
    most.read_to_end(&mut text).map_err(Error::Read)?;
    if text.len() > RULES_BYTES_MAX {
        return Err(Error::TooLong);
    }
    Ok(text)
}

/// Gives the rules in the file `path` to a guest with these features, which is about to start.
pub(crate) fn give(path: &Path, features: u32, share: Option<&SharedFile>) -> Result<(), Error> {
    if features & feature::RULES == 0 {
        return Err(Error::NotTaken);
    }
    let share = share.filter(|share| share.size == BYTES);
    let share = share.ok_or(Error::NoRoom)?;
    let text = read(path)?;
    publish(&share.file, &text, false)
        .map(drop)
        .map_err(Error::Write)
}

/// Puts `text` into the slot of the shared file that is not in force, and asks the guest to use it.
/// Returns the generation by which the guest will speak of it. A NUL ends the text in the file,
/// where there is room. If it `revalidates`, connections that began under the rules before end
/// unless these let them begin.
///
/// Two that do this at the same time spoil each other's text; hold a lock.
///
/// # Errors
/// `text` is longer than [`RULES_BYTES_MAX`], or the file cannot be written.
pub fn publish(share: impl AsFd, text: &[u8], revalidates: bool) -> io::Result<u64> {
    if text.len() > RULES_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let share = share.as_fd();
    let mut status = RulesStatus::new_zeroed();
    pread(share, status.as_mut_bytes(), RULES_STATUS_OFFSET as u64)?;
    let mut control = Control::new_zeroed();
    pread(share, control.as_mut_bytes(), CONTROL_OFFSET as u64)?;
    let slot = (status.slot.wrapping_add(1) % SLOTS as u64) as usize;
    let generation = control.generation.wrapping_add(1);
    // A length that none has, for a guest that looks at the text right now.
    put(share, offset_of!(Control, length), u64::MAX)?;
    let start = RULES_OFFSET + slot * RULES_BYTES_MAX;
    write_all(share, text, start)?;
    if text.len() < RULES_BYTES_MAX {
        write_all(share, &[0], start + text.len())?;
    }
    put(share, offset_of!(Control, slot), slot as u64)?;
    put(share, offset_of!(Control, length), text.len() as u64)?;
    if revalidates {
        write_all(share, &generation.to_ne_bytes(), REVALIDATE_OFFSET)?;
    }
    put(share, offset_of!(Control, generation), generation)?;
    Ok(generation)
}

/// Writes a field of [`Control`].
fn put(share: impl AsFd, field: usize, value: u64) -> io::Result<()> {
    write_all(share, &value.to_ne_bytes(), CONTROL_OFFSET + field)
}

fn write_all(share: impl AsFd, mut bytes: &[u8], mut offset: usize) -> io::Result<()> {
    for _ in 0..WRITES_MAX {
        if bytes.is_empty() {
            return Ok(());
        }
        let written = match pwrite(&share, bytes, offset as u64) {
            Err(Errno::INTR) => continue,
            written => written?,
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Err(io::ErrorKind::Interrupted.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::OwnedFd;

    fn share() -> OwnedFd {
        let file = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, BYTES).unwrap();
        file
    }

    fn control(share: &OwnedFd) -> Control {
        let mut control = Control::new_zeroed();
        pread(share, control.as_mut_bytes(), CONTROL_OFFSET as u64).unwrap();
        control
    }

    fn revalidates(share: &OwnedFd) -> u64 {
        let mut generation = 0_u64;
        pread(share, generation.as_mut_bytes(), REVALIDATE_OFFSET as u64).unwrap();
        generation
    }

    fn text(share: &OwnedFd, slot: u64, length: usize) -> Vec<u8> {
        let mut text = vec![0xff; length];
        let start = RULES_OFFSET as u64 + slot * RULES_BYTES_MAX as u64;
        pread(share, &mut text, start).unwrap();
        text
    }

    #[test]
    fn a_text_goes_where_the_one_in_force_is_not() {
        let share = share();
        assert_eq!(publish(&share, b"first", false).unwrap(), 1);
        let said = control(&share);
        assert_eq!((said.generation, said.slot, said.length), (1, 1, 5));
        assert_eq!(text(&share, 1, 7), b"first\0\0");
        // As long as the guest has not taken it over, its slot is the one to be written.
        assert_eq!(publish(&share, b"two", true).unwrap(), 2);
        assert_eq!(revalidates(&share), 2);
        assert_eq!(text(&share, 1, 6), b"two\0t\0");
        let status = RulesStatus {
            generation: 2,
            slot: 1,
            ..RulesStatus::default()
        };
        pwrite(&share, status.as_bytes(), RULES_STATUS_OFFSET as u64).unwrap();
        assert_eq!(publish(&share, b"three", false).unwrap(), 3);
        assert_eq!(revalidates(&share), 2);
        assert_eq!(
            (control(&share).slot, text(&share, 0, 5)),
            (0, b"three".to_vec())
        );
        assert_eq!(text(&share, 1, 4), b"two\0");
    }

    #[test]
    fn a_slot_that_a_guest_makes_up_leads_nowhere_else() {
        for slot in [2, 3, u64::MAX, u64::MAX - 1] {
            let share = share();
            let status = RulesStatus {
                slot,
                ..RulesStatus::default()
            };
            pwrite(&share, status.as_bytes(), RULES_STATUS_OFFSET as u64).unwrap();
            publish(&share, b"text", false).unwrap();
            let said = control(&share).slot;
            assert!(said < SLOTS as u64);
            assert_eq!(text(&share, said, 4), b"text");
        }
    }

    #[test]
    fn the_longest_text_fits_and_no_longer_one() {
        let share = share();
        publish(&share, &vec![b'#'; RULES_BYTES_MAX], false).unwrap();
        assert_eq!(rustix::fs::fstat(&share).unwrap().st_size as u64, BYTES);
        publish(&share, &vec![b'#'; RULES_BYTES_MAX + 1], false).unwrap_err();
    }

    #[test]
    fn only_files_are_read() {
        assert!(matches!(read(Path::new("/")), Err(Error::NoFile)));
        assert!(matches!(read(Path::new("/dev/zero")), Err(Error::NoFile)));
        let missing = read(Path::new("/nonexistent.nft")).unwrap_err();
        assert!(missing.to_string().contains("name a file of rules"));
    }

    #[test]
    fn rules_need_an_image_that_takes_them_and_room() {
        let path = Path::new("/nonexistent.nft");
        let taken = feature::RULES;
        assert!(matches!(give(path, 0, None), Err(Error::NotTaken)));
        assert!(matches!(give(path, taken, None), Err(Error::NoRoom)));
        let small = SharedFile {
            file: share(),
            size: abi::share::BYTES_MIN,
        };
        assert!(matches!(
            give(path, taken, Some(&small)),
            Err(Error::NoRoom)
        ));
    }
}
