//! How late a task of an image wakes while its port is flooded, after seed 000, section 4.3.1: with
//! the bound of a turn that `net::turn` sets for the port, and without, where the port is received
//! from until it has nothing.
//!
//! ```text
//!   flood - Linux === tap                  - a guest on spt or process
//!   flood - Linux === tap - a software NIC - the guest, with the NIC's driver
//! ```
//!
//! The guest has the executor, the clock and the turns of `net`, and does 4 us of work for each
//! frame. Its task sleeps 1 ms again and again. The flood has a core and the guest another; the
//! software NIC runs where there is room.

use crate::placement::Apart;
use crate::samples::{Measure, Promise, Samples};
use crate::served::{CLIENT, INTERFACE, at};
use crate::turn::Error;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use testbed::contender::{self, Port, Process, spawn_nic};
use testbed::segment::Segment;
use testbed::stats::turns;
use testbed::traffic::udp;

/// Whoever gets frames for all needs no address.
const TO_ALL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 255), 9);
/// Guest memory.
const MEMORY: &str = "--mem=64";
/// Longer than the guest counts, which is two seconds from the first frame on.
const FLOOD: Duration = Duration::from_secs(3);
/// What takes the port's bound away.
const DRAIN: &str = "drain";

/// A host, what the port is, and which loop.
struct Contender {
    name: &'static str,
    host: &'static str,
    on_nic: bool,
    drains: bool,
}

const fn contender(
    name: &'static str,
    host: &'static str,
    on_nic: bool,
    drains: bool,
) -> Contender {
    Contender {
        name,
        host,
        on_nic,
        drains,
    }
}

const CONTENDERS: [Contender; 8] = [
    contender("spt, tap", "spt", false, false),
    contender("spt, tap, no bound", "spt", false, true),
    contender("process, tap", "process", false, false),
    contender("process, tap, no bound", "process", false, true),
    contender("spt, 82599", "spt", true, false),
    contender("spt, 82599, no bound", "spt", true, true),
    contender("process, 82599", "process", true, false),
    contender("process, 82599, no bound", "process", true, true),
];

const OFFERED: Measure = Measure::new("offered", "kframes/s");
const TAKEN: Measure = Measure::new("taken", "kframes/s");
const NAPS: Measure = Measure::new("naps", "/s");
const MEDIAN: Measure = Measure::new("late: median", "us");
const P99: Measure = Measure::new("late: p99", "us");
const MOST: Measure = Measure::new("late: at most", "us");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 6] = [OFFERED, TAKEN, NAPS, MEDIAN, P99, MOST];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 2] = [("late", P99), ("taken", TAKEN)];
/// Nothing was promised.
pub const PROMISES: [Promise; 0] = [];
/// Turns of each contender.
pub const ROUNDS: usize = 5;
/// The same for a glance.
pub const ROUNDS_QUICK: usize = 1;
/// What the guest counts in.
const SECONDS: f64 = 2.0;

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`; `outboard`, which is the software NIC, lies beside it.
    pub tender: PathBuf,
    /// The folder of tiny guests.
    pub guests: PathBuf,
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed.
pub fn measure(rounds: usize, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), rounds) {
        let contender = &CONTENDERS[index];
        let name = contender.name;
        say(&format!("round {} of {rounds}: {name}", round + 1));
        let (offered, said) = run(contender, programs)?;
        let failed = |error| Error::Measure(name, MEDIAN, error);
        let silent = || io::Error::other(format!("the guest says {said:?}"));
        let [frames, naps, late @ ..] = figures(&said).ok_or_else(silent).map_err(failed)?;
        let mut add = |measure, value| samples.add(measure, name, round, value);
        add(OFFERED, offered / 1000.0);
        add(TAKEN, frames / SECONDS / 1000.0);
        add(NAPS, naps / SECONDS);
        for (measure, nanoseconds) in [MEDIAN, P99, MOST].into_iter().zip(late) {
            add(measure, nanoseconds / 1000.0);
        }
    }
    Ok(samples)
}

/// Frames that were offered in a second, and what the guest says at its end.
fn run(contender: &Contender, programs: &Programs) -> Result<(f64, String), Error> {
    let name = contender.name;
    let start = |error| Error::Contender(name, error);
    let (client, port, _nic) = attach(contender, programs).map_err(start)?;
    let (guest, mut said) = spawn(contender, programs, &port).map_err(start)?;
    // The port stays here, too: with its last holder, the tap would go before the flood ends.
    let measure = || {
        let mut line = String::new();
        said.read_line(&mut line)?;
        let sender = client.run(|| UdpSocket::bind((CLIENT, 0)))?;
        sender.set_broadcast(true)?;
        sender.connect(TO_ALL)?;
        let _apart = Apart::new(Some(guest.id()))?;
        let flood = udp::flood(&sender, None, FLOOD, &|| Ok(0), &|| Ok(Duration::ZERO))?;
        line.clear();
        said.read_line(&mut line)?;
        Ok((flood.offered_per_second(), line))
    };
    let measured: io::Result<_> = { measure }();
    measured.map_err(|error| Error::Measure(name, OFFERED, error))
}

/// The flood's side, what the guest's port is attached to, and the software NIC if that is one.
fn attach(
    contender: &Contender,
    programs: &Programs,
) -> Result<(Segment, Port, Option<Process>), contender::Error> {
    let client = Segment::new()?;
    let tap = client.tap(INTERFACE, true, at(CLIENT))?;
    if !contender.on_nic {
        return Ok((client, Port::tap(tap), None));
    }
    let outboard = programs.tender.with_file_name("outboard");
    let (port, nic) = spawn_nic(&outboard, tap)?;
    Ok((client, port, Some(nic)))
}

type Said = BufReader<std::process::ChildStdout>;

fn spawn(
    contender: &Contender,
    programs: &Programs,
    port: &Port,
) -> Result<(Process, Said), contender::Error> {
    port.inherit(true)?;
    let guest = if contender.on_nic {
        "fairness_nic"
    } else {
        "fairness"
    };
    let mut command = Command::new(&programs.tender);
    command
        .arg(format!("--die-with-parent={}", std::process::id()))
        .arg(format!("--host={}", contender.host))
        .args([MEMORY, &port.option("service"), "--"])
        .arg(programs.guests.join(guest))
        .args(contender.drains.then_some(DRAIN))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let failed = |error| contender::Error::Spawn(programs.tender.clone(), error);
    let mut child = command.spawn().map_err(failed)?;
    port.inherit(false)?;
    let said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe);
    let said = said.map_err(|error| failed(error.into()))?;
    Ok((child.into(), BufReader::new(said)))
}

/// Frames, naps, and nanoseconds: median, 99th percentile, maximum.
fn figures(said: &str) -> Option<[f64; 5]> {
    let figures: Option<Vec<f64>> = said
        .split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    figures?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_says_is_read() {
        assert_eq!(figures("7 6 5 4 3\n"), Some([7.0, 6.0, 5.0, 4.0, 3.0]));
        assert_eq!(figures("7 6 5 4\n"), None);
        assert_eq!(figures("7 6 5 4 x\n"), None);
        assert_eq!(figures(""), None);
    }

    /// Each has a twin without the bound, and nothing else differs.
    #[test]
    fn contenders_come_in_pairs() {
        for pair in CONTENDERS.chunks(2) {
            let [bounded, other] = pair else {
                panic!("one is alone");
            };
            assert!(!bounded.drains && other.drains);
            assert_eq!((bounded.host, bounded.on_nic), (other.host, other.on_nic));
            assert_eq!(format!("{}, no bound", bounded.name), other.name);
        }
    }
}
