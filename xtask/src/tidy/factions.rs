//! Factions: which of the crates that go into an image may use each other.

use super::dependencies::{dependencies, PATH};
use super::rules::section;
use super::{Finding, Tree};
use std::collections::BTreeMap;

/// What the last column says of crates that may use each faction.
const ALL: &str = "all";

/// A row of the table under the heading "Factions".
struct Faction<'a> {
    line: usize,
    name: &'a str,
    crates: Vec<&'a str>,
    may_use: Vec<&'a str>,
}

impl Faction<'_> {
    /// Whether its crates may depend on those of a faction.
    fn may_use(&self, other: &str) -> bool {
        self.name == other || self.may_use.contains(&other) || self.may_use == [ALL]
    }
}

/// A crate that goes into images stands in one row, and `[dependencies]` of its Cargo.toml names
/// crates of that row and of those that the row lists. What only tests use does not count.
pub fn factions(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(PATH);
    let factions = table(text);
    let mut findings = Vec::new();
    let mut faction_of: BTreeMap<&str, &Faction> = BTreeMap::new();
    for faction in &factions {
        for name in &faction.crates {
            if let Some(first) = faction_of.insert(name, faction) {
                let what = format!("`{}` is of faction `{}` as well", name, first.name);
                findings.push(Finding::new(PATH, faction.line, what));
            }
        }
    }
    let crates = tree.crates();
    for (name, faction) in &faction_of {
        if !crates.contains(name) {
            let what = format!("there is no crates/{}: remove it from the row", name);
            findings.push(Finding::new(PATH, faction.line, what));
        }
    }
    for (line, name) in in_images(text) {
        if !faction_of.contains_key(name) {
            let what = format!("`{}` goes into images: name its row under Factions", name);
            findings.push(Finding::new(PATH, line, what));
        }
    }
    for (name, faction) in &faction_of {
        let path = format!("crates/{}/Cargo.toml", name);
        for (line, used) in dependencies(tree, name) {
            let what = match faction_of.get(used) {
                Some(other) if !faction.may_use(other.name) => format!(
                    "`{}` is of faction `{}` and may not use `{}` of `{}`: join them in a crate \
                     above, or in an appliance",
                    name, faction.name, used, other.name
                ),
                None if crates.contains(&used) => format!(
                    "`{}` goes into images and `{}` is of no faction: do without it",
                    name, used
                ),
                _ => continue,
            };
            findings.push(Finding::new(&path, line, what));
        }
    }
    findings
}

/// The rows of the table: faction, its crates, the factions that they may use.
fn table(text: &str) -> Vec<Faction<'_>> {
    let row = |(line, text)| match cells(text).as_slice() {
        ["", name, crates, may_use, ""] if !name.is_empty() => Some(Faction {
            line,
            name,
            crates: quoted(crates),
            may_use: may_use.split(", ").collect(),
        }),
        _ => None,
    };
    // The head of the table and the rule below it have no crates, and nobody uses them.
    section(text, "Factions").filter_map(row).collect()
}

/// Lines and names of the crates of which the code map's second column says that a guest has them.
fn in_images(text: &str) -> Vec<(usize, &str)> {
    let row = |(line, text)| match cells(text).as_slice() {
        ["", name, lives, ..] if name.starts_with('`') => {
            let guest = lives.starts_with("guest") || lives.starts_with("both");
            guest.then(|| (line, name.trim_matches('`')))
        }
        _ => None,
    };
    section(text, "Code map").filter_map(row).collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.split('|').map(str::trim).collect()
}

/// What stands between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
