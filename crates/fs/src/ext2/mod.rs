//! ext2, read and written, and ext3 and ext4, read. What is there was written by mke2fs. Of what
//! came later, extents and longer descriptors are known; checksums and indexes are not looked at,
//! and a journal that has something to say is another's (`crate::ext`).
//!
//! Nobody keeps a journal here. What a checker must be able to rely on is ordered instead, by
//! flushes where that is needed, which is seldom:
//!
//! - The disk says that it is not clean before it is changed, and that it is once all is there.
//! - A block of pointers or names is on the disk before something leads there.
//! - A freed block is not used before the disk knows that nobody has it.
//! - A renamed thing has its new name before it loses the old one.

mod extents;
mod folder;
mod layout;
mod map;
mod room;
mod tree;

use crate::Now;
use crate::volume::Volume;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::RefCell;
use device::BlockError;
use device::files::{self, Entry, Error, FileSystem, Kind, Metadata};
use layout::{FORMAT_FILE, FORMAT_FOLDER, FORMAT_LINK, Geometry, Inode};

/// An ext2 file system that is to be written, if there is one that can be.
pub(crate) fn mount(volume: &Volume, now: Now) -> Option<Box<dyn FileSystem>> {
    if !volume.is_writable() {
        return None;
    }
    let geometry = Geometry::read(volume).filter(Geometry::is_written)?;
    Some(Ext2::boxed("ext2", volume, geometry, Some(now)))
}

/// An ext2, ext3 or ext4 file system that is to be read, if it is one that can be: whose journal
/// has nothing that is not in its place.
#[cfg(feature = "ext")]
pub(crate) fn mount_to_read(volume: &Volume) -> Option<Box<dyn FileSystem>> {
    let geometry = Geometry::read(volume)?;
    Some(Ext2::boxed("ext", volume, geometry, None))
}

/// What a file system has in common with its open files.
struct Core {
    volume: Volume,
    geometry: Geometry,
    /// Who says what time it is, where it is written.
    now: Option<Now>,
    /// Whether the disk says that it is clean.
    is_clean: bool,
    /// Whether something contradicted itself: it stays unclean, and a checker will see it.
    is_damaged: bool,
    /// Blocks that nobody has, and that the disk may not know to be free.
    freed: Vec<u32>,
    /// The block that is taken next, if it is free.
    near: u32,
    /// Blocks that a removal came by.
    visited: u32,
    /// Inodes that are open, and how often.
    open: BTreeMap<u32, usize>,
    /// The folder in which something was found last: its path, and its inode.
    last: Option<(Vec<u8>, u32)>,
}

impl Core {
    fn now(&self) -> u32 {
        let now = self.now.map_or(0, |now| now());
        now.try_into().unwrap_or(u32::MAX)
    }
}

fn failed(error: BlockError) -> Error {
    match error {
        BlockError::ReadOnly => Error::ReadOnly,
        error => Error::Disk(error),
    }
}

fn kind(inode: &Inode) -> Kind {
    match inode.format() {
        FORMAT_FILE => Kind::File,
        FORMAT_FOLDER => Kind::Folder,
        FORMAT_LINK => Kind::Link,
        _ => Kind::Other,
    }
}

fn known(inode: &Inode) -> Metadata {
    Metadata {
        kind: kind(inode),
        len: inode.size(),
        modified: inode.modified().into(),
    }
}

struct Ext2 {
    name: &'static str,
    core: Rc<RefCell<Core>>,
    is_writable: bool,
}

/// Does something with what is shared, and remembers that the disk contradicts itself, or that
/// something may have been done by half: it is not said to be clean any more.
fn with<T>(
    shared: &RefCell<Core>,
    act: impl FnOnce(&mut Core) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut core = shared.borrow_mut();
    let done = act(&mut core);
    if matches!(done, Err(Error::Damaged(_) | Error::Disk(_))) {
        core.is_damaged = true;
    }
    done
}

impl Ext2 {
    fn boxed(
        name: &'static str,
        volume: &Volume,
        geometry: Geometry,
        now: Option<Now>,
    ) -> Box<dyn FileSystem> {
        let core = Core {
            geometry,
            volume: volume.clone(),
            now,
            is_clean: true,
            is_damaged: false,
            freed: Vec::new(),
            near: 0,
            visited: 0,
            open: BTreeMap::new(),
            last: None,
        };
        Box::new(Self {
            name,
            core: Rc::new(RefCell::new(core)),
            is_writable: now.is_some(),
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        with(&self.core, act)
    }

    /// Changes it, if it is one that is written.
    fn change<T>(&self, act: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        match self.is_writable {
            true => with(&self.core, act),
            false => Err(Error::ReadOnly),
        }
    }

    fn handle(&self, inode: &Inode, is_writable: bool) -> Result<Box<dyn files::File>, Error> {
        if kind(inode) != Kind::File {
            return Err(Error::NoFile);
        }
        if is_writable && (inode.is_fixed() || !self.is_writable) {
            return Err(Error::ReadOnly);
        }
        self.core.borrow().check_file(inode)?;
        *self.core.borrow_mut().open.entry(inode.number).or_default() += 1;
        Ok(Box::new(Handle {
            core: Rc::clone(&self.core),
            number: inode.number,
            is_writable,
            metadata: known(inode),
        }))
    }

    fn found(&self, path: &[u8]) -> Result<Inode, Error> {
        self.with(|core| core.resolve(path))
    }
}

impl FileSystem for Ext2 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        Ok(known(&self.found(path)?))
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        self.handle(&self.found(path)?, false)
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let entries = self.with(|core| core.entries(path))?;
        // Whoever sees a name may look at it.
        let _ = entries.into_iter().all(each);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        self.handle(&self.change(|core| core.create(path))?, true)
    }

    fn open_to_write(&self, path: &[u8]) -> Result<Box<dyn files::File>, Error> {
        self.handle(&self.found(path)?, true)
    }

    fn make_folder(&self, path: &[u8]) -> Result<(), Error> {
        self.change(|core| core.make_folder(path))
    }

    fn remove(&self, path: &[u8]) -> Result<(), Error> {
        self.change(|core| core.remove(path))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.change(|core| core.rename(from, to))
    }

    fn sync(&self) -> Result<(), Error> {
        match self.is_writable {
            true => self.with(Core::sync),
            false => Ok(()),
        }
    }
}

struct Handle {
    core: Rc<RefCell<Core>>,
    number: u32,
    is_writable: bool,
    metadata: Metadata,
}

impl Handle {
    fn change(
        &mut self,
        change: impl FnOnce(&mut Core, &mut Inode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.is_writable {
            return Err(Error::ReadOnly);
        }
        with(&self.core, |core| {
            let mut inode = core.inode(self.number)?;
            let changed = change(core, &mut inode);
            self.metadata = known(&inode);
            changed
        })
    }
}

impl files::File for Handle {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        with(&self.core, |core| {
            let inode = core.inode(self.number)?;
            core.read_file(&inode, offset, bytes)
        })
    }

    fn share(&mut self, offset: u64, most: usize) -> Result<Bytes, Error> {
        with(&self.core, |core| {
            let inode = core.inode(self.number)?;
            core.share_file(&inode, offset, most)
        })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.change(|core, inode| core.write_file(inode, offset, bytes))
    }

    fn set_len(&mut self, len: u64) -> Result<(), Error> {
        self.change(|core, inode| core.set_file_len(inode, len))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let open = &mut self.core.borrow_mut().open;
        match open.get_mut(&self.number) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.number)),
        }
    }
}
