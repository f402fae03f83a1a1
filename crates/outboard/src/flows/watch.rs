//! What becomes of connections: a pure comparison of two lists.
//!
//! No connection is shorter than ten seconds, unless a RST comes before any answer, a full table
//! gives it up, or somebody ends it. So whoever looks a few times a second sees each other one;
//! states that follow each other at once are seen as the last of them.

use super::flow::{ASSURED, SEEN_REPLY};
use nf::conntrack::{Entry, Name};
use serde::Serialize;
use std::collections::HashMap;

/// What has become of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// It has begun.
    New,
    /// Its state, its mark, or whether it was answered is another one.
    Update,
    /// It has ended; its numbers are the last that were seen.
    Destroy,
}

impl Event {
    /// Its name, as `conntrack -E` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Update => "UPDATE",
            Self::Destroy => "DESTROY",
        }
    }
}

/// Connections as they were last seen.
#[derive(Debug, Default)]
pub struct Seen(HashMap<Name, Entry>);

impl Seen {
    /// What has become of those that were seen before, if these are all that there are now: ends
    /// first, and then the others in the order of the list.
    pub fn changes(&mut self, now: Vec<Entry>) -> Vec<(Event, Entry)> {
        let mut before = std::mem::take(&mut self.0);
        let mut changes = Vec::new();
        for entry in now {
            // A guest may name one twice.
            if self.0.insert(entry.name, entry).is_some() {
                continue;
            }
            match before.remove(&entry.name) {
                None => changes.push((Event::New, entry)),
                Some(former) if is_another(&former, &entry) => {
                    changes.push((Event::Destroy, former));
                    changes.push((Event::New, entry));
                }
                Some(former) if differs(&former, &entry) => changes.push((Event::Update, entry)),
                Some(_) => {}
            }
        }
        let mut ended: Vec<_> = before.into_values().collect();
        ended.sort_by_key(|entry| entry.name);
        let ended = ended.into_iter().map(|entry| (Event::Destroy, entry));
        ended.chain(changes).collect()
    }
}

/// Whether one has ended and another one of its name has begun: packets are never fewer.
fn is_another(former: &Entry, entry: &Entry) -> bool {
    former
        .packets
        .iter()
        .zip(entry.packets)
        .any(|(before, now)| *before > now)
}

fn differs(former: &Entry, entry: &Entry) -> bool {
    let bits = SEEN_REPLY | ASSURED;
    let told = |entry: &Entry| (entry.class, entry.status & bits, entry.mark, entry.reply);
    told(former) != told(entry)
}

#[cfg(test)]
mod tests {
    use super::super::flow::tests::{echo6, translated};
    use super::*;
    use nf::conntrack::Class;

    #[test]
    fn each_change_is_told_once() {
        let mut seen = Seen::default();
        let (one, two) = (translated(2, 1), translated(2, 2));
        assert_eq!(seen.changes(vec![one]), [(Event::New, one)]);
        assert_eq!(seen.changes(vec![one]), []);
        let mut more = one;
        (more.packets, more.bytes, more.left) = ([11, 9], [2000, 9000], 5);
        assert_eq!(seen.changes(vec![more]), [], "traffic is no change");
        let mut closing = more;
        closing.class = Class::FinWait;
        let changes = [(Event::Update, closing), (Event::New, two)];
        assert_eq!(seen.changes(vec![closing, two]), changes);
        let changes = [(Event::Destroy, closing), (Event::New, echo6())];
        assert_eq!(seen.changes(vec![two, echo6()]), changes);
        let ends = seen.changes(Vec::new());
        assert_eq!(ends, [(Event::Destroy, two), (Event::Destroy, echo6())]);
    }

    #[test]
    fn a_name_that_is_used_again_is_another_connection() {
        let mut seen = Seen::default();
        let old = translated(2, 1);
        let new = Entry {
            packets: [1, 0],
            ..old
        };
        seen.changes(vec![old]);
        let changes = [(Event::Destroy, old), (Event::New, new)];
        assert_eq!(seen.changes(vec![new]), changes);
    }

    #[test]
    fn a_guest_that_says_one_twice_is_heard_once() {
        let mut seen = Seen::default();
        let one = translated(2, 1);
        assert_eq!(seen.changes(vec![one, one, one]), [(Event::New, one)]);
    }
}
