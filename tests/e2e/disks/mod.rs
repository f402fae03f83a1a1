//! Disks, and the file systems on them, as stock programs make them.

mod crash;
mod hostile;
pub mod made;
mod mutated;
mod recorded;
mod sequence;
mod writable;
mod written;

use crate::harness::programs;
use ::fs::disk::{BUDGET, Disk};
use ::fs::{NoFileSystem, mount, mount_to_write};
use device::block::Limits;
use device::files::{Error, FileSystem, Kind};
use device::{BlockDevice, BlockError};
use libtest_mimic::{Completion, Failed, Trial};
use made::{KINDS, Tree};
use std::path::Path;
use std::sync::Arc;
use writable::{WRITABLES, Writable};

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for kind in &KINDS {
        let missing = programs::missing(kind.programs);
        let mut add = |what: &str, test: fn(&made::Kind) -> Result<(), Failed>| {
            let name = format!("disks::{}: {what}", kind.name);
            let test = move || unless(missing, || test(kind));
            trials.push(Trial::ignorable_test(name, test));
        };
        add("what was written is read", as_written);
        add("what was mutated ends no walk", mutated::walks);
        add(
            "a folder in itself ends no walk",
            hostile::folders_in_themselves,
        );
        add("the longest names are found", hostile::long_names);
        if kind.is_written {
            add("what was mutated ends no change", hostile::changes);
        }
        match kind.name {
            "ext2" | "ext3" | "ext4" => {
                add("a file without an end ends no read", hostile::endless_files);
            }
            "fat12" | "fat16" | "fat32" => {
                add(
                    "clusters in a circle end no read",
                    hostile::chains_in_circles,
                );
            }
            "rock ridge" => {
                add(
                    "a name that goes on in a circle ends no walk",
                    hostile::continued_in_circles,
                );
            }
            _ => {}
        }
    }
    let missing = programs::missing(&["mke2fs", "sfdisk"]);
    let name = "disks::tables of partitions that were mutated end no search";
    let test = move || unless(missing, hostile::tables);
    trials.push(Trial::ignorable_test(name, test));
    for kind in &WRITABLES {
        let missing = programs::missing(kind.programs);
        let trial = |what: &str, test: fn(&Writable) -> Result<(), Failed>| {
            let name = format!("disks::{}: {what}", kind.name);
            Trial::ignorable_test(name, move || unless(missing, || test(kind)))
        };
        trials.push(trial("what was changed is there", written::sequences));
        trials.push(trial("a full one says so", written::full));
        trials.push(trial(
            "a power cut takes nothing that was synced",
            crash::cuts,
        ));
    }
    let missing = programs::missing(made::MKE2FS);
    let name = "disks::ext2: what others made is changed";
    let test = move || unless(missing, written::of_others);
    trials.push(Trial::ignorable_test(name, test));
    let name = "disks::tmpfs: what was changed is there";
    trials.push(Trial::test(name, written::in_memory));
    let missing = programs::missing(&["mke2fs", "sfdisk"]);
    let name = "disks::the first partition that has files is found";
    let test = move || unless(missing, partitions);
    trials.push(Trial::ignorable_test(name, test));
    trials
}

fn unless(
    missing: Option<&str>,
    test: impl FnOnce() -> Result<(), Failed>,
) -> Result<Completion, Failed> {
    match missing {
        Some(why) => Ok(Completion::ignored_with(why)),
        None => test().map(|()| Completion::Completed),
    }
}

/// How many turns a test has, if the environment says so.
fn turns(variable: &str, otherwise: u64) -> u64 {
    let said = std::env::var(variable).ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(otherwise)
}

/// A disk in memory, which nobody writes.
#[derive(Clone)]
struct Memory(Arc<Vec<u8>>);

impl BlockDevice for Memory {
    fn capacity(&self) -> u64 {
        self.0.len() as u64
    }

    fn limits(&self) -> Limits {
        Limits::plain(512)
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let found = self.0.get(offset as usize..);
        let found = found.and_then(|rest| rest.get(..blocks.len()));
        blocks.copy_from_slice(found.ok_or(BlockError::OutOfRange)?);
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        // EROFS.
        Err(BlockError::Host(30))
    }
}

fn mounted(bytes: Vec<u8>) -> Result<Box<dyn FileSystem>, NoFileSystem> {
    let disk = Disk::new(Box::new(Memory(Arc::new(bytes))), BUDGET);
    mount(&disk.map_err(|error| NoFileSystem::Unreadable("disk", Error::Disk(error)))?)
}

/// A file that lies about its size is not believed beyond this.
const FILE_MAX: u64 = 4 << 20;

/// All of a file.
fn read(files: &dyn FileSystem, path: &[u8]) -> Result<Vec<u8>, Error> {
    let mut file = files.open(path)?;
    let mut bytes = vec![0; file.metadata().len.min(FILE_MAX) as usize];
    let count = file.read(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The files from the root on, and how many things could not be read; at most so many of each.
fn walk(files: &dyn FileSystem, most: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut found, mut errors) = (Vec::new(), 0);
    let mut folders = vec![Vec::new()];
    let mut visited = 0;
    while let Some(folder) = folders.pop() {
        visited += 1;
        let path = if folder.is_empty() { b"/" } else { &folder[..] };
        let mut names = Vec::new();
        let listed = files.list(path, &mut |entry| {
            names.push(entry);
            names.len() < most
        });
        errors += usize::from(listed.is_err());
        for entry in names {
            let path = [&folder[..], b"/", &entry.name].concat();
            match entry.kind {
                Kind::Folder if visited + folders.len() < most => folders.push(path),
                Kind::File if found.len() < most => {
                    errors += usize::from(read(files, &path).is_err());
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    (found, errors)
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    match holds {
        true => Ok(()),
        false => Err(what().into()),
    }
}

/// All that was written is there as it was, what was not is told apart, on the whole disk and in a
/// partition.
fn as_written(kind: &made::Kind) -> Result<(), Failed> {
    let tree = Tree::new()?;
    let (image, disk) = (tree.image("whole"), tree.image("parts"));
    kind.make(&tree.root(), &image)?;
    made::partitioned(&image, &disk)?;
    for place in [&image, &disk] {
        let files = mounted(std::fs::read(place)?)?;
        holds(&*files, &tree)?;
        let disk = Disk::new(Box::new(Memory(Arc::new(std::fs::read(place)?))), BUDGET)?;
        let writes = mount_to_write(&disk, written::now)?.is_writable();
        expect(writes == kind.is_written, || format!("written: {writes}"))?;
    }
    Ok(())
}

fn holds(files: &dyn FileSystem, tree: &Tree) -> Result<(), Failed> {
    for (path, bytes) in &tree.files {
        let found = read(files, path.as_bytes())?;
        expect(found == *bytes, || format!("{path} differs"))?;
        let metadata = files.metadata(path.as_bytes())?;
        expect(metadata.len == bytes.len() as u64, || {
            format!("{metadata:?}")
        })?;
        let written = std::fs::metadata(tree.root().join(&path[1..]))?.modified()?;
        let written = written.duration_since(std::time::UNIX_EPOCH)?.as_secs();
        // FAT has every second one, in the time of the place.
        let apart = written.abs_diff(metadata.modified);
        expect(apart < 2 || files.name() == "vfat", || {
            format!("{path}: {apart} s")
        })?;
    }
    let (path, large) = tree.files.last().ok_or("no file")?;
    let mut file = files.open(path.as_bytes())?;
    let (mut part, end) = ([0; 1000], large.len() as u64);
    let count = file.read(end - 500, &mut part)?;
    let same = count == 500 && part[..500] == large[large.len() - 500..];
    expect(same, || format!("{count} bytes at the end"))?;
    expect(file.read(end, &mut part) == Ok(0), || {
        "behind the end".into()
    })?;

    let (mut found, errors) = walk(files, 1000);
    found.retain(|path| !path.starts_with(b"/lost+found"));
    found.sort();
    let mut expected: Vec<_> = tree.files.iter().map(|(path, _)| path.as_bytes()).collect();
    expected.sort_unstable();
    expect(errors == 0 && found == expected, || {
        format!("{errors}: {found:?}")
    })?;

    for path in ["/none", "/deep/none", "/index.html/none"] {
        let error = files.metadata(path.as_bytes());
        let is_none = matches!(error, Err(Error::NotFound | Error::NoFolder));
        expect(is_none, || format!("{path}: {error:?}"))?;
    }
    let opened = files.open(b"/deep").err();
    expect(opened == Some(Error::NoFile), || format!("{opened:?}"))?;
    let listed = files.list(b"/index.html", &mut |_| true);
    expect(listed == Err(Error::NoFolder), || format!("{listed:?}"))?;
    let long = vec![b'/'; 5000];
    for path in [&b"index.html"[..], b"", b"/../index.html", b"/a\0b", &long] {
        let found = files.metadata(path);
        expect(found == Err(Error::Path), || format!("{path:?}: {found:?}"))?;
    }
    Ok(())
}

fn partitions() -> Result<(), Failed> {
    let tree = Tree::new()?;
    let (image, disk) = (tree.image("whole"), tree.image("gpt"));
    KINDS[0].make(&tree.root(), &image)?;
    made::in_gpt(&image, &disk)?;
    holds(&*mounted(std::fs::read(&disk)?)?, &tree)?;
    let empty = none_in(&disk)?;
    expect(empty == Some(NoFileSystem::Unknown), || {
        format!("{empty:?}")
    })
}

/// Why there is none, once all but the table is overwritten.
fn none_in(disk: &Path) -> Result<Option<NoFileSystem>, Failed> {
    let mut bytes = std::fs::read(disk)?;
    let end = bytes.len() - (64 << 10);
    bytes[64 << 10..end].fill(0);
    Ok(mounted(bytes).err())
}
