//! A connection as a guest tells it, checked, and as JSON has it.

use abi::flows::{FAMILY_V4, FAMILY_V6, Record, STATUS_ZONE};
use nf::conntrack::{Class, Entry, Name};
use nf::protocol;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Bits of `ct status` that a guest says, and their names in nft.
pub const STATUSES: [(u8, &str); 5] = [
    (2, "seen-reply"),
    (4, "assured"),
    (8, "confirmed"),
    (16, "snat"),
    (32, "dnat"),
];
/// The bit of a connection that was answered.
pub const SEEN_REPLY: u8 = STATUSES[0].0;
/// The bit of one that stays in a full table.
pub const ASSURED: u8 = STATUSES[1].0;
/// The bit of one whose source is translated.
pub const SNAT: u8 = STATUSES[3].0;
/// The bit of one whose destination is translated.
pub const DNAT: u8 = STATUSES[4].0;

/// Protocols over IP that have a name here, as /etc/protocols has them in small letters.
const PROTOCOLS: [(u8, &str); 9] = [
    (protocol::ICMP, "icmp"),
    (2, "igmp"),
    (protocol::TCP, "tcp"),
    (protocol::UDP, "udp"),
    (47, "gre"),
    (50, "esp"),
    (51, "ah"),
    (protocol::ICMPV6, "icmpv6"),
    (132, "sctp"),
];

/// The connection that a record tells of; `None` if it can be none.
pub fn entry(record: &Record) -> Option<Entry> {
    let name = &record.name;
    let address = |bytes: [u8; 16]| -> Option<IpAddr> {
        match name.family {
            FAMILY_V4 => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
            FAMILY_V6 => Some(bytes.into()),
            _ => None,
        }
    };
    let is_in_zone = record.status & STATUS_ZONE != 0;
    let place = |place| {
        if is_in_zone {
            (0, place)
        } else {
            (name.place, 0)
        }
    };
    let direction = |source, destination, ports, (vlan, zone)| {
        Some(Name {
            source: address(source)?,
            destination: address(destination)?,
            ports,
            vlan,
            zone,
            protocol: name.protocol,
        })
    };
    Some(Entry {
        name: direction(name.source, name.destination, name.ports, place(name.place))?,
        reply: direction(
            record.reply_source,
            record.reply_destination,
            record.reply_ports,
            place(record.reply_zone),
        )?,
        class: *Class::ALL.get(usize::from(record.class))?,
        status: record.status & !STATUS_ZONE,
        mark: record.mark,
        left: record.left,
        packets: record.packets,
        bytes: record.bytes,
    })
}

/// The name by which a guest finds it.
pub fn name(name: &Name) -> abi::flows::Name {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V6(address) => address.octets(),
    };
    abi::flows::Name {
        source: bytes(name.source),
        destination: bytes(name.destination),
        ports: name.ports,
        place: name.vlan | name.zone,
        protocol: name.protocol,
        family: match name.source {
            IpAddr::V4(_) => FAMILY_V4,
            IpAddr::V6(_) => FAMILY_V6,
        },
    }
}

/// The name of a protocol, or its number.
pub fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// The name of a state without its protocol, as people read it.
pub fn state(class: Class) -> &'static str {
    let name = class.name();
    match class {
        Class::Udp | Class::Icmp | Class::Generic => "-",
        Class::UdpStream => "stream",
        _ => name.strip_prefix("tcp_").unwrap_or(name),
    }
}

/// A connection in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    protocol: String,
    class: String,
    status: Vec<String>,
    mark: u32,
    /// Milliseconds for which it stays without a packet.
    expires_ms: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    /// Of the original direction and of the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zones: Option<[u16; 2]>,
    original: Direction,
    reply: Direction,
}

/// One direction of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Direction {
    source: IpAddr,
    destination: IpAddr,
    /// Of TCP and UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    /// Of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    kind: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    packets: u64,
    bytes: u64,
}

/// Why a line of a file is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoFlow {
    /// No protocol has this name.
    Protocol(String),
    /// No class has this name.
    Class(String),
    /// No status has this name.
    Status(String),
    /// Its addresses are of several families.
    Families,
    /// The numbers of a direction are none of its protocol.
    Numbers,
}

impl fmt::Display for NoFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(name) => write!(f, "no protocol is called {name:?}"),
            Self::Class(name) => write!(f, "no class is called {name:?}"),
            Self::Status(name) => write!(f, "no status is called {name:?}"),
            Self::Families => f.write_str("its addresses are of several families"),
            Self::Numbers => f.write_str("its ports, or id, type and code, are not its protocol's"),
        }
    }
}

impl From<&Entry> for Line {
    fn from(entry: &Entry) -> Self {
        let direction =
            |name, way: usize| Direction::of(name, entry.packets[way], entry.bytes[way]);
        let statuses = STATUSES.iter().filter(|(bit, _)| entry.status & bit != 0);
        Self {
            protocol: protocol_name(entry.name.protocol),
            class: entry.class.name().to_owned(),
            status: statuses.map(|(_, name)| (*name).to_owned()).collect(),
            mark: entry.mark,
            expires_ms: entry.left,
            vlan: Some(entry.name.vlan).filter(|vlan| *vlan != 0),
            zones: Some([entry.name.zone, entry.reply.zone]).filter(|zones| *zones != [0; 2]),
            original: direction(&entry.name, 0),
            reply: direction(&entry.reply, 1),
        }
    }
}

impl TryFrom<Line> for Entry {
    type Error = NoFlow;

    fn try_from(line: Line) -> Result<Self, NoFlow> {
        let named = PROTOCOLS.iter().find(|(_, name)| *name == line.protocol);
        let protocol = match named {
            Some((number, _)) => Some(*number),
            None => line.protocol.parse().ok(),
        };
        let protocol = protocol.ok_or(NoFlow::Protocol(line.protocol))?;
        let class = Class::ALL.into_iter().find(|it| it.name() == line.class);
        let class = class.ok_or(NoFlow::Class(line.class))?;
        let mut status = 0;
        for word in line.status {
            let known = STATUSES.iter().find(|(_, name)| *name == word);
            status |= known.ok_or(NoFlow::Status(word))?.0;
        }
        let v4 = line.original.source.is_ipv4();
        let zones = line.zones.unwrap_or_default();
        let direction = |direction: &Direction, zone| {
            let Direction {
                source,
                destination,
                ..
            } = *direction;
            if source.is_ipv4() != v4 || destination.is_ipv4() != v4 {
                return Err(NoFlow::Families);
            }
            Ok(Name {
                source,
                destination,
                ports: direction.ports(protocol)?,
                vlan: line.vlan.unwrap_or(0),
                zone,
                protocol,
            })
        };
        Ok(Self {
            name: direction(&line.original, zones[0])?,
            reply: direction(&line.reply, zones[1])?,
            class,
            status,
            mark: line.mark,
            left: line.expires_ms,
            packets: [line.original.packets, line.reply.packets],
            bytes: [line.original.bytes, line.reply.bytes],
        })
    }
}

impl Direction {
    fn of(name: &Name, packets: u64, bytes: u64) -> Self {
        let [first, second] = name.ports;
        let [kind, code] = second.to_be_bytes();
        let (ports, icmp) = (has_ports(name.protocol), is_icmp(name.protocol));
        Self {
            source: name.source,
            destination: name.destination,
            source_port: ports.then_some(first),
            destination_port: ports.then_some(second),
            id: icmp.then_some(first),
            kind: icmp.then_some(kind),
            code: icmp.then_some(code),
            packets,
            bytes,
        }
    }

    /// The ports of its name.
    fn ports(&self, protocol: u8) -> Result<[u16; 2], NoFlow> {
        let ports = (self.source_port, self.destination_port);
        match (ports, (self.id, self.kind, self.code)) {
            ((Some(source), Some(destination)), (None, None, None)) if has_ports(protocol) => {
                Ok([source, destination])
            }
            ((None, None), (Some(id), Some(kind), Some(code))) if is_icmp(protocol) => {
                Ok([id, u16::from_be_bytes([kind, code])])
            }
            ((None, None), (None, None, None)) if !has_ports(protocol) && !is_icmp(protocol) => {
                Ok([0; 2])
            }
            _ => Err(NoFlow::Numbers),
        }
    }
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, protocol::TCP | protocol::UDP)
}

fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, protocol::ICMP | protocol::ICMPV6)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    /// A connection from 10.0.0.LAST, translated by a router.
    pub fn translated(last: u8, port: u16) -> Entry {
        let name = Name {
            source: [10, 0, 0, last].into(),
            destination: [192, 0, 2, 1].into(),
            ports: [port, 443],
            vlan: 0,
            zone: 0,
            protocol: protocol::TCP,
        };
        Entry {
            name,
            reply: Name {
                source: name.destination,
                destination: [192, 0, 2, 9].into(),
                ports: [443, port + 1],
                ..name
            },
            class: Class::Established,
            status: SEEN_REPLY | ASSURED | 8 | SNAT,
            mark: 1,
            left: 431_999_000,
            packets: [10, 8],
            bytes: [1000, 8000],
        }
    }

    /// A question over IPv6 that nobody has answered.
    pub fn echo6() -> Entry {
        let name = Name {
            source: IpAddr::V6([0xfd; 16].into()),
            destination: IpAddr::V6([0xfe; 16].into()),
            ports: [77, 128 << 8],
            vlan: 5,
            zone: 0,
            protocol: protocol::ICMPV6,
        };
        Entry {
            name,
            reply: Name {
                source: name.destination,
                destination: name.source,
                ports: [77, 129 << 8],
                ..name
            },
            class: Class::Icmp,
            status: 8,
            mark: 0,
            left: 29_000,
            packets: [1, 0],
            bytes: [104, 0],
        }
    }

    #[test]
    fn a_line_says_both_directions() {
        let json = serde_json::to_value(Line::from(&translated(2, 4000))).unwrap();
        let expected = serde_json::json!({
            "protocol": "tcp", "class": "tcp_established",
            "status": ["seen-reply", "assured", "confirmed", "snat"],
            "mark": 1, "expires_ms": 431_999_000,
            "original": {
                "source": "10.0.0.2", "destination": "192.0.2.1",
                "source_port": 4000, "destination_port": 443, "packets": 10, "bytes": 1000,
            },
            "reply": {
                "source": "192.0.2.1", "destination": "192.0.2.9",
                "source_port": 443, "destination_port": 4001, "packets": 8, "bytes": 8000,
            },
        });
        assert_eq!(json, expected);
        let json = serde_json::to_value(Line::from(&echo6())).unwrap();
        assert_eq!(
            (&json["vlan"], &json["original"]["id"]),
            (&5.into(), &77.into())
        );
        assert_eq!(json["reply"]["type"], 129);
    }

    #[test]
    fn each_mistake_in_a_line_has_its_reason() {
        let right = serde_json::to_value(Line::from(&translated(2, 4000))).unwrap();
        let entry = |change: fn(&mut serde_json::Value)| {
            let mut json = right.clone();
            change(&mut json);
            serde_json::from_value::<Line>(json).map(Entry::try_from)
        };
        assert_eq!(entry(|_| {}).unwrap(), Ok(translated(2, 4000)));
        let says = |change| entry(change).unwrap().unwrap_err();
        let class = says(|json| json["class"] = "x".into());
        assert_eq!(class, NoFlow::Class("x".into()));
        let protocol = says(|json| json["protocol"] = "256".into());
        assert_eq!(protocol, NoFlow::Protocol("256".into()));
        let status = says(|json| json["status"] = vec!["x"].into());
        assert_eq!(status, NoFlow::Status("x".into()));
        let family = says(|json| json["reply"]["source"] = "::1".into());
        assert_eq!(family, NoFlow::Families);
        let numbers = says(|json| json["protocol"] = "icmp".into());
        assert_eq!(numbers, NoFlow::Numbers);
        assert!(entry(|json| json["mark"] = "x".into()).is_err());
    }

    proptest! {
        #[test]
        fn whatever_a_guest_says_is_checked_and_can_be_written_and_read(
            mut bytes in prop::collection::vec(any::<u8>(), size_of::<Record>()),
            family in 3..8u8, class in 0..20u8, protocol in 0..=255u8,
        ) {
            bytes[39] = family;
            bytes[38] = protocol;
            bytes[116] = class;
            let record = Record::read_from_bytes(&bytes).unwrap();
            let flow = entry(&record);
            let can_be = [FAMILY_V4, FAMILY_V6].contains(&family);
            prop_assert_eq!(flow.is_some(), can_be && usize::from(class) < Class::ALL.len());
            if let Some(flow) = flow {
                let json = serde_json::to_string(&Line::from(&flow)).unwrap();
                prop_assert!(json.is_ascii() && !json.contains(char::is_control));
                let line: Line = serde_json::from_str(&json).unwrap();
                let back = Entry::try_from(line).unwrap();
                prop_assert_eq!((back.name.source, back.left), (flow.name.source, flow.left));
                let again = serde_json::to_string(&Line::from(&back)).unwrap();
                prop_assert_eq!(again, json);
            }
        }

        #[test]
        fn a_guest_finds_what_it_has_told(last: u8, port in 0..60_000u16) {
            for flow in [translated(last, port), echo6()] {
                let own = name(&flow.name);
                let record = Record { name: own, ..Record::default() };
                prop_assert_eq!(entry(&record).unwrap().name, flow.name);
            }
        }
    }
}
