//! Programs that mean no good, or are careless, on the sockets of a stack; and sequences of calls
//! that a seed chooses, on the kernel's sockets and through the proxy.

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
/// Calls in an order that a seed chooses.
const SEQUENCES: &str = "e2e/services/proxy_sequences.py";
/// Seeds as in `0..100`, in the place of [`FIRST`] and [`COUNT`].
const SEEDS: &str = "OUTBOARD_PROXY_SEEDS";
const FIRST: u64 = 0;
const COUNT: u64 = 24;
/// Sequences that run at a time.
const AT_A_TIME: u64 = 24;
/// How long what is under way has to arrive, in seconds; and for those whose results differ, since
/// a busy machine is no difference.
const SECONDS: &str = "0.03";
const MORE_SECONDS: &str = "0.5";
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
            (
                "sequences of calls are answered as by the kernel",
                &["python3"],
                sequences,
            ),
        ],
    )
}

fn script(name: &str) -> String {
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
fn both(images: &Images, arguments: &[&str]) -> Result<[Ended; 2], Failed> {
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

fn sequences(images: &Images) -> Result<(), Failed> {
    let seeds = match std::env::var(SEEDS) {
        Ok(seeds) => {
            let (first, end) = seeds.split_once("..").ok_or("write seeds as 0..100")?;
            first.parse::<u64>()?..end.parse::<u64>()?
        }
        Err(_) => FIRST..FIRST + COUNT,
    };
    for first in seeds.clone().step_by(AT_A_TIME as usize) {
        let count = AT_A_TIME.min(seeds.end - first);
        for seed in differing(images, first, count, SECONDS)? {
            // What differs by chance, a busy machine's, does so no more with more time.
            differing(images, seed.0, 1, MORE_SECONDS)?
                .into_iter()
                .try_for_each(|(seed, what)| {
                    Err(format!("{SEEDS}={seed}..{}: {what}", seed + 1))
                })?;
        }
    }
    Ok(())
}

/// Seeds whose results differ, and the first difference of each.
fn differing(
    images: &Images,
    first: u64,
    count: u64,
    seconds: &str,
) -> Result<Vec<(u64, String)>, Failed> {
    let (script, from, many) = (script(SEQUENCES), first.to_string(), count.to_string());
    let [alone, through] = both(images, &[&script, &from, &many, seconds])?;
    let of = |ended: &Ended, seed: u64| -> Vec<String> {
        let start = format!("{seed} ");
        let lines = ended.stdout.lines().filter(|line| line.starts_with(&start));
        lines.map(str::to_owned).collect()
    };
    let mut found = Vec::new();
    for seed in first..first + count {
        let (a, b) = (of(&alone, seed), of(&through, seed));
        if a.len() < 2 {
            return Err(format!("seed {seed} has made no calls: {alone:?}").into());
        }
        let differs = a.iter().zip(&b).find(|(a, b)| a != b);
        if let Some((a, b)) = differs {
            found.push((seed, format!("the kernel says {a:?}, the proxy {b:?}")));
        }
    }
    Ok(found)
}
