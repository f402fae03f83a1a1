//! Solo5's hvt both ways: its images under our tender, our guests under its tender.

use crate::build::Images;
use crate::compatibility::{NO_PEER, peer};
use crate::guests::{PROMISES, Promise};
use crate::process::run;
use crate::temporary::TemporaryFile;
use libtest_mimic::{Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test of Solo5's: what it is given, the status that it ends with and what it says. Faults end
/// in its own handler.
struct Expectation(&'static str, &'static [&'static str], i32, &'static str);

const ABORT: i32 = 255;

const EXPECTATIONS: &[Expectation] = &[
    Expectation("test_hello", &["Hello_Solo5"], 0, "SUCCESS"),
    Expectation("test_quiet", &["--solo5:quiet"], 0, "SUCCESS"),
    Expectation("test_output", &[], 0, ""),
    Expectation("test_globals", &[], 0, "SUCCESS"),
    Expectation("test_exception", &[], ABORT, "Fatal trap"),
    Expectation("test_zeropage", &[], ABORT, "cr2=0x8"),
    Expectation("test_xnow", &[], ABORT, "Fatal trap"),
    Expectation("test_wnox", &[], ABORT, "Fatal trap"),
    Expectation("test_notls", &[], ABORT, "Fatal trap"),
    Expectation("test_tls", &[], 0, "SUCCESS"),
    Expectation("test_ssp", &[], ABORT, "Stack corruption"),
    Expectation("test_fpu", &[], 0, "SUCCESS"),
    Expectation("test_time", &[], 0, "SUCCESS"),
    Expectation("test_blk", &[], 0, "SUCCESS"),
];

/// What Solo5's tender does not promise: for the guest, all of its memory is writable and
/// executable there, and a machine that stops is its own failure.
fn is_promised(promise: &Promise) -> bool {
    let unprotected = [
        "stack_overflow",
        "write_text",
        "write_rodata",
        "execute_data",
    ];
    let stopped = ["triple", "halt"];
    let any = |words: &[&str]| promise.arguments.iter().any(|word| words.contains(word));
    !promise.jail && !unprotected.contains(&promise.guest) && !any(&stopped)
}

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let tender = find(images, "tenders/hvt/solo5-hvt");
    let Some(tender) = tender.filter(|path| path.exists()) else {
        let skip = || Ok(Completion::ignored_with(NO_PEER));
        return vec![Trial::ignorable_test("hvt::solo5", skip)];
    };
    let mut trials = Vec::new();
    for expectation in EXPECTATIONS {
        let name = format!("hvt::solo5's image, our tender::{}", expectation.0);
        trials.push(Trial::test(name, || theirs(images, expectation)));
    }
    for promise in PROMISES.iter().filter(|promise| is_promised(promise)) {
        let name = format!("hvt::our image, solo5's tender::{}", promise.name());
        let tender = tender.clone();
        trials.push(Trial::test(name, move || ours(images, &tender, promise)));
    }
    trials
}

/// A file of Solo5's; where everything is prebuilt, it lies there too.
fn find(images: &Images, path: &str) -> Option<PathBuf> {
    if images.are_prebuilt() {
        return Some(images.program(Path::new(path).file_name()?.to_str()?));
    }
    Some(peer()?.join(path))
}

fn theirs(images: &Images, expectation: &Expectation) -> Result<(), Failed> {
    let Expectation(name, arguments, status, says) = expectation;
    let image = find(images, &format!("tests/{name}/{name}.hvt")).ok_or(NO_PEER)?;
    let file = TemporaryFile::new("storage", 4 << 20)?;
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg("--mem=16");
    if *name == "test_blk" {
        command.arg(format!("--block:storage={}", file.path.display()));
    }
    let ended = run(command.arg("--").arg(image).args(*arguments))?;
    ended
        .expect_status(*status)?
        .expect_stdout(says)
        .map(|_| ())
}

fn ours(images: &Images, tender: &Path, promise: &Promise) -> Result<(), Failed> {
    let image = super::built_for_hvt(images, promise.guest)?;
    let mut command = Command::new(tender);
    command.args(["--mem=16", "--"]).arg(&image.path);
    promise.check(&run(command.args(promise.arguments))?)
}
