//! Which interfaces a machine could not do without: those that carry a default route.

use linux::netlink::routes::DefaultRoute;
use linux::netlink::{self, Netlink};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface that it leaves by, which may be a bridge, a bond or a VLAN.
    pub interface: String,
    /// It is for IPv6.
    pub ipv6: bool,
    /// The table that it is in.
    pub table: u32,
}

impl Route {
    /// The command that removes it.
    pub fn removal(&self) -> String {
        let version = if self.ipv6 { " -6" } else { "" };
        let table = match self.table {
            DefaultRoute::MAIN => String::new(),
            table => format!(" table {table}"),
        };
        let interface = &self.interface;
        format!("sudo ip{version} route del default dev {interface}{table}")
    }
}

/// The default routes of this thread's network namespace.
///
/// # Errors
/// What the kernel says.
pub fn observe() -> Result<Vec<Route>, netlink::Error> {
    let mut netlink = Netlink::open()?;
    let links = netlink.links()?;
    let route = |route: DefaultRoute| {
        let link = links.iter().find(|link| link.index == route.interface)?;
        Some(Route {
            interface: link.name.clone(),
            ipv6: route.ipv6,
            table: route.table,
        })
    };
    Ok(netlink
        .default_routes()?
        .into_iter()
        .filter_map(route)
        .collect())
}

/// Every interface that carries one of `routes`, with that route: the one that it leaves by, and
/// all below it. `lower` says what is right below an interface.
pub fn carriers(routes: &[Route], lower: impl Fn(&str) -> Vec<String>) -> BTreeMap<String, Route> {
    let mut carriers = BTreeMap::new();
    for route in routes {
        let mut waiting = vec![route.interface.clone()];
        // Each interface is looked at once, so this ends even if they were in a ring.
        while let Some(interface) = waiting.pop() {
            if let Entry::Vacant(vacant) = carriers.entry(interface) {
                waiting.extend(lower(vacant.key()));
                vacant.insert(route.clone());
            }
        }
    }
    carriers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(interface: &str) -> Route {
        Route {
            interface: interface.into(),
            ipv6: false,
            table: DefaultRoute::MAIN,
        }
    }

    #[test]
    fn what_is_below_carries_too() {
        let lower = |interface: &str| match interface {
            "vlan7" => vec!["br0".into()],
            "br0" => vec!["bond0".into(), "tap0".into()],
            "bond0" => vec!["eth0".into(), "eth1".into()],
            _ => Vec::new(),
        };
        let found = carriers(&[route("vlan7")], lower);
        let names: Vec<_> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["bond0", "br0", "eth0", "eth1", "tap0", "vlan7"]);
        assert_eq!(found["eth1"], route("vlan7"));
        assert!(carriers(&[], lower).is_empty());
    }

    #[test]
    fn the_command_names_what_is_not_usual() {
        let usual = route("eth0");
        assert_eq!(usual.removal(), "sudo ip route del default dev eth0");
        let other = Route {
            ipv6: true,
            table: 7,
            ..usual
        };
        let expected = "sudo ip -6 route del default dev eth0 table 7";
        assert_eq!(other.removal(), expected);
    }

    proptest! {
        #[test]
        fn any_graph_ends_and_holds_what_is_below(
            edges in proptest::collection::vec((0..8u8, 0..8u8), 0..24),
            start in 0..8u8,
        ) {
            let lower = |name: &str| -> Vec<String> {
                let below = edges.iter().filter(|(upper, _)| upper.to_string() == name);
                below.map(|(_, lower)| lower.to_string()).collect()
            };
            let found = carriers(&[route(&start.to_string())], lower);
            prop_assert!(found.contains_key(&start.to_string()));
            for name in found.keys() {
                for below in lower(name) {
                    prop_assert!(found.contains_key(&below));
                }
            }
        }
    }
}
