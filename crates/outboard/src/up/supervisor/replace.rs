//! `outboard replace`: another image takes the place of a component's. It is loaded as a spare
//! first; nothing is stopped before that. If it does not come up, the one before comes back.

use super::{Client, Form, Supervisor, Wait, now, say};
use crate::up::check;
use crate::up::machine::{Event, State};
use crate::up::policy::SOUND;
use crate::up::spare;
use std::path::Path;
use std::time::Duration;

/// What to do with a component that is no image.
const INSTEAD: &str = "write another one into the file, and start the supervisor again";

/// How far a replacement is.
#[derive(Default)]
pub(super) enum Replacement {
    /// There is none.
    #[default]
    None,
    /// It is being loaded.
    Loading(Box<Form>),
    /// It has begun, and has to show that it lasts. The one before comes back otherwise.
    Begun(Box<Form>),
    /// It is over: what is said to whoever asked.
    Over(Result<String, String>),
}

impl Replacement {
    /// What is to be loaded.
    pub fn next(&self) -> Option<&Form> {
        match self {
            Self::Loading(next) => Some(next),
            Self::None | Self::Begun(_) | Self::Over(_) => None,
        }
    }

    /// What was loaded begins in the place of `former`.
    pub fn begin(&mut self, former: Form) {
        if let Self::Loading(_) = self {
            *self = Self::Begun(Box::new(former));
        }
    }

    /// What is being loaded cannot be used; whether anything is.
    pub fn fail(&mut self, why: &str) -> bool {
        let fails = matches!(self, Self::Loading(_));
        if fails {
            *self = Self::Over(Err(format!("{why}; nothing was stopped")));
        }
        fails
    }

    /// What is said of one that is over, once.
    fn over(&mut self) -> Option<Result<String, String>> {
        match std::mem::take(self) {
            Self::Over(reply) => Some(reply),
            other => {
                *self = other;
                None
            }
        }
    }

    /// What comes back because the run that has begun has ended.
    fn back(&mut self, cause: &str) -> Option<Form> {
        match std::mem::take(self) {
            Self::Begun(former) => {
                let image = former.component.image.display();
                let why = format!("{cause}; {image} runs again");
                *self = Self::Over(Err(why));
                Some(*former)
            }
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Supervisor {
    /// Begins to replace a component's image.
    ///
    /// # Errors
    /// What runs goes on, and why.
    pub(super) fn replace(&mut self, name: &str, image: &Path) -> Result<(), String> {
        let index = self.index_of(name)?;
        let one = &self.all[index];
        let component = one.component();
        component.must_be_image(INSTEAD)?;
        if !matches!(one.machine.state(), State::Up { .. }) {
            return Err(format!("{name} is not up; type: outboard restart {name}"));
        }
        if !matches!(one.replacement, Replacement::None) {
            return Err(format!("{name} is being replaced already"));
        }
        let mut component = one.component().clone();
        image.clone_into(&mut component.image);
        if let Some(mistake) = check::component(&component).first() {
            return Err(format!("{mistake}; nothing was stopped"));
        }
        let fits = self.fits(&component);
        fits.map_err(|why| format!("{why}; nothing was stopped"))?;
        let mut command_line = one.form.command_line.clone();
        // It stands in front of the guest's own arguments.
        let place = command_line.len() - component.arguments.len() - 1;
        command_line[place] = image.display().to_string();
        let next = Box::new(Form {
            component,
            command_line,
        });
        let now = now();
        self.give_spare(index, spare::Event::Drop, now);
        self.all[index].replacement = Replacement::Loading(next);
        self.give_spare(index, spare::Event::Want(now), now);
        Ok(())
    }

    /// Lets a replacement go on that is loaded, or has lasted.
    pub(super) fn tend_replacement(&mut self, index: usize, now: Duration) {
        let one = &mut self.all[index];
        match (&one.replacement, one.machine.state()) {
            (Replacement::Loading(_), State::Up { .. })
                if one.spare.state == spare::State::Loaded =>
            {
                self.give(index, Event::Restart, now);
            }
            // It is to end, and who replaces it does not take its place.
            (Replacement::Loading(_), State::Ended | State::Ending { again: false, .. }) => {
                one.replacement.fail("it is to end");
            }
            (Replacement::Begun(_), State::Up { since }) if now >= since + SOUND => {
                let image = one.component().image.display().to_string();
                let what = format!("runs {image} now; the file may still name another one");
                say(one.name(), &what);
                let name = one.name().to_owned();
                one.replacement = Replacement::Over(Ok(format!("{name} {what}")));
                self.want_spare(index, now);
            }
            _ => {}
        }
    }

    /// When a replacement is to be looked at again.
    pub(super) fn replacement_due(&self, index: usize) -> Option<Duration> {
        let one = &self.all[index];
        match (&one.replacement, one.machine.state()) {
            (Replacement::Begun(_), State::Up { since }) => Some(since + SOUND),
            _ => None,
        }
    }

    /// A run has ended. If nobody asked for that and it was to replace another image, that one
    /// comes back; if another one is being loaded for it, it is started as it was.
    pub(super) fn roll_back(&mut self, index: usize, cause: &str, now: Duration) {
        let one = &mut self.all[index];
        if let State::Ending { .. } = one.machine.state() {
            return;
        }
        one.replacement.fail("it ended meanwhile");
        if let Some(former) = one.replacement.back(cause) {
            one.form = former;
            self.give_spare(index, spare::Event::Drop, now);
        }
    }

    /// Answers whoever waits for a replacement that is over.
    pub(super) fn answer_replaced(&mut self) {
        for index in 0..self.all.len() {
            let Some(reply) = self.all[index].replacement.over() else {
                continue;
            };
            if let Err(why) = &reply {
                say(self.all[index].name(), format_args!("not replaced: {why}"));
            }
            let name = self.all[index].name().to_owned();
            let waits = |client: &Client| match &client.waits {
                Some(Wait::Replacement(waited)) => *waited == name,
                _ => false,
            };
            let reply = reply.map_err(|why| format!("{name} was not replaced: {why}"));
            let (done, waiting) = std::mem::take(&mut self.clients)
                .into_iter()
                .partition(waits);
            self.clients = waiting;
            let done: Vec<Client> = done;
            done.iter()
                .for_each(|client| super::commands::answer(client, &reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::component::Component;

    fn form(image: &str) -> Form {
        Form {
            component: Component {
                image: image.into(),
                ..Component::default()
            },
            command_line: Vec::new(),
        }
    }

    #[test]
    fn what_cannot_be_loaded_stops_nothing() {
        let mut replacement = Replacement::Loading(Box::new(form("new")));
        assert!(replacement.next().is_some());
        assert!(replacement.fail("it is none"));
        let Replacement::Over(Err(why)) = &replacement else {
            panic!("it is over");
        };
        assert_eq!(why, "it is none; nothing was stopped");
        // What is over fails no more, and has nothing to load.
        assert!(!replacement.fail("again") && replacement.next().is_none());
    }

    #[test]
    fn what_does_not_last_gives_way_to_the_former_one() {
        let mut replacement = Replacement::Loading(Box::new(form("new")));
        assert!(replacement.back("it is not begun").is_none());
        replacement.begin(form("old"));
        assert!(replacement.next().is_none() && !replacement.fail("too late"));
        let former = replacement.back("a panic").unwrap();
        assert_eq!(former.component.image, Path::new("old"));
        let Replacement::Over(Err(why)) = &replacement else {
            panic!("it is over");
        };
        assert_eq!(why, "a panic; old runs again");
    }

    #[test]
    fn a_start_that_replaces_nothing_begins_nothing() {
        let mut replacement = Replacement::None;
        replacement.begin(form("same"));
        assert!(replacement.back("it ended").is_none());
        assert!(!replacement.fail("it ended") && replacement.next().is_none());
    }
}
