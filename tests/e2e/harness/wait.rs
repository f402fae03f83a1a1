//! Waits for what comes by itself, a little later.

use libtest_mimic::Failed;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Does `what` until it succeeds, for so long at most; what it found, or why it failed last.
pub fn eventually<T>(
    patience: Duration,
    mut what: impl FnMut() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let deadline = Instant::now() + patience;
    loop {
        match what() {
            Err(_) if Instant::now() < deadline => sleep(PAUSE),
            found => return found,
        }
    }
}
