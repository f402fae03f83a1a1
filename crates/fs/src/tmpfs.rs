//! A file system in memory: files are as good as the image that has them. What it takes is bounded
//! by a budget, of which names and folders have their part.

use crate::Now;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::files::{self, Entry, Error, File, FileSystem, Kind, Metadata};

/// Bytes of a piece of a file. One that was never written is no piece, and is read as zeroes.
const PIECE: usize = 4096;
/// What a name costs beside its bytes: what it is of has its room in memory, too.
const NAME_COST: usize = 256;
/// What a piece costs beside its bytes.
const PIECE_COST: usize = 64;
/// Longest name, as the other file systems have it.
const NAME_MAX: usize = 255;

/// A file system in memory.
pub struct Tmpfs(Rc<RefCell<State>>);

type Number = u64;
const ROOT: Number = 0;

struct State {
    nodes: BTreeMap<Number, Node>,
    next: Number,
    /// Bytes that may still be taken.
    rest: usize,
    now: Now,
}

struct Node {
    content: Content,
    modified: u64,
    /// Handles.
    open: usize,
}

enum Content {
    Folder(BTreeMap<Vec<u8>, Number>),
    File {
        len: u64,
        pieces: BTreeMap<u64, Box<[u8]>>,
    },
}

impl Tmpfs {
    /// One that takes up to `budget` bytes.
    pub fn new(budget: usize, now: Now) -> Self {
        let root = Node {
            content: Content::Folder(BTreeMap::new()),
            modified: now(),
            open: 0,
        };
        Self(Rc::new(RefCell::new(State {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            rest: budget,
            now,
        })))
    }

    fn handle(&self, number: Number, is_writable: bool) -> Result<Box<dyn File>, Error> {
        let mut state = self.0.borrow_mut();
        let metadata = state.metadata(number)?;
        if metadata.kind != Kind::File {
            return Err(Error::NoFile);
        }
        state.node(number)?.open += 1;
        Ok(Box::new(Handle {
            state: Rc::clone(&self.0),
            number,
            is_writable,
            metadata,
        }))
    }

    fn make(&self, path: &[u8], content: Content) -> Result<Number, Error> {
        let mut state = self.0.borrow_mut();
        let (folder, name) = state.place(path)?;
        if state.names(folder)?.contains_key(name) {
            return Err(Error::Exists);
        }
        state.take(NAME_COST + name.len())?;
        let (number, modified) = (state.next, (state.now)());
        state.next += 1;
        let node = Node {
            content,
            modified,
            open: 0,
        };
        state.nodes.insert(number, node);
        state.names(folder)?.insert(name.to_vec(), number);
        state.node(folder)?.modified = modified;
        Ok(number)
    }
}

impl State {
    fn node(&mut self, number: Number) -> Result<&mut Node, Error> {
        self.nodes.get_mut(&number).ok_or(Error::NotFound)
    }

    fn names(&mut self, folder: Number) -> Result<&mut BTreeMap<Vec<u8>, Number>, Error> {
        match &mut self.node(folder)?.content {
            Content::Folder(names) => Ok(names),
            Content::File { .. } => Err(Error::NoFolder),
        }
    }

    fn find(&mut self, path: &[u8]) -> Result<Number, Error> {
        files::check(path)?;
        let names = path.split(|byte| *byte == b'/');
        let mut found = ROOT;
        for name in names.filter(|name| !name.is_empty() && *name != b".") {
            found = *self.names(found)?.get(name).ok_or(Error::NotFound)?;
        }
        Ok(found)
    }

    /// The folder of a path that is to be changed, and the name in it.
    fn place<'a>(&mut self, path: &'a [u8]) -> Result<(Number, &'a [u8]), Error> {
        let (folder, name) = files::split(path)?;
        if name.len() > NAME_MAX {
            return Err(Error::Path);
        }
        let folder = self.find(folder)?;
        self.names(folder)?;
        Ok((folder, name))
    }

    fn metadata(&mut self, number: Number) -> Result<Metadata, Error> {
        let node = self.node(number)?;
        let (kind, len) = match &node.content {
            Content::Folder(_) => (Kind::Folder, 0),
            Content::File { len, .. } => (Kind::File, *len),
        };
        Ok(Metadata {
            kind,
            len,
            modified: node.modified,
        })
    }

    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.rest = self.rest.checked_sub(bytes).ok_or(Error::NoSpace)?;
        Ok(())
    }

    /// Whether something may go.
    fn may_go(&mut self, number: Number) -> Result<(), Error> {
        let node = self.node(number)?;
        match &node.content {
            Content::Folder(names) if !names.is_empty() => Err(Error::NotEmpty),
            _ if node.open > 0 => Err(Error::Busy),
            _ => Ok(()),
        }
    }

    /// Removes a name, and gives back what it took.
    fn forget(&mut self, folder: Number, name: &[u8]) -> Result<Option<Number>, Error> {
        let number = self.names(folder)?.remove(name);
        if number.is_some() {
            self.rest += NAME_COST + name.len();
            let now = (self.now)();
            self.node(folder)?.modified = now;
        }
        Ok(number)
    }

    /// Frees something that has no name any more.
    fn free(&mut self, number: Number) {
        if let Some(Node {
            content: Content::File { pieces, .. },
            ..
        }) = self.nodes.remove(&number)
        {
            self.rest += pieces.len() * (PIECE + PIECE_COST);
        }
    }

    /// Whether the folder lies in `outer`, or is it.
    fn is_within(&mut self, folder: &[u8], outer: Number) -> Result<bool, Error> {
        let mut found = ROOT;
        let names = folder.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty() && *name != b".") {
            if found == outer {
                return Ok(true);
            }
            found = *self.names(found)?.get(name).ok_or(Error::NotFound)?;
        }
        Ok(found == outer)
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        let (folder, name) = self.place(from)?;
        let number = *self.names(folder)?.get(name).ok_or(Error::NotFound)?;
        let (into, as_name) = self.place(to)?;
        let old = self.names(into)?.get(as_name).copied();
        if old == Some(number) {
            return Ok(());
        }
        let is_folder = self.metadata(number)?.kind == Kind::Folder;
        if is_folder && self.is_within(files::split(to)?.0, number)? {
            return Err(Error::Path);
        }
        if old.is_none() && self.rest + name.len() < as_name.len() {
            return Err(Error::NoSpace);
        }
        if let Some(old) = old {
            match (is_folder, self.metadata(old)?.kind == Kind::Folder) {
                (true, false) => return Err(Error::NoFolder),
                (false, true) => return Err(Error::NoFile),
                _ => self.may_go(old)?,
            }
            self.forget(into, as_name)?;
            self.free(old);
        }
        self.forget(folder, name)?;
        self.take(NAME_COST + as_name.len())?;
        let now = (self.now)();
        self.names(into)?.insert(as_name.to_vec(), number);
        self.node(into)?.modified = now;
        Ok(())
    }

    fn read(&mut self, number: Number, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        let Content::File { len, pieces } = &self.node(number)?.content else {
            return Err(Error::NoFile);
        };
        let count = len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (mut at, mut rest) = (offset, &mut bytes[..count]);
        while !rest.is_empty() {
            let skipped = (at % PIECE as u64) as usize;
            let size = rest.len().min(PIECE - skipped);
            let (part, behind) = rest.split_at_mut(size);
            match pieces.get(&(at / PIECE as u64)) {
                Some(piece) => part.copy_from_slice(&piece[skipped..skipped + size]),
                None => part.fill(0),
            }
            (at, rest) = (at + size as u64, behind);
        }
        Ok(count)
    }

    fn write(&mut self, number: Number, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = offset.checked_add(bytes.len() as u64);
        let end = end.ok_or(Error::TooLarge)?;
        let (mut at, mut behind) = (offset, bytes);
        let mut result = Ok(());
        while !behind.is_empty() {
            let (index, skipped) = (at / PIECE as u64, (at % PIECE as u64) as usize);
            let size = behind.len().min(PIECE - skipped);
            if let Err(error) = self.piece(number, index) {
                result = Err(error);
                break;
            }
            if let Content::File { pieces, .. } = &mut self.node(number)?.content
                && let Some(piece) = pieces.get_mut(&index)
            {
                piece[skipped..skipped + size].copy_from_slice(&behind[..size]);
            }
            (at, behind) = (at + size as u64, &behind[size..]);
        }
        let now = (self.now)();
        let node = self.node(number)?;
        node.modified = now;
        // Nothing was written behind the end if not one byte was.
        if let Content::File { len, .. } = &mut node.content
            && at > offset
        {
            *len = (*len).max(at.min(end));
        }
        result
    }

    /// Has a file have a piece.
    fn piece(&mut self, number: Number, index: u64) -> Result<(), Error> {
        if let Content::File { pieces, .. } = &self.node(number)?.content
            && pieces.contains_key(&index)
        {
            return Ok(());
        }
        self.take(PIECE + PIECE_COST)?;
        if let Content::File { pieces, .. } = &mut self.node(number)?.content {
            pieces.insert(index, vec![0; PIECE].into());
        }
        Ok(())
    }

    fn set_len(&mut self, number: Number, new: u64) -> Result<(), Error> {
        let now = (self.now)();
        let node = self.node(number)?;
        node.modified = now;
        if let Content::File { len, pieces } = &mut node.content {
            let gone = pieces.split_off(&new.div_ceil(PIECE as u64));
            // What is behind the end is 0 if the file is extended later.
            if let Some(piece) = pieces.get_mut(&(new / PIECE as u64)) {
                piece[(new % PIECE as u64) as usize..].fill(0);
            }
            *len = new;
            self.rest += gone.len() * (PIECE + PIECE_COST);
        }
        Ok(())
    }
}

impl FileSystem for Tmpfs {
    fn name(&self) -> &'static str {
        "tmpfs"
    }

    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error> {
        let mut state = self.0.borrow_mut();
        let number = state.find(path)?;
        state.metadata(number)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn File>, Error> {
        let number = self.0.borrow_mut().find(path)?;
        self.handle(number, false)
    }

    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error> {
        let mut entries = Vec::new();
        {
            let mut state = self.0.borrow_mut();
            let folder = state.find(path)?;
            let names: Vec<_> = state.names(folder)?.clone().into_iter().collect();
            for (name, number) in names {
                let kind = state.metadata(number)?.kind;
                entries.push(Entry { name, kind });
            }
        }
        // Whoever sees a name may look at it.
        let _ = entries.into_iter().all(each);
        Ok(())
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn File>, Error> {
        let content = Content::File {
            len: 0,
            pieces: BTreeMap::new(),
        };
        let number = self.make(path, content)?;
        self.handle(number, true)
    }

    fn open_to_write(&self, path: &[u8]) -> Result<Box<dyn File>, Error> {
        let number = self.0.borrow_mut().find(path)?;
        self.handle(number, true)
    }

    fn make_folder(&self, path: &[u8]) -> Result<(), Error> {
        self.make(path, Content::Folder(BTreeMap::new())).map(drop)
    }

    fn remove(&self, path: &[u8]) -> Result<(), Error> {
        let mut state = self.0.borrow_mut();
        let (folder, name) = state.place(path)?;
        let number = *state.names(folder)?.get(name).ok_or(Error::NotFound)?;
        state.may_go(number)?;
        state.forget(folder, name)?;
        state.free(number);
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Error> {
        self.0.borrow_mut().rename(from, to)
    }
}

struct Handle {
    state: Rc<RefCell<State>>,
    number: Number,
    is_writable: bool,
    metadata: Metadata,
}

impl Handle {
    fn change(
        &mut self,
        change: impl FnOnce(&mut State, Number) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.is_writable {
            return Err(Error::ReadOnly);
        }
        let mut state = self.state.borrow_mut();
        let changed = change(&mut state, self.number);
        self.metadata = state.metadata(self.number)?;
        changed
    }
}

impl File for Handle {
    fn metadata(&self) -> Metadata {
        self.metadata
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error> {
        self.state.borrow_mut().read(self.number, offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.change(|state, number| state.write(number, offset, bytes))
    }

    fn set_len(&mut self, len: u64) -> Result<(), Error> {
        self.change(|state, number| state.set_len(number, len))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(node) = self.state.borrow_mut().node(self.number) {
            node.open -= 1;
        }
    }
}
