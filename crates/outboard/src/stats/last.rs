//! A snapshot in a few lines: what is left to say when a guest has been asked to end.

use super::snapshot::{Port, Snapshot};
use super::table::{counted, printable};
use std::cmp::Reverse;

/// Rules that are named, the busiest ones.
const RULES_MAX: usize = 10;

/// One line for each port, and one for each of the busiest rules; none for a guest without ports.
pub fn lines(snapshot: &Snapshot) -> Vec<String> {
    if snapshot.ports.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<String> = snapshot.ports.iter().map(port).collect();
    let entries = snapshot.rules.iter().flat_map(|rules| &rules.entries);
    let mut busy: Vec<_> = entries.filter(|rule| rule.counted.frames > 0).collect();
    // Stable: of equally busy rules, the first one stays in front.
    busy.sort_by_key(|rule| Reverse(rule.counted.frames));
    for rule in busy.iter().take(RULES_MAX) {
        let (text, frames) = (printable(&rule.label()), rule.counted.frames);
        lines.push(format!("{}: {text}", counted(frames, "frame")));
    }
    if busy.len() > RULES_MAX {
        let more = counted((busy.len() - RULES_MAX) as u64, "more rule");
        lines.push(format!("and {more}"));
    }
    if snapshot.captures_lost > 0 {
        let lost = counted(snapshot.captures_lost, "frame");
        lines.push(format!("{lost} not captured"));
    }
    lines
}

/// What a port has counted, in one line.
pub fn port(port: &Port) -> String {
    let mut line = format!(
        "{}: received {} ({}), sent {} ({})",
        port.name,
        counted(port.receive.frames, "frame"),
        counted(port.receive.bytes, "byte"),
        port.transmit.frames,
        port.transmit.bytes
    );
    let drops: Vec<_> = port.drops.iter().filter(|(_, count)| *count > 0).collect();
    for (number, (reason, count)) in drops.into_iter().enumerate() {
        line += if number == 0 { "; dropped " } else { ", " };
        line += &format!("{count} {reason}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::snapshot;
    use super::*;

    #[test]
    fn all_that_matters_in_a_few_lines() {
        let expected = [
            "private: received 12 frames (1200 bytes), sent 3 (300); dropped 2 too_big, \
             1 bad_ip_checksum",
            "public: received 0 frames (0 bytes), sent 0 (0)",
            "8 frames: tcp dport 7070 accept",
            "4 frames: policy drop",
            "6 frames not captured",
        ];
        assert_eq!(lines(&snapshot()), expected);
    }

    #[test]
    fn one_is_no_plural() {
        let mut snapshot = snapshot();
        snapshot.ports.truncate(1);
        snapshot.ports[0].receive.frames = 1;
        snapshot.ports[0].receive.bytes = 1;
        snapshot.captures_lost = 1;
        let rules = snapshot.rules.as_mut().unwrap();
        rules.entries[0].counted.frames = 1;
        let busy = rules.entries[0].clone();
        rules.entries = vec![busy; RULES_MAX + 1];
        let lines = lines(&snapshot);
        assert!(lines[0].starts_with("private: received 1 frame (1 byte), sent 3 (300)"));
        assert_eq!(lines[1], "1 frame: tcp dport 7070 accept");
        let last = ["and 1 more rule", "1 frame not captured"];
        assert_eq!(lines[1 + RULES_MAX..], last);
    }

    #[test]
    fn many_rules_are_still_a_few_lines() {
        let mut snapshot = snapshot();
        let rules = snapshot.rules.as_mut().unwrap();
        let busy = rules.entries[0].clone();
        rules.entries = vec![busy; RULES_MAX + 5];
        let lines = lines(&snapshot);
        assert_eq!(lines.len(), 2 + RULES_MAX + 2);
        assert_eq!(lines[2 + RULES_MAX], "and 5 more rules");
    }

    #[test]
    fn a_guest_without_ports_has_counted_nothing() {
        let mut snapshot = snapshot();
        snapshot.ports.clear();
        assert_eq!(lines(&snapshot), [""; 0]);
    }
}
