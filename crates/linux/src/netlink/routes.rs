//! The routes by which a machine reaches everything that it has no other route to.

use super::{Error, Netlink, error};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// A default route, of one of possibly many ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Number of the interface that it leaves by.
    pub interface: u32,
    /// It is for IPv6.
    pub ipv6: bool,
    /// The routing table that holds it.
    pub table: u32,
}

impl DefaultRoute {
    /// The table that a route is in unless said otherwise.
    pub const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
}

impl Netlink {
    /// All default routes of the namespace, IPv4 and IPv6, of all tables.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            self.dump(RouteNetlinkMessage::GetRoute(request), |message| {
                if let RouteNetlinkMessage::NewRoute(route) = message {
                    read(&route, &mut routes);
                }
            })
            .map_err(error("list routes", ""))?;
        }
        Ok(routes)
    }
}

/// Adds the ways of a route to `routes` if it is a default route.
fn read(message: &RouteMessage, routes: &mut Vec<DefaultRoute>) {
    let header = &message.header;
    if header.destination_prefix_length != 0 || header.kind != RouteType::Unicast {
        return;
    }
    let mut table = u32::from(header.table);
    let mut interfaces = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interfaces.push(*index),
            RouteAttribute::MultiPath(hops) => {
                interfaces.extend(hops.iter().map(|hop| hop.interface_index));
            }
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    routes.extend(interfaces.into_iter().map(|interface| DefaultRoute {
        interface,
        ipv6: header.address_family == AddressFamily::Inet6,
        table,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::route::RouteNextHop;

    fn route(prefix: u8, kind: RouteType, attributes: Vec<RouteAttribute>) -> Vec<DefaultRoute> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = prefix;
        message.header.kind = kind;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.attributes = attributes;
        let mut routes = Vec::new();
        read(&message, &mut routes);
        routes
    }

    #[test]
    fn every_way_of_a_default_route_counts() {
        let hop = |index| {
            let mut hop = RouteNextHop::default();
            hop.interface_index = index;
            hop
        };
        let ways = RouteAttribute::MultiPath(vec![hop(3), hop(4)]);
        let routes = route(
            0,
            RouteType::Unicast,
            vec![ways, RouteAttribute::Table(1000)],
        );
        let way = |interface| DefaultRoute {
            interface,
            ipv6: false,
            table: 1000,
        };
        assert_eq!(routes, [way(3), way(4)]);
    }

    #[test]
    fn what_leads_somewhere_or_nowhere_is_none() {
        let out = || vec![RouteAttribute::Oif(2)];
        assert_eq!(
            route(0, RouteType::Unicast, out())[0].table,
            DefaultRoute::MAIN
        );
        assert!(route(24, RouteType::Unicast, out()).is_empty());
        assert!(route(0, RouteType::Unreachable, out()).is_empty());
        assert!(route(0, RouteType::Unicast, Vec::new()).is_empty());
    }

    #[test]
    fn the_kernel_is_asked() {
        // What it has is not known here, only that it answers for both families.
        Netlink::open().unwrap().default_routes().unwrap();
    }
}
