//! The files: a file system, or an archive as `tar` makes it (POSIX.1-1988, ustar; with GNU's long
//! names), in memory or on a disk. An archive's headers are read once, files when they are asked
//! for.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::RefCell;
use core::ops::Range;
use device::BlockDevice;
use device::files::{self, FileSystem};

/// Bytes of a block of an archive, and of a header.
const BLOCK: u64 = 512;
/// Most files.
const FILES_MAX: usize = 65_536;
/// Longest name.
const NAME_MAX: u64 = 4096;

/// Where the archive is.
pub enum Source {
    /// In the image.
    Memory(&'static [u8]),
    /// On a disk.
    Disk(RefCell<Box<dyn BlockDevice>>),
}

impl Source {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(disk) => disk.borrow().capacity(),
        }
    }

    /// The first bytes of a range: all that are in memory, at most `most` from a disk.
    ///
    /// # Errors
    /// If the range leaves the archive, or the disk fails.
    fn bytes(&self, Range { start, end }: Range<u64>, most: u64) -> Result<Bytes, String> {
        let beyond = || format!("it ends before byte {end}");
        match self {
            Self::Memory(bytes) => {
                let part = bytes.get(start as usize..end as usize);
                part.map(Bytes::from_static).ok_or_else(beyond)
            }
            Self::Disk(disk) => {
                let mut disk = disk.borrow_mut();
                let size = disk.block_size() as u64;
                let end = end.min(start.saturating_add(most));
                let (first, behind) = (start / size * size, end.next_multiple_of(size));
                let mut blocks = vec![0; (behind - first) as usize];
                let read = disk.read(first, &mut blocks);
                read.map_err(|error| format!("byte {start}: {error}"))?;
                let place = (start - first) as usize..(end - first) as usize;
                Ok(Bytes::from(blocks).slice(place))
            }
        }
    }
}

/// A file.
pub struct File {
    content: Content,
    /// Its size in bytes.
    pub len: u64,
    /// What it is.
    pub media_type: &'static str,
    /// Its entity tag, quotes included.
    pub etag: String,
    /// When it was changed, in seconds since 1970-01-01 00:00 UTC; 0 if nobody knows.
    pub modified: u64,
}

/// Where the bytes of a file are.
enum Content {
    /// In the archive, from here on.
    Archive(u64),
    /// In a file system.
    Open(RefCell<Box<dyn files::File>>),
}

/// Why there is no file to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFile {
    /// There is none of this name.
    NotFound,
    /// It cannot be read.
    Failed,
}

/// All files.
pub enum Site {
    /// Those of an archive, by their names.
    Archive(Source, BTreeMap<Vec<u8>, Rc<File>>),
    /// Those of a file system.
    Tree(Box<dyn FileSystem>),
}

impl Site {
    /// Reads all headers of an archive.
    ///
    /// # Errors
    /// What is wrong with the archive.
    pub fn read(source: Source) -> Result<Self, String> {
        let mut files = BTreeMap::new();
        let (mut at, mut long) = (0, None);
        while at < source.len() {
            let header = source.bytes(at..at + BLOCK, BLOCK)?;
            if header.iter().all(|byte| *byte == 0) {
                break;
            }
            let size = size(&header).ok_or_else(|| format!("no header at byte {at}"))?;
            let place = at + BLOCK..at + BLOCK + size;
            if place.end > source.len() || files.len() == FILES_MAX {
                return Err(format!("its end is missing, or over {FILES_MAX} files"));
            }
            at = place.end.next_multiple_of(BLOCK);
            match header[156] {
                b'L' if size <= NAME_MAX => long = Some(source.bytes(place, NAME_MAX)?),
                b'0' | 0 => {
                    let name = long.take().map(|name| text(&name).to_owned());
                    let name = name.unwrap_or_else(|| name_of(&header));
                    let name = name.strip_prefix(b"./").unwrap_or(&name);
                    let file = File::new(name, place, &header, &source)?;
                    files.insert(name.to_owned(), Rc::new(file));
                }
                // Folders, links and attributes.
                _ => {}
            }
        }
        Ok(Self::Archive(source, files))
    }

    /// The file at this path, which begins with a slash.
    ///
    /// # Errors
    /// There is none, or the disk fails.
    pub fn find(&self, path: &[u8]) -> Result<Rc<File>, NoFile> {
        let index = match path {
            [.., b'/'] => &b"index.html"[..],
            _ => b"",
        };
        let path = [path, index].concat();
        match self {
            Self::Archive(_, files) => {
                let name = path.strip_prefix(b"/").ok_or(NoFile::NotFound)?;
                files.get(name).cloned().ok_or(NoFile::NotFound)
            }
            Self::Tree(tree) => match tree.open(&path) {
                Ok(file) => Ok(Rc::new(File::open(&path, file))),
                Err(files::Error::Damaged(_) | files::Error::Disk(_)) => Err(NoFile::Failed),
                Err(_) => Err(NoFile::NotFound),
            },
        }
    }

    /// The first bytes of a range of a file: all that are in memory, at most `most` from a disk, up
    /// to where the next `most` of the file begin. Readers of the same file ask for the same parts.
    ///
    /// # Errors
    /// The range leaves the file, or the disk fails.
    pub fn bytes(
        &self,
        file: &File,
        Range { start, end }: Range<u64>,
        most: u32,
    ) -> Result<Bytes, String> {
        let most = u64::from(most.max(1));
        let most = most - start % most;
        match (&file.content, self) {
            (Content::Archive(place), Self::Archive(source, _)) if end <= file.len => {
                source.bytes(place + start..place + end, most)
            }
            (Content::Open(open), _) => {
                let size = end.saturating_sub(start).min(most);
                let bytes = open.borrow_mut().share(start, size as usize);
                let bytes = bytes.map_err(|error| format!("{error}"))?;
                match bytes.is_empty() {
                    false => Ok(bytes),
                    // It has become shorter, which nobody does here.
                    true => Err(format!("it ends before byte {end}")),
                }
            }
            _ => Err(format!("it ends before byte {end}")),
        }
    }
}

impl File {
    fn new(name: &[u8], place: Range<u64>, header: &[u8], source: &Source) -> Result<Self, String> {
        // What is part of an image has no times: the same folder makes the same image.
        let (tag, modified) = match source {
            Source::Memory(_) => (
                fnv1a(&source.bytes(place.clone(), place.end - place.start)?),
                0,
            ),
            Source::Disk(_) => {
                let modified = octal(&header[136..148]).unwrap_or(0);
                (modified << 32 ^ (place.end - place.start), modified)
            }
        };
        Ok(Self {
            len: place.end - place.start,
            content: Content::Archive(place.start),
            media_type: media_type(name),
            etag: format!("\"{tag:016x}\""),
            modified,
        })
    }

    /// One of a file system.
    fn open(name: &[u8], file: Box<dyn files::File>) -> Self {
        let files::Metadata { len, modified, .. } = file.metadata();
        Self {
            len,
            content: Content::Open(RefCell::new(file)),
            media_type: media_type(name),
            etag: format!("\"{:016x}\"", modified << 32 ^ len),
            modified,
        }
    }
}

/// The size that a header tells, if it is one: its sum is right.
fn size(header: &[u8]) -> Option<u64> {
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = header[148..156].iter().map(|byte| u64::from(*byte)).sum();
    // The sum counts itself as spaces.
    let right = octal(&header[148..156])? == sum - own + 8 * u64::from(b' ');
    right.then(|| octal(&header[124..136]))?
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text(field)).ok()?;
    u64::from_str_radix(digits.trim(), 8).ok()
}

/// Up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn name_of(header: &[u8]) -> Vec<u8> {
    let prefix = match &header[257..263] {
        b"ustar\0" => text(&header[345..500]),
        _ => &[],
    };
    let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
    [prefix, slash, text(&header[..100])].concat()
}

fn media_type(name: &[u8]) -> &'static str {
    match name.rsplit(|byte| *byte == b'.').next().unwrap_or_default() {
        b"css" => "text/css",
        b"html" => "text/html; charset=utf-8",
        b"ico" => "image/x-icon",
        b"jpg" => "image/jpeg",
        b"js" => "text/javascript",
        b"json" => "application/json",
        b"png" => "image/png",
        b"svg" => "image/svg+xml",
        b"txt" => "text/plain; charset=utf-8",
        b"wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// It tells a file from what it was before, and no more.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
