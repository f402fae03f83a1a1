//! Files that go with the test.

use libtest_mimic::Failed;
use std::fs::File;
use std::path::PathBuf;

/// A file of zeros, removed when dropped.
pub struct TemporaryFile {
    pub path: PathBuf,
}

impl TemporaryFile {
    /// A new file of `bytes` zeros.
    pub fn new(name: &str, bytes: u64) -> Result<Self, Failed> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("outboard-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path)?.set_len(bytes)?;
        Ok(Self { path })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
