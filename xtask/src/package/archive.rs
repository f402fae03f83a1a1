//! Writes a list of files as a Debian package and as a tarball.
//!
//! Both come from a folder that holds the files with their permissions and one date. `dpkg-deb` and
//! `tar` sort what they find there; owner and compression are given, so that nothing else decides.

use super::build::Built;
use super::contents::{Entry, Parts, Source, PROGRAM};
use super::{succeed, Release};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes by which Debian counts the size of what is installed.
const KIBIBYTE: u64 = 1024;

/// Writes both archives of what was built to `out`; their paths.
///
/// # Errors
/// One line that says what could not be read or written.
pub fn write(built: &Built, release: &Release, out: &Path) -> Result<Vec<PathBuf>, String> {
    let stage = out.join("stage");
    empty(&stage)?;
    let parts = Parts::of(built, &stage.join("generated"))?;
    let tree = stage.join("debian");
    let entries = parts.debian();
    lay_out(&entries, &tree)?;
    let control = control(release, bytes(&entries)?);
    lay_out(&[text("DEBIAN/control", control)], &tree)?;
    let deb = out.join(format!("outboard_{}_amd64.deb", release.version));
    debian(&tree, &deb, release)?;

    let name = format!("outboard-{}-x86_64-linux", release.version);
    lay_out(&parts.local()?, &stage.join(&name))?;
    let tarball = out.join(format!("{}.tar.gz", name));
    tar(&stage, &name, &tarball, release)?;
    remove(&stage)?;
    Ok(vec![deb, tarball])
}

/// What Debian has to know.
fn control(release: &Release, bytes: u64) -> String {
    format!(
        "Package: outboard\n\
         Version: {}\n\
         Architecture: amd64\n\
         Maintainer: Outboard maintainers <outboard@localhost>\n\
         Installed-Size: {}\n\
         Recommends: iproute2\n\
         Section: net\n\
         Priority: optional\n\
         Description: network appliances as small isolated images\n \
         Outboard runs network appliances, written in Rust, as images that bring their\n \
         own drivers and may touch only what their manifest names: as a jailed process\n \
         or as a virtual machine. This package has its command line and a firewall.\n",
        release.version,
        (bytes + KIBIBYTE - 1) / KIBIBYTE
    )
}

fn text(path: &str, text: String) -> Entry {
    Entry {
        path: path.to_string(),
        mode: 0o644,
        source: Source::Text(text),
    }
}

/// Bytes of all files.
fn bytes(entries: &[Entry]) -> Result<u64, String> {
    let size = |entry: &Entry| match &entry.source {
        Source::File(file) => super::size(file),
        Source::Text(text) => Ok(text.len() as u64),
        Source::Folder => Ok(0),
    };
    entries.iter().map(size).sum()
}

/// Writes the files below `tree`, with their permissions whatever the umask is.
fn lay_out(entries: &[Entry], tree: &Path) -> Result<(), String> {
    for entry in entries {
        let path = tree.join(&entry.path);
        let says = |error: std::io::Error| format!("cannot write {}: {}", path.display(), error);
        let folder = match entry.source {
            Source::Folder => &path,
            _ => path.parent().unwrap_or(tree),
        };
        fs::create_dir_all(folder).map_err(says)?;
        for folder in folder
            .ancestors()
            .take_while(|folder| folder.starts_with(tree))
        {
            fs::set_permissions(folder, Permissions::from_mode(PROGRAM)).map_err(says)?;
        }
        match &entry.source {
            Source::File(file) => fs::copy(file, &path)
                .map(|_| ())
                .map_err(|error| format!("cannot copy {}: {}", file.display(), error))?,
            Source::Text(text) => fs::write(&path, text).map_err(says)?,
            Source::Folder => {}
        }
        fs::set_permissions(&path, Permissions::from_mode(entry.mode)).map_err(says)?;
    }
    Ok(())
}

/// Has dpkg-deb make a package of `tree`.
fn debian(tree: &Path, deb: &Path, release: &Release) -> Result<(), String> {
    // dpkg-deb only replaces dates that are later.
    let mut touch = Command::new("find");
    touch.arg(tree).args(["-exec", "touch", "--no-dereference"]);
    touch.arg(format!("--date=@{}", release.epoch));
    touch.args(["{}", "+"]);
    succeed(&mut touch, "touch could not set the date of files")?;
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args([
        "--root-owner-group",
        "--uniform-compression",
        "-Zgzip",
        "-z9",
    ])
    .arg("--build")
    .args([tree, deb])
    .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
    .stdout(std::process::Stdio::null());
    succeed(&mut dpkg, "dpkg-deb could not write the package")
}

/// Has tar write the folder `name` of `stage`.
fn tar(stage: &Path, name: &str, tarball: &Path, release: &Release) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name"])
        .args(["--owner=0", "--group=0", "--numeric-owner"])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg("--use-compress-program=gzip -9 --no-name")
        .arg("--file")
        .arg(tarball)
        .arg("--directory")
        .arg(stage)
        .arg(name)
        .env("LC_ALL", "C")
        .env_remove("GZIP");
    succeed(&mut tar, "tar could not write the tarball")
}

/// Makes the folder, or removes what is in it.
///
/// # Errors
/// One line, if that is not possible.
pub fn empty(folder: &Path) -> Result<(), String> {
    remove(folder)?;
    fs::create_dir_all(folder)
        .map_err(|error| format!("cannot make {}: {}", folder.display(), error))
}

/// Removes the folder, if it is there.
///
/// # Errors
/// One line, if that is not possible.
pub fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {}", folder.display(), error))
        }
        _ => Ok(()),
    }
}

/// The names in a folder, sorted.
///
/// # Errors
/// One line, if it cannot be read.
pub fn names(folder: &Path) -> Result<Vec<String>, String> {
    let says = |error: std::io::Error| format!("{}: {}", folder.display(), error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(says)? {
        let name = entry.map_err(says)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The text of a file.
///
/// # Errors
/// One line, if it cannot be read.
pub fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {}", file.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::printed;

    fn release() -> Release {
        Release {
            version: "1.2.3".into(),
            epoch: 1_000_000_000,
        }
    }

    /// A folder of this test's own, empty.
    fn folder(name: &str) -> PathBuf {
        let name = format!("outboard-package-{}-{}", name, std::process::id());
        let folder = std::env::temp_dir().join(name);
        empty(&folder).unwrap();
        folder
    }

    fn entries() -> Vec<Entry> {
        let mut program = text("usr/bin/x", "#!/bin/sh\n".into());
        program.mode = PROGRAM;
        vec![program, text("usr/share/a", "a".repeat(1025))]
    }

    fn listed(command: &str, arguments: &[&str], file: &Path) -> Vec<String> {
        let mut command = Command::new(command);
        let command = command.args(arguments).arg(file).env("TZ", "UTC");
        let text = printed(command).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    }

    #[test]
    fn the_control_file_needs_nothing_and_rounds_up() {
        let control = control(&release(), 1025);
        assert!(control.contains("\nVersion: 1.2.3\n"));
        assert!(control.contains("\nInstalled-Size: 2\n"));
        assert!(!control.contains("\nDepends:"));
        assert!(
            control.lines().skip(9).all(|line| line.starts_with(' ')),
            "{}",
            control
        );
    }

    #[test]
    fn archives_have_sorted_files_of_root_with_one_date() {
        if !crate::packages::all_there(crate::packages::PACKAGE) {
            return;
        }
        let folder = folder("layout");
        let tree = folder.join("tree");
        lay_out(&entries(), &tree).unwrap();
        let tarball = folder.join("x.tar.gz");
        tar(&folder, "tree", &tarball, &release()).unwrap();
        lay_out(&[text("DEBIAN/control", control(&release(), 1))], &tree).unwrap();
        let deb = folder.join("x.deb");
        debian(&tree, &deb, &release()).unwrap();

        let files = listed("dpkg-deb", &["--contents"], &deb);
        assert_eq!(files[0], "drwxr-xr-x root/root 0 2001-09-09 01:46 ./");
        assert_eq!(
            files[3],
            "-rwxr-xr-x root/root 10 2001-09-09 01:46 ./usr/bin/x"
        );
        assert_eq!(
            files[5],
            "-rw-r--r-- root/root 1025 2001-09-09 01:46 ./usr/share/a"
        );
        let files = listed(
            "tar",
            &["--list", "--verbose", "--numeric-owner", "--file"],
            &tarball,
        );
        assert_eq!(files[0], "drwxr-xr-x 0/0 0 2001-09-09 01:46 tree/");
        assert_eq!(
            files[3],
            "-rwxr-xr-x 0/0 10 2001-09-09 01:46 tree/usr/bin/x"
        );
        remove(&folder).unwrap();
    }
}
