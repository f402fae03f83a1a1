//! What sockets rest on, and its turns: a stack over a port, the host, or another image.

use abi::sockets::Record;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::IpAddr;
use device::{HEADROOM, Netif, Pool, WaitHandle};
use link_sockets::Table as Sockets;
use net::address::Prefix;
use net::arp::Detect;
use net::dhcp::{Change, Lease};
use net::ethernet::{Ethernet, Mac};
use net::host::Table;
use net::ip::Ip;
use net::ipv4::{Ipv4, PACKET_MAX};
use net::ipv6::Ipv6;
use net::notes::Notes;
use net::options::Port;
use net::routes::Route;
use net::stack::Stack;
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::version::{Addresses, Standing};
use ports::inquiry::Listed;
use unikernel::{Instant, Ready, println};

/// Packets that may wait to become whole, or to be cut, at a time.
const LARGE_PACKETS: usize = 8;
/// The part of the image's memory that the queues of all connections may hold.
const QUEUES_PART: u64 = 4;
/// How often it is said that another image breaks the rules, so that one that does nothing else
/// does not fill the console.
pub const FAULTS_SAID: u64 = 100;

/// What sockets rest on.
pub trait Below {
    /// Takes in what has come, a bounded part of it, and what time brings; whether there was
    /// something. `ready` is what the last wait has told.
    fn receive(&mut self, now: Instant, ready: Ready) -> bool;

    /// What has become of addresses that servers lend, since the last time that somebody asked,
    /// each with the number of its port. A stack elsewhere has its own.
    fn changes(&mut self) -> Vec<(usize, Change)> {
        Vec::new()
    }

    /// What a server lends by now, of several the first.
    fn lease(&mut self) -> Option<Lease> {
        None
    }

    /// Shows the addresses of its own that are in use, and the bits of their networks. A stack
    /// elsewhere has its own.
    fn addresses(&self, _: &mut dyn FnMut(IpAddr, u8)) {}

    /// Shows what was counted, by the names of [`net::metrics`]. A stack elsewhere counts itself.
    fn counts(&self, _: &mut dyn FnMut(&'static str, u64)) {}

    /// Lists sockets from this place on, 0 at the beginning. Those of a stack elsewhere are listed
    /// there.
    fn list(&self, _: u64, _: &mut dyn FnMut(&Record) -> bool) -> Listed {
        Listed::default()
    }

    /// Sends what is to be sent; `false` if more is to leave.
    fn send(&mut self) -> bool;

    /// When [`Self::receive`] has something to do although nothing has come.
    fn deadline(&self) -> Instant;

    /// Whether all that was written has left.
    fn has_left(&self) -> bool;
}

impl Below for Rc<RefCell<Stack<Ipv4, Ipv6>>> {
    fn receive(&mut self, now: Instant, _: Ready) -> bool {
        self.borrow_mut().receive(now)
    }

    fn changes(&mut self) -> Vec<(usize, Change)> {
        let mut stack = self.borrow_mut();
        let changes = stack.dhcp();
        let changes = changes.filter_map(|(port, dhcp)| Some((port, dhcp.change()?)));
        changes.collect()
    }

    fn lease(&mut self) -> Option<Lease> {
        let mut stack = self.borrow_mut();
        let mut leases = stack.dhcp().filter_map(|(_, dhcp)| dhcp.lease().cloned());
        leases.next()
    }

    fn addresses(&self, show: &mut dyn FnMut(IpAddr, u8)) {
        let usable = |standing| standing == Standing::Usable;
        for port in self.borrow().ip.all() {
            for own in port.v4.addresses() {
                if usable(port.v4.standing(own.address())) {
                    show(own.address().into(), own.bits());
                }
            }
            for own in port.v6.addresses() {
                if usable(port.v6.standing(own.address())) {
                    show(own.address().into(), own.bits());
                }
            }
        }
    }

    fn counts(&self, show: &mut dyn FnMut(&'static str, u64)) {
        Stack::counts(&self.borrow(), show);
    }

    fn list(&self, from: u64, take: &mut dyn FnMut(&Record) -> bool) -> Listed {
        Stack::list(&self.borrow(), from, take)
    }

    fn send(&mut self) -> bool {
        self.borrow_mut().send()
    }

    fn deadline(&self) -> Instant {
        self.borrow().deadline()
    }

    fn has_left(&self) -> bool {
        self.borrow().tcp.sockets().next().is_none()
    }
}

/// Sockets of the host's: the kernel has addresses, counts, and lists them (`ss`).
pub struct Host {
    pub table: Rc<RefCell<Table>>,
    /// By which a wait tells of them.
    pub wait: WaitHandle,
}

impl Below for Host {
    fn receive(&mut self, now: Instant, ready: Ready) -> bool {
        let any = ready.contains(self.wait);
        self.table.borrow_mut().look(now, any);
        any
    }

    /// The kernel does.
    fn send(&mut self) -> bool {
        true
    }

    fn deadline(&self) -> Instant {
        self.table.borrow().deadline()
    }

    fn has_left(&self) -> bool {
        self.table.borrow().has_left()
    }
}

/// Sockets of a stack in another image, which has addresses, counts, and lists them.
pub struct Link {
    /// The appliance's name.
    pub name: String,
    pub table: Rc<RefCell<Sockets>>,
}

impl Below for Link {
    fn receive(&mut self, now: Instant, _: Ready) -> bool {
        let mut table = self.table.borrow_mut();
        let any = table.receive(now);
        if let Some(fault) = table.take_fault()
            && table.faults() <= FAULTS_SAID
        {
            let name = &self.name;
            println!("{name}: the stack's image breaks the rules, all sockets fail: {fault}");
        }
        any
    }

    /// What has no room leaves once the other image has made some, which wakes this one.
    fn send(&mut self) -> bool {
        self.table.borrow_mut().flush();
        true
    }

    fn deadline(&self) -> Instant {
        self.table.borrow().deadline()
    }

    fn has_left(&self) -> bool {
        self.table.borrow().has_left()
    }
}

/// Bytes that the queues of all connections may hold.
pub fn queues_bytes() -> usize {
    usize::try_from(unikernel::memory_bytes() / QUEUES_PART).unwrap_or(usize::MAX)
}

/// TCP that holds nothing so far.
#[cfg_attr(
    feature = "smoltcp",
    expect(dead_code, reason = "smoltcp is there instead")
)]
pub fn tcp(secret: [u8; 16], hash_key: [u8; 16]) -> Tcp {
    Tcp::new(
        Config::default(),
        Secret::new(secret),
        hash_key,
        queues_bytes(),
    )
}

/// A stack over these ports, each with what the command line says of it, and with the notes of an
/// earlier instance, if there are any.
///
/// # Panics
/// Without a port.
#[cfg_attr(
    feature = "smoltcp",
    expect(dead_code, reason = "smoltcp is there instead")
)]
pub fn stack(
    ports: Vec<(Box<dyn Netif>, &Port)>,
    tcp: Tcp,
    notes: Vec<Notes>,
) -> Stack<Ipv4, Ipv6> {
    let now = unikernel::monotonic();
    let buffer = PACKET_MAX + HEADROOM;
    let large = Pool::new(vec![0; LARGE_PACKETS * buffer].leak(), buffer);
    // What varies numbers and times on the wire is no secret, and tells nothing of one.
    let varies = unikernel::wall().as_nanos() as u64 ^ now.0;
    let mut notes = notes.into_iter();
    let (mut ips, mut clients) = (Vec::new(), Vec::new());
    for ((port, options), number) in ports.into_iter().zip(0..) {
        let mut ip = ip(port, options, large, varies.wrapping_add(number), now);
        let lease = notes.next().map(|Notes { ipv4, ipv6, lease }| {
            ip.v4.keep(ipv4, now);
            ip.v6.keep(ipv6, now);
            lease
        });
        ips.push(ip);
        clients.push((options.dhcp, lease));
    }
    let mut ips = ips.into_iter();
    let mut stack = Stack::new(ips.next().expect("a port"), tcp, now);
    ips.for_each(|ip| stack.ip.add(ip));
    let clients = clients.into_iter().enumerate();
    for (port, (_, lease)) in clients.filter(|(_, (dhcp, _))| *dhcp) {
        let used = stack.use_dhcp(port, varies.wrapping_add(port as u64), lease);
        used.expect("nobody has a socket yet");
    }
    stack
}

/// IP over one port.
fn ip(port: Box<dyn Netif>, options: &Port, large: Pool, varies: u64, now: Instant) -> Ip {
    let mut ipv4 = Ipv4::new(large, varies);
    for address in &options.ipv4 {
        ipv4.add_address(*address, Detect::Later, now);
    }
    if let Some(gateway) = options.ipv4_gateway {
        ipv4.routes().add(Route {
            network: Prefix::ALL_IPV4,
            gateway: Some(gateway),
        });
    }
    let mut ipv6 = Ipv6::new(large, varies);
    if let Some(vlan) = options.vlan {
        ipv6.on_vlan(vlan);
    }
    ipv6.autoconfigure(Mac(port.mac()), Detect::Later, now);
    for address in &options.ipv6 {
        ipv6.add_address(*address, Detect::Later, now);
    }
    if let Some(gateway) = options.ipv6_gateway {
        ipv6.routes().add(Route {
            network: Prefix::ALL_IPV6,
            gateway: Some(gateway),
        });
    }
    Ip::new(Ethernet::new(port), ipv4, ipv6)
}
