//! Connections that peers open: who listens, and who has begun (RFC 9293, 3.10.7.2; RFC 4987).

use super::below::{Below, mss};
use super::connection::{Agreed, Connection, Greeted, NEVER, Opening};
use super::counted::{Openings, Segments};
use super::half_open::{self, HalfOpen, Taken};
use super::host::{HALF_OPEN_MAX, HALF_OPEN_TICK, ListenerId, SocketId, Tcp, Unusable};
use super::identity::Ends;
use super::input::Dropped;
use super::segment::Segment;
use super::seq::Seq;
use super::socket::wake;
use super::time_wait::Answer;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::task::{Context, Poll, Waker};
use ports::Instant;

pub(super) struct Listener {
    /// On all addresses if unspecified.
    pub(super) local: SocketAddr,
    /// Connections that may wait to be accepted, half open ones included.
    pub(super) backlog: usize,
    pub(super) half_open: usize,
    pub(super) ready: VecDeque<SocketId>,
    pub(super) waker: Option<Waker>,
}

impl Listener {
    fn hears(&self, local: SocketAddr) -> bool {
        let ip = self.local.ip();
        // As everywhere, no address stands for those of both versions.
        let same = ip == local.ip() || ip.is_unspecified();
        same && self.local.port() == local.port()
    }
}

/// What can be seen of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Where it listens.
    pub local: SocketAddr,
    /// Connections that wait to be accepted.
    pub waiting: usize,
    /// How many may wait.
    pub backlog: usize,
}

impl Tcp {
    /// The listeners from this place on, each with its place.
    pub fn listeners_from(&self, first: u32) -> impl Iterator<Item = (u32, Shown)> {
        let places = self.listeners.get(first as usize..).unwrap_or_default();
        let listeners = (first..).zip(places);
        listeners.filter_map(|(place, listener)| {
            let listener = listener.as_ref()?;
            let shown = Shown {
                local: listener.local,
                waiting: listener.ready.len(),
                backlog: listener.backlog,
            };
            Some((place, shown))
        })
    }

    /// Waits for connections to `local`, or to any address of ours if that is unspecified. At most
    /// `backlog` of them wait to be accepted.
    ///
    /// # Errors
    /// If somebody does already.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, Unusable> {
        let taken = |listener: &Option<Listener>| {
            listener
                .as_ref()
                .is_some_and(|listener| listener.local == local)
        };
        if self.listeners.iter().any(taken) {
            return Err(Unusable::InUse);
        }
        let listener = Some(Listener {
            local,
            backlog: backlog.clamp(1, HALF_OPEN_MAX),
            half_open: 0,
            ready: VecDeque::new(),
            waker: None,
        });
        let free = self.listeners.iter().position(Option::is_none);
        let place = free.unwrap_or(self.listeners.len());
        match free {
            Some(place) => self.listeners[place] = listener,
            None => self.listeners.push(listener),
        }
        Ok(ListenerId(place as u32))
    }

    /// Whoever will listen does so by then. Until then, what is for nobody is dropped and not
    /// answered, so that its peer sends it again.
    pub fn listened_from(&mut self, from: Instant) {
        self.listened_from = from;
    }

    /// Listens no more; connections that nobody has accepted are reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        self.half_open
            .retain(|ends, _| !listener.hears(ends.local()));
        for socket in listener.ready {
            self.abort(socket);
            self.leave(socket, Instant::PAST);
        }
    }

    /// The next connection that a peer has opened.
    pub fn poll_accept(&mut self, id: ListenerId, context: &mut Context<'_>) -> Poll<SocketId> {
        match self.listeners.get_mut(id.0 as usize) {
            Some(Some(listener)) => match listener.ready.pop_front() {
                Some(socket) => Poll::Ready(socket),
                None => {
                    listener.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            },
            _ => Poll::Pending,
        }
    }

    pub(super) fn listener(&self, local: SocketAddr) -> Option<usize> {
        // Who listens on one address goes before who listens on all.
        let heard = self
            .listeners
            .iter()
            .enumerate()
            .filter_map(|(place, listener)| {
                let listener = listener.as_ref().filter(|listener| listener.hears(local))?;
                Some((listener.local.ip().is_unspecified(), place))
            });
        heard.min().map(|(_, place)| place)
    }

    /// A segment without a socket; the socket that it opens.
    pub(super) fn greet(
        &mut self,
        below: &mut impl Below,
        ends: &Ends,
        segment: &Segment,
        now: Instant,
    ) -> Option<SocketId> {
        let heard = segment.flags.syn && self.listener(ends.local()).is_some();
        let (secret, hasher) = (&self.secret, &self.hasher);
        let old = self
            .time_waits
            .receive(ends, segment, heard, secret, hasher, now);
        let least = match old {
            Some(Answer::Segment(answer)) => {
                if self.may_answer(now) {
                    self.send_bare(below, ends, &answer);
                }
                return None;
            }
            Some(Answer::Nothing) => return None,
            Some(Answer::Reopens(least)) => Some(least),
            None => None,
        };
        if let Some(half) = self.half_open.get(ends).copied() {
            return self.greet_again(below, ends, &half, segment, now);
        }
        let Some(listener) = self.listener(ends.local()) else {
            self.sums.dropped.add(Dropped::NoConnection);
            if now >= self.listened_from {
                self.reset(below, ends, segment, now);
            }
            return None;
        };
        if segment.flags.syn && !segment.flags.ack && !segment.flags.rst {
            self.answer(below, listener, ends, segment, least, now);
            return None;
        }
        if !segment.flags.ack {
            // RFC 9293, 3.10.7.2, fourth: nobody can have meant it.
            self.sums.dropped.add(Dropped::NoAck);
            return None;
        }
        let mss = mss(below.limits(ends.local().ip(), ends.remote().ip()));
        if let Some(agreed) = self.cookies.returned(ends, segment, mss, now) {
            return self.open(ends, &agreed, None, now);
        }
        self.sums.dropped.add(Dropped::NoConnection);
        if now >= self.in_order_from {
            self.reset(below, ends, segment, now);
        }
        None
    }

    /// A segment of a peer that has begun to open a connection; the socket that it opens.
    fn greet_again(
        &mut self,
        below: &mut impl Below,
        ends: &Ends,
        half: &HalfOpen,
        segment: &Segment,
        now: Instant,
    ) -> Option<SocketId> {
        let flags = segment.flags;
        if flags.syn && !flags.ack && !flags.rst {
            // Where a peer has begun anew, it resets what it does not know (RFC 9293, 3.5.1).
            let answer = half.answer(&self.secret, &self.config, ends, now);
            self.send_bare(below, ends, &answer);
            return None;
        }
        let window = self.config.receive.min(u16::MAX.into());
        match half.takes(segment, window) {
            Taken::Opens => {
                let agreed = half.agreed(&self.secret, ends);
                return self.open(ends, &agreed, Some(half.greeted(now)), now);
            }
            Taken::Refused => self.forget_half_open(ends),
            Taken::Wrong => self.reset(below, ends, segment, now),
            Taken::Outside if self.may_answer(now) => {
                let place = half.place(&self.secret, &self.config, ends, now);
                self.send_bare(below, ends, &place);
            }
            Taken::Outside | Taken::Ignored => {}
        }
        None
    }

    /// A SYN for somebody who listens. `least`: the initial number that an old connection between
    /// these ends leaves.
    fn answer(
        &mut self,
        below: &mut impl Below,
        listener: usize,
        ends: &Ends,
        syn: &Segment,
        least: Option<Seq>,
        now: Instant,
    ) {
        let mss = mss(below.limits(ends.local().ip(), ends.remote().ip()));
        let Some(Some(listener)) = self.listeners.get_mut(listener) else {
            return;
        };
        if listener.ready.len() >= listener.backlog {
            self.sums.dropped.add(Dropped::Backlog);
            return;
        }
        let mut opening = Opening {
            iss: Seq(0),
            stamp_offset: self.secret.stamp_offset(ends),
            mss,
        };
        if listener.half_open >= listener.backlog || self.half_open.len() >= HALF_OPEN_MAX {
            self.sums.segments.add(Segments::Cookies);
            let answer = self.cookies.answer(&self.config, ends, syn, opening, now);
            self.keep_cookies(now);
            self.send_bare(below, ends, &answer);
            return;
        }
        listener.half_open += 1;
        // Whoever goes on from the vault knows nothing of it, but takes a cookie back. Without
        // timestamps, a cookie would cost the connection its options; and it is no number that is
        // higher than another one.
        let is_cookie = self.vault.is_some() && syn.options.timestamps.is_some() && least.is_none();
        if is_cookie {
            let peer_mss = Agreed::of(syn, opening).peer_mss;
            opening.iss = self.cookies.number(ends, syn.seq, peer_mss, now);
            self.keep_cookies(now);
        } else {
            let number = self.secret.initial_number(ends, now);
            opening.iss = least.map_or(number, |least| number.max(least));
        }
        let half = HalfOpen::new(syn, opening, is_cookie, now);
        self.half_open.insert(*ends, half);
        self.half_open_at = self.half_open_at.min(now + HALF_OPEN_TICK);
        let answer = half.answer(&self.secret, &self.config, ends, now);
        self.send_bare(below, ends, &answer);
    }

    /// A cookie leaves: whoever goes on from the vault has to know of which time it is.
    fn keep_cookies(&self, now: Instant) {
        if let Some(vault) = self.vault {
            vault.keep_period(self.cookies.period(now));
        }
    }

    fn forget_half_open(&mut self, ends: &Ends) {
        if self.half_open.remove(ends).is_some()
            && let Some(listener) = self.listener(ends.local())
            && let Some(listener) = &mut self.listeners[listener]
        {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
    }

    /// A peer has acknowledged our answer to its SYN, of which something was `kept` or not; `None`
    /// if nobody has room for it.
    fn open(
        &mut self,
        ends: &Ends,
        agreed: &Agreed,
        kept: Option<Greeted>,
        now: Instant,
    ) -> Option<SocketId> {
        let at = self.listener(ends.local())?;
        let full = self.listeners[at]
            .as_ref()
            .is_none_or(|l| l.ready.len() >= l.backlog);
        if full {
            // The peer sends its data again, and its acknowledgement with it.
            self.sums.dropped.add(Dropped::Backlog);
            return None;
        }
        if self.is_full() {
            self.sums.dropped.add(Dropped::Memory);
            return None;
        }
        if kept.is_some() {
            self.forget_half_open(ends);
        }
        let greeted = kept.unwrap_or(Greeted::Unknown);
        let id = self.insert(*ends, Connection::accept(self.config, agreed, greeted, now));
        if let Some(socket) = self.socket(id) {
            // A peer that waits for us to begin says nothing that would open it again.
            socket.publish();
        }
        self.sums.openings.add(Openings::Passive);
        if let Some(listener) = &mut self.listeners[at] {
            listener.ready.push_back(id);
            wake(&mut listener.waker);
        }
        Some(id)
    }

    /// Repeats answers to SYNs that nobody has acknowledged, and forgets peers.
    pub(super) fn repeat_answers(&mut self, below: &mut impl Below, now: Instant) {
        let clock = half_open::milliseconds(now);
        let due = |half: &HalfOpen| (half.due().wrapping_sub(clock) as i32) <= 0;
        let late: Vec<Ends> = self
            .half_open
            .iter()
            .filter_map(|(ends, half)| due(half).then_some(*ends))
            .collect();
        for ends in late {
            let Some(half) = self.half_open.get_mut(&ends) else {
                continue;
            };
            if half.expire(now) {
                let answer = half.answer(&self.secret, &self.config, &ends, now);
                self.send_bare(below, &ends, &answer);
            } else {
                self.forget_half_open(&ends);
            }
        }
        self.half_open_at = match self.half_open.is_empty() {
            true => NEVER,
            false => now + HALF_OPEN_TICK,
        };
    }
}
