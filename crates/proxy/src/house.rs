//! What answers a program: its sockets, those of the stack, and the tasks between them.

use crate::address::{self, Family};
use crate::caller::{self, Caller, Pending};
use crate::datagrams::Datagrams;
use crate::fill::Fillable;
use crate::option::Transport;
use crate::port::Ports;
use crate::reactor::Reactor;
use crate::sight::Sight;
use crate::socket::{Place, Socket, Table};
use crate::unix::{self, End, Meeting};
use linux::notify::{self, Answer, Call};
use net::socket::Ends;
use net::task::{Clock, Either, Spawner, select};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_cookie, socket_timeout};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Calls that may wait at the same time. More are told that there is no memory.
const HELD_MAX: usize = 4096;
/// How often it is looked whether a signal interrupts a call that waits.
const SIGNAL_LOOK: Duration = Duration::from_millis(50);
/// How often it is looked which sockets nobody has any more, and at how many.
const LIFE_LOOK: Duration = Duration::from_millis(50);
const LIVES_LOOKED_AT: usize = 64;
/// A socket that no stack answers for is taken to be had after so long: it is asked for again once
/// there is one.
const STACK_PATIENCE: Duration = Duration::from_secs(10);

/// Different things of which it is noted that they were refused.
const REFUSED_MAX: usize = 256;

/// What counts what is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that were passed to us.
    pub calls: u64,
    /// Of those, what was none of ours.
    pub passed_on: u64,
    /// Connections that were opened and that came.
    pub connections: u64,
}

/// What a program has asked for and was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// A socket of this family, type and protocol.
    Socket(i32, i32, i32),
    /// To set this option of this level.
    Set(i32, i32),
    /// To read this option of this level.
    Get(i32, i32),
    /// This call.
    Call(i32),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(family, kind, protocol) => {
                write!(
                    f,
                    "socket: family {family}, type {kind}, protocol {protocol}"
                )
            }
            Self::Set(level, name) => write!(f, "setsockopt: level {level}, option {name}"),
            Self::Get(level, name) => write!(f, "getsockopt: level {level}, option {name}"),
            Self::Call(number) => write!(f, "call {number}"),
        }
    }
}

/// What answers a program.
pub struct House<S: Fillable> {
    pub net: S,
    pub reactor: Rc<Reactor>,
    pub spawner: Spawner,
    pub clock: Clock,
    pub table: RefCell<Table>,
    pub ports: RefCell<Ports>,
    pub meeting: Meeting,
    /// Sockets for datagrams that the stack has for ours.
    pub datagrams: RefCell<HashMap<u64, Rc<Datagrams<S>>>>,
    /// What datagrams come from, by the socket that they are for and the ends that they had.
    pub senders: RefCell<HashMap<(u64, Ends), OwnedFd>>,
    pub counts: Cell<Counts>,
    /// What the program sees of its network.
    pub sight: RefCell<Sight>,
    /// What was refused, and how often.
    pub refused: RefCell<BTreeMap<Refused, u64>>,
    listener: Rc<OwnedFd>,
    held: Cell<usize>,
    numbers: Cell<u64>,
}

/// A socket of ours, and a duplicate of the program's end.
pub struct Found {
    pub socket: Rc<Socket>,
    pub program: OwnedFd,
}

impl<S: Fillable> House<S> {
    /// What answers those whose calls come to `listener`, and who see this of their network.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(
        net: S,
        (listener, sight): (OwnedFd, Sight),
        reactor: Rc<Reactor>,
        spawner: Spawner,
        clock: Clock,
    ) -> Result<Rc<Self>, Errno> {
        Ok(Rc::new(Self {
            net,
            reactor,
            spawner,
            clock,
            table: RefCell::default(),
            ports: RefCell::default(),
            meeting: Meeting::new()?,
            datagrams: RefCell::default(),
            senders: RefCell::default(),
            counts: Cell::default(),
            sight: RefCell::new(sight),
            refused: RefCell::default(),
            listener: Rc::new(listener),
            held: Cell::new(0),
            numbers: Cell::new(0),
        }))
    }

    /// The number of the program's interface that has this address.
    pub fn interface(&self, ip: IpAddr) -> i32 {
        self.sight.borrow().number(ip)
    }

    /// Where a datagram to this address from `local` goes.
    ///
    /// # Errors
    /// `EINVAL` where it would leave this machine with an address that is none outside: Linux has
    /// no route for it with IPv4, and drops it later with IPv6 (RFC 1122, 3.2.1.3 g).
    pub fn destination(&self, to: SocketAddr, local: IpAddr) -> Result<SocketAddr, Errno> {
        let to = address::destination(to, local);
        let stays = local.is_ipv4() && local.is_loopback();
        match stays && self.sight.borrow().is_elsewhere(to.ip()) {
            true => Err(Errno::INVAL),
            false => Ok(to),
        }
    }

    /// A number that nothing has.
    pub fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Where calls come to.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes the next call, if there is one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next_call(&self) -> Result<Option<Caller>, Errno> {
        match notify::receive(self.listener()) {
            Ok(call) => Ok(Some(self.caller(call))),
            // Its caller is gone.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::INTR | Errno::SRCH) => Ok(None),
                errno => Err(errno.unwrap_or(Errno::IO)),
            },
        }
    }

    fn caller(&self, call: Call) -> Caller {
        self.count(|counts| counts.calls += 1);
        Caller::new(self.listener.clone(), call)
    }

    /// Counts something.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Notes what is refused.
    pub fn refuse(&self, what: Refused) {
        let mut refused = self.refused.borrow_mut();
        // A program that asks for all there is leaves no more than that.
        if refused.len() < REFUSED_MAX || refused.contains_key(&what) {
            *refused.entry(what).or_default() += 1;
        }
    }

    /// The kernel is to do it.
    pub fn pass_on(&self, caller: &Caller) {
        self.count(|counts| counts.passed_on += 1);
        caller.answer(Answer::Continue);
    }

    /// Makes a socket for a program.
    ///
    /// # Errors
    /// `ENFILE`, `EMFILE`.
    pub fn make(
        &self,
        family: Family,
        transport: Transport,
        does_not_block: bool,
    ) -> Result<Found, Errno> {
        let socket = self.table.borrow_mut().make(family, transport)?;
        let made = unix::make(transport, End::Program, socket.id, does_not_block);
        let known = made.and_then(|program| {
            let cookie = socket_cookie(&program)?;
            self.table.borrow_mut().known(cookie, socket.id);
            Ok(program)
        });
        match known {
            Ok(program) => Ok(Found { socket, program }),
            Err(errno) => {
                self.table.borrow_mut().remove(socket.id);
                Err(errno)
            }
        }
    }

    /// The socket of ours that a caller has under this number; `None` if it is none of ours.
    ///
    /// # Errors
    /// `ENOBUFS` if we have no descriptor left to look at it.
    pub fn find(&self, caller: &Caller, descriptor: i32) -> Result<Option<Found>, Errno> {
        let program = match caller.duplicate(descriptor) {
            Ok(program) => program,
            Err(Errno::MFILE | Errno::NFILE) => return Err(Errno::NOBUFS),
            Err(_) => return Ok(None),
        };
        let Some(socket) = self.known(&program) else {
            return Ok(None);
        };
        socket.place.set(Some(Place {
            thread: caller.thread(),
            descriptor,
        }));
        Ok(Some(Found { socket, program }))
    }

    /// The socket of ours that this is.
    fn known(&self, program: &OwnedFd) -> Option<Rc<Socket>> {
        let cookie = socket_cookie(program).ok()?;
        let mut table = self.table.borrow_mut();
        if let Some(socket) = table.by_cookie(cookie) {
            return Some(socket);
        }
        // One that has come, which nobody has said anything of yet.
        let id = unix::peer(program, End::Ours)?;
        let socket = table.get(id)?;
        table.known(cookie, id);
        Some(socket)
    }

    /// A duplicate of the program's end, where it was last.
    pub fn program_end(&self, socket: &Socket) -> Option<OwnedFd> {
        let place = socket.place.get()?;
        let program = caller::duplicate(place.thread, place.descriptor).ok()?;
        let found = self.known(&program)?;
        (found.id == socket.id).then_some(program)
    }

    /// Nobody has this socket any more.
    pub fn forget(&self, socket: &Socket) {
        socket.control.borrow_mut().take();
        self.table.borrow_mut().remove(socket.id);
        self.end_datagrams(socket);
    }

    /// Answers a call with what comes of `work`, which may take its time.
    pub fn hold(
        self: &Rc<Self>,
        caller: Caller,
        work: impl Future<Output = Result<i64, Errno>> + 'static,
    ) {
        self.hold_all(caller, async move { Some(work.await) });
    }

    /// The same for work that may have answered already.
    pub fn hold_all(
        self: &Rc<Self>,
        caller: Caller,
        work: impl Future<Output = Option<Result<i64, Errno>>> + 'static,
    ) {
        let house = self.clone();
        self.wait_for(caller, async move |caller: &Caller| {
            let interrupted = house.interrupted(caller);
            match select(pin!(work), pin!(interrupted)).await {
                Either::First(Some(result)) => caller.finish(result),
                Either::First(None) => {}
                Either::Second(Some(signal)) => caller.interrupt(signal),
                Either::Second(None) => {}
            }
        });
    }

    /// The same as [`Self::hold`] for work that no signal interrupts, as Linux has it.
    pub fn hold_firmly(
        self: &Rc<Self>,
        caller: Caller,
        work: impl Future<Output = Result<i64, Errno>> + 'static,
    ) {
        self.wait_for(caller, async move |caller: &Caller| {
            caller.finish(work.await)
        });
    }

    /// Has a task answer a call, unless too many wait.
    fn wait_for(self: &Rc<Self>, caller: Caller, answer: impl AsyncFnOnce(&Caller) + 'static) {
        if self.held.get() >= HELD_MAX {
            return caller.finish(Err(Errno::NOBUFS));
        }
        self.held.set(self.held.get() + 1);
        let house = self.clone();
        self.spawner.spawn(async move {
            answer(&caller).await;
            house.held.set(house.held.get() - 1);
        });
    }

    /// Waits until a signal comes for who waits, or until he does not wait any more: `None` then.
    async fn interrupted(&self, caller: &Caller) -> Option<Pending> {
        loop {
            self.clock.sleep(SIGNAL_LOOK).await;
            if !caller.waits() {
                return None;
            }
            if let Some(signal) = caller.signal() {
                return Some(signal);
            }
        }
    }

    /// What `ready` says, or that it can be had if nobody says anything for too long.
    ///
    /// # Errors
    /// What `ready` says.
    pub async fn in_time(
        &self,
        ready: impl Future<Output = Result<(), net::socket::Error>>,
    ) -> Result<(), Errno> {
        let ready = self.clock.timeout(STACK_PATIENCE, ready).await;
        ready.unwrap_or(Ok(())).map_err(crate::error::number)
    }

    /// Whether a connection is still served.
    pub fn is_busy(&self) -> bool {
        self.table.borrow().all().any(|socket| socket.is_served())
    }

    /// Does `work` for no longer than the program's socket says (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    ///
    /// # Errors
    /// What `work` says, or `late` if it takes longer.
    pub async fn within<T>(
        &self,
        program: &OwnedFd,
        which: Timeout,
        late: Errno,
        work: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        match socket_timeout(program, which) {
            Ok(Some(longest)) => {
                let done = self.clock.timeout(longest, work).await;
                done.unwrap_or(Err(late))
            }
            _ => work.await,
        }
    }

    /// Lets go of what nobody has any more, for ever. Connections end by themselves.
    pub async fn look_after(self: Rc<Self>) {
        let mut ids = Vec::new();
        loop {
            self.clock.sleep(LIFE_LOOK).await;
            if ids.is_empty() {
                let table = self.table.borrow();
                let others = table.all().filter(|socket| !socket.is_served());
                ids.extend(others.map(|socket| socket.id));
            }
            for id in ids.drain(ids.len().saturating_sub(LIVES_LOOKED_AT)..) {
                let socket = self.table.borrow().get(id);
                if let Some(socket) = socket
                    && !socket.is_served()
                    && !socket.is_alive()
                {
                    self.left(&socket);
                }
            }
        }
    }
}
