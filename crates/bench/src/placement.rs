//! Which core runs what.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps a generator and a contender on two different cores for as long as it lives, with whatever
/// they start meanwhile. Left to the
/// scheduler they share one in some rounds and not in others, because each wakes the other, and a
/// flood then measures the scheduler.
#[derive(Debug)]
pub struct Apart {
    contender: Vec<Pid>,
    before: CpuSet,
}

impl Apart {
    /// Puts the contender, which is these processes, on the first core that this thread may use,
    /// and this thread on the second; does nothing if there is only one.
    ///
    /// # Errors
    /// The contender is gone.
    pub fn new(contender: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let id = |id| Pid::from_raw(i32::try_from(id).ok()?);
        let contender: Vec<Pid> = contender.into_iter().filter_map(id).collect();
        let before = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core));
        if let (Some(first), Some(second)) = (cores.next(), cores.next()) {
            for process in &contender {
                sched_setaffinity(Some(*process), &only(first))?;
            }
            sched_setaffinity(None, &only(second))?;
        }
        Ok(Self { contender, before })
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Cannot fail for this thread; a contender that has ended needs no core.
        let _ = sched_setaffinity(None, &self.before);
        for process in &self.contender {
            let _ = sched_setaffinity(Some(*process), &self.before);
        }
    }
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cores_back() {
        let before = sched_getaffinity(None).unwrap();
        let apart = Apart::new(None).unwrap();
        if before.count() > 1 {
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        }
        drop(apart);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
