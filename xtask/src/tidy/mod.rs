//! `cargo xtask tidy`: the house rules that neither compiler nor clippy checks, as tests.
//!
//! A rule is a pure function from the repository's text to findings; each finding says where, what
//! and what to write instead.

mod dependencies;
mod factions;
mod links;
mod ratchets;
mod rules;
mod source;
#[cfg(test)]
mod tests;

use rules::RULES;
use std::collections::BTreeMap;
use std::path::Path;

const HELP: &str = "\
Usage: cargo xtask tidy [--write]

  --write  first write what can be computed: lower numbers in xtask/ratchets.txt, and the last
           column of the code map in ARCHITECTURE.md

Rules:
";

/// What is not ours to judge: what cargo builds, what git keeps (in a file, in another work tree).
const SKIPPED: [&str; 4] = ["target", ".git", ".cache", "corpus"];
/// Raw figures: of these files only the documents are read, and the names of others known.
const FIGURES: &str = "results/";
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

    /// Documents.
    fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".md"))
    }

    /// Whether there is such a file or folder.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        let mut names = self.0.keys();
        path.is_empty() || names.any(|name| name == path || name.starts_with(&folder))
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
    /// What it asks for, in a line that may name the `{limit}`.
    asks: &'static str,
    /// The number of that line; 0 if it has none.
    limit: usize,
    check: fn(&Tree) -> Vec<Finding>,
}

fn tree(root: &Path) -> Result<Tree, String> {
    let mut files = BTreeMap::new();
    read(root, "", DEPTH_MAX, &mut files)?;
    Ok(Tree(files))
}

/// Runs all rules: for each its name, and its findings as lines to print.
///
/// # Errors
/// One line, if the repository cannot be read.
pub fn check(root: &Path) -> Result<Vec<(&'static str, Vec<String>)>, String> {
    let tree = tree(root)?;
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
        print!("{}", HELP);
        for rule in RULES {
            let asks = rule.asks.replace("{limit}", &rule.limit.to_string());
            println!("  {:<16} {}", rule.name, asks);
        }
        return Ok(0);
    }
    match arguments {
        [] => {}
        [option] if option == "--write" => write(root)?,
        [argument, ..] => {
            return Err(format!(
                "tidy takes no `{}`; type: cargo xtask tidy --help",
                argument
            ))
        }
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

/// Writes what can be computed: the numbers of the ratchets, the last column of the code map.
fn write(root: &Path) -> Result<(), String> {
    let tree = tree(root)?;
    let texts = [
        (ratchets::PATH, ratchets::lowered(&tree)),
        (dependencies::PATH, dependencies::filled(&tree)),
    ];
    for (path, text) in texts.iter().filter(|(path, text)| tree.text(path) != text) {
        let path = root.join(path);
        std::fs::write(&path, text).map_err(|error| format!("{}: {}", path.display(), error))?;
    }
    Ok(())
}

/// Reads the files under `root/folder` into `files`: their text, or nothing if it is not judged.
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
            let judged = !path.starts_with(FIGURES) || path.ends_with(".md");
            let bytes = if judged {
                std::fs::read(entry.path()).map_err(failed)?
            } else {
                Vec::new()
            };
            // What is no text (an image, say) is not ours to judge.
            files.insert(path, String::from_utf8(bytes).unwrap_or_default());
        }
    }
    Ok(())
}
