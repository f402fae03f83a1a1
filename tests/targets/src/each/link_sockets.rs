//! Either end of a link that carries sockets, and a liar at the other one: no panic, no buffer is
//! lost, what breaks a rule ends a session and nothing else, and whoever keeps the rules afterwards
//! is served. Input: for each frame whom it is for and what is put right in it, its length, and its
//! bytes.

use super::net::LARGE_POOL;
use core::net::{Ipv4Addr, SocketAddr};
use core::pin::pin;
use core::time::Duration;
use device::memory::{MemoryPort, Wire};
use device::{HEADROOM, Pool};
use link_sockets::message::{self, FRAME_HEAD, Message, SOCKETS_MAX, Sessions, What};
use link_sockets::{Allowed, Net, Orphans, Server, Table};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::socket::{self, Datagrams, Listener, Sockets, Stream};
use net::stack::Stack;
use net::task::{Executor, select, yield_now};
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;
use std::cell::RefCell;
use std::rc::Rc;

/// Buffers of all ports.
const BUFFERS: usize = 256;
const BUFFER_BYTES: usize = HEADROOM + 1518;
/// Bytes that may have arrived, at each end, and that queues may hold.
const MEMORY: usize = 1 << 18;
/// Turns behind a frame: what it starts has had its own.
const TURNS: usize = 4;
/// Where the application listens.
const PORT: u16 = 7;
/// Where whoever keeps the rules listens.
const HONEST_PORT: u16 = 70;

thread_local! {
    /// Its memory is never given back, so that all inputs share it.
    static POOL: Pool = Pool::new(vec![0; BUFFERS * BUFFER_BYTES].leak(), BUFFER_BYTES);
}

/// A liar's end of a link.
struct Liar {
    wire: Wire,
    own: u64,
    /// The session of whom he lies to.
    peer: u64,
    /// What was heard last: the sockets that were to listen, and that were opened.
    listens: Vec<u32>,
    opened: Vec<u32>,
}

impl Liar {
    fn new(wire: Wire) -> Self {
        Self {
            wire,
            own: 1,
            peer: 0,
            listens: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// A frame with the right head.
    fn says(&self, to: u64, messages: &[u8]) {
        let mut frame = vec![0; FRAME_HEAD];
        let from = self.own;
        message::put_head(&mut frame, [2; 6], Sessions { from, to });
        frame.extend_from_slice(messages);
        self.wire.arrives(&frame);
    }

    fn hears(&mut self) {
        for frame in self.wire.sent() {
            let (sessions, mut messages) = message::open(&frame).expect("we keep the rules");
            self.peer = sessions.from;
            while let Some((message, rest)) = Message::take(messages).expect("we keep the rules") {
                match message.what {
                    What::Listen { .. } => self.listens.push(message.socket),
                    What::Opened { .. } => self.opened.push(message.socket),
                    _ => {}
                }
                messages = rest;
            }
        }
    }
}

struct World {
    table: Rc<RefCell<Table>>,
    server: Server<socket::Net>,
    stack: Rc<RefCell<Stack<Ipv4, Ipv6>>>,
    executor: Executor,
    /// To the application, and to the stack.
    liars: [Liar; 2],
    now: Instant,
}

pub fn feed(input: &[u8]) {
    let (large, pool) = (LARGE_POOL.with(|pool| *pool), POOL.with(|pool| *pool));
    let mut world = World::new(large, pool);
    world.feed(input);
    world.is_sound();
    drop(world);
    assert_eq!((large.free(), pool.free()), (large.count(), BUFFERS));
}

impl World {
    fn new(large: Pool, pool: Pool) -> Self {
        let now = Instant::PAST + Duration::from_secs(1000);
        let mut v4 = Ipv4::new(large, 1);
        let own = Prefix::new(Ipv4Addr::new(10, 0, 0, 1), 24).expect("one");
        v4.add_address(own, Detect::Later, now);
        let ethernet = Ethernet::new(Box::new(MemoryPort::over("net", pool)));
        let ip = Ip::new(ethernet, v4, Ipv6::new(large, 1));
        let tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [2; 16], MEMORY);
        let stack = Rc::new(RefCell::new(Stack::new(ip, tcp, now)));
        let executor = Executor::new();
        let [(here, to_app), (there, to_stack)] =
            ["app", "stack"].map(|name| MemoryPort::over(name, pool).split());
        let table = Rc::new(RefCell::new(Table::new(Box::new(here), MEMORY, 50, now)));
        executor
            .spawner()
            .spawn(application(Net::new(table.clone())));
        let sockets = socket::Net::new(stack.clone());
        let orphans = Orphans::new(&sockets, 1, Duration::ZERO);
        let sockets = (sockets, executor.spawner(), orphans);
        let mut world = Self {
            table,
            server: Server::new(Box::new(there), sockets, Allowed::all(), MEMORY, 60),
            stack,
            executor,
            liars: [to_app, to_stack].map(Liar::new),
            now,
        };
        world.liars.iter().for_each(|liar| liar.says(0, &[]));
        world.turns();
        world
    }

    fn turns(&mut self) {
        for _ in 0..TURNS {
            self.now = self.now + Duration::from_millis(1);
            self.table.borrow_mut().receive(self.now);
            self.stack.borrow_mut().receive(self.now);
            self.server.receive();
            self.executor.run(64);
            self.table.borrow_mut().flush();
            self.server.flush();
            self.stack.borrow_mut().send();
            self.liars.iter_mut().for_each(Liar::hears);
        }
        assert!(self.server.len() <= SOCKETS_MAX as usize);
    }

    fn feed(&mut self, mut input: &[u8]) {
        while let [what, len, rest @ ..] = input {
            let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
            let liar = &mut self.liars[usize::from(what & 1)];
            match what >> 1 {
                0..100 => liar.says(liar.peer, bytes),
                100..110 => liar.says(0, bytes),
                110..120 => liar.own += 1,
                _ => liar.wire.arrives(bytes),
            }
            if what >> 1 & 1 == 0 {
                self.turns();
            }
            input = rest;
        }
        self.turns();
    }

    /// Whoever keeps the rules from now on is served by both.
    fn is_sound(&mut self) {
        for liar in &mut self.liars {
            liar.own += 1 << 32;
            liar.listens.clear();
            liar.opened.clear();
            liar.says(0, &[]);
        }
        self.turns();
        assert!(!self.liars[0].listens.is_empty(), "nobody listens");
        let local = SocketAddr::from(([10, 0, 0, 1], HONEST_PORT));
        let listen = Message::new(3, What::Listen { local, backlog: 1 });
        let mut bytes = vec![0; listen.size()];
        listen.put(&mut bytes).expect("it fits");
        self.liars[1].says(self.liars[1].peer, &bytes);
        self.turns();
        assert_eq!(self.liars[1].opened, [3]);
        self.executor.run(usize::MAX);
    }
}

/// Uses all that there is, and begins anew whenever something fails.
async fn application(net: Net) {
    let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
    let mut listener = net.listen(at(PORT), 4).expect("there is memory");
    let mut datagrams = net.bind(at(PORT)).expect("there is memory");
    let mut place = [0; 100];
    loop {
        let served = async {
            if let Ok(mut stream) = listener.accept().await {
                while stream.give_back().await.is_ok_and(|count| count > 0) {}
                let _ = stream.acknowledged().await;
            } else {
                listener = net.listen(at(PORT), 4).expect("there is memory");
            }
        };
        let connected = async {
            let mut stream = net.connect(at(80)).await.ok()?;
            stream.write(b"hello").await.ok()?;
            stream.shutdown();
            while stream.take().await.ok()?.is_some() {}
            Some(())
        };
        let returned = async {
            match datagrams.receive(&mut place).await {
                Ok((count, from)) => drop(datagrams.send(&place[..count], from)),
                Err(_) => datagrams = net.bind(at(PORT)).expect("there is memory"),
            }
        };
        // Whoever is first ends the others.
        let (served, connected) = (pin!(served), pin!(connected));
        let either = pin!(select(served, connected));
        select(either, pin!(returned)).await;
        yield_now().await;
    }
}
