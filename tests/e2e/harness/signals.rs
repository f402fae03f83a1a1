//! Signals that whoever started the tests ignores, as `nohup` does, and a script for what it starts
//! in the background. Programs inherit that, and a test that sends such a signal waits in vain.

use crate::harness::process::run;
use libtest_mimic::{Failed, Trial};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Sees to it that what the tests start ignores no signal. The kernel gives a signal that a process
/// catches its default again in the programs that it starts, so what is ignored is caught instead,
/// and forgotten. Masks need nothing: the standard library empties those of what it starts.
pub fn restore() {
    let forgotten = Arc::new(AtomicBool::new(false));
    for signal in ignored("self").unwrap_or_default() {
        if !signal_hook::consts::FORBIDDEN.contains(&signal) {
            // One that cannot be caught no test sends.
            let _ = signal_hook::flag::register(signal, Arc::clone(&forgotten));
        }
    }
}

/// The signals that a process ignores.
fn ignored(process: &str) -> Result<Vec<i32>, Failed> {
    of_status(&std::fs::read_to_string(format!("/proc/{process}/status"))?)
}

/// The signals that a process ignores whose `status` this is. Those of real time are left out: the
/// C library keeps two of them for itself.
fn of_status(status: &str) -> Result<Vec<i32>, Failed> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.ok_or("no SigIgn")?.trim(), 16)?;
    Ok((1..32).filter(|n| mask >> (n - 1) & 1 == 1).collect())
}

const STARTED: &str = "signals::a program that a test starts ignores none";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test(STARTED, started),
        Trial::test("signals::nor if whoever started the tests does", inherited),
    ]
}

fn started() -> Result<(), Failed> {
    let ended = run(Command::new("cat").arg("/proc/self/status"))?;
    let ignored = of_status(&ended.expect_status(0)?.stdout)?;
    let blocked = ended.stdout.contains("SigBlk:\t0000000000000000");
    let none = ignored.is_empty() && blocked;
    none.then_some(())
        .ok_or_else(|| format!("ignored: {ignored:?}; {}", ended.stdout).into())
}

/// The test above again, in a run of the tests that a shell started which ignores signals.
fn inherited() -> Result<(), Failed> {
    let script = "trap '' HUP INT QUIT TERM USR1 CHLD; exec \"$0\" --exact \"$1\"";
    let mut tests = Command::new("sh");
    tests
        .args(["-c", script])
        .arg(std::env::current_exe()?)
        .arg(STARTED)
        // It builds nothing.
        .env("OUTBOARD_PREBUILT", "/");
    let ended = run(&mut tests)?;
    ended.expect_status(0)?.expect_stdout("1 passed").map(drop)
}
