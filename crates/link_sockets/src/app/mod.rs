//! The application's end: all its sockets, and what the stack's image says of them.

mod kept;
mod place;
mod sockets;

pub use sockets::{Listener, Net, Stream, UdpSocket};

use crate::arrived::Datagram;
use crate::fault::Fault;
use crate::message::{Message, OWN_MAX, Own, Reason, SOCKETS_MAX, What};
use crate::window::{Budget, Credit, Window, datagram_cost};
use crate::wire::{self, End, Wire};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Context, Poll, ready};
use core::time::Duration;
use device::Netif;
use net::layer::Unsent;
use net::slices::Slices;
use net::socket::{Ends, Error};
use net::tcp::connection::{Failure, NEVER};
use net::tcp::host::Unusable;
use net::tcp::socket::Error as Failed;
use net::udp::BindError;
use place::{Kind, Place, wake};
use ports::{Errno, Instant};

/// Connections of a listener that come before somebody asks for them.
const ACCEPTED_AHEAD: usize = 8;
/// Who connects while no stack is there waits for one so long.
const STACK_PATIENCE: Duration = Duration::from_secs(10);
/// Groups of a socket.
pub const GROUPS_MAX: usize = 16;

/// A connection that does not go on because its stack is gone.
const GONE: Error = Error::Failed(Failed::Failed(Failure::Reset));

/// All sockets of an application.
pub struct Table {
    wire: Wire,
    places: Vec<Place>,
    free: Vec<u32>,
    budget: Budget,
    /// Some listener could not have a place for its next connection.
    is_short: bool,
    /// Connections of which more has come than the stack knows.
    unsaid: Vec<u32>,
    /// Connections of which the stack does not have all that the one before was sent.
    behind: Vec<u32>,
    now: Instant,
    /// What the stack says of itself.
    own: Vec<Own>,
}

/// What a socket's failure is called.
fn error(reason: Reason) -> Error {
    let failed = |failure| Error::Failed(Failed::Failed(failure));
    match reason {
        Reason::InUse => Error::Unusable(Unusable::InUse),
        Reason::NoRoute => Error::Unusable(Unusable::NoRoute),
        Reason::NoPort => Error::Unusable(Unusable::NoPort),
        Reason::NoPlace => Error::Unusable(Unusable::NoPlace),
        Reason::Refused => failed(Failure::Refused),
        Reason::Reset => failed(Failure::Reset),
        Reason::TimedOut => failed(Failure::TimedOut),
        Reason::Aborted => failed(Failure::Aborted),
        Reason::Denied => Error::Host(Errno::ACCESS),
        Reason::Other => Error::Host(Errno::IO),
    }
}

impl Table {
    /// No socket, over this port. What has arrived may take so many bytes of memory. Another image
    /// has another `session`.
    pub fn new(port: Box<dyn Netif>, memory: usize, session: u64, now: Instant) -> Self {
        Self {
            wire: Wire::new(port, session),
            places: Vec::new(),
            free: Vec::new(),
            budget: Budget::new(memory),
            is_short: false,
            unsaid: Vec::new(),
            behind: Vec::new(),
            now,
            own: Vec::new(),
        }
    }

    /// Begins a turn: takes one batch of frames, and does what time brings; whether there was
    /// anything.
    pub fn receive(&mut self, now: Instant) -> bool {
        self.now = now;
        let any = wire::receive(self);
        if !self.wire.is_met() {
            for number in 0..self.places.len() as u32 {
                let place = self.place(number);
                let is_over = place.patient_until().is_some_and(|until| until <= now);
                match place.outlives() {
                    true if is_over => self.give_up(number),
                    false if is_over => place.fail(Error::Unusable(Unusable::NoRoute)),
                    _ => {}
                }
            }
        }
        any
    }

    /// Sends what there is room for.
    pub fn flush(&mut self) {
        self.send_again();
        self.say_what_came();
        self.wire.flush();
    }

    /// When [`Self::receive`] has something to do although nothing has come.
    pub fn deadline(&self) -> Instant {
        if self.wire.is_met() {
            return NEVER;
        }
        let patient = self.places.iter().filter_map(Place::patient_until);
        patient.min().unwrap_or(NEVER)
    }

    /// Whether the stack has all that was written to sockets that are closed.
    pub fn has_left(&self) -> bool {
        let leaves = |place: &Place| place.is_dropped && (place.is_known || place.outlives());
        let has_left = !self.wire.is_met() || self.wire.has_left();
        has_left && !self.places.iter().any(leaves)
    }

    /// What the stack says of itself; nothing while there is none.
    pub fn own(&self) -> &[Own] {
        &self.own
    }

    /// How often the stack's image was cut off.
    pub fn faults(&self) -> u64 {
        self.wire.faults()
    }

    /// Why it was cut off, once.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.wire.take_fault()
    }

    /// A new place. Its kind says whether what comes to it needs memory.
    fn open(&mut self, kind: Kind, local: SocketAddr, peer: Option<SocketAddr>) -> Option<u32> {
        if self.free.is_empty() && self.places.len() >= SOCKETS_MAX as usize {
            return None;
        }
        let window = match kind {
            Kind::Listener { .. } => Window::new(0),
            Kind::Datagrams { .. } => Window::of_datagrams(self.budget.window()?),
            _ => Window::new(self.budget.window()?),
        };
        let number = self.free.pop().unwrap_or(self.places.len() as u32);
        let since = self.now;
        let place = Place::new(kind, local, peer, window, since + STACK_PATIENCE);
        match self.places.get_mut(number as usize) {
            Some(free) => *free = place,
            None => self.places.push(place),
        }
        Some(number)
    }

    fn place(&mut self, number: u32) -> &mut Place {
        &mut self.places[number as usize]
    }

    /// Tells the stack of a socket, if it is there.
    fn announce(&mut self, number: u32) {
        if !self.wire.is_met() {
            return;
        }
        let place = &mut self.places[number as usize];
        let (local, peer, window) = (place.local, place.peer, place.window.size());
        let what = match &place.kind {
            Kind::Listener { backlog, .. } => What::Listen {
                local,
                backlog: *backlog,
            },
            Kind::Accepted { listener } => What::Accept {
                listener: *listener,
                window,
            },
            Kind::Stream => match (&place.kept, peer) {
                (Some(kept), _) => kept.resume(&mut place.window),
                (None, Some(remote)) => What::Connect { remote, window },
                (None, None) => return,
            },
            Kind::Datagrams { .. } => What::Bind {
                local,
                peer,
                window,
            },
            Kind::Free => return,
        };
        place.is_known = true;
        self.wire.say(&Message::new(number, what));
        if let Kind::Datagrams { groups, .. } = &place.kind {
            for group in groups {
                self.wire.say(&Message::new(number, What::Join(*group)));
            }
        }
        if place.is_aborted {
            self.wire.say(&Message::new(number, What::Abort));
            return;
        }
        for what in place.wishes.iter().flatten() {
            self.wire.say(&Message::new(number, *what));
        }
    }

    /// Has connections come to a listener, as many as may come ahead.
    fn offer(&mut self, listener: u32) {
        loop {
            let place = self.place(listener);
            let Kind::Listener {
                backlog,
                ready,
                offered,
            } = &place.kind
            else {
                return;
            };
            let most = ACCEPTED_AHEAD.min(*backlog as usize).max(1);
            let is_up = place.is_known && place.failed.is_none();
            if !is_up || ready.len() + offered >= most {
                return;
            }
            let local = place.local;
            let Some(number) = self.open(Kind::Accepted { listener }, local, None) else {
                self.is_short = true;
                return;
            };
            if let Kind::Listener { offered, .. } = &mut self.place(listener).kind {
                *offered += 1;
            }
            self.announce(number);
        }
    }

    /// A place is nobody's any more. Listeners that had none get it.
    fn release(&mut self, number: u32) {
        let place = core::mem::take(self.place(number));
        self.budget.give_back(place.window.size());
        self.free.push(number);
        if core::mem::take(&mut self.is_short) {
            (0..self.places.len() as u32).for_each(|listener| self.offer(listener));
        }
    }

    /// Nobody has this socket any more: what was written still leaves.
    fn leave(&mut self, number: u32, how: What<'static>) {
        self.say_came(number);
        let place = &mut self.places[number as usize];
        place.is_dropped = true;
        let mut rest = place.let_go();
        if matches!(place.kind, Kind::Listener { .. }) {
            let to_come = |place: &Place| {
                let is_its =
                    matches!(place.kind, Kind::Accepted { listener } if listener == number);
                is_its && !place.is_dropped
            };
            let all = (0..).zip(&self.places);
            rest.extend(all.filter(|(_, place)| to_come(place)).map(|(n, _)| n));
        }
        let place = &mut self.places[number as usize];
        match (place.is_known, place.is_aborted) {
            // Whether it is resumed or not, the next stack is told.
            (false, _) if place.outlives() => place.close_later(how),
            (true, false) if place.is_behind() && how == What::Close => place.close_later(how),
            (false, _) => self.release(number),
            (true, false) => self.wire.say(&Message::new(number, how)),
            (true, true) => {}
        }
        for number in rest {
            self.leave(number, What::Abort);
        }
    }

    pub(crate) fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<u32, Error> {
        let backlog = backlog.clamp(1, SOCKETS_MAX as usize) as u32;
        let number = self.open(Kind::listener(backlog), local, None);
        let number = number.ok_or(Error::Unusable(Unusable::NoPlace))?;
        self.announce(number);
        self.offer(number);
        Ok(number)
    }

    pub(crate) fn poll_accept(
        &mut self,
        listener: u32,
        context: &Context<'_>,
    ) -> Poll<Result<u32, Error>> {
        let place = self.place(listener);
        if let Kind::Listener { ready, .. } = &mut place.kind
            && let Some(number) = ready.pop_front()
        {
            self.offer(listener);
            return Poll::Ready(Ok(number));
        }
        if let Some(failed) = place.failed {
            return Poll::Ready(Err(failed));
        }
        place.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn connect(&mut self, remote: SocketAddr) -> Result<u32, Error> {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let number = self.open(Kind::Stream, local, Some(remote));
        let number = number.ok_or(Error::Unusable(Unusable::NoPlace))?;
        self.announce(number);
        Ok(number)
    }

    pub(crate) fn poll_open(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let place = self.place(number);
        match (place.failed, place.is_open) {
            (Some(failed), _) => Poll::Ready(Err(failed)),
            (None, true) => Poll::Ready(Ok(())),
            (None, false) => {
                place.writer = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits until something can be read: whether there is more than the end.
    fn poll_readable(
        &mut self,
        number: u32,
        context: &Context<'_>,
        take: impl FnOnce(&mut Place) -> usize,
    ) -> Poll<Result<usize, Error>> {
        let place = &mut self.places[number as usize];
        let count = take(place);
        if count > 0 {
            // No more than the window.
            if let Some(room) = place.window.taken(count as u32)
                && !place.has_ended
                && place.failed.is_none()
            {
                self.wire.say(&Message::new(number, What::Credit(room)));
            }
            return Poll::Ready(Ok(count));
        }
        if let Some(failed) = place.failed {
            return Poll::Ready(Err(failed));
        }
        if place.has_ended {
            return Poll::Ready(Ok(0));
        }
        place.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_read(
        &mut self,
        number: u32,
        to: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        self.poll_readable(number, context, |place| place.arrived.read(to))
    }

    pub(crate) fn poll_take(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Error>> {
        let mut taken = None;
        let read = self.poll_readable(number, context, |place| {
            taken = place.arrived.pop();
            taken.as_ref().map_or(0, Bytes::len)
        });
        read.map_ok(|_| taken)
    }

    pub(crate) fn poll_write(
        &mut self,
        number: u32,
        slices: &Slices<'_>,
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        let left = ready!(self.poll_left(number, context))?;
        let Some(first) = slices.parts().next() else {
            return Poll::Ready(Ok(0));
        };
        let count = first.len().min(left);
        let count = count.min(self.wire.room(count));
        let message = Message::new(number, What::Data(&first[..count]));
        if count == 0 || !self.wire.put(&message) {
            self.wire.wait_for_room(context);
            return Poll::Pending;
        }
        self.places[number as usize].wrote(&first[..count]);
        Poll::Ready(Ok(count))
    }

    /// Waits until some bytes may be sent: how many the stack has room for.
    fn poll_left(&mut self, number: u32, context: &Context<'_>) -> Poll<Result<usize, Error>> {
        let place = &mut self.places[number as usize];
        if place.is_shut {
            return Poll::Ready(Err(Error::Failed(Failed::Closed)));
        }
        if let Some(failed) = place.failed {
            return Poll::Ready(Err(failed));
        }
        match place.left() {
            0 => {
                place.writer = Some(context.waker().clone());
                Poll::Pending
            }
            left => Poll::Ready(Ok(left)),
        }
    }

    /// Waits until [`Self::fill`] has a place.
    pub(crate) fn poll_room(
        &mut self,
        number: u32,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let left = ready!(self.poll_left(number, context))?;
        if self.wire.room(left) == 0 {
            self.wire.wait_for_room(context);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Has `read` put bytes where they leave from; how many it has put there, or `None` if there is
    /// no place.
    pub(crate) fn fill<E>(
        &mut self,
        number: u32,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        let place = &mut self.places[number as usize];
        let left = match place.is_shut || place.failed.is_some() {
            true => 0,
            false => place.left(),
        };
        let filled = self.wire.fill(number, left, read)?;
        Some(filled.map(|bytes| {
            place.wrote(bytes);
            bytes.len()
        }))
    }

    pub(crate) fn shutdown(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        let was_shut = core::mem::replace(&mut place.is_shut, true);
        if !was_shut && place.failed.is_none() && !place.is_behind() {
            self.wire.say(&Message::new(number, What::End));
        }
    }

    pub(crate) fn abort(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        let is_there = place.is_known || place.outlives();
        if is_there && !core::mem::replace(&mut place.is_aborted, true) && place.is_known {
            self.wire.say(&Message::new(number, What::Abort));
        }
        place.fail(Error::Failed(Failed::Failed(Failure::Aborted)));
    }

    /// Asks whether all was acknowledged. The answer is there once so many have come.
    pub(crate) fn ask(&mut self, number: u32) -> u64 {
        let place = &mut self.places[number as usize];
        if place.asked > place.answered {
            // What was written since is not what was asked for.
            place.asked = place.answered + 2;
        } else if place.failed.is_none() {
            place.asked = place.answered + 1;
            if !place.is_behind() {
                self.wire.say(&Message::new(number, What::Ask));
            }
        }
        place.asked
    }

    pub(crate) fn poll_answered(
        &mut self,
        number: u32,
        answer: u64,
        context: &Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let place = self.place(number);
        if let Some(failed) = place.failed {
            return Poll::Ready(Err(failed));
        }
        if place.answered >= answer {
            return Poll::Ready(Ok(()));
        }
        place.asker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Says how a connection is to be.
    pub(crate) fn wish(&mut self, number: u32, what: What<'static>) {
        let place = &mut self.places[number as usize];
        // The next stack is told as well.
        let kind = |what: &What<'static>| core::mem::discriminant(what);
        let is_its = |wish: &What<'static>| kind(wish) == kind(&what);
        let mut wishes = place.wishes.iter_mut();
        if let Some(wish) = wishes.find(|wish| wish.as_ref().is_none_or(is_its)) {
            *wish = Some(what);
        }
        if place.failed.is_none() && place.is_known {
            self.wire.say(&Message::new(number, what));
        }
    }

    pub(crate) fn bind(
        &mut self,
        local: SocketAddr,
        peer: Option<SocketAddr>,
    ) -> Result<u32, Error> {
        let number = self.open(Kind::datagrams(), local, peer);
        let number = number.ok_or(Error::Bind(BindError::TooMany))?;
        self.announce(number);
        Ok(number)
    }

    pub(crate) fn poll_datagram(
        &mut self,
        number: u32,
        to: &mut [u8],
        context: &Context<'_>,
    ) -> Poll<Result<(usize, Ends), Error>> {
        let place = &mut self.places[number as usize];
        if let Some(failed) = place.failure() {
            return Poll::Ready(Err(failed));
        }
        let Some(datagram) = place.pop_datagram() else {
            place.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        if let Some(room) = place.window.taken(datagram_cost(datagram.bytes.len())) {
            self.wire.say(&Message::new(number, What::Credit(room)));
        }
        let count = datagram.bytes.len().min(to.len());
        to[..count].copy_from_slice(&datagram.bytes[..count]);
        let (from, to) = (datagram.remote, datagram.local);
        Poll::Ready(Ok((count, Ends { from, to })))
    }

    pub(crate) fn send(
        &mut self,
        number: u32,
        bytes: &[u8],
        local: IpAddr,
        remote: SocketAddr,
    ) -> Result<(), Error> {
        let longest = self.wire.datagram_max();
        let place = &mut self.places[number as usize];
        if let Some(failed) = place.failure() {
            return Err(failed);
        }
        let cost = datagram_cost(bytes.len());
        // Before it is open nobody knows how much it may.
        if bytes.len() > longest || place.is_open && !place.credit.holds(cost) {
            return Err(Error::Unsent(Unsent::TooBig));
        }
        if !place.is_open {
            return Err(Error::Unsent(match self.wire.is_met() {
                true => Unsent::NoBuffer,
                false => Unsent::NoRoute,
            }));
        }
        let what = What::Datagram {
            remote,
            local,
            bytes,
        };
        let message = Message::new(number, what);
        let has_room = place.credit.left() >= cost as usize && self.wire.room(message.size()) > 0;
        if !has_room || !self.wire.put(&message) {
            return Err(Error::Unsent(Unsent::NoBuffer));
        }
        place.credit.spend(cost);
        Ok(())
    }

    pub(crate) fn join(&mut self, number: u32, group: IpAddr) -> Result<(), Error> {
        if let Kind::Datagrams { groups, .. } = &mut self.places[number as usize].kind {
            if groups.len() >= GROUPS_MAX || !group.is_multicast() {
                return Err(Error::Group);
            }
            groups.push(group);
            self.wire.say(&Message::new(number, What::Join(group)));
        }
        Ok(())
    }

    pub(crate) fn leave_group(&mut self, number: u32, group: IpAddr) {
        if let Kind::Datagrams { groups, .. } = &mut self.places[number as usize].kind
            && let Some(at) = groups.iter().position(|found| *found == group)
        {
            groups.swap_remove(at);
            self.wire.say(&Message::new(number, What::Leave(group)));
        }
    }
}

impl End for Table {
    fn with_wire<T>(&mut self, work: impl FnOnce(&mut Wire) -> T) -> T {
        work(&mut self.wire)
    }

    /// Connections have failed, unless they outlive the stack. What listens, takes datagrams or is
    /// being connected is opened again.
    fn begin_anew(&mut self) {
        self.own.clear();
        let now = self.now;
        for number in 0..self.places.len() as u32 {
            let place = self.place(number);
            place.is_known = false;
            let outlives = place.outlives();
            match &mut place.kind {
                Kind::Free => {}
                Kind::Stream if outlives => self.lose(number),
                Kind::Accepted { .. } => self.release(number),
                _ if place.is_dropped => self.release(number),
                Kind::Stream if place.is_open => place.fail(GONE),
                Kind::Stream if place.until <= now => place.fail(GONE),
                Kind::Stream => place.kept = None,
                Kind::Listener { offered, .. } => {
                    *offered = 0;
                    place.is_open = false;
                }
                Kind::Datagrams { .. } => place.begin_anew(),
            }
        }
        if !self.wire.is_met() {
            return;
        }
        // Before anybody listens, so that the stack knows whose its connections are.
        for number in 0..self.places.len() as u32 {
            if self.place(number).outlives() {
                self.announce(number);
            }
        }
        for number in 0..self.places.len() as u32 {
            let place = self.place(number);
            if place.failed.is_none() && !place.is_known {
                self.announce(number);
                self.offer(number);
            }
        }
    }

    fn take(&mut self, message: &Message<'_>) -> Result<(), Fault> {
        let number = message.socket;
        if let What::Own(own, is) = message.what {
            return self.heed(number, own, is);
        }
        let place = self.places.get_mut(number as usize);
        let place = place.filter(|place| place.is_known);
        let place = place.ok_or(Fault::Socket(number))?;
        match message.what {
            What::Opened {
                local,
                peer,
                window,
            } => return self.opened(number, local, peer, window),
            What::Failed(_) if matches!(place.kind, Kind::Accepted { .. }) => {
                return Err(Fault::State(number));
            }
            What::Failed(reason) => self.failed(number, error(reason)),
            What::Kept {
                name,
                written,
                read,
            } => return self.keep(number, (name, written, read)),
            What::Resumed { written, window } => return self.resumed(number, written, window),
            What::Data(bytes) => return self.data(number, bytes),
            What::Datagram {
                remote,
                local,
                bytes,
            } => {
                let bytes = Bytes::copy_from_slice(bytes);
                let datagram = Datagram {
                    remote,
                    local,
                    bytes,
                };
                place.datagram(datagram).map_err(|fault| fault(number))?;
            }
            What::Credit(count) => return self.credit(number, count),
            What::End => place.end().map_err(|fault| fault(number))?,
            What::Refused => place.refuse().map_err(|fault| fault(number))?,
            What::Acknowledged => {
                if place.asked <= place.answered {
                    return Err(Fault::State(number));
                }
                place.answered += 1;
                if place.asked > place.answered {
                    self.wire.say(&Message::new(number, What::Ask));
                }
                wake(&mut place.asker);
            }
            What::Closed => match (place.is_dropped, place.is_aborted) {
                (true, _) => self.release(number),
                (false, true) => (place.is_known, place.kept) = (false, None),
                (false, false) => return Err(Fault::State(number)),
            },
            _ => return Err(Fault::Kind),
        }
        Ok(())
    }
}

impl Table {
    /// The stack says something of itself.
    fn heed(&mut self, number: u32, own: Own, is: bool) -> Result<(), Fault> {
        let at = self.own.iter().position(|one| *one == own);
        match (at, is) {
            _ if number != 0 => return Err(Fault::Socket(number)),
            (Some(at), false) => drop(self.own.remove(at)),
            (None, true) if self.own.len() < OWN_MAX => self.own.push(own),
            _ => return Err(Fault::Value),
        }
        Ok(())
    }

    /// The stack has opened a socket.
    fn opened(
        &mut self,
        number: u32,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        window: u32,
    ) -> Result<(), Fault> {
        let place = &mut self.places[number as usize];
        if core::mem::replace(&mut place.is_open, true) {
            return Err(Fault::State(number));
        }
        place.local = local;
        place.credit = Credit::new(window);
        wake(&mut place.writer);
        let Kind::Accepted { listener } = place.kind else {
            return Ok(());
        };
        place.peer = Some(peer.ok_or(Fault::Value)?);
        place.kind = Kind::Stream;
        // A listener that is gone has dropped what was to come to it.
        if place.is_dropped {
            return Ok(());
        }
        let place = self.place(listener);
        if let Kind::Listener { ready, offered, .. } = &mut place.kind {
            *offered = offered.saturating_sub(1);
            ready.push_back(number);
        }
        wake(&mut place.reader);
        Ok(())
    }
}
