//! The command line of the benchmark of file systems.

use crate::{Subject, report};
use bench::{files, say};
use clap::{Args, Subcommand};
use std::error::Error;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    /// Measure files of an image beside Linux's and those of stock programs
    Files(Arguments),
    /// Read files of an image, and print how many nanoseconds that took, and of CPU time
    ReadFiles(Reader),
}

pub fn run(command: &Command) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Files(arguments) => measure(arguments),
        Command::ReadFiles(reader) => reader.read().map_err(Into::into),
    }
}

#[derive(Args)]
pub struct Arguments {
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

#[derive(Args)]
pub struct Reader {
    contender: String,
    load: files::Load,
    image: PathBuf,
    folder: PathBuf,
}

impl Reader {
    fn read(&self) -> std::io::Result<()> {
        files::read(&self.contender, self.load, &self.image, &self.folder)
    }
}

fn measure(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let usual = match arguments.quick {
        true => files::ROUNDS_QUICK,
        false => files::ROUNDS,
    };
    let rounds = arguments.rounds.unwrap_or(usual);
    let programs = files::Programs {
        own: std::env::current_exe()?,
        folder: std::env::temp_dir().join(format!("outboard-bench-{}", std::process::id())),
    };
    let subject = Subject {
        title: "Files of an image beside Linux's and those of stock programs",
        benchmark: "files",
        rounds,
        measures: &files::ALL,
        plots: &files::PLOTTED,
        promises: &files::PROMISES,
    };
    let result = report(&subject, arguments.quick, &arguments.out, || {
        files::measure(rounds, &programs, &say)
    });
    std::fs::remove_dir_all(&programs.folder)?;
    result
}
