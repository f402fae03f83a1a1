//! The stack's end: what an application asks for, over sockets of the stack's.

mod entry;
mod handle;
mod orphans;
mod tasks;

use crate::fault::Fault;
use crate::message::{Message, OWN_MAX, Own, Reason, SOCKETS_MAX, What};
use crate::window::{Budget, Credit, DATAGRAM_MAX, Window};
use crate::wire::{self, End, Wire};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use device::Netif;
use entry::{Entry, Kind};
use handle::Handle;
use net::layer::Unsent;
use net::socket::{Error, Sockets, Stream};
use net::task::Spawner;
use net::tcp::connection::Failure;
use net::tcp::host::Unusable;
use net::tcp::socket::Error as Failed;
use net::udp::BindError;
use orphans::Resume;
use ports::Errno;

pub use orphans::Orphans;

/// What an application may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Ports at which it may wait for connections and datagrams; those that the stack chooses are
    /// among them if 0 is.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Whether it may open connections, and have datagrams of a peer that it chooses. What takes
    /// datagrams at a port that it may have sends them to anybody.
    pub connect: bool,
}

impl Allowed {
    /// Everything.
    pub fn all() -> Self {
        Self {
            ports: [0..=u16::MAX].into(),
            connect: true,
        }
    }

    /// Ports as people write them, as in `7,8000-8080`; `None` if these are none.
    pub fn ports(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(first..=last)
        };
        text.split(',').map(range).collect()
    }

    fn port(&self, port: u16) -> bool {
        self.ports.iter().any(|ports| ports.contains(&port))
    }
}

/// Sockets for the application at the other end of a link.
pub struct Server<S: Sockets + 'static>(Rc<RefCell<Shared<S>>>);

/// What a server and its tasks share.
struct Shared<S: Sockets> {
    wire: Wire,
    entries: Vec<Option<Entry>>,
    budget: Budget,
    /// So many sockets there ever were.
    count: u64,
    allowed: Allowed,
    sockets: S,
    spawner: Spawner,
    orphans: Orphans<S::Stream>,
    /// The application has ever said something.
    is_heard: bool,
    /// What it was told of the stack itself.
    told: Vec<Own>,
}

/// What the application is told of a failure.
fn reason(error: Error) -> Reason {
    match error {
        Error::Unusable(Unusable::InUse) | Error::Bind(BindError::InUse) => Reason::InUse,
        Error::Unusable(Unusable::NoRoute) | Error::Unsent(Unsent::NoRoute) => Reason::NoRoute,
        Error::Unusable(Unusable::NoPort) => Reason::NoPort,
        Error::Unusable(Unusable::NoPlace) | Error::Bind(BindError::TooMany) => Reason::NoPlace,
        Error::Failed(Failed::Failed(Failure::Refused)) => Reason::Refused,
        Error::Failed(Failed::Failed(Failure::Reset)) => Reason::Reset,
        Error::Failed(Failed::Failed(Failure::TimedOut)) => Reason::TimedOut,
        Error::Failed(Failed::Failed(Failure::Aborted)) => Reason::Aborted,
        Error::Host(Errno::ACCESS) => Reason::Denied,
        _ => Reason::Other,
    }
}

impl<S: Sockets + 'static> Server<S> {
    /// Over this port, with these sockets; among the orphans are those of the application. What
    /// has arrived from it may take so many bytes of memory. Another image has another `session`.
    pub fn new(
        port: Box<dyn Netif>,
        (sockets, spawner, orphans): (S, Spawner, Orphans<S::Stream>),
        allowed: Allowed,
        memory: usize,
        session: u64,
    ) -> Self {
        Self(Rc::new(RefCell::new(Shared {
            wire: Wire::new(port, session),
            entries: Vec::new(),
            budget: Budget::new(memory),
            count: 0,
            allowed,
            sockets,
            spawner,
            orphans,
            is_heard: false,
            told: Vec::new(),
        })))
    }

    /// Takes one batch of frames; whether there was any.
    pub fn receive(&mut self) -> bool {
        let any = wire::receive(self);
        let mut shared = self.0.borrow_mut();
        if shared.wire.is_heard() && !core::mem::replace(&mut shared.is_heard, true) {
            shared.orphans.heard(&shared.sockets);
        }
        any
    }

    /// Tells the application what the stack says of itself, as far as that is new:
    /// [`OWN_MAX`](crate::message::OWN_MAX) of it at most.
    pub fn tell(&mut self, own: &[Own]) {
        let own = &own[..own.len().min(OWN_MAX)];
        let mut shared = self.0.borrow_mut();
        if !shared.wire.is_met() || shared.told == own {
            return;
        }
        let told = core::mem::replace(&mut shared.told, own.to_vec());
        let over = told.iter().filter(|one| !own.contains(one));
        let over = over.map(|one| What::Own(*one, false));
        let new = own.iter().filter(|one| !told.contains(one));
        for what in over.chain(new.map(|one| What::Own(*one, true))) {
            shared.wire.say(&Message::new(0, what));
        }
    }

    /// Sends what there is room for.
    pub fn flush(&mut self) {
        self.0.borrow_mut().wire.flush();
    }

    /// The name of the link, how often the application's image was cut off, and why since somebody
    /// asked last.
    pub fn take_fault(&mut self) -> Option<(alloc::string::String, u64, Fault)> {
        let mut shared = self.0.borrow_mut();
        let fault = shared.wire.take_fault()?;
        Some((shared.wire.name().into(), shared.wire.faults(), fault))
    }

    /// How often the application's image was cut off.
    pub fn faults(&self) -> u64 {
        self.0.borrow().wire.faults()
    }

    /// Sockets that the application has.
    pub fn len(&self) -> usize {
        self.0.borrow().entries.iter().flatten().count()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A new socket of the application's, under a number that it has chosen.
    fn open(&self, number: u32, kind: Kind, window: u32) -> Result<Handle<S>, Fault> {
        let mut shared = self.0.borrow_mut();
        let place = number as usize;
        let is_free = shared.entries.get(place).is_none_or(Option::is_none);
        if number >= SOCKETS_MAX || !is_free {
            return Err(Fault::Socket(number));
        }
        shared.count += 1;
        let key = shared.count;
        if shared.entries.len() <= place {
            shared.entries.resize_with(place + 1, || None);
        }
        shared.entries[place] = Some(Entry::new(key, kind, window));
        Ok(Handle {
            server: self.0.clone(),
            number,
            key,
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.borrow().spawner.spawn(task);
    }

    /// Why the application may not have this.
    fn denied(&self, local: Option<SocketAddr>, connects: bool) -> Option<Reason> {
        let shared = self.0.borrow();
        let allowed = &shared.allowed;
        let may_be_there = local.is_none_or(|local| allowed.port(local.port()));
        let may = may_be_there && (allowed.connect || !connects);
        (!may).then_some(Reason::Denied)
    }

    /// Has room for what comes to a socket from the application, and a buffer of so many bytes for
    /// what comes from the network, or says why not.
    fn equip(&self, handle: &Handle<S>, buffer: u32) -> Result<(), Reason> {
        let mut shared = self.0.borrow_mut();
        if !shared.budget.take(buffer) {
            return Err(Reason::NoPlace);
        }
        let window = shared.budget.window();
        if window.is_none() {
            shared.budget.give_back(buffer);
        }
        drop(shared);
        let window = window.ok_or(Reason::NoPlace)?;
        handle.with(|entry, _| {
            entry.window = match entry.kind {
                Kind::Datagrams { .. } => Window::of_datagrams(window),
                _ => Window::new(window),
            };
            entry.buffer = buffer;
        });
        Ok(())
    }

    /// A socket that is told to be none, and closed once the application wants so.
    fn refuse(&self, handle: Handle<S>, why: Reason) {
        handle.fail(why);
        self.spawn(tasks::refused(handle));
    }

    fn listen(&self, number: u32, local: SocketAddr, backlog: u32) -> Result<(), Fault> {
        let handle = self.open(number, Kind::listener(), 0)?;
        if let Some(why) = self.denied(Some(local), false) {
            self.refuse(handle, why);
            return Ok(());
        }
        // The application's number is as hostile as any.
        let backlog = backlog.clamp(1, SOCKETS_MAX) as usize;
        let listener = self.0.borrow().sockets.listen(local, backlog);
        match listener {
            Ok(listener) => {
                handle.opened(local, None);
                // Of those that the image before had, it knows no other ones.
                let first = self.0.borrow().orphans.take_at(local);
                let server = Self(self.0.clone());
                self.spawn(tasks::listen(server, handle, listener, first));
            }
            Err(error) => self.refuse(handle, reason(error)),
        }
        Ok(())
    }

    fn connect(&self, number: u32, remote: SocketAddr, window: u32) -> Result<(), Fault> {
        let handle = self.open(number, Kind::Stream, window)?;
        let refused = self.denied(None, true).map_or(Ok(()), Err);
        match refused.and_then(|()| self.equip(&handle, 0)) {
            Ok(()) => {
                let sockets = self.0.borrow().sockets.clone();
                let server = Self(self.0.clone());
                self.spawn(tasks::connect(server, handle, sockets, remote));
            }
            Err(why) => self.refuse(handle, why),
        }
        Ok(())
    }

    /// Goes on with a connection of the image before.
    fn resume(&self, number: u32, how: Resume) -> Result<(), Fault> {
        let handle = self.open(number, Kind::Stream, how.window)?;
        let credit = Credit::part(how.window, how.left).ok_or(Fault::Credit(number))?;
        handle.with(|entry, _| entry.credit = credit);
        let stream = self.0.borrow().orphans.take(how.name);
        let Some(mut stream) = stream else {
            self.refuse(handle, Reason::Reset);
            return Ok(());
        };
        let marks = stream.kept().and_then(|kept| how.reach(kept));
        match (marks, self.equip(&handle, 0)) {
            (Some(marks), Ok(())) => {
                handle.resumed(marks);
                tasks::go_on(self, handle, stream);
            }
            (marks, equipped) => {
                stream.abort();
                let why = equipped.err().filter(|_| marks.is_some());
                self.refuse(handle, why.unwrap_or(Reason::Reset));
            }
        }
        Ok(())
    }

    fn bind(
        &self,
        number: u32,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        window: u32,
    ) -> Result<(), Fault> {
        let handle = self.open(number, Kind::datagrams(), window)?;
        let refused = self.denied(Some(local), peer.is_some());
        let refused = refused.map_or(Ok(()), Err);
        if let Err(why) = refused.and_then(|()| self.equip(&handle, DATAGRAM_MAX as u32)) {
            self.refuse(handle, why);
            return Ok(());
        }
        let sockets = self.0.borrow().sockets.clone();
        let bound = match peer {
            None => sockets.bind(local).map(tasks::Datagrams::Free),
            Some(peer) => sockets
                .connect_datagrams(local, peer)
                .map(tasks::Datagrams::Connected),
        };
        match bound {
            Ok(socket) => {
                handle.opened(socket.local(), peer);
                self.spawn(tasks::datagrams(handle, socket));
            }
            Err(error) => self.refuse(handle, reason(error)),
        }
        Ok(())
    }

    /// The next connection of a listener is to have this number.
    fn accept(&self, number: u32, listener: u32, window: u32) -> Result<(), Fault> {
        let handle = self.open(number, Kind::Offered { listener }, window)?;
        let mut shared = self.0.borrow_mut();
        let entry = shared.entries.get_mut(listener as usize);
        let entry = entry.and_then(Option::as_mut);
        let entry = entry.ok_or(Fault::Socket(listener))?;
        entry
            .offer(number, handle.key)
            .map_err(|fault| fault(listener))
    }

    /// Closes or resets a socket.
    fn close(&self, number: u32, abort: bool) -> Result<(), Fault> {
        let mut shared = self.0.borrow_mut();
        let entry = shared.entry(number)?;
        if let Kind::Offered { listener } = entry.kind {
            // Nobody works for it yet.
            let key = entry.key;
            if let Ok(entry) = shared.entry(listener) {
                entry.withdraw(key);
            }
            shared.release(number);
            return Ok(());
        }
        entry.close(abort).map_err(|fault| fault(number))
    }
}

impl<S: Sockets> Shared<S> {
    fn entry(&mut self, number: u32) -> Result<&mut Entry, Fault> {
        let entry = self.entries.get_mut(number as usize);
        let entry = entry.and_then(Option::as_mut);
        entry.ok_or(Fault::Socket(number))
    }

    /// Nothing is left of a socket.
    fn release(&mut self, number: u32) {
        let entry = self.entries.get_mut(number as usize).and_then(Option::take);
        if let Some(entry) = entry {
            self.budget.give_back(entry.memory());
            self.wire.say(&Message::new(number, What::Closed));
        }
    }
}

impl<S: Sockets + 'static> End for Server<S> {
    fn with_wire<T>(&mut self, work: impl FnOnce(&mut Wire) -> T) -> T {
        work(&mut self.0.borrow_mut().wire)
    }

    /// All sockets of the application's are reset: their tasks find nothing left of them.
    fn begin_anew(&mut self) {
        let mut shared = self.0.borrow_mut();
        shared.told.clear();
        let entries = core::mem::take(&mut shared.entries);
        for mut entry in entries.into_iter().flatten() {
            shared.budget.give_back(entry.memory());
            entry.wake();
        }
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let number = message.socket;
        match message.what {
            What::Listen { local, backlog } => return self.listen(number, local, backlog),
            What::Accept { listener, window } => return self.accept(number, listener, window),
            What::Connect { remote, window } => return self.connect(number, remote, window),
            What::Bind {
                local,
                peer,
                window,
            } => return self.bind(number, local, peer, window),
            What::Resume {
                name,
                written,
                read,
                window,
                left,
            } => {
                let how = Resume {
                    name,
                    written,
                    read,
                    window,
                    left,
                };
                return self.resume(number, how);
            }
            What::Close => return self.close(number, false),
            What::Abort => return self.close(number, true),
            _ => {}
        }
        let mut shared = self.0.borrow_mut();
        let entry = shared.entry(number)?;
        entry.heed(&message.what).map_err(|fault| fault(number))
    }
}
