//! Looks whether components make progress: what their images count, read from their shared files.

use super::Supervisor;
use crate::instance::Instance;
use crate::up::progress::Watch;
use abi::extension::feature;
use abi::share::{COUNTERS_OFFSET, PROGRESS};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Where an image counts its turns, in its shared file.
const PLACE: u64 = (COUNTERS_OFFSET + PROGRESS * size_of::<u64>()) as u64;

/// A run that is watched.
pub(super) struct Progress {
    /// `None` for an image that does not count.
    share: Option<OwnedFd>,
    watch: Watch,
}

impl Progress {
    /// That of the run of this name, which may stand still for so long.
    fn of(name: &str, most: Duration, now: Duration) -> Self {
        let instance = Instance::open(name).ok();
        let counts = |instance: &Instance| instance.description().features & feature::PROGRESS != 0;
        let share = instance.filter(counts);
        let share = share.and_then(|instance| instance.share().try_clone_to_owned().ok());
        let watch = Watch::new(most, now);
        Self { share, watch }
    }

    /// When it is to be looked at again, if at all.
    pub(super) fn next(&self) -> Option<Duration> {
        self.share.as_ref().map(|_| self.watch.next())
    }

    /// Whether it has hung, if it is time to look.
    fn has_hung(&mut self, now: Duration) -> bool {
        let Some(share) = self.share.as_ref().filter(|_| now >= self.watch.next()) else {
            return false;
        };
        let mut word = [0; size_of::<u64>()];
        match rustix::io::pread(share, &mut word, PLACE) {
            Ok(count) if count == word.len() => self.watch.look(u64::from_ne_bytes(word), now),
            _ => false,
        }
    }
}

impl Supervisor {
    /// Whether a component that is up has hung.
    pub(super) fn has_hung(&mut self, index: usize, now: Duration) -> bool {
        let one = &mut self.all[index];
        let Some(most) = one.component.may_stand_still() else {
            return false;
        };
        let name = &one.component.name;
        let begin = || Progress::of(name, most, now);
        one.progress.get_or_insert_with(begin).has_hung(now)
    }
}
