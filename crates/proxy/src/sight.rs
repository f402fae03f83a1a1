//! What a program sees of its network where it asks for more than sockets: an interface with the
//! stack's addresses, by netlink(7) and netdevice(7), and who resolves names, by resolv.conf(5).
//!
//! The interface is in the program's own network namespace, leads nowhere, and carries nothing: no
//! socket of IP is ever there. We look after it from outside, by descriptors of that namespace.

use link_sockets::Own;
use linux::interface::{ASKED_BYTES, Interfaces};
use linux::namespace;
use linux::netlink::Netlink;
use linux::tap::Tap;
use rustix::fs::ftruncate;
use rustix::io::{Errno, pwrite};
use rustix::net::netdevice::name_to_index;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

/// What the interface is called, as a machine's first one.
const NAME: &str = "eth0";
/// The number of the loopback interface, in any namespace.
const LOOPBACK: i32 = 1;
const LOOPBACK_NAME: &str = "lo";
/// Addresses of a link that the kernel would choose by itself: none.
const NO_ADDRESS: (&str, &str) = ("/proc/sys/net/ipv6/conf/eth0/addr_gen_mode", "1");
/// `AF_INET`.
const INET: u16 = 2;

/// What a program sees of its network.
#[derive(Debug)]
pub struct Sight {
    /// What is asked about the program's interfaces.
    asked: Interfaces,
    interface: Option<Interface>,
    /// What the program reads as `/etc/resolv.conf`.
    resolver: Option<OwnedFd>,
    shown: Vec<Own>,
}

/// An interface that leads nowhere.
#[derive(Debug)]
struct Interface {
    netlink: Netlink,
    /// While it is open, the interface is there, and has a carrier.
    _tap: Tap,
    number: i32,
}

impl Sight {
    /// What the program sees whose first process is `keeper`, and whose `/etc/resolv.conf` is
    /// `resolver`, if that is one of its own. Where this process may make no interface, it sees the
    /// loopback interface alone.
    ///
    /// # Errors
    /// The program's namespace cannot be entered.
    pub fn new(keeper: u32, resolver: Option<OwnedFd>) -> io::Result<Self> {
        let theirs = File::open(format!("/proc/{keeper}/ns/net"))?;
        let ours = namespace::network().map_err(io::Error::other)?;
        namespace::enter_network(theirs.as_fd()).map_err(io::Error::other)?;
        let made = (Interfaces::here(), Interface::make().ok());
        namespace::enter_network(ours.as_fd()).map_err(io::Error::other)?;
        Ok(Self {
            asked: made.0?,
            interface: made.1,
            resolver,
            shown: Vec::new(),
        })
    }

    /// Shows the program what the stack says of itself.
    pub fn show(&mut self, own: &[Own]) {
        if self.shown == own {
            return;
        }
        let shown = std::mem::replace(&mut self.shown, own.to_vec());
        if let Some(Interface { netlink, .. }) = &mut self.interface {
            for (address, bits) in addresses(&shown).filter(|one| !has(own, *one)) {
                // The kernel may have taken it away itself.
                let _ = netlink.remove_address(NAME, address, bits);
            }
            for (address, bits) in addresses(own).filter(|one| !has(&shown, *one)) {
                // It is the kernel's business which addresses there are for programs to see.
                let _ = netlink.add_certain_address(NAME, address, bits);
            }
        }
        let text = resolvers(own);
        if let Some(file) = self.resolver.as_ref().filter(|_| !text.is_empty()) {
            let _ = ftruncate(file, 0).and_then(|()| pwrite(file, text.as_bytes(), 0));
        }
    }

    /// The number of the interface that has an address; 0 if none has.
    pub fn number(&self, ip: IpAddr) -> i32 {
        match ip.to_canonical() {
            ip if ip.is_loopback() => LOOPBACK,
            _ => self.interface.as_ref().map_or(0, |one| one.number),
        }
    }

    /// Whether an address is known to be none of this machine's. Of the host's own nothing is
    /// known: it says itself what it has.
    pub fn is_elsewhere(&self, ip: IpAddr) -> bool {
        is_elsewhere(&self.shown, ip)
    }

    /// Answers a question of netdevice(7) about an interface.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn ask(
        &self,
        question: u32,
        request: [u8; ASKED_BYTES],
    ) -> Result<[u8; ASKED_BYTES], Errno> {
        let answer = self.asked.ask(question, request);
        answer.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// All interfaces that have an address of IPv4, and that, as `SIOCGIFCONF` of netdevice(7)
    /// lists them.
    pub fn list(&self) -> Vec<[u8; ASKED_BYTES]> {
        let loopback = (LOOPBACK_NAME, Ipv4Addr::LOCALHOST);
        let own = addresses(&self.shown).filter_map(|(ip, _)| match ip {
            IpAddr::V4(ip) => Some((NAME, ip)),
            IpAddr::V6(_) => None,
        });
        let own = own.filter(|_| self.interface.is_some());
        let entry = |(name, ip)| entry(name, ip);
        std::iter::once(loopback).chain(own).map(entry).collect()
    }
}

impl Interface {
    /// In the namespace that this thread is in.
    fn make() -> io::Result<Self> {
        let tap = Tap::create(NAME, false)?;
        // A kernel without IPv6 has nothing to be told.
        let _ = fs::write(NO_ADDRESS.0, NO_ADDRESS.1);
        let mut netlink = Netlink::open().map_err(io::Error::other)?;
        netlink.set_up(NAME).map_err(io::Error::other)?;
        let number = name_to_index(Interfaces::here()?, NAME)?;
        Ok(Self {
            netlink,
            _tap: tap,
            number: number.cast_signed(),
        })
    }
}

fn addresses(own: &[Own]) -> impl Iterator<Item = (IpAddr, u8)> {
    own.iter().filter_map(|one| match one {
        Own::Address(address, bits) => Some((*address, *bits)),
        Own::Resolver(_) => None,
    })
}

fn is_elsewhere(own: &[Own], ip: IpAddr) -> bool {
    let mut known = addresses(own).peekable();
    known.peek().is_some() && !ip.is_loopback() && known.all(|(address, _)| address != ip)
}

fn has(own: &[Own], (address, bits): (IpAddr, u8)) -> bool {
    own.contains(&Own::Address(address, bits))
}

/// What resolv.conf(5) is to say.
fn resolvers(own: &[Own]) -> String {
    let lines = own.iter().filter_map(|one| match one {
        Own::Resolver(address) => Some(format!("nameserver {address}\n")),
        Own::Address(..) => None,
    });
    lines.collect()
}

/// `struct ifreq` of an interface with its address.
fn entry(name: &str, ip: Ipv4Addr) -> [u8; ASKED_BYTES] {
    let mut entry = [0; ASKED_BYTES];
    entry[..name.len()].copy_from_slice(name.as_bytes());
    entry[16..18].copy_from_slice(&INET.to_ne_bytes());
    entry[20..24].copy_from_slice(&ip.octets());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_resolves_names_is_said_as_the_manual_has_it() {
        let own = [
            Own::Resolver("192.0.2.53".parse().unwrap()),
            Own::Address("192.0.2.1".parse().unwrap(), 24),
            Own::Resolver("2001:db8::53".parse().unwrap()),
        ];
        let expected = "nameserver 192.0.2.53\nnameserver 2001:db8::53\n";
        assert_eq!(resolvers(&own), expected);
        assert_eq!(resolvers(&own[1..2]), "");
    }

    #[test]
    fn what_is_not_ours_is_elsewhere_once_something_is_known() {
        let own = [Own::Address([192, 0, 2, 1].into(), 24)];
        assert!(is_elsewhere(&own, [192, 0, 2, 2].into()));
        assert!(!is_elsewhere(&own, [192, 0, 2, 1].into()));
        assert!(!is_elsewhere(&own, [127, 0, 0, 1].into()));
        let resolver = [Own::Resolver([192, 0, 2, 2].into())];
        assert!(!is_elsewhere(&resolver, [192, 0, 2, 2].into()));
    }

    #[test]
    fn an_entry_of_the_list_is_a_name_and_an_address() {
        let entry = entry("eth0", Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(&entry[..8], b"eth0\0\0\0\0");
        assert_eq!(entry[16..24], [2, 0, 0, 0, 192, 0, 2, 1]);
    }
}
