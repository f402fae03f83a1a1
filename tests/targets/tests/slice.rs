//! Feeds each target its seeds, and mutations of them that are the same each time.
//! `OUTBOARD_SEEDS=FIRST..LAST` chooses others.
//!
//! A process of its own has each target: it may write to its standard output, hang or be killed.

#![forbid(unsafe_code)]

use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use targets::{ALL, Target};

/// What a target said before it failed, so many lines of it.
const LINES_MAX: usize = 20;

fn main() {
    let arguments = Arguments::from_args();
    let trials = ALL
        .iter()
        .map(|target| Trial::test(target.name, || feed(target)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn feed(target: &Target) -> Result<(), Failed> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(target.name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_targets"));
    command.args(["slice", target.name]).arg(&folder);
    // What failed is in the last lines, and no backtrace.
    command.env("RUST_BACKTRACE", "0");
    let ended = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if ended.status.success() {
        return Ok(fs::remove_dir(&folder)?);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let lines: Vec<&str> = said.lines().collect();
    let said = lines[lines.len().saturating_sub(LINES_MAX)..].join("\n");
    let again = again(target.name, &folder)?;
    Err(format!("{}\n{said}\n{again}", ended.status).into())
}

/// How the input that is left in the folder is fed again.
fn again(name: &str, folder: &Path) -> Result<String, Failed> {
    let Some(entry) = fs::read_dir(folder)?.next() else {
        return Ok(String::from("it failed before its first input"));
    };
    let file = entry?;
    let mut text = format!(
        "type: cargo run -p targets -- feed {name} {}",
        file.path().display()
    );
    let input = file.file_name();
    let number = input.to_string_lossy();
    if let Some(number) = number
        .strip_prefix("mutation-")
        .and_then(|it| it.parse::<u64>().ok())
    {
        text += &format!(
            "\nor: OUTBOARD_SEEDS={number}..{} cargo test -p targets --test slice -- \
             --exact {name}",
            number + 1
        );
    }
    Ok(text)
}
