//! What a supervisor begins with: the components of its file, and those that an earlier one has
//! left.

use super::replace::Replacement;
use super::spares::Spare;
use super::{Form, Found, Managed, Supervisor, now, reach, say};
use crate::run;
use crate::up::cause;
use crate::up::component::{self, Component};
use crate::up::cores;
use crate::up::machine::{Event, Machine, State};
use crate::up::status::Status;
use rustix::process::{WaitOptions, waitpid};
use std::io;
use std::time::Duration;
use tender::attach;

impl Supervisor {
    /// Goes on with what was `found`. What runs as the file says goes on running. What runs
    /// otherwise is started again, and what the file does not have ends.
    pub(super) fn take_over(
        &mut self,
        components: Vec<Component>,
        mut found: Vec<Found>,
        former: Option<&Status>,
    ) {
        let (mut ended, mut changed) = (Vec::new(), Vec::new());
        for one in &mut found {
            let mut descriptors = std::mem::take(&mut one.descriptors).into_iter();
            for what in one.start.handed.iter().chain(&one.start.kept) {
                let own = descriptors.by_ref().take(what.descriptors());
                self.pool.insert(what.clone(), own.collect());
            }
        }
        for component in components {
            let place = found
                .iter()
                .position(|one| one.start.name == component.name);
            let before = place.map(|place| found.swap_remove(place));
            let mut managed = manage(component, before.as_ref(), former);
            let core = cores::option(&self.place, managed.component());
            managed.form.command_line.splice(0..0, core);
            let index = self.all.len();
            if let Some(before) = before {
                ended.extend(before.status.map(|status| (index, status)));
                let start = managed.form.start(managed.status.run, self.groups.as_ref());
                if start != before.start {
                    changed.push(index);
                }
            }
            self.all.push(managed);
        }
        for gone in found.into_iter().filter(|one| one.status.is_none()) {
            let component = Component {
                name: gone.start.name.clone(),
                ..Component::default()
            };
            let mut managed = manage(component, Some(&gone), former);
            managed.leaving = true;
            say(managed.name(), "is not in the file any more");
            self.all.push(managed);
        }
        self.let_go();
        self.free_ends();
        let now = now();
        for (index, status) in ended {
            self.judge(index, status, now);
        }
        for index in 0..self.all.len() {
            let one = &self.all[index];
            if !matches!(one.machine.state(), State::Up { .. }) {
                continue;
            }
            // A supervisor that is killed while it makes a link leaves one end of it.
            let why = match changed.contains(&index) {
                true => "what the file says of it has changed",
                false if self.has_links(one.component()) => {
                    self.want_spare(index, now);
                    continue;
                }
                false => "its link has lost the other end",
            };
            say(one.name(), why);
            self.give(index, Event::Restart, now);
        }
    }

    /// Lets go of what is nobody's any more: what components have that are to end is not handed
    /// over again.
    fn let_go(&mut self) {
        let all = &self.all;
        self.pool.retain(|what, _| {
            all.iter().any(|one| {
                let mut all = one.component().handed().chain(one.component().kept());
                all.any(|handed| handed == *what)
            })
        });
    }

    /// Starts a keeper in the place of one that is gone, and with it all components.
    pub(super) fn replace_keeper(&mut self) -> io::Result<()> {
        let (keeper, found) = reach(&self.place, &self.held)?;
        self.keeper = keeper;
        // The former one, if it was this process's child and has ended.
        let _ = waitpid(None, WaitOptions::NOHANG);
        let now = now();
        for index in 0..self.all.len() {
            let one = &self.all[index];
            let name = one.name();
            let state = found.iter().find(|found| found.start.name == *name);
            match state {
                _ if !one.machine.state().is_running() => {}
                Some(Found { status: None, .. }) => {}
                Some(Found {
                    status: Some(status),
                    ..
                }) => self.judge(index, *status, now),
                None => self.end(index, false, "its keeper was ended".to_owned(), now),
            }
        }
        Ok(())
    }

    /// A run has ended with this status.
    pub(super) fn judge(&mut self, index: usize, status: i32, now: Duration) {
        let one = &self.all[index];
        let report = self.report(one.name(), one.status.run);
        let cause = cause::of(status, &report);
        self.end(index, cause::is_well(status), cause, now);
    }
}

/// A component of the file's, with what is known `before` of it.
fn manage(component: Component, before: Option<&Found>, former: Option<&Status>) -> Managed {
    let mut known = former.into_iter().flat_map(|former| &former.components);
    let known = known.find(|known| known.name == component.name);
    let mut status = known.cloned().unwrap_or_default();
    status.name.clone_from(&component.name);
    let line = before.map(|found| &found.start.command_line);
    let macs = line.map(|line| component::macs(line)).unwrap_or_default();
    let command_line = component.command_line(&with_random(macs, &component));
    let mut machine = Machine::new(component.restart);
    if let Some(Found { start, started, .. }) = before {
        machine = Machine::found(component.restart, *started);
        status.run = start.run;
    }
    Managed {
        form: Form {
            component,
            command_line,
        },
        machine,
        spare: Spare::default(),
        replacement: Replacement::None,
        status,
        leaving: false,
        killed: None,
        progress: None,
        lost: None,
    }
}

/// With addresses for networks that have none: random ones, which they keep.
fn with_random(mut macs: Vec<(String, String)>, component: &Component) -> Vec<(String, String)> {
    for device in component.devices.iter().filter(|device| device.wants_mac()) {
        if macs.iter().any(|(name, _)| *name == device.name) {
            continue;
        }
        // Without one here, the tender chooses.
        if let Ok(mac) = attach::random_mac() {
            macs.push((device.name.clone(), run::hexadecimal(mac)));
        }
    }
    macs
}
