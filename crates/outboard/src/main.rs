//! `outboard`: the command line.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_main)]

mod demo;

use abi::exit;
use clap::{CommandFactory, Parser, Subcommand};
use outboard::{
    build, debug, doctor, flows, inspect, logs, manual, model, mount, new, pci, proxy, ps, rules,
    run, send, sockets, stats, stop, top, trial, up,
};
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use tender::style::{Style, Tone};
use testbed::relay;

/// Appliances that are one image and may touch what their manifest names.
#[derive(Parser)]
#[command(name = "outboard", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start an image and report how it ended
    #[command(override_help = run::help())]
    Run {
        /// Options, the image, and its own arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run an image in a network of its own, with a tap for each of its networks
    ///
    /// It needs no root where unprivileged user namespaces work, and leaves nothing behind.
    Try(trial::Arguments),
    /// Start the components of a file, and keep them running
    ///
    /// Each is a guest with its name, which ps, stats, logs and rules know as those of `run`.
    Up(up::Arguments),
    /// End all components that `outboard up` has started, and their supervisor
    Down,
    /// End a component of `outboard up`, and start it again
    Restart(up::Restart),
    /// Have a component go on with another image, or with its own if that does not come up
    Replace(up::Replace),
    /// Look into a component of `outboard up` with gdb
    ///
    /// One of spt is started again without its jail, and in it again when gdb has ended. It is not
    /// watched for progress meanwhile.
    Debug(debug::Arguments),
    /// Make the folder of a new appliance
    New(new::Arguments),
    /// Build the image of an appliance
    Build(build::Arguments),
    /// Check, explain and replace rules
    #[command(subcommand)]
    Rules(Rules),
    /// Show what an image carries: manifest, ABI, segments
    Inspect(inspect::Arguments),
    /// List the guests that run under a name
    Ps(ps::Arguments),
    /// Show what a guest has counted
    Stats(stats::Arguments),
    /// Show the sockets of a guest that speaks TCP/IP
    Sockets(sockets::Arguments),
    /// Show the connections that a guest tracks, watch them, end them, or write them down
    Flows(flows::Arguments),
    /// Show what all guests do, again each second
    Top(top::Arguments),
    /// Show the last lines of a guest's console
    Logs(logs::Arguments),
    /// End a guest, and say how it ended
    Stop(stop::Arguments),
    /// Send one frame into the segment of a guest's port, and tell what became of it
    Send(send::Arguments),
    Proxy(proxy::Arguments),
    /// Take PCI devices from the host for guests, and give them back
    #[command(subcommand)]
    Pci(pci::Command),
    Model(model::Arguments),
    Mount(mount::Arguments),
    /// Say what this machine can do, and what to type where it cannot
    ///
    /// The exit status is 0 if images can run on spt and process, and 1 otherwise.
    Doctor(doctor::Arguments),
    /// Show Outboard at work
    Demo(demo::Arguments),
    /// Write man pages into a folder
    Man(manual::Man),
    /// Print completions for a shell
    Completions(manual::Completions),
    /// A peer of the firewall, started by the demonstration: relays between standard input and
    /// standard output, both taps
    #[command(hide = true)]
    Relay {
        #[arg(value_parser = relay_kind)]
        kind: relay::Kind,
        /// The process that it ends with
        parent: i32,
    },
}

#[derive(Subcommand)]
enum Rules {
    /// Say whether a file is rules, or where and why not
    Check(rules::check::Arguments),
    /// Show what rules do with one frame, step by step
    Explain(rules::explain::Arguments),
    /// Show which rules were added, removed, moved and changed
    ///
    /// The exit status is 1 if there is a difference.
    Diff(rules::diff::Arguments),
    /// Print rules as nft prints them
    List(rules::list::Arguments),
    /// Make rules of what iptables-save or `nft list ruleset` has printed, and say what is left out
    Import(rules::import::Arguments),
    /// Show, add or delete elements of a set that the rules of a running guest change
    ///
    /// The exit status is 1 if one to delete was not there, or one to add had no room.
    Element(rules::elements::Arguments),
    /// Give a running guest other rules, in one step
    ///
    /// They are the next generation of its rules, and count from zero. Generation 0 is what the
    /// image comes with.
    Load(rules::load::Arguments),
    /// Show the rules that a running guest has in force, and what they have counted
    Show(rules::show::Arguments),
}

fn relay_kind(name: &str) -> Result<relay::Kind, &'static str> {
    relay::Kind::named(name).ok_or("plain or batched")
}

// The start of the tender: that of the standard library takes a tenth of the time to a guest's
// first byte. It leaves SIGPIPE as it is, so that `outboard inspect FILE | head` ends quietly.
#[cfg(not(test))]
tender::entry!(start);

#[cfg_attr(test, allow(dead_code))] // The tests have an entry of their own.
fn start(arguments: impl Iterator<Item = OsString>) -> i32 {
    let arguments: Vec<_> = arguments.collect();
    let result = match arguments.split_first() {
        // Past the parser, for the same reason: it has no say in what stands behind these.
        Some((command, rest)) if command == "run" => monitor(rest.to_vec()),
        Some((command, rest)) if command == "tender" => Ok(tender::main(rest.to_vec())),
        _ => execute(Arguments::parse().command),
    };
    result.unwrap_or_else(|error| {
        let name = Style::of(&io::stderr()).paint(Tone::Bad, "outboard");
        eprintln!("{name}: {error}");
        exit::FAILURE
    })
}

fn execute(command: Command) -> Result<i32, Box<dyn Error>> {
    match command {
        Command::Run { arguments } => return monitor(arguments),
        Command::Try(arguments) => return Ok(trial::run(arguments)?.into()),
        Command::Up(arguments) => up::run(&arguments)?,
        Command::Down => up::down()?,
        Command::Restart(arguments) => up::restart(&arguments)?,
        Command::Replace(arguments) => up::replace(&arguments)?,
        Command::Debug(arguments) => match debug::run(&arguments)? {},
        Command::New(arguments) => new::run(&arguments)?,
        Command::Build(arguments) => build::run(&arguments)?,
        Command::Inspect(arguments) => inspect::run(&arguments)?,
        Command::Rules(Rules::Check(arguments)) => {
            return Ok(status(rules::check::run(&arguments)?));
        }
        Command::Rules(Rules::Explain(arguments)) => {
            return Ok(status(rules::explain::run(&arguments)?));
        }
        Command::Rules(Rules::Diff(arguments)) => {
            return Ok(status(rules::diff::run(&arguments)?));
        }
        Command::Rules(Rules::Element(arguments)) => {
            return Ok(status(rules::elements::run(&arguments)?));
        }
        Command::Rules(Rules::List(arguments)) => {
            return Ok(status(rules::list::run(&arguments)?));
        }
        Command::Rules(Rules::Import(arguments)) => {
            return Ok(status(rules::import::run(&arguments)?));
        }
        Command::Rules(Rules::Load(arguments)) => {
            return Ok(status(rules::load::run(&arguments)?));
        }
        Command::Rules(Rules::Show(arguments)) => rules::show::run(&arguments)?,
        Command::Proxy(arguments) => return proxy::run(arguments),
        Command::Send(arguments) => return Ok(status(send::run(&arguments)?)),
        Command::Doctor(arguments) => return Ok(status(doctor::run(&arguments)?)),
        Command::Model(arguments) => return Ok(status(model::run(&arguments)?)),
        Command::Mount(arguments) => return Ok(mount::run(&arguments)?),
        Command::Pci(command) => pci::run(&command)?,
        Command::Ps(arguments) => return Ok(status(ps::run(&arguments)?)),
        Command::Stats(arguments) => stats::run(&arguments)?,
        Command::Sockets(arguments) => sockets::run(&arguments)?,
        Command::Top(arguments) => top::run(&arguments)?,
        Command::Flows(arguments) => flows::run(&arguments)?,
        Command::Logs(arguments) => logs::run(&arguments)?,
        Command::Stop(arguments) => stop::run(&arguments)?,
        Command::Man(arguments) => manual::write_pages(&arguments, Arguments::command())?,
        Command::Completions(arguments) => {
            manual::print_completions(&arguments, Arguments::command())?;
        }
        Command::Relay { kind, parent } => relay::serve(kind, parent)?,
        Command::Demo(arguments) => {
            return Ok(status(demo::run(&arguments)? == ExitCode::SUCCESS));
        }
    }
    Ok(exit::SUCCESS)
}

/// The exit status of a command that has said itself what is wrong, if something is.
fn status(good: bool) -> i32 {
    if good { exit::SUCCESS } else { exit::FAILURE }
}

fn monitor(arguments: Vec<OsString>) -> Result<i32, Box<dyn Error>> {
    let request = run::Request::parse(arguments)?;
    if request.help {
        io::stdout().write_all(run::help().as_bytes())?;
        return Ok(exit::SUCCESS);
    }
    Ok(i32::from(run::run(&request)?))
}
