//! Leaves the firewall running, with a way into each side.

use super::error::Error;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::env;
use std::io::{self, BufRead, IsTerminal};
use std::process::Command;
use testbed::topology::{INTERFACE, Pair, Side};

const SHELL: &str = "/bin/sh";

/// Says how to get into each side and waits: for commands if there is a terminal, else for a
/// signal.
///
/// # Errors
/// The terminal cannot be read, or signals cannot be waited for.
pub fn keep(pair: &Pair, as_root: bool) -> Result<(), Error> {
    let sides = [&pair.a, &pair.b];
    eprintln!("The firewall keeps running. A shell on either side, from another terminal:");
    for side in sides {
        eprintln!(
            "  {:8} {:12}  {}",
            side.name,
            side.ip,
            enter_command(side, as_root)
        );
    }
    eprintln!("Try there: ping {}; tcpdump -ni {INTERFACE}", pair.b.ip);
    if io::stdin().is_terminal() {
        attend(sides)
    } else {
        eprintln!("Ctrl-C or SIGTERM ends it.");
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|e| Error::Io("cannot handle signals", e))?;
        signals.wait();
        Ok(())
    }
}

/// What to type to get there. A user enters the user namespace as well, and is root in it.
fn enter_command(side: &Side, as_root: bool) -> String {
    let path = side.segment.path();
    if as_root {
        return format!("sudo nsenter --net={path}");
    }
    let pid = std::process::id();
    format!("nsenter --user --preserve-credentials --target={pid} --net={path}")
}

/// Starts shells from here until an empty line.
fn attend(sides: [&Side; 2]) -> Result<(), Error> {
    let shell = env::var_os("SHELL").unwrap_or_else(|| SHELL.into());
    let mut lines = io::stdin().lock().lines();
    loop {
        eprintln!("Or type here `private` or `public` for a shell; an empty line ends it all.");
        let line = match lines.next() {
            None => return Ok(()),
            Some(line) => line.map_err(|e| Error::Io("cannot read the terminal", e))?,
        };
        let word = line.trim();
        if word.is_empty() {
            return Ok(());
        }
        match sides.iter().find(|side| side.name == word) {
            Some(side) => {
                // How a shell ends says nothing about the firewall; that it cannot start, does.
                let status = side.segment.run(|| Command::new(&shell).status());
                status.map_err(|e| Error::Spawn((&shell).into(), e))?;
            }
            None => eprintln!("There is no side {word:?}."),
        }
    }
}
