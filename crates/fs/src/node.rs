//! FAT and ISO 9660, by the crates `hadris-fat` and `hadris-iso`, which share an interface: nodes
//! that whoever found them gives back.

use crate::volume::{Volume, meant};
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use device::BlockError;
use device::files::{self, Entry, Error, FileSystem, Kind, Metadata, NAMES_MAX};
use hadris_fs::sync::FileSystem as Driver;
use hadris_fs::{DirCursor, FileType, MountOptions, NodeId, OpenMode, Resolve};

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
    let mounted = hadris_iso::sync::IsoFs::mount(volume, MountOptions::new());
    let driver = mounted.map_err(|error| meant(error.into_error()))?;
    Ok(Nodes::boxed("iso9660", driver))
}

/// Where a boot sector ends, and how (FAT specification of Microsoft, 3.1).
#[cfg(feature = "fat")]
const BOOT: (u64, [u8; 2]) = (510, [0x55, 0xaa]);

/// A FAT file system, if there is one: tables of partitions end as a boot sector does.
#[cfg(feature = "fat")]
pub(crate) fn fat(volume: Volume) -> Result<Option<Box<dyn FileSystem>>, Error> {
    let mut found = [0; 2];
    if volume.read(BOOT.0, &mut found).is_err() || found != BOOT.1 {
        return Ok(None);
    }
    let options = MountOptions::new().read_only();
    match hadris_fat::sync::FatFs::mount(volume, options) {
        Ok(driver) => Ok(Some(Nodes::boxed("vfat", driver))),
        Err(error) => match error.into_error() {
            error if error.kind() == hadris_fs::ErrorKind::NotRecognized => Ok(None),
            error => Err(meant(error)),
        },
    }
}

struct Nodes<D> {
    name: &'static str,
    driver: Rc<RefCell<D>>,
}

/// A node that was found, and is given back.
struct Node<D: Driver<DeviceError = BlockError>> {
    driver: Rc<RefCell<D>>,
    id: NodeId,
    metadata: Metadata,
    is_open: bool,
}

impl<D: Driver<DeviceError = BlockError> + 'static> Nodes<D> {
    fn boxed(name: &'static str, driver: D) -> Box<dyn FileSystem> {
        let driver = Rc::new(RefCell::new(driver));
        Box::new(Self { name, driver })
    }

    fn find(&self, path: &[u8]) -> Result<Node<D>, Error> {
        files::check(path)?;
        let mut driver = self.driver.borrow_mut();
        let id = driver.resolve(path, Resolve::Follow).map_err(meant)?;
        let found = driver.stat(id);
        let metadata = found.map(|found| Metadata {
            kind: kind(found.file_type()),
            len: found.len(),
            modified: found
                .modified()
                .and_then(|time| time.unix_seconds().try_into().ok())
                .unwrap_or(0),
        });
        if metadata.is_err() {
            driver.forget(id, 1);
        }
        Ok(Node {
            metadata: metadata.map_err(meant)?,
            driver: Rc::clone(&self.driver),
            id,
            is_open: false,
        })
    }
}

impl<D: Driver<DeviceError = BlockError> + 'static> FileSystem for Nodes<D> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        Ok(self.find(path)?.metadata)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        let mut node = self.find(path)?;
        if node.metadata.kind != Kind::File {
            return Err(Error::NoFile);
        }
        let opened = self.driver.borrow_mut().open(node.id, OpenMode::Read);
        opened.map_err(meant)?;
        node.is_open = true;
        Ok(Box::new(node))
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let node = self.find(path)?;
        if node.metadata.kind != Kind::Folder {
            return Err(Error::NoFolder);
        }
        let mut from = DirCursor::START;
        for _ in 0..NAMES_MAX {
            // Whoever sees a name may look at it.
            let found = self.driver.borrow_mut().readdir(node.id, from);
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
}

impl<D: Driver<DeviceError = BlockError>> files::File for Node<D> {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut driver = self.driver.borrow_mut();
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
}

impl<D: Driver<DeviceError = BlockError>> Drop for Node<D> {
    fn drop(&mut self) {
        let mut driver = self.driver.borrow_mut();
        if self.is_open {
            // Nothing was written that could be lost.
            let _ = driver.close(self.id);
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
