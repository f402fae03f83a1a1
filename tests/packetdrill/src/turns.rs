//! One world, and the two threads of packetdrill that take turns in it.
//!
//! One thread runs the script, and one waits in calls that a script expects to wait. A lock lets
//! one of them into the world at a time, and no time passes while the second one can go on.

use crate::edge::Alone;
use crate::sockets::{Result, Sockets};
use crate::world::{Net, World};
use libc::c_int;
use ports::Instant;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

/// The second thread is given so long to go on, of real time: a bound, and never reached.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// packetdrill sleeps until so long before an event, in microseconds, and spins for the rest
/// (`MAX_SPIN_USECS`).
const SPIN: u64 = 20;

/// What both threads share.
struct Shared {
    world: World,
    /// Who runs the script.
    main: ThreadId,
    /// The other one waits in a call.
    waits: bool,
    /// Something has happened that it has not looked at.
    changed: bool,
    /// It has left its call, and has not asked for the time since.
    leaves: bool,
}

static SHARED: Mutex<Option<Alone<Shared>>> = Mutex::new(None);
static TURN: Condvar = Condvar::new();

type Held = MutexGuard<'static, Option<Alone<Shared>>>;

fn lock() -> Held {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the second thread has done what it can.
fn settle(mut held: Held) -> Held {
    loop {
        let busy = |Alone(shared): &Alone<Shared>| shared.waits && shared.changed || shared.leaves;
        if !held.as_ref().is_some_and(busy) {
            return held;
        }
        let (next, time) = TURN
            .wait_timeout(held, SETTLE_MAX)
            .unwrap_or_else(PoisonError::into_inner);
        held = next;
        if time.timed_out() {
            return held;
        }
    }
}

/// Lets the world change, and the second thread see it.
pub fn change<T>(work: impl FnOnce(&mut World) -> T) -> Option<T> {
    let mut held = lock();
    let Alone(shared) = held.as_mut()?;
    let result = work(&mut shared.world);
    shared.changed = true;
    TURN.notify_all();
    drop(settle(held));
    Some(result)
}

/// Lets time pass until `to`, or until a packet has left if there is no such moment; that packet.
pub fn pass(to: Option<Instant>) -> Option<(u64, Vec<u8>)> {
    let mut held = settle(lock());
    loop {
        let Alone(shared) = held.as_mut()?;
        if to.is_none()
            && let Some(left) = shared.world.take_left()
        {
            return Some(left);
        }
        let next = match (shared.world.next(), to) {
            (Some(next), Some(to)) => next.min(to),
            (next, to) => to.or(next)?,
        };
        shared.world.pass(next);
        shared.changed = true;
        TURN.notify_all();
        held = settle(held);
        if to == Some(next) {
            return None;
        }
    }
}

/// A new world, for the thread that calls.
pub fn begin(world: World) {
    *lock() = Some(Alone(Shared {
        world,
        main: thread::current().id(),
        waits: false,
        changed: false,
        leaves: false,
    }));
}

/// The end of the world.
pub fn end() {
    *lock() = None;
}

/// The time, in microseconds. The second thread asks when it has left a call.
pub fn time() -> u64 {
    let mut held = lock();
    let Some(Alone(shared)) = held.as_mut() else {
        return 0;
    };
    if thread::current().id() == shared.main {
        // Whoever spins gets on.
        let next = shared.world.after(Duration::from_micros(1));
        shared.world.pass(next);
    } else {
        shared.leaves = false;
        TURN.notify_all();
    }
    shared.world.micros()
}

/// A call that may wait, if its descriptor does and the second thread makes it.
pub fn call(
    fd: c_int,
    flags: c_int,
    mut work: impl FnMut(&mut Net, &mut Sockets) -> Poll<Result<isize>>,
) -> Result<isize> {
    let mut held = lock();
    loop {
        let Some(Alone(shared)) = held.as_mut() else {
            return Err(libc::EBADF);
        };
        let second = thread::current().id() != shared.main;
        let (net, sockets, _) = shared.world.parts();
        let result = work(net, sockets);
        shared.world.turn();
        if second {
            shared.changed = false;
        }
        let waits =
            second && flags & libc::MSG_DONTWAIT == 0 && !shared.world.sockets.is_nonblocking(fd);
        match result {
            Poll::Pending if waits => {
                shared.waits = true;
                TURN.notify_all();
                held = TURN.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
            result => {
                shared.leaves |= second;
                shared.waits &= !second;
                shared.changed |= !second;
                TURN.notify_all();
                drop(held);
                return match result {
                    Poll::Ready(result) => result,
                    Poll::Pending => Err(libc::EAGAIN),
                };
            }
        }
    }
}

/// A call that never waits.
pub fn quick(work: impl FnOnce(&mut Net, &mut Sockets, Instant) -> Result<c_int>) -> Result<isize> {
    let result = change(|world| {
        let (net, sockets, now) = world.parts();
        let result = work(net, sockets, now);
        world.turn();
        result
    });
    result.ok_or(libc::EBADF)?.map(|value| value as isize)
}

/// send(2). One that may wait returns when all is taken.
pub fn send(fd: c_int, bytes: &[u8], flags: c_int) -> Result<isize> {
    let mut done = 0;
    let result = call(fd, flags, |net, sockets| {
        let waits = !sockets.is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
        let sent = sockets.send(net, fd, &bytes[done..], flags);
        if let Poll::Ready(Ok(count)) = sent {
            done += count as usize;
            return match done < bytes.len() && waits {
                true => Poll::Pending,
                false => Poll::Ready(Ok(done as isize)),
            };
        }
        sent
    });
    match result {
        Err(_) if done > 0 => Ok(done as isize),
        result => result,
    }
}

/// usleep(3), to the end of what packetdrill then spins for.
pub fn sleep(micros: u32) {
    let duration = Duration::from_micros(u64::from(micros) + SPIN);
    if let Some(to) = change(|world| world.after(duration)) {
        pass(Some(to));
    }
}
