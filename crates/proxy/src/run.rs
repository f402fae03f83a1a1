//! The one thread that answers a program, until the program ends.

use crate::calls;
use crate::fill::Fillable;
use crate::house::{Counts, House, Refused};
use crate::jail;
use crate::link::now;
use crate::reactor::{EVENTS_MAX, Reactor};
use crate::start::{Reason, Started, as_shell};
use crate::unix::is_ready;
use link_sockets::Own;
use linux::process::Child;
use linux::signal::Held;
use net::task::{Clock, Executor};
use net::turn::{TASKS_PER_TURN, sleep_until, turn};
use ports::Instant;
use rustix::event::PollFlags;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, WaitOptions, getrlimit, setrlimit, waitpid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// Calls that are answered before others have their turn.
const CALLS_PER_TURN: usize = 64;
/// How long what was written may take to leave once the program has ended.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);
/// A program begins once the stack has said which addresses it has, or after so long.
const STACK_PATIENCE: Duration = Duration::from_secs(1);
/// What the epoll set says of calls, and of signals.
const CALLS: u64 = Reactor::OTHERS;
const SIGNALS: u64 = Reactor::OTHERS + 1;
/// What it says of whatever [`Below`] has registered there.
pub const BELOW: u64 = Reactor::OTHERS + 2;

/// What sockets rest on: a link to a stack, or the host.
pub trait Below {
    /// Takes in what has come; whether there was anything.
    fn receive(&mut self, now: Instant) -> bool;

    /// Sends what is to be sent.
    fn flush(&mut self);

    /// When [`Self::receive`] has something to do although nothing has come.
    fn deadline(&self) -> Instant;

    /// Shows what the stack says of itself; nothing where nobody ever says anything.
    fn own(&self, _: &mut dyn FnMut(&[Own])) {}

    /// Whether all that was written to sockets that are closed has left.
    fn has_left(&self) -> bool {
        true
    }

    /// Whether it does with what a jail leaves.
    fn jailed(&self) -> bool {
        true
    }

    /// Sleeps in this set until something is ready, which is put into `events`, or the deadline has
    /// passed; for ever if there is none.
    ///
    /// # Errors
    /// What the kernel says.
    fn wait(
        &mut self,
        epoll: BorrowedFd<'_>,
        deadline: Option<Instant>,
        events: &mut Vec<Event>,
    ) -> io::Result<()>;
}

/// What a run was.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The program's status; 128 and the signal, if a signal has ended it.
    pub status: i32,
    /// What was counted.
    pub counts: Counts,
    /// What the program was refused, and how often.
    pub refused: Vec<(Refused, u64)>,
    /// Sockets that were left: those of whatever the program has left behind.
    pub sockets: usize,
}

/// Lets a program begin, and answers it until it ends. Its sockets are those of `net`, which rests
/// on `below`.
///
/// # Errors
/// What the kernel says.
pub fn run<S: Fillable>(
    started: Started,
    held: &Held,
    reactor: Rc<Reactor>,
    net: impl FnOnce(&Rc<Reactor>) -> S,
    below: &mut impl Below,
    ready: impl FnOnce(),
) -> Result<Ended, Reason> {
    let step = |step| move |error: Errno| Reason::System(step, error.into());
    let signals = held
        .descriptor()
        .map_err(|error| Reason::System("signals", error))?;
    let mut executor = Executor::new();
    let clock = Clock::default();
    let (keeper, seen, go, _life) = started.parts();
    let net = net(&reactor);
    let spawner = executor.spawner();
    let house = House::new(net, seen, reactor.clone(), spawner, clock.clone());
    let house = house.map_err(step("sockets"))?;
    watch(&reactor, house.listener(), CALLS).map_err(step("epoll"))?;
    watch(&reactor, signals.as_fd(), SIGNALS).map_err(step("epoll"))?;
    executor.spawner().spawn(house.clone().look_after());
    raise_limit();
    if below.jailed() {
        jail::close().map_err(Reason::Jail)?;
    }
    let mut waits = Some((go, ready));
    let patience = now() + STACK_PATIENCE;
    let mut over = None;
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let mut has_calls = false;
    loop {
        let time = now();
        if std::mem::take(&mut has_calls) {
            answer(&house).map_err(step("calls"))?;
        }
        let idle = one_turn(below, (&mut executor, &clock), time);
        let is_known = show(below, &house);
        // What a program sees of its network it looks at when it begins.
        if let Some((go, ready)) = waits.take_if(|_| is_known || time >= patience) {
            go.go();
            ready();
        }
        let patience = waits.as_ref().map(|_| patience);
        let deadlines = [clock.deadline(), patience].into_iter().flatten();
        let until = sleep_until(idle, deadlines.chain([below.deadline()]));
        let waited = below.wait(reactor.epoll(), until, &mut events);
        waited.map_err(|error| Reason::System("epoll", error))?;
        reactor.dispatch(&events);
        for event in &events {
            match event.data.u64() {
                CALLS => has_calls = true,
                SIGNALS => {
                    if let Some(status) = heed(held, &keeper) {
                        over = over.or(Some((status, now() + LEAVE_PATIENCE)));
                    }
                }
                _ => {}
            }
        }
        // What the program wrote before it ended is still to leave.
        let is_done = |at_last| !house.is_busy() && below.has_left() || now() > at_last;
        if let Some((status, _)) = over.filter(|(_, at_last)| is_done(*at_last)) {
            return Ok(ended(&house, status));
        }
    }
}

/// Shows the program what the stack says of itself; whether nothing of it need be waited for.
fn show<S: Fillable>(below: &impl Below, house: &House<S>) -> bool {
    let mut is_known = true;
    below.own(&mut |own| {
        is_known = !own.is_empty();
        // While there is no stack, the program sees what the last one has said.
        if is_known {
            house.sight.borrow_mut().show(own);
        }
    });
    is_known
}

/// One turn of all tasks; whether nobody can go on.
fn one_turn(below: &mut impl Below, tasks: (&mut Executor, &Clock), time: Instant) -> bool {
    let receive = |below: &mut &mut _| Below::receive(*below, time);
    let flush = |below: &mut &mut _| {
        Below::flush(*below);
        true
    };
    turn(
        &mut &mut *below,
        tasks,
        TASKS_PER_TURN,
        time,
        receive,
        flush,
    )
}

/// What the run was.
fn ended<S: Fillable>(house: &House<S>, status: i32) -> Ended {
    Ended {
        status,
        counts: house.counts.get(),
        refused: house.refused.take().into_iter().collect(),
        sockets: house.table.borrow().len(),
    }
}

/// Lets this process have as many descriptors as it may: each connection takes one.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer, fewer connections are served.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Has the set say `data` while this descriptor is ready.
fn watch(reactor: &Reactor, descriptor: BorrowedFd<'_>, data: u64) -> Result<(), Errno> {
    let data = EventData::new_u64(data);
    epoll::add(reactor.epoll(), descriptor, data, EventFlags::IN)
}

/// Answers the calls that wait.
fn answer<S: Fillable>(house: &Rc<House<S>>) -> Result<(), Errno> {
    for _ in 0..CALLS_PER_TURN {
        // To take one waits if there is none.
        if !is_ready(house.listener(), PollFlags::IN)? {
            break;
        }
        if let Some(caller) = house.next_call()? {
            calls::answer(house, caller);
        }
    }
    Ok(())
}

/// Passes signals on; how the program has ended, if it has.
fn heed(held: &Held, keeper: &Child) -> Option<i32> {
    let keeper = Pid::from_raw(keeper.id().cast_signed())?;
    while let Some((signal, by_kernel)) = held.take_sent() {
        if signal != Signal::CHILD {
            // The program has those of a terminal as well.
            if by_kernel {
                continue;
            }
            let _ = rustix::process::kill_process(keeper, signal);
            continue;
        }
        if let Ok(Some((_, status))) = waitpid(Some(keeper), WaitOptions::NOHANG) {
            return Some(as_shell(status));
        }
    }
    None
}
