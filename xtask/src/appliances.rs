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
/// The program that builds them, where cargo puts it.
const OUTBOARD: &str = "x86_64-unknown-linux-gnu/release/outboard";

/// The folder that has them all, built once for all stages.
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
    process::succeed(&mut command, verbose)
}
