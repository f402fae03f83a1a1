//! QEMU of Debian's source package, with our client of vfio-user and a mend of its SVM: fetched and
//! built once.

use crate::process;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is kept, in the lab's cache.
const FOLDER: &str = "qemu";
/// Where Debian's packages put firmware, as options of QEMU: ours has none.
pub const FIRMWARE: [&str; 4] = ["-L", "/usr/share/seabios", "-L", "/usr/share/qemu"];
/// What the tarball's name begins and ends with; its version lies between.
const TARBALL: (&str, &str) = ("qemu_", ".orig.tar.xz");
/// What is built with, from `lab/qemu`: a change makes another QEMU.
const OURS: [&str; 4] = ["build", "devices.mak", "svm.patch", "vfio-user.c"];

/// The program, if it is built already.
pub fn built(root: &Path, cache: &Path) -> Option<PathBuf> {
    let folder = cache.join(FOLDER);
    let (_, version) = tarball(&folder)?;
    let program = folder.join(name(root, &version).ok()?).join("qemu");
    Some(program).filter(|program| program.is_file())
}

/// The program, fetched and built if it is not there.
///
/// # Errors
/// One line that says what failed.
pub fn provide(root: &Path, cache: &Path, verbose: bool) -> Result<PathBuf, String> {
    if let Some(program) = built(root, cache) {
        return Ok(program);
    }
    let folder = cache.join(FOLDER);
    if tarball(&folder).is_none() {
        fetch(&folder, verbose)?;
    }
    let (tarball, version) =
        tarball(&folder).ok_or_else(|| format!("{} has no tarball of QEMU", folder.display()))?;
    let place = folder.join(name(root, &version)?);
    println!("Building QEMU {} for the lab: some minutes.", version);
    let mut build = Command::new("sh");
    build.arg(root.join("lab/qemu/build"));
    process::succeed(build.arg(tarball).arg(&place), verbose)?;
    Ok(place.join("qemu"))
}

/// What the folder of this version and of our files is called.
fn name(root: &Path, version: &str) -> Result<String, String> {
    let mut files = Vec::new();
    for name in OURS {
        let path = root.join("lab/qemu").join(name);
        files.push(fs::read(&path).map_err(|error| format!("{}: {}", path.display(), error))?);
    }
    Ok(key(version, &files))
}

/// The name of what is built from these files.
fn key(version: &str, files: &[Vec<u8>]) -> String {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{}-{:016x}", version, hasher.finish())
}

/// The tarball in a folder, and its version.
fn tarball(folder: &Path) -> Option<(PathBuf, String)> {
    let entries = fs::read_dir(folder).ok()?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths
        .filter_map(|path| Some((version(path.file_name()?.to_str()?)?.to_string(), path)))
        .map(|(version, path)| (path, version))
        .next()
}

fn version(name: &str) -> Option<&str> {
    name.strip_prefix(TARBALL.0)?.strip_suffix(TARBALL.1)
}

/// Downloads the source package, with lists of apt's own that are kept apart from the system's.
fn fetch(folder: &Path, verbose: bool) -> Result<(), String> {
    let failed = |error| format!("{}: {}", folder.display(), error);
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial")).map_err(failed)?;
    let mut targets = Command::new("apt-get");
    targets.args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
    ]);
    targets.arg("Created-By: Packages");
    let targets = process::capture(&mut targets, false)?;
    let sources = folder.join("sources.list");
    fs::write(&sources, deb_src(&targets.output)).map_err(failed)?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .arg(format!("-oDir::Etc::SourceList={}", sources.display()))
            .arg("-oDir::Etc::SourceParts=/dev/null")
            .arg(format!("-oDir::State::Lists={}", lists.display()))
            .arg(format!("-oDir::Cache={}", folder.display()))
            // The user that apt downloads as may not write here.
            .arg("-oAPT::Sandbox::User=root")
            .args(words)
            .current_dir(folder);
        command
    };
    println!("Downloading the source of QEMU (110 MB) for the lab.");
    process::succeed(&mut apt(&["update"]), verbose)?;
    process::succeed(&mut apt(&["source", "--download-only", "qemu"]), verbose)?;
    fs::remove_dir_all(lists).map_err(failed)
}

/// The lines of a list of sources, from those of the system's packages. Lists of the first form
/// name no key, so that apt takes those that it trusts.
fn deb_src(targets: &str) -> String {
    let mut lines: Vec<String> = targets
        .lines()
        .filter(|line| line.split(' ').count() == 3 && line.contains("://"))
        .map(|line| format!("deb-src {}\n", line))
        .collect();
    lines.sort();
    lines.dedup();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_version_or_files_makes_another_key() {
        let files = [b"one".to_vec(), b"two".to_vec()];
        let here = key("7.2+dfsg", &files);
        assert!(here.starts_with("7.2+dfsg-"));
        assert_eq!(here, key("7.2+dfsg", &files));
        assert_ne!(here, key("7.3", &files));
        assert_ne!(here, key("7.2+dfsg", &[b"onet".to_vec(), b"wo".to_vec()]));
    }

    #[test]
    fn the_tarball_names_its_version() {
        assert_eq!(version("qemu_7.2+dfsg.orig.tar.xz"), Some("7.2+dfsg"));
        assert_eq!(version("qemu_7.2+dfsg-7.debian.tar.xz"), None);
        assert_eq!(version("qemu_7.2+dfsg-7.dsc"), None);
    }

    #[test]
    fn sources_are_where_packages_are() {
        let targets = "https://a.example/debian/ bookworm main\n\
                       https://a.example/debian/ bookworm main\nW: something else\n";
        let wanted = "deb-src https://a.example/debian/ bookworm main\n";
        assert_eq!(deb_src(targets), wanted);
    }
}
