//! Solo5 both ways: its own spt tests under our tender, our guests under its tender.
//!
//! The peer, v0.12 or later, is built outside the repository; `SOLO5_DIR` says where.

use crate::build::Images;
use crate::guests::PROMISES;
use crate::process::run;
use crate::temporary::TemporaryFile;
use libtest_mimic::{Completion, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Solo5's own expectations, from its `tests/tests.bats`.
struct Expectation {
    name: &'static str,
    /// Size of the file behind the block device `storage`, in bytes.
    storage: Option<u64>,
    options: &'static [&'static str],
    arguments: &'static [&'static str],
    status: i32,
    says: &'static str,
}

const fn expect(name: &'static str, status: i32, says: &'static str) -> Expectation {
    Expectation {
        name,
        storage: None,
        options: &[],
        arguments: &[],
        status,
        says,
    }
}

const fn storage(bytes: u64, options: &'static [&'static str], status: i32) -> Expectation {
    let says = if status == 0 { "SUCCESS" } else { "" };
    Expectation {
        storage: Some(bytes),
        options,
        ..expect("test_blk", status, says)
    }
}

const SOLO5_TESTS: &[Expectation] = &[
    Expectation {
        arguments: &["Hello_Solo5"],
        ..expect("test_hello", 0, "SUCCESS")
    },
    Expectation {
        arguments: &["--solo5:quiet"],
        ..expect("test_quiet", 0, "SUCCESS")
    },
    expect("test_output", 0, ""),
    expect("test_globals", 0, "SUCCESS"),
    expect("test_exception", 139, ""),
    expect("test_zeropage", 139, ""),
    expect("test_xnow", 139, ""),
    expect("test_wnox", 139, ""),
    expect("test_notls", 139, ""),
    expect("test_tls", 0, "SUCCESS"),
    expect("test_ssp", 255, "ABORT"),
    expect("test_fpu", 0, "SUCCESS"),
    expect("test_time", 0, "SUCCESS"),
    expect("test_seccomp", 159, ""),
    storage(4 << 20, &[], 0),
    storage(4 << 20, &["--block-sector-size:storage=4096"], 0),
    storage(6 << 10, &["--block-sector-size:storage=4096"], 1),
    storage(1563, &["--block-sector-size:storage=521"], 1),
    storage(256, &["--block-sector-size:storage=256"], 1),
];

const NO_PEER: &str = "SOLO5_DIR does not name a built Solo5: git clone it elsewhere, run \
                       ./configure.sh && make, and set SOLO5_DIR to its folder";

fn peer() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("SOLO5_DIR")?);
    folder
        .join("tenders/spt/solo5-spt")
        .exists()
        .then_some(folder)
}

/// A test that is skipped, with the reason, where there is no peer.
fn with_peer(
    name: String,
    test: impl FnOnce(&Path) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match peer() {
        None => Ok(Completion::ignored_with(NO_PEER)),
        Some(peer) => test(&peer).map(|()| Completion::Completed),
    })
}

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let mut trials = Vec::new();
    for expectation in SOLO5_TESTS {
        let what = [expectation.options, expectation.arguments]
            .concat()
            .join(" ");
        let name = format!("solo5's image, our tender::{} {what}", expectation.name);
        trials.push(with_peer(name.trim_end().into(), |peer| {
            ours(images, peer, expectation)
        }));
    }
    for promise in PROMISES {
        let what = [&[promise.guest], promise.arguments].concat().join(" ");
        trials.push(with_peer(
            format!("our image, solo5's tender::{what}"),
            |peer| {
                let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
                command
                    .args(["--mem=16", "--"])
                    .arg(images.guest(promise.guest));
                promise.check(&run(command.args(promise.arguments))?)
            },
        ));
    }
    trials.push(with_peer(
        "our image, solo5's tender::block".into(),
        |peer| {
            let file = TemporaryFile::new("block", 1 << 20)?;
            for size in ["512", "4096"] {
                let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
                command
                    .args(["--mem=16", &format!("--block-sector-size:disk={size}")])
                    .arg(format!("--block:disk={}", file.path.display()))
                    .arg(images.guest("block"));
                run(&mut command)?
                    .expect_status(0)?
                    .expect_stdout("SUCCESS")?;
            }
            Ok(())
        },
    ));
    trials
}

fn ours(images: &Images, peer: &Path, expectation: &Expectation) -> Result<(), Failed> {
    let name = expectation.name;
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg("--mem=2");
    let file = match expectation.storage {
        None => None,
        Some(bytes) => Some(TemporaryFile::new("storage", bytes)?),
    };
    if let Some(file) = &file {
        command.arg(format!("--block:storage={}", file.path.display()));
    }
    command
        .args(expectation.options)
        .arg("--")
        .arg(peer.join(format!("tests/{name}/{name}.spt")))
        .args(expectation.arguments);
    let ended = run(&mut command)?;
    ended
        .expect_status(expectation.status)?
        .expect_stdout(expectation.says)?;
    Ok(())
}
