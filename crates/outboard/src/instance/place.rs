//! Where named guests have their directories, for whoever asks.

use super::Error;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of the system, and of the user to whom a service manager gave a part of it.
const RUN: &str = "/run";
/// The directory in which each instance has one.
const FOLDER: &str = "outboard";
/// Rights of a directory that is one user's alone.
const PRIVATE: u32 = 0o700;

/// The directory in which each instance has one.
///
/// # Errors
/// Somebody else could have put things there.
pub(crate) fn base() -> Result<PathBuf, Error> {
    let place = Place::of_this_process();
    if let Place::Temporary(directory) = &place {
        check(directory)?;
    }
    Ok(place.directory().join(FOLDER))
}

/// The same, for a guest that is about to begin: what must be made with care is made.
///
/// # Errors
/// Somebody else could have put things there, or the directory cannot be made.
pub(crate) fn made_base() -> Result<PathBuf, Error> {
    if let Place::Temporary(directory) = Place::of_this_process() {
        make(&directory)?;
    }
    base()
}

/// How root asks for the guests that this process asks for.
pub fn sudo() -> String {
    match Place::of_this_process() {
        Place::Variable(_) => "sudo --preserve-env=XDG_RUNTIME_DIR".to_owned(),
        Place::System => "sudo".to_owned(),
        Place::Temporary(directory) => format!("sudo XDG_RUNTIME_DIR={}", directory.display()),
    }
}

/// What stands in for `$XDG_RUNTIME_DIR`.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// The variable itself says.
    Variable(PathBuf),
    /// [`RUN`].
    System,
    /// Of an ordinary user whose login has no such variable.
    Temporary(PathBuf),
}

impl Place {
    fn of_this_process() -> Self {
        if let Some(value) = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
            return Self::Variable(value.into());
        }
        let owner = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.uid());
        let run = Path::new(RUN);
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let owner = owner(&run.join(FOLDER)).or_else(|| owner(run));
        Self::without_variable(owner, geteuid().as_raw(), &map)
    }

    /// For the user `uid`, where `owner` may write into [`RUN`].
    fn without_variable(owner: Option<u32>, uid: u32, map: &str) -> Self {
        match owner == Some(uid) {
            true => Self::System,
            false => Self::Temporary(format!("/tmp/outboard-{}", outside(uid, map)).into()),
        }
    }

    fn directory(&self) -> &Path {
        match self {
            Self::Variable(directory) | Self::Temporary(directory) => directory,
            Self::System => Path::new(RUN),
        }
    }
}

/// A user's number outside of the user namespace whose `/proc/self/uid_map` this is: the user's
/// commands look at the same place from both.
fn outside(uid: u32, map: &str) -> u32 {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
        let (inside, outside, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let offset = uid.checked_sub(inside)?;
        if offset < count {
            outside.checked_add(offset)
        } else {
            None
        }
    };
    map.lines().find_map(range).unwrap_or(uid)
}

/// Makes a directory that is this user's alone.
fn make(directory: &Path) -> Result<(), Error> {
    match DirBuilder::new().mode(PRIVATE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|error| Error::Make(directory.to_owned(), error)),
    }
}

/// Refuses a directory that is not this user's alone; that there is none is no error.
fn check(directory: &Path) -> Result<(), Error> {
    let private = |found: &Metadata| {
        found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o7777 == PRIVATE
    };
    // Whoever may write beside it can make a link of this name, which is not followed.
    match fs::symlink_metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::Read(directory.to_owned(), error)),
        Ok(found) if private(&found) => Ok(()),
        Ok(_) => Err(Error::NotPrivate(directory.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// That of a machine, and that of `unshare --map-root-user`.
    const ALL: &str = "         0          0 4294967295\n";
    const ROOT_ALONE: &str = "         0       1000          1\n";

    #[test]
    fn a_user_has_one_place_inside_and_outside_of_a_namespace() {
        let temporary = Place::Temporary("/tmp/outboard-1000".into());
        assert_eq!(Place::without_variable(Some(0), 1000, ALL), temporary);
        assert_eq!(Place::without_variable(None, 1000, ""), temporary);
        // There, what is root's outside is nobody's.
        assert_eq!(
            Place::without_variable(Some(65534), 0, ROOT_ALONE),
            temporary
        );
        assert_eq!(Place::without_variable(Some(0), 0, ALL), Place::System);
        // A service's own user, to whom systemd gave the directory.
        assert_eq!(Place::without_variable(Some(998), 998, ALL), Place::System);
        assert_eq!(outside(5, "0 1000 1\n1 100000 65536\n"), 100_004);
        assert_eq!(outside(7, "0 1000 1\nnonsense"), 7);
    }

    #[test]
    fn a_directory_of_somebody_elses_is_refused() {
        let parent = std::env::temp_dir().join(format!("outboard-place-{}", std::process::id()));
        let directory = parent.join("outboard-1000");
        fs::create_dir(&parent).unwrap();
        check(&directory).unwrap();
        make(&directory).unwrap();
        make(&directory).unwrap();
        check(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let open = check(&directory);
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        let link = parent.join("link");
        symlink(&directory, &link).unwrap();
        let (linked, file) = (check(&link), parent.join("file"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o700)).unwrap();
        let file = check(&file);
        fs::remove_dir_all(&parent).unwrap();
        let says = format!(
            "{}: no folder that is yours alone (mode 0700); remove it, or set XDG_RUNTIME_DIR to a \
             directory of yours",
            directory.display()
        );
        assert_eq!(open.unwrap_err().to_string(), says);
        assert!(matches!(linked, Err(Error::NotPrivate(_))), "{linked:?}");
        assert!(matches!(file, Err(Error::NotPrivate(_))), "{file:?}");
        // Root's is another user's for everybody else.
        if !geteuid().is_root() {
            assert!(matches!(check(Path::new("/")), Err(Error::NotPrivate(_))));
        }
    }
}
