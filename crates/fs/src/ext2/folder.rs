//! Names in folders (the kernel's ext4 documentation, "Linear Directories"). An index is not kept:
//! the first change says that there is none.

use super::layout::{FORMAT_FILE, FORMAT_FOLDER, FORMAT_LINK, Inode};
use super::{Core, Error, failed};
use alloc::vec;
use alloc::vec::Vec;
use device::files::{Kind, NAMES_MAX};

/// Bytes of an entry before its name.
const HEADER: usize = 8;
pub(super) const NAME_MAX: usize = 255;
/// What a disk writes all of, or nothing.
const SECTOR: usize = 512;

/// A name, and where it lies.
pub(super) struct Found {
    pub inode: u32,
    pub name: Vec<u8>,
    pub kind: u8,
    block: u32,
    at: usize,
    /// Where the entry before it in the block begins.
    before: Option<usize>,
}

/// A name that is come by.
struct Seen<'a> {
    name: &'a [u8],
    inode: u32,
    kind: u8,
    /// As in [`Found`]: block, place in it, and the entry before.
    place: (u32, usize, Option<usize>),
}

impl Seen<'_> {
    fn found(&self) -> Found {
        let (block, at, before) = self.place;
        Found {
            inode: self.inode,
            name: self.name.to_vec(),
            kind: self.kind,
            block,
            at,
            before,
        }
    }
}

/// The header of an entry.
struct Header {
    inode: u32,
    len: usize,
    name_len: usize,
    kind: u8,
}

/// Bytes that an entry with such a name takes at least.
fn least(name_len: usize) -> usize {
    (HEADER + name_len).next_multiple_of(4)
}

/// What a folder says that an inode is.
pub(super) fn kind_of(inode: &Inode) -> u8 {
    match inode.format() {
        FORMAT_FILE => 1,
        FORMAT_FOLDER => 2,
        // Character and block devices, pipes and sockets.
        0x2000 => 3,
        0x6000 => 4,
        0x1000 => 5,
        0xc000 => 6,
        FORMAT_LINK => 7,
        _ => 0,
    }
}

pub(super) fn meant(kind: u8) -> Option<Kind> {
    match kind {
        1 => Some(Kind::File),
        2 => Some(Kind::Folder),
        7 => Some(Kind::Link),
        3..=6 => Some(Kind::Other),
        _ => None,
    }
}

impl Core {
    fn header(&self, block: &[u8], at: usize) -> Result<Header, Error> {
        let bytes = block
            .get(at..)
            .and_then(|rest| rest.first_chunk::<HEADER>());
        let bytes = bytes.ok_or(Error::Damaged("a folder is cut"))?;
        let [i0, i1, i2, i3, l0, l1, name_len, kind] = *bytes;
        let header = Header {
            inode: u32::from_le_bytes([i0, i1, i2, i3]),
            len: u16::from_le_bytes([l0, l1]).into(),
            name_len: match self.geometry.has_kinds {
                true => name_len.into(),
                false => u16::from_le_bytes([name_len, kind]).into(),
            },
            kind: if self.geometry.has_kinds { kind } else { 0 },
        };
        let is_sound = header.len >= least(header.name_len)
            && header.len.is_multiple_of(4)
            && header.name_len <= NAME_MAX
            && at + header.len <= block.len();
        match is_sound {
            true => Ok(header),
            false => Err(Error::Damaged("a folder contradicts itself")),
        }
    }

    fn encoded(&self, inode: u32, len: usize, name: &[u8], kind: u8) -> Vec<u8> {
        let kind = if self.geometry.has_kinds { kind } else { 0 };
        let mut bytes = Vec::with_capacity(HEADER + name.len());
        bytes.extend_from_slice(&inode.to_le_bytes());
        bytes.extend_from_slice(&(len as u16).to_le_bytes());
        bytes.extend_from_slice(&[name.len() as u8, kind]);
        bytes.extend_from_slice(name);
        bytes
    }

    /// The blocks of a folder, in order, each with its place.
    fn folder_block(&self, folder: &Inode, index: u64) -> Result<Option<(u32, Vec<u8>)>, Error> {
        let size = u64::from(self.geometry.block);
        if !folder.is_folder() {
            return Err(Error::NoFolder);
        }
        if index >= folder.size() / size {
            return Ok(None);
        }
        let found = self.find(folder, index)?;
        let found = found.ok_or(Error::Damaged("a folder has a hole"))?;
        let mut bytes = vec![0; size as usize];
        let place = self.geometry.at(found);
        self.volume.read(place, &mut bytes).map_err(failed)?;
        Ok(Some((found, bytes)))
    }

    /// Has `each` see the names of a folder, with `.` and `..`, until it wants no more.
    pub(super) fn names(
        &self,
        folder: &Inode,
        mut each: impl FnMut(Found) -> bool,
    ) -> Result<(), Error> {
        self.scan(folder, |entry| each(entry.found()))
    }

    /// The same, where most of them are not kept.
    fn scan(&self, folder: &Inode, mut each: impl FnMut(&Seen<'_>) -> bool) -> Result<(), Error> {
        let mut count = 0;
        for index in 0.. {
            let Some((block, bytes)) = self.folder_block(folder, index)? else {
                break;
            };
            let (mut at, mut before) = (0, None);
            while at < bytes.len() {
                count += 1;
                if count > NAMES_MAX {
                    return Err(Error::Damaged("a folder has no end"));
                }
                let header = self.header(&bytes, at)?;
                let seen = Seen {
                    name: &bytes[at + HEADER..][..header.name_len],
                    inode: header.inode,
                    kind: header.kind,
                    place: (block, at, before),
                };
                if seen.inode != 0 && !each(&seen) {
                    return Ok(());
                }
                before = Some(at);
                at += header.len;
            }
        }
        Ok(())
    }

    pub(super) fn look_up(&self, folder: &Inode, name: &[u8]) -> Result<Option<Found>, Error> {
        let mut result = None;
        self.scan(folder, |entry| {
            let is_it = entry.name == name;
            if is_it {
                result = Some(entry.found());
            }
            !is_it
        })?;
        Ok(result)
    }

    pub(super) fn is_empty(&self, folder: &Inode) -> Result<bool, Error> {
        let mut is_empty = true;
        self.names(folder, |found| {
            is_empty = found.name == b"." || found.name == b"..";
            is_empty
        })?;
        Ok(is_empty)
    }

    /// Adds a name that is not there yet, and stores the folder.
    pub(super) fn insert(
        &mut self,
        folder: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<(), Error> {
        self.prepare(folder)?;
        let need = least(name.len());
        for index in 0.. {
            let Some((block, bytes)) = self.folder_block(folder, index)? else {
                break;
            };
            let mut at = 0;
            while at < bytes.len() {
                let header = self.header(&bytes, at)?;
                let used = match header.inode {
                    0 => 0,
                    _ => least(header.name_len),
                };
                if header.len - used >= need {
                    let entry = self.encoded(inode, header.len - used, name, kind);
                    self.put(block, at, used, &entry)?;
                    return self.touch(folder);
                }
                at += header.len;
            }
        }
        self.append(folder, name, inode, kind)
    }

    /// Puts an entry into the room behind the first `used` bytes of another.
    fn put(&mut self, block: u32, at: usize, used: usize, entry: &[u8]) -> Result<(), Error> {
        let start = self.geometry.at(block);
        self.write(start + (at + used) as u64, entry)?;
        if used == 0 {
            return Ok(());
        }
        // The shorter length and the entry that it uncovers get there together, or one by one.
        let sectors = [at + 4, at + used, at + used + entry.len() - 1].map(|at| at / SECTOR);
        if sectors != [sectors[0]; 3] {
            self.order()?;
        }
        self.write(start + at as u64 + 4, &(used as u16).to_le_bytes())
    }

    /// Adds a block with one entry, which the disk has before the folder does.
    fn append(
        &mut self,
        folder: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<(), Error> {
        let size = u64::from(self.geometry.block);
        let index = folder.size() / size;
        // The block is found by its pointer, but not before the folder's size says so.
        let block = match self.make(folder, index) {
            Ok(block) => block,
            Err(error) => {
                // It may have a block of pointers more.
                self.store(folder)?;
                return Err(error);
            }
        };
        let entry = self.encoded(inode, size as usize, name, kind);
        self.write(self.geometry.at(block), &entry)?;
        self.order()?;
        folder.set_size((index + 1) * size);
        self.touch(folder)
    }

    pub(super) fn touch(&mut self, folder: &mut Inode) -> Result<(), Error> {
        folder.set_modified(self.now());
        self.store(folder)
    }

    /// From now on, the folder has no index.
    fn prepare(&mut self, folder: &mut Inode) -> Result<(), Error> {
        if folder.drop_index() {
            self.store(folder)?;
            self.order()?;
        }
        Ok(())
    }

    /// Takes a name away, and stores the folder.
    pub(super) fn take_away(&mut self, folder: &mut Inode, found: &Found) -> Result<(), Error> {
        self.prepare(folder)?;
        let start = self.geometry.at(found.block);
        match found.before {
            // The one before it has its room.
            Some(before) => {
                let last: [u8; 2] = self.read(start + found.at as u64 + 4)?;
                let end = found.at + usize::from(u16::from_le_bytes(last));
                let len = (end - before) as u16;
                self.write(start + before as u64 + 4, &len.to_le_bytes())?;
            }
            None => self.write(start + found.at as u64, &[0; 4])?,
        }
        self.touch(folder)
    }

    /// Has a name lead to something else, and stores the folder.
    pub(super) fn turn(
        &mut self,
        folder: &mut Inode,
        found: &Found,
        to: &Inode,
    ) -> Result<(), Error> {
        self.prepare(folder)?;
        let at = self.geometry.at(found.block) + found.at as u64;
        if self.geometry.has_kinds {
            self.write(at + 7, &[kind_of(to)])?;
        }
        self.write(at, &to.number.to_le_bytes())?;
        self.touch(folder)
    }

    /// Fills the first block of a new folder.
    pub(super) fn begin_folder(&mut self, folder: &mut Inode, parent: u32) -> Result<(), Error> {
        let block = self.make(folder, 0)?;
        let size = self.geometry.block as usize;
        let kind = kind_of(folder);
        let itself = self.encoded(folder.number, least(1), b".", kind);
        let outer = self.encoded(parent, size - least(1), b"..", kind);
        self.write(self.geometry.at(block), &itself)?;
        self.write(self.geometry.at(block) + least(1) as u64, &outer)?;
        folder.set_size(size as u64);
        self.store_new(folder)?;
        self.order()
    }
}
