//! The last lines of a guest's console, in two files of bounded size.

use rustix::fs::{CWD, Mode, OFlags, openat, renameat};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The newer file, which grows, and the older one, which it becomes.
pub(super) const NEWER: &str = "console";
pub(super) const OLDER: &str = "console.old";
/// How long the newer file grows, in bytes: so many are kept at least, and twice as many at most.
pub const LOG_BYTES_MAX: u64 = 64 << 10;

/// The files, for writing.
#[derive(Debug)]
pub struct Log {
    /// The directory, whatever it is called by then.
    directory: OwnedFd,
    file: File,
    bytes: u64,
}

impl Log {
    /// Empty ones in `directory`.
    pub(super) fn create(directory: &Path) -> io::Result<Self> {
        remove(directory);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self {
            file: create(&directory)?,
            directory,
            bytes: 0,
        })
    }

    /// Keeps these bytes. What cannot be kept, for want of room, is lost: the console goes on.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.bytes + bytes.len() as u64 > LOG_BYTES_MAX {
            let _ = renameat(&self.directory, NEWER, &self.directory, OLDER);
            if let Ok(file) = create(&self.directory) {
                self.file = file;
                self.bytes = 0;
            }
        }
        if self.bytes + bytes.len() as u64 <= LOG_BYTES_MAX && self.file.write_all(bytes).is_ok() {
            self.bytes += bytes.len() as u64;
        }
    }
}

/// A new newer file, and none that somebody else has put there.
fn create(directory: impl AsFd) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, NEWER, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// Removes both files.
pub(super) fn remove(directory: &Path) {
    for file in [NEWER, OLDER] {
        let _ = std::fs::remove_file(directory.join(file));
    }
}

/// What was kept, the oldest first. A guest wrote it: hostile.
pub(super) fn read(directory: &Path) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    for file in [OLDER, NEWER] {
        match super::open_file(&directory.join(file), OFlags::RDONLY) {
            Ok(Some(file)) => File::from(file)
                .take(LOG_BYTES_MAX)
                .read_to_end(&mut kept)?,
            Ok(None) => 0,
            Err(error) => return Err(io::Error::other(error)),
        };
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let name = format!("outboard-log-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let mut log = Log::create(&directory).unwrap();
        assert!(read(&directory).unwrap().is_empty());
        let line = |number: u64| format!("{number:07}\n");
        let lines = 5 * LOG_BYTES_MAX / 8;
        (0..lines).for_each(|number| log.append(line(number).as_bytes()));
        let kept = String::from_utf8(read(&directory).unwrap()).unwrap();
        assert!((LOG_BYTES_MAX..=2 * LOG_BYTES_MAX).contains(&(kept.len() as u64)));
        assert!(kept.ends_with(&(line(lines - 2) + &line(lines - 1))));
        let first = lines - kept.len() as u64 / 8;
        assert!(
            kept.starts_with(&line(first)),
            "nothing is missing in between"
        );
        // One that is too long on its own changes nothing.
        log.append(&vec![b'x'; LOG_BYTES_MAX as usize + 1]);
        assert!(read(&directory).unwrap().len() as u64 <= 2 * LOG_BYTES_MAX);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
