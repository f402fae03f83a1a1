//! Disks that somebody made to do harm: folders that lie in themselves, chains that bite their own
//! tails, files of 2^63 bytes, names of 255 bytes, tables of partitions with anything in them. Who
//! reads them ends, says why, and reads the rest.

use super::made::{self, Kind, Tree};
use super::mutated::mutations;
use super::{expect, mounted, read, turns, walk, written};
use crate::harness::process::run;
use crate::harness::temporary::TemporaryFolder;
use ::fs::disk::Disk;
use ::fs::{mount_to_write, tree};
use device::files::{Error, FileSystem};
use fastrand::Rng;
use libtest_mimic::Failed;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The file that is left alone, and what is in it.
const REST: (&[u8], &[u8]) = (b"/index.html", b"<p>disk");
/// Bytes of a sector of ISO 9660.
const SECTOR: usize = 2048;
/// No single question to a hostile disk takes longer. It judges no speed: an endless loop fails it.
const LONG: Duration = Duration::from_secs(60);

/// An image of a kind, with the usual files.
fn image(kind: &Kind) -> Result<(Tree, Vec<u8>), Failed> {
    let tree = Tree::new()?;
    let place = tree.image("whole");
    kind.make(&tree.root(), &place)?;
    let bytes = fs::read(place)?;
    Ok((tree, bytes))
}

/// The disk is gone through and read to some end, and the rest can be read.
fn ends(bytes: Vec<u8>, says: &str) -> Result<(), Failed> {
    let begin = Instant::now();
    let files = mounted(bytes)?;
    let mut told = Vec::new();
    let walked = tree::check(&*files, &mut |path, error| {
        told.push((path.to_vec(), error))
    });
    let told = format!("{walked:?}, {told:?}");
    expect(told.contains(says), || format!("no {says:?} in {told}"))?;
    expect(read(&*files, REST.0)? == REST.1, || {
        "the rest differs".into()
    })?;
    expect(begin.elapsed() < LONG, || "it took too long".into())
}

/// Where these bytes are, the only ones or the first.
fn place(bytes: &[u8], of: &[u8]) -> Result<usize, Failed> {
    let found = bytes.windows(of.len()).position(|window| window == of);
    found.ok_or_else(|| format!("no {of:?}").into())
}

fn places(bytes: &[u8], of: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(of.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == of);
    found.map(|(at, _)| at).collect()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// Has debugfs change an image.
fn debug(image: &Path, asked: &str) -> Result<(), Failed> {
    let mut command = Command::new("debugfs");
    run(command.args(["-w", "-R", asked]).arg(image))?
        .expect_status(0)
        .map(drop)
}

/// A folder has one of its outer folders in it.
pub fn folders_in_themselves(kind: &Kind) -> Result<(), Failed> {
    let (tree, mut bytes) = image(kind)?;
    if kind.name.starts_with("ext") {
        let image = tree.image("whole");
        debug(&image, "link /deep /deep/er/loop")?;
        bytes = fs::read(image)?;
    } else if kind.name.starts_with("fat") {
        let outer = place(&bytes, b"DEEP       ")?;
        let inner = place(&bytes, b"ER         ")?;
        for field in [20, 26] {
            bytes.copy_within(outer + field..outer + field + 2, inner + field);
        }
    } else {
        // Both trees, if there are two: an extent is there twice, in both orders of bytes.
        let root = bytes[16 * SECTOR + 158..][..8].to_vec();
        let names: [&[u8]; 2] = [b"\x04DEEP", b"\x08\0d\0e\0e\0p"];
        let found: Vec<_> = names.iter().flat_map(|name| places(&bytes, name)).collect();
        for at in found {
            bytes[at - 30..at - 22].copy_from_slice(&root);
        }
    }
    let begin = Instant::now();
    let files = mounted(bytes)?;
    let walked = tree::walk(&*files, |_, _| Ok(()));
    expect(walked.is_err(), || "it has an end".into())?;
    expect(read(&*files, REST.0)? == REST.1, || {
        "the rest differs".into()
    })?;
    expect(begin.elapsed() < LONG, || "it took too long".into())
}

/// A file has more bytes than any disk.
pub fn endless_files(kind: &Kind) -> Result<(), Failed> {
    let (tree, _) = image(kind)?;
    let image = tree.image("whole");
    let size = "sif /deep/er/and/deeper/large.bin size 0x7fffffffffffffff";
    debug(&image, size)?;
    let bytes = fs::read(image)?;
    let begin = Instant::now();
    let disk = super::recorded::Recorded::new(bytes.clone());
    let disk = Disk::new(Box::new(disk), ::fs::disk::BUDGET)?;
    for files in [mounted(bytes)?, mount_to_write(&disk, written::now)?] {
        read_far(&*files)?;
        expect(read(&*files, REST.0)? == REST.1, || {
            "the rest differs".into()
        })?;
    }
    expect(begin.elapsed() < LONG, || "it took too long".into())
}

/// Reads at places of a file that has no end.
fn read_far(files: &dyn FileSystem) -> Result<(), Failed> {
    let path = b"/deep/er/and/deeper/large.bin";
    let mut file = match files.open(path) {
        Ok(file) => file,
        Err(Error::Damaged(_) | Error::TooLarge) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for at in [1 << 40, 1 << 50, (1 << 63) - 5000] {
        match file.read(at, &mut [0; 4096]) {
            Ok(_) | Err(Error::Damaged(_) | Error::TooLarge) => {}
            Err(error) => return Err(format!("from {at} on: {error}").into()),
        }
    }
    Ok(())
}

/// The clusters of a file lead to themselves.
pub fn chains_in_circles(kind: &Kind) -> Result<(), Failed> {
    let (_, mut bytes) = image(kind)?;
    let entry = place(&bytes, b"LARGE   BIN")?;
    let cluster = word(&bytes, entry + 26) as usize & 0xffff;
    let reserved = 512 * (word(&bytes, 14) as usize & 0xffff);
    match kind.name {
        "fat32" => {
            let at = reserved + 4 * cluster;
            bytes[at..at + 4].copy_from_slice(&(cluster as u32).to_le_bytes());
        }
        "fat16" => {
            let at = reserved + 2 * cluster;
            bytes[at..at + 2].copy_from_slice(&(cluster as u16).to_le_bytes());
        }
        _ => {
            // Two entries have three bytes.
            let at = reserved + 3 * cluster / 2;
            let other = word(&bytes, at) as u16;
            let entry = match cluster % 2 {
                0 => other & 0xf000 | cluster as u16,
                _ => other & 0xf | (cluster as u16) << 4,
            };
            bytes[at..at + 2].copy_from_slice(&entry.to_le_bytes());
        }
    }
    ends(bytes, "Damaged")
}

/// What Rock Ridge says of a name goes on where it began (RRIP 4.1, SUSP 5.1: `CE`).
pub fn continued_in_circles(kind: &Kind) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("circles")?;
    let (root, image) = (folder.path.join("root"), folder.path.join("image"));
    fs::create_dir(&root)?;
    fs::write(root.join("index.html"), REST.1)?;
    fs::write(root.join("n".repeat(255)), b"long")?;
    kind.make(&root, &image)?;
    let mut bytes = fs::read(image)?;
    // The root's own record goes on as well, in front of all names.
    let name = place(&bytes, b"NM")?;
    let mut found = places(&bytes, b"CE\x1c\x01");
    found.retain(|at| *at > name);
    expect(!found.is_empty(), || "no name goes on".into())?;
    for at in found {
        let to = [at / SECTOR, at % SECTOR, 28].map(|value| value as u32);
        for (index, value) in to.into_iter().enumerate() {
            let field = at + 4 + 8 * index;
            bytes[field..field + 4].copy_from_slice(&value.to_le_bytes());
            bytes[field + 4..field + 8].copy_from_slice(&value.to_be_bytes());
        }
    }
    ends(bytes, "")
}

/// Names as long as they can be are found, also in folders with such names.
pub fn long_names(kind: &Kind) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("long")?;
    let (root, image) = (folder.path.join("root"), folder.path.join("image"));
    // Joliet has 64 characters of two bytes.
    let length = if kind.name == "joliet" { 64 } else { 255 };
    let name = "n".repeat(length);
    fs::create_dir_all(root.join(&name))?;
    fs::write(root.join("index.html"), REST.1)?;
    fs::write(root.join(&name).join(&name), b"long")?;
    kind.make(&root, &image)?;
    let files = mounted(fs::read(image)?)?;
    let path = format!("/{name}/{name}");
    expect(read(&*files, path.as_bytes())? == b"long", || {
        "it differs".into()
    })?;
    let (found, errors) = walk(&*files, 100);
    let is_listed = found.iter().any(|found| *found == path.as_bytes());
    expect(errors == 0 && is_listed, || format!("{errors}, {found:?}"))?;
    let longer = format!("/{name}n");
    let error = files.metadata(longer.as_bytes()).err();
    expect(matches!(error, Some(Error::NotFound | Error::Path)), || {
        format!("{error:?}")
    })
}

/// Tables of partitions in which bytes were changed end no search.
pub fn tables() -> Result<(), Failed> {
    let (tree, _) = image(&made::KINDS[0])?;
    let (image, disk) = (tree.image("whole"), tree.image("parts"));
    for partition in [made::partitioned, made::in_gpt] {
        partition(&image, &disk)?;
        let bytes = fs::read(&disk)?;
        let mut found = 0;
        for turn in 0..turns(super::mutated::TURNS, super::mutated::TURNS_DEFAULT) {
            let mut random = Rng::with_seed(turn);
            let mut bytes = bytes.clone();
            for _ in 0..random.usize(1..8) {
                // A table, or its copy at the end; most of the first sector's is at its end.
                let end = bytes.len();
                let place = [430..512, 512..34 * 512, end - 33 * 512..end];
                let place = place[random.usize(..3)].clone();
                bytes[random.usize(place)] = random.u8(..);
            }
            if let Ok(files) = mounted(bytes) {
                found += usize::from(walk(&*files, 40).1 == 0);
            }
        }
        expect(found > 0, || "no partition of any disk was found".into())?;
    }
    Ok(())
}

/// Who writes a file system in which bytes were changed ends with an error or without one.
pub fn changes(kind: &Kind) -> Result<(), Failed> {
    let (_, image) = image(kind)?;
    let mut done = 0;
    for turn in 0..turns(super::mutated::TURNS, super::mutated::TURNS_DEFAULT) {
        let bytes = mutations(&image, turn);
        let disk = super::recorded::Recorded::new(bytes);
        let disk = Disk::new(Box::new(disk), 40 * ::fs::disk::PAGE)?;
        if let Ok(files) = mount_to_write(&disk, written::now) {
            done += change(&*files);
        }
    }
    // Not all of it is refused.
    expect(done > 0, || "nothing could be written to any image".into())
}

/// What can be done, and how much of it was.
fn change(files: &dyn FileSystem) -> usize {
    let part = [7; 20_000];
    let done = [
        files.make_folder(b"/new"),
        files
            .create(b"/new/file")
            .and_then(|mut file| file.write(5000, &part)),
        files
            .open_to_write(b"/index.html")
            .and_then(|mut file| file.write(3, &part)),
        files
            .open_to_write(b"/deep/er/and/deeper/large.bin")
            .and_then(|mut file| file.set_len(9)),
        files.rename(b"/deep/er", b"/new/moved"),
        files.rename(b"/a folder/of two pages", b"/index.html"),
        files.remove(b"/empty"),
        files.sync(),
        files.remove(b"/new/moved/and/deeper/large.bin"),
        files
            .create(b"/a folder/another long name, of some length")
            .map(drop),
        files.sync(),
    ];
    done.iter().filter(|done| done.is_ok()).count()
}
