//! DHCP (RFC 2131): an address of our own, and what a network says beside it, from a server.
//!
//! [`Client`] decides; [`Dhcp`] sends what it says, and does it to a stack. [`server`] is the other
//! side.

mod client;
mod message;
mod note;
pub mod server;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use message::{Lease, MESSAGE_LEN, Question, SEARCH_MAX, SERVERS_MAX, Times};
pub use note::LeaseNote;

use crate::address::Prefix;
use crate::arp::Detect;
use crate::counts::{Counts, reasons};
use crate::ethernet::{Ethernet, Mac};
use crate::ip::Ip;
use crate::routes::Route;
use crate::udp::{self, BindError, Datagram, Udp};
use crate::version::{Packet, Standing, Version};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use ports::Instant;
use smoltcp::wire::{DHCP_CLIENT_PORT, DHCP_SERVER_PORT};

/// Where the client's link address lies in a message.
const CHADDR: core::ops::Range<usize> = 28..34;

reasons! {
    /// Why a server's message was dropped.
    pub enum Dropped {
        /// It is no message of a server, or has no type.
        Malformed = "dhcp_malformed",
        /// It is for another client, or answers nothing that we have asked last.
        Foreign = "dhcp_foreign",
        /// Nobody waits for a message of this type now.
        Unexpected = "dhcp_unexpected",
        /// It does not say whose it is, or is not from the server that was asked.
        Server = "dhcp_server",
        /// The address is not one station's, or not the one that was asked for.
        Address = "dhcp_address",
        /// The network has no mask, or an impossible one.
        Mask = "dhcp_mask",
        /// It does not say how long the address is ours.
        Time = "dhcp_time",
    }
}

/// What a client wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// This is to be sent.
    Send(Question),
    /// Whether somebody else has this address is to be found out: [`Client::checked`] waits for it.
    Check(Lease),
    /// This is ours now, or still.
    Use(Lease),
    /// This is ours no more.
    Lose(Lease),
}

/// What has become of our address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is ours now.
    Got(Prefix<Ipv4Addr>),
    /// It is ours no more.
    Lost(Prefix<Ipv4Addr>),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Got(prefix) | Self::Lost(prefix)) = self;
        if let Self::Lost(_) = self {
            f.write_str("no more ")?;
        }
        write!(f, "{}/{}", prefix.address(), prefix.bits())
    }
}

/// A client at work.
pub struct Dhcp {
    client: Client,
    socket: udp::Socket,
    mac: Mac,
    /// What the stack uses.
    applied: Option<Lease>,
    change: Option<Change>,
    /// Where what is ours is noted down for the next host.
    note: Option<LeaseNote>,
}

impl Dhcp {
    /// The socket of all clients of a stack.
    ///
    /// # Errors
    /// If somebody has a socket at the clients' port.
    pub fn bind(udp: &mut Udp) -> Result<udp::Socket, BindError> {
        udp.bind(None, DHCP_CLIENT_PORT, 0)
    }

    /// A client of a port with this link address; `socket` is what [`Self::bind`] gave. The seed
    /// varies times and numbers. It goes on with what an earlier host has noted down.
    pub fn new(
        mac: Mac,
        seed: u64,
        socket: udp::Socket,
        note: Option<LeaseNote>,
        now: Instant,
    ) -> Self {
        let kept = note.as_ref().and_then(|note| note.read(now));
        let client = match kept {
            Some(lease) => Client::with_lease(mac, seed, lease, now),
            None => Client::new(mac, seed, now),
        };
        Self {
            client,
            socket,
            mac,
            applied: None,
            change: None,
            note,
        }
    }

    /// Where its messages come.
    pub fn socket(&self) -> udp::Socket {
        self.socket
    }

    /// Whether a message names our link address (`chaddr`; RFC 2131, 2).
    pub fn is_meant(&self, datagram: &Datagram) -> bool {
        datagram.frame.bytes().get(CHADDR) == Some(&self.mac.0)
    }

    /// What is ours now.
    pub fn lease(&self) -> Option<&Lease> {
        self.client.lease()
    }

    /// What has become of our address, if that or what goes with it for resolving names has changed
    /// since the last time somebody asked.
    pub fn change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Messages that were dropped.
    pub fn dropped(&self) -> &Counts<Dropped> {
        self.client.dropped()
    }

    /// When [`Self::turn`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.client.deadline()
    }

    /// Takes a message of a server's.
    pub fn receive<V4, V6>(&mut self, datagram: &Datagram, ip: &mut Ip<V4, V6>, now: Instant)
    where
        V4: Version<Ethernet, Address = Ipv4Addr>,
        V6: Version<Ethernet, Address = Ipv6Addr>,
    {
        let port = datagram.from.port();
        let output = self.client.receive(datagram.frame.bytes(), port, now);
        self.perform(output, ip, now);
    }

    /// Does what is due.
    pub fn turn<V4, V6>(&mut self, ip: &mut Ip<V4, V6>, now: Instant)
    where
        V4: Version<Ethernet, Address = Ipv4Addr>,
        V6: Version<Ethernet, Address = Ipv6Addr>,
    {
        if let Some(address) = self.client.checks() {
            let output = match ip.v4.standing(address) {
                Standing::Tentative => None,
                Standing::Usable => self.client.checked(true, now),
                Standing::Lost => {
                    ip.v4.remove_address(address);
                    self.client.checked(false, now)
                }
            };
            self.perform(output, ip, now);
        }
        while let Some(output) = self.client.poll(now) {
            self.perform(Some(output), ip, now);
        }
    }

    fn perform<V4, V6>(&mut self, output: Option<Output>, ip: &mut Ip<V4, V6>, now: Instant)
    where
        V4: Version<Ethernet, Address = Ipv4Addr>,
        V6: Version<Ethernet, Address = Ipv6Addr>,
    {
        match output {
            Some(Output::Send(question)) => send(ip, &question, now),
            Some(Output::Check(lease)) => {
                ip.v4.add_address(lease.address, Detect::Soon, now);
            }
            Some(Output::Use(lease)) => {
                let parts = |lease: &Lease| {
                    let Lease {
                        servers, search, ..
                    } = lease;
                    (lease.address, servers.clone(), search.clone())
                };
                if self.applied.as_ref().map(parts) != Some(parts(&lease)) {
                    self.change = Some(Change::Got(lease.address));
                }
                apply(&mut ip.v4, self.applied.as_ref(), Some(&lease), now);
                if let Some(note) = &self.note {
                    note.write(&lease, self.client.asked());
                }
                self.applied = Some(lease);
            }
            Some(Output::Lose(lease)) => {
                self.change = Some(Change::Lost(lease.address));
                if let Some(note) = &self.note {
                    note.erase();
                }
                apply(&mut ip.v4, self.applied.take().as_ref(), None, now);
            }
            None => {}
        }
    }
}

/// Puts one lease in the place of another.
fn apply<V4>(v4: &mut V4, old: Option<&Lease>, new: Option<&Lease>, now: Instant)
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
{
    for route in old.into_iter().flat_map(routes) {
        v4.routes().remove(route.network);
    }
    let address = |lease: Option<&Lease>| lease.map(|lease| lease.address);
    if let Some(gone) = address(old).filter(|gone| address(new) != Some(*gone)) {
        v4.remove_address(gone.address());
    }
    if let Some(own) = address(new)
        && v4.standing(own.address()) == Standing::Lost
    {
        v4.add_address(own, Detect::Later, now);
    }
    for route in new.into_iter().flat_map(routes) {
        v4.routes().add(route);
    }
    v4.limit_mtu(new.and_then(|lease| lease.mtu).unwrap_or(usize::MAX));
}

/// The routes that a lease brings: one to its router as well, if that lies outside of our network,
/// as in clouds that give each station a network of its own.
fn routes(lease: &Lease) -> impl Iterator<Item = Route<Ipv4Addr>> {
    let outside = lease
        .router
        .filter(|router| !lease.address.contains(*router));
    let beside = outside.and_then(|router| Prefix::new(router, 32));
    let beside = beside.map(|network| Route {
        network,
        gateway: None,
    });
    let default = lease.router.map(|router| Route {
        network: Prefix::ALL_IPV4,
        gateway: Some(router),
    });
    beside.into_iter().chain(default)
}

/// Sends a message. Without a buffer it is lost, as it may be on its way: timers send it again.
fn send<V4, V6>(ip: &mut Ip<V4, V6>, question: &Question, now: Instant)
where
    V4: Version<Ethernet, Address = Ipv4Addr>,
    V6: Version<Ethernet, Address = Ipv6Addr>,
{
    let from = SocketAddr::new(question.ours.into(), DHCP_CLIENT_PORT);
    let to = SocketAddr::new(question.to.into(), DHCP_SERVER_PORT);
    let packet = Packet {
        fragment: true,
        ..Packet::new(from.ip(), to.ip(), udp::PROTOCOL)
    };
    let fill = |place: &mut [u8]| udp::emit(from, to, place, |place| question.write(place));
    let _ = ip.write(packet, udp::HEADER + MESSAGE_LEN, fill, now);
}
