//! `cargo xtask package`: a Debian package and a tarball of the last commit, with equal bytes
//! wherever and however often they are built.
//!
//! | module | what |
//! |---|---|
//! | `build` | programs and images, from a copy of the commit in a folder of fixed name |
//! | `contents` | which file goes where, as data |
//! | `archive` | the two archives of such a list |
//! | `licences` | whose code is inside of the programs, with the texts of licences |
//! | `trial` | whether archives are equal, and whether what they install runs |
//! | `debian` | the same in a minimal Debian with systemd |
//! | `typed` | the commands of `docs/installing.md` |

mod archive;
mod build;
mod contents;
mod debian;
mod licences;
mod trial;
mod typed;

use crate::packages::{self, BUILD, PACKAGE};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use trial::{trial, Check};

const HELP: &str = "\
Usage: cargo xtask package [OPTION...]

Builds target/package/outboard_VERSION_amd64.deb and outboard-VERSION-x86_64-linux.tar.gz of the
last commit. What is not committed is left out. docs/installing.md says what is inside.

  --out=DIRECTORY  write them there
  --check          build twice, the second time from a clone of this repository elsewhere; compare
                   the bytes, install the package into an empty folder, and run what is there
  --debian         install the package in a minimal Debian with systemd, start the unit there, and
                   remove everything, as docs/installing.md says; needs root, debootstrap and
                   Debian's archive on the network
  --yes            install missing Debian packages without asking (as CI=true does)

Programs and images are built in /var/tmp/outboard-package, which is removed afterwards, because
the folder in which an image is built decides some of its bytes. SOURCE_DATE_EPOCH is used if it is
set; it is the time of the commit otherwise.
";

/// Where the packages go, from the root of the repository.
const OUT: &str = "target/package";

/// A version of Outboard, and when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The workspace's version.
    pub version: String,
    /// The date of all files, in seconds since 1970.
    pub epoch: u64,
}

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    out: Option<PathBuf>,
    check: bool,
    debian: bool,
    yes: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            match (argument.as_str(), argument.strip_prefix("--out=")) {
                ("--check", _) => options.check = true,
                ("--debian", _) => options.debian = true,
                ("--yes", _) => options.yes = true,
                (_, Some(folder)) if !folder.is_empty() => options.out = Some(folder.into()),
                _ => {
                    return Err(format!(
                        "there is no option `{}`; type: cargo xtask package --help",
                        argument
                    ))
                }
            }
        }
        Ok(options)
    }
}

/// `cargo xtask package`.
///
/// # Errors
/// One line that says what is missing or failed.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        print!("{}", HELP);
        return Ok(0);
    }
    let options = Options::parse(arguments)?;
    packages::provide(&[BUILD, PACKAGE], options.yes)?;
    let out = options.out.unwrap_or_else(|| root.join(OUT));
    let made = make(root, &out)?;
    for file in &made {
        println!("{}  {} bytes", file.display(), size(file)?);
    }
    let mut checks = Vec::new();
    if options.check {
        checks.extend(again(root, &out, &made)?);
    }
    if options.debian {
        checks.extend(debian::check(root, &made, &out)?);
    }
    checks.iter().for_each(|check| println!("{}", check));
    let failed = checks
        .iter()
        .any(|check| matches!(check, Check::Failed(..)));
    Ok(if failed { 1 } else { 0 })
}

/// Builds everything and writes the archives.
fn make(root: &Path, out: &Path) -> Result<Vec<PathBuf>, String> {
    let release = release(root)?;
    let built = build::build(root)?;
    let made = archive::write(&built, &release, out)?;
    built.remove()?;
    Ok(made)
}

/// Builds once more from a clone in another folder; whether that gives the same, and whether it
/// can be used.
fn again(root: &Path, out: &Path, first: &[PathBuf]) -> Result<Vec<Check>, String> {
    let clone = out.join("again");
    archive::empty(&clone)?;
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-checkout"]);
    succeed(
        git.arg(root).arg(&clone),
        "git could not clone the repository",
    )?;
    succeed(
        git_in(&clone).args(["reset", "--quiet", "--hard"]),
        "git could not check the clone out",
    )?;
    let second = make(&clone, &clone.join(OUT))?;
    let mut checks = vec![trial::equal("built twice, equal bytes", first, &second)];
    checks.extend(trial::install(root, first, out)?);
    archive::remove(&clone)?;
    Ok(checks)
}

/// Version and time of what is packaged.
fn release(root: &Path) -> Result<Release, String> {
    let manifest = archive::read(&root.join("Cargo.toml"))?;
    let version = version(&manifest).ok_or("Cargo.toml has no version")?;
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => printed(git_in(root).args(["log", "-1", "--format=%ct"]))?,
    };
    Ok(Release {
        version: version.to_string(),
        epoch: epoch.trim().parse().map_err(|_| {
            format!(
                "`{}` is no time in seconds since 1970; type: unset SOURCE_DATE_EPOCH",
                epoch.trim()
            )
        })?,
    })
}

/// The workspace's version, in the text of its manifest.
fn version(manifest: &str) -> Option<&str> {
    let line = manifest
        .lines()
        .find(|line| line.starts_with("version = "))?;
    line.split('"').nth(1)
}

/// git in this folder.
fn git_in(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder);
    git
}

/// Runs a program that has to succeed.
fn succeed(command: &mut Command, otherwise: &str) -> Result<(), String> {
    match process::run(command)? {
        0 => Ok(()),
        _ => Err(format!("{}, as it says above", otherwise)),
    }
}

/// What a program that has to succeed prints.
fn printed(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("cannot run {:?}: {}", command.get_program(), error))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(format!("{:?} failed: {}", command.get_program(), why));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| format!("{:?} printed what is no UTF-8", command.get_program()))
}

fn size(file: &Path) -> Result<u64, String> {
    std::fs::metadata(file)
        .map(|entry| entry.len())
        .map_err(|error| format!("{}: {}", file.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--out=/tmp/x", "--check"]).unwrap();
        assert_eq!(options.out, Some("/tmp/x".into()));
        assert!(options.check && !options.debian && !options.yes);
        assert!(parse(&["--debian"]).unwrap().debian);
        for wrong in ["--out", "--out=", "--chek"] {
            assert!(parse(&[wrong]).unwrap_err().contains("--help"), "{}", wrong);
        }
    }

    #[test]
    fn the_version_is_the_workspaces() {
        let manifest = "[workspace]\nresolver = \"3\"\n[workspace.package]\nversion = \"1.2.3\"\n";
        assert_eq!(version(manifest), Some("1.2.3"));
        assert_eq!(version("rust-version = \"1.91\"\n"), None);
    }
}
