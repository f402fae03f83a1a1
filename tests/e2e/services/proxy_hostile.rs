//! Programs that mean no good, or are careless, on the sockets of a stack.

use super::proxy::{PATIENCE, Stack, trials_of};
use crate::harness::build::{Images, root};
use crate::harness::network::Network;
use crate::harness::process::{Ended, run, start};
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use testbed::segment::Segment;

/// Programs, each by its name there.
const HOSTILE: &str = "e2e/services/proxy_hostile.py";
/// What a proxy may hold more than before, once 10,000 connections are over. A thousand are open at
/// a time, each with 64 KiB for what the program writes, and the allocator keeps what was freed.
const DESCRIPTORS_MORE: usize = 64;
const KILOBYTES_MORE: u64 = 128 << 10;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    trials_of(
        images,
        network,
        &[
            (
                "who makes sockets without end starves nobody",
                &["python3"],
                |images| says(images, "flood", &["served 20"]),
            ),
            (
                "an address is changed while it is read",
                &["python3"],
                |images| says(images, "race", &["answered", "echo True"]),
            ),
            (
                "pointers lead nowhere, as without a proxy",
                &["python3"],
                pointers,
            ),
            (
                "processes are forked without end",
                &["python3", "pgrep"],
                forks,
            ),
            (
                "connections end in the middle of a transfer",
                &["python3"],
                |images| says(images, "halves", &["ended echo True"]),
            ),
            (
                "descriptors are handed to other processes",
                &["python3"],
                |images| says(images, "rights", &["handed over 0 echo True"]),
            ),
            ("processes are stopped, and go on", &["python3"], |images| {
                says(
                    images,
                    "stopped",
                    &["signal b'12345' 0", "debugger b'12345' 0"],
                )
            }),
            ("connections are opened and left", &["python3"], abandoned),
        ],
    )
}

/// The path of a script, by its name in the folder of tests.
pub fn script(name: &str) -> String {
    root().join("tests").join(name).display().to_string()
}

/// A part of the script says all of this, and ends.
fn says(images: &Images, part: &str, lines: &[&str]) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let ended = run(&mut stack.program(&["python3", &script(HOSTILE), part]))?;
    ended.expect_status(0)?.expect_stdout("the end")?;
    for line in lines {
        ended.expect_stdout(line)?;
    }
    stack.goes_on()
}

/// The same on the host's sockets, by the kernel alone and through the proxy.
pub fn both(images: &Images, arguments: &[&str]) -> Result<[Ended; 2], Failed> {
    let alone = Command::new("python3");
    let mut through = Command::new(images.program("outboard"));
    through.args(["proxy", "--net=host", "--", "python3"]);
    let [alone, through] = [alone, through].map(|mut command| {
        // A network of its own, where ports do not wait for what another one had.
        let segment = Segment::new()?;
        segment.netlink(|netlink| netlink.set_up("lo"))?;
        segment.run(|| run(command.args(arguments)))
    });
    let both = [alone?, through?];
    for ended in &both {
        ended.expect_status(0)?.expect_stdout("the end")?;
    }
    Ok(both)
}

fn pointers(images: &Images) -> Result<(), Failed> {
    let [alone, through] = both(images, &[&script(HOSTILE), "pointers"])?;
    for (a, b) in alone.stdout.lines().zip(through.stdout.lines()) {
        if a != b {
            return Err(format!("the kernel says {a:?}, the proxy {b:?}").into());
        }
    }
    Ok(())
}

fn forks(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let script = script(HOSTILE);
    let program = start(&mut stack.program(&["python3", &script, "forks", "of-these"]))?;
    program.wait_for("echo True")?;
    program.signal(Signal::KILL);
    program.finish()?;
    eventually(PATIENCE, || {
        let left = Command::new("pgrep")
            .args(["-f", "forks of-these"])
            .output()?;
        match left.stdout.is_empty() {
            true => Ok(()),
            false => Err(Failed::from("some process is left")),
        }
    })?;
    stack.goes_on()
}

/// Descriptors and kilobytes that a process has.
fn held(process: u32) -> Result<(usize, u64), Failed> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"))?.count();
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    Ok((descriptors, kilobytes.ok_or("no VmRSS")?))
}

fn abandoned(images: &Images) -> Result<(), Failed> {
    let stack = Stack::new(images)?;
    let script = script(HOSTILE);
    let program = start(&mut stack.program(&["python3", &script, "abandoned"]))?;
    program.wait_for("left 100\n")?;
    let before = held(program.id())?;
    program.signal(Signal::USR1);
    program.wait_for("left 10100\n")?;
    eventually(PATIENCE, || {
        let after = held(program.id())?;
        let is_bounded =
            after.0 <= before.0 + DESCRIPTORS_MORE && after.1 <= before.1 + KILOBYTES_MORE;
        match is_bounded {
            true => Ok(()),
            false => Err(format!("it had {before:?}, and has {after:?}").into()),
        }
    })?;
    program.signal(Signal::USR1);
    program
        .finish()?
        .expect_status(0)?
        .expect_stdout("echo True")?;
    stack.goes_on()
}
