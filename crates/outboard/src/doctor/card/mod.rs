//! `outboard doctor --card`: one network card, examined by Outboard's own driver.
//!
//! | module | what |
//! |---|---|
//! | `guest` | the image `checkup`: found or built, run, and what it printed |
//! | `lines` | what its lines say |
//! | `facts` | what the host knows of the card |
//! | `report` | the table, and the file |
//!
//! The image brings the card up by its driver and tries it step by step
//! (`drivers::net::checkup`), through VFIO or vfio-user like any other image.

mod facts;
mod guest;
mod lines;
mod report;

use crate::build;
use facts::Fact;
use lines::Verdict;
use linux::pci::Address;
use linux::pci::sysfs::Tree;
use report::Report;
use std::path::PathBuf;
use std::{fmt, fs, io};

/// What a card is examined with.
#[derive(clap::Args)]
pub struct Options {
    /// Examine this network card instead of the machine: a PCI address, which VFIO must have, or
    /// vfio-user:SOCKET. It is reset, and sends frames
    #[arg(long)]
    pub card: Option<String>,
    /// Also write all that was found into this file, registers too
    #[arg(long, requires = "card", value_name = "FILE")]
    report: Option<PathBuf>,
    /// How many seconds to listen to the card's wire
    #[arg(long, requires = "card", value_name = "SECONDS", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3600))]
    listen: u32,
    /// The image of unikernels/checkup for this card, if it is elsewhere
    #[arg(long, requires = "card", value_name = "IMAGE")]
    image: Option<PathBuf>,
    /// Take the card from the host for the time of the checkup, as `outboard run` does
    #[arg(long, requires = "card")]
    pci_bind: bool,
}

/// Why a card is not examined.
#[derive(Debug)]
pub enum Error {
    /// The name of no card.
    NoCard(String),
    /// No driver is for this device: vendor and device ID.
    NoDriver(u16, u16),
    /// Neither the repository nor an installed image is here.
    NoImage(&'static str),
    /// The image cannot be built.
    Build(build::Error),
    /// The image cannot be run.
    Run(io::Error),
    /// The report cannot be written.
    Report(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCard(name) => write!(
                f,
                "{name:?} is no card: expected a PCI address, as `outboard pci list` prints it, or \
                 vfio-user:SOCKET"
            ),
            Self::NoDriver(vendor, device) => write!(
                f,
                "there is no driver for {vendor:04x}:{device:04x}: Outboard drives 8086:10d3 \
                 (82574L) and 8086:10fb (82599)"
            ),
            Self::NoImage(file) => write!(
                f,
                "no image {file}: run this in Outboard's repository, or give one with --image=FILE"
            ),
            Self::Build(error) => error.fmt(f),
            Self::Run(error) => write!(f, "cannot run the checkup: {error}"),
            Self::Report(path, error) => {
                write!(f, "cannot write the report to {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// Where a card is.
enum Place {
    Pci(Address),
    Socket,
}

impl Place {
    fn parse(card: &str) -> Result<Self, Error> {
        match (card.strip_prefix("vfio-user:"), card.parse()) {
            (Some(socket), _) if !socket.is_empty() => Ok(Self::Socket),
            (_, Ok(address)) => Ok(Self::Pci(address)),
            _ => Err(Error::NoCard(card.to_owned())),
        }
    }

    /// The card's vendor and device ID; `None` if only the socket's other end knows.
    fn ids(&self, tree: &Tree) -> Option<(u16, u16)> {
        match self {
            Self::Pci(address) => {
                let device = tree.device(*address)?;
                Some((device.vendor, device.device))
            }
            Self::Socket => None,
        }
    }
}

/// Examines the card; the report, which was written to a file if that was asked for.
///
/// # Errors
/// The card could not be examined at all, or the report not be written.
pub fn examine(card: &str, options: &Options) -> Result<Report, Error> {
    let tree = Tree::host();
    let place = Place::parse(card)?;
    let image = match &options.image {
        Some(image) => image.clone(),
        None => guest::image(place.ids(&tree))?,
    };
    let mut facts = facts::of_host();
    if let Place::Pci(address) = place {
        facts.extend(facts::of_card(&tree, address));
    }
    facts.push(Fact::new("image", image.display().to_string()));
    let run = guest::run(card, &image, options.listen, options.pci_bind)?;
    let said = lines::parse(&run.printed);
    let ending = (!said.complete).then(|| run.ending());
    let fine = said.steps.iter().all(|step| step.verdict != Verdict::No);
    let report = Report {
        passed: fine && ending.is_none(),
        card: card.to_owned(),
        facts,
        steps: said.steps,
        registers: said.registers,
        ending,
    };
    if let Some(path) = &options.report {
        let written = fs::write(path, report.file());
        written.map_err(|error| Error::Report(path.clone(), error))?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_an_address_or_a_socket() {
        assert!(matches!(Place::parse("03:00.0"), Ok(Place::Pci(_))));
        assert!(matches!(
            Place::parse("vfio-user:/tmp/nic"),
            Ok(Place::Socket)
        ));
        for name in ["", "eth0", "vfio-user:", "03:00"] {
            let error = Place::parse(name).err().map(|error| error.to_string());
            assert!(error.is_some_and(|text| text.contains("outboard pci list")));
        }
    }
}
