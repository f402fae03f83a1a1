//! What the driver of a NIC costs, in instructions for each forwarded frame, beside its peers.
//!
//! Valgrind counts what is executed between entering and leaving a function called
//! `forward_batch`, which receives a batch and sends it; the devices are outside of it. A peer is
//! any program that has such a function and takes a batch's size and a number of frames. Peers are
//! built elsewhere; environment variables name them.

use std::path::PathBuf;
use std::process::Command;
use std::{fmt, io};

use crate::samples::{Bound, Measure, Promise, Samples};

/// Frames that are counted; a multiple of all batch sizes.
const FRAMES: u64 = 128 * 782;
/// The function whose instructions are counted, as callgrind's patterns are written.
const FUNCTION: &str = "--toggle-collect=*forward_batch*";

/// Our driver.
const OURS: &str = "ixgbe";
/// Our driver with frames copied to the heap and back.
const COPIED: &str = "ixgbe, frames copied";
/// The C driver that ours is measured by.
const IXY: &str = "ixy";
/// The Rust driver that ours is measured by.
const IXY_RS: &str = "ixy.rs";

/// Peers, and the variables that name their programs.
pub const PEERS: [(&str, &str); 2] = [(IXY, "OUTBOARD_IXY"), (IXY_RS, "OUTBOARD_IXY_RS")];

const fn batch(name: &'static str) -> Measure {
    let unit = "instructions";
    Measure { name, unit }
}

const BATCHES: [(usize, Measure); 4] = [
    (1, batch("batches of 1")),
    (8, batch("batches of 8")),
    (32, batch("batches of 32")),
    (128, batch("batches of 128")),
];

/// What is shown, in this order.
pub const ALL: [Measure; 4] = [BATCHES[0].1, BATCHES[1].1, BATCHES[2].1, BATCHES[3].1];

const fn ours(batch: usize, baseline: Option<&'static str>, most: f64) -> Promise {
    Promise {
        measure: ALL[batch],
        contender: OURS,
        baseline,
        bound: Bound::AtMost(most),
    }
}

/// The figures that ixy has published are 127 and 139 for batches of 32 and 8, and ixy.rs 209 and
/// 232.
pub const PROMISES: [Promise; 10] = [
    ours(2, None, 127.0),
    ours(1, None, 139.0),
    ours(0, Some(IXY), 1.0),
    ours(1, Some(IXY), 1.0),
    ours(2, Some(IXY), 1.0),
    ours(3, Some(IXY), 1.0),
    ours(0, Some(IXY_RS), 1.0),
    ours(1, Some(IXY_RS), 1.0),
    ours(2, Some(IXY_RS), 1.0),
    ours(3, Some(IXY_RS), 1.0),
];

/// Why nothing was counted.
#[derive(Debug)]
pub enum Error {
    /// Valgrind could not be started.
    Valgrind(io::Error),
    /// A program ended badly; what it said last.
    Program(PathBuf, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Valgrind(error) => {
                write!(f, "valgrind: {error}; type: apt-get install valgrind")
            }
            Self::Program(path, said) => {
                write!(f, "{} under valgrind: {said}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Counts for `ours`, with and without copies, and for those peers that are there.
///
/// # Errors
/// If a program cannot be counted.
pub fn measure(
    ours: PathBuf,
    peers: &[(&'static str, PathBuf)],
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    let own = [
        (OURS, ours.clone(), &[][..]),
        (COPIED, ours, &["--copy"][..]),
    ];
    let peers = peers
        .iter()
        .map(|(name, path)| (*name, path.clone(), &[][..]));
    for (name, program, flags) in own.into_iter().chain(peers) {
        say(name);
        for (size, measure) in BATCHES {
            let count = count(&program, size, flags)?;
            samples.add(measure, name, 0, count as f64 / FRAMES as f64);
        }
    }
    Ok(samples)
}

fn count(program: &PathBuf, batch: usize, flags: &[&str]) -> Result<u64, Error> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(FUNCTION)
        .arg(program)
        .args([batch.to_string(), FRAMES.to_string()])
        .args(flags)
        .output()
        .map_err(Error::Valgrind)?;
    let said = String::from_utf8_lossy(&output.stderr);
    match collected(&said) {
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => {
            let last = said.lines().last().unwrap_or("nothing was said").to_owned();
            Err(Error::Program(program.clone(), last))
        }
    }
}

/// The count in what callgrind says at its end: `==7== Collected : 123`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found() {
        let said = "==7== Events    : Ir\n==7== Collected : 12345\n==7==\n";
        assert_eq!(collected(said), Some(12345));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }

    #[test]
    fn no_batch_is_left_unfilled() {
        for (size, _) in BATCHES {
            assert!(FRAMES.is_multiple_of(size as u64));
        }
    }
}
