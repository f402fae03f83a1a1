//! Whom a supervisor hears and tells: its keeper, commands, the service manager, and whoever reads
//! what it writes down.

use super::{CLIENTS_MAX, Client, Supervisor, TURN_MAX, Wait, now};
use crate::up::channel::{Channel, Received};
use crate::up::machine::{Event, State};
use crate::up::message::{Answer, Command, Reply};
use crate::up::status::{self, Status};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

impl Supervisor {
    /// Takes what the keeper says.
    ///
    /// # Errors
    /// It is gone, and there is no other one.
    pub(super) fn hear_keeper(&mut self) -> io::Result<()> {
        for _ in 0..TURN_MAX {
            match self.keeper.receive() {
                Ok(Received::Message(
                    Answer::Ended {
                        name,
                        run,
                        spare: true,
                        status,
                    },
                    _,
                )) => self.spare_ended(&name, run, status, now()),
                Ok(Received::Message(
                    Answer::Refused {
                        name,
                        run,
                        spare: true,
                        why,
                    },
                    _,
                )) => self.spare_refused(&name, run, &why, now()),
                Ok(Received::Message(
                    Answer::Ended {
                        name, run, status, ..
                    },
                    _,
                )) => {
                    if let Some(index) = self.running(&name, run) {
                        self.judge(index, status, now());
                    }
                }
                Ok(Received::Message(Answer::Refused { name, run, why, .. }, _)) => {
                    if let Some(index) = self.running(&name, run) {
                        self.end(index, false, format!("not started: {why}"), now());
                    }
                }
                Ok(Received::Message(Answer::Found { .. } | Answer::All, _)) => {}
                Ok(Received::Nothing) => break,
                Ok(Received::End) | Err(_) => return self.replace_keeper(),
            }
        }
        Ok(())
    }

    /// The component whose run this is, unless it has ended already.
    fn running(&self, name: &str, run: u64) -> Option<usize> {
        self.all.iter().position(|one| {
            let ended = one.status.ends.last().is_some_and(|end| end.run == run);
            one.name() == name && one.status.run == run && !ended
        })
    }

    pub(super) fn take_client(&mut self) {
        let Some(channel) = Channel::accept(self.control.as_fd()) else {
            return;
        };
        // Who finds no room comes again.
        if self.clients.len() < CLIENTS_MAX {
            let waits = None;
            self.clients.push(Client { channel, waits });
        }
    }

    pub(super) fn hear_clients(&mut self) {
        for mut client in std::mem::take(&mut self.clients) {
            match client.channel.receive() {
                Ok(Received::Nothing) => self.clients.push(client),
                Ok(Received::Message(Command::Down, _)) => {
                    self.down = true;
                    self.clients.push(client);
                }
                Ok(Received::Message(Command::Restart(name), _)) => match self.restart(&name) {
                    Ok(run) => {
                        client.waits = Some(Wait::Run(name, run));
                        self.clients.push(client);
                    }
                    Err(why) => answer(&client, &Err(why)),
                },
                Ok(Received::Message(Command::Replace(name, image), _)) => {
                    match self.replace(&name, &image) {
                        Ok(()) => {
                            client.waits = Some(Wait::Replacement(name));
                            self.clients.push(client);
                        }
                        Err(why) => answer(&client, &Err(why)),
                    }
                }
                Ok(Received::Message(Command::Join(net), _)) => {
                    self.hand_end(client.channel, &net);
                }
                Ok(Received::Message(Command::Debug(name), _)) => {
                    self.debug(client.channel, &name);
                }
                Ok(Received::End) | Err(_) => {}
            }
        }
    }

    /// The component of this name.
    pub(super) fn index_of(&self, name: &str) -> Result<usize, String> {
        let names = self.all.iter().map(super::Managed::name);
        let found = names.clone().position(|other| other == name);
        let index = found.ok_or_else(|| {
            let names: Vec<_> = names.collect();
            super::super::no_component(name, &names)
        })?;
        match self.down {
            true => Err(format!("{name}: all components are being ended")),
            false => Ok(index),
        }
    }

    /// Starts a component again; the number of the run that it will have.
    fn restart(&mut self, name: &str) -> Result<u64, String> {
        let index = self.index_of(name)?;
        let run = self.all[index].status.run + 1;
        self.give(index, Event::Restart, now());
        Ok(run)
    }

    /// Answers those whose component is up again, or will not be.
    pub(super) fn answer_clients(&mut self) {
        self.answer_replaced();
        for client in std::mem::take(&mut self.clients) {
            let Some(Wait::Run(name, run)) = &client.waits else {
                self.clients.push(client);
                continue;
            };
            let mut all = self.all.iter();
            let found = all.find(|one| one.name() == *name && one.status.run >= *run);
            match found.map(|one| (one.machine.state(), one.status.run)) {
                Some((State::Up { .. }, run)) => {
                    answer(&client, &Ok(format!("{name} is up again: run {run}")));
                }
                Some((State::Ended | State::Pausing { .. }, _)) => {
                    let why = format!("{name} did not come up; type: outboard logs {name}");
                    answer(&client, &Err(why));
                }
                _ => self.clients.push(client),
            }
        }
    }

    /// Writes down what has changed. Best effort: it goes on without.
    pub(super) fn write_down(&mut self) {
        let components = self.all.iter().map(|one| {
            let mut status = one.status.clone();
            word(one.machine.state()).clone_into(&mut status.state);
            status
        });
        let components: Vec<status::Component> = components.collect();
        if components != self.written {
            let status = Status::new(self.file.clone(), components.clone());
            let _ = status.write(&self.place);
            self.written = components;
            self.tell_counts();
        }
    }

    fn tell_counts(&self) {
        let is_up = |one: &&super::Managed| matches!(one.machine.state(), State::Up { .. });
        let up = self.all.iter().filter(is_up).count();
        let count = self.all.len();
        self.notify
            .tell(&format!("STATUS={up} of {count} components are up"));
    }

    /// Tells the service manager that all are up, once, and that this process lives.
    pub(super) fn tell_manager(&mut self, now: Duration) {
        let settled = |one: &super::Managed| {
            !matches!(one.machine.state(), State::Waiting | State::Starting { .. })
        };
        if !self.is_ready && self.all.iter().all(settled) {
            self.is_ready = true;
            self.notify
                .tell(&format!("READY=1\nMAINPID={}", std::process::id()));
        }
        if let Some(period) = self.notify.period().filter(|_| now >= self.alive) {
            self.notify.tell("WATCHDOG=1");
            self.alive = now + period;
        }
    }
}

/// Who does not wait for the answer does without.
pub(super) fn answer(client: &Client, reply: &Reply) {
    let _ = client.channel.send(reply, &[]);
}

/// A state in a word.
fn word(state: State) -> &'static str {
    match state {
        State::Waiting => "waiting",
        State::Starting { .. } => "starting",
        State::Up { .. } => "up",
        State::Hanging { .. } => "hanging",
        State::Pausing { .. } => "pausing",
        State::Ending { .. } => "ending",
        State::Ended => "ended",
    }
}
