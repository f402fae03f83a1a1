//! Several pieces of work at the same time.

use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};

/// As many as this machine has processors.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Does the `work` on each of these, on so many at the same time; what comes of each, in their
/// order.
pub fn at_once<T, R, F>(all: Vec<T>, lanes: usize, work: F) -> Vec<R>
where
    T: Send,
    R: Send,
    F: Fn(T) -> R + Sync,
{
    let waiting = Mutex::new(all.into_iter().enumerate());
    let next = || waiting.lock().ok()?.next();
    let lane = || -> Vec<_> {
        std::iter::from_fn(next)
            .map(|(place, one)| (place, work(one)))
            .collect()
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        let end = |run: ScopedJoinHandle<'_, Vec<_>>| {
            run.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        running.into_iter().flat_map(end).collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_of_each_is_in_their_order() {
        let doubled = |number: u64| {
            thread::sleep(std::time::Duration::from_millis(10 - number));
            2 * number
        };
        assert_eq!(at_once(vec![1, 2, 3, 4], 3, doubled), [2, 4, 6, 8]);
        assert!(at_once(Vec::new(), 2, doubled).is_empty());
    }
}
