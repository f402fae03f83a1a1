//! FAT and ISO 9660, by the crates `hadris-fat` and `hadris-iso`, which share an interface: nodes
//! that whoever found them gives back.

use crate::volume::{Volume, Zeroes, meant};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use device::BlockError;
use device::files::{self, Entry, Error, FileSystem, Kind, Metadata, NAMES_MAX};
use hadris_fs::sync::FileSystem as Driver;
use hadris_fs::{
    DirCursor, FileType, MountOptions, Name, NodeId, OpenMode, RenameMode, Resolve, SetAttr,
};

/// Names that are kept of the folder in which one was looked up last.
#[cfg(feature = "fat")]
const NAMES_KEPT: usize = 1024;

/// Where ISO 9660 has its first descriptor, and what is in it (ECMA-119, 8.1).
#[cfg(feature = "iso")]
const ISO: (u64, [u8; 5]) = (16 * 2048 + 1, *b"CD001");

/// Whether there is an ISO 9660 file system.
#[cfg(feature = "iso")]
pub(crate) fn is_iso(volume: &Volume) -> bool {
    let mut found = [0; 5];
    volume.read(ISO.0, &mut found).is_ok() && found == ISO.1
}

#[cfg(feature = "iso")]
pub(crate) fn iso(volume: Volume) -> Result<Box<dyn FileSystem>, Error> {
    let zeroes = volume.zeroes();
    let mounted = hadris_iso::sync::IsoFs::mount(volume, MountOptions::new());
    let driver = mounted.map_err(|error| meant(error.into_error()))?;
    let driver = driver.with_cache(hadris_iso::CacheOptions::new());
    Ok(Nodes::boxed("iso9660", driver, zeroes, false))
}

/// Where a boot sector ends, and how (FAT specification of Microsoft, 3.1).
#[cfg(feature = "fat")]
const BOOT: (u64, [u8; 2]) = (510, [0x55, 0xaa]);

/// A FAT file system, if there is one: tables of partitions end as a boot sector does. It is
/// written where somebody says what time it is.
#[cfg(feature = "fat")]
pub(crate) fn fat(
    volume: Volume,
    write: Option<crate::Now>,
) -> Result<Option<Box<dyn FileSystem>>, Error> {
    let mut found = [0; 2];
    if volume.read(BOOT.0, &mut found).is_err() || found != BOOT.1 {
        return Ok(None);
    }
    let zeroes = volume.zeroes();
    let write = write.filter(|_| cfg!(feature = "fat-write") && volume.is_writable());
    let options = match write {
        // The crate wants it for good; a disk is mounted once.
        Some(now) => MountOptions::new().with_clock(Box::leak(Box::new(Clock(now)))),
        None => MountOptions::new().read_only(),
    };
    match hadris_fat::sync::FatFs::mount(volume, options) {
        // What nobody unmounted is to be checked before it is written.
        Ok(driver) if write.is_some() && driver.was_dirty() => fat(driver.into_inner(), None),
        Ok(driver) => {
            let cache = hadris_fat::CacheOptions::new().with_directory_entries(NAMES_KEPT);
            let driver = driver.with_cache(cache);
            Ok(Some(Nodes::boxed("vfat", driver, zeroes, write.is_some())))
        }
        Err(error) => match error.into_error() {
            error if error.kind() == hadris_fs::ErrorKind::NotRecognized => Ok(None),
            error => Err(meant(error)),
        },
    }
}

#[cfg(feature = "fat")]
struct Clock(crate::Now);

#[cfg(feature = "fat")]
impl hadris_fs::Clock for Clock {
    fn now(&self) -> hadris_fs::DateTime {
        let seconds = i64::try_from((self.0)()).unwrap_or(0);
        let time = hadris_fs::DateTime::from_unix_seconds(seconds);
        time.unwrap_or(hadris_fs::NoClock::TIME)
    }
}

struct Nodes<D> {
    name: &'static str,
    shared: Rc<Shared<D>>,
    zeroes: Rc<Cell<Zeroes>>,
    is_writable: bool,
}

/// What the file system has in common with its open files.
struct Shared<D> {
    driver: RefCell<D>,
    /// The folder in which something was found last, and its path: others are sought there first.
    last: RefCell<Option<(Vec<u8>, NodeId)>>,
    /// Why a file that was written could not be closed: [`FileSystem::sync`] says it.
    lost: Cell<Option<Error>>,
}

/// A node that was found, and is given back.
struct Node<D: Driver<DeviceError = BlockError>> {
    shared: Rc<Shared<D>>,
    id: NodeId,
    metadata: Metadata,
    open: Option<OpenMode>,
}

impl<D: Driver<DeviceError = BlockError> + 'static> Nodes<D> {
    fn boxed(
        name: &'static str,
        driver: D,
        zeroes: Rc<Cell<Zeroes>>,
        is_writable: bool,
    ) -> Box<dyn FileSystem> {
        let shared = Rc::new(Shared {
            driver: RefCell::new(driver),
            last: RefCell::new(None),
            lost: Cell::new(None),
        });
        Box::new(Self {
            name,
            shared,
            zeroes,
            is_writable,
        })
    }

    fn find(&self, path: &[u8]) -> Result<Node<D>, Error> {
        files::check(path)?;
        // What is said in another way is found in another way.
        if let Some((folder, name)) = plain(path) {
            let folder = self.folder(folder)?;
            let found = self.shared.driver.borrow_mut().lookup(folder, name);
            let found = self.node(found.map_err(meant)?)?;
            if found.metadata.kind != Kind::Link {
                return Ok(found);
            }
        }
        self.node(self.resolve(path)?)
    }

    fn resolve(&self, path: &[u8]) -> Result<NodeId, Error> {
        let mut driver = self.shared.driver.borrow_mut();
        driver.resolve(path, Resolve::Follow).map_err(meant)
    }

    /// The folder in which something is sought.
    fn folder(&self, path: &[u8]) -> Result<NodeId, Error> {
        if let Some((last, id)) = &*self.shared.last.borrow()
            && last == path
        {
            return Ok(*id);
        }
        let id = self.resolve(path)?;
        self.leave();
        *self.shared.last.borrow_mut() = Some((path.to_vec(), id));
        Ok(id)
    }

    /// The last folder is sought anew.
    fn leave(&self) {
        if let Some((_, id)) = self.shared.last.borrow_mut().take() {
            self.shared.driver.borrow_mut().forget(id, 1);
        }
    }

    /// What was found, with what is known of it.
    fn node(&self, id: NodeId) -> Result<Node<D>, Error> {
        let found = known(&mut *self.shared.driver.borrow_mut(), id);
        if found.is_err() {
            self.shared.driver.borrow_mut().forget(id, 1);
        }
        Ok(Node {
            metadata: found?,
            shared: Rc::clone(&self.shared),
            id,
            open: None,
        })
    }

    fn opened(&self, mut node: Node<D>, mode: OpenMode) -> Result<Box<dyn files::File>, Error> {
        if node.metadata.kind != Kind::File {
            return Err(Error::NoFile);
        }
        let opened = self.shared.driver.borrow_mut().open(node.id, mode);
        opened.map_err(meant)?;
        node.open = Some(mode);
        Ok(Box::new(node))
    }

    /// Changes a name in the folder of a path. A folder that grows is zeroed before it has the new
    /// part: what a removed folder left there is not taken for names.
    fn change<T>(
        &self,
        path: &[u8],
        change: impl FnOnce(&mut D, NodeId, &Name) -> hadris_fs::FsResult<T, BlockError>,
    ) -> Result<T, Error> {
        let (folder, name) = files::split(path)?;
        let folder = self.find(folder)?;
        if folder.metadata.kind != Kind::Folder {
            return Err(Error::NoFolder);
        }
        self.zeroes.set(Zeroes::First);
        let name = Name::new(name);
        let changed = change(&mut *self.shared.driver.borrow_mut(), folder.id, name);
        self.zeroes.set(Zeroes::Unordered);
        changed.map_err(meant)
    }
}

/// The folder of a path and the name in it, if that is no other way to say where it is.
fn plain(path: &[u8]) -> Option<(&[u8], &Name)> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, name) = path.split_at(slash + 1);
    let is_plain = !name.is_empty() && name != b".";
    is_plain.then(|| (folder, Name::new(name)))
}

fn known<D: Driver<DeviceError = BlockError>>(
    driver: &mut D,
    id: NodeId,
) -> Result<Metadata, Error> {
    let found = driver.stat(id).map_err(meant)?;
    let modified = found.modified();
    let modified = modified.and_then(|time| time.unix_seconds().try_into().ok());
    Ok(Metadata {
        kind: kind(found.file_type()),
        len: found.len(),
        modified: modified.unwrap_or(0),
    })
}

impl<D: Driver<DeviceError = BlockError> + 'static> FileSystem for Nodes<D> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        Ok(self.find(path)?.metadata)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        self.opened(self.find(path)?, OpenMode::Read)
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let node = self.find(path)?;
        if node.metadata.kind != Kind::Folder {
            return Err(Error::NoFolder);
        }
        let mut from = DirCursor::START;
        for _ in 0..NAMES_MAX {
            // Whoever sees a name may look at it.
            let found = self.shared.driver.borrow_mut().readdir(node.id, from);
            let Some(found) = found.map_err(meant)? else {
                return Ok(());
            };
            from = found.next_cursor();
            let entry = Entry {
                name: found.name().as_bytes().to_vec(),
                kind: kind(found.file_type()),
            };
            if !each(entry) {
                return Ok(());
            }
        }
        Err(Error::Damaged("a folder has no end"))
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        let created = self.change(path, |driver, folder, name| {
            driver.create(folder, name, &SetAttr::new())
        });
        self.opened(self.node(created?)?, OpenMode::Write)
    }

    fn open_to_write(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        self.opened(self.find(path)?, OpenMode::Write)
    }

    fn make_folder(&self, path: &[u8]) -> Result<(), Error> {
        let made = self.change(path, |driver, folder, name| {
            driver.mkdir(folder, name, &SetAttr::new())
        });
        self.shared.driver.borrow_mut().forget(made?, 1);
        Ok(())
    }

    fn remove(&self, path: &[u8]) -> Result<(), Error> {
        let is_folder = self.metadata(path)?.kind == Kind::Folder;
        self.leave();
        self.change(path, |driver, folder, name| match is_folder {
            // What lies there next must not be taken for its names.
            true => driver.rmdir(folder, name).and_then(|()| driver.sync()),
            false => driver.unlink(folder, name),
        })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let is_folder = self.metadata(from)?.kind == Kind::Folder;
        let (folder, name) = files::split(from)?;
        let folder = self.find(folder)?;
        self.leave();
        self.change(to, |driver, into, as_name| {
            let mode = RenameMode::Replace;
            driver.rename(folder.id, Name::new(name), into, as_name, mode)?;
            // It may have replaced a folder: see `remove`.
            match is_folder {
                true => driver.sync(),
                false => Ok(()),
            }
        })
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = self.shared.driver.borrow_mut().sync();
        match self.shared.lost.take() {
            Some(error) => Err(error),
            None => synced.map_err(meant),
        }
    }
}

impl<D: Driver<DeviceError = BlockError>> files::File for Node<D> {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut driver = self.shared.driver.borrow_mut();
        let mut read = 0;
        while read < bytes.len() {
            let at = offset.saturating_add(read as u64);
            match driver
                .read(self.id, at, &mut bytes[read..])
                .map_err(meant)?
            {
                0 => break,
                count => read += count,
            }
        }
        Ok(read)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.change(|driver, id| {
            let mut written = 0;
            while written < bytes.len() {
                let at = offset.checked_add(written as u64);
                let at = at.ok_or(hadris_fs::ErrorKind::FileTooLarge)?;
                match driver.write(id, at, &bytes[written..])? {
                    0 => return Err(hadris_fs::ErrorKind::FileTooLarge.into()),
                    count => written += count,
                }
            }
            Ok(())
        })
    }

    fn set_len(&mut self, len: u64) -> Result<(), Error> {
        self.change(|driver, id| driver.truncate(id, len))
    }
}

impl<D: Driver<DeviceError = BlockError>> Node<D> {
    /// Changes a file that is open for that.
    fn change(
        &mut self,
        change: impl FnOnce(&mut D, NodeId) -> hadris_fs::FsResult<(), BlockError>,
    ) -> Result<(), Error> {
        if self.open != Some(OpenMode::Write) {
            return Err(Error::ReadOnly);
        }
        let mut driver = self.shared.driver.borrow_mut();
        let changed = change(&mut *driver, self.id);
        // Also where it failed, it may be larger.
        if let Ok(metadata) = known(&mut *driver, self.id) {
            self.metadata = metadata;
        }
        changed.map_err(meant)
    }
}

impl<D: Driver<DeviceError = BlockError>> Drop for Node<D> {
    fn drop(&mut self) {
        let mut driver = self.shared.driver.borrow_mut();
        let closed = match self.open {
            Some(_) => driver.close(self.id),
            None => Ok(()),
        };
        if let (Some(OpenMode::Write), Err(error)) = (self.open, closed) {
            self.shared.lost.set(Some(meant(error)));
        }
        driver.forget(self.id, 1);
    }
}

fn kind(kind: FileType) -> Kind {
    match kind {
        FileType::File => Kind::File,
        FileType::Dir => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    }
}
