//! KVM with ioregionfd, for the lab's kernel: built once from Debian's source and our patches.

use super::kernel::{self, Kernel};
use crate::packages;
use crate::process;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it is built with, from `lab/ioregionfd`: a change makes another one.
const OURS: [&str; 4] = [
    "build",
    "0001-kvm.patch",
    "0002-documentation.patch",
    "0003-selftest.patch",
];
/// The modules that come of it, and their files.
const MODULES: [(&str, &str); 2] = [("kvm", "kvm.ko"), ("kvm_amd", "kvm-amd.ko")];
/// Tests them.
const TEST: &str = "ioregionfd_test";
/// How the lab's shell runs it: it reads its own file, and looks for that by this name.
const COMMAND: &str = "/lab/ioregionfd_test";
/// More than the test takes, in seconds, on a machine that is busy with something else.
const TIMEOUT_SECONDS: u32 = 600;

/// Where everything lies.
struct Places {
    /// `lab/ioregionfd`.
    ours: PathBuf,
    /// `target/lab/ioregionfd`.
    cache: PathBuf,
}

impl Places {
    fn new(root: &Path, cache: &Path) -> Self {
        Self {
            ours: root.join("lab/ioregionfd"),
            cache: cache.join("ioregionfd"),
        }
    }

    /// The folder of what is built for this version of the kernel and from our files.
    fn built(&self, version: &str) -> Result<PathBuf, String> {
        let mut files = Vec::new();
        for name in OURS {
            let path = self.ours.join(name);
            files.push(fs::read(&path).map_err(|error| format!("{}: {}", path.display(), error))?);
        }
        Ok(self.cache.join(key(version, &files)))
    }
}

/// The name of what is built from these files.
fn key(version: &str, files: &[Vec<u8>]) -> String {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{}-{:016x}", version, hasher.finish())
}

/// Puts the modules in the place of the kernel's own, building them if they are not there; returns
/// their test, a static program.
///
/// # Errors
/// One line that says what failed.
pub fn install(
    root: &Path,
    cache: &Path,
    kernel: &mut Kernel,
    yes: bool,
) -> Result<PathBuf, String> {
    let places = Places::new(root, cache);
    let (release, version) = kernel.version()?;
    let folder = places.built(&version)?;
    if !is_complete(&folder) {
        packages::provide(&[packages::MODULES], yes)?;
        build(&places, &release, &version, &folder)?;
    }
    for (name, file) in MODULES {
        kernel.modules.insert(name.into(), folder.join(file));
    }
    Ok(folder.join(TEST))
}

fn is_complete(folder: &Path) -> bool {
    folder.join("complete").is_file()
}

fn build(places: &Places, release: &str, version: &str, folder: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {}", places.cache.display(), error);
    let downloads = places.cache.join("packages");
    let _ = fs::remove_dir_all(&downloads);
    fs::create_dir_all(&downloads).map_err(failed)?;
    println!(
        "Downloading the source of Linux {} (150 MB) for the lab.",
        version
    );
    for package in needed(release) {
        kernel::download(&format!("{}={}", package, version), &downloads)?;
    }
    println!("Building KVM with ioregionfd for the lab: some minutes.");
    let mut build = Command::new("sh");
    build
        .arg(places.ours.join("build"))
        .args([&downloads, Path::new(release), folder]);
    process::succeed(&mut build, false)?;
    fs::remove_dir_all(&downloads).map_err(failed)?;
    fs::write(folder.join("complete"), version).map_err(failed)
}

/// The packages that have the source and the headers of a kernel: of `6.1.0-56-amd64`, for example.
fn needed(release: &str) -> [String; 4] {
    let common = release
        .rsplit_once('-')
        .map_or(release, |(common, _)| common);
    let series: Vec<&str> = release.split('.').take(2).collect();
    let series = series.join(".");
    [
        format!("linux-headers-{}", release),
        format!("linux-headers-{}-common", common),
        format!("linux-kbuild-{}", series),
        format!("linux-source-{}", series),
    ]
}

/// Why the test cannot run without building first; `None` if it can.
pub fn missing(root: &Path) -> Option<String> {
    let cache = process::target_folder(root).join("lab");
    let there = || {
        let version = kernel::cached(&cache)?.version().ok()?.1;
        let folder = Places::new(root, &cache).built(&version).ok()?;
        Some(is_complete(&folder))
    };
    match there() {
        Some(true) => None,
        _ => Some(format!(
            "no KVM with ioregionfd is built; type: cargo xtask lab --ioregionfd {}",
            COMMAND
        )),
    }
}

/// The test, in the lab.
///
/// # Errors
/// If there is no such program as this.
pub fn test(root: &Path) -> Result<Command, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(this);
    command
        .args(["lab", "--ioregionfd"])
        .arg(format!("--timeout={}", TIMEOUT_SECONDS))
        .arg(COMMAND)
        .current_dir(root);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_follow_from_the_release() {
        let wanted = [
            "linux-headers-6.1.0-56-amd64",
            "linux-headers-6.1.0-56-common",
            "linux-kbuild-6.1",
            "linux-source-6.1",
        ];
        assert_eq!(needed("6.1.0-56-amd64"), wanted);
    }

    #[test]
    fn another_kernel_or_patch_makes_another_key() {
        let files = [b"one".to_vec(), b"two".to_vec()];
        let here = key("6.1.192-2", &files);
        assert!(here.starts_with("6.1.192-2-"));
        assert_eq!(here, key("6.1.192-2", &files));
        assert_ne!(here, key("6.1.192-3", &files));
        assert_ne!(here, key("6.1.192-2", &[b"one".to_vec(), b"tow".to_vec()]));
    }
}
