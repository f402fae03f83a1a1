//! Which core runs what.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps a generator and a contender on two different cores for as long as it lives. Left to the
/// scheduler they share one in some rounds and not in others, because each wakes the other, and a
/// flood then measures the scheduler.
#[derive(Debug)]
pub struct Apart {
    contender: Option<Pid>,
    before: CpuSet,
}

impl Apart {
    /// Puts the contender on the first core that this thread may use, and this thread on the
    /// second; does nothing if there is only one.
    ///
    /// # Errors
    /// The contender is gone.
    pub fn new(contender: Option<u32>) -> io::Result<Self> {
        let contender = contender
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let before = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core));
        if let (Some(first), Some(second)) = (cores.next(), cores.next()) {
            if contender.is_some() {
                sched_setaffinity(contender, &only(first))?;
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
        if self.contender.is_some() {
            let _ = sched_setaffinity(self.contender, &self.before);
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
