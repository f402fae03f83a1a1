//! Components that somebody looks into with gdb.
//!
//! As long as the command is connected, nobody asks whether its component makes progress. A jailed
//! process is nobody's to look into, so that a component of `spt` is started again on `process`; it
//! is back in its jail when the command has ended.

use super::replace::Replacement;
use super::{Form, Supervisor, now, say};
use crate::instance::Instance;
use crate::up::channel::{Channel, Received};
use crate::up::component::{self, Component};
use crate::up::cores;
use crate::up::machine::{Event, State};
use crate::up::message::{Command, Reply};
use crate::up::spare;
use tender::options::Host;

/// Somebody who looks into a component.
pub(super) struct Debugger {
    pub(super) channel: Channel,
    /// Which run it is.
    run: u64,
    /// The component before.
    component: Component,
    /// Whether it was told that the component is up.
    told: bool,
}

impl Supervisor {
    /// Lets go of a component as far as who looks into it needs that, and answers when it is up.
    pub(super) fn debug(&mut self, channel: Channel, name: &str) {
        match self.begin_debug(name) {
            Ok((run, component)) => self.debuggers.push(Debugger {
                channel,
                run,
                component,
                told: false,
            }),
            // Who does not wait for the answer does without.
            Err(why) => drop(channel.send(&Reply::Err(why), &[])),
        }
    }

    /// The run to be looked into, and the component as it was.
    fn begin_debug(&mut self, name: &str) -> Result<(u64, Component), String> {
        let index = self.index_of(name)?;
        let component = self.all[index].component();
        component.must_be_image("look into its process: gdb -p PID")?;
        let mut debuggers = self.debuggers.iter();
        if debuggers.any(|other| other.component.name == name) {
            return Err(format!("{name}: somebody looks into it already"));
        }
        if !matches!(self.all[index].machine.state(), State::Up { .. }) {
            return Err(format!("{name} is not up; type: outboard ps"));
        }
        if !matches!(self.all[index].replacement, Replacement::None) {
            return Err(format!("{name} is being replaced; type: outboard ps"));
        }
        let instance = Instance::open(name).map_err(|error| error.to_string())?;
        let host = instance.description().host.as_str();
        if host == Host::Hvt.name() {
            return Err(format!(
                "{name} is a virtual machine, into which gdb cannot look; write host = \"process\" \
                 or core = 1 in the file, and start the supervisor again"
            ));
        }
        let one = &mut self.all[index];
        let before = one.component().clone();
        one.form.component.progress = Some(0);
        if host == Host::Process.name() {
            return Ok((one.status.run, before));
        }
        one.form.component.host = Some(Host::Process.name().to_owned());
        let run = one.status.run + 1;
        say(name, "somebody looks into it: without a jail meanwhile");
        self.start_anew(index);
        Ok((run, before))
    }

    /// Answers those whose component is up, and has others back as the file has them.
    pub(super) fn attend_debuggers(&mut self) {
        for mut debugger in std::mem::take(&mut self.debuggers) {
            let connected = matches!(debugger.channel.receive::<Command>(), Ok(Received::Nothing));
            if connected && self.answer_debugger(&mut debugger) {
                self.debuggers.push(debugger);
            } else {
                self.end_debug(debugger.component);
            }
        }
    }

    /// Tells who waits for a component that it is up, or will not be; whether it may go on.
    fn answer_debugger(&self, debugger: &mut Debugger) -> bool {
        let Debugger {
            channel,
            run,
            component,
            told,
        } = debugger;
        let mut all = self.all.iter();
        let found = all.find(|one| one.name() == component.name);
        let name = &component.name;
        let (reply, goes_on): (Reply, bool) = match found.map(|one| one.machine.state()) {
            _ if *told => return true,
            Some(State::Up { .. }) if found.is_some_and(|one| one.status.run >= *run) => {
                (Ok(format!("{name} is up, without a jail")), true)
            }
            Some(State::Ended | State::Pausing { .. }) | None => {
                let why = format!("{name} did not come up; type: outboard logs --ends {name}");
                (Err(why), false)
            }
            _ => return true,
        };
        *told = true;
        channel.send(&reply, &[]).is_ok() && goes_on
    }

    /// Has a component back as it was. Its image may be another one meanwhile.
    fn end_debug(&mut self, before: Component) {
        let mut all = self.all.iter();
        let Some(index) = all.position(|one| one.name() == before.name) else {
            return;
        };
        let one = &mut self.all[index];
        one.form.component.progress = before.progress;
        // It has stood still, and nobody holds that against it.
        one.progress = None;
        if one.component().host != before.host {
            one.form.component.host = before.host;
            say(one.name(), "nobody looks into it any more");
            self.start_anew(index);
        }
    }

    /// Starts a component again as it is now. Its addresses stay; a spare is another one's.
    fn start_anew(&mut self, index: usize) {
        let now = now();
        self.give_spare(index, spare::Event::Drop, now);
        let Form {
            component,
            command_line,
        } = &mut self.all[index].form;
        let macs = component::macs(command_line);
        *command_line = component.command_line(&macs);
        command_line.splice(0..0, cores::option(&self.place, component));
        self.give(index, Event::Restart, now);
    }
}
