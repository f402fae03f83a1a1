//! Which ports carry VLANs, and the option that says so.

use crate::trunk::{self, Dropped, Part};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use device::Netif;
use net::options::{Error, Options, of_port, unknown};

/// The option, as `--help` of a router shows it.
pub const HELP: &str = "  \
  --vlan:PORT=ID,...       the port carries these VLANs: each is a port called PORT.ID, with options
                           and rules of its own; frames without a tag come to PORT if an option
                           gives that something, and are dropped otherwise

";

/// Numbers of VLANs (IEEE 802.1Q, table 9-2).
const IDS: RangeInclusive<u16> = 1..=4094;
/// Most VLANs of a port.
const VLANS_MAX: usize = 16;
/// The longest name that rules can have for a port.
const NAME_MAX: usize = 15;
const OPTION: &str = "--vlan";
/// It is the trunk's, and says nothing of the port that frames without a tag come to.
const MTU: &str = "--mtu";
/// Options of a port; those that name none are of the first.
const OF_PORT: [&str; 9] = [
    "--ipv4",
    "--ipv6",
    "--ipv4-gateway",
    "--ipv6-gateway",
    "--dhcp",
    MTU,
    "--lend",
    "--advertise",
    "--forward-names",
];

/// Ports of a router, and who has counted what they have dropped because of tags.
pub type Opened = (Vec<Box<dyn Netif>>, Vec<Dropped>);

/// A port of the image's, and what is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Physical {
    name: &'static str,
    /// Its VLANs, in order; none if it is no trunk.
    vlans: Vec<u16>,
    /// Whether it is a port itself.
    is_port: bool,
    /// What its card is to carry, if it is none.
    mtu: Option<usize>,
}

/// The ports of an image, and those that are made of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans(Vec<Physical>);

impl Vlans {
    /// Takes the options about VLANs of these ports out of `arguments`; the others, in order.
    ///
    /// # Errors
    /// The first option that cannot be used, and what it should look like.
    pub fn take<'a>(
        arguments: impl Iterator<Item = &'a str>,
        ports: &[&'static str],
    ) -> Result<(Self, Vec<&'a str>), Error> {
        let physical = |name: &&'static str| Physical {
            name,
            vlans: Vec::new(),
            is_port: true,
            mtu: None,
        };
        let mut all: Vec<_> = ports.iter().map(physical).collect();
        let mut others = Vec::new();
        for argument in arguments {
            match heed(argument, ports)? {
                Some((number, mut ids)) => all[number].vlans.append(&mut ids),
                None => others.push(argument),
            }
        }
        for (number, port) in all.iter_mut().enumerate() {
            port.vlans.sort_unstable();
            port.agree()?;
            let is_own = |argument: &&str| names(argument, ports) == Some(number);
            let about = |argument: &&str| is_own(argument) && !argument.starts_with(MTU);
            port.is_port = port.vlans.is_empty() || others.iter().any(about);
            if !port.is_port {
                let (own, rest) = others.into_iter().partition::<Vec<&str>, _>(is_own);
                let (options, _) = Options::take(own.into_iter(), ports)?;
                port.mtu = options.ports.get(number).and_then(|port| port.mtu);
                others = rest;
            }
        }
        Ok((Self(all), others))
    }

    /// The names of the ports that are there, in order. They live as long as the image.
    pub fn names(&self) -> Vec<&'static str> {
        let each = self.0.iter().flat_map(|port| {
            let own = port.is_port.then_some(port.name);
            let vlans = port.vlans.iter();
            let vlans = vlans.map(|id| -> &'static str { port.called(*id).leak() });
            own.into_iter().chain(vlans)
        });
        each.collect()
    }

    /// Notes which of those ports is which VLAN.
    pub fn tell(&self, options: &mut Options) {
        let each = self.0.iter().flat_map(Physical::parts);
        for (port, vlan) in options.ports.iter_mut().zip(each) {
            port.vlan = vlan;
        }
    }

    /// Makes them, with these options: `open` opens a port of the image's by its name, with an MTU
    /// if an option gives one.
    ///
    /// # Errors
    /// What `open` says, or an MTU is more than the port has.
    pub fn open<E: ToString>(
        &self,
        options: &Options,
        mut open: impl FnMut(&'static str, Option<usize>) -> Result<Box<dyn Netif>, E>,
    ) -> Result<Opened, String> {
        let (mut ports, mut dropped) = (Vec::new(), Vec::new());
        let mut mtus = options.ports.iter().map(|port| port.mtu);
        for physical in &self.0 {
            let own = physical.is_port.then(|| mtus.next().flatten()).flatten();
            let port = open(physical.name, own.or(physical.mtu));
            let port = port.map_err(|error| error.to_string())?;
            if physical.vlans.is_empty() {
                ports.push(port);
                continue;
            }
            let carries = port.mtu();
            let mut parts = Vec::new();
            for vlan in physical.parts() {
                let name = vlan.map_or(physical.name.into(), |id| physical.called(id));
                let mtu = vlan.and_then(|_| mtus.next().flatten());
                if let Some(mtu) = mtu.filter(|mtu| *mtu > carries) {
                    let of = physical.name;
                    return Err(format!("{MTU}:{name}={mtu}: {of} carries {carries}"));
                }
                parts.push(Part { name, vlan, mtu });
            }
            let (divided, counted) = trunk::divide(port, parts);
            ports.extend(divided);
            dropped.push(counted);
        }
        Ok((ports, dropped))
    }
}

impl Physical {
    /// The ports that are made of it, by their VLANs.
    fn parts(&self) -> impl Iterator<Item = Option<u16>> {
        let own = self.is_port.then_some(None);
        own.into_iter().chain(self.vlans.iter().copied().map(Some))
    }

    /// What one of its VLANs is called.
    fn called(&self, id: u16) -> String {
        format!("{}.{id}", self.name)
    }

    /// Whether its VLANs can be as they are.
    fn agree(&self) -> Result<(), Error> {
        let wrong = |advice: String| Err(Error::new(format!("{OPTION}:{}", self.name), advice));
        if self.vlans.len() > VLANS_MAX {
            return wrong(format!("write at most {VLANS_MAX} VLANs"));
        }
        if let Some(twice) = self.vlans.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("write {} once", twice[0]));
        }
        let longest = self.vlans.last().map(|id| self.called(*id));
        match longest.filter(|name| name.len() > NAME_MAX) {
            Some(name) => wrong(format!(
                "no rule can name {name}; give the port a name of fewer letters in the manifest"
            )),
            None => Ok(()),
        }
    }
}

/// The port that an option about VLANs is of, and what it says. `None` if it is another option.
fn heed(argument: &str, ports: &[&str]) -> Result<Option<(usize, Vec<u16>)>, Error> {
    let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
    let (OPTION, number) = of_port(key, ports) else {
        return Ok(None);
    };
    let wrong = |advice: String| Error::new(argument, advice);
    let number = number.filter(|number| *number < ports.len());
    let number = number.ok_or_else(|| wrong(unknown(ports)))?;
    let id = |id: &str| id.parse().ok().filter(|id| IDS.contains(id));
    let ids: Option<Vec<u16>> = value.split(',').map(id).collect();
    let ids = ids.ok_or_else(|| wrong(format!("write {key}=100,200, from 1 to 4094")))?;
    Ok(Some((number, ids)))
}

/// The number of the port that an option names, or means by naming none.
fn names(argument: &str, ports: &[&str]) -> Option<usize> {
    let (key, _) = argument.split_once('=').unwrap_or((argument, ""));
    match of_port(key, ports) {
        (option, number) if OF_PORT.contains(&option) => number,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::memory::MemoryPort;

    const PORTS: [&str; 2] = ["public", "private"];

    fn take(line: &str) -> Result<(Vlans, Vec<&str>), Error> {
        Vlans::take(line.split_ascii_whitespace(), &PORTS)
    }

    /// The names of the ports, and what each has.
    fn opened(line: &str) -> Result<Vec<(String, usize)>, String> {
        let (vlans, others) = take(line).map_err(|error| error.to_string())?;
        let names = vlans.names();
        let options = Options::take(others.into_iter(), &names);
        let (mut options, _) = options.map_err(|error| error.to_string())?;
        vlans.tell(&mut options);
        let (ports, _) = vlans.open(&options, |name, mtu| {
            let port = MemoryPort::new(name).with_mtu(mtu.unwrap_or(1500));
            Ok::<Box<dyn Netif>, String>(Box::new(port))
        })?;
        let told: Vec<_> = options.ports.iter().map(|port| port.vlan).collect();
        let expected: Vec<_> = vlans.0.iter().flat_map(Physical::parts).collect();
        assert_eq!(told, expected);
        let ports = ports.iter().map(|port| (port.name().into(), port.mtu()));
        let ports: Vec<(String, usize)> = ports.collect();
        let opened: Vec<_> = ports.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(opened, names);
        Ok(ports)
    }

    fn of(line: &str) -> Vec<(String, usize)> {
        opened(line).unwrap()
    }

    fn ports(all: &[(&str, usize)]) -> Vec<(String, usize)> {
        all.iter()
            .map(|(name, mtu)| ((*name).into(), *mtu))
            .collect()
    }

    #[test]
    fn without_the_option_ports_are_as_they_are() {
        assert_eq!(of(""), ports(&[("public", 1500), ("private", 1500)]));
        let (_, others) = take("--ipv4=10.0.0.1/24 x --vlans=1").unwrap();
        assert_eq!(others, ["--ipv4=10.0.0.1/24", "x", "--vlans=1"]);
    }

    #[test]
    fn a_trunk_is_a_port_itself_if_something_says_so() {
        let two = [("public", 1500), ("private.7", 1500), ("private.100", 1500)];
        assert_eq!(of("--vlan:private=100,7"), ports(&two));
        assert_eq!(of("--vlan:private=100 --vlan:private=7"), ports(&two));
        let all = [
            ("public", 1500),
            ("private", 1500),
            ("private.7", 1500),
            ("private.100", 1500),
        ];
        for option in ["--ipv4:private=10.1.0.1/24", "--dhcp:private"] {
            assert_eq!(of(&format!("--vlan:private=7,100 {option}")), ports(&all));
        }
        // Of the first port, which need not be named.
        let first = [("public", 1500), ("public.9", 1500), ("private", 1500)];
        assert_eq!(of("--vlan=9 --dhcp"), ports(&first));
        let first = [("public.9", 1500), ("private", 1500)];
        assert_eq!(of("--vlan=9 --ipv4:public.9=10.1.0.1/24"), ports(&first));
    }

    #[test]
    fn the_mtu_of_a_trunk_is_its_cards() {
        let line = "--vlan:private=7,100 --mtu:private=9000 --mtu:private.7=1280";
        let all = [("public", 1500), ("private.7", 1280), ("private.100", 9000)];
        assert_eq!(of(line), ports(&all));
        let line = "--vlan:private=7 --mtu:private=9000 --ipv4:private=10.1.0.1/24";
        let all = [("public", 1500), ("private", 9000), ("private.7", 9000)];
        assert_eq!(of(line), ports(&all));
        let error = opened("--vlan:private=7 --mtu:private.7=1501").unwrap_err();
        assert_eq!(error, "--mtu:private.7=1501: private carries 1500");
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        for (line, expected) in [
            (
                "--vlan:private",
                "--vlan:private: write --vlan:private=100,200, from 1 to 4094",
            ),
            (
                "--vlan:private=0",
                "--vlan:private=0: write --vlan:private=100,200, from 1 to 4094",
            ),
            (
                "--vlan=1,4095",
                "--vlan=1,4095: write --vlan=100,200, from 1 to 4094",
            ),
            (
                "--vlan:other=1",
                "--vlan:other=1: the image's ports are public, private",
            ),
            ("--vlan:private=7,100,7", "--vlan:private: write 7 once"),
            (
                "--vlan:private=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
                "--vlan:private: write at most 16 VLANs",
            ),
            (
                "--vlan:private=7 --ipv4:private.8=10.1.0.1/24",
                "--ipv4:private.8=10.1.0.1/24: the image's ports are public, private.7",
            ),
            (
                "--vlan:private=7 --mtu:private=1",
                "--mtu:private=1: write --mtu:private=9000",
            ),
        ] {
            assert_eq!(opened(line).unwrap_err(), expected);
        }
        let long = Vlans::take(["--vlan=4094"].into_iter(), &["longest-name"]).unwrap_err();
        assert!(
            long.to_string()
                .contains("no rule can name longest-name.4094")
        );
        let none = Vlans::take(["--vlan=1"].into_iter(), &[]).unwrap_err();
        assert!(none.to_string().contains("the image's ports are"));
    }
}
