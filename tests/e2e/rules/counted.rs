//! `ct count`, by the kernel's nft and by `nf`. The kernel looks at what it remembers at most once
//! in a tick of its clock, so there is a pause between two packets.

use crate::harness::network::Network;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use oracle::conversation::{Family, Hosts, Judges, Packet, Router, Segment, StatefulRules};
use std::thread::sleep;
use std::time::Duration;

/// More than a tick of any kernel: 100 in a second.
const PAUSE: Duration = Duration::from_millis(25);
const TCP: u8 = 6;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const HOSTS: Hosts = Hosts {
    family: Family::V4,
    number: 11,
};

/// A step: a segment of the connection from this port, from this side, with these flags; and
/// whether it passes.
type Step = (u16, u8, u8, bool);

/// Rules, and what becomes of packets one after the other.
struct Course {
    name: &'static str,
    rules: &'static [&'static str],
    steps: &'static [Step],
}

const COURSES: [Course; 3] = [
    Course {
        name: "no more than so many connections begin",
        rules: &[
            "ct state established accept",
            "ct state new tcp dport 80 ct count over 2 drop",
        ],
        steps: &[
            (1, 0, SYN, true),
            (2, 0, SYN, true),
            (3, 0, SYN, false),
            (4, 0, SYN, false),
            // What was reset is none any more.
            (1, 1, SYN | ACK, true),
            (1, 1, RST | ACK, true),
            (5, 0, SYN, true),
            (6, 0, SYN, false),
        ],
    },
    Course {
        name: "up to the number it matches without over",
        rules: &[
            "ct state established accept",
            "tcp dport 80 ct count 2 accept",
            "drop",
        ],
        steps: &[
            (1, 0, SYN, true),
            (1, 0, SYN, true),
            (2, 0, SYN, true),
            (3, 0, SYN, false),
        ],
    },
    Course {
        name: "over none it always matches",
        rules: &["ct state new ct count over 0 drop"],
        steps: &[(1, 0, SYN, false), (1, 0, SYN, false)],
    },
];

pub fn trials(network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["nft"]);
    let trial = |course: &'static Course| {
        let name = format!("counted::{}", course.name);
        network.trial_unless(missing, name, move || check(course))
    };
    COURSES.iter().map(trial).collect()
}

fn check(course: &Course) -> Result<(), Failed> {
    let router = Router::new()?;
    let rules = StatefulRules::new("accept", course.rules);
    let judges = Judges::new(&router, &rules)?;
    let mut judges = judges.map_err(|(kernel, nf)| format!("{kernel}, {nf}"))?;
    for (number, (port, from, flags, passes)) in course.steps.iter().enumerate() {
        let ports = match from {
            0 => [*port, 80],
            _ => [80, *port],
        };
        let (seq, ack) = match (from, *flags) {
            (0, _) => (1000, 0),
            (_, flags) if flags & SYN != 0 => (5000, 1001),
            _ => (5001, 1001),
        };
        let segment = Segment {
            ports,
            seq,
            ack,
            flags: *flags,
            window: 1000,
            options: Vec::new(),
            data: 0,
        };
        let packet = Packet::new(HOSTS, *from, TCP, segment.bytes());
        let said = (
            judges.kernels(&packet)?.passes(),
            judges.ours(&packet).passes(),
        );
        if said != (*passes, *passes) {
            return Err(format!("step {number}: the kernel and nf pass it: {said:?}").into());
        }
        sleep(PAUSE);
    }
    Ok(())
}
