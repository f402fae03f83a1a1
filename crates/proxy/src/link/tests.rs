//! Two ends of one link, each with a thread of its own: an application and a stack.

use super::*;
use abi::link::{UP, word};
use device::HEADROOM;
use device::memory::MemoryPort;
use link_sockets::{Allowed, Net, Orphans, Server};
use linux::link::make;
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::{Ipv4, PACKET_MAX};
use net::ipv6::Ipv6;
use net::socket::{self, Listener as _, Sockets as _, Stream as _};
use net::stack::Stack;
use net::task::{Clock, Executor, Spawner};
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::turn::{TASKS_PER_TURN, sleep_until, turn};
use net::version::Addresses;
use rustix::io::{pread, pwrite, write};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Data of a bell, and of another event.
const BELL: u64 = 7;
const OTHER: u64 = 8;
/// Memory for what has arrived.
const MEMORY: usize = 8 << 20;
const PORT: u16 = 7;
/// No wait of a test lasts longer.
const PATIENCE: Duration = Duration::from_secs(20);

fn silent(_: &str) {}

fn set() -> OwnedFd {
    epoll::create(epoll::CreateFlags::CLOEXEC).unwrap()
}

/// The same end once more: what a keeper has of it.
fn copy(side: &Side) -> Side {
    let [own, peer, bell, peer_bell] =
        [&side.own, &side.peer, &side.bell, &side.peer_bell].map(|fd| fd.try_clone().unwrap());
    Side {
        own,
        peer,
        bell,
        peer_bell,
    }
}

fn open(side: Side) -> (End, OwnedFd) {
    let set = set();
    let end = End::open(side, None, (set.as_fd(), BELL), silent).unwrap();
    (end, set)
}

fn address(port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 0, 0, 1), port).into()
}

fn stack() -> Rc<RefCell<Stack<Ipv4, Ipv6>>> {
    let buffer = PACKET_MAX + HEADROOM;
    let large = Pool::new(vec![0; 8 * buffer].leak(), buffer);
    let mut ipv4 = Ipv4::new(large, 1);
    let own = Prefix::new(Ipv4Addr::new(10, 0, 0, 1), 24).unwrap();
    ipv4.add_address(own, Detect::Later, now());
    let port = Box::new(MemoryPort::new("net"));
    let ip = Ip::new(Ethernet::new(port), ipv4, Ipv6::new(large, 1));
    let tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [2; 16], 64 << 20);
    Rc::new(RefCell::new(Stack::new(ip, tcp, now())))
}

/// A stack at one end, with `begin` beside its server, until it is killed.
struct StackEnd {
    side: Side,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl StackEnd {
    fn start(side: Side, begin: fn(socket::Net, &Spawner)) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, over) = (copy(&side), is_over.clone());
        let thread = thread::spawn(move || serve(own, &over, begin));
        Self {
            side,
            is_over,
            thread,
        }
    }

    /// It ends between any two instructions, and its keeper notices: what is left of its end.
    fn kill(self) -> Side {
        self.is_over.store(true, Ordering::Relaxed);
        write(&self.side.bell, &1_u64.to_ne_bytes()).unwrap();
        self.thread.join().unwrap();
        let place = (word::STATE * size_of::<u64>()) as u64;
        let mut state = [0; 8];
        pread(&self.side.own, &mut state, place).unwrap();
        let down = u64::from_ne_bytes(state) & !UP;
        pwrite(&self.side.own, &down.to_ne_bytes(), place).unwrap();
        write(&self.side.peer_bell, &1_u64.to_ne_bytes()).unwrap();
        self.side
    }
}

fn serve(side: Side, is_over: &AtomicBool, begin: fn(socket::Net, &Spawner)) {
    let (end, _set) = open(side);
    let mut stack = stack();
    let (mut executor, clock) = (Executor::new(), Clock::default());
    let sockets = socket::Net::new(stack.clone());
    let orphans = Orphans::new(&sockets, 1, Duration::ZERO);
    let sockets = (sockets, executor.spawner(), orphans);
    let port = end.port().unwrap();
    let mut server = Server::new(port, sockets, Allowed::all(), MEMORY, session());
    begin(socket::Net::new(stack.clone()), &executor.spawner());
    let mut events = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let now = now();
        let above = (&mut executor, &clock);
        let server = RefCell::new(&mut server);
        let receive = |stack: &mut Rc<RefCell<Stack<_, _>>>| {
            let any = stack.borrow_mut().receive(now);
            server.borrow_mut().receive() | any
        };
        let send = |stack: &mut Rc<RefCell<Stack<_, _>>>| {
            server.borrow_mut().flush();
            stack.borrow_mut().send()
        };
        let idle = turn(&mut stack, above, TASKS_PER_TURN, now, receive, send);
        let deadlines = clock.deadline().into_iter();
        let deadlines = deadlines.chain([stack.borrow().deadline()]);
        end.wait(sleep_until(idle, deadlines), &mut events).unwrap();
    }
}

/// Sends back what comes to [`PORT`].
fn echo(net: socket::Net, spawner: &Spawner) {
    let again = spawner.clone();
    spawner.spawn(async move {
        let mut listener = net.listen(address(PORT), 8).unwrap();
        while let Ok(mut stream) = listener.accept().await {
            again.spawn(async move {
                let mut place = vec![0; 16 << 10];
                while let Ok(count @ 1..) = stream.read(&mut place).await {
                    if stream.write(&place[..count]).await.is_err() {
                        return;
                    }
                }
                stream.shutdown();
            });
        }
    });
}

fn nothing(_: socket::Net, _: &Spawner) {}

/// An application at the other end.
struct App {
    end: End,
    table: Rc<RefCell<Table>>,
    executor: Executor,
    clock: Clock,
    set: OwnedFd,
    /// Turns so far.
    turns: usize,
    /// Data of the events that the set has told.
    told: Vec<u64>,
}

impl App {
    fn new(side: Side) -> Self {
        let (end, set) = open(side);
        let table = Rc::new(RefCell::new(end.table(MEMORY).unwrap()));
        Self {
            end,
            table,
            executor: Executor::new(),
            clock: Clock::default(),
            set,
            turns: 0,
            told: vec![],
        }
    }

    fn net(&self) -> Net {
        Net::new(self.table.clone())
    }

    fn sockets(&self) -> (Net, Spawner) {
        (self.net(), self.executor.spawner())
    }

    fn turn(&mut self, last: Option<Instant>) {
        let now = now();
        let above = (&mut self.executor, &self.clock);
        let receive = |table: &mut Rc<RefCell<Table>>| table.borrow_mut().receive(now);
        let send = |table: &mut Rc<RefCell<Table>>| {
            table.borrow_mut().flush();
            true
        };
        let idle = turn(&mut self.table, above, TASKS_PER_TURN, now, receive, send);
        let deadlines = self.clock.deadline().into_iter().chain(last);
        let deadlines = deadlines.chain([self.table.borrow().deadline()]);
        let mut events = Vec::new();
        let until = sleep_until(idle, deadlines);
        self.end.wait(until, &mut events).unwrap();
        self.told
            .extend(events.iter().map(|event| event.data.u64()));
        self.turns += 1;
    }

    /// What a task gives.
    fn run<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let given = Rc::new(Cell::new(None));
        let give = given.clone();
        let spawner = self.executor.spawner();
        spawner.spawn(async move { give.set(Some(task.await)) });
        let last = now() + PATIENCE;
        while now() < last {
            if let Some(result) = given.take() {
                return result;
            }
            self.turn(Some(last));
        }
        panic!("it does not end");
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| ((place * 31) >> 3) as u8).collect()
}

/// Sends bytes to the other end's echo, and whether they come back.
async fn goes_round((net, spawner): (Net, Spawner), count: usize) -> bool {
    let stream = net.connect(address(PORT)).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    spawner.spawn(async move {
        writer.write(&bytes(count)).await.unwrap();
        writer.shutdown();
    });
    let (mut received, mut place) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(count @ 1..) = reader.read(&mut place).await {
        received.extend_from_slice(&place[..count]);
    }
    received == bytes(count)
}

#[test]
fn bytes_go_both_ways() {
    let [here, there] = make([64, 16]).unwrap();
    let stack = StackEnd::start(there, echo);
    let mut app = App::new(here);
    let net = app.sockets();
    assert!(app.run(goes_round(net, 3_000_000)));
    stack.kill();
}

#[test]
fn a_listener_is_reached() {
    let [here, there] = make([64, 64]).unwrap();
    // Whoever comes while nobody listens yet comes again.
    let caller = |net: socket::Net, spawner: &Spawner| {
        spawner.spawn(async move {
            let mut stream = loop {
                match net.connect(address(80)).await {
                    Ok(stream) => break stream,
                    Err(_) => net::task::yield_now().await,
                }
            };
            stream.write(b"hello").await.unwrap();
            stream.shutdown();
        });
    };
    let mut app = App::new(here);
    let net = app.net();
    let stack = StackEnd::start(there, caller);
    let (said, peer) = app.run(async move {
        let mut listener = net.listen(address(80), 8).unwrap();
        let mut stream = listener.accept().await.unwrap();
        let (mut said, mut place) = (vec![], [0; 16]);
        while let Ok(count @ 1..) = stream.read(&mut place).await {
            said.extend(&place[..count]);
        }
        (said, stream.peer())
    });
    assert_eq!(
        (said.as_slice(), peer.ip()),
        (&b"hello"[..], address(0).ip())
    );
    stack.kill();
}

#[test]
fn a_stack_that_is_killed_ends_its_connections_and_no_more() {
    let [here, there] = make([64, 64]).unwrap();
    let stack = StackEnd::start(there, echo);
    let mut app = App::new(here);
    let net = app.net();
    let mut stream = app.run(async move {
        let mut stream = net.connect(address(PORT)).await.unwrap();
        stream.write(b"x").await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await, Ok(1));
        stream
    });
    let left = stack.kill();
    assert!(app.run(async move { stream.read(&mut [0; 8]).await.is_err() }));
    let stack = StackEnd::start(left, echo);
    let net = app.sockets();
    assert!(app.run(goes_round(net, 10_000)));
    stack.kill();
}

#[test]
fn an_application_that_is_killed_is_followed_by_another_one() {
    let [here, there] = make([64, 64]).unwrap();
    let stack = StackEnd::start(there, echo);
    for _ in 0..3 {
        let mut app = App::new(copy(&here));
        let net = app.net();
        // What the one before has not closed is still there when this one begins.
        let open = app.run(async move { net.connect(address(PORT)).await.unwrap() });
        let net = app.sockets();
        assert!(app.run(goes_round(net, 10_000)));
        std::mem::forget((open, app));
    }
    stack.kill();
}

#[test]
fn an_end_sleeps_until_somebody_rings_or_its_set_has_something() {
    let [here, there] = make([64, 64]).unwrap();
    let mut app = App::new(here);
    let other = event::new().unwrap();
    epoll::add(&app.set, &other, EventData::new_u64(OTHER), EventFlags::IN).unwrap();
    let stack = StackEnd::start(there, nothing);
    app.run(async { net::task::yield_now().await });
    // Until both have met there is something to do.
    (0..100).for_each(|_| app.turn(Some(now() + Duration::from_millis(1))));
    let (before, begin) = (app.turns, now());
    let pause = Duration::from_millis(200);
    while now() < begin + pause {
        app.turn(Some(begin + pause));
    }
    assert!(
        app.turns - before <= 3,
        "{} turns of no use",
        app.turns - before
    );
    assert!(app.told.is_empty(), "the bell is not told of");
    // Another event ends a sleep without end, at once or when it comes.
    let ringer = other.try_clone().unwrap();
    let ring = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        write(&ringer, &1_u64.to_ne_bytes()).unwrap();
    });
    while app.told.is_empty() {
        app.turn(None);
    }
    ring.join().unwrap();
    // A busy link keeps nobody from hearing of it.
    app.told.clear();
    stack.kill();
    app.turn(Some(Instant::PAST));
    assert_eq!(app.told, [OTHER]);
}

#[test]
fn what_is_no_end_of_a_link_is_refused() {
    let [here, there] = make([1, 1]).unwrap();
    let opened = |side| {
        let set = set();
        End::open(side, None, (set.as_fd(), BELL), silent).err()
    };
    let with = |change: fn(&mut Side, &Side)| {
        let mut side = copy(&here);
        change(&mut side, &there);
        opened(side)
    };
    let same = with(|side, _| side.peer = side.own.try_clone().unwrap());
    assert!(matches!(same, Some(Reason::Same)), "{same:?}");
    let other = with(|side, _| side.peer = memory::sealed("other", 8192).unwrap());
    assert!(matches!(other, Some(Reason::Bytes(8192))), "{other:?}");
    let event = with(|side, there| side.own = there.bell.try_clone().unwrap());
    assert!(matches!(event, Some(Reason::Memory)), "{event:?}");
    let memory = with(|side, there| side.bell = there.own.try_clone().unwrap());
    assert!(matches!(memory, Some(Reason::Event)), "{memory:?}");
    // Who may only read it cannot be the end that writes it.
    let read = with(|side, there| {
        (side.own, side.peer) = (
            there.peer.try_clone().unwrap(),
            there.own.try_clone().unwrap(),
        );
    });
    assert!(matches!(read, Some(Reason::System(..))), "{read:?}");
    assert!(opened(copy(&here)).is_none());
}
