//! `outboard demo restart`: three images that are killed in turn under load.
//!
//! ```text
//!   this program --- tap === edge === link === firewall === link === stack with echo
//! ```

mod judge;
mod system;
mod traffic;

use super::build::built;
use super::error::Error;
use super::shown;
use super::system::{System, wired};
use judge::{Connections, Report};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use system::{COMPONENTS, Images, STACK, TAP};
use testbed::privilege;

/// Folders of the appliances in the repository, a manifest of each, and what it becomes.
const FIREWALL: &str = "unikernels/firewall";
const ECHO: &str = "unikernels/echo";
const EDGE_IMAGE: (&str, &str) = ("manifest-link.json", "firewall-link.spt");
const FIREWALL_IMAGE: (&str, &str) = ("manifest-links-kept.json", "firewall-links-kept.spt");
const STACK_IMAGE: (&str, &str) = ("manifest-kept.json", "echo-kept.spt");
/// The port of RFC 862.
const PORT: u16 = 7;
/// Connections that are held all the time.
const CONNECTIONS: usize = 4;
/// How long they may take to begin. One that has not is no reason to wait: it is found lost.
const BEGIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);

/// `outboard demo restart`.
#[derive(clap::Args)]
pub struct Options {
    /// A folder with the images, instead of building them
    #[arg(long, value_name = "FOLDER")]
    images: Option<PathBuf>,
    /// How often each component is killed
    #[arg(long, value_name = "N", default_value_t = 4)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
    /// Datagrams a second
    #[arg(long, value_name = "N", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Start components anew, without spares that are loaded and wait
    #[arg(long)]
    cold: bool,
    /// Ask components to leave, as outboard restart does, instead of killing them
    #[arg(long)]
    gently: bool,
    /// Milliseconds from one kill to the next one; who is killed twice a second is slowed
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(350..=60_000))]
    every: u32,
    /// Print the report as JSON, with each kill
    #[arg(long)]
    json: bool,
}

impl Options {
    /// From one kill to the next one.
    fn pause(&self) -> Duration {
        Duration::from_millis(self.every.into())
    }
}

/// Shows it; succeeds if nothing was lost but datagrams.
///
/// # Errors
/// What kept it from being shown.
pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let images = images(options.images.as_deref())?;
    privilege::acquire().map_err(Error::Privilege)?;
    let kills = options.kills as usize * COMPONENTS.len();
    eprintln!(
        "A network of its own, 10.0.0.0/24: this host is .1, the stack is .2 behind two images. \
         {kills} kills, one each {:?}.",
        options.pause()
    );
    let segment = wired(TAP, Ipv4Addr::new(10, 0, 0, 1))?;
    let report = segment.run(|| show(options, &images))?;
    let text = || report.text();
    Ok(shown(options.json, &report, text, report.held))
}

/// The images: built, unless they are given.
fn images(folder: Option<&Path>) -> Result<Images, Error> {
    let image = |appliance, (manifest, file): (&str, &str)| match folder {
        // The file of components lies elsewhere.
        Some(folder) => std::path::absolute(folder.join(file))
            .map_err(|e| Error::Io("cannot find the current directory", e)),
        None => built(appliance, Some(manifest), file),
    };
    Ok(Images {
        edge: image(FIREWALL, EDGE_IMAGE)?,
        firewall: image(FIREWALL, FIREWALL_IMAGE)?,
        stack: image(ECHO, STACK_IMAGE)?,
    })
}

/// Kills, while traffic goes on.
fn show(options: &Options, images: &Images) -> Result<Report, Error> {
    let mut system = system::start(images, !options.cold)?;
    let to = SocketAddr::from((STACK, PORT));
    let (begin, begun) = (Instant::now(), &AtomicUsize::new(0));
    let done = &AtomicBool::new(false);
    let (datagrams, connections, killed) = scope(|threads| {
        let datagrams = threads.spawn(|| traffic::datagrams(to, options.rate, begin, done));
        let connections: Vec<_> = (0..CONNECTIONS as u64)
            .map(|seed| threads.spawn(move || traffic::connection(to, seed, begun, done)))
            .collect();
        while begun.load(Ordering::Relaxed) < CONNECTIONS && begin.elapsed() < BEGIN {
            sleep(POLL);
        }
        let killed = kill(&mut system, options, begin);
        done.store(true, Ordering::Relaxed);
        let lost = || Connections {
            held: 1,
            lost: 1,
            ..Connections::default()
        };
        let connections = connections.into_iter();
        let connections = connections.map(|one| one.join().unwrap_or_else(|_| lost()));
        let connections = connections.fold(Connections::default(), Connections::and);
        (datagrams.join(), connections, killed)
    });
    let (killed, end) = killed?;
    let datagrams = datagrams.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    let datagrams = datagrams.map_err(|e| Error::Traffic("stack", e))?;
    let kills = judge::kills(&killed, end, &datagrams);
    Ok(Report::new(&COMPONENTS, options.rate, kills, connections))
}

/// A kill: which component, and when.
type Killed = (&'static str, Duration);

/// Kills each component so often, in turn; and the end of the last one's time.
fn kill(
    system: &mut System,
    options: &Options,
    begin: Instant,
) -> Result<(Vec<Killed>, Duration), Error> {
    let mut killed = Vec::new();
    for run in 1..=u64::from(options.kills) {
        for name in COMPONENTS {
            sleep(options.pause());
            system.wait_for(name, run)?;
            killed.push((name, begin.elapsed()));
            match options.gently {
                true => system.restart(name)?,
                false => system.kill(name)?,
            }
        }
    }
    sleep(options.pause());
    Ok((killed, begin.elapsed()))
}
