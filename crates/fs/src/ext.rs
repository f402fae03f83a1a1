//! ext2, ext3 and ext4, by the crate `ext4-view`: a journal that was not replayed is read with the
//! rest, and changes nothing on the disk.

use crate::volume::Volume;
use alloc::boxed::Box;
use device::BlockError;
use device::files::{self, Entry, Error, FileSystem, Kind, Metadata, NAMES_MAX};
use ext4_view::{Ext4, Ext4Error, FileType};

/// Where the magic number lies, and what it is (the kernel's ext4 documentation, "Super Block").
const MAGIC: (u64, [u8; 2]) = (1024 + 0x38, [0x53, 0xef]);

/// Whether there is such a file system.
pub(crate) fn is_there(volume: &Volume) -> bool {
    let mut found = [0; 2];
    volume.read(MAGIC.0, &mut found).is_ok() && found == MAGIC.1
}

pub(crate) struct Ext(Ext4);

impl Ext {
    pub(crate) fn mount(volume: Volume) -> Result<Self, Error> {
        Ext4::load(Box::new(volume)).map(Self).map_err(meant)
    }
}

impl FileSystem for Ext {
    fn name(&self) -> &'static str {
        "ext"
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        let found = self.0.metadata(plain(path)?).map_err(meant)?;
        Ok(known(&found))
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        let file = self.0.open(plain(path)?).map_err(meant)?;
        match file.metadata().file_type() {
            FileType::Regular => Ok(Box::new(File(file))),
            _ => Err(Error::NoFile),
        }
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let entries = self.0.read_dir(plain(path)?).map_err(meant)?;
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
    files::check(path)?;
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
