//! What supervisor and keeper, and commands and supervisor, say to each other.

use super::handed::Handed;
use super::program::Settings;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How to start a component. Its descriptors come with it: first the file for what is said of the
/// run, then those that the command line names, which are numbered from
/// [`super::component::FIRST_HANDED`] on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Its name.
    pub name: String,
    /// Which run of it this is, from 1 on.
    pub run: u64,
    /// What stands behind `outboard run`, or `outboard proxy` for a program.
    pub command_line: Vec<String>,
    /// What else a program is started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Settings>,
    /// What the descriptors of the command line are.
    pub handed: Vec<Handed>,
    /// What its keeper keeps and does not hand over; its descriptors come behind the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Handed>,
    /// Most address space of each of its processes, in bytes.
    pub memory_limit: Option<u64>,
    /// The control group that bounds it.
    pub group: Option<PathBuf>,
}

/// What a supervisor asks of the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Request {
    /// Start a component.
    Start(Start),
    /// Load a spare for the next run of a component, which may be running.
    Load(Start),
    /// Begin this run of the component of this name, which does not run, by its spare.
    Wake(String, u64),
    /// Let go of the spare of the component of this name.
    Dismiss(String),
    /// Ask the component of this name to end.
    Stop(String),
    /// Ask the component of this name where it is, which ends it.
    Quit(String),
    /// Kill the component of this name.
    Kill(String),
    /// Let go of the component of this name, which has ended, and of its descriptors.
    Forget(String),
    /// Say what there is: [`Answer::Found`] for each component, then [`Answer::All`].
    List,
    /// End, with all that is left.
    End,
}

/// What the keeper says to its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Answer {
    /// A component, with its descriptors but the first.
    Found {
        /// How it was started.
        start: Start,
        /// When, in nanoseconds of the monotonic clock.
        started: u64,
        /// How its last run ended, as wait(2) says it; `None` if it runs.
        status: Option<i32>,
    },
    /// There are no more.
    All,
    /// This run of a component could not be started.
    Refused {
        /// The component.
        name: String,
        /// The run.
        run: u64,
        /// Whether it is about the spare for that run.
        spare: bool,
        /// Why.
        why: String,
    },
    /// This run of a component has ended.
    Ended {
        /// The component.
        name: String,
        /// The run.
        run: u64,
        /// Whether it is about the spare for that run.
        spare: bool,
        /// How, as wait(2) says it.
        status: i32,
    },
}

/// What a command asks of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum Command {
    /// End all components, and the supervisor.
    Down,
    /// End a component, and start it again.
    Restart(String),
    /// Have a component go on with another image.
    Replace(String, PathBuf),
    /// Have somebody look into a component as long as the command is connected.
    Debug(String),
    /// Hand over the free end of this link, as long as the command is connected.
    Join(String),
}

/// What the supervisor says to [`Command::Join`]: the MTU of the link in bytes, if its file says.
/// The descriptors of the end come with it.
pub type End = Result<Option<u16>, String>;

/// What the supervisor says to a command: what was done, or why not.
pub type Reply = Result<String, String>;
