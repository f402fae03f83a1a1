//! Why a run ended, in one line: the decision, from the status of its monitor and from what monitor
//! and tender said of it.

use crate::run::CONSOLE;
use abi::exit;
use signal_hook::low_level::signal_name;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tender::start::LOADED;

/// What monitor and tender put in front of what they say.
const SPEAKERS: [&str; 3] = ["outboard: ", "outboard-tender: ", "outboard-proxy: "];
/// What a tender says when its guest begins, and a proxy when its program does.
const READY: [&str; 2] = ["outboard-tender: ready: ", "outboard-proxy: ready: "];
/// How a monitor begins to say how a program ended.
const OF_PROGRAM: &str = "the program";
/// What stands in front of what it says when an image is loaded, for a spare.
const PROGRAM: &str = "outboard-tender: ";
/// Longest line, in bytes: what a guest has said is part of it.
const BYTES_MAX: usize = 300;

/// Whether a tender has said that its guest begins, or a proxy that its program does.
pub fn is_ready(report: &str) -> bool {
    let mut lines = report.lines();
    lines.any(|line| READY.iter().any(|ready| line.starts_with(ready)))
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
    let of_program = |line: &String| line.starts_with(OF_PROGRAM);
    let ended = words().find(of_program);
    let mut before = words().filter(|line| !of_program(line));
    let last = before.next_back().filter(|_| !is_ready(report));
    let mut text = match (status.code(), status.signal()) {
        (_, Some(signal)) => {
            let name = signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned);
            format!("its monitor was ended by {name}")
        }
        // Who did not begin has said why, and last.
        (Some(exit::FAILURE), _) if last.is_some() => last.unwrap_or_default(),
        (code, _) if ended.is_some() => {
            let line = console.filter(|_| code != Some(exit::SUCCESS));
            let line = line.map_or_else(String::new, |line| format!("; its last line: {line}"));
            ended.unwrap_or_default() + &line
        }
        (Some(exit::SUCCESS), _) => "the guest ended with status 0".to_owned(),
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
    fn a_program_is_told_from_a_guest() {
        let refused =
            "outboard-proxy: web: no such file\noutboard: the program ended with status 1\n";
        assert_eq!(exited(1, refused), "web: no such file");
        let begun = "outboard-proxy: ready: web\n";
        assert!(is_ready(begun) && !is_ready(refused));
        let ended = |status| {
            let said = "console: bye\noutboard: the program ended with status";
            exited(status, &format!("{begun}{said} {status}\n"))
        };
        assert_eq!(ended(0), "the program ended with status 0");
        for status in [1, 7, 255] {
            let expected = format!("the program ended with status {status}; its last line: bye");
            assert_eq!(ended(status), expected);
        }
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
