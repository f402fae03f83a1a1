//! Whose code is inside of the programs, under which licence, and the text of each.

use super::{archive, build, printed};
use crate::process;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = "\
Outboard is licensed under MIT or Apache-2.0, as you like: see LICENSE-MIT and LICENSE-APACHE.

Its programs and images are linked statically. They contain parts of Rust's standard library (MIT or
Apache-2.0), the programs parts of the GNU C library too (LGPL-2.1 or later), and these libraries of
https://crates.io, each with its version and licence. The texts of their licences follow, each once,
as their packages have them.

";
/// How the names of files begin that hold a licence, or what it asks to be kept with it.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];
/// Said of a library whose package has no such file.
const WITHOUT: &str = " (without a text in its package)";
/// Between two texts.
const RULE: &str = "----------------------------------------------------------------------";

/// The text of the file `copyright`.
///
/// # Errors
/// One line, if cargo cannot say what is inside.
pub fn copyright(sources: &Path) -> Result<String, String> {
    let tree = |folder: &Path, packages: &[&str]| {
        let mut cargo = Command::new(process::cargo());
        cargo
            .args(["tree", "--locked", "--prefix=none", "--edges=normal"])
            .args(["--format={p}: {l}"])
            .args(packages)
            .current_dir(folder);
        printed(&mut cargo)
    };
    let programs = tree(sources, &["-p", "outboard", "-p", "tender"])?;
    let image = tree(&sources.join("unikernels"), &["-p", "firewall"])?;
    let trees = [programs, image].concat();
    let registries = build::registries()?;
    let (mut list, mut all) = (HEAD.to_string(), Vec::new());
    for library in libraries(&trees) {
        let files = files(library, &registries)?;
        let note = if files.is_empty() { WITHOUT } else { "" };
        writeln!(list, "  {}{}", library, note).map_err(|error| error.to_string())?;
        all.extend(files);
    }
    Ok(list + &texts(all)?)
}

/// The libraries of cargo's trees, sorted, each once; our own stand there with their folders, and
/// those that only run in the compiler as such.
fn libraries(trees: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = trees
        .lines()
        .filter(|line| !line.is_empty() && !line.contains(" (/") && !line.contains("(proc-macro)"))
        .map(|line| line.trim_end_matches(" (*)"))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// The name of a library's folder: `elf-0.8.0` of `elf v0.8.0: MIT/Apache-2.0`.
fn folder(line: &str) -> String {
    let package = line.split(':').next().unwrap_or(line);
    package.replacen(" v", "-", 1)
}

/// A library's licence file, with the name of its folder.
type File = (String, PathBuf);

/// The licence files of a library, in the folder to which cargo has unpacked it.
fn files(line: &str, registries: &[PathBuf]) -> Result<Vec<File>, String> {
    let name = folder(line);
    let mut unpacked = registries.iter().map(|registry| registry.join(&name));
    let unpacked = unpacked
        .find(|path| path.is_dir())
        .ok_or_else(|| format!("cargo has not unpacked {}; type: cargo fetch", name))?;
    let names = archive::names(&unpacked)?.into_iter();
    Ok(names
        .filter(|file| is_licence(file) && unpacked.join(file).is_file())
        .map(|file| (name.clone(), unpacked.join(file)))
        .collect())
}

/// Whether a file of this name holds a licence.
fn is_licence(name: &str) -> bool {
    let name = name.to_uppercase();
    NAMES.iter().any(|begin| name.starts_with(begin))
}

/// All texts, each once, below the names of the libraries that have it.
fn texts(files: Vec<File>) -> Result<String, String> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (library, file) in files {
        let text = archive::read(&file)?.replace('\r', "");
        let users = users.entry(text.trim_end().to_string()).or_default();
        if users.last() != Some(&library) {
            users.push(library);
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = users
        .into_iter()
        .map(|(text, libraries)| (libraries, text))
        .collect();
    texts.sort();
    let mut all = String::new();
    for (libraries, text) in texts {
        let names = libraries.join(", ");
        write!(all, "\n{}\n{}:\n\n{}\n", RULE, names, text).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_listed_once_and_ours_are_not() {
        let trees = "outboard v0.1.0 (/src/crates/outboard): MIT OR Apache-2.0\n\
                     elf v0.8.0: MIT/Apache-2.0\n\
                     serde_derive v1.0.0 (proc-macro): MIT OR Apache-2.0\n\
                     abi v0.1.0 (/src/crates/abi): MIT OR Apache-2.0 (*)\n\
                     bitflags v2.0.0: MIT OR Apache-2.0 (*)\n\nelf v0.8.0: MIT/Apache-2.0\n";
        let expected = [
            "bitflags v2.0.0: MIT OR Apache-2.0",
            "elf v0.8.0: MIT/Apache-2.0",
        ];
        assert_eq!(libraries(trees), expected);
        assert_eq!(folder(expected[0]), "bitflags-2.0.0");
    }

    #[test]
    fn equal_texts_stand_there_once() {
        let name = format!("outboard-package-licences-{}", std::process::id());
        let registry = std::env::temp_dir().join(name);
        archive::empty(&registry).unwrap();
        for (library, file, text) in [
            ("b-1.0.0", "LICENSE-MIT", "MIT\r\n"),
            ("b-1.0.0", "main.rs", "no licence"),
            ("a-2.0.0", "license", "MIT\n\n"),
            ("a-2.0.0", "Notice.txt", "Keep me"),
        ] {
            std::fs::create_dir_all(registry.join(library)).unwrap();
            std::fs::write(registry.join(library).join(file), text).unwrap();
        }
        let registries = [registry.clone()];
        let find = |line| files(line, &registries);
        let both = [find("a v2.0.0: MIT"), find("b v1.0.0: MIT")];
        let text = texts(both.iter().cloned().flat_map(Result::unwrap).collect()).unwrap();
        let lost = find("c v3.0.0: MIT");
        archive::remove(&registry).unwrap();
        assert_eq!(
            text,
            format!(
                "\n{0}\na-2.0.0:\n\nKeep me\n\n{0}\na-2.0.0, b-1.0.0:\n\nMIT\n",
                RULE
            )
        );
        let says = "cargo has not unpacked c-3.0.0; type: cargo fetch";
        assert_eq!(lost.unwrap_err(), says);
    }
}
