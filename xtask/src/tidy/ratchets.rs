//! Numbers that only go down: the lines of the unsafe islands, and functions that are too long.
//!
//! `xtask/ratchets.txt` keeps them. What grows fails. `cargo xtask tidy --write` lowers what has
//! shrunk; only a person raises a number, and says why in the same file.

use super::source::{functions, lines_without_tests};
use super::{Finding, Tree};

/// Where the numbers are kept.
pub const PATH: &str = "xtask/ratchets.txt";
/// What lowers them.
const WRITE: &str = "cargo xtask tidy --write";

/// The folders and files that count as unsafe islands.
pub const ISLANDS: [&str; 6] = [
    "crates/hw/src",
    "crates/linux/src/sys",
    "crates/tender/src/sys",
    "crates/unikernel/src",
    "crates/vmm/src/sys",
    "tests/packetdrill/src/edge.rs",
];
/// All islands together stay under this many lines.
pub const ISLAND_LINES_MAX: usize = 6950;
/// A function is a screen: this many lines, from `fn` to its last brace.
pub const FUNCTION_LINES_MAX: usize = 70;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry<'a> {
    /// `island LINES FOLDER`.
    Island { lines: usize, folder: &'a str },
    /// `function LINES PATH NAME: REASON`.
    Function {
        lines: usize,
        path: &'a str,
        name: &'a str,
        reason: &'a str,
    },
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let mut words = line.splitn(4, ' ');
    let (kind, lines, path) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    match (kind, words.next()) {
        ("island", None) => Some(Entry::Island {
            lines,
            folder: path,
        }),
        ("function", Some(rest)) => {
            let (name, reason) = rest.split_once(": ")?;
            Some(Entry::Function {
                lines,
                path,
                name,
                reason,
            })
        }
        _ => None,
    }
}

/// The entries of the file with the numbers of their lines.
fn entries(tree: &Tree) -> Vec<(usize, Entry<'_>)> {
    let lines = tree.text(PATH).lines().enumerate();
    lines
        .filter_map(|(index, line)| Some((index + 1, entry(line)?)))
        .collect()
}

/// Lines of the file that are neither a comment nor an entry.
fn nonsense(tree: &Tree) -> Vec<Finding> {
    let lines = tree.text(PATH).lines().enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#') && entry(line).is_none())
        .map(|(index, _)| {
            let forms = "island LINES FOLDER, or: function LINES PATH NAME: REASON";
            Finding::new(PATH, index + 1, format!("write: {}", forms))
        })
        .collect()
}

/// Lines of an island, without tests.
fn island_lines(tree: &Tree, folder: &str) -> usize {
    let inside = |path: &str| {
        path.strip_prefix(folder)
            .map_or(false, |rest| rest.is_empty() || rest.starts_with('/'))
    };
    tree.rust()
        .filter(|(path, _)| inside(path))
        .map(|(_, text)| lines_without_tests(text))
        .sum()
}

/// All islands together stay under the limit and do not grow; each has its size in the file.
pub fn island_size(tree: &Tree) -> Vec<Finding> {
    let mut findings = nonsense(tree);
    let total: usize = ISLANDS
        .iter()
        .map(|island| island_lines(tree, island))
        .sum();
    let mut allowed = 0;
    for (number, entry) in entries(tree) {
        if let Entry::Island { lines, folder } = entry {
            allowed += lines;
            let now = island_lines(tree, folder);
            if now != lines {
                let what = format!("{} has {} lines: write {}, or {}", folder, now, now, WRITE);
                findings.push(Finding::new(PATH, number, what));
            }
        }
    }
    let limit = allowed.min(ISLAND_LINES_MAX);
    if total > limit {
        let what = format!("{} lines, over {}: move what is safe out", total, limit);
        return vec![Finding::new(&ISLANDS.join(", "), 0, what)];
    }
    findings
}

/// A function over the limit, where it is.
struct Long<'a> {
    path: &'a str,
    line: usize,
    name: String,
    lines: usize,
}

fn long_functions(tree: &Tree) -> Vec<Long<'_>> {
    tree.rust()
        .flat_map(|(path, text)| {
            let long = functions(text).into_iter();
            let long = long.filter(|function| function.lines > FUNCTION_LINES_MAX);
            long.map(move |function| Long {
                path,
                line: function.line,
                name: function.name,
                lines: function.lines,
            })
        })
        .collect()
}

/// No function is longer than a screen, but for those in the file, and they do not grow.
pub fn function_length(tree: &Tree) -> Vec<Finding> {
    let entries = entries(tree);
    let long = long_functions(tree);
    // An entry goes with its function into another file.
    let allowed = |function: &Long| {
        entries.iter().find_map(|(_, entry)| match entry {
            Entry::Function {
                lines, path, name, ..
            } if *name == function.name => {
                let same = *path == function.path || now(&long, path, name).is_none();
                same.then_some(*lines)
            }
            _ => None,
        })
    };
    let over = long.iter().filter_map(|function| {
        let limit = allowed(function).unwrap_or(FUNCTION_LINES_MAX);
        let what = format!(
            "{} has {} lines, over {}: split it into steps",
            function.name, function.lines, limit
        );
        (function.lines > limit).then(|| Finding::new(function.path, function.line, what))
    });
    let shrunk = entries.iter().filter_map(|(number, entry)| {
        let what = match entry {
            Entry::Function {
                lines, path, name, ..
            } => match now(&long, path, name) {
                None => format!(
                    "{} is no longer that long: remove the line, or {}",
                    name, WRITE
                ),
                Some(now) if now < *lines => {
                    format!("{} has {} lines: write {}, or {}", name, now, now, WRITE)
                }
                Some(_) => return None,
            },
            Entry::Island { .. } => return None,
        };
        Some(Finding::new(PATH, *number, what))
    });
    over.chain(shrunk).collect()
}

/// Lines of the longest function of this name in a file.
fn now(long: &[Long], path: &str, name: &str) -> Option<usize> {
    long.iter()
        .filter(|function| function.path == path && function.name == name)
        .map(|function| function.lines)
        .max()
}

/// The file with what has shrunk: lower numbers, functions in the file to which they moved, and
/// none of those that are no longer too long.
pub fn lowered(tree: &Tree) -> String {
    let long = long_functions(tree);
    let total: usize = ISLANDS
        .iter()
        .map(|island| island_lines(tree, island))
        .sum();
    let allowed: usize = entries(tree)
        .iter()
        .map(|(_, entry)| match entry {
            Entry::Island { lines, .. } => *lines,
            Entry::Function { .. } => 0,
        })
        .sum();
    // Each goes into one entry.
    let named = |function: &&Long| {
        let is_same = |entry: &Entry| match entry {
            Entry::Function { path, name, .. } => *path == function.path && *name == function.name,
            Entry::Island { .. } => false,
        };
        entries(tree).iter().any(|(_, entry)| is_same(entry))
    };
    let (named, unnamed): (Vec<&Long>, Vec<&Long>) = long.iter().partition(named);
    let mut text = String::new();
    for line in tree.text(PATH).lines() {
        let line = match entry(line) {
            // One island may grow at the cost of another, but not all together.
            Some(Entry::Island { folder, .. }) if total <= allowed => {
                Some(format!("island {} {}", island_lines(tree, folder), folder))
            }
            Some(Entry::Function {
                lines,
                path,
                name,
                reason,
            }) => follow(&named, &unnamed, lines, path, name)
                .map(|(lines, path)| format!("function {} {} {}: {}", lines, path, name, reason)),
            _ => Some(line.to_string()),
        };
        if let Some(line) = line {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

/// Lines and file of a function that had this many and was in this file; none if it is short now.
/// Of those that no entry names, one may be this that moved.
fn follow<'a>(
    named: &[&Long<'a>],
    unnamed: &[&Long<'a>],
    lines: usize,
    path: &str,
    name: &str,
) -> Option<(usize, &'a str)> {
    let here = |function: &&&Long| function.path == path && function.name == name;
    let moved = |function: &&&Long| function.name == name && function.lines <= lines;
    let function = named
        .iter()
        .find(here)
        .or_else(|| unnamed.iter().find(moved))?;
    Some((function.lines.min(lines), function.path))
}
