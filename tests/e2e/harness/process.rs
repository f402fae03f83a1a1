//! Running a program to its end, within bounds, and saying what was wrong with it.

use libtest_mimic::Failed;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No program of these tests runs longer than this. The longest ones compile images, which takes
/// over a minute where others use the cores as well: this ends what hangs, and judges no speed.
const RUN_SECONDS_MAX: u64 = 600;

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// As a shell says it: the exit status, or 128 plus the signal.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// A program under way; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Option<Output>,
    stderr: Option<Output>,
}

/// What a program has said so far, and who collects it.
struct Output {
    said: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

/// Starts a program with its output collected.
pub fn start(command: &mut Command) -> Result<Running, Failed> {
    spawn(command.stdin(Stdio::null()))
}

fn spawn(command: &mut Command) -> Result<Running, Failed> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    Ok(Running {
        child,
        stdout,
        stderr,
    })
}

fn collect(mut pipe: impl Read + Send + 'static) -> Output {
    let said = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&said);
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&bytes[..count]);
        }
    });
    Output { said, reader }
}

impl Output {
    fn so_far(&self) -> String {
        text(&self.said)
    }

    /// All of it, once nobody can say more.
    fn whole(self) -> String {
        // A reader that panicked has said so.
        let _ = self.reader.join();
        text(&self.said)
    }
}

fn text(said: &Mutex<Vec<u8>>) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&said).into_owned()
}

fn wait_for(output: Option<&Output>, text: &str, times: usize, name: &str) -> Result<(), Failed> {
    let said = || output.map(Output::so_far).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(RUN_SECONDS_MAX);
    loop {
        // Asked first, for what it says before it ends counts.
        let is_over = output.is_none_or(|output| output.reader.is_finished());
        if said().matches(text).count() >= times {
            return Ok(());
        }
        if is_over || Instant::now() > deadline {
            return Err(format!("no {text:?} on {name}: {:?}", said()).into());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

impl Running {
    /// The process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by number.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed());
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Whether it is still running.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until its standard output has this text.
    pub fn wait_for(&self, text: &str) -> Result<(), Failed> {
        self.wait_for_times(text, 1)
    }

    /// Waits until its standard output has this text so many times.
    pub fn wait_for_times(&self, text: &str, times: usize) -> Result<(), Failed> {
        wait_for(self.stdout.as_ref(), text, times, "standard output")
    }

    /// Waits until its standard error has this text.
    pub fn wait_for_stderr(&self, text: &str) -> Result<(), Failed> {
        self.wait_for_stderr_times(text, 1)
    }

    /// Waits until its standard error has this text so many times.
    pub fn wait_for_stderr_times(&self, text: &str, times: usize) -> Result<(), Failed> {
        wait_for(self.stderr.as_ref(), text, times, "standard error")
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Result<Ended, Failed> {
        let deadline = Instant::now() + Duration::from_secs(RUN_SECONDS_MAX);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let said = [&self.stdout, &self.stderr].map(|o| o.as_ref().map(Output::so_far));
                return Err(format!("still running after {RUN_SECONDS_MAX} s: {said:?}").into());
            }
            thread::sleep(Duration::from_millis(2));
        };
        let text = |output: Option<Output>| output.map(Output::whole).unwrap_or_default();
        Ok(Ended {
            status: status.code().unwrap_or(128 + status.signal().unwrap_or(0)),
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Result<Ended, Failed> {
    start(command)?.finish()
}

/// The same with something on its standard input, no more than a pipe holds.
pub fn run_with(command: &mut Command, typed: &str) -> Result<Ended, Failed> {
    let mut running = spawn(command.stdin(Stdio::piped()))?;
    if let Some(mut stdin) = running.child.stdin.take() {
        // Who reads nothing may have ended.
        let _ = stdin.write_all(typed.as_bytes());
    }
    running.finish()
}

impl Ended {
    /// Fails unless the exit status is this.
    pub fn expect_status(&self, status: i32) -> Result<&Self, Failed> {
        if self.status == status {
            return Ok(self);
        }
        Err(format!("status {}, not {status}: {self:?}", self.status).into())
    }

    /// Fails unless standard output has this text.
    pub fn expect_stdout(&self, text: &str) -> Result<&Self, Failed> {
        if self.stdout.contains(text) {
            return Ok(self);
        }
        Err(format!("no {text:?} on standard output: {self:?}").into())
    }

    /// Fails unless standard error has this text.
    pub fn expect_stderr(&self, text: &str) -> Result<&Self, Failed> {
        if self.stderr.contains(text) {
            return Ok(self);
        }
        Err(format!("no {text:?} on standard error: {self:?}").into())
    }

    /// Lines of standard error but for those that say at the start what port `net` became, and that
    /// the guest begins.
    pub fn behind_start(&self) -> impl Iterator<Item = &str> {
        let said = ["outboard-tender: net: ", "outboard-tender: ready: "];
        let lines = self.stderr.lines();
        lines.filter(move |line| !said.iter().any(|start| line.starts_with(start)))
    }

    /// Fails unless the status is 1 and standard error is one line with all of this.
    pub fn expect_refusal(&self, says: &[&str]) -> Result<(), Failed> {
        self.expect_status(1)?;
        for text in says {
            self.expect_stderr(text)?;
        }
        match self.stderr.lines().count() {
            1 => Ok(()),
            _ => Err(format!("more than one line: {self:?}").into()),
        }
    }
}
