//! What a cut costs: the firewall as one image on two taps, and as three, which two links join.
//!
//! In three, each tap has an image of its own, which lets all frames pass. What is measured is the
//! work of all processes together.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::firewall::Plan;
use crate::measures::{
    ECHO_MEDIAN, ECHO_P99, PING_MEDIAN, PING_P99, TCP_IN, TCP_IN_CPU, TCP_OUT, TCP_OUT_CPU, UDP,
    UDP_CPU, UDP_MODEST_CPU, UDP_MODEST_LOST,
};
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::{Error, Turn};
use testbed::contender::{self, Contender, Standing};
use testbed::stats::turns;

/// One image.
const ONE: &str = Contender::Firewall.name();
/// Three of them.
const THREE: &str = "firewall in three";
/// The same, each of which may see what the others drop.
const OPEN: &str = "firewall in three, open";
const NAMES: [&str; 3] = [ONE, THREE, OPEN];

/// Round trips at half the rate that the three can carry: each passes twice, so a quarter of what
/// they forward.
const HALF_LOAD: f64 = 0.25;
/// How long the limit is looked for.
const LIMIT_TIME: Duration = Duration::from_millis(500);
/// Datagrams a second whose round trips are timed.
pub const PACED_RATE: Measure = Measure::new("UDP echo at half load: offered", "kframes/s");
/// Their round trip.
pub const PACED_MEDIAN: Measure = Measure::new("UDP echo at half load: median", "us");
/// Their round trip.
pub const PACED_P99: Measure = Measure::new("UDP echo at half load: p99", "us");
/// Those that did not come back.
pub const PACED_LOST: Measure = Measure::new("UDP echo at half load: lost", "%");

/// What is shown, in this order.
pub const ALL: [Measure; 16] = [
    TCP_OUT,
    TCP_OUT_CPU,
    TCP_IN,
    TCP_IN_CPU,
    UDP,
    UDP_CPU,
    UDP_MODEST_CPU,
    UDP_MODEST_LOST,
    PING_MEDIAN,
    PING_P99,
    ECHO_MEDIAN,
    ECHO_P99,
    PACED_RATE,
    PACED_MEDIAN,
    PACED_P99,
    PACED_LOST,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [
    ("tcp-out-cpu", TCP_OUT_CPU),
    ("udp-cpu", UDP_CPU),
    ("half-load", PACED_MEDIAN),
];

const fn at_most(contender: &'static str, measure: Measure, factor: f64) -> Promise {
    Promise {
        measure,
        contender,
        baseline: Some(ONE),
        bound: Bound::AtMost(factor),
    }
}

/// What was aimed at.
pub const PROMISES: [Promise; 6] = [
    at_most(THREE, TCP_OUT_CPU, 1.10),
    at_most(THREE, TCP_IN_CPU, 1.10),
    at_most(THREE, UDP_CPU, 1.25),
    at_most(OPEN, TCP_OUT_CPU, 1.10),
    at_most(OPEN, TCP_IN_CPU, 1.10),
    at_most(OPEN, UDP_CPU, 1.25),
];

/// What is measured.
#[derive(Clone, Debug)]
pub struct Programs {
    /// One image, on two taps.
    pub one: contender::Programs,
    /// The image between two links.
    pub middle: PathBuf,
    /// That between a link and a tap.
    pub edge: PathBuf,
}

impl Programs {
    fn standing(&self, name: &'static str) -> Result<Standing, Error> {
        let started = match name {
            ONE => Standing::start(Contender::Firewall, &self.one),
            _ => {
                let middle = contender::Programs {
                    firewall: self.middle.clone(),
                    ..self.one.clone()
                };
                Standing::in_three(&middle, &self.edge, name == OPEN)
            }
        };
        started.map_err(|error| Error::Contender(name, error))
    }

    fn turn(&self, contender: &'static str, round: usize) -> Result<Turn, Error> {
        Ok(Turn {
            contender,
            round,
            standing: self.standing(contender)?,
        })
    }
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed: a gap in the figures would be mistaken for a result.
pub fn measure(plan: &Plan, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    let begin = Instant::now();
    let limit = programs.turn(THREE, 0)?.limit(LIMIT_TIME)?;
    let rate = (limit * HALF_LOAD) as u64;
    for (round, index) in turns(NAMES.len(), plan.rounds) {
        let name = NAMES[index];
        let (turn, of, seconds) = (round + 1, plan.rounds, begin.elapsed().as_secs());
        say(&format!("round {turn} of {of}: {name} ({seconds} s)"));
        let turn = programs.turn(name, round)?;
        turn.latency(plan.round_trips, &mut samples)?;
        turn.transfers(plan.window, &mut samples)?;
        turn.flood(plan.flood, &mut samples)?;
        turn.modest_flood(plan.flood, &mut samples)?;
        half_load(&turn, rate, plan.flood, &mut samples)?;
    }
    Ok(samples)
}

fn half_load(turn: &Turn, rate: u64, length: Duration, samples: &mut Samples) -> Result<(), Error> {
    let count = (rate as f64 * length.as_secs_f64()) as u64;
    let answered = turn.paced(rate, count);
    let mut answered = answered.map_err(turn.failed(PACED_MEDIAN))?;
    answered.latencies.sort_unstable();
    let back = answered.latencies.len();
    let microseconds = |hundredths: usize| {
        let place = (back * hundredths / 100).min(back.saturating_sub(1));
        let latency = answered.latencies.get(place);
        latency.map_or(f64::NAN, |latency| *latency as f64 / 1000.0)
    };
    let lost = count.saturating_sub(back as u64) as f64 / count.max(1) as f64;
    turn.add(samples, PACED_RATE, rate as f64 / 1000.0);
    turn.add(samples, PACED_MEDIAN, microseconds(50));
    turn.add(samples, PACED_P99, microseconds(99));
    turn.add(samples, PACED_LOST, 100.0 * lost);
    Ok(())
}
