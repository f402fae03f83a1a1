//! Disks as what disks are, on each host: files that are flushed and get holes, that are locked,
//! that are not written, that pass the host's cache by; and block devices.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run, start};
use crate::harness::temporary::TemporaryFile;
use crate::harness::wait::eventually;
use crate::hosts::{Test, on, on_each};
use libtest_mimic::{Completion, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Bytes of the disk, and of the parts of it that the guest `disk` makes holes.
const BYTES: u64 = 8 << 20;
const HOLES: [(u64, u64); 2] = [(1 << 20, 2 << 20), ((5 << 20) + 4096, 100 << 10)];

/// How long the process of a disk may take to close its jail.
const PATIENCE: Duration = Duration::from_secs(5);

const GROUP: &str = "disk";

const TESTS: &[(&str, Test)] = &[
    ("what is flushed and discarded is so in the file", whole),
    ("a file of nothing but holes is a disk", sparse),
    ("a disk that is read-only is not written", read_only),
    ("a disk has one writer, and who it is is said", locked),
    ("readers keep writers out and each other not", shared),
    (
        "requests in flight are done by a process of their own",
        queued,
    ),
    (
        "a disk whose process is killed fails and its guest goes on",
        orphaned,
    ),
    ("the process of a disk ends with its guest", left),
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
    command(images, host, disk, options, ("disk", what))
}

/// A guest with several requests in flight.
fn queue(images: &Images, host: &str, disk: &Path, what: &str) -> Command {
    command(images, host, disk, &[], ("disk_queue", what))
}

fn command(
    images: &Images,
    host: &str,
    disk: &Path,
    options: &[&str],
    (guest, what): (&str, &str),
) -> Command {
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args([&format!("--host={host}"), "--mem=16"])
        .arg(format!("--block:disk={}", disk.display()))
        .args(options)
        .arg(images.guest(guest))
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

fn queued(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let ended = run(&mut queue(images, host, &file.path, "whole"))?;
    ended.expect_status(0)?.expect_stdout("SUCCESS")?;
    check(&file.path)?;
    match fs::metadata(&file.path)?.len() {
        BYTES => Ok(()),
        bytes => Err(format!("the file has {bytes} bytes now").into()),
    }
}

/// The process that serves the disk of this tender's guest.
fn server_of(tender: u32) -> Result<Pid, Failed> {
    let children = fs::read_to_string(format!("/proc/{tender}/task/{tender}/children"))?;
    let mut children = children.split_ascii_whitespace();
    let (child, other) = (children.next(), children.next());
    let child = child.filter(|_| other.is_none()).ok_or("not one child")?;
    let name = fs::read_to_string(format!("/proc/{child}/comm"))?;
    if name.trim() != "outboard-disk" {
        return Err(format!("the child is called {name}").into());
    }
    Ok(Pid::from_raw(child.parse()?).ok_or("no process")?)
}

fn orphaned(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let guest = start(&mut queue(images, host, &file.path, "survive"))?;
    guest.wait_for("READY")?;
    let server = server_of(guest.id())?;
    let status = format!("/proc/{}/status", server.as_raw_pid());
    // Each of its threads was put behind a filter before it served anything.
    eventually(PATIENCE, || {
        let status = fs::read_to_string(&status)?;
        let is_jailed = status.contains("Seccomp:\t2");
        is_jailed
            .then_some(())
            .ok_or_else(|| format!("it has no filter: {status}").into())
    })?;
    kill_process(server, Signal::KILL)?;
    let ended = guest.finish()?;
    ended.expect_status(0)?.expect_stdout("GONE")?;
    ended.expect_stdout("disk disk: the process that served it has ended")?;
    Ok(())
}

fn left(images: &Images, host: &str) -> Result<(), Failed> {
    let file = TemporaryFile::new("disk", BYTES)?;
    let guest = start(&mut queue(images, host, &file.path, "survive"))?;
    guest.wait_for("READY")?;
    let server = server_of(guest.id())?;
    drop(guest);
    // Its lock was the guest's, and is waited for.
    write_all(images, host, &file.path, &[])?;
    match test_kill_process(server) {
        Err(_) => Ok(()),
        Ok(()) => match fs::read_to_string(format!("/proc/{}/stat", server.as_raw_pid())) {
            Ok(stat) if !stat.contains(") Z ") => Err("it is still there".into()),
            _ => Ok(()),
        },
    }
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
