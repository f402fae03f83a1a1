//! One image on its three hosts, by instruction count: what a frame costs that it forwards between
//! NICs of its own; and what it costs to attach DMA memory made of large pages or of small ones.
//!
//! All of it happens in the lab, where every instruction of the whole machine takes a nanosecond,
//! nested guests included. What instructions cannot tell are the misses of caches and of TLBs.

mod attach;
mod cards;
mod circle;
mod lab;

use std::path::PathBuf;
use std::{fmt, io};

use crate::samples::{Bound, Measure, Promise, Samples};
use testbed::stats::turns;

pub use lab::measure as measure_in_lab;

const PROCESS: &str = "process";
const SPT: &str = "spt";
const HVT: &str = "hvt";
const HOSTS: [&str; 3] = [PROCESS, SPT, HVT];

/// How far the hosts may be apart.
const FACTOR: f64 = 1.05;

/// What the two ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Cards,
    Taps,
}

/// What forwards, and how much of it at a time.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Its name in tables and files.
    name: &'static str,
    image: &'static str,
    argument: &'static str,
    ports: [&'static str; 2],
    wire: Wire,
    /// Frames in each direction.
    batch: usize,
}

impl Case {
    /// Instructions of the whole machine for each forwarded frame.
    const fn instructions(&self) -> Measure {
        Measure::new(self.name, "instructions")
    }

    /// Looks at a NIC that found nothing, for each forwarded frame.
    const fn empty_looks(&self) -> Measure {
        Measure::new(self.name, "empty looks")
    }

    const fn of(self, batch: usize, name: &'static str) -> Self {
        Self {
            batch,
            name,
            ..self
        }
    }

    /// `contender` takes as many instructions as `baseline`.
    const fn promise(&self, contender: &'static str, baseline: &'static str) -> Promise {
        Promise {
            measure: self.instructions(),
            contender,
            baseline: Some(baseline),
            bound: Bound::Within(FACTOR),
        }
    }
}

/// Rules that let all frames pass.
const ACCEPT: &str = "table bridge t { chain c { type filter hook forward priority 0; policy \
                      accept; }\n}";

/// Receive and transmit; with a wait so seldom that it does not count.
const DRIVER: Case = Case {
    name: "",
    image: "circle",
    argument: "10",
    ports: ["left", "right"],
    wire: Wire::Cards,
    batch: 0,
};
/// The same with a wait in each turn, as appliances have.
const WAITS: Case = Case {
    argument: "1",
    ..DRIVER
};
const FIREWALL: Case = Case {
    image: "firewall-nic.spt",
    argument: ACCEPT,
    ports: ["private", "public"],
    ..DRIVER
};
const TAPS: Case = Case {
    image: "firewall.spt",
    wire: Wire::Taps,
    ..FIREWALL
};
const CASES: [Case; 12] = [
    DRIVER.of(1, "driver: 1 frame"),
    DRIVER.of(8, "driver: 8 frames"),
    DRIVER.of(32, "driver: 32 frames"),
    WAITS.of(1, "driver and waits: 1 frame"),
    WAITS.of(8, "driver and waits: 8 frames"),
    WAITS.of(32, "driver and waits: 32 frames"),
    FIREWALL.of(1, "firewall: 1 frame"),
    FIREWALL.of(8, "firewall: 8 frames"),
    FIREWALL.of(32, "firewall: 32 frames"),
    TAPS.of(1, "firewall on taps: 1 frame"),
    TAPS.of(8, "firewall on taps: 8 frames"),
    TAPS.of(32, "firewall on taps: 32 frames"),
];
/// Those with NICs of the image's own, which come first.
const WITH_CARDS: usize = 9;

/// What is shown, in this order.
pub const ALL: [Measure; CASES.len() + WITH_CARDS + attach::ALL.len()] = {
    let mut all = [attach::ALL[0]; _];
    let mut case = 0;
    while case < CASES.len() {
        all[case] = CASES[case].instructions();
        if case < WITH_CARDS {
            all[CASES.len() + case] = CASES[case].empty_looks();
        }
        case += 1;
    }
    let mut measure = 0;
    while measure < attach::ALL.len() {
        all[CASES.len() + WITH_CARDS + measure] = attach::ALL[measure];
        measure += 1;
    }
    all
};

/// The hosts cost the same where the image drives its NICs.
pub const PROMISES: [Promise; 3 * WITH_CARDS] = {
    let mut promises = [CASES[0].promise(SPT, PROCESS); _];
    let mut case = 0;
    while case < WITH_CARDS {
        promises[3 * case] = CASES[case].promise(SPT, PROCESS);
        promises[3 * case + 1] = CASES[case].promise(HVT, PROCESS);
        promises[3 * case + 2] = CASES[case].promise(HVT, SPT);
        case += 1;
    }
    promises
};

/// Rounds that are enough: counts differ by what interrupts them, and by little else.
pub const ROUNDS: usize = 3;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The folder of tiny guests.
    pub guests: PathBuf,
    /// The folder with the firewall's images, for cards and for taps.
    pub appliances: PathBuf,
}

impl Programs {
    fn image(&self, name: &str) -> PathBuf {
        let guest = self.guests.join(name);
        match guest.exists() {
            true => guest,
            false => self.appliances.join(name),
        }
    }
}

/// Why a run was given up.
#[derive(Debug)]
pub enum Error {
    /// The cards, which only the lab has.
    Cards(io::Error),
    /// What could not be measured, and where.
    Case(&'static str, &'static str, io::Error),
    /// The lab failed, or printed no figures; its last words.
    Lab(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Cards(error) => write!(f, "the lab's cards: {error}"),
            Self::Case(name, contender, error) => write!(f, "{name}: {contender}: {error}"),
            Self::Lab(words) => write!(f, "no figures from the lab: {words}"),
        }
    }
}

impl std::error::Error for Error {}

/// Takes all measurements in this machine, which is the lab, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed: a gap in the figures would be mistaken for a result.
pub fn measure(rounds: usize, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let cards = cards::Cards::take().map_err(Error::Cards)?;
    let mut samples = Samples::default();
    for case in CASES {
        for (round, index) in turns(HOSTS.len(), rounds) {
            let host = HOSTS[index];
            let cost = circle::cost(programs, &cards, host, &case)
                .map_err(|error| Error::Case(case.name, host, error))?;
            let count = cost.instructions;
            say(&format!("{}: {host}: {count:.1} instructions", case.name));
            samples.add(case.instructions(), host, round, count);
            if case.wire == Wire::Cards {
                samples.add(case.empty_looks(), host, round, cost.empty_looks);
            }
        }
    }
    attach::measure(rounds, programs, &cards, say, &mut samples)?;
    Ok(samples)
}
