//! The benchmarks' program, and the peers that it starts as processes of their own.

#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::contender::Programs;
use bench::firewall::{self, Plan, Starters};
use bench::machine::{Machine, Run};
use bench::promises::{ALL, PLOTTED, PROMISES};
use bench::report::Report;
use bench::{privilege, relay};
use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "outboard-bench",
    about = "Side-by-side measurements of Outboard"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward frames between standard input and standard output, both taps
    Relay {
        kind: Kind,
        /// The process that it ends with
        parent: i32,
    },
    /// Measure the firewall beside relays and the kernel's bridge
    Firewall(Firewall),
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// One frame a wake-up
    Plain,
    /// Up to 64 frames a wake-up
    Batched,
}

impl From<Kind> for relay::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Plain => Self::Plain,
            Kind::Batched => Self::Batched,
        }
    }
}

#[derive(Args)]
struct Firewall {
    /// The firewall's image for spt
    #[arg(long)]
    image: PathBuf,
    /// outboard-tender; the monitor, outboard, is expected beside it
    #[arg(long)]
    tender: PathBuf,
    /// Folder for the results
    #[arg(long)]
    out: PathBuf,
    /// Two short rounds: a glance, nothing to judge by
    #[arg(long)]
    quick: bool,
    /// Turns of each contender
    #[arg(long)]
    rounds: Option<usize>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Relay { kind, parent } => relay::serve(kind.into(), parent).map_err(Into::into),
        Command::Firewall(arguments) => firewall(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn firewall(arguments: &Firewall) -> Result<(), Box<dyn Error>> {
    privilege::acquire()?;
    let programs = Programs {
        relay: std::env::current_exe()?,
        tender: arguments.tender.clone(),
        tender_command: None,
        firewall: arguments.image.clone(),
    };
    let solo5 = std::env::var_os("SOLO5_DIR").map(PathBuf::from);
    if solo5.is_none() {
        eprintln!("SOLO5_DIR does not name a built Solo5 v0.12: start-up is not measured");
    }
    let starters = solo5.map(|solo5| Starters {
        monitor: arguments.tender.with_file_name("outboard"),
        solo5,
    });
    let plan = if arguments.quick {
        Plan::QUICK
    } else {
        Plan::FULL
    };
    let plan = Plan {
        rounds: arguments.rounds.unwrap_or(plan.rounds),
        ..plan
    };
    let begin = Machine::now();
    if begin.is_busy() {
        eprintln!("this machine is busy with other things: do not judge promises by this run");
    }
    let samples = firewall::measure(&plan, &programs, starters.as_ref(), &|line| {
        eprintln!("{line}");
    })?;
    let end = Machine::now();
    let machine = Run {
        begin: &begin,
        end: &end,
    };
    let flag = if arguments.quick { " --quick" } else { "" };
    let report = Report {
        title: "The firewall beside its peers",
        command: &format!("cargo xtask bench firewall{flag} --rounds={}", plan.rounds),
        machine: &machine.to_string(),
        samples: &samples,
        measures: &ALL,
        plots: &PLOTTED,
        promises: &PROMISES,
    };
    report.write(&arguments.out)?;
    println!("{}\n{}", report.figures(), report.promises());
    println!("Written to {}", arguments.out.display());
    Ok(())
}
