//! What a router offers to the networks at its ports, and the options that say so.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use net::dhcp::server::{Config, Server};
use net::ipv6::{Advertised, SERVERS_MAX};
use net::options::{Error, Options, of_port, unknown};

/// The options, as `--help` of a router shows them.
pub const HELP: &str = "  \
  --lend:PORT=FIRST-LAST   lends these addresses of the port's IPv4 network to who asks by DHCP, and
                           tells them of --dns and of the router
  --advertise:PORT         announces the port's IPv6 networks to who is there, the servers of --dns,
                           and the router
  --forward-names:PORT     answers questions for names at the port's addresses, by asking the
                           servers of --dns, or those that a server of DHCP lends; whoever is lent
                           or announced something there is told the router in place of --dns

";

/// What a good address looks like.
const OWN: &str = "10.0.0.1/24";
/// What a good range looks like.
const RANGE: &str = "10.0.0.100-10.0.0.200";

/// What a router offers at its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// What each port lends, if it lends anything.
    lent: Vec<Option<Config>>,
    /// What each port announces beside its networks, if it announces them.
    advertised: Vec<Option<Advertised>>,
    /// The addresses of each port at which it is asked for names.
    forwarded: Vec<Vec<IpAddr>>,
}

impl Offers {
    /// Takes a router's options out of `arguments`: what [`Options::take`] has left, and has found,
    /// of ports of these names; the others, in order.
    ///
    /// # Errors
    /// The first option that cannot be used, and what it should look like.
    pub fn take<'a>(
        arguments: &[&'a str],
        names: &[&str],
        options: &Options,
    ) -> Result<(Self, Vec<&'a str>), Error> {
        let mut offers = Self {
            lent: vec![None; options.ports.len()],
            advertised: vec![None; options.ports.len()],
            forwarded: vec![Vec::new(); options.ports.len()],
        };
        let mut others = Vec::new();
        for argument in arguments {
            if !offers.heed(argument, names, options)? {
                others.push(*argument);
            }
        }
        offers.tell_own();
        Ok((offers, others))
    }

    /// Whom a port asks for names is the router itself, where it answers.
    fn tell_own(&mut self) {
        let offered = self.lent.iter_mut().zip(&mut self.advertised);
        for ((lent, advertised), own) in offered.zip(&self.forwarded) {
            if own.is_empty() {
                continue;
            }
            *lent = lent.take().map(|config| {
                let own = config.own().address();
                config.with_servers([own])
            });
            if let Some(advertised) = advertised {
                advertised.servers = of_version6(own).take(1).collect();
            }
        }
    }

    /// Takes one option; whether it is one.
    fn heed(&mut self, argument: &str, names: &[&str], options: &Options) -> Result<bool, Error> {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let (option, number) = of_port(key, names);
        let wrong = |advice: String| Error::new(argument, advice);
        if !matches!(option, "--lend" | "--advertise" | "--forward-names") {
            return Ok(false);
        }
        let number = number.filter(|number| *number < options.ports.len());
        let number = number.ok_or_else(|| wrong(unknown(names)))?;
        let port = &options.ports[number];
        let of = |other: &str| key.replacen(option, other, 1);
        if option == "--forward-names" {
            if !value.is_empty() {
                return Err(wrong(format!("write {key}")));
            }
            let own4 = port.ipv4.iter().map(|own| own.address().into());
            let own6 = port.ipv6.iter().map(|own| own.address().into());
            let own: Vec<IpAddr> = own4.chain(own6).collect();
            if own.is_empty() {
                return Err(wrong(format!("write {}={OWN} beside it", of("--ipv4"))));
            }
            self.forwarded[number] = own;
            return Ok(true);
        }
        if option == "--advertise" {
            if !value.is_empty() {
                return Err(wrong(format!("write {key}")));
            }
            if port.ipv6.is_empty() {
                return Err(wrong(format!(
                    "write {}=fd00::1/64 beside it",
                    of("--ipv6")
                )));
            }
            let servers = of_version6(&options.dns);
            // No more are given than are told.
            let servers = servers.take(SERVERS_MAX).collect();
            self.advertised[number] = Some(Advertised { servers });
            return Ok(true);
        }
        let range = range(value).ok_or_else(|| wrong(format!("write {key}={RANGE}")))?;
        let own = port.ipv4.iter().find(|own| own.contains(range.0));
        let own = own.ok_or_else(|| {
            let ipv4 = of("--ipv4");
            wrong(format!("write addresses in the network of {ipv4}"))
        })?;
        let config = Config::new(*own, range.0, range.1);
        let config = config.map_err(|error| wrong(format!("{error}")))?;
        let servers = options.dns.iter().filter_map(|server| match server {
            IpAddr::V4(server) => Some(*server),
            IpAddr::V6(_) => None,
        });
        self.lent[number] = Some(config.with_servers(servers));
        Ok(true)
    }

    /// The servers of DHCP, each with the number of its port; `mtu` says what that has.
    pub fn servers(&self, mtu: impl Fn(usize) -> usize) -> Vec<(usize, Server)> {
        let lent = self.lent.iter().enumerate();
        let servers = lent.filter_map(|(port, config)| {
            let mtu = u16::try_from(mtu(port)).unwrap_or(u16::MAX);
            let config = config.clone()?.with_mtu(mtu);
            Some((port, Server::new(config)))
        });
        servers.collect()
    }

    /// What is said of it at the start, of ports of these names.
    pub fn said(&self, names: &[&str]) -> impl Iterator<Item = String> {
        let lent = self.lent.iter().zip(names).filter_map(|(config, name)| {
            let (first, last) = config.as_ref()?.range();
            Some(format!("lends {first} to {last} on {name}"))
        });
        let advertised = self.advertised.iter().zip(names);
        let advertised = advertised.filter_map(|(advertised, name)| {
            let _ = advertised.as_ref()?;
            Some(format!("announces the IPv6 networks of {name}"))
        });
        let forwarded = self.forwarded.iter().zip(names);
        let forwarded = forwarded.filter(|(own, _)| !own.is_empty());
        let forwarded = forwarded.map(|(_, name)| format!("forwards names for {name}"));
        lent.chain(advertised).chain(forwarded)
    }

    /// The addresses at which it is asked for names.
    pub fn forwarded(&self) -> Vec<IpAddr> {
        self.forwarded.concat()
    }

    /// What ports announce, each with the number of its port.
    pub fn advertised(&self) -> impl Iterator<Item = (usize, Advertised)> {
        let ports = self.advertised.iter().enumerate();
        ports.filter_map(|(port, advertised)| Some((port, advertised.clone()?)))
    }
}

fn of_version6(servers: &[IpAddr]) -> impl Iterator<Item = Ipv6Addr> {
    servers.iter().filter_map(|server| match server {
        IpAddr::V6(server) => Some(*server),
        IpAddr::V4(_) => None,
    })
}

fn range(value: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = value.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const NAMES: [&str; 2] = ["public", "private"];

    fn take(line: &str) -> Result<(Offers, Vec<&str>), Error> {
        let (options, others) = Options::take(line.split_ascii_whitespace(), &NAMES)?;
        Offers::take(&others, &NAMES, &options)
    }

    #[test]
    fn each_port_offers_its_own() {
        let line = "--ipv4:private=10.1.0.1/24 --ipv6:private=fd00::1/64 x --dns=10.1.0.1 \
                    --lend:private=10.1.0.100-10.1.0.200 --advertise:private --dns=fd00::1";
        let (offers, others) = take(line).unwrap();
        assert_eq!(others, ["x"]);
        let servers = offers.servers(|_| 1500);
        let ports: Vec<_> = servers.iter().map(|(port, _)| *port).collect();
        assert_eq!(ports, [1]);
        let (port, advertised) = offers.advertised().next().unwrap();
        let names: Vec<_> = advertised.servers.iter().map(ToString::to_string).collect();
        assert_eq!((port, names), (1, vec!["fd00::1".to_string()]));
        let own = servers[0].1.config().own();
        assert_eq!(own.address(), Ipv4Addr::new(10, 1, 0, 1));
        let said: Vec<_> = offers.said(&NAMES).collect();
        let expected = [
            "lends 10.1.0.100 to 10.1.0.200 on private",
            "announces the IPv6 networks of private",
        ];
        assert_eq!(said, expected);
        let (offers, _) = take("--lend=10.0.0.9-10.0.0.9").unwrap();
        assert_eq!(offers.servers(|_| 1500)[0].0, 0);
        let (offers, _) = take("").unwrap();
        assert!(offers.servers(|_| 1500).is_empty() && offers.advertised().next().is_none());
    }

    #[test]
    fn whoever_is_answered_here_is_told_so() {
        let line = "--ipv4:private=10.1.0.1/24 --ipv6:private=fd00::1/64 --forward-names:private \
                    --lend:private=10.1.0.100-10.1.0.200 --advertise:private --dns=192.0.2.53 \
                    --dns=2001:db8::53";
        let (offers, _) = take(line).unwrap();
        let own: [IpAddr; 2] = ["10.1.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        assert_eq!(offers.forwarded(), own);
        let (_, advertised) = offers.advertised().next().unwrap();
        assert_eq!(
            advertised.servers[..],
            ["fd00::1".parse::<Ipv6Addr>().unwrap()]
        );
        let config = offers.lent[1].clone().unwrap();
        let own = Ipv4Addr::new(10, 1, 0, 1);
        assert_eq!(config.clone().with_servers([own]), config);
        let last = offers.said(&NAMES).last();
        assert_eq!(last.as_deref(), Some("forwards names for private"));
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        for (line, expected) in [
            ("--lend", "--lend: write --lend=10.0.0.100-10.0.0.200"),
            (
                "--lend=10.0.0.9",
                "--lend=10.0.0.9: write --lend=10.0.0.100-10.0.0.200",
            ),
            (
                "--lend:x=10.0.0.9-10.0.0.9",
                "--lend:x=10.0.0.9-10.0.0.9: the image's ports are public, private",
            ),
            (
                "--lend:private=10.0.0.9-10.0.0.9",
                "--lend:private=10.0.0.9-10.0.0.9: write addresses in the network of \
                 --ipv4:private",
            ),
            (
                "--lend=10.0.0.9-10.0.0.8",
                "--lend=10.0.0.9-10.0.0.8: the first address comes before the last one",
            ),
            (
                "--lend=10.0.0.9-10.0.0.255",
                "--lend=10.0.0.9-10.0.0.255: both addresses are stations' in the port's network",
            ),
            (
                "--advertise:private",
                "--advertise:private: write --ipv6:private=fd00::1/64 beside it",
            ),
            (
                "--forward-names:private",
                "--forward-names:private: write --ipv4:private=10.0.0.1/24 beside it",
            ),
            (
                "--forward-names=yes",
                "--forward-names=yes: write --forward-names",
            ),
            (
                "--advertise=yes --ipv6=fd00::1/64",
                "--advertise=yes: write --advertise",
            ),
        ] {
            assert_eq!(take(line).unwrap_err().to_string(), expected);
        }
    }
}
