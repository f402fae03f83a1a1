//! A host with a vault, the connections that it goes on with, and what is kept for users that
//! outlive the image.

use super::super::budget::Budget;
use super::super::connection::Connection;
use super::super::cookie::Cookies;
use super::super::host::{Place, SocketId, Tcp};
use super::super::identity::{Purpose, Secret};
use super::super::queues::{ReceiveQueue, SendQueue};
use super::super::socket::{Error, Marks, Socket};
use super::{Heir, Opened};
use core::task::{Context, Poll};
use core::time::Duration;
use ports::Instant;

/// What a peer sends first on a new connection may have been lost with the host before, and what it
/// sends behind that arrives. It sends the first again within this time, and is not reset before.
const OUT_OF_ORDER: Duration = Duration::from_secs(3);

impl Tcp {
    /// The same host, without a connection so far, with a vault: it goes on with the connections
    /// that lie there, at `now`, which may be by another clock. From here on all connections are
    /// kept there, and only bytes that lie there are acknowledged. [`Self::taken_up`] tells which
    /// ones it has.
    ///
    /// A peer that was opening a connection may go on, if it uses timestamps: it brings all that is
    /// to be known of it ([`super::super::cookie`]). Nothing else is taken up: who listens, to whom
    /// we were about to connect, and other secrets are new.
    ///
    /// # Panics
    /// In debug builds, if it has a connection.
    #[must_use]
    pub fn with_vault(mut self, opened: Opened, now: Instant) -> Self {
        debug_assert!(self.places.is_empty(), "there are connections already");
        let Opened { vault, heirs, .. } = opened;
        let pool = vault.pool();
        let most = pool.count() * pool.frame_bytes_max();
        self.budget = Budget::new(self.budget.max().min(most));
        if let Some((secret, period)) = vault.keys() {
            self.cookies = Cookies::go_on(Secret::new(secret), period, now);
            self.in_order_from = now + OUT_OF_ORDER;
        }
        vault.keep_keys(self.cookies.secret().bytes(), self.cookies.period(now));
        self.vault = Some(vault);
        let places = heirs.iter().map(|heir| heir.place + 1).max().unwrap_or(0);
        self.places.resize_with(places as usize, Place::default);
        for heir in heirs {
            self.take_up(heir, now);
        }
        let is_free = |place: &u32| self.places[*place as usize].socket.is_none();
        self.free = (0..places).rev().filter(is_free).collect();
        self
    }

    fn take_up(&mut self, heir: Heir, now: Instant) {
        let Heir {
            place,
            body,
            frames: [send, receive],
        } = heir;
        let berth = self.vault.map(|vault| vault.berth(place));
        let resumed = Connection::resume(&body.saved, self.config, now).ok();
        // Of two between the same ends, the first goes on.
        let new = resumed.filter(|_| self.place_of(&body.ends).is_none());
        let Some(connection) = new else {
            if let Some(berth) = berth {
                berth.retract();
                let frames = send.iter().chain(&receive);
                frames.for_each(|frame| berth.forget(frame));
            }
            return;
        };
        let at = connection.unread;
        let left = body.left != 0;
        let mut socket = Socket::new(body.ends, connection, berth);
        socket.counted = socket.connection.state();
        socket.send = SendQueue::take_up(send);
        socket.receive = ReceiveQueue::take_up(at, receive);
        socket.left = left;
        let id = self.occupy(place, socket);
        if !left {
            self.taken_up.push_back(id);
        }
    }

    /// The next connection that was taken up, once each. One that nobody asks for stays as it is,
    /// and its peer waits.
    pub fn taken_up(&mut self) -> Option<SocketId> {
        self.taken_up.pop_front()
    }

    /// Shows bytes behind the first `skip` ones that have come; how many were looked at, as `look`
    /// says. None are shown at the end. They stay until they are [passed](Self::pass).
    pub fn poll_look(
        &mut self,
        id: SocketId,
        skip: usize,
        context: &Context<'_>,
        look: impl FnOnce(&[u8]) -> Poll<usize>,
    ) -> Poll<Result<usize, Error>> {
        let Some(socket) = self.socket_mut(id) else {
            return Poll::Ready(Ok(0));
        };
        match core::task::ready!(socket.poll_look(skip, context))? {
            [] => Poll::Ready(Ok(0)),
            bytes => look(bytes).map(Ok),
        }
    }

    /// The first `count` bytes that have come are read.
    pub fn pass(&mut self, id: SocketId, count: usize) {
        self.with(id, |socket| socket.pass(count));
    }

    /// Whether a connection outlives the image.
    pub fn is_kept(&mut self, id: SocketId) -> bool {
        self.socket_mut(id)
            .is_some_and(|socket| socket.berth.is_some())
    }

    /// Where the user of a connection is, and a name for it that nobody guesses and that it has
    /// with the next image as well; `None` if it is not kept for that one.
    pub fn marks(&mut self, id: SocketId) -> Option<(u64, Marks)> {
        let (ends, iss, marks) = {
            let socket = self.socket_mut(id)?;
            (socket.ends, socket.connection.iss, socket.marks()?)
        };
        let more = [iss.0, 0, 0];
        let name = self.cookies.secret().number(Purpose::Name, &ends, more);
        Some((name, marks))
    }
}
