//! Two of them over ports in memory, whose wires the tests carry.

use crate::{Net, Refused, Stack, UdpSocket};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use device::memory::{MemoryPort, Wire};
use net::layer::Unsent;
use net::options::{Options, Port};
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::task::{Clock, Executor};
use net::tcp::connection::Failure;
use net::tcp::host::Unusable;
use net::tcp::socket::Error as Failed;
use net::udp::BindError;
use ports::Instant;

/// Memory for so many connections of 128 KiB.
const CONNECTIONS: usize = 12;
/// Turns of a test; more would be a storm.
const TURNS_MAX: usize = 20_000;
const PORT: u16 = 7;

struct Side {
    stack: Rc<RefCell<Stack>>,
    wire: Wire,
}

fn options(line: &str) -> Port {
    let ports = &["service"];
    let (options, _) = Options::take(line.split(' '), ports).unwrap();
    options.ports[0].clone()
}

/// 10.0.0.1 by 1, 10.0.0.2 by 2.
fn side(number: u8, tso: bool) -> Side {
    let port = MemoryPort::new("net").with_index(number);
    let port = if tso { port.with_tso() } else { port };
    let (port, wire) = port.split();
    let options = options(&alloc::format!("--ipv4=10.0.0.{number}/24"));
    let random = [[number; 16]; 2];
    let memory = CONNECTIONS * (128 << 10);
    let stack = Stack::new(Box::new(port), &options, memory, random, Instant(0)).unwrap();
    Side {
        stack: Rc::new(RefCell::new(stack)),
        wire,
    }
}

struct Pair {
    sides: [Side; 2],
    executor: Executor,
    now: Instant,
    clock: Option<Clock>,
}

impl Pair {
    fn new(tso: bool) -> Self {
        Self {
            sides: [side(1, tso), side(2, tso)],
            executor: Executor::new(),
            now: Instant(1_000_000_000),
            clock: None,
        }
    }

    fn nets(&self) -> [Net; 2] {
        [0, 1].map(|index: usize| Net::new(self.sides[index].stack.clone()))
    }

    /// Until the task has ended.
    fn run(&mut self, task: impl Future<Output = ()> + 'static) {
        let ended = Rc::new(Cell::new(false));
        let end = ended.clone();
        self.executor.spawner().spawn(async move {
            task.await;
            end.set(true);
        });
        for _ in 0..TURNS_MAX {
            if ended.get() {
                return;
            }
            self.now = self.now + Duration::from_millis(1);
            for side in &self.sides {
                side.stack.borrow_mut().receive(self.now);
            }
            if let Some(clock) = &self.clock {
                clock.set(self.now);
            }
            self.executor.run(64);
            for side in &self.sides {
                side.stack.borrow_mut().send();
            }
            let [one, other] = &self.sides;
            one.wire
                .sent()
                .iter()
                .for_each(|frame| other.wire.arrives(frame));
            other
                .wire
                .sent()
                .iter()
                .for_each(|frame| one.wire.arrives(frame));
        }
        panic!("it does not end");
    }
}

fn at(number: u8, port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, number).into(), port)
}

/// Bytes that tell their place.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| ((place * 31) >> 3) as u8).collect()
}

async fn echo(net: Net, backlog: usize) {
    let mut listener = net.listen(at(2, PORT), backlog).unwrap();
    while let Ok(mut stream) = listener.accept().await {
        while let Ok(Some(bytes)) = stream.take().await {
            if stream.write(&bytes).await.is_err() {
                break;
            }
        }
    }
}

#[test]
fn bytes_come_back_and_the_end_as_well() {
    for tso in [false, true] {
        let mut pair = Pair::new(tso);
        let [one, other] = pair.nets();
        pair.executor.spawner().spawn(echo(other, 1));
        let spawner = pair.executor.spawner();
        pair.run(async move {
            let stream = one.connect(at(2, PORT)).await.unwrap();
            assert_eq!(
                (stream.peer(), stream.local().ip()),
                (at(2, PORT), at(1, 0).ip())
            );
            let (mut read, mut write) = stream.split();
            spawner.spawn(async move {
                write.write(&bytes(500_000)).await.unwrap();
                write.shutdown();
                let failed = write.write(b"more").await;
                assert_eq!(failed, Err(Error::Failed(Failed::Closed)));
            });
            let mut place = vec![0; 500_000];
            assert_eq!(read.read_exact(&mut place).await, Ok(Some(())));
            assert_eq!(place, bytes(500_000));
            assert_eq!(read.read(&mut place).await, Ok(0));
        });
    }
}

#[test]
fn more_connections_than_there_is_memory_for_come_one_after_another() {
    let mut pair = Pair::new(false);
    let [one, other] = pair.nets();
    pair.executor.spawner().spawn(echo(other, 4));
    pair.run(async move {
        for _ in 0..3 * CONNECTIONS {
            let mut stream = one.connect(at(2, PORT)).await.unwrap();
            stream.write(b"hello").await.unwrap();
            let mut place = [0; 5];
            assert_eq!(stream.read_exact(&mut place).await, Ok(Some(())));
        }
    });
}

#[test]
fn what_cannot_be_had_is_said() {
    let mut pair = Pair::new(false);
    let [one, _] = pair.nets();
    pair.run(async move {
        let refused = one.connect(at(2, 9)).await.map(|_| ());
        assert_eq!(
            refused,
            Err(Error::Failed(Failed::Failed(Failure::Refused)))
        );
        let far = SocketAddr::new(Ipv4Addr::new(10, 9, 0, 1).into(), 9);
        let nowhere = one.connect(far).await.map(|_| ());
        assert_eq!(nowhere, Err(Error::Unusable(Unusable::NoRoute)));
        let _first = one.listen(at(1, PORT), 1).unwrap();
        let second = one.listen(SocketAddr::from(([0; 4], PORT)), 1).map(|_| ());
        assert_eq!(second, Err(Error::Unusable(Unusable::InUse)));
        let mut first = one.bind(at(1, PORT)).unwrap();
        let second = one.bind(at(1, PORT)).map(|_| ());
        assert_eq!(second, Err(Error::Bind(BindError::InUse)));
        assert_eq!(first.send(b"?", far), Err(Error::Unsent(Unsent::NoRoute)));
        let long = vec![0; 65_508];
        assert_eq!(
            first.send(&long, at(2, 9)),
            Err(Error::Unsent(Unsent::TooBig))
        );
        assert_eq!(
            first.join(Ipv4Addr::new(224, 0, 0, 9).into()),
            Err(Error::Group)
        );
    });
}

#[test]
fn options_that_smoltcp_has_nothing_for_are_refused() {
    let refused = |line: &str| {
        let port = Box::new(MemoryPort::new("net"));
        Stack::new(port, &options(line), 0, [[0; 16]; 2], Instant(0)).err()
    };
    assert_eq!(refused("--dhcp"), Some(Refused::Dhcp));
    let many = ["--ipv6=fd00::2/64"; 8].join(" ");
    assert_eq!(refused(&many), Some(Refused::Addresses(10)));
}

#[test]
fn datagrams_come_back_also_in_fragments() {
    let mut pair = Pair::new(false);
    let [one, other] = pair.nets();
    pair.executor.spawner().spawn(async move {
        let mut socket = other.bind(SocketAddr::from(([0; 4], PORT))).unwrap();
        let mut place = vec![0; 65_536];
        while let Ok((count, ends)) = socket.receive_at(&mut place).await {
            assert_eq!(ends.to, at(2, PORT).ip());
            socket
                .send_from(&place[..count], ends.to, ends.from)
                .unwrap();
        }
    });
    pair.run(async move {
        let mut socket: UdpSocket = one.bind(SocketAddr::from(([0; 4], 0))).unwrap();
        let mut place = vec![0; 65_536];
        for count in [0, 1, 1472, 1473, 60_000] {
            socket.send(&bytes(count), at(2, PORT)).unwrap();
            let (received, from) = socket.receive(&mut place).await.unwrap();
            assert_eq!((&place[..received], from), (&bytes(count)[..], at(2, PORT)));
        }
    });
}

#[test]
fn who_closes_waits_for_acknowledgements_as_long_as_it_likes() {
    let mut pair = Pair::new(false);
    let [one, other] = pair.nets();
    let mut listener = other.listen(at(2, PORT), 4).unwrap();
    let clock = Clock::default();
    pair.clock = Some(clock.clone());
    pair.run(async move {
        let mut stream = one.connect(at(2, PORT)).await.unwrap();
        let mut peer = listener.accept().await.unwrap();
        let slices: [&[u8]; 3] = [b"one ", b"", b"two"];
        stream.write_vectored(&slices).await.unwrap();
        assert_eq!(stream.acknowledged().await, Ok(()));
        let (mut half, stream) = stream.split();
        let closed = stream.close(&clock, Duration::from_secs(10)).await;
        assert_eq!(closed, Ok(Some(())));
        assert_eq!(half.acknowledged().await, Ok(()));
        let mut place = [0; 9];
        assert_eq!(peer.read(&mut place).await, Ok(7));
        assert_eq!(&place[..7], b"one two");
        assert_eq!(peer.read(&mut place).await, Ok(0));

        // Nobody reads, so that not all arrives.
        let stream = one.connect(at(2, PORT)).await.unwrap();
        let peer = listener.accept().await.unwrap();
        let (mut half, stream) = stream.split();
        half.write(&bytes(100 << 10)).await.unwrap();
        let closed = stream.close(&clock, Duration::from_secs(1)).await;
        assert_eq!(closed, Ok(None));
        drop(peer);

        let stream = one.connect(at(2, PORT)).await.unwrap();
        let mut peer = listener.accept().await.unwrap();
        assert_eq!(stream.close(&clock, Duration::ZERO).await, Ok(Some(())));
        let reset = Err(Error::Failed(Failed::Failed(Failure::Reset)));
        assert_eq!(peer.read(&mut place).await, reset);
    });
}

/// smoltcp tells nobody that a peer does not listen.
#[test]
fn a_connected_socket_has_its_peers_datagrams_and_no_others() {
    let mut pair = Pair::new(false);
    let [one, other] = pair.nets();
    pair.run(async move {
        let mut connected = one.connect_datagrams(at(1, 99), at(2, 53)).unwrap();
        let taken = one.bind(at(1, 99)).map(drop);
        assert_eq!(taken, Err(Error::Bind(BindError::InUse)));
        let [mut peer, mut foreign] = [53, 54].map(|port| other.bind(at(2, port)).unwrap());
        connected.send(b"?").unwrap();
        let mut place = [0; 9];
        assert_eq!(peer.receive(&mut place).await, Ok((1, at(1, 99))));
        foreign.send(b"foreign", at(1, 99)).unwrap();
        peer.send(b"peer", at(1, 99)).unwrap();
        assert_eq!(connected.receive(&mut place).await, Ok(4));
        assert_eq!(&place[..4], b"peer");
    });
}
