//! Datagrams, between a program's socket and the stack's.
//!
//! A program whose socket is connected reads and writes a socket of the kernel's, as for
//! connections. One that names addresses has its calls passed to us: what it sends goes to the
//! stack at once, and what comes for it waits in its socket, sent by one whose name is the peer's
//! address and that of ours that it went to.

use crate::error::number;
use crate::fill::Fillable;
use crate::house::{Found, House};
use crate::option::Transport;
use crate::port::{LET_GO_LOOKS, LET_GO_PAUSE, takes};
use crate::reactor::Watched;
use crate::socket::{Socket, State};
use crate::unix::{self, End};
use net::socket::{Datagrams as Stack, Ends};
use net::task::select;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketAddrUnix, connect, connect_unspec, recv, recvfrom, send, sendto,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Bytes of the longest datagram.
pub const DATAGRAM_MAX: usize = 65_535;
/// Peers of which a socket is kept.
const SENDERS_MAX: usize = 512;
/// A program that takes no datagrams is asked again after so long.
const FULL_PAUSE: Duration = Duration::from_millis(1);
/// Turns until tasks that were woken have let go.
const LET_GO_TURNS: usize = 1024;
/// Datagrams that leave before others have their turn.
const BATCH_MAX: usize = 64;

/// A socket of the stack's for one of a program's, or for several that are at one port.
pub struct Datagrams<S: Fillable> {
    stack: RefCell<S::Datagrams>,
    local: SocketAddr,
    members: RefCell<Vec<Rc<Socket>>>,
    peer: Option<SocketAddr>,
    /// The other end of the program's, if it has a peer.
    ours: Option<Watched>,
    ended: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// What has come for a program.
pub struct Arrived {
    /// Bytes of it that were taken.
    pub count: usize,
    /// Bytes that it had.
    pub whole: usize,
    pub from: Option<SocketAddr>,
    /// Our address that it went to; unspecified where nobody knows it.
    pub to: IpAddr,
}

impl<S: Fillable> Datagrams<S> {
    /// Our address that they are at; unspecified if they are at all.
    pub fn local(&self) -> IpAddr {
        self.local.ip()
    }

    /// Sends a datagram, from this address of ours if there is one.
    ///
    /// # Errors
    /// Why not.
    pub fn send(&self, bytes: &[u8], from: Option<IpAddr>, to: SocketAddr) -> Result<(), Errno> {
        let mut stack = self.stack.borrow_mut();
        let sent = match from {
            Some(from) => stack.send_from(bytes, from, to),
            None => stack.send(bytes, to),
        };
        sent.map_err(number)
    }

    /// Takes what goes to a group, too, or no longer.
    ///
    /// # Errors
    /// `EINVAL` if it is none, or there are too many.
    pub fn group(&self, group: std::net::IpAddr, is_in: bool) -> Result<(), Errno> {
        let mut stack = self.stack.borrow_mut();
        match is_in {
            true => stack.join(group).map_err(number),
            false => {
                stack.leave(group);
                Ok(())
            }
        }
    }

    async fn receive(&self, place: &mut [u8]) -> Result<(usize, Ends), net::socket::Error> {
        // Borrowed for each look, so that others send meanwhile.
        poll_fn(|context| {
            let mut stack = self.stack.borrow_mut();
            pin!(stack.receive_at(place)).poll(context)
        })
        .await
    }

    /// Whose a datagram is: of several that take it, the same one for each peer.
    fn member(&self, from: SocketAddr) -> Option<Rc<Socket>> {
        let members = self.members.borrow();
        let mut taking = members
            .iter()
            .filter(|one| takes(one.family, &one.options.borrow(), from));
        let count = taking.clone().count();
        let turn = usize::from(from.port()).checked_rem(count)?;
        taking.nth(turn).cloned()
    }

    /// Whether others of the program's may be at this address with those that are here.
    fn is_at(&self, local: SocketAddr) -> bool {
        let is_any = |address: SocketAddr| address.ip().is_unspecified();
        let meets = self.local.ip() == local.ip() || is_any(self.local) && is_any(local);
        self.peer.is_none() && self.local.port() == local.port() && meets
    }

    /// One of those that are here is here no more. With the last one it ends.
    fn leave(&self, socket: &Socket) {
        let mut members = self.members.borrow_mut();
        members.retain(|one| one.id != socket.id);
        if members.is_empty() {
            self.end();
        }
    }

    async fn ended(&self) {
        poll_fn(|context| match self.ended.get() {
            true => Poll::Ready(()),
            false => {
                let waker = context.waker();
                let mut waiting = self.waiting.borrow_mut();
                if !waiting.iter().any(|one| one.will_wake(waker)) {
                    waiting.push(waker.clone());
                }
                Poll::Pending
            }
        })
        .await;
    }

    fn end(&self) {
        self.ended.set(true);
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Moves what the program writes to its peer.
    async fn move_out(&self, socket: &Socket) {
        let (Some(ours), Some(peer)) = (&self.ours, self.peer) else {
            return;
        };
        let mut place = vec![0; DATAGRAM_MAX];
        loop {
            for _ in 0..BATCH_MAX {
                let read = ours.reads(|ours| recv(ours, &mut place[..], RecvFlags::DONTWAIT));
                match read.await {
                    Ok((count, _)) => {
                        if let Err(errno) = self.send(&place[..count], None, peer) {
                            socket.error.set(Some(errno));
                        }
                    }
                    Err(_) => return,
                }
            }
            net::task::yield_now().await;
        }
    }
}

impl<S: Fillable> House<S> {
    /// The stack's socket for one of a program's; made if there is none.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn datagrams(
        self: &Rc<Self>,
        socket: &Rc<Socket>,
    ) -> Result<Rc<Datagrams<S>>, Errno> {
        let found = self.datagrams.borrow().get(&socket.id).cloned();
        match found {
            Some(found) => Ok(found),
            None => self.open_datagrams(socket, None).await,
        }
    }

    /// Opens the stack's socket for one of a program's, with this peer's end or without.
    async fn open_datagrams(
        self: &Rc<Self>,
        socket: &Rc<Socket>,
        peer: Option<(SocketAddr, Watched)>,
    ) -> Result<Rc<Datagrams<S>>, Errno> {
        let any = SocketAddr::new(socket.family.any(), 0);
        let local = socket.local.get().unwrap_or(any);
        self.let_go(socket).await;
        if peer.is_none() && local.port() != 0 {
            let all = self.datagrams.borrow();
            let shared = all.values().find(|one| one.is_at(local)).cloned();
            drop(all);
            if let Some(shared) = shared {
                shared.members.borrow_mut().push(socket.clone());
                let mut all = self.datagrams.borrow_mut();
                all.insert(socket.id, shared.clone());
                return Ok(shared);
            }
        }
        let (peer, ours) = peer.unzip();
        let stack = self.stacks_datagrams(local, peer).await?;
        let local = stack.local();
        socket.local.set(Some(local));
        let datagrams = Rc::new(Datagrams {
            stack: RefCell::new(stack),
            local,
            members: RefCell::new(vec![socket.clone()]),
            peer,
            ours,
            ended: Cell::new(false),
            waiting: RefCell::default(),
        });
        let mut all = self.datagrams.borrow_mut();
        if let Some(other) = all.insert(socket.id, datagrams.clone()) {
            other.leave(socket);
        }
        drop(all);
        let (house, one) = (self.clone(), datagrams.clone());
        self.spawner.spawn(async move {
            select(pin!(house.move_in(&one)), pin!(one.ended())).await;
        });
        let (one, of) = (datagrams.clone(), socket.clone());
        if datagrams.ours.is_some() {
            self.spawner.spawn(async move {
                select(pin!(one.move_out(&of)), pin!(one.ended())).await;
            });
        }
        Ok(datagrams)
    }

    /// A socket of the stack's. Who has just let go of its port is waited for.
    async fn stacks_datagrams(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<S::Datagrams, Errno> {
        for _ in 0..LET_GO_LOOKS {
            match self.try_to_open(local, peer).await {
                Err(Errno::ADDRINUSE) => self.clock.sleep(LET_GO_PAUSE).await,
                done => return done,
            }
        }
        Err(Errno::ADDRINUSE)
    }

    async fn try_to_open(
        &self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<S::Datagrams, Errno> {
        let opened = match peer {
            None => self.net.bind(local),
            Some(peer) => self
                .net
                .connect_datagrams(local, peer)
                .map(net::socket::Connected::into_inner),
        };
        let mut stack = opened.map_err(number)?;
        self.in_time(stack.ready()).await?;
        Ok(stack)
    }

    /// Waits until nobody has the stack's socket for this one any more: its port is free then.
    async fn let_go(&self, socket: &Socket) {
        let ended = self.datagrams.borrow_mut().remove(&socket.id);
        let Some(ended) = ended else {
            return;
        };
        ended.leave(socket);
        for _ in 0..LET_GO_TURNS {
            if !ended.ended.get() || Rc::strong_count(&ended) == 1 {
                return;
            }
            net::task::yield_now().await;
        }
    }

    /// The stack's socket for this one is to be no more.
    pub fn end_datagrams(&self, socket: &Socket) {
        let ended = self.datagrams.borrow_mut().remove(&socket.id);
        if let Some(ended) = ended {
            ended.leave(socket);
            self.senders
                .borrow_mut()
                .retain(|(to, _), _| *to != socket.id);
        }
    }

    /// Gives a program what comes for it.
    async fn move_in(self: &Rc<Self>, datagrams: &Datagrams<S>) {
        let mut place = vec![0; DATAGRAM_MAX];
        loop {
            match datagrams.receive(&mut place).await {
                Ok((count, ends)) => {
                    let from = ends.from;
                    let Some(socket) = datagrams.member(from) else {
                        continue;
                    };
                    let bytes = &place[..count];
                    let given = match (&datagrams.ours, datagrams.peer) {
                        (Some(ours), Some(peer))
                            if (from.ip(), from.port()) == (peer.ip(), peer.port()) =>
                        {
                            give(ours, bytes).await
                        }
                        (Some(_), _) => Ok(()),
                        (None, _) => self.send_as(&socket, ends, bytes).await,
                    };
                    match given {
                        Err(Errno::CONNREFUSED) => self.left(&socket),
                        _ => socket.arrived(),
                    }
                }
                Err(error) => {
                    let errno = number(error);
                    for socket in &*datagrams.members.borrow() {
                        socket.error.set(Some(errno));
                        socket.arrived();
                    }
                    // A peer that does not listen may later.
                    if errno != Errno::CONNREFUSED {
                        return;
                    }
                }
            }
        }
    }

    /// Has a datagram lie in the program's socket as one with these ends.
    async fn send_as(&self, socket: &Socket, ends: Ends, bytes: &[u8]) -> Result<(), Errno> {
        let to = unix::name(End::Program, socket.id)?;
        loop {
            let sent = self.with_sender((socket.id, ends), |sender| {
                sendto(
                    sender,
                    bytes,
                    SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                    &to,
                )
            });
            match sent {
                Err(Errno::AGAIN) => self.clock.sleep(FULL_PAUSE).await,
                other => return other.map(|_| ()),
            }
        }
    }

    /// Does something with the socket that stands for these ends, for one of the program's.
    fn with_sender<T>(
        &self,
        of: (u64, Ends),
        work: impl FnOnce(&OwnedFd) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut senders = self.senders.borrow_mut();
        if let Some(sender) = senders.get(&of) {
            return work(sender);
        }
        if senders.len() >= SENDERS_MAX {
            senders.clear();
        }
        let sender = unix::sender(of.0, of.1)?;
        let done = work(&sender);
        senders.insert(of, sender);
        done
    }

    /// Takes a datagram that lies in the program's socket.
    ///
    /// # Errors
    /// `EAGAIN` if there is none.
    pub fn take_datagram(
        &self,
        found: &Found,
        place: &mut [u8],
        peeks: bool,
    ) -> Result<Arrived, Errno> {
        let mut flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        if peeks {
            flags |= RecvFlags::PEEK;
        }
        let (count, whole, sender) = recvfrom(&found.program, place, flags)?;
        let sender = sender.and_then(|sender| SocketAddrUnix::try_from(sender).ok());
        let named = sender.as_ref().and_then(unix::sent_by);
        let any = found.socket.family.any();
        let local = || found.socket.local.get().map_or(any, |local| local.ip());
        let from = named.map(|ends| ends.from);
        Ok(Arrived {
            count,
            whole,
            from: from.or(found.socket.peer.get()),
            to: named.map_or_else(local, |ends| ends.to),
        })
    }

    /// Gives a program's socket a peer.
    ///
    /// # Errors
    /// Why it has none.
    pub async fn connect_datagrams(
        self: &Rc<Self>,
        found: &Found,
        peer: SocketAddr,
    ) -> Result<(), Errno> {
        let socket = &found.socket;
        let local = socket
            .local
            .get()
            .map_or(socket.family.any(), |local| local.ip());
        let peer = self.destination(peer, local)?;
        // One that has a peer takes nothing of another one's.
        if socket.peer.take().is_some() {
            connect_unspec(&found.program)?;
            socket.state.set(State::Idle);
        }
        let ours = unix::make(
            Transport::Datagrams,
            End::Datagrams,
            self.next_number(),
            true,
        )?;
        connect(&ours, &unix::name(End::Program, socket.id)?)?;
        let at = unix::own_name(&ours)?;
        let ours = self.reactor.watch(ours)?;
        self.open_datagrams(socket, Some((peer, ours))).await?;
        connect(&found.program, &at)?;
        socket.peer.set(Some(peer));
        socket.state.set(State::Connected { told: true });
        Ok(())
    }

    /// Takes a program's socket its peer.
    ///
    /// # Errors
    /// Why not.
    pub async fn disconnect_datagrams(self: &Rc<Self>, found: &Found) -> Result<(), Errno> {
        let socket = &found.socket;
        connect_unspec(&found.program)?;
        socket.peer.set(None);
        socket.state.set(State::Idle);
        self.open_datagrams(socket, None).await.map(drop)
    }
}

/// Waits until a program's socket has room.
async fn give(ours: &Watched, bytes: &[u8]) -> Result<(), Errno> {
    let sent = ours.writes(|ours| send(ours, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
    sent.await.map(drop)
}
