//! The benchmarks' program, and the peers that it starts as processes of their own.

#![forbid(unsafe_code)]

mod guests;

mod file_systems;
use std::error::Error;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use bench::firewall::{self, Starters};
use bench::http;
use bench::hvt;
use bench::machine::{Machine, Run};
use bench::report::Report;
use bench::rules::{self, Sources};
use bench::samples::{Measure, Promise, Samples};
use bench::say;
use bench::{
    connections, driver, hosts, loss, matrix, nic, promises, proxied, service, split, turn,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use guests::{Guests, Nbd, Steady, Stored};
use testbed::contender::{FIREWALL_MEMORY_MIB, MONITOR, Programs};
use testbed::traffic::{echo, paced};
use testbed::{privilege, relay};

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
    Firewall(Measured),
    /// Measure what the firewall's rules cost, beside the kernel's bridge with the same ones
    Rules(Rules),
    /// Measure the driver of the 82599 on its software model
    Nic(Cards),
    /// Measure the firewall as one image beside the firewall as three that links join
    Split(Split),
    /// Measure TCP of an image beside Linux's
    Service(Service),
    /// Measure files over HTTP of an image beside nginx
    Http(Measured),
    /// Measure nginx, redis and iperf3, as they are, on the sockets of a stack in an image,
    /// beside the host's
    Proxy(Measured),
    /// Measure what a program's calls cost on a stack's sockets and on the host's, beside Linux
    Calls(Measured),
    /// Make calls, and write into a file what each takes
    CallsOf { file: PathBuf },
    /// Measure what steady loads cost iperf3, as it is, on the sockets of a stack, beside Linux's
    Load(Steady),
    /// Measure TCP of an image beside Linux's on a wire that loses frames
    Loss(Measured),
    /// Measure many connections to an image beside Linux's
    Connections(Connections),
    /// Measure how late a task wakes while its image's port is flooded
    Fairness(Guests),
    /// Measure a file of the host's as the disk of an image, beside fio on the same file
    Disks(Guests),
    /// Measure a file over the network block device protocol of an image beside nbd-server
    Nbd(Nbd),
    /// Measure what a disk holds, over HTTP and copied, by images beside nginx and cp
    Stored(Stored),
    #[command(flatten)]
    Files(file_systems::Command),
    /// Send back what comes to a port, until standard input ends
    Echo { address: Ipv4Addr, port: u16 },
    /// Open idle connections, and keep them until standard input ends
    Hold {
        from: Ipv4Addr,
        to: SocketAddrV4,
        count: usize,
    },
    /// Count the instructions of a NIC's driver, beside its peers
    Driver(Driver),
    /// Measure hypercalls and starts of virtual machines beside Solo5's tender, which the
    /// environment variable SOLO5_DIR leads to
    Hvt(Hvt),
    /// Count the instructions of the hosts for each forwarded frame, and those that it takes to
    /// attach DMA memory, in the lab
    Hosts(Hosts),
    /// Measure devices of monitors under load along the axes of a file, in the lab
    Matrix(Matrix),
    /// Offer frames to a reflector at a steady rate, and print what became of them
    Paced {
        to: SocketAddrV4,
        rate: u64,
        count: u64,
        bytes: usize,
    },
    /// Send back what comes to a port by UDP
    Reflect { address: Ipv4Addr, port: u16 },
    /// Print an object file with a program for XDP that sends frames back
    XdpObject,
    /// Read a disk in blocks of 4 KiB, and print how long that took
    Reads {
        disk: PathBuf,
        depth: u32,
        count: u64,
    },
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
struct Measured {
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

#[derive(Args)]
struct Cards {
    #[command(flatten)]
    measured: Measured,
    /// The firewall's image that drives two 82599
    #[arg(long)]
    cards: PathBuf,
}

#[derive(Args)]
struct Split {
    #[command(flatten)]
    measured: Measured,
    /// The firewall's image between a tap and a link
    #[arg(long)]
    edge: PathBuf,
    /// The firewall's image between two links
    #[arg(long)]
    middle: PathBuf,
}

#[derive(Args)]
struct Service {
    #[command(flatten)]
    measured: Measured,
    /// The same image on smoltcp's sockets
    #[arg(long)]
    smoltcp: PathBuf,
    /// The same image with the host's sockets
    #[arg(long)]
    sockets: PathBuf,
    /// The same that drives an 82599
    #[arg(long)]
    card: PathBuf,
    /// Leave it to the scheduler on which cores client and server run
    #[arg(long)]
    anywhere: bool,
}

#[derive(Args)]
struct Connections {
    #[command(flatten)]
    measured: Measured,
    /// The image http, whose idle connections are measured as well
    #[arg(long)]
    http: PathBuf,
}

#[derive(Args)]
struct Rules {
    #[command(flatten)]
    measured: Measured,
    /// Four rules, for nft and the firewall alike
    #[arg(long)]
    rules: PathBuf,
}

#[derive(Args)]
struct Driver {
    /// The example `forward` of the drivers
    #[arg(long)]
    program: PathBuf,
    /// Folder for the results
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args)]
struct Hvt {
    /// outboard-tender
    #[arg(long)]
    tender: PathBuf,
    /// The folder of tiny guests
    #[arg(long)]
    guests: PathBuf,
    /// Folder for the results
    #[arg(long, required_unless_present = "raw")]
    out: Option<PathBuf>,
    /// The program that boots the lab, for machines whose KVM cannot run the guests
    #[arg(long)]
    lab: Option<PathBuf>,
    /// Print raw figures and nothing else
    #[arg(long)]
    raw: bool,
    /// Two short rounds: a glance, nothing to judge by
    #[arg(long)]
    quick: bool,
    /// Turns of each contender
    #[arg(long)]
    rounds: Option<usize>,
    /// Hypercalls in a turn
    #[arg(long)]
    calls: Option<u32>,
    /// Starts in a turn
    #[arg(long)]
    starts: Option<usize>,
}

#[derive(Args)]
struct Hosts {
    /// outboard-tender
    #[arg(long)]
    tender: PathBuf,
    /// The folder of tiny guests
    #[arg(long)]
    guests: PathBuf,
    /// The folder with the firewall's images, one that drives cards and one for taps
    #[arg(long)]
    appliances: PathBuf,
    /// Folder for the results
    #[arg(long, required_unless_present = "raw")]
    out: Option<PathBuf>,
    /// The program that boots the lab
    #[arg(long, required_unless_present = "raw")]
    lab: Option<PathBuf>,
    /// This is the lab: measure, print raw figures, and nothing else
    #[arg(long)]
    raw: bool,
    /// Turns of each host
    #[arg(long, default_value_t = hosts::ROUNDS)]
    rounds: usize,
}

#[derive(Args)]
struct Matrix {
    /// The file
    file: PathBuf,
    /// The program that boots the lab
    #[arg(long, required_unless_present = "runs")]
    lab: Option<PathBuf>,
    /// What is brought along to the lab
    #[arg(long = "bring")]
    bring: Vec<PathBuf>,
    /// Folder for the results
    #[arg(long, required_unless_present = "runs")]
    out: Option<PathBuf>,
    /// Say which runs there are, and which cannot be, and nothing else
    #[arg(long)]
    list: bool,
    /// Write the report anew from raw data, and nothing else
    #[arg(long)]
    report: bool,
    /// This is the lab: do these runs of the file, by their numbers, and print raw data
    #[arg(long, value_delimiter = ',')]
    runs: Option<Vec<usize>>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Relay { kind, parent } => relay::serve(kind.into(), parent).map_err(Into::into),
        Command::Firewall(arguments) => firewall(&arguments),
        Command::Rules(arguments) => rules(&arguments),
        Command::Nic(arguments) => nic(&arguments),
        Command::Split(arguments) => split(&arguments),
        Command::Service(arguments) => service(&arguments),
        Command::Http(arguments) => http(&arguments),
        Command::Proxy(arguments) => proxy(&arguments),
        Command::Calls(arguments) => guests::calls(&arguments),
        Command::CallsOf { file } => bench::calls::work(&file).map_err(Into::into),
        Command::Load(arguments) => guests::load(&arguments),
        Command::Loss(arguments) => loss(&arguments),
        Command::Connections(arguments) => connections(&arguments),
        Command::Fairness(arguments) => guests::fairness(&arguments),
        Command::Disks(arguments) => guests::disks(&arguments),
        Command::Nbd(arguments) => guests::nbd(&arguments),
        Command::Stored(arguments) => guests::stored(&arguments),
        Command::Files(command) => file_systems::run(&command),
        Command::Echo { address, port } => echo::serve(address, port).map_err(Into::into),
        Command::Hold { from, to, count } => connections::hold(from, to, count).map_err(Into::into),
        Command::Driver(arguments) => driver(&arguments),
        Command::Hvt(arguments) => hvt(&arguments),
        Command::Hosts(arguments) => hosts(&arguments),
        Command::Matrix(arguments) => matrix(&arguments),
        Command::Paced {
            to,
            rate,
            count,
            bytes,
        } => matrix::offer(to, rate, count, bytes).map_err(Into::into),
        Command::Reflect { address, port } => paced::reflect(address, port).map_err(Into::into),
        Command::XdpObject => std::io::stdout()
            .write_all(&matrix::xdp_object())
            .map_err(Into::into),
        Command::Reads { disk, depth, count } => {
            matrix::reads(&disk, depth, count).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn firewall(arguments: &Measured) -> Result<(), Box<dyn Error>> {
    let solo5 = std::env::var_os("SOLO5_DIR").map(PathBuf::from);
    if solo5.is_none() {
        eprintln!("SOLO5_DIR does not name a built Solo5 v0.12: start-up is not measured");
    }
    let starters = solo5.map(|solo5| Starters {
        monitor: arguments.monitor(),
        solo5,
    });
    let plans = [firewall::Plan::QUICK, firewall::Plan::FULL];
    let plan = arguments.plan(plans, |plan| &mut plan.rounds);
    let programs = arguments.programs()?;
    let subject = Subject {
        title: "The firewall beside its peers",
        benchmark: "firewall",
        rounds: plan.rounds,
        measures: &promises::ALL,
        plots: &promises::PLOTTED,
        promises: &promises::PROMISES,
    };
    arguments.report(&subject, || {
        firewall::measure(&plan, &programs, starters.as_ref(), &say)
    })
}

fn rules(arguments: &Rules) -> Result<(), Box<dyn Error>> {
    let Rules { measured, rules } = arguments;
    let plans = [rules::Plan::QUICK, rules::Plan::FULL];
    let plan = measured.plan(plans, |plan| &mut plan.rounds);
    let tender = Programs {
        memory_mib: rules::MEMORY_MIB,
        ..measured.programs()?
    };
    let many = std::env::temp_dir().join(format!("outboard-bench-{}.nft", process::id()));
    rules::write_many(rules, &many)?;
    let sources = Sources {
        monitor: Programs {
            tender: measured.monitor(),
            tender_command: Some(MONITOR),
            ..tender.clone()
        },
        tender,
        few: rules.clone(),
        many,
    };
    let subject = Subject {
        title: "What rules cost",
        benchmark: "rules",
        rounds: plan.rounds,
        measures: &rules::ALL,
        plots: &rules::PLOTTED,
        promises: &rules::PROMISES,
    };
    let result = measured.report(&subject, || rules::measure(&plan, &sources, &say));
    std::fs::remove_file(&sources.many)?;
    result
}

fn nic(arguments: &Cards) -> Result<(), Box<dyn Error>> {
    let Cards { measured, cards } = arguments;
    let plans = [nic::Plan::QUICK, nic::Plan::FULL];
    let plan = measured.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "A driver and the software NIC",
        benchmark: "nic",
        rounds: plan.rounds,
        measures: &nic::ALL,
        plots: &nic::PLOTTED,
        promises: &nic::PROMISES,
    };
    let programs = nic::Programs {
        taps: measured.programs()?,
        monitor: measured.monitor(),
        image: cards.clone(),
    };
    measured.report(&subject, || nic::measure(&plan, &programs, &say))
}

fn split(arguments: &Split) -> Result<(), Box<dyn Error>> {
    let measured = &arguments.measured;
    let plans = [firewall::Plan::QUICK, firewall::Plan::FULL];
    let plan = measured.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "The firewall as one image and as three",
        benchmark: "split",
        rounds: plan.rounds,
        measures: &split::ALL,
        plots: &split::PLOTTED,
        promises: &split::PROMISES,
    };
    let programs = split::Programs {
        one: measured.programs()?,
        middle: arguments.middle.clone(),
        edge: arguments.edge.clone(),
    };
    measured.report(&subject, || split::measure(&plan, &programs, &say))
}

fn service(arguments: &Service) -> Result<(), Box<dyn Error>> {
    let Service {
        measured,
        smoltcp,
        sockets,
        card,
        anywhere,
    } = arguments;
    let plans = [service::Plan::QUICK, service::Plan::FULL];
    let plan = service::Plan {
        apart: !anywhere,
        ..measured.plan(plans, |plan| &mut plan.rounds)
    };
    let (title, benchmark) = match anywhere {
        false => (
            "TCP of an image beside Linux's, client and server on a core each",
            "service",
        ),
        true => (
            "TCP of an image beside Linux's, client and server on any core",
            "service --anywhere",
        ),
    };
    let subject = Subject {
        title,
        benchmark,
        rounds: plan.rounds,
        measures: &service::ALL,
        plots: &service::PLOTTED,
        promises: &service::PROMISES,
    };
    let programs = service::Programs {
        tender: measured.tender.clone(),
        monitor: measured.monitor(),
        image: measured.image.clone(),
        smoltcp: smoltcp.clone(),
        sockets: sockets.clone(),
        card: card.clone(),
    };
    measured.report(&subject, || service::measure(&plan, &programs, &say))
}

fn http(arguments: &Measured) -> Result<(), Box<dyn Error>> {
    let plans = [http::QUICK, http::FULL];
    let plan = arguments.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "Files over HTTP of an image beside nginx",
        benchmark: "http",
        rounds: plan.rounds,
        measures: &http::ALL,
        plots: &http::PLOTTED,
        promises: &http::PROMISES,
    };
    let programs = http::Programs {
        tender: arguments.tender.clone(),
        image: arguments.image.clone(),
    };
    arguments.report_with_files(&subject, |folder| {
        http::measure(&plan, &programs, folder, &say)
    })
}

fn proxy(arguments: &Measured) -> Result<(), Box<dyn Error>> {
    let plans = [http::QUICK, proxied::FULL];
    let plan = arguments.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "Programs as they are on a stack's sockets, beside the host's",
        benchmark: "proxy",
        rounds: plan.rounds,
        measures: &proxied::ALL,
        plots: &proxied::PLOTTED,
        promises: &proxied::PROMISES,
    };
    let programs = proxied::Programs::beside(&arguments.tender, &arguments.image);
    arguments.report_with_files(&subject, |folder| {
        proxied::measure(&plan, &programs, folder, &say)
    })
}

fn loss(arguments: &Measured) -> Result<(), Box<dyn Error>> {
    let plans = [loss::QUICK, loss::FULL];
    let plan = arguments.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "TCP of an image beside Linux's, 1 % of frames lost in 20 ms of round trip",
        benchmark: "loss",
        rounds: plan.rounds,
        measures: &loss::ALL,
        plots: &loss::PLOTTED,
        promises: &loss::PROMISES,
    };
    let programs = loss::Programs {
        tender: arguments.tender.clone(),
        image: arguments.image.clone(),
    };
    arguments.report(&subject, || loss::measure(&plan, &programs, &say))
}

fn connections(arguments: &Connections) -> Result<(), Box<dyn Error>> {
    let Connections { measured, http } = arguments;
    let plans = [connections::QUICK, connections::FULL];
    let plan = measured.plan(plans, |plan| &mut plan.rounds);
    let subject = Subject {
        title: "Many connections to an image, beside Linux's",
        benchmark: "connections",
        rounds: plan.rounds,
        measures: &connections::ALL,
        plots: &connections::PLOTTED,
        promises: &connections::PROMISES,
    };
    let programs = connections::Programs {
        tender: measured.tender.clone(),
        image: measured.image.clone(),
        http: http.clone(),
        own: std::env::current_exe()?,
    };
    measured.report(&subject, || connections::measure(&plan, &programs, &say))
}

fn driver(arguments: &Driver) -> Result<(), Box<dyn Error>> {
    let mut peers = Vec::new();
    for (name, variable) in driver::PEERS {
        match std::env::var_os(variable) {
            Some(program) => peers.push((name, PathBuf::from(program))),
            None => eprintln!("{variable} does not name a program: {name} is not measured"),
        }
    }
    let begin = Machine::now();
    let samples = driver::measure(arguments.program.clone(), &peers, &say)?;
    let end = Machine::now();
    let machine = Run {
        begin: &begin,
        end: &end,
    };
    let report = Report {
        title: "What a NIC's driver costs for each forwarded frame of 64 bytes",
        command: "cargo xtask bench driver",
        machine: &machine.to_string(),
        samples: &samples,
        measures: &driver::ALL,
        plots: &[],
        promises: &driver::PROMISES,
    };
    report.write(&arguments.out)?;
    println!("{}\n{}", report.figures(), report.promises());
    println!("Written to {}", arguments.out.display());
    Ok(())
}

fn hvt(arguments: &Hvt) -> Result<(), Box<dyn Error>> {
    let Some(solo5) = std::env::var_os("SOLO5_DIR").map(PathBuf::from) else {
        let why = "SOLO5_DIR does not name a built Solo5 v0.12: there is nothing to compare with";
        return Err(why.into());
    };
    let plan = match arguments.quick {
        true => hvt::Plan::QUICK,
        false => hvt::Plan::FULL,
    };
    let plan = hvt::Plan {
        rounds: arguments.rounds.unwrap_or(plan.rounds),
        calls: arguments.calls.unwrap_or(plan.calls),
        starts: arguments.starts.unwrap_or(plan.starts),
    };
    let programs = hvt::Programs {
        tender: arguments.tender.clone(),
        guests: arguments.guests.clone(),
        solo5,
    };
    if arguments.raw {
        print!("{}", hvt::measure(&plan, &programs, &say)?.csv());
        return Ok(());
    }
    let lab = arguments.lab.as_ref();
    let lab = lab.filter(|_| !hvt::runs_here(&programs));
    let subject = Subject {
        title: match lab {
            Some(_) => "Virtual machines beside Solo5's tender, in the lab",
            None => "Virtual machines beside Solo5's tender",
        },
        benchmark: "hvt",
        rounds: plan.rounds,
        measures: &hvt::ALL,
        plots: &hvt::PLOTTED,
        promises: &hvt::PROMISES,
    };
    let out = arguments.out.as_deref().unwrap_or(Path::new("."));
    report(&subject, arguments.quick, out, || match lab {
        Some(lab) => hvt::measure_in_lab(&plan, &programs, lab, &say),
        None => hvt::measure(&plan, &programs, &say),
    })
}

fn hosts(arguments: &Hosts) -> Result<(), Box<dyn Error>> {
    let programs = hosts::Programs {
        tender: arguments.tender.clone(),
        guests: arguments.guests.clone(),
        appliances: arguments.appliances.clone(),
    };
    let rounds = arguments.rounds;
    let (Some(lab), Some(out)) = (&arguments.lab, &arguments.out) else {
        print!("{}", hosts::measure(rounds, &programs, &say)?.csv());
        return Ok(());
    };
    let subject = Subject {
        title: "One image on three hosts, by instruction count in the lab",
        benchmark: "hosts",
        rounds,
        measures: &hosts::ALL,
        plots: &[],
        promises: &hosts::PROMISES,
    };
    report(&subject, false, out, || {
        hosts::measure_in_lab(rounds, &programs, lab, &say)
    })
}

fn matrix(arguments: &Matrix) -> Result<(), Box<dyn Error>> {
    if let Some(runs) = &arguments.runs {
        return Ok(matrix::run_here(&arguments.file, runs)?);
    }
    let (Some(lab), Some(out)) = (&arguments.lab, &arguments.out) else {
        return Err("there is no lab, or no folder for results".into());
    };
    let bench = matrix::Bench {
        file: &arguments.file,
        out,
        lab,
        bring: &arguments.bring,
    };
    if arguments.list {
        print!("{}", bench.list()?);
        return Ok(());
    }
    let begin = Machine::now();
    if !arguments.report {
        bench.measure(&say)?;
    }
    let end = Machine::now();
    let run = Run {
        begin: &begin,
        end: &end,
    };
    print!("{}", bench.report(&run.to_string())?);
    println!("Written to {}", out.display());
    Ok(())
}

/// What a benchmark is about.
struct Subject {
    title: &'static str,
    benchmark: &'static str,
    rounds: usize,
    measures: &'static [Measure],
    plots: &'static [(&'static str, Measure)],
    promises: &'static [Promise],
}

impl Measured {
    /// The plan for a glance or the whole one, with as many rounds as were asked for.
    fn plan<P>(&self, [quick, full]: [P; 2], rounds: impl Fn(&mut P) -> &mut usize) -> P {
        let mut plan = if self.quick { quick } else { full };
        if let Some(asked) = self.rounds {
            *rounds(&mut plan) = asked;
        }
        plan
    }

    fn monitor(&self) -> PathBuf {
        self.tender.with_file_name("outboard")
    }

    fn programs(&self) -> std::io::Result<Programs> {
        Ok(Programs {
            relay: std::env::current_exe()?,
            tender: self.tender.clone(),
            tender_command: None,
            firewall: self.image.clone(),
            memory_mib: FIREWALL_MEMORY_MIB,
        })
    }

    /// The same as [`report`](Self::report), with the path of a folder for files, which is removed.
    fn report_with_files(
        &self,
        subject: &Subject,
        measure: impl FnOnce(&Path) -> Result<Samples, turn::Error>,
    ) -> Result<(), Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("outboard-bench-{}", process::id()));
        let result = self.report(subject, || measure(&folder));
        std::fs::remove_dir_all(&folder)?;
        result
    }

    /// Takes the measurements of `subject`, prints them, and writes them to the folder for results.
    fn report(
        &self,
        subject: &Subject,
        measure: impl FnOnce() -> Result<Samples, turn::Error>,
    ) -> Result<(), Box<dyn Error>> {
        privilege::acquire()?;
        report(subject, self.quick, &self.out, measure)
    }
}

/// Takes the measurements of `subject`, prints them, and writes them to the folder `out`.
fn report<E: Error + 'static>(
    subject: &Subject,
    quick: bool,
    out: &Path,
    measure: impl FnOnce() -> Result<Samples, E>,
) -> Result<(), Box<dyn Error>> {
    let begin = Machine::now();
    if begin.is_busy() {
        say("this machine is busy with other things: do not judge promises by this run");
    }
    let samples = measure()?;
    let end = Machine::now();
    let machine = Run {
        begin: &begin,
        end: &end,
    };
    let flag = if quick { " --quick" } else { "" };
    let (benchmark, rounds) = (subject.benchmark, subject.rounds);
    let report = Report {
        title: subject.title,
        command: &format!("cargo xtask bench {benchmark}{flag} --rounds={rounds}"),
        machine: &machine.to_string(),
        samples: &samples,
        measures: subject.measures,
        plots: subject.plots,
        promises: subject.promises,
    };
    report.write(out)?;
    println!("{}\n{}", report.figures(), report.promises());
    println!("Written to {}", out.display());
    Ok(())
}
