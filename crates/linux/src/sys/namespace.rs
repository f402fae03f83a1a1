//! Anonymous user and network namespaces.
//!
//! None of them has a name in the file system: a namespace lives as long as a thread is in it, a
//! descriptor refers to it, or an interface with an open descriptor is in it. Nothing is left to
//! clean up, whatever happens to the process. Keep open: `namespaces(7)`, `user_namespaces(7)`.

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::{fmt, fs, io};

/// Which step towards a namespace failed.
#[derive(Debug)]
pub enum Error {
    /// No new user namespace.
    UnshareUser(io::Error),
    /// A file that maps users or groups could not be written.
    Map {
        /// The file.
        file: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// No new network namespace.
    UnshareNetwork(io::Error),
    /// The namespace of this thread could not be opened.
    Open(io::Error),
    /// The thread could not move into a namespace.
    Enter(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnshareUser(e) => write!(f, "cannot make a user namespace: {e}"),
            Self::Map { file, source } => write!(f, "cannot write {file}: {source}"),
            Self::UnshareNetwork(e) => write!(f, "cannot make a network namespace: {e}"),
            Self::Open(e) => write!(f, "cannot open {THREAD_NETWORK}: {e}"),
            Self::Enter(e) => write!(f, "cannot enter a network namespace: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Map { source, .. } => Some(source),
            Self::UnshareUser(e) | Self::UnshareNetwork(e) | Self::Open(e) | Self::Enter(e) => {
                Some(e)
            }
        }
    }
}

const THREAD_NETWORK: &str = "/proc/thread-self/ns/net";

/// Moves the process into a new user namespace, in which its user is root. It gains every
/// capability over namespaces that it makes afterwards, and none outside.
///
/// # Errors
/// [`Error::UnshareUser`], with `EINVAL` if the process has more than one thread, and
/// [`Error::Map`].
pub fn enter_user() -> Result<(), Error> {
    let user = rustix::process::getuid();
    let group = rustix::process::getgid();
    unshare(UnshareFlags::NEWUSER).map_err(Error::UnshareUser)?;
    // An ordinary user may map groups only after giving up setgroups: user_namespaces(7).
    map("/proc/self/setgroups", "deny")?;
    map("/proc/self/uid_map", &format!("0 {} 1", user.as_raw()))?;
    map("/proc/self/gid_map", &format!("0 {} 1", group.as_raw()))
}

/// Moves the process into new namespaces: of users, in which it is nobody until its parent has
/// called [`map_child`]; of its network, its mounts, and of the processes that it starts.
///
/// # Errors
/// [`Error::UnshareUser`], with `EINVAL` if the process has more than one thread.
pub fn enter_all() -> Result<(), Error> {
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC;
    unshare(all).map_err(Error::UnshareUser)
}

/// Users, or groups, of a namespace: from `inside` on there are `count` of them, which are those
/// from `outside` on where this process is.
#[derive(Clone, Copy, Debug)]
pub struct Ids {
    /// The first one's number there.
    pub inside: u32,
    /// And here.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// The users and groups of this process's namespace, each under its own number.
///
/// # Errors
/// [`Error::Map`]
pub fn own_ids() -> Result<[Vec<Ids>; 2], Error> {
    let read = |file: &'static str| {
        let map = fs::read_to_string(file).map_err(|source| Error::Map { file, source })?;
        Ok(map.lines().filter_map(ids).collect())
    };
    Ok([read("/proc/self/uid_map")?, read("/proc/self/gid_map")?])
}

/// A line of uid_map (`user_namespaces(7)`), each number as it is here.
fn ids(line: &str) -> Option<Ids> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse);
    let inside = numbers.next()?.ok()?;
    let count = numbers.nth(1)?.ok()?;
    Some(Ids {
        inside,
        outside: inside,
        count,
    })
}

/// Says who the users and groups are in the namespace of a child that has entered one. Who may not
/// name groups as it likes gives that up for the child (`user_namespaces(7)`), if `alone`.
///
/// # Errors
/// [`Error::Map`]
pub fn map_child(child: u32, [users, groups]: &[Vec<Ids>; 2], alone: bool) -> Result<(), Error> {
    let write = |file: &'static str, line: &str| {
        let path = format!("/proc/{child}/{file}");
        fs::write(path, line).map_err(|source| Error::Map { file, source })
    };
    let lines = |all: &[Ids]| -> String {
        let line = |ids: &Ids| format!("{} {} {}\n", ids.inside, ids.outside, ids.count);
        all.iter().map(line).collect()
    };
    if alone {
        write("setgroups", "deny")?;
    }
    write("uid_map", &lines(users))?;
    write("gid_map", &lines(groups))
}

fn map(file: &'static str, line: &str) -> Result<(), Error> {
    fs::write(file, line).map_err(|source| Error::Map { file, source })
}

/// Moves this thread into a new network namespace. Threads that it starts are in it too.
///
/// # Errors
/// [`Error::UnshareNetwork`], with `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_network() -> Result<(), Error> {
    unshare(UnshareFlags::NEWNET).map_err(Error::UnshareNetwork)
}

/// A descriptor of this thread's network namespace, which keeps it alive.
///
/// # Errors
/// [`Error::Open`]
pub fn network() -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(THREAD_NETWORK, flags, Mode::empty()).map_err(|e| Error::Open(e.into()))
}

/// Moves this thread into the network namespace that `namespace` refers to.
///
/// # Errors
/// [`Error::Enter`], with `EPERM` without `CAP_SYS_ADMIN` there.
pub fn enter_network(namespace: BorrowedFd<'_>) -> Result<(), Error> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
        .map_err(|e| Error::Enter(e.into()))
}

pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: the one obligation is about `UnshareFlags::FILES`, which would give this thread a
    // table of descriptors of its own; the line above excludes it.
    unsafe { unshare_unsafe(flags) }.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn ids_are_what_they_are_here() {
        let found = ids("      1000     100000      65536").unwrap();
        assert_eq!(
            (found.inside, found.outside, found.count),
            (1000, 1000, 65536)
        );
        assert!(ids("0 0").is_none() && ids("0 0 -1").is_none());
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let file = fs::File::open("/dev/null").unwrap();
        let error = enter_network(file.as_fd()).unwrap_err();
        assert!(matches!(error, Error::Enter(_)));
        assert!(
            error
                .to_string()
                .starts_with("cannot enter a network namespace: ")
        );
    }

    #[test]
    fn this_threads_namespace_can_be_opened_without_privilege() {
        network().unwrap();
    }

    #[test]
    fn no_user_namespace_in_a_process_of_several_threads() {
        // The harness is another thread, so this must fail and must change nothing.
        let before = rustix::process::getuid();
        let error = std::thread::spawn(enter_user).join().unwrap().unwrap_err();
        assert!(matches!(error, Error::UnshareUser(_)));
        assert_eq!(rustix::process::getuid(), before);
    }
}
