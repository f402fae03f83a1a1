//! An appliance that speaks TCP/IP: a stack over the port `service` and all other ports that the
//! manifest has, tasks above it, and the loop that gives both their turns.
//!
//! If the manifest names a state called `connections`, the stack keeps its connections there, and
//! goes on with those that the instance before has left ([`net::socket::Sockets::taken_up`]).
//!
//! Where `service` is `SOCKETS` in the manifest, sockets of the host's take the place of the stack,
//! and where it is a `LINK` that carries sockets, those of a stack in another image. The appliance
//! does not notice.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod below;
mod beside;
#[cfg(feature = "router")]
mod leases;
#[cfg(feature = "router")]
mod routed;
#[cfg(feature = "smoltcp")]
mod smoltcp;
mod sockets;
#[cfg(not(feature = "smoltcp"))]
mod vault;

pub use beside::{Beside, Besides, Server};
#[cfg(feature = "router")]
pub use routed::route;
pub use sockets::{Datagrams, Listener, Net, Stream};

use abi::inquiry::Subject;
use abi::share::{NET_COUNTERS, NET_COUNTERS_MAX};
use alloc::boxed::Box;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use below::Below;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::time::Duration;
use device::Netif;
use link_sockets::{Own, Table};
#[cfg(not(feature = "smoltcp"))]
use net::address::Prefix;
use net::dns::{Names, Resolver};
use net::host::{HostNet, Table as HostTable};
use net::metrics::{self, Publisher};
use net::options::{HELP, Options};
use net::socket::{Sockets as _, Stream as _};
use net::task::{Clock, Executor, Spawner};
use net::turn::{TASKS_PER_TURN, sleep_until, turn};
use ports::sockets::HostSockets;
#[cfg(feature = "smoltcp")]
use smoltcp::on_port;
use unikernel::{Inquiry, Ready, println};

/// Name of the first port, or of the only one, in the manifest.
const PORT: &str = "service";
/// After the end of an appliance, what it has written may leave for so long.
const LINGER: Duration = Duration::from_secs(2);

/// What an appliance has to work with.
pub struct Service {
    /// Sockets.
    pub net: Net,
    /// Addresses of names.
    pub resolver: Resolver<Net>,
    /// Time.
    pub clock: Clock,
    /// What starts other tasks.
    pub spawner: Spawner,
    /// The words of the command line that are the appliance's own.
    pub arguments: Vec<&'static str>,
    /// What has its turns beside the stack.
    pub beside: Besides,
    /// What the stack says of itself, as of this turn; nothing while nobody is beside it.
    pub own: Rc<RefCell<Vec<Own>>>,
}

/// Options of the stack that mean nothing without one.
const ADDRESSES: [&str; 4] = ["--ipv4", "--ipv6", "--dhcp", "--mtu"];

/// Runs the appliance `name`: what `main` returns is the exit status. `help` are its own options.
pub fn run<F>(name: &str, help: &str, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let (secret, start) = match Start::read(name, help) {
        Ok(read) => read,
        Err(status) => return status,
    };
    let host = unikernel::sockets(PORT);
    let link = host.and_then(|host| Ok((host, unikernel::runtime().socket_link(PORT)?)));
    match link {
        Ok((Some(host), _)) => on_host(host, start, main),
        Ok((None, Some(link))) => on_link(link, start, main),
        Ok((None, None)) => on_port(secret, start, main),
        Err(error) => {
            println!("{name}: {PORT}: {error}");
            abi::exit::FAILURE
        }
    }
}

/// Names of the ports that the stack gets: all that the appliance has not taken for itself,
/// [`PORT`] first.
fn ports() -> Vec<&'static str> {
    let devices = &unikernel::runtime().devices;
    let frames = devices
        .ports()
        .filter(|(name, _)| !devices.socket_links().any(|link| link == *name));
    let free = frames.filter(|(_, index)| !devices.is_taken(*index));
    let mut names: Vec<_> = free.map(|(name, _)| name).collect();
    match names.iter().position(|name| *name == PORT) {
        Some(place) => names[..=place].rotate_right(1),
        // Whoever opens it says what is missing.
        None if names.is_empty() => names.push(PORT),
        None => {}
    }
    names
}

/// What an appliance is started with.
struct Start<'a> {
    name: &'a str,
    /// Names of its ports.
    ports: Vec<&'static str>,
    options: Options,
    arguments: Vec<&'static str>,
    /// For what must not be guessed.
    key: [u8; 16],
}

impl<'a> Start<'a> {
    /// What the command line says, and a secret for the stack's connections.
    ///
    /// # Errors
    /// The exit status, if nothing is to be started: why was said.
    fn read(name: &'a str, help: &str) -> Result<([u8; 16], Self), i32> {
        Self::of(name, help, ports(), unikernel::arguments())
    }

    /// The same of these ports and words.
    ///
    /// # Errors
    /// As above.
    fn of(
        name: &'a str,
        help: &str,
        ports: Vec<&'static str>,
        arguments: impl Iterator<Item = &'static str>,
    ) -> Result<([u8; 16], Self), i32> {
        let (options, arguments) = match Options::take(arguments, &ports) {
            Ok(taken) => taken,
            Err(error) => {
                println!("{name}: {error}");
                return Err(abi::exit::FAILURE);
            }
        };
        if arguments
            .iter()
            .any(|word| matches!(*word, "--help" | "-h"))
        {
            println!("{name}: arguments behind the image:\n\n{help}{HELP}");
            return Err(abi::exit::SUCCESS);
        }
        let Some(seed) = unikernel::seed() else {
            println!("{name}: neither the tender nor the processor has random numbers for secrets");
            return Err(abi::exit::FAILURE);
        };
        let [secret, key] = [&seed[..16], &seed[16..]].map(|half| {
            let mut key = [0; 16];
            key.copy_from_slice(half);
            key
        });
        let start = Self {
            name,
            ports,
            options,
            arguments,
            key,
        };
        Ok((secret, start))
    }

    /// Opens the ports.
    ///
    /// # Errors
    /// The exit status: why was said.
    #[cfg(not(feature = "smoltcp"))]
    fn open(&self) -> Result<Vec<Box<dyn Netif>>, i32> {
        let ports = self.ports.iter().zip(&self.options.ports);
        let open = ports.map(|(port, options)| appliance::port_of_mtu(port, options.mtu));
        open.collect::<Result<Vec<_>, _>>().map_err(|error| {
            println!("{}: {error}", self.name);
            abi::exit::FAILURE
        })
    }

    /// Says which addresses the ports have.
    #[cfg(not(feature = "smoltcp"))]
    fn addresses(&self) -> Vec<String> {
        let ports = self.ports.iter().zip(&self.options.ports);
        let said = ports.flat_map(|(port, options)| {
            let on = move |own: &Prefix<_>| {
                let (address, bits) = (own.address(), own.bits());
                format!("{}: {address}/{bits} on {port}", self.name)
            };
            options.ipv4.iter().map(on)
        });
        said.collect()
    }
}

/// Over sockets of the host's.
fn on_host<F>(host: HostSockets, start: Start<'_>, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let name = start.name;
    if let Some(word) = of_stack() {
        println!("{name}: {word}: addresses and MTU are those of the host; leave it away");
        return abi::exit::FAILURE;
    }
    let table = HostTable::new(host, unikernel::monotonic());
    let below = below::Host {
        table: Rc::new(RefCell::new(table)),
        wait: host.wait,
    };
    let net = Net::Host(HostNet::new(below.table.clone()));
    let said = vec![format!("{name}: the host's sockets as {PORT}")];
    serve(below, net, start, said, main)
}

/// An option on the command line that means nothing without a stack.
fn of_stack() -> Option<&'static str> {
    unikernel::arguments().find(|word| ADDRESSES.iter().any(|option| word.starts_with(option)))
}

/// Over sockets of a stack in another image.
fn on_link<F>(port: Box<dyn Netif>, start: Start<'_>, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let name = start.name;
    if let Some(word) = of_stack() {
        println!("{name}: {word}: addresses and MTU are the other image's; write it there");
        return abi::exit::FAILURE;
    }
    let (memory, now) = (below::queues_bytes(), unikernel::monotonic());
    let table = Table::new(port, memory, beside::session(), now);
    let below = below::Link {
        name: name.into(),
        table: Rc::new(RefCell::new(table)),
    };
    let net = Net::Link(link_sockets::Net::new(below.table.clone()));
    let said = vec![format!("{name}: sockets of another image as {PORT}")];
    serve(below, net, start, said, main)
}

/// Over a stack on the ports.
#[cfg(not(feature = "smoltcp"))]
fn on_port<F>(secret: [u8; 16], start: Start<'_>, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let name = start.name;
    let opened = match start.open() {
        Ok(opened) => opened,
        Err(status) => return status,
    };
    let opened = opened.into_iter().zip(&start.options.ports).collect();
    let tcp = below::tcp(secret, start.key);
    let taken_up = match vault::take_up(tcp, start.ports.len(), unikernel::monotonic()) {
        Ok(taken_up) => taken_up,
        Err(why) => {
            println!("{name}: {why}");
            return abi::exit::FAILURE;
        }
    };
    let stack = below::stack(opened, taken_up.tcp, taken_up.notes);
    let stack = Rc::new(RefCell::new(stack));
    let mut said = start.addresses();
    said.extend(taken_up.said.map(|said| format!("{name}: {said}")));
    let net = Net::Stack(net::socket::Net::new(stack.clone()));
    serve(stack, net, start, said, main)
}

/// Starts the appliance. `said` is printed once it waits for the first time: it listens then.
fn serve<B, F>(
    below: B,
    net: Net,
    start: Start<'_>,
    said: Vec<String>,
    main: impl FnOnce(Service) -> F,
) -> i32
where
    B: Below,
    F: Future<Output = i32> + 'static,
{
    let Start {
        name,
        ports,
        options,
        ..
    } = start;
    let (executor, clock) = (Executor::new(), Clock::default());
    let resolver = Resolver::new(net.clone(), clock.clone(), start.key);
    resolver.set(Names::with(&options.dns, None));
    let own = Rc::new(RefCell::new(Vec::new()));
    let beside = Besides::default();
    let changed = {
        let resolver = resolver.clone();
        let (own, beside) = (own.clone(), beside.clone());
        move |below: &mut B| {
            let changes = below.changes();
            if !changes.is_empty() {
                resolver.set(Names::with(&options.dns, below.lease().as_ref()));
            }
            if !beside.borrow().is_empty() {
                let mut own = own.borrow_mut();
                own.clear();
                below.addresses(&mut |address, bits| own.push(Own::Address(address, bits)));
                resolver.servers(|server| own.push(Own::Resolver(server)));
            }
            for (port, change) in changes {
                println!("{name}: {change} on {}", ports[port]);
            }
        }
    };
    let first = {
        let net = net.clone();
        move || {
            // Nobody would ever read what comes there.
            while let Some(stream) = net.taken_up() {
                stream.abort();
            }
            said.iter().for_each(|line| println!("{line}"));
        }
    };
    let main = main(Service {
        beside: beside.clone(),
        own,
        net,
        resolver,
        clock: clock.clone(),
        spawner: executor.spawner(),
        arguments: start.arguments,
    });
    turns((below, beside), executor, &clock, changed, first, main)
}

/// What is below and tasks have their turns until the appliance ends. What is to happen `first`
/// does once it waits for the first time.
fn turns<B: Below>(
    (mut below, beside): (B, Besides),
    mut executor: Executor,
    clock: &Clock,
    changed: impl Fn(&mut B),
    first: impl FnOnce() + 'static,
    main: impl Future<Output = i32> + 'static,
) -> i32 {
    let status = Rc::new(Cell::new(None));
    let ended = status.clone();
    executor
        .spawner()
        .spawn(async move { ended.set(Some(main.await)) });
    executor.spawner().spawn(async move { first() });
    const { assert!(metrics::COUNT < NET_COUNTERS_MAX) }
    let runtime = unikernel::runtime();
    let mut publisher = Publisher::new(|number, value| {
        runtime.counter(NET_COUNTERS + number).set(value);
    });
    let mut inquiry = Inquiry::new(&runtime.share, &[Subject::Sockets]);
    let (mut last, mut ready) = (None, Ready::default());
    loop {
        let now = unikernel::monotonic();
        let receive = |below: &mut B| {
            let any = below.receive(now, ready);
            changed(below);
            let others = |any, one: &mut Box<dyn Beside>| one.receive() | any;
            beside.borrow_mut().iter_mut().fold(any, others)
        };
        let send = |below: &mut B| {
            let all = |all, one: &mut Box<dyn Beside>| one.send() & all;
            let all_left = beside.borrow_mut().iter_mut().fold(true, all);
            below.send() & all_left
        };
        let above = (&mut executor, clock);
        let idle = turn(&mut below, above, TASKS_PER_TURN, now, receive, send);
        if let Some(question) = inquiry.question() {
            inquiry.answer(question, |take| below.list(question.from, take));
        }
        publisher.turn(now, |show| below.counts(show));
        if let Some(status) = status.get() {
            let until = *last.get_or_insert(now + LINGER);
            if below.has_left() || now >= until {
                publisher.publish(|show| below.counts(show));
                return status;
            }
        }
        let deadlines = [clock.deadline(), last, publisher.deadline()];
        let deadlines = deadlines.into_iter().flatten().chain([below.deadline()]);
        let beside = beside.borrow();
        let deadlines = deadlines.chain(beside.iter().filter_map(|one| one.deadline()));
        ready = unikernel::wait(sleep_until(idle, deadlines));
    }
}
