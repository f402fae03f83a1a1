//! Whose code is inside of the programs, and under which licence.

use super::printed;
use crate::process;
use std::path::Path;
use std::process::Command;

const HEAD: &str = "\
Outboard is licensed under MIT or Apache-2.0, as you like: see LICENSE-MIT and LICENSE-APACHE.

Its programs and images are linked statically. They contain parts of Rust's standard library (MIT or
Apache-2.0), the programs parts of the GNU C library too (LGPL-2.1 or later), and these libraries of
https://crates.io, each with its version and licence:

";

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
    Ok(format!(
        "{}{}",
        HEAD,
        libraries(&[programs, image].concat())
    ))
}

/// The libraries of cargo's trees, sorted, each once; our own stand there with their folders, and
/// those that only run in the compiler as such.
fn libraries(trees: &str) -> String {
    let mut lines: Vec<&str> = trees
        .lines()
        .filter(|line| !line.is_empty() && !line.contains(" (/") && !line.contains("(proc-macro)"))
        .map(|line| line.trim_end_matches(" (*)"))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines.iter().map(|line| format!("  {}\n", line)).collect()
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
        assert_eq!(
            libraries(trees),
            "  bitflags v2.0.0: MIT OR Apache-2.0\n  elf v0.8.0: MIT/Apache-2.0\n"
        );
    }
}
