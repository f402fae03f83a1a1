//! The monitor of a component that is a program: it starts the program's proxy as its child, keeps
//! the console, passes signals on, and says how the program ended.

use super::console::Console;
use super::named::now;
use super::signals::FORWARDED;
use super::{Error, say_console};
use crate::instance::{Claim, Description, Ended};
use crate::said;
use crate::up::message::Start;
use crate::up::program::{Settings, environment, find_in};
use linux::process;
use linux::signal::{Held, is_ignored};
use rustix::process::Signal;
use signal_hook::low_level::signal_name;
use std::ffi::CStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the proxy is called until it is a program of its own.
const PROXY: &CStr = c"outboard-proxy";
/// This program.
const OWN: &str = "/proc/self/exe";
/// What the proxy is started as.
const COMMAND: &str = "proxy";
/// Where named guests run, if they are programs.
const HOST: &str = "program";
/// What a shell adds to the number of a signal that has ended a program.
const SIGNAL_STATUS: u8 = 128;

/// Runs a program by its proxy, to its end; the exit status to pass on.
///
/// # Errors
/// It was not started, or the monitor lost it. The proxy's own errors are not among them.
pub(crate) fn run(start: &Start, settings: &Settings) -> Result<u8, Error> {
    let forwarded = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
    let signals = Held::new(forwarded.chain([Signal::PIPE])).map_err(Error::Signals)?;
    let claim = Claim::new(&start.name).map_err(Error::Instance)?;
    let path = find_in(&start.command_line, settings);
    let description = Description::new(path, HOST.to_owned(), now(), 0);
    claim.describe(&description).map_err(Error::Instance)?;
    let console = Console::new(Some(&claim), false).map_err(Error::Console)?;
    let proxy = process::fork(PROXY, &signals, || {
        if console.enter().is_err() {
            return abi::exit::FAILURE;
        }
        let mut command = Command::new(OWN);
        command.arg(COMMAND).args(&start.command_line);
        command.env_clear().envs(environment(&settings.environment));
        let folder = settings.folder.display();
        // It returns if it fails.
        let error = command.current_dir(&settings.folder).exec();
        said::line(format_args!("outboard: no proxy in {folder}: {error}"));
        abi::exit::FAILURE
    });
    let proxy = proxy.map_err(Error::Start)?;
    let console = console.start().map_err(Error::Console)?;
    let status = proxy.attend(&signals).map_err(Error::Wait)?;
    console.finish();
    say_console(Some(&claim));
    let (status, line) = ended(status);
    said::line(format_args!("outboard: {line}"));
    claim.conclude(&Ended {
        status,
        lines: vec![line],
    });
    Ok(status)
}

/// The status to pass on, and how a program has ended. Its proxy ends as it does, with the number
/// of a signal as a shell has it.
fn ended(status: std::process::ExitStatus) -> (u8, String) {
    use std::os::unix::process::ExitStatusExt;
    let name = |signal: i32| signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned);
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match (code, status.signal()) {
        (_, Some(signal)) => {
            let code = u8::try_from(signal)
                .unwrap_or(0)
                .saturating_add(SIGNAL_STATUS);
            let line = format!("the program's proxy was ended by {}", name(signal));
            (code, line)
        }
        (Some(code), None) if code > SIGNAL_STATUS => {
            let signal = i32::from(code - SIGNAL_STATUS);
            let line = match signal_name(signal) {
                Some(name) => format!("the program was ended by {name}"),
                None => format!("the program ended with status {code}"),
            };
            (code, line)
        }
        (code, None) => {
            let code = code.unwrap_or(u8::MAX);
            (code, format!("the program ended with status {code}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn an_end_is_told_as_a_shell_does() {
        let cases = [
            (0, 0, "the program ended with status 0"),
            (7 << 8, 7, "the program ended with status 7"),
            (137 << 8, 137, "the program was ended by SIGKILL"),
            (250 << 8, 250, "the program ended with status 250"),
            (9, 137, "the program's proxy was ended by SIGKILL"),
        ];
        for (raw, code, line) in cases {
            let told = ended(ExitStatus::from_raw(raw));
            assert_eq!(told, (code, line.to_owned()));
        }
    }
}
