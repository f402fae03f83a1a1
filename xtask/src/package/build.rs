//! Builds what a package holds.
//!
//! Cargo mixes the path of a folder outside of the workspace into the names of its functions, and
//! images are a workspace that uses such folders. So everything is built from a copy of the last
//! commit in a folder whose name is always the same. What the compiler writes about source files
//! would still show where cargo keeps the libraries; `--remap-path-prefix` takes that out.

use super::{archive, git_in, printed, succeed};
use crate::process;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where everything is built.
const WORK: &str = "/var/tmp/outboard-package";
/// What programs and images show instead, as the place of their source files.
const SOURCES: &str = "/usr/src/outboard";
/// The same for the libraries that cargo has fetched.
const LIBRARIES: &str = "/usr/src/cargo";
/// See .cargo/config.toml.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// As in .cargo/config.toml, which flags from the environment replace.
const STATIC: &str = "-Ctarget-feature=+crt-static";

/// Where the built things are.
pub struct Built {
    /// A copy of the last commit.
    pub sources: PathBuf,
    /// `outboard` and `outboard-tender`.
    pub programs: PathBuf,
    /// [`IMAGE_FILES`].
    pub images: PathBuf,
}

impl Built {
    /// Removes all of it.
    ///
    /// # Errors
    /// One line, if that is not possible.
    pub fn remove(self) -> Result<(), String> {
        archive::remove(Path::new(WORK))
    }
}

/// Images that are packaged: what `outboard build` is told.
pub const IMAGES: [&[&str]; 3] = [
    &["--host=all", "unikernels/firewall"],
    &["unikernels/checkup"],
    &["--manifest=manifest-82599.json", "unikernels/checkup"],
];
/// What becomes of them. `outboard doctor --card` looks for the last two.
pub const IMAGE_FILES: [&str; 4] = [
    "firewall.spt",
    "firewall.hvt",
    "checkup.spt",
    "checkup-82599.spt",
];

/// Builds programs and images of the last commit.
///
/// # Errors
/// One line: the folder is another user's, or git or cargo failed.
pub fn build(root: &Path) -> Result<Built, String> {
    let work = Path::new(WORK);
    prepare(work)?;
    let sources = work.join("sources");
    unpack(root, work, &sources)?;
    let remap = remap(&sources)?;
    let programs = programs(&sources, work, &remap)?;
    let images = work.join("images");
    for words in IMAGES {
        let mut image = Command::new(programs.join("outboard"));
        image.arg("build").args(words).arg("--out").arg(&images);
        for prefix in &remap {
            image.arg(format!("--remap-path-prefix={}", prefix));
        }
        image.env_remove("CARGO_TARGET_DIR").current_dir(&sources);
        succeed(&mut image, "outboard could not build the image")?;
    }
    let programs_of = ["outboard", "outboard-tender"].map(|name| programs.join(name));
    let images_of = IMAGE_FILES.map(|name| images.join(name));
    for file in programs_of.iter().chain(&images_of) {
        let bytes =
            std::fs::read(file).map_err(|error| format!("{}: {}", file.display(), error))?;
        if let Some(text) = shown(&bytes, &remap) {
            return Err(format!(
                "{} shows where it was built: {}; xtask/src/package/build.rs should replace that",
                file.display(),
                text
            ));
        }
    }
    Ok(Built {
        sources,
        programs,
        images,
    })
}

/// A folder of this machine that the bytes show although it was to be replaced.
fn shown<'a>(bytes: &[u8], remap: &'a [String]) -> Option<&'a str> {
    let mut folders = remap.iter().filter_map(|prefix| prefix.split('=').next());
    folders.find(|folder| {
        bytes
            .windows(folder.len())
            .any(|window| window == folder.as_bytes())
    })
}

/// Makes the folder, empty and ours alone: others could change what we build.
fn prepare(work: &Path) -> Result<(), String> {
    let ours = |path: &Path| std::fs::symlink_metadata(path).map(|entry| entry.uid());
    match (ours(work), ours(Path::new("/proc/self"))) {
        (Ok(owner), Ok(us)) if owner != us => {
            return Err(format!(
                "{0} is another user's; when they have finished, type: sudo rm -r {0}",
                work.display()
            ))
        }
        (Ok(_), _) => archive::remove(work)?,
        (Err(_), _) => {}
    }
    DirBuilder::new()
        .mode(0o700)
        .create(work)
        .map_err(|error| format!("cannot make {}: {}", work.display(), error))
}

/// Writes the files of the last commit to `sources`.
fn unpack(root: &Path, work: &Path, sources: &Path) -> Result<(), String> {
    let tar = work.join("sources.tar");
    let mut git = git_in(root);
    git.args(["archive", "--format=tar", "HEAD", "--output"]);
    succeed(git.arg(&tar), "git could not copy the last commit")?;
    archive::empty(sources)?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(&tar);
    unpack.arg("--directory").arg(sources);
    succeed(&mut unpack, "tar could not unpack the last commit")
}

/// Builds the two programs, without symbols and lines; the folder with them.
fn programs(sources: &Path, work: &Path, remap: &[String]) -> Result<PathBuf, String> {
    let target = work.join("target");
    let flags = remap.iter().fold(STATIC.to_string(), |flags, prefix| {
        format!("{}\x1f--remap-path-prefix={}", flags, prefix)
    });
    let mut cargo = Command::new(process::cargo());
    cargo
        .args(["build", "--release", "--locked", "--target", TRIPLE])
        .args(["-p", "outboard", "-p", "tender"])
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("OUTBOARD_CRATES", format!("{}/crates", SOURCES))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .current_dir(sources);
    succeed(&mut cargo, "cargo could not build the programs")?;
    Ok(target.join(TRIPLE).join("release"))
}

/// What is written for which prefix of a source file's name, as rustc takes it.
fn remap(sources: &Path) -> Result<Vec<String>, String> {
    let sysroot = printed(Command::new("rustc").args(["--print", "sysroot"]))?;
    let version = printed(Command::new("rustc").arg("-vV"))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    let mut prefixes = vec![
        (sources.to_path_buf(), SOURCES.to_string()),
        (library, format!("/rustc/{}", commit(&version))),
    ];
    // Each has a number in its name that depends on where the registry is.
    prefixes.extend(
        registries()?
            .into_iter()
            .map(|path| (path, LIBRARIES.to_string())),
    );
    Ok(prefixes
        .iter()
        .map(|(from, to)| format!("{}={}", from.display(), to))
        .collect())
}

/// The folders in which cargo has unpacked libraries, sorted: one for each registry.
///
/// # Errors
/// One line, if there are none.
pub fn registries() -> Result<Vec<PathBuf>, String> {
    let home = cargo_home().ok_or("there is no HOME; type: export CARGO_HOME=~/.cargo")?;
    let registries = home.join("registry/src");
    let entries = std::fs::read_dir(&registries)
        .map_err(|error| format!("{}: {}; type: cargo fetch", registries.display(), error))?;
    let mut registries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    registries.sort();
    Ok(registries)
}

/// Where cargo keeps what it fetches.
fn cargo_home() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home)
}

/// The compiler's commit, as the names of the standard library's source files have it.
fn commit(version: &str) -> &str {
    let mut lines = version.lines();
    lines
        .find_map(|line| line.strip_prefix("commit-hash: "))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_commit_is_read() {
        assert_eq!(
            commit("rustc 1.95.0\ncommit-hash: 59807\nhost: x\n"),
            "59807"
        );
        assert_eq!(commit(""), "unknown");
    }

    #[test]
    fn what_shows_a_folder_is_found() {
        let remap = ["/clone/a=/usr/src/a".to_string(), "/cargo/b=/x".to_string()];
        assert_eq!(shown(b"\x00/usr/src/a/main.rs\x00", &remap), None);
        assert_eq!(shown(b"\x00/cargo/b/main.rs\x00", &remap), Some("/cargo/b"));
    }

    #[test]
    fn a_folder_of_another_user_is_left_alone() {
        // Either we are not root, or somebody else owns nothing below /proc/self; both are theirs.
        let theirs = Path::new(if crate::packages::is_root() {
            "/proc/1/x"
        } else {
            "/usr"
        });
        assert!(prepare(theirs).is_err());
    }
}
