//! What a disk keeps its blocks in: a file.

use hw::sim::vectored::{self, SPANS_MAX, Span, SpanMut};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::convert::Infallible;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Bytes that are written at a time where a file system has no other way to make zeros.
const ZEROS_BYTES: usize = 64 << 10;

/// A disk in words: `PATH` or `PATH,ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where the file lies.
    pub path: PathBuf,
    /// Whether it is only to be read.
    pub read_only: bool,
}

impl FromStr for Spec {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (path, read_only) = match text.strip_suffix(",ro") {
            Some(path) => (path, true),
            None => (text, false),
        };
        let path = path.into();
        Ok(Self { path, read_only })
    }
}

/// A file that cannot be a disk.
#[derive(Debug)]
pub enum Fault {
    /// It cannot be opened.
    Open(PathBuf, io::Error),
    /// Somebody else has it.
    Locked(PathBuf),
    /// It is neither a file nor a block device.
    Kind(PathBuf),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) if error.kind() == io::ErrorKind::NotFound => write!(
                f,
                "disk {}: {error}; type: truncate -s 1G {0}",
                path.display()
            ),
            Self::Open(path, error) => write!(f, "disk {}: {error}", path.display()),
            Self::Locked(path) => write!(
                f,
                "disk {}: another program writes it, or wants to; end that one first",
                path.display()
            ),
            Self::Kind(path) => write!(
                f,
                "disk {}: neither a file nor a block device",
                path.display()
            ),
        }
    }
}

impl std::error::Error for Fault {}

/// A file, as blocks. Nobody else who asks for a lock writes it meanwhile.
#[derive(Debug)]
pub struct Disk {
    file: File,
    bytes: u64,
    read_only: bool,
    /// What its driver calls it by.
    name: String,
}

impl Spec {
    /// Opens the file.
    ///
    /// # Errors
    /// If it cannot be a disk.
    pub fn open(&self) -> Result<Disk, Fault> {
        Disk::open(&self.path, self.read_only)
    }
}

impl Disk {
    /// Opens a file or a block device.
    ///
    /// # Errors
    /// If it is neither, cannot be opened, or somebody else has it.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, Fault> {
        let failed = |error| Fault::Open(path.into(), error);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(!read_only).open(path);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let kind = metadata.file_type();
        let bytes = if kind.is_file() {
            metadata.len()
        } else if kind.is_block_device() {
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
                .map_err(|error| failed(error.into()))?
        } else {
            return Err(Fault::Kind(path.into()));
        };
        let locked = match read_only {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Fault::Locked(path.into())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            file,
            bytes,
            read_only,
            name: name.to_string_lossy().into_owned(),
        })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is only to be read.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The name of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads from a place into memory, all of it; the file has it, or had.
    ///
    /// # Errors
    /// What the kernel says; `UnexpectedEof` if the file has become shorter.
    pub(crate) fn read(&self, mut at: u64, places: &[SpanMut<'_>]) -> io::Result<()> {
        for places in places.chunks(SPANS_MAX) {
            let bytes = places.iter().map(|place| place.as_span().len()).sum();
            // One call moves all of it, but at the end of a file that became shorter.
            match vectored::read_at(self.file.as_fd(), at, places)? {
                moved if moved == bytes => at += bytes as u64,
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }

    /// Writes memory to a place, all of it.
    ///
    /// # Errors
    /// What the kernel says; `WriteZero` if there was not room for all of it.
    pub(crate) fn write(&self, mut at: u64, spans: &[Span<'_>]) -> io::Result<()> {
        for spans in spans.chunks(SPANS_MAX) {
            let bytes = spans.iter().map(Span::len).sum();
            match vectored::write_at(self.file.as_fd(), at, spans)? {
                moved if moved == bytes => at += bytes as u64,
                _ => return Err(io::ErrorKind::WriteZero.into()),
            }
        }
        Ok(())
    }

    /// What was written before survives a loss of power when this returns.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Gives bytes back to the file system, which read zero from then on, or what they read before
    /// where it cannot take them.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, at, bytes) {
            // A block device has holes of its own blocks alone.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Makes bytes zero; with `give_back`, their room goes back to the file system.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn zero(&self, at: u64, bytes: u64, give_back: bool) -> io::Result<()> {
        let how = match give_back {
            true => FallocateFlags::PUNCH_HOLE,
            false => FallocateFlags::ZERO_RANGE,
        };
        match fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at, bytes) {
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
            done => return Ok(done?),
        }
        let zeros = [0; ZEROS_BYTES];
        let mut done = 0;
        while done < bytes {
            let len = (bytes - done).min(ZEROS_BYTES as u64);
            self.file.write_all_at(&zeros[..len as usize], at + done)?;
            done += len;
        }
        Ok(())
    }
}

/// For a jail, which has to know what a disk uses.
impl AsFd for Disk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A disk of so many bytes for tests, whose file is nowhere.
#[cfg(test)]
pub(crate) fn sample(bytes: u64) -> Disk {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let file = memfd_create("sample", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes).unwrap();
    Disk {
        file: file.into(),
        bytes,
        read_only: false,
        name: "sample.img".into(),
    }
}

#[cfg(test)]
impl Disk {
    /// The same disk, only to be read.
    pub(crate) fn read_only(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }

    /// Bytes of its file.
    pub(crate) fn file_bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("outboard-disk-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_disk_is_a_file_that_nobody_else_has() {
        let path = path("locked");
        fs::write(&path, [7; 4096]).unwrap();
        let spec = |text: String| text.parse::<Spec>().unwrap();
        let name = path.display().to_string();
        let disk = spec(name.clone()).open().unwrap();
        assert_eq!((disk.bytes(), disk.is_read_only()), (4096, false));
        let second = spec(format!("{name},ro")).open().unwrap_err();
        assert!(matches!(second, Fault::Locked(_)), "{second}");
        drop(disk);
        let readers = [(); 2].map(|()| spec(format!("{name},ro")).open().unwrap());
        assert!(readers.iter().all(Disk::is_read_only));
        assert!(matches!(spec(name).open(), Err(Fault::Locked(_))));
        drop(readers);
        fs::remove_file(&path).unwrap();
        let missing = Disk::open(&path, false).unwrap_err().to_string();
        assert!(missing.contains("type: truncate"), "{missing}");
        let folder = Disk::open(Path::new("/dev/null"), false).unwrap_err();
        assert!(matches!(folder, Fault::Kind(_)));
    }

    #[test]
    fn zeros_are_zeros_whichever_way_they_are_made() {
        let path = path("zeros");
        for give_back in [false, true] {
            fs::write(&path, vec![7; 300_000]).unwrap();
            let disk = Disk::open(&path, false).unwrap();
            disk.zero(4096, 200_000, give_back).unwrap();
            disk.discard(290_000, 100).unwrap();
            disk.flush().unwrap();
            let bytes = fs::read(&path).unwrap();
            assert!(bytes[..4096].iter().all(|byte| *byte == 7));
            assert!(bytes[4096..204_096].iter().all(|byte| *byte == 0));
            assert_eq!((bytes[204_096], bytes.len()), (7, 300_000));
        }
        fs::remove_file(&path).unwrap();
    }
}
