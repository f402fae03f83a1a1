//! What Linux's `TCP_INFO` says, of a connection of ours: the fields that scripts look at and that
//! we have.

use libc::c_int;
use net::tcp::{Connection, State};
use ports::Instant;

/// Option of Linux: numbers of the congestion control, of which we have none.
pub const TCP_CC_INFO: c_int = 26;
/// Bytes of what Linux says of a socket's memory: nine numbers.
pub const MEMORY_INFO: usize = 36;
/// Bytes of the structure, at least: what lies behind is zero.
const SIZE: usize = 512;
/// Where fields begin.
const STATE: usize = 0;
const CONGESTION: usize = 1;
const OPTIONS: usize = 5;
const SEGMENT: usize = 16;
const UNACKNOWLEDGED: usize = 24;
const SACKED: usize = 28;
const LOST: usize = 32;
const ROUND_TRIP: usize = 68;
const THRESHOLD: usize = 76;
const WINDOW: usize = 80;
/// A threshold that was never set.
const INFINITE: u32 = 0x7fff_ffff;

/// The number that Linux has for a state.
fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// The structure, as far as we fill it. Linux counts segments, and we count bytes.
pub fn tcp_info(connection: Option<&Connection>, _: Instant) -> Vec<u8> {
    let mut info = vec![0; SIZE];
    let Some(connection) = connection else {
        return info;
    };
    let report = connection.report();
    info[STATE] = state(connection.state());
    info[CONGESTION] = match (report.recovering, report.after_timeout) {
        (_, true) => 4,
        (true, false) => 3,
        (false, false) => u8::from(report.sacked > 0),
    };
    info[OPTIONS] =
        u8::from(report.timestamps) | u8::from(report.sack) << 1 | u8::from(report.scales) << 2;
    let segments = |bytes: u32| bytes.div_ceil(report.segment);
    let mut put = |at: usize, value: u32| info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    put(SEGMENT, report.segment);
    put(UNACKNOWLEDGED, segments(report.unacknowledged));
    put(SACKED, segments(report.sacked));
    put(LOST, segments(report.lost));
    let round_trip = connection.smoothed_round_trip().unwrap_or_default();
    put(ROUND_TRIP, round_trip.as_micros() as u32);
    let threshold = report
        .threshold
        .map_or(INFINITE, |bytes| bytes / report.segment);
    put(THRESHOLD, threshold);
    put(WINDOW, connection.congestion_window() / report.segment);
    info
}
