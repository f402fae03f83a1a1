//! `outboard mount`: programs of this machine read and write the file systems that images do.

use crate::disks::made::{MKE2FS, MTOOLS, Tree};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use fastrand::Rng;
use libtest_mimic::{Failed, Trial};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Where the kernel's side is asked for.
const DEVICE: &str = "/dev/fuse";
/// What is done to a file, how long it becomes, and what is read or written of it at once.
const STEPS: usize = 1500;
const FILE_MAX: usize = 300_000;
const PART_MAX: usize = 70_000;
const SEED: u64 = 23;

/// A disk that is exercised.
struct Kind {
    name: &'static str,
    programs: &'static [&'static str],
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "ext2",
        programs: MKE2FS,
        make: &["mke2fs", "-q", "-t", "ext2", "-b1024"],
        check: &["e2fsck", "-fn"],
    },
    Kind {
        name: "vfat",
        programs: MTOOLS,
        make: &["mkfs.vfat", "-F16"],
        check: &["fsck.fat", "-n"],
    },
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, programs, test: fn(&Images, &Kind) -> Result<(), Failed>, kind| {
        let missing = programs::missing(programs).or_else(cannot);
        let test = move || alone(|| test(images, kind));
        trials.push(network.trial_unless(missing, name, test));
    };
    for kind in &KINDS {
        let name = format!("mount: {} holds what was written through it", kind.name);
        add(name, kind.programs, exercise, kind);
        let name = format!("mount: {} has names as programs want them", kind.name);
        add(name, kind.programs, names, kind);
    }
    add(
        "mount: a program has it for as long as it runs".into(),
        MKE2FS,
        around,
        &KINDS[0],
    );
    trials
}

/// Why nothing can be mounted here, if so.
pub fn cannot() -> Option<&'static str> {
    let opened = File::options().read(true).write(true).open(DEVICE);
    opened.err().map(|_| "needs /dev/fuse: sudo modprobe fuse")
}

/// Runs a test where others do not see what it mounts.
fn alone(test: impl FnOnce() -> Result<(), Failed> + Send) -> Result<(), Failed> {
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            linux::mounts::unshare_mounts()?;
            test()
        });
        run.join().unwrap_or_else(|_| Err("it panicked".into()))
    })
}

/// A disk, and the folder on which it is mounted.
struct Mounted {
    temporary: TemporaryFolder,
    running: Running,
}

impl Mounted {
    fn new(images: &Images, kind: &Kind) -> Result<Self, Failed> {
        let temporary = TemporaryFolder::new("mount")?;
        let image = temporary.path.join("image");
        File::create(&image)?.set_len(16 << 20)?;
        run(command(kind.make).arg(&image))?.expect_status(0)?;
        fs::create_dir(temporary.path.join("on"))?;
        let mut mount = Command::new(images.program("outboard"));
        mount
            .arg("mount")
            .arg(&image)
            .arg(temporary.path.join("on"));
        let running = start(&mut mount)?;
        running.wait_for(&format!(": {}\n", kind.name))?;
        Ok(Self { temporary, running })
    }

    fn folder(&self) -> PathBuf {
        self.temporary.path.join("on")
    }

    /// Unmounts it, and has a stock program check it.
    fn end(self, kind: &Kind) -> Result<TemporaryFolder, Failed> {
        run(Command::new("umount").arg(self.folder()))?.expect_status(0)?;
        self.running.finish()?.expect_status(0)?;
        let image = self.temporary.path.join("image");
        run(command(kind.check).arg(image))?.expect_status(0)?;
        Ok(self.temporary)
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    match holds {
        true => Ok(()),
        false => Err(what().into()),
    }
}

/// Random reads, writes and lengths of a file agree with the same done in memory, whether or not it
/// was closed in between; what is there at the end is there when it is mounted again.
fn exercise(images: &Images, kind: &Kind) -> Result<(), Failed> {
    let mounted = Mounted::new(images, kind)?;
    let path = mounted.folder().join("exercised");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let (mut file, mut model) = (options.open(&path)?, Vec::new());
    let mut random = Rng::with_seed(SEED);
    for step in 0..STEPS {
        let (at, len) = (random.usize(..FILE_MAX), random.usize(1..PART_MAX));
        match random.u32(..100) {
            0..45 => {
                let mut part = vec![0; len.min(FILE_MAX - at)];
                random.fill(&mut part);
                file.write_all_at(&part, at as u64)?;
                model.resize(model.len().max(at + part.len()), 0);
                model[at..at + part.len()].copy_from_slice(&part);
            }
            45..80 => {
                let mut found = vec![0; len];
                let count = file.read_at(&mut found, at as u64)?;
                let there = &model[at.min(model.len())..(at + len).min(model.len())];
                expect(found[..count] == *there, || {
                    format!("step {step}: from {at} on")
                })?;
            }
            80..90 => {
                file.set_len(at as u64)?;
                model.resize(at, 0);
            }
            90..95 => {
                drop(file);
                file = options.open(&path)?;
            }
            95..98 => file.sync_all()?,
            _ => expect(file.metadata()?.len() == model.len() as u64, || {
                format!("step {step}: another length")
            })?,
        }
    }
    drop(file);
    expect(fs::read(&path)? == model, || "it differs".into())?;
    let temporary = mounted.end(kind)?;
    again(images, &temporary, |folder| {
        let same = fs::read(folder.join("exercised"))? == model;
        expect(same, || "it differs, mounted again".into())
    })
}

/// Mounts a disk once more, only to be read.
fn again(
    images: &Images,
    temporary: &TemporaryFolder,
    look: impl FnOnce(&Path) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (image, folder) = (temporary.path.join("image"), temporary.path.join("on"));
    let mut mount = Command::new(images.program("outboard"));
    let running = start(mount.args(["mount", "--read-only"]).arg(image).arg(&folder))?;
    running.wait_for(", to read\n")?;
    look(&folder)?;
    let refused = File::create(folder.join("new")).map_err(|error| error.kind());
    let is_refused = refused.as_ref().err() == Some(&ErrorKind::ReadOnlyFilesystem);
    expect(is_refused, || format!("{refused:?}"))?;
    run(Command::new("umount").arg(folder))?.expect_status(0)?;
    running.finish()?.expect_status(0).map(drop)
}

/// Names are made, moved over each other and removed, also of files that are open; what cannot be
/// done says why.
fn names(images: &Images, kind: &Kind) -> Result<(), Failed> {
    let mounted = Mounted::new(images, kind)?;
    let at = |name: &str| mounted.folder().join(name);
    fs::create_dir_all(at("a/b/c"))?;
    fs::write(at("a/b/file"), b"old")?;
    let open = File::open(at("a/b/file"))?;
    fs::write(at("other"), b"new")?;
    fs::rename(at("other"), at("a/b/file"))?;
    let mut found = [0; 3];
    open.read_exact_at(&mut found, 0)?;
    expect(found == *b"old", || "what is open is another file's".into())?;
    expect(fs::read(at("a/b/file"))? == b"new", || {
        "it is the old one".into()
    })?;
    let kept = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at("a/b/file"))?;
    fs::remove_file(at("a/b/file"))?;
    kept.write_all_at(b"more", 3)?;
    expect(kept.metadata()?.len() == 7, || {
        "a removed file has another length".into()
    })?;
    let listed: Vec<_> = fs::read_dir(at("a/b"))?
        .map(|entry| entry.map(|e| e.file_name()))
        .collect();
    expect(listed.len() == 1, || format!("{listed:?}"))?;
    drop((open, kept));
    let long = "n".repeat(256);
    for (done, why) in [
        (fs::remove_dir(at("a")), ErrorKind::DirectoryNotEmpty),
        (fs::remove_file(at("none")), ErrorKind::NotFound),
        (fs::create_dir(at("a")), ErrorKind::AlreadyExists),
        (fs::rename(at("a"), at("a/b/c/d")), ErrorKind::InvalidInput),
        (fs::write(at(&long), b""), ErrorKind::InvalidFilename),
        (
            fs::hard_link(at("a"), at("link")),
            ErrorKind::PermissionDenied,
        ),
    ] {
        let is_so = done.as_ref().err().map(std::io::Error::kind) == Some(why);
        expect(is_so, || format!("{done:?}, not {why}"))?;
    }
    fs::rename(at("a/b"), at("moved"))?;
    fs::write(at(&format!("moved/{}", &long[1..])), b"long")?;
    fs::remove_dir_all(at("moved"))?;
    fs::remove_dir(at("a"))?;
    let left: Result<Vec<_>, _> = fs::read_dir(mounted.folder())?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect();
    let left = left?;
    let found = usize::from(kind.name == "ext2");
    expect(left.len() == found, || format!("{left:?}"))?;
    mounted.end(kind).map(drop)
}

/// The program reads what mke2fs packed; its exit status is the command's, and the folder is empty
/// again behind it.
fn around(images: &Images, _: &Kind) -> Result<(), Failed> {
    let tree = Tree::new()?;
    let (image, folder) = (tree.image("image"), tree.image("on"));
    crate::disks::made::KINDS[2].make(&tree.root(), &image)?;
    fs::create_dir(&folder)?;
    let mut mount = Command::new(images.program("outboard"));
    mount
        .arg("mount")
        .args([&image, &folder])
        .args(["--", "sh", "-c"]);
    mount.arg("rmdir \"$0\"/lost+found; diff -r \"$0\" \"$1\"; exit $(($? + 40))");
    let ended = run(mount.arg(&folder).arg(tree.root()))?;
    // lost+found stays: ext4 is read alone.
    let ended = ended.expect_status(41)?;
    ended.expect_stdout(": lost+found\n")?;
    expect(ended.stdout.lines().count() == 1, || ended.stdout.clone())?;
    expect(fs::read_dir(&folder)?.next().is_none(), || {
        "it is mounted".into()
    })
}
