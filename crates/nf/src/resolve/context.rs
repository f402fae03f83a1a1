//! What nft concludes from the conditions of a rule (its `struct proto_ctx`).
//!
//! A field of a header asks for the protocols in front of it, as `nft --debug=netlink` shows: `ip
//! saddr` for `meta protocol ip`, `tcp dport` for `meta l4proto tcp`, `vlan id` for `ether type
//! vlan`, unless the rule has asked for them. `icmp type` asks for `ether type ip`, which no tagged
//! frame has, unless the rule has asked for a protocol before.
//!
//! Of several protocols in braces, nft takes the last one that it knows for all of them, and then
//! asks for nothing. It would read a field in frames that have no such header. Such a rule is
//! refused ([`ErrorKind::Misleading`]).

use crate::fields::{Header, Slot, Symbols};
use crate::ir::Intervals;
use crate::key::{ether_type, protocol};
use crate::nft::ast::{Family, Span};
use crate::nft::{Error, ErrorKind, Refusal};

pub(super) const BEHIND_SEVERAL: Refusal = Refusal {
    what: "a header field behind a set of protocols in braces",
    why: "is not supported: nft takes one of them for all",
    instead: Some("a rule for each protocol, or only the condition on the field"),
};
pub(super) const INNER_TAG: Refusal = Refusal {
    what: "a header field behind the type of a VLAN tag that is asked for twice",
    why: "is not supported: nft looks for it behind a second tag",
    instead: Some("ask for the type once: `ether type vlan`, or only `vlan id`"),
};

const PORTS_OF_ANY: Refusal = Refusal {
    what: "a port of a connection whose protocol is not asked for",
    why: "is not supported by nft, which does not know that it is one",
    instead: Some("`meta l4proto tcp` or `meta l4proto udp` in front of it"),
};

/// Conditions on protocols that a field implies.
pub(super) type Protocols = [Option<(Slot, u16)>; 2];

/// The name and the number of a protocol.
type Named<T> = (&'static str, T);

const IP: Named<u16> = ("ip", ether_type::IPV4);
const IP6: Named<u16> = ("ip6", ether_type::IPV6);

/// Protocols behind a link header that nft knows.
const NETWORKS: &Symbols = &[("arp", ether_type::ARP), IP, IP6];

/// Protocols over IP that nft knows.
const TRANSPORTS: &Symbols = &[
    ("ah", 51),
    ("comp", 108),
    ("dccp", 33),
    ("esp", 50),
    ("icmp", 1),
    ("icmpv6", 58),
    ("igmp", 2),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
    ("udplite", 136),
];

/// A protocol that nft has a number for, and no name.
const UNKNOWN: &str = "another protocol";

/// The protocols that a rule has asked for so far.
#[derive(Clone, Copy)]
pub(super) struct Context {
    family: Family,
    tag: Option<Tag>,
    network: Option<Network>,
    transport: Option<Transport>,
}

/// A VLAN tag: the types that follow are those behind it.
#[derive(Clone, Copy)]
struct Tag {
    /// Whether its type was asked for a second time: to nft, that is a tag in a tag.
    twice: bool,
    /// Whether each frame that the rule can match has it.
    sure: bool,
}

/// What follows the link header.
#[derive(Clone, Copy)]
struct Network {
    name: &'static str,
    /// Whether it follows in each frame that the rule can match.
    sure: bool,
}

/// What follows the IP header.
#[derive(Clone, Copy)]
struct Transport {
    /// What was asked for first.
    first: &'static str,
    /// What else was asked for: no field follows.
    second: Option<&'static str>,
    /// Whether it follows in each frame that the rule can match.
    sure: bool,
}

/// Whether nft learns something from conditions on this slot.
pub(super) fn teaches(slot: Slot) -> bool {
    matches!(
        slot,
        Slot::LinkType | Slot::Protocol | Slot::NextHeader | Slot::L4Protocol
    )
}

impl Context {
    /// What is known of each packet that a table of this family sees.
    pub(super) fn new(family: Family) -> Self {
        let network = match family {
            Family::Bridge | Family::Inet => None,
            Family::Ip => Some(IP.0),
            Family::Ip6 => Some(IP6.0),
        };
        Self {
            family,
            tag: None,
            network: network.map(|name| Network { name, sure: true }),
            transport: None,
        }
    }

    /// What a field of `header` asks for, apart from what is known.
    pub(super) fn implied(&mut self, header: Header, span: Span) -> Result<Protocols, Error> {
        match header {
            Header::Vlan => self.vlan(span),
            Header::Ip => self.network(IP, span),
            Header::Ip6 => self.network(IP6, span),
            Header::Tcp => self.transport(("tcp", protocol::TCP), None, span),
            Header::Udp => self.transport(("udp", protocol::UDP), None, span),
            Header::Icmp => self.transport(("icmp", protocol::ICMP), Some(IP), span),
            Header::Icmpv6 => self.transport(("icmpv6", protocol::ICMPV6), Some(IP6), span),
            Header::Connection => Ok([None; 2]),
            Header::ConnectionIp => Ok([Some((Slot::Protocol, ether_type::IPV4)), None]),
            Header::ConnectionIp6 => Ok([Some((Slot::Protocol, ether_type::IPV6)), None]),
            Header::ConnectionPorts => self.ports(span),
        }
    }

    /// The network protocol of each packet that the rule can match, if the rule has asked for it.
    pub(super) fn network_name(&self) -> Option<&'static str> {
        self.network.filter(|it| it.sure).map(|it| it.name)
    }

    /// Whether the rule has asked for a transport protocol.
    pub(super) fn has_transport(&self) -> bool {
        self.transport.is_some()
    }

    /// Whether the table has packets of one family.
    pub(super) fn is_of_one_family(&self) -> bool {
        matches!(self.family, Family::Ip | Family::Ip6)
    }

    /// Refuses what is about the network protocol `here`, if the rule has asked for another one.
    pub(super) fn check_network(&self, here: &'static str, span: Span) -> Result<(), Error> {
        match self.network {
            Some(network) if network.name != here => Err(network.conflict(here, span)),
            _ => Ok(()),
        }
    }

    /// Whether the rule has asked for another transport protocol than TCP, or for several.
    pub(super) fn excludes_tcp(&self) -> bool {
        let tcp_alone = |it: Transport| it.first == "tcp" && it.second.is_none() && it.sure;
        self.transport
            .is_some_and(|transport| !tcp_alone(transport))
    }

    fn vlan(&mut self, span: Span) -> Result<Protocols, Error> {
        if self.tag.is_some() {
            self.check_tag(span)?;
            return Ok([None; 2]);
        }
        if let Some(network) = self.network {
            return Err(network.conflict("vlan", span));
        }
        self.tag = Some(Tag {
            twice: false,
            sure: true,
        });
        Ok([Some((Slot::LinkType, ether_type::VLAN)), None])
    }

    /// Refuses what nft would look for in another place than behind the first tag.
    fn check_tag(&self, span: Span) -> Result<(), Error> {
        match self.tag {
            Some(Tag { twice: true, .. }) => misleading(&INNER_TAG, span),
            Some(Tag { sure: false, .. }) => misleading(&BEHIND_SEVERAL, span),
            _ => Ok(()),
        }
    }

    fn network(&mut self, (here, value): Named<u16>, span: Span) -> Result<Protocols, Error> {
        match self.network {
            Some(Network { name, sure: true }) if name == here => Ok([None; 2]),
            Some(Network { name, .. }) if name == here => misleading(&BEHIND_SEVERAL, span),
            Some(network) => Err(network.conflict(here, span)),
            None => {
                self.check_tag(span)?;
                self.network = Some(Network {
                    name: here,
                    sure: true,
                });
                Ok([Some((Slot::Protocol, value)), None])
            }
        }
    }

    /// What a field of a transport header asks for. Where the rule has not asked for a network
    /// protocol, that is `usual` too, if the transport protocol has a usual one.
    fn transport(
        &mut self,
        (here, value): Named<u8>,
        usual: Option<Named<u16>>,
        span: Span,
    ) -> Result<Protocols, Error> {
        if let Some(transport) = self.transport {
            transport.check(here, span)?;
            return Ok([None; 2]);
        }
        let mut link = None;
        match (self.network, usual) {
            (Some(network), _) if !["ip", "ip6"].contains(&network.name) => {
                return Err(network.conflict(here, span));
            }
            (None, Some((name, value))) => {
                self.check_tag(span)?;
                // Of a tagged frame, nft asks for the type behind the tag.
                let slot = match (self.tag, self.family) {
                    (None, Family::Bridge) => Slot::LinkType,
                    _ => Slot::Protocol,
                };
                self.network = Some(Network { name, sure: true });
                link = Some((slot, value));
            }
            _ => {}
        }
        self.transport = Some(Transport {
            first: here,
            second: None,
            sure: true,
        });
        Ok([link, Some((Slot::L4Protocol, value.into()))])
    }

    /// Ports of a connection are ports to nft where it knows one protocol that has some.
    fn ports(&self, span: Span) -> Result<Protocols, Error> {
        match self.transport {
            Some(Transport {
                first: "tcp" | "udp",
                second: None,
                sure: true,
            }) => Ok([None; 2]),
            _ => Err(Error::new(span, ErrorKind::Refused(&PORTS_OF_ANY))),
        }
    }

    /// What follows from a condition that holds for the values `asked`, in the order of the rule,
    /// and for ranges, from which nft concludes nothing. `held` is all of it.
    pub(super) fn learn(&mut self, slot: Slot, asked: &[u128], held: &Intervals) {
        for value in asked {
            let value = *value as u16;
            let sure = **held == [(value.into(), value.into())];
            match slot {
                Slot::LinkType if is_tag(value) => self.learn_tag(held),
                Slot::LinkType => {
                    if let Some(name) = name_of(NETWORKS, value) {
                        self.learn_network(name, sure);
                    }
                }
                Slot::Protocol => {
                    let name = match is_tag(value) {
                        true => Some("vlan"),
                        false => name_of(NETWORKS, value),
                    };
                    self.learn_network(name.unwrap_or(UNKNOWN), sure);
                }
                Slot::NextHeader => {
                    if let Some(name) = name_of(TRANSPORTS, value) {
                        self.learn_transport(name, sure);
                    }
                }
                Slot::L4Protocol => {
                    let name = name_of(TRANSPORTS, value).unwrap_or(UNKNOWN);
                    self.learn_transport(name, sure);
                }
                _ => {}
            }
        }
    }

    fn learn_tag(&mut self, held: &Intervals) {
        let are_tags = |(low, high): &(u128, u128)| low == high && is_tag(*low as u16);
        let sure = held.iter().all(are_tags) || self.tag.is_some_and(|tag| tag.sure);
        let twice = self.tag.is_some();
        self.tag = Some(Tag { twice, sure });
    }

    fn learn_network(&mut self, name: &'static str, sure: bool) {
        let before = self.network.filter(|network| network.name == name);
        let sure = sure || before.is_some_and(|network| network.sure);
        self.network = Some(Network { name, sure });
    }

    fn learn_transport(&mut self, name: &'static str, sure: bool) {
        self.transport = Some(match self.transport {
            None => Transport {
                first: name,
                second: None,
                sure,
            },
            Some(known) if known.first == name => Transport {
                sure: known.sure || sure,
                ..known
            },
            Some(known) => Transport {
                second: known.second.or(Some(name)),
                ..known
            },
        });
    }
}

impl Network {
    fn conflict(self, here: &'static str, span: Span) -> Error {
        conflict(self.name, self.sure, here, span)
    }
}

impl Transport {
    /// Refuses a field of the header `here`, unless that was asked for alone.
    fn check(self, here: &'static str, span: Span) -> Result<(), Error> {
        let Self {
            first,
            second,
            sure,
        } = self;
        let other = Some(first).filter(|first| *first != here).or(second);
        match other {
            Some(other) => Err(conflict(other, sure, here, span)),
            None if sure => Ok(()),
            None => misleading(&BEHIND_SEVERAL, span),
        }
    }
}

/// A field of the protocol `here` in a rule that has asked for `before`.
fn conflict(before: &'static str, sure: bool, here: &'static str, span: Span) -> Error {
    let kind = if sure {
        ErrorKind::Conflict { before, here }
    } else {
        ErrorKind::Misleading(&BEHIND_SEVERAL)
    };
    Error::new(span, kind)
}

fn misleading<T>(refusal: &'static Refusal, span: Span) -> Result<T, Error> {
    Err(Error::new(span, ErrorKind::Misleading(refusal)))
}

fn is_tag(value: u16) -> bool {
    [ether_type::VLAN, ether_type::SERVICE_VLAN].contains(&value)
}

fn name_of(table: &Symbols, value: u16) -> Option<&'static str> {
    let mut known = table.iter();
    let found = known.find(|(_, number)| *number == value);
    found.map(|(name, _)| *name)
}
