//! Sleeping until a device has something, or until a deadline.

use crate::boot::boot;
use crate::clock::{Instant, monotonic};
use crate::spt::{self, EpollEvent};
use abi::spt::EPOLL_TIMER;
use core::cell::Cell;
use device::WaitHandle;

/// Events taken in one call; the timer and more devices than this are reported by the next call.
const EVENTS_MAX: usize = 16;

/// The devices that have something to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u64);

impl Ready {
    /// Whether this device does.
    #[inline]
    pub fn contains(self, handle: WaitHandle) -> bool {
        self.0 & (1 << handle.0) != 0
    }

    /// Whether none does: the deadline passed, or the host has changed the shared file.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

struct TimerSet(Cell<bool>);
// SAFETY: a unikernel has one thread, and no signal or interrupt handler runs guest code.
unsafe impl Sync for TimerSet {}
/// Whether the timer was set and may have gone off. It cannot be read, so it stays ready until it
/// is set again.
static TIMER_SET: TimerSet = TimerSet(Cell::new(false));

/// Sleeps until a network device has something to receive, the host has changed the shared file, or
/// `deadline` has passed, if there is one. A deadline in the past makes it a look without sleep.
pub fn wait(deadline: Option<Instant>) -> Ready {
    let boot = boot();
    boot.capture.publish();
    let sleep = deadline.is_none_or(|deadline| deadline > monotonic());
    match deadline {
        Some(Instant(deadline)) if sleep => set_timer(boot.timer, deadline),
        _ if TIMER_SET.0.get() => set_timer(boot.timer, 0),
        _ => {}
    }
    let mut events = [EpollEvent { events: 0, data: 0 }; EVENTS_MAX];
    let filled = spt::epoll_wait(boot.epoll, &mut events, sleep);
    let mut ready = Ready::default();
    for event in &events[..filled] {
        let data = event.data;
        if data != EPOLL_TIMER && data < 64 {
            ready.0 |= 1 << data;
        }
    }
    ready
}

fn set_timer(timer: i32, deadline: u64) {
    spt::set_timer(timer, deadline);
    TIMER_SET.0.set(deadline != 0);
}
