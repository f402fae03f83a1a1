//! Disks as what disks are, on each host: files that are flushed and get holes, that are locked,
//! that are not written, that pass the host's cache by; and block devices.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run, start};
use crate::harness::temporary::TemporaryFile;
use crate::hosts::{Test, on, on_each};
use libtest_mimic::{Completion, Failed, Trial};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// Bytes of the disk, and of the parts of it that the guest `disk` makes holes.
const BYTES: u64 = 8 << 20;
const HOLES: [(u64, u64); 2] = [(1 << 20, 2 << 20), ((5 << 20) + 4096, 100 << 10)];

const GROUP: &str = "disk";

const TESTS: &[(&str, Test)] = &[
    ("what is flushed and discarded is so in the file", whole),
    ("a file of nothing but holes is a disk", sparse),
    ("a disk that is read-only is not written", read_only),
    ("a disk has one writer, and who it is is said", locked),
    ("readers keep writers out and each other not", shared),
];

/// The tests on the hosts that this machine has.
pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = on_each(images, GROUP, TESTS);
    for host in ["process", "spt"] {
        let name = format!("{GROUP}::the host's cache is passed by::{host}");
        let test = move || direct(images, host);
        trials.push(Trial::ignorable_test(name, test));
        let name = format!("{GROUP}::a block device is a disk::{host}");
        let test = move || block_device(images, host);
        trials.push(Trial::ignorable_test(name, test));
    }
    trials
}

/// The tests on `hvt`.
pub fn on_hvt(images: &'static Images) -> Vec<Trial> {
    on(images, "hvt", GROUP, TESTS)
}

fn guest(images: &Images, host: &str, disk: &Path, options: &[&str], what: &str) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args([&format!("--host={host}"), "--mem=16"])
        .arg(format!("--block:disk={}", disk.display()))
        .args(options)
        .arg(images.guest("disk"))
        .arg(what);
    command
}

/// The guest writes all of it and discards parts.
fn write_all(images: &Images, host: &str, disk: &Path, options: &[&str]) -> Result<Ended, Failed> {
    let ended = run(&mut guest(images, host, disk, options, "whole"))?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    Ok(ended)
}

/// The file holds what the guest `disk` has written, and its holes are holes.
fn check(disk: &Path) -> Result<(), Failed> {
    let bytes = fs::read(disk)?;
    for (at, byte) in (0u64..).zip(&bytes) {
        let is_hole = |(start, length): &(u64, u64)| (*start..start + length).contains(&at);
        let expected = match HOLES.iter().any(is_hole) {
            true => 0,
            false => (at >> 9) as u8 | 1,
        };
        if *byte != expected {
            return Err(format!("byte {at} is {byte}, not {expected}").into());
        }
    }
    Ok(())
}

fn whole(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    write_all(images, host, &file.path, &[])?;
    check(&file.path)?;
    let metadata = fs::metadata(&file.path)?;
    if metadata.len() != BYTES {
        return Err(format!("the file has {} bytes now", metadata.len()).into());
    }
    // Of two MiB and some, at least the two MiB take no room.
    match metadata.blocks() * 512 {
        0..=0x60_0000 => Ok(()),
        room => Err(format!("the file takes {room} bytes").into()),
    }
}

fn sparse(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("sparse", 1 << 40)?;
    let options = ["--block-read-only:disk=on"];
    let ended = run(&mut guest(images, host, &file.path, &options, "read"))?;
    ended.expect_status(0)?.expect_stdout("begins with 0")?;
    match fs::metadata(&file.path)?.blocks() {
        0 => Ok(()),
        blocks => Err(format!("it takes {blocks} blocks now").into()),
    }
}

fn read_only(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let write = fs::OpenOptions::new().write(true).open(&file.path)?;
    write.write_all_at(&[42; 4096], 0)?;
    let before = fs::metadata(&file.path)?.modified()?;
    let options = ["--block-read-only:disk=on"];
    let ended = run(&mut guest(images, host, &file.path, &options, "read"))?;
    ended.expect_status(0)?.expect_stdout("begins with 42")?;
    let after = fs::metadata(&file.path)?.modified()?;
    (before == after)
        .then_some(())
        .ok_or("it was written".into())
}

fn locked(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let first = start(&mut guest(images, host, &file.path, &[], "hold"))?;
    first.wait_for("HELD")?;
    let second = run(&mut guest(images, host, &file.path, &[], "whole"))?;
    second.expect_status(1)?;
    let says = format!("in use by process {} (", first.id());
    second.expect_stderr(&says)?;
    drop(first);
    write_all(images, host, &file.path, &[]).map(drop)
}

fn shared(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let options = ["--block-read-only:disk=on"];
    let first = start(&mut guest(images, host, &file.path, &options, "hold"))?;
    first.wait_for("HELD")?;
    let second = run(&mut guest(images, host, &file.path, &options, "read"))?;
    second.expect_status(0)?;
    let writer = run(&mut guest(images, host, &file.path, &[], "whole"))?;
    writer
        .expect_status(1)?
        .expect_stderr("in use by process")?;
    Ok(())
}

/// Whatever alignment the guest's memory has.
fn direct(images: &Images, host: &str) -> Result<Completion, Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let options = ["--block-direct:disk=on", "--block-sector-size:disk=4096"];
    let ended = run(&mut guest(images, host, &file.path, &options, "whole"))?;
    if ended.stderr.contains("cannot pass the host's cache by") {
        return Ok(Completion::ignored_with(
            "no O_DIRECT in the folder for temporary files",
        ));
    }
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    ended.expect_stdout("alignment: 4096")?;
    check(&file.path)?;
    Ok(Completion::Completed)
}

/// A loop device, which a second guest and a mount find busy.
fn block_device(images: &Images, host: &str) -> Result<Completion, Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show"]).arg(&file.path);
    let Some(device) = losetup
        .output()
        .ok()
        .filter(|output| output.status.success())
    else {
        return Ok(Completion::ignored_with("no loop devices here (losetup)"));
    };
    let device = LoopDevice(String::from_utf8(device.stdout)?.trim().to_owned());
    let path = Path::new(&device.0);
    write_all(images, host, path, &[])?;
    let first = start(&mut guest(images, host, path, &[], "hold"))?;
    first.wait_for("HELD")?;
    let second = run(&mut guest(images, host, path, &[], "whole"))?;
    second.expect_status(1)?.expect_stderr("in use by")?;
    drop(first);
    let options = ["--block-read-only:disk=on"];
    let reads = run(&mut guest(images, host, path, &options, "read"))?;
    reads.expect_status(0)?.expect_stdout("begins with 1")?;
    drop(device);
    check(&file.path)?;
    Ok(Completion::Completed)
}

/// Detached when dropped.
struct LoopDevice(String);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
