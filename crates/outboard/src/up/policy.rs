//! When a component that has ended is started again: the decision, without clock or process.
//!
//! The first restart is at once, for most faults do not come twice. Each further run that was short
//! doubles the pause before the next one, up to [`PAUSE_MAX`]. A component is never given up: what
//! it needs may come back.

use std::time::Duration;

/// A run that lasted so long makes what was before it forgotten. To start a component once in that
/// time for ever takes a few hundredths of a processor.
pub const SOUND: Duration = Duration::from_secs(1);
/// The pause before the second restart.
pub const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Which ends are followed by a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// All.
    #[default]
    Always,
    /// Those with another status than 0.
    OnFailure,
    /// None.
    Never,
}

impl Restart {
    /// All of them, as the file names them.
    pub const ALL: [(&str, Self); 3] = [
        ("always", Self::Always),
        ("on-failure", Self::OnFailure),
        ("never", Self::Never),
    ];

    /// Whether a component is started again that ended well or badly.
    pub fn follows(self, well: bool) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => !well,
            Self::Never => false,
        }
    }
}

/// The pause before the next start, behind so many short runs, one after the other.
pub fn pause(short_runs: u32) -> Duration {
    match short_runs.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => {
            let factor = 2_u32.saturating_pow(doublings);
            PAUSE_MIN.saturating_mul(factor).min(PAUSE_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_pauses_double_up_to_the_longest() {
        let pauses = [0, 0, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600];
        for (runs, expected) in (0..).zip(pauses) {
            assert_eq!(pause(runs), Duration::from_millis(expected), "{runs}");
        }
        for runs in [11, 12, 33, 34, 35, u32::MAX] {
            assert_eq!(pause(runs), PAUSE_MAX, "{runs}");
        }
    }

    #[test]
    fn who_ended_well_may_rest() {
        let follows = |well| Restart::ALL.map(|(_, restart)| restart.follows(well));
        assert_eq!(follows(true), [true, false, false]);
        assert_eq!(follows(false), [true, true, false]);
    }
}
