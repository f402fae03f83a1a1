//! A program's sockets, as we know them.

use crate::address::Family;
use crate::option::{Options, Transport};
use crate::unix;
use rustix::io::Errno;
use rustix::process::Pid;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

/// Sockets that a program may have. More get `ENFILE`.
pub const SOCKETS_MAX: usize = 1 << 16;
/// The table is looked through for those that nobody has any more when it has so many, and then
/// when it has twice as many as were left.
const SWEEP_AT_LEAST: usize = 1024;

/// What a socket is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Made, and perhaps bound.
    Idle,
    /// Connections come to it.
    Listening,
    /// Its connection is being opened.
    Connecting,
    /// It is connected; `told` once a `connect` has said so.
    Connected { told: bool },
    /// Its connection could not be opened, or is over; `told` if the program knows that it was
    /// open.
    Over { told: bool },
}

/// What a program may change of an open connection.
pub trait Control {
    /// Small pieces leave at once, or not.
    fn no_delay(&self, no_delay: bool);
    /// After how much silence the peer is asked.
    fn keep_alive(&self, idle: Option<Duration>);
}

/// Where a program had a socket when it last said something of it.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The thread.
    pub thread: Pid,
    /// Its number there.
    pub descriptor: i32,
}

/// A socket.
pub struct Socket {
    pub id: u64,
    pub family: Family,
    pub transport: Transport,
    pub state: Cell<State>,
    /// Our end, once it has one.
    pub local: Cell<Option<SocketAddr>>,
    /// The peer, once it has one.
    pub peer: Cell<Option<SocketAddr>>,
    /// What `SO_ERROR` says, once.
    pub error: Cell<Option<Errno>>,
    pub options: RefCell<Options>,
    pub control: RefCell<Option<Box<dyn Control>>>,
    pub place: Cell<Option<Place>>,
    /// Connections that were taken for somebody who did not wait any more.
    pub returned: RefCell<VecDeque<OwnedFd>>,
    waiting: RefCell<Vec<Waker>>,
}

impl Socket {
    fn new(id: u64, family: Family, transport: Transport) -> Self {
        Self {
            id,
            family,
            transport,
            state: Cell::new(State::Idle),
            local: Cell::default(),
            peer: Cell::default(),
            error: Cell::default(),
            options: RefCell::default(),
            control: RefCell::default(),
            place: Cell::default(),
            returned: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// It has this address from now on.
    pub fn bind(&self, address: SocketAddr) -> SocketAddr {
        // As Linux does: with an address of one version it is of that one.
        if address.is_ipv6() && !address.ip().is_unspecified() {
            self.options.borrow_mut().be_v6_only();
        }
        self.local.set(Some(address));
        address
    }

    /// Wakes this task once something has come for the program.
    pub fn wait(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|one| one.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Something has come for the program.
    pub fn arrived(&self) {
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Whether the program's end is there.
    pub fn is_alive(&self) -> bool {
        unix::is_alive(self.transport, self.id)
    }

    /// Whether it is a connection whose end a task sees.
    pub fn is_served(&self) -> bool {
        matches!(
            self.state.get(),
            State::Connecting | State::Connected { .. }
        ) && self.transport == Transport::Stream
    }
}

/// All sockets of a program.
#[derive(Default)]
pub struct Table {
    by_id: HashMap<u64, Rc<Socket>>,
    /// By the number with which the kernel tells its sockets apart (`SO_COOKIE`).
    by_cookie: HashMap<u64, u64>,
    /// Cookies by socket, to take them out again.
    cookies: HashMap<u64, u64>,
    made: u64,
    sweep_at: usize,
}

impl Table {
    /// A new socket.
    ///
    /// # Errors
    /// `ENFILE` if there are too many.
    pub fn make(&mut self, family: Family, transport: Transport) -> Result<Rc<Socket>, Errno> {
        if self.by_id.len() >= self.sweep_at.max(SWEEP_AT_LEAST) {
            self.sweep();
        }
        if self.by_id.len() >= SOCKETS_MAX {
            return Err(Errno::NFILE);
        }
        self.made += 1;
        let socket = Rc::new(Socket::new(self.made, family, transport));
        self.by_id.insert(socket.id, socket.clone());
        Ok(socket)
    }

    /// Takes out what nobody has any more, of those of which nobody else knows.
    fn sweep(&mut self) {
        let is_gone = |socket: &Rc<Socket>| {
            let is_idle = matches!(socket.state.get(), State::Idle | State::Over { .. });
            is_idle && socket.local.get().is_none() && !socket.is_alive()
        };
        let gone = self.by_id.values().filter(|socket| is_gone(socket));
        let gone: Vec<u64> = gone.map(|socket| socket.id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        self.sweep_at = 2 * self.by_id.len();
    }

    /// The socket with this number.
    pub fn get(&self, id: u64) -> Option<Rc<Socket>> {
        self.by_id.get(&id).cloned()
    }

    /// The socket that has this cookie.
    pub fn by_cookie(&self, cookie: u64) -> Option<Rc<Socket>> {
        self.get(*self.by_cookie.get(&cookie)?)
    }

    /// The kernel's socket with this cookie is this one.
    pub fn known(&mut self, cookie: u64, id: u64) {
        if let Some(before) = self.cookies.insert(id, cookie) {
            self.by_cookie.remove(&before);
        }
        self.by_cookie.insert(cookie, id);
    }

    /// Nobody has it any more.
    pub fn remove(&mut self, id: u64) {
        self.by_id.remove(&id);
        if let Some(cookie) = self.cookies.remove(&id) {
            self.by_cookie.remove(&cookie);
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Rc<Socket>> {
        self.by_id.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}
