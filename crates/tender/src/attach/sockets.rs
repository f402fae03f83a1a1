//! Sockets of the host's, for a guest that is a plain process: it opens them itself.

use super::Reason;
use rustix::event::epoll;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;

/// What the guest puts its sockets into, and is woken by. Each socket is an open file: the guest
/// may have as many as this user may have at most.
pub fn open() -> Result<OwnedFd, Reason> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| Reason::System("the limit of open files", error.into()))?;
    epoll::create(epoll::CreateFlags::CLOEXEC)
        .map_err(|error| Reason::System("no epoll", error.into()))
}
