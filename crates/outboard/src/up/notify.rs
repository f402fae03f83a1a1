//! What a service manager is told of a supervisor: sd_notify(3).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where a service manager listens.
const SOCKET: &str = "NOTIFY_SOCKET";
/// How often it wants to hear of the service, in microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC";
/// The process that is to say so, if it is not the service's first.
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// A service manager, if one started this process and wants to know.
#[derive(Debug)]
pub struct Notify {
    manager: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// That of this process's environment.
    pub fn of_this_process() -> Self {
        let manager = std::env::var_os(SOCKET).and_then(|path| {
            let path = path.into_vec();
            let address = match path.strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(&path)),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let others =
            number(WATCHDOG_PROCESS).is_some_and(|pid| pid != u64::from(std::process::id()));
        let watchdog = number(WATCHDOG)
            .filter(|_| !others)
            .map(Duration::from_micros);
        Self { manager, watchdog }
    }

    /// How often it has to hear of this process: twice as often as it asks for.
    pub fn period(&self) -> Option<Duration> {
        self.watchdog
            .filter(|_| self.manager.is_some())
            .map(|period| period / 2)
    }

    /// Tells it. Best effort: it may be gone.
    pub fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.manager {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}
