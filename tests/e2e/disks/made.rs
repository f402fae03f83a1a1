//! Disks that others make: stock programs, from a folder.

use crate::harness::process::run;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::Failed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of file system.
pub struct Kind {
    /// As Linux calls it.
    pub name: &'static str,
    /// What makes it.
    pub programs: &'static [&'static str],
    /// Packs a folder.
    make: fn(&Kind, &Path, &Path) -> Result<(), Failed>,
    /// A word of the command line.
    word: &'static str,
    /// Whether it can be written.
    pub is_written: bool,
}

pub const MKE2FS: &[&str] = &["mke2fs"];
pub const MTOOLS: &[&str] = &["mkfs.vfat", "mcopy"];
const XORRISO: &[&str] = &["xorriso"];
/// How large a disk with ext is.
const EXT_SIZE: &str = "16M";

/// All that are read.
pub const KINDS: [Kind; 8] = [
    Kind {
        name: "ext2",
        programs: MKE2FS,
        make: ext,
        word: "-O^dir_index",
        is_written: true,
    },
    Kind {
        name: "ext3",
        programs: MKE2FS,
        make: ext,
        word: "-b1024",
        is_written: false,
    },
    Kind {
        name: "ext4",
        programs: MKE2FS,
        make: ext,
        word: "-Ometadata_csum",
        is_written: false,
    },
    Kind {
        name: "fat12",
        programs: MTOOLS,
        make: fat,
        word: "8000",
        is_written: true,
    },
    Kind {
        name: "fat16",
        programs: MTOOLS,
        make: fat,
        word: "20000",
        is_written: true,
    },
    Kind {
        name: "fat32",
        programs: MTOOLS,
        make: fat,
        word: "80000",
        is_written: true,
    },
    Kind {
        name: "rock ridge",
        programs: XORRISO,
        make: iso,
        word: "-R",
        is_written: false,
    },
    Kind {
        name: "joliet",
        programs: XORRISO,
        make: iso,
        word: "-J",
        is_written: false,
    },
];

impl Kind {
    /// Packs a folder to a new file.
    pub fn make(&self, folder: &Path, image: &Path) -> Result<(), Failed> {
        (self.make)(self, folder, image)
    }

    /// Makes one without files in a new file.
    ///
    /// # Errors
    /// There is no such thing, or its program fails.
    pub fn make_empty(&self, image: &Path) -> Result<(), Failed> {
        let ended = match self.programs {
            MKE2FS => run(self.mke2fs().arg(image).arg(EXT_SIZE)),
            MTOOLS => {
                let mut make = Command::new("mkfs.vfat");
                make.args(["-C", "-F", &self.name[3..]]);
                run(make.arg(image).arg(self.word))
            }
            _ => return Err(format!("{}: it is never empty", self.name).into()),
        };
        ended?.expect_status(0).map(drop)
    }

    fn mke2fs(&self) -> Command {
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-t", self.name, self.word]);
        make
    }
}

fn ext(kind: &Kind, folder: &Path, image: &Path) -> Result<(), Failed> {
    let mut command = kind.mke2fs();
    command.arg("-d").arg(folder).arg(image).arg(EXT_SIZE);
    run(&mut command)?.expect_status(0).map(drop)
}

fn fat(kind: &Kind, folder: &Path, image: &Path) -> Result<(), Failed> {
    kind.make_empty(image)?;
    let mut copy = Command::new("mcopy");
    copy.args(["-s", "-m", "-i"]).arg(image);
    for entry in fs::read_dir(folder)? {
        copy.arg(entry?.path());
    }
    run(copy.arg("::"))?.expect_status(0).map(drop)
}

fn iso(kind: &Kind, folder: &Path, image: &Path) -> Result<(), Failed> {
    let mut command = Command::new("xorriso");
    command.args(["-as", "mkisofs", "-quiet", kind.word, "-o"]);
    run(command.arg(image).arg(folder))?
        .expect_status(0)
        .map(drop)
}

/// Bytes before the first partition.
const FIRST: usize = 1 << 20;
/// A sector.
const SECTOR: usize = 512;

/// Puts a file system into the second partition of a disk with a master boot record; the first one
/// is empty (UEFI specification, 5.2.1).
pub fn partitioned(image: &Path, disk: &Path) -> Result<(), Failed> {
    let held = fs::read(image)?;
    let mut bytes = vec![0; 2 * FIRST + held.len()];
    let sectors = |bytes: usize| u32::try_from(bytes / SECTOR);
    let parts = [(FIRST, FIRST), (2 * FIRST, held.len())];
    for (index, (start, size)) in parts.into_iter().enumerate() {
        let entry = 446 + 16 * index;
        bytes[entry + 4] = 0x83;
        bytes[entry + 8..][..4].copy_from_slice(&sectors(start)?.to_le_bytes());
        bytes[entry + 12..][..4].copy_from_slice(&sectors(size)?.to_le_bytes());
    }
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes[2 * FIRST..].copy_from_slice(&held);
    Ok(fs::write(disk, bytes)?)
}

/// The same in the second partition of a GUID partition table.
pub fn in_gpt(image: &Path, disk: &Path) -> Result<(), Failed> {
    let held = fs::read(image)?;
    // The table's copy lies at the end.
    let size = 3 * FIRST + held.len();
    fs::File::create(disk)?.set_len(size as u64)?;
    let layout = format!(
        "label: gpt\nstart={}, size={}\nstart={}, size={}\n",
        FIRST / SECTOR,
        FIRST / SECTOR,
        2 * FIRST / SECTOR,
        held.len() / SECTOR
    );
    let mut table = Command::new("sfdisk");
    let typed = crate::harness::process::run_with(table.arg("--quiet").arg(disk), &layout)?;
    typed.expect_status(0)?;
    let mut bytes = fs::read(disk)?;
    bytes[2 * FIRST..][..held.len()].copy_from_slice(&held);
    Ok(fs::write(disk, bytes)?)
}

/// A folder to be packed, and what it holds.
pub struct Tree {
    folder: TemporaryFolder,
    /// Paths from the root on, and bytes.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Tree {
    /// Files of each size that matters, in folders, with names that no old system had.
    pub fn new() -> Result<Self, Failed> {
        let folder = TemporaryFolder::new("tree")?;
        let mut large = vec![0; 3_000_001];
        fastrand::Rng::with_seed(7).fill(&mut large);
        let files = [
            ("/empty", Vec::new()),
            ("/index.html", b"<p>disk".to_vec()),
            ("/a folder/A Long Name, with.dots.json", b"{}".to_vec()),
            ("/a folder/of two pages", large[..8192].to_vec()),
            ("/deep/er/and/deeper/large.bin", large),
        ];
        let files = files.map(|(path, bytes)| (path.to_owned(), bytes));
        let tree = Self {
            folder,
            files: files.into(),
        };
        tree.copy_to(&tree.root())?;
        Ok(tree)
    }

    /// Writes all files to a folder.
    pub fn copy_to(&self, folder: &Path) -> Result<(), Failed> {
        for (path, bytes) in &self.files {
            let path = folder.join(&path[1..]);
            fs::create_dir_all(path.parent().ok_or("no folder")?)?;
            fs::write(path, bytes)?;
        }
        Ok(())
    }

    /// The folder.
    pub fn root(&self) -> PathBuf {
        self.folder.path.join("root")
    }

    /// A place for an image.
    pub fn image(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }
}
