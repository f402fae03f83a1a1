//! What a guest of `hvt` makes of the answers of its host.

use crate::clock::Instant;
use crate::host::Errno;
use abi::hvt::result;

/// Longest wait, in nanoseconds: 146 years.
const WAIT_MAX: u64 = 1 << 62;
/// The host's clock and the time-stamp counter run apart by less than one part in so many.
const DRIFT: u64 = 1000;
/// Waits until one deadline: each but the last ends early by the drift of the one before.
const WAITS_MAX: usize = 8;

/// What a call has come to that has answered so, for `length` bytes if it has done them.
///
/// # Errors
/// What the host says.
#[inline]
pub fn answer(number: i32, length: u64) -> Result<usize, Errno> {
    match number {
        result::OK => Ok(length as usize),
        result::AGAIN => Err(Errno::AGAIN),
        result::INVALID => Err(Errno::INVALID),
        result::UNSUPPORTED => Err(Errno::NOT_SUPPORTED),
        _ => Err(Errno::IO),
    }
}

/// Sleeps by `poll`, which takes nanoseconds and gives a bit for each device that has something. If
/// that ends a little early, by the drift of the clocks, it sleeps again; if much, the host has
/// something to say.
pub fn wait(deadline: Option<Instant>, now: fn() -> u64, mut poll: impl FnMut(u64) -> u64) -> u64 {
    let left = || deadline.map_or(WAIT_MAX, |Instant(at)| at.saturating_sub(now()));
    let mut timeout = left().min(WAIT_MAX);
    for _ in 0..WAITS_MAX {
        let ready = poll(timeout);
        let rest = left();
        if ready != 0 || rest == 0 || rest > timeout / DRIFT {
            return ready;
        }
        timeout = rest;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_wait_that_ends_by_the_drift_of_clocks_goes_on() {
        static NOW: AtomicU64 = AtomicU64::new(1000);
        let now = || NOW.load(Ordering::Relaxed);
        let mut waits = 0;
        // Each wait is shorter than it should be by a part in 2000.
        let ready = wait(Some(Instant(1_000_001_000)), now, |time| {
            waits += 1;
            NOW.fetch_add(time - time / 2000, Ordering::Relaxed);
            0
        });
        assert_eq!((ready, waits), (0, 3));
        assert_eq!(NOW.load(Ordering::Relaxed), 1_000_001_000);
    }

    #[test]
    fn a_wait_that_ends_early_or_with_something_is_over() {
        let mut waits = 0;
        let mut once = |deadline, ready| {
            waits = 0;
            let found = wait(
                deadline,
                || 5,
                |_| {
                    waits += 1;
                    ready
                },
            );
            (found, waits)
        };
        assert_eq!(once(None, 0), (0, 1));
        assert_eq!(once(Some(Instant(1_000_000)), 0), (0, 1));
        assert_eq!(once(Some(Instant(6)), 4), (4, 1));
        assert_eq!(once(Some(Instant(5)), 0), (0, 1));
    }

    #[test]
    fn what_a_host_says_is_an_error_of_its_kind() {
        assert_eq!(answer(result::OK, 7), Ok(7));
        for (number, errno) in [
            (result::AGAIN, Errno::AGAIN),
            (result::INVALID, Errno::INVALID),
            (result::UNSUPPORTED, Errno::NOT_SUPPORTED),
            (result::UNSPECIFIED, Errno::IO),
            (-1, Errno::IO),
        ] {
            assert_eq!(answer(number, 7), Err(errno));
        }
    }
}
