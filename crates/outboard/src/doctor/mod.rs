//! `outboard doctor`: what this machine can do, and what to type where it cannot.
//!
//! | module | what is looked at |
//! |---|---|
//! | `hosts` | whether guests run on `spt` and `process`: two are started |
//! | `network` | `/dev/net/tun`, user namespaces, offloads of taps: some are made |
//! | `mtu` | interfaces that may be joined and carry frames of different size |
//! | `kvm` | whether guests run on `hvt`: one is started |
//! | `passthrough` | IOMMU and VFIO |
//! | `memory` | huge pages |
//! | `jail` | seccomp and Landlock |
//! | `xdp` | `AF_XDP` |
//! | `card` | one network card, by Outboard's driver: `--card` |
//! | `programs` | what the lab starts, and what the tours of the documents type |
//!
//! Each has a thin part that observes facts and a pure one that judges them. What cannot be undone,
//! as a jail, and what may hang, as a virtual machine, is tried in a child process: `probe` starts
//! it, and `attempt` is what it does.

mod attempt;
mod card;
mod finding;
mod hosts;
mod jail;
mod kvm;
mod machine;
mod memory;
mod mtu;
mod network;
mod passthrough;
mod probe;
mod programs;
mod xdp;

use finding::{Finding, Report};
use machine::Machine;
use probe::Probe;
use serde::Serialize;
use std::{fmt, io};
use tender::style::Style;

/// `outboard doctor`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON: an object with `runs`, a boolean, and `checks`, a list of objects with `name`,
    /// `verdict` ("ok", "warn" or "no"), `state` (one word), `evidence`, and `purpose` and `remedy`
    /// (a string or null)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    card: card::Options,
    /// Try one thing, in a process that ends with it
    #[arg(long, hide = true)]
    probe: Option<Probe>,
}

/// Why nothing can be said.
#[derive(Debug)]
pub enum Error {
    /// A probe was refused: the child's message to its parent.
    Probe(String),
    /// A card cannot be examined.
    Card(card::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(text) => f.write_str(text),
            Self::Card(error) => error.fmt(f),
            Self::Print(error) => write!(f, "cannot print: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Looks at the machine and prints what it can do: whether images can run on `spt` and `process`.
/// Or at one card: whether it does what its driver expects.
///
/// # Errors
/// What was found cannot be printed, or a card cannot be examined.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if let Some(probe) = arguments.probe {
        attempt::run(probe)?;
        return Ok(true);
    }
    let style = Style::of(&io::stdout());
    if let Some(card) = &arguments.card.card {
        let report = card::examine(card, &arguments.card).map_err(Error::Card)?;
        print(arguments.json, &report, || report.table(style))?;
        return Ok(report.passed);
    }
    let report = Report::new(examine());
    print(arguments.json, &report, || report.text(style))?;
    Ok(report.runs)
}

fn print(json: bool, report: &impl Serialize, text: impl Fn() -> String) -> Result<(), Error> {
    let text = match json {
        true => {
            let json = serde_json::to_string_pretty(report);
            json.map_err(|error| Error::Print(error.into()))? + "\n"
        }
        false => text(),
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

fn examine() -> Vec<Finding> {
    let machine = Machine::observe();
    let mut findings = vec![
        hosts::judge("spt", &hosts::Facts::observe(Probe::Spt)),
        hosts::judge("process", &hosts::Facts::observe(Probe::Process)),
        network::device(&network::Device::observe(), &machine),
        network::namespaces(&network::Namespaces::observe()),
        network::offloads(&network::Offloads::observe()),
        mtu::judge(&mtu::observe()),
        jail::seccomp(&jail::actions()),
        jail::landlock(&jail::Landlock::observe(), &machine),
        kvm::judge(&kvm::Facts::observe(), &machine),
        memory::judge(memory::observe()),
        passthrough::iommu(&passthrough::Iommu::observe(), &machine),
        passthrough::vfio(&passthrough::Vfio::observe(), &machine),
        xdp::judge(&xdp::Facts::observe()),
        programs::lab(&programs::Place::of),
    ];
    findings.extend(programs::tours(&programs::Place::of));
    findings
}
