//! What is measured.

use crate::samples::Measure;

/// TCP payload, private to public.
pub const TCP_OUT: Measure = Measure::new("TCP out", "Gb/s");
/// TCP payload, public to private.
pub const TCP_IN: Measure = Measure::new("TCP in", "Gb/s");
/// CPU time of the contender for [`TCP_OUT`].
pub const TCP_OUT_CPU: Measure = Measure::new("TCP out: CPU", "s/GB");
/// CPU time of the contender for [`TCP_IN`].
pub const TCP_IN_CPU: Measure = Measure::new("TCP in: CPU", "s/GB");
/// 64-byte frames that are forwarded when the generator sends all it can.
pub const UDP: Measure = Measure::new("UDP 64 bytes", "kframes/s");
/// What the generator sent for [`UDP`].
pub const UDP_OFFERED: Measure = Measure::new("UDP 64 bytes: offered", "kframes/s");
/// How much of a core the contender got during [`UDP`]: less than all of it on a busy machine, and
/// then [`UDP`] tells how the machine was shared, not what the contender can.
pub const UDP_BUSY: Measure = Measure::new("UDP 64 bytes: busy", "% of a core");
/// CPU time of the contender for a frame of [`UDP`].
pub const UDP_CPU: Measure = Measure::new("UDP 64 bytes: CPU", "ns/frame");
/// CPU time of the contender for a frame at a rate that leaves it idle half of the time.
pub const UDP_MODEST_CPU: Measure = Measure::new("UDP 100 kframes/s: CPU", "ns/frame");
/// Frames lost at that rate.
pub const UDP_MODEST_LOST: Measure = Measure::new("UDP 100 kframes/s: lost", "%");
/// ICMP echo, one after the other.
pub const PING_MEDIAN: Measure = Measure::new("ping median", "us");
/// ICMP echo, one after the other.
pub const PING_P99: Measure = Measure::new("ping p99", "us");
/// UDP echo of 18 bytes, one after the other.
pub const ECHO_MEDIAN: Measure = Measure::new("UDP echo median", "us");
/// UDP echo of 18 bytes, one after the other.
pub const ECHO_P99: Measure = Measure::new("UDP echo p99", "us");
/// Round trips of both kinds without an answer.
pub const LOST: Measure = Measure::new("round trips lost", "frames");
/// From the start of a program to the first byte of a hello image.
pub const START: Measure = Measure::new("start to first byte", "ms");
/// Size of the image.
pub const IMAGE: Measure = Measure::new("image", "KiB");
/// Resident memory of the tender, without the guest's.
pub const MEMORY: Measure = Measure::new("tender memory", "KiB");
