//! Files of an image beside those of Linux and of stock programs, from the same image.
//!
//! | contender | what it is |
//! |---|---|
//! | `outboard` | the crates that an appliance links, over `pread` |
//! | `ext4-view` | what an appliance links for an ext4 whose journal holds something |
//! | `linux` | the kernel's file system, on a loop device, where the kernel has it |
//! | `mtools`, `xorriso` | stock programs that read such an image without a kernel |
//!
//! FAT's image is written by those crates as well, and checked by fsck.fat; the others are made by
//! stock programs.
//!
//! Each turn begins with an empty cache of pages, and with an image that the host has in memory.
//! CPU time is that of the process that reads. What the kernel does for a loop device in threads of
//! its own is not in it, which is to Linux's advantage.

use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::Error;
use ::mount::disk::HostDisk;
use device::files::{FileSystem, Kind as Of};
use fs::disk::{BUDGET, Disk};
use fs::{mount, mount_to_write, tree};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::stats::turns;

/// Bytes of the large file, and how many are read at once.
const LARGE: usize = 256 << 20;
const PART: usize = 64 << 10;
/// Folders of small files, files of each, and bytes of a file.
const SMALL: (usize, usize, usize) = (10, 1000, 4096);
/// Folders of the tree that is walked, and files of each, which are empty.
const TREE: (usize, usize) = (1000, 100);
/// Turns of each contender.
pub const ROUNDS: usize = 5;
/// The same for a glance.
pub const ROUNDS_QUICK: usize = 1;

const OURS: &str = "outboard";
const VIEW: &str = "ext4-view";
const LINUX: &str = "linux";
const MTOOLS: &str = "mtools";
const XORRISO: &str = "xorriso";

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Load {
    /// The large file, from its beginning to its end
    Large,
    /// What is known of each file of the tree
    Walk,
    /// Each small file
    Small,
}

impl Load {
    const ALL: [Self; 3] = [Self::Large, Self::Walk, Self::Small];

    /// How much it is, in what is counted: MB, or files.
    fn amount(self) -> f64 {
        match self {
            Self::Large => LARGE as f64 / 1e6,
            Self::Walk => (TREE.0 * TREE.1) as f64,
            Self::Small => (SMALL.0 * SMALL.1) as f64,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Walk => "walk",
            Self::Small => "small",
        }
    }
}

/// A file system: its name, who else reads it, and what is measured of each load: how much in a
/// second, and in a second of CPU time.
struct Kind {
    name: &'static str,
    others: &'static [&'static str],
    make: fn(&Path, &Path) -> io::Result<()>,
    measures: [(Measure, Measure); 3],
}

macro_rules! kind {
    ($name:literal, $make:expr, $others:expr) => {
        Kind {
            name: $name,
            others: $others,
            make: $make,
            measures: [
                (
                    Measure::new(concat!($name, ": large file"), "MB/s"),
                    Measure::new(concat!($name, ": large file"), "MB/CPU s"),
                ),
                (
                    Measure::new(concat!($name, ": walk"), "files/s"),
                    Measure::new(concat!($name, ": walk"), "files/CPU s"),
                ),
                (
                    Measure::new(concat!($name, ": small files"), "files/s"),
                    Measure::new(concat!($name, ": small files"), "files/CPU s"),
                ),
            ],
        }
    };
}

const KINDS: [Kind; 4] = [
    kind!("ext2", |from, to| ext("ext2", from, to), &[LINUX]),
    kind!("ext4", |from, to| ext("ext4", from, to), &[LINUX, VIEW]),
    kind!("vfat", fat, &[LINUX, MTOOLS]),
    kind!("iso9660", iso, &[LINUX, XORRISO]),
];

/// What is measured, in the order of the report.
pub const ALL: [Measure; 24] = all();
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [
    ("ext4-large", KINDS[1].measures[0].0),
    ("ext4-walk", KINDS[1].measures[1].0),
    ("ext4-small", KINDS[1].measures[2].0),
];
/// What was promised: of what this kernel reads itself, and of what others read without it.
pub const PROMISES: [Promise; 24] = promises();

const fn all() -> [Measure; 24] {
    let mut all = [KINDS[0].measures[0].0; 24];
    let mut at = 0;
    while at < 12 {
        let (wall, cpu) = KINDS[at / 3].measures[at % 3];
        all[2 * at] = wall;
        all[2 * at + 1] = cpu;
        at += 1;
    }
    all
}

const fn promises() -> [Promise; 24] {
    let all = all();
    let mut promises = [Promise {
        measure: all[0],
        contender: OURS,
        baseline: Some(LINUX),
        bound: Bound::AtLeast(0.8),
    }; 24];
    let mut at = 0;
    while at < 24 {
        promises[at].measure = all[at];
        promises[at].baseline = Some(match at / 6 {
            0 | 1 => LINUX,
            2 => MTOOLS,
            _ => XORRISO,
        });
        at += 1;
    }
    promises
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This program, which reads as a process of its own.
    pub own: PathBuf,
    /// A folder for images, which must not exist.
    pub folder: PathBuf,
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed.
pub fn measure(rounds: usize, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let failed = |error| Error::File(programs.folder.clone(), error);
    let root = programs.folder.join("root");
    say("writing 110,001 files");
    write_tree(&root).map_err(failed)?;
    let mut samples = Samples::default();
    for kind in &KINDS {
        say(&format!("{}: making the image", kind.name));
        let image = programs.folder.join(kind.name);
        (kind.make)(&root, &image).map_err(failed)?;
        let contenders: Vec<&'static str> = [OURS]
            .into_iter()
            .chain(kind.others.iter().copied())
            .filter(|name| !matches!(*name, LINUX | VIEW) || linux_has(kind.name))
            .collect();
        for (round, index) in turns(contenders.len(), rounds) {
            let name = contenders[index];
            say(&format!(
                "{}, round {} of {rounds}: {name}",
                kind.name,
                round + 1
            ));
            for (load, (wall, cpu)) in Load::ALL.into_iter().zip(kind.measures) {
                let taken = turn(programs, kind, name, load, &image);
                let taken = taken.map_err(|error| Error::Measure(name, wall, error))?;
                samples.add(wall, name, round, load.amount() / taken.wall.as_secs_f64());
                samples.add(cpu, name, round, load.amount() / taken.cpu.as_secs_f64());
            }
        }
        std::fs::remove_file(&image).map_err(failed)?;
    }
    Ok(samples)
}

fn write_tree(root: &Path) -> io::Result<()> {
    std::fs::create_dir_all(root)?;
    let pattern: Vec<u8> = (0..LARGE).map(|at| (at >> 9) as u8).collect();
    std::fs::write(root.join("large"), &pattern)?;
    for folder in 0..SMALL.0 {
        let folder = root.join(format!("small/folder-{folder}"));
        std::fs::create_dir_all(&folder)?;
        for file in 0..SMALL.1 {
            let name = folder.join(format!("a small file, number {file}.txt"));
            std::fs::write(name, &pattern[file..file + SMALL.2])?;
        }
    }
    for folder in 0..TREE.0 {
        let folder = root.join(format!("tree/folder-{folder}"));
        std::fs::create_dir_all(&folder)?;
        for file in 0..TREE.1 {
            File::create(folder.join(format!("file-{file}.json")))?;
        }
    }
    Ok(())
}

/// Runs a command that ends well, or says what it said.
pub(crate) fn ended(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{command:?}: {}: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

fn ext(name: &str, from: &Path, to: &Path) -> io::Result<()> {
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-b4096", "-N130000", "-t", name, "-d"]);
    ended(make.arg(from).arg(to).arg("600M"))
}

/// The same ext4 as a power cut leaves it, with a change that is in the journal alone.
fn with_journal(image: &Path, folder: &Path) -> io::Result<PathBuf> {
    let [live, cut] = ["live", "cut"].map(|name| image.with_extension(name));
    if cut.exists() {
        return Ok(cut);
    }
    std::fs::copy(image, &live)?;
    mounted(&live, folder, "loop,noatime", "ext4")?;
    let copied = changed(folder).and_then(|()| std::fs::copy(&live, &cut));
    ended(Command::new("umount").arg(folder))?;
    copied?;
    std::fs::remove_file(live)?;
    Ok(cut)
}

fn changed(folder: &Path) -> io::Result<()> {
    File::create(folder.join("changed"))?.sync_all()
}

fn mounted(image: &Path, folder: &Path, options: &str, kind: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut mount = Command::new("mount");
    mount.args(["-o", options, "-t", kind]);
    ended(mount.arg(image).arg(folder))
}

/// Written by what an appliance links, since mcopy takes many minutes for as many files, and
/// checked by fsck.fat.
fn fat(from: &Path, to: &Path) -> io::Result<()> {
    let mut make = Command::new("mkfs.vfat");
    ended(make.args(["-C", "-F32", "-s8"]).arg(to).arg("1000000"))?;
    let disk = Disk::new(Box::new(HostDisk::open(to)?), BUDGET).map_err(io::Error::other)?;
    let files = mount_to_write(&disk, || 0).map_err(io::Error::other)?;
    copy_to(&*files, from, &[])?;
    files.sync().map_err(io::Error::other)?;
    drop((files, disk));
    ended(Command::new("fsck.fat").arg("-n").arg(to))
}

/// Copies what is in a folder of the host.
fn copy_to(files: &dyn FileSystem, from: &Path, to: &[u8]) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let path = [to, b"/", entry.file_name().as_encoded_bytes()].concat();
        if entry.file_type()?.is_dir() {
            files.make_folder(&path).map_err(io::Error::other)?;
            copy_to(files, &entry.path(), &path)?;
        } else {
            let mut file = files.create(&path).map_err(io::Error::other)?;
            let bytes = std::fs::read(entry.path())?;
            file.write(0, &bytes).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn iso(from: &Path, to: &Path) -> io::Result<()> {
    let mut make = Command::new("xorriso");
    make.args(["-as", "mkisofs", "-quiet", "-R", "-o"]);
    ended(make.arg(to).arg(from))
}

/// Whether the kernel has such a file system.
fn linux_has(name: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = known.lines().any(|line| line.trim() == name);
    known || ended(Command::new("modprobe").arg(name)).is_ok()
}

/// What a load took.
struct Taken {
    wall: Duration,
    cpu: Duration,
}

fn turn(
    programs: &Programs,
    kind: &Kind,
    name: &str,
    load: Load,
    image: &Path,
) -> io::Result<Taken> {
    let folder = programs.folder.join("on");
    let image = match name {
        VIEW => &with_journal(image, &folder)?,
        _ => image,
    };
    // The host has it in memory.
    io::copy(&mut File::open(image)?, &mut io::sink())?;
    if name == LINUX {
        mounted(image, &folder, "loop,ro,noatime", kind.name)?;
    }
    let mut command = Command::new(&programs.own);
    command.args(["read-files", name, load.word()]);
    let output = command.arg(image).arg(&folder).output();
    if name == LINUX {
        ended(Command::new("umount").arg(&folder))?;
    }
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut figures = said.split_whitespace().filter_map(|word| word.parse().ok());
    match (figures.next(), figures.next()) {
        (Some(wall), Some(cpu)) if output.status.success() => Ok(Taken {
            wall: Duration::from_nanos(wall),
            cpu: Duration::from_nanos(cpu),
        }),
        _ => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

/// Reads files as this contender does, and prints how many nanoseconds that took, and of CPU time.
///
/// # Errors
/// Not all is there, or cannot be read.
pub fn read(contender: &str, load: Load, image: &Path, folder: &Path) -> io::Result<()> {
    let (begin, cpu) = (Instant::now(), cpu_time()?);
    match contender {
        OURS | VIEW => read_by_us(load, image)?,
        LINUX => read_by_linux(load, folder)?,
        MTOOLS => read_by_mtools(load, image)?,
        XORRISO => read_by_xorriso(load, image, folder)?,
        _ => return Err(io::Error::other("no such contender")),
    }
    println!(
        "{} {}",
        begin.elapsed().as_nanos(),
        (cpu_time()? - cpu).as_nanos()
    );
    Ok(())
}

/// CPU time of this process, and of those that it waited for.
fn cpu_time() -> io::Result<Duration> {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
    // Fields 16 and 17 (proc(5)), in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(own + Duration::from_millis(10 * ticks))
}

/// Whether as much was there as was written.
fn all_of(load: Load, found: u64) -> io::Result<()> {
    let expected = match load {
        Load::Large => LARGE,
        Load::Walk => TREE.0 * TREE.1,
        Load::Small => SMALL.0 * SMALL.1 * SMALL.2,
    };
    match found == expected as u64 {
        true => Ok(()),
        false => Err(io::Error::other(format!("{found}, not {expected}"))),
    }
}

fn read_by_us(load: Load, image: &Path) -> io::Result<()> {
    let is_ext2 = image.ends_with("ext2");
    let disk: Box<dyn device::BlockDevice> = match is_ext2 {
        true => Box::new(HostDisk::open(image)?),
        false => Box::new(HostDisk::open_to_read(image)?),
    };
    let disk = Disk::new(disk, BUDGET).map_err(io::Error::other)?;
    let files = match is_ext2 {
        true => mount_to_write(&disk, || 0),
        false => mount(&disk),
    };
    let files = files.map_err(io::Error::other)?;
    match load {
        Load::Large => all_of(load, read_file(&*files, b"/large")?),
        Load::Walk => {
            let mut found = 0;
            walk_by_us(&*files, b"/tree", &mut |path| {
                let metadata = files.metadata(path).map_err(io::Error::other)?;
                found += u64::from(metadata.kind == Of::File);
                Ok(())
            })?;
            all_of(load, found)
        }
        Load::Small => {
            let mut found = 0;
            walk_by_us(&*files, b"/small", &mut |path| {
                found += read_file(&*files, path)?;
                Ok(())
            })?;
            all_of(load, found)
        }
    }
}

/// All files of the folders of a folder.
fn walk_by_us(
    files: &dyn FileSystem,
    folder: &[u8],
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for folder in listed(files, folder)? {
        for file in listed(files, &folder)? {
            each(&file)?;
        }
    }
    Ok(())
}

fn listed(files: &dyn FileSystem, folder: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    let listed = files.list(folder, &mut |entry| {
        paths.push([folder, b"/", &entry.name].concat());
        true
    });
    listed.map(|()| paths).map_err(io::Error::other)
}

fn read_file(files: &dyn FileSystem, path: &[u8]) -> io::Result<u64> {
    let mut file = files.open(path).map_err(io::Error::other)?;
    let read = tree::read(&mut *file, PART, |_, _| Ok(true));
    read.map_err(io::Error::other)
}

fn read_by_linux(load: Load, folder: &Path) -> io::Result<()> {
    let read = |path: &Path| -> io::Result<u64> {
        let (mut file, mut part, mut all) = (File::open(path)?, vec![0; PART], 0);
        loop {
            match file.read(&mut part)? {
                0 => return Ok(all),
                count => all += count as u64,
            }
        }
    };
    match load {
        Load::Large => all_of(load, read(&folder.join("large"))?),
        Load::Walk => {
            let mut found = 0;
            walk_by_linux(&folder.join("tree"), &mut |path| {
                found += u64::from(std::fs::metadata(path)?.is_file());
                Ok(())
            })?;
            all_of(load, found)
        }
        Load::Small => {
            let mut found = 0;
            walk_by_linux(&folder.join("small"), &mut |path| {
                found += read(path)?;
                Ok(())
            })?;
            all_of(load, found)
        }
    }
}

fn walk_by_linux(folder: &Path, each: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    for folder in std::fs::read_dir(folder)? {
        for file in std::fs::read_dir(folder?.path())? {
            each(&file?.path())?;
        }
    }
    Ok(())
}

/// What a program prints, and whether it ends well.
fn printed(command: &mut Command, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut part = vec![0; PART];
    if let Some(stdout) = &mut child.stdout {
        loop {
            match stdout.read(&mut part)? {
                0 => break,
                count => each(&part[..count]),
            }
        }
    }
    match child.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("it failed")),
    }
}

fn read_by_mtools(load: Load, image: &Path) -> io::Result<()> {
    let mut found = 0;
    let command = |program: &str| {
        let mut command = Command::new(program);
        command.arg("-i").arg(image);
        command
    };
    match load {
        Load::Walk => {
            let mut names = Vec::new();
            let mut walk = command("mdir");
            walk.args(["-/", "-b", "::/tree"]);
            printed(&mut walk, |part| names.extend_from_slice(part))?;
            let files = names.split(|byte| *byte == b'\n');
            found = files.filter(|name| name.ends_with(b".json")).count() as u64;
        }
        Load::Large => {
            let mut copy = command("mcopy");
            copy.args(["::/large", "-"]);
            printed(&mut copy, |part| found += part.len() as u64)?;
        }
        Load::Small => {
            // It takes one pattern.
            for folder in 0..SMALL.0 {
                let mut copy = command("mtype");
                copy.arg(format!("::/small/folder-{folder}/*"));
                printed(&mut copy, |part| found += part.len() as u64)?;
            }
        }
    }
    all_of(load, found)
}

/// It extracts to files, which is more work.
fn read_by_xorriso(load: Load, image: &Path, folder: &Path) -> io::Result<()> {
    let to = folder.with_file_name("extracted");
    let mut command = Command::new("xorriso");
    command.args(["-osirrox", "on", "-indev"]).arg(image);
    match load {
        Load::Walk => {
            let mut found = 0;
            command.args(["-find", "/tree", "-type", "f", "-exec", "lsdl"]);
            printed(command.stderr(Stdio::null()), |part| {
                found += part.iter().filter(|byte| **byte == b'\n').count() as u64;
            })?;
            return all_of(load, found);
        }
        Load::Large => command.args(["-extract", "/large"]).arg(&to),
        Load::Small => command.args(["-extract", "/small"]).arg(&to),
    };
    ended(&mut command)?;
    match load {
        Load::Large => std::fs::remove_file(&to),
        _ => ended(Command::new("rm").arg("-rf").arg(&to)),
    }
}
