//! Sockets of the host's behind the traits of [`crate::socket`], for an image that is a plain
//! process.
//!
//! The kernel tells each change once (edge-triggered). So each socket has a place in a table that
//! says whether it may be read and written, and who waits for that. Whoever runs it calls
//! [`Table::look`], lets tasks run, and sleeps until [`Table::deadline`] or until the host has
//! something.

use crate::report::{Report, TCP_INFO_BYTES};
use crate::socket::{self, Datagrams, Error, Listener, Sockets, Stream};
use crate::tcp::connection::{Failure, NEVER};
use crate::tcp::host::Unusable;
use crate::tcp::queues::Payload;
use crate::tcp::socket::Error as Failed;
use crate::udp::BindError;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use device::{HEADROOM, Pool};
use ports::sockets::{Event, HostSockets, SocketCalls, Transport};
use ports::{Errno, Handle, Instant};

/// Sockets that may be open at a time.
const SOCKETS_MAX: usize = 1 << 16;
/// Events that one look takes.
const EVENTS_PER_LOOK: usize = 64;
/// Calls on one side of a socket between two looks: then others have their turn.
const CALLS_PER_TURN: u32 = 64;
/// Buffers for what is read without a copy, and bytes in each.
const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 64 << 10;
/// Where all buffers are in use, so many bytes are read and copied.
const COPIED_BYTES: usize = 2 << 10;
/// Who cannot have a socket tries again after so long.
const RETRY: Duration = Duration::from_millis(100);
/// The peer of a connection that was dropped may close for so long. What it sends is thrown away:
/// closed before that, the kernel would reset it, and the peer might lose what was sent.
const LEAVING: Duration = Duration::from_secs(2);
/// Reads by which what comes then is thrown away at a time; a peer that sends more is reset.
const LEAVING_READS: usize = 16;

/// All sockets, and who waits for them.
pub struct Table {
    host: HostSockets,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Who could not have a socket, and when they try again.
    starving: Vec<Waker>,
    retry_at: Instant,
    /// Places of dropped connections, by when they are closed at last.
    leaving: VecDeque<(Instant, u32)>,
    pool: Pool,
    now: Instant,
    turn: u32,
}

/// A socket; none in a place that is free.
#[derive(Default)]
struct Place {
    socket: Option<Handle>,
    read: Side,
    write: Side,
    /// The peer sends no more, or the connection has failed: there will be no other event of it.
    ended: bool,
    /// The end was read.
    end_read: bool,
    /// No more is to be written.
    shut: bool,
    /// It was dropped, and will be closed then.
    leaving: Option<Instant>,
}

/// Reading or writing.
#[derive(Default)]
struct Side {
    /// A call may succeed.
    ready: bool,
    waker: Option<Waker>,
    /// How many calls were made in this turn.
    turn: u32,
    calls: u32,
}

impl Side {
    fn wait(&mut self, context: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
    }

    fn tell(&mut self) {
        self.ready = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Table {
    /// No socket is open. There is one table in an image: its buffers are never given back.
    pub fn new(host: HostSockets, now: Instant) -> Self {
        let buffer = HEADROOM + BUFFER_BYTES;
        Self {
            host,
            places: Vec::new(),
            free: Vec::new(),
            starving: Vec::new(),
            retry_at: NEVER,
            leaving: VecDeque::new(),
            pool: Pool::new(vec![0; BUFFERS * buffer].leak(), buffer),
            now,
            turn: 0,
        }
    }

    /// Begins a turn. Learns what the host has, if it has something, and does what time brings.
    pub fn look(&mut self, now: Instant, any: bool) {
        self.now = now;
        self.turn = self.turn.wrapping_add(1);
        if any {
            let mut events = [Event::default(); EVENTS_PER_LOOK];
            let count = self.host.calls.events(self.host.set, &mut events);
            for event in &events[..count.min(EVENTS_PER_LOOK)] {
                self.learn(event);
            }
        }
        while let Some(&(until, place)) = self.leaving.front()
            && until <= now
        {
            self.leaving.pop_front();
            // Another socket may have the place by now.
            if self.places[place as usize].leaving == Some(until) {
                self.close(place);
            }
        }
        if self.retry_at <= now {
            self.feed();
        }
    }

    /// When [`Self::look`] has something to do although the host has nothing.
    pub fn deadline(&self) -> Instant {
        let leaving = self.leaving.front().map_or(NEVER, |(until, _)| *until);
        leaving.min(self.retry_at)
    }

    /// Whether no dropped connection waits for its peer.
    pub fn has_left(&self) -> bool {
        self.leaving.is_empty()
    }

    fn learn(&mut self, event: &Event) {
        let Some(place) = self.places.get_mut(event.number as usize) else {
            return;
        };
        place.ended |= event.ended;
        if event.readable {
            place.read.tell();
        }
        if event.writable {
            place.write.tell();
        }
        if place.leaving.is_some() && event.readable {
            self.discard(event.number);
        }
    }

    /// Those who could not have a socket try again.
    fn feed(&mut self) {
        self.retry_at = NEVER;
        self.starving.drain(..).for_each(Waker::wake);
    }

    fn starve<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        self.starving.push(context.waker().clone());
        self.retry_at = self.retry_at.min(self.now + RETRY);
        Poll::Pending
    }

    /// Finds a place for an open socket, or closes it.
    fn adopt(&mut self, socket: Handle, ready: bool) -> Result<u32, Errno> {
        let number = match self.free.pop() {
            Some(free) => free,
            None if self.places.len() < SOCKETS_MAX => {
                self.places.push(Place::default());
                self.places.len() as u32 - 1
            }
            None => {
                self.host.calls.close(socket);
                return Err(Errno::FILES);
            }
        };
        if let Err(error) = self.host.calls.watch(self.host.set, socket, number) {
            self.host.calls.close(socket);
            self.free.push(number);
            return Err(error);
        }
        let place = &mut self.places[number as usize];
        place.socket = Some(socket);
        place.read.ready = ready;
        place.write.ready = ready;
        Ok(number)
    }

    /// A socket that `prepare` has made ready to be watched.
    fn open(
        &mut self,
        transport: Transport,
        address: SocketAddr,
        prepare: impl FnOnce(&dyn SocketCalls, Handle) -> Result<(), Errno>,
    ) -> Result<u32, Errno> {
        let calls = self.host.calls;
        let socket = calls.open(transport, address)?;
        if let Err(error) = prepare(calls, socket) {
            calls.close(socket);
            return Err(error);
        }
        self.adopt(socket, false)
    }

    fn close(&mut self, number: u32) {
        let place = core::mem::take(&mut self.places[number as usize]);
        if let Some(socket) = place.socket {
            self.host.calls.close(socket);
            self.free.push(number);
        }
        self.feed();
    }

    /// Closes a connection once its peer has closed as well, or after a while.
    fn leave(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        let Some(socket) = place.socket.filter(|_| !place.end_read) else {
            self.close(number);
            return;
        };
        let until = self.now + LEAVING;
        place.leaving = Some(until);
        self.host.calls.shutdown(socket);
        if self.discard(number) {
            self.leaving.push_back((until, number));
        }
    }

    /// Throws away what has come to a dropped connection; whether more may come.
    fn discard(&mut self, number: u32) -> bool {
        let (calls, socket) = (self.host.calls, self.places[number as usize].socket);
        let (Some(socket), Some(mut place)) = (socket, self.pool.alloc_max()) else {
            self.close(number);
            return false;
        };
        for _ in 0..LEAVING_READS {
            match calls.receive(socket, place.bytes_mut()) {
                Ok(1..) => {}
                Err(Errno::AGAIN) => return true,
                Ok(0) | Err(_) => break,
            }
        }
        self.close(number);
        false
    }

    /// Makes a call as soon as it may succeed. Beside its result the call tells whether the next
    /// one would have to wait.
    fn poll<T>(
        &mut self,
        number: u32,
        side: fn(&mut Place) -> &mut Side,
        context: &Context<'_>,
        call: impl FnOnce(&dyn SocketCalls, Handle) -> Result<(T, bool), Errno>,
    ) -> Poll<Result<T, Errno>> {
        let place = &mut self.places[number as usize];
        let Some(socket) = place.socket else {
            return Poll::Ready(Err(Errno::INVALID));
        };
        let ended = place.ended;
        let side = side(place);
        if side.turn != self.turn {
            (side.turn, side.calls) = (self.turn, 0);
        }
        if !side.ready {
            side.wait(context);
            return Poll::Pending;
        }
        if side.calls == CALLS_PER_TURN {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        side.calls += 1;
        match call(self.host.calls, socket) {
            Ok((value, would_wait)) => {
                // After its last event the kernel does not tell again.
                side.ready = ended || !would_wait;
                Poll::Ready(Ok(value))
            }
            Err(Errno::AGAIN) => {
                side.ready = false;
                side.wait(context);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_accept(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<(u32, SocketAddr), Error>> {
        let accept =
            |calls: &dyn SocketCalls, socket| calls.accept(socket).map(|found| (found, false));
        let found = ready!(self.poll(number, |place| &mut place.read, context, accept));
        let adopted = found.and_then(|(socket, peer)| Ok((self.adopt(socket, true)?, peer)));
        match adopted {
            Ok(found) => Poll::Ready(Ok(found)),
            Err(error @ Errno::INVALID) => Poll::Ready(Err(Error::Host(error))),
            // It was gone before it was accepted (accept(2)).
            Err(Errno::ABORTED) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(_) => self.starve(context),
        }
    }

    fn poll_connected(&mut self, number: u32, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let error = |calls: &dyn SocketCalls, socket| Ok((calls.error(socket)?, false));
        let result = ready!(self.poll(number, |place| &mut place.write, context, error));
        Poll::Ready(result.map_err(failed))
    }

    fn poll_read(
        &mut self,
        number: u32,
        place: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let wanted = place.len();
        let receive = |calls: &dyn SocketCalls, socket| {
            let count = calls.receive(socket, place)?;
            Ok((count, count < wanted))
        };
        let count = ready!(self.poll(number, |place| &mut place.read, context, receive));
        if count == Ok(0) {
            self.places[number as usize].end_read = true;
        }
        Poll::Ready(count.map_err(failed))
    }

    fn poll_take(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Payload>, Error>> {
        // Not before there is something: a buffer is not to be held by who waits.
        let side = &mut self.places[number as usize].read;
        if !side.ready {
            side.wait(context);
            return Poll::Pending;
        }
        Poll::Ready(Ok(match self.pool.alloc_max() {
            Some(mut frame) => match ready!(self.poll_read(number, frame.bytes_mut(), context))? {
                0 => None,
                count => {
                    frame.truncate(count);
                    Some(frame.into())
                }
            },
            None => {
                let mut bytes = [0; COPIED_BYTES];
                match ready!(self.poll_read(number, &mut bytes, context))? {
                    0 => None,
                    count => Some(Bytes::copy_from_slice(&bytes[..count]).into()),
                }
            }
        }))
    }

    fn poll_write(
        &mut self,
        number: u32,
        bytes: &[u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        if self.places[number as usize].shut {
            return Poll::Ready(Err(Error::Failed(Failed::Closed)));
        }
        let send = |calls: &dyn SocketCalls, socket| {
            let count = calls.send(socket, bytes)?;
            Ok((count, count < bytes.len()))
        };
        let count = ready!(self.poll(number, |place| &mut place.write, context, send));
        Poll::Ready(count.map_err(failed))
    }

    /// Our end of a socket.
    fn local(&self, number: u32) -> SocketAddr {
        let mut local = Err(Errno::INVALID);
        self.with_socket(number, |calls, socket| local = calls.local(socket));
        match local {
            // Of both versions: as everywhere.
            Ok(local) if local.ip().is_unspecified() => {
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
            }
            Ok(local) => local,
            Err(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        }
    }

    /// Makes a call that does not wait, on a socket that is open.
    fn with_socket(&self, number: u32, call: impl FnOnce(&dyn SocketCalls, Handle)) {
        if let Some(socket) = self.places[number as usize].socket {
            call(self.host.calls, socket);
        }
    }
}

/// Why a connection does not go on.
fn failed(error: Errno) -> Error {
    let failure = |failure| Error::Failed(Failed::Failed(failure));
    match error {
        Errno::REFUSED => failure(Failure::Refused),
        Errno::RESET | Errno::PIPE => failure(Failure::Reset),
        Errno::TIMED_OUT => failure(Failure::TimedOut),
        Errno::ABORTED => failure(Failure::Aborted),
        Errno::IN_USE => Error::Unusable(Unusable::InUse),
        Errno::NOT_AVAILABLE => Error::Unusable(Unusable::NoPort),
        Errno::NET_UNREACHABLE | Errno::HOST_UNREACHABLE => Error::Unusable(Unusable::NoRoute),
        other => Error::Host(other),
    }
}

/// Why there are no datagrams.
fn unbound(error: Errno) -> Error {
    match error {
        Errno::IN_USE => Error::Bind(BindError::InUse),
        Errno::FILES | Errno::MACHINE_FILES => Error::Bind(BindError::TooMany),
        other => Error::Host(other),
    }
}

/// Why a datagram did not leave.
fn unsent(error: Errno) -> Error {
    use crate::layer::Unsent;
    match error {
        Errno::TOO_LONG => Error::Unsent(Unsent::TooBig),
        Errno::AGAIN | Errno::NO_BUFFERS | Errno::NO_MEMORY => Error::Unsent(Unsent::NoBuffer),
        Errno::NET_UNREACHABLE | Errno::HOST_UNREACHABLE => Error::Unsent(Unsent::NoRoute),
        other => Error::Host(other),
    }
}

/// Sockets of the host's.
#[derive(Clone)]
pub struct HostNet(Rc<RefCell<Table>>);

impl HostNet {
    /// Sockets of this table.
    pub fn new(table: Rc<RefCell<Table>>) -> Self {
        Self(table)
    }

    /// One that is closed when it is dropped.
    fn one(&self, number: u32) -> One {
        One {
            number,
            net: self.clone(),
        }
    }
}

/// A socket of which nothing remains when it is dropped.
struct One {
    number: u32,
    net: HostNet,
}

impl Drop for One {
    fn drop(&mut self) {
        self.net.0.borrow_mut().close(self.number);
    }
}

impl Sockets for HostNet {
    type Listener = HostListener;
    type Stream = HostStream;
    type Datagrams = HostDatagrams;

    fn bind(&self, local: SocketAddr) -> Result<HostDatagrams, Error> {
        let mut table = self.0.borrow_mut();
        let mut open = |local| {
            table.open(Transport::Datagrams, local, |calls, socket| {
                calls.bind(socket, local)
            })
        };
        // As everywhere, no address stands for those of both versions.
        let both = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), local.port());
        let (number, v6) = match local.ip().is_unspecified().then(|| open(both)) {
            Some(Ok(number)) => (number, true),
            Some(Err(Errno::IN_USE)) => return Err(unbound(Errno::IN_USE)),
            // A host may have no IPv6.
            _ => (open(local).map_err(unbound)?, local.is_ipv6()),
        };
        Ok(HostDatagrams {
            one: self.one(number),
            v6,
        })
    }

    fn listen(&self, local: SocketAddr, backlog: usize) -> Result<HostListener, Error> {
        let mut table = self.0.borrow_mut();
        let listen = |calls: &dyn SocketCalls, socket| calls.listen(socket, local, backlog.max(1));
        let number = table.open(Transport::Stream, local, listen);
        Ok(HostListener(self.one(number.map_err(failed)?)))
    }

    async fn connect(&self, remote: SocketAddr) -> Result<HostStream, Error> {
        let connect = |calls: &dyn SocketCalls, socket| match calls.connect(socket, remote) {
            Err(Errno::IN_PROGRESS) => Ok(()),
            other => other,
        };
        let opened = self.0.borrow_mut().open(Transport::Stream, remote, connect);
        // From here on it is let go of if nobody waits any more.
        let stream = HostStream(Rc::new(Open {
            number: opened.map_err(failed)?,
            net: self.clone(),
            peer: remote,
        }));
        let number = stream.0.number;
        poll_fn(|context| self.0.borrow_mut().poll_connected(number, context)).await?;
        Ok(stream)
    }
}

/// Waits for connections.
pub struct HostListener(One);

impl Listener for HostListener {
    type Stream = HostStream;

    async fn accept(&mut self) -> Result<HostStream, Error> {
        let One { number, net } = &self.0;
        let accepted = poll_fn(|context| net.0.borrow_mut().poll_accept(*number, context));
        let (number, peer) = accepted.await?;
        Ok(HostStream(Rc::new(Open {
            number,
            net: net.clone(),
            peer,
        })))
    }
}

/// A connection.
pub struct HostStream(Rc<Open>);

/// What is let go of when nobody holds it any more.
struct Open {
    number: u32,
    net: HostNet,
    peer: SocketAddr,
}

impl Stream for HostStream {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| {
            let mut table = self.0.net.0.borrow_mut();
            table.poll_read(self.0.number, place, context)
        })
        .await
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        poll_fn(|context| self.0.net.0.borrow_mut().poll_take(self.0.number, context)).await
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let written = poll_fn(|context| {
                let mut table = self.0.net.0.borrow_mut();
                table.poll_write(self.0.number, bytes, context)
            });
            bytes = &bytes[written.await?..];
        }
        Ok(())
    }

    fn shutdown(&mut self) {
        let mut table = self.0.net.0.borrow_mut();
        table.places[self.0.number as usize].shut = true;
        table.with_socket(self.0.number, |calls, socket| calls.shutdown(socket));
    }

    fn set_no_delay(&mut self, no_delay: bool) {
        let table = self.0.net.0.borrow();
        table.with_socket(self.0.number, |calls, socket| {
            calls.set_no_delay(socket, no_delay);
        });
    }

    fn split(self) -> (Self, Self) {
        (Self(self.0.clone()), self)
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer
    }

    fn local(&self) -> SocketAddr {
        self.0.net.0.borrow().local(self.0.number)
    }

    fn report(&self) -> Option<Report> {
        let (mut info, mut report) = ([0; TCP_INFO_BYTES], None);
        let table = self.0.net.0.borrow();
        table.with_socket(self.0.number, |calls, socket| {
            let told = calls.tcp_info(socket, &mut info);
            report = told
                .ok()
                .and_then(|len| Report::from_kernel(info.get(..len)?));
        });
        report
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.net.0.borrow_mut().leave(self.number);
    }
}

/// Takes and sends datagrams.
pub struct HostDatagrams {
    one: One,
    /// Its addresses are of IPv6, and IPv4 is mapped into those.
    v6: bool,
}

impl Datagrams for HostDatagrams {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        let One { number, net } = &self.one;
        let received = poll_fn(|context| {
            let receive = |calls: &dyn SocketCalls, socket| {
                let received = calls.receive_from(socket, place)?;
                Ok((received, false))
            };
            let mut table = net.0.borrow_mut();
            table.poll(*number, |place| &mut place.read, context, receive)
        });
        received.await.map_err(socket::Error::Host)
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        let to = match to.ip() {
            IpAddr::V4(ip) if self.v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), to.port()),
            _ => to,
        };
        let mut sent = Err(Errno::INVALID);
        let table = self.one.net.0.borrow();
        table.with_socket(self.one.number, |calls, socket| {
            sent = calls.send_to(socket, bytes, to);
        });
        sent.map_err(unsent)
    }

    fn local(&self) -> SocketAddr {
        self.one.net.0.borrow().local(self.one.number)
    }
}
