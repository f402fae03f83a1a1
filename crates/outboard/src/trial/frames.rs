//! Frames to try rules with: the rules themselves say which of them pass.

use crate::frame;
use crate::rules::trace::{Judged, Trace};
use nf::Verdict;

/// What is tried, in this order: from the first tap's address to the second's.
const FRAMES: [&str; 6] = [
    "icmp 10.0.0.1 > 10.0.1.1",
    "tcp 10.0.0.1:999 > 10.0.1.1:80",
    "tcp 10.0.0.1:999 > 10.0.1.1:443",
    "tcp 10.0.0.1:999 > 10.0.1.1:22",
    "udp 10.0.0.1:999 > 10.0.1.1:53",
    "arp who-has 10.0.1.1 tell 10.0.0.1",
];

/// The first of the frames that gets this verdict when it comes into the first of the ports.
pub(super) fn with(verdict: Verdict, rules: &str, ports: [&str; 2]) -> Option<&'static str> {
    let judged = |text: &str| {
        let frame = frame::read(text).ok()?;
        match Trace::new(rules, ports, &frame.bytes, 0).ok()? {
            Trace::Malformed { verdict, .. }
            | Trace::Refused { verdict, .. }
            | Trace::Part { verdict, .. }
            | Trace::Judged(Judged { verdict, .. }) => Some(verdict),
        }
    };
    let mut frames = FRAMES.into_iter();
    frames.find(|text| judged(text) == Some(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(policy: &str, rule: &str) -> [Option<&'static str>; 2] {
        let rules = format!(
            "table bridge t {{\nchain f {{\ntype filter hook forward priority 0; \
             policy {policy}; {rule}\n}}\n}}\n"
        );
        let find = |verdict| with(verdict, &rules, ["private", "public"]);
        [find(Verdict::Accept), find(Verdict::Drop)]
    }

    #[test]
    fn each_verdict_has_its_frame_if_the_rules_give_it() {
        let web = FRAMES[1];
        assert_eq!(
            found("drop", "tcp dport 80 accept;"),
            [Some(web), Some(FRAMES[0])]
        );
        assert_eq!(
            found("accept", "tcp dport 80 drop;"),
            [Some(FRAMES[0]), Some(web)]
        );
        assert_eq!(found("drop", ""), [None, Some(FRAMES[0])]);
        assert_eq!(found("drop", "iifname public accept;")[0], None);
    }

    #[test]
    fn all_of_them_are_frames() {
        assert_eq!(found("accept", "")[1], None);
        for text in FRAMES {
            assert!(frame::read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_rules_has_none() {
        assert_eq!(with(Verdict::Drop, "nonsense", ["a", "b"]), None);
    }
}
