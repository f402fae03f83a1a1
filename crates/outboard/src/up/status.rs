//! What a supervisor writes down of its components: for `outboard ps`, which needs no living
//! supervisor, and for the next supervisor, which goes on from there.

use super::place::{Place, REPORTS};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Version of what follows; a reader refuses any other.
const VERSION: u32 = 1;
/// Longest file, in bytes: a line for each end that is kept.
const BYTES_MAX: u64 = 1 << 20;

/// A system and its components.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    version: u32,
    /// The supervisor's process id.
    pub supervisor: u32,
    /// The file that it follows.
    pub file: PathBuf,
    /// Its components, in the order in which they are started.
    pub components: Vec<Component>,
}

/// A component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Where it is, in a word.
    pub state: String,
    /// The number of its run, from 1 on.
    pub run: u64,
    /// How often it was started again.
    pub restarts: u64,
    /// How its last runs ended, the oldest first; [`REPORTS`] at most.
    pub ends: Vec<End>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The number of the run.
    pub run: u64,
    /// When, in seconds since 1970.
    pub time: u64,
    /// Why.
    pub cause: String,
}

impl Status {
    /// That of a system whose supervisor this process is.
    pub fn new(file: PathBuf, components: Vec<Component>) -> Self {
        Self {
            version: VERSION,
            supervisor: std::process::id(),
            file,
            components,
        }
    }

    /// Writes it, so that whoever reads it finds all of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, place: &Place) -> io::Result<()> {
        let path = place.status();
        let draft = path.with_extension("draft");
        std::fs::write(&draft, serde_json::to_vec(self)?)?;
        std::fs::rename(&draft, &path)
    }

    /// What was written; `None` if nothing was, or by another version.
    pub fn read(place: &Place) -> Option<Self> {
        let mut json = Vec::new();
        let file = File::open(place.status()).ok()?;
        file.take(BYTES_MAX).read_to_end(&mut json).ok()?;
        let status: Self = serde_json::from_slice(&json).ok()?;
        (status.version == VERSION).then_some(status)
    }
}

impl Component {
    /// Notes an end, and forgets the oldest of too many.
    pub fn note(&mut self, end: End) {
        self.ends.push(end);
        let most = REPORTS as usize;
        let surplus = self.ends.len().saturating_sub(most);
        self.ends.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_ends_are_kept() {
        let mut component = Component::default();
        for run in 1..=25 {
            let cause = String::new();
            component.note(End {
                run,
                time: 0,
                cause,
            });
        }
        let runs: Vec<_> = component.ends.iter().map(|end| end.run).collect();
        assert_eq!(runs, (16..=25).collect::<Vec<_>>());
    }
}
