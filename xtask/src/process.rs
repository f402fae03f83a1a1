//! Starting other programs: the only place that does.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How often a quiet stage says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The cargo that runs us.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string())
}

/// Where cargo puts what it builds from the workspace in `folder`.
pub fn target_folder(folder: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => folder.join(target),
        None => folder.join("target"),
    }
}

/// The file of a program of this name that lies on the PATH, or where administrators keep theirs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].iter().map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Whether there is a program of this name.
pub fn exists(program: &str) -> bool {
    find(program).is_some()
}

/// Ticks of the kernel's clock for processes in a second: the same on every machine with an x86-64.
const TICKS_PER_SECOND: u64 = 100;

/// Processors' time of all programs that we have started and that have ended, in seconds
/// (proc_pid_stat(5): `cutime` and `cstime`); 0 where the kernel does not say.
pub fn seconds_of_children() -> u64 {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may have spaces. What is behind begins with the third field.
    let behind = line.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(13).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        / TICKS_PER_SECOND
}

/// What a program that has ended leaves behind.
pub struct Finished {
    /// Exit status; 128 plus the number of a signal is not told apart and counts as -1.
    pub status: i32,
    /// Both outputs, line by line as they came.
    pub output: String,
}

/// Runs a program with our own terminal.
///
/// # Errors
/// One line, if it cannot be started.
pub fn run(command: &mut Command) -> Result<i32, String> {
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    Ok(status.code().unwrap_or(-1))
}

/// Runs a program without input and keeps what it prints; shows it as well if `verbose`, else only
/// the latest line now and then.
///
/// # Errors
/// One line, if it cannot be started.
pub fn capture(command: &mut Command, verbose: bool) -> Result<Finished, String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| cannot_start(command, &error))?;
    let (sender, receiver) = mpsc::channel();
    forward(child.stdout.take(), sender.clone());
    forward(child.stderr.take(), sender);

    let started = Instant::now();
    let mut heartbeat = started + HEARTBEAT;
    let mut output = String::new();
    let mut latest = String::new();
    loop {
        match receiver.recv_timeout(heartbeat.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if verbose {
                    println!("{}", line);
                }
                output.push_str(&line);
                output.push('\n');
                latest = line;
            }
            Err(RecvTimeoutError::Timeout) => {
                if !verbose {
                    let seconds = started.elapsed().as_secs();
                    println!("      {:>4} s  {}", seconds, shorten(latest.trim(), 80));
                }
                heartbeat = Instant::now() + HEARTBEAT;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child
        .wait()
        .map_err(|error| cannot_start(command, &error))?;
    Ok(Finished {
        status: status.code().unwrap_or(-1),
        output,
    })
}

/// Runs a program that must succeed.
///
/// # Errors
/// What it printed last, if it does not.
pub fn succeed(command: &mut Command, verbose: bool) -> Result<(), String> {
    /// Lines that are shown of what failed.
    const LINES: usize = 20;
    let finished = capture(command, verbose)?;
    if finished.status == 0 {
        return Ok(());
    }
    let lines: Vec<&str> = finished.output.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    Err(format!("{:?} failed:\n{}", command, last))
}

/// Sends the lines of a pipe to the channel until it ends.
fn forward(pipe: Option<impl Read + Send + 'static>, sender: Sender<String>) {
    thread::spawn(move || {
        let mut reader = match pipe {
            Some(pipe) => BufReader::new(pipe),
            None => return,
        };
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(n) if n > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_string();
            if sender.send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

/// The first `columns` characters.
fn shorten(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!(
        "cannot run {}: {}",
        command.get_program().to_string_lossy(),
        error
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_and_the_status_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 7"]);
        let finished = capture(&mut command, false).unwrap();
        assert_eq!(finished.status, 7);
        assert!(finished.output.contains("out\n") && finished.output.contains("err\n"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = capture(&mut Command::new("no-such-program"), false)
            .err()
            .unwrap();
        assert!(
            error.starts_with("cannot run no-such-program: "),
            "{}",
            error
        );
        assert!(!exists("no-such-program") && exists("sh"));
    }

    #[test]
    fn lines_are_cut_by_characters() {
        assert_eq!(shorten("äöü", 2), "äö");
    }
}
