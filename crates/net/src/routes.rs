//! Routes: the longest prefix that contains a destination tells the next hop (RFC 1812, 5.2.4.3).

use crate::address::{Address, Prefix};
use arrayvec::ArrayVec;

/// Routes of one table.
pub const ROUTES_MAX: usize = 64;

/// Where packets for a network go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A> {
    /// The network.
    pub network: Prefix<A>,
    /// The router that leads there; `None` if its stations are on this link.
    pub gateway: Option<A>,
}

/// A table of routes.
#[derive(Clone, Debug)]
pub struct Routes<A> {
    /// Longest prefix first.
    routes: ArrayVec<Route<A>, ROUTES_MAX>,
}

impl<A> Default for Routes<A> {
    fn default() -> Self {
        Self {
            routes: ArrayVec::new(),
        }
    }
}

impl<A: Address> Routes<A> {
    /// Adds a route, in place of one to the same network; `false` if there are too many.
    pub fn add(&mut self, route: Route<A>) -> bool {
        self.remove(route.network);
        let bits = route.network.bits();
        let place = self
            .routes
            .partition_point(|other| other.network.bits() >= bits);
        self.routes.try_insert(place, route).is_ok()
    }

    /// Removes the route to a network.
    pub fn remove(&mut self, network: Prefix<A>) {
        self.routes
            .retain(|route| !route.network.is_same_network(&network));
    }

    /// The route to a destination; `None` if none leads there.
    #[inline]
    pub fn find(&self, destination: A) -> Option<&Route<A>> {
        let mut routes = self.routes.iter();
        routes.find(|route| route.network.contains(destination))
    }

    /// Whom to send to: the destination itself, or a router; `None` if no route leads there.
    #[inline]
    pub fn next_hop(&self, destination: A) -> Option<A> {
        let route = self.find(destination)?;
        Some(route.gateway.unwrap_or(destination))
    }

    /// The routes, longest prefix first.
    pub fn iter(&self) -> impl Iterator<Item = &Route<A>> {
        self.routes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn route(address: [u8; 4], bits: u8, gateway: Option<[u8; 4]>) -> Route<Ipv4Addr> {
        Route {
            network: Prefix::new(address.into(), bits).unwrap(),
            gateway: gateway.map(Into::into),
        }
    }

    #[test]
    fn the_longest_prefix_decides() {
        let mut routes = Routes::default();
        assert_eq!(routes.next_hop(Ipv4Addr::LOCALHOST), None);
        assert!(routes.add(route([0; 4], 0, Some([10, 0, 0, 1]))));
        assert!(routes.add(route([10, 0, 0, 9], 24, None)));
        assert!(routes.add(route([10, 1, 0, 0], 16, Some([10, 0, 0, 2]))));
        let next = |address: [u8; 4]| routes.next_hop(address.into()).unwrap().octets();
        assert_eq!(next([10, 0, 0, 77]), [10, 0, 0, 77]);
        assert_eq!(next([10, 1, 9, 9]), [10, 0, 0, 2]);
        assert_eq!(next([192, 0, 2, 1]), [10, 0, 0, 1]);
        // The same network again, and gone.
        routes.add(route([10, 1, 3, 3], 16, None));
        assert_eq!(routes.iter().count(), 3);
        routes.remove(route([10, 1, 7, 7], 16, None).network);
        assert_eq!(routes.iter().count(), 2);
    }

    #[test]
    fn routes_are_bounded() {
        let mut routes = Routes::default();
        let added = (0..200).filter(|n| routes.add(route([10, 0, *n, 0], 24, None)));
        assert_eq!(added.count(), ROUTES_MAX);
    }

    proptest! {
           #[test]
           fn equals_a_search_of_all(
               networks in proptest::collection::vec((any::<[u8; 4]>(), 0u8..=32), 0..40),
               destination: [u8; 4],
           ) {
               let mut routes = Routes::default();
               for (number, (address, bits)) in networks.iter().enumerate() {
                   routes.add(route(*address, *bits, Some([1, 1, 1, number as u8])));
               }
               // Of equal networks the last one counts.
               let expected = networks
                   .iter()
                   .enumerate()
                   .filter(|(_, (address, bits))| {
                       let network = route(*address, *bits, None).network;
    network.contains(destination.into())
                   })
                   .max_by_key(|(number, (_, bits))| (*bits, *number))
                   .map(|(number, _)| Ipv4Addr::new(1, 1, 1, number as u8));
               prop_assert_eq!(routes.next_hop(destination.into()), expected);
           }
       }
}
