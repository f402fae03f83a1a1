//! File systems that are written: who makes them, checks them, and reads them, of stock programs.

use super::made::{MKE2FS, MTOOLS};
use super::sequence::Tree;
use crate::harness::process::{Ended, run};
use libtest_mimic::Failed;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What fsck.fat says of copies of the table that differ, and otherwise are right.
const COPIES: &str = "FATs differ but appear to be intact.";
/// How often a checker may mend.
const MENDS_MAX: usize = 4;

/// A kind of file system that is written.
pub struct Writable {
    pub name: &'static str,
    pub programs: &'static [&'static str],
    /// What makes it, without the image's name.
    make: &'static [&'static str],
    /// Its size.
    kibibytes: u64,
    /// What checks it and changes nothing, and what mends it.
    check: &'static [&'static str],
    mend: &'static [&'static str],
    /// Reads all of it to a folder.
    read: fn(&Path, &Path) -> Result<Ended, Failed>,
    /// Whether the disk says if it was left clean.
    pub says_clean: bool,
    /// Whether what is renamed has one of its names at any time.
    pub renames_safely: bool,
}

const EXT2: Writable = Writable {
    name: "ext2",
    programs: MKE2FS,
    make: &[],
    kibibytes: 4096,
    check: &["e2fsck", "-fn"],
    mend: &["e2fsck", "-fy"],
    read: dump,
    says_clean: true,
    renames_safely: true,
};
const FAT: Writable = Writable {
    name: "fat",
    programs: MTOOLS,
    make: &[],
    kibibytes: 4096,
    check: &["fsck.fat", "-n"],
    mend: &["fsck.fat", "-a", "-w"],
    read: copy,
    says_clean: true,
    renames_safely: false,
};

/// All of them.
pub const WRITABLES: [Writable; 6] = [
    Writable {
        name: "ext2, blocks of 1 KiB",
        make: &["mke2fs", "-q", "-t", "ext2", "-b1024", "-N256"],
        kibibytes: 3072,
        ..EXT2
    },
    Writable {
        name: "ext2, blocks of 4 KiB, groups",
        make: &[
            "mke2fs",
            "-q",
            "-t",
            "ext2",
            "-b4096",
            "-g512",
            "-N512",
            "-O^resize_inode",
        ],
        kibibytes: 8192,
        ..EXT2
    },
    Writable {
        name: "ext2, as it was at first",
        make: &[
            "mke2fs", "-q", "-t", "ext2", "-r0", "-b1024", "-N256", "-Onone",
        ],
        ..EXT2
    },
    Writable {
        name: "fat12",
        make: &["mkfs.vfat", "-F12", "-s4"],
        says_clean: false,
        ..FAT
    },
    Writable {
        name: "fat16",
        make: &["mkfs.vfat", "-F16", "-s1"],
        ..FAT
    },
    Writable {
        name: "fat32",
        make: &["mkfs.vfat", "-F32", "-s1"],
        kibibytes: 34816,
        ..FAT
    },
];

impl Writable {
    /// An empty one.
    pub fn make(&self, image: &Path) -> Result<Vec<u8>, Failed> {
        fs::File::create(image)?.set_len(self.kibibytes * 1024)?;
        run(command(self.make).arg(image))?.expect_status(0)?;
        Ok(fs::read(image)?)
    }

    /// Fails unless nothing is wrong with it.
    pub fn check(&self, image: &Path) -> Result<(), Failed> {
        run(command(self.check).arg(image))?
            .expect_status(0)
            .map(drop)
    }

    /// Fails unless nothing is wrong with it but what the cut itself left: the copies of the table
    /// of FAT say one after the other that it is clean.
    pub fn check_clean(&self, image: &Path) -> Result<(), Failed> {
        let ended = run(command(self.check).arg(image))?;
        let lines: Vec<&str> = ended.stdout.lines().collect();
        match lines[..] {
            [_, COPIES, _, "", _, _] if ended.status == 1 => Ok(()),
            _ => ended.expect_status(0).map(drop),
        }
    }

    /// Has a checker mend it until nothing is wrong with it: what it mended may show it more.
    pub fn mend(&self, image: &Path) -> Result<(), Failed> {
        for _ in 0..MENDS_MAX {
            let ended = run(command(self.mend).arg(image))?;
            match ended.status {
                0 => break,
                1 => {}
                _ => drop(ended.expect_status(0)?),
            }
        }
        self.check(image)
    }

    /// What somebody else reads.
    pub fn read_by_others(&self, image: &Path, folder: &Path) -> Result<Tree, Failed> {
        fs::create_dir(folder)?;
        (self.read)(image, folder)?.expect_status(0)?;
        let mut tree = Tree::new();
        gather(folder, "", &mut tree)?;
        fs::remove_dir_all(folder)?;
        tree.remove("/lost+found");
        Ok(tree)
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn dump(image: &Path, folder: &Path) -> Result<Ended, Failed> {
    let mut command = Command::new("debugfs");
    command.arg("-R");
    command.arg(format!("rdump / {}", folder.display()));
    run(command.arg(image))
}

fn copy(image: &Path, folder: &Path) -> Result<Ended, Failed> {
    let mut command = Command::new("mcopy");
    command.env("LC_ALL", "C.UTF-8");
    command.args(["-s", "-n", "-Q", "-i"]).arg(image);
    run(command.arg("::/").arg(folder))
}

fn gather(folder: &Path, path: &str, tree: &mut Tree) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string();
        let path = format!("{path}/{}", name.map_err(|name| format!("{name:?}"))?);
        let is_folder = entry.file_type()?.is_dir();
        let bytes = match is_folder {
            true => None,
            false => Some(fs::read(entry.path())?),
        };
        tree.insert(path.clone(), bytes);
        if is_folder {
            gather(&entry.path(), &path, tree)?;
        }
    }
    Ok(())
}
