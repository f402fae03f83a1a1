//! Random changes to each file system that is written: it agrees with a model, stock checkers find
//! nothing, and stock programs read the same.

use super::recorded::Recorded;
use super::sequence::{Step, Tree, all, same, take};
use super::writable::Writable;
use super::{expect, turns};
use crate::harness::process::run;
use crate::harness::temporary::TemporaryFolder;
use ::fs::disk::{Disk, PAGE};
use ::fs::mount_to_write;
use ::fs::tmpfs::Tmpfs;
use device::files::{Error, FileSystem};
use fastrand::Rng;
use libtest_mimic::Failed;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// How many sequences of each kind, if somebody says so.
const TURNS: &str = "OUTBOARD_SEQUENCES";
const TURNS_DEFAULT: u64 = 4;
const SEED: u64 = 71;
/// Changes of one sequence.
const STEPS: usize = 250;
/// Names of a folder that takes several blocks.
const NAMES: usize = 200;
/// Pages that are kept: few, so that what is written goes to the disk in between.
const PAGES: usize = 40;

pub fn now() -> u64 {
    1_790_000_000
}

/// A file system that is written, on a disk that is recorded.
pub fn mounted(disk: &Recorded) -> Result<Box<dyn FileSystem>, Failed> {
    let disk = Disk::new(Box::new(disk.clone()), PAGES * PAGE)?;
    Ok(mount_to_write(&disk, now)?)
}

/// Random steps, and all that is there at the end.
fn steps(files: &dyn FileSystem, random: &mut Rng) -> Result<Tree, Failed> {
    let mut tree = Tree::new();
    for _ in 0..STEPS {
        let step = Step::random(&tree, random);
        take(files, &mut tree, &step)?;
    }
    same(&all(files)?, &tree)?;
    Ok(tree)
}

/// Each sequence on a new disk.
pub fn sequences(kind: &Writable) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("written")?;
    let image = folder.path.join("image");
    let new = kind.make(&image)?;
    for turn in 0..turns(TURNS, TURNS_DEFAULT) {
        sequence(kind, &folder, &new, SEED + turn)
            .map_err(|error| format!("seed {}: {}", SEED + turn, said(&error)))?;
    }
    Ok(())
}

/// What a failure says.
pub fn said(error: &Failed) -> &str {
    error.message().unwrap_or_default()
}

fn sequence(
    kind: &Writable,
    folder: &TemporaryFolder,
    new: &[u8],
    seed: u64,
) -> Result<(), Failed> {
    let image = folder.path.join("image");
    let disk = Recorded::new(new.to_vec());
    let files = mounted(&disk)?;
    expect(files.is_writable(), || {
        format!("{} is not written", files.name())
    })?;
    let tree = steps(&*files, &mut Rng::with_seed(seed))?;
    files.sync()?;
    fs::write(&image, disk.bytes())?;
    kind.check(&image)?;
    same(
        &kind.read_by_others(&image, &folder.path.join("read"))?,
        &tree,
    )?;
    drop(files);
    // Also who mounts it anew finds it so, writes on, and empties it.
    let files = mounted(&disk)?;
    same(&all(&*files)?, &tree)?;
    for path in tree.keys().rev() {
        files.remove(path.as_bytes())?;
    }
    files.sync()?;
    expect(all(&*files)?.is_empty(), || "something is left".into())?;
    fs::write(&image, disk.bytes())?;
    kind.check(&image)
}

/// The same in memory, where no checker comes.
pub fn in_memory() -> Result<(), Failed> {
    for turn in 0..turns(TURNS, TURNS_DEFAULT) {
        let files = Tmpfs::new(2 << 20, now);
        steps(&files, &mut Rng::with_seed(SEED + turn))?;
    }
    Ok(())
}

/// A disk that is full says so, and has room again once something is removed.
pub fn full(kind: &Writable) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("full")?;
    let image = folder.path.join("image");
    let disk = Recorded::new(kind.make(&image)?);
    let files = mounted(&disk)?;
    let (part, mut end) = (vec![7; 100_000], 0);
    let mut file = files.create(b"/large")?;
    let error = loop {
        match file.write(end, &part) {
            Ok(()) => end += part.len() as u64,
            Err(error) => break error,
        }
    };
    expect(error == Error::NoSpace, || format!("{error:?}"))?;
    expect(end * 10 > disk.bytes().len() as u64 * 8, || {
        format!("{end} bytes")
    })?;
    let removed = files.remove(b"/large");
    expect(removed == Err(Error::Busy), || format!("{removed:?}"))?;
    drop(file);
    files.sync()?;
    fs::write(&image, disk.bytes())?;
    kind.check(&image)?;
    files.remove(b"/large")?;
    files.create(b"/large")?.write(0, &vec![8; end as usize])?;
    files.sync()?;
    fs::write(&image, disk.bytes())?;
    kind.check(&image)
}

/// Files that mke2fs put there, with links of each kind and a folder of many names, are read,
/// changed and removed.
pub fn of_others() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("others")?;
    let (image, root) = (folder.path.join("image"), folder.path.join("root"));
    let many = root.join("many");
    fs::create_dir_all(&many)?;
    for number in 0..NAMES {
        fs::write(
            many.join(format!("a file with the number {number}")),
            b"many",
        )?;
    }
    fs::write(root.join("large"), vec![5; 700_000])?;
    fs::hard_link(root.join("large"), root.join("again"))?;
    symlink("large", root.join("short"))?;
    let long = format!("{}large", "./".repeat(100));
    symlink(long, root.join("long"))?;
    symlink("../many", many.join("around"))?;
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext2", "-b1024", "-d"]);
    run(make.arg(&root).arg(&image).arg("4M"))?.expect_status(0)?;

    let disk = Recorded::new(fs::read(&image)?);
    let files = mounted(&disk)?;
    for path in ["/large", "/again", "/short", "/long"] {
        let found = super::read(&*files, path.as_bytes())?;
        expect(found == vec![5; 700_000], || format!("{path} differs"))?;
    }
    files.rename(b"/again", b"/many/around/moved")?;
    files.open_to_write(b"/long")?.set_len(300_000)?;
    expect(files.metadata(b"/many/moved")?.len == 300_000, || {
        "two files".into()
    })?;
    let checked = |what: &str| {
        files.sync()?;
        fs::write(&image, disk.bytes())?;
        let ended = run(Command::new("e2fsck").arg("-fn").arg(&image))?;
        let checked = ended.expect_status(0).map(drop);
        checked.map_err(|error| Failed::from(format!("{what}: {}", said(&error))))
    };
    checked("moved")?;
    for number in (0..NAMES).step_by(3) {
        files.remove(format!("/many/a file with the number {number}").as_bytes())?;
    }
    for path in ["/long", "/short", "/large", "/many/around"] {
        files.remove(path.as_bytes())?;
    }
    checked("removed")?;
    for number in 0..2 * NAMES {
        files.create(format!("/many/{number}, and it is a new one").as_bytes())?;
    }
    checked("made")
}
