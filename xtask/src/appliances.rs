//! Images of appliances that tests run.

use crate::process::{self, target_folder};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In each line, what `outboard build` is told.
const LIST: &str = include_str!("../../tests/appliances.txt");
/// Says where they lie, once they are built, here and to the end-to-end tests that run behind us:
/// `tests/e2e/harness/build.rs`.
const VARIABLE: &str = "OUTBOARD_APPLIANCES";
/// An image with another manifest is the same code: what the compiler made of it is kept from one
/// to the next, even where nothing else is.
const INCREMENTAL: (&str, &str) = ("CARGO_INCREMENTAL", "1");
/// The program that builds them, where cargo puts it.
const OUTBOARD: &str = "x86_64-unknown-linux-gnu/release/outboard";

/// The folder that has them all. What cargo keeps of an appliance is of one manifest only, so that
/// each is built once for all stages.
///
/// # Errors
/// One line that names what cannot be built.
pub fn provide(root: &Path, verbose: bool) -> Result<PathBuf, String> {
    if let Some(folder) = env::var_os(VARIABLE) {
        return Ok(folder.into());
    }
    for words in LIST.lines() {
        build(root, words, verbose)?;
    }
    env::set_var(VARIABLE, folder(root));
    Ok(folder(root))
}

/// Where they are built.
pub fn folder(root: &Path) -> PathBuf {
    target_folder(root).join("appliances")
}

/// Builds one, by our own program, which has been built.
///
/// # Errors
/// One line that names it.
pub fn build(root: &Path, words: &str, verbose: bool) -> Result<(), String> {
    let mut command = Command::new(target_folder(root).join(OUTBOARD));
    command.arg("build").args(words.split(' '));
    command.arg("--out").arg(folder(root)).current_dir(root);
    command.env(INCREMENTAL.0, INCREMENTAL.1);
    process::succeed(&mut command, verbose)
}
