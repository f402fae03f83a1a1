//! The connections that both judges list behind a round: which there are, and how long each stays.

use super::packet::Packet;
use super::router::Router;
use crate::bridge::Error;
use nf::conntrack::{Class, Conntrack, Entry};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

/// Connections by what they are, and how many seconds each stays without a packet.
pub type Listed = BTreeMap<String, u32>;

/// Seconds by which the judges may differ: both round, and look one behind the other.
const TOLERANCE: u32 = 3;

/// Names of TCP's states, as the kernel lists them.
const STATES: [(&str, Class); 9] = [
    ("SYN_SENT", Class::SynSent),
    ("SYN_RECV", Class::SynReceived),
    ("ESTABLISHED", Class::Established),
    ("FIN_WAIT", Class::FinWait),
    ("CLOSE_WAIT", Class::CloseWait),
    ("LAST_ACK", Class::LastAck),
    ("TIME_WAIT", Class::TimeWait),
    ("CLOSE", Class::Close),
    ("SYN_SENT2", Class::SynSent2),
];
/// Bits of `ct status`.
const SEEN_REPLY: u8 = 2;
const ASSURED: u8 = 4;

/// `IPCTNL_MSG_CT_DELETE` of ctnetlink, without a filter: `nlmsghdr` and `nfgenmsg`
/// (include/uapi/linux/netfilter/nfnetlink_conntrack.h). No answer is asked for.
const FORGET: [u8; 20] = [20, 0, 0, 0, 2, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Router {
    /// What the kernel lists.
    ///
    /// # Errors
    /// It has no such list, or prints it in another way.
    pub fn connections(&self) -> Result<Listed, Error> {
        let read = || fs::read_to_string("/proc/thread-self/net/nf_conntrack");
        let text = self.segment().run(read);
        let text =
            text.map_err(|error| Error::Io("cannot list the kernel's connections", error))?;
        let parsed = text.lines().map(|line| {
            parse(line).ok_or_else(|| Error::Listing(format!("a connection {line:?}")))
        });
        parsed.collect()
    }

    /// The kernel forgets all of its connections.
    ///
    /// # Errors
    /// It refuses.
    pub fn forget_connections(&self) -> Result<(), Error> {
        let forget = || -> rustix::io::Result<()> {
            let protocol = Some(netlink::NETFILTER);
            let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, protocol)?;
            let kernel = SocketAddrNetlink::new(0, 0);
            rustix::net::sendto(&socket, &FORGET, SendFlags::empty(), &kernel).map(|_| ())
        };
        let forgot = self.segment().run(forget);
        forgot.map_err(|error| Error::Io("cannot end the kernel's connections", error.into()))
    }
}

/// What `nf` lists.
pub fn ours(connections: &Conntrack, now: u64) -> Listed {
    let mut listed = Listed::new();
    let mut from = 0;
    loop {
        let mut take = |entry: &Entry| {
            listed.insert(of(entry), entry.left / 1000);
            true
        };
        from = connections.list(from, now, &mut take);
        if from == 0 {
            return listed;
        }
    }
}

/// The first connection that one of them lists and the other does not, or that stays for another
/// time: what each of them says of it.
pub fn difference(kernel: &Listed, ours: &Listed) -> Option<(String, String)> {
    let says = |listed: &Listed, name: &str| match listed.get(name) {
        Some(left) => format!("lists {name}, for {left} s"),
        None => format!("does not list {name}"),
    };
    let names = kernel.keys().chain(ours.keys());
    let mut differing = names.filter(|name| match (kernel.get(*name), ours.get(*name)) {
        (Some(kernel), Some(ours)) => kernel.abs_diff(*ours) > TOLERANCE,
        _ => true,
    });
    let name = differing.next()?;
    Some((says(kernel, name), says(ours, name)))
}

/// Packets of the hosts that a connection is between.
pub fn about(said: &str, mut packets: Vec<Packet>) -> Vec<Packet> {
    packets.retain(|packet| {
        let four: Result<[u8; 4], _> = packet.source.as_slice().try_into();
        let source = match four {
            Ok(source) => IpAddr::from(source),
            Err(_) => {
                let bytes: Result<[u8; 16], _> = packet.source.as_slice().try_into();
                IpAddr::from(bytes.unwrap_or_default())
            }
        };
        said.contains(&format!("{source} "))
    });
    packets
}

/// A connection of ours in words.
fn of(entry: &Entry) -> String {
    let (name, reply) = (entry.name, entry.reply);
    let is_tcp = name.protocol == 6;
    let state = STATES
        .iter()
        .find(|(_, class)| is_tcp && *class == entry.class);
    let direction = |it: nf::conntrack::Name| {
        let ports = match it.protocol {
            1 | 58 => format!("type {} id {}", it.ports[1] >> 8, it.ports[0]),
            6 | 17 => format!("ports {} {}", it.ports[0], it.ports[1]),
            _ => String::new(),
        };
        format!(
            "{} > {} {ports} zone {}",
            it.source, it.destination, it.zone
        )
    };
    words(&Words {
        protocol: name.protocol,
        state: state.map_or("", |(name, _)| name),
        directions: [direction(name), direction(reply)],
        replied: entry.status & SEEN_REPLY != 0,
        assured: entry.status & ASSURED != 0,
        mark: entry.mark,
    })
}

/// What is known of a connection.
struct Words<'a> {
    protocol: u8,
    state: &'a str,
    directions: [String; 2],
    replied: bool,
    assured: bool,
    mark: u32,
}

fn words(said: &Words<'_>) -> String {
    let [original, reply] = &said.directions;
    let replied = if said.replied { " replied" } else { "" };
    let assured = if said.assured { " assured" } else { "" };
    let (protocol, state, mark) = (said.protocol, said.state, said.mark);
    format!("{protocol} {state} [{original}] [{reply}]{replied}{assured} mark {mark}")
}

/// A line of the kernel's list: family, protocol and its number, seconds, TCP's state, both
/// directions, and words about them.
fn parse(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split_whitespace();
    let protocol: u8 = fields.nth(3)?.parse().ok()?;
    let left = fields.next()?.parse().ok()?;
    let rest: Vec<&str> = fields.collect();
    let begins = |field: &&str| field.starts_with("src=");
    let first = rest.iter().position(begins)?;
    let second = first + 1 + rest[first + 1..].iter().position(begins)?;
    let zone = |only| value(&rest, "zone").or(value(&rest, only)).unwrap_or("0");
    let directions = [
        direction(protocol, &rest[first..second], zone("zone-orig"))?,
        direction(protocol, &rest[second..], zone("zone-reply"))?,
    ];
    let state = STATES.iter().find(|(name, _)| rest.first() == Some(name));
    let said = words(&Words {
        protocol,
        state: state.map_or("", |(name, _)| name),
        directions,
        replied: !rest.contains(&"[UNREPLIED]"),
        assured: rest.contains(&"[ASSURED]"),
        mark: value(&rest, "mark")?.parse().ok()?,
    });
    Some((said, left))
}

/// One direction of it, from `src=` on.
fn direction(protocol: u8, fields: &[&str], zone: &str) -> Option<String> {
    let address = |key| value(fields, key)?.parse::<IpAddr>().ok();
    let (source, destination) = (address("src")?, address("dst")?);
    let ports = match protocol {
        1 | 58 => format!(
            "type {} id {}",
            value(fields, "type")?,
            value(fields, "id")?
        ),
        6 | 17 => format!(
            "ports {} {}",
            value(fields, "sport")?,
            value(fields, "dport")?
        ),
        _ => String::new(),
    };
    Some(format!("{source} > {destination} {ports} zone {zone}"))
}

/// What stands behind `key=`.
fn value<'a>(fields: &[&'a str], key: &str) -> Option<&'a str> {
    let mut values = fields.iter().filter_map(|field| field.split_once('='));
    values
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}
