//! Programs that others wrote: they make disks, check them, and read them.

use super::super::error::Error;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What is needed, and the package of Debian that has it.
const PROGRAMS: [(&str, &str); 7] = [
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("mkfs.vfat", "dosfstools"),
    ("fsck.fat", "dosfstools"),
    ("mcopy", "mtools"),
    ("xorriso", "xorriso"),
];
/// Where an ordinary user may have no path to.
const ADMINISTRATION: &str = "/usr/sbin:/sbin";

/// Whether all programs are there.
///
/// # Errors
/// One is not.
pub fn require() -> Result<(), Error> {
    let path = path();
    for (program, package) in PROGRAMS {
        let mut folders = std::env::split_paths(&path);
        if !folders.any(|folder| folder.join(program).is_file()) {
            return Err(Error::NoProgram(program, package));
        }
    }
    Ok(())
}

fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:{ADMINISTRATION}")
}

/// Runs a program with these words, `{disk}` and `{folder}` in them replaced.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(words: &str, disk: &Path, folder: &Path) -> Result<(), Error> {
    let names = [("{disk}", disk), ("{folder}", folder)];
    let words: Vec<String> = words
        .split('|')
        .map(|word| {
            let mut word = word.to_owned();
            for (name, path) in names {
                word = word.replace(name, &path.display().to_string());
            }
            word
        })
        .collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command.env("PATH", path()).env("LC_ALL", "C.UTF-8");
    let started = command.output();
    let Output {
        status,
        stdout,
        stderr,
    } = started.map_err(|error| Error::Spawn(words[0].clone().into(), error))?;
    if status.success() {
        return Ok(());
    }
    let said = [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    Err(Error::Stock(
        words.join(" "),
        said.join("\n").trim().to_owned(),
    ))
}
