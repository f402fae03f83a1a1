//! Numbers of packets that may be cut: no two of the same source, destination and protocol are in
//! flight with one number (RFC 6864, 4.2), and who sees one flow's numbers learns little about
//! another's (RFC 7739, 5.3).

use crate::address::Address;
use crate::random::{Random, mix};

/// Counters, which flows share.
const COUNTERS: usize = 64;

/// The counters.
#[derive(Clone, Debug)]
pub(crate) struct Idents {
    secret: u64,
    counters: [u32; COUNTERS],
}

impl Idents {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            secret: random.number(),
            counters: core::array::from_fn(|_| random.number() as u32),
        }
    }

    /// The next number from `source` to `destination`.
    pub fn next<A: Address>(&mut self, source: A, destination: A, protocol: u8) -> u32 {
        self.first(source, destination, protocol, 1)
    }

    /// The first of the next `count` numbers, which follow each other.
    pub fn first<A: Address>(
        &mut self,
        source: A,
        destination: A,
        protocol: u8,
        count: u16,
    ) -> u32 {
        let folded = |address: A| address.number() as u64 ^ (address.number() >> 64) as u64;
        let flow = mix(self.secret ^ folded(source)) ^ folded(destination);
        let flow = mix(flow ^ u64::from(protocol));
        let counter = &mut self.counters[flow as usize % COUNTERS];
        let first = counter.wrapping_add(1);
        *counter = counter.wrapping_add(count.into());
        first.wrapping_add((flow >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use core::net::Ipv4Addr;

    #[test]
    fn a_flow_repeats_no_number_within_the_sixteen_bits_of_ipv4() {
        let mut idents = Idents::new(1);
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let numbers: BTreeSet<_> = (0..65_536).map(|_| idents.next(a, b, 17) as u16).collect();
        assert_eq!(numbers.len(), 65_536);
        let first = idents.first(a, b, 17, 40);
        assert_eq!(idents.next(a, b, 17), first.wrapping_add(40));
        assert_ne!(idents.next(a, b, 17).wrapping_add(1), idents.next(b, a, 17));
    }
}
