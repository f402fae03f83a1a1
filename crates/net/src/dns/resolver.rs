//! The resolver: which names are asked for, whom, and how often.

use super::cache::{Cache, Known};
use super::message::{ALIASES_MAX, ANSWER_MAX, Answer, answer, question};
use super::passed::Asked;
use super::{ADDRESSES_MAX, Error, Name, PORT};
use crate::dhcp::Lease;
use crate::socket::{Datagrams, Sockets, Stream};
use crate::task::Clock;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::hash::Hasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use domain::base::Rtype;
use siphasher::sip::SipHasher24;

/// How long a server may take to answer, in the first round and in the second one.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];
/// Servers that are asked.
const SERVERS_MAX: usize = 4;
/// A name with so many dots is asked for as it is before others are tried (`ndots`).
const DOTS: usize = 1;
/// Datagrams that answer no question of ours before a server is given up.
const STRAY_MAX: usize = 64;
/// Ports that are tried for a socket.
const PORTS_MAX: usize = 8;
/// The first port that a question may come from (RFC 5452, 10).
const FIRST_PORT: u16 = 1024;

/// Who is asked, and where short names are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Servers, in the order in which they are asked.
    pub servers: Vec<IpAddr>,
    /// The port of the servers; [`PORT`] if `None`.
    pub port: Option<u16>,
    /// Domains in which short names are looked for.
    pub search: Vec<Name>,
}

impl Names {
    /// The given servers, and then what a server of DHCP lends.
    pub fn with(given: &[IpAddr], lease: Option<&Lease>) -> Self {
        let lent = lease.into_iter().flat_map(|lease| &lease.servers);
        let lent = lent.copied().map(IpAddr::V4);
        Self {
            servers: given.iter().copied().chain(lent).collect(),
            port: None,
            search: lease.map(|lease| lease.search.clone()).unwrap_or_default(),
        }
    }
}

/// Finds the addresses of names. Clones share what is known.
#[derive(Clone)]
pub struct Resolver<S> {
    sockets: S,
    clock: Clock,
    shared: Rc<Shared>,
}

struct Shared {
    names: RefCell<Names>,
    cache: RefCell<Cache>,
    key: [u8; 16],
    drawn: Cell<u64>,
}

/// What one server says.
enum Said {
    Answer(Answer),
    /// Nothing in time, or nothing that can be used.
    Nothing,
}

impl<S: Sockets> Resolver<S> {
    /// Nobody is asked yet. The key is secret: with it, questions can be foreseen. It may be that
    /// of hash tables as well.
    pub fn new(sockets: S, clock: Clock, key: [u8; 16]) -> Self {
        Self {
            sockets,
            clock,
            shared: Rc::new(Shared {
                names: RefCell::default(),
                cache: RefCell::default(),
                key,
                drawn: Cell::new(0),
            }),
        }
    }

    /// Asks these from now on.
    pub fn set(&self, names: Names) {
        *self.shared.names.borrow_mut() = names;
    }

    /// Shows whom it asks, in their order.
    pub fn servers(&self, show: impl FnMut(IpAddr)) {
        self.shared
            .names
            .borrow()
            .servers
            .iter()
            .copied()
            .for_each(show);
    }

    /// How many answers are kept: at most [`KNOWN_MAX`](super::KNOWN_MAX).
    pub fn known(&self) -> usize {
        self.shared.cache.borrow().len()
    }

    /// The addresses of a name, or of a number that looks like one: those of IPv4 first.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let mut first = Error::NotFound;
        for candidate in self.candidates(name)? {
            match self.addresses(&candidate).await {
                Err(error @ (Error::NotFound | Error::NoAddress)) => {
                    if first == Error::NotFound {
                        first = error;
                    }
                }
                other => return other,
            }
        }
        Err(first)
    }

    /// The names that a user may mean with one, in the order in which they are tried.
    fn candidates(&self, text: &str) -> Result<Vec<Name>, Error> {
        let name: Name = text.parse().map_err(|_| Error::Malformed)?;
        if name.is_root() {
            return Err(Error::Malformed);
        }
        if text.ends_with('.') {
            return Ok(vec![name]);
        }
        let names = self.shared.names.borrow();
        let short = text.trim_end_matches('.');
        let longer = names.search.iter().filter_map(|domain| {
            let whole = alloc::format!("{short}.{domain}");
            whole.parse::<Name>().ok()
        });
        let mut all: Vec<Name> = longer.collect();
        let place = match short.matches('.').count() {
            DOTS.. => 0,
            _ => all.len(),
        };
        all.insert(place, name);
        Ok(all)
    }

    /// Both kinds of addresses of a name, asked for at the same time.
    async fn addresses(&self, name: &Name) -> Known {
        let v4 = pin!(self.lookup(name, Rtype::A));
        let v6 = pin!(self.lookup(name, Rtype::AAAA));
        let (v4, v6) = both(v4, v6).await;
        match (v4, v6) {
            (Ok(mut all), Ok(more)) => {
                all.extend(more);
                match all.is_empty() {
                    true => Err(Error::NoAddress),
                    false => Ok(all),
                }
            }
            // One that some server cannot say is no reason not to use the other one.
            (Ok(some), Err(_)) | (Err(_), Ok(some)) if !some.is_empty() => Ok(some),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// The addresses of one type: an alias that an answer leaves open is asked for in its turn.
    async fn lookup(&self, name: &Name, rtype: Rtype) -> Known {
        let (mut asked, mut kept) = (name.clone(), Duration::MAX);
        for _ in 0..=ALIASES_MAX {
            let now = self.clock.now();
            if let Some(known) = self.shared.cache.borrow().get(&asked, rtype, now) {
                return known;
            }
            let (known, keep) = match self.ask(&asked, rtype).await? {
                Answer::Addresses(mut addresses, keep) => {
                    addresses.truncate(ADDRESSES_MAX);
                    (Ok(addresses), keep)
                }
                Answer::NotFound(keep) => (Err(Error::NotFound), keep),
                Answer::Alias(alias, keep) => {
                    kept = kept.min(keep);
                    asked = alias;
                    continue;
                }
                Answer::Truncated | Answer::Failed | Answer::NoExtensions => {
                    return Err(Error::Silent);
                }
            };
            let (now, keep) = (self.clock.now(), keep.min(kept));
            let mut cache = self.shared.cache.borrow_mut();
            cache.put(name, rtype, known.clone(), keep, now);
            return known;
        }
        Err(Error::Aliases)
    }

    /// What the first server says that says something.
    async fn ask(&self, name: &Name, rtype: Rtype) -> Result<Answer, Error> {
        let (servers, port) = {
            let names = self.shared.names.borrow();
            (names.servers.clone(), names.port.unwrap_or(PORT))
        };
        if servers.is_empty() {
            return Err(Error::NoServer);
        }
        for timeout in TIMEOUTS {
            for server in servers.iter().take(SERVERS_MAX) {
                let server = SocketAddr::new(*server, port);
                match self.ask_one(server, name, rtype, timeout).await {
                    Said::Answer(Answer::Failed | Answer::NoExtensions) | Said::Nothing => {}
                    Said::Answer(answer) => return Ok(answer),
                }
            }
        }
        Err(Error::Silent)
    }

    async fn ask_one(
        &self,
        server: SocketAddr,
        name: &Name,
        rtype: Rtype,
        timeout: Duration,
    ) -> Said {
        for extended in [true, false] {
            let id = self.draw() as u16;
            let Some(asked) = question(id, name, rtype, extended) else {
                return Said::Nothing;
            };
            let read = |bytes: &[u8]| answer(bytes, id, name, rtype);
            let by_udp = self.by_udp(server, &asked, read);
            let said = self.clock.timeout(timeout, by_udp).await.flatten();
            let said = match said {
                Some(Answer::Truncated) => {
                    let by_tcp = self.by_tcp(server, &asked, read);
                    let said = self.clock.timeout(timeout, by_tcp).await.flatten();
                    // What does not fit into the longest message there is never comes.
                    said.filter(|answer| *answer != Answer::Truncated)
                }
                said => said,
            };
            match said {
                Some(Answer::NoExtensions) => {}
                Some(answer) => return Said::Answer(answer),
                None => return Said::Nothing,
            }
        }
        Said::Nothing
    }

    /// What the first server says that answers a client's question, as it is to be told; none of
    /// our `own` addresses is asked.
    pub(super) async fn pass(
        &self,
        asked: &Asked,
        own: &[IpAddr],
        by_tcp: bool,
    ) -> Option<Vec<u8>> {
        let (servers, port) = {
            let names = self.shared.names.borrow();
            (names.servers.clone(), names.port.unwrap_or(PORT))
        };
        let servers = servers.iter().filter(|server| !own.contains(server));
        let servers: Vec<_> = servers.take(SERVERS_MAX).collect();
        for timeout in TIMEOUTS {
            for server in &servers {
                let (server, id) = (SocketAddr::new(**server, port), self.draw() as u16);
                let (question, read) =
                    (asked.to_server(id), |bytes: &[u8]| asked.answer(bytes, id));
                let said = match by_tcp {
                    true => {
                        let said = self.by_tcp(server, &question, read);
                        self.clock.timeout(timeout, said).await
                    }
                    false => {
                        let said = self.by_udp(server, &question, read);
                        self.clock.timeout(timeout, said).await
                    }
                };
                if let Some(Some(answer)) = said {
                    return Some(answer);
                }
            }
        }
        None
    }

    pub(super) fn sockets(&self) -> &S {
        &self.sockets
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// From a port of its own, which nobody can foresee.
    async fn by_udp<T>(
        &self,
        server: SocketAddr,
        asked: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut socket = (0..PORTS_MAX).find_map(|_| {
            let port = FIRST_PORT + (self.draw() % u64::from(u16::MAX - FIRST_PORT)) as u16;
            self.sockets.bind(SocketAddr::new(any, port)).ok()
        })?;
        socket.send(asked, server).ok()?;
        let mut place = vec![0; ANSWER_MAX.into()];
        for _ in 0..STRAY_MAX {
            let (count, from) = socket.receive(&mut place).await.ok()?;
            if from == server
                && let Some(answer) = read(&place[..count])
            {
                return Some(answer);
            }
        }
        None
    }

    /// RFC 7766.
    async fn by_tcp<T>(
        &self,
        server: SocketAddr,
        asked: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let mut stream = self.sockets.connect(server).await.ok()?;
        let len = u16::try_from(asked.len()).ok()?;
        let whole = [&len.to_be_bytes()[..], asked].concat();
        stream.write(&whole).await.ok()?;
        let mut len = [0; 2];
        stream.read_exact(&mut len).await.ok()??;
        let mut bytes = vec![0; u16::from_be_bytes(len).into()];
        stream.read_exact(&mut bytes).await.ok()??;
        read(&bytes)
    }

    /// A number that nobody can foresee without the key.
    fn draw(&self) -> u64 {
        let drawn = self.shared.drawn.get();
        self.shared.drawn.set(drawn + 1);
        let mut hasher = SipHasher24::new_with_key(&self.shared.key);
        hasher.write(b"a question's number or port");
        hasher.write_u64(drawn);
        hasher.finish()
    }
}

/// Waits for both.
async fn both<A: Future + Unpin, B: Future + Unpin>(mut a: A, mut b: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (None, None);
    core::future::poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(done) = pin!(&mut a).poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = pin!(&mut b).poll(context)
        {
            second = Some(done);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}
