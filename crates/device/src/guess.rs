//! Whether to look at a port before it is known to have anything.

/// Most looks that are left out in a row: so rarely is a guess tried where it never holds.
const SKIPPED_MAX: u8 = 63;

/// A guess that may save a wait, and how well it has held.
///
/// Who gets a frame often answers at once: whatever is behind the port to which it was sent has
/// something there by the time that the sender would wait for it. To look finds the answer for
/// less than a wait costs, and where nobody answers it is for nothing. So each miss doubles the
/// chances that are let pass before the next look, up to `SKIPPED_MAX`, and each hit ends that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess {
    /// Chances to let pass after the last miss.
    pause: u8,
    /// How many of them are left.
    left: u8,
}

impl Guess {
    /// Whether to look this time.
    #[inline]
    pub fn worth(&mut self) -> bool {
        let worth = self.left == 0;
        self.left = self.left.saturating_sub(1);
        worth
    }

    /// What a look found.
    #[inline]
    pub fn learn(&mut self, hit: bool) {
        self.pause = if hit {
            0
        } else {
            (2 * self.pause + 1).min(SKIPPED_MAX)
        };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `chances` are taken when each look finds what `hit` says of it.
    fn looks(guess: &mut Guess, chances: usize, hit: bool) -> usize {
        (0..chances)
            .filter(|_| {
                let worth = guess.worth();
                if worth {
                    guess.learn(hit);
                }
                worth
            })
            .count()
    }

    #[test]
    fn a_guess_that_holds_is_always_tried() {
        assert_eq!(looks(&mut Guess::default(), 100, true), 100);
    }

    #[test]
    fn a_guess_that_never_holds_is_tried_ever_more_rarely_but_never_given_up() {
        let mut guess = Guess::default();
        // Looks at chances 0, 2, 6, 14, 30, 62, 126, and then at each 64th.
        assert_eq!(looks(&mut guess, 127, false), 7);
        assert_eq!(looks(&mut guess, 64 * 10, false), 10);
    }

    #[test]
    fn one_hit_makes_up_for_all_misses() {
        let mut guess = Guess::default();
        looks(&mut guess, 127, false);
        while !guess.worth() {}
        guess.learn(true);
        assert_eq!(looks(&mut guess, 100, true), 100);
    }
}
