//! Is the toolchain new enough? The first question, since everything else needs the answer.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// Major and minor number of a Rust release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Compares cargo and rustc with what the root's `Cargo.toml` asks for.
///
/// # Errors
/// One line: what is too old, and what to type.
pub fn check(root: &Path) -> Result<(), String> {
    let path = root.join("Cargo.toml");
    let manifest = std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "{}: {}; type: git checkout Cargo.toml",
            path.display(),
            error
        )
    })?;
    let required = required(&manifest).ok_or_else(|| {
        format!(
            "{}: no rust-version; type: git checkout Cargo.toml",
            path.display()
        )
    })?;
    let rustup = std::env::var("RUSTUP_TOOLCHAIN").ok();
    for program in [crate::process::cargo(), "rustc".to_string()] {
        let output = Command::new(&program)
            .arg("--version")
            .current_dir(root)
            .output()
            .map_err(|error| format!("{}: {}; type: {}", program, error, advice(None)))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        verdict(&text, required, rustup.as_deref())?;
    }
    Ok(())
}

/// The `rust-version` of a manifest.
fn required(manifest: &str) -> Option<Version> {
    let line = manifest
        .lines()
        .find(|line| line.trim_start().starts_with("rust-version"))?;
    version(line.split('"').nth(1)?)
}

/// `1.91` or `1.91.0-nightly` as a number.
fn version(text: &str) -> Option<Version> {
    let mut parts = text.split('.');
    Some(Version(
        parts.next()?.parse().ok()?,
        parts.next()?.parse().ok()?,
    ))
}

/// Judges what `cargo --version` or `rustc --version` printed.
fn verdict(printed: &str, required: Version, rustup: Option<&str>) -> Result<(), String> {
    let mut words = printed.split_whitespace();
    let (program, found) = match (words.next(), words.next().and_then(version)) {
        (Some(program), Some(found)) => (program, found),
        _ => {
            return Err(format!(
                "cannot read the version in `{}`; type: {}",
                printed.trim(),
                advice(rustup)
            ))
        }
    };
    if found >= required {
        return Ok(());
    }
    Err(format!(
        "Outboard needs Rust {} and this is {} {}; type: {}",
        required,
        program,
        found,
        advice(rustup)
    ))
}

/// What to type for a newer toolchain, given the one that rustup chose, if there is rustup.
fn advice(rustup: Option<&str>) -> &'static str {
    match rustup {
        Some(toolchain) if toolchain.starts_with("stable") => "rustup update stable",
        Some(_) => "rustup update stable && rustup default stable",
        None => "curl --proto =https -sSf https://sh.rustup.rs | sh",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_version() {
        let manifest = "[workspace.package]\nedition = \"2024\"\nrust-version = \"1.91\"\n";
        assert_eq!(required(manifest), Some(Version(1, 91)));
        assert_eq!(required("[workspace.package]\n"), None);
    }

    #[test]
    fn an_equal_or_newer_toolchain_passes() {
        for printed in [
            "cargo 1.91.0 (ea2d97820 2025-10-10)",
            "rustc 1.100.0-nightly",
            "rustc 2.0.0",
        ] {
            assert_eq!(verdict(printed, Version(1, 91), Some("stable")), Ok(()));
        }
    }

    #[test]
    fn an_older_toolchain_is_told_what_to_type() {
        let old = "cargo 1.70.0 (ec8a8a0ca 2023-04-25)";
        let with = |rustup| verdict(old, Version(1, 91), rustup).unwrap_err();
        assert_eq!(
            with(Some("stable-x86_64-unknown-linux-gnu")),
            "Outboard needs Rust 1.91 and this is cargo 1.70; type: rustup update stable"
        );
        assert!(with(Some("1.70-x86_64-unknown-linux-gnu")).ends_with("rustup default stable"));
        assert!(with(None).contains("https://sh.rustup.rs"));
    }

    #[test]
    fn nonsense_is_an_error_and_no_panic() {
        for printed in ["", "cargo", "cargo x.y", "cargo 1"] {
            assert!(verdict(printed, Version(1, 91), None).is_err());
        }
    }
}
