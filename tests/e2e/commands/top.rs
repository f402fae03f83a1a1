//! `outboard top`: one table, JSON, and a live view in a terminal that the test plays.

use super::stats::{Watched, named_guest};
use crate::harness::build::Images;
use crate::harness::frames;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::runtime::Runtime;
use libtest_mimic::{Failed, Trial};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a page may take to show.
const PATIENCE: Duration = Duration::from_secs(20);
/// Lines of the terminal, of 120 characters.
const LINES: u16 = 10;

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("rates are those of what is sent", rates),
    ("a terminal shows it until q", live),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial =
        |&(name, test): &(&str, Test)| network.trial(format!("top::{name}"), move || test(images));
    TESTS.iter().map(trial).collect()
}

/// Sends frames at an even pace, until the guard is dropped.
struct Traffic<'a> {
    ends: &'a AtomicBool,
}

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// About so many frames in a second.
const PACE: f64 = 200.0;

fn with_traffic<T>(
    watched: &Watched,
    what: impl FnOnce() -> Result<T, Failed>,
) -> Result<T, Failed> {
    let ends = AtomicBool::new(false);
    thread::scope(|threads| {
        let _traffic = Traffic { ends: &ends };
        threads.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                if watched.left.send(&frames::tcp(1234, b"no")).is_err() {
                    return;
                }
                thread::sleep(Duration::from_secs_f64(1.0 / PACE));
            }
        });
        what()
    })
}

fn rates(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let none = runtime.json(images, &["top", "--json", "--interval=0.1"])?;
    if none["guests"]
        .as_array()
        .is_none_or(|list| !list.is_empty())
    {
        return Err(format!("{none}").into());
    }
    let watched = named_guest(images, &runtime)?;
    let list = with_traffic(&watched, || runtime.json(images, &["top", "--json"]))?;
    let guest = &list["guests"][0];
    let number = |path: &str| {
        let number = guest.pointer(path).and_then(Value::as_f64);
        number.ok_or_else(|| Failed::from(format!("no {path} in {guest}")))
    };
    // A machine may be busy, so fewer may have been sent; more were not.
    let received = number("/ports/0/receive/frames")?;
    let in_bounds = (PACE / 20.0..PACE * 1.5).contains(&received)
        && number("/ports/0/receive/bits")? > 8.0 * 42.0 * received
        && number("/ports/1/transmit/frames")? < 1.0
        && number("/memory_bytes")? > f64::from(1 << 20)
        && (0.0..200.0).contains(&number("/cpu_percent")?)
        && guest["state"] == "running"
        && guest["name"] == "fw";
    in_bounds
        .then_some(())
        .ok_or_else(|| format!("{guest:#}"))?;
    let table = run(&mut runtime.outboard(images, &["top", "--interval=0.1", "--sort=traffic"]))?;
    table.expect_status(0)?.expect_stdout("guest")?;
    table.expect_stdout("  private")?;
    // A pipe is no terminal.
    match table.stdout.contains('\x1b') {
        true => Err(table.stdout.into()),
        false => Ok(()),
    }
}

/// A terminal: our end, and the program's.
fn terminal() -> Result<(OwnedFd, OwnedFd), Failed> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty())?;
    let size = Winsize {
        ws_row: LINES,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&ours, size)?;
    Ok((ours, theirs))
}

fn live(images: &Images) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let _watched = named_guest(images, &runtime)?;
    let (ours, theirs) = terminal()?;
    let before = tcgetattr(&theirs)?.local_modes;
    let mut command = runtime.outboard(images, &["top", "--interval=0.2"]);
    command
        .stdin(Stdio::from(theirs.try_clone()?))
        .stdout(Stdio::from(theirs.try_clone()?));
    let mut child = command.spawn()?;
    drop(command);
    let mut ours = std::fs::File::from(ours);
    let mut shown = String::new();
    let mut until = |ours: &mut std::fs::File, text: &str| {
        let deadline = Instant::now() + PATIENCE;
        shown.clear();
        while !shown.contains(text) {
            if Instant::now() > deadline {
                return Err(Failed::from(format!("no {text:?} in {shown:?}")));
            }
            // A new page comes five times a second, so this waits no longer.
            let mut bytes = [0; 4096];
            let count = ours.read(&mut bytes)?;
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        Ok(shown.clone())
    };
    until(&mut ours, "name*")?;
    let page = until(&mut ours, "private")?;
    let raw = !tcgetattr(&theirs)?.local_modes.contains(LocalModes::ICANON);
    ours.write_all(b"c")?;
    until(&mut ours, "cpu*")?;
    ours.write_all(b"q")?;
    // The page that there was before, and the cursor.
    until(&mut ours, "\x1b[?1049l")?;
    let status = child.wait()?;
    let after = tcgetattr(&theirs)?.local_modes;
    match status.success() && raw && before == after {
        true => Ok(()),
        false => Err(format!("{status}, raw: {raw}, {before:?}, {after:?}; {page:?}").into()),
    }
}
