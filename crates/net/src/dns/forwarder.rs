//! A forwarder of names (RFC 5625): clients ask it, and it asks a resolver's servers for them.
//!
//! What a client asks is passed on as it is, under a number and from a port that nobody can
//! foresee, and what comes back is passed to the client if it answers that question. Answers are
//! kept for as long as they say. All is bounded: questions under way, of all and of each client,
//! connections, servers, and how long and how often each is asked.

use super::passed::{Asked, Cache, SERVER_FAILURE};
use super::{PORT, Resolver};
use crate::socket::{Datagrams, Error, Listener, Sockets, Stream};
use crate::task::{Clock, Spawner};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::{Future, poll_fn};
use core::net::{IpAddr, SocketAddr};
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;

/// Questions over UDP that are under way at a time, at each address, and those of one client.
const QUESTIONS_MAX: usize = 64;
const QUESTIONS_EACH_MAX: usize = 16;
/// Connections at a time, at each address, and questions that each may ask.
const CONNECTIONS_MAX: usize = 16;
const QUESTIONS_OF_CONNECTION_MAX: usize = 100;
/// How long a connection may say nothing, or not take what it is told.
const IDLE: Duration = Duration::from_secs(10);
/// The longest question that is passed on.
const QUESTION_MAX: usize = 1024;

/// Passes on what clients ask. Clones share what is known.
#[derive(Clone)]
pub struct Forwarder<S> {
    resolver: Resolver<S>,
    shared: Rc<Shared>,
}

struct Shared {
    /// Addresses at which we are asked: nobody there is a server.
    own: Vec<IpAddr>,
    cache: RefCell<Cache>,
}

/// A question that is under way.
struct Pending<'a> {
    from: SocketAddr,
    id: [u8; 2],
    answer: Pin<Box<dyn Future<Output = Vec<u8>> + 'a>>,
}

/// What happens at a socket.
enum Event {
    Came(Result<(usize, SocketAddr), Error>),
    Answered(SocketAddr, Vec<u8>),
}

impl<S: Sockets> Forwarder<S> {
    /// It asks whom the resolver asks; clients ask it at these addresses.
    pub fn new(resolver: Resolver<S>, own: Vec<IpAddr>) -> Self {
        let shared = Shared {
            own,
            cache: RefCell::default(),
        };
        Self {
            resolver,
            shared: Rc::new(shared),
        }
    }

    /// Answers datagrams that come to one of its addresses.
    ///
    /// # Errors
    /// If somebody has a socket there.
    pub fn datagrams(&self, own: IpAddr) -> Result<impl Future<Output = ()> + use<S>, Error> {
        let socket = self.resolver.sockets().bind(SocketAddr::new(own, PORT))?;
        let this = self.clone();
        Ok(async move { this.answer_datagrams(socket).await })
    }

    async fn answer_datagrams(&self, mut socket: S::Datagrams) {
        let mut place = vec![0; QUESTION_MAX + 1];
        let mut pending: Vec<Pending<'_>> = Vec::new();
        loop {
            match next(&mut socket, &mut place, &mut pending).await {
                // What has no buffer to leave in is lost, as it may be on its way.
                Event::Answered(to, answer) => drop(socket.send(&answer, to)),
                Event::Came(Ok((count, from))) => {
                    let bytes = place.get(..count).unwrap_or_default();
                    match Asked::read(bytes) {
                        Ok(asked) => self.begin(&mut pending, asked, from),
                        Err(Some(answer)) => drop(socket.send(&answer, from)),
                        Err(None) => {}
                    }
                }
                // Of one client, who has gone.
                Event::Came(Err(_)) => {}
            }
        }
    }

    /// Has a question answered, unless there are too many: then it is lost, as it may be on its
    /// way.
    fn begin<'a>(&'a self, pending: &mut Vec<Pending<'a>>, asked: Asked, from: SocketAddr) {
        let id = asked.id();
        let of_client = |one: &&Pending<'_>| one.from.ip() == from.ip();
        let is_known = pending.iter().any(|one| one.from == from && one.id == id);
        let count = pending.iter().filter(of_client).count();
        if is_known || pending.len() >= QUESTIONS_MAX || count >= QUESTIONS_EACH_MAX {
            return;
        }
        let answer = Box::pin(async move {
            let answer = self.answer(&asked, false).await;
            asked.over_udp(answer)
        });
        pending.push(Pending { from, id, answer });
    }

    /// Answers over connections to one of its addresses.
    ///
    /// # Errors
    /// If somebody waits there.
    pub fn connections(
        &self,
        own: IpAddr,
        clock: Clock,
        spawner: Spawner,
    ) -> Result<impl Future<Output = ()> + use<S>, Error>
    where
        S: 'static,
    {
        let to = SocketAddr::new(own, PORT);
        let mut listener = self.resolver.sockets().listen(to, CONNECTIONS_MAX)?;
        let this = self.clone();
        Ok(async move {
            let open = Rc::new(Cell::new(0));
            while let Ok(stream) = listener.accept().await {
                if open.get() >= CONNECTIONS_MAX {
                    stream.abort();
                    continue;
                }
                open.set(open.get() + 1);
                let (this, clock, open) = (this.clone(), clock.clone(), open.clone());
                spawner.spawn(async move {
                    this.converse(stream, &clock).await;
                    open.set(open.get() - 1);
                });
            }
        })
    }

    /// Answers one question after the other (RFC 7766), until there are no more. `None` is the end.
    async fn converse(&self, mut stream: S::Stream, clock: &Clock) -> Option<()> {
        for _ in 0..QUESTIONS_OF_CONNECTION_MAX {
            let asked = clock.timeout(IDLE, question(&mut stream)).await??;
            let answer = match Asked::read(&asked) {
                Ok(asked) => self.answer(&asked, true).await,
                Err(answer) => answer?,
            };
            let len = u16::try_from(answer.len()).ok()?.to_be_bytes();
            let whole = [&len[..], &answer].concat();
            clock.timeout(IDLE, stream.write(&whole)).await?.ok()?;
        }
        Some(())
    }

    /// What is known, or what a server says.
    async fn answer(&self, asked: &Asked, by_tcp: bool) -> Vec<u8> {
        let now = self.resolver.clock().now();
        if let Some(known) = self.shared.cache.borrow().get(asked, now) {
            return known;
        }
        let answer = self.resolver.pass(asked, &self.shared.own, by_tcp).await;
        let Some(answer) = answer else {
            return asked.error(SERVER_FAILURE);
        };
        let now = self.resolver.clock().now();
        self.shared.cache.borrow_mut().put(asked, &answer, now);
        answer
    }
}

/// A message from a connection; `None` if there is none, or it is too long.
async fn question(stream: &mut impl Stream) -> Option<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).await.ok()??;
    let len = usize::from(u16::from_be_bytes(len));
    let mut bytes = vec![0; Some(len).filter(|len| *len <= QUESTION_MAX)?];
    stream.read_exact(&mut bytes).await.ok()??;
    Some(bytes)
}

/// What happens next: a datagram, or an answer to one.
async fn next(
    socket: &mut impl Datagrams,
    place: &mut [u8],
    pending: &mut Vec<Pending<'_>>,
) -> Event {
    let mut came = pin!(socket.receive(place));
    poll_fn(|context| {
        if let Poll::Ready(came) = came.as_mut().poll(context) {
            return Poll::Ready(Event::Came(came));
        }
        let ready = pending.iter_mut().enumerate().find_map(|(number, one)| {
            match one.answer.as_mut().poll(context) {
                Poll::Ready(answer) => Some((number, answer)),
                Poll::Pending => None,
            }
        });
        match ready {
            Some((number, answer)) => {
                let one = pending.swap_remove(number);
                Poll::Ready(Event::Answered(one.from, answer))
            }
            None => Poll::Pending,
        }
    })
    .await
}
