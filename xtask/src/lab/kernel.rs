//! Debian's kernel: downloaded and unpacked once, never installed.

use crate::process;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the newest kernel.
const META_PACKAGE: &str = "linux-image-amd64";
/// Folders of modules may nest so deep; deeper ones are a loop of links.
const DEPTH_MAX: u32 = 16;

/// An unpacked kernel.
#[derive(Debug)]
pub struct Kernel {
    /// What QEMU boots.
    pub image: PathBuf,
    /// Where each module lies, by its name with '_' for '-'.
    pub modules: BTreeMap<String, PathBuf>,
}

/// The kernel in `cache`, fetched if it is not there.
///
/// # Errors
/// One line that says what failed.
pub fn provide(cache: &Path) -> Result<Kernel, String> {
    let unpacked = cache.join("kernel");
    if !unpacked.join("complete").is_file() {
        fetch(cache, &unpacked)?;
    }
    open(&unpacked)
}

/// The kernel in `cache`, if it is there.
pub fn cached(cache: &Path) -> Option<Kernel> {
    let unpacked = cache.join("kernel");
    if !unpacked.join("complete").is_file() {
        return None;
    }
    open(&unpacked).ok()
}

fn open(unpacked: &Path) -> Result<Kernel, String> {
    let boot = unpacked.join("boot");
    let image = entries(&boot)?
        .into_iter()
        .find(|path| file_name(path).starts_with("vmlinuz-"))
        .ok_or_else(|| broken(unpacked))?;
    let mut modules = BTreeMap::new();
    find_modules(&unpacked.join("lib/modules"), DEPTH_MAX, &mut modules)?;
    Ok(Kernel { image, modules })
}

fn fetch(cache: &Path, unpacked: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {}", cache.display(), error);
    // A download that was cut off starts anew.
    let _ = fs::remove_dir_all(unpacked);
    fs::create_dir_all(unpacked).map_err(failed)?;
    let depends = process::capture(
        Command::new("apt-cache").args(["depends", META_PACKAGE]),
        false,
    )?;
    let package = dependency(&depends.output).ok_or_else(|| {
        format!(
            "apt knows no {}: the lab takes Debian's kernel; type: sudo apt-get update",
            META_PACKAGE
        )
    })?;
    println!("Downloading {} (70 MB) for the lab.", package);
    download(package, unpacked)?;
    let archive = entries(unpacked)?
        .into_iter()
        .find(|path| {
            path.extension()
                .map_or(false, |extension| extension == "deb")
        })
        .ok_or_else(|| broken(unpacked))?;
    let mut unpack = Command::new("dpkg-deb");
    unpack.arg("-x").arg(&archive).arg(unpacked);
    if process::run(&mut unpack)? != 0 {
        return Err(broken(unpacked));
    }
    fs::remove_file(archive).map_err(failed)?;
    fs::write(unpacked.join("complete"), package).map_err(failed)
}

/// Downloads a package of Debian's, `NAME` or `NAME=VERSION`, into a folder.
///
/// # Errors
/// One line that says what failed.
pub fn download(package: &str, folder: &Path) -> Result<(), String> {
    let mut download = Command::new("apt-get");
    download.args(["download", package]).current_dir(folder);
    let finished = process::capture(&mut download, false)?;
    if finished.status != 0 {
        return Err(format!(
            "apt-get download {} failed: {}; type: sudo apt-get update",
            package,
            finished.output.trim().lines().last().unwrap_or("")
        ));
    }
    Ok(())
}

/// The first package that `apt-cache depends` names.
fn dependency(printed: &str) -> Option<&str> {
    printed
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("Depends: "))
        .map(str::trim)
}

fn broken(folder: &Path) -> String {
    format!(
        "{} holds no kernel; type: rm -r {0} and try again",
        folder.display()
    )
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {}", folder.display(), error);
    fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn find_modules(
    folder: &Path,
    depth: u32,
    found: &mut BTreeMap<String, PathBuf>,
) -> Result<(), String> {
    if depth == 0 {
        return Err(format!("{}: too deep", folder.display()));
    }
    for path in entries(folder)? {
        if path.is_dir() {
            find_modules(&path, depth - 1, found)?;
        } else if let Some(name) = file_name(&path).strip_suffix(".ko") {
            found.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

impl Kernel {
    /// Its release, which names its packages, and its version, which all of them have.
    ///
    /// # Errors
    /// One line, if its image does not say so.
    pub fn version(&self) -> Result<(String, String), String> {
        let path = &self.image;
        let image = fs::read(path).map_err(|error| format!("{}: {}", path.display(), error))?;
        version(&image)
            .ok_or_else(|| format!("{}: it does not say which kernel it is", path.display()))
    }

    /// The modules `wanted` and all that they need, each behind what it needs.
    ///
    /// # Errors
    /// One line that names a module that is not there.
    pub fn order(&self, wanted: &[&str]) -> Result<Vec<&Path>, String> {
        let mut order = Vec::new();
        for name in wanted {
            self.add(&name.replace('-', "_"), DEPTH_MAX, &mut order)?;
        }
        Ok(order)
    }

    fn add<'a>(&'a self, name: &str, depth: u32, order: &mut Vec<&'a Path>) -> Result<(), String> {
        let path = match self.modules.get(name) {
            Some(path) if depth > 0 => path.as_path(),
            _ => return Err(format!("the lab's kernel has no module {}", name)),
        };
        if order.contains(&path) {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(|error| format!("{}: {}", path.display(), error))?;
        for needed in needs(&bytes) {
            self.add(&needed, depth - 1, order)?;
        }
        order.push(path);
        Ok(())
    }
}

/// Release and version in an image, by `kernel_version` of Linux's boot protocol: where its text
/// begins, counted from the second sector. Debian's is `RELEASE (...) ... Debian VERSION (...)`.
fn version(image: &[u8]) -> Option<(String, String)> {
    const FIELD: usize = 0x20e;
    const SECTOR: usize = 0x200;
    let field = image.get(FIELD..FIELD + 2)?;
    let begin = SECTOR + usize::from(u16::from_le_bytes([field[0], field[1]]));
    let text = image.get(begin..)?.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let version = words.iter().skip_while(|word| **word != "Debian").nth(1)?;
    Some((words.first()?.to_string(), version.to_string()))
}

/// What a module needs, from its `.modinfo` section: strings that end with NUL, `depends=a,b` among
/// them.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let begin = match module.windows(KEY.len()).position(|bytes| bytes == KEY) {
        Some(position) => position + KEY.len(),
        None => return Vec::new(),
    };
    let value = module[begin..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or(&[]);
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_the_first_dependency() {
        let printed = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: x\n";
        assert_eq!(dependency(printed), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(dependency("N: Unable to locate package\n"), None);
    }

    #[test]
    fn an_image_says_which_kernel_it_is() {
        let mut image = vec![0; 0x300];
        image[0x20e..0x210].copy_from_slice(&[0x40, 0]);
        let text = b"6.1.0-56-amd64 (x@debian.org) #1 SMP Debian 6.1.192-2 (2026-07-01)\0Debian 9";
        image[0x240..0x240 + text.len()].copy_from_slice(text);
        let wanted = ("6.1.0-56-amd64".to_string(), "6.1.192-2".to_string());
        assert_eq!(version(&image), Some(wanted));
        image[0x20f] = 0xff;
        assert_eq!(version(&image), None);
        assert_eq!(version(&[]), None);
    }

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF..\0license=GPL\0depends=vfio,vfio-pci-core\0name=x\0";
        assert_eq!(needs(module), ["vfio", "vfio_pci_core"]);
        assert!(needs(b"\0depends=\0name=x\0").is_empty());
        assert!(needs(b"").is_empty());
    }
}
