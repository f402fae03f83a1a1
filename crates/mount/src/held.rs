//! What the kernel asks for, done by a file system. Its paths are those that the kernel's numbers
//! stand for; what is open and loses its name gets another one until it is closed, as nobody
//! removes an open file.

use crate::names::{Names, exact, lower};
use device::BlockError;
use device::files::{Entry, Error, File, FileSystem, Kind, Metadata, NAMES_MAX, PATH_MAX};
use fuser::{Errno, FileAttr, FileHandle, FileType, INodeNo, TimeOrNow};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest name, as Linux has it (limits.h, `NAME_MAX`).
const NAME_MAX: usize = 255;
/// What begins the names of files that go once they are closed.
const REMOVED: &str = ".outboard-removed-";
/// Who may do what: everybody reads, the owner writes. No file is a program.
const MODE_FILE: u16 = 0o644;
const MODE_FOLDER: u16 = 0o755;
/// Bytes that are best moved at once.
const BEST: u32 = 4096;

/// An answer, or why there is none.
pub(crate) type Answer<T> = Result<T, Errno>;

/// What is asked to be changed of something, beside its size.
pub(crate) struct Wish {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<TimeOrNow>,
}

/// A name of a folder, as the kernel is told of it.
pub(crate) type Listed = (INodeNo, FileType, Vec<u8>);

pub(crate) struct Held {
    files: Box<dyn FileSystem>,
    names: Names,
    /// Folders that are open, with what was in them then.
    lists: HashMap<FileHandle, Vec<Listed>>,
    next: u64,
    owner: (u32, u32),
    /// Whether something was changed since the last sync.
    pub(crate) is_changed: bool,
}

fn errno(error: Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::NoFile => Errno::EISDIR,
        Error::NoFolder => Errno::ENOTDIR,
        Error::Path => Errno::EINVAL,
        Error::Exists => Errno::EEXIST,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::Busy => Errno::EBUSY,
        Error::NoSpace => Errno::ENOSPC,
        Error::TooLarge => Errno::EFBIG,
        Error::ReadOnly => Errno::EROFS,
        // As Linux says it of its own.
        Error::Damaged(_) => Errno::from_i32(rustix::io::Errno::UCLEAN.raw_os_error()),
        Error::Disk(BlockError::Host(errno)) => Errno::from_i32(errno),
        Error::Disk(_) => Errno::EIO,
    }
}

fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Folder => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::Other => FileType::Socket,
    }
}

impl Held {
    pub(crate) fn new(files: Box<dyn FileSystem>, owner: (u32, u32)) -> Self {
        let fold = match files.name() {
            "vfat" => lower,
            _ => exact,
        };
        Self {
            names: Names::new(fold),
            files,
            lists: HashMap::new(),
            next: 1,
            owner,
            is_changed: false,
        }
    }

    fn path(&self, number: INodeNo) -> Answer<Vec<u8>> {
        self.names.path(number).ok_or(Errno::ESTALE)
    }

    fn path_in(&self, folder: INodeNo, name: &[u8]) -> Answer<Vec<u8>> {
        match name.len() {
            1..=NAME_MAX => {}
            _ => return Err(Errno::ENAMETOOLONG),
        }
        let path = self.names.path_in(folder, name).ok_or(Errno::ESTALE)?;
        match path.len() <= PATH_MAX {
            true => Ok(path),
            false => Err(Errno::ENAMETOOLONG),
        }
    }

    fn attributes_of(&self, number: INodeNo, found: &Metadata) -> FileAttr {
        let time = UNIX_EPOCH.checked_add(Duration::from_secs(found.modified));
        let time = time.unwrap_or(UNIX_EPOCH);
        FileAttr {
            ino: number,
            size: found.len,
            blocks: found.len.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: kind(found.kind),
            perm: match found.kind {
                Kind::Folder => MODE_FOLDER,
                _ => MODE_FILE,
            },
            // Nobody counts the folders of a folder.
            nlink: u32::from(!self.names.is_removed(number)),
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BEST,
            flags: 0,
        }
    }

    /// What a file that is open knows of itself.
    fn open_metadata(&mut self, number: INodeNo) -> Option<Metadata> {
        let handle = self.names.get(number)?.handle.as_ref()?;
        Some(handle.metadata())
    }

    pub(crate) fn attributes(&mut self, number: INodeNo) -> Answer<FileAttr> {
        let found = match self.open_metadata(number) {
            Some(found) => found,
            None => self.files.metadata(&self.path(number)?).map_err(errno)?,
        };
        Ok(self.attributes_of(number, &found))
    }

    pub(crate) fn look_up(&mut self, folder: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        let path = self.path_in(folder, name)?;
        if self.names.has_removed(folder, name) {
            return Err(Errno::ENOENT);
        }
        let found = self.files.metadata(&path).map_err(errno)?;
        let number = self.names.tell(folder, name);
        let found = self.open_metadata(number).unwrap_or(found);
        Ok(self.attributes_of(number, &found))
    }

    pub(crate) fn forget(&mut self, number: INodeNo, times: u64) {
        self.names.forget(number, times);
    }

    pub(crate) fn change(&mut self, number: INodeNo, wish: &Wish) -> Answer<FileAttr> {
        let now = self.attributes(number)?;
        let is_other = |mode: u32| mode & 0o7777 != u32::from(now.perm);
        let asks_for_owner = wish.user.is_some_and(|user| user != now.uid)
            || wish.group.is_some_and(|group| group != now.gid);
        // There are neither owners nor modes; some may be asked for that it has.
        if asks_for_owner || wish.mode.is_some_and(is_other) {
            return Err(Errno::EPERM);
        }
        match wish.modified {
            Some(TimeOrNow::SpecificTime(time)) if time != now.mtime => {
                return Err(Errno::EOPNOTSUPP);
            }
            _ => {}
        }
        let touched = matches!(wish.modified, Some(TimeOrNow::Now)).then_some(now.size);
        let is_file = now.kind == FileType::RegularFile;
        if let Some(size) = wish.size.or(touched.filter(|_| is_file)) {
            self.open(number, true)?;
            let cut = self.write_with(number, |file| file.set_len(size));
            self.close(number);
            cut?;
        }
        self.attributes(number)
    }

    fn made(&mut self, folder: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        self.is_changed = true;
        self.look_up(folder, name)
    }

    /// Makes an empty file, which stays closed.
    pub(crate) fn make_file(&mut self, folder: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        let path = self.path_in(folder, name)?;
        self.files.create(&path).map(drop).map_err(errno)?;
        self.made(folder, name)
    }

    /// Makes an empty file, and opens it.
    pub(crate) fn create(&mut self, folder: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        let made = self.make_file(folder, name)?;
        self.open(made.ino, true)?;
        Ok(made)
    }

    pub(crate) fn make_folder(&mut self, folder: INodeNo, name: &[u8]) -> Answer<FileAttr> {
        let path = self.path_in(folder, name)?;
        self.files.make_folder(&path).map_err(errno)?;
        self.made(folder, name)
    }

    /// What is open under a name gets another one, and goes once it is closed; its number, if there
    /// is such a thing.
    fn set_aside(&mut self, folder: INodeNo, name: &[u8]) -> Answer<Option<INodeNo>> {
        let number = self.names.number(folder, name);
        let Some(number) = number.filter(|number| self.is_open(*number)) else {
            return Ok(None);
        };
        let aside = format!("{REMOVED}{}", number.0);
        self.name(number, folder, aside.as_bytes(), true)?;
        Ok(Some(number))
    }

    /// Gives an open file another name, under which it goes or stays once it is closed.
    fn name(
        &mut self,
        number: INodeNo,
        folder: INodeNo,
        name: &[u8],
        is_removed: bool,
    ) -> Answer<()> {
        let (from, to) = (self.path(number)?, self.path_in(folder, name)?);
        self.files.rename(&from, &to).map_err(errno)?;
        self.names.rename(number, folder, name);
        if let Some(node) = self.names.get(number) {
            node.is_removed = is_removed;
        }
        Ok(())
    }

    fn is_open(&mut self, number: INodeNo) -> bool {
        self.names.get(number).is_some_and(|node| node.opens > 0)
    }

    pub(crate) fn remove(&mut self, folder: INodeNo, name: &[u8]) -> Answer<()> {
        let path = self.path_in(folder, name)?;
        if self.set_aside(folder, name)?.is_none() {
            self.files.remove(&path).map_err(errno)?;
            if let Some(number) = self.names.number(folder, name) {
                self.names.lose(number);
            }
        }
        self.is_changed = true;
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (folder, name): (INodeNo, &[u8]),
        (into, as_name): (INodeNo, &[u8]),
        replaces: bool,
    ) -> Answer<()> {
        let (from, to) = (self.path_in(folder, name)?, self.path_in(into, as_name)?);
        let moved = self.names.number(folder, name);
        if !replaces && self.files.metadata(&to).is_ok() {
            return Err(Errno::EEXIST);
        }
        let is_itself = moved.is_some() && moved == self.names.number(into, as_name);
        let aside = match is_itself {
            true => None,
            false => self.set_aside(into, as_name)?,
        };
        if let Err(error) = self.files.rename(&from, &to) {
            if let Some(number) = aside {
                self.name(number, into, as_name, false)?;
            }
            return Err(errno(error));
        }
        if let Some(moved) = moved {
            self.names.rename(moved, into, as_name);
        }
        self.is_changed = true;
        Ok(())
    }

    /// Opens a file once more.
    pub(crate) fn open(&mut self, number: INodeNo, writes: bool) -> Answer<()> {
        let path = self.path(number)?;
        let writes = writes && self.files.is_writable();
        let node = self.names.get(number).ok_or(Errno::ESTALE)?;
        if node.handle.is_none() || writes && !node.writes {
            // Some let nobody else write who reads.
            node.handle = None;
            let opened = match writes {
                true => self.files.open_to_write(&path),
                false => self.files.open(&path),
            };
            let (opened, writes) = match opened {
                Err(_) if writes => (self.files.open(&path).map_err(errno)?, false),
                opened => (opened.map_err(errno)?, writes),
            };
            node.handle = Some(opened);
            node.writes = writes;
        }
        node.opens += 1;
        Ok(())
    }

    /// Closes it once.
    pub(crate) fn close(&mut self, number: INodeNo) {
        let path = self.names.path(number);
        let Some(node) = self.names.get(number) else {
            return;
        };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return;
        }
        node.handle = None;
        if let (true, Some(path)) = (node.is_removed, path) {
            // Where that fails, it is found under the name that it has now.
            let _ = self.files.remove(&path);
            self.names.lose(number);
        }
        self.names.forget(number, 0);
    }

    pub(crate) fn read(&mut self, number: INodeNo, offset: u64, size: u32) -> Answer<Vec<u8>> {
        let node = self.names.get(number);
        let handle = node.and_then(|node| node.handle.as_mut());
        let mut bytes = vec![0; size as usize];
        let read = handle.ok_or(Errno::EBADF)?.read(offset, &mut bytes);
        bytes.truncate(read.map_err(errno)?);
        Ok(bytes)
    }

    pub(crate) fn write(&mut self, number: INodeNo, offset: u64, bytes: &[u8]) -> Answer<()> {
        self.write_with(number, |file| file.write(offset, bytes))
    }

    fn write_with(
        &mut self,
        number: INodeNo,
        write: impl FnOnce(&mut dyn File) -> Result<(), Error>,
    ) -> Answer<()> {
        let node = self.names.get(number);
        let handle = node.and_then(|node| node.handle.as_mut());
        self.is_changed = true;
        write(&mut **handle.ok_or(Errno::EBADF)?).map_err(errno)
    }

    pub(crate) fn sync(&mut self) -> Answer<()> {
        self.is_changed = false;
        self.files.sync().map_err(errno)
    }

    /// Opens a folder. What is in it is what was there then.
    pub(crate) fn open_folder(&mut self, number: INodeNo) -> Answer<FileHandle> {
        let path = self.path(number)?;
        let mut found: Vec<Entry> = Vec::new();
        let listed = self.files.list(&path, &mut |entry| {
            found.push(entry);
            found.len() < NAMES_MAX
        });
        listed.map_err(errno)?;
        let itself = [&b"."[..], b".."].map(|name| (number, FileType::Directory, name.to_vec()));
        let mut list = Vec::from(itself);
        for entry in found {
            if self.names.has_removed(number, &entry.name) {
                continue;
            }
            let known = self.names.number(number, &entry.name);
            // Who follows a link finds no link.
            let found = match entry.kind {
                Kind::Link => {
                    let path = self.path_in(number, &entry.name)?;
                    let led = self.files.metadata(&path);
                    led.map_or(Kind::Link, |found| found.kind)
                }
                kind => kind,
            };
            // What the kernel was not told of has no number yet.
            let number = known.unwrap_or(INodeNo(u64::MAX));
            list.push((number, kind(found), entry.name));
        }
        let handle = FileHandle(self.next);
        self.next += 1;
        self.lists.insert(handle, list);
        Ok(handle)
    }

    pub(crate) fn listed(&self, handle: FileHandle) -> Answer<&[Listed]> {
        self.lists
            .get(&handle)
            .map(Vec::as_slice)
            .ok_or(Errno::EBADF)
    }

    pub(crate) fn close_folder(&mut self, handle: FileHandle) {
        self.lists.remove(&handle);
    }
}

/// The time now, as files have it.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
