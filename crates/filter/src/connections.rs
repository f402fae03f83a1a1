//! The connections of an appliance: how many fit, where they lie, and where they are counted.

use super::kept::{Kept, STATE};
use super::work::{Refusal, Seed};
use abi::share::CONNECTION_COUNTERS;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use nf::conntrack::{Conntrack, FLOWS_MAX};
use ports::Runtime;

/// The part of the free heap that connections may take: one of so many. Rules that are loaded
/// later need some of it.
const HEAP_SHARE: usize = 4;
/// Fewest flows of each family with which an appliance starts.
const FLOWS_MIN: usize = 256;

/// Connections, as rules of one kind want them.
pub(crate) trait Table {
    /// Those of a table.
    fn of(table: Conntrack, key: &[u8; 16]) -> Self;

    /// The table.
    fn conntrack(&mut self) -> &mut Conntrack;

    /// There are other rules from now on.
    fn rules_changed(&mut self);
}

impl Table for Conntrack {
    fn of(table: Conntrack, _: &[u8; 16]) -> Self {
        table
    }

    fn conntrack(&mut self) -> &mut Conntrack {
        self
    }

    fn rules_changed(&mut self) {
        Self::rules_changed(self);
    }
}

impl Table for nf::router::Connections {
    fn of(table: Conntrack, key: &[u8; 16]) -> Self {
        Self::of(table, key)
    }

    fn conntrack(&mut self) -> &mut Conntrack {
        &mut self.table
    }

    fn rules_changed(&mut self) {
        Self::rules_changed(self);
    }
}

/// Connections, if rules ask for them.
pub(crate) struct Connections<T> {
    pub(crate) table: T,
    outlives: bool,
}

/// Where connections lie while rules ask for none.
pub(crate) enum Spare<T> {
    /// On the heap, once there are some.
    Heap,
    /// In memory that outlives the appliance, where the last one may have left some.
    Memory(Kept),
    /// There as well, and there are none.
    Table(Box<Connections<T>>),
}

impl<T: Table> Spare<T> {
    /// Connections, from now on; and what is to be said of those that the last instance left.
    pub(crate) fn begin(
        &mut self,
        runtime: &Runtime,
        seed: Seed,
    ) -> Result<(Connections<T>, Option<String>), Refusal> {
        let key = key(seed)?;
        if let Self::Memory(kept) = self {
            let flows = Conntrack::flows_in(kept.connections.len());
            if !(runtime.has_room)(HEAP_SHARE * Conntrack::index_memory(flows)) {
                return Err(Refusal::Memory);
            }
        }
        let (mut connections, said) = match core::mem::replace(self, Self::Heap) {
            Self::Heap => (Connections::new(runtime, &key)?, None),
            Self::Table(connections) => (*connections, None),
            Self::Memory(kept) => Connections::take_up(kept, &key, runtime.host.monotonic())?,
        };
        connections.publish(runtime);
        Ok((connections, said))
    }

    /// Rules ask for no connections: those that the last instance left are forgotten.
    pub(crate) fn forget(&mut self) {
        if let Self::Memory(kept) = self {
            Conntrack::forget(kept.connections);
        }
    }
}

impl<T: Table> Connections<T> {
    /// A table as large as memory allows.
    fn new(runtime: &Runtime, key: &[u8; 16]) -> Result<Self, Refusal> {
        let mut flows = FLOWS_MAX;
        while !(runtime.has_room)(HEAP_SHARE * Conntrack::memory(flows)) {
            if flows == FLOWS_MIN {
                return Err(Refusal::Memory);
            }
            flows /= 2;
        }
        Ok(Self {
            table: T::of(Conntrack::new(flows, key), key),
            outlives: false,
        })
    }

    /// A table in memory that outlives the appliance, as large as that is.
    fn take_up(kept: Kept, key: &[u8; 16], now: u64) -> Result<(Self, Option<String>), Refusal> {
        let taken_up = Conntrack::take_up(kept.connections, key, now);
        let (table, taken_up) = taken_up.ok_or(Refusal::State)?;
        let said = match taken_up.refused {
            Some(why) => Some(format!("{STATE}: none goes on: {why}")),
            None => kept
                .is_left
                .then(|| format!("{STATE}: {} go on", taken_up.flows)),
        };
        let connections = Self {
            table: T::of(table, key),
            outlives: true,
        };
        Ok((connections, said))
    }

    /// Ends connections whose time is up.
    #[inline]
    pub(crate) fn refresh(&mut self, runtime: &Runtime, now: u64) {
        if self.table.conntrack().expire(now) {
            self.publish(runtime);
        }
    }

    /// Says outside how many there are.
    #[cold]
    fn publish(&mut self, runtime: &Runtime) {
        let table = self.table.conntrack();
        let capacity = runtime.counter(CONNECTION_COUNTERS);
        capacity.set(table.capacity() as u64);
        for (index, number) in table.numbers().into_iter().enumerate() {
            runtime.counter(CONNECTION_COUNTERS + 1 + index).set(number);
        }
    }

    /// Forgets all of them, and says so outside; what is left of them.
    pub(crate) fn end(mut self, runtime: &Runtime) -> Spare<T> {
        runtime.counter(CONNECTION_COUNTERS).set(0);
        if !self.outlives {
            return Spare::Heap;
        }
        self.table.conntrack().clear();
        Spare::Table(Box::new(self))
    }
}

pub(crate) fn key(seed: Seed) -> Result<[u8; 16], Refusal> {
    let seed = seed().ok_or(Refusal::Random)?;
    let (key, _) = seed.as_chunks::<16>();
    Ok(key[0])
}

const _: () = assert!(nf::conntrack::COUNTED.len() < abi::share::CONNECTION_COUNTERS_MAX);
