//! Random changes to a file system, and what is there then: each is done to a model in memory, too.

use super::expect;
use ::fs::disk::LARGE;
use device::files::{Error, FileSystem, Kind};
use fastrand::Rng;
use libtest_mimic::Failed;
use std::collections::BTreeMap;

/// Paths, and the bytes of files; folders have none.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// Names that all file systems have, each only once where case does not count.
const NAMES: [&str; 14] = [
    "a",
    "B.TXT",
    "lower.txt",
    "Mixed Case.Json",
    "two.dots.gz",
    "A long name that no old system had, with a comma.html",
    "A long name that no old system had, and another.html",
    "UPPER",
    "x.y",
    "name~1",
    "LONGNA~1.TXT",
    "umlaut ä ö ü",
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "z",
];
/// Folders lie in each other so deep.
const DEPTH_MAX: usize = 3;
/// Files are so long at most, and parts of them that are written at once.
const FILE_MAX: u64 = 250_000;
const PARTS: [usize; 3] = [200, 5_000, 70_000];

/// One change.
#[derive(Debug)]
pub enum Step {
    Create(String),
    MakeFolder(String),
    Write(String, u64, Vec<u8>),
    SetLen(String, u64),
    Remove(String),
    Rename(String, String),
    Read(String, u64, usize),
    Sync,
}

/// What is in a folder, by its path.
fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

impl Step {
    /// One that makes sense, mostly.
    pub fn random(tree: &Tree, random: &mut Rng) -> Self {
        match random.u32(..100) {
            0..15 => Self::Create(place(tree, random)),
            15..25 => Self::MakeFolder(place(tree, random)),
            25..55 => {
                let most = PARTS[random.usize(..PARTS.len())];
                let mut bytes = vec![0; 1 + random.usize(..most)];
                random.fill(&mut bytes);
                let (path, len) = file(tree, random);
                let offset = match random.u32(..4) {
                    0 => len,
                    1 => random.u64(..=len + 20_000),
                    _ => random.u64(..=len),
                };
                Self::Write(path, offset.min(FILE_MAX), bytes)
            }
            55..63 => {
                let (path, len) = file(tree, random);
                let most = if random.bool() { len } else { FILE_MAX };
                Self::SetLen(path, random.u64(..=most))
            }
            63..73 => Self::Remove(something(tree, random)),
            73..85 => Self::Rename(something(tree, random), place(tree, random)),
            85..95 => {
                let (path, len) = file(tree, random);
                Self::Read(path, random.u64(..=len + 100), random.usize(..20_000))
            }
            _ => Self::Sync,
        }
    }

    /// The paths that it touches.
    pub fn touches(&self) -> Vec<&str> {
        match self {
            Self::Create(path)
            | Self::MakeFolder(path)
            | Self::Write(path, ..)
            | Self::SetLen(path, _)
            | Self::Remove(path) => vec![path],
            Self::Rename(from, to) => vec![from, to],
            Self::Read(..) | Self::Sync => vec![],
        }
    }
}

/// A path that may be there.
fn place(tree: &Tree, random: &mut Rng) -> String {
    let is_shallow = |path: &&String| path.matches('/').count() < DEPTH_MAX;
    let folders = tree.iter().filter(|(_, bytes)| bytes.is_none());
    let folders: Vec<&String> = folders.map(|(path, _)| path).filter(is_shallow).collect();
    let folder = match random.usize(..=folders.len()) {
        0 => "",
        index => folders[index - 1],
    };
    format!("{folder}/{}", NAMES[random.usize(..NAMES.len())])
}

/// A path that is there, mostly.
fn something(tree: &Tree, random: &mut Rng) -> String {
    match tree.len() {
        0 => place(tree, random),
        _ if random.u32(..10) == 0 => place(tree, random),
        len => tree
            .keys()
            .nth(random.usize(..len))
            .unwrap_or(&String::new())
            .clone(),
    }
}

/// A file, mostly, and its length.
fn file(tree: &Tree, random: &mut Rng) -> (String, u64) {
    let files = tree
        .iter()
        .filter_map(|(path, bytes)| Some((path, bytes.as_ref()?)));
    let files: Vec<_> = files.collect();
    match files.len() {
        0 => (something(tree, random), 0),
        len => {
            let (path, bytes) = files[random.usize(..len)];
            (path.clone(), bytes.len() as u64)
        }
    }
}

/// Whether there is a folder for a path.
fn folder_is_there(tree: &Tree, path: &str) -> Result<(), Error> {
    let folder = folder_of(path);
    match tree.get(folder) {
        None if folder.is_empty() => Ok(()),
        None => Err(Error::NotFound),
        Some(None) => Ok(()),
        Some(Some(_)) => Err(Error::NoFolder),
    }
}

fn is_empty(tree: &Tree, folder: &str) -> bool {
    !tree.keys().any(|path| is_in(path, folder))
}

/// What the model says of a step, once it is done to it.
fn model(tree: &mut Tree, step: &Step) -> Result<(), Error> {
    match step {
        Step::Create(path) | Step::MakeFolder(path) => {
            folder_is_there(tree, path)?;
            if tree.contains_key(path) {
                return Err(Error::Exists);
            }
            let is_file = matches!(step, Step::Create(_));
            tree.insert(path.clone(), is_file.then(Vec::new));
        }
        Step::Write(path, offset, part) => {
            let bytes = found(tree, path)?;
            let end = *offset as usize + part.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[*offset as usize..end].copy_from_slice(part);
        }
        Step::SetLen(path, len) => found(tree, path)?.resize(*len as usize, 0),
        Step::Remove(path) => {
            tree.get(path).ok_or(Error::NotFound)?;
            if !is_empty(tree, path) {
                return Err(Error::NotEmpty);
            }
            tree.remove(path);
        }
        Step::Rename(from, to) => rename(tree, from, to)?,
        Step::Read(path, ..) => drop(found(tree, path)?),
        Step::Sync => {}
    }
    Ok(())
}

fn found<'a>(tree: &'a mut Tree, path: &str) -> Result<&'a mut Vec<u8>, Error> {
    let found = tree.get_mut(path).ok_or(Error::NotFound)?;
    found.as_mut().ok_or(Error::NoFile)
}

fn rename(tree: &mut Tree, from: &str, to: &str) -> Result<(), Error> {
    let moved = tree.get(from).ok_or(Error::NotFound)?.clone();
    if is_in(to, from) {
        return Err(Error::Path);
    }
    folder_is_there(tree, to)?;
    if from == to {
        return Ok(());
    }
    match (&moved, tree.get(to)) {
        (None, Some(Some(_))) => return Err(Error::NoFolder),
        (Some(_), Some(None)) => return Err(Error::NoFile),
        (None, Some(None)) if !is_empty(tree, to) => return Err(Error::NotEmpty),
        _ => {}
    }
    let paths: Vec<_> = tree
        .keys()
        .filter(|path| is_in(path, from))
        .cloned()
        .collect();
    for path in paths {
        let bytes = tree.remove(&path).flatten();
        tree.insert(format!("{to}{}", &path[from.len()..]), bytes);
    }
    tree.remove(from);
    tree.insert(to.to_owned(), moved);
    Ok(())
}

/// Does it to the file system.
fn act(files: &dyn FileSystem, step: &Step) -> Result<(), Error> {
    match step {
        Step::Create(path) => files.create(path.as_bytes()).map(drop),
        Step::MakeFolder(path) => files.make_folder(path.as_bytes()),
        Step::Write(path, offset, bytes) => {
            files.open_to_write(path.as_bytes())?.write(*offset, bytes)
        }
        Step::SetLen(path, len) => files.open_to_write(path.as_bytes())?.set_len(*len),
        Step::Remove(path) => files.remove(path.as_bytes()),
        Step::Rename(from, to) => files.rename(from.as_bytes(), to.as_bytes()),
        Step::Read(path, ..) => files.open(path.as_bytes()).map(drop),
        Step::Sync => files.sync(),
    }
}

/// Does a step to both, which must agree; whether it was done.
pub fn take(files: &dyn FileSystem, tree: &mut Tree, step: &Step) -> Result<bool, Failed> {
    let before = tree.clone();
    let expected = model(tree, step);
    let done = act(files, step);
    if let (Ok(()), Err(Error::NoSpace)) = (expected, done) {
        return no_space(files, tree, before, step);
    }
    // Of several reasons, each may say another first.
    let agrees = match step {
        Step::Rename(..) => done.is_ok() == expected.is_ok(),
        _ => done == expected,
    };
    expect(agrees, || format!("{step:?}: {done:?}, not {expected:?}"))?;
    if let (Step::Read(path, offset, len), Some(Some(bytes))) = (step, before.get(step_path(step)))
    {
        let mut found = vec![0; *len];
        let count = files.open(path.as_bytes())?.read(*offset, &mut found)?;
        let there = bytes.get(*offset as usize..).unwrap_or_default();
        let there = &there[..there.len().min(*len)];
        expect(&found[..count] == there, || {
            format!("{path}, from {offset} on")
        })?;
        shared(files, path, bytes)?;
    }
    Ok(done.is_ok())
}

/// All of a file is what its shared parts are.
fn shared(files: &dyn FileSystem, path: &str, bytes: &[u8]) -> Result<(), Failed> {
    let mut file = files.open(path.as_bytes())?;
    for (index, part) in bytes.chunks(LARGE).enumerate() {
        let found = file.share((index * LARGE) as u64, LARGE)?;
        expect(found == part, || format!("{path}, shared part {index}"))?;
    }
    let behind = file.share(bytes.len() as u64, LARGE)?;
    expect(behind.is_empty(), || {
        format!("{path}, shared behind its end")
    })
}

fn step_path(step: &Step) -> &str {
    match step {
        Step::Read(path, ..) => path,
        _ => "",
    }
}

/// There was no room: a file that was written may have a part of it, and nothing else is changed.
fn no_space(
    files: &dyn FileSystem,
    tree: &mut Tree,
    before: Tree,
    step: &Step,
) -> Result<bool, Failed> {
    let after = std::mem::replace(tree, before);
    let (Step::Write(path, ..) | Step::SetLen(path, _)) = step else {
        return Ok(false);
    };
    let found = super::read(files, path.as_bytes())?;
    let old = tree.get(path).and_then(Option::as_ref).ok_or("no file")?;
    let new = after.get(path).and_then(Option::as_ref).ok_or("no file")?;
    let may_be = |at: usize, byte: u8| [old, new].iter().any(|of| of.get(at) == Some(&byte));
    let is_one = (old.len()..=new.len()).contains(&found.len())
        && found.iter().enumerate().all(|(at, byte)| may_be(at, *byte));
    expect(is_one, || format!("{path} is neither old nor new"))?;
    tree.insert(path.clone(), Some(found));
    Ok(true)
}

/// All that a file system has but what its maker put there.
pub fn all(files: &dyn FileSystem) -> Result<Tree, Failed> {
    let mut tree = Tree::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let mut names = Vec::new();
        let path = if folder.is_empty() { "/" } else { &folder };
        files.list(path.as_bytes(), &mut |entry| {
            names.push(entry);
            true
        })?;
        for entry in names {
            let path = format!("{folder}/{}", String::from_utf8(entry.name)?);
            if path == "/lost+found" {
                continue;
            }
            let bytes = match entry.kind {
                Kind::File => Some(super::read(files, path.as_bytes())?),
                Kind::Folder => None,
                kind => return Err(format!("{path} is a {kind:?}").into()),
            };
            if bytes.is_none() {
                folders.push(path.clone());
            }
            let known = tree.insert(path.clone(), bytes);
            expect(known.is_none(), || format!("{path} is there twice"))?;
        }
    }
    Ok(tree)
}

/// Says where two trees differ.
pub fn same(found: &Tree, expected: &Tree) -> Result<(), Failed> {
    for (path, bytes) in expected {
        let there = found
            .get(path)
            .ok_or_else(|| format!("{path} is not there"))?;
        expect(there == bytes, || format!("{path} differs"))?;
    }
    let other = found.keys().find(|path| !expected.contains_key(*path));
    expect(other.is_none(), || format!("{other:?} is there"))
}
