//! What paths lead to, and what is done to it.

use super::folder::{Found, NAME_MAX, kind_of, meant};
use super::layout::{FORMAT_FILE, FORMAT_FOLDER, FORMAT_LINK, Inode, ROOT};
use super::{Core, Error, kind};
use alloc::vec;
use alloc::vec::Vec;
use device::files::{self, Entry, PATH_MAX};

/// Symbolic links that a path may lead through, as Linux has it.
const LINKS_MAX: usize = 40;
/// Names of one inode at most, as Linux has it.
const NAMES_OF_ONE_MAX: u16 = 32000;
/// Folders that lie in each other at most: a path has no more.
const DEPTH_MAX: usize = PATH_MAX / 2;

/// Who may do what to a new file and a new folder: everybody reads, the owner (root) writes.
const MODE_FILE: u16 = FORMAT_FILE | 0o644;
const MODE_FOLDER: u16 = FORMAT_FOLDER | 0o755;

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(<[u8]>::to_vec)
}

impl Core {
    /// What a path leads to. Symbolic links are followed.
    pub(super) fn resolve(&mut self, path: &[u8]) -> Result<Inode, Error> {
        files::check(path)?;
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
        // What is said in another way is found in another way.
        if name.is_empty() || name == b"." {
            return self.follow(path);
        }
        let number = match &self.last {
            Some((last, number)) if last == folder => *number,
            _ => {
                let found = self.follow(folder)?.number;
                self.last = Some((folder.to_vec(), found));
                found
            }
        };
        let found = self.look_up(&self.inode(number)?, name)?;
        let inode = self.inode(found.ok_or(Error::NotFound)?.inode)?;
        match inode.format() {
            FORMAT_LINK => self.follow(path),
            _ => Ok(inode),
        }
    }

    /// The same, from the root on.
    fn follow(&self, path: &[u8]) -> Result<Inode, Error> {
        // The folders that led here: a link may lead upwards.
        let mut way = vec![self.inode(ROOT)?];
        let mut rest: Vec<Vec<u8>> = names(path).rev().collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let here = way.last().ok_or(Error::Path)?;
            if name == b".." {
                way.truncate((way.len() - 1).max(1));
                continue;
            }
            let found = self.look_up(here, &name)?.ok_or(Error::NotFound)?;
            let inode = self.inode(found.inode)?;
            if inode.format() != FORMAT_LINK {
                way.push(inode);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::Damaged("symbolic links without an end"));
            }
            let target = self.target(&inode)?;
            if target.starts_with(b"/") {
                way.truncate(1);
            }
            rest.extend(names(&target).rev());
        }
        way.pop().ok_or(Error::Path)
    }

    fn target(&self, link: &Inode) -> Result<Vec<u8>, Error> {
        let len = link.size() as usize;
        if self.is_inline(link) {
            let target = link.pointers().get(..len).map(<[u8]>::to_vec);
            return target.ok_or(Error::Damaged("a symbolic link is too long"));
        }
        if len > PATH_MAX {
            return Err(Error::Damaged("a symbolic link is too long"));
        }
        let mut target = vec![0; len];
        self.read_file(link, 0, &mut target)?;
        Ok(target)
    }

    pub(super) fn entries(&mut self, path: &[u8]) -> Result<Vec<Entry>, Error> {
        let folder = self.resolve(path)?;
        let mut found = Vec::new();
        self.names(&folder, |entry| {
            if entry.name != b"." && entry.name != b".." {
                found.push(entry);
            }
            true
        })?;
        found
            .into_iter()
            .map(
                |Found {
                     inode,
                     name,
                     kind: said,
                     ..
                 }| {
                    let kind = match meant(said) {
                        Some(kind) => kind,
                        None => kind(&self.inode(inode)?),
                    };
                    Ok(Entry { name, kind })
                },
            )
            .collect()
    }

    /// The folder of a path that is to be changed, and the name in it.
    fn place<'a>(&mut self, path: &'a [u8]) -> Result<(Inode, &'a [u8]), Error> {
        let (folder, name) = files::split(path)?;
        let folder = self.resolve(folder)?;
        if !folder.is_folder() {
            return Err(Error::NoFolder);
        }
        if folder.is_fixed() {
            return Err(Error::ReadOnly);
        }
        match name.len() <= NAME_MAX {
            true => Ok((folder, name)),
            false => Err(Error::Path),
        }
    }

    pub(super) fn create(&mut self, path: &[u8]) -> Result<Inode, Error> {
        let (mut folder, name) = self.place(path)?;
        if self.look_up(&folder, name)?.is_some() {
            return Err(Error::Exists);
        }
        let number = self.take_inode(folder.number, false)?;
        let inode = Inode::new(number, MODE_FILE, 1, self.now());
        let inserted = self
            .store_new(&inode)
            .and_then(|()| self.insert(&mut folder, name, number, kind_of(&inode)));
        match inserted {
            Ok(()) => Ok(inode),
            Err(error) => {
                self.unlink(inode)?;
                Err(error)
            }
        }
    }

    pub(super) fn make_folder(&mut self, path: &[u8]) -> Result<(), Error> {
        let (mut folder, name) = self.place(path)?;
        if self.look_up(&folder, name)?.is_some() {
            return Err(Error::Exists);
        }
        if folder.links() >= NAMES_OF_ONE_MAX {
            return Err(Error::NoSpace);
        }
        let number = self.take_inode(folder.number, true)?;
        let mut inode = Inode::new(number, MODE_FOLDER, 2, self.now());
        let made = self.begin_folder(&mut inode, folder.number).and_then(|()| {
            folder.set_links(folder.links() + 1);
            let inserted = self.insert(&mut folder, name, number, kind_of(&inode));
            if inserted.is_err() {
                folder.set_links(folder.links() - 1);
            }
            inserted
        });
        if made.is_err() {
            self.unlink(inode)?;
            // A folder that could not be filled may have a block more.
            self.store(&folder)?;
        }
        made
    }

    /// Whether something may go.
    fn may_go(&self, inode: &Inode) -> Result<(), Error> {
        if inode.is_fixed() {
            return Err(Error::ReadOnly);
        }
        if self.open.contains_key(&inode.number) {
            return Err(Error::Busy);
        }
        match inode.is_folder() && !self.is_empty(inode)? {
            true => Err(Error::NotEmpty),
            false => Ok(()),
        }
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Result<(), Error> {
        let (mut folder, name) = self.place(path)?;
        let found = self.look_up(&folder, name)?.ok_or(Error::NotFound)?;
        if name == b"." || name == b".." {
            return Err(Error::Path);
        }
        let inode = self.inode(found.inode)?;
        self.may_go(&inode)?;
        self.last = None;
        if inode.is_folder() {
            folder.set_links(folder.links().saturating_sub(1).max(2));
        }
        self.take_away(&mut folder, &found)?;
        self.unlink(inode)
    }

    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let (folder, name) = self.place(from)?;
        let found = self.look_up(&folder, name)?.ok_or(Error::NotFound)?;
        let moved = self.inode(found.inode)?;
        let (mut into, as_name) = self.place(to)?;
        let replaced = self.look_up(&into, as_name)?;
        let old = replaced
            .as_ref()
            .map(|old| self.inode(old.inode))
            .transpose()?;
        if old.as_ref().is_some_and(|old| old.number == moved.number) {
            return Ok(());
        }
        if moved.is_folder() && self.is_within(&into, moved.number)? {
            return Err(Error::Path);
        }
        let moves_folder = moved.is_folder() && folder.number != into.number;
        if moves_folder && old.is_none() && into.links() >= NAMES_OF_ONE_MAX {
            return Err(Error::NoSpace);
        }
        if let Some(old) = &old {
            match (moved.is_folder(), old.is_folder()) {
                (true, false) => return Err(Error::NoFolder),
                (false, true) => return Err(Error::NoFile),
                _ => self.may_go(old)?,
            }
        }
        self.last = None;
        match &replaced {
            Some(replaced) => self.turn(&mut into, replaced, &moved)?,
            None => self.insert(&mut into, as_name, moved.number, kind_of(&moved))?,
        }
        self.order()?;
        self.leave(folder.number, name, &moved, into.number)?;
        match old {
            Some(old) => self.replaced(into.number, old),
            None => Ok(()),
        }
    }

    /// Takes the old name of a moved thing away. What the new one changed may be of its folder.
    fn leave(&mut self, folder: u32, name: &[u8], moved: &Inode, into: u32) -> Result<(), Error> {
        let mut folder = self.inode(folder)?;
        let mut found = None;
        self.names(&folder, |entry| {
            let is_it = entry.name == name && entry.inode == moved.number;
            if is_it {
                found = Some(entry);
            }
            !is_it
        })?;
        let found = found.ok_or(Error::Damaged("a name is gone"))?;
        let moves_folder = moved.is_folder() && folder.number != into;
        if moves_folder {
            folder.set_links(folder.links().saturating_sub(1).max(2));
        }
        self.take_away(&mut folder, &found)?;
        if moves_folder {
            let mut into = self.inode(into)?;
            into.set_links(into.links().saturating_add(1));
            self.store(&into)?;
            let mut moved = self.inode(moved.number)?;
            let outer = self.look_up(&moved, b"..")?;
            let outer = outer.ok_or(Error::Damaged("a folder has no way out"))?;
            self.turn(&mut moved, &outer, &into)?;
        }
        Ok(())
    }

    /// Frees what another thing has the name of.
    fn replaced(&mut self, into: u32, old: Inode) -> Result<(), Error> {
        if old.is_folder() {
            let mut into = self.inode(into)?;
            into.set_links(into.links().saturating_sub(1).max(2));
            self.store(&into)?;
        }
        self.unlink(old)
    }

    /// Whether a folder lies in another, or is it.
    fn is_within(&self, folder: &Inode, outer: u32) -> Result<bool, Error> {
        let mut here = folder.clone();
        for _ in 0..DEPTH_MAX {
            if here.number == outer {
                return Ok(true);
            }
            if here.number == ROOT {
                return Ok(false);
            }
            let up = self.look_up(&here, b"..")?;
            here = self.inode(up.ok_or(Error::Damaged("a folder has no way out"))?.inode)?;
        }
        Err(Error::Damaged("folders lie in each other"))
    }
}
