//! System calls that a signal interrupts.

use rustix::io::Errno;

/// How often a call that a signal interrupts is made again.
const INTERRUPTIONS_MAX: u32 = 1000;

/// Makes a call again if a signal interrupts it, a thousand times at most.
///
/// # Errors
/// Those of the call.
pub fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..INTERRUPTIONS_MAX {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::INTR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_interrupted_is_done_again() {
        let mut left = 3;
        let done = again(|| {
            left -= 1;
            if left > 0 { Err(Errno::INTR) } else { Ok(left) }
        });
        assert_eq!(done, Ok(0));
        let mut calls = 0;
        let mut fail = |errno| {
            calls = 0;
            let failed: Result<(), _> = again(|| {
                calls += 1;
                Err(errno)
            });
            (failed, calls)
        };
        assert_eq!(fail(Errno::AGAIN), (Err(Errno::AGAIN), 1));
        assert_eq!(fail(Errno::INTR), (Err(Errno::INTR), INTERRUPTIONS_MAX));
    }
}
