//! The benchmarks of tiny guests, of disks, and of programs under the proxy.

use super::{Measured, Subject, report, say};
use bench::{calls, disks, fairness, http, load, nbd, proxied, stored};
use clap::Args;
use std::error::Error;
use std::path::PathBuf;
use testbed::privilege;

#[derive(Args)]
pub struct Guests {
    /// outboard-tender; outboard is expected beside it
    #[arg(long)]
    tender: PathBuf,
    /// The folder of tiny guests
    #[arg(long)]
    guests: PathBuf,
    /// Folder for the results
    #[arg(long)]
    out: PathBuf,
    /// One round: a glance, nothing to judge by
    #[arg(long)]
    quick: bool,
    /// Turns of each contender
    #[arg(long)]
    rounds: Option<usize>,
}

impl Guests {
    fn rounds(&self, quick: usize, usual: usize) -> usize {
        self.rounds
            .unwrap_or(if self.quick { quick } else { usual })
    }
}

#[derive(Args)]
pub struct Nbd {
    #[command(flatten)]
    measured: Measured,
    /// The same image, whose disk has a queue
    #[arg(long)]
    queue: PathBuf,
}

#[derive(Args)]
pub struct Steady {
    #[command(flatten)]
    measured: Measured,
    /// The image `iperf3`; that with --image is `stack`
    #[arg(long)]
    iperf3: PathBuf,
}

#[derive(Args)]
pub struct Stored {
    #[command(flatten)]
    measured: Measured,
    /// The image `files`; that with --image is `http` with a disk
    #[arg(long)]
    files: PathBuf,
    /// The image `http` with a disk that a process serves
    #[arg(long)]
    remote_image: PathBuf,
    /// The image `files` with such disks
    #[arg(long)]
    remote_files: PathBuf,
}

pub fn fairness(arguments: &Guests) -> Result<(), Box<dyn Error>> {
    privilege::acquire()?;
    let rounds = arguments.rounds(fairness::ROUNDS_QUICK, fairness::ROUNDS);
    let programs = fairness::Programs {
        tender: arguments.tender.clone(),
        guests: arguments.guests.clone(),
    };
    let subject = Subject {
        title: "A busy port beside a task that sleeps",
        benchmark: "fairness",
        rounds,
        measures: &fairness::ALL,
        plots: &fairness::PLOTTED,
        promises: &fairness::PROMISES,
    };
    report(&subject, arguments.quick, &arguments.out, || {
        fairness::measure(rounds, &programs, &say)
    })
}

pub fn disks(arguments: &Guests) -> Result<(), Box<dyn Error>> {
    let rounds = arguments.rounds(disks::ROUNDS_QUICK, disks::ROUNDS);
    let programs = disks::Programs {
        tender: arguments.tender.clone(),
        guests: arguments.guests.clone(),
    };
    let subject = Subject {
        title: "A file of the host's as the disk of an image, beside fio on the same file",
        benchmark: "disks",
        rounds,
        measures: &disks::ALL,
        plots: &disks::PLOTTED,
        promises: &disks::PROMISES,
    };
    let name = format!("outboard-bench-{}.disk", std::process::id());
    let file = std::env::temp_dir().join(name);
    let result = report(&subject, arguments.quick, &arguments.out, || {
        disks::measure(rounds, &programs, &file, &say)
    });
    std::fs::remove_file(&file)?;
    result
}

pub fn nbd(arguments: &Nbd) -> Result<(), Box<dyn Error>> {
    let measured = &arguments.measured;
    let plans = [nbd::ROUNDS_QUICK, nbd::ROUNDS];
    let rounds = measured.plan(plans, |rounds| rounds);
    let subject = Subject {
        title: "A disk over the network of an image beside nbd-server",
        benchmark: "nbd",
        rounds,
        measures: &nbd::ALL,
        plots: &nbd::PLOTTED,
        promises: &nbd::PROMISES,
    };
    let programs = nbd::Programs {
        tender: measured.tender.clone(),
        image: measured.image.clone(),
        queue: arguments.queue.clone(),
    };
    measured.report_with_files(&subject, |folder| {
        nbd::measure(rounds, &programs, folder, &say)
    })
}

pub fn stored(arguments: &Stored) -> Result<(), Box<dyn Error>> {
    let measured = &arguments.measured;
    let plan = measured.plan([http::QUICK, http::FULL], |plan| &mut plan.rounds);
    let subject = Subject {
        title: "What a disk holds, over HTTP and copied, beside Linux",
        benchmark: "stored",
        rounds: plan.rounds,
        measures: &stored::ALL,
        plots: &stored::PLOTTED,
        promises: &stored::PROMISES,
    };
    let programs = stored::Programs {
        tender: measured.tender.clone(),
        local: stored::Pair {
            http: measured.image.clone(),
            files: arguments.files.clone(),
        },
        remote: stored::Pair {
            http: arguments.remote_image.clone(),
            files: arguments.remote_files.clone(),
        },
    };
    measured.report_with_files(&subject, |folder| {
        stored::measure(&plan, &programs, folder, &say)
    })
}

pub fn calls(measured: &Measured) -> Result<(), Box<dyn Error>> {
    let plan = measured.plan([calls::QUICK, calls::FULL], |plan| &mut plan.rounds);
    let subject = Subject {
        title: "What a program's calls cost under the proxy",
        benchmark: "calls",
        rounds: plan.rounds,
        measures: &calls::ALL,
        plots: &[],
        promises: &calls::PROMISES,
    };
    let programs = proxied::Programs::beside(&measured.tender, &measured.image);
    let own = std::env::current_exe()?;
    measured.report_with_files(&subject, |folder| {
        calls::measure(&plan, &programs, &own, folder, &say)
    })
}

pub fn load(arguments: &Steady) -> Result<(), Box<dyn Error>> {
    let measured = &arguments.measured;
    let plan = measured.plan([load::QUICK, load::FULL], |plan| &mut plan.samples);
    let subject = Subject {
        title: "Steady loads for a program on a stack's sockets, an image, and Linux",
        benchmark: "load",
        rounds: plan.samples,
        measures: &load::ALL,
        plots: &[],
        promises: &load::PROMISES,
    };
    let programs = load::Programs {
        stack: proxied::Programs::beside(&measured.tender, &measured.image),
        image: arguments.iperf3.clone(),
    };
    measured.report(&subject, || {
        load::measure(&plan, &programs, &measured.out, &say)
    })
}
