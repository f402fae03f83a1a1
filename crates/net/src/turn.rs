//! One turn of an image, and how long it may sleep then.
//!
//! A port and tasks share one thread. Each has a bounded part of a turn, and timers are looked at
//! when it begins: so a port that is always busy, be it polled or not, starves no sleeper, tasks
//! that can always go on starve no port, and the image sleeps only when nobody can go on.

use crate::task::{Clock, Executor};
use crate::tcp::connection::NEVER;
use ports::Instant;

/// Tasks that go on before the port is looked at again.
pub const TASKS_PER_TURN: usize = 64;

/// One turn: wakes who has waited for `now`, has `receive` take in what has come to `below`, lets
/// at most `tasks` tasks go on, and has `send` send what they wrote. Whether nobody can go on.
///
/// `receive` takes a bounded part, and says whether there was something; `send` says whether all
/// has left.
pub fn turn<B>(
    below: &mut B,
    (executor, clock): (&mut Executor, &Clock),
    tasks: usize,
    now: Instant,
    receive: impl FnOnce(&mut B) -> bool,
    send: impl FnOnce(&mut B) -> bool,
) -> bool {
    clock.set(now);
    let any = receive(below);
    let more = executor.run(tasks);
    let all_left = send(below);
    !any && !more && all_left
}

/// Until when to sleep after a turn: not at all if somebody can go on, else until the first of
/// `deadlines`; `None` if only the port can wake.
pub fn sleep_until(idle: bool, deadlines: impl IntoIterator<Item = Instant>) -> Option<Instant> {
    if !idle {
        return Some(Instant::PAST);
    }
    let first = deadlines.into_iter().min();
    first.filter(|first| *first != NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv4::Ipv4;
    use crate::ipv6::Ipv6;
    use crate::stack::Stack;
    use crate::task::yield_now;
    use crate::testing::{self, Port, at};
    use alloc::boxed::Box;
    use alloc::rc::Rc;
    use core::cell::{Cell, RefCell};
    use core::time::Duration;
    use device::{BATCH_FRAMES_MAX, Batch, Frame, Netif, Offloads, WaitHandle};
    use std::vec::Vec;

    /// What a frame takes, and what a task takes until it waits again.
    const COST: Duration = Duration::from_micros(1);
    /// A turn takes no longer.
    const TURN: Duration = Duration::from_micros((BATCH_FRAMES_MAX + TASKS_PER_TURN) as u64);
    /// Frames that the busy port has, and turns that the busy tasks have: 100 ms of either.
    const MANY: usize = 100_000;
    const NAP: Duration = Duration::from_millis(1);
    const NAPS: usize = 50;

    /// Which bounds there are. But for the first one, nothing but these tests runs so.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Bounds {
        /// Ours.
        All,
        /// The port is received from until it has nothing.
        NoneForPort,
        /// Tasks go on until none can.
        NoneForTasks,
        /// The loop sleeps until the next timer although the port may have more: nobody tells it of
        /// a port that is polled.
        Sleeps,
    }

    type Time = Rc<Cell<Instant>>;

    /// A port that has so many frames, none of which is for us. Each takes its time.
    struct Busy {
        port: Port,
        time: Time,
        left: Rc<Cell<usize>>,
        /// When it was looked at.
        looks: Rc<RefCell<Vec<Instant>>>,
    }

    fn spend(time: &Time) {
        time.set(time.get() + COST);
    }

    impl Netif for Busy {
        fn name(&self) -> &str {
            self.port.name()
        }

        fn mac(&self) -> [u8; 6] {
            self.port.mac()
        }

        fn mtu(&self) -> usize {
            self.port.mtu()
        }

        fn offloads(&self) -> Offloads {
            self.port.offloads()
        }

        fn alloc(&mut self, len: usize) -> Option<Frame> {
            self.port.alloc(len)
        }

        fn receive(&mut self, batch: &mut Batch) {
            self.looks.borrow_mut().push(self.time.get());
            while !batch.is_full()
                && self.left.get() > 0
                && let Some(mut frame) = self.port.alloc(60)
            {
                frame.bytes_mut().fill(0);
                batch.push(frame).unwrap();
                self.left.set(self.left.get() - 1);
                spend(&self.time);
            }
        }

        fn transmit(&mut self, batch: &mut Batch) {
            self.port.transmit(batch);
        }

        fn wait_handle(&self) -> WaitHandle {
            self.port.wait_handle()
        }
    }

    /// A stack over a busy port, and tasks.
    struct Image {
        stack: Stack<Ipv4, Ipv6>,
        executor: Executor,
        clock: Clock,
        time: Time,
        left: Rc<Cell<usize>>,
        looks: Rc<RefCell<Vec<Instant>>>,
        /// How late the sleeper woke each time.
        late: Rc<RefCell<Vec<Duration>>>,
    }

    impl Image {
        fn new(frames: usize) -> Self {
            let time = Time::new(Cell::new(at(0)));
            let (left, looks) = (Rc::new(Cell::new(frames)), Rc::default());
            let port = Busy {
                port: testing::port().0,
                time: time.clone(),
                left: left.clone(),
                looks: Rc::clone(&looks),
            };
            Self {
                stack: testing::stack_over(Box::new(port)),
                executor: Executor::new(),
                clock: Clock::default(),
                time,
                left,
                looks,
                late: Rc::default(),
            }
        }

        /// A task that sleeps again and again.
        fn sleeper(&self) {
            let (clock, time, late) = (self.clock.clone(), self.time.clone(), self.late.clone());
            self.executor.spawner().spawn(async move {
                for _ in 0..NAPS {
                    let due = clock.now() + NAP;
                    clock.until(due).await;
                    late.borrow_mut().push(time.get() - due);
                }
            });
        }

        /// Tasks that can always go on, with so many turns in all.
        fn busy_tasks(&self, turns: usize) {
            const TASKS: usize = 200;
            for _ in 0..TASKS {
                let time = self.time.clone();
                self.executor.spawner().spawn(async move {
                    for _ in 0..turns / TASKS {
                        spend(&time);
                        yield_now().await;
                    }
                });
            }
        }

        /// Turns until all tasks have ended; how many.
        fn run(&mut self, bounds: Bounds) -> usize {
            let tasks = match bounds {
                Bounds::NoneForTasks => usize::MAX,
                _ => TASKS_PER_TURN,
            };
            for turns in 1..MANY {
                let now = self.time.get();
                let receive = |stack: &mut Stack<_, _>| {
                    let any = stack.receive(now);
                    while bounds == Bounds::NoneForPort && stack.receive(now) {}
                    any
                };
                let above = (&mut self.executor, &self.clock);
                let idle = turn(&mut self.stack, above, tasks, now, receive, Stack::send);
                if self.executor.is_empty() {
                    return turns;
                }
                let deadlines = [self.stack.deadline()].into_iter();
                let deadlines = deadlines.chain(self.clock.deadline());
                let idle = idle || bounds == Bounds::Sleeps;
                let until = sleep_until(idle, deadlines).expect("a task sleeps, or can go on");
                self.time.set(until.max(self.time.get()));
            }
            panic!("tasks never end");
        }

        fn latest(&self) -> Duration {
            self.late.borrow().iter().copied().max().unwrap()
        }

        /// The longest time for which nobody looked at the port.
        fn unseen(&self) -> Duration {
            let mut looks = self.looks.borrow().clone();
            looks.push(self.time.get());
            let gaps = looks.windows(2).map(|pair| pair[1] - pair[0]);
            gaps.max().unwrap()
        }
    }

    /// It wakes in the turn that follows its moment, whatever else goes on.
    #[test]
    fn a_busy_port_and_busy_tasks_starve_no_sleeper() {
        let latest = |bounds| {
            let mut image = Image::new(MANY);
            image.sleeper();
            image.busy_tasks(MANY);
            image.run(bounds);
            image.latest()
        };
        let fair = latest(Bounds::All);
        // The 200 tasks before it in the queue have their turns first.
        assert!(fair <= TURN * (2 + 200 / TASKS_PER_TURN as u32), "{fair:?}");
        for bounds in [Bounds::NoneForPort, Bounds::NoneForTasks] {
            let late = latest(bounds);
            assert!(late > Duration::from_millis(90), "{late:?}");
        }
    }

    #[test]
    fn a_busy_port_alone_starves_no_sleeper() {
        let latest = |bounds| {
            let mut image = Image::new(MANY);
            image.sleeper();
            image.run(bounds);
            image.latest()
        };
        let fair = latest(Bounds::All);
        assert!(fair <= TURN, "{fair:?}");
        let late = latest(Bounds::NoneForPort);
        assert!(late > Duration::from_millis(90), "{late:?}");
    }

    #[test]
    fn busy_tasks_starve_no_port() {
        let unseen = |bounds| {
            let mut image = Image::new(MANY);
            image.busy_tasks(MANY);
            image.run(bounds);
            image.unseen()
        };
        let fair = unseen(Bounds::All);
        assert!(fair <= TURN, "{fair:?}");
        let long = unseen(Bounds::NoneForTasks);
        assert!(long > Duration::from_millis(90), "{long:?}");
    }

    /// A loop that sleeps until the next timer although a polled port has more takes one batch for
    /// each timer.
    #[test]
    fn a_sleeper_starves_no_port_that_is_polled() {
        let taken = |bounds| {
            let mut image = Image::new(MANY);
            image.sleeper();
            image.run(bounds);
            MANY - image.left.get()
        };
        let [fair, starved] = [Bounds::All, Bounds::Sleeps].map(taken);
        // Each of its naps is as long as a thousand frames.
        assert!(fair >= NAPS * 1000, "{fair}");
        assert!(starved <= (NAPS + 2) * BATCH_FRAMES_MAX, "{starved}");
    }

    #[test]
    fn an_idle_image_sleeps() {
        let mut image = Image::new(0);
        image.sleeper();
        let turns = image.run(Bounds::All);
        // Announcements of its address have their moments as well.
        assert!(turns <= 2 * NAPS, "{turns}");
        assert_eq!(image.latest(), Duration::ZERO);
        assert_eq!(sleep_until(true, []), None);
        assert_eq!(sleep_until(true, [NEVER]), None);
        assert_eq!(sleep_until(true, [at(2), NEVER, at(1)]), Some(at(1)));
        assert_eq!(sleep_until(false, [at(1)]), Some(Instant::PAST));
    }
}
