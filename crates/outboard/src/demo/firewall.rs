//! `outboard demo firewall` and `outboard demo nic`: what passes, which rule decides, and how fast.

use super::build::built;
use super::error::Error;
use super::{checks, keep, observed, report, speed};
use abi::extension::feature;
use abi::manifest::Entry;
use abi::pci::Request;
use image::Image;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use std::{env, fs, io};
use testbed::contender::{Contender, FIREWALL_MEMORY_MIB, Programs};
use testbed::privilege;

/// The appliance's folder in the repository.
const APPLIANCE: &str = "unikernels/firewall";
/// Its manifest with two Intel 82599.
const NICS_MANIFEST: &str = "manifest-82599.json";
/// What it becomes, with the one manifest and the other.
const IMAGE: &str = "firewall.spt";
const IMAGE_ON_NICS: &str = "firewall-82599.spt";
/// The checks: half a second of traffic and two attempts that must come to nothing.
const CHECKS_ESTIMATE: Duration = Duration::from_secs(2);
const ROUNDS: u8 = 5;
const SECONDS: f64 = 1.0;
const QUICK_ROUNDS: u8 = 1;
const QUICK_SECONDS: f64 = 0.5;

/// `outboard demo firewall`.
#[derive(clap::Args)]
pub struct Options {
    /// The firewall's image, instead of building it
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Measure less: one short round
    #[arg(long)]
    quick: bool,
    /// Rounds of bulk TCP [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: Option<u8>,
    /// Length of a measurement [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// Send with iperf3 instead of the built-in sender
    #[arg(long)]
    iperf3: bool,
    /// Leave the firewall running, with a shell on each side
    #[arg(long)]
    keep: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What the firewall's ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Taps of the host's.
    Taps,
    /// Software NICs, which the firewall drives itself.
    Nics,
}

fn seconds(text: &str) -> Result<f64, String> {
    let allowed = 0.1..=60.0;
    match text.parse() {
        Ok(seconds) if allowed.contains(&seconds) => Ok(seconds),
        _ => Err("0.1 to 60".to_owned()),
    }
}

impl Options {
    fn plan(&self, ports: Ports) -> speed::Plan {
        let (rounds, seconds) = match self.quick {
            true => (QUICK_ROUNDS, QUICK_SECONDS),
            false => (ROUNDS, SECONDS),
        };
        speed::Plan {
            rounds: self.rounds.unwrap_or(rounds).into(),
            measured: Duration::from_secs_f64(self.seconds.unwrap_or(seconds)),
            iperf3: self.iperf3,
            contenders: match ports {
                Ports::Taps => &Contender::ALL,
                Ports::Nics => &Contender::BESIDE_NICS,
            },
        }
    }
}

/// Shows it; succeeds if all checks held.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options, ports: Ports) -> Result<ExitCode, Error> {
    if options.iperf3 {
        speed::require_iperf3()?;
    }
    let programs = programs(options.image.as_deref(), ports)?;
    let features = features(&programs.firewall, ports)?;
    let original_user = rustix::process::getuid();
    privilege::acquire().map_err(Error::Privilege)?;
    let plan = options.plan(ports);
    let between = match ports {
        Ports::Taps => "the firewall on spt between them",
        Ports::Nics => "between them the firewall on spt, which drives two software NICs",
    };
    progress(&format!(
        "Two segments of 10.10.0.0/24, {between}; about {:.0} s.",
        (plan.estimate() + CHECKS_ESTIMATE).as_secs_f64()
    ));

    let nics = ports == Ports::Nics;
    let (mut standing, mut counters) = observed::start(&programs, features, nics)?;
    let checks = checks::run(&standing.pair, &mut counters)?;
    observed::check(&mut standing)?;
    if !options.json {
        print!("{}", report::checks(&checks));
    }
    progress("Bulk TCP, private to public, in turns:");
    let figures = speed::run(plan, &programs, progress)?;
    if !options.json {
        print!("{}", report::speed(&figures));
    }
    if options.keep {
        keep::keep(&standing.pair, original_user.is_root())?;
        observed::check(&mut standing)?;
    }
    let verdicts = standing.verdicts();
    let verdicts = verdicts.map_err(|e| Error::Io("cannot wait for a software NIC", e))?;
    let lawful = verdicts.iter().all(ExitStatus::success);
    let held = lawful && checks.iter().all(|check| check.held);
    if options.json {
        println!("{}", report::json(&checks, &figures, held));
    } else {
        print!("{}", report::nics(&verdicts));
        println!("{}", report::verdict(&checks));
    }
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Progress is not part of the report.
fn progress(line: &str) {
    eprintln!("{line}");
}

/// This program, which is relay and tender too, and the image: built, unless one is given.
fn programs(image: Option<&Path>, ports: Ports) -> Result<Programs, Error> {
    let this = env::current_exe().map_err(|e| Error::Io("cannot find this program's file", e))?;
    let firewall = match image {
        Some(path) => path.to_owned(),
        None => match ports {
            Ports::Taps => built(APPLIANCE, None, IMAGE)?,
            Ports::Nics => built(APPLIANCE, Some(NICS_MANIFEST), IMAGE_ON_NICS)?,
        },
    };
    Ok(Programs {
        relay: this.clone(),
        tender: this,
        tender_command: Some("tender"),
        firewall,
        memory_mib: FIREWALL_MEMORY_MIB,
    })
}

/// What the image understands, if it is the firewall's with such ports: two of them, and rules.
fn features(path: &Path, ports: Ports) -> Result<u32, Error> {
    let refused = |reason: String| Error::Image(APPLIANCE, path.to_owned(), reason);
    let bytes = fs::read(path).map_err(|e: io::Error| refused(e.to_string()))?;
    let image = Image::parse(&bytes).map_err(|e| refused(e.to_string()))?;
    let (names, kind): (Vec<_>, _) = match ports {
        Ports::Taps => (
            image.entries.iter().filter_map(Entry::name).collect(),
            "networks",
        ),
        Ports::Nics => (
            image.pci.iter().filter_map(Request::name).collect(),
            "PCI devices",
        ),
    };
    if names.len() != 2 || !names.contains(&"private") || !names.contains(&"public") {
        let reason =
            format!("it does not have the firewall's two ports, private and public, as {kind}");
        return Err(refused(reason));
    }
    let features = image.extension.map_or(0, |extension| extension.features);
    match features & feature::RULES {
        0 => Err(refused("it takes no rules".into())),
        _ => Ok(features),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "61", "-1", "NaN", "inf", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
