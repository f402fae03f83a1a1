//! Signals between the monitor and what it starts.

use rustix::process::Signal;

/// Signals that are meant for the guest: the monitor passes them on to the tender.
pub(crate) const FORWARDED: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];
