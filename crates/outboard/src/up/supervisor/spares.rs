//! Spares: instances that are loaded and wait, so that the next run of a component begins sooner.

use super::{Form, Supervisor, say};
use crate::up::cause;
use crate::up::machine::State as Life;
use crate::up::message::Request;
use crate::up::spare::{Effect, Event, LOAD_AFTER, PAUSE, State};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The spare of a component.
#[derive(Default)]
pub(super) struct Spare {
    pub state: State,
    /// What was loaded, if there is one.
    loaded: Option<Loaded>,
}

/// What a spare will be.
struct Loaded {
    form: Form,
    /// For which run.
    run: u64,
    image: Option<Stamp>,
}

/// What tells a file from one that has taken its place or was changed.
#[derive(PartialEq, Eq)]
struct Stamp([u64; 3], [i64; 4]);

impl Stamp {
    /// `None`: there is no such file.
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        let times = [
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ];
        Some(Self([file.dev(), file.ino(), file.size()], times))
    }
}

impl Supervisor {
    /// Has a spare loaded for the next run of a component that is up, if its file asks for one.
    pub(super) fn want_spare(&mut self, index: usize, now: Duration) {
        if self.all[index].component().spare {
            self.give_spare(index, Event::Want(now + LOAD_AFTER), now);
        }
    }

    /// Lets time have its effect on the spare of a component, and hears what it says.
    pub(super) fn tend_spare(&mut self, index: usize, now: Duration) {
        let one = &self.all[index];
        let rests = matches!(
            one.machine.state(),
            Life::Ended | Life::Ending { again: false, .. }
        );
        let is_asked_for = one.component().spare || one.replacement.next().is_some();
        match one.spare.state {
            State::None => {}
            _ if rests || !is_asked_for => self.give_spare(index, Event::Drop, now),
            State::Loading { .. } if self.is_loaded(index) => {
                self.give_spare(index, Event::Loaded, now);
            }
            State::Wanted { .. } | State::Loading { .. } | State::Loaded => {
                self.give_spare(index, Event::Tick, now);
            }
        }
    }

    fn is_loaded(&self, index: usize) -> bool {
        let one = &self.all[index];
        let loaded = one.spare.loaded.as_ref();
        loaded.is_some_and(|spare| cause::is_loaded(&self.report(one.name(), spare.run)))
    }

    /// Gives an event to a component's spare, and does what follows.
    pub(super) fn give_spare(&mut self, index: usize, event: Event, now: Duration) {
        let one = &mut self.all[index];
        let effect = one.spare.state.take(event, now);
        match effect {
            None => {}
            Some(Effect::Load) => {
                if let Err(why) = self.load_spare(index) {
                    self.lose_spare(index, &format!("no spare: {why}"), now);
                }
            }
            // What begins the run asks for it.
            Some(Effect::Wake) => {}
            Some(Effect::Dismiss) => {
                one.spare.loaded = None;
                one.replacement.fail("it was not loaded in time");
                let name = one.name().to_owned();
                self.ask(&Request::Dismiss(name));
            }
        }
    }

    fn load_spare(&mut self, index: usize) -> Result<(), String> {
        let one = &self.all[index];
        let form = one.replacement.next().unwrap_or(&one.form).clone();
        // What the instance that runs was handed stays as it is.
        let all_there = form.component.handed().all(|what| self.has(&what));
        if !all_there {
            return Err("what it is handed is not there any more".to_owned());
        }
        self.fits(&form.component)?;
        let image = Stamp::of(&form.component.image);
        let run = one.status.run + 1;
        self.hand_over(&form, run, Request::Load)?;
        self.all[index].spare.loaded = Some(Loaded { form, run, image });
        Ok(())
    }

    /// The spare for this run of a component has ended with this status.
    pub(super) fn spare_ended(&mut self, name: &str, run: u64, status: i32, now: Duration) {
        if let Some(index) = self.spare_of(name, run) {
            let report = self.report(name, run);
            let cause = cause::of(status, &report);
            self.lose_spare(index, &format!("its spare has ended: {cause}"), now);
        }
    }

    /// The spare for this run of a component could not be started.
    pub(super) fn spare_refused(&mut self, name: &str, run: u64, why: &str, now: Duration) {
        if let Some(index) = self.spare_of(name, run) {
            self.lose_spare(index, &format!("no spare: {why}"), now);
        }
    }

    fn spare_of(&self, name: &str, run: u64) -> Option<usize> {
        self.all.iter().position(|one| {
            let loaded = one.spare.loaded.as_ref();
            one.name() == name && loaded.is_some_and(|spare| spare.run == run)
        })
    }

    /// A component's spare is gone, or could not be loaded.
    fn lose_spare(&mut self, index: usize, why: &str, now: Duration) {
        self.all[index].spare.loaded = None;
        self.give_spare(index, Event::Ended, now);
        if !self.all[index].replacement.fail(why) {
            let next = format_args!("{why}; another one is loaded in {PAUSE:?}");
            say(self.all[index].name(), next);
        }
    }

    /// Begins a run of a component by its spare, if that is loaded and of use; whether it was.
    pub(super) fn wake_spare(&mut self, index: usize, now: Duration) -> bool {
        let is_of_use = self.is_of_use(index);
        let one = &mut self.all[index];
        let loaded = one.spare.loaded.take();
        let is_loaded = one.spare.state == State::Loaded;
        let event = match is_of_use {
            true => Event::Start,
            false => Event::Drop,
        };
        self.give_spare(index, event, now);
        let Some(Loaded { form, run, .. }) = loaded.filter(|_| is_of_use && is_loaded) else {
            return false;
        };
        let one = &mut self.all[index];
        let former = std::mem::replace(&mut one.form, form);
        one.replacement.begin(former);
        let name = one.name().to_owned();
        self.ask(&Request::Wake(name, run));
        true
    }

    /// Whether a spare is what a run of its component would be now.
    fn is_of_use(&self, index: usize) -> bool {
        let one = &self.all[index];
        one.spare.loaded.as_ref().is_some_and(|loaded| {
            let component = &loaded.form.component;
            loaded.run == one.status.run
                && loaded.image == Stamp::of(&component.image)
                && component.handed().all(|what| self.has(&what))
        })
    }
}
