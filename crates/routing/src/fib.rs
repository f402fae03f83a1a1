//! What rules are told of addresses: `fib`.

use crate::forward::Ip;
use core::net::{IpAddr, Ipv4Addr};
use net::version::{Addresses, Standing};
use nf::Routes;
use ports::Instant;

/// A router's routes and addresses at a time. Ports are numbered as the stack has them.
pub(crate) struct Fib<'a> {
    pub(crate) ip: &'a Ip,
    pub(crate) now: Instant,
}

impl Fib<'_> {
    /// The ports that are asked about: one, or all of them.
    fn ports(&self, port: Option<u8>) -> impl Iterator<Item = &net::ip::Ip> {
        let ports = self.ip.all().enumerate();
        ports
            .filter(move |(number, _)| port.is_none_or(|port| usize::from(port) == *number))
            .map(|(_, port)| port)
    }
}

impl Routes for Fib<'_> {
    fn way(&self, to: IpAddr) -> Option<u8> {
        let way = self.ip.way(to, self.now)?;
        u8::try_from(way).ok()
    }

    fn is_own(&self, address: IpAddr, port: Option<u8>) -> bool {
        self.ports(port).any(|port| match address {
            IpAddr::V4(address) => port.v4.standing(address) == Standing::Usable,
            IpAddr::V6(address) => port.v6.standing(address) == Standing::Usable,
        })
    }

    fn is_broadcast(&self, address: Ipv4Addr, port: Option<u8>) -> bool {
        let mut networks = self.ports(port).flat_map(|port| port.v4.addresses());
        networks.any(|own| own.broadcast() == Some(address))
    }
}
