//! Ports at which a program listens: where connections come to, and which socket gets them.
//!
//! The stack has one listener for a port. A program may have several: one of each version of IP, or
//! as many as it likes with `SO_REUSEPORT`. Connections go to them in turn.

use crate::address::Family;
use crate::error::number;
use crate::fill::Fillable;
use crate::house::House;
use crate::option::{Options, Transport};
use crate::socket::{Socket, State};
use crate::{stream, unix};
use net::socket::{Listener, Stream};
use net::task::{Either, select};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Ports that are chosen where a program leaves the choice: RFC 6335, 6, as Linux has them.
const CHOSEN_FIRST: u16 = 32_768;
const CHOSEN_LAST: u16 = 60_999;
/// A program whose queue of connections is full is asked again after so long.
const FULL_PAUSE: Duration = Duration::from_millis(2);
/// Who has closed a port is waited for so often, and so long each time.
pub const LET_GO_LOOKS: usize = 100;
pub const LET_GO_PAUSE: Duration = Duration::from_millis(5);
/// How often a connection is offered to a program before it is reset: 20 seconds.
const OFFERS_MAX: usize = 10_000;

/// An address at which something listens; any of this machine's if it names none.
type Key = (Option<IpAddr>, u16);

fn key(address: SocketAddr) -> Key {
    let ip = address.ip();
    ((!ip.is_unspecified()).then_some(ip), address.port())
}

/// Those who listen at an address.
pub struct Port {
    members: RefCell<Vec<Rc<Socket>>>,
    next: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

impl Port {
    /// Whose turn it is, among those that take connections of this version of IP.
    fn next(&self, peer: SocketAddr) -> Option<Rc<Socket>> {
        let members = self.members.borrow();
        let len = members.len();
        let start = self.next.get();
        self.next.set(start.wrapping_add(1));
        let order = (0..len).map(|step| &members[start.wrapping_add(step) % len]);
        let mut order = order.filter(|member| takes(member.family, &member.options.borrow(), peer));
        order.next().cloned()
    }

    /// Waits until nobody is left.
    async fn is_left(&self) {
        poll_fn(|context| match self.members.borrow().is_empty() {
            true => Poll::Ready(()),
            false => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }
}

/// Whether a socket of this family takes a connection or a datagram of this peer.
pub fn takes(family: Family, options: &Options, peer: SocketAddr) -> bool {
    match (family, peer) {
        (Family::V4, SocketAddr::V4(_)) | (Family::V6, SocketAddr::V6(_)) => true,
        (Family::V6, SocketAddr::V4(_)) => !options.v6_only(),
        (Family::V4, SocketAddr::V6(_)) => false,
    }
}

/// All ports at which a program listens.
#[derive(Default)]
pub struct Ports {
    by_key: HashMap<Key, Rc<Port>>,
    chosen: u16,
}

impl Ports {
    /// The next port to try where a program leaves the choice.
    fn choose(&mut self) -> u16 {
        let next = self.chosen.wrapping_add(1);
        self.chosen = match (CHOSEN_FIRST..=CHOSEN_LAST).contains(&next) {
            true => next,
            false => CHOSEN_FIRST,
        };
        self.chosen
    }
}

/// What a bound socket is, as far as another one that is to be bound cares: bind(2), socket(7).
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub family: Family,
    pub transport: Transport,
    pub address: SocketAddr,
    pub listens: bool,
    pub reuses_address: bool,
    pub reuses_port: bool,
    pub v6_only: bool,
}

impl Bound {
    /// What this socket is once it has this address.
    pub fn new(socket: &Socket, address: SocketAddr) -> Self {
        let options = socket.options.borrow();
        Self {
            family: socket.family,
            transport: socket.transport,
            address,
            listens: socket.state.get() == State::Listening,
            reuses_address: options.reuses_address(),
            reuses_port: options.reuses_port(),
            v6_only: options.v6_only(),
        }
    }

    /// Whether both cannot be.
    pub fn conflicts(&self, other: &Self) -> bool {
        if self.transport != other.transport || self.address.port() != other.address.port() {
            return false;
        }
        let (a, b) = (self.address.ip(), other.address.ip());
        let meet = match (a.is_unspecified(), b.is_unspecified()) {
            (false, false) => a == b,
            (true, false) => self.covers(b),
            (false, true) => other.covers(a),
            (true, true) => {
                self.family == other.family
                    || !self.v6_only && self.family == Family::V6
                    || !other.v6_only && other.family == Family::V6
            }
        };
        let shares_port = self.reuses_port && other.reuses_port;
        let shares_address = self.reuses_address
            && other.reuses_address
            && (self.transport == Transport::Datagrams || !self.listens && !other.listens);
        meet && !shares_port && !shares_address
    }

    /// Whether an address is one of all those at which this one is.
    fn covers(&self, ip: IpAddr) -> bool {
        match (self.family, ip) {
            (Family::V4, IpAddr::V4(_)) | (Family::V6, IpAddr::V6(_)) => true,
            (Family::V6, IpAddr::V4(_)) => !self.v6_only,
            (Family::V4, IpAddr::V6(_)) => false,
        }
    }
}

impl<S: Fillable> House<S> {
    /// Binds a socket to an address, of which the port is chosen if it is 0.
    ///
    /// # Errors
    /// `EINVAL` if it is bound, `EADDRINUSE`, `EAFNOSUPPORT`.
    pub fn bind(&self, socket: &Socket, address: SocketAddr) -> Result<SocketAddr, Errno> {
        if socket.local.get().is_some() {
            return Err(Errno::INVAL);
        }
        if socket.options.borrow().v6_only() && address.is_ipv4() {
            return Err(Errno::INVAL);
        }
        // What IPv6 calls any address of IPv4 is any.
        if address.port() != 0 {
            return match self.conflict(socket, address) {
                true => Err(Errno::ADDRINUSE),
                false => Ok(socket.bind(address)),
            };
        }
        for _ in CHOSEN_FIRST..=CHOSEN_LAST {
            let port = self.ports.borrow_mut().choose();
            let address = SocketAddr::new(address.ip(), port);
            if !self.conflict(socket, address) {
                return Ok(socket.bind(address));
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Whether somebody has the address whose socket is still there.
    fn conflict(&self, socket: &Socket, address: SocketAddr) -> bool {
        let wanted = Bound::new(socket, address);
        let table = self.table.borrow();
        let others = table.all().filter(|other| {
            let is_over = matches!(other.state.get(), State::Over { .. });
            let is_bound = !other.is_served() && !is_over && other.id != socket.id;
            let bound = other.local.get().filter(|_| is_bound);
            bound.is_some_and(|bound| wanted.conflicts(&Bound::new(other, bound)))
        });
        let others: Vec<_> = others.cloned().collect();
        drop(table);
        let mut any = false;
        for other in others {
            match other.is_alive() {
                true => any = true,
                false => self.left(&other),
            }
        }
        any
    }

    /// A socket that nobody has any more, and that was not connected.
    pub fn left(&self, socket: &Rc<Socket>) {
        if socket.state.get() == State::Listening
            && let Some(local) = socket.local.get()
            && let Some(port) = self.ports.borrow().by_key.get(&key(local))
        {
            port.members.borrow_mut().retain(|one| one.id != socket.id);
            if let Some(waker) = port.waker.borrow_mut().take() {
                waker.wake();
            }
        }
        self.forget(socket);
    }

    /// Has connections to `address` come to a socket.
    ///
    /// # Errors
    /// `EADDRINUSE`, or what the stack says.
    pub async fn listen(
        self: Rc<Self>,
        socket: Rc<Socket>,
        address: SocketAddr,
        backlog: usize,
    ) -> Result<(), Errno> {
        let key = key(address);
        socket.state.set(State::Listening);
        let listener = match self.stacks_listener(&socket, address, backlog).await {
            Ok(Some(listener)) => listener,
            // Others of this program listen there, and it is among them now.
            Ok(None) => return Ok(()),
            Err(errno) => {
                socket.state.set(State::Idle);
                return Err(errno);
            }
        };
        let port = Rc::new(Port {
            members: RefCell::new(vec![socket]),
            next: Cell::default(),
            waker: RefCell::default(),
        });
        let old = self.ports.borrow_mut().by_key.insert(key, port.clone());
        if let Some(old) = old {
            // Both began at the same time.
            port.members
                .borrow_mut()
                .append(&mut old.members.borrow_mut());
        }
        let house = self.clone();
        self.spawner.spawn(async move {
            house.serve_port(listener, &port).await;
            let mut ports = house.ports.borrow_mut();
            if ports
                .by_key
                .get(&key)
                .is_some_and(|one| Rc::ptr_eq(one, &port))
            {
                ports.by_key.remove(&key);
            }
        });
        Ok(())
    }

    /// A listener of the stack's, if no other socket of this program listens at this address. Who
    /// has just let go of it is waited for.
    async fn stacks_listener(
        &self,
        socket: &Rc<Socket>,
        address: SocketAddr,
        backlog: usize,
    ) -> Result<Option<S::Listener>, Errno> {
        for _ in 0..LET_GO_LOOKS {
            let port = self.ports.borrow().by_key.get(&key(address)).cloned();
            if let Some(port) = port {
                let mut members = port.members.borrow_mut();
                if !members.is_empty() {
                    members.push(socket.clone());
                    return Ok(None);
                }
            } else {
                match self.try_to_listen(address, backlog).await {
                    Err(Errno::ADDRINUSE) => {}
                    done => return done.map(Some),
                }
            }
            self.clock.sleep(LET_GO_PAUSE).await;
        }
        Err(Errno::ADDRINUSE)
    }

    async fn try_to_listen(
        &self,
        address: SocketAddr,
        backlog: usize,
    ) -> Result<S::Listener, Errno> {
        let mut listener = self.net.listen(address, backlog).map_err(number)?;
        self.in_time(listener.ready()).await?;
        Ok(listener)
    }

    /// Gives connections to those who listen, until there are none.
    async fn serve_port(self: &Rc<Self>, mut listener: S::Listener, port: &Rc<Port>) {
        loop {
            match select(pin!(listener.accept()), pin!(port.is_left())).await {
                Either::First(Ok(stream)) => self.offer(port, stream).await,
                // The stack does not let us have it any more.
                Either::First(Err(_)) | Either::Second(()) => return,
            }
        }
    }

    /// Gives a connection to whoever's turn it is.
    async fn offer(self: &Rc<Self>, port: &Port, stream: S::Stream) {
        let peer = stream.peer();
        for _ in 0..OFFERS_MAX {
            let Some(listener) = port.next(peer) else {
                break;
            };
            let made = self
                .table
                .borrow_mut()
                .make(listener.family, Transport::Stream);
            let Ok(socket) = made else {
                break;
            };
            match unix::offer(listener.id, socket.id) {
                Ok(ours) => {
                    socket.state.set(State::Connected { told: true });
                    *socket.options.borrow_mut() = listener.options.borrow().clone();
                    if stream::begin(self, socket.clone(), stream, ours, 0).is_err() {
                        self.table.borrow_mut().remove(socket.id);
                    }
                    listener.arrived();
                    return;
                }
                Err(errno) => {
                    self.table.borrow_mut().remove(socket.id);
                    match errno {
                        Errno::CONNREFUSED => self.left(&listener),
                        // Its queue is full, or we have no descriptor left.
                        _ => self.clock.sleep(FULL_PAUSE).await,
                    }
                }
            }
        }
        stream.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(family: Family, address: &str) -> Bound {
        Bound {
            family,
            transport: Transport::Stream,
            address: address.parse().unwrap(),
            listens: false,
            reuses_address: false,
            reuses_port: false,
            v6_only: false,
        }
    }

    #[test]
    fn addresses_meet_as_linux_has_it() {
        let v4 = bound(Family::V4, "0.0.0.0:80");
        let one = bound(Family::V4, "192.0.2.1:80");
        let other = bound(Family::V4, "192.0.2.2:80");
        let v6 = bound(Family::V6, "[::]:80");
        let v6_only = Bound {
            v6_only: true,
            ..v6
        };
        let elsewhere = bound(Family::V4, "0.0.0.0:81");
        for (a, b, expected) in [
            (v4, one, true),
            (one, other, false),
            (one, one, true),
            (v4, v6, true),
            (v4, v6_only, false),
            (v6, one, true),
            (v6_only, one, false),
            (v4, elsewhere, false),
        ] {
            assert_eq!(a.conflicts(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.conflicts(&a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn a_port_is_shared_by_those_who_say_so() {
        let plain = bound(Family::V4, "0.0.0.0:80");
        let reuses = Bound {
            reuses_address: true,
            ..plain
        };
        let listens = Bound {
            listens: true,
            ..reuses
        };
        let shares = Bound {
            reuses_port: true,
            listens: true,
            ..plain
        };
        assert!(plain.conflicts(&reuses));
        assert!(!reuses.conflicts(&reuses));
        assert!(reuses.conflicts(&listens));
        assert!(!shares.conflicts(&shares));
        assert!(shares.conflicts(&plain));
        let udp = Bound {
            transport: Transport::Datagrams,
            ..plain
        };
        assert!(!udp.conflicts(&plain));
    }

    #[test]
    fn chosen_ports_come_round() {
        let mut ports = Ports::default();
        assert_eq!(ports.choose(), CHOSEN_FIRST);
        ports.chosen = CHOSEN_LAST;
        assert_eq!(ports.choose(), CHOSEN_FIRST);
    }
}
