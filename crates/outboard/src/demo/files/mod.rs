//! `outboard demo files`: disks that stock programs made, served by an image, and disks that an
//! image wrote, checked by stock programs.

mod stock;

use super::build::built;
use super::error::Error;
use super::http;
use super::shown;
use super::system::Folder;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use testbed::segment::Segment;
use testbed::{privilege, table};

/// Folders of the appliances in the repository, a manifest of each, and what it becomes.
const HTTP: (&str, &str, &str) = ("unikernels/http", "manifest-disk.json", "http-disk.spt");
const FILES: (&str, &str, &str) = ("unikernels/files", "manifest.json", "files.spt");
/// Guest memory in MiB.
const MEMORY: &str = "--mem=64";
/// Bytes of a disk.
const DISK_BYTES: u64 = 40 << 20;
/// Bytes of the largest file.
const LARGE: usize = 3_000_001;

/// File systems that are served, and what makes one of a folder: words of a program, and those of
/// another. A word ends with `|`.
const SERVED: [(&str, &[&str]); 3] = [
    ("ext4", &["mke2fs|-q|-t|ext4|-d|{folder}|{disk}"]),
    (
        "vfat",
        &[
            "mkfs.vfat|-F32|{disk}",
            "mcopy|-s|-i|{disk}|{folder}/tree|::",
        ],
    ),
    (
        "iso9660",
        &["xorriso|-as|mkisofs|-quiet|-R|-J|-o|{disk}|{folder}"],
    ),
];
/// File systems that are written: who makes one, checks it, and reads it to a folder.
const WRITTEN: [(&str, [&str; 3]); 2] = [
    (
        "ext2",
        [
            "mke2fs|-q|-t|ext2|{disk}",
            "e2fsck|-fn|{disk}",
            "debugfs|-R|rdump /tree {folder}|{disk}",
        ],
    ),
    (
        "vfat",
        [
            "mkfs.vfat|-F32|{disk}",
            "fsck.fat|-n|{disk}",
            "mcopy|-s|-n|-i|{disk}|::tree|{folder}",
        ],
    ),
];

/// `outboard demo files`.
#[derive(clap::Args)]
pub struct Options {
    /// A folder with the images http-disk.spt and files.spt, instead of building them
    #[arg(long, value_name = "FOLDER")]
    images: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A file system, what was done with it, and what came of it.
#[derive(Debug, Serialize)]
struct Check {
    files: &'static str,
    done: &'static str,
    seen: String,
    held: bool,
}

/// What there is to report.
#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
    held: bool,
}

/// Shows it; succeeds if each file was the same everywhere, and no checker found anything.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let image = |(appliance, manifest, file)| match &options.images {
        Some(folder) => Ok(folder.join(file)),
        None => built(appliance, Some(manifest), file),
    };
    let (server, copier) = (image(HTTP)?, image(FILES)?);
    stock::require()?;
    privilege::acquire().map_err(Error::Privilege)?;
    let folder = Folder::new("files", &[])?;
    let root = folder.path().join("root");
    let tree = tree(&root).map_err(|error| Error::Io("cannot write a temporary file", error))?;
    eprintln!(
        "Disks are files of this host; images on spt read and write them. Stock programs make the \
         disks, and check them."
    );
    let mut checks = Vec::new();
    for (files, makers) in SERVED {
        let disk = disk(folder.path(), files)?;
        for words in makers {
            stock::run(words, &disk, &root)?;
        }
        let seen = served(&server, &disk, &tree)?;
        checks.push(check(files, "served over HTTP", seen));
    }
    let from = folder.path().join(SERVED[0].0);
    for (files, [make, examine, read]) in WRITTEN {
        let disk = disk(folder.path(), &format!("{files}-written"))?;
        stock::run(make, &disk, &root)?;
        let copied = copied(&copier, &from, &disk)?;
        checks.push(check(files, "all of ext4 copied to it", copied));
        let examined = stock::run(examine, &disk, &root);
        let said = examined.map(|()| "nothing was wrong".to_owned());
        checks.push(check(files, "checked", said.map_err(|e| e.to_string())));
        let out = folder.path().join(format!("{files}-read"));
        fs::create_dir(&out).map_err(|e| Error::Io("cannot make a temporary directory", e))?;
        let read = stock::run(read, &disk, &out);
        let seen = read
            .map_err(|e| e.to_string())
            .and_then(|()| same(&out, &tree));
        checks.push(check(files, "read by others", seen));
    }
    let held = checks.iter().all(|check| check.held);
    let report = Report { checks, held };
    let text = || text(&report);
    Ok(shown(options.json, &report, text, held))
}

fn check(files: &'static str, done: &'static str, seen: Result<String, String>) -> Check {
    Check {
        files,
        done,
        held: seen.is_ok(),
        seen: seen.unwrap_or_else(|why| why),
    }
}

/// Files by their paths, as they are written to a folder: each size that matters, and names that no
/// old system had.
type Tree = BTreeMap<String, Vec<u8>>;

fn tree(root: &Path) -> io::Result<Tree> {
    let mut large: Vec<u8> = Vec::with_capacity(LARGE);
    let mut state = 17_u32;
    large.resize_with(LARGE, || {
        // A linear congruential generator: bytes that are nowhere twice in a row.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    let files = [
        ("/tree/empty", Vec::new()),
        ("/tree/index.html", b"<p>A disk".to_vec()),
        ("/tree/A Long Name, with.dots.json", b"{}".to_vec()),
        ("/tree/two/pages", large[..8192].to_vec()),
        ("/tree/deep/er/and/deeper/large.bin", large),
    ];
    let tree: Tree = files.map(|(path, bytes)| (path.to_owned(), bytes)).into();
    for (path, bytes) in &tree {
        let path = root.join(&path[1..]);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(path, bytes)?;
    }
    Ok(tree)
}

/// An empty disk.
fn disk(folder: &Path, name: &str) -> Result<PathBuf, Error> {
    let path = folder.join(name);
    let made = File::create(&path).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(|e| Error::Io("cannot make a disk", e))?;
    Ok(path)
}

/// Asks an image for each file of its disk.
fn served(image: &Path, disk: &Path, tree: &Tree) -> Result<Result<String, String>, Error> {
    let client = Segment::new().map_err(|error| Error::Contender(error.into()))?;
    let begin = Instant::now();
    let attached = format!("--block:files={}", disk.display());
    let _image = http::start(&client, image, &[&attached])?;
    client.run(|| http::await_answer(begin))?;
    let mut bytes = 0;
    for (path, expected) in tree {
        let path = path.replace(' ', "%20");
        match client.run(|| http::ask("GET", &path, "")) {
            Ok((200, found)) if found == *expected => bytes += found.len(),
            Ok((200, _)) => return Ok(Err(format!("{path} differs"))),
            Ok((status, _)) => return Ok(Err(format!("{path}: status {status}"))),
            Err(error) => return Ok(Err(format!("{path}: {error}"))),
        }
    }
    Ok(Ok(format!(
        "{} files, {bytes} bytes, all the same",
        tree.len()
    )))
}

/// Has an image copy all of a disk to another.
fn copied(image: &Path, from: &Path, to: &Path) -> Result<Result<String, String>, Error> {
    let this = std::env::current_exe();
    let this = this.map_err(|e| Error::Io("cannot find this program's file", e))?;
    let output = Command::new(&this)
        .args(["tender", MEMORY])
        .arg(format!("--block:from={}", from.display()))
        .arg(format!("--block:to={}", to.display()))
        .arg("--")
        .arg(image)
        .args(["copy", "from", "to"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::Spawn(this, error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().next_back().unwrap_or("nothing was said");
    let last = last.trim_start_matches("files: ").to_owned();
    Ok(match output.status.success() {
        true => Ok(last),
        false => Err(format!("{last} ({})", output.status)),
    })
}

/// Whether a folder has the same files.
fn same(folder: &Path, tree: &Tree) -> Result<String, String> {
    let mut bytes = 0;
    for (path, expected) in tree {
        match fs::read(folder.join(&path[1..])) {
            Ok(found) if found == *expected => bytes += found.len(),
            Ok(_) => return Err(format!("{path} differs")),
            Err(error) => return Err(format!("{path}: {error}")),
        }
    }
    Ok(format!("{} files, {bytes} bytes, all the same", tree.len()))
}

fn text(report: &Report) -> String {
    let row = |check: &Check| {
        let result = if check.held { "ok" } else { "FAILED" };
        let cells = [check.files, check.done, &check.seen, result];
        cells.map(str::to_owned).to_vec()
    };
    let rows: Vec<Vec<String>> = report.checks.iter().map(row).collect();
    let held = report.checks.iter().filter(|check| check.held).count();
    format!(
        "\n{}\n{held} of {} checks held.\n",
        table::render(&["file system", "done", "seen", ""], &rows),
        report.checks.len(),
    )
}
