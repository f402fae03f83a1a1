//! Core files of components that fail again and again.

use super::{System, guest};
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use libtest_mimic::Failed;
use std::path::PathBuf;
use std::time::Duration;

/// How many the file asks for.
const KEPT: usize = 2;
/// Runs after which some were removed.
const RUNS: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// The last ones are there, the ends name those that are there, and a system that is gone has left
/// none.
pub fn kept(images: &Images) -> Result<(), Failed> {
    let text = guest(images, "null_read", &format!("core = {KEPT}"));
    let system = System::new(images, &text)?;
    let supervisor = system.outboard(&["up", &system.file.display().to_string()])?;
    system.wait_for("five runs", |status| {
        let run = status["components"][0]["run"].as_u64();
        run.is_some_and(|run| run > RUNS)
    })?;
    // A run may end meanwhile, and remove the oldest one.
    let named = eventually(PATIENCE, || {
        let logs = system
            .runtime
            .says(images, &["logs", "--ends", "null_read"])?;
        let lines = logs.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("outboard: core file: gdb "));
        let paths = lines.filter_map(|line| line.split_once(' '));
        let paths: Vec<_> = paths.map(|(_, path)| PathBuf::from(path)).collect();
        let whole = paths.iter().all(|path| {
            let metadata = path.metadata();
            metadata.is_ok_and(|metadata| metadata.len() == (16 << 20) + 4096)
        });
        match paths.len() == KEPT && whole {
            true => Ok(paths),
            false => Err(format!("not {KEPT} core files: {paths:?} in {logs}").into()),
        }
    })?;
    system.down(Some(supervisor))?;
    let left = named.iter().find(|path| path.exists());
    left.map_or(Ok(()), |path| Err(format!("{path:?} is left").into()))
}
