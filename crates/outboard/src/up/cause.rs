//! Why a run ended, in one line: the decision, from the status of its monitor and from what monitor
//! and tender said of it.

use crate::run::CONSOLE;
use abi::exit;
use signal_hook::low_level::signal_name;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tender::start::LOADED;

/// What monitor and tender put in front of what they say.
const SPEAKERS: [&str; 2] = ["outboard: ", "outboard-tender: "];
/// What a tender says when its guest begins.
const READY: &str = "outboard-tender: ready: ";
/// What stands in front of what it says when an image is loaded, for a spare.
const PROGRAM: &str = "outboard-tender: ";
/// Longest line, in bytes: what a guest has said is part of it.
const BYTES_MAX: usize = 300;

/// Whether a tender has said that its guest begins.
pub fn is_ready(report: &str) -> bool {
    report.lines().any(|line| line.starts_with(READY))
}

/// Whether a tender has said that its image is loaded, and that it waits.
pub fn is_loaded(report: &str) -> bool {
    let said = |line: &str| line.strip_prefix(PROGRAM)?.strip_prefix(LOADED).map(drop);
    report.lines().any(|line| said(line).is_some())
}

/// Whether a run with this status, as wait(2) says it, ended well.
pub fn is_well(status: i32) -> bool {
    ExitStatus::from_raw(status).success()
}

/// Why it ended.
pub fn of(status: i32, report: &str) -> String {
    let status = ExitStatus::from_raw(status);
    let said = |line: &'_ str| {
        SPEAKERS
            .iter()
            .find_map(|who| line.strip_prefix(who))
            .map(str::to_owned)
    };
    let words = || report.lines().filter_map(said);
    let console = report
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(CONSOLE));
    let last = words().next_back().filter(|_| !is_ready(report));
    let mut text = match (status.code(), status.signal()) {
        (_, Some(signal)) => {
            let name = signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned);
            format!("its monitor was ended by {name}")
        }
        (Some(exit::SUCCESS), _) => "the guest ended with status 0".to_owned(),
        // Who did not begin has said why, and last.
        (Some(exit::FAILURE), _) if last.is_some() => last.unwrap_or_default(),
        (Some(exit::ABORT), _) => match console {
            Some(line) => format!("a panic, or out of memory: {line}"),
            None => "a panic, or out of memory".to_owned(),
        },
        (code, _) => {
            let ending = words().find(|line| {
                line.starts_with("the guest ")
                    || line.starts_with("a device ")
                    || line.starts_with("the host ")
            });
            let status = code.map_or_else(String::new, |code| format!(" with status {code}"));
            let line = console.map_or_else(String::new, |line| format!("; its last line: {line}"));
            ending.unwrap_or_else(|| format!("the guest ended{status}{line}"))
        }
    };
    text.truncate(text.floor_char_boundary(BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: &str = "outboard-tender: private: tap tap0\noutboard-tender: ready: 1 device\n";

    fn exited(status: i32, report: &str) -> String {
        of(status << 8, report)
    }

    #[test]
    fn each_end_has_one_line() {
        let fault = format!(
            "{BEGUN}console: hello\noutboard: the guest was ended by SIGSEGV at instruction 0x1: \
             it followed a null pointer to address 0x0\noutboard: rax 0x0\n"
        );
        let null = "the guest was ended by SIGSEGV at instruction 0x1: it followed a null pointer \
                    to address 0x0";
        assert_eq!(exited(139, &fault), null);
        let panic =
            format!("{BEGUN}console: a\nconsole: panicked at b\noutboard: the guest gave up\n");
        assert_eq!(
            exited(255, &panic),
            "a panic, or out of memory: panicked at b"
        );
        let taps = "outboard-tender: --net:a=b: no such interface\n";
        assert_eq!(exited(1, taps), "--net:a=b: no such interface");
        let failed = format!("{BEGUN}console: no address\n");
        assert_eq!(
            exited(1, &failed),
            "the guest ended with status 1; its last line: no address"
        );
        assert_eq!(exited(1, ""), "the guest ended with status 1");
        assert_eq!(exited(0, BEGUN), "the guest ended with status 0");
        assert_eq!(of(9, BEGUN), "its monitor was ended by SIGKILL");
        assert_eq!(
            exited(7, "outboard: the guest ended with status 7"),
            "the guest ended with status 7"
        );
    }

    #[test]
    fn no_line_is_endless() {
        let long = format!("{BEGUN}console: {}\n", "ä".repeat(1000));
        assert!(exited(255, &long).len() <= BYTES_MAX);
    }

    #[test]
    fn only_the_tender_says_that_its_guest_begins() {
        assert!(is_ready(BEGUN));
        assert!(!is_ready("console: outboard-tender: ready: no\n"));
        assert!(is_well(0) && !is_well(1 << 8) && !is_well(9));
    }
}
