//! ext2, ext3 and ext4, by the crate `ext4-view`: a journal that was not replayed is read with the
//! rest, and changes nothing on the disk.

use crate::volume::Volume;
use alloc::boxed::Box;
use alloc::vec::Vec;
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

fn super_block(volume: &Volume) -> Option<[u8; FIELDS_END]> {
    let mut bytes = [0; FIELDS_END];
    volume.read(SUPER_BLOCK, &mut bytes).ok()?;
    (bytes[MAGIC..MAGIC + 2] == MAGIC_NUMBER).then_some(bytes)
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
    let word = |at: usize| {
        let word = bytes[at..].first_chunk::<4>();
        u32::from_le_bytes(*word.unwrap_or(&[0; 4]))
    };
    // The crate believes the upper half whether the file system has one or not.
    let blocks = u64::from(word(BLOCKS_HIGH)) << 32 | u64::from(word(BLOCKS_LOW));
    let (log, group) = (word(LOG_BLOCK_SIZE), u64::from(word(BLOCKS_PER_GROUP)));
    log <= LOG_BLOCK_SIZE_MAX
        && group > 0
        && blocks.div_ceil(group) <= GROUPS_MAX
        && blocks <= volume.size() >> (10 + log)
}

pub(crate) struct Ext(Ext4);

impl Ext {
    pub(crate) fn mount(volume: Volume) -> Result<Self, Error> {
        match has_sound_sizes(&volume) {
            true => Ext4::load(Box::new(volume)).map(Self).map_err(meant),
            false => Err(Error::Damaged("its sizes are not those of the disk")),
        }
    }

    /// The path without symbolic links. The crate would read a link whatever size it says to have.
    fn resolve(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        files::check(path)?;
        let (mut found, mut links) = (Vec::new(), 0);
        let mut rest: Vec<Vec<u8>> = names(path).rev().collect();
        while let Some(name) = rest.pop() {
            if name == b".." {
                found.pop();
                continue;
            }
            found.push(name);
            let here = joined(&found);
            let metadata = self.0.symlink_metadata(plain(&here)?).map_err(meant)?;
            if !metadata.is_symlink() {
                continue;
            }
            links += 1;
            if links > LINKS_MAX || metadata.len() > PATH_MAX as u64 {
                return Err(Error::Damaged("symbolic links without an end"));
            }
            let target = self.0.read_link(plain(&here)?).map_err(meant)?;
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
        let path = self.resolve(path)?;
        let found = self.0.metadata(plain(&path)?).map_err(meant)?;
        Ok(known(&found))
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        let path = self.resolve(path)?;
        let file = self.0.open(plain(&path)?).map_err(meant)?;
        match file.metadata().file_type() {
            FileType::Regular => Ok(Box::new(File(file))),
            _ => Err(Error::NoFile),
        }
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let path = self.resolve(path)?;
        let entries = self.0.read_dir(plain(&path)?).map_err(meant)?;
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
        self.0.seek_to(offset).map_err(meant)?;
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
