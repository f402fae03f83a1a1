//! An appliance that speaks TCP/IP: a stack over the port `service`, tasks above it, and the loop
//! that gives both their turns.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::time::Duration;
use device::{HEADROOM, Netif, Pool};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::{Ethernet, Mac};
use net::ip::Ip;
use net::ipv4::{Ipv4, PACKET_MAX};
use net::ipv6::Ipv6;
use net::options::{HELP, Options};
use net::routes::Route;
use net::socket::Net;
use net::task::{Clock, Executor, Spawner};
use net::tcp::Config;
use net::tcp::connection::NEVER;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use unikernel::{Instant, println};

/// Name of the port in the manifest.
const PORT: &str = "service";
/// Tasks that go on before the port is looked at again.
const TASKS_PER_TURN: usize = 64;
/// Packets that may wait to become whole, or to be cut, at a time.
const LARGE_PACKETS: usize = 8;
/// The part of the image's memory that the queues of all connections may hold.
const QUEUES_PART: u64 = 4;
/// After the end of an appliance, what it has written may leave for so long.
const LINGER: Duration = Duration::from_secs(2);

/// What an appliance has to work with.
pub struct Service {
    /// Sockets.
    pub net: Net,
    /// Time.
    pub clock: Clock,
    /// What starts other tasks.
    pub spawner: Spawner,
    /// The words of the command line that are the appliance's own.
    pub arguments: Vec<&'static str>,
}

type Stack = net::stack::Stack<Ipv4, Ipv6>;

/// Runs the appliance `name`: what `main` returns is the exit status. `help` are its own options.
pub fn run<F>(name: &str, help: &str, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let (options, arguments) = match Options::take(unikernel::arguments()) {
        Ok(taken) => taken,
        Err(error) => {
            println!("{name}: {error}");
            return abi::exit::FAILURE;
        }
    };
    if arguments
        .iter()
        .any(|word| matches!(*word, "--help" | "-h"))
    {
        println!("{name}: arguments behind the image:\n\n{help}{HELP}");
        return abi::exit::SUCCESS;
    }
    let port = match appliance::port(PORT) {
        Ok(port) => port,
        Err(error) => {
            println!("{name}: {error}");
            return abi::exit::FAILURE;
        }
    };
    let Some(seed) = unikernel::seed() else {
        println!("{name}: neither the tender nor the processor has random numbers for secrets");
        return abi::exit::FAILURE;
    };
    let stack = stack(port, &options, seed);
    let (address, bits) = (options.ipv4.address(), options.ipv4.bits());
    println!("{name}: {address}/{bits} on {PORT}");
    turns(Rc::new(RefCell::new(stack)), arguments, main)
}

fn stack(port: Box<dyn Netif>, options: &Options, seed: [u8; 32]) -> Stack {
    let now = unikernel::monotonic();
    let buffer = PACKET_MAX + HEADROOM;
    let large = Pool::new(vec![0; LARGE_PACKETS * buffer].leak(), buffer);
    let [secret, hash_key] = [&seed[..16], &seed[16..]].map(|half| {
        let mut key = [0; 16];
        key.copy_from_slice(half);
        key
    });
    // What varies numbers and times on the wire is no secret, and tells nothing of one.
    let varies = unikernel::wall().as_nanos() as u64 ^ now.0;
    let mut ipv4 = Ipv4::new(large, varies);
    ipv4.add_address(options.ipv4, Detect::Later, now);
    if let Some(gateway) = options.ipv4_gateway {
        ipv4.routes().add(Route {
            network: Prefix::ALL_IPV4,
            gateway: Some(gateway),
        });
    }
    let mut ipv6 = Ipv6::new(large, varies);
    ipv6.autoconfigure(Mac(port.mac()), Detect::Later, now);
    if let Some(address) = options.ipv6 {
        ipv6.add_address(address, Detect::Later, now);
    }
    if let Some(gateway) = options.ipv6_gateway {
        ipv6.routes().add(Route {
            network: Prefix::ALL_IPV6,
            gateway: Some(gateway),
        });
    }
    let ip = Ip::new(Ethernet::new(port), ipv4, ipv6);
    let memory = usize::try_from(unikernel::memory_bytes() / QUEUES_PART).unwrap_or(usize::MAX);
    let tcp = Tcp::new(Config::default(), Secret::new(secret), hash_key, memory);
    Stack::new(ip, tcp, now)
}

/// Port and tasks have their turns until the appliance ends.
fn turns<F>(
    stack: Rc<RefCell<Stack>>,
    arguments: Vec<&'static str>,
    main: impl FnOnce(Service) -> F,
) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let mut executor = Executor::new();
    let clock = Clock::default();
    let main = main(Service {
        net: Net::new(stack.clone()),
        clock: clock.clone(),
        spawner: executor.spawner(),
        arguments,
    });
    let status = Rc::new(Cell::new(None));
    let ended = status.clone();
    executor
        .spawner()
        .spawn(async move { ended.set(Some(main.await)) });
    let mut last = None;
    loop {
        let now = unikernel::monotonic();
        clock.set(now);
        let any = stack.borrow_mut().receive(now);
        let more = executor.run(TASKS_PER_TURN);
        let all_left = stack.borrow_mut().send();
        if let Some(status) = status.get() {
            let until = *last.get_or_insert(now + LINGER);
            if stack.borrow().tcp.sockets().next().is_none() || now >= until {
                return status;
            }
        }
        let idle = !any && !more && all_left;
        let deadline = stack.borrow().deadline();
        let deadline = clock
            .deadline()
            .map_or(deadline, |clock| clock.min(deadline));
        let deadline = last.map_or(deadline, |last: Instant| last.min(deadline));
        unikernel::wait(match deadline {
            _ if !idle => Some(Instant::PAST),
            NEVER => None,
            deadline => Some(deadline),
        });
    }
}
