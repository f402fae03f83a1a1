//! `cargo xtask tidy`: the house rules that neither compiler nor clippy checks, as tests.
//!
//! A rule is a pure function from the repository's text to findings; each finding says where, what
//! and what to write instead.

mod rules;
mod source;
#[cfg(test)]
mod tests;

use rules::RULES;
use std::collections::BTreeMap;
use std::path::Path;

/// What is not ours to judge: what cargo builds, what git keeps (in a file, in another work tree),
/// raw figures.
const SKIPPED: [&str; 5] = ["target", ".git", ".cache", "results", "corpus"];
/// Folders may nest so deep; deeper ones are a loop of links.
const DEPTH_MAX: u32 = 16;

/// The repository: the text of every file by its path from the root.
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Files and their text, in order of their paths.
    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Files of Rust.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// The text of one file; empty if there is none, which no rule accepts.
    fn text(&self, path: &str) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }

    /// Names of the folders in `crates`.
    fn crates(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .files()
            .filter_map(|(path, _)| path.strip_prefix("crates/")?.split_once('/'))
            .map(|(name, _)| name)
            .collect();
        names.dedup();
        names
    }
}

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_string(),
            line,
            what: what.into(),
        }
    }
}

/// A rule.
pub struct Rule {
    /// Stable name, for reviews and commit messages.
    name: &'static str,
    /// What it asks for, in a line.
    asks: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// Runs all rules: for each its name, and its findings as lines to print.
///
/// # Errors
/// One line, if the repository cannot be read.
pub fn check(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>, String> {
    let mut files = BTreeMap::new();
    read(root, "", DEPTH_MAX, &mut files)?;
    let tree = Tree(files);
    let line = |rule: &Rule, finding: &Finding| {
        format!(
            "{}:{}: {} [{}]",
            finding.path, finding.line, finding.what, rule.name
        )
    };
    Ok(RULES
        .iter()
        .map(|rule| {
            (
                rule.name,
                (rule.check)(&tree).iter().map(|f| line(rule, f)).collect(),
            )
        })
        .collect())
}

/// `cargo xtask tidy`.
///
/// # Errors
/// As [`check`].
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        println!("Usage: cargo xtask tidy\n\nRules:");
        RULES
            .iter()
            .for_each(|rule| println!("  {:<16} {}", rule.name, rule.asks));
        return Ok(0);
    }
    if let Some(argument) = arguments.first() {
        return Err(format!(
            "tidy takes no `{}`; type: cargo xtask tidy --help",
            argument
        ));
    }
    let results = check(root)?;
    results
        .iter()
        .flat_map(|(_, findings)| findings)
        .for_each(|line| println!("{}", line));
    let broken = results
        .iter()
        .filter(|(_, findings)| !findings.is_empty())
        .count();
    println!(
        "tidy: {} rules kept, {} broken",
        results.len() - broken,
        broken
    );
    Ok(if broken == 0 { 0 } else { 1 })
}

/// Reads the text files under `root/folder` into `files`.
fn read(
    root: &Path,
    folder: &str,
    depth: u32,
    files: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let whole = root.join(folder);
    let failed = |error: std::io::Error| format!("{}: {}", whole.display(), error);
    if depth == 0 {
        return Err(format!(
            "{}: folders nest too deep; remove the loop",
            whole.display()
        ));
    }
    for entry in std::fs::read_dir(&whole).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{}/{}", folder, name)
        };
        let kind = entry.file_type().map_err(failed)?;
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            read(root, &path, depth - 1, files)?;
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).map_err(failed)?;
            // What is no text (an image, say) is not ours to judge.
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(path, text);
            }
        }
    }
    Ok(())
}
