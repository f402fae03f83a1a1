//! ext2, ext3 and ext4, by the crate `ext4-view`: a journal that was not replayed is read with the
//! rest, and changes nothing on the disk.

use crate::volume::Volume;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::BlockError;
use device::files::{self, Entry, Error, FileSystem, Kind, Metadata, NAMES_MAX, PATH_MAX};
use ext4_view::{Ext4, Ext4Error, FileType};

/// Where the super block lies, and fields of it (the kernel's ext4 documentation, "Super Block").
const SUPER_BLOCK: u64 = 1024;
const BLOCKS_LOW: usize = 0x4;
const LOG_BLOCK_SIZE: usize = 0x18;
const BLOCKS_PER_GROUP: usize = 0x20;
const MAGIC: usize = 0x38;
const BLOCKS_HIGH: usize = 0x150;
const FIELDS_END: usize = 0x154;
/// `s_magic`.
const MAGIC_NUMBER: [u8; 2] = [0x53, 0xef];
/// The largest block is of 64 KiB, as Linux has it.
const LOG_BLOCK_SIZE_MAX: u32 = 6;
/// Most groups of blocks: the crate keeps what it knows of each. Groups of the usual size make a
/// disk of 128 TiB of so many.
const GROUPS_MAX: u64 = 1 << 20;
/// Symbolic links that a path may lead through, as Linux has it.
const LINKS_MAX: usize = 40;
/// How far behind its beginning somebody may begin to read: the crate counts all blocks up to
/// there.
const OFFSET_MAX: u64 = 1 << 36;
/// Blocks of a file at most: their numbers have 32 bits.
const LOG_FILE_BLOCKS_MAX: u32 = 32;

fn super_block(volume: &Volume) -> Option<[u8; FIELDS_END]> {
    let mut bytes = [0; FIELDS_END];
    volume.read(SUPER_BLOCK, &mut bytes).ok()?;
    (bytes[MAGIC..MAGIC + 2] == MAGIC_NUMBER).then_some(bytes)
}

fn word(bytes: &[u8; FIELDS_END], at: usize) -> u32 {
    let word = bytes[at..].first_chunk::<4>();
    u32::from_le_bytes(*word.unwrap_or(&[0; 4]))
}

/// The logarithm of a block's size in KiB.
fn log_block_size(bytes: &[u8; FIELDS_END]) -> u32 {
    word(bytes, LOG_BLOCK_SIZE)
}

/// Whether there is such a file system.
pub(crate) fn is_there(volume: &Volume) -> bool {
    super_block(volume).is_some()
}

/// Whether its sizes are those of a file system that is on this volume. The crate takes memory for
/// what they say before it looks further.
fn has_sound_sizes(volume: &Volume) -> bool {
    let Some(bytes) = super_block(volume) else {
        return false;
    };
    let word = |at| word(&bytes, at);
    // The crate believes the upper half whether the file system has one or not.
    let blocks = u64::from(word(BLOCKS_HIGH)) << 32 | u64::from(word(BLOCKS_LOW));
    let (log, group) = (log_block_size(&bytes), u64::from(word(BLOCKS_PER_GROUP)));
    log <= LOG_BLOCK_SIZE_MAX
        && group > 0
        && blocks.div_ceil(group) <= GROUPS_MAX
        && blocks <= volume.size() >> (10 + log)
}

pub(crate) struct Ext {
    files: Ext4,
    /// Bytes of a file at most.
    file_max: u64,
    /// The folder in which something was found last: its path, and that without symbolic links.
    last: RefCell<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Ext {
    pub(crate) fn mount(volume: Volume) -> Result<Self, Error> {
        match has_sound_sizes(&volume) {
            true => {
                let log = super_block(&volume).map_or(0, |bytes| log_block_size(&bytes));
                let files = Ext4::load(Box::new(volume)).map_err(meant)?;
                Ok(Self {
                    files,
                    file_max: 1 << (10 + log + LOG_FILE_BLOCKS_MAX),
                    last: RefCell::new(None),
                })
            }
            false => Err(Error::Damaged("its sizes are not those of the disk")),
        }
    }

    /// The path without symbolic links, and what is known of what is there.
    fn find(&self, path: &[u8]) -> Result<(Vec<u8>, Metadata), Error> {
        files::check(path)?;
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
        if !name.is_empty() && name != b"." {
            let here = [&self.folder(folder)?, &b"/"[..], name].concat();
            let found = self.files.symlink_metadata(plain(&here)?).map_err(meant)?;
            if !found.is_symlink() {
                return Ok((here, known(&found)));
            }
        }
        let path = self.resolve(Vec::new(), path)?;
        let found = self.files.symlink_metadata(plain(&path)?).map_err(meant)?;
        Ok((path, known(&found)))
    }

    /// The path of a folder without symbolic links.
    fn folder(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let (mut begin, mut rest) = (Vec::new(), path);
        if let Some((last, real)) = &*self.last.borrow()
            && let Some(behind) = path.strip_prefix(&last[..])
        {
            begin.extend(names(real));
            rest = behind;
        }
        let real = self.resolve(begin, rest)?;
        *self.last.borrow_mut() = Some((path.to_vec(), real.clone()));
        Ok(real)
    }

    /// The path without symbolic links, of which `found` are the first names. The crate would read
    /// a link whatever size it says to have.
    fn resolve(&self, mut found: Vec<Vec<u8>>, path: &[u8]) -> Result<Vec<u8>, Error> {
        let mut links = 0;
        let mut rest: Vec<Vec<u8>> = names(path).rev().collect();
        while let Some(name) = rest.pop() {
            if name == b".." {
                found.pop();
                continue;
            }
            found.push(name);
            let here = joined(&found);
            let metadata = self.files.symlink_metadata(plain(&here)?).map_err(meant)?;
            if !metadata.is_symlink() {
                continue;
            }
            links += 1;
            if links > LINKS_MAX || metadata.len() > PATH_MAX as u64 {
                return Err(Error::Damaged("symbolic links without an end"));
            }
            let target = self.files.read_link(plain(&here)?).map_err(meant)?;
            let target: &[u8] = target.as_ref();
            match target.starts_with(b"/") {
                true => found.clear(),
                false => drop(found.pop()),
            }
            rest.extend(names(target).rev());
        }
        Ok(joined(&found))
    }
}

/// The names of a path.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec)
}

fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    match names {
        [] => b"/".to_vec(),
        names => names
            .iter()
            .flat_map(|name| [b"/", &name[..]].concat())
            .collect(),
    }
}

impl FileSystem for Ext {
    fn name(&self) -> &'static str {
        "ext"
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        Ok(self.find(path)?.1)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        let (path, found) = self.find(path)?;
        if found.kind != Kind::File {
            return Err(Error::NoFile);
        }
        if found.len > self.file_max {
            return Err(Error::Damaged("a file is larger than it can be"));
        }
        let file = self.files.open(plain(&path)?).map_err(meant)?;
        Ok(Box::new(File(file)))
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let (path, _) = self.find(path)?;
        let entries = self.files.read_dir(plain(&path)?).map_err(meant)?;
        for (number, entry) in entries.enumerate() {
            if number == NAMES_MAX {
                return Err(Error::Damaged("a folder has no end"));
            }
            let entry = entry.map_err(meant)?;
            let name = entry.file_name();
            let name: &[u8] = name.as_ref();
            if name == b"." || name == b".." {
                continue;
            }
            let entry = Entry {
                name: name.to_vec(),
                kind: kind(entry.file_type().map_err(meant)?),
            };
            if !each(entry) {
                break;
            }
        }
        Ok(())
    }
}

struct File(ext4_view::File);

impl files::File for File {
    fn metadata(&self) -> Metadata {
        known(self.0.metadata())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        if offset >= self.0.metadata().len() {
            return Ok(0);
        }
        // The crate counts blocks from the beginning to seek.
        if self.0.position() != offset {
            if offset > OFFSET_MAX {
                return Err(Error::TooLarge);
            }
            self.0.seek_to(offset).map_err(meant)?;
        }
        let mut read = 0;
        while read < bytes.len() {
            match self.0.read_bytes(&mut bytes[read..]).map_err(meant)? {
                0 => break,
                count => read += count,
            }
        }
        Ok(read)
    }
}

fn plain(path: &[u8]) -> Result<ext4_view::Path<'_>, Error> {
    ext4_view::Path::try_from(path).map_err(|_| Error::Path)
}

fn known(metadata: &ext4_view::Metadata) -> Metadata {
    Metadata {
        kind: kind(metadata.file_type()),
        len: metadata.len(),
        modified: metadata.modified().seconds().try_into().unwrap_or(0),
    }
}

fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}

/// What an error of the crate's means here.
fn meant(error: Ext4Error) -> Error {
    match error {
        Ext4Error::NotFound => Error::NotFound,
        Ext4Error::NotADirectory => Error::NoFolder,
        Ext4Error::IsADirectory | Ext4Error::IsASpecialFile => Error::NoFile,
        Ext4Error::NotAbsolute | Ext4Error::MalformedPath | Ext4Error::PathTooLong => Error::Path,
        Ext4Error::TooManySymlinks => Error::Damaged("symbolic links without an end"),
        Ext4Error::Incompatible(_) => Error::Damaged("it has a feature that is not read here"),
        Ext4Error::Io(error) => match error.downcast_ref::<BlockError>() {
            Some(error) => Error::Disk(*error),
            None => Error::Damaged("it names a place that is not on the disk"),
        },
        _ => Error::Damaged("it contradicts itself"),
    }
}
