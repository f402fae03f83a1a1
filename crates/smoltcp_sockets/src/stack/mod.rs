//! Interface and sockets, turn by turn.
//!
//! Whoever runs it calls [`Stack::receive`], lets tasks run, calls [`Stack::send`] and sleeps until
//! [`Stack::deadline`] or until the port has something.

mod tcp;
mod udp;

use crate::device::Phy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use device::{BATCH_FRAMES_MAX, Netif};
use net::address::{Address, Prefix};
use net::options::Port;
use net::tcp::connection::NEVER;
use net::tcp::identity::Secret;
use ports::Instant;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::Socket;
use smoltcp::socket::tcp::{CongestionControl, Socket as Tcp, SocketBuffer, State};
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpListenEndpoint, Ipv6Address};

/// Bytes of each of a connection's two queues; smoltcp takes both when it makes a socket.
const QUEUE_BYTES: usize = 64 << 10;
/// Passes over all sockets in a turn; each sends one packet of each socket.
const PASSES_MAX: usize = BATCH_FRAMES_MAX;
/// A peer that says nothing for so long, although it should, is gone (RFC 9293, 3.8.3: at least
/// 100 seconds).
const SILENCE: smoltcp::time::Duration = smoltcp::time::Duration::from_secs(100);
/// What is left of a connection that was dropped stays for so long: until then its peer may close.
const LEAVING: Duration = Duration::from_secs(60);
/// Ports that are tried where one is to be chosen.
const PORTS_TRIED: u32 = 64;

/// What smoltcp's sockets cannot be asked for, although our stack can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An address that a server lends.
    Dhcp,
    /// So many addresses, the link-local one among them: it has room for eight.
    Addresses(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dhcp => f.write_str("--dhcp: not on smoltcp; write --ipv4=10.0.0.2/24"),
            Self::Addresses(count) => {
                write!(f, "{count} addresses: smoltcp has room for eight")
            }
        }
    }
}

impl core::error::Error for Refused {}

/// A port where connections are waited for.
struct Listening {
    number: u64,
    local: SocketAddr,
    /// Sockets that are to listen; fewer are there while memory is short.
    wanted: usize,
    sockets: Vec<SocketHandle>,
    waker: Option<core::task::Waker>,
}

/// smoltcp over a port.
pub struct Stack {
    phy: Phy,
    interface: Interface,
    sockets: SocketSet<'static>,
    listening: Vec<Listening>,
    /// Dropped connections, the first one first, and until when they may stay.
    leaving: VecDeque<(Instant, SocketHandle)>,
    /// Connections that may be there at a time, and those that are.
    connections_max: usize,
    connections: usize,
    /// Sockets for datagrams.
    datagrams: usize,
    secret: Secret,
    /// Listeners and connections of ours so far.
    count: u64,
    now: Instant,
    deadline: Instant,
}

impl Stack {
    /// smoltcp over `port`, with the addresses of `options`. `memory`: bytes that the queues of all
    /// connections may hold. `random` is new at each start: the first half for initial sequence
    /// numbers, the other one for ports.
    ///
    /// # Errors
    /// What smoltcp cannot do of what the options say.
    pub fn new(
        port: Box<dyn Netif>,
        options: &Port,
        memory: usize,
        [seed, secret]: [[u8; 16]; 2],
        now: Instant,
    ) -> Result<Self, Refused> {
        if options.dhcp {
            return Err(Refused::Dhcp);
        }
        let mut phy = Phy::new(port);
        let mac = EthernetAddress(phy.mac());
        let mut config = Config::new(mac.into());
        let (number, _) = seed.split_at(size_of::<u64>());
        config.random_seed = number
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let mut interface = Interface::new(config, &mut phy, time(now));
        set_addresses(&mut interface, mac, options)?;
        Ok(Self {
            phy,
            interface,
            sockets: SocketSet::new(Vec::new()),
            listening: Vec::new(),
            leaving: VecDeque::new(),
            connections_max: memory / (2 * QUEUE_BYTES),
            connections: 0,
            datagrams: 0,
            secret: Secret::new(secret),
            count: 0,
            now,
            deadline: now,
        })
    }

    /// Takes in what has come, a batch at most, and what time brings; whether there was something.
    pub fn receive(&mut self, now: Instant) -> bool {
        self.now = now;
        let due = self.deadline <= now;
        if due {
            self.transmit();
        }
        let waiting = self.phy.look();
        for _ in 0..waiting {
            let (phy, sockets) = (&mut self.phy, &mut self.sockets);
            self.interface.poll_ingress_single(time(now), phy, sockets);
        }
        if due || waiting > 0 {
            self.tend();
        }
        due || waiting > 0
    }

    /// Sends what is to be sent; `false` if more is to leave.
    pub fn send(&mut self) -> bool {
        let all = self.transmit();
        let next = self.interface.poll_at(time(self.now), &self.sockets);
        let next = next.map_or(NEVER, instant);
        let leaving = self.leaving.front().map_or(NEVER, |(until, _)| *until);
        self.deadline = next.min(leaving);
        all
    }

    /// When [`Self::receive`] has something to do although nothing has come.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether all that was written has left.
    pub fn has_left(&self) -> bool {
        self.sockets.iter().all(|(_, socket)| match socket {
            Socket::Tcp(socket) => matches!(
                socket.state(),
                State::Listen | State::Closed | State::TimeWait
            ),
            _ => true,
        })
    }

    /// Lets all sockets send; `false` if they could not within [`PASSES_MAX`] passes.
    fn transmit(&mut self) -> bool {
        let mut all = false;
        for _ in 0..PASSES_MAX {
            let (now, phy) = (time(self.now), &mut self.phy);
            let passed = self.interface.poll_egress(now, phy, &mut self.sockets);
            all = passed == PollResult::None;
            if all {
                break;
            }
        }
        self.phy.flush();
        all
    }

    /// Looks after what smoltcp leaves to its user: time-outs, listeners, dropped connections.
    fn tend(&mut self) {
        for (_, socket) in self.sockets.iter_mut() {
            if let Socket::Tcp(socket) = socket {
                socket.set_timeout(time_out(socket));
            }
        }
        self.clear();
        self.relisten();
    }

    /// Removes dropped connections that have ended, or that have had their time.
    fn clear(&mut self) {
        let (sockets, now) = (&mut self.sockets, self.now);
        let before = self.leaving.len();
        self.leaving.retain(|(until, handle)| {
            let socket = sockets.get_mut::<Tcp>(*handle);
            // Nobody reads it any more, and the peer is to see an open window until it closes.
            while let Ok(1..) = socket.recv(|bytes| (bytes.len(), bytes.len())) {}
            let ended = socket.state() == State::Closed && socket.remote_endpoint().is_none();
            let stays = !ended && *until > now;
            if !stays {
                sockets.remove(*handle);
            }
            stays
        });
        self.connections -= before - self.leaving.len();
    }

    /// Gives each listener the sockets that it lacks, as far as memory goes, and wakes those that
    /// have a connection.
    fn relisten(&mut self) {
        for index in 0..self.listening.len() {
            while self.listening[index].sockets.len() < self.listening[index].wanted {
                let Some(handle) = self.socket() else {
                    break;
                };
                self.listening[index].sockets.push(handle);
            }
            let listening = &mut self.listening[index];
            for handle in &listening.sockets {
                let socket = self.sockets.get_mut::<Tcp>(*handle);
                match socket.state() {
                    // It is new, or what began has failed.
                    State::Closed => {
                        // A port that is none was refused before.
                        let _ = socket.listen(endpoint(listening.local));
                    }
                    State::Listen | State::SynReceived => {}
                    _ => {
                        if let Some(waker) = listening.waker.take() {
                            waker.wake();
                        }
                    }
                }
            }
        }
    }

    /// A socket for a connection; `None` if there are too many.
    fn socket(&mut self) -> Option<SocketHandle> {
        if self.connections >= self.connections_max && !self.reclaim() {
            return None;
        }
        self.connections += 1;
        let queue = || SocketBuffer::new(vec![0; QUEUE_BYTES]);
        let mut socket = Tcp::new(queue(), queue());
        socket.set_congestion_control(CongestionControl::Reno);
        Some(self.sockets.add(socket))
    }

    /// Takes its memory from the first connection that only waits for the end of TIME-WAIT.
    fn reclaim(&mut self) -> bool {
        let waits = |(_, handle): &(_, SocketHandle)| {
            self.sockets.get::<Tcp>(*handle).state() == State::TimeWait
        };
        let found = self.leaving.iter().position(waits);
        let found = found.and_then(|index| self.leaving.remove(index));
        if let Some((_, handle)) = found {
            self.sockets.remove(handle);
            self.connections -= 1;
        }
        found.is_some()
    }

    /// The time, as it was when the turn began.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// From where a packet goes there; `None` if no route does.
    fn source(&mut self, remote: IpAddr) -> Option<IpAddr> {
        let to = IpAddress::from(remote);
        let routes = self.interface.routes();
        let gateway = match remote {
            IpAddr::V4(_) => routes.get_default_ipv4_route(),
            IpAddr::V6(_) => routes.get_default_ipv6_route(),
        };
        let near = |own: &IpCidr| own.contains_addr(&to);
        if gateway.is_none() && !self.interface.ip_addrs().iter().any(near) {
            return None;
        }
        let source = self.interface.get_source_address(&to)?;
        Some(source.into())
    }
}

/// Our addresses, the link-local one among them (RFC 4291, 2.5.6), and gateways.
fn set_addresses(
    interface: &mut Interface,
    mac: EthernetAddress,
    options: &Port,
) -> Result<(), Refused> {
    let v4 = options.ipv4.iter().map(cidr);
    let mut addresses: Vec<IpCidr> = v4.chain(options.ipv6.iter().map(cidr)).collect();
    if let Some(identifier) = mac.as_eui_64() {
        let mut local = [0; 16];
        local[..2].copy_from_slice(&[0xfe, 0x80]);
        local[8..].copy_from_slice(&identifier);
        addresses.push(IpCidr::new(Ipv6Address::from(local).into(), 64));
    }
    let mut room = true;
    interface.update_ip_addrs(|own| {
        room = addresses.iter().all(|address| own.push(*address).is_ok());
    });
    if !room {
        return Err(Refused::Addresses(addresses.len()));
    }
    let routes = interface.routes_mut();
    // There is room for one of each version.
    if let Some(gateway) = options.ipv4_gateway {
        let _ = routes.add_default_ipv4_route(gateway);
    }
    if let Some(gateway) = options.ipv6_gateway {
        let _ = routes.add_default_ipv6_route(gateway);
    }
    Ok(())
}

fn cidr<A: Address + Into<IpAddr>>(own: &Prefix<A>) -> IpCidr {
    IpCidr::new(own.address().into().into(), own.bits())
}

/// For how long a connection's peer may be silent. Whoever waits for nothing waits for ever:
/// smoltcp would end an idle connection, too.
fn time_out(socket: &Tcp) -> Option<smoltcp::time::Duration> {
    let waits = match socket.state() {
        State::Established | State::CloseWait => socket.send_queue() > 0,
        State::FinWait2 | State::TimeWait => false,
        _ => true,
    };
    waits.then_some(SILENCE)
}

/// Whether two sockets cannot have these ends together.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (any || one.ip() == other.ip())
}

/// As smoltcp writes it; no address stands for all of ours, of both versions.
fn endpoint(local: SocketAddr) -> IpListenEndpoint {
    let address = (!local.ip().is_unspecified()).then(|| local.ip().into());
    IpListenEndpoint {
        addr: address,
        port: local.port(),
    }
}

fn time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.0 / 1000) as i64)
}

fn instant(time: smoltcp::time::Instant) -> Instant {
    Instant(u64::try_from(time.total_micros()).unwrap_or(0) * 1000)
}
