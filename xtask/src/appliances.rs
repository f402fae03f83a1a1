//! Images of appliances that tests run.

use crate::process::{self, target_folder};
use std::path::{Path, PathBuf};
use std::process::Command;

/// In each line, what `outboard build` is told.
const LIST: &str = include_str!("../../tests/appliances.txt");
/// Tells the end-to-end tests where they lie: `tests/e2e/harness/build.rs`.
pub const VARIABLE: &str = "OUTBOARD_APPLIANCES";

/// Where they are, once they are built. What `cargo` keeps of an appliance is of one manifest only,
/// so that each is built once for all stages.
#[derive(Debug, Default)]
pub struct Appliances {
    built: bool,
}

impl Appliances {
    /// The folder that has them all, if they are built.
    pub fn built(&self, root: &Path) -> Option<PathBuf> {
        self.built.then(|| folder(root))
    }

    /// The folder that has them all, built by this program of ours.
    ///
    /// # Errors
    /// One line that names what cannot be built.
    pub fn provide(
        &mut self,
        root: &Path,
        outboard: &Path,
        verbose: bool,
    ) -> Result<PathBuf, String> {
        if !self.built {
            for words in LIST.lines() {
                build(root, outboard, words, verbose)?;
            }
            self.built = true;
        }
        Ok(folder(root))
    }
}

/// Where they lie.
pub fn folder(root: &Path) -> PathBuf {
    target_folder(root).join("appliances")
}

/// Builds one.
///
/// # Errors
/// One line that names it.
pub fn build(root: &Path, outboard: &Path, words: &str, verbose: bool) -> Result<(), String> {
    let mut command = Command::new(outboard);
    command.arg("build").args(words.split(' '));
    command.arg("--out").arg(folder(root)).current_dir(root);
    process::succeed(&mut command, verbose)
}

/// All images in the folder.
///
/// # Errors
/// One line, if it cannot be read.
pub fn images(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {}", folder.display(), error);
    let entries = folder.read_dir().map_err(failed)?;
    entries
        .map(|entry| Ok(entry.map_err(failed)?.path()))
        .collect()
}
