//! `cargo xtask test`: every check and test, with progress, an estimate and a closing sum.

use crate::instructions::{self, Case};
use crate::lanes::{at_once, processors};
use crate::package::{trial, Check};
use crate::packages::{self, BUILD, COUNT, LAB, PACKAGE, TEST};
use crate::stages::{self, clock, Stage, Step, Work};
use crate::tally::{self, Tally};
use crate::{appliances, lab, packetdrill, process, tidy};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const HELP: &str = "\
Usage: cargo xtask test [OPTION...]

Runs every check and test. Needs no root; what cannot run here is listed at the end with its reason.

  --quick        leave out clippy, documentation and fuzzing
  --only=STAGE   this stage alone (may be repeated)
  --yes          install missing Debian packages without asking (as CI=true does)
  --verbose      show everything that is printed, not only failures

";

/// Lines of a failed command that are shown, those of tests that passed left out.
const FAILURE_LINES: usize = 200;

/// The options of `test`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    quick: bool,
    yes: bool,
    verbose: bool,
    only: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--yes" => options.yes = true,
                "--verbose" => options.verbose = true,
                other => match other.strip_prefix("--only=") {
                    Some(name) => options.only.push(name.to_string()),
                    None => {
                        return Err(format!(
                            "there is no option `{}`; type: cargo xtask test --help",
                            other
                        ))
                    }
                },
            }
        }
        Ok(options)
    }
}

/// `cargo xtask test`.
///
/// # Errors
/// One line, if the run could not begin.
pub fn main(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        println!("{}Stages:", HELP);
        for stage in stages::STAGES {
            println!("  {:<14} {}", stage.name, stage.what);
        }
        return Ok(0);
    }
    let options = Options::parse(arguments)?;
    let stages = stages::select(options.quick, &options.only)?;
    packages::provide(&[BUILD, TEST], options.yes)?;
    components(root, &options)?;
    for (name, value) in stages::PROFILE {
        std::env::set_var(name, value);
    }
    // Workspaces have many libraries in common, which are built once this way.
    std::env::set_var("CARGO_BUILD_BUILD_DIR", process::target_folder(root));

    let started = Instant::now();
    println!(
        "{} stages, about {} min",
        stages.len(),
        stages::remaining(&stages, 0, 0) / 60 + 1
    );
    let mut report = Report::default();
    for (index, stage) in stages.iter().enumerate() {
        let elapsed = started.elapsed().as_secs();
        println!(
            "[{}/{}] {}: {} ({} passed, about {} left)",
            index + 1,
            stages.len(),
            stage.name,
            stage.what,
            clock(elapsed),
            clock(stages::remaining(&stages, index, elapsed))
        );
        let (before, worked) = (Instant::now(), process::seconds_of_children());
        let result = run(root, stage, &options);
        let worked = process::seconds_of_children() - worked;
        report.add(stage, result, before.elapsed().as_secs(), worked);
    }
    report.print(started.elapsed().as_secs());
    Ok(if report.total.failed == 0 { 0 } else { 1 })
}

/// `cargo xtask ci`.
///
/// # Errors
/// As [`main`].
pub fn ci(root: &Path, arguments: &[String]) -> Result<i32, String> {
    if crate::wants_help(arguments) {
        println!(
            "Usage: cargo xtask ci\n\nDoes what .ci/run does: cargo xtask test --yes --verbose"
        );
        return Ok(0);
    }
    if let Some(argument) = arguments.first() {
        return Err(format!(
            "ci takes no `{}`; type: cargo xtask test --help",
            argument
        ));
    }
    main(root, &["--yes".to_string(), "--verbose".to_string()])
}

/// rustfmt and clippy are parts of the toolchain that a minimal one lacks.
fn components(root: &Path, options: &Options) -> Result<(), String> {
    for (command, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let mut probe = Command::new(process::cargo());
        let probe = process::capture(probe.args([command, "--version"]).current_dir(root), false)?;
        if probe.status == 0 {
            continue;
        }
        let ci = std::env::var_os("CI").map_or(false, |value| value == "true");
        if !(options.yes || ci) {
            return Err(format!(
                "{0} is missing; type: rustup component add {0}",
                component
            ));
        }
        let added = process::run(Command::new("rustup").args(["component", "add", component]))?;
        if added != 0 {
            return Err(format!(
                "rustup could not add {0}; type: rustup component add {0}",
                component
            ));
        }
    }
    Ok(())
}

/// What came of a stage.
#[derive(Default)]
struct Outcome {
    tally: Tally,
    /// Failed tests and checks, by name.
    failed: Vec<String>,
    /// What did not run, by reason.
    skipped: Vec<String>,
}

impl Outcome {
    /// Counts one check.
    fn check(&mut self, name: impl Into<String>, passed: bool) {
        self.tally
            .add(if passed { Tally::PASSED } else { Tally::FAILED });
        if !passed {
            self.failed.push(name.into());
        }
    }

    /// Counts the tests of a runner.
    fn count(&mut self, status: i32, output: &str) {
        let (tally, reason) = tally::judge(output, status);
        self.tally.add(tally);
        self.failed.extend(tally::failed(output));
        self.failed.extend(reason);
        let skipped = tally::skipped(output);
        self.skipped.extend(tally::by_reason(&skipped));
    }

    /// A stage that cannot run here.
    fn skip(reason: &str) -> Self {
        Self {
            tally: Tally::SKIPPED,
            failed: Vec::new(),
            skipped: vec![reason.to_string()],
        }
    }
}

fn run(root: &Path, stage: &Stage, options: &Options) -> Outcome {
    let verbose = options.verbose;
    match stage.work {
        Work::Tidy => tidy_rules(root),
        Work::Checks(steps) => checks(root, steps, verbose),
        Work::Runners(steps) => runners(root, steps, verbose),
        Work::Build(steps) => built(root, steps, verbose),
        Work::Package => packaged(root, options),
        Work::Lab => in_lab(root, options),
        Work::Linux => on_linux(root, options),
        Work::Ioregionfd => ioregionfd(root, options),
        Work::Packetdrill => judged(root),
        Work::Instructions => counted(root, options),
        Work::Miri => miri(root, options),
    }
}

fn tidy_rules(root: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    match tidy::check(root) {
        Err(message) => {
            outcome.check(message, false);
        }
        Ok(results) => {
            for (rule, findings) in results {
                findings.iter().for_each(|finding| println!("{}", finding));
                outcome.check(rule, findings.is_empty());
            }
        }
    }
    outcome
}

fn checks(root: &Path, steps: &[Step], verbose: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for step in steps {
        let name = format!("cargo {} (in {})", step.cargo.join(" "), step.folder);
        outcome.check(name, execute(root, step, verbose).0 == 0);
    }
    outcome
}

fn runners(root: &Path, steps: &[Step], verbose: bool) -> Outcome {
    let mut outcome = Outcome::default();
    for step in steps {
        let (status, output) = execute(root, step, verbose);
        outcome.count(status, &output);
    }
    outcome
}

fn built(root: &Path, steps: &[Step], verbose: bool) -> Outcome {
    let mut outcome = checks(root, steps, verbose);
    match appliances::provide(root, verbose) {
        Ok(_) => outcome.check("appliances", true),
        Err(reason) => outcome.check(reason, false),
    }
    outcome
}

/// Runs the tests of virtual machines in the lab. Where its programs are neither there nor to be
/// installed, they are skipped; but not by CI, which installs them.
fn in_lab(root: &Path, options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    let ready = packages::provide(&[LAB], options.yes);
    match ready.and_then(|()| lab::trials::commands(root, options.verbose)) {
        Err(reason) if !options.yes && !packages::all_there(LAB) => return Outcome::skip(&reason),
        Err(reason) => outcome.check(reason, false),
        Ok(commands) => {
            // Each of these machines has one processor.
            let machine = |one| in_machine(one, options.verbose);
            for (status, output) in at_once(commands, processors(), machine) {
                outcome.count(status, &output);
            }
        }
    }
    outcome
}

/// Runs a command in a machine of its own; once more, if that has hung: Debian's QEMU does so
/// now and then with a Linux in it (lab/README.md).
fn in_machine(mut command: Command, verbose: bool) -> (i32, String) {
    let ended = shown(&mut command, verbose);
    if !ended.1.contains(lab::machine::HUNG) {
        return ended;
    }
    println!("The machine has hung, and is tried once more.");
    shown(&mut command, verbose)
}

/// Runs Linux's own drivers on software devices. QEMU is not built for that here, as it would take
/// too long; if it is there, the trials must run.
fn on_linux(root: &Path, options: &Options) -> Outcome {
    if let Some(reason) = lab::linux::missing(root) {
        return Outcome::skip(&reason);
    }
    let mut outcome = Outcome::default();
    match lab::linux::tests(root) {
        Err(reason) => outcome.check(reason, false),
        Ok(commands) => {
            // They wait more than they work.
            let all = commands.len();
            for (status, output) in
                at_once(commands, all, |mut one| shown(&mut one, options.verbose))
            {
                outcome.count(status, &output);
            }
        }
    }
    outcome
}

/// Runs the kernel's own test of ioregionfd in the lab. KVM is not built for that here, as it would
/// take too long.
fn ioregionfd(root: &Path, options: &Options) -> Outcome {
    if let Some(reason) = lab::ioregionfd::missing(root) {
        return Outcome::skip(&reason);
    }
    let mut outcome = Outcome::default();
    match lab::ioregionfd::test(root) {
        Err(reason) => outcome.check(reason, false),
        Ok(mut command) => {
            let (status, output) = shown(&mut command, options.verbose);
            let results = tally::tap(&output);
            let all = status == 0 && !results.is_empty();
            outcome.check(format!("the test as a whole (exit status {})", status), all);
            for (name, passed) in results {
                outcome.check(name, passed);
            }
        }
    }
    outcome
}

/// Packages what was built and tries it out. Without Debian's tools that is skipped; but not by CI,
/// which installs them.
fn packaged(root: &Path, options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    let ready = packages::provide(&[PACKAGE], options.yes);
    match ready.and_then(|()| trial(root)) {
        Err(reason) if !options.yes && !packages::all_there(PACKAGE) => {
            return Outcome::skip(&reason)
        }
        Err(reason) => outcome.check(reason, false),
        Ok(checks) => {
            for check in checks {
                println!("{}", check);
                match check {
                    Check::Passed(what) => outcome.check(what, true),
                    Check::Failed(what, why) => outcome.check(format!("{}: {}", what, why), false),
                    Check::Skipped(what, why) => {
                        outcome.tally.add(Tally::SKIPPED);
                        outcome.skipped.push(format!("{}: {}", what, why));
                    }
                }
            }
        }
    }
    outcome
}

/// Lets packetdrill judge TCP, where its scripts are. What the list says passes, has to pass.
fn judged(root: &Path) -> Outcome {
    let suite = match packetdrill::suite(None) {
        Ok(suite) => suite,
        Err(reason) => return Outcome::skip(&reason),
    };
    let mut outcome = Outcome::default();
    match packetdrill::run(root, &suite, "", false) {
        Err(reason) => outcome.check(reason, false),
        Ok(judged) => {
            for one in judged.into_iter().filter(|one| one.is_to_pass) {
                if let packetdrill::Verdict::Failed(why) = &one.verdict {
                    println!("{}\n{}", one.script, why);
                }
                let passed = one.verdict == packetdrill::Verdict::Passed;
                outcome.check(one.script, passed);
            }
        }
    }
    outcome
}

/// Counts instructions. Without valgrind that is skipped; but not by CI, which installs it.
fn counted(root: &Path, options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(reason) = packages::provide(&[COUNT], options.yes) {
        if !options.yes {
            return Outcome::skip(&reason);
        }
        outcome.check(reason, false);
        return outcome;
    }
    let built = instructions::build(root, options.verbose);
    let text = match built.and_then(|()| instructions::read(root)) {
        Ok(text) => text,
        Err(reason) => {
            outcome.check(reason, false);
            return outcome;
        }
    };
    let cases = instructions::CASES.iter().collect();
    let check = |case| {
        (
            case,
            instructions::check(root, case, &text).unwrap_or_else(Some),
        )
    };
    let checked: Vec<(&Case, _)> = at_once(cases, processors(), check);
    for (case, found) in checked {
        found.iter().for_each(|what| println!("{}", what));
        outcome.check(case.name, found.is_none());
    }
    outcome
}

/// Runs one step, and shows what it printed if it failed and was not shown before.
fn execute(root: &Path, step: &Step, verbose: bool) -> (i32, String) {
    shown(&mut step.command(root), verbose)
}

fn shown(command: &mut Command, verbose: bool) -> (i32, String) {
    match process::capture(command, verbose) {
        Err(message) => {
            println!("{}", message);
            (-1, String::new())
        }
        Ok(finished) => {
            if finished.status != 0 && !verbose {
                let wanted =
                    |line: &&str| !line.ends_with("... ok") && !line.contains("... ignored");
                let lines: Vec<&str> = finished.output.lines().filter(wanted).collect();
                let from = lines.len().saturating_sub(FAILURE_LINES);
                lines[from..].iter().for_each(|line| println!("{}", line));
            }
            (finished.status, finished.output)
        }
    }
}

/// What Miri tests, as arguments of `cargo miri test`.
const MIRI: [&[&str]; 2] = [
    &["-p", "hw", "--lib"],
    &["-p", "device", "--lib", "frame::"],
];

/// cargo of the nightly toolchain.
fn nightly(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .args(arguments)
        .current_dir(root);
    command
}

fn succeeds(command: &mut Command) -> bool {
    matches!(process::capture(command, false), Ok(finished) if finished.status == 0)
}

/// Runs the tests of [`MIRI`], if this machine can, or may be made to.
fn miri(root: &Path, options: &Options) -> Outcome {
    const INSTALL: [&str; 8] = [
        "toolchain",
        "install",
        "nightly",
        "--profile=minimal",
        "--component",
        "miri",
        "--component",
        "rust-src",
    ];
    let here = || succeeds(&mut nightly(root, &["miri", "--version"]));
    if !here() && options.yes {
        // Whether that worked is asked below.
        let _ = process::run(Command::new("rustup").args(INSTALL));
    }
    if !here() {
        return Outcome::skip("needs: rustup toolchain install nightly -c miri -c rust-src");
    }
    let mut outcome = Outcome::default();
    for what in MIRI {
        let mut command = nightly(root, &["miri", "test"]);
        // Pools live for ever.
        command.args(what).env("MIRIFLAGS", "-Zmiri-ignore-leaks");
        let (status, output) = shown(&mut command, options.verbose);
        outcome.count(status, &output);
    }
    outcome
}

/// What is printed at the end.
#[derive(Default)]
struct Report {
    total: Tally,
    lines: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Report {
    fn add(&mut self, stage: &Stage, outcome: Outcome, seconds: u64, worked: u64) {
        let Tally {
            passed,
            failed,
            skipped,
        } = outcome.tally;
        println!(
            "      {} in {}",
            if failed == 0 { "done" } else { "FAILED" },
            clock(seconds)
        );
        self.lines.push(format!(
            "{:<14} {:>7} {:>7} {:>7} {:>7} {:>7}",
            stage.name,
            passed,
            failed,
            skipped,
            clock(seconds),
            clock(worked)
        ));
        self.total.add(outcome.tally);
        let named = |text: String| format!("  {}: {}", stage.name, text);
        self.failed.extend(outcome.failed.into_iter().map(named));
        self.skipped.extend(outcome.skipped.into_iter().map(named));
    }

    /// The table, what was skipped and what failed, and the sum: the last line.
    fn print(&self, seconds: u64) {
        println!(
            "\n{:<14} {:>7} {:>7} {:>7} {:>7} {:>7}",
            "stage", "passed", "failed", "skipped", "time", "work"
        );
        self.lines.iter().for_each(|line| println!("{}", line));
        for (title, names) in [("Skipped:", &self.skipped), ("Failed:", &self.failed)] {
            if !names.is_empty() {
                println!("\n{}", title);
                names.iter().for_each(|name| println!("{}", name));
            }
        }
        println!("\nin {}", clock(seconds));
        println!("total: {}", self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(
            &words
                .iter()
                .map(|word| word.to_string())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn options_are_read() {
        let options = parse(&["--quick", "--only=tidy", "--only=unit"]).unwrap();
        assert!(options.quick && !options.yes && !options.verbose);
        assert_eq!(options.only, ["tidy", "unit"]);
        assert!(parse(&["--quik"]).unwrap_err().contains("--help"));
    }

    #[test]
    fn failures_reach_the_sum() {
        let mut report = Report::default();
        let outcome = Outcome {
            tally: Tally {
                passed: 2,
                failed: 1,
                skipped: 0,
            },
            failed: vec!["a::b".to_string()],
            skipped: Vec::new(),
        };
        report.add(&stages::STAGES[0], outcome, 1, 2);
        report.add(&stages::STAGES[1], Outcome::skip("not here"), 1, 0);
        assert_eq!(
            report.total,
            Tally {
                passed: 2,
                failed: 1,
                skipped: 1
            }
        );
        assert_eq!(report.failed, ["  tidy: a::b"]);
        assert_eq!(report.skipped, ["  format: not here"]);
    }
}
