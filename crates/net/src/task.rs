//! Tasks: what an appliance does at the same time, on its one thread.
//!
//! A task runs until it waits. Who wakes it puts it at the end of a queue, so that each has its
//! turn. The executor never sleeps itself: whoever runs it waits for ports and timers in between.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use crossbeam_queue::SegQueue;
use ports::Instant;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// Tasks, some of which can go on.
pub struct Executor {
    tasks: Vec<Task>,
    free: Vec<usize>,
    woken: Arc<SegQueue<usize>>,
    spawned: Rc<RefCell<Vec<Boxed>>>,
    live: usize,
}

struct Task {
    future: Option<Boxed>,
    alarm: Arc<Alarm>,
}

/// What wakes a task.
struct Alarm {
    place: usize,
    /// It stands in the queue already.
    rings: AtomicBool,
    woken: Arc<SegQueue<usize>>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rings.swap(true, Ordering::AcqRel) {
            self.woken.push(self.place);
        }
    }
}

/// Starts tasks, from within tasks as well.
#[derive(Clone)]
pub struct Spawner(Rc<RefCell<Vec<Boxed>>>);

impl Spawner {
    /// Starts a task: it runs from the executor's next turn on.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Executor {
    /// Without a task.
    pub fn new() -> Self {
        Self {
            tasks: Vec::new(),
            free: Vec::new(),
            woken: Arc::new(SegQueue::new()),
            spawned: Rc::new(RefCell::new(Vec::new())),
            live: 0,
        }
    }

    /// What starts tasks.
    pub fn spawner(&self) -> Spawner {
        Spawner(self.spawned.clone())
    }

    /// Tasks that have not ended.
    pub fn len(&self) -> usize {
        self.live + self.spawned.borrow().len()
    }

    /// Whether all tasks have ended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets each task go on that was woken, at most `most` of them; `true` if more can go on.
    pub fn run(&mut self, most: usize) -> bool {
        self.adopt();
        for _ in 0..most {
            let Some(place) = self.woken.pop() else {
                break;
            };
            self.turn(place);
            self.adopt();
        }
        !self.woken.is_empty()
    }

    fn turn(&mut self, place: usize) {
        let task = &mut self.tasks[place];
        task.alarm.rings.store(false, Ordering::Release);
        let Some(future) = &mut task.future else {
            // It was woken at its end.
            return;
        };
        let waker = Waker::from(task.alarm.clone());
        if future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            task.future = None;
            self.live -= 1;
            self.free.push(place);
        }
    }

    /// Gives new tasks their places.
    fn adopt(&mut self) {
        let spawned = core::mem::take(&mut *self.spawned.borrow_mut());
        for future in spawned {
            let place = self.free.pop().unwrap_or(self.tasks.len());
            let alarm = Arc::new(Alarm {
                place,
                rings: AtomicBool::new(true),
                woken: self.woken.clone(),
            });
            let task = Task {
                future: Some(future),
                alarm,
            };
            match self.tasks.get_mut(place) {
                Some(free) => *free = task,
                None => self.tasks.push(task),
            }
            self.live += 1;
            self.woken.push(place);
        }
    }
}

/// Moments for which tasks wait.
#[derive(Clone, Default)]
pub struct Clock(Rc<RefCell<Moments>>);

#[derive(Default)]
struct Moments {
    now: Option<Instant>,
    /// By time, and by who came first.
    waiting: BTreeMap<(Instant, u64), Waker>,
    count: u64,
}

/// Waits for a moment; dropped before, it leaves nothing behind.
struct Sleep<'a> {
    clock: &'a Clock,
    at: Instant,
    place: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut moments = self.clock.0.borrow_mut();
        if moments.now.is_some_and(|now| self.at <= now) {
            return Poll::Ready(());
        }
        let place = self.place.unwrap_or_else(|| {
            moments.count += 1;
            moments.count
        });
        let waker = context.waker().clone();
        moments.waiting.insert((self.at, place), waker);
        drop(moments);
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clock.0.borrow_mut().waiting.remove(&(self.at, place));
        }
    }
}

impl Clock {
    /// The time, as it was when the turn began.
    pub fn now(&self) -> Instant {
        self.0.borrow().now.unwrap_or(Instant::PAST)
    }

    /// It is `now`: wakes whoever waits for a moment until then.
    pub fn set(&self, now: Instant) {
        let mut moments = self.0.borrow_mut();
        moments.now = Some(now);
        while let Some(first) = moments.waiting.first_entry()
            && first.key().0 <= now
        {
            first.remove().wake();
        }
    }

    /// The first moment that somebody waits for.
    pub fn deadline(&self) -> Option<Instant> {
        let moments = self.0.borrow();
        moments.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Waits so long.
    pub async fn sleep(&self, duration: Duration) {
        self.until(self.now() + duration).await;
    }

    /// Waits until then.
    pub async fn until(&self, at: Instant) {
        let (clock, place) = (self, None);
        Sleep { clock, at, place }.await;
    }

    /// What `work` gives, or `None` if it takes longer than that.
    pub async fn timeout<T>(&self, longest: Duration, work: impl Future<Output = T>) -> Option<T> {
        let work = core::pin::pin!(work);
        let late = core::pin::pin!(self.sleep(longest));
        match select(work, late).await {
            Either::First(result) => Some(result),
            Either::Second(()) => None,
        }
    }
}

/// Lets the other tasks, and then the port, have their turns.
pub async fn yield_now() {
    let mut yielded = false;
    core::future::poll_fn(|context| match core::mem::replace(&mut yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Which of two was first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one.
    First(A),
    /// The second one.
    Second(B),
}

/// Waits for the first of two; the first one's result, if both have one.
pub async fn select<A: Future + Unpin, B: Future + Unpin>(
    mut first: A,
    mut second: B,
) -> Either<A::Output, B::Output> {
    core::future::poll_fn(|context| {
        if let Poll::Ready(result) = Pin::new(&mut first).poll(context) {
            return Poll::Ready(Either::First(result));
        }
        Pin::new(&mut second).poll(context).map(Either::Second)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use std::vec;

    const fn at(milliseconds: u64) -> Instant {
        Instant(milliseconds * 1_000_000)
    }

    #[test]
    fn tasks_have_their_turns_and_end() {
        let mut executor = Executor::new();
        let order = Rc::new(RefCell::new(vec![]));
        for task in 0..3 {
            let order = order.clone();
            executor.spawner().spawn(async move {
                for _ in 0..2 {
                    order.borrow_mut().push(task);
                    yield_now().await;
                }
            });
        }
        assert!(executor.run(2), "the third one is to have its turn");
        while executor.run(1) {}
        assert_eq!(*order.borrow(), [0, 1, 2, 0, 1, 2]);
        assert!(executor.is_empty());
    }

    #[test]
    fn a_task_starts_others_and_places_are_used_again() {
        let mut executor = Executor::new();
        let count = Rc::new(Cell::new(0));
        let (spawner, counted) = (executor.spawner(), count.clone());
        executor.spawner().spawn(async move {
            for _ in 0..5 {
                let counted = counted.clone();
                spawner.spawn(async move { counted.set(counted.get() + 1) });
            }
        });
        while executor.run(100) {}
        assert_eq!((count.get(), executor.len()), (5, 0));
        let places = executor.tasks.len();
        executor.spawner().spawn(async {});
        executor.run(100);
        assert_eq!(executor.tasks.len(), places);
    }

    #[test]
    fn sleepers_wake_in_order() {
        let mut executor = Executor::new();
        let clock = Clock::default();
        clock.set(at(100));
        let woken = Rc::new(RefCell::new(vec![]));
        for milliseconds in [30, 10, 20] {
            let (clock, woken) = (clock.clone(), woken.clone());
            executor.spawner().spawn(async move {
                clock.sleep(Duration::from_millis(milliseconds)).await;
                woken.borrow_mut().push(milliseconds);
            });
        }
        executor.run(10);
        assert_eq!(clock.deadline(), Some(at(110)));
        for now in [109, 110, 125, 130] {
            clock.set(at(now));
            executor.run(10);
        }
        assert_eq!(*woken.borrow(), [10, 20, 30]);
        assert_eq!(clock.deadline(), None);
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let mut executor = Executor::new();
        let clock = Clock::default();
        clock.set(at(0));
        let result = Rc::new(Cell::new(None));
        let (inner, given) = (clock.clone(), result.clone());
        executor.spawner().spawn(async move {
            let never = core::future::pending::<()>();
            let late = inner.timeout(Duration::from_millis(5), never).await;
            let soon = inner.timeout(Duration::from_millis(5), async { 7 }).await;
            given.set(Some((late, soon)));
        });
        executor.run(10);
        assert_eq!(result.get(), None);
        clock.set(at(5));
        executor.run(10);
        assert_eq!(result.get(), Some((None, Some(7))));
        assert_eq!(clock.deadline(), None, "who gives up leaves nothing behind");
    }
}
