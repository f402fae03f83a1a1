//! Events of the kernel's that a client has given.

use super::Refused;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Signals an event that was [checked](check).
pub(crate) fn signal(event: &OwnedFd) {
    // A counter that is full blocks whoever adds to it; it wakes its reader anyway.
    let mut ready = [PollFd::new(event, PollFlags::OUT)];
    if matches!(poll(&mut ready, Some(&NOW)), Ok(1)) {
        let _ = rustix::io::write(event, &1u64.to_le_bytes());
    }
}

/// Whether it is an event, which a write does not block on but when its counter is full; it is made
/// not to block at all, which the client could undo, to its own harm alone.
pub(crate) fn check(event: &OwnedFd) -> Result<(), Refused> {
    if !linux::event::is_event(event.as_fd()) {
        return Err(Refused::NotEvent);
    }
    let flags = fcntl_getfl(event).map_err(|_| Refused::NotEvent)?;
    fcntl_setfl(event, flags | OFlags::NONBLOCK).map_err(|_| Refused::NotEvent)
}

/// Takes what an event that was [checked](check) counted, so that it can be waited for again. It
/// does not wait, whatever the client has made of the event since.
pub(crate) fn drain(event: &OwnedFd) {
    let mut counted = [0; 8];
    let to = &mut [IoSliceMut::new(&mut counted)];
    // An event has no places: this is how the kernel is told so (preadv2(2)).
    const HERE: u64 = u64::MAX;
    let _ = preadv2(event, to, HERE, ReadWriteFlags::NOWAIT);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn an_event_that_blocks_again_is_not_waited_for() {
        let event = eventfd(3, EventfdFlags::empty()).unwrap();
        check(&event).unwrap();
        assert!(fcntl_getfl(&event).unwrap().contains(OFlags::NONBLOCK));
        fcntl_setfl(&event, OFlags::empty()).unwrap();
        let is_counting = || poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&NOW)) == Ok(1);
        assert!(is_counting());
        drain(&event);
        assert!(!is_counting());
        // There is nothing to take: a read that waits would not come back.
        drain(&event);
        // A counter that is full: neither would a write.
        rustix::io::write(&event, &(u64::MAX - 1).to_le_bytes()).unwrap();
        signal(&event);
        assert!(is_counting());
    }
}
