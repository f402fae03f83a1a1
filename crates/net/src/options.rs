//! What a command line says of a port's network: MirageOS's options.

use crate::address::{Address, Prefix};
use crate::{ipv4, ipv6};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Given addresses of IPv6: the others are left for those that routers announce.
const IPV6_MAX: usize = ipv6::ADDRESSES_MAX / 2;

/// Given servers of names.
const DNS_MAX: usize = 4;

/// The options, as `--help` of an image shows them.
pub const HELP: &str = "\
  --ipv4=ADDRESS/BITS      our address and its network (default: 10.0.0.2/24); several are several
                           addresses
  --ipv4-gateway=ADDRESS   where packets to other networks go
  --dhcp                   address, gateway and servers of names are those that a server lends
  --dns=ADDRESS            who resolves names, before those that a server lends; several are asked
                           in turn
  --ipv6=ADDRESS/BITS      an address beside those that routers announce the network of; several are
                           several addresses
  --ipv6-gateway=ADDRESS   where packets to other networks go, if no router announces itself
";

/// Addresses of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Our addresses and their networks; none if a server lends one.
    pub ipv4: Vec<Prefix<Ipv4Addr>>,
    /// Where packets to other networks go.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// Addresses beside those that routers announce the networks of.
    pub ipv6: Vec<Prefix<Ipv6Addr>>,
    /// Where packets to other networks go, if no router announces itself.
    pub ipv6_gateway: Option<Ipv6Addr>,
    /// Who resolves names, before those that a server of DHCP lends.
    pub dns: Vec<IpAddr>,
    /// Whether a server of DHCP is asked for an IPv4 address.
    pub dhcp: bool,
}

/// An option that says nothing sensible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    option: String,
    wants: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: write {}", self.option, self.wants)
    }
}

impl core::error::Error for Error {}

impl Options {
    /// Takes the options of a network out of `arguments`; the others, in order.
    ///
    /// # Errors
    /// The first option that cannot be used, and what it should look like.
    pub fn take<'a>(
        arguments: impl Iterator<Item = &'a str>,
    ) -> Result<(Self, Vec<&'a str>), Error> {
        let mut options = Self::default();
        let mut others = Vec::new();
        for argument in arguments {
            if !options.heed(argument)? {
                others.push(argument);
            }
        }
        if options.ipv4.is_empty() && !options.dhcp {
            // MirageOS's own.
            options.ipv4.push(network(Ipv4Addr::new(10, 0, 0, 2), 24));
        }
        options.agree()?;
        Ok((options, others))
    }

    /// Takes one option; whether it is one.
    fn heed(&mut self, argument: &str) -> Result<bool, Error> {
        let wrong = |wants| Error {
            option: argument.into(),
            wants,
        };
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        match name {
            "--ipv4" => {
                let prefix = prefix(value, is_station);
                let prefix = prefix.ok_or_else(|| wrong("--ipv4=10.0.0.2/24"))?;
                if self.ipv4.len() == ipv4::ADDRESSES_MAX {
                    return Err(wrong("fewer addresses"));
                }
                self.ipv4.push(prefix);
            }
            "--ipv6" => {
                let prefix = prefix(value, is_station6);
                let prefix = prefix.ok_or_else(|| wrong("--ipv6=fd00::2/64"))?;
                if self.ipv6.len() == IPV6_MAX {
                    return Err(wrong("fewer addresses"));
                }
                self.ipv6.push(prefix);
            }
            "--ipv4-gateway" => {
                let gateway = value.parse().ok().filter(is_station);
                let gateway = gateway.ok_or_else(|| wrong("--ipv4-gateway=10.0.0.1"))?;
                self.ipv4_gateway = Some(gateway);
            }
            "--ipv6-gateway" => {
                let gateway = value.parse().ok().filter(is_station6);
                let gateway = gateway.ok_or_else(|| wrong("--ipv6-gateway=fe80::1"))?;
                self.ipv6_gateway = Some(gateway);
            }
            "--dns" => {
                let server = value.parse().ok();
                let server = server.ok_or_else(|| wrong("--dns=10.0.0.1"))?;
                if self.dns.len() == DNS_MAX {
                    return Err(wrong("fewer servers"));
                }
                self.dns.push(server);
            }
            "--dhcp" if value.is_empty() => self.dhcp = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether no option contradicts another.
    fn agree(&self) -> Result<(), Error> {
        let given = !self.ipv4.is_empty() || self.ipv4_gateway.is_some();
        if self.dhcp && given {
            return Err(Error {
                option: "--dhcp".into(),
                wants: "either it or --ipv4 and --ipv4-gateway",
            });
        }
        match self.ipv4_gateway {
            Some(gateway) if !self.ipv4.iter().any(|own| own.contains(gateway)) => Err(Error {
                option: alloc::format!("--ipv4-gateway={gateway}"),
                wants: "an address in the network of --ipv4",
            }),
            _ => Ok(()),
        }
    }
}

fn network(address: Ipv4Addr, bits: u8) -> Prefix<Ipv4Addr> {
    Prefix::new(address, bits).expect("at most 32 bits")
}

fn prefix<A: Address + FromStr>(value: &str, is_station: fn(&A) -> bool) -> Option<Prefix<A>> {
    let (address, bits) = value.split_once('/')?;
    let address = address.parse().ok().filter(is_station)?;
    Prefix::new(address, bits.parse().ok().filter(|bits| *bits > 0)?)
}

fn is_station(address: &Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

fn is_station6(address: &Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn take(line: &str) -> Result<(Options, Vec<&str>), Error> {
        Options::take(line.split_ascii_whitespace())
    }

    #[test]
    fn a_network_is_taken_out_of_the_line() {
        let (options, others) =
            take("-s --ipv4=192.168.7.9/16 --ipv4-gateway=192.168.0.1 -p 9").unwrap();
        assert_eq!(options.ipv4, [network([192, 168, 7, 9].into(), 16)]);
        assert_eq!(options.ipv4_gateway, Some([192, 168, 0, 1].into()));
        assert_eq!(others, ["-s", "-p", "9"]);
        let (options, _) = take("--ipv6=fd00::9/64 --ipv6-gateway=fe80::1").unwrap();
        assert_eq!(
            options.ipv6,
            [Prefix::new("fd00::9".parse().unwrap(), 64).unwrap()]
        );
        assert_eq!(options.ipv6_gateway, Some("fe80::1".parse().unwrap()));
        let (options, _) = take("").unwrap();
        assert_eq!(options.ipv4, [network([10, 0, 0, 2].into(), 24)]);
        let (options, others) = take("--dhcp --dhcp=yes --ipv4x=1").unwrap();
        assert!(options.dhcp && options.ipv4.is_empty());
        assert_eq!(others, ["--dhcp=yes", "--ipv4x=1"]);
    }

    #[test]
    fn several_addresses_are_several_and_bounded() {
        let (options, _) = take("--ipv4=10.0.0.2/24 --ipv4=10.1.0.2/16 --ipv6=fd00::2/64").unwrap();
        assert_eq!((options.ipv4.len(), options.ipv6.len()), (2, 1));
        assert!(take(&"--ipv4=10.0.0.2/24 ".repeat(ipv4::ADDRESSES_MAX)).is_ok());
        assert!(take(&"--ipv4=10.0.0.2/24 ".repeat(ipv4::ADDRESSES_MAX + 1)).is_err());
        let (options, _) = take("--dns=10.0.0.1 --dns=fd00::1").unwrap();
        assert_eq!(
            options.dns,
            ["10.0.0.1", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert!(take("--dns=x").is_err() && take(&"--dns=::1 ".repeat(DNS_MAX + 1)).is_err());
        assert!(take(&"--ipv6=fd00::2/64 ".repeat(IPV6_MAX + 1)).is_err());
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        for (line, expected) in [
            (
                "--ipv4=10.0.0.2",
                "--ipv4=10.0.0.2: write --ipv4=10.0.0.2/24",
            ),
            (
                "--ipv4=10.0.0.2/33",
                "--ipv4=10.0.0.2/33: write --ipv4=10.0.0.2/24",
            ),
            (
                "--ipv4=224.0.0.2/24",
                "--ipv4=224.0.0.2/24: write --ipv4=10.0.0.2/24",
            ),
            (
                "--ipv4-gateway=x",
                "--ipv4-gateway=x: write --ipv4-gateway=10.0.0.1",
            ),
            ("--ipv6=::/64", "--ipv6=::/64: write --ipv6=fd00::2/64"),
            (
                "--ipv6-gateway=ff02::1",
                "--ipv6-gateway=ff02::1: write --ipv6-gateway=fe80::1",
            ),
            (
                "--ipv4-gateway=10.0.1.1",
                "--ipv4-gateway=10.0.1.1: write an address in the network of --ipv4",
            ),
            (
                "--dhcp --ipv4=10.0.0.2/24",
                "--dhcp: write either it or --ipv4 and --ipv4-gateway",
            ),
        ] {
            assert_eq!(take(line).unwrap_err().to_string(), expected);
        }
    }
}
