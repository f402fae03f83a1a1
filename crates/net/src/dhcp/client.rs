//! The client as a pure function: messages and time go in; what is to be sent and done comes out
//! (RFC 2131, 4.4).

use super::message::{Answer, Lease, Question, Times, parse};
use super::{Dropped, Output};
use crate::counts::Counts;
use crate::ethernet::Mac;
use crate::random::Random;
use core::net::Ipv4Addr;
use core::time::Duration;
use ports::Instant;
use smoltcp::wire::DhcpMessageType;

// RFC 2131, 4.1: from 4 s on, doubled up to 64 s, each time a second more or less.
const RESEND_FIRST: Duration = Duration::from_secs(4);
const RESEND_LAST: Duration = Duration::from_secs(64);
const JITTER: Duration = Duration::from_secs(1);
/// Requests for what was offered before we begin again: a minute (RFC 2131, 3.1, 5).
const REQUESTS_MAX: u32 = 4;
/// Least time between requests for a renewal (RFC 2131, 4.4.5).
const RENEW_MIN: Duration = Duration::from_secs(60);
/// How long we wait before we begin again when an address turned out to be somebody else's
/// (RFC 2131, 3.1, 5), or when a server refuses: one that always does gets no more than that.
const RESTART: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// An earlier host was lent this, and its time is not over.
    Kept(Lease),
    /// No server is known: so many times we have asked for one.
    Selecting(u32),
    /// So many times we have asked for what was offered.
    Requesting(Lease, u32),
    /// Whether somebody else has the address is being found out.
    Checking(Lease),
    /// It is ours.
    Bound(Held),
    /// It is ours, and its server is asked again (T1).
    Renewing(Held),
    /// It is ours, and all servers are asked (T2).
    Rebinding(Held),
}

/// What is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    lease: Lease,
    /// When it was asked for: its times count from there.
    since: Instant,
}

/// A client: what it knows.
#[derive(Debug)]
pub struct Client {
    mac: Mac,
    random: Random,
    state: State,
    /// When the next step is due, if any is.
    due: Option<Instant>,
    xid: u32,
    /// When we began to look for a server.
    began: Instant,
    secs: u16,
    /// When what the next acknowledgement answers was asked.
    asked: Instant,
    dropped: Counts<Dropped>,
}

impl Client {
    /// Asks from now on. RFC 2131, 4.4.1 has a client wait up to ten seconds, so that many that
    /// start together do not ask together; images start when somebody waits for them. The seed
    /// varies times and numbers.
    pub fn new(mac: Mac, seed: u64, now: Instant) -> Self {
        Self {
            mac,
            random: Random::new(seed),
            state: State::Selecting(0),
            due: Some(now),
            xid: 0,
            began: now,
            secs: 0,
            asked: now,
            dropped: Counts::default(),
        }
    }

    /// A client that goes on with what an earlier host of this link address was lent, with what is
    /// left of its times at `now`: it is ours at once, and its server is asked again at once.
    pub fn with_lease(mac: Mac, seed: u64, lease: Lease, now: Instant) -> Self {
        Self {
            state: State::Kept(lease),
            ..Self::new(mac, seed, now)
        }
    }

    /// What is ours now.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(held) | State::Renewing(held) | State::Rebinding(held) => {
                Some(&held.lease)
            }
            _ => None,
        }
    }

    /// When what is ours was asked for.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }

    /// The address that is being checked.
    pub fn checks(&self) -> Option<Ipv4Addr> {
        match &self.state {
            State::Checking(lease) => Some(lease.address.address()),
            _ => None,
        }
    }

    /// Messages that were dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        &self.dropped
    }

    /// When [`Self::poll`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Takes a message that came to the client's port from `from_port`.
    pub fn receive(&mut self, bytes: &[u8], from_port: u16, now: Instant) -> Option<Output> {
        let answer = parse(bytes, from_port, self.mac, self.xid);
        match answer.and_then(|answer| self.take(answer, now)) {
            Ok(output) => output,
            Err(reason) => {
                self.dropped.add(reason);
                None
            }
        }
    }

    /// Whether nobody else has the address that was to be checked.
    pub fn checked(&mut self, is_free: bool, now: Instant) -> Option<Output> {
        let State::Checking(lease) = &self.state else {
            return None;
        };
        let lease = lease.clone();
        if is_free {
            return Some(self.bind(lease));
        }
        let question = Question {
            wanted: Some(lease.address.address()),
            server: Some(lease.server),
            // Nobody waits for an answer to it.
            xid: self.random.number() as u32,
            ..self.question(DhcpMessageType::Decline)
        };
        self.restart(now + RESTART);
        Some(Output::Send(question))
    }

    /// Takes the step that is due; to be called until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<Output> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        match self.state.clone() {
            State::Kept(lease) => {
                self.asked = now;
                let output = self.bind(lease);
                self.due = self.due.map(|_| now);
                Some(output)
            }
            State::Selecting(sent) => Some(self.discover(sent, now)),
            State::Requesting(_, REQUESTS_MAX..) => {
                self.restart(now);
                Some(self.discover(0, now))
            }
            State::Requesting(lease, sent) => Some(self.request(lease, sent, now)),
            State::Checking(_) => None,
            State::Bound(held) | State::Renewing(held) | State::Rebinding(held) => {
                self.renew(held, now)
            }
        }
    }

    fn take(&mut self, answer: Answer, now: Instant) -> Result<Option<Output>, Dropped> {
        match (self.state.clone(), answer) {
            (State::Selecting(1..), Answer::Offer(lease)) => Ok(Some(self.request(lease, 0, now))),
            (State::Requesting(offer, 1..), Answer::Ack(lease)) => {
                if lease.server != offer.server {
                    return Err(Dropped::Server);
                }
                if lease.address.address() != offer.address.address() {
                    return Err(Dropped::Address);
                }
                self.state = State::Checking(lease.clone());
                self.due = None;
                Ok(Some(Output::Check(lease)))
            }
            (State::Requesting(offer, 1..), Answer::Nak(server)) => {
                if server != offer.server {
                    return Err(Dropped::Server);
                }
                self.restart(now + RESTART);
                Ok(None)
            }
            (State::Renewing(held) | State::Rebinding(held), Answer::Ack(lease)) => {
                if lease.address.address() != held.lease.address.address() {
                    return Err(Dropped::Address);
                }
                Ok(Some(self.bind(lease)))
            }
            (State::Renewing(held) | State::Rebinding(held), Answer::Nak(_)) => {
                self.restart(now + RESTART);
                Ok(Some(Output::Lose(held.lease)))
            }
            _ => Err(Dropped::Unexpected),
        }
    }

    /// Looks for servers, from then on.
    fn restart(&mut self, at: Instant) {
        self.state = State::Selecting(0);
        self.began = at;
        self.due = Some(at);
    }

    fn discover(&mut self, sent: u32, now: Instant) -> Output {
        self.state = State::Selecting(sent + 1);
        self.due = Some(now + self.backoff(sent));
        self.xid = self.random.number() as u32;
        self.secs = u16::try_from((now - self.began).as_secs()).unwrap_or(u16::MAX);
        Output::Send(self.question(DhcpMessageType::Discover))
    }

    /// Asks for what was offered, in the same exchange (RFC 2131, 4.4.1).
    fn request(&mut self, lease: Lease, sent: u32, now: Instant) -> Output {
        if sent == 0 {
            self.asked = now;
        }
        let question = Question {
            wanted: Some(lease.address.address()),
            server: Some(lease.server),
            ..self.question(DhcpMessageType::Request)
        };
        self.state = State::Requesting(lease, sent + 1);
        self.due = Some(now + self.backoff(sent));
        Output::Send(question)
    }

    fn bind(&mut self, lease: Lease) -> Output {
        let since = self.asked;
        self.due = lease.times.map(|times| since + times.renewal);
        self.state = State::Bound(Held {
            lease: lease.clone(),
            since,
        });
        Output::Use(lease)
    }

    /// A lease is to be renewed, or has ended (RFC 2131, 4.4.5).
    fn renew(&mut self, held: Held, now: Instant) -> Option<Output> {
        let Times { rebinding, end, .. } = held.lease.times?;
        let (rebinding, end) = (held.since + rebinding, held.since + end);
        if now >= end {
            self.restart(now);
            return Some(Output::Lose(held.lease));
        }
        let is_late = now >= rebinding;
        let until = if is_late { end } else { rebinding };
        self.due = Some(until.min(now + ((until - now) / 2).max(RENEW_MIN)));
        self.asked = now;
        self.xid = self.random.number() as u32;
        self.secs = 0;
        let question = Question {
            ours: held.lease.address.address(),
            to: if is_late {
                Ipv4Addr::BROADCAST
            } else {
                held.lease.server
            },
            ..self.question(DhcpMessageType::Request)
        };
        self.state = if is_late {
            State::Rebinding(held)
        } else {
            State::Renewing(held)
        };
        Some(Output::Send(question))
    }

    fn backoff(&mut self, sent: u32) -> Duration {
        let most = RESEND_FIRST.saturating_mul(1 << sent.min(8));
        most.min(RESEND_LAST) - JITTER + self.random.within(2 * JITTER)
    }

    /// A message of this exchange to all servers.
    fn question(&self, kind: DhcpMessageType) -> Question {
        Question {
            kind,
            xid: self.xid,
            secs: self.secs,
            mac: self.mac,
            ours: Ipv4Addr::UNSPECIFIED,
            wanted: None,
            server: None,
            to: Ipv4Addr::BROADCAST,
        }
    }
}
