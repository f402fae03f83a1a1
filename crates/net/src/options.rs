//! What a command line says of a port's network: MirageOS's options.

use crate::address::{Address, Prefix};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// The options, as `--help` of an image shows them.
pub const HELP: &str = "\
  --ipv4=ADDRESS/BITS      our address and its network (default: 10.0.0.2/24)
  --ipv4-gateway=ADDRESS   where packets to other networks go
  --ipv6=ADDRESS/BITS      an address beside those that routers announce the network of
  --ipv6-gateway=ADDRESS   where packets to other networks go, if no router announces itself
";

/// Addresses of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Our address and its network.
    pub ipv4: Prefix<Ipv4Addr>,
    /// Where packets to other networks go.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// An address, and its network.
    pub ipv6: Option<Prefix<Ipv6Addr>>,
    /// Where packets to other networks go, if no router announces itself.
    pub ipv6_gateway: Option<Ipv6Addr>,
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
        let mut options = Self {
            // MirageOS's own.
            ipv4: network(Ipv4Addr::new(10, 0, 0, 2), 24),
            ipv4_gateway: None,
            ipv6: None,
            ipv6_gateway: None,
        };
        let mut others = Vec::new();
        for argument in arguments {
            let wrong = |wants| Error {
                option: argument.into(),
                wants,
            };
            if let Some(value) = argument.strip_prefix("--ipv4=") {
                let prefix = prefix(value, is_station);
                options.ipv4 = prefix.ok_or_else(|| wrong("--ipv4=10.0.0.2/24"))?;
            } else if let Some(value) = argument.strip_prefix("--ipv6=") {
                let prefix = prefix(value, is_station6);
                options.ipv6 = Some(prefix.ok_or_else(|| wrong("--ipv6=fd00::2/64"))?);
            } else if let Some(value) = argument.strip_prefix("--ipv6-gateway=") {
                let gateway = value.parse().ok().filter(is_station6);
                let gateway = gateway.ok_or_else(|| wrong("--ipv6-gateway=fe80::1"))?;
                options.ipv6_gateway = Some(gateway);
            } else if let Some(value) = argument.strip_prefix("--ipv4-gateway=") {
                let gateway = value.parse().ok().filter(is_station);
                let gateway = gateway.ok_or_else(|| wrong("--ipv4-gateway=10.0.0.1"))?;
                options.ipv4_gateway = Some(gateway);
            } else {
                others.push(argument);
            }
        }
        if let Some(gateway) = options.ipv4_gateway
            && !options.ipv4.contains(gateway)
        {
            return Err(Error {
                option: alloc::format!("--ipv4-gateway={gateway}"),
                wants: "an address in the network of --ipv4",
            });
        }
        Ok((options, others))
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
        assert_eq!(options.ipv4, network([192, 168, 7, 9].into(), 16));
        assert_eq!(options.ipv4_gateway, Some([192, 168, 0, 1].into()));
        assert_eq!(others, ["-s", "-p", "9"]);
        let (options, _) = take("--ipv6=fd00::9/64 --ipv6-gateway=fe80::1").unwrap();
        assert_eq!(options.ipv6, Prefix::new("fd00::9".parse().unwrap(), 64));
        assert_eq!(options.ipv6_gateway, Some("fe80::1".parse().unwrap()));
        let (options, _) = take("").unwrap();
        assert_eq!(options.ipv4, network([10, 0, 0, 2].into(), 24));
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
        ] {
            assert_eq!(take(line).unwrap_err().to_string(), expected);
        }
    }
}
