//! What is measured about the firewall, and what was promised.

use crate::contender::Contender;
use crate::samples::{Bound, Measure, Promise};

const fn measure(name: &'static str, unit: &'static str) -> Measure {
    Measure { name, unit }
}

/// TCP payload, private to public.
pub const TCP_OUT: Measure = measure("TCP out", "Gb/s");
/// TCP payload, public to private.
pub const TCP_IN: Measure = measure("TCP in", "Gb/s");
/// CPU time of the contender for [`TCP_OUT`].
pub const TCP_OUT_CPU: Measure = measure("TCP out: CPU", "s/GB");
/// CPU time of the contender for [`TCP_IN`].
pub const TCP_IN_CPU: Measure = measure("TCP in: CPU", "s/GB");
/// 64-byte frames that are forwarded when the generator sends all it can.
pub const UDP: Measure = measure("UDP 64 bytes", "kframes/s");
/// What the generator sent for [`UDP`].
pub const UDP_OFFERED: Measure = measure("UDP 64 bytes: offered", "kframes/s");
/// How much of a core the contender got during [`UDP`]: less than all of it on a busy machine, and
/// then [`UDP`] tells how the machine was shared, not what the contender can.
pub const UDP_BUSY: Measure = measure("UDP 64 bytes: busy", "% of a core");
/// CPU time of the contender for a frame of [`UDP`].
pub const UDP_CPU: Measure = measure("UDP 64 bytes: CPU", "ns/frame");
/// CPU time of the contender for a frame at a rate that leaves it idle half of the time.
pub const UDP_MODEST_CPU: Measure = measure("UDP 100 kframes/s: CPU", "ns/frame");
/// Frames lost at that rate.
pub const UDP_MODEST_LOST: Measure = measure("UDP 100 kframes/s: lost", "%");
/// ICMP echo, one after the other.
pub const PING_MEDIAN: Measure = measure("ping median", "us");
/// ICMP echo, one after the other.
pub const PING_P99: Measure = measure("ping p99", "us");
/// UDP echo of 18 bytes, one after the other.
pub const ECHO_MEDIAN: Measure = measure("UDP echo median", "us");
/// UDP echo of 18 bytes, one after the other.
pub const ECHO_P99: Measure = measure("UDP echo p99", "us");
/// Round trips of both kinds without an answer.
pub const LOST: Measure = measure("round trips lost", "frames");
/// From the start of a program to the first byte of a hello image.
pub const START: Measure = measure("start to first byte", "ms");
/// Size of the image.
pub const IMAGE: Measure = measure("image", "KiB");
/// Resident memory of the tender, without the guest's.
pub const MEMORY: Measure = measure("tender memory", "KiB");

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
