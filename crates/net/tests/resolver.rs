//! The resolver over the host's sockets, with dnsmasq as its server. Without dnsmasq on the PATH it
//! tries nothing, and says so.

use core::future::poll_fn;
use core::task::{Context, Poll};
use net::dns::{Error as DnsError, Names, Resolver};
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::task::{Clock, Executor};
use net::tcp::queues::Payload;
use net::tcp::socket::Error as Failed;
use ports::Instant;
use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// What is not ready is asked again in the next turn.
fn ready<T>(result: io::Result<T>, context: &Context<'_>) -> Poll<Result<T, Error>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        result => Poll::Ready(result.map_err(|_| Error::Failed(Failed::Closed))),
    }
}

#[derive(Clone)]
struct Host;

struct Never;

struct Datagram(UdpSocket);

struct Connection(TcpStream);

impl Sockets for Host {
    type Listener = Never;
    type Stream = Connection;
    type Datagrams = Datagram;

    fn bind(&self, local: SocketAddr) -> Result<Datagram, Error> {
        let socket = UdpSocket::bind(local).map_err(|_| Error::Failed(Failed::Closed))?;
        socket.set_nonblocking(true).unwrap();
        Ok(Datagram(socket))
    }

    fn listen(&self, _: SocketAddr, _: usize) -> Result<Never, Error> {
        Err(Error::Failed(Failed::Closed))
    }

    async fn connect(&self, remote: SocketAddr) -> Result<Connection, Error> {
        let stream = TcpStream::connect(remote).map_err(|_| Error::Failed(Failed::Closed))?;
        stream.set_nonblocking(true).unwrap();
        Ok(Connection(stream))
    }
}

impl Listener for Never {
    type Stream = Connection;

    async fn accept(&mut self) -> Result<Connection, Error> {
        Err(Error::Failed(Failed::Closed))
    }
}

impl Datagrams for Datagram {
    async fn receive(&mut self, place: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        poll_fn(|context| ready(self.0.recv_from(place), context)).await
    }

    fn send(&mut self, bytes: &[u8], to: SocketAddr) -> Result<(), Error> {
        let sent = self.0.send_to(bytes, to);
        sent.map(drop).map_err(|_| Error::Failed(Failed::Closed))
    }

    fn local(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

impl Stream for Connection {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        poll_fn(|context| ready(self.0.read(place), context)).await
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        Err(Error::Failed(Failed::Closed))
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        poll_fn(|context| ready(self.0.write_all(bytes), context)).await
    }

    fn shutdown(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    async fn acknowledged(&mut self) -> Result<(), Error> {
        Err(Error::Failed(Failed::Closed))
    }

    fn abort(self) {}

    fn set_no_delay(&mut self, no_delay: bool) {
        let _ = self.0.set_nodelay(no_delay);
    }

    fn set_keep_alive(&mut self, _: Option<Duration>) {}

    fn split(self) -> (Self, Self) {
        let other = self.0.try_clone().unwrap();
        (self, Self(other))
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer_addr().unwrap()
    }

    fn local(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// dnsmasq on a port of its own; it ends with this.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn server() -> Option<Server> {
    let port = UdpSocket::bind("127.0.0.1:0")
        .ok()?
        .local_addr()
        .ok()?
        .port();
    let mut command = Command::new("dnsmasq");
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ])
        .args([
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--pid-file=",
        ])
        .args(["--log-facility=-", "--local=/example.org/", "--user="])
        .arg(format!("--port={port}"))
        .arg("--host-record=www.example.org,192.0.2.1,2001:db8::1,300")
        .arg("--cname=alias.example.org,www.example.org")
        .arg("--txt-record=empty.example.org,text");
    for n in 0..100 {
        command.arg(format!("--host-record=big.example.org,192.0.2.{n}"));
    }
    let child = command.stderr(Stdio::null()).spawn().ok()?;
    let server = Server { child, port };
    // It listens at once, or soon.
    for _ in 0..500 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(server);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("dnsmasq does not listen at port {port}");
}

/// What is found of each name, in order.
fn resolve(names: Names, asked: &[&'static str]) -> Vec<Result<Vec<IpAddr>, DnsError>> {
    let (clock, mut executor) = (Clock::default(), Executor::new());
    let resolver = Resolver::new(Host, clock.clone(), [7; 16]);
    resolver.set(names);
    let found = Rc::new(RefCell::new(Vec::new()));
    let (all, asked) = (found.clone(), asked.to_vec());
    executor.spawner().spawn(async move {
        for name in asked {
            let addresses = resolver.resolve(name).await;
            all.borrow_mut().push(addresses);
        }
    });
    let began = std::time::Instant::now();
    while !executor.is_empty() {
        clock.set(Instant::PAST + Duration::from_secs(1) + began.elapsed());
        executor.run(64);
        std::thread::sleep(Duration::from_millis(1));
    }
    found.take()
}

#[test]
fn names_are_found_as_dnsmasq_has_them() {
    let Some(server) = server() else {
        eprintln!("skipped: needs dnsmasq: sudo apt-get install dnsmasq-base");
        return;
    };
    let names = Names {
        servers: vec![Ipv4Addr::LOCALHOST.into()],
        port: Some(server.port),
        search: vec!["example.org".parse().unwrap()],
    };
    let both = || {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        Ok(vec![Ipv4Addr::new(192, 0, 2, 1).into(), v6.into()])
    };
    let found = resolve(
        names.clone(),
        &[
            "www.example.org",
            "WWW.Example.org.",
            "alias.example.org",
            "www",
            "www.",
            "nobody.example.org",
            "empty.example.org",
            "10.0.0.7",
            "fd00::7",
            "no..name",
            ".",
            "www",
        ],
    );
    let expected = [
        both(),
        both(),
        both(),
        both(),
        // Nobody is asked for the root's names: dnsmasq refuses.
        Err(DnsError::Silent),
        Err(DnsError::NotFound),
        Err(DnsError::NoAddress),
        Ok(vec![Ipv4Addr::new(10, 0, 0, 7).into()]),
        Ok(vec![Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7).into()]),
        Err(DnsError::Malformed),
        Err(DnsError::Malformed),
        both(),
    ];
    assert_eq!(found, expected);
    // A hundred addresses do not fit into a datagram; sixteen are taken.
    let found = resolve(names.clone(), &["big.example.org"]);
    assert_eq!(found[0].as_ref().map(Vec::len), Ok(16));
    // The one that is silent comes first.
    let servers = vec![
        Ipv4Addr::new(127, 0, 0, 9).into(),
        Ipv4Addr::LOCALHOST.into(),
    ];
    let names = Names { servers, ..names };
    assert_eq!(resolve(names, &["www.example.org"]), [both()]);
    assert_eq!(resolve(Names::default(), &["x"]), [Err(DnsError::NoServer)]);
}
