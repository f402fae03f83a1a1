//! What the kernel knows, by numbers, and the paths of that.

use device::files::{File, PATH_MAX};
use fuser::INodeNo;
use std::collections::HashMap;

/// How a name is compared where case does not count.
type Fold = fn(&[u8]) -> Vec<u8>;

/// As it is.
pub(crate) fn exact(name: &[u8]) -> Vec<u8> {
    name.to_vec()
}

/// Without regard to case.
pub(crate) fn lower(name: &[u8]) -> Vec<u8> {
    match str::from_utf8(name) {
        Ok(name) => name.to_lowercase().into_bytes(),
        Err(_) => name.to_vec(),
    }
}

/// Something that has a name.
pub(crate) struct Node {
    folder: INodeNo,
    name: Vec<u8>,
    /// How often the kernel was told of it.
    told: u64,
    /// How often it is open; it has a handle meanwhile.
    pub(crate) opens: u64,
    pub(crate) handle: Option<Box<dyn File>>,
    /// Whether the handle writes.
    pub(crate) writes: bool,
    /// Whether it goes once it is closed.
    pub(crate) is_removed: bool,
    /// Whether something else has its name.
    is_lost: bool,
}

/// All of it. The root is always there.
pub(crate) struct Names {
    nodes: HashMap<INodeNo, Node>,
    numbers: HashMap<(INodeNo, Vec<u8>), INodeNo>,
    next: u64,
    fold: Fold,
}

impl Names {
    pub(crate) fn new(fold: Fold) -> Self {
        let mut names = Self {
            nodes: HashMap::new(),
            numbers: HashMap::new(),
            next: INodeNo::ROOT.0 + 1,
            fold,
        };
        names.insert(INodeNo::ROOT, INodeNo::ROOT, Vec::new());
        names
    }

    fn insert(&mut self, number: INodeNo, folder: INodeNo, name: Vec<u8>) {
        let node = Node {
            folder,
            name,
            told: 1,
            opens: 0,
            handle: None,
            writes: false,
            is_removed: false,
            is_lost: false,
        };
        self.nodes.insert(number, node);
    }

    /// The path of something; none if nobody knows it, or its name is another one's now.
    pub(crate) fn path(&self, number: INodeNo) -> Option<Vec<u8>> {
        let (mut names, mut here) = (Vec::new(), number);
        while here != INodeNo::ROOT && names.len() < PATH_MAX {
            let node = self.nodes.get(&here).filter(|node| !node.is_lost)?;
            names.push(&node.name[..]);
            here = node.folder;
        }
        let names = names.iter().rev();
        match number {
            INodeNo::ROOT => Some(b"/".to_vec()),
            _ => Some(names.flat_map(|name| [b"/", *name].concat()).collect()),
        }
    }

    /// The path of a name in a folder.
    pub(crate) fn path_in(&self, folder: INodeNo, name: &[u8]) -> Option<Vec<u8>> {
        match folder {
            INodeNo::ROOT => Some([b"/", name].concat()),
            _ => Some([&self.path(folder)?[..], b"/", name].concat()),
        }
    }

    pub(crate) fn get(&mut self, number: INodeNo) -> Option<&mut Node> {
        self.nodes.get_mut(&number)
    }

    /// The number of a name, if the kernel was told of it.
    pub(crate) fn number(&self, folder: INodeNo, name: &[u8]) -> Option<INodeNo> {
        let key = (folder, (self.fold)(name));
        self.numbers.get(&key).copied()
    }

    /// The kernel is told of a name; its number.
    pub(crate) fn tell(&mut self, folder: INodeNo, name: &[u8]) -> INodeNo {
        if let Some(number) = self.number(folder, name)
            && let Some(node) = self.nodes.get_mut(&number)
        {
            node.told += 1;
            return number;
        }
        let number = INodeNo(self.next);
        self.next += 1;
        self.insert(number, folder, name.to_vec());
        self.numbers.insert((folder, (self.fold)(name)), number);
        number
    }

    /// The kernel forgets so many times that it was told.
    pub(crate) fn forget(&mut self, number: INodeNo, times: u64) {
        let Some(node) = self.nodes.get_mut(&number) else {
            return;
        };
        node.told = node.told.saturating_sub(times);
        if number != INodeNo::ROOT && node.told == 0 && node.opens == 0 {
            self.lose(number);
            self.nodes.remove(&number);
        }
    }

    /// Nothing has this name any more, or something else.
    pub(crate) fn lose(&mut self, number: INodeNo) {
        if let Some(node) = self.nodes.get_mut(&number)
            && !node.is_lost
        {
            node.is_lost = true;
            let key = (node.folder, (self.fold)(&node.name));
            self.numbers.remove(&key);
        }
    }

    /// Something has another name now. What had it is lost.
    pub(crate) fn rename(&mut self, number: INodeNo, folder: INodeNo, name: &[u8]) {
        let old = self.number(folder, name);
        if let Some(old) = old.filter(|old| *old != number) {
            self.lose(old);
        }
        self.lose(number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.folder = folder;
            node.name = name.to_vec();
            node.is_lost = false;
            self.numbers.insert((folder, (self.fold)(name)), number);
        }
    }

    /// Whether something goes once it is closed.
    pub(crate) fn is_removed(&self, number: INodeNo) -> bool {
        self.nodes.get(&number).is_some_and(|node| node.is_removed)
    }

    /// The same of a name in a folder.
    pub(crate) fn has_removed(&self, folder: INodeNo, name: &[u8]) -> bool {
        let number = self.number(folder, name);
        number.is_some_and(|number| self.is_removed(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_names() {
        let mut names = Names::new(exact);
        let folder = names.tell(INodeNo::ROOT, b"folder");
        let file = names.tell(folder, b"file");
        assert_eq!(names.path(file), Some(b"/folder/file".to_vec()));
        assert_eq!(names.path(INodeNo::ROOT), Some(b"/".to_vec()));
        names.rename(folder, INodeNo::ROOT, b"other");
        assert_eq!(names.path(file), Some(b"/other/file".to_vec()));
        let second = names.tell(INodeNo::ROOT, b"second");
        names.rename(second, folder, b"file");
        assert_eq!(names.path(file), None);
        assert_eq!(names.path(second), Some(b"/other/file".to_vec()));
        assert_eq!(names.number(INodeNo::ROOT, b"second"), None);
    }

    #[test]
    fn what_is_forgotten_as_often_as_told_is_gone() {
        let mut names = Names::new(lower);
        let file = names.tell(INodeNo::ROOT, b"File");
        assert_eq!(names.tell(INodeNo::ROOT, b"FILE"), file);
        names.forget(file, 1);
        assert_eq!(names.path(file), Some(b"/File".to_vec()));
        names.forget(file, 1);
        assert_eq!(names.path(file), None);
        assert_ne!(names.tell(INodeNo::ROOT, b"file"), file);
        names.forget(INodeNo::ROOT, u64::MAX);
        assert!(names.path(INodeNo::ROOT).is_some());
    }

    #[test]
    fn a_folder_in_itself_has_no_endless_path() {
        let mut names = Names::new(exact);
        let folder = names.tell(INodeNo::ROOT, b"a");
        names.rename(folder, folder, b"a");
        let path = names.path(folder).unwrap();
        assert!(path.len() <= 2 * PATH_MAX);
    }
}
