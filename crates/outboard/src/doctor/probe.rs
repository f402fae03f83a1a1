//! What is tried in a child process, since it cannot be undone or might hang: the parent's side.

use clap::ValueEnum;
use serde::Deserialize;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a probe may take.
const PROBE_SECONDS_MAX: u64 = 10;
/// How often it is asked whether it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// What is read of its output: less than a pipe holds, so that it never waits for a reader.
const OUTPUT_BYTES_MAX: u64 = 4096;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// To become a guest in its jail.
    Spt,
    /// To become a guest without one.
    Process,
    /// To make a tap in a user namespace.
    Namespaces,
    /// To set the offloads of a tap.
    Offloads,
    /// To run a virtual machine.
    Kvm,
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With an exit status, as a shell says it, and what it has printed.
    Ended {
        /// The exit status, or 128 plus the signal.
        status: i32,
        /// What it has found, in JSON.
        output: String,
        /// One line of complaint.
        complaint: String,
    },
    /// It was killed after [`PROBE_SECONDS_MAX`].
    Late,
    /// It could not be started, or not be heard.
    Lost(String),
}

impl Probe {
    /// Has a child try it.
    pub fn ask(self) -> Answer {
        self.start().unwrap_or_else(Answer::Lost)
    }

    /// Has a child try it that answers with facts.
    ///
    /// # Errors
    /// Why there are none.
    pub fn facts<T: for<'a> Deserialize<'a>>(self) -> Result<T, String> {
        match self.ask() {
            Answer::Ended {
                status: 0, output, ..
            } => serde_json::from_str(&output).map_err(|error| error.to_string()),
            answer => Err(answer.failure()),
        }
    }

    fn start(self) -> Result<Answer, String> {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        let child = Command::new("/proc/self/exe")
            .args(["doctor", "--probe", name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| format!("{error}; are /proc and /dev mounted?"))?;
        let deadline = Instant::now() + Duration::from_secs(PROBE_SECONDS_MAX);
        loop {
            let ended = child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                let status = status.code().unwrap_or(128 + status.signal().unwrap_or(0));
                return heard(&mut child, status);
            }
            if Instant::now() >= deadline {
                // It may end by itself in this moment, which is just as good.
                let _ = child.kill();
                child.wait().map_err(|error| error.to_string())?;
                return Ok(Answer::Late);
            }
            sleep(POLL_INTERVAL);
        }
    }
}

impl Answer {
    /// What went wrong.
    pub fn failure(&self) -> String {
        match self {
            Self::Ended {
                status, complaint, ..
            } if complaint.is_empty() => format!("the probe ended with status {status}"),
            Self::Ended { complaint, .. } => complaint.clone(),
            Self::Late => format!("no answer within {PROBE_SECONDS_MAX} s"),
            Self::Lost(why) => format!("no process to try it in: {why}"),
        }
    }
}

fn heard(child: &mut Child, status: i32) -> Result<Answer, String> {
    let output = text(child.stdout.take()).map_err(|error| error.to_string())?;
    let complaint = text(child.stderr.take()).map_err(|error| error.to_string())?;
    let complaint = complaint.trim();
    Ok(Answer::Ended {
        status,
        output,
        complaint: complaint
            .strip_prefix("outboard: ")
            .unwrap_or(complaint)
            .to_owned(),
    })
}

fn text(pipe: Option<impl Read>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
