//! The connections of an appliance: how many fit, and where they are counted.

use super::{Refusal, Seed};
use abi::share::CONNECTION_COUNTERS;
use nf::conntrack::{Conntrack, FLOWS_MAX};
use ports::Runtime;

/// The part of the free heap that connections may take: one of so many. Rules that are loaded
/// later need some of it.
const HEAP_SHARE: usize = 4;
/// Fewest flows of each family with which an appliance starts.
const FLOWS_MIN: usize = 256;

/// Connections, if rules ask for them.
pub(crate) struct Connections {
    pub(crate) table: Conntrack,
}

impl Connections {
    /// A table as large as memory allows.
    pub(crate) fn new(runtime: &Runtime, seed: Seed) -> Result<Self, Refusal> {
        let mut flows = FLOWS_MAX;
        while !(runtime.has_room)(HEAP_SHARE * Conntrack::memory(flows)) {
            if flows == FLOWS_MIN {
                return Err(Refusal::Memory);
            }
            flows /= 2;
        }
        let seed = seed().ok_or(Refusal::Random)?;
        let (key, _) = seed.as_chunks::<16>();
        let connections = Self {
            table: Conntrack::new(flows, &key[0]),
        };
        connections.publish(runtime);
        Ok(connections)
    }

    /// Ends connections whose time is up.
    #[inline]
    pub(crate) fn refresh(&mut self, runtime: &Runtime, now: u64) {
        if self.table.expire(now) {
            self.publish(runtime);
        }
    }

    /// Says outside how many there are.
    #[cold]
    fn publish(&self, runtime: &Runtime) {
        let capacity = runtime.counter(CONNECTION_COUNTERS);
        capacity.set(self.table.capacity() as u64);
        for (index, number) in self.table.numbers().into_iter().enumerate() {
            runtime.counter(CONNECTION_COUNTERS + 1 + index).set(number);
        }
    }

    /// Says outside that none are tracked.
    pub(crate) fn clear(runtime: &Runtime) {
        runtime.counter(CONNECTION_COUNTERS).set(0);
    }
}

const _: () = assert!(nf::conntrack::COUNTED.len() < abi::share::CONNECTION_COUNTERS_MAX);
