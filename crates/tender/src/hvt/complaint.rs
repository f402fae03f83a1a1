//! What the thread of the rings ends a guest for, told to the thread that runs its processor: only
//! that one can say where the guest was.

use super::cause::Cause;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the other thread may take to hear of it: it may be busy with a call of the guest's.
const HEARD_POLL: Duration = Duration::from_millis(1);
const HEARD_POLLS_MAX: u32 = 3000;
/// How long it may then take to say so and to write a core file.
const SAID_POLL: Duration = Duration::from_secs(1);
const SAID_POLLS_MAX: u32 = 600;

/// A complaint, if there is one. Neither thread ever sleeps for the other in the kernel's futexes,
/// which the jail forbids.
#[derive(Debug, Default)]
pub struct Complaint {
    cause: OnceLock<Cause>,
    heard: AtomicBool,
}

impl Complaint {
    /// No complaint.
    pub const fn new() -> Self {
        Self {
            cause: OnceLock::new(),
            heard: AtomicBool::new(false),
        }
    }

    /// Complains; once.
    pub fn make(&self, cause: Cause) {
        // A second one would change nothing.
        let _ = self.cause.set(cause);
    }

    /// The complaint, for whoever ends the guest for it: to one of all who ask.
    pub fn take(&self) -> Option<Cause> {
        let cause = self.cause.get()?;
        (!self.heard.swap(true, Ordering::AcqRel)).then_some(*cause)
    }

    /// Waits, by `pause`, until this process has been ended for the complaint; returns if nobody
    /// does that, and nobody will.
    pub fn wait(&self, pause: impl Fn(Duration)) {
        for _ in 0..HEARD_POLLS_MAX {
            if self.heard.load(Ordering::Acquire) {
                break;
            }
            pause(HEARD_POLL);
        }
        if self.take().is_none() {
            for _ in 0..SAID_POLLS_MAX {
                pause(SAID_POLL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    const CAUSE: Cause = Cause::DeviceGone(7);

    #[test]
    fn a_complaint_is_heard_once() {
        let complaint = Complaint::new();
        assert_eq!(complaint.take(), None);
        complaint.make(CAUSE);
        complaint.make(Cause::DeviceGone(8));
        assert_eq!(complaint.take(), Some(CAUSE));
        assert_eq!(complaint.take(), None);
    }

    #[test]
    fn who_is_not_heard_ends_the_guest_himself() {
        let complaint = Complaint::new();
        complaint.make(CAUSE);
        let pauses = Cell::new(0);
        complaint.wait(|pause| {
            assert_eq!(pause, HEARD_POLL);
            pauses.set(pauses.get() + 1);
        });
        assert_eq!(pauses.get(), HEARD_POLLS_MAX);
        assert_eq!(complaint.take(), None, "and nobody else does");
    }

    #[test]
    fn who_is_heard_leaves_the_end_to_the_other() {
        let complaint = Complaint::new();
        complaint.make(CAUSE);
        let heard = RefCell::new(Vec::new());
        let said = Cell::new(0);
        complaint.wait(|pause| match pause {
            HEARD_POLL => heard.borrow_mut().extend(complaint.take()),
            _ => said.set(said.get() + 1),
        });
        assert_eq!(*heard.borrow(), [CAUSE]);
        assert_eq!(said.get(), SAID_POLLS_MAX);
    }
}
