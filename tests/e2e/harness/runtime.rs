//! A directory for the named guests of one test.

use crate::harness::build::Images;
use crate::harness::process::run;
use crate::harness::temporary::TemporaryFile;
use libtest_mimic::Failed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the named guests of one test are.
pub struct Runtime(TemporaryFile);

impl Runtime {
    /// A new directory.
    pub fn new() -> Result<Self, Failed> {
        let place = unused("runtime")?;
        std::fs::create_dir(&place.path)?;
        Ok(Self(place))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// `outboard` with these arguments.
    pub fn outboard(&self, images: &Images, arguments: &[&str]) -> Command {
        let mut command = Command::new(images.program("outboard"));
        command.env("XDG_RUNTIME_DIR", &self.0.path).args(arguments);
        command
    }

    /// A file of the guest `name`.
    pub fn file(&self, name: &str, file: &str) -> PathBuf {
        self.0.path.join("outboard").join(name).join(file)
    }

    /// What a command prints that succeeds.
    pub fn says(&self, images: &Images, arguments: &[&str]) -> Result<String, Failed> {
        let ended = run(&mut self.outboard(images, arguments))?;
        ended.expect_status(0)?;
        Ok(ended.stdout)
    }

    /// The JSON that a command prints that succeeds.
    pub fn json(&self, images: &Images, arguments: &[&str]) -> Result<Value, Failed> {
        Ok(serde_json::from_str(&self.says(images, arguments)?)?)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0.path);
    }
}

/// A path in a test of its own that nothing is at.
pub fn unused(name: &str) -> Result<TemporaryFile, Failed> {
    let file = TemporaryFile::new(name, 0)?;
    std::fs::remove_file(&file.path)?;
    Ok(file)
}
