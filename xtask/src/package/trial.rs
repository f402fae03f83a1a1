//! Whether archives are equal, and whether what they install runs.

use super::build::{Built, IMAGES};
use super::{archive, printed, release, succeed, typed};
use crate::process;
use crate::stages::PROFILE;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What came of one check.
#[derive(Debug, PartialEq, Eq)]
pub enum Check {
    /// It held.
    Passed(&'static str),
    /// It did not, and why.
    Failed(&'static str, String),
    /// It cannot be made here, and why.
    Skipped(&'static str, String),
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(what) => write!(f, "ok: {}", what),
            Self::Failed(what, why) => write!(f, "FAILED: {}: {}", what, why),
            Self::Skipped(what, why) => write!(f, "skipped: {}: {}", what, why),
        }
    }
}

impl Check {
    /// What a check has come to.
    pub fn of(what: &'static str, result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed(what),
            Err(why) => Self::Failed(what, why),
        }
    }
}

/// Packages what the tests have built, twice, and tries it out. The programs are not what `cargo
/// xtask package` builds: that takes minutes more, because it is compiled with other flags. The
/// images are optimised as those are.
///
/// # Errors
/// One line, if there is nothing to package.
pub fn trial(root: &Path) -> Result<Vec<Check>, String> {
    let out = process::target_folder(root).join("package-trial");
    archive::empty(&out)?;
    let programs = process::target_folder(root).join("x86_64-unknown-linux-gnu/release");
    let images = out.join("images");
    for words in IMAGES {
        let mut image = Command::new(programs.join("outboard"));
        image.arg("build").args(words).arg("--out").arg(&images);
        for (name, _) in PROFILE {
            image.env_remove(name);
        }
        succeed(
            image.current_dir(root),
            "outboard could not build the image",
        )?;
    }
    let built = Built {
        sources: root.to_path_buf(),
        programs,
        images,
    };
    let release = release(root)?;
    let made = ["one", "two"]
        .iter()
        .map(|name| archive::write(&built, &release, &out.join(name)));
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let mut checks = vec![equal("packaged twice, equal bytes", &made[0], &made[1])];
    let small = small(&built.images.join("firewall.spt"));
    checks.push(Check::of("the firewall's image is small", small));
    checks.extend(install(root, &made[0], &out)?);
    archive::remove(&out)?;
    Ok(checks)
}

/// Whether what is loaded of this image is below its limit; line numbers for debuggers are not
/// loaded.
fn small(image: &Path) -> Result<(), String> {
    const BYTES_MAX: u64 = 832 << 10;
    let file = std::fs::read(image).map_err(|error| format!("{}: {}", image.display(), error))?;
    match loaded(&file).ok_or("it is no ELF file")? {
        bytes if bytes < BYTES_MAX => Ok(()),
        bytes => Err(format!("{} bytes are loaded", bytes)),
    }
}

/// Bytes of an ELF file of 64 bits that are loaded (System V ABI, "Program Header").
fn loaded(file: &[u8]) -> Option<u64> {
    const LOAD: u64 = 1;
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at.checked_add(bytes)?)?;
        let digits = field.iter().rev();
        Some(digits.fold(0, |sum, digit| sum << 8 | u64::from(*digit)))
    };
    let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
    let mut sum = 0;
    for index in 0..count {
        let header = usize::try_from(table.checked_add(index * size)?).ok()?;
        if number(header, 4)? == LOAD {
            sum += number(header.checked_add(0x20)?, 8)?;
        }
    }
    Some(sum)
}

/// Whether the files have the same names and bytes.
pub fn equal(what: &'static str, one: &[PathBuf], other: &[PathBuf]) -> Check {
    for (one, other) in one.iter().zip(other) {
        let same = one.file_name() == other.file_name();
        let bytes = (std::fs::read(one), std::fs::read(other));
        if !same || !matches!(bytes, (Ok(one), Ok(other)) if one == other) {
            let why = format!("{} and {} differ", one.display(), other.display());
            return Check::Failed(what, why);
        }
    }
    Check::of(
        what,
        if one.len() == other.len() {
            Ok(())
        } else {
            Err("one is missing".into())
        },
    )
}

/// What is checked of an installed package.
const INSTALLS: &str = "the Debian package installs into an empty folder";
const UNPACKS: &str = "the tarball unpacks, runs and is removed as docs/installing.md says";
const UNIT: &str = "systemd reads the unit";
const NEEDS_ROOT: &str = "needs root, or user namespaces that an ordinary user may make";
/// Commands that run with the folder as their root, where there is nothing but the package: the
/// first word of what they print.
const RUNS: [(&str, &[&str], &str); 4] = [
    (
        "outboard --version",
        &["/usr/bin/outboard", "--version"],
        "outboard",
    ),
    (
        "outboard-tender --version",
        &["/usr/bin/outboard-tender", "--version"],
        "outboard-tender",
    ),
    (
        "outboard inspect firewall.spt",
        &[
            "/usr/bin/outboard",
            "inspect",
            "/usr/lib/outboard/firewall.spt",
        ],
        "",
    ),
    (
        "outboard inspect firewall.hvt",
        &[
            "/usr/bin/outboard",
            "inspect",
            "/usr/lib/outboard/firewall.hvt",
        ],
        "",
    ),
];

/// The blocks of docs/installing.md that are typed here.
pub const BLOCKS: [&str; 2] = ["unpack", "uninstall"];
/// Runs the first block, the program, and the second block; prints which files are left.
const ELSEWHERE: &str = "
    mount -t tmpfs none /usr/local
    mount -t tmpfs none /etc
    eval \"$0\"
    /usr/local/bin/outboard --version
    eval \"$1\"
    find /usr/local -type f";

/// Installs the package and unpacks the tarball in folders of `out`, and runs what is there.
///
/// # Errors
/// One line, if folders cannot be made.
pub fn install(sources: &Path, made: &[PathBuf], out: &Path) -> Result<Vec<Check>, String> {
    let (deb, tarball) = match made {
        [deb, tarball] => (deb, tarball),
        _ => return Err("there are not two archives".into()),
    };
    let root = out.join("root");
    archive::empty(&root)?;
    let mut checks = Vec::new();
    let skip = match () {
        () if !process::exists("dpkg") => Some("needs dpkg; type: sudo apt-get install dpkg"),
        () if !can_be_root() => Some(NEEDS_ROOT),
        () => None,
    };
    if let Some(why) = skip {
        checks.push(Check::Skipped(INSTALLS, why.into()));
    } else {
        checks.push(Check::of(INSTALLS, dpkg(deb, &root)));
        for (what, command, says) in RUNS {
            checks.push(Check::of(what, runs(&root, command, says)));
        }
        checks.push(unit(&root));
    }
    if can_be_root() {
        let unpacked = unpack(sources, tarball, &out.join("unpacked"));
        checks.push(Check::of(UNPACKS, unpacked));
    } else {
        checks.push(Check::Skipped(UNPACKS, NEEDS_ROOT.into()));
    }
    archive::remove(&root)?;
    archive::remove(&out.join("unpacked"))?;
    Ok(checks)
}

/// A program that may change its root: by root, or in a namespace where we are.
fn as_root(program: &str) -> Command {
    if crate::packages::is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", program]);
    command
}

fn can_be_root() -> bool {
    matches!(process::capture(&mut as_root("true"), false), Ok(ended) if ended.status == 0)
}

/// Installs into a folder with a database of packages that is empty.
fn dpkg(deb: &Path, root: &Path) -> Result<(), String> {
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        archive::empty(&database.join(folder))?;
    }
    std::fs::write(database.join("status"), "")
        .map_err(|error| format!("{}: {}", database.display(), error))?;
    let mut dpkg = as_root("dpkg");
    // dpkg looks for tools of scripts, which this package has not, and writes to the machine's log.
    dpkg.arg("--root")
        .arg(root)
        .args(["--force-bad-path", "--log=/dev/null", "--install"]);
    printed(dpkg.arg(deb)).map(|_| ())
}

/// Whether the command succeeds with `root` as its root, and prints what begins so.
fn runs(root: &Path, command: &[&str], says: &str) -> Result<(), String> {
    let mut chroot = as_root("/usr/sbin/chroot");
    let text = printed(chroot.arg(root).args(command))?;
    if text.is_empty() || !text.starts_with(says) {
        return Err(format!("it printed `{}`", text.trim()));
    }
    Ok(())
}

/// Has systemd read the unit, with what it starts in the installed folder. There is nothing else of
/// systemd in that folder, so errors of other units do not count.
fn unit(root: &Path) -> Check {
    const ALONE: &str = "--recursive-errors=no";
    let help = printed(Command::new("systemd-analyze").arg("--help"));
    if !matches!(help, Ok(text) if text.contains("--recursive-errors")) {
        let why = "needs systemd-analyze of version 250; type: sudo apt-get install systemd";
        return Check::Skipped(UNIT, why.into());
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", ALONE]);
    verify.arg(format!("--root={}", root.display()));
    Check::of(
        UNIT,
        printed(verify.arg("outboard@firewall.service")).map(|_| ()),
    )
}

/// Unpacks the tarball and removes what it brought, as docs/installing.md says, where `/usr/local`
/// and `/etc` are empty and our own; runs the program in between.
fn unpack(sources: &Path, tarball: &Path, folder: &Path) -> Result<(), String> {
    let packages = folder.join(super::OUT);
    archive::empty(&packages)?;
    let name = tarball.file_name().unwrap_or_default();
    std::fs::copy(tarball, packages.join(name))
        .map_err(|error| format!("{}: {}", tarball.display(), error))?;
    let mut shell = as_root("unshare");
    shell.args(["--mount", "sh", "-ec", ELSEWHERE]);
    for name in BLOCKS {
        shell.arg(typed::block(sources, name)?);
    }
    let text = printed(shell.current_dir(folder))?;
    if text.starts_with("outboard ") && text.lines().count() == 1 {
        Ok(())
    } else {
        Err(format!("it printed `{}`", text.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_and_other_names_are_not_equal() {
        let name = format!("outboard-package-equal-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        archive::empty(&folder).unwrap();
        let file = |folder_name: &str, name: &str, text: &str| {
            let folder = folder.join(folder_name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
            vec![folder.join(name)]
        };
        let first = file("a", "x", "1");
        let same = equal("x", &first, &file("b", "x", "1"));
        assert_eq!(same, Check::Passed("x"));
        for other in [
            file("c", "x", "2"),
            file("d", "y", "1"),
            vec![folder.join("e/x")],
            vec![],
        ] {
            assert!(
                matches!(equal("x", &first, &other), Check::Failed(..)),
                "{:?}",
                other
            );
        }
        archive::remove(&folder).unwrap();
    }

    #[test]
    fn segments_that_are_loaded_are_summed() {
        let mut file = vec![0; 0x40 + 2 * 0x38];
        file[0x20] = 0x40;
        file[0x36] = 0x38;
        file[0x38] = 2;
        assert_eq!(loaded(&file), Some(0));
        file[0x40] = 1;
        file[0x61] = 7;
        assert_eq!(loaded(&file), Some(7 << 8));
        file[0x38] = 3;
        assert_eq!(loaded(&file), None, "a header that is not there");
        assert_eq!(loaded(b"no ELF"), None);
    }
}
