//! `oracle --cases N --seed S`: rounds until so many cases have been compared.

#![forbid(unsafe_code)]

use clap::Parser;
use oracle::conversation::{self, CONVERSATIONS, Compared, ROUNDS_PER_ROUTER, Router};
use oracle::{Bridge, FRAMES, Failure, Judgement, translation};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(5);

/// Compares nf with the kernel's nftables, on generated rules and frames.
#[derive(Parser)]
#[command(name = "oracle")]
struct Options {
    /// Cases to compare; a case is one frame before one file of rules.
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Seed of the first round; the next rounds have the next numbers. Chosen at random otherwise.
    #[arg(long)]
    seed: Option<u64>,
    /// Rounds at a time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Compares so many rounds of conversations, with rules that ask for connections, instead.
    #[arg(long)]
    conversations: Option<u64>,
    /// Compares so many rounds of conversations through a router that translates, instead.
    #[arg(long)]
    translations: Option<u64>,
    /// Ends after so many disagreements.
    #[arg(long, default_value_t = 3)]
    failures: usize,
}

/// What all jobs share.
struct Run {
    options: Options,
    first: u64,
    rounds: AtomicU64,
    sum: Mutex<Sum>,
    started: Instant,
}

struct Sum {
    judgement: Judgement,
    failures: usize,
    shown: Instant,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let first = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    if let Err(missing) = testbed::privilege::acquire() {
        eprintln!("oracle: {missing}");
        return ExitCode::FAILURE;
    }
    if let Some(rounds) = options.conversations {
        return converse(&options, first, rounds);
    }
    if let Some(rounds) = options.translations {
        return translate(&options, first, rounds);
    }
    println!("seed {first}, at most {FRAMES} frames a round");
    let started = Instant::now();
    let run = Run {
        options,
        first,
        rounds: AtomicU64::new(0),
        sum: Mutex::new(Sum {
            judgement: Judgement::default(),
            failures: 0,
            shown: started,
        }),
        started,
    };
    let finished = in_jobs(run.options.jobs, || run.work());
    let failures = run.show();
    if failures == 0 && finished {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Does the same in so many jobs at once, and says what went wrong; whether nothing did.
fn in_jobs(jobs: usize, work: impl Fn() -> Result<(), oracle::Error> + Sync) -> bool {
    let errors: Vec<oracle::Error> = thread::scope(|scope| {
        let jobs: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(&work)).collect();
        jobs.into_iter()
            .filter_map(|job| job.join().expect("no job panics").err())
            .collect()
    });
    for error in &errors {
        eprintln!("oracle: {error}");
    }
    errors.is_empty()
}

/// Compares conversations.
fn converse(options: &Options, first: u64, rounds: u64) -> ExitCode {
    println!("seed {first}, {CONVERSATIONS} conversations a round");
    let next = AtomicU64::new(0);
    let sum = Mutex::new((Compared::default(), 0));
    let started = Instant::now();
    let work = || -> Result<(), oracle::Error> {
        loop {
            let router = Router::new()?;
            for number in 0..ROUNDS_PER_ROUTER {
                let round = next.fetch_add(1, Ordering::Relaxed);
                let done = sum.lock().expect("no job panics").1 >= options.failures;
                if round >= rounds || done {
                    return Ok(());
                }
                let seed = first.wrapping_add(round);
                let (compared, disagreement) = conversation::round(&router, seed, number)?;
                let mut sum = sum.lock().expect("no job panics");
                sum.0.add(&compared);
                if let Some(disagreement) = disagreement {
                    sum.1 += 1;
                    println!("\n{disagreement}");
                }
            }
        }
    };
    let finished = in_jobs(options.jobs, work);
    let (compared, disagreements) = *sum.lock().expect("no job panics");
    println!(
        "{} packets ({} passed) of {} conversations, {} connections listed, \
         {disagreements} disagreements, {} s",
        compared.packets,
        compared.passed,
        compared.conversations,
        compared.listed,
        started.elapsed().as_secs(),
    );
    if disagreements == 0 && finished {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Compares what routers translate.
fn translate(options: &Options, first: u64, rounds: u64) -> ExitCode {
    println!(
        "seed {first}, {} conversations a round",
        translation::CONVERSATIONS
    );
    let next = AtomicU64::new(0);
    let sum = Mutex::new((translation::Compared::default(), 0));
    let started = Instant::now();
    let work = || -> Result<(), oracle::Error> {
        loop {
            let router = Router::new()?;
            for number in 0..translation::ROUNDS_PER_ROUTER {
                let round = next.fetch_add(1, Ordering::Relaxed);
                let done = sum.lock().expect("no job panics").1 >= options.failures;
                if round >= rounds || done {
                    return Ok(());
                }
                let seed = first.wrapping_add(round);
                let (compared, disagreement) = translation::round(&router, seed, number)?;
                let mut sum = sum.lock().expect("no job panics");
                sum.0.add(&compared);
                if let Some(disagreement) = disagreement {
                    sum.1 += 1;
                    println!("\n{disagreement}");
                }
            }
        }
    };
    let finished = in_jobs(options.jobs, work);
    let (compared, disagreements) = *sum.lock().expect("no job panics");
    println!(
        "{} packets, {} frames out ({} of the router's own, {} translated, {} ports chosen), \
         {} rounds ended early, {} counters counting, {} connections listed, \
         {disagreements} disagreements, {} s",
        compared.packets,
        compared.passed,
        compared.own,
        compared.translated,
        compared.chosen,
        compared.apart,
        compared.counting,
        compared.listed,
        started.elapsed().as_secs(),
    );
    if disagreements == 0 && finished {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Run {
    /// Rounds, until there were enough.
    fn work(&self) -> Result<(), oracle::Error> {
        let bridge = Bridge::new()?;
        loop {
            let seed = self
                .first
                .wrapping_add(self.rounds.fetch_add(1, Ordering::Relaxed));
            let (judgement, failure) = oracle::round(&bridge, seed)?;
            if self.account(&judgement, failure) {
                return Ok(());
            }
        }
    }

    /// Takes a round into account; whether it was the last one.
    fn account(&self, judgement: &Judgement, failure: Option<Failure>) -> bool {
        let mut sum = self.sum.lock().expect("no job panics");
        sum.judgement.add(judgement);
        if let Some(failure) = failure {
            sum.failures += 1;
            println!("\n{failure}");
        }
        let last =
            sum.judgement.cases >= self.options.cases || sum.failures >= self.options.failures;
        let due = sum.shown.elapsed() >= PROGRESS;
        if due {
            sum.shown = Instant::now();
        }
        drop(sum);
        if due {
            self.show();
        }
        last
    }

    /// Shows what there is so far; the number of disagreements.
    fn show(&self) -> usize {
        let sum = self.sum.lock().expect("no job panics");
        let judgement = &sum.judgement;
        println!(
            "{} cases of {} ({} accepted) in {} rounds from seed {}, {} counters ({} counting), \
             {} malformed, {} fragments, {} files refused on purpose, {} lists unprinted, \
             {} disagreements, {} s",
            judgement.cases,
            self.options.cases,
            judgement.accepted,
            self.rounds.load(Ordering::Relaxed),
            self.first,
            judgement.counters,
            judgement.counting,
            judgement.malformed.iter().sum::<u64>(),
            judgement.fragments,
            judgement.refused,
            judgement.unlisted,
            sum.failures,
            self.started.elapsed().as_secs(),
        );
        sum.failures
    }
}
