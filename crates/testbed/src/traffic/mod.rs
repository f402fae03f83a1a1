//! Generators and sinks.
//!
//! They work on sockets that were made inside two segments (a socket stays in the network
//! namespace in which it was made), so that generator, sink and clock share one process and only
//! the contender between them is another one.

pub mod echo;
pub mod iperf3;
pub mod many;
pub mod paced;
pub mod ping;
pub mod redis;
pub mod syn;
pub mod tcp;
pub mod udp;
pub mod wrk;

use std::io;
use std::time::Duration;

/// The smallest frame, without the wire's checksum: to nobody, of an experimental type (IEEE 802).
pub const SMALLEST_FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[0] = 2;
    frame[6] = 2;
    frame[11] = 1;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

/// When a generator measures.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// What comes first and is not counted: slow start, cold caches.
    pub warm_up: Duration,
    /// What is counted.
    pub measured: Duration,
}

/// Reads the CPU time that a contender has used so far; always zero if it is not a process.
pub type CpuClock<'a> = &'a dyn Fn() -> io::Result<Duration>;
