//! All that a file system has: walked, read, copied to another, compared with another.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use device::files::{Entry, Error, File, FileSystem, Kind, NAMES_MAX};

/// Bytes that are moved at once.
const PART: usize = 64 << 10;
/// Folders that lie in each other at most: more are believed to have no end.
const DEPTH_MAX: usize = 128;
/// Where a checker of ext puts what it finds: part of no tree.
const FOUND: &[u8] = b"/lost+found";

/// What was come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files that were read, copied, or compared.
    pub files: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What is neither: links and devices are left alone.
    pub others: u64,
}

/// Why a tree was not gone through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Where.
    pub path: Vec<u8>,
    /// Why.
    pub error: Error,
}

/// What differs between two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the first one has it.
    Missing,
    /// Only the second one has it.
    Added,
    /// One is a file, and the other is not.
    Kind,
    /// The bytes.
    Bytes,
}

/// Has `each` see the path and the kind of all that there is, folders before what is in them.
///
/// # Errors
/// A folder cannot be read, `each` fails, or there are more names than [`NAMES_MAX`], or more than
/// 128 folders in each other: what a damaged disk says may lead back to where it began.
pub fn walk(
    files: &dyn FileSystem,
    mut each: impl FnMut(&[u8], Kind) -> Result<(), Error>,
) -> Result<(), Failed> {
    let mut folders = vec![Vec::new()];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        let at = |error| Failed {
            path: folder.clone(),
            error,
        };
        let path = if folder.is_empty() { b"/" } else { &folder[..] };
        let mut entries: Vec<Entry> = Vec::new();
        let listed = files.list(path, &mut |entry| {
            entries.push(entry);
            count += 1;
            count <= NAMES_MAX
        });
        listed.map_err(at)?;
        let depth = folder.iter().filter(|byte| **byte == b'/').count();
        if count > NAMES_MAX || depth > DEPTH_MAX {
            return Err(at(Error::Damaged("folders without an end")));
        }
        for Entry { name, kind } in entries {
            let path = [&folder[..], b"/", &name].concat();
            if path == FOUND {
                continue;
            }
            if let Err(error) = each(&path, kind) {
                return Err(Failed { path, error });
            }
            if kind == Kind::Folder {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Reads a file in parts of so many bytes, as long as `each` wants more; how many bytes were read.
///
/// # Errors
/// It cannot be read, or `each` fails.
pub fn read(
    file: &mut dyn File,
    part: usize,
    mut each: impl FnMut(u64, &[u8]) -> Result<bool, Error>,
) -> Result<u64, Error> {
    let mut part = vec![0; part];
    let mut at = 0;
    loop {
        let count = file.read(at, &mut part)?;
        if count == 0 || !each(at, &part[..count])? {
            return Ok(at);
        }
        at += count as u64;
    }
}

/// Reads all of it. A file that cannot be read is told, and keeps nothing else back.
///
/// # Errors
/// As [`walk`].
pub fn check(files: &dyn FileSystem, tell: &mut dyn FnMut(&[u8], Error)) -> Result<Counts, Failed> {
    let mut counts = Counts::default();
    walk(files, |path, kind| {
        match kind {
            Kind::Folder => counts.folders += 1,
            Kind::File => {
                let bytes = files.open(path).and_then(|mut file| {
                    let len = file.metadata().len;
                    let count = read(&mut *file, PART, |_, _| Ok(true))?;
                    match count == len {
                        true => Ok(count),
                        false => Err(Error::Damaged("a file is shorter than it says")),
                    }
                });
                match bytes {
                    Ok(bytes) => {
                        counts.files += 1;
                        counts.bytes += bytes;
                    }
                    Err(error) => tell(path, error),
                }
            }
            Kind::Link | Kind::Other => counts.others += 1,
        }
        Ok(())
    })?;
    Ok(counts)
}

/// Copies all of it to another file system, over what is there, and syncs that one.
///
/// # Errors
/// As [`walk`], or the other one cannot be written.
pub fn copy(from: &dyn FileSystem, to: &dyn FileSystem) -> Result<Counts, Failed> {
    let mut counts = Counts::default();
    let walked = walk(from, |path, kind| {
        match kind {
            Kind::Folder => {
                counts.folders += 1;
                match to.make_folder(path) {
                    Err(Error::Exists) if to.metadata(path)?.kind == Kind::Folder => {}
                    made => made?,
                }
            }
            Kind::File => {
                let (mut old, mut new) = (from.open(path)?, emptied(to, path)?);
                counts.bytes += read(&mut *old, PART, |at, part| {
                    new.write(at, part)?;
                    Ok(true)
                })?;
                counts.files += 1;
            }
            Kind::Link | Kind::Other => counts.others += 1,
        }
        Ok(())
    });
    // What was copied before an error is there as well.
    let synced = to.sync().map_err(|error| Failed {
        path: b"/".to_vec(),
        error,
    });
    walked.and(synced).map(|()| counts)
}

fn emptied(to: &dyn FileSystem, path: &[u8]) -> Result<Box<dyn File>, Error> {
    match to.create(path) {
        Err(Error::Exists) => {
            let mut file = to.open_to_write(path)?;
            file.set_len(0)?;
            Ok(file)
        }
        created => created,
    }
}

/// Tells where two trees differ; what they have in common.
///
/// # Errors
/// As [`walk`], or a file cannot be read.
pub fn compare(
    first: &dyn FileSystem,
    second: &dyn FileSystem,
    tell: &mut dyn FnMut(&[u8], Difference),
) -> Result<Counts, Failed> {
    let mut counts = Counts::default();
    walk(first, |path, kind| {
        match (kind, second.metadata(path)) {
            (Kind::Link | Kind::Other, _) => counts.others += 1,
            (_, Err(Error::NotFound | Error::NoFolder)) => tell(path, Difference::Missing),
            (_, Err(error)) => return Err(error),
            (kind, Ok(other)) if other.kind != kind => tell(path, Difference::Kind),
            (Kind::Folder, Ok(_)) => counts.folders += 1,
            (Kind::File, Ok(_)) => match same(first, second, path)? {
                Some(bytes) => {
                    counts.files += 1;
                    counts.bytes += bytes;
                }
                None => tell(path, Difference::Bytes),
            },
        }
        Ok(())
    })?;
    walk(second, |path, kind| match (kind, first.metadata(path)) {
        // What a link leads to is not looked at.
        (Kind::Link | Kind::Other, _) => Ok(()),
        (_, Err(Error::NotFound | Error::NoFolder)) => {
            tell(path, Difference::Added);
            Ok(())
        }
        (_, found) => found.map(drop),
    })?;
    Ok(counts)
}

/// How long both files are, if they are the same.
fn same(
    first: &dyn FileSystem,
    second: &dyn FileSystem,
    path: &[u8],
) -> Result<Option<u64>, Error> {
    let (mut old, mut new) = (first.open(path)?, second.open(path)?);
    let mut place = vec![0; PART];
    let mut is_same = true;
    let bytes = read(&mut *old, PART, |at, part| {
        let count = new.read(at, &mut place[..part.len()])?;
        is_same = place[..count] == *part;
        Ok(is_same)
    })?;
    let is_over = is_same && new.read(bytes, &mut place[..1])? == 0;
    Ok(is_over.then_some(bytes))
}
