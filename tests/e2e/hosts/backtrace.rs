//! Who called, when a guest fails: found by frame pointers, named by the image's symbols; and what
//! hostile chains of frames do not do.

use crate::harness::build::Images;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFile;
use libtest_mimic::{Failed, Trial};
use std::path::Path;
use std::process::Command;

const SIGILL: i32 = 128 + 4;
const SIGSEGV: i32 = 128 + 11;
const PANIC: i32 = 255;

/// What the guest `backtrace` is told to do, the status that it ends with, and the functions that
/// are named, innermost first.
struct Failure(&'static str, i32, &'static [&'static str]);

const CHAIN: &[&str] = &[
    "backtrace::inner + ",
    "backtrace::middle + ",
    "backtrace::outer + ",
    "outboard_main + ",
    "unikernel::entry::start + ",
    "_start + ",
];
const INNER: &[&str] = &["backtrace::inner + "];
const DEEP: &[&str] = &["backtrace::recurse + "; abi::backtrace::DEPTH_MAX + 1];

const FAILURES: &[Failure] = &[
    Failure("read", SIGSEGV, CHAIN),
    Failure("jump", SIGSEGV, CHAIN),
    Failure("panic", PANIC, CHAIN),
    Failure("deep", SIGILL, DEEP),
    // Frames at themselves, at null, at odd addresses, in the text, where nothing is, around the
    // end of addresses and of memory.
    Failure("loop", SIGILL, INNER),
    Failure("null", SIGILL, INNER),
    Failure("odd", SIGILL, INNER),
    Failure("text", SIGILL, INNER),
    Failure("outside", SIGILL, INNER),
    Failure("top", SIGILL, INNER),
    Failure("end", SIGILL, INNER),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let hosts = ["spt", "process"].into_iter();
    let mut trials: Vec<_> = hosts.flat_map(|host| on(images, host)).collect();
    let test = || without_symbols(images);
    trials.push(Trial::test("backtrace::spt::without symbols", test));
    trials
}

/// The same on one host.
pub fn on(images: &'static Images, host: &'static str) -> Vec<Trial> {
    let trial = |failure: &'static Failure| {
        let name = match host {
            "hvt" => format!("hvt::backtrace::{}", failure.0),
            _ => format!("backtrace::{host}::{}", failure.0),
        };
        Trial::test(name, move || callers(images, host, failure))
    };
    FAILURES.iter().map(trial).collect()
}

fn monitored(images: &Images, host: &str, image: &Path, how: &str) -> Command {
    let mut command = Command::new(images.program("outboard"));
    command.args(["run", "--mem=16", &format!("--host={host}"), "--"]);
    command.arg(image).arg(how);
    command
}

fn callers(images: &Images, host: &str, failure: &Failure) -> Result<(), Failed> {
    let Failure(how, status, functions) = failure;
    let image = images.guest("backtrace");
    let ended = run(&mut monitored(images, host, &image, how))?;
    ended.expect_status(*status)?;
    ended.expect_stderr("to see the lines: addr2line -fipCe ")?;
    let named = named(&ended);
    // A panic has its machinery in front.
    let first = named.iter().position(|name| name.contains(functions[0]));
    let own = first.and_then(|first| named.get(first..)).unwrap_or(&[]);
    let same = own.len() == functions.len()
        && own.iter().zip(*functions).all(|(name, f)| name.contains(f));
    if !same {
        return Err(format!("not {functions:?}: {ended:?}").into());
    }
    let registers = ended.stderr.contains("outboard: rax 0x");
    (registers != (*status == PANIC))
        .then_some(())
        .ok_or_else(|| format!("registers: {registers}").into())
}

/// Functions that the monitor names.
fn named(ended: &Ended) -> Vec<&str> {
    let lines = ended.stderr.lines();
    lines
        .filter_map(|line| Some(line.strip_prefix("outboard:   0x")?.split_once(" in ")?.1))
        .collect()
}

/// Numbers are what is left, as many of them.
fn without_symbols(images: &Images) -> Result<(), Failed> {
    let file = TemporaryFile::new("stripped", 0)?;
    let mut bytes = std::fs::read(images.guest("backtrace"))?;
    // Elf64_Ehdr, e_shoff and e_shnum: no section, and so no table of symbols.
    bytes[40..48].fill(0);
    bytes[60..62].fill(0);
    std::fs::write(&file.path, bytes)?;
    let ended = run(&mut monitored(images, "spt", &file.path, "read"))?;
    ended.expect_status(SIGSEGV)?;
    let numbers = ended.stderr.lines();
    let count = numbers
        .filter(|line| line.starts_with("outboard:   0x1"))
        .count();
    if !named(&ended).is_empty() || count != CHAIN.len() {
        return Err(format!("{count} addresses: {ended:?}").into());
    }
    Ok(())
}
