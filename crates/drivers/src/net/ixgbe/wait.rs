//! Waiting, which happens while an appliance starts and never after.

/// Lets at least so many nanoseconds pass.
pub type Wait<'a> = &'a mut dyn FnMut(u64);

/// Looks at a clock that [`by`] takes before it believes that the clock stands still.
const LOOKS_MAX: usize = 10_000_000;

/// Waits by looking at a clock.
pub fn by(clock: impl Fn() -> u64) -> impl FnMut(u64) {
    move |nanoseconds| {
        let start = clock();
        let over = |_: &usize| clock().saturating_sub(start) >= nanoseconds;
        (0..LOOKS_MAX).find(over);
    }
}

/// Lets no time pass: polls are bounded by their number.
pub fn no_wait(_nanoseconds: u64) {}

/// How often [`poll`] looks.
const POLLS_MAX: u64 = 100;

/// Looks until `done`, over at least `limit` nanoseconds; whether it came true.
pub fn poll(wait: Wait<'_>, limit: u64, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..POLLS_MAX {
        if done() {
            return true;
        }
        wait(limit / POLLS_MAX);
    }
    done()
}
