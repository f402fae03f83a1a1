//! What a guest's TCP/IP stack has counted, named by the table of `net`.

use abi::share::{NET_COUNTERS, NET_COUNTERS_MAX};
use net::metrics::{COUNT, FINGERPRINT, Group, Kind, TABLE};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// What a stack has counted, in the order of [`TABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net(Vec<u64>);

/// The image was built with another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger;

/// A number of a stack's.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// What it says.
    pub kind: Kind,
    /// What it counts.
    pub unit: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// The number.
    pub value: u64,
}

impl Net {
    /// Those among all counters of a guest; `None` if it has no stack.
    ///
    /// # Errors
    /// It counts by another table than this program.
    pub fn of(counters: &[u64]) -> Result<Option<Self>, Stranger> {
        let own = counters.get(NET_COUNTERS..NET_COUNTERS + NET_COUNTERS_MAX);
        match own {
            None | Some([0, ..]) => Ok(None),
            Some([fingerprint, numbers @ ..]) if *fingerprint == FINGERPRINT => {
                Ok(numbers.get(..COUNT).map(|numbers| Self(numbers.to_vec())))
            }
            Some(_) => Err(Stranger),
        }
    }

    /// All numbers.
    pub fn numbers(&self) -> impl Iterator<Item = Number> {
        let named = |group: &'static Group| {
            let names = group.names.iter().zip(group.help);
            names.map(move |(name, help)| (group, *name, help.trim()))
        };
        let named = TABLE.iter().flat_map(named);
        named
            .zip(&self.0)
            .map(|((group, name, help), value)| Number {
                kind: group.kind,
                unit: group.unit,
                name,
                help,
                value: *value,
            })
    }

    /// Those of one kind.
    pub fn numbers_of(&self, kind: Kind) -> impl Iterator<Item = Number> {
        self.numbers().filter(move |number| number.kind == kind)
    }
}

/// An object for each kind, with numbers by name.
impl Serialize for Net {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kinds = [
            ("totals", Kind::Total),
            ("drops", Kind::Drop),
            ("events", Kind::Event),
            ("connections", Kind::State),
            ("levels", Kind::Level),
        ];
        let mut all = serializer.serialize_map(Some(kinds.len()))?;
        for (name, kind) in kinds {
            let numbers = self.numbers_of(kind).map(|n| (n.name, n.value));
            all.serialize_entry(name, &numbers.collect::<BTreeMap<_, _>>())?;
        }
        all.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use abi::share::COUNTERS;

    /// The counters of a stack of which each number is its place, from 0.
    pub fn counters() -> Vec<u64> {
        let mut counters = vec![0; COUNTERS];
        counters[NET_COUNTERS] = FINGERPRINT;
        for (place, counter) in counters[NET_COUNTERS + 1..][..COUNT].iter_mut().enumerate() {
            *counter = place as u64;
        }
        counters
    }

    #[test]
    fn numbers_get_the_names_of_the_table() {
        let net = Net::of(&counters()).unwrap().unwrap();
        let named: Vec<_> = net.numbers().map(|number| number.name).collect();
        assert_eq!(named, net::metrics::names().collect::<Vec<_>>());
        let values: Vec<_> = net.numbers().map(|number| number.value).collect();
        assert_eq!(values, (0..COUNT as u64).collect::<Vec<_>>());
        let json = serde_json::to_value(&net).unwrap();
        assert_eq!(json["totals"]["tcp_segments_received"], 0);
        assert_eq!(json["totals"]["tcp_segments_retransmitted"], 2);
        assert!(json["connections"]["established"].is_u64());
    }

    #[test]
    fn numbers_of_another_table_have_no_names() {
        assert_eq!(Net::of(&[0; COUNTERS]), Ok(None));
        assert_eq!(Net::of(&[]), Ok(None));
        assert_eq!(Net::of(&counters()[..COUNTERS / 2]), Ok(None));
        let mut counters = counters();
        counters[NET_COUNTERS] += 2;
        assert_eq!(Net::of(&counters), Err(Stranger));
    }
}
