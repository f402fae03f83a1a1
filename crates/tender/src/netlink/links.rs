//! The list of interfaces.

use super::{Cause, Error, KERNEL, Netlink, error};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkLayerType, LinkMessage};

/// Datagrams of one answer: the kernel puts several interfaces into each.
const DATAGRAMS_MAX: usize = 4096;
/// Room for one: more than the kernel fills.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest packet that it carries, in bytes without Ethernet header.
    pub mtu: u32,
    /// Number of the interface that it is a port of.
    pub master: Option<u32>,
    /// It is a bridge.
    pub is_bridge: bool,
    /// It is a tap.
    pub is_tap: bool,
}

impl Netlink {
    /// All interfaces of the namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.dump().map_err(error("list interfaces", ""))
    }

    fn dump(&mut self) -> Result<Vec<Link>, Cause> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        header.sequence_number = self.sequence;
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut links = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
            let (_, sender) = self.socket.recv_from(&mut datagram, 0)?;
            if sender.port_number() == KERNEL && collect(&datagram, self.sequence, &mut links)? {
                return Ok(links);
            }
        }
        Err(Cause::BadReply)
    }
}

/// Adds the interfaces of `datagram` to `links`; whether it was the last.
fn collect(mut datagram: &[u8], sequence: u32, links: &mut Vec<Link>) -> Result<bool, Cause> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram);
        let message = message.map_err(|_| Cause::BadReply)?;
        // A message is at least as long as its header, so that this makes progress.
        let length = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io().into()),
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                links.push(read(&link));
            }
            _ => {}
        }
    }
    Ok(false)
}

fn read(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        master: None,
        is_bridge: false,
        is_tap: false,
    };
    let is_ethernet = message.header.link_layer_type == LinkLayerType::Ether;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::LinkInfo(info) => {
                link.is_bridge = info.contains(&LinkInfo::Kind(InfoKind::Bridge));
                link.is_tap = is_ethernet && info.contains(&LinkInfo::Kind(InfoKind::Tun));
            }
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_neither_bridge_nor_tap() {
        let links = Netlink::open().unwrap().links().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(!loopback.is_bridge && !loopback.is_tap && loopback.mtu > 0);
        assert_eq!(
            Netlink::open().unwrap().index("lo").unwrap(),
            loopback.index
        );
    }

    #[test]
    fn truncations_are_refused_and_ends_are_seen() {
        // `struct nlmsghdr` of NLMSG_DONE, and its status.
        let mut done = Vec::new();
        done.extend(20u32.to_ne_bytes());
        done.extend(3u16.to_ne_bytes());
        done.extend(0u16.to_ne_bytes());
        done.extend(7u32.to_ne_bytes());
        done.extend([0; 8]);
        let mut links = Vec::new();
        assert!(collect(&done, 7, &mut links).unwrap());
        assert!(!collect(&done, 8, &mut links).unwrap());
        for length in 1..done.len() {
            assert!(collect(&done[..length], 7, &mut links).is_err(), "{length}");
        }
        assert!(links.is_empty());
    }
}
