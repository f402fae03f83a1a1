//! The list of interfaces.

use super::{Error, Netlink, error};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};

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
    /// It has somebody at its other end: a tap, the process that reads it.
    pub has_carrier: bool,
}

impl Netlink {
    /// All interfaces of the namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let mut links = Vec::new();
        self.dump(
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            |message| {
                if let RouteNetlinkMessage::NewLink(link) = message {
                    links.push(read(&link));
                }
            },
        )
        .map_err(error("list interfaces", ""))?;
        Ok(links)
    }
}

fn read(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mtu: 0,
        master: None,
        is_bridge: false,
        is_tap: false,
        has_carrier: message.header.flags.contains(LinkFlags::LowerUp),
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
}
