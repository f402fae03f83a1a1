//! What each crate may use: the code map's last column, and `[dependencies]` of its Cargo.toml.

use super::{Finding, Tree};

/// Where the code map is.
pub const PATH: &str = "ARCHITECTURE.md";
/// What the column says of a crate without dependencies.
const NOTHING: &str = "nothing";

/// The column names all of `[dependencies]`: crates of the workspace, then, behind a semicolon,
/// those from outside; both in order of the alphabet. What only tests use does not count.
pub fn may_use(tree: &Tree) -> Vec<Finding> {
    let crates = tree.crates();
    let lines = tree.text(PATH).lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let (name, says) = row(line, &crates)?;
            let uses = column(tree, name, &crates);
            let what = format!("`{}` may use \"{}\": write \"{}\"", name, says, uses);
            (says != uses).then(|| Finding::new(PATH, index + 1, what))
        })
        .collect()
}

/// The page with that column as it is to be.
pub fn filled(tree: &Tree) -> String {
    let crates = tree.crates();
    let line = |line: &str| match row(line, &crates) {
        Some((name, says)) => {
            let before = line.trim_end_matches('|').trim_end();
            let before = &before[..before.len() - says.len()];
            format!("{} {} |\n", before.trim_end(), column(tree, name, &crates))
        }
        None => format!("{}\n", line),
    };
    tree.text(PATH).lines().map(line).collect()
}

/// The crate of a row of the code map, and what its last column says.
fn row<'a>(line: &'a str, crates: &[&str]) -> Option<(&'a str, &'a str)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    match cells.as_slice() {
        ["", name, .., says, ""] if name.starts_with('`') => {
            let name = name.trim_matches('`');
            crates.contains(&name).then_some((name, *says))
        }
        _ => None,
    }
}

/// What the column is to say of a crate.
fn column(tree: &Tree, name: &str, crates: &[&str]) -> String {
    let mut names: Vec<&str> = dependencies(tree, name).map(|(_, name)| name).collect();
    names.sort_unstable();
    let (ours, others): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| crates.contains(name));
    match (ours.is_empty(), others.is_empty()) {
        (true, true) => NOTHING.to_string(),
        (false, false) => format!("{}; {}", ours.join(", "), others.join(", ")),
        _ => [ours, others].concat().join(", "),
    }
}

/// Line number and name of each line of `[dependencies]` in a crate's Cargo.toml.
pub fn dependencies<'a>(tree: &'a Tree, name: &str) -> impl Iterator<Item = (usize, &'a str)> {
    tree.text(&format!("crates/{}/Cargo.toml", name))
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['))
        .filter(|(_, line)| line.starts_with(|c: char| c.is_alphanumeric()))
        .filter_map(|(index, line)| Some((index + 1, line.split(|c| ".= ".contains(c)).next()?)))
}
