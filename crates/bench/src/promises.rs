//! What the benchmark of the firewall shows, and what was promised.

use crate::measures::*;
use crate::samples::{Bound, Measure, Promise};
use testbed::contender::Contender;

/// What is shown, in this order.
pub const ALL: [Measure; 18] = [
    TCP_OUT,
    TCP_IN,
    TCP_OUT_CPU,
    TCP_IN_CPU,
    UDP,
    UDP_OFFERED,
    UDP_BUSY,
    UDP_CPU,
    UDP_MODEST_CPU,
    UDP_MODEST_LOST,
    PING_MEDIAN,
    PING_P99,
    ECHO_MEDIAN,
    ECHO_P99,
    LOST,
    START,
    IMAGE,
    MEMORY,
];

/// What is drawn.
pub const PLOTTED: [(&str, Measure); 5] = [
    ("tcp-out", TCP_OUT),
    ("tcp-in", TCP_IN),
    ("udp", UDP),
    ("ping", PING_MEDIAN),
    ("start", START),
];

/// Solo5's own tender, in [`START`].
pub const STOCK: &str = "solo5-spt";
/// Our tender alone, in [`START`].
pub const TENDER: &str = "outboard-tender";
/// Our tender under the monitor, in [`START`].
pub const MONITOR: &str = "outboard run";

const FIREWALL: &str = Contender::Firewall.name();
const PLAIN: &str = Contender::PlainRelay.name();
const OFFLOADED: &str = Contender::OffloadedRelay.name();

const fn beside(measure: Measure, baseline: &'static str, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: FIREWALL,
        baseline: Some(baseline),
        bound,
    }
}

const fn start(contender: &'static str, most: f64) -> Promise {
    Promise {
        measure: START,
        contender,
        baseline: Some(STOCK),
        bound: Bound::AtMost(most),
    }
}

const fn below(measure: Measure, most: f64) -> Promise {
    Promise {
        measure,
        contender: FIREWALL,
        baseline: None,
        bound: Bound::AtMost(most),
    }
}

/// The promises.
pub const PROMISES: [Promise; 16] = [
    beside(TCP_OUT, PLAIN, Bound::AtLeast(6.0)),
    beside(TCP_IN, PLAIN, Bound::AtLeast(6.0)),
    beside(TCP_OUT_CPU, PLAIN, Bound::AtMost(0.1)),
    beside(TCP_IN_CPU, PLAIN, Bound::AtMost(0.1)),
    beside(TCP_OUT, OFFLOADED, Bound::AtLeast(0.9)),
    beside(TCP_IN, OFFLOADED, Bound::AtLeast(0.9)),
    beside(UDP, PLAIN, Bound::AtLeast(1.3)),
    beside(UDP_CPU, PLAIN, Bound::AtMost(0.75)),
    beside(PING_MEDIAN, PLAIN, Bound::AtMost(1.05)),
    beside(PING_P99, PLAIN, Bound::AtMost(1.2)),
    beside(ECHO_MEDIAN, PLAIN, Bound::AtMost(1.05)),
    beside(ECHO_P99, PLAIN, Bound::AtMost(1.2)),
    start(TENDER, 1.0),
    start(MONITOR, 1.3),
    below(IMAGE, 1024.0),
    below(MEMORY, 2048.0),
];
