//! Does something with the file systems of the disks that its manifest names, and says what:
//!
//! ```text
//! files check from            reads all of it
//! files list from [FOLDER]    the names of a folder
//! files copy from to          all of it to the other one, over what is there
//! files compare from to       where they differ
//! ```
//!
//! It fails where a file cannot be read, something cannot be written, or two trees differ.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use device::files::{FileSystem, Kind};
use fs::disk::{BUDGET, Disk};
use fs::tree::{self, Counts, Difference, Failed};
use unikernel::println;

unikernel::entry!(main);

const USAGE: &str = "one of: check DISK; list DISK [FOLDER]; copy DISK DISK; compare DISK DISK";

fn main() -> i32 {
    let words: Vec<&str> = unikernel::arguments().collect();
    let begin = unikernel::monotonic();
    match run(&words) {
        Ok(said) => {
            let milliseconds = (unikernel::monotonic().0 - begin.0) / 1_000_000;
            println!("files: {said} ({milliseconds} ms)");
            abi::exit::SUCCESS
        }
        Err(why) => {
            println!("files: {why}");
            abi::exit::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    match *words {
        ["check", disk] => check(&*mounted(disk)?),
        ["list", disk] => list(&*mounted(disk)?, "/"),
        ["list", disk, folder] => list(&*mounted(disk)?, folder),
        ["copy", from, to] => {
            let (from, to) = (mounted(from)?, mounted_to_write(to)?);
            let counts = tree::copy(&*from, &*to).map_err(failed)?;
            Ok(format!("copied {}", said(counts)))
        }
        ["compare", from, to] => compare(&*mounted(from)?, &*mounted(to)?),
        _ => Err(USAGE.to_string()),
    }
}

fn disk(name: &str) -> Result<Disk, String> {
    let disk = appliance::disk(name).map_err(|error| error.to_string())?;
    Disk::new(disk, BUDGET).map_err(|error| format!("{name}: {error}"))
}

fn mounted(name: &str) -> Result<Box<dyn FileSystem>, String> {
    fs::mount(&disk(name)?).map_err(|error| format!("{name}: {error}"))
}

fn mounted_to_write(name: &str) -> Result<Box<dyn FileSystem>, String> {
    let files = fs::mount_to_write(&disk(name)?, || unikernel::wall().as_secs());
    let files = files.map_err(|error| format!("{name}: {error}"))?;
    match files.is_writable() {
        true => Ok(files),
        false => Err(format!(
            "{name}: this {} is not written here: it is not clean, or of a kind that is read alone",
            files.name()
        )),
    }
}

fn failed(Failed { path, error }: Failed) -> String {
    format!("{}: {error}", String::from_utf8_lossy(&path))
}

fn said(counts: Counts) -> String {
    let Counts {
        files,
        folders,
        bytes,
        others,
    } = counts;
    format!("{files} files of {bytes} bytes, {folders} folders, and {others} other things")
}

fn check(files: &dyn FileSystem) -> Result<String, String> {
    let mut errors = 0;
    let counts = tree::check(files, &mut |path, error| {
        println!("{}: {error}", String::from_utf8_lossy(path));
        errors += 1;
    });
    let said = said(counts.map_err(failed)?);
    match errors {
        0 => Ok(format!("{}: read {said}", files.name())),
        _ => Err(format!("{errors} files cannot be read; read {said}")),
    }
}

fn list(files: &dyn FileSystem, folder: &str) -> Result<String, String> {
    let mut count = 0;
    let listed = files.list(folder.as_bytes(), &mut |entry| {
        let mark = match entry.kind {
            Kind::File => "",
            Kind::Folder => "/",
            Kind::Link => "@",
            Kind::Other => "?",
        };
        println!("{}{mark}", String::from_utf8_lossy(&entry.name));
        count += 1;
        true
    });
    match listed {
        Ok(()) => Ok(format!("{}: {count} names", files.name())),
        Err(error) => Err(format!("{folder}: {error}")),
    }
}

fn compare(first: &dyn FileSystem, second: &dyn FileSystem) -> Result<String, String> {
    let mut count = 0;
    let compared = tree::compare(first, second, &mut |path, what| {
        let what = match what {
            Difference::Missing => "is missing",
            Difference::Added => "was added",
            Difference::Kind => "is of another kind",
            Difference::Bytes => "has other bytes",
        };
        println!("{} {what}", String::from_utf8_lossy(path));
        count += 1;
    });
    let said = said(compared.map_err(failed)?);
    match count {
        0 => Ok(format!("the same: {said}")),
        _ => Err(format!("{count} differences; the same: {said}")),
    }
}
