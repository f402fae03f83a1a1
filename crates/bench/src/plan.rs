//! How long to measure.

use testbed::traffic::Window;

/// Enough for most benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Of each load.
    pub window: Window,
}
