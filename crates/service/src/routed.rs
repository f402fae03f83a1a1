//! A router: a stack over its ports, and in front of it a gate that sends packets on.

use crate::below::{self, Below};
use crate::leases::{self, LEASES};
use crate::{Net, Service, Start, ports, serve};
use abi::sockets::Record;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Display;
use core::net::IpAddr;
use filter::Gate;
use net::dhcp::server::{Server, Shelf};
use net::dhcp::{Change, Lease};
use net::dns::Forwarder;
use net::ethernet::Link;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::stack::Stack;
use net::udp::BindError;
use ports::inquiry::Listed;
use routing::{HELP, Offers, Ports, Router, Vlans, lend};
use unikernel::{Instant, Ready, println};

/// Runs the router `name`, as [`crate::run`] runs an appliance: beside its tasks, it sends on the
/// packets that come to it for others. Rules are the host's (`--rules`), or else `built_in`.
///
/// If the manifest names a state called [`filter::STATE`], connections are kept there, and the
/// counters of rules. In one called `leases` it keeps its neighbours, what is lent to it, and what
/// it has lent.
pub fn route<F>(name: &str, help: &str, built_in: &str, main: impl FnOnce(Service) -> F) -> i32
where
    F: Future<Output = i32> + 'static,
{
    let (vlans, arguments) = match Vlans::take(unikernel::arguments(), &ports()) {
        Ok(taken) => taken,
        Err(error) => return failed(name, &error),
    };
    let help = format!("{help}{}", HELP.concat());
    let read = Start::of(name, &help, vlans.names(), arguments.into_iter());
    let (secret, mut start) = match read {
        Ok(read) => read,
        Err(status) => return status,
    };
    vlans.tell(&mut start.options);
    let offers = match Offers::take(&start.arguments, &start.ports, &start.options) {
        Ok((offers, others)) => {
            start.arguments = others;
            offers
        }
        Err(error) => return failed(name, &error),
    };
    let (opened, dropped) = match vlans.open(&start.options, appliance::port_of_mtu) {
        Ok(opened) => opened,
        Err(error) => return failed(name, &error),
    };
    let texts = ["", built_in];
    let gate = Gate::start(unikernel::runtime(), &start.ports, texts, unikernel::seed);
    let gate = match gate {
        Ok(gate) => gate,
        Err(error) => return failed(name, &error),
    };
    let taken_up = match leases::take_up(start.ports.len(), unikernel::monotonic()) {
        Ok(taken_up) => taken_up,
        Err(why) => return failed(name, &why),
    };
    let mut said: Vec<String> = offers.said(&start.ports).collect();
    said.extend(gate.said().map(String::from));
    said.extend(taken_up.said);
    let ports = Ports::new(opened, gate);
    let of_stack = ports.of_stack().into_iter().zip(&start.options.ports);
    let tcp = below::tcp(secret, start.key);
    let stack = below::stack(of_stack.collect(), tcp, taken_up.notes);
    let stack = Rc::new(RefCell::new(stack));
    let servers = servers(&offers, taken_up.shelves, &stack);
    said.extend(go_on(&servers));
    let offered = match offer(&offers, servers, &stack) {
        Ok(offered) => offered,
        Err(error) => return failed(name, &error),
    };
    let main = |service: Service| {
        if let Some(offered) = offered {
            service.spawner.spawn(offered);
        }
        if let Err(error) = forward_names(offers.forwarded(), &service) {
            println!("{name}: port {}: {error}", net::dns::PORT);
        }
        main(service)
    };
    let said = said.into_iter().map(|said| format!("{name}: {said}"));
    let said = start.addresses().into_iter().chain(said).collect();
    let router = Router::new(ports, stack.clone()).with_trunks(dropped);
    let net = Net::Stack(net::socket::Net::new(stack));
    serve(router, net, start, said, main)
}

/// The exit status, once it is said why.
fn failed(name: &str, why: &dyn Display) -> i32 {
    println!("{name}: {why}");
    abi::exit::FAILURE
}

/// What is to be said of addresses that the instance before has lent.
fn go_on(servers: &[(usize, Server)]) -> Option<String> {
    let now = unikernel::monotonic();
    let lent: usize = servers.iter().map(|(_, server)| server.lent(now)).sum();
    (lent > 0).then(|| format!("{LEASES}: {lent} go on"))
}

/// The servers of DHCP at ports, each with what the instance before has lent there, if that was
/// kept.
fn servers(
    offers: &Offers,
    shelves: Vec<Shelf>,
    stack: &Rc<RefCell<Stack<Ipv4, Ipv6>>>,
) -> Vec<(usize, Server)> {
    let now = unikernel::monotonic();
    let mut shelves: Vec<_> = shelves.into_iter().map(Some).collect();
    let servers = offers.servers(|port| stack.borrow_mut().ip.port(port).link.mtu());
    let keep = |(port, server): (usize, Server)| match shelves.get_mut(port).and_then(Option::take)
    {
        Some(shelf) => (port, server.with_shelf(shelf, now)),
        None => (port, server),
    };
    servers.into_iter().map(keep).collect()
}

/// Has ports announce their networks; what answers those who ask for addresses, if somebody is to.
fn offer(
    offers: &Offers,
    servers: Vec<(usize, Server)>,
    stack: &Rc<RefCell<Stack<Ipv4, Ipv6>>>,
) -> Result<Option<impl Future<Output = ()> + use<>>, BindError> {
    let now = unikernel::monotonic();
    for (port, advertised) in offers.advertised() {
        let mut stack = stack.borrow_mut();
        let v6 = &mut stack.ip.port(port).v6;
        assert!(
            v6.advertise(advertised, now),
            "nobody has joined a group yet"
        );
    }
    if servers.is_empty() {
        return Ok(None);
    }
    lend(stack.clone(), servers).map(Some)
}

/// Has questions for names answered at these addresses.
fn forward_names(own: Vec<IpAddr>, service: &Service) -> Result<(), net::socket::Error> {
    let forwarder = Forwarder::new(service.resolver.clone(), own.clone());
    let Service { spawner, clock, .. } = service;
    for own in own {
        spawner.spawn(forwarder.datagrams(own)?);
        spawner.spawn(forwarder.connections(own, clock.clone(), spawner.clone())?);
    }
    Ok(())
}

impl Below for Router {
    fn receive(&mut self, now: Instant, _: Ready) -> bool {
        Self::receive(self, now)
    }

    fn changes(&mut self) -> Vec<(usize, Change)> {
        self.stack.changes()
    }

    fn lease(&mut self) -> Option<Lease> {
        self.stack.lease()
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        Self::counts(self, show);
    }

    fn list(&self, from: u64, take: &mut dyn FnMut(&Record) -> bool) -> Listed {
        Below::list(&self.stack, from, take)
    }

    fn send(&mut self) -> bool {
        Self::send(self)
    }

    fn deadline(&self) -> Instant {
        Below::deadline(&self.stack)
    }

    fn has_left(&self) -> bool {
        self.stack.has_left()
    }
}
