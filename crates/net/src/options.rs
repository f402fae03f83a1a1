//! What a command line says of a port's network: MirageOS's options.

use crate::address::{Address, Prefix};
use crate::{ipv4, ipv6};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Given addresses of IPv6: the others are left for those that routers announce.
const IPV6_MAX: usize = ipv6::ADDRESSES_MAX / 2;

/// From what IPv6 asks of a link (RFC 8200, 5) to what a jumbo frame holds.
const MTU: RangeInclusive<usize> = 1280..=9216;

/// Given servers of names.
const DNS_MAX: usize = 4;

/// The options, as `--help` of an image shows them.
pub const HELP: &str = "  \
  --ipv4=ADDRESS/BITS      our address and its network (default: 10.0.0.2/24); several are several
                           addresses
  --ipv4-gateway=ADDRESS   where packets to other networks go
  --dhcp                   address, gateway and servers of names are those that a server lends
  --dns=ADDRESS            who resolves names, before those that a server lends; several are asked
                           in turn
  --ipv6=ADDRESS/BITS      an address beside those that routers announce the network of; several are
                           several addresses
  --ipv6-gateway=ADDRESS   where packets to other networks go, if no router announces itself
  --mtu=BYTES              largest packet, for a network card that the image drives itself (default:
                           1500)

Where the manifest has several ports, these are of the first one; --ipv4:PORT=ADDRESS/BITS, and the
others alike, are of the port of that name.
";

/// What a command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Of each port, in their order.
    pub ports: Vec<Port>,
    /// Who resolves names, before those that a server of DHCP lends.
    pub dns: Vec<IpAddr>,
}

/// Addresses of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Our addresses and their networks; none if a server lends one.
    pub ipv4: Vec<Prefix<Ipv4Addr>>,
    /// Where packets to other networks go.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// Addresses beside those that routers announce the networks of.
    pub ipv6: Vec<Prefix<Ipv6Addr>>,
    /// Where packets to other networks go, if no router announces itself.
    pub ipv6_gateway: Option<Ipv6Addr>,
    /// Whether a server of DHCP is asked for an IPv4 address.
    pub dhcp: bool,
    /// Largest packet in bytes, of a card that the image drives itself.
    pub mtu: Option<usize>,
    /// The VLAN that it is, of a port that carries several. No option of a port says so.
    pub vlan: Option<u16>,
}

/// An option that says nothing sensible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    option: String,
    advice: String,
}

impl Error {
    /// An option, and what to write instead.
    pub fn new(option: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            option: option.into(),
            advice: advice.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.advice)
    }
}

impl core::error::Error for Error {}

/// Options of a port, with what a good value looks like.
const OF_PORT: [(&str, &str); 6] = [
    ("--ipv4", "10.0.0.2/24"),
    ("--ipv6", "fd00::2/64"),
    ("--ipv4-gateway", "10.0.0.1"),
    ("--ipv6-gateway", "fe80::1"),
    ("--mtu", "9000"),
    ("--dhcp", ""),
];

impl Options {
    /// Takes the options of the ports of these names out of `arguments`; the others, in order.
    ///
    /// # Errors
    /// The first option that cannot be used, and what it should look like.
    pub fn take<'a>(
        arguments: impl Iterator<Item = &'a str>,
        names: &[&str],
    ) -> Result<(Self, Vec<&'a str>), Error> {
        let mut options = Self {
            ports: alloc::vec![Port::default(); names.len().max(1)],
            ..Self::default()
        };
        let mut others = Vec::new();
        for argument in arguments {
            if !options.heed(argument, names)? {
                others.push(argument);
            }
        }
        if let Some(first) = options.ports.first_mut()
            && first.ipv4.is_empty()
            && !first.dhcp
        {
            // MirageOS's own.
            first.ipv4.push(network(Ipv4Addr::new(10, 0, 0, 2), 24));
        }
        options.agree(names)?;
        Ok((options, others))
    }

    /// Takes one option; whether it is one.
    fn heed(&mut self, argument: &str, names: &[&str]) -> Result<bool, Error> {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let wrong = |advice: String| Error {
            option: argument.into(),
            advice,
        };
        if key == "--dns" {
            let server = value.parse().ok();
            let server = server.ok_or_else(|| wrong("write --dns=10.0.0.1".into()))?;
            if self.dns.len() == DNS_MAX {
                return Err(wrong("write fewer servers".into()));
            }
            self.dns.push(server);
            return Ok(true);
        }
        let (option, number) = of_port(key, names);
        let Some((option, example)) = OF_PORT.iter().find(|known| known.0 == option) else {
            return Ok(false);
        };
        // An appliance may have an option of this name that has a value.
        if example.is_empty() && !value.is_empty() {
            return Ok(false);
        }
        let port = number.and_then(|number| self.ports.get_mut(number));
        let port = port.ok_or_else(|| wrong(unknown(names)))?;
        match port.set(option, value) {
            Ok(()) => Ok(true),
            Err(Bad::Value) => Err(wrong(format!("write {key}={example}"))),
            Err(Bad::TooMany) => Err(wrong("write fewer addresses".into())),
        }
    }

    /// Whether no option contradicts another.
    fn agree(&self, names: &[&str]) -> Result<(), Error> {
        for (number, port) in self.ports.iter().enumerate() {
            let of = |option: &str| match (number, names.get(number)) {
                (1.., Some(name)) => format!("{option}:{name}"),
                _ => option.into(),
            };
            port.agree(of)?;
            let others = &self.ports[..number];
            let twice = |own: &Prefix<Ipv4Addr>| {
                let mut before = others.iter().flat_map(|other| &other.ipv4);
                before.any(|other| other.address() == own.address())
            };
            if let Some(own) = port.ipv4.iter().find(|own| twice(own)) {
                return Err(Error {
                    option: format!("{}={}/{}", of("--ipv4"), own.address(), own.bits()),
                    advice: "another port has this address; write another one".into(),
                });
            }
        }
        Ok(())
    }
}

/// The option that a key names, and the number of the port that it is of: the first, if it names
/// none. `None` if there is no such port.
pub fn of_port<'a>(key: &'a str, names: &[&str]) -> (&'a str, Option<usize>) {
    match key.split_once(':') {
        None => (key, Some(0)),
        Some((option, name)) => (option, names.iter().position(|known| *known == name)),
    }
}

/// What to write where an option names no port.
pub fn unknown(names: &[&str]) -> String {
    format!("the image's ports are {}", names.join(", "))
}

/// Why a value cannot be used.
enum Bad {
    Value,
    TooMany,
}

impl Port {
    /// Takes the value of one of [`OF_PORT`].
    fn set(&mut self, option: &str, value: &str) -> Result<(), Bad> {
        match option {
            "--ipv4" => {
                let prefix = prefix(value).ok_or(Bad::Value)?;
                push(&mut self.ipv4, prefix, ipv4::ADDRESSES_MAX)?;
            }
            "--ipv6" => {
                let prefix = prefix(value).ok_or(Bad::Value)?;
                push(&mut self.ipv6, prefix, IPV6_MAX)?;
            }
            "--ipv4-gateway" => {
                let gateway = value.parse().ok().filter(station);
                self.ipv4_gateway = Some(gateway.ok_or(Bad::Value)?);
            }
            "--ipv6-gateway" => {
                let gateway = value.parse().ok().filter(station);
                self.ipv6_gateway = Some(gateway.ok_or(Bad::Value)?);
            }
            "--mtu" => {
                let mtu = value.parse().ok().filter(|mtu| MTU.contains(mtu));
                self.mtu = Some(mtu.ok_or(Bad::Value)?);
            }
            _ => self.dhcp = true,
        }
        Ok(())
    }

    /// Whether no option of this port contradicts another; `of` is what the user calls it.
    fn agree(&self, of: impl Fn(&str) -> String) -> Result<(), Error> {
        let given = !self.ipv4.is_empty() || self.ipv4_gateway.is_some();
        if self.dhcp && given {
            let [dhcp, ipv4, gateway] = ["--dhcp", "--ipv4", "--ipv4-gateway"].map(of);
            return Err(Error {
                advice: format!("write either it or {ipv4} and {gateway}"),
                option: dhcp,
            });
        }
        match self.ipv4_gateway {
            Some(gateway) if !self.ipv4.iter().any(|own| own.contains(gateway)) => Err(Error {
                option: format!("{}={gateway}", of("--ipv4-gateway")),
                advice: format!("write an address in the network of {}", of("--ipv4")),
            }),
            _ => Ok(()),
        }
    }
}

/// Adds one of at most so many.
fn push<T>(all: &mut Vec<T>, one: T, most: usize) -> Result<(), Bad> {
    if all.len() == most {
        return Err(Bad::TooMany);
    }
    all.push(one);
    Ok(())
}

fn network(address: Ipv4Addr, bits: u8) -> Prefix<Ipv4Addr> {
    Prefix::new(address, bits).expect("at most 32 bits")
}

fn prefix<A: Address + FromStr>(value: &str) -> Option<Prefix<A>> {
    let (address, bits) = value.split_once('/')?;
    let address = address.parse().ok().filter(station)?;
    Prefix::new(address, bits.parse().ok().filter(|bits| *bits > 0)?)
}

fn station<A: Address>(address: &A) -> bool {
    address.is_station()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn take(line: &str) -> Result<(Options, Vec<&str>), Error> {
        Options::take(line.split_ascii_whitespace(), &["service", "inside"])
    }

    #[test]
    fn the_help_stands_in_columns() {
        let options = HELP.lines().take_while(|line| !line.is_empty());
        let starts = |line: &str| line.starts_with("  --") || line.starts_with(&" ".repeat(27));
        assert_eq!(options.clone().count(), 11);
        options.for_each(|line| assert!(starts(line), "{line}"));
    }

    #[test]
    fn a_network_is_taken_out_of_the_line() {
        let (options, others) =
            take("-s --ipv4=192.168.7.9/16 --ipv4-gateway=192.168.0.1 -p 9").unwrap();
        assert_eq!(
            options.ports[0].ipv4,
            [network([192, 168, 7, 9].into(), 16)]
        );
        assert_eq!(options.ports[0].ipv4_gateway, Some([192, 168, 0, 1].into()));
        assert_eq!(others, ["-s", "-p", "9"]);
        let (options, _) = take("--ipv6=fd00::9/64 --ipv6-gateway=fe80::1").unwrap();
        assert_eq!(
            options.ports[0].ipv6,
            [Prefix::new("fd00::9".parse().unwrap(), 64).unwrap()]
        );
        assert_eq!(
            options.ports[0].ipv6_gateway,
            Some("fe80::1".parse().unwrap())
        );
        let (options, _) = take("").unwrap();
        assert_eq!(options.ports[0].ipv4, [network([10, 0, 0, 2].into(), 24)]);
        let (options, others) = take("--dhcp --dhcp=yes --ipv4x=1").unwrap();
        assert!(options.ports[0].dhcp && options.ports[0].ipv4.is_empty());
        assert_eq!(others, ["--dhcp=yes", "--ipv4x=1"]);
    }

    #[test]
    fn several_addresses_are_several_and_bounded() {
        let (options, _) = take("--ipv4=10.0.0.2/24 --ipv4=10.1.0.2/16 --ipv6=fd00::2/64").unwrap();
        assert_eq!(
            (options.ports[0].ipv4.len(), options.ports[0].ipv6.len()),
            (2, 1)
        );
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
    fn an_mtu_is_one_that_a_link_can_have() {
        let (options, _) = take("--mtu=1280 --mtu:inside=9216").unwrap();
        let mtus: Vec<_> = options.ports.iter().map(|port| port.mtu).collect();
        assert_eq!(mtus, [Some(1280), Some(9216)]);
        for line in ["--mtu=1279", "--mtu=9217", "--mtu=", "--mtu=-1"] {
            let error = take(line).unwrap_err().to_string();
            assert_eq!(error, format!("{line}: write --mtu=9000"));
        }
    }

    #[test]
    fn each_port_has_its_own() {
        let line = "--ipv4=10.0.0.2/24 --ipv4:inside=10.1.0.2/24 --ipv4-gateway:inside=10.1.0.1 \
                    --ipv6:inside=fd00::2/64 --dhcp:service=x --dhcpx:inside";
        let (options, others) = take(line).unwrap();
        let inside = Port {
            ipv4: [network([10, 1, 0, 2].into(), 24)].into(),
            ipv4_gateway: Some([10, 1, 0, 1].into()),
            ipv6: [Prefix::new("fd00::2".parse().unwrap(), 64).unwrap()].into(),
            ..Port::default()
        };
        assert_eq!(options.ports[1], inside);
        assert_eq!(others, ["--dhcp:service=x", "--dhcpx:inside"]);
        let (options, _) = take("--dhcp:inside --ipv4:service=10.0.0.9/24").unwrap();
        assert_eq!(options.ports[0].ipv4, [network([10, 0, 0, 9].into(), 24)]);
        assert!(options.ports[1].dhcp && !options.ports[0].dhcp);
        let (options, _) = take("--dhcp").unwrap();
        assert_eq!(options.ports[1], Port::default());
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
            (
                "--dhcp:inside --ipv4:inside=10.0.0.2/24",
                "--dhcp:inside: write either it or --ipv4:inside and --ipv4-gateway:inside",
            ),
            (
                "--ipv4:insid=10.0.0.2/24",
                "--ipv4:insid=10.0.0.2/24: the image's ports are service, inside",
            ),
            (
                "--ipv4:inside=10.0.0.2/240",
                "--ipv4:inside=10.0.0.2/240: write --ipv4:inside=10.0.0.2/24",
            ),
            (
                "--ipv4:inside=10.0.0.2/16",
                "--ipv4:inside=10.0.0.2/16: another port has this address; write another one",
            ),
        ] {
            assert_eq!(take(line).unwrap_err().to_string(), expected);
        }
    }
}
