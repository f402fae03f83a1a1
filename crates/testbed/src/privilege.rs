//! The right to make networks: root's, or an ordinary user's inside a user namespace.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use linux::namespace;
use linux::netlink::Netlink;

use crate::segment::{self, Segment};
use crate::topology::Pair;

/// How long the kernel may take to forget a thread that was joined.
const FORGOTTEN_MILLISECONDS_MAX: u32 = 1000;

/// What is missing, in one line: which step failed, why, and what to type.
#[derive(Debug)]
pub struct Missing {
    error: segment::Error,
    advice: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}; {}", self.error, self.advice)
    }
}

impl std::error::Error for Missing {}

/// Obtains the right to make networks, and proves it by making two with a tap in each: some
/// distributions grant a namespace and then refuse what one is for. A process that lacks the right
/// moves into a user namespace, in which it is root, and into an empty network; it must have one
/// thread.
///
/// # Errors
/// Which step failed, and which setting or command helps.
pub fn acquire() -> Result<(), Missing> {
    attempt().map_err(|error| Missing {
        advice: advice(&error, &Settings::read()),
        error,
    })
}

fn attempt() -> Result<(), segment::Error> {
    match Segment::new() {
        Ok(_) => {}
        Err(segment::Error::Namespace(namespace::Error::UnshareNetwork(error)))
            if error.kind() == io::ErrorKind::PermissionDenied =>
        {
            enter_user()?;
            // Leaves the network that this process has no right to enter again, so that whoever it
            // starts can move between namespaces and back.
            namespace::unshare_network()?;
            Netlink::open()?.set_up("lo")?;
        }
        Err(error) => return Err(error),
    }
    Pair::tapped(true).map(drop)
}

/// Enters a user namespace once the kernel has forgotten the threads that made a segment. They have
/// been joined, but the kernel wakes whoever joins a thread a moment before it lets go of it, and
/// until then it refuses with `EINVAL`, because the process has two threads.
fn enter_user() -> Result<(), namespace::Error> {
    for _ in 0..FORGOTTEN_MILLISECONDS_MAX {
        match namespace::enter_user() {
            Err(namespace::Error::UnshareUser(error))
                if error.kind() == io::ErrorKind::InvalidInput =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            entered => return entered,
        }
    }
    namespace::enter_user()
}

/// The kernel's settings that forbid user namespaces; `None` where it has no such setting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// `kernel.unprivileged_userns_clone`, of Debian's older kernels.
    pub clone: Option<u32>,
    /// `user.max_user_namespaces`
    pub max: Option<u32>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu.
    pub apparmor: Option<u32>,
}

impl Settings {
    /// Those of this machine.
    pub fn read() -> Self {
        let read = |name| {
            let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
            text.trim().parse().ok()
        };
        Self {
            clone: read("kernel/unprivileged_userns_clone"),
            max: read("user/max_user_namespaces"),
            apparmor: read("kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    /// The command that lifts what forbids user namespaces here.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.clone == Some(0) {
            Some("sudo sysctl kernel.unprivileged_userns_clone=1")
        } else if self.max == Some(0) {
            Some("sudo sysctl user.max_user_namespaces=10000")
        } else if self.apparmor.is_some_and(|restricted| restricted != 0) {
            Some("sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0")
        } else {
            None
        }
    }
}

fn advice(error: &segment::Error, settings: &Settings) -> String {
    if let segment::Error::Tap(_, error) = error {
        match error.kind() {
            io::ErrorKind::NotFound => return "sudo modprobe tun".into(),
            io::ErrorKind::PermissionDenied if error.raw_os_error() == Some(EACCES) => {
                return "sudo chmod 0666 /dev/net/tun, or run this with sudo".into();
            }
            _ => {}
        }
    }
    match settings.remedy() {
        Some(command) => format!("{command}, or run this with sudo"),
        None => "run this with sudo (a container needs CAP_NET_ADMIN and CAP_SYS_ADMIN)".into(),
    }
}

/// The device file's mode forbids it; `EPERM` would be a missing capability.
const EACCES: i32 = rustix::io::Errno::ACCESS.raw_os_error();

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Settings = Settings {
        clone: Some(1),
        max: Some(100),
        apparmor: Some(0),
    };

    fn namespace_refused() -> segment::Error {
        namespace::Error::UnshareUser(io::ErrorKind::PermissionDenied.into()).into()
    }

    fn tap_refused(code: i32) -> segment::Error {
        segment::Error::Tap("eth0".into(), io::Error::from_raw_os_error(code))
    }

    #[test]
    fn the_setting_that_forbids_is_named() {
        for (settings, name) in [
            (
                Settings {
                    clone: Some(0),
                    ..FREE
                },
                "unprivileged_userns_clone=1",
            ),
            (
                Settings {
                    max: Some(0),
                    ..FREE
                },
                "max_user_namespaces=",
            ),
            (
                Settings {
                    apparmor: Some(1),
                    ..FREE
                },
                "apparmor_restrict_unprivileged_userns=0",
            ),
            (FREE, "run this with sudo"),
        ] {
            let advice = advice(&namespace_refused(), &settings);
            assert!(advice.contains(name), "{advice}");
        }
    }

    #[test]
    fn a_tap_device_that_may_not_be_opened() {
        assert!(advice(&tap_refused(EACCES), &FREE).contains("chmod 0666 /dev/net/tun"));
        assert_eq!(advice(&tap_refused(2), &FREE), "sudo modprobe tun");
        let capability = Settings {
            apparmor: Some(1),
            ..FREE
        };
        assert!(advice(&tap_refused(1), &capability).contains("apparmor"));
    }
}
