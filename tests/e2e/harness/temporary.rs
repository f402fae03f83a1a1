//! Files and folders that go with the test.

use libtest_mimic::Failed;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of zeros, removed when dropped.
pub struct TemporaryFile {
    pub path: PathBuf,
}

impl TemporaryFile {
    /// A new file of `bytes` zeros.
    pub fn new(name: &str, bytes: u64) -> Result<Self, Failed> {
        let path = path(name);
        File::create(&path)?.set_len(bytes)?;
        Ok(Self { path })
    }
}

/// A path that no other test of this run has.
fn path(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("outboard-{}-{number}-{name}", std::process::id());
    std::env::temp_dir().join(name)
}

/// A folder, removed with all that is in it when dropped.
pub struct TemporaryFolder {
    pub path: PathBuf,
}

impl TemporaryFolder {
    /// A new one.
    pub fn new(name: &str) -> Result<Self, Failed> {
        let path = path(name);
        fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
