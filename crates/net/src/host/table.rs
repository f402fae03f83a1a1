//! The kernel tells each change once (edge-triggered). So each socket has a place in a table that
//! says whether it may be read and written, and who waits for that. Whoever runs it calls
//! [`Table::look`], lets tasks run, and sleeps until [`Table::deadline`] or until the host has
//! something.

use crate::report::{self, Report, TCP_INFO_BYTES};
use crate::slices::Slices;
use crate::socket::Error;
use crate::tcp::connection::{Failure, NEVER};
use crate::tcp::host::Unusable;
use crate::tcp::queues::Payload;
use crate::tcp::socket::Error as Failed;
use crate::udp::BindError;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::{Ipv4Addr, SocketAddr};
use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use device::{HEADROOM, Pool};
use ports::sockets::{Event, HostSockets, SLICES_MAX, SocketCalls, Transport};
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
/// Who waits for acknowledgements looks again after so long: the kernel tells of none.
const ACKNOWLEDGED_LOOK: Duration = Duration::from_millis(1);
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
    /// Who could not have a socket, or waits for what the kernel does not tell, and when they try
    /// again.
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
    /// Why the connection does not go on, if it does not.
    failed: Option<Errno>,
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

    /// Those who wait for time to pass try again.
    fn feed(&mut self) {
        self.retry_at = NEVER;
        self.starving.drain(..).for_each(Waker::wake);
    }

    /// Tries again after so long.
    fn retry<T>(&mut self, after: Duration, context: &Context<'_>) -> Poll<T> {
        self.starving.push(context.waker().clone());
        self.retry_at = self.retry_at.min(self.now + after);
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
    pub(super) fn open(
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

    pub(super) fn close(&mut self, number: u32) {
        let place = core::mem::take(&mut self.places[number as usize]);
        if let Some(socket) = place.socket {
            self.host.calls.close(socket);
            self.free.push(number);
        }
        self.feed();
    }

    /// Closes a connection once its peer has closed as well, or after a while.
    pub(super) fn leave(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        let over = place.end_read || place.failed.is_some();
        let Some(socket) = place.socket.filter(|_| !over) else {
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

    pub(super) fn poll_accept(
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
            Err(_) => self.retry(RETRY, context),
        }
    }

    pub(super) fn poll_connected(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let error = |calls: &dyn SocketCalls, socket| Ok((calls.error(socket)?, false));
        let result = ready!(self.poll(number, |place| &mut place.write, context, error));
        Poll::Ready(result.map_err(failed))
    }

    pub(super) fn poll_read(
        &mut self,
        number: u32,
        place: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let wanted = place.len();
        self.goes_on(number)?;
        let receive = |calls: &dyn SocketCalls, socket| {
            let count = calls.receive(socket, place)?;
            Ok((count, count < wanted))
        };
        let count = ready!(self.poll(number, |place| &mut place.read, context, receive));
        if count == Ok(0) {
            self.places[number as usize].end_read = true;
        }
        Poll::Ready(self.noted(number, count))
    }

    pub(super) fn poll_take(
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

    pub(super) fn poll_write(
        &mut self,
        number: u32,
        slices: &Slices<'_>,
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        if self.places[number as usize].shut {
            return Poll::Ready(Err(Error::Failed(Failed::Closed)));
        }
        self.goes_on(number)?;
        let mut parts: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        let places = parts.iter_mut().zip(slices.parts());
        let (mut wanted, mut used) = (0, 0);
        for (place, part) in places {
            *place = part;
            wanted += part.len();
            used += 1;
        }
        let send = |calls: &dyn SocketCalls, socket| {
            let count = match &parts[..used] {
                [one] => calls.send(socket, one)?,
                several => calls.send_vectored(socket, several)?,
            };
            Ok((count, count < wanted))
        };
        let count = ready!(self.poll(number, |place| &mut place.write, context, send));
        Poll::Ready(self.noted(number, count))
    }

    /// Sends no more.
    pub(super) fn shutdown(&mut self, number: u32) {
        self.places[number as usize].shut = true;
        self.with_socket(number, |calls, socket| calls.shutdown(socket));
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, number: u32) {
        self.with_socket(number, |calls, socket| calls.abort(socket));
        let place = &mut self.places[number as usize];
        place.failed = Some(Errno::ABORTED);
        place.read.tell();
        place.write.tell();
    }

    /// Waits until the peer has acknowledged what was written, and the end if it was told.
    pub(super) fn poll_acknowledged(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        self.goes_on(number)?;
        let mut info = [0; TCP_INFO_BYTES];
        let mut told = Err(Errno::INVALID);
        self.with_socket(number, |calls, socket| {
            told = calls.tcp_info(socket, &mut info);
            let closed = told.is_ok() && report::is_closed(&info);
            if let Err(error) = calls.error(socket)
                && closed
            {
                told = Err(error);
            }
        });
        let len = self.noted(number, told)?;
        match report::is_acknowledged(&info[..len.min(TCP_INFO_BYTES)]) {
            Some(true) => Poll::Ready(Ok(())),
            Some(false) => self.retry(ACKNOWLEDGED_LOOK, context),
            // Linux is too old to tell.
            None => Poll::Ready(Err(Error::Host(Errno::INVALID))),
        }
    }

    /// What is known of a connection.
    pub(super) fn report(&self, number: u32) -> Option<Report> {
        let (mut info, mut report) = ([0; TCP_INFO_BYTES], None);
        self.with_socket(number, |calls, socket| {
            let told = calls.tcp_info(socket, &mut info);
            report = told
                .ok()
                .and_then(|len| Report::from_kernel(info.get(..len)?));
        });
        report
    }

    /// A connection that has failed once goes on failing: the kernel says so once.
    fn goes_on(&self, number: u32) -> Result<(), Error> {
        match self.places[number as usize].failed {
            Some(error) => Err(failed(error)),
            None => Ok(()),
        }
    }

    fn noted<T>(&mut self, number: u32, result: Result<T, Errno>) -> Result<T, Error> {
        result.map_err(|error| {
            self.places[number as usize].failed = Some(error);
            failed(error)
        })
    }

    /// The next datagram, and who sent it.
    pub(super) fn poll_receive(
        &mut self,
        number: u32,
        place: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<(usize, SocketAddr), Error>> {
        let receive = |calls: &dyn SocketCalls, socket| {
            let received = calls.receive_from(socket, place)?;
            Ok((received, false))
        };
        let received = ready!(self.poll(number, |place| &mut place.read, context, receive));
        Poll::Ready(received.map_err(failed))
    }

    /// Our end of a socket.
    pub(super) fn local(&self, number: u32) -> SocketAddr {
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
    pub(super) fn with_socket(&self, number: u32, call: impl FnOnce(&dyn SocketCalls, Handle)) {
        if let Some(socket) = self.places[number as usize].socket {
            call(self.host.calls, socket);
        }
    }
}

/// Why a connection does not go on.
pub(super) fn failed(error: Errno) -> Error {
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
pub(super) fn unbound(error: Errno) -> Error {
    match error {
        Errno::IN_USE => Error::Bind(BindError::InUse),
        Errno::FILES | Errno::MACHINE_FILES => Error::Bind(BindError::TooMany),
        Errno::NET_UNREACHABLE | Errno::HOST_UNREACHABLE => {
            Error::Unsent(crate::layer::Unsent::NoRoute)
        }
        other => Error::Host(other),
    }
}

/// Why a datagram did not leave.
pub(super) fn unsent(error: Errno) -> Error {
    use crate::layer::Unsent;
    match error {
        Errno::TOO_LONG => Error::Unsent(Unsent::TooBig),
        Errno::AGAIN | Errno::NO_BUFFERS | Errno::NO_MEMORY => Error::Unsent(Unsent::NoBuffer),
        Errno::NET_UNREACHABLE | Errno::HOST_UNREACHABLE => Error::Unsent(Unsent::NoRoute),
        Errno::REFUSED => failed(error),
        other => Error::Host(other),
    }
}
