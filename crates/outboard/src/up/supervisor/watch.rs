//! Looks whether components make progress: what their images count, read from their shared files.

use super::{Managed, Supervisor};
use crate::instance::Instance;
use crate::up::machine::State;
use crate::up::progress::Watch;
use abi::extension::feature;
use abi::share::{COUNTERS_OFFSET, PROGRESS, PROGRESS_ASLEEP};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Where an image counts its turns, in its shared file.
const PLACE: u64 = (COUNTERS_OFFSET + PROGRESS * size_of::<u64>()) as u64;

/// A run that is watched.
pub(super) struct Progress {
    share: Share,
    watch: Watch,
}

/// The shared file of a run.
enum Share {
    /// It could not be opened so far.
    Unopened,
    /// Its image does not count.
    Uncounted,
    Counted(OwnedFd),
}

impl Share {
    /// That of the run of this name. What cannot be opened now may be later.
    fn of(name: &str) -> Self {
        let Ok(instance) = Instance::open(name) else {
            return Self::Unopened;
        };
        if instance.description().features & feature::PROGRESS == 0 {
            return Self::Uncounted;
        }
        let share = instance.share().try_clone_to_owned();
        share.map_or(Self::Unopened, Self::Counted)
    }
}

impl Progress {
    /// That of the run of this name, which may stand still for so long.
    fn of(name: &str, most: Duration, now: Duration) -> Self {
        Self {
            share: Share::of(name),
            watch: Watch::new(most, now),
        }
    }

    /// When it is to be looked at again, if at all.
    fn next(&self) -> Option<Duration> {
        match self.share {
            Share::Uncounted => None,
            Share::Unopened | Share::Counted(_) => Some(self.watch.next()),
        }
    }

    /// Whether the run of this name has hung, if it is time to look.
    fn has_hung(&mut self, name: &str, now: Duration) -> bool {
        if self.next().is_none_or(|next| now < next) {
            return false;
        }
        if let Share::Unopened = self.share {
            self.share = Share::of(name);
        }
        let mut word = [0; size_of::<u64>()];
        let read = match &self.share {
            Share::Counted(share) => rustix::io::pread(share, &mut word, PLACE).unwrap_or(0),
            Share::Unopened | Share::Uncounted => 0,
        };
        // One that cannot be read is asked again after the same pause.
        let word = match read == word.len() {
            true => u64::from_ne_bytes(word),
            false => PROGRESS_ASLEEP,
        };
        self.watch.look(word, now)
    }
}

impl Managed {
    /// It is up, and watched from now on if the file asks for it.
    pub(super) fn begin_watch(&mut self, now: Duration) {
        let most = self.component().may_stand_still();
        self.progress = most.map(|most| Progress::of(self.name(), most, now));
    }

    /// When it is to be looked whether it has hung, if at all: at once where nobody has so far.
    pub(super) fn look_at(&self) -> Option<Duration> {
        self.component().may_stand_still()?;
        match (self.machine.state(), &self.progress) {
            (State::Up { .. }, Some(progress)) => progress.next(),
            (State::Up { .. }, None) => Some(Duration::ZERO),
            _ => None,
        }
    }
}

impl Supervisor {
    /// Whether a component that is up has hung.
    pub(super) fn has_hung(&mut self, index: usize, now: Duration) -> bool {
        let one = &mut self.all[index];
        if one.component().may_stand_still().is_none() {
            return false;
        }
        // One that was taken over, or that the file asks for only now.
        if one.progress.is_none() {
            one.begin_watch(now);
        }
        let progress = one.progress.as_mut();
        progress.is_some_and(|progress| progress.has_hung(&one.form.component.name, now))
    }
}
