//! `outboard demo router`: a home gateway between stock clients and stock servers.
//!
//! ```text
//!   a --+
//!       bridge --- private === router === public --- this program, with the servers
//!   b --+
//! ```

mod checks;
mod home;
mod load;
mod report;
mod stock;

use super::build::built;
use super::error::Error;
use super::shown;
use home::Home;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use testbed::privilege;

/// The appliance's folder in the repository, its manifest, and what it becomes.
const APPLIANCE: &str = "unikernels/router";
const MANIFEST: &str = "manifest-kept.json";
const IMAGE: &str = "router-kept.spt";

/// `outboard demo router`.
#[derive(clap::Args)]
pub struct Options {
    /// The image of unikernels/router with manifest-kept.json, instead of building it
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// How often the router is killed under load
    #[arg(long, value_name = "N", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    kills: u32,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Shows it; succeeds if everything was as expected.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    stock::require()?;
    let image = match &options.image {
        // The file of components lies elsewhere.
        Some(path) => std::path::absolute(path)
            .map_err(|e| Error::Io("cannot find the current directory", e))?,
        None => built(APPLIANCE, Some(MANIFEST), IMAGE)?,
    };
    privilege::acquire().map_err(Error::Privilege)?;
    eprintln!(
        "A home, 10.0.0.0/24 and fd00::/64, with two clients; the router on spt; and outside, \
         192.0.2.0/24 and 2001:db8:1::/64, the servers. {} s of load.",
        load::lasts(options.kills).as_secs()
    );
    let outside = home::segment()?;
    let report = outside.run(|| show(options, &image))?;
    let text = || report.text();
    Ok(shown(options.json, &report, text, report.held))
}

/// In the network outside.
fn show(options: &Options, image: &std::path::Path) -> Result<Report, Error> {
    let mut home = Home::new(image)?;
    let mut checks = checks::given(&home)?;
    checks.extend(checks::connections(&home)?);
    let load = load::run(&mut home, options.kills)?;
    checks.extend(load.checks());
    Ok(Report::new(checks, load))
}
