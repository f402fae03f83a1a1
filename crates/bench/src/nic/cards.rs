//! TCP through the firewall: on taps, and with drivers of its own on two software NICs whose wires
//! are the same taps. Each NIC is a process.

use super::{Plan, Programs};
use crate::measures;
use crate::samples::{Bound, Promise, Samples};
use crate::turn::{Error, Turn};
use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;
use testbed::contender::{self, Contender, Standing};
use testbed::traffic::Window;

/// Frames of 1514 bytes, one system call each.
const PLAIN_TAPS: &str = "taps, no offloads";
/// Frames of up to 64 KiB.
const TAPS: &str = "taps";
/// The same in frames as large as the NICs make them.
const SHORT_TAPS: &str = "taps, 16 KiB";
/// Segments of 1448 bytes that a buffer of the 82599's holds: 16 KiB at most (8.2.3.8.7 of its
/// datasheet).
const SEGMENTS: u32 = 11;
/// The driver sees frames of up to 16 KiB, which the models coalesce.
const CARDS: &str = "NICs";
const CONTENDERS: [&str; 4] = [PLAIN_TAPS, TAPS, SHORT_TAPS, CARDS];

/// How long a connection takes to find its speed.
const WARM_UP: Duration = Duration::from_millis(500);

const fn promise(measure: crate::samples::Measure, baseline: &'static str, ratio: f64) -> Promise {
    Promise {
        measure,
        contender: CARDS,
        baseline: Some(baseline),
        bound: Bound::AtLeast(ratio),
    }
}

/// Seed 000 measured twice the tap's throughput. Frames of 64 KiB are not to be had of this NIC.
pub(super) const PROMISES: [Promise; 6] = [
    promise(measures::TCP_OUT, PLAIN_TAPS, 2.0),
    promise(measures::TCP_IN, PLAIN_TAPS, 2.0),
    promise(measures::TCP_OUT, TAPS, 1.0),
    promise(measures::TCP_IN, TAPS, 1.0),
    promise(measures::TCP_OUT, SHORT_TAPS, 0.8),
    promise(measures::TCP_IN, SHORT_TAPS, 0.8),
];

pub(super) fn measure(
    plan: &Plan,
    programs: &Programs,
    round: usize,
    samples: &mut Samples,
) -> Result<(), Error> {
    for contender in CONTENDERS {
        let standing = start(contender, programs);
        let turn = Turn {
            contender,
            round,
            standing: standing.map_err(|error| Error::Contender(contender, error))?,
        };
        let window = Window {
            warm_up: WARM_UP,
            measured: plan.time,
        };
        turn.transfers(window, samples)?;
    }
    Ok(())
}

fn start(contender: &str, programs: &Programs) -> Result<Standing, contender::Error> {
    let taps =
        |options: &[OsString]| Standing::firewall(&programs.taps, options, None, Stdio::null());
    match contender {
        CARDS => {
            let programs = contender::Programs {
                relay: programs.monitor.clone(),
                firewall: programs.image.clone(),
                ..programs.taps.clone()
            };
            Standing::start(Contender::FirewallOnNics, &programs)
        }
        TAPS => taps(&[]),
        SHORT_TAPS => {
            let standing = taps(&[])?;
            standing.pair.limit_segments(SEGMENTS)?;
            Ok(standing)
        }
        _ => taps(&["private", "public"].map(|port| format!("--net-offload:{port}=off").into())),
    }
}
