//! Core files: what a guest that fails leaves, and what gdb finds in it.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = Vec::new();
    for host in ["spt", "process"] {
        let called = move || callers_in_gdb(images, host);
        let name = format!("core::{host}::gdb shows who called");
        trials.push(Trial::ignorable_test(name, called));
        let name = format!("core::{host}::each way to fail leaves one");
        trials.push(Trial::test(name, move || failures(images, host)));
        let name = format!("core::{host}::a guest that ends otherwise leaves none");
        trials.push(Trial::test(name, move || none(images, host)));
        let name = format!("core::{host}::the tender alone leaves one");
        trials.push(Trial::test(name, move || alone(images, host)));
    }
    let test = || virtual_machine(images);
    trials.push(Trial::ignorable_test("core::hvt::gdb opens one", test));
    trials
}

/// Runs a guest under the monitor; its core files are to lie in `folder`.
fn monitored(images: &Images, host: &str, folder: &Path, words: &[&str]) -> Result<Ended, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command.args(["run", &format!("--host={host}"), "--mem=16"]);
    command.arg(format!("--dumpcore={}", folder.display()));
    command.arg("--").arg(images.guest(words[0]));
    run(command.args(&words[1..]))
}

/// The core files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failed> {
    let entries = std::fs::read_dir(folder)?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?)
}

/// The one there is.
fn only(folder: &Path) -> Result<PathBuf, Failed> {
    let mut files = files(folder)?;
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(file),
        _ => Err(format!("not one core file in {}", folder.display()).into()),
    }
}

fn gdb(image: &Path, core: &Path, commands: &[&str]) -> Result<Ended, Failed> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    commands.iter().for_each(|command| {
        gdb.args(["-ex", command]);
    });
    run(gdb.arg(image).arg(core))
}

fn callers_in_gdb(images: &Images, host: &str) -> Result<Completion, Failed> {
    if let Some(why) = programs::missing(&["gdb"]) {
        return Ok(Completion::ignored_with(why));
    }
    let folder = TemporaryFolder::new("core")?;
    let ended = monitored(images, host, &folder.path, &["backtrace", "read"])?;
    let core = only(&folder.path)?;
    let guest = images.guest("backtrace");
    let says = format!("core file: gdb {} {}", guest.display(), core.display());
    ended.expect_status(128 + 11)?.expect_stderr(&says)?;
    let ended = gdb(&guest, &core, &["bt", "x/i $rip"])?;
    ended.expect_status(0)?;
    ended.expect_stdout("Program terminated with signal SIGSEGV")?;
    for function in ["inner", "middle", "outer"] {
        ended.expect_stdout(&format!(" in backtrace::{function}"))?;
    }
    ended.expect_stdout("outboard_main")?;
    // The instruction, which is in the file as well, is the one that failed.
    ended.expect_stdout("=> 0x1")?;
    panics_in_gdb(images, host).map(|()| Completion::Completed)
}

/// A panic ends as it does without a core file, and the file shows who called.
fn panics_in_gdb(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("core")?;
    let ended = monitored(images, host, &folder.path, &["backtrace", "panic"])?;
    ended
        .expect_status(255)?
        .expect_stderr("in backtrace::inner")?;
    let core = only(&folder.path)?;
    let ended = gdb(&images.guest("backtrace"), &core, &["bt"])?;
    ended.expect_stdout("Program terminated with signal SIGABRT")?;
    for function in ["inner", "middle", "outer"] {
        ended.expect_stdout(&format!(" in backtrace::{function}"))?;
    }
    Ok(())
}

fn failures(images: &Images, host: &str) -> Result<(), Failed> {
    let jailed: &[&str] = match host {
        "process" => &[],
        _ => &["forbidden_syscall"],
    };
    let all = [
        "null_read",
        "stack_overflow",
        "write_text",
        "execute_data",
        "panic",
    ];
    for guest in all.iter().chain(jailed) {
        let folder = TemporaryFolder::new("core")?;
        let ended = monitored(images, host, &folder.path, &[guest])?;
        ended.expect_stderr("core file: gdb ")?;
        let bytes = std::fs::metadata(only(&folder.path)?)?.len();
        // Memory, and a page in front of it.
        if bytes != (16 << 20) + 4096 {
            return Err(format!("{guest}: a core file of {bytes} bytes").into());
        }
    }
    Ok(())
}

fn none(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("core")?;
    let ended = monitored(images, host, &folder.path, &["hello"])?;
    ended.expect_status(0)?;
    let left = files(&folder.path)?.len();
    if left != 0 || ended.stderr.contains("core file") {
        return Err(format!("{left} files; {ended:?}").into());
    }
    Ok(())
}

/// Without a monitor, and without a shared file.
fn alone(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("core")?;
    for (guest, status, fails) in [("null_read", 128 + 11, true), ("hello", 0, false)] {
        let mut command = Command::new(images.program("outboard-tender"));
        command.args([&format!("--host={host}"), "--mem=16"]);
        command.arg(format!("--dumpcore={}", folder.path.display()));
        run(command.arg(images.guest(guest)))?.expect_status(status)?;
        let file = only(&folder.path)?;
        let is_full = std::fs::metadata(&file)?.len() > 0;
        if is_full != fails {
            return Err(format!("{guest}: {file:?}").into());
        }
        std::fs::remove_file(file)?;
    }
    Ok(())
}

/// A core file of a guest that fails, by a fault of its own or, where KVM interprets and gives up,
/// by the processor's.
fn virtual_machine(images: &Images) -> Result<Completion, Failed> {
    if let Some(why) = programs::missing(&["gdb"]) {
        return Ok(Completion::ignored_with(why));
    }
    let folder = TemporaryFolder::new("core")?;
    let ended = monitored(images, "hvt", &folder.path, &["null_read"])?;
    if ended.stderr.contains("/dev/kvm: ") {
        return Ok(Completion::ignored_with("needs /dev/kvm"));
    }
    ended.expect_stderr("core file: ")?;
    let core = only(&folder.path)?;
    let ended = gdb(
        &images.guest("null_read"),
        &core,
        &["x/i $rip", "x/2gx $rbp"],
    )?;
    ended.expect_status(0)?;
    ended.expect_stdout("Program terminated with signal SIGSEGV")?;
    ended.expect_stdout("\n#0  0x")?;
    // The instruction in its function, and memory: a frame is never all zeros.
    ended.expect_stdout("=> 0x1")?.expect_stdout(">:\t")?;
    let frame = ended.stdout.lines().last().unwrap_or_default();
    let saved = frame.split_once(":\t").map(|(_, words)| words);
    match saved {
        Some(words) if words.contains("0x00000000001") => Ok(Completion::Completed),
        _ => Err(format!("no frame in memory: {ended:?}").into()),
    }
}
