//! A resolver of names, and whoever can send to it: no panic, each name has its answer after a
//! bounded number of questions, what is kept is bounded, and nothing is believed that does not come
//! from the server that was asked, with the number and the question that were sent.

use core::future::{pending, ready};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Rtype, Serial, Ttl};
use domain::rdata::{A, Aaaa, Cname, Soa};
use net::dns::{ADDRESSES_MAX, KNOWN_MAX, Name, Names, PORT, Resolver};
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::task::{Clock, Executor};
use net::tcp::queues::Payload;
use net::tcp::socket::Error as Failed;
use ports::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
];
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
/// What servers say, and what nobody says whom one may believe. No two bytes make the one out of
/// the other.
const HONEST: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 9, 8, 7), 0x2001);
const FORGED: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 213, 223, 233), 0xf3f7);
/// Questions for one name: two names that it may mean, two types, nine aliases, two rounds, the
/// servers, with and without extensions.
const QUESTIONS_MAX: usize = 2 * 2 * 9 * 2 * SERVERS.len() * 2;
/// Moments in which something happens, for one name.
const MOMENTS_MAX: usize = 100_000;
/// Names are aliases of each other.
const ALIASES: [&str; 3] = ["a.example", "b.example", "n0.example"];
const GONE: Error = Error::Failed(Failed::Closed);

pub fn feed(input: &[u8]) {
    let (clock, mut executor) = (Clock::default(), Executor::new());
    let world = World(Rc::new(Input {
        bytes: RefCell::new(Vec::from(input).into_iter()),
        questions: Cell::new(0),
    }));
    let resolver = Resolver::new(world.clone(), clock.clone(), [7; 16]);
    resolver.set(Names {
        servers: SERVERS.to_vec(),
        port: None,
        search: vec!["example".parse().expect("it is a name")],
    });
    let mut now = Instant(1_000_000_000);
    clock.set(now);
    while let Some(name) = world.byte() {
        world.0.questions.set(0);
        let resolver = resolver.clone();
        executor.spawner().spawn(async move {
            let text = match name {
                255 => "short".into(),
                _ => format!("n{name}.example"),
            };
            let found = resolver.resolve(&text).await.unwrap_or_default();
            assert!(found.len() <= 2 * ADDRESSES_MAX && resolver.known() <= KNOWN_MAX);
            assert!(!found.iter().any(is_forged), "{text} is {found:?}");
        });
        for _ in 0..MOMENTS_MAX {
            while executor.run(64) {}
            match clock.deadline() {
                Some(next) if !executor.is_empty() => now = now.max(next),
                _ => break,
            }
            clock.set(now);
        }
        assert!(executor.is_empty(), "it never ends");
    }
}

fn is_forged(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => *address == FORGED.0,
        IpAddr::V6(address) => address.segments()[..2] == [FORGED.1; 2],
    }
}

/// What happens: one byte for each decision.
struct Input {
    bytes: RefCell<std::vec::IntoIter<u8>>,
    questions: Cell<usize>,
}

#[derive(Clone)]
struct World(Rc<Input>);

/// A socket that has asked something.
struct Socket {
    world: World,
    asked: Vec<u8>,
    server: SocketAddr,
    /// Of a connection: what still comes.
    comes: Option<std::vec::IntoIter<u8>>,
}

impl World {
    fn byte(&self) -> Option<u8> {
        self.0.bytes.borrow_mut().next()
    }

    fn asked(&self, server: SocketAddr) {
        assert!(SERVERS.contains(&server.ip()) && server.port() == PORT);
        let questions = self.0.questions.get() + 1;
        assert!(questions <= 2 * QUESTIONS_MAX, "it asks without end");
        self.0.questions.set(questions);
    }

    fn socket(&self, server: SocketAddr) -> Socket {
        Socket {
            world: self.clone(),
            asked: Vec::new(),
            server,
            comes: None,
        }
    }

    /// Few bytes are other ones, and the end may be missing.
    fn spoil(&self, bytes: &mut Vec<u8>) {
        for _ in 0..2 {
            if let (Some(place), Some(value)) = (self.byte(), self.byte()) {
                let place = usize::from(place) % bytes.len();
                bytes[place] = value;
            }
        }
        if let Some(cut @ 128..) = self.byte() {
            bytes.truncate(bytes.len() - usize::from(cut) % bytes.len());
        }
    }
}

impl Socket {
    /// What comes next, and from where; `None` if it is nothing.
    fn next(&self) -> Option<Option<(Vec<u8>, SocketAddr)>> {
        let (mut from, answer) = (self.server, |forged| {
            answer(&self.world, &self.asked, forged)
        });
        let bytes = match self.world.byte()? % 12 {
            0 => return None,
            1 => return Some(None),
            2 => {
                from.set_ip(STRANGER);
                answer(true)?
            }
            3 => {
                from.set_port(PORT + 1);
                answer(true)?
            }
            4 => {
                let mut bytes = answer(true)?;
                let place = usize::from(self.world.byte()? % 2);
                bytes[place] ^= self.world.byte()?.max(1);
                bytes
            }
            // A letter of the name is another one.
            5 => {
                let mut bytes = answer(true)?;
                bytes[13] ^= 1;
                bytes
            }
            // Another type.
            6 => {
                let mut bytes = answer(true)?;
                let end = self.question_end()?;
                bytes[end - 3] ^= self.world.byte()?.max(1);
                bytes
            }
            7 | 8 => {
                let mut bytes = answer(false)?;
                self.world.spoil(&mut bytes);
                bytes
            }
            _ => answer(false)?,
        };
        Some(Some((bytes, from)))
    }

    /// Where the question ends.
    fn question_end(&self) -> Option<usize> {
        let message = Message::from_octets(&self.asked[..]).ok()?;
        Some(message.answer().ok()?.pos())
    }
}

/// An answer to a question. What is forged has addresses, and nothing else.
fn answer(world: &World, asked: &[u8], forged: bool) -> Option<Vec<u8>> {
    let asked = Message::from_octets(asked).expect("it is a question");
    let question = asked.sole_question().expect("it is one");
    let name: Name = question.qname().to_string().parse().ok()?;
    let kind = if forged { 0 } else { world.byte()? % 10 };
    let ttl = Ttl::from_secs(u32::from(world.byte()?).pow(3));
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(asked.header().id());
    builder.header_mut().set_qr(true);
    builder.header_mut().set_tc(kind == 4);
    builder.header_mut().set_rcode(match kind {
        5 => Rcode::FORMERR,
        6 => Rcode::SERVFAIL,
        7 => Rcode::NXDOMAIN,
        _ => Rcode::NOERROR,
    });
    let mut builder = builder.question();
    if kind != 5 {
        builder.push(question).ok()?;
    }
    let mut builder = builder.answer();
    let mut owner = name.clone();
    if matches!(kind, 2 | 3) {
        let alias: Name = ALIASES[usize::from(world.byte()?) % ALIASES.len()]
            .parse()
            .ok()?;
        builder.push((owner, ttl, Cname::new(alias.clone()))).ok()?;
        owner = alias;
    }
    if matches!(kind, 0 | 1 | 3) {
        let (v4, v6) = if forged { FORGED } else { HONEST };
        let v6 = Ipv6Addr::new(v6, v6, 0, 0, 0, 0, 0, 1);
        for _ in 0..=world.byte()? % 40 {
            match question.qtype() {
                Rtype::A => builder.push((&owner, ttl, A::new(v4))).ok()?,
                _ => builder.push((&owner, ttl, Aaaa::new(v6))).ok()?,
            }
        }
    }
    let mut builder = builder.authority();
    if kind >= 7 {
        let soa = Soa::new(name.clone(), name.clone(), Serial(1), ttl, ttl, ttl, ttl);
        builder.push((&name, ttl, soa)).ok()?;
    }
    Some(builder.finish())
}

impl Sockets for World {
    type Listener = Never;
    type Stream = Socket;
    type Datagrams = Socket;

    fn bind(&self, local: SocketAddr) -> Result<Socket, Error> {
        assert!(local.port() >= 1024 && local.ip().is_unspecified());
        match self.byte() {
            Some(0) => Err(GONE),
            _ => Ok(self.socket(local)),
        }
    }

    fn listen(&self, _: SocketAddr, _: usize) -> Result<Never, Error> {
        Err(GONE)
    }

    async fn connect(&self, remote: SocketAddr) -> Result<Socket, Error> {
        self.asked(remote);
        match self.byte() {
            None | Some(0) => pending().await,
            Some(1) => Err(GONE),
            _ => Ok(self.socket(remote)),
        }
    }
}

impl Datagrams for Socket {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        match self.next() {
            None => pending().await,
            Some(None) => Err(GONE),
            Some(Some((bytes, from))) => {
                let count = bytes.len().min(place.len());
                place[..count].copy_from_slice(&bytes[..count]);
                ready(Ok((count, from))).await
            }
        }
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        self.world.asked(to);
        (self.asked, self.server) = (bytes.to_vec(), to);
        match self.world.byte() {
            Some(0) => Err(GONE),
            _ => Ok(()),
        }
    }

    fn local(&self) -> SocketAddr {
        self.server
    }
}

impl Stream for Socket {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        if self.comes.is_none() {
            let (bytes, from) = match self.next() {
                None => pending().await,
                Some(None) => return Err(GONE),
                Some(Some(next)) => next,
            };
            // Nobody else can say anything on a connection.
            let bytes = if from == self.server {
                bytes
            } else {
                Vec::new()
            };
            let mut whole = (bytes.len() as u16).to_be_bytes().to_vec();
            if let Some(longer @ 200..) = self.world.byte() {
                whole[0] = longer;
            }
            whole.extend(bytes);
            self.comes = Some(whole.into_iter());
        }
        let comes = self.comes.iter_mut().flatten();
        Ok(place
            .iter_mut()
            .zip(comes)
            .map(|(place, byte)| *place = byte)
            .count())
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        Err(GONE)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.asked = bytes.get(2..).expect("a length comes first").to_vec();
        Ok(())
    }

    fn shutdown(&mut self) {}

    async fn acknowledged(&mut self) -> Result<(), Error> {
        Err(GONE)
    }

    fn abort(self) {}

    fn set_no_delay(&mut self, _: bool) {}

    fn set_keep_alive(&mut self, _: Option<std::time::Duration>) {}

    fn split(self) -> (Self, Self) {
        unreachable!("nobody needs it twice")
    }

    fn peer(&self) -> SocketAddr {
        self.server
    }

    fn local(&self) -> SocketAddr {
        self.server
    }
}

/// Nobody listens.
struct Never;

impl Listener for Never {
    type Stream = Socket;

    async fn accept(&mut self) -> Result<Socket, Error> {
        Err(GONE)
    }
}
