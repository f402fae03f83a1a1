//! Whether a component makes progress: the decision, from what its image counts and the time.
//!
//! An image counts its turns, and says when it sleeps in its host's wait
//! ([`abi::share::PROGRESS`]). One that stands still and is not asleep has hung: it loops, or waits
//! for something that its host does not give it. An image that says that it sleeps is believed; who
//! lies so is left alone, as whoever does nothing useful is.

use abi::share::PROGRESS_ASLEEP;
use std::time::Duration;

/// How long a component may stand still, where its file does not say.
pub const STILL_DEFAULT: Duration = Duration::from_secs(10);
/// The longest time that a file may say, in seconds.
pub const STILL_SECONDS_MAX: u64 = 3600;
/// Looks in the time that a component may stand still, so that it is noticed a quarter later at
/// most.
const LOOKS: u32 = 4;

/// What is known of a component's progress.
#[derive(Debug)]
pub struct Watch {
    most: Duration,
    word: u64,
    still: Duration,
    looked: Duration,
}

impl Watch {
    /// Of a component that begins now, and may stand still for so long.
    pub fn new(most: Duration, now: Duration) -> Self {
        Self {
            most,
            word: PROGRESS_ASLEEP,
            still: Duration::ZERO,
            looked: now,
        }
    }

    /// When to look again.
    pub fn next(&self) -> Duration {
        self.looked + self.pause()
    }

    fn pause(&self) -> Duration {
        self.most / LOOKS
    }

    /// Takes what the image counts by now; whether it has hung. Time in which nobody looked, as
    /// while all the machine was stopped, counts as two looks at most.
    pub fn look(&mut self, word: u64, now: Duration) -> bool {
        let passed = now.saturating_sub(self.looked).min(self.pause() * 2);
        self.looked = now;
        let moves = word != self.word || word & PROGRESS_ASLEEP != 0;
        self.word = word;
        self.still = match moves {
            true => Duration::ZERO,
            false => self.still + passed,
        };
        self.still >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(8);

    /// What a watch says when it looks each two seconds and sees these words.
    fn looks(words: &[u64]) -> Vec<bool> {
        let mut watch = Watch::new(MOST, Duration::ZERO);
        let look = |word: &u64| {
            let now = watch.next();
            watch.look(*word, now)
        };
        words.iter().map(look).collect()
    }

    #[test]
    fn who_stands_still_has_hung_and_who_sleeps_has_not() {
        assert_eq!(looks(&[6; 5]), [false, false, false, false, true]);
        assert!(!looks(&[7; 100]).contains(&true));
        let turns: Vec<u64> = (0..100).map(|turn| turn * 2).collect();
        assert!(!looks(&turns).contains(&true));
        // Asleep once, between two turns.
        assert!(!looks(&[6, 6, 6, 6, 7, 6, 6, 6]).contains(&true));
        // One that has never had a turn hangs as well.
        assert_eq!(looks(&[0; 5]).last(), Some(&true));
    }

    #[test]
    fn time_in_which_nobody_looked_hardly_counts() {
        let mut watch = Watch::new(MOST, Duration::ZERO);
        assert!(!watch.look(6, Duration::from_secs(2)));
        assert!(!watch.look(6, Duration::from_secs(1000)));
        assert!(watch.look(6, Duration::from_secs(2000)));
        // A clock that goes back does no harm.
        assert!(!watch.look(8, Duration::ZERO));
        assert!(!watch.look(8, Duration::ZERO));
    }
}
