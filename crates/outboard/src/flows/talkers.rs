//! Who talks most: connections summed up by who began them.

use nf::conntrack::Entry;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// By what talkers are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Bytes of both directions.
    Bytes,
    /// Packets of both directions.
    Packets,
    /// Connections.
    Flows,
}

/// A source, and what its connections have carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Talker {
    /// Who began them.
    pub source: IpAddr,
    /// How many there are.
    pub flows: u64,
    /// What it has sent over them.
    pub sent_packets: u64,
    /// Bytes of that.
    pub sent_bytes: u64,
    /// What came back.
    pub received_packets: u64,
    /// Bytes of that.
    pub received_bytes: u64,
}

impl Talker {
    fn new(source: IpAddr) -> Self {
        Self {
            source,
            flows: 0,
            sent_packets: 0,
            sent_bytes: 0,
            received_packets: 0,
            received_bytes: 0,
        }
    }

    /// What it is put in order by.
    fn rank(&self, by: By) -> u64 {
        match by {
            By::Bytes => self.sent_bytes.saturating_add(self.received_bytes),
            By::Packets => self.sent_packets.saturating_add(self.received_packets),
            By::Flows => self.flows,
        }
    }
}

/// The `most` sources that talk most, those first.
pub fn top<'a>(flows: impl IntoIterator<Item = &'a Entry>, by: By, most: usize) -> Vec<Talker> {
    let mut talkers = BTreeMap::new();
    for flow in flows {
        let source = flow.name.source;
        let talker = talkers.entry(source).or_insert_with(|| Talker::new(source));
        talker.flows += 1;
        // A guest may say anything.
        for (sum, more) in [
            (&mut talker.sent_packets, flow.packets[0]),
            (&mut talker.sent_bytes, flow.bytes[0]),
            (&mut talker.received_packets, flow.packets[1]),
            (&mut talker.received_bytes, flow.bytes[1]),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
    let mut talkers: Vec<_> = talkers.into_values().collect();
    // Stable: those of the same rank stay in the order of their addresses.
    talkers.sort_by_key(|talker| Reverse(talker.rank(by)));
    talkers.truncate(most);
    talkers
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::translated;
    use super::*;

    #[test]
    fn connections_are_summed_up_by_source() {
        let mut loud = translated(3, 1);
        loud.bytes = [100_000, u64::MAX];
        loud.packets = [1, 1];
        let flows = [translated(2, 1), loud, translated(2, 2), translated(4, 1)];
        let sources = |by, most| {
            let top = top(&flows, by, most).into_iter();
            top.map(|talker| talker.source.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(sources(By::Bytes, 9), ["10.0.0.3", "10.0.0.2", "10.0.0.4"]);
        assert_eq!(sources(By::Packets, 2), ["10.0.0.2", "10.0.0.4"]);
        assert_eq!(sources(By::Flows, 1), ["10.0.0.2"]);
        let two = &top(&flows, By::Flows, 1)[0];
        assert_eq!(
            (two.flows, two.sent_bytes, two.received_packets),
            (2, 2000, 16)
        );
    }
}
