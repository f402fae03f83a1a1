//! A port that frames flood, beside a task that sleeps: how late it wakes, and how many frames are
//! taken.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use device::{Batch, Netif};
use net::task::{Clock, Executor};
use net::turn::{TASKS_PER_TURN, sleep_until, turn};
use ports::Instant;
use unikernel::{monotonic, println};

/// How long the task sleeps.
const NAP: Duration = Duration::from_millis(1);
/// What is done with a frame: more than it takes to send one, so that the port is always busy.
const WORK: Duration = Duration::from_micros(4);
/// How long it runs from the first frame on.
const LENGTH: Duration = Duration::from_secs(2);
/// How long it waits for the first frame.
const PATIENCE: Duration = Duration::from_secs(5);
/// The word that takes the port's bound away.
const DRAIN: &str = "drain";

struct Flooded<'a> {
    port: &'a mut dyn Netif,
    batch: Batch,
    frames: u64,
    /// Whether it is received from until it has nothing.
    drains: bool,
    end: Instant,
}

impl Flooded<'_> {
    /// Takes one batch; whether there was something.
    fn take(&mut self) -> bool {
        self.port.receive(&mut self.batch);
        let count = self.batch.drain().count() as u32;
        self.frames += u64::from(count);
        let until = monotonic() + WORK * count;
        while monotonic() < until {}
        count > 0
    }

    fn receive(&mut self) -> bool {
        let any = self.take();
        while any && self.drains && monotonic() < self.end && self.take() {}
        any
    }
}

/// Says `ready`, and then frames, naps, and in nanoseconds the median, the 99th percentile and the
/// maximum of how late the task woke.
pub fn run(port: &mut dyn Netif) -> i32 {
    println!("ready");
    let first = monotonic() + PATIENCE;
    unikernel::wait(Some(first));
    let end = monotonic() + LENGTH;
    let mut below = Flooded {
        port,
        batch: Batch::new(),
        frames: 0,
        drains: unikernel::arguments().any(|word| word == DRAIN),
        end,
    };
    let (mut executor, clock) = (Executor::new(), Clock::default());
    let late = Rc::new(RefCell::new(Vec::new()));
    executor.spawner().spawn(nap(clock.clone(), late.clone()));
    while monotonic() < end {
        let above = (&mut executor, &clock);
        let now = monotonic();
        let receive = Flooded::receive;
        let idle = turn(&mut below, above, TASKS_PER_TURN, now, receive, |_| true);
        unikernel::wait(sleep_until(idle, clock.deadline()));
    }
    // A nap that has not ended by then is late as well.
    clock.set(monotonic());
    executor.run(TASKS_PER_TURN);
    let mut late = late.take();
    late.sort_unstable();
    let at = |percent: usize| {
        let place = (late.len() * percent / 100).min(late.len().saturating_sub(1));
        late.get(place).map_or(0, Duration::as_nanos)
    };
    let (frames, naps) = (below.frames, late.len());
    println!("{frames} {naps} {} {} {}", at(50), at(99), at(100));
    0
}

async fn nap(clock: Clock, late: Rc<RefCell<Vec<Duration>>>) {
    loop {
        let due = clock.now() + NAP;
        clock.until(due).await;
        late.borrow_mut().push(monotonic() - due);
    }
}
