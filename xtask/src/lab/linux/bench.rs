//! The device, its wire and the guest, in a network namespace of their own.

use super::guest::Kind;
use super::talk::{self, Line};
use super::{guest, reports, table, Options, Places};
use crate::lab::machine::STOCK_QEMU;
use crate::lab::{kernel, qemu};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use table::{Result as Outcome, Row};

/// The tap that is the other end of the card's wire.
const TAP: &str = "nic0";
/// What the guest's kernel says on its console, in the folder of the bench.
const CONSOLE: &str = "console.log";
/// The device's socket, in the folder of the bench.
const SOCKET: &str = "nic";
/// The file of a disk, there too, and its size; trials expect both.
const DISK: &str = "disk.img";
const DISK_BYTES: u64 = 128 << 20;
/// How long the device may take until it can be driven, and to end.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);
/// How long the guest may say nothing.
const SILENCE: Duration = Duration::from_secs(180);
/// How long it may take for one trial, a hundred reloads at most, beside what is compared.
const TRIAL: Duration = Duration::from_secs(1800);
const POLL: Duration = Duration::from_millis(20);
/// Lines of a trial that failed which are shown.
const LINES: usize = 30;
/// Reports that are shown of those which are explained; all are in the device's log.
const REPORTS_SHOWN: usize = 20;
/// The row of what the device reported.
const REPORTS: &str = "reports";

/// Runs a device again when it was killed; its process is noted where `lab/linux/host` looks.
const COMES_BACK: &str = "\
    while :; do \
        \"$@\" & echo $! > device.pid; wait $!; status=$?; \
        [ $status -gt 128 ] || exit $status; \
    done";

/// A program that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self, String> {
        command
            .spawn()
            .map(Self)
            .map_err(|error| format!("cannot run {:?}: {}", command.get_program(), error))
    }

    /// Waits for the end, for so long at most: whether it came.
    fn ends_within(&mut self, patience: Duration) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return true;
            }
            thread::sleep(POLL);
        }
        false
    }
}

/// Runs the trials or the command, and prints what came of it; the exit status.
///
/// # Errors
/// One line that says why nothing could run.
pub fn run(places: &Places, options: &Options) -> Result<i32, String> {
    let kind = Kind::of(places, options)?;
    let trials = guest::trials(places, options, kind)?;
    let log = places.work.join("model.log");
    let Session {
        ended,
        mut rows,
        of_trial,
        ..
    } = session(places, options, kind, &trials, &log)?;
    if options.command.is_some() {
        return ended;
    }
    if let Err(why) = ended {
        let console = places.work.join(CONSOLE);
        println!(
            "{}; the kernel's last words are in {}",
            why,
            console.display()
        );
        table::complete(&mut rows, &trials, &why);
    }
    table::complete(&mut rows, &trials, "did not run");
    rows.push(judge_reports(places, options, &log, &of_trial)?);
    println!("{}", table::print(&rows));
    let failed = |row: &Row| row.result == Outcome::Failed;
    Ok(i32::from(rows.iter().any(failed)))
}

/// What a guest has done from its start to its end.
pub struct Session {
    /// The status of its command, or why there is none.
    pub ended: Result<i32, String>,
    /// What it noted of its command.
    pub notes: Vec<String>,
    rows: Vec<Row>,
    of_trial: Vec<(String, String)>,
}

/// Starts the device and the guest, and hears the guest out. What the device prints goes to `log`.
///
/// # Errors
/// One line that says why nothing could run.
pub fn session(
    places: &Places,
    options: &Options,
    kind: Kind,
    trials: &[String],
    log: &Path,
) -> Result<Session, String> {
    let work = &places.work;
    fs::create_dir_all(work).map_err(|error| format!("{}: {}", work.display(), error))?;
    let kernel = kernel::provide(&places.cache)?;
    let qemu = match options.front.is_vhost_user() {
        // Ours has no front ends of vhost-user.
        true => PathBuf::from(STOCK_QEMU),
        false => qemu::built(&places.root, &places.cache).ok_or("no QEMU is built")?,
    };
    let ram_disk = guest::pack(places, &kernel, options, kind, trials)?;
    if options.front.is_vhost_user() && kind == Kind::Nic {
        host(places, &["tap"])?;
    }
    let mut device = start_device(places, options, kind, log)?;
    if kind == Kind::Nic {
        host(places, &["start"])?;
    }
    let _server = Running::start(
        Command::new("iperf3")
            .arg("-s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    )?;
    let console = work.join(CONSOLE);
    let mut machine = guest::machine(options.front, &qemu, &kernel, &ram_disk, &console, TAP);
    machine.args(guest::device(options.front, kind, SOCKET));
    let mut machine = Running::start(machine.current_dir(work))?;
    let mut conversation = Conversation::new(places, options, &mut machine.0, log)?;
    let ended = conversation.lead();
    let Conversation {
        rows,
        of_trial,
        notes,
        ..
    } = conversation;
    drop(machine);
    if !device.ends_within(DEVICE_PATIENCE) {
        println!("The device did not end with its guest.");
    }
    Ok(Session {
        ended,
        notes,
        rows,
        of_trial,
    })
}

/// Starts the device, and waits until guests may come.
fn start_device(
    places: &Places,
    options: &Options,
    kind: Kind,
    log: &Path,
) -> Result<Running, String> {
    let failed = |error| format!("{}: {}", log.display(), error);
    let file = File::create(log).map_err(failed)?;
    let errors = file.try_clone().map_err(failed)?;
    let mut command = Command::new(places.outboard());
    if options.front.is_vhost_user() {
        command = Command::new("sh");
        command
            .args(["-c", COMES_BACK, "sh"])
            .arg(places.outboard());
    }
    command.args(["model", &options.device, "--once"]);
    command.arg(match options.front.is_vhost_user() {
        true => format!("--vhost-user={}", SOCKET),
        false => format!("--socket={}", SOCKET),
    });
    match kind {
        Kind::Nic => {
            command.arg(format!("--wire=tap:{}", TAP));
        }
        Kind::Disk => {
            make_disk(&places.work.join(DISK))?;
            command.arg(format!("--file={}", DISK));
        }
        Kind::Entropy => {}
    }
    if let Some(faults) = &options.misbehave {
        command.arg(format!("--misbehave={}", faults));
    }
    let _ = fs::remove_file(places.work.join(SOCKET));
    command.current_dir(&places.work).stdin(Stdio::null());
    let mut device = Running::start(command.stdout(file).stderr(errors))?;
    let begin = Instant::now();
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said
            .lines()
            .any(|line| line.ends_with(&format!(" at {}", SOCKET)))
        {
            return Ok(device);
        }
        if device.ends_within(POLL) || begin.elapsed() > DEVICE_PATIENCE {
            return Err(format!("the device does not run: {}", said.trim()));
        }
    }
}

/// An empty file for a disk.
fn make_disk(path: &Path) -> Result<(), String> {
    let file = File::create(path).and_then(|file| file.set_len(DISK_BYTES));
    file.map_err(|error| format!("{}: {}", path.display(), error))
}

/// Does at the other end of the wire what `lab/linux/host` calls so.
pub fn host(places: &Places, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new("sh");
    command.arg(places.ours().join("host")).arg(TAP).args(words);
    command.env("OUTBOARD", places.outboard());
    command.env("IMAGES", places.images());
    command.current_dir(&places.work);
    match crate::process::run(command.stdin(Stdio::null()))? {
        0 => Ok(()),
        status => Err(format!(
            "lab/linux/host {} ended with {}",
            words.join(" "),
            status
        )),
    }
}

/// What the device reported; what the list of the device does not explain fails.
fn judge_reports(
    places: &Places,
    options: &Options,
    log: &Path,
    of_trial: &[(String, String)],
) -> Result<Row, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {}", path.display(), error))
    };
    let reports = reports::summary(&read(log)?);
    let explained = read(&places.ours().join(&options.device).join("explained"))?;
    let unexplained = reports::unexplained(&reports, &explained, of_trial);
    println!("\nThe device reported:");
    let line = |mark: &str, report: &reports::Report| {
        let of = of_trial.iter().find(|(text, _)| *text == report.text);
        let trial = of.map_or("at the end", |(_, trial)| trial);
        println!(
            "  {:>8} x {}{} ({})",
            report.times, mark, report.text, trial
        );
    };
    let explained = reports
        .iter()
        .filter(|report| !unexplained.contains(report));
    explained
        .take(REPORTS_SHOWN)
        .for_each(|report| line("", report));
    unexplained
        .iter()
        .for_each(|report| line("UNEXPLAINED: ", report));
    let times: u64 = reports.iter().map(|report| report.times).sum();
    let note = format!(
        "{} kinds, {} in all; {} kinds are not explained",
        reports.len(),
        times,
        unexplained.len()
    );
    Ok(Row::new(REPORTS, unexplained.is_empty(), &note))
}

/// Talks with the guest.
struct Conversation<'a> {
    places: &'a Places,
    options: &'a Options,
    lines: Receiver<String>,
    answers: ChildStdin,
    rows: Vec<Row>,
    /// What the device prints, how much of it was looked at, and what it reported first in which
    /// trial.
    log: &'a Path,
    looked_at: usize,
    of_trial: Vec<(String, String)>,
    /// What the trial that runs has said.
    output: Vec<String>,
    notes: Vec<String>,
    began: Instant,
}

impl<'a> Conversation<'a> {
    fn new(
        places: &'a Places,
        options: &'a Options,
        machine: &mut Child,
        log: &'a Path,
    ) -> Result<Self, String> {
        let (output, answers) = match (machine.stdout.take(), machine.stdin.take()) {
            (Some(output), Some(answers)) => (output, answers),
            _ => return Err("QEMU has no input and output".into()),
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(output);
            let mut bytes = Vec::new();
            while matches!(reader.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
                let line = String::from_utf8_lossy(&bytes).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        Ok(Self {
            places,
            options,
            lines,
            answers,
            rows: Vec::new(),
            log,
            looked_at: 0,
            of_trial: Vec::new(),
            output: Vec::new(),
            notes: Vec::new(),
            began: Instant::now(),
        })
    }

    /// Reads until the guest is done: its status.
    fn lead(&mut self) -> Result<i32, String> {
        loop {
            let line = match self.lines.recv_timeout(SILENCE) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!(
                        "the guest said nothing for {} s",
                        SILENCE.as_secs()
                    ))
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err("the guest ended before its time".into())
                }
            };
            let most = TRIAL + Duration::from_secs(self.options.compared_seconds().into());
            if self.options.command.is_none() && self.began.elapsed() > most {
                return Err(format!("a trial took over {} s", most.as_secs()));
            }
            if let Some(status) = self.hear(talk::parse(&line)) {
                return Ok(status);
            }
        }
    }

    fn hear(&mut self, line: Line<'_>) -> Option<i32> {
        match line {
            Line::Done(status) => return Some(status),
            Line::Begin(_) => {
                self.output.clear();
                self.notes.clear();
                self.began = Instant::now();
            }
            Line::Note(note) => self.notes.push(note.into()),
            Line::Host(words) => {
                let done = host(self.places, &words);
                // If the guest does not hear it, it says no more, and that is noticed.
                let _ = writeln!(self.answers, "{}", i32::from(done.is_err()));
                let _ = self.answers.flush();
            }
            Line::Skip(name, why) => {
                println!("{:<22} skipped: {}", name, why);
                self.rows.push(Row::new(name, Outcome::Skipped, why));
            }
            Line::End(name, status, hundredths) => self.end(name, status, hundredths),
            Line::Output(text) => {
                if self.options.verbose || self.options.command.is_some() {
                    println!("{}", text);
                }
                self.output.push(text.into());
            }
        }
        None
    }

    fn end(&mut self, name: &str, status: i32, hundredths: u64) {
        let row = Row {
            name: name.into(),
            result: (status == 0).into(),
            hundredths,
            note: self.notes.join("; "),
        };
        let passed = row.result == Outcome::Passed;
        let result = if passed { "ok" } else { "FAILED" };
        println!("{:<22} {} {}", row.name, result, row.note);
        if !passed && !self.options.verbose {
            let from = self.output.len().saturating_sub(LINES);
            for line in &self.output[from..] {
                println!("    {}", line);
            }
        }
        self.rows.push(row);
        let printed = fs::read_to_string(self.log).unwrap_or_default();
        let new = printed.get(self.looked_at..).unwrap_or_default();
        let kinds = reports::first(new).map(|text| (text.to_string(), name.to_string()));
        self.of_trial.extend(kinds);
        self.looked_at = printed.len();
    }
}
